/* What a screen in fewer principal coordinates would keep, and save: coordinates LAYER TEST.LOG [WEIGHT_NAME]
 *
 * The coordinates are those of the rows' second moments, largest first: w and q turned by the same rotation, of which
 * the first r numbers are rounded to int8 and screened; the best `kept` are then scored exactly. For each number kept
 * it prints the fewest eighths of the coordinates with which FULL's five best are found in 99.9%, and the time of
 * screen and exact scores beside that of the screen as it is, in the rows' own coordinates and 16 kept: one by one and
 * 1,024 at once, on one thread, in CPU time, which other processes disturb less, the least of ROUNDS in turn. What
 * turning the query would take, r dot products of length d, is not counted. */
#include "base/clock.h"
#include "base/team.h"
#include "layer/layer.h"
#include "layer/screen.h"
#include "store/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 25, N = 1024, JUDGED = 4096, K = 5, KEPTS = 5, PARTS = 6, ALONE = 24 };

static const size_t kepts[KEPTS] = {16, 32, 64, 128, 256};
static const int eighths[PARTS] = {2, 3, 4, 5, 6, 7};

static void check(wo_status status, const wo_error *err)
{
    if (!status) return;
    fprintf(stderr, "coordinates: %s\n", err->text);
    exit(1);
}

static void *room(size_t n, size_t size)
{
    enum { ALIGN = 64 };
    const size_t bytes = (n * size + ALIGN - 1) / ALIGN * ALIGN;
    void *memory = aligned_alloc(ALIGN, bytes);
    if (!memory) exit(1);
    return memset(memory, 0, bytes);
}

/* Jacobi's rotations: a (d, d) symmetric becomes diagonal, v (d, d) its axes, one a column. */
static void diagonalise(double *a, double *v, size_t d)
{
    for (size_t i = 0; i < d; i++) v[i * d + i] = 1;
    for (int sweep = 0; sweep < 12; sweep++)
        for (size_t p = 0; p < d; p++)
            for (size_t q = p + 1; q < d; q++) {
                const double off = a[p * d + q];
                if (fabs(off) < 1e-14 * sqrt(fabs(a[p * d + p] * a[q * d + q]))) continue;
                const double theta = (a[q * d + q] - a[p * d + p]) / (2 * off);
                const double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
                const double c = 1 / sqrt(t * t + 1), s = t * c;
                for (size_t i = 0; i < d; i++) {
                    const double x = a[i * d + p], y = a[i * d + q];
                    a[i * d + p] = c * x - s * y;
                    a[i * d + q] = s * x + c * y;
                }
                for (size_t i = 0; i < d; i++) {
                    const double x = a[p * d + i], y = a[q * d + i];
                    a[p * d + i] = c * x - s * y;
                    a[q * d + i] = s * x + c * y;
                }
                for (size_t i = 0; i < d; i++) {
                    const double x = v[i * d + p], y = v[i * d + q];
                    v[i * d + p] = c * x - s * y;
                    v[i * d + q] = s * x + c * y;
                }
            }
}

/* The axes of the rows, (d, d), the one that has most of their squares first. */
static double *axes_of(const woi_dense *rows)
{
    const size_t d = rows->d;
    double *moments = room(d * d, sizeof *moments), *v = room(d * d, sizeof *v), *axes = room(d * d, sizeof *axes);
    for (size_t i = 0; i < rows->m; i++)
        for (size_t x = 0; x < d; x++) {
            const double one = (double)rows->w[i * d + x];
            for (size_t y = 0; y < d; y++) moments[x * d + y] += one * (double)rows->w[i * d + y];
        }
    diagonalise(moments, v, d);
    for (size_t place = 0; place < d; place++) {
        size_t best = 0;
        for (size_t x = 1; x < d; x++)
            if (moments[x * d + x] > moments[best * d + best]) best = x;
        moments[best * d + best] = -1;
        for (size_t x = 0; x < d; x++) axes[place * d + x] = v[x * d + best];
    }
    free(moments);
    free(v);
    return axes;
}

/* n vectors of d numbers in their first r coordinates. */
static float *turn(const double *axes, const float *x, size_t n, size_t d, size_t r)
{
    float *to = room(n * r, sizeof *to);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < r; c++) {
            double sum = 0;
            for (size_t j = 0; j < d; j++) sum += axes[c * d + j] * (double)x[i * d + j];
            to[i * r + c] = (float)sum;
        }
    return to;
}

/* A screen of the layer in r coordinates, and what is asked of it. */
typedef struct way {
    const woi_dense *rows;
    woi_screen screen;
    const float *q, *turned; /* (JUDGED, d), (JUDGED, r) */
    size_t r, kept;
    int threads;
    void *scratch;
    const woi_kernels *kernels;
    const int32_t *full; /* (JUDGED, K); NULL: answers are not compared */
    size_t had[WOI_MAX_THREADS];
} way;

static void finish(void *ctx, int worker, size_t i, const int32_t *ids, size_t n)
{
    way *w = ctx;
    float logits[256], scores[K];
    int32_t best[K];
    const size_t d = w->rows->d;
    w->kernels->gather_f32(w->q + i * d, w->rows->w, ids, n, d, d, logits);
    for (size_t j = 0; w->rows->b && j < n; j++) logits[j] += w->rows->b[ids[j]];
    w->kernels->pick(logits, ids, n, K, scores, best);
    for (size_t j = 0; w->full && j < K; j++)
        for (size_t other = 0; other < K; other++) w->had[worker] += best[j] == w->full[i * K + other];
}

static void run(way *w, size_t first, size_t n, int threads)
{
    way own = *w;
    own.q += first * w->rows->d;
    woi_screen_run(w->kernels, &(woi_screen_call){.screen = &w->screen,
                                                  .b = w->rows->b,
                                                  .q = w->turned + first * w->r,
                                                  .n = n,
                                                  .keep = w->kept,
                                                  .threads = threads,
                                                  .scratch = w->scratch,
                                                  .found = finish,
                                                  .ctx = w->full ? w : &own});
}

static double timed(way *w, bool alone, size_t round)
{
    const double start = woi_cpu_s();
    if (alone)
        for (size_t i = 0; i < ALONE; i++) run(w, (round * ALONE + i) % JUDGED, 1, 1);
    else
        run(w, round % 4 * N, N, 1);
    return (woi_cpu_s() - start) * 1e6 / (double)(alone ? ALONE : N);
}

/* The share of FULL's best that are found. */
static double judge(way *w, const int32_t *full)
{
    size_t had = 0;
    memset(w->had, 0, sizeof w->had);
    w->full = full;
    run(w, 0, JUDGED, w->threads);
    w->full = NULL;
    for (int t = 0; t < w->threads; t++) had += w->had[t];
    return (double)had / (JUDGED * K);
}

static void report(way *w, double share, way *usual)
{
    double us[2] = {INFINITY, INFINITY}, usual_us[2] = {INFINITY, INFINITY};
    for (size_t round = 0; round < ROUNDS; round++)
        for (int alone = 0; alone < 2; alone++) {
            usual_us[alone] = fmin(usual_us[alone], timed(usual, alone, round));
            us[alone] = fmin(us[alone], timed(w, alone, round));
        }
    printf("  kept %4zu  r %4zu  FULL's five best %.3f%%  batch 1: %.1f us, %.2f times the screen  batch %d: %.2f us, "
           "%.2f times\n",
           w->kept, w->r, 100 * share, us[1], usual_us[1] / us[1], N, us[0], usual_us[0] / us[0]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    wo_error err;
    wo_layer *layer = NULL;
    wo_log *log = NULL;
    if (argc != 3 && argc != 4) {
        fputs("usage: coordinates LAYER TEST.LOG [WEIGHT_NAME]\n", stderr);
        return 2;
    }
    const wo_layer_options options = {.struct_size = sizeof options, .weight_name = argc == 4 ? argv[3] : NULL};
    check(wo_layer_open(argv[1], &options, &layer, &err), &err);
    check(wo_log_open(argv[2], &log, &err), &err);
    const woi_dense *rows = &layer->dense;
    const size_t d = rows->d;
    const int threads = woi_team_threads(0);
    float *q = room(JUDGED * d, sizeof *q), *scores = room(JUDGED * K, sizeof *scores);
    int32_t *full = room(JUDGED * K, sizeof *full);
    for (size_t i = 0; i < JUDGED; i++) memcpy(q + i * d, log->queries + log->n * i / JUDGED * d, d * sizeof *q);
    check(woi_exact_topk(
              &(woi_exact_call){
                  .layer = rows, .q = q, .n = JUDGED, .k = K, .threads = threads, .ids = full, .scores = scores},
              &err),
          &err);
    void *scratch = room(woi_screen_scratch(d, threads), 1);
    const woi_kernels *kernels = woi_kernels_get(&err);
    way usual = {.rows = rows,
                 .q = q,
                 .turned = q,
                 .r = d,
                 .kept = 16,
                 .threads = threads,
                 .scratch = scratch,
                 .kernels = kernels};
    check(woi_screen_make(rows, threads, &usual.screen, &err), &err);
    printf("%s: %zu classes of %zu dimensions\n", argv[1], rows->m, d);
    report(&usual, judge(&usual, full), &usual);
    double *axes = axes_of(rows);
    way ways[PARTS];
    for (int part = 0; part < PARTS; part++) {
        const size_t r = d * (size_t)eighths[part] / 8 / 4 * 4;
        ways[part] = usual;
        ways[part].r = r;
        ways[part].turned = turn(axes, q, JUDGED, d, r);
        float *turned = turn(axes, rows->w, rows->m, d, r);
        check(woi_screen_make(&(woi_dense){rows->m, r, turned, rows->b}, threads, &ways[part].screen, &err), &err);
        free(turned);
    }
    for (int i = 0; i < KEPTS; i++) {
        double share = 0;
        int part = 0;
        for (; part < PARTS; part++) {
            ways[part].kept = kepts[i];
            if ((share = judge(&ways[part], full)) >= 0.999) break;
        }
        if (part < PARTS)
            report(&ways[part], share, &usual);
        else
            printf("  kept %4zu  none with fewer: %.3f%% with r %zu\n", kepts[i], 100 * share, ways[PARTS - 1].r);
    }
    for (int part = 0; part < PARTS; part++) {
        woi_screen_free(&ways[part].screen);
        free((void *)ways[part].turned);
    }
    woi_screen_free(&usual.screen);
    wo_layer_free(layer);
    wo_log_free(log);
    free(axes);
    free(scratch);
    free(q);
    free(full);
    free(scores);
    return 0;
}
