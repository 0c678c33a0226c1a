/* Assertions on numbers that show them when they fail. */
#ifndef MR_TESTS_ASSERT_THAT_H
#define MR_TESTS_ASSERT_THAT_H

/* assert_that(x, <, limit). Any number type of up to 64 bits; NaN passes no comparison but !=. */
#define assert_that(left, op, right)                                                                                   \
    do {                                                                                                               \
        const long double left_ = (long double)(left), right_ = (long double)(right);                                  \
        if (!(left_ op right_)) fail_msg("%s %s %s does not hold: %.17Lg, %.17Lg", #left, #op, #right, left_, right_); \
    } while (0)

#endif
