/* Aligned memory through one replaceable allocator. */
#include "base/mem.h"

#include "base/error.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>

static void *default_alloc(void *ctx, size_t bytes, size_t align)
{
    (void)ctx;
    size_t rounded;
    /* aligned_alloc wants a multiple of the alignment. */
    return woi_size_round_up(bytes, align, &rounded) ? aligned_alloc(align, rounded) : NULL;
}

static void default_release(void *ctx, void *memory)
{
    (void)ctx;
    free(memory);
}

static const wo_allocator default_allocator = {default_alloc, default_release, NULL};

/* Set before use and then left alone, like the kernel table: see wo_allocator_set's contract. */
static wo_allocator allocator = {default_alloc, default_release, NULL};

wo_status wo_allocator_set(const wo_allocator *chosen)
{
    if (chosen && (!chosen->alloc || !chosen->release)) return WO_ERR_ARGUMENT;
    allocator = chosen ? *chosen : default_allocator;
    return WO_OK;
}

void *woi_alloc(size_t n, size_t size, wo_error *err)
{
    size_t bytes;
    if (!woi_size_mul(n, size, &bytes)) {
        woi_error_set(err, WO_ERR_MEMORY, WO_NO_OFFSET, "out of memory: %zu elements of %zu bytes", n, size);
        return NULL;
    }
    void *memory = allocator.alloc(allocator.ctx, bytes ? bytes : 1, WOI_ALIGN);
    if (!memory) woi_error_set(err, WO_ERR_MEMORY, WO_NO_OFFSET, "out of memory: %zu bytes asked for", bytes);
    return memory;
}

void *woi_alloc_zero(size_t n, size_t size, wo_error *err)
{
    void *memory = woi_alloc(n, size, err);
    if (memory) memset(memory, 0, n * size);
    return memory;
}

char *woi_copy_text(const char *text, size_t bytes, wo_error *err)
{
    char *copy = bytes < SIZE_MAX ? woi_alloc(bytes + 1, 1, err) : NULL;
    if (copy) {
        memcpy(copy, text, bytes);
        copy[bytes] = '\0';
    }
    return copy;
}

wo_status woi_grow(void *items, size_t *capacity, size_t used, size_t need, size_t size, wo_error *err)
{
    if (need <= *capacity) return WO_OK;
    size_t room = *capacity;
    if (!woi_size_add(room, room / 2 + 16, &room) || room < need) room = need;
    void *bigger = woi_alloc(room, size, err);
    if (!bigger) return WO_ERR_MEMORY;
    void *old;
    memcpy(&old, items, sizeof old);
    if (used) memcpy(bigger, old, used * size);
    woi_free(old);
    memcpy(items, &bigger, sizeof bigger);
    *capacity = room;
    return WO_OK;
}

void woi_free(void *memory)
{
    if (memory) allocator.release(allocator.ctx, memory);
}
