/* A job's beginning and end, its waits and its phases: see job.h. */
#include "job_state.h"

#include "../cli/cli.h"

#include <jansson.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    ALARM = 1,     /* tag of the message */
    LIMIT_S = 600, /* that a rank may be behind the others, unless the environment says another */
    MOST_LIMIT_S = 1000000,
    GRACE_S = 5, /* for the last word of a job that failed: the others may be computing */
};

job_state job_now = {.window = MPI_WIN_NULL};
static wo_collective calls;
static char *kept_back; /* what a rank but the first has printed on stderr */
static size_t kept_bytes;
static FILE *real_stderr;

int job_rank(void)
{
    return calls.rank;
}

int job_size(void)
{
    return calls.size;
}

const wo_collective *job_calls(void)
{
    return &calls;
}

bool job_failed_elsewhere(void)
{
    /* One that failed by itself may have heard of others since, that waited as long: job_end knows which of them
     * speaks. */
    return (job_now.alarmed && !job_now.failed) || outside_ended();
}

/* ---- Phases ------------------------------------------------------------------------------------------------ */

void job_phase(const char *name)
{
    const double now = woi_now_s(), cpu_s = woi_cpu_s();
    if (job_now.n_phases) {
        job_now.phases[job_now.phase].seconds += now - job_now.phase_began;
        job_now.phases[job_now.phase].cpu_s += cpu_s - job_now.phase_cpu_s;
    }
    job_now.phase_began = now;
    job_now.phase_cpu_s = cpu_s;
    int p = 0;
    while (p < job_now.n_phases && strcmp(job_now.phases[p].name, name) != 0) p++;
    if (p == JOB_PHASES) p--; /* the last one has the rest */
    if (p == job_now.n_phases) job_now.phases[job_now.n_phases++] = (job_counts){.name = name};
    job_now.phase = p;
}

json_t *job_phases_json(void)
{
    json_t *list = json_array();
    job_phase(job_now.phases[job_now.phase].name); /* up to now */
    for (int p = 0; p < job_now.n_phases; p++) {
        const job_counts *c = &job_now.phases[p];
        json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:f, s:I}", "phase", c->name, "seconds", c->seconds,
                                              "cpu_s", c->cpu_s, "waited", c->waited, "bytes", (json_int_t)c->bytes));
    }
    return list;
}

/* ---- Waiting ----------------------------------------------------------------------------------------------- */

/* Takes one alarm, where there is one. */
static void look_for_alarm(void)
{
    int there = 0, sign;
    MPI_Status from;
    if (MPI_Iprobe(MPI_ANY_SOURCE, ALARM, job_now.control, &there, &from) != MPI_SUCCESS || !there) return;
    MPI_Recv(&sign, 1, MPI_INT, from.MPI_SOURCE, ALARM, job_now.control, MPI_STATUS_IGNORE);
    if (!job_now.alarmed || from.MPI_SOURCE < job_now.alarm_from) job_now.alarm_from = from.MPI_SOURCE;
    job_now.alarmed = true;
}

/* Whether an alarm is there, or comes within so many milliseconds. A rank that was asleep takes it some looks late. */
static bool hears_alarm(int ms)
{
    for (int i = 0; !job_now.alarmed && !job_now.over && i < ms; i++) {
        look_for_alarm();
        if (!job_now.alarmed) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return job_now.alarmed;
}

enum { A_LOOK_MS = 20 };

bool job_failed_elsewhere_by(const wo_error *err)
{
    enum { AGREED_MS = 1000 };
    if (job_now.failed || outside_ended()) return outside_ended();
    if (cli_is_interrupted()) return job_now.alarmed; /* as all are */
    return hears_alarm(err->status == WO_ERR_CANCELLED ? AGREED_MS : A_LOOK_MS);
}

/* SIGTERM has come: from mpirun, because a rank failed or died. An alarm that says which may be on its way. */
static wo_status give_up(wo_error *err)
{
    enum { ENDED_MS = 200 };
    if (!hears_alarm(ENDED_MS)) outside_speak();
    job_now.alarmed = job_now.over = true;
    return cli_set_error(err, WO_ERR_CANCELLED, "the job is ended");
}

/* Others may need the core: looks a while, then sleeps longer and longer, up to a millisecond. */
static void rest(unsigned *looks)
{
    enum { YIELDS = 200, LONGEST_NS = 1000000 };
    if (++*looks < YIELDS) {
        sched_yield();
        return;
    }
    const long ns = 20000L * (long)(*looks - YIELDS + 1);
    nanosleep(&(struct timespec){.tv_nsec = ns < LONGEST_NS ? ns : LONGEST_NS}, NULL);
}

wo_status job_wait(MPI_Request *request, double limit_s, bool last_word, wo_error *err)
{
    const double began = woi_now_s();
    wo_status status = WO_OK;
    unsigned looks = 0;
    if (job_now.over) return cli_set_error(err, WO_ERR_CANCELLED, "the job has failed");
    for (int done = 0;;) {
        if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
            status = cli_set_error(err, WO_ERR_IO, "a call of MPI failed: a rank or the network between is gone");
            break;
        }
        if (done) break;
        if (outside_ended()) return give_up(err);
        look_for_alarm();
        if (job_now.alarmed && !last_word) {
            status = cli_set_error(err, WO_ERR_CANCELLED, "rank %d failed", job_now.alarm_from);
            break;
        }
        if (woi_now_s() - began > limit_s && (last_word || !hears_alarm(A_LOOK_MS))) {
            status = cli_set_error(err, WO_ERR_IO, "rank %d waited %.0f s for the other ranks, which is the limit",
                                   calls.rank, limit_s);
            break;
        }
        rest(&looks);
    }
    if (job_now.n_phases) job_now.phases[job_now.phase].waited += woi_now_s() - began;
    if (status && !last_word) job_last_word(job_now.alarmed ? -CLI_FAILED : CLI_FAILED);
    return status;
}

/* ---- The same everywhere ----------------------------------------------------------------------------------- */

/* FNV-1a: it need not withstand anybody. */
static uint64_t digest(const void *data, size_t bytes)
{
    uint64_t h = 0xcbf29ce484222325;
    for (size_t i = 0; i < bytes; i++) h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001b3;
    return h;
}

wo_status job_same(const char *what, const void *data, size_t bytes, wo_error *err)
{
    const uint64_t own = digest(data, bytes);
    const size_t n = (size_t)calls.size;
    uint64_t *all = calloc(n, sizeof *all);
    size_t *each = calloc(n, sizeof *each);
    wo_status status = WO_OK;
    if (!all || !each) {
        status = cli_set_error(err, WO_ERR_MEMORY, "out of memory");
        goto done;
    }
    for (size_t r = 0; r < n; r++) each[r] = sizeof own;
    if ((status = calls.gather(calls.ctx, &own, each, all, err))) goto done;
    for (size_t r = 1; !status && r < n; r++)
        if (all[r] != all[0])
            status = cli_set_error(err, WO_ERR_ARGUMENT, "%s differs between ranks 0 and %zu", what, r);
done:
    free(all);
    free(each);
    return status;
}

/* ---- Beginning and end ------------------------------------------------------------------------------------- */

/* Ranks but the first print nothing, unless they fail alone. */
static int keep_back(void)
{
    if (calls.rank == 0) return CLI_OK;
    FILE *nowhere = fopen("/dev/null", "w"), *memory = open_memstream(&kept_back, &kept_bytes);
    if (!nowhere || !memory) return CLI_FAILED;
    real_stderr = stderr;
    stdout = nowhere;
    stderr = memory;
    return CLI_OK;
}

/* All words of a command line, with their ends. */
static wo_status same_words(int argc, char **argv, wo_error *err)
{
    size_t bytes = 0, used = 0;
    for (int i = 1; i < argc; i++) bytes += strlen(argv[i]) + 1;
    char *all = malloc(bytes + 1);
    if (!all) return cli_set_error(err, WO_ERR_MEMORY, "out of memory");
    for (int i = 1; i < argc; used += strlen(argv[i++]) + 1) memcpy(all + used, argv[i], strlen(argv[i]) + 1);
    const wo_status status = job_same("the command line", all, bytes, err);
    free(all);
    return status;
}

/* How long a rank may be behind; the usual where that is no time, which is said when MPI is there: by one rank. */
static bool read_limit(const char *text)
{
    char *end = NULL;
    const double seconds = text && *text ? strtod(text, &end) : LIMIT_S;
    const bool fine = (!end || (end != text && !*end)) && seconds > 0 && seconds <= MOST_LIMIT_S;
    job_now.limit_s = fine ? seconds : LIMIT_S;
    return fine;
}

int job_begin(int *argc, char ***argv)
{
    int given;
    wo_error err;
    const char *limit = getenv("WIDEOUT_MPI_TIMEOUT");
    const bool limited = read_limit(limit);
    outside_limit_begin("MPI does not start", job_now.limit_s);
    if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &given) != MPI_SUCCESS ||
        MPI_Comm_dup(MPI_COMM_WORLD, &job_now.data) != MPI_SUCCESS ||
        MPI_Comm_dup(MPI_COMM_WORLD, &job_now.control) != MPI_SUCCESS) {
        fprintf(stderr, "%s: MPI does not start\n", cli_program);
        return CLI_FAILED;
    }
    MPI_Comm_set_errhandler(job_now.data, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(job_now.control, MPI_ERRORS_RETURN);
    job_fill_calls(&calls);
    outside_begin();
    outside_limit_end();
    job_phase("begin");
    if (keep_back()) return CLI_FAILED;
    wo_status status = same_words(*argc, *argv, &err);
    if (!status && !limited)
        status = cli_set_error(&err, WO_ERR_ARGUMENT, "$WIDEOUT_MPI_TIMEOUT is '%.60s', expected seconds", limit);
    if (status == WO_OK) return CLI_OK;
    return job_now.alarmed ? CLI_FAILED : cli_fail(NULL, &err);
}

static void raise_alarm(void)
{
    static int sign = 1;
    outside_alarm();
    for (int r = 0; r < calls.size; r++) {
        MPI_Request request; /* nobody need take it: a rank may be at its end already */
        if (r == calls.rank || MPI_Isend(&sign, 1, MPI_INT, r, ALARM, job_now.control, &request) != MPI_SUCCESS)
            continue;
        MPI_Request_free(&request);
    }
}

static void show_kept(void)
{
    if (!real_stderr) return;
    fflush(stderr);
    fwrite(kept_back, 1, kept_bytes, real_stderr);
    fflush(real_stderr);
}

void job_last_word(int own)
{
    static int said; /* which may be read later */
    if (job_now.over) return;
    int *all = calloc((unsigned)calls.size, sizeof *all);
    wo_error err;
    MPI_Request request = MPI_REQUEST_NULL;
    cli_set_error(&err, WO_ERR_IO, "the ranks cannot be asked how it went");
    said = own;
    job_now.failed = own > 0;
    if (own > 0) raise_alarm();
    if (all && MPI_Iallgather(&said, 1, MPI_INT, all, 1, MPI_INT, job_now.control, &request) == MPI_SUCCESS)
        job_now.all_heard = job_wait(&request, own ? GRACE_S : job_now.limit_s, true, &err) == WO_OK;
    job_now.over = true;
    job_now.first = -1;
    for (int r = 0; all && job_now.all_heard && r < calls.size; r++) {
        if (all[r] > 0 && job_now.first < 0) job_now.first = r;
        if (all[r] > 0) job_now.worst = job_now.worst && job_now.worst < all[r] ? job_now.worst : all[r];
        job_now.half_done |= all[r] < 0;
    }
    if (job_now.all_heard) free(all); /* else an answer may still come */
    if (own || job_now.all_heard) return;
    job_now.failed = true; /* of having waited */
    cli_fail(NULL, &err);
}

int job_end(int code)
{
    if (calls.size == 0) return code;
    fflush(stdout);
    const bool left = job_now.over; /* the last word was spoken in the middle of a call */
    if (!left) job_last_word(code && job_now.alarmed ? -code : code);
    /* Where not all were heard some are still computing, or gone: who failed first says so and ends them. */
    const bool behind = job_now.alarmed && job_now.alarm_from < calls.rank; /* of another that failed too */
    const bool speaks = job_now.all_heard ? job_now.first == calls.rank : job_now.failed && !behind;
    if (speaks) show_kept();
    if (job_now.all_heard && !job_now.half_done && !left) {
        outside_limit_begin("MPI does not end", job_now.limit_s);
        outside_end();
        MPI_Finalize();
        outside_limit_end();
        return job_now.worst;
    }
    /* A call that was left half done would keep MPI_Finalize for ever. */
    if (!speaks) sleep(GRACE_S);
    MPI_Abort(job_now.control, job_now.worst ? job_now.worst : CLI_FAILED);
    return CLI_FAILED;
}
