/* Vectors: one a line, `kind name key=value …`, values in hex or as numbers (tests/vectors). */
#ifndef VECTORS_H
#define VECTORS_H

#include "check.h"

static char line[4096];

/* The text after `key=` in the line; ends at the next space. */
static const char *text(const char *key)
{
    static char value[1024];
    char pattern[32];
    snprintf(pattern, sizeof pattern, " %s=", key);
    const char *at = strstr(line, pattern);
    CHECK(at, "no %s in: %s", key, line);
    at += strlen(pattern);
    size_t length = strcspn(at, " \n");
    memcpy(value, at, length);
    value[length] = '\0';
    return value;
}

static unsigned long number(const char *key)
{
    return strtoul(text(key), NULL, 0);
}

static unsigned bytes(const char *key, uint8_t *out)
{
    const char *hex = text(key);
    unsigned length = 0, byte;
    while (sscanf(hex + 2 * length, "%2x", &byte) == 1) {
        out[length++] = (uint8_t)byte;
    }
    return length;
}

static bool is(const char *kind)
{
    return strncmp(line, kind, strlen(kind)) == 0 && line[strlen(kind)] == ' ';
}

#endif
