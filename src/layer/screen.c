/* The screen of all rows: see screen.h. Cut as in exact.c, with lists in place of heaps.
 *
 *   queries   tiles of at most 1,024, in int8, packed in panels of 8
 *   classes   blocks of up to 192, which stay in the first-level cache while one panel of queries after the other meets
 *             them; neighbours make at most 64 groups, which the threads share
 *   lists     one for each query and thread: the scores that reach its bar. Where a list is full, the bar rises, to a
 *             score that at least `keep` of the list reach.
 *
 * A heap would wait at every push for the one before. A list takes whatever passes, without a branch for each, and
 * looks for its next bar a few times in all. What is left at the end are the `keep` best under the total order of all
 * results, however the lists were cut.
 *
 * Scratch: [queries' scales, sums] [memory of each thread] [packed queries] [a query in int8, for each thread] */
#include "layer/screen.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/team.h"
#include "layer/small.h"

#include <math.h>
#include <string.h>

enum {
    ZERO = 128,          /* of a row's byte */
    TILE = 1024,         /* queries */
    BLOCK = 192,         /* classes at most: four times what the widest tile has side by side */
    STEP = 48,           /* ... and a multiple of this */
    BLOCK_BYTES = 36864, /* of classes, where that is more than STEP of them */
    GROUPS = 64,
    SLACK = 256, /* entries that a list has beside twice `keep` */
    LIST_ROOM = 384 * TILE,
    ROUNDS = 16,       /* of bisection for a bar */
    PREPARED = 32,     /* queries that a thread prepares, or ends, at a time */
    WORK = 1 << 23,    /* multiplications that are worth a thread: about 50 us */
    MADE_AT_ONCE = 32, /* panels */
    LINE = 64,
};

/* ---- Making ------------------------------------------------------------------------------------------------ */

void woi_screen_free(woi_screen *screen)
{
    woi_free(screen->rows);
    woi_free(screen->scales);
    *screen = (woi_screen){0};
}

typedef struct making {
    const woi_kernels *kernels;
    const woi_dense *rows;
    woi_screen *screen;
    int8_t *bytes; /* (threads, d) */
} making;

static void make_panel(const making *own, size_t panel, int8_t *bytes)
{
    const size_t d = own->rows->d, fours = woi_screen_fours(d);
    uint8_t *to = own->screen->rows + panel * fours * WOI_I8_COLUMNS * 4;
    memset(to, ZERO, fours * WOI_I8_COLUMNS * 4);
    for (size_t j = 0; j < WOI_I8_COLUMNS; j++) {
        const size_t i = panel * WOI_I8_COLUMNS + j;
        own->screen->scales[i] = i < own->rows->m ? woi_quantise(own->kernels, own->rows->w + i * d, d, bytes) : 0;
        for (size_t x = 0; i < own->rows->m && x < d; x++)
            to[(x / 4 * WOI_I8_COLUMNS + j) * 4 + x % 4] = (uint8_t)(bytes[x] + ZERO);
    }
}

static void make_panels(void *ctx, int worker, size_t first, size_t end)
{
    const making *own = ctx;
    for (size_t panel = first; panel < end; panel++) make_panel(own, panel, own->bytes + (size_t)worker * own->rows->d);
}

/* Memory that nothing is in yet. */
static wo_status take_room(size_t m, size_t d, woi_screen *screen, wo_error *err)
{
    const size_t classes = woi_screen_panels(m) * WOI_I8_COLUMNS;
    *screen = (woi_screen){.m = m, .d = d};
    screen->rows = woi_alloc(classes, woi_screen_fours(d) * 4, err);
    screen->scales = woi_alloc(classes, sizeof *screen->scales, err);
    if (screen->rows && screen->scales) return WO_OK;
    woi_screen_free(screen);
    return WO_ERR_MEMORY;
}

wo_status woi_screen_create(size_t m, size_t d, woi_screen *screen, wo_error *err)
{
    const size_t classes = woi_screen_panels(m) * WOI_I8_COLUMNS;
    const wo_status status = take_room(m, d, screen, err);
    if (status) return status;
    memset(screen->rows, ZERO, classes * woi_screen_fours(d) * 4);
    memset(screen->scales, 0, classes * sizeof *screen->scales);
    return WO_OK;
}

/* Four coordinates of a class, from the x-th on, x a multiple of 4. */
static size_t place_of(const woi_screen *screen, size_t class, size_t x)
{
    const size_t panel = class / WOI_I8_COLUMNS, column = class % WOI_I8_COLUMNS;
    return ((panel * woi_screen_fours(screen->d) + x / 4) * WOI_I8_COLUMNS + column) * 4;
}

void woi_screen_spread(const woi_screen *from, const int32_t *classes, woi_screen *to)
{
    for (size_t i = 0; i < from->m; i++) {
        const size_t class = (size_t)classes[i];
        to->scales[class] = from->scales[i];
        for (size_t x = 0; x < from->d; x += 4)
            memcpy(to->rows + place_of(to, class, x), from->rows + place_of(from, i, x), 4);
    }
}

wo_status woi_screen_make(const woi_dense *rows, int threads, woi_screen *screen, wo_error *err)
{
    const size_t m = rows->m, d = rows->d, panels = woi_screen_panels(m);
    *screen = (woi_screen){0};
    const woi_kernels *kernels = woi_kernels_get(err);
    if (!kernels) return WO_ERR_UNSUPPORTED;
    if (d > WOI_MAX_I8)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "method", "rows of %zu numbers are too long for int8: at most %d",
                               d, WOI_MAX_I8);
    threads = woi_team_threads(threads);
    int8_t *bytes = woi_alloc((size_t)threads, d, err);
    const wo_status status = bytes ? take_room(m, d, screen, err) : WO_ERR_MEMORY;
    if (!status) woi_team_ranges(threads, panels, MADE_AT_ONCE, make_panels, &(making){kernels, rows, screen, bytes});
    woi_free(bytes);
    return status;
}

size_t woi_screen_kept(size_t k)
{
    enum { BESIDE = 11 };
    return k + k / 8 + BESIDE;
}

/* ---- Scratch ----------------------------------------------------------------------------------------------- */

typedef struct thread_memory {
    float scores[WOI_I8_ROWS * BLOCK]; /* (queries of a panel, classes of a block) */
    float biases[BLOCK];
    float bars[TILE];
    uint32_t counts[TILE];
    float best[WOI_MOST_KEPT];
    int32_t best_ids[WOI_MOST_KEPT];
    float list_scores[LIST_ROOM];
    int32_t list_ids[LIST_ROOM];
} thread_memory;

typedef struct memory {
    float scales[TILE];
    int32_t sums[TILE];
    uint8_t finite[TILE];
    thread_memory threads[];
} memory;

/* One call, and the tile of it that is being answered. */
typedef struct job {
    const woi_kernels *kernels;
    const woi_screen_call *call;
    size_t fours;
    size_t room, few; /* of a list: entries, and what is left of them where it is full */
    size_t block, n_blocks, n_groups;
    int threads;
    memory *shared;
    int8_t *queries; /* packed */
    int8_t *bytes;   /* (threads, 4 fours): a query in int8 */
    size_t first, n; /* the tile's */
} job;

static size_t aligned(size_t bytes)
{
    return (bytes + WOI_ALIGN - 1) / WOI_ALIGN * WOI_ALIGN;
}

static size_t queries_bytes(size_t d)
{
    return aligned(TILE * 4 * woi_screen_fours(d));
}

size_t woi_screen_scratch(size_t d, int threads)
{
    return aligned(sizeof(memory) + (size_t)threads * sizeof(thread_memory)) + queries_bytes(d) +
           (size_t)threads * aligned(4 * woi_screen_fours(d));
}

/* ---- Lists ------------------------------------------------------------------------------------------------- */

/* The list of a tile's query i. */
typedef struct list {
    float *scores, *bar;
    int32_t *ids;
    uint32_t *n;
} list;

static list list_at(const job *j, thread_memory *own, size_t i)
{
    return (list){own->list_scores + i * j->room, own->bars + i, own->list_ids + i * j->room, own->counts + i};
}

/* A score from `low` on that at least `keep` of a list reach, and at most `most`, where a few rounds find one; at
 * least `keep` reach `low`. Scores thin out upwards about as an exponential does, so that the logarithm of how many
 * reach a score says where to look next. Every third round halves. */
static float find_bar(const job *j, const list *l, float low, size_t most)
{
    const size_t keep = j->call->keep;
    const float wanted = logf((float)(keep + most) / 2);
    float high = j->kernels->max_f32(l->scores, *l->n), log_low = logf((float)*l->n), log_high = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const float part = round % 3 == 2 ? 0.5F : (log_low - wanted) / (log_low - log_high);
        const float middle = low * (1 - part) + high * part;
        if (!(middle > low && middle < high)) break;
        const size_t reach = j->kernels->sift(l->scores, NULL, 0, *l->n, middle, NULL, NULL);
        if (reach < keep) {
            high = middle;
            log_high = logf((float)reach);
        } else {
            low = middle;
            log_low = logf((float)reach);
            if (reach <= most) break;
        }
    }
    return low;
}

/* Leaves `most` of a list or fewer, the `keep` best among them, and raises its bar. Bisecting does it, but where many
 * are equal: then it is the `keep` best in their order. */
static void shrink(const job *j, thread_memory *own, const list *l, size_t most)
{
    float low = *l->bar;
    if (*l->n <= most) return;
    if (low == -INFINITY) { /* the worst of any `keep` is a bar */
        low = INFINITY;
        for (size_t i = 0; i < j->call->keep; i++) low = l->scores[i] < low ? l->scores[i] : low;
    }
    *l->bar = find_bar(j, l, low, most);
    *l->n = (uint32_t)j->kernels->sift(l->scores, l->ids, 0, *l->n, *l->bar, l->scores, l->ids);
    if (*l->n <= most) return;
    *l->n = (uint32_t)j->kernels->pick(l->scores, l->ids, *l->n, j->call->keep, own->best, own->best_ids);
    memcpy(l->scores, own->best, *l->n * sizeof *l->scores);
    memcpy(l->ids, own->best_ids, *l->n * sizeof *l->ids);
    *l->bar = l->scores[*l->n - 1];
}

/* Takes in what a query's scores with classes first .. first + width have that reaches its bar. */
static void take_scores(const job *j, thread_memory *own, size_t i, size_t first, size_t width)
{
    const list l = list_at(j, own, i);
    const float *scores = own->scores + i % WOI_I8_ROWS * BLOCK;
    *l.n += (uint32_t)j->kernels->sift(scores, NULL, (int32_t)first, width, *l.bar, l.scores + *l.n, l.ids + *l.n);
    if (*l.n + BLOCK > j->room) shrink(j, own, &l, j->few);
}

/* ---- Scanning ---------------------------------------------------------------------------------------------- */

/* What is added to the products of a block's classes. What is not there, and what is forbidden, gets NaN, which no list
 * takes. */
static const float *block_biases(const job *j, size_t first, size_t width, float *biases)
{
    const woi_screen_call *c = j->call;
    const size_t there = c->screen->m - first < width ? c->screen->m - first : width;
    const float *more = c->adjust.logit_bias ? c->adjust.logit_bias + first : NULL;
    const uint8_t *forbidden = c->adjust.forbidden ? c->adjust.forbidden + first : NULL;
    if (c->b && !more && !forbidden && there == width) return c->b + first;
    for (size_t i = 0; i < width; i++) biases[i] = i < there ? (c->b ? c->b[first + i] : 0) : NAN;
    for (size_t i = 0; more && i < there; i++) biases[i] += more[i];
    for (size_t i = 0; forbidden && i < there; i++)
        if (forbidden[i]) biases[i] = NAN;
    return biases;
}

/* While a panel of queries meets the block, its share of the next block's classes is asked for. One query reads on and
 * on, and leaves that to tile_i8. */
static void scan_block(const job *j, thread_memory *own, size_t first)
{
    const woi_screen *screen = j->call->screen;
    const size_t left = woi_screen_panels(screen->m) * WOI_I8_COLUMNS - first,
                 width = left < j->block ? left : j->block;
    const uint8_t *classes = screen->rows + first * j->fours * 4;
    uintptr_t next = (uintptr_t)(classes + width * j->fours * 4);
    const size_t share = j->n == 1 ? 0 : width * j->fours * 4 / LINE / ((j->n + WOI_I8_ROWS - 1) / WOI_I8_ROWS) + 1;
    woi_tile_i8 product = {.b = classes,
                           .b_scales = screen->scales + first,
                           .start = block_biases(j, first, width, own->biases),
                           .fours = j->fours,
                           .panels = width / WOI_I8_COLUMNS,
                           .c = own->scores,
                           .stride = BLOCK};
    for (size_t i = 0; i < j->n; i += WOI_I8_ROWS) {
        for (size_t line = 0; line < share; line++, next += LINE) __builtin_prefetch((const void *)next, 0, 2);
        product.a = j->queries + i * j->fours * 4;
        product.a_scales = j->shared->scales + i;
        product.a_sums = j->shared->sums + i;
        product.rows = j->n - i < WOI_I8_ROWS ? j->n - i : WOI_I8_ROWS;
        j->kernels->tile_i8(&product);
        for (size_t r = 0; r < product.rows; r++) take_scores(j, own, i + r, first, width);
    }
}

static void scan_group(void *ctx, int worker, size_t group)
{
    const job *j = ctx;
    const size_t begin = group * j->n_blocks / j->n_groups, end = (group + 1) * j->n_blocks / j->n_groups;
    for (size_t at = begin; at < end; at++) scan_block(j, &j->shared->threads[worker], at * j->block);
}

/* ---- Queries ----------------------------------------------------------------------------------------------- */

/* Queries first .. end-1 of the tile, whole panels, in their places; their lists are empty. */
static void prepare(void *ctx, int worker, size_t first, size_t end)
{
    const job *j = ctx;
    const size_t d = j->call->screen->d, row_bytes = 4 * j->fours;
    int8_t *bytes = j->bytes + (size_t)worker * aligned(row_bytes);
    memset(bytes, 0, row_bytes);
    for (size_t i = first; i < (end + WOI_I8_ROWS - 1) / WOI_I8_ROWS * WOI_I8_ROWS; i++) {
        float scale = 0;
        if (i < end)
            scale = woi_quantise(j->kernels, j->call->q + (j->first + i) * d, d, bytes);
        else
            memset(bytes, 0, row_bytes);
        int32_t sum = 0;
        int8_t *to = j->queries + i / WOI_I8_ROWS * WOI_I8_ROWS * row_bytes + i % WOI_I8_ROWS * 4;
        for (size_t x = 0; x < d; x++) sum += bytes[x];
        for (size_t four = 0; four < j->fours; four++) memcpy(to + four * 4 * WOI_I8_ROWS, bytes + 4 * four, 4);
        j->shared->scales[i] = scale;
        j->shared->sums[i] = sum;
        j->shared->finite[i] = !isnan(scale);
        for (int t = 0; t < j->threads; t++) {
            j->shared->threads[t].counts[i] = 0;
            j->shared->threads[t].bars[i] = -INFINITY;
        }
    }
}

/* All threads' lists of a query become one, then its candidates. */
static void end_query(const job *j, int worker, size_t i)
{
    thread_memory *own = &j->shared->threads[worker];
    const list all = list_at(j, &j->shared->threads[0], i);
    for (int t = 1; t < j->threads; t++) {
        const list more = list_at(j, &j->shared->threads[t], i);
        if (*all.n + *more.n > j->room) { /* the best of each have room together */
            shrink(j, own, &all, j->call->keep);
            shrink(j, own, &more, j->call->keep);
        }
        memcpy(all.scores + *all.n, more.scores, *more.n * sizeof *all.scores);
        memcpy(all.ids + *all.n, more.ids, *more.n * sizeof *all.ids);
        *all.n += *more.n;
    }
    shrink(j, own, &all, j->call->keep);
    j->call->found(j->call->ctx, worker, j->first + i, j->shared->finite[i] ? all.ids : NULL, *all.n);
}

static void end_queries(void *ctx, int worker, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) end_query(ctx, worker, i);
}

/* ---- A call ------------------------------------------------------------------------------------------------ */

static void cut_classes(job *j)
{
    const size_t columns = woi_screen_panels(j->call->screen->m) * WOI_I8_COLUMNS;
    size_t widest = BLOCK_BYTES / (4 * j->fours + 1) / STEP * STEP;
    if (widest > BLOCK) widest = BLOCK;
    if (widest < STEP) widest = STEP;
    j->block = widest;
    j->n_blocks = (columns + widest - 1) / widest;
    j->n_groups = j->n_blocks < GROUPS ? j->n_blocks : GROUPS;
}

static int useful_threads(const woi_screen_call *c)
{
    const double work = (double)c->n * (double)c->screen->m * (double)c->screen->d / WORK;
    if (c->n <= 1 || work < 1) return 1;
    return work < c->threads ? (int)work : c->threads;
}

void woi_screen_run(const woi_kernels *kernels, const woi_screen_call *call)
{
    const size_t d = call->screen->d;
    job j = {.kernels = kernels,
             .call = call,
             .fours = woi_screen_fours(d),
             .room = 2 * call->keep + SLACK,
             .few = call->keep + call->keep / 4,
             .threads = useful_threads(call),
             .shared = call->scratch};
    j.queries = (int8_t *)call->scratch + aligned(sizeof(memory) + (size_t)j.threads * sizeof(thread_memory));
    j.bytes = j.queries + queries_bytes(d);
    cut_classes(&j);
    size_t tile = LIST_ROOM / j.room / WOI_I8_ROWS * WOI_I8_ROWS;
    if (tile > TILE) tile = TILE;
    for (; j.first < call->n; j.first += tile) {
        j.n = call->n - j.first < tile ? call->n - j.first : tile;
        woi_team_ranges(j.threads, j.n, PREPARED, prepare, &j);
        woi_team_for(j.threads, j.n_groups, scan_group, &j);
        woi_team_ranges(j.threads, j.n, PREPARED, end_queries, &j);
    }
}
