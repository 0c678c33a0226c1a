/* What `minrnn train --help` prints: an overview, a recipe's keys (`train text --help`), or all keys (`--help all`). */
#ifndef MR_APP_COMMANDS_TRAIN_HELP_H
#define MR_APP_COMMANDS_TRAIN_HELP_H

#include "commands/args.h"

int mr_train_help(const mr_args *args, const char *topic); /* returns the exit status */

#endif
