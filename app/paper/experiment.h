/* An experiment of the paper: a table of runs, written down in recipes/experiments/NAME.ini.
 *
 *     [experiment]
 *     summary = Shakespeare by characters: test loss
 *     recipe  = shakespeare               what every run starts from
 *     score   = loss                      or accuracy, or return: what a policy earns when it acts
 *     scale   = 1                         the score is multiplied by this, to have the paper's unit
 *     paper   = shakespeare | $row | test_loss      table, row and column of the paper's number; -: none
 *     test    = split=test                where given, the model that was chosen is scored once at the end, and so is
 *                                         the last one, with these settings of its task (key=value, by blanks)
 *     note    = Ours are raw              a sentence for the page
 *     target-loss = 1.6                   where given, the first step with a test loss of at most this is recorded
 *     search  = split=validation          where given, settings of runs with --search
 *     budget  = steps, batch, layers      keys that all rows of a column share: only [ours] and [ours /COLUMN] may set
 *                                         them, or a row that says why (own-budget)
 *     [ours] [as-paper] [quick]           keys of the recipe: by default; with --as-paper; on top of everything
 *                                         else with --quick
 *     [ours /NAME]                        the same for one column, …
 *     [ours minGRU] [ours minGRU/NAME]    … for one row, or one cell; so too [as-paper …]. Also: use (which of the
 *                                         settings to be tried is used), own-budget (why the row has another one)
 *     [try minGRU: A] [try minGRU/NAME: B]    settings of a row or a cell that --search tries, scored on validation;
 *                                         at most MR_MOST_TRIED for a cell, and its [ours …] says use = A
 *     [row minGRU] [column NAME]          the table; keys of the recipe, and also: recipe, paper, test,
 *                                         target-loss as above, name (what $row or $column stands for), columns (of
 *                                         a row: A, B, … alone)
 *
 * The profiles may have recipe, paper, test and target-loss too, but not for one row or cell. Besides the keys of a
 * recipe there is warmup-share, the warm-up as a share of the steps. Without columns there is one, named after the
 * score. Later sections win: recipe, profile, column, the profile's for that column, row, the profile's for that row,
 * for that cell, what is used of the settings tried, quick. */
#ifndef MR_APP_PAPER_EXPERIMENT_H
#define MR_APP_PAPER_EXPERIMENT_H

#include "train/ini.h"
#include "paper/paper_numbers.h"
#include "paper/settings.h"

typedef enum mr_profile {
    MR_PROFILE_OURS,
    MR_PROFILE_PAPER,
    MR_PROFILE_QUICK,
    MR_PROFILE_SEARCH, /* ours, with each of the settings to be tried, scored on validation alone */
    MR_PROFILES
} mr_profile;
extern const char *const mr_profile_names[MR_PROFILES]; /* "ours", "as-paper", "quick", "search" */
mr_profile mr_profile_find(const char *name);           /* MR_PROFILES: there is no such one */

/* What the score is: the larger the better, but of a loss. */
typedef enum mr_measure { MR_BY_ACCURACY, MR_BY_LOSS, MR_BY_RETURN, MR_MEASURES } mr_measure;
extern const char *const mr_measure_names[MR_MEASURES]; /* "accuracy", "loss", "return" */

enum { MR_MOST_TRIED = 8 }; /* settings that a cell may choose from */

typedef struct mr_experiment {
    const char *name;
    const char *source; /* the file, or the name; for errors */
    char own[64];       /* the name, where it comes from a file */
    mr_ini lines;
    const char *summary;
    mr_measure measure;
    double scale;
} mr_experiment;

/* One run of it: one cell of the table with one seed. */
typedef struct mr_planned {
    char row[48], column[48];
    int64_t seed;
    mr_profile profile;
    char settings[1024]; /* "recipe=NAME key=value …", in the order in which they are applied */
    mr_paper_cell paper;
    char paper_cell[200]; /* "table | row | column", "" */
    double target_loss;   /* NaN: none */
    char test[128];       /* "key=value …", "": the score is that of the best evaluation */
    char setting[48];     /* which of the settings tried this is; "": the cell has none */
    int tried;            /* how many settings its cell may choose from; 1 where nothing is chosen */
    char own_budget[160]; /* why it has another budget than its column; "" */
} mr_planned;

/* What to leave out, and what to change. */
typedef struct mr_plan_options {
    mr_profile profile;
    int64_t seeds, first_seed; /* how many, starting from which */
    int64_t steps;             /* 0: as the experiment says */
    /* cells: a part of "ROW/COLUMN", or a pattern for all of it with wildcards * and ?, or = and all of it; NULL or "":
     * every cell */
    const char *only;
} mr_plan_options;

/* Is the cell one of those that `only` names? */
int mr_plan_wants(const mr_plan_options *options, const char *row, const char *column);

/* name: a built-in experiment, or a file PATH/NAME.ini; kept as long as the experiment. Do not copy the struct: its
 * name may point into itself. */
int mr_experiment_load(mr_experiment *e, const char *name, mr_error *err);

/* Refuses sections and keys that would be ignored. `source` is the file's name, for errors. */
int mr_experiment_check(const mr_experiment *e, const char *source, mr_error *err);

/* Does the file say anything for that profile? */
int mr_experiment_has_profile(const mr_experiment *e, mr_profile profile);

/* Is it a key of experiments, not of recipes? */
int mr_experiment_own_key(const char *key);
/* The next word of "A, B, …", n bytes without the blanks around it; *list becomes NULL after the last one, and
 * then NULL is returned. */
const char *mr_list_word(const char **list, size_t *n);

#define MR_ROW_PREFIX "row "
#define MR_COLUMN_PREFIX "column "
#define MR_TRY_PREFIX "try "
/* The label of the next section with that prefix, from header `from` on, which is moved past it; or NULL. */
const char *mr_experiment_label(const mr_experiment *e, const char *prefix, int *from);

/* Is "ROW: NAME" or "ROW/COLUMN: NAME" a setting for this cell? Its NAME, or NULL. */
const char *mr_experiment_tried(const char *label, const char *row, const char *column);

/* The name of the only column where none is named. */
const char *mr_experiment_column(const mr_experiment *e);

/* Its index in mr_experiment_names, or −1. */
int mr_experiment_built_in(const char *name);
void mr_experiment_free(mr_experiment *e);

/* The runs, all cells with the first seed before those with the second; freed by mr_free. */
int mr_experiment_plan(const mr_experiment *e, const mr_plan_options *options, mr_planned **runs, size_t *count,
                       mr_error *err);

/* The place of a cell in the table, in the order of the file; cells that are not in it come last. */
int mr_experiment_place(const mr_experiment *e, const char *row, const char *column);

/* The recipe of a run with its settings and seed, not open yet. */
int mr_planned_recipe(const mr_planned *run, mr_recipe *recipe, mr_error *err);

#endif
