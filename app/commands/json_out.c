/* JSON on standard output. */
#include "commands/json_out.h"

#include <stdio.h>

mr_json_writer *mr_json_out_begin(mr_json_out *out)
{
    *out = (mr_json_out){.w = {.spaced = 1}};
    out->w.text = &out->text;
    return &out->w;
}

void mr_json_out_flush(mr_json_out *out)
{
    if (out->text.failed || !out->text.size) return;
    fwrite(out->text.data, 1, out->text.size, stdout);
    out->text.size = 0;
}

int mr_json_out_end(mr_json_out *out, const char *after, mr_error *err)
{
    const int failed = out->text.failed;
    mr_json_out_flush(out);
    mr_strbuf_free(&out->text);
    if (failed) return mr_no_memory(err, "the result as JSON");
    fputs(after, stdout);
    return 0;
}
