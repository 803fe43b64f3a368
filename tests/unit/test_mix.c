/* route/mix.c: what it estimates and how it climbs, against sums over all cells in double. */
#include "testing.h"

#include "base/rng.h"
#include "route/mix.h"

#include <math.h>
#include <stdbool.h>

static const double SHARPNESS = 10, SMOOTHING = 20; /* s and a of mix.h */

/* Queries and what they needed: query i belongs to cluster i % clusters, lies near its centre, and needs classes of
 * its cluster, now and then one of any. */
typedef struct scene {
    size_t n, d, m, clusters;
    float *q;
    woi_sparse needs;
} scene;

static int by_id(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

typedef struct scene_plan {
    size_t n, d, m, clusters;
    double noise;
    bool gaps; /* queries that need nothing */
    uint64_t seed;
} scene_plan;

static scene make_scene(scene_plan plan)
{
    const size_t n = plan.n, d = plan.d, m = plan.m, clusters = plan.clusters;
    const uint64_t seed = plan.seed;
    scene s = {.n = n, .d = d, .m = m, .clusters = clusters, .q = malloc(n * d * sizeof *s.q), .needs.n = n};
    s.needs.indptr = malloc((n + 1) * sizeof *s.needs.indptr);
    s.needs.ids = malloc(4 * n * sizeof *s.needs.ids);
    s.needs.weights = malloc(4 * n * sizeof *s.needs.weights);
    assert_true(s.q && s.needs.indptr && s.needs.ids && s.needs.weights);
    int64_t used = s.needs.indptr[0] = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t own = i % clusters;
        for (size_t j = 0; j < d; j++)
            s.q[i * d + j] =
                3 + 2 * woi_rng_normal(seed, 1, own * d + j) + (float)plan.noise * woi_rng_normal(seed, 2, i * d + j);
        int32_t ids[4];
        size_t some = plan.gaps && i % 3 == 0 ? 0 : 1 + woi_rng_below(seed, 3, i, 4), kept = 0;
        for (size_t k = 0; k < some; k++) {
            const uint64_t draw = 4 * i + k, each = m / clusters;
            ids[k] = (int32_t)(woi_rng_below(seed, 4, draw, 10) ? own * each + woi_rng_below(seed, 5, draw, each)
                                                                : woi_rng_below(seed, 5, draw, m));
        }
        qsort(ids, some, sizeof *ids, by_id);
        for (size_t k = 0; k < some; k++)
            if (k == 0 || ids[k] != ids[k - 1]) {
                s.needs.ids[used + (int64_t)kept] = ids[k] * 7; /* ids with holes */
                s.needs.weights[used + (int64_t)kept++] = (float)(1 + woi_rng_below(seed, 6, 4 * i + k, 2));
            }
        used += (int64_t)kept;
        s.needs.indptr[i + 1] = used;
    }
    return s;
}

static void free_scene(scene *s)
{
    free(s->q);
    free(s->needs.indptr);
    free(s->needs.ids);
    free(s->needs.weights);
}

static woi_mix_sample make_sample(const scene *s, size_t most, uint64_t seed)
{
    woi_mix_sample sample;
    wo_error err;
    const woi_mix_options o = {.max_queries = most, .seed = seed};
    assert_int_equal(woi_mix_sample_make(s->q, s->d, &s->needs, &o, &sample, &err), WO_OK);
    return sample;
}

static woi_mix_table make_table(const woi_mix_sample *sample, uint32_t K, uint64_t seed)
{
    woi_mix_table table;
    wo_error err;
    assert_int_equal(woi_mix_table_create(sample, K, seed, 1, &table, &err), WO_OK);
    for (uint32_t k = 0; k < K; k++) table.theta[sample->d * table.width + k] = 0.1F * woi_rng_normal(seed, 7, k);
    return table;
}

/* ---- The sample -------------------------------------------------------------------------------------------- */

static bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance;
}

/* Which query of the scene row i of a sample is: x = (q - mean) * scale. */
static size_t origin(const scene *s, const woi_mix_sample *sample, size_t i, size_t from)
{
    for (; from < s->n; from++) {
        size_t same = 0;
        for (size_t j = 0; j < s->d; j++)
            same += near(sample->x[i * s->d + j], (s->q[from * s->d + j] - sample->mean[j]) * sample->scale, 1e-5);
        if (same == s->d) return from;
    }
    fail_msg("row %zu of the sample is no query behind the one before", i);
    return 0;
}

static void samples_are_centred_and_renumbered(void **state)
{
    (void)state;
    static const size_t most[] = {1, 7, 199, 200, 201, 100000};
    for (size_t turn = 0; turn < 2 * sizeof most / sizeof *most; turn++) {
        scene s = make_scene(
            (scene_plan){.n = 200, .d = 5, .m = 40, .clusters = 5, .noise = 0.5, .gaps = turn % 2, .seed = 31 + turn});
        woi_mix_sample sample = make_sample(&s, most[turn / 2], turn);
        assert_int_equal(sample.n, most[turn / 2] < 200 ? most[turn / 2] : 200);
        double square = 0;
        for (size_t j = 0; j < s.d; j++) {
            double sum = 0;
            for (size_t i = 0; i < sample.n; i++) {
                sum += sample.x[i * s.d + j];
                square += (double)sample.x[i * s.d + j] * sample.x[i * s.d + j];
            }
            assert_true(near(sum / (double)sample.n, 0, 1e-5));
        }
        if (sample.n > 1) assert_true(near(square / (double)sample.n, 1, 1e-4)); /* |x| is 1 in the mean */
        /* Rows in the scene's order, each with its own needs; known[y] is what class y was. */
        int32_t known[64];
        memset(known, -1, sizeof known);
        double total = 0, of[64] = {0};
        for (size_t i = 0, from = 0; i < sample.n; i++, from++) {
            from = origin(&s, &sample, i, from);
            const int64_t first = sample.rows.indptr[i], n = sample.rows.indptr[i + 1] - first;
            assert_int_equal(n, s.needs.indptr[from + 1] - s.needs.indptr[from]);
            for (int64_t at = 0; at < n; at++) {
                const int32_t y = sample.rows.ids[first + at], id = s.needs.ids[s.needs.indptr[from] + at];
                assert_true(y >= 0 && (size_t)y < sample.n_ids);
                assert_true(known[y] == -1 || known[y] == id);
                known[y] = id;
                assert_true(sample.rows.weights[first + at] == s.needs.weights[s.needs.indptr[from] + at]);
                total += sample.rows.weights[first + at];
                of[y] += sample.rows.weights[first + at];
            }
        }
        double shares = 0;
        for (size_t y = 0; y < sample.n_ids; y++) {
            if (y) assert_true(known[y] > known[y - 1]);
            assert_true(near(sample.share[y], of[y] / total, 1e-6));
            shares += sample.share[y];
            /* The column lists the rows that name y, ascending. */
            int64_t at = sample.columns.indptr[y];
            for (size_t i = 0; i < sample.n; i++)
                for (int64_t r = sample.rows.indptr[i]; r < sample.rows.indptr[i + 1]; r++)
                    if ((size_t)sample.rows.ids[r] == y) {
                        assert_true(at < sample.columns.indptr[y + 1]);
                        assert_int_equal(sample.columns.ids[at], i);
                        assert_true(sample.columns.weights[at++] == sample.rows.weights[r]);
                    }
            assert_int_equal(at, sample.columns.indptr[y + 1]);
        }
        if (total > 0) assert_true(near(shares, 1, 1e-5));
        woi_mix_sample_free(&sample);
        free_scene(&s);
    }
}

static void samples_follow_the_seed(void **state)
{
    (void)state;
    scene s = make_scene((scene_plan){.n = 300, .d = 3, .m = 20, .clusters = 4, .noise = 1, .seed = 5});
    woi_mix_sample a = make_sample(&s, 50, 1), b = make_sample(&s, 50, 1), c = make_sample(&s, 50, 2);
    assert_memory_equal(a.x, b.x, 50 * 3 * sizeof *a.x);
    assert_memory_not_equal(a.x, c.x, 50 * 3 * sizeof *a.x);
    woi_mix_sample_free(&a);
    woi_mix_sample_free(&b);
    woi_mix_sample_free(&c);
    free_scene(&s);
}

/* ---- Estimates --------------------------------------------------------------------------------------------- */

/* p(c|x) for all cells, in double. */
static void posterior(const woi_mix_sample *sample, const woi_mix_table *table, const double *theta, size_t i,
                      double *p)
{
    const size_t d = sample->d, width = table->width;
    double sigma[WOI_MAX_BITS];
    for (uint32_t k = 0; k < table->K; k++) {
        double z = theta[d * width + k];
        for (size_t j = 0; j < d; j++) z += (double)sample->x[i * d + j] * theta[j * width + k];
        sigma[k] = 1 / (1 + exp(-SHARPNESS * z));
    }
    for (uint32_t c = 0; c < 1U << table->K; c++) {
        p[c] = 1;
        for (uint32_t k = 0; k < table->K; k++) p[c] *= c >> k & 1 ? sigma[k] : 1 - sigma[k];
    }
}

static double *theta_of(const woi_mix_sample *sample, const woi_mix_table *table)
{
    const size_t size = (sample->d + 1) * table->width;
    double *theta = malloc(size * sizeof *theta);
    assert_non_null(theta);
    for (size_t i = 0; i < size; i++) theta[i] = table->theta[i];
    return theta;
}

/* Cells whose p is so near to the bound that rounding decides whether they count. */
static bool undecided(const double *p, uint32_t K, double bound)
{
    for (uint32_t c = 0; c < 1U << K; c++)
        if (near(p[c], bound, 1e-4 * bound)) return true;
    return false;
}

/* N[c, y] and 1 / (N[c] + a), from cells with p >= 1/64. */
static void estimates_match_dense_counts(void **state)
{
    (void)state;
    size_t compared = 0;
    wo_error err;
    for (uint64_t turn = 0; turn < 16; turn++) {
        const uint32_t K = 1 + (uint32_t)(turn % 8), cells = 1U << K;
        scene s = make_scene(
            (scene_plan){.n = 150, .d = 4, .m = 30, .clusters = 6, .noise = 0.7, .gaps = turn % 3 == 0, .seed = turn});
        woi_mix_sample sample = make_sample(&s, turn % 2 ? 1000 : 90, turn);
        woi_mix_table table = make_table(&sample, K, turn);
        for (int again = 0; again < 2; again++) { /* the second estimate must not add to the first */
            for (size_t i = 0; again && i < (s.d + 1) * table.width; i++) table.theta[i] *= 0.7F;
            assert_int_equal(woi_mix_estimate(&sample, &table, 2, &err), WO_OK);
            double *theta = theta_of(&sample, &table), *p = malloc(cells * sizeof *p),
                   *N = calloc(cells * sample.n_ids, sizeof *N), *total = calloc(cells, sizeof *total);
            bool decided = true;
            for (size_t i = 0; i < sample.n; i++) {
                posterior(&sample, &table, theta, i, p);
                decided = decided && !undecided(p, K, 1.0 / 64);
                for (uint32_t c = 0; c < cells; c++)
                    for (int64_t at = sample.rows.indptr[i]; p[c] >= 1.0 / 64 && at < sample.rows.indptr[i + 1]; at++) {
                        const double mass = sample.rows.weights[at] * p[c];
                        N[(size_t)sample.rows.ids[at] * cells + c] += mass;
                        total[c] += mass;
                    }
            }
            for (size_t y = 0; decided && y < sample.n_ids; y++) {
                const int64_t first = table.start[y];
                for (uint32_t at = 0; at < table.count[y]; at++) {
                    const uint32_t cell = table.cell[first + at];
                    if (at) assert_true(cell > table.cell[first + at - 1]);
                    assert_true(near(table.mass[first + at], N[y * cells + cell], 1e-4 * (1 + N[y * cells + cell])));
                    N[y * cells + cell] = 0;
                }
                for (uint32_t c = 0; c < cells; c++) assert_true(N[y * cells + c] == 0); /* nothing left out */
            }
            for (uint32_t c = 0; decided && c < cells; c++)
                assert_true(near(table.inverse[c] * (total[c] + SMOOTHING), 1, 1e-4));
            compared += decided;
            free(theta);
            free(p);
            free(N);
            free(total);
        }
        woi_mix_table_free(&table);
        woi_mix_sample_free(&sample);
        free_scene(&s);
    }
    assert_true(compared > 24); /* of 32 */
}

/* ---- Gradients --------------------------------------------------------------------------------------------- */

/* M[c, y] as the table has it. */
static double *dense_M(const woi_mix_sample *sample, const woi_mix_table *table)
{
    const uint32_t cells = 1U << table->K;
    double *M = malloc(cells * sample->n_ids * sizeof *M);
    assert_non_null(M);
    for (size_t y = 0; y < sample->n_ids; y++) {
        for (uint32_t c = 0; c < cells; c++) M[y * cells + c] = SMOOTHING * sample->share[y];
        for (uint32_t at = 0; at < table->count[y]; at++)
            M[y * cells + table->cell[table->start[y] + at]] += table->mass[table->start[y] + at];
        for (uint32_t c = 0; c < cells; c++) M[y * cells + c] *= table->inverse[c];
    }
    return M;
}

/* The objective at `theta`, over the cells that `counts` (picks, cells) marks. */
static double objective_at(const woi_mix_sample *sample, const woi_mix_table *table, const double *theta,
                           const double *M, const woi_mix_batch *batch, const bool *counts)
{
    const size_t *picks = batch->picks, n_picks = batch->n;
    const uint32_t cells = 1U << table->K;
    double *p = malloc(cells * sizeof *p), total = 0, weight = 0;
    for (size_t i = 0; i < n_picks; i++) {
        posterior(sample, table, theta, picks[i], p);
        for (int64_t at = sample->rows.indptr[picks[i]]; at < sample->rows.indptr[picks[i] + 1]; at++) {
            double sum = 0;
            for (uint32_t c = 0; c < cells; c++)
                if (counts[i * cells + c]) sum += p[c] * M[(size_t)sample->rows.ids[at] * cells + c];
            if (!(sum > 0)) continue;
            total += sample->rows.weights[at] * log(sum);
            weight += sample->rows.weights[at];
        }
    }
    free(p);
    return weight > 0 ? total / weight : 0;
}

/* Differences of the objective, in double, over the cells that have p >= 1/256 where the gradient is taken: the bound
 * does not move with theta. Gives false where rounding decides about a cell. */
static bool gradient_matches(const scene *s, uint32_t K, uint64_t seed, size_t n_picks)
{
    wo_error err;
    woi_mix_sample sample = make_sample(s, 1000, seed);
    woi_mix_table table = make_table(&sample, K, seed);
    const size_t size = (s->d + 1) * table.width;
    const uint32_t cells = 1U << K;
    /* Soft enough for several cells a query. */
    for (size_t i = 0; i < size; i++) table.theta[i] *= 0.4F;
    assert_int_equal(woi_mix_estimate(&sample, &table, 1, &err), WO_OK);
    size_t *picks = malloc(n_picks * sizeof *picks);
    float *gradient = malloc(size * sizeof *gradient);
    bool *counts = malloc(n_picks * cells), decided = true;
    double *theta = theta_of(&sample, &table), *M = dense_M(&sample, &table), *p = malloc(cells * sizeof *p), objective;
    for (size_t i = 0; i < n_picks; i++) {
        picks[i] = woi_rng_below(seed, 8, i, sample.n);
        posterior(&sample, &table, theta, picks[i], p);
        decided = decided && !undecided(p, K, 1.0 / 256);
        for (uint32_t c = 0; c < cells; c++) counts[i * cells + c] = p[c] >= 1.0 / 256;
    }
    const woi_mix_batch batch = {picks, n_picks, 2};
    assert_int_equal(woi_mix_gradient(&sample, &table, &batch, &objective, gradient, &err), WO_OK);
    double largest = 0;
    for (size_t i = 0; i < size; i++) largest = fmax(largest, fabs((double)gradient[i]));
    if (decided) {
        const double expected = objective_at(&sample, &table, theta, M, &batch, counts);
        assert_true(near(objective, expected, 1e-5 * fabs(expected)));
        assert_true(largest > 1e-3);
    }
    for (size_t i = 0; decided && i < size; i++) {
        if (i % table.width >= K) { /* padding */
            assert_true(gradient[i] == 0);
            continue;
        }
        const double at = theta[i], step = 1e-5;
        theta[i] = at + step;
        const double above = objective_at(&sample, &table, theta, M, &batch, counts);
        theta[i] = at - step;
        const double below = objective_at(&sample, &table, theta, M, &batch, counts);
        theta[i] = at;
        const double expected = (above - below) / (2 * step);
        if (!near(gradient[i], expected, 1e-3 * fabs(expected) + 1e-5 * largest))
            fail_msg("K %u, seed %d: parameter %zu: %g, differences give %g", K, (int)seed, i, (double)gradient[i],
                     expected);
    }
    free(picks);
    free(gradient);
    free(counts);
    free(theta);
    free(M);
    free(p);
    woi_mix_table_free(&table);
    woi_mix_sample_free(&sample);
    return decided;
}

static void gradients_match_differences(void **state)
{
    (void)state;
    size_t compared = 0;
    for (uint64_t seed = 0; seed < 18; seed++) {
        scene s = make_scene((scene_plan){
            .n = 60, .d = 3 + seed % 4, .m = 24, .clusters = 4, .noise = 0.8, .gaps = seed % 2, .seed = 100 + seed});
        compared += gradient_matches(&s, 1 + (uint32_t)(seed % 6), seed, seed % 3 ? 20 : 150);
        free_scene(&s);
    }
    assert_true(compared >= 12); /* of 18 */
}

/* Before the first estimate every cell is the background: the same everywhere, so there is nowhere to climb. */
static void without_an_estimate_there_is_no_slope(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene((scene_plan){.n = 40, .d = 3, .m = 12, .clusters = 3, .noise = 0.3, .seed = 9});
    woi_mix_sample sample = make_sample(&s, 1000, 1);
    woi_mix_table table = make_table(&sample, 2, 1);
    const size_t picks[] = {0, 5, 39};
    double objective;
    float gradient[4 * 16];
    assert_int_equal(woi_mix_gradient(&sample, &table, &(woi_mix_batch){picks, 3, 1}, &objective, gradient, &err),
                     WO_OK);
    for (size_t i = 0; i < 4 * 16; i++) assert_true(fabsf(gradient[i]) < 0.2F); /* but for what 1/256 leaves out */
    woi_mix_table_free(&table);
    woi_mix_sample_free(&sample);
    free_scene(&s);
}

/* ---- Learning ---------------------------------------------------------------------------------------------- */

static woi_hash learn(const scene *s, uint32_t K, uint32_t L, const woi_mix_options *options)
{
    woi_hash hash;
    wo_error err;
    assert_int_equal(woi_hash_create(K, L, s->d, false, &hash, &err), WO_OK);
    if (woi_mix_learn(s->q, &s->needs, options, NULL, &hash, &err)) fail_msg("%s", err.text);
    for (size_t i = 0; i < s->d * hash.n_planes; i++) assert_true(isfinite(hash.planes[i]));
    for (size_t i = 0; i < hash.n_planes; i++) assert_true(isfinite(hash.offsets[i]));
    return hash;
}

/* The objective of table l of a hash over the whole scene: the planes unfolded again, N estimated, all queries. */
static double objective_of(const scene *s, const woi_hash *hash, uint32_t l)
{
    wo_error err;
    woi_mix_sample sample = make_sample(s, s->n, 1);
    woi_mix_table table = make_table(&sample, hash->K, 1);
    for (uint32_t k = 0; k < hash->K; k++) {
        const size_t plane = (size_t)l * hash->K + k;
        double c = hash->offsets[plane];
        for (size_t j = 0; j < s->d; j++) {
            const double t = hash->planes[j * hash->n_planes + plane];
            table.theta[j * table.width + k] = (float)(t / sample.scale);
            c += t * sample.mean[j];
        }
        table.theta[s->d * table.width + k] = (float)c;
    }
    size_t *picks = malloc(s->n * sizeof *picks);
    for (size_t i = 0; i < s->n; i++) picks[i] = i;
    float *gradient = malloc((s->d + 1) * table.width * sizeof *gradient);
    double objective;
    assert_int_equal(woi_mix_estimate(&sample, &table, 1, &err), WO_OK);
    assert_int_equal(woi_mix_gradient(&sample, &table, &(woi_mix_batch){picks, s->n, 1}, &objective, gradient, &err),
                     WO_OK);
    free(picks);
    free(gradient);
    woi_mix_table_free(&table);
    woi_mix_sample_free(&sample);
    return objective;
}

/* Of all pairs of queries, the share that is told apart rightly: the same cell for one cluster, others for others. */
static double separation(const scene *s, const woi_hash *hash)
{
    wo_error err;
    uint32_t *cells = malloc(s->n * hash->L * sizeof *cells);
    assert_int_equal(woi_hash_queries(hash, s->q, s->n, 1, cells, &err), WO_OK);
    double right = 0, all = 0;
    for (size_t i = 0; i < s->n; i++)
        for (size_t j = 0; j < i; j++, all++)
            right += (i % s->clusters == j % s->clusters) == (cells[i * hash->L] == cells[j * hash->L]);
    free(cells);
    return right / all;
}

static void learning_raises_the_objective_and_separates_clusters(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        scene s = make_scene(
            (scene_plan){.n = 600, .d = 8, .m = 64, .clusters = 8, .noise = 0.6, .gaps = seed == 2, .seed = 40 + seed});
        const woi_mix_options random = {.batch = 128, .rate = 0.02, .max_queries = 400, .seed = seed, .threads = 1};
        woi_mix_options learned = random;
        learned.steps = 250;
        woi_hash before = learn(&s, 3, 2, &random), after = learn(&s, 3, 2, &learned);
        for (uint32_t l = 0; l < 2; l++) assert_true(objective_of(&s, &after, l) > objective_of(&s, &before, l) + 0.2);
        assert_true(separation(&s, &after) > 0.95);
        assert_true(separation(&s, &after) > separation(&s, &before) + 0.05);
        /* Tables are not copies of each other, before learning or after. */
        for (int learnt = 0; learnt < 2; learnt++) {
            const woi_hash *hash = learnt ? &after : &before;
            uint32_t same = 0;
            for (size_t j = 0; j < s.d; j++)
                for (size_t k = 0; k < 3; k++)
                    same += hash->planes[j * hash->n_planes + k] == hash->planes[j * hash->n_planes + 3 + k];
            assert_true(same < 3);
        }
        woi_hash_free(&before);
        woi_hash_free(&after);
        free_scene(&s);
    }
}

static void threads_change_nothing(void **state)
{
    (void)state;
    scene s =
        make_scene((scene_plan){.n = 700, .d = 6, .m = 40, .clusters = 8, .noise = 0.8, .gaps = true, .seed = 77});
    woi_mix_options o = {.steps = 52, .batch = 300, .rate = 0.05, .max_queries = 500, .seed = 3, .threads = 1};
    woi_hash one = learn(&s, 5, 2, &o);
    for (int threads = 0; threads <= 3; threads++) {
        o.threads = threads;
        woi_hash other = learn(&s, 5, 2, &o);
        assert_memory_equal(one.planes, other.planes, s.d * one.n_planes * sizeof *one.planes);
        assert_memory_equal(one.offsets, other.offsets, one.n_planes * sizeof *one.offsets);
        woi_hash_free(&other);
    }
    woi_hash_free(&one);
    free_scene(&s);
}

/* Estimates and gradients are bit for bit the same too. */
static void threads_do_not_change_the_parts(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene((scene_plan){.n = 500, .d = 5, .m = 60, .clusters = 6, .noise = 1, .seed = 78});
    woi_mix_sample sample = make_sample(&s, 1000, 1);
    size_t picks[777];
    for (size_t i = 0; i < 777; i++) picks[i] = woi_rng_below(5, 9, i, sample.n);
    float first[6 * 16], gradient[6 * 16], masses = 0;
    double first_objective = 0, objective;
    for (int threads = 1; threads <= 3; threads++) {
        woi_mix_table table = make_table(&sample, 6, 1);
        assert_int_equal(woi_mix_estimate(&sample, &table, threads, &err), WO_OK);
        float sum = 0;
        for (size_t y = 0; y < sample.n_ids; y++)
            for (uint32_t i = 0; i < table.count[y]; i++) sum += table.mass[table.start[y] + i];
        assert_int_equal(
            woi_mix_gradient(&sample, &table, &(woi_mix_batch){picks, 777, threads}, &objective, gradient, &err),
            WO_OK);
        if (threads == 1) {
            memcpy(first, gradient, sizeof first);
            first_objective = objective;
            masses = sum;
        }
        assert_memory_equal(first, gradient, sizeof first);
        assert_true(first_objective == objective && masses == sum);
        woi_mix_table_free(&table);
    }
    woi_mix_sample_free(&sample);
    free_scene(&s);
}

/* One query, equal queries, no needs, needs of one query only: planes come out, finite, for small and large K. */
static void thin_logs_can_be_learned_from(void **state)
{
    (void)state;
    static const uint32_t bits[] = {1, 6, 7, 8, 9, 12};
    const woi_mix_options o = {.steps = 55, .batch = 5, .rate = 0.02, .max_queries = 50, .seed = 1, .threads = 1};
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        scene one = make_scene((scene_plan){.n = 1, .d = 3, .m = 4, .clusters = 1, .noise = 1, .seed = 1}),
              equal = make_scene((scene_plan){.n = 9, .d = 3, .m = 4, .clusters = 1, .seed = 1}),
              none = make_scene((scene_plan){.n = 9, .d = 3, .m = 4, .clusters = 2, .noise = 1, .seed = 1}),
              few = make_scene((scene_plan){.n = 9, .d = 3, .m = 4, .clusters = 2, .noise = 1, .seed = 1});
        memset(none.needs.indptr, 0, 10 * sizeof *none.needs.indptr);
        for (size_t at = 1; at <= 9; at++) few.needs.indptr[at] = few.needs.indptr[1];
        scene *all[] = {&one, &equal, &none, &few};
        for (size_t at = 0; at < 4; at++) {
            woi_hash hash = learn(all[at], bits[i], 2, &o);
            woi_hash_free(&hash);
            free_scene(all[at]);
        }
    }
}

static int stop_later(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    (void)stage;
    assert_true(done <= total);
    return --*(int *)ctx < 0;
}

static void learning_can_be_stopped(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene((scene_plan){.n = 50, .d = 3, .m = 8, .clusters = 2, .noise = 1, .seed = 1});
    woi_hash hash;
    assert_int_equal(woi_hash_create(3, 2, 3, false, &hash, &err), WO_OK);
    const woi_mix_options o = {.steps = 120, .batch = 8, .rate = 0.02, .max_queries = 50, .seed = 1, .threads = 1};
    for (int at = 0; at < 6; at++) {
        int left = at;
        const wo_progress progress = {stop_later, &left};
        assert_int_equal(woi_mix_learn(s.q, &s.needs, &o, &progress, &hash, &err), WO_ERR_CANCELLED);
    }
    int left = 6; /* two tables, every 50 steps */
    const wo_progress progress = {stop_later, &left};
    assert_int_equal(woi_mix_learn(s.q, &s.needs, &o, &progress, &hash, &err), WO_OK);
    woi_hash_free(&hash);
    free_scene(&s);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    scene s = make_scene((scene_plan){.n = 30, .d = 3, .m = 8, .clusters = 2, .noise = 1, .seed = 1});
    const woi_mix_options o = {.steps = 51, .batch = 8, .rate = 0.02, .max_queries = 20, .seed = 1, .threads = 1};
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    for (long n = 0;; n++) {
        wo_error err = {0};
        woi_hash hash;
        assert_true(n < 1000);
        allocations_left = -1;
        assert_int_equal(woi_hash_create(3, 2, 3, false, &hash, &err), WO_OK);
        const long alive = allocations_alive;
        allocations_left = n;
        const wo_status status = woi_mix_learn(s.q, &s.needs, &o, NULL, &hash, &err);
        allocations_left = -1;
        assert_int_equal(allocations_alive, alive);
        woi_hash_free(&hash);
        if (status == WO_OK) break;
        assert_int_equal(status, WO_ERR_MEMORY);
        assert_non_null(strstr(err.text, "memory"));
    }
    assert_int_equal(wo_allocator_set(NULL), WO_OK);
    free_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_centred_and_renumbered),
        cmocka_unit_test(samples_follow_the_seed),
        cmocka_unit_test(estimates_match_dense_counts),
        cmocka_unit_test(gradients_match_differences),
        cmocka_unit_test(without_an_estimate_there_is_no_slope),
        cmocka_unit_test(learning_raises_the_objective_and_separates_clusters),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(threads_do_not_change_the_parts),
        cmocka_unit_test(thin_logs_can_be_learned_from),
        cmocka_unit_test(learning_can_be_stopped),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
