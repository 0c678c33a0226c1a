/* Text: predict the next character (or byte) of any file, or of several in a row. */
#include "core/mem.h"
#include "tasks/corpus.h"
#include "tasks/source.h"

typedef struct settings {
    char data[MR_TEXT_MAX]; /* one name per line */
    int vocab, unknown;
    double split;
} settings;

static int open_task(mr_task *task, mr_error *err)
{
    const settings *s = task->settings;
    char label[MR_SOURCE_LABEL];
    mr_source_text text;
    mr_corpus_source source = {.name = mr_source_label(s->data, label),
                               .names = s->data,
                               .kind = (mr_vocab_kind)s->vocab,
                               .split = s->split,
                               .unknown = (mr_unknown)s->unknown};
    if (!s->data[0])
        return mr_fail(err, MR_ECONFIG, "there is no text to learn from or to score; give it with --data FILE");
    int status = mr_source_read(s->data, UINT32_MAX, task->stop, &text, err);
    if (status) return status;
    source.bytes = text.data;
    source.size = text.size;
    source.ends = text.ends;
    status = mr_corpus_open(task, source, err);
    mr_free(text.ends);
    return status;
}

static const mr_option options[] = {
    {.key = "data",
     .type = MR_OPT_TEXT,
     .offset = offsetof(settings, data),
     .fallback = "",
     .help = "the file to learn from, or - for standard input; several are read in order as one text",
     .flags = MR_OPT_PATH | MR_OPT_MANY},
    {.key = "vocab",
     .type = MR_OPT_CHOICE,
     .offset = offsetof(settings, vocab),
     .fallback = "chars",
     .choices = mr_vocab_choices,
     .help = "what a token is: a character of UTF-8 text, or a byte of any file"},
    {.key = "split",
     .type = MR_OPT_REAL,
     .offset = offsetof(settings, split),
     .fallback = "0.9",
     .min = 0.05,
     .max = 0.999999,
     .help = "share of the text, from the front, that is trained on; the rest is the test text"},
    MR_UNKNOWN_OPTION(offsetof(settings, unknown), MR_OPT_SPARSE),
    {.key = NULL}};

const mr_task_type mr_task_text = {
    .name = "text",
    .summary = "predict the next character of a file",
    .options = options,
    .settings_size = sizeof(settings),
    .open = open_task,
    .close = mr_corpus_close,
    .train_batch = mr_corpus_train_batch,
    .eval_batch = mr_corpus_eval_batch,
};
