/* Extracts files from a gzipped tar archive. */
#ifndef MR_APP_TASKS_ARCHIVE_H
#define MR_APP_TASKS_ARCHIVE_H

#include "tasks/data.h"

/* Extracts the members (NULL-terminated, matched by the last part of their names) into `folder`, each atomically and,
 * where its SHA-256 is known, only if it matches. Needs the program gzip. */
int mr_unpack(const char *archive, const mr_data_member *members, const char *folder, mr_error *err);

#endif
