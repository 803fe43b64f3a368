/* The collective calls of wideout-mpi, run by tests/cli/mpi.sh under mpirun: rank 0 prints what is wrong, and 'fine'.
 * collective fail: rank 1 fails while the others wait. collective late: it never comes, and each rank
 * leaves a file begun.RANK. collective time: rank 0 prints
 * the median microseconds of gathering 8 bytes of each rank, the bytes a second that it receives of large
 * ones, and the CPU nanoseconds of merging an answer of another rank (bench/mpi_model.py). */
#include "../../cli/cli.h"
#include "../../mpi/job_state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char cli_program[] = "collective";
const cli_command *const cli_commands[] = {NULL};

static int wrong;

static void expect(bool holds, const char *what)
{
    if (holds) return;
    printf("wrong on rank %d of %d: %s\n", job_rank(), job_size(), what);
    wrong = 1;
}

/* Numbers that make another sum in another order. */
static float number(int rank, size_t i)
{
    return (float)(rank % 2 ? 1e8 : 1.0) * (float)((int)((i * 7919 + (size_t)rank * 104729) % 1000) - 500) / 7.0F;
}

static void check_sums(const wo_collective *c, size_t n)
{
    float *f = malloc(n * sizeof *f + 1);
    double *g = malloc(n * sizeof *g + 1);
    wo_error err;
    if (!f || !g) abort();
    for (size_t i = 0; i < n; i++) g[i] = f[i] = number(c->rank, i);
    expect(!c->sum_f32(c->ctx, f, n, &err) && !c->sum_f64(c->ctx, g, n, &err), "a sum fails");
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        double wide = 0;
        for (int r = 0; r < c->size; r++) sum = r ? sum + number(r, i) : number(r, i), wide += number(r, i);
        if (f[i] != sum || g[i] != wide) {
            expect(false, "a sum is not that of rank after rank");
            break;
        }
    }
    free(f);
    free(g);
}

static void check_gather(const wo_collective *c)
{
    size_t *bytes = calloc((size_t)c->size, sizeof *bytes), total = 0, at = 0;
    wo_error err;
    if (!bytes) abort();
    for (int r = 0; r < c->size; r++) total += bytes[r] = (size_t)(r == 1 ? 0 : 1000 * r + 3);
    unsigned char *own = malloc(bytes[c->rank] + 1), *all = malloc(total + 1);
    if (!own || !all) abort();
    memset(own, 'a' + c->rank, bytes[c->rank]);
    expect(!c->gather(c->ctx, own, bytes, all, &err), "gathering fails");
    for (int r = 0; r < c->size; r++)
        for (size_t i = 0; i < bytes[r]; i++, at++)
            if (all[at] != 'a' + r) expect(false, "what was gathered is not in the order of ranks"), i = bytes[r];
    free(bytes);
    free(own);
    free(all);
}

static void check_broadcast(const wo_collective *c)
{
    enum { N = 100003 };
    static char data[N];
    wo_error err;
    const int root = c->size - 1;
    memset(data, c->rank == root ? 'x' : ' ', N);
    expect(!c->broadcast(c->ctx, data, N, root, &err), "a broadcast fails");
    expect(data[0] == 'x' && data[N - 1] == 'x', "a broadcast does not arrive");
    memset(data, c->rank == 0 ? 'y' : ' ', N);
}

/* A broadcast and a gather at once. */
static void check_lanes(const wo_collective *c)
{
    enum { N = 100003 };
    static char data[N], all[N];
    wo_error err;
    memset(data, c->rank == 0 ? 'y' : ' ', N);
    for (size_t i = N * (size_t)c->rank / (size_t)c->size; i < N * ((size_t)c->rank + 1) / (size_t)c->size; i++)
        all[i] = (char)('0' + i % 7);
    expect(!job_broadcast_begin(JOB_QUERIES, data, N, &err), "a broadcast does not begin");
    expect(!job_gather_begin(JOB_ANSWERS, all, N, 1, &err), "a gather does not begin");
    job_push();
    expect(!job_lane_end(JOB_ROUTES, &err), "a lane with nothing in it does not end");
    expect(!job_lane_end(JOB_ANSWERS, &err), "a gather does not end");
    for (size_t i = 0; i < N; i++)
        if (all[i] != (char)('0' + i % 7)) expect(false, "what was gathered is not in its place"), i = N;
    expect(!job_lane_end(JOB_QUERIES, &err) && data[0] == 'y' && data[N - 1] == 'y', "a broadcast does not end");
    expect(job_broadcast_begin(JOB_QUERIES, data, (size_t)1 << 32, &err) == WO_ERR_ARGUMENT, "an int overflows");
    job_lanes_leave();
}

static int check_failing(const char *how)
{
    const wo_collective *c = job_calls();
    char data[8] = "";
    wo_error err = {0};
    if (c->rank == 1 && strcmp(how, "fail") == 0) {
        cli_set_error(&err, WO_ERR_IO, "the disk is full");
        return cli_fail("some/file", &err);
    }
    if (c->rank == 1 && strcmp(how, "stay") == 0) { /* all is well, but it does not end */
        job_last_word(CLI_OK);
        sleep(30);
        _exit(CLI_OK);
    }
    if (strcmp(how, "stay") == 0) return CLI_OK;
    char begun[32];
    snprintf(begun, sizeof begun, "begun.%d", c->rank);
    FILE *file = strcmp(how, "late") == 0 ? fopen(begun, "w") : NULL;
    if (file) fclose(file);
    if (c->rank == 1) sleep(30);
    if (!c->broadcast(c->ctx, data, sizeof data, 1, &err)) return CLI_OK;
    return job_failed_elsewhere() ? CLI_FAILED : cli_fail(NULL, &err);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of gathering `bytes` of each rank, of some in a row: the one that comes last waits for nobody. The median;
 * negative where a call fails. */
static double time_gather(const wo_collective *c, size_t bytes)
{
    enum { TIMES = 21, IN_A_ROW = 10 };
    double took[TIMES];
    const size_t size = (size_t)c->size;
    char *all = calloc(size, bytes);
    size_t *each = calloc(size, sizeof *each);
    wo_error err;
    wo_status status = all && each ? WO_OK : WO_ERR_MEMORY;
    for (size_t r = 0; !status && r < size; r++) each[r] = bytes;
    for (int i = 0; !status && i < TIMES; i++) {
        const double start = woi_now_s();
        for (int j = 0; !status && j < IN_A_ROW; j++)
            status = c->gather(c->ctx, all + (size_t)c->rank * bytes, each, all, &err);
        took[i] = (woi_now_s() - start) / IN_A_ROW;
    }
    free(all);
    free(each);
    if (status) return -1;
    qsort(took, TIMES, sizeof *took, by_value);
    return took[TIMES / 2];
}

/* The least CPU seconds that an answer of another rank costs: the least, as waiting takes some too. */
static double time_merge(const wo_collective *c)
{
    enum { TIMES = 21, N = 4096, MERGED = 5 };
    static int32_t ids[N * MERGED];
    static float scores[N * MERGED];
    double least = -1;
    for (int i = 0; i < TIMES; i++) {
        for (int j = 0; j < N * MERGED; j++) {
            ids[j] = j * c->size + c->rank;
            scores[j] = (float)-j;
        }
        const wo_answers own = {.struct_size = sizeof own, .n = N, .k = MERGED, .ids = ids, .scores = scores};
        wo_error err;
        const double start = woi_cpu_s();
        if (wo_merge_best(c, &own, &err)) return -1;
        const double took = woi_cpu_s() - start;
        if (least < 0 || took < least) least = took;
    }
    return least / (N * MERGED * (c->size - 1));
}

static int print_times(const wo_collective *c)
{
    enum { LARGE = 1 << 22 };
    const double wait = time_gather(c, 8), large = time_gather(c, LARGE), merge = time_merge(c);
    if (wait < 0 || large <= wait || merge < 0) return CLI_FAILED;
    printf("%.1f %.0f %.1f\n", 1e6 * wait, (double)LARGE * (c->size - 1) / (large - wait), 1e9 * merge);
    return CLI_OK;
}

int main(int argc, char **argv)
{
    int code = job_begin(&argc, &argv);
    const wo_collective *c = job_calls();
    if (!code && argc > 1 && strcmp(argv[1], "time") == 0) return job_end(print_times(c));
    if (!code && argc > 1) return job_end(check_failing(argv[1]));
    if (code) return job_end(code);
    job_phase("sums");
    for (size_t n = 0; n < 40; n++) check_sums(c, n);
    check_sums(c, (size_t)10000019); /* more than a piece */
    job_phase("gather");
    check_gather(c);
    check_broadcast(c);
    check_lanes(c);
    wo_error err;
    expect(!job_same("nothing", "abc", 3, &err), "what is the same is not");
    if (c->size > 1) expect(job_same("the rank", &c->rank, sizeof c->rank, &err), "what differs is the same");
    if (!wrong && c->rank == 0) puts("fine");
    return job_end(wrong);
}
