/* What `minrnn info` says of weights that are not minrnn's. */
#ifndef MR_APP_COMMANDS_FOREIGN_VIEW_H
#define MR_APP_COMMANDS_FOREIGN_VIEW_H

#include "weights/foreign.h"

/* Opens weights of another program; *out stays NULL where they are minrnn's own, or cannot be read as a model at all:
 * then opening them as a model says why. A failure is one of weights that are surely foreign (an index, a folder). */
int mr_foreign_view_open(const char *given, mr_foreign **out, mr_error *err);
int mr_foreign_view_print(const mr_foreign *foreign, const char *given, int json, mr_error *err);

#endif
