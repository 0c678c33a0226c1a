/* After a step that was not finite: where it began. Only then is device memory read back, so a normal step pays
 * nothing. */
#include "model/network.h"

#include <math.h>
#include <stdio.h>

enum { PIECE = 4096 };

static int finite_acts(mr_model *m, mr_act *x, size_t n)
{
    float piece[PIECE];
    for (size_t at = 0; at < n; at += PIECE) {
        size_t count = n - at < PIECE ? n - at : PIECE;
        m->dev->get_act(m->dev, piece, mr_act_at(m->dev, x, at), count);
        for (size_t i = 0; i < count; i++)
            if (!isfinite(piece[i])) return 0;
    }
    return 1;
}

static int finite_reals(mr_model *m, mr_real *x, size_t n)
{
    float piece[PIECE];
    for (size_t at = 0; at < n; at += PIECE) {
        size_t count = n - at < PIECE ? n - at : PIECE;
        m->dev->get(m->dev, piece, mr_real_at(m->dev, x, at), count);
        for (size_t i = 0; i < count; i++)
            if (!isfinite(piece[i])) return 0;
    }
    return 1;
}

static int blame_forward(mr_model *m, size_t N, char *out, size_t size)
{
    const mr_config *c = &m->config;
    size_t D = (size_t)c->dim, H = (size_t)mr_mixer_at(c->mixer)->width(c);
    if (!finite_acts(m, m->blocks[0].x, N * D)) return snprintf(out, size, "embed (output)");
    for (int i = 0; i < c->layers; i++) {
        mr_block *b = &m->blocks[i];
        if (!finite_acts(m, b->h, N * H)) return snprintf(out, size, "blocks.%d.mixer (output)", i);
        if (!finite_acts(m, b->x2, N * D)) return snprintf(out, size, "blocks.%d.mixer.down (output)", i);
        if (!finite_acts(m, b->out, N * D)) return snprintf(out, size, "blocks.%d.mlp (output)", i);
    }
    return 0;
}

void mr_model_place(char *out, size_t size, const char *name, const char *what)
{
    snprintf(out, size, "%s (%s)", name, what);
}

static int finite_logits(mr_model *m, size_t rows) { return finite_acts(m, m->logits, rows * (size_t)m->face.outputs); }

int mr_model_blame(mr_model *m, const mr_batch *batch, char *out, size_t size)
{
    if (blame_forward(m, (size_t)batch->B * (size_t)batch->T, out, size)) return 1;
    /* The backward runs from the head down: the last parameter in the table whose gradient is bad was reached first. */
    for (int i = m->params.count - 1; m->grads && i >= 0; i--) {
        const mr_param *p = &m->params.list[i];
        if (finite_reals(m, mr_real_at(m->dev, m->grads, p->offset), p->count)) continue;
        mr_model_place(out, size, p->name, "gradient");
        return 1;
    }
    if (finite_logits(m, mr_model_rows(m, batch))) return 0;
    snprintf(out, size, "head (loss)");
    return 1;
}
