/* The op state_rows on the states of models: it moves the same as copies row by row, for every mixer, and a recording
 * of it uses the slots as they are when it runs. */
#include "support.h"

enum { ROWS = 3, SLOTS = 7 };

static const mr_interface interface = {
    .input = MR_INPUT_TOKENS, .inputs = 11, .head = MR_HEAD_TOKEN, .loss = MR_LOSS_XENT, .outputs = 11};

typedef struct moving {
    mr_dev *dev;
    mr_state_rows_args args;
} moving;

static void move(void *arg)
{
    const moving *m = arg;
    m->dev->ops.state_rows(m->dev, &m->args);
}

/* By dev->replay: on a GPU the second time is recorded and the third replayed. */
static void move_slots(moving *m, int32_t *device_slots, const int32_t *slots, int scatter)
{
    const mr_replay_key key = {.work = MR_REPLAY_STEP, .model = m, .B = ROWS, .T = scatter};
    m->dev->upload(m->dev, device_slots, slots, ROWS * sizeof *slots);
    m->args.scatter = scatter;
    m->dev->replay(m->dev, &key, move, m);
}

static mr_state_rows_args args_of(const mr_model *model)
{
    size_t parts[MR_STATE_PARTS];
    mr_block_state_parts(&model->config, parts);
    return (mr_state_rows_args){.B = ROWS,
                                .layers = (int)model->config.layers,
                                .tail = (int)parts[0],
                                .mixer = (int)parts[1],
                                .rest = (int)parts[2]};
}

/* Copies one row piece by piece: in a state of B streams, each part of a block's state is contiguous. */
static void put_row(const mr_state *many, int row, mr_real *one)
{
    mr_dev *dev = many->model->dev;
    size_t parts[MR_STATE_PARTS], at = 0;
    mr_block_state_parts(&many->model->config, parts);
    for (int i = 0; i < (int)many->model->config.layers * MR_STATE_PARTS; i++) {
        const size_t n = parts[i % MR_STATE_PARTS];
        mr_real *to = mr_real_at(dev, many->reals, at * ROWS + (size_t)row * n);
        if (n) dev->copy(dev, to, mr_real_at(dev, one, at), n * dev->real_size);
        at += n;
    }
}

static void check_rows(mr_dev *dev, mr_model *model)
{
    static const int32_t turns[4][ROWS] = {{6, 0, 3}, {1, 2, 3}, {5, 4, 0}, {2, 6, 1}};
    bag own = {.dev = dev};
    mr_rng rng = mr_rng_at(3, MR_STREAM_SAMPLE, 0, 0);
    const size_t reals = mr_model_state_reals(model);
    mr_state *many = make_state(model, ROWS), *copied = make_state(model, ROWS), *one = make_state(model, 1);
    double *values = bag_random(&own, &rng, SLOTS * reals, 1);
    moving m = {dev, args_of(model)};
    int32_t *slots = bag_device(&own, sizeof turns[0]);
    mr_real *pool = bag_put(&own, values, SLOTS * reals), *back = bag_poisoned(&own, SLOTS * reals);
    m.args.slot = slots;
    m.args.many = many->reals;
    for (int t = 0; t < 4; t++) {
        m.args.pool = pool;
        move_slots(&m, slots, turns[t], 0);
        for (int row = 0; row < ROWS; row++) {
            put_doubles(dev, one->reals, values + (size_t)turns[t][row] * reals, reals);
            put_row(copied, row, one->reals);
        }
        const double *want = bag_get(&own, copied->reals, ROWS * reals);
        check_near("gathered", bag_get(&own, many->reals, ROWS * reals), want, ROWS * reals, 0);
    }
    for (int t = 0; t < 4; t++) {
        m.args.pool = back;
        for (int row = 0; row < ROWS; row++) {
            put_doubles(dev, one->reals, values + (size_t)turns[t][row] * reals, reals);
            put_row(many, row, one->reals);
        }
        move_slots(&m, slots, turns[t], 1);
        for (int row = 0; row < ROWS; row++) {
            mr_real *at = mr_real_at(dev, back, (size_t)turns[t][row] * reals);
            check_near("scattered", bag_get(&own, at, reals), values + (size_t)turns[t][row] * reals, reals, 0);
        }
    }
    mr_state_free(many), mr_state_free(copied), mr_state_free(one);
    bag_empty(&own);
}

static void check_device(mr_dev *dev)
{
    for (int i = 0; mr_mixer_names[i / 2]; i++) {
        mr_config config = config_with(mr_mixer_names[i / 2], &interface);
        config.layers = 2;
        config.dim = 12;
        config.conv = i % 2 ? 4 : 0;
        config.window = 5;
        config.heads = 2;
        mr_model *model = make_model(&config, dev, ROWS, 1, 0);
        check_rows(dev, model);
        mr_model_free(model);
    }
}

ON_DEVICES(rows_move_like_single_copies, check_device)

int main(void)
{
    const struct CMUnitTest tests[] = {DEVICE_TESTS(rows_move_like_single_copies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
