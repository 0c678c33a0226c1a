/* Status codes as text, and the sentence that goes with a failure. */
#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>

const char *mr_version(void) { return MR_VERSION; }
int mr_version_number(void) { return MR_VERSION_NUMBER; }

const char *mr_status_name(int status)
{
    switch (status) {
    case MR_OK: return "MR_OK";
#define NAME(name, value, message)                                                                                     \
    case value: return #name;
        MR_STATUS_MAP(NAME)
#undef NAME
    default: return "unknown status";
    }
}

const char *mr_status_message(int status)
{
    switch (status) {
    case MR_OK: return "done";
#define MESSAGE(name, value, message)                                                                                  \
    case value: return message;
        MR_STATUS_MAP(MESSAGE)
#undef MESSAGE
    default: return "unknown status";
    }
}

void mr_error_set(mr_error *err, int status, const char *format, ...)
{
    if (!err) return;
    va_list args;
    err->status = status;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    for (char *c = err->text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?';
}
