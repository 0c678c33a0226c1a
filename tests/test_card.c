/* Which GPU can be used, and when the user is told why not: every case, tested without a GPU. */
#include "support.h"

static const mr_card h200 = {.count = 1, .name = "NVIDIA H200", .major = 9, .minor = 0};

static mr_card with_code(int major, int minor, mr_card_code code)
{
    mr_card card = {.count = 1, .name = "NVIDIA Some Card", .major = major, .minor = minor, .code = code};
    return card;
}

/* word NULL: it can be used. */
static void check(mr_card card, int bf16, const char *word)
{
    mr_error err = {0};
    const int status = mr_card_check(&card, bf16, &err);
    if (!word && status) fail_msg("%s", err.text);
    if (word && (status != MR_EDEVICE || !strstr(err.text, word)))
        fail_msg("wanted \"%s\", not %d: %s", word, status, err.text);
    assert_null(strchr(err.text, '\n'));
}

static void unusable_cards_are_explained(void **unused)
{
    (void)unused;
    check(h200, 0, NULL);
    check(h200, 1, NULL);
    check((mr_card){0}, 0, "no CUDA device found");
    check((mr_card){.trouble = "CUDA driver version is insufficient"}, 0, "driver version is insufficient");
    check((mr_card){.count = 2, .index = 2}, 0, "cuda:2: this machine has 2 GPUs");
    check((mr_card){.count = 1, .index = 4}, 0, "cuda:4: this machine has 1 GPU,");
    check(with_code(7, 0, MR_CODE_MISSING), 0, "7.0 is too old");
    check(with_code(7, 5, MR_CODE_FITS), 0, NULL);
    check(with_code(7, 5, MR_CODE_FITS), 1, "--dtype f32");
    check(with_code(7, 5, MR_CODE_MISSING), 0, "-DCMAKE_CUDA_ARCHITECTURES=75");
    check(with_code(8, 6, MR_CODE_MISSING), 1, "-DCMAKE_CUDA_ARCHITECTURES=86");
    check(with_code(12, 0, MR_CODE_MISSING), 0, "-DCMAKE_CUDA_ARCHITECTURES=120");
    check(with_code(8, 9, MR_CODE_UNREADABLE), 0, "-DCMAKE_CUDA_ARCHITECTURES=89");
}

/* ---- what `auto` does */

static int opened;

static int gpu_opens(int index, const mr_dev_options *options, mr_dev **out, mr_error *err)
{
    assert_int_equal(index, 0);
    opened++;
    return mr_ref32_open(options, out, err); /* any device that is not the CPU */
}

static int gpu_fails(int index, const mr_dev_options *options, mr_dev **out, mr_error *err)
{
    (void)index, (void)options;
    *out = NULL;
    opened++;
    return mr_fail(err, MR_EDEVICE, "a GPU needs a library, which was not found");
}

typedef struct heard {
    int lines;
    char last[600];
} heard;

static void hear(void *user, const char *line)
{
    heard *h = user;
    h->lines++;
    snprintf(h->last, sizeof h->last, "%s", line);
}

/* word NULL: nothing must be reported. */
static void check_auto(mr_card card, int (*open_gpu)(int, const mr_dev_options *, mr_dev **, mr_error *), int tries,
                       const char *taken, const char *word)
{
    heard h = {0};
    mr_error err = {0};
    mr_dev *dev = NULL;
    const mr_dev_options options = {.threads = 1, .tell = hear, .tell_user = &h}, deaf = {.threads = 1};
    opened = 0;
    assert_int_equal(mr_auto_open(&card, open_gpu, &options, &dev, &err), 0);
    assert_string_equal(dev->kind, taken);
    assert_int_equal(opened, tries);
    assert_int_equal(h.lines, word != NULL);
    if (word && (strncmp(h.last, "GPU not used: ", 14) || !strstr(h.last, word))) fail_msg("%s", h.last);
    mr_dev_close(dev);
    assert_int_equal(mr_auto_open(&card, open_gpu, &deaf, &dev, &err), 0);
    assert_string_equal(dev->kind, taken);
    mr_dev_close(dev);
}

static void auto_takes_a_usable_gpu(void **unused)
{
    (void)unused;
    check_auto(h200, gpu_opens, 1, "ref", NULL);
    check_auto(h200, gpu_fails, 1, "cpu", "a library, which was not found");
    check_auto((mr_card){0}, gpu_fails, 0, "cpu", NULL);
    check_auto((mr_card){.trouble = "CUDA driver version is insufficient"}, gpu_opens, 0, "cpu", "insufficient");
    check_auto(with_code(7, 5, MR_CODE_MISSING), gpu_opens, 0, "cpu", "-DCMAKE_CUDA_ARCHITECTURES=75");
    check_auto(with_code(6, 1, MR_CODE_MISSING), gpu_opens, 0, "cpu", "too old");
}

/* On a machine without a card, or in a build without CUDA, nothing is reported. */
static void auto_opens_a_device_here(void **unused)
{
    (void)unused;
    heard h = {0};
    mr_card card;
    mr_dev *dev;
    const mr_dev_options options = {.threads = 1, .tell = hear, .tell_user = &h};
    mr_cuda_look(0, &card);
    assert_int_equal(mr_dev_open("auto", &options, &dev, NULL), 0);
    if (!mr_card_is_there(&card)) assert_string_equal(dev->kind, "cpu");
    assert_int_equal(h.lines, mr_card_is_there(&card) && !strcmp(dev->kind, "cpu"));
    mr_dev_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(unusable_cards_are_explained),
                                       cmocka_unit_test(auto_takes_a_usable_gpu),
                                       cmocka_unit_test(auto_opens_a_device_here)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
