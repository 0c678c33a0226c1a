/* What the user sees of a download: on a terminal, a line that is drawn again. */
#ifndef MR_APP_COMMANDS_DOWNLOAD_VIEW_H
#define MR_APP_COMMANDS_DOWNLOAD_VIEW_H

#include <stdint.h>

/* Of the type mr_data_progress; `common` is the command's mr_common. total 0: not known. */
int mr_download_view(void *common, uint64_t done, uint64_t total);

#endif
