/* Assertions of the C tests: the first one that fails ends the program and says where. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition, ...) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s", __FILE__, __LINE__, #condition); \
            fprintf(stderr, " -- " __VA_ARGS__); \
            fputc('\n', stderr); \
            abort(); \
        } \
    } while (0)

#define CHECK_EQUAL(actual, wanted) \
    do { \
        long long a_ = (long long)(actual), w_ = (long long)(wanted); \
        CHECK(a_ == w_, "is %lld, should be %lld", a_, w_); \
    } while (0)

#define RUN(test) \
    do { \
        test(); \
        printf("  %s\n", #test); \
        fflush(stdout); \
    } while (0)

#endif
