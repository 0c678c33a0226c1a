/* Shakespeare: the text task over the published tinyshakespeare file, checked by its SHA-256, with the usual split. */
#include "tasks/corpus.h"
#include "tasks/data.h"
#include "tasks/split.h"

typedef struct settings {
    int vocab, unknown, split;
} settings;

static int open_task(mr_task *task, mr_error *err)
{
    const settings *s = task->settings;
    mr_corpus_source source = {.name = "shakespeare",
                               .kind = (mr_vocab_kind)s->vocab,
                               .split = 0.9,
                               .validation = s->split == MR_SPLIT_VALIDATION,
                               .unknown = (mr_unknown)s->unknown};
    int status = mr_data_load("shakespeare", &source.bytes, &source.size, err);
    return status ? status : mr_corpus_open(task, source, err);
}

static const mr_option options[] = {{.key = "vocab",
                                     .type = MR_OPT_CHOICE,
                                     .offset = offsetof(settings, vocab),
                                     .fallback = "chars",
                                     .choices = mr_vocab_choices,
                                     .help = "what a token is: a character or a byte (the text is plain ASCII)"},
                                    {.key = "split",
                                     .type = MR_OPT_CHOICE,
                                     .offset = offsetof(settings, split),
                                     .fallback = "test",
                                     .choices = mr_split_choices,
                                     .help = "what is scored: the test text, as the paper does, or the last tenth of "
                                             "the training text, which is then not trained on, to choose settings by",
                                     .flags = MR_OPT_SPARSE},
                                    MR_UNKNOWN_OPTION(offsetof(settings, unknown), MR_OPT_SPARSE),
                                    {.key = NULL}};

const mr_task_type mr_task_shakespeare = {
    .name = "shakespeare",
    .summary = "predict the next character of Shakespeare's plays (tinyshakespeare)",
    .options = options,
    .settings_size = sizeof(settings),
    .open = open_task,
    .close = mr_corpus_close,
    .train_batch = mr_corpus_train_batch,
    .eval_batch = mr_corpus_eval_batch,
};
