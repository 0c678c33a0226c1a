/* JSON on standard output: a writer whose text is printed when it is complete, or piece by piece. */
#ifndef MR_APP_COMMANDS_JSON_OUT_H
#define MR_APP_COMMANDS_JSON_OUT_H

#include "core/json_write.h"

typedef struct mr_json_out {
    mr_strbuf text;
    mr_json_writer w;
} mr_json_out;

/* Starts an empty text; its address must not change afterwards. Returns its writer. */
mr_json_writer *mr_json_out_begin(mr_json_out *out);
/* Prints what has been written so far, for output that should not pile up in memory. */
void mr_json_out_flush(mr_json_out *out);
/* Prints the rest, or leaves it out, and frees. MR_ENOMEM: the text does not fit into memory; nothing of the rest is
 * printed. */
int mr_json_out_end(mr_json_out *out, const char *after, mr_error *err);

#endif
