/* What ends a rank from outside: see job_state.h.
 *
 * A rank that is killed says nothing, and mpirun ends the others with SIGTERM. One of them says then that this was no
 * end of theirs. Which one, and that no rank has a sentence of its own, the ranks of a machine find out in a few bytes
 * that they share: a signal handler may call nothing of MPI. Ranks of other machines than rank 0's stay silent. */
#include "job_state.h"

#include "../cli/cli.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct told {
    atomic_int alarmed, spoken;
} told;

static told alone;                    /* where nothing can be shared: a rank knows of itself */
static told *_Atomic shared = &alone; /* between the ranks of this machine */
static bool with_first;               /* rank 0 is one of them; */
static bool all_here;                 /* and so are all others */
static volatile sig_atomic_t ended;
static char died[96], late[160]; /* sentences */

static void say(const char *sentence)
{
    if (write(STDERR_FILENO, sentence, strlen(sentence)) < 0) return;
}

/* May be called in a signal handler. */
static void speak(void)
{
    told *now = atomic_load(&shared);
    if (with_first && !atomic_load(&now->alarmed) && !atomic_exchange(&now->spoken, 1)) say(died);
}

/* A mapped file that was shortened: every rank that reads it would say so. */
static bool says_vanished(void)
{
    told *now = atomic_load(&shared);
    atomic_store(&now->alarmed, 1);
    return !atomic_exchange(&now->spoken, 1);
}

/* Where other machines take part, one of them may have raised an alarm that is still on its way: then whoever waits
 * looks for it first. */
static void on_end(int signal_number)
{
    if (signal_number != SIGTERM) return;
    ended = 1;
    if (all_here) speak();
}

/* Where the command has no handler of its own (cli_progress). */
static void on_term(int signal_number)
{
    enum { PATIENCE_S = 1 };
    on_end(signal_number);
    signal(SIGALRM, SIG_DFL);
    if (all_here) {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
    alarm(PATIENCE_S);
}

/* What the ranks of this machine share, from the lowest of them. */
static void share(void)
{
    MPI_Comm here;
    MPI_Win window;
    MPI_Aint bytes;
    int rank, size, lowest = job_rank(), unit;
    void *at = NULL;
    if (MPI_Comm_split_type(job_now.control, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here) != MPI_SUCCESS) return;
    MPI_Comm_rank(here, &rank);
    MPI_Comm_size(here, &size);
    const MPI_Aint own = rank == 0 ? (MPI_Aint)sizeof(told) : 0;
    if (MPI_Bcast(&lowest, 1, MPI_INT, 0, here) != MPI_SUCCESS ||
        MPI_Win_allocate_shared(own, 1, MPI_INFO_NULL, here, &at, &window) != MPI_SUCCESS ||
        MPI_Win_shared_query(window, 0, &bytes, &unit, &at) != MPI_SUCCESS || bytes < (MPI_Aint)sizeof(told))
        return;
    told *now = at;
    if (rank == 0) {
        atomic_init(&now->alarmed, 0);
        atomic_init(&now->spoken, 0);
    }
    if (MPI_Barrier(here) != MPI_SUCCESS) return;
    atomic_store(&shared, now);
    job_now.window = window;
    with_first = lowest == 0;
    all_here = size == job_size();
}

void outside_begin(void)
{
    struct sigaction action = {.sa_handler = on_term, .sa_flags = SA_RESTART};
    snprintf(died, sizeof died, "%s: the job was ended from outside: perhaps a rank died\n", cli_program);
    with_first = job_rank() == 0;
    all_here = job_size() == 1;
    if (job_size() > 1) share();
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    cli_when_interrupted(on_end);
    cli_when_vanished(says_vanished);
}

void outside_end(void)
{
    signal(SIGTERM, SIG_DFL);
    cli_when_interrupted(NULL);
    if (job_now.window != MPI_WIN_NULL) MPI_Barrier(job_now.control); /* who is late is told while all share */
    atomic_store(&shared, &alone);
    if (job_now.window != MPI_WIN_NULL) MPI_Win_free(&job_now.window);
}

void outside_alarm(void)
{
    atomic_store(&atomic_load(&shared)->alarmed, 1);
}

bool outside_ended(void)
{
    return ended;
}

void outside_speak(void)
{
    speak();
}

/* ---- Calls of MPI that take no limit ----------------------------------------------------------------------- */

static void on_late(int signal_number)
{
    (void)signal_number;
    atomic_store(&atomic_load(&shared)->alarmed, 1);
    say(late);
    _exit(CLI_FAILED);
}

/* The rank, before MPI says it. */
static int early_rank(void)
{
    const char *text = getenv("OMPI_COMM_WORLD_RANK");
    if (!text) text = getenv("PMIX_RANK");
    return text ? atoi(text) : 0;
}

void outside_limit_begin(const char *what, double limit_s)
{
    enum { LATER_S = 5, MOST_LATER_S = 60 };
    struct sigaction action = {.sa_handler = on_late};
    const int rank = early_rank();
    /* The first one that is there says it alone: mpirun ends the others then. */
    const double later = rank < MOST_LATER_S / LATER_S ? LATER_S * rank : MOST_LATER_S;
    snprintf(late, sizeof late, "%s: %s: the other ranks were waited for %.0f s, which is the limit\n", cli_program,
             what, limit_s);
    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    alarm((unsigned)ceil(limit_s + later));
}

void outside_limit_end(void)
{
    alarm(0);
    signal(SIGALRM, SIG_DFL);
}
