/* wideout: cheap inference for wide output layers on CPUs.
 *
 * This header is all that users of the library need.
 *
 * Rules that hold for every function:
 *   - Functions that can fail return a wo_status (0 is success) and take an optional `wo_error *`, owned by the
 *     caller, that receives one sentence. NULL is fine where the sentence is not wanted.
 *   - On failure nothing is half-made: output handles stay NULL, output files keep their old content.
 *   - The library never prints, exits or aborts on input.
 *   - Functions may be called from any thread unless their comment says otherwise.
 */
#ifndef WIDEOUT_H
#define WIDEOUT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WO_VERSION_MAJOR 0
#define WO_VERSION_MINOR 1
#define WO_VERSION_PATCH 0

#if defined(__GNUC__)
#define WO_API __attribute__((visibility("default")))
#else
#define WO_API
#endif

/* "0.1.0": the version of the library that is linked, which may differ from the header's. Static storage. */
WO_API const char *wo_version(void);

/* ---- Status and errors ------------------------------------------------------------------------------------ */

/* Values are pinned: they never change meaning between versions. */
typedef enum wo_status {
    WO_OK = 0,
    WO_ERR_MEMORY = 1,      /* an allocation failed */
    WO_ERR_IO = 2,          /* the operating system refused to open, read, write or rename a file */
    WO_ERR_FORMAT = 3,      /* a file is not what it should be: malformed, truncated, out of range */
    WO_ERR_UNSUPPORTED = 4, /* well-formed, but not something that wideout, or this machine, can do */
    WO_ERR_ARGUMENT = 5,    /* the caller passed something that cannot be right */
    WO_ERR_CHECKSUM = 6,    /* the bytes of a file differ from those that were written */
    WO_ERR_CANCELLED = 7    /* the progress callback asked to stop */
} wo_status;

/* "out of memory", "malformed file", ...: static storage; "unknown status" for a value not listed above. */
WO_API const char *wo_status_text(wo_status status);

/* wo_error.offset where no position applies. */
#define WO_NO_OFFSET UINT64_MAX

/* One sentence about a failure, without the name of the file (the caller knows it) and without a final stop. */
typedef struct wo_error {
    wo_status status;
    uint64_t offset; /* byte position in the file where reading failed, or WO_NO_OFFSET */
    char text[192];  /* always terminated; shortened with "..." where a value is long */
} wo_error;

/* ---- Memory ------------------------------------------------------------------------------------------------ */

/* Where the library gets its memory. `alloc` returns at least `bytes` bytes (never 0) aligned to `align` (a power of
 * two, at most 64), or NULL; `release` takes what alloc returned. Both may be called from several threads at once. */
typedef struct wo_allocator {
    void *(*alloc)(void *ctx, size_t bytes, size_t align);
    void (*release)(void *ctx, void *memory);
    void *ctx;
} wo_allocator;

/* Replaces the allocator for the whole process; NULL restores the default (aligned_alloc and free). Call it before
 * any other function of the library, or at a moment when no object of the library is alive and no other thread is
 * inside it. The struct is copied. */
WO_API wo_status wo_allocator_set(const wo_allocator *allocator);

/* ---- Progress ---------------------------------------------------------------------------------------------- */

/* Called now and then during long work, from the thread that started it. `stage` names the work ("reading"); `done`
 * counts up to `total` (0 where unknown). Return non-zero to stop: the call ends with WO_ERR_CANCELLED. */
typedef int (*wo_progress_fn)(void *ctx, const char *stage, uint64_t done, uint64_t total);

typedef struct wo_progress {
    wo_progress_fn fn; /* NULL: no reports */
    void *ctx;
} wo_progress;

/* ---- Processor --------------------------------------------------------------------------------------------- */

/* Which instruction set the kernels use. It is decided once per process, at first use, from CPUID, from what the
 * operating system saves (XCR0), and from the environment variable WIDEOUT_CPU (ref, avx2 or avx512), which can only
 * lower it. */
typedef struct wo_cpu_info {
    const char *level;    /* "ref", "avx2" or "avx512": what runs */
    const char *best;     /* the best that this machine could run */
    const char *reason;   /* one sentence: why `level` */
    const char *model;    /* the processor's own name, or "unknown" */
    const char *features; /* those that matter here and that the operating system enables: "avx2 fma avx512f ..." */
} wo_cpu_info;

/* Fills `info`; the strings are static. Fails with WO_ERR_UNSUPPORTED when WIDEOUT_CPU names something this machine
 * cannot run, and so does, with the same sentence, everything else in the library that computes. */
WO_API wo_status wo_cpu_query(wo_cpu_info *info, wo_error *err);

/* The i-th kernel's name and the instruction set of the version that runs ("dot_i8", "avx512vnni"); returns 0 when
 * there is no i-th kernel or no usable choice (see wo_cpu_query). Static storage. */
WO_API int wo_cpu_kernel(size_t i, const char **name, const char **path);

#ifdef __cplusplus
}
#endif
#endif
