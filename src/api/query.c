/* What can be asked of a net: sizes, settings, metadata, text. */
#include "api/api.h"

#include "core/text.h"

#include <string.h>

mr_input mr_net_input(const mr_net *net) { return net->face.input; }
int mr_net_inputs(const mr_net *net) { return net->face.inputs; }
mr_head mr_net_head(const mr_net *net) { return net->face.head; }
mr_loss mr_net_loss(const mr_net *net) { return net->face.loss; }
int mr_net_outputs(const mr_net *net) { return net->face.outputs; }
int64_t mr_net_parameters(const mr_net *net) { return mr_model_count(net->owner); }
size_t mr_net_state_bytes(const mr_net *net) { return net->state_reals * sizeof(float); }
const mr_vocab *mr_net_vocab(const mr_net *net) { return net->vocab; }

size_t mr_net_rows(const mr_net *net, int B, int T)
{
    return B < 1 || T < 1 ? 0 : mr_head_rows(net->face.head, (size_t)B, (size_t)T);
}

int64_t mr_net_steps(const mr_net *net)
{
    mr_net *own = (mr_net *)net; /* for the lock: a training may be counting at this moment */
    pthread_mutex_lock(&own->lock);
    const int64_t steps = net->steps;
    pthread_mutex_unlock(&own->lock);
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
    const void *const settings[] = {mr_model_config(net->owner), &net->train};
    mr_net *own = (mr_net *)net; /* for the lock: mr_net_set may be changing it at this moment */
    char value[MR_TEXT_MAX];
    for (int i = 0; tables[i]; i++) {
        const mr_option *o = mr_option_find(tables[i], key);
        if (!o) continue;
        pthread_mutex_lock(&own->lock);
        mr_option_print(o, settings[i], value);
        pthread_mutex_unlock(&own->lock);
        return mr_text_give(value, text, capacity, NULL, err);
    }
    if (!strcmp(key, "vocab")) return vocab_setting(net, text, capacity, err);
    if (!strcmp(key, "horizon")) return mr_fail(err, MR_EINVAL, "horizon: is used when a net is made, and not kept");
    return mr_fail(err, MR_EINVAL, "%.100s: no such key; mr_key_at lists them", key);
}

/* ---- metadata ---- */

static mr_note *find_note(const mr_net *net, const char *key)
{
    for (int i = 0; i < net->note_count; i++)
        if (!strcmp(net->notes[i].key, key)) return &net->notes[i];
    return NULL;
}

static char *copy_text(const mr_allocator *by, const char *text)
{
    const size_t size = strlen(text) + 1;
    char *copy = mr_alloc_by(by, size, 1);
    return copy ? memcpy(copy, text, size) : NULL;
}

static int make_room(mr_net *net)
{
    const mr_allocator *by = &net->ctx->allocator;
    if (net->note_count < net->note_room) return 1;
    const int room = 2 * net->note_room + 16;
    mr_note *notes = mr_alloc_by(by, (size_t)room, sizeof *notes);
    if (!notes) return 0;
    if (net->note_count) memcpy(notes, net->notes, (size_t)net->note_count * sizeof *notes);
    mr_free_by(by, net->notes);
    net->notes = notes;
    net->note_room = room;
    return 1;
}

int mr_net_note(mr_net *net, const char *key, const char *value)
{
    const mr_allocator *by = &net->ctx->allocator;
    mr_note *note = find_note(net, key);
    char *copy = copy_text(by, value);
    if (!copy) return 0;
    if (note) {
        mr_free_by(by, note->value);
        note->value = copy;
        return 1;
    }
    char *name = make_room(net) ? copy_text(by, key) : NULL;
    if (!name) return mr_free_by(by, copy), 0;
    net->notes[net->note_count++] = (mr_note){name, copy};
    return 1;
}

const char *mr_net_meta(const mr_net *net, const char *key)
{
    mr_net *own = (mr_net *)net; /* for the lock: another thread may be adding one */
    pthread_mutex_lock(&own->lock);
    const mr_note *note = find_note(net, key);
    const char *value = note ? note->value : NULL;
    pthread_mutex_unlock(&own->lock);
    return value;
}

const char *mr_net_meta_key(const mr_net *net, int index)
{
    mr_net *own = (mr_net *)net;
    pthread_mutex_lock(&own->lock);
    const char *key = index >= 0 && index < net->note_count ? net->notes[index].key : NULL;
    pthread_mutex_unlock(&own->lock);
    return key;
}

int mr_net_set_meta(mr_net *net, const char *key, const char *value, mr_error *err)
{
    static const char *const ours[] = {"format", "version", "step", "vocab", NULL};
    for (int i = 0; ours[i]; i++)
        if (!strcmp(key, ours[i])) return mr_fail(err, MR_EINVAL, "%s: the library writes this key itself", key);
    if (!strncmp(key, "model.", 6) || !strncmp(key, "state.", 6))
        return mr_fail(err, MR_EINVAL, "%.100s: keys that begin with model. or state. are the library's own", key);
    if (!strchr(key, '.'))
        return mr_fail(err, MR_EINVAL, "%.100s: a key of your own needs a dot in it, as in \"mine.author\"", key);
    pthread_mutex_lock(&net->lock);
    const int kept = mr_net_note(net, key, value);
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
    if (value) status = mr_text_give(value, text, capacity, needed, err);
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
    return status ? status : mr_check_room(tokens, capacity, needed, "tokens", err);
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
    if (n) status = mr_check_room(text, capacity, needed, "text", err);
    for (size_t i = 0; !status && i < n; i++) {
        const size_t length = (size_t)mr_vocab_decode(net->vocab, tokens[i], bytes);
        memcpy(text + *size, bytes, length);
        *size += length;
    }
    return status;
}
