/* What the cmocka programs share: cmocka itself (which wants these headers first), a scratch folder, and an allocator
 * that fails on demand. */
#ifndef WO_TESTING_H
#define WO_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wideout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Scratch files ----------------------------------------------------------------------------------------- */

static char scratch_folder[64];

static inline int scratch_setup(void **state)
{
    (void)state;
    snprintf(scratch_folder, sizeof scratch_folder, "/tmp/wideout-test-XXXXXX");
    return mkdtemp(scratch_folder) ? 0 : -1;
}

static inline int scratch_teardown(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch_folder);
    return system(command);
}

/* The path of a scratch file, in one of four rotating buffers. */
static inline const char *scratch(const char *name)
{
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", scratch_folder, name);
    return path;
}

static inline const char *scratch_write(const char *name, const void *data, size_t bytes)
{
    const char *path = scratch(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    return path;
}

static inline const char *scratch_text(const char *name, const char *text)
{
    return scratch_write(name, text, strlen(text));
}

/* A whole file; the caller frees it. */
static inline char *slurp(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *bytes, file), *bytes);
    data[*bytes] = '\0';
    fclose(file);
    return data;
}

/* ---- Allocations that fail --------------------------------------------------------------------------------- */

static long allocations_left = -1; /* fail once this many have succeeded; -1: never */
static long allocations_made, allocations_alive;

static inline void *failing_alloc(void *ctx, size_t bytes, size_t align)
{
    (void)ctx;
    if (allocations_left == 0) return NULL;
    if (allocations_left > 0) allocations_left--;
    allocations_made++;
    allocations_alive++;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static inline void failing_release(void *ctx, void *memory)
{
    (void)ctx;
    allocations_alive--;
    free(memory);
}

static const wo_allocator failing_allocator = {failing_alloc, failing_release, NULL};

#endif
