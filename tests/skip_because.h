/* A test that cannot run here says why; scripts/test.sh repeats it at the end. */
#ifndef MR_TESTS_SKIP_BECAUSE_H
#define MR_TESTS_SKIP_BECAUSE_H

/* skip_because("no %s here", name): like skip() of cmocka, it leaves the test. */
#define skip_because(...)                                                                                              \
    do {                                                                                                               \
        print_message("SKIPPED: ");                                                                                    \
        print_message(__VA_ARGS__);                                                                                    \
        print_message("\n");                                                                                           \
        skip();                                                                                                        \
    } while (0)

#endif
