/* Progress, and Ctrl-C.
 *
 * On a terminal a bar, which is drawn over itself; elsewhere (a file, CI, a notebook) a line now and then. */
#include "cli.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted, noticed; /* the signal, or 0; whether the work has been told */
static volatile sig_atomic_t keeps;                /* SIGINT is no reason to stop: what was found is kept */
static void (*volatile also)(int);                 /* called by the handler, or NULL */
static bool drawn;
static double started, last_drawn;
static double last_line;    /* off a terminal; 0: none yet */
static const char *current; /* stage */

static void die_of(int signal_number)
{
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* The work asks whether it is to stop. Where it does not ask soon, nobody looks: it computes, saves, or waits for
 * input. Then the signal does what it does by itself. Output on its way has no name yet, so nothing is left behind. A
 * tuner asks between its steps, however long they take. */
static void on_interrupt(int signal_number)
{
    enum { PATIENCE_S = 3 };
    interrupted = signal_number;
    if (also) also(signal_number);
    if (!keeps) alarm(PATIENCE_S);
}

static void on_alarm(int signal_number)
{
    (void)signal_number;
    if (interrupted && !noticed) die_of(interrupted);
}

/* The columns that a line may have: one that wraps could not be wiped. */
static int columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 79;
}

/* Seconds between lines, off a terminal. */
static double line_seconds(void)
{
    enum { DEFAULT = 15 };
    const char *given = getenv("WIDEOUT_PROGRESS");
    return given ? strtod(given, NULL) : DEFAULT;
}

/* Whether it is time for a line. */
static bool is_line_due(double now)
{
    const double seconds = line_seconds();
    if (last_line == 0) last_line = now;
    if (!(seconds > 0) || now - last_line < seconds) return false;
    last_line = now;
    return true;
}

/* "tuning [=====     ]  45%, 12 s left": the bar has what the words leave, down to nothing. */
static void draw(const char *stage, uint64_t done, uint64_t total, double now)
{
    enum { WIDEST = 30, LEAST = 5 };
    char bar[WIDEST + 1], left[32] = "", line[160];
    const double part = done < total ? (double)done / (double)total : 1;
    if (part > 0 && part < 1 && now - started > 1)
        snprintf(left, sizeof left, ", %.0f s left", (now - started) * (1 - part) / part);
    if (total == 0) {
        snprintf(line, sizeof line, "%-10s %s", stage, cli_number(done));
    } else {
        int width = columns() - snprintf(NULL, 0, "%-10s [] 100%%%s", stage, left);
        width = width > WIDEST ? WIDEST : width;
        if (width >= LEAST) {
            memset(bar, ' ', sizeof bar);
            memset(bar, '=', (size_t)(part * width));
            bar[width] = '\0';
            snprintf(line, sizeof line, "%-10s [%s] %3.0f%%%s", stage, bar, 100 * part, left);
        } else {
            snprintf(line, sizeof line, "%s %.0f%%%s", stage, 100 * part, left);
        }
    }
    cli_progress_line(line);
}

static void draw_line(const char *stage, uint64_t done, uint64_t total, double now)
{
    if (!is_line_due(now)) return;
    const double part = total && done < total ? (double)done / (double)total : 1;
    fprintf(stderr, "%s: %s", cli_program, stage);
    if (total == 0) fprintf(stderr, ", %s", cli_number(done));
    if (total) fprintf(stderr, ", %.0f%%", 100 * part);
    if (total && part > 0 && part < 1) fprintf(stderr, ", %.0f s left", (now - started) * (1 - part) / part);
    fputc('\n', stderr);
}

/* Bytes of a line that a terminal has columns for: one that is too long ends before a comma, as a part of a number
 * would be another. */
static int fitting(const char *text)
{
    const int most = columns(), bytes = (int)strlen(text);
    if (bytes <= most) return bytes;
    for (int end = most; end > 0; end--)
        if (strncmp(text + end, ", ", 2) == 0) return end;
    return most;
}

void cli_progress_line(const char *text)
{
    if (!isatty(STDERR_FILENO)) {
        if (is_line_due(woi_now_s())) fprintf(stderr, "%s: %s\n", cli_program, text);
        return;
    }
    drawn = true;
    fprintf(stderr, "\r%.*s\033[K", fitting(text), text);
}

/* ---- Reports ----------------------------------------------------------------------------------------------- */

/* What the work is told when it asks. */
static int is_stopped(void)
{
    if (interrupted && !noticed) {
        noticed = 1;
        alarm(0);
    }
    return interrupted && !(keeps && interrupted == SIGINT);
}

static int report(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    (void)ctx;
    const bool terminal = isatty(STDERR_FILENO);
    const double now = woi_now_s();
    const bool begins = !current || strcmp(current, stage) != 0;
    if (begins) {
        current = stage;
        started = now;
    }
    if (!terminal) {
        draw_line(stage, done, total, now);
    } else if (!drawn || begins || now - last_drawn >= 0.1 || done >= total) {
        last_drawn = now;
        draw(stage, done, total, now);
    }
    return is_stopped();
}

static int report_silent(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    (void)ctx, (void)stage, (void)done, (void)total;
    return is_stopped();
}

wo_progress cli_progress(const cli_common *common)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    struct sigaction deadline = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &deadline, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return (wo_progress){common->quiet || common->json ? report_silent : report, NULL};
}

void cli_progress_end(void)
{
    if (drawn) fputs("\r\033[K", stderr);
    drawn = false;
}

/* ---- Ctrl-C ------------------------------------------------------------------------------------------------ */

void cli_keep_on_interrupt(bool keep)
{
    keeps = keep;
}

void cli_when_interrupted(void (*call)(int signal_number))
{
    also = call;
}

bool cli_is_interrupted(void)
{
    return interrupted != 0;
}

int cli_seen_enough(void *ctx)
{
    static bool said;
    (void)ctx;
    if (interrupted != SIGINT) return 0;
    if (!said) {
        cli_progress_end();
        fprintf(stderr, "%s: interrupted: the best so far is built and saved; Ctrl-C again ends without it\n",
                cli_program);
    }
    said = true;
    return 1;
}

int cli_die_of_signal(int code)
{
    if (!interrupted) return code;
    fflush(stdout);
    die_of(interrupted);
    return code; /* where the signal is blocked */
}
