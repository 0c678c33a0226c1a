/* minrnn data: the data sets that tasks need. */
#include "core/file.h"
#include "core/mem.h"
#include "tasks/data.h"
#include "commands/args.h"
#include "commands/commands.h"
#include "commands/download_view.h"
#include "commands/json_out.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const mr_option flags[] = {MR_COMMON_FLAGS, {0}};

static void write_set(mr_json_writer *w, const mr_data_set *d, const char *path)
{
    mr_json_write_open(w, '{');
    mr_json_field_text(w, "name", d->name);
    mr_json_field_real(w, "bytes", d->bytes ? (double)d->bytes : NAN, 0);
    mr_json_field_text(w, "sha256", d->bytes ? d->sha256 : NULL);
    mr_json_field_text(w, "url", d->url);
    mr_json_field_text(w, "path", path);
    mr_json_write_close(w, '}');
}

static void print_set(const mr_data_set *d, const char *path)
{
    printf("%-14s %s\n%-14s %s\n", d->name, d->about, "", path ? path : "not here yet");
}

/* w: JSON; NULL: plain text. */
static void list_sets(mr_json_writer *w)
{
    for (const mr_data_set *d = mr_data_sets(); d->name; d++) {
        char *path = NULL;
        const char *here = mr_data_find(d->name, &path, NULL) ? NULL : path;
        if (w) write_set(w, d, here);
        else print_set(d, here);
        mr_free(path);
    }
}

static int list(const mr_common *set)
{
    mr_json_out out;
    mr_error err;
    if (!set->json) {
        list_sets(NULL);
        return MR_EXIT_DONE;
    }
    mr_json_writer *w = mr_json_out_begin(&out);
    mr_json_write_open(w, '[');
    list_sets(w);
    mr_json_write_close(w, ']');
    return mr_json_out_end(&out, "\n", &err) ? mr_report("data", &err) : MR_EXIT_DONE;
}

static int unknown_set(const char *name)
{
    enum { MOST = 32 };
    const char *names[MOST + 1] = {NULL};
    const mr_data_set *d = mr_data_sets();
    for (int i = 0; d[i].name && i < MOST; i++) names[i] = d[i].name;
    return mr_unknown_name("data", "data set", name, names);
}

/* Prints the SHA-256 of files that have no published one, so that users can compare. */
static int print_sums(const char *name, mr_error *err)
{
    const mr_data_set *set = mr_data_set_find(name);
    int status = 0;
    for (const mr_data_member *m = set->members; !status && m && m->file; m++) {
        char sum[MR_SHA256_TEXT], *path = NULL;
        if (m->sha256) continue;
        status = mr_data_find_member(name, m->file, &path, err);
        if (!status) status = mr_file_sha256(path, sum, err);
        if (!status) fprintf(stderr, "SHA-256 %s  %s (computed here; none is published)\n", sum, path);
        mr_free(path);
    }
    return status;
}

int mr_cmd_data(int argc, char **argv)
{
    mr_common set = {0};
    mr_args args = {
        .command = "data",
        .flags = flags,
        .settings = &set,
        .max = 2,
        .usage = "usage: minrnn data [list | get NAME | path NAME | make d4rl-like ENV SET]\n\n"
                 "Data sets: what there is and where; get downloads one from its source and checks its SHA-256\n"
                 "(where one is published). Archives are unpacked with the help of the program gzip.\n"
                 "A folder with the files can be named in MINRNN_DATA instead.\n"
                 "make records data of control from trained policies: see `minrnn data make --help`.\n",
        .examples =
            "  minrnn data list\n  minrnn data get shakespeare\n  head -c 200 \"$(minrnn data path shakespeare)\"\n"};
    mr_error err;
    char *path = NULL;
    if (argc > 1 && !strcmp(argv[1], "make")) return mr_cmd_data_make(argc - 1, argv + 1);
    int code = mr_args_parse(&args, argc, argv), status;
    if (code >= 0) return code;
    if (!args.count || (!strcmp(args.given[0], "list") && args.count == 1)) return list(&set);
    int get = !strcmp(args.given[0], "get");
    if (args.count < 2 || (!get && strcmp(args.given[0], "path")))
        return mr_misused("data", "give list, get NAME or path NAME, or make; see `minrnn data --help`");
    if (!mr_data_set_find(args.given[1])) return unknown_set(args.given[1]);
    mr_catch_signals();
    status = get ? mr_data_get(args.given[1], mr_download_view, &set, &path, &err)
                 : mr_data_find(args.given[1], &path, &err);
    if (!status && get && !set.quiet) status = print_sums(args.given[1], &err);
    if (!status) puts(path);
    mr_free(path);
    if (status == MR_ESTOPPED) return 128 + (int)*mr_stop_flag();
    return status ? mr_report("data", &err) : MR_EXIT_DONE;
}
