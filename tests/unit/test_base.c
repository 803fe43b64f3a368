/* base/: errors, sizes, memory, random numbers, processor, progress, hits. */
#include "testing.h"

#include "base/cpu.h"
#include "base/error.h"
#include "base/hits.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/size.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>

/* ---- Errors ------------------------------------------------------------------------------------------------ */

static void status_values_are_pinned(void **state)
{
    (void)state;
    const wo_status in_order[] = {WO_OK,           WO_ERR_MEMORY,   WO_ERR_IO,       WO_ERR_FORMAT, WO_ERR_UNSUPPORTED,
                                  WO_ERR_ARGUMENT, WO_ERR_CHECKSUM, WO_ERR_CANCELLED};
    for (int i = 0; i < 8; i++) {
        assert_int_equal(in_order[i], i);
        assert_string_not_equal(wo_status_text(in_order[i]), "unknown status");
        for (int j = 0; j < i; j++) assert_string_not_equal(wo_status_text(in_order[i]), wo_status_text(in_order[j]));
    }
    assert_string_equal(wo_status_text((wo_status)99), "unknown status");
    assert_int_equal(sizeof(((wo_error *)0)->text), 240);
}

static void sentences_are_cut_with_dots(void **state)
{
    (void)state;
    wo_error err;
    char longer[300];
    memset(longer, 'x', sizeof longer - 1);
    longer[299] = '\0';
    assert_int_equal(woi_fail(&err, WO_ERR_FORMAT, 7, "value %s", longer), WO_ERR_FORMAT);
    assert_int_equal(strlen(err.text), 239);
    assert_string_equal(err.text + 236, "...");
    assert_int_equal(err.offset, 7);
    assert_int_equal(woi_fail(NULL, WO_ERR_IO, 0, "nobody listens"), WO_ERR_IO);

    woi_error_set_errno(&err, "the file cannot be opened", ENOENT);
    assert_string_equal(err.text, "the file cannot be opened: No such file or directory");
    woi_error_prefix(&err, "shard 'a'");
    assert_string_equal(err.text, "shard 'a': the file cannot be opened: No such file or directory");
    for (int i = 0; i < 20; i++) woi_error_prefix(&err, "outer");
    woi_error_prefix(&err, longer);
    assert_int_equal(strlen(err.text), 239);
    assert_string_equal(err.text + 236, "...");
}

static void quoted_values_are_safe_to_print(void **state)
{
    (void)state;
    char out[WOI_QUOTE_BYTES];
    assert_string_equal(woi_quote(out, "a\033[31m'b\n\x7f", 10), "a?[31m?b??");
    assert_string_equal(woi_quote(out, "", 0), "");
    char longer[100];
    for (int i = 0; i < 50; i++) memcpy(longer + 2 * i, "\xc3\xa9", 2); /* e with an accent */
    const char *quoted = woi_quote(out, longer, 99);
    size_t n = strlen(quoted);
    assert_true(n < WOI_QUOTE_BYTES);
    assert_string_equal(quoted + n - 3, "...");
    assert_int_equal((unsigned char)quoted[n - 4], 0xa9); /* the last character is whole */
    assert_string_equal(woi_quote(out, "a\xff", 2), "a?");
    assert_string_equal(woi_quote(out, "a\xff\xc3\xa9", 4), "a?\xc3\xa9");
    /* CSI of C1, right-to-left override, an isolate, a line separator; 40 bytes of them leave no room to spare */
    assert_string_equal(woi_quote(out,
                                  "\xc2\x9b"
                                  "31m",
                                  5),
                        "?31m");
    assert_string_equal(woi_quote(out,
                                  "a\xe2\x80\xae"
                                  "b\xe2\x81\xa6"
                                  "c\xe2\x80\xa8",
                                  12),
                        "a?b?c?");
    assert_string_equal(woi_quote(out, "0123456789012345678901234567890123456789", 40),
                        "0123456789012345678901234567890123456789");
}

static void utf8_is_checked(void **state)
{
    (void)state;
    static const char *const good[] = {"",
                                       "plain",
                                       "\xc3\xa9",
                                       "\xe2\x82\xac",
                                       "\xf0\x9f\x98\x80",
                                       "\xf4\x8f\xbf\xbf",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80"};
    static const char *const bad[] = {
        "\x80", "\xc3",      "\xc0\xaf",        "\xe0\x80\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xf4\x90\x80\x80",
        "\xff", "a\xe2\x82", "\xf0\x80\x80\xaf"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) assert_true(woi_utf8_valid(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(woi_utf8_valid(bad[i], strlen(bad[i])));
    assert_int_equal(woi_utf8_mark("\xef\xbb\xbfx", 4), 3);
    assert_int_equal(woi_utf8_mark("\xef\xbb\xbf", 2), 0);
    assert_int_equal(woi_utf8_mark("\xef\xbb\xbe", 3), 0);
}

/* ---- Sizes and memory -------------------------------------------------------------------------------------- */

static void size_arithmetic_notices_overflow(void **state)
{
    (void)state;
    size_t out;
    assert_true(woi_size_mul(1u << 20, 1u << 20, &out) && out == (size_t)1 << 40);
    assert_false(woi_size_mul(SIZE_MAX, 2, &out));
    assert_false(woi_size_mul((size_t)1 << 32, (size_t)1 << 32, &out));
    assert_true(woi_size_add(SIZE_MAX - 1, 1, &out) && out == SIZE_MAX);
    assert_false(woi_size_add(SIZE_MAX, 1, &out));
    assert_true(woi_size_round_up(65, 64, &out) && out == 128);
    assert_true(woi_size_round_up(0, 64, &out) && out == 0);
    assert_false(woi_size_round_up(SIZE_MAX, 64, &out));
}

static void memory_is_aligned_and_counted(void **state)
{
    (void)state;
    wo_error err;
    for (size_t n = 0; n < 300; n += 7) {
        unsigned char *memory = woi_alloc_zero(n, 3, &err);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % WOI_ALIGN, 0);
        for (size_t i = 0; i < 3 * n; i++) assert_int_equal(memory[i], 0);
        woi_free(memory);
    }
    assert_null(woi_alloc(SIZE_MAX / 2, 4, &err));
    assert_int_equal(err.status, WO_ERR_MEMORY);
    assert_null(woi_alloc(SIZE_MAX - 10, 1, &err));
    woi_free(NULL);
}

static void a_replaced_allocator_gets_every_call(void **state)
{
    (void)state;
    wo_error err;
    assert_int_equal(wo_allocator_set(&(wo_allocator){NULL, failing_release, NULL}), WO_ERR_ARGUMENT);
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    allocations_made = allocations_alive = 0;
    void *one = woi_alloc(10, 10, &err), *two = woi_copy_text("text", 4, &err);
    assert_int_equal(allocations_made, 2);
    assert_string_equal(two, "text");
    woi_free(one);
    woi_free(two);
    assert_int_equal(allocations_alive, 0);
    allocations_left = 0;
    assert_null(woi_alloc(5, 1, &err));
    assert_string_equal(err.text, "out of memory: 5 bytes asked for");
    allocations_left = -1;
    assert_int_equal(wo_allocator_set(NULL), WO_OK);
}

static void growing_keeps_what_is_there(void **state)
{
    (void)state;
    wo_error err;
    int *items = NULL;
    size_t capacity = 0;
    for (size_t n = 0; n < 10000; n++) {
        assert_int_equal(woi_grow(&items, &capacity, n, n + 1, sizeof *items, &err), WO_OK);
        assert_true(capacity > n);
        items[n] = (int)n;
    }
    for (int i = 0; i < 10000; i++) assert_int_equal(items[i], i);
    size_t before = capacity;
    assert_int_equal(woi_grow(&items, &capacity, 10000, SIZE_MAX / 2, sizeof *items, &err), WO_ERR_MEMORY);
    assert_int_equal(capacity, before);
    assert_int_equal(items[9999], 9999);
    woi_free(items);
}

/* ---- Random numbers ---------------------------------------------------------------------------------------- */

/* The published test vectors of Random123 for philox4x32-10. */
static void philox_matches_its_test_vectors(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } vectors[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t out[4];
        woi_philox(vectors[i].counter, vectors[i].key, out);
        assert_memory_equal(out, vectors[i].out, sizeof out);
    }
}

static void numbers_have_their_distributions(void **state)
{
    (void)state;
    enum { N = 200000, SIDES = 7 };
    double uniform = 0, normal = 0, normal2 = 0, normal4 = 0;
    int sides[SIDES] = {0};
    for (uint64_t i = 0; i < N; i++) {
        float u = woi_rng_uniform(3, 1, i), z = woi_rng_normal(3, 2, i);
        assert_true(u >= 0 && u < 1 && isfinite(z));
        uniform += u;
        normal += z;
        normal2 += (double)z * z;
        normal4 += (double)z * z * z * z;
        sides[woi_rng_below(3, 3, i, SIDES)]++;
    }
    assert_true(fabs(uniform / N - 0.5) < 5 * 0.289 / sqrt(N));
    assert_true(fabs(normal / N) < 5 / sqrt(N));
    assert_true(fabs(normal2 / N - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(normal4 / N - 3) < 5 * sqrt(96.0 / N));
    double chi2 = 0;
    for (int i = 0; i < SIDES; i++) chi2 += pow(sides[i] - (double)N / SIDES, 2) / ((double)N / SIDES);
    assert_true(chi2 < 28); /* 6 degrees of freedom: p < 1e-4 */
    assert_int_equal(woi_rng_below(1, 1, 1, 1), 0);
}

static void streams_and_seeds_differ(void **state)
{
    (void)state;
    uint64_t a = woi_rng_u64(1, 1, 1);
    assert_int_equal(a, woi_rng_u64(1, 1, 1));
    assert_int_not_equal(a, woi_rng_u64(2, 1, 1));
    assert_int_not_equal(a, woi_rng_u64(1, 2, 1));
    assert_int_not_equal(a, woi_rng_u64(1, 1, 2));
    assert_int_not_equal(a, woi_rng_u64(1ull << 32 | 1, 1, 1));
    assert_int_not_equal(a, woi_rng_u64(1, 1ull << 32 | 1, 1));
    assert_int_not_equal(a, woi_rng_u64(1, 1, 1ull << 32 | 1));
}

static void a_permutation_has_each_place_once(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 2, 3, 16, 17, 1000};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        bool seen[1000] = {false};
        size_t moved = 0;
        for (uint64_t i = 0; i < sizes[s]; i++) {
            const uint64_t at = woi_rng_permute(5, 1, s, sizes[s], i);
            assert_true(at < sizes[s] && !seen[at]);
            seen[at] = true;
            moved += at != i;
        }
        if (sizes[s] == 1000) assert_true(moved > 900);
    }
    const uint64_t many = (UINT64_C(1) << 40) + 7;
    assert_true(woi_rng_permute(5, 1, 0, many, many - 1) < many);
}

/* A sample rises, has no place twice, and spreads over all n-ths; as many as there are: all of them. */
static void a_sample_has_one_place_of_each_part(void **state)
{
    (void)state;
    for (size_t i = 0; i < 100; i++) {
        const size_t at = woi_rng_place(7, 1, i, 100, 1000);
        assert_true(at >= 10 * i && at < 10 * (i + 1));
        assert_int_equal(woi_rng_place(7, 1, i, 100, 100), i);
    }
}

/* ---- Processor and progress -------------------------------------------------------------------------------- */

static void levels_include_the_ones_below(void **state)
{
    (void)state;
    woi_cpu cpu;
    woi_cpu_detect(&cpu);
    assert_true(!cpu.avx512 || cpu.avx2);
    assert_true(!cpu.avx512vnni || cpu.avx512);
    assert_true(!cpu.avx2 || strstr(cpu.features, "fma"));
    assert_true(!cpu.neondot || cpu.neon);
    assert_true(strlen(cpu.model) > 0);
#if defined(__x86_64__)
    __builtin_cpu_init();
    assert_int_equal(cpu.avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
    assert_int_equal(cpu.avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
    assert_false(cpu.neon);
#elif defined(__aarch64__)
    assert_false(cpu.avx2);
    assert_true(cpu.neon); /* the architecture asks for it */
    assert_string_equal(cpu.features, cpu.neondot ? "asimd asimddp" : "asimd");
#endif
}

static int stop_at_three(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    assert_string_equal(stage, "counting");
    assert_int_equal(total, 10);
    ++*(int *)ctx;
    return done == 3;
}

static void progress_can_cancel(void **state)
{
    (void)state;
    int calls = 0;
    wo_progress progress = {stop_at_three, &calls};
    wo_error err;
    wo_status status = WO_OK;
    for (uint64_t i = 0; i < 10 && !status; i++) status = woi_progress(&progress, "counting", i, 10, &err);
    assert_int_equal(status, WO_ERR_CANCELLED);
    assert_int_equal(calls, 4);
    assert_string_equal(err.text, "stopped while counting");
    assert_int_equal(woi_progress(NULL, "x", 0, 0, &err), WO_OK);
    assert_int_equal(woi_progress(&(wo_progress){0}, "x", 0, 0, &err), WO_OK);
}

/* ---- Hits -------------------------------------------------------------------------------------------------- */

static bool among(const int32_t *ids, size_t n, int32_t id)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* `n` different ids of 0 .. span-1, then -1 up to k: answers. */
static void draw_answers(uint64_t seed, uint64_t stream, size_t n, size_t k, uint64_t span, int32_t *ids)
{
    uint64_t at = 0;
    for (size_t i = 0; i < k; i++) {
        do ids[i] = i < n ? (int32_t)woi_rng_below(seed, stream, at++, span) : -1;
        while (i < n && among(ids, i, ids[i]));
    }
}

static void hits_are_those_of_a_plain_count(void **state)
{
    (void)state;
    enum { TRIALS = 2000, K = 12, MOST = 9, SPAN = 20 };
    for (uint64_t seed = 0; seed < TRIALS; seed++) {
        /* Three rows of labels in any order, often twice; the middle one is looked at. */
        int64_t indptr[4] = {0};
        int32_t labels[3 * MOST], distinct[MOST], answers[K], full[K], scratch[K];
        size_t most = 0;
        for (size_t row = 0; row < 3; row++) {
            const size_t own = woi_rng_below(seed, 1, row, MOST + 1);
            indptr[row + 1] = indptr[row] + (int64_t)own;
            if (own > most) most = own;
        }
        for (int64_t i = 0; i < indptr[3]; i++) labels[i] = (int32_t)woi_rng_below(seed, 2, (uint64_t)i, SPAN);
        assert_int_equal(woi_most_labels(indptr, 3), most);
        const int32_t *row = labels + indptr[1];
        const size_t n_row = (size_t)(indptr[2] - indptr[1]), n = woi_labels_of(indptr, labels, 1, distinct);
        size_t different = 0;
        for (int32_t id = 0; id < SPAN; id++) different += among(row, n_row, id);
        assert_int_equal(n, different);
        for (size_t i = 0; i < n; i++) {
            assert_true(among(row, n_row, distinct[i]));
            assert_true(i == 0 || distinct[i - 1] < distinct[i]);
        }
        draw_answers(seed, 3, woi_rng_below(seed, 5, 0, K + 1), K, SPAN, answers);
        draw_answers(seed, 4, woi_rng_below(seed, 5, 1, K + 1), K, SPAN, full);
        for (size_t k = 1; k <= K; k++) {
            size_t hits = 0, common = 0, all = 0;
            for (size_t i = 0; i < k; i++) {
                hits += answers[i] >= 0 && among(row, n_row, answers[i]);
                all += full[i] >= 0;
                common += full[i] >= 0 && among(answers, k, full[i]);
            }
            assert_int_equal(woi_hits(distinct, n, answers, k), hits);
            const woi_agreement a = woi_agree(answers, full, k, scratch);
            assert_int_equal(a.common, common);
            assert_int_equal(a.all, all);
        }
    }
    assert_int_equal(woi_most_labels(NULL, 3), 0);
    assert_int_equal(woi_hits(NULL, 0, (const int32_t[]){3, -1}, 2), 0);
}

static void version_is_the_headers(void **state)
{
    (void)state;
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", WO_VERSION_MAJOR, WO_VERSION_MINOR, WO_VERSION_PATCH);
    assert_string_equal(wo_version(), text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_values_are_pinned),
        cmocka_unit_test(sentences_are_cut_with_dots),
        cmocka_unit_test(quoted_values_are_safe_to_print),
        cmocka_unit_test(utf8_is_checked),
        cmocka_unit_test(size_arithmetic_notices_overflow),
        cmocka_unit_test(memory_is_aligned_and_counted),
        cmocka_unit_test(a_replaced_allocator_gets_every_call),
        cmocka_unit_test(growing_keeps_what_is_there),
        cmocka_unit_test(philox_matches_its_test_vectors),
        cmocka_unit_test(numbers_have_their_distributions),
        cmocka_unit_test(streams_and_seeds_differ),
        cmocka_unit_test(a_permutation_has_each_place_once),
        cmocka_unit_test(a_sample_has_one_place_of_each_part),
        cmocka_unit_test(levels_include_the_ones_below),
        cmocka_unit_test(progress_can_cancel),
        cmocka_unit_test(hits_are_those_of_a_plain_count),
        cmocka_unit_test(version_is_the_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
