/* Training that keeps less than all activations: which way it goes. chunks.c walks through chunks of time; blocks are
 * a matter of the plan (plan.c) and of the backward (learn.c). */
#include "model/network.h"

const char *const mr_recompute_names[] = {"auto", "none", "blocks", "chunks", NULL};

/* USUAL: tokens of a chunk, over all rows, where there is a choice: on a CPU few, because more leave its caches
 * (measured with 2 × 64: from 1,024 to 16,384 tokens, a tenth); a GPU needs many at once. LEAST: of a row, where memory
 * is short. */
enum { USUAL = 1 << 12, USUAL_QUEUED = 1 << 15, LEAST = 64 };

void mr_model_set_recompute(mr_model *m, mr_recomputing asked) { m->asked = asked; }
mr_recomputing mr_model_recompute(const mr_model *m) { return m->recompute; }

/* ---- the choice ---- */

static int longest(const mr_model *m)
{
    int T = 0;
    for (int i = 0; i < m->shape_count; i++) T = m->shapes[i].T > T ? m->shapes[i].T : T;
    return T;
}

static int widest(const mr_model *m)
{
    int B = 1;
    for (int i = 0; i < m->shape_count; i++) B = m->shapes[i].B > B ? m->shapes[i].B : B;
    return B;
}

/* Is there room, also for what ops take for themselves? A device that does not say how much it has must be asked. */
static int try_plan(mr_model *m, mr_recompute how, int chunk, mr_plan_sizes *sizes, mr_error *err)
{
    m->recompute = (mr_recomputing){.how = how, .chunk = chunk};
    if (m->dev->memory) return mr_plan_check(m, sizes, err);
    int status = mr_plan_make(m, sizes, err);
    if (status) return status;
    void *more = m->dev->alloc(m->dev, m->planned / 8);
    m->dev->release(m->dev, more);
    return more ? 0 : mr_no_memory(err, "what a step takes besides activations; lower batch or context");
}

/* As long as asked for, or a power of two: the usual one, then smaller ones, then larger ones, with fewer borders. */
static int try_chunks(mr_model *m, mr_plan_sizes *sizes, mr_error *err)
{
    const int T = longest(m), B = widest(m);
    int usual = 1, status;
    if (m->asked.chunk) return try_plan(m, MR_RECOMPUTE_CHUNKS, m->asked.chunk, sizes, err);
    const int64_t most = m->dev->queue ? USUAL_QUEUED : USUAL;
    while (2 * usual < T && 2 * (int64_t)usual * B <= most) usual *= 2;
    while (mr_chunks_of(T, usual) > MR_CHUNKS_MOST) usual *= 2;
    status = try_plan(m, MR_RECOMPUTE_CHUNKS, usual, sizes, err);
    for (int chunk = usual / 2; status == MR_ENOMEM && chunk >= LEAST && mr_chunks_of(T, chunk) <= MR_CHUNKS_MOST;
         chunk /= 2)
        status = try_plan(m, MR_RECOMPUTE_CHUNKS, chunk, sizes, err);
    for (int chunk = usual; status == MR_ENOMEM && chunk < T - chunk;)
        status = try_plan(m, MR_RECOMPUTE_CHUNKS, chunk *= 2, sizes, err);
    return status;
}

static int check_asked(const mr_model *m, mr_error *err)
{
    const mr_recompute how = m->asked.how;
    const int chunk = m->asked.chunk;
    if (chunk && (how == MR_RECOMPUTE_NONE || how == MR_RECOMPUTE_BLOCKS))
        return mr_fail(err, MR_ECONFIG, "recompute-chunk = %d: recompute = %s has no chunks; leave one of them out",
                       chunk, mr_recompute_names[how]);
    if (chunk && mr_chunks_of(longest(m), chunk) > MR_CHUNKS_MOST)
        return mr_fail(err, MR_ECONFIG, "recompute-chunk = %d: cuts %d tokens into more than %d chunks; raise it",
                       chunk, longest(m), MR_CHUNKS_MOST);
    if (how == MR_RECOMPUTE_CHUNKS && m->group)
        return mr_fail(err, MR_ECONFIG,
                       "recompute = chunks: sequences are cut between ranks already; use blocks or none");
    if (how != MR_RECOMPUTE_CHUNKS || m->interface.head == MR_HEAD_TOKEN) return 0;
    char head[MR_TEXT_MAX];
    mr_option_print(mr_option_find(mr_config_options, "head"), &m->config, head);
    return mr_fail(err, MR_ECONFIG, "recompute = chunks: head = %s looks at whole sequences; use blocks or none", head);
}

/* The first way whose memory the device has. If none has, the error is that of the first. */
static int try_all(mr_model *m, mr_plan_sizes *sizes, mr_error *err)
{
    mr_error first, later;
    int status = try_plan(m, MR_RECOMPUTE_NONE, 0, sizes, &first);
    if (status == MR_ENOMEM && m->train && !try_plan(m, MR_RECOMPUTE_BLOCKS, 0, sizes, &later)) return 0;
    const int chunks = m->interface.head == MR_HEAD_TOKEN && !m->group;
    if (status == MR_ENOMEM && chunks && !try_chunks(m, sizes, &later)) return 0;
    if (status && err) *err = first;
    return status;
}

int mr_recompute_plan(mr_model *m, mr_plan_sizes *sizes, mr_error *err)
{
    const mr_recompute how = m->asked.how;
    int status = check_asked(m, err);
    if (status) return m->step = NULL, status; /* no plan: that of before is for other shapes */
    const int searched = how == MR_RECOMPUTE_AUTO || (how == MR_RECOMPUTE_CHUNKS && !m->asked.chunk);
    m->recompute = m->asked;
    if (how == MR_RECOMPUTE_BLOCKS && !m->train) m->recompute.how = MR_RECOMPUTE_NONE;
    if (searched) status = how == MR_RECOMPUTE_AUTO ? try_all(m, sizes, err) : try_chunks(m, sizes, err);
    /* a search that had to ask the device has made its plan */
    if (!status && !(searched && !m->dev->memory)) status = mr_plan_make(m, sizes, err);
    if (status) m->recompute = (mr_recomputing){.how = MR_RECOMPUTE_NONE};
    return status;
}
