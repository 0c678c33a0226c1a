/* Questions about a net: its sizes, settings and metadata; text to tokens and back. */
#include "api/api.h"

#include "core/strbuf.h"

#include <string.h>

mr_input mr_net_input(const mr_net *net) { return net->interface.input; }
int mr_net_inputs(const mr_net *net) { return net->interface.inputs; }
mr_head mr_net_head(const mr_net *net) { return net->interface.head; }
mr_loss mr_net_loss(const mr_net *net) { return net->interface.loss; }
int mr_net_outputs(const mr_net *net) { return net->interface.outputs; }
int64_t mr_net_parameters(const mr_net *net) { return mr_model_count(net->owner); }
size_t mr_net_state_bytes(const mr_net *net) { return net->state_reals * sizeof(float); }
const mr_vocab *mr_net_vocab(const mr_net *net) { return net->vocab; }

size_t mr_net_rows(const mr_net *net, int B, int T)
{
    return B < 1 || T < 1 ? 0 : mr_head_rows(net->interface.head, (size_t)B, (size_t)T);
}

int64_t mr_net_steps(const mr_net *net)
{
    mr_net *mutable_net = (mr_net *)net; /* for the lock: another thread may be training */
    pthread_mutex_lock(&mutable_net->lock);
    const int64_t steps = net->steps;
    pthread_mutex_unlock(&mutable_net->lock);
    return steps;
}

static int vocab_setting(const mr_net *net, char *text, size_t capacity, mr_error *err)
{
    if (!net->vocab) return mr_fail(err, MR_EINVAL, "vocab: this model has none");
    return mr_vocab_print(net->vocab, text, capacity, NULL, err);
}

int mr_net_setting(const mr_net *net, const char *key, char *text, size_t capacity, mr_error *err)
{
    const mr_option *const tables[] = {mr_config_options, mr_learn_table, NULL};
    mr_learn_settings train;
    const void *const settings[] = {mr_model_config(net->owner), &train};
    mr_net *mutable_net = (mr_net *)net; /* for the lock: mr_net_set may be changing it */
    char value[MR_TEXT_MAX];
    for (int i = 0; tables[i]; i++) {
        const mr_option *o = mr_option_find(tables[i], key);
        if (!o) continue;
        pthread_mutex_lock(&mutable_net->lock);
        train = net->train;
        if (net->chosen.how != MR_RECOMPUTE_AUTO) {
            train.recompute = net->chosen.how;
            train.recompute_chunk = net->chosen.chunk;
        }
        pthread_mutex_unlock(&mutable_net->lock);
        mr_option_print(o, settings[i], value);
        return mr_copy_text(value, text, capacity, NULL, err);
    }
    if (!strcmp(key, "vocab")) return vocab_setting(net, text, capacity, err);
    if (!strcmp(key, "horizon"))
        return mr_fail(err, MR_EINVAL, "horizon: is used only when a net is created, and not stored");
    return mr_fail(err, MR_EINVAL, "%.100s: no such key; mr_key_at lists them", key);
}

/* ---- metadata ---- */

static mr_meta_entry *find_meta(const mr_net *net, const char *key)
{
    for (int i = 0; i < net->meta_count; i++)
        if (!strcmp(net->meta[i].key, key)) return &net->meta[i];
    return NULL;
}

static char *copy_text(const mr_allocator *allocator, const char *text)
{
    const size_t size = strlen(text) + 1;
    char *copy = mr_alloc_with(allocator, size, 1);
    return copy ? memcpy(copy, text, size) : NULL;
}

static int make_room(mr_net *net)
{
    const mr_allocator *allocator = &net->ctx->allocator;
    if (net->meta_count < net->meta_room) return 1;
    const int room = 2 * net->meta_room + 16;
    mr_meta_entry *meta = mr_alloc_with(allocator, (size_t)room, sizeof *meta);
    if (!meta) return 0;
    if (net->meta_count) memcpy(meta, net->meta, (size_t)net->meta_count * sizeof *meta);
    mr_free_with(allocator, net->meta);
    net->meta = meta;
    net->meta_room = room;
    return 1;
}

int mr_net_put_meta(mr_net *net, const char *key, const char *value)
{
    const mr_allocator *allocator = &net->ctx->allocator;
    mr_meta_entry *entry = find_meta(net, key);
    char *copy = copy_text(allocator, value);
    if (!copy) return 0;
    if (entry) {
        mr_free_with(allocator, entry->value);
        entry->value = copy;
        return 1;
    }
    char *name = make_room(net) ? copy_text(allocator, key) : NULL;
    if (!name) return mr_free_with(allocator, copy), 0;
    net->meta[net->meta_count++] = (mr_meta_entry){name, copy};
    return 1;
}

const char *mr_net_meta(const mr_net *net, const char *key)
{
    mr_net *mutable_net = (mr_net *)net; /* for the lock: another thread may be adding an entry */
    pthread_mutex_lock(&mutable_net->lock);
    const mr_meta_entry *entry = find_meta(net, key);
    const char *value = entry ? entry->value : NULL;
    pthread_mutex_unlock(&mutable_net->lock);
    return value;
}

const char *mr_net_meta_key(const mr_net *net, int index)
{
    mr_net *mutable_net = (mr_net *)net;
    pthread_mutex_lock(&mutable_net->lock);
    const char *key = index >= 0 && index < net->meta_count ? net->meta[index].key : NULL;
    pthread_mutex_unlock(&mutable_net->lock);
    return key;
}

int mr_net_set_meta(mr_net *net, const char *key, const char *value, mr_error *err)
{
    static const char *const ours[] = {"format", "version", "step", "vocab", NULL};
    for (int i = 0; ours[i]; i++)
        if (!strcmp(key, ours[i])) return mr_fail(err, MR_EINVAL, "%s: the library writes this key itself", key);
    if (!strncmp(key, "model.", 6) || !strncmp(key, "state.", 6))
        return mr_fail(err, MR_EINVAL, "%.100s: keys that begin with model. or state. are reserved for the library",
                       key);
    if (!strchr(key, '.'))
        return mr_fail(err, MR_EINVAL, "%.100s: your own keys need a dot, as in \"mine.author\"", key);
    pthread_mutex_lock(&net->lock);
    const int kept = mr_net_put_meta(net, key, value);
    pthread_mutex_unlock(&net->lock);
    return kept ? 0 : mr_no_memory(err, key);
}

int mr_file_meta(const char *path, const char *key, char *text, size_t capacity, size_t *needed, mr_error *err)
{
    mr_st *st;
    if (needed) *needed = 0;
    if (capacity && text) *text = 0;
    int status = mr_st_open(path, &st, err);
    const char *value = status ? NULL : mr_st_meta(st, key);
    if (value) status = mr_copy_text(value, text, capacity, needed, err);
    mr_st_close(st);
    return status;
}

/* ---- text ---- */

static int need_vocab(const mr_net *net, mr_error *err)
{
    return net->vocab ? 0 : mr_fail(err, MR_EINVAL, "this model does not read text: it has no vocabulary");
}

int mr_net_encode(const mr_net *net, const char *text, size_t size, int32_t *tokens, size_t capacity, size_t *count,
                  size_t *used, mr_error *err)
{
    size_t taken = 0;
    *count = 0;
    if (used) *used = 0;
    int status = need_vocab(net, err);
    if (!status) status = mr_vocab_encode(net->vocab, text, size, !used, 0, tokens, capacity, count, &taken, err);
    if (used) *used = taken;
    if (used || status || taken == size) return status;
    size_t needed = 0;
    status = mr_vocab_encode(net->vocab, text, size, 1, 0, NULL, 0, &needed, &taken, err);
    return status ? status : mr_check_capacity(tokens, capacity, needed, "tokens", err);
}

int mr_net_decode(const mr_net *net, const int32_t *tokens, size_t n, char *text, size_t capacity, size_t *size,
                  mr_error *err)
{
    char bytes[4];
    size_t needed = 0;
    *size = 0;
    int status = need_vocab(net, err);
    if (status) return status;
    for (size_t i = 0, length; i < n; i++, needed += length)
        if (!(length = (size_t)mr_vocab_decode(net->vocab, tokens[i], bytes)))
            return mr_fail(err, MR_EINVAL, "tokens[%zu] = %d: not in the vocabulary of %d", i, (int)tokens[i],
                           net->vocab->size);
    if (n) status = mr_check_capacity(text, capacity, needed, "text", err);
    for (size_t i = 0; !status && i < n; i++) {
        const size_t length = (size_t)mr_vocab_decode(net->vocab, tokens[i], bytes);
        memcpy(text + *size, bytes, length);
        *size += length;
    }
    return status;
}
