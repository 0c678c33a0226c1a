/* Single layers as models. */
#include "weights/bare.h"

#include <string.h>

static int64_t dim_of(const mr_bare *b) { return b->inputs + b->layers * b->outputs; }

static int64_t first_of(const mr_bare *b, int layer) { return b->inputs + layer * b->outputs; }

void mr_bare_set(mr_transfer *t, const mr_bare *b)
{
    mr_set(t, "input", "reals");
    mr_set(t, "inputs", "%lld", (long long)b->inputs);
    mr_set(t, "head", "token");
    mr_set(t, "loss", "mse");
    mr_set(t, "outputs", "%lld", (long long)b->outputs);
    mr_set(t, "layers", "%d", b->layers);
    mr_set(t, "dim", "%lld", (long long)dim_of(b));
    mr_set(t, "norm", "none");
    mr_set(t, "conv", "0");
    mr_set(t, "mlp", "0");
    mr_set_width(t, b->width, dim_of(b));
}

int mr_is_bare(mr_transfer *t, mr_bare *b)
{
    *b = (mr_bare){mr_whole_of(t, "inputs"), mr_whole_of(t, "outputs"), mr_size_of(t, "blocks.0.mixer.down.weight", 1),
                   (int)mr_whole_of(t, "layers")};
    return mr_is_set(t, "input", "reals") && mr_is_set(t, "head", "token") && mr_is_set(t, "norm", "none") &&
           mr_is_set(t, "conv", "0") && !mr_has_ours(t, "blocks.0.mlp.up.weight") &&
           mr_whole_of(t, "dim") == dim_of(b) && mr_is_set(t, "scaler", "none") && mr_is_set(t, "output", "linear") &&
           mr_is_eye(t, "embed.weight", 0, 0, b->inputs) && mr_is_filled(t, "embed.bias", 0) &&
           mr_is_eye(t, "head.weight", 0, first_of(b, b->layers - 1), b->outputs) && !mr_has_ours(t, "head.bias") &&
           mr_is_filled(t, "norm.weight", 1) && mr_is_filled(t, "blocks.0.norm1.weight", 1);
}

void mr_bare_fixed(mr_transfer *t, const mr_bare *b)
{
    mr_fill_eye(t, "embed.weight", 0, 0, b->inputs);
    mr_fill(t, "embed.bias", 0);
    mr_fill(t, "norm.weight", 1);
    mr_fill_eye(t, "head.weight", 0, first_of(b, b->layers - 1), b->outputs);
    for (int i = 0; i < b->layers; i++) mr_fill(t, mr_name_of("blocks.%d.norm1.weight", i).text, 1);
}

mr_part mr_bare_reads(const mr_bare *b, int layer, const char *ours)
{
    if (!layer) return (mr_part){.ours = ours, .columns = b->inputs};
    return (mr_part){.ours = ours, .column = first_of(b, layer - 1), .columns = b->outputs};
}

mr_part mr_bare_writes(const mr_bare *b, int layer, const char *ours)
{
    return (mr_part){.ours = ours, .row = first_of(b, layer), .rows = b->outputs};
}

void mr_bare_copies(mr_transfer *t, const mr_bare *b, int layer)
{
    mr_fill_eye(t, mr_name_of("blocks.%d.mixer.down.weight", layer).text, first_of(b, layer), 0, b->width);
}

int mr_is_copied(mr_transfer *t, const mr_bare *b, int layer)
{
    return b->width == b->outputs &&
           mr_is_eye(t, mr_name_of("blocks.%d.mixer.down.weight", layer).text, first_of(b, layer), 0, b->width);
}
