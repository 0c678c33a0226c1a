/* The line of a download: how much has been received; removed at the end. */
#include "commands/download_view.h"

#include "commands/args.h"

#include <stdio.h>
#include <unistd.h>

int mr_download_view(void *common, uint64_t done, uint64_t total)
{
    const mr_common *set = common;
    if (!set->quiet && isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r%.1f MB", (double)done / 1e6);
        if (total) fprintf(stderr, " of %.1f", (double)total / 1e6);
        fprintf(stderr, "\033[K");
        if (done == total) fprintf(stderr, "\r\033[K");
        fflush(stderr);
    }
    return *mr_stop_flag() != 0;
}
