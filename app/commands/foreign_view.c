/* Weights of another program: tensors, totals, whose they are, and the command that imports them. */
#include "commands/foreign_view.h"

#include "commands/json_out.h"
#include "core/file.h"
#include "core/mem.h"
#include "weights/formats.h"

#include <stdio.h>
#include <string.h>

static int is_minrnn(const char *format) { return format && !strcmp(format, "minrnn"); }

/* Is it a folder with a run's model, or a file of minrnn? */
static int is_ours(const char *given)
{
    char format[16] = "";
    size_t needed = 0;
    char *inside = mr_path_join(given, "model.safetensors");
    const char *path = inside && mr_path_exists(inside) ? inside : given;
    const int ours = !mr_file_meta(path, "format", format, sizeof format, &needed, NULL) && is_minrnn(format);
    mr_free(inside);
    return ours;
}

/* A state, or a model of minrnn whose metadata were damaged: opening it as a model says what is wrong. */
static int is_remains(const mr_foreign *f)
{
    return is_minrnn(mr_foreign_meta(f, "format")) ||
           (mr_foreign_meta(f, "version") && mr_foreign_meta(f, "model.mixer"));
}

static int is_index(const char *given)
{
    const size_t size = strlen(given);
    return size > 5 && !strcmp(given + size - 5, ".json");
}

int mr_foreign_view_open(const char *given, mr_foreign **out, mr_error *err)
{
    mr_error inner;
    *out = NULL;
    if (is_ours(given)) return 0;
    const int status = mr_foreign_open(given, out, &inner);
    if (!status && (!(*out)->count || is_remains(*out))) {
        mr_foreign_close(*out);
        *out = NULL;
    }
    char *index = mr_path_join(given, "model.safetensors.index.json");
    const int surely = is_index(given) || (index && mr_path_exists(index)) || mr_is_torch_save(given);
    mr_free(index);
    if (status && surely) return mr_fail(err, status, "%s", inner.text);
    return 0;
}

static long long numbers_of(const mr_foreign *f)
{
    long long total = 0;
    for (int i = 0; i < f->count; i++) total += (long long)mr_st_elements(f->tensors[i].at);
    return total;
}

static long long bytes_of(const mr_foreign *f)
{
    long long total = 0;
    for (int i = 0; i < f->count; i++) total += (long long)f->tensors[i].at->bytes;
    return total;
}

/* A stranger's name as printable text: control characters, which steer terminals, become '?'. */
static void print_name(const char *name)
{
    int width = 0;
    for (; *name; name++) {
        const unsigned char c = (unsigned char)*name;
        putchar(c < ' ' || c == 0x7f ? '?' : c);
        width += (c & 0xc0) != 0x80; /* bytes that continue a character take no place */
    }
    for (; width < 52; width++) putchar(' ');
}

static void print_text(const mr_foreign *f, const char *given)
{
    const char *what;
    const mr_format *format = mr_format_guess(f, &what);
    printf("%s\n\n", what ? what : "weights of a program that minrnn does not know");
    for (int i = 0; i < f->count; i++) {
        const mr_st_tensor *t = f->tensors[i].at;
        printf("  ");
        print_name(t->name);
        printf(" %-4s ", mr_st_dtype_name(t->dtype));
        for (int k = 0; k < t->ndim; k++) printf("%s%lld", k ? " × " : "", (long long)t->shape[k]);
        printf("\n");
    }
    printf("\n%d tensors, %lld numbers, %lld bytes", f->count, numbers_of(f), bytes_of(f));
    if (f->shard_count > 1) printf(", in %d shards", f->shard_count);
    printf("\n");
    if (format) printf("to import: minrnn import %s --from %s --out MODEL\n", given, format->name);
}

static void write_tensors(mr_json_writer *w, const mr_foreign *f)
{
    mr_json_write_key(w, "tensors");
    mr_json_write_open(w, '[');
    for (int i = 0; i < f->count; i++) {
        const mr_st_tensor *t = f->tensors[i].at;
        mr_json_write_open(w, '{');
        mr_json_field_text(w, "name", t->name);
        mr_json_write_key(w, "shape");
        mr_json_write_open(w, '[');
        for (int k = 0; k < t->ndim; k++) mr_json_write_whole(w, t->shape[k]);
        mr_json_write_close(w, ']');
        mr_json_field_text(w, "dtype", mr_st_dtype_name(t->dtype));
        mr_json_write_close(w, '}');
    }
    mr_json_write_close(w, ']');
}

static int print_json(const mr_foreign *f, mr_error *err)
{
    const char *what;
    const mr_format *format = mr_format_guess(f, &what);
    mr_json_out out;
    mr_json_writer *w = mr_json_out_begin(&out);
    mr_json_write_open(w, '{');
    mr_json_field_text(w, "foreign", what ? what : "unknown");
    mr_json_field_text(w, "from", format ? format->name : NULL);
    write_tensors(w, f);
    mr_json_field_whole(w, "total_numbers", numbers_of(f));
    mr_json_field_whole(w, "total_bytes", bytes_of(f));
    mr_json_field_whole(w, "shards", f->shard_count);
    mr_json_write_close(w, '}');
    return mr_json_out_end(&out, "\n", err);
}

int mr_foreign_view_print(const mr_foreign *f, const char *given, int json, mr_error *err)
{
    if (json) return print_json(f, err);
    print_text(f, given);
    return 0;
}
