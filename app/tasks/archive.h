/* Files out of an archive: a tar file by gzip. */
#ifndef MR_APP_TASKS_ARCHIVE_H
#define MR_APP_TASKS_ARCHIVE_H

#include "tasks/data.h"

/* Takes the members (NULL-terminated, known by their last names) out of the archive into `folder`, each atomically
 * and, where its SHA-256 is known, only when it has that. Needs the program gzip. */
int mr_unpack(const char *archive, const mr_data_member *members, const char *folder, mr_error *err);

#endif
