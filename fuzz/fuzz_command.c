/* Fuzzes the command line: each line of the input is an argument. The linker replaces two functions by those below, so
 * no device is opened and nothing is downloaded: every command ends after reading its arguments. */
#include "input.h"
#include "ops/device.h"
#include "tasks/data.h"

#include <string.h>

enum { ARGUMENTS = 200 };

int minrnn_main(int argc, char **argv); /* main() of app/commands/main.c */
int __wrap_mr_dev_open(const char *spec, const mr_dev_options *options, mr_dev **out, mr_error *err);
int __wrap_mr_data_get(const char *name, mr_data_progress *progress, void *arg, char **path, mr_error *err);

int __wrap_mr_dev_open(const char *spec, const mr_dev_options *options, mr_dev **out, mr_error *err)
{
    (void)options;
    *out = NULL;
    return mr_fail(err, MR_EDEVICE, "no device %s while fuzzing", spec);
}

int __wrap_mr_data_get(const char *name, mr_data_progress *progress, void *arg, char **path, mr_error *err)
{
    (void)progress, (void)arg;
    *path = NULL;
    return mr_fail(err, MR_EIO, "no download of %s while fuzzing", name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *argv[ARGUMENTS + 1] = {(char *)"minrnn"}, *text = malloc(size + 1);
    int argc = 1;
    memcpy(text, data, size);
    text[size] = 0;
    for (char *at = text; at && argc < ARGUMENTS;) argv[argc++] = strsep(&at, "\n");
    int code = minrnn_main(argc, argv);
    must(code >= 0 && code <= 2, "the exit status is 0, 1 or 2");
    free(text);
    return 0;
}
