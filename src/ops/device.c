/* Opens the device that a name asks for, and chooses one for `auto`. */
#include "ops/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The index in "cuda" (0) or "cuda:3"; −1 when spec is neither. */
static int cuda_index(const char *spec)
{
    char *end;
    if (!strcmp(spec, "cuda")) return 0;
    if (strncmp(spec, "cuda:", 5) || spec[5] < '0' || spec[5] > '9') return -1;
    long index = strtol(spec + 5, &end, 10);
    return *end || index > 1000 ? -1 : (int)index;
}

int mr_auto_open(const mr_card *card, int (*open_gpu)(int, const mr_dev_options *, mr_dev **, mr_error *),
                 const mr_dev_options *options, mr_dev **out, mr_error *err)
{
    mr_error why = {0};
    char line[sizeof why.text + 32];
    if (!mr_card_is_there(card)) return mr_cpu_open(options, out, err);
    if (!mr_card_check(card, options->bf16, &why) && !open_gpu(card->index, options, out, &why)) return 0;
    snprintf(line, sizeof line, "GPU not used: %s", why.text);
    if (options->tell) options->tell(options->tell_user, line);
    return mr_cpu_open(options, out, err);
}

static int open_auto(const mr_dev_options *options, mr_dev **out, mr_error *err)
{
    mr_card card = {0};
    if (!options->isa) mr_cuda_look(0, &card); /* an instruction set implies the CPU */
    return mr_auto_open(&card, mr_cuda_open, options, out, err);
}

int mr_dev_open(const char *spec, const mr_dev_options *options, mr_dev **out, mr_error *err)
{
    static const mr_dev_options plain;
    if (!options) options = &plain;
    *out = NULL;
    if (!strcmp(spec, "auto")) return open_auto(options, out, err);
    if (!strcmp(spec, "cpu")) return mr_cpu_open(options, out, err);
    if (!strcmp(spec, "ref")) return mr_ref32_open(options, out, err);
    if (!strcmp(spec, "ref64")) return mr_ref64_open(options, out, err);
    if (cuda_index(spec) >= 0) return mr_cuda_open(cuda_index(spec), options, out, err);
    return mr_fail(err, MR_EINVAL, "device %.100s: must be one of auto, cpu, cuda[:i], ref", spec);
}

void mr_dev_close(mr_dev *dev)
{
    if (dev) dev->close(dev);
}
