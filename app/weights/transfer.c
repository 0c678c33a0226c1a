/* The beginning and the end of moving weights, and the settings of the net. transfer_tensors.c moves the numbers. */
#include "weights/transfer.h"

#include "core/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 100 /* bytes of a name that an error message repeats */ };

mr_name mr_name_of(const char *format, ...)
{
    mr_name name;
    va_list args;
    va_start(args, format);
    vsnprintf(name.text, sizeof name.text, format, args);
    va_end(args);
    return name;
}

void mr_transfer_fail(mr_transfer *t, const char *format, ...)
{
    char text[900];
    va_list args;
    if (t->status) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (t->from) t->status = mr_fail(t->err, MR_EFORMAT, "%s: %s", t->from->path, text);
    else t->status = mr_fail(t->err, MR_ECONFIG, "%s", text);
}

/* ---- beginning and end ---- */

int mr_transfer_import(mr_transfer *t, const mr_foreign *from, mr_context *ctx, mr_error *err)
{
    *t = (mr_transfer){.err = err, .layout = "", .ctx = ctx, .from = from};
    t->used = mr_alloc((size_t)from->count + 1, 1);
    return t->status = t->used ? 0 : mr_no_memory(err, from->path);
}

int mr_transfer_export(mr_transfer *t, mr_net *net, mr_error *err)
{
    *t = (mr_transfer){.err = err, .layout = "", .net = net};
    t->done = mr_alloc((size_t)mr_net_tensors(net) + 1, 1);
    t->to = mr_st_writer_new();
    return t->status = t->done && t->to ? 0 : mr_no_memory(err, "the weights");
}

void mr_transfer_finish(mr_transfer *t)
{
    mr_tensor ours = MR_TENSOR;
    for (int i = 0; !t->status && t->from && i < t->from->count; i++)
        if (!t->used[i])
            mr_transfer_fail(t, "tensor %.*s has no place in a %s", SHOWN, t->from->tensors[i].at->name, t->layout);
    for (int i = 0; !t->status && t->net && i < mr_net_tensors(t->net); i++) {
        if (t->done[i]) continue;
        t->status = mr_net_tensor(t->net, i, &ours, t->err);
        if (t->from) mr_transfer_fail(t, "nothing in it is the tensor %s of such a model", ours.name);
        else mr_transfer_fail(t, "tensor %s has no place in a %s", ours.name, t->layout);
    }
}

void mr_transfer_free(mr_transfer *t)
{
    for (int i = 0; i < t->key_count; i++) mr_free(t->keys[i].value);
    for (int i = 0; i < t->lent_count; i++) mr_free(t->lent[i]);
    mr_free(t->lent);
    mr_free(t->taken);
    mr_free(t->used);
    mr_free(t->done);
    mr_st_writer_free(t->to);
    if (t->from) mr_net_free(t->net);
    *t = (mr_transfer){0};
}

/* ---- settings ---- */

static mr_setting *find_key(mr_transfer *t, const char *key)
{
    for (int i = 0; i < t->key_count; i++)
        if (!strcmp(t->keys[i].key, key)) return &t->keys[i];
    return NULL;
}

static void set_text(mr_transfer *t, const char *key, const char *value)
{
    mr_setting *s = find_key(t, key);
    if (!s && t->key_count == MR_KEYS_MAX) return mr_transfer_fail(t, "more than %d settings", MR_KEYS_MAX);
    char *copy = mr_strdup(value);
    if (!copy) {
        t->status = mr_no_memory(t->err, "the settings");
        return;
    }
    if (!s) s = &t->keys[t->key_count++];
    mr_free(s->value);
    snprintf(s->key, sizeof s->key, "%s", key);
    s->value = copy;
}

void mr_set(mr_transfer *t, const char *key, const char *format, ...)
{
    char value[1024];
    va_list args;
    if (t->status) return;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    set_text(t, key, value);
}

static int is_given(const mr_transfer *t, const char *key)
{
    for (const char *const *given = t->given; given && *given; given += 2)
        if (!strcmp(*given, key)) return 1;
    return 0;
}

void mr_assume(mr_transfer *t, const char *key, const char *value)
{
    const size_t used = strlen(t->assumed);
    const mr_key *known = mr_key_find(key);
    if (t->status || is_given(t, key)) return;
    if (value) mr_set(t, key, "%s", value);
    snprintf(t->assumed + used, sizeof t->assumed - used, "%s%s = %s", used ? ", " : "", key,
             value   ? value
             : known ? known->fallback
                     : "");
}

static void set_channels(mr_transfer *t, const char *factor, const char *plain, int64_t width, int64_t dim)
{
    const mr_key *key = mr_key_find(factor);
    const int64_t times = dim && width % dim == 0 ? width / dim : 0;
    const int whole = times && (!key || (double)times <= key->max);
    if (whole) mr_set(t, factor, "%lld", (long long)times);
    else mr_set(t, plain, "%lld", (long long)width);
}

void mr_set_width(mr_transfer *t, int64_t width, int64_t dim) { set_channels(t, "expansion", "width", width, dim); }

void mr_set_mlp_width(mr_transfer *t, int64_t width, int64_t dim) { set_channels(t, "mlp", "mlp-width", width, dim); }

/* Keys that a vocabulary sets by itself. */
static int follows_from_vocab(const char *key)
{
    static const char *const keys[] = {"input", "inputs", "head", "loss", "outputs"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(keys[i], key)) return 1;
    return 0;
}

static int vocab_size(mr_transfer *t)
{
    mr_vocab *vocab;
    mr_error inner;
    if (mr_vocab_parse(t->vocab, &vocab, &inner)) return mr_transfer_fail(t, "vocab: %.800s", inner.text), 0;
    const int size = mr_vocab_size(vocab);
    mr_vocab_free(vocab);
    return size;
}

/* A vocabulary must be that of a model that reads tokens and has as many outputs. */
static void check_vocab(mr_transfer *t)
{
    const mr_setting *input = find_key(t, "input"), *inputs = find_key(t, "inputs"), *outputs = find_key(t, "outputs");
    const int size = vocab_size(t);
    if (t->status) return;
    if (!input || strcmp(input->value, "tokens"))
        return mr_transfer_fail(t, "has no tokens as input, so it can have no vocabulary");
    if (!inputs || atoi(inputs->value) != size || !outputs || atoi(outputs->value) != size)
        mr_transfer_fail(t, "reads %s tokens and has %s outputs, the vocabulary has %d", inputs ? inputs->value : "no",
                         outputs ? outputs->value : "no", size);
}

/* Refuses a net that is much larger than the file: the file lies about its sizes, or the settings do. */
static void check_size(mr_transfer *t, const char *const *settings)
{
    int64_t parameters;
    double numbers = 1e6;
    for (int i = 0; i < t->from->count; i++) numbers += 16 * (double)mr_st_elements(t->from->tensors[i].at);
    mr_error inner;
    if (mr_settings_check(settings, &parameters, &inner)) return mr_transfer_fail(t, "%.800s", inner.text);
    if ((double)parameters > numbers)
        mr_transfer_fail(t, "a model with these settings has %lld parameters, the file has far fewer numbers",
                         (long long)parameters);
}

void mr_transfer_create(mr_transfer *t)
{
    const char *list[2 * MR_KEYS_MAX + 4] = {NULL};
    int n = 0;
    for (const char *const *g = t->given; !t->status && g && *g; g += 2) set_text(t, g[0], g[1]);
    if (!t->status && t->vocab) check_vocab(t);
    if (t->status) return;
    if (t->vocab) list[n++] = "vocab", list[n++] = t->vocab;
    for (int i = 0; i < t->key_count; i++) {
        if (t->vocab && follows_from_vocab(t->keys[i].key)) continue;
        list[n++] = t->keys[i].key;
        list[n++] = t->keys[i].value;
    }
    check_size(t, list);
    if (!t->status) t->status = mr_net_create(t->ctx, list, &t->net, t->err);
    if (t->status) return;
    t->done = mr_alloc((size_t)mr_net_tensors(t->net) + 1, 1);
    if (!t->done) t->status = mr_no_memory(t->err, "the weights");
}

mr_name mr_setting_of(const mr_transfer *t, const char *key)
{
    mr_name value = {""};
    if (t->net && mr_net_setting(t->net, key, value.text, sizeof value.text, NULL)) value.text[0] = 0;
    return value;
}

int64_t mr_whole_of(const mr_transfer *t, const char *key) { return strtoll(mr_setting_of(t, key).text, NULL, 10); }

int mr_is_set(const mr_transfer *t, const char *key, const char *value)
{
    return !strcmp(mr_setting_of(t, key).text, value);
}

void mr_need(mr_transfer *t, const char *key, const char *value)
{
    if (t->status || mr_is_set(t, key, value)) return;
    mr_transfer_fail(t, "%s = %s: a %s has %s = %s", key, mr_setting_of(t, key).text, t->layout, key, value);
}
