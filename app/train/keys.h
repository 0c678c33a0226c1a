/* The keys of a recipe's [model] and [train]: the library's catalogue (mr_key_at) and the program's own, as one kind
 * of table. The library's values are kept in slots, one per key: the program does not know what they mean. */
#ifndef MR_APP_TRAIN_KEYS_H
#define MR_APP_TRAIN_KEYS_H

#include "core/options.h"

typedef union mr_slot {
    int64_t whole;
    double real, pair[2];
    int choice;
    char text[MR_TEXT_MAX];
} mr_slot;

enum { MR_MODEL_SLOTS = 48, MR_LEARN_SLOTS = 16 };

/* [model], in the order of the catalogue. */
typedef struct mr_model_settings {
    mr_slot slots[MR_MODEL_SLOTS];
} mr_model_settings;

typedef enum mr_train_dtype { MR_TRAIN_F32, MR_TRAIN_BF16 } mr_train_dtype;

/* What is written in addition to log.jsonl: the sum of MR_LOG_CSV and MR_LOG_EVENTS. */
typedef enum mr_log_formats { MR_LOG_JSONL = 0, MR_LOG_CSV = 1, MR_LOG_EVENTS = 2, MR_LOG_BOTH = 3 } mr_log_formats;

/* [train]: the program's own keys, then the library's. */
typedef struct mr_train_settings {
    int64_t batch, context, accumulate, eval_every, eval_tokens, save_every, patience;
    double max_seconds;
    mr_train_dtype dtype;
    mr_log_formats log;
    int tf32;
    char init[MR_TEXT_MAX];
    mr_slot learn[MR_LEARN_SLOTS];
} mr_train_settings;

const mr_option *mr_model_table(void); /* over mr_model_settings */
const mr_option *mr_train_table(void); /* over mr_train_settings, in the order in which recipes are written */

/* Library keys that the program looks at. */
int64_t mr_train_steps(const mr_train_settings *train);
int64_t mr_train_seed(const mr_train_settings *train);
void mr_train_set_whole(mr_train_settings *train, const char *key, int64_t value); /* steps, seed or warmup */

/* A list for mr_net_create: keys and values, each its own memory. */
enum { MR_KEY_LIST = 2 * (MR_MODEL_SLOTS + MR_LEARN_SLOTS + 8) + 1 };
typedef struct mr_key_list {
    char *list[MR_KEY_LIST];
    int count, failed;
} mr_key_list;

void mr_key_list_add(mr_key_list *list, const char *key, const char *value);
/* Every key of the table that is the library's and not derived. */
void mr_key_list_take(mr_key_list *list, const mr_option *table, const void *settings);
void mr_key_list_free(mr_key_list *list);

#endif
