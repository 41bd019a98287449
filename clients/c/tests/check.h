/* Checks that go on after a failure, and count it. */
#include <minos.h>
#include <stdio.h>

static int failures = 0;

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, minos_error_text()); \
            failures++;                                                               \
        }                                                                             \
    } while (0)
