/* Any bytes as an index, signed anew so that no checksum stands in the way: refused with a sentence, or opened and safe
 * to search. What it answers may be nonsense, but ids are classes, scores are finite and fall, memory is in proportion
 * to the file, and what it is saved as is opened again.
 *
 * A mutator of its own changes what an attacker would: numbers of the header, and words inside tensors. */
#include "fuzz.h"
#include "signing.h"

#include "base/rng.h"
#include "index/index.h"

#include <math.h>

enum { N = 7, MOST_K = 9 };

static void require(bool held, const char *what, int line)
{
    if (held) return;
    fprintf(stderr, "fuzz_index: line %d: not so: %s\n", line, what);
    abort();
}
#define REQUIRE(what) require((what), #what, __LINE__)

/* ---- Memory ------------------------------------------------------------------------------------------------ */

static size_t most_bytes; /* that one thing may take */

static void *limited_alloc(void *ctx, size_t bytes, size_t align)
{
    (void)ctx;
    if (bytes > most_bytes) {
        fprintf(stderr, "fuzz_index: %zu bytes at once, for a file that warrants %zu\n", bytes, most_bytes);
        abort();
    }
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void limited_free(void *ctx, void *memory)
{
    (void)ctx;
    free(memory);
}

/* ---- Mutations --------------------------------------------------------------------------------------------- */

/* A digit of a number in the header becomes another. */
static void change_number(uint8_t *header, size_t bytes, uint64_t seed, uint64_t at)
{
    for (size_t i = woi_rng_below(seed, 1, at, bytes), tries = 0; tries < bytes; tries++, i = (i + 1) % bytes) {
        if (header[i] < '0' || header[i] > '9') continue;
        header[i] = (uint8_t)('0' + woi_rng_below(seed, 2, at, 10));
        return;
    }
}

/* A word of the data becomes one that is likely to hurt: as an id, an offset, a float or a bf16. */
static void change_word(uint8_t *data, size_t bytes, uint64_t seed, uint64_t at)
{
    static const uint32_t likely[] = {0,          1,          0x7fffffff, 0x80000000, 0xffffffff, 0x7f800000,
                                      0xff800000, 0x7fc00000, 0x7f7fffff, 0xff7fffff, 0x00000001, 0x10000000};
    const uint64_t choice = woi_rng_below(seed, 3, at, 2 * sizeof likely / sizeof *likely);
    uint32_t word = choice < sizeof likely / sizeof *likely ? likely[choice] : (uint32_t)woi_rng_u64(seed, 4, at);
    if (choice % 3 == 0) word %= 100; /* a number such as the file has */
    if (bytes >= 4) memcpy(data + woi_rng_below(seed, 5, at, bytes / 4) * 4, &word, 4);
}

/* As libFuzzer calls it; the replaying driver does too. Sizes stay: the layout of a file whose bytes have moved is
 * wrong, which other targets have seen often enough. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed)
{
    uint64_t header_bytes = 0;
    (void)most;
    if (bytes < 16) return bytes;
    memcpy(&header_bytes, data, 8);
    if (header_bytes > bytes - 8 || !header_bytes) return bytes;
    const uint64_t edits = 1 + woi_rng_below(seed, 0, 0, 6);
    for (uint64_t i = 0; i < edits; i++) {
        const uint64_t choice = woi_rng_below(seed, 0, 1 + i, 8);
        if (choice == 0)
            data[8 + woi_rng_below(seed, 6, i, header_bytes)] ^= (uint8_t)(1U << woi_rng_below(seed, 7, i, 7));
        else if (choice <= 2)
            change_number(data + 8, header_bytes, seed, i);
        else
            change_word(data + 8 + header_bytes, bytes - 8 - header_bytes, seed, i);
    }
    return bytes;
}

/* ---- Searching --------------------------------------------------------------------------------------------- */

static float queries[N][64];

/* Small ones, large ones, and what is not finite. */
static const float *make_queries(size_t d, float *room)
{
    static const float lengths[N] = {1, 0, 1e-30F, 1e18F, 3e38F, INFINITY, NAN};
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < d; j++) room[i * d + j] = lengths[i] * (woi_rng_uniform(3, i, j) - 0.5F);
    return room;
}

/* One sentence, on one line. */
static void check_sentence(const wo_error *err)
{
    if (err->text[0] && !strchr(err->text, '\n')) return;
    fprintf(stderr, "fuzz_index: no sentence: '%s'\n", err->text);
    abort();
}

static void check_answers(const int32_t *ids, const float *scores, size_t k, size_t m)
{
    for (size_t j = 0; j < k; j++) {
        REQUIRE(ids[j] >= -1 && ids[j] < (int64_t)m);
        REQUIRE(ids[j] < 0 || isfinite(scores[j]));
        REQUIRE(!j || ids[j] < 0 || (ids[j - 1] >= 0 && scores[j] <= scores[j - 1]));
    }
}

static void search(const wo_index *index, const float *q)
{
    int32_t ids[N * MOST_K], listed[16];
    float scores[N * MOST_K], log_z[N];
    wo_query_stats stats[N];
    wo_searcher *s = NULL;
    wo_error err = {0};
    const size_t m = wo_index_m(index);
    const int32_t mask[] = {0, (int32_t)(m / 2), (int32_t)(m - 1)};
    if (wo_searcher_create(index, NULL, &s, &err)) return;
    for (int turn = 0; turn < 24; turn++) {
        const size_t k = turn % 2 ? MOST_K : 1;
        const wo_search_call call = {.struct_size = sizeof call,
                                     .queries = q,
                                     .n = N,
                                     .k = k,
                                     .ids = ids,
                                     .scores = scores,
                                     .stats = stats,
                                     .stats_bytes = sizeof *stats,
                                     .by = turn / 2 % 2 ? WO_BY_FULL : WO_BY_PLANNER,
                                     .score = (wo_scores)(turn / 4 % 3),
                                     .exact_fallback = turn / 12,
                                     .forbidden = turn / 12 ? mask : NULL,
                                     .n_forbidden = turn / 12 ? 2 : 0,
                                     .mandatory = turn / 12 ? mask : NULL,
                                     .n_mandatory = turn / 12 ? 3 : 0};
        if (wo_search_run(s, &call, &err)) {
            check_sentence(&err);
            continue;
        }
        for (size_t i = 0; i < N; i++) {
            check_answers(ids + i * k, scores + i * k, k, m);
            REQUIRE(!stats[i].status || ids[i * k] < 0);
        }
    }
    const wo_search_call one = {.struct_size = sizeof one, .queries = q, .n = 1, .k = 5};
    size_t n = 0;
    if (!wo_search_candidates(s, &one, listed, 16, &n, &err))
        for (size_t i = 0; i < n && i < 16; i++) REQUIRE(listed[i] >= 0 && listed[i] < (int64_t)m);
    const wo_search_call all = {.struct_size = sizeof all, .queries = q, .n = N, .k = 1};
    (void)wo_log_partition(s, &all, log_z, &err);
    wo_searcher_free(s);
}

/* Class 0 goes and one comes, filed by whatever queries the file keeps: what that makes is an index too. */
static void update(const wo_index *index, const float *q)
{
    static const int32_t gone[] = {0};
    wo_error err = {0};
    wo_layer *row = NULL;
    wo_index *updated = NULL;
    REQUIRE(!wo_layer_wrap(q, NULL, 1, wo_index_d(index), &row, &err));
    const wo_update_options o = {.struct_size = sizeof o, .add = row, .remove = gone, .n_remove = 1, .threads = 1};
    if (wo_index_update(index, &o, &updated, &err)) {
        check_sentence(&err);
        REQUIRE(!updated);
    } else {
        REQUIRE(wo_index_m(updated) == wo_index_m(index) + 1);
        for (size_t i = 0; i < updated->cells.n; i++)
            for (uint32_t at = updated->cells.offsets[i]; at < updated->cells.offsets[i + 1]; at++)
                REQUIRE(updated->cells.ids[at] > 0 && (size_t)updated->cells.ids[at] < wo_index_m(updated));
        search(updated, q);
    }
    wo_index_free(updated);
    wo_layer_free(row);
}

/* What we write, we open. */
static void save(const wo_index *index)
{
    char path[64];
    wo_error err = {0};
    fuzz_output(path);
    wo_index *again = NULL;
    if (wo_index_save(index, path, &err) || wo_index_open(path, NULL, &again, &err)) {
        fprintf(stderr, "fuzz_index: not saved, or saved and then refused: %s\n", err.text);
        abort();
    }
    wo_index_free(again);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const wo_allocator limited = {limited_alloc, limited_free, NULL};
    unsigned char *file = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    wo_index *index = NULL;
    wo_error err = {0};
    REQUIRE(file);
    memcpy(file, data, bytes);
    most_bytes = ((size_t)16 << 20) + 64 * bytes; /* the exact layer's scratch is 3 MiB whatever the index is */
    wo_allocator_set(&limited);
    sign(file, bytes);
    const uint64_t seed = bytes ? woi_rng_u64(bytes, file[bytes / 2], file[bytes - 1]) : 0;
    const wo_open_options o = {.struct_size = sizeof o, .verify = (wo_verify)(seed % 3)};
    if (wo_index_open_memory(file, bytes, &o, &index, &err)) {
        check_sentence(&err);
    } else {
        wo_curve curve = {.struct_size = sizeof curve};
        char text[192];
        float *room = wo_index_d(index) <= 64 ? &queries[0][0] : malloc(N * wo_index_d(index) * sizeof *room);
        REQUIRE(room);
        search(index, make_queries(wo_index_d(index), room));
        if (wo_index_curve(index, &curve))
            for (size_t i = 0; i < curve.rows && i < 8; i++) (void)wo_curve_text(&curve, i, text, sizeof text);
        if (seed / 3 % 8 == 0) save(index);
        if (seed / 3 % 8 < 4) update(index, room);
        if (room != &queries[0][0]) free(room);
        wo_index_free(index);
    }
    wo_allocator_set(NULL);
    free(file);
    return 0;
}
