/* The ceiling of evidence: nearest LAYER TRAIN.LOG VALID.LOG TEST.LOG [WEIGHT_NAME]
 *
 * The 64 training queries that are nearest to a query by cosine, found exactly, are its cell; a class's share is how
 * much of them has it as a label, where a query counts exp(focus * cosine), and its score is
 * logit + prior log(1 + 1024 share), as an index has it. No class loses by that, so that FULL's best and the labels of
 * the 64 hold the best of all m. Prior and focus are those of a grid with the best mean of the shares of FULL's P@1 and
 * P@5 on VALID.LOG; a line of JSON has P@1 and P@5 on TEST.LOG beside FULL's, and those of the best without a focus.
 * Needs room for another copy of the training queries. */
#include "base/hits.h"
#include "base/team.h"
#include "layer/layer.h"
#include "store/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEAREST = 64, K = 5, CHUNK = 1024, PRIORS = 9, FOCI = 6 };

static const double priors[PRIORS] = {0, 0.125, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2};
static const double foci[FOCI] = {0, 10, 20, 40, 80, 160};

static void check(wo_status status, const wo_error *err)
{
    if (!status) return;
    fprintf(stderr, "nearest: %s\n", err->text);
    exit(1);
}

static void *room(size_t n, size_t size)
{
    enum { ALIGN = 64 };
    void *memory = aligned_alloc(ALIGN, (n * size + ALIGN) / ALIGN * ALIGN);
    if (!memory) exit(1);
    return memory;
}

static void normalise(const float *from, size_t n, size_t d, float *to)
{
    for (size_t i = 0; i < n; i++) {
        double squares = 0;
        for (size_t j = 0; j < d; j++) squares += (double)from[i * d + j] * (double)from[i * d + j];
        const float scale = squares > 0 ? (float)(1 / sqrt(squares)) : 0;
        for (size_t j = 0; j < d; j++) to[i * d + j] = scale * from[i * d + j];
    }
}

/* What answers are looked for among, and the labels that are right. */
typedef struct ceiling {
    const woi_dense *rows;
    const wo_log *train;
    woi_dense near; /* the training queries, normalised */
    int threads;
    double *shares; /* (FOCI, m) of the query at hand, zero between queries */
    int32_t *ids;   /* the candidates */
    double *logits;
    int32_t *labels;         /* of a query, each once */
    int32_t *full, *nearest; /* (CHUNK, K), (CHUNK, NEAREST) */
    float *turned, *scores, *cosines;
} ceiling;

/* Of every focus and prior; the first of both is FULL itself. */
typedef struct hits {
    double at_1[FOCI * PRIORS], at_5[FOCI * PRIORS];
    size_t n;
} hits;

static double dot(const float *a, const float *b, size_t d)
{
    double sum = 0;
    for (size_t i = 0; i < d; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* How much the i-th of the nearest counts. */
static double weight_of(const float *cosines, size_t i, double focus)
{
    return exp(focus * ((double)cosines[i] - (double)cosines[0]));
}

/* How often a row of the training log was seen, and a label of it: of a counted log. */
static double times_of(const wo_log *log, int32_t row)
{
    return log->counts ? (double)log->counts[row] : 1;
}

static double label_times_of(const wo_log *log, int32_t row, int32_t label)
{
    for (int64_t at = log->indptr[row]; log->counts && at < log->indptr[row + 1]; at++)
        if (log->labels[at] == label) return (double)log->label_counts[at];
    return 1;
}

/* FULL's best, then what the nearest queries have as labels, each once, with its logit. */
static size_t gather(ceiling *c, const float *q, const int32_t *full, const int32_t *nearest, const float *cosines)
{
    const size_t m = c->rows->m;
    double all[FOCI] = {0};
    size_t n = 0;
    for (size_t i = 0; i < K && full[i] >= 0; i++) c->ids[n++] = full[i];
    const size_t n_full = n;
    for (size_t i = 0; i < NEAREST && nearest[i] >= 0; i++)
        for (int f = 0; f < FOCI; f++) all[f] += times_of(c->train, nearest[i]) * weight_of(cosines, i, foci[f]);
    for (size_t i = 0; i < NEAREST && nearest[i] >= 0; i++) {
        const size_t own = woi_labels_of(c->train->indptr, c->train->labels, (size_t)nearest[i], c->labels);
        for (size_t j = 0; j < own; j++) {
            bool among = c->shares[c->labels[j]] > 0;
            for (size_t f = 0; f < n_full; f++) among |= c->ids[f] == c->labels[j];
            const double times = label_times_of(c->train, nearest[i], c->labels[j]);
            for (int f = 0; f < FOCI; f++)
                c->shares[(size_t)f * m + (size_t)c->labels[j]] += times * weight_of(cosines, i, foci[f]) / all[f];
            if (!among) c->ids[n++] = c->labels[j];
        }
    }
    const size_t d = c->rows->d;
    for (size_t i = 0; i < n; i++) {
        const size_t id = (size_t)c->ids[i];
        c->logits[i] = dot(q, c->rows->w + id * d, d) + (c->rows->b ? (double)c->rows->b[id] : 0);
    }
    return n;
}

/* The K best, equal ones by the lower id. */
static void pick(const ceiling *c, size_t n, const double *shares, double prior, int32_t best[K])
{
    double scores[K];
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        const double score = c->logits[i] + prior * log1p(1024 * shares[c->ids[i]]);
        size_t place = found < K ? found++ : K;
        for (; place > 0 && (score > scores[place - 1] || (score == scores[place - 1] && c->ids[i] < best[place - 1]));
             place--)
            if (place < K) {
                scores[place] = scores[place - 1];
                best[place] = best[place - 1];
            }
        if (place == K) continue;
        scores[place] = score;
        best[place] = c->ids[i];
    }
    while (found < K) best[found++] = -1;
}

static void judge(ceiling *c, const wo_log *log, hits *h)
{
    const size_t d = c->rows->d;
    wo_error err;
    *h = (hits){.n = 0};
    for (size_t first = 0; first < log->n; first += CHUNK) {
        const size_t n = log->n - first < CHUNK ? log->n - first : CHUNK;
        const float *q = log->queries + first * d;
        normalise(q, n, d, c->turned);
        woi_exact_call call = {
            .layer = c->rows, .q = q, .n = n, .k = K, .threads = c->threads, .ids = c->full, .scores = c->scores};
        check(woi_exact_topk(&call, &err), &err);
        call = (woi_exact_call){.layer = &c->near,
                                .q = c->turned,
                                .n = n,
                                .k = NEAREST,
                                .threads = c->threads,
                                .ids = c->nearest,
                                .scores = c->cosines};
        check(woi_exact_topk(&call, &err), &err);
        for (size_t i = 0; i < n; i++) {
            const size_t found =
                gather(c, q + i * d, c->full + i * K, c->nearest + i * NEAREST, c->cosines + i * NEAREST);
            const size_t own = woi_labels_of(log->indptr, log->labels, first + i, c->labels);
            h->n += own > 0;
            for (int p = 0; own && p < FOCI * PRIORS; p++) {
                int32_t best[K];
                pick(c, found, c->shares + (size_t)(p / PRIORS) * c->rows->m, priors[p % PRIORS], best);
                h->at_1[p] += (double)woi_hits(c->labels, own, best, 1);
                h->at_5[p] += (double)woi_hits(c->labels, own, best, K) / K;
            }
            for (size_t j = 0; j < found * FOCI; j++) c->shares[j % FOCI * c->rows->m + (size_t)c->ids[j / FOCI]] = 0;
        }
    }
}

static wo_log *open_log(const char *path, const woi_dense *rows)
{
    wo_log *log = NULL;
    wo_error err;
    check(wo_log_open(path, &log, &err), &err);
    check(woi_log_check(log, rows->m, rows->d, &err), &err);
    if (log->indptr) return log;
    fprintf(stderr, "nearest: %s has no labels\n", path);
    exit(1);
}

/* Of the first n of the grid. */
static int best_of(const hits *h, int n)
{
    int best = 0;
    double most = 0;
    for (int p = 0; p < n; p++) {
        const double worth = h->at_1[p] / fmax(h->at_1[0], 1) + h->at_5[p] / fmax(h->at_5[0], 1);
        if (!(worth > most)) continue;
        most = worth;
        best = p;
    }
    return best;
}

int main(int argc, char **argv)
{
    wo_error err;
    wo_layer *layer = NULL;
    if (argc != 5 && argc != 6) {
        fputs("usage: nearest LAYER TRAIN.LOG VALID.LOG TEST.LOG [WEIGHT_NAME]\n", stderr);
        return 2;
    }
    const wo_layer_options options = {.struct_size = sizeof options, .weight_name = argc == 6 ? argv[5] : NULL};
    check(wo_layer_open(argv[1], &options, &layer, &err), &err);
    const woi_dense *rows = &layer->dense;
    const size_t d = rows->d;
    wo_log *train = open_log(argv[2], rows), *valid = open_log(argv[3], rows), *test = open_log(argv[4], rows);
    size_t most = woi_most_labels(train->indptr, train->n);
    const size_t room_for = K + NEAREST * most,
                 others[] = {woi_most_labels(valid->indptr, valid->n), woi_most_labels(test->indptr, test->n)};
    for (int i = 0; i < 2; i++) most = others[i] > most ? others[i] : most;
    float *near = room(train->n * d, sizeof *near);
    normalise(train->queries, train->n, d, near);
    ceiling c = {.rows = rows,
                 .train = train,
                 .near = {.m = train->n, .d = d, .w = near},
                 .threads = woi_team_threads(0),
                 .shares = room(FOCI * rows->m, sizeof(double)),
                 .ids = room(room_for, sizeof(int32_t)),
                 .logits = room(room_for, sizeof(double)),
                 .labels = room(most + 1, sizeof(int32_t)),
                 .full = room(CHUNK * K, sizeof(int32_t)),
                 .nearest = room(CHUNK * NEAREST, sizeof(int32_t)),
                 .turned = room(CHUNK * d, sizeof(float)),
                 .scores = room(CHUNK * K, sizeof(float)),
                 .cosines = room(CHUNK * NEAREST, sizeof(float))};
    memset(c.shares, 0, FOCI * rows->m * sizeof *c.shares);
    hits on_valid, on_test;
    judge(&c, valid, &on_valid);
    const int best = best_of(&on_valid, FOCI * PRIORS), plain = best_of(&on_valid, PRIORS);
    judge(&c, test, &on_test);
    const double n = on_test.n ? (double)on_test.n : 1;
    printf("{\"m\": %zu, \"d\": %zu, \"train\": %zu, \"n\": %zu, \"prior\": %g, \"focus\": %g, \"p_at_1\": %.6f, "
           "\"p_at_5\": %.6f, "
           "\"full_p_at_1\": %.6f, \"full_p_at_5\": %.6f, \"p_at_1_of_full\": %.6f, \"p_at_5_of_full\": %.6f, "
           "\"no_focus\": {\"prior\": %g, \"p_at_1\": %.6f, \"p_at_5\": %.6f}}\n",
           rows->m, d, train->n, on_test.n, priors[best % PRIORS], foci[best / PRIORS], on_test.at_1[best] / n,
           on_test.at_5[best] / n, on_test.at_1[0] / n, on_test.at_5[0] / n,
           on_test.at_1[best] / fmax(on_test.at_1[0], 1), on_test.at_5[best] / fmax(on_test.at_5[0], 1), priors[plain],
           on_test.at_1[plain] / n, on_test.at_5[plain] / n);
    void *const owned[] = {near, c.shares, c.ids, c.logits, c.labels, c.full, c.nearest, c.turned, c.scores, c.cosines};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    wo_log_free(train);
    wo_log_free(valid);
    wo_log_free(test);
    wo_layer_free(layer);
    return 0;
}
