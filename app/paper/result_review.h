/* Rows looked at again: do they still hold, and how do their settings differ from the paper's? */
#ifndef MR_APP_PAPER_RESULT_REVIEW_H
#define MR_APP_PAPER_RESULT_REVIEW_H

#include "paper/data_identity.h"
#include "paper/result_rows.h"

/* How a row of that run is scored. */
void mr_row_set_measure(const mr_experiment *e, const mr_planned *run, mr_row *row);

/* Was the row scored as `wanted`, a row that is made for the run, would be: in the same way, on the same test set, from
 * the same data and model of `init`? They are read to know. What cannot be read is taken for the same; a row that does
 * not name its test set is not. */
int mr_row_is_current(mr_data_cache *cache, const mr_planned *run, const mr_recipe *recipe, const mr_row *wanted,
                      const mr_row *row);

/* Marks the rows of an experiment that do not hold any more as outdated, and says in each how its settings differ from
 * the paper's (`differs`), as the experiment's file has them now. */
int mr_rows_review(const mr_experiment *e, mr_rows *rows, mr_error *err);

#endif
