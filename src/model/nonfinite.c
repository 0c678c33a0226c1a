/* Finding where a NaN or infinity began, after a step that was not finite. Only then is device memory read back, so a
 * normal step pays nothing. */
#include "model/network.h"

#include <math.h>
#include <stdio.h>

enum { PIECE = 4096 };

/* Are n activations, or where `acts` is NULL n reals, finite? */
static int all_finite(mr_model *m, mr_act *acts, mr_real *reals, size_t n)
{
    float piece[PIECE];
    for (size_t at = 0; at < n; at += PIECE) {
        size_t count = n - at < PIECE ? n - at : PIECE;
        if (acts) m->dev->get_act(m->dev, piece, mr_act_at(m->dev, acts, at), count);
        else m->dev->get(m->dev, piece, mr_real_at(m->dev, reals, at), count);
        for (size_t i = 0; i < count; i++)
            if (!isfinite(piece[i])) return 0;
    }
    return 1;
}

/* Blocks that share their memory leave there what the last one did: computes again what this one had. */
static void restore(mr_model *m, mr_block *b, const mr_batch *batch)
{
    const mr_pass pass = mr_pass_over(m, batch, 1);
    const mr_block_state s = mr_block_state_of(m, b, m->carried ? m->start_state : NULL, NULL, batch->B);
    if (m->recompute.how == MR_RECOMPUTE_BLOCKS) mr_block_forward_to(b, &pass, &s, MR_BLOCK_KEPT);
}

/* Of a batch in chunks, the states between them are still there. */
static int find_in_borders(mr_model *m, const mr_batch *batch, char *out, size_t size)
{
    const size_t n = (size_t)batch->B * mr_model_state_reals(m);
    if (!m->train || !mr_in_chunks(m, batch)) return 0;
    for (int at = m->recompute.chunk, i = 1; at < batch->T; at += m->recompute.chunk, i++)
        if (!all_finite(m, NULL, mr_real_at(m->dev, m->chunks.borders, (size_t)i * n), n))
            return snprintf(out, size, "a state before token %d", at);
    return 0;
}

static int find_in_forward(mr_model *m, const mr_batch *batch, char *out, size_t size)
{
    const mr_config *c = &m->config;
    const mr_shape shape = mr_chunk_shape(m, (mr_shape){batch->B, batch->T});
    const size_t N = (size_t)shape.B * (size_t)shape.T;
    size_t D = (size_t)c->dim, H = (size_t)mr_mixer_at(c->mixer)->width(c);
    if (!all_finite(m, m->blocks[0].x, NULL, N * D)) return snprintf(out, size, "embed (output)");
    for (int i = 0; i < c->layers; i++) {
        mr_block *b = &m->blocks[i];
        restore(m, b, batch);
        if (!all_finite(m, b->h, NULL, N * H)) return snprintf(out, size, "blocks.%d.mixer (output)", i);
        if (!all_finite(m, b->x2, NULL, N * D)) return snprintf(out, size, "blocks.%d.mixer.down (output)", i);
        if (!all_finite(m, b->out, NULL, N * D)) return snprintf(out, size, "blocks.%d.mlp (output)", i);
    }
    return 0;
}

void mr_model_name_place(char *out, size_t size, const char *name, const char *what)
{
    snprintf(out, size, "%s (%s)", name, what);
}

int mr_model_find_nonfinite(mr_model *m, const mr_batch *batch, char *out, size_t size)
{
    const mr_shape shape = mr_chunk_shape(m, (mr_shape){batch->B, batch->T});
    const size_t rows = mr_head_rows(m->interface.head, (size_t)shape.B, (size_t)shape.T);
    if (find_in_borders(m, batch, out, size) || find_in_forward(m, batch, out, size)) return 1;
    /* The backward starts at the head, so of all bad gradients the last one in the table was computed first. */
    for (int i = m->params.count - 1; m->grads && i >= 0; i--) {
        const mr_param *p = &m->params.list[i];
        if (all_finite(m, NULL, mr_real_at(m->dev, m->grads, p->offset), p->count)) continue;
        mr_model_name_place(out, size, p->name, "gradient");
        return 1;
    }
    const size_t scores = rows * (size_t)m->interface.outputs;
    if (mr_in_slices(m, rows) ? all_finite(m, NULL, m->row_loss, rows) : all_finite(m, m->logits, NULL, scores))
        return 0;
    mr_model_name_place(out, size, "head", "loss");
    return 1;
}
