/* The progress bar, and Ctrl-C. */
#include "cli.h"

#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { PATIENCE_S = 3 };
static volatile sig_atomic_t interrupted, noticed; /* the signal; whether the work has been told */
static volatile sig_atomic_t patience = PATIENCE_S;
static bool drawn;
static double started, last_drawn;
static const char *current; /* stage */

static void die_of(int signal_number)
{
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* The work asks whether it is to stop. Where it does not ask soon, nobody looks: it computes, saves, or waits for
 * input. Then the signal does what it does by itself. Output on its way has no name yet, so nothing is left behind. */
static void on_interrupt(int signal_number)
{
    interrupted = signal_number;
    if (patience) alarm((unsigned)patience);
}

static void on_alarm(int signal_number)
{
    (void)signal_number;
    if (interrupted && !noticed) die_of(interrupted);
}

/* What the work is told when it asks. */
static int stop_now(void)
{
    if (interrupted && !noticed) {
        noticed = 1;
        alarm(0);
    }
    return interrupted != 0;
}

void cli_progress_patience(bool endless)
{
    patience = endless ? 0 : PATIENCE_S;
    if (interrupted && !noticed) alarm((unsigned)patience);
}

void cli_progress_last(void)
{
    if (!interrupted || noticed) return;
    fflush(stdout);
    die_of(interrupted);
}

static void draw(const char *stage, uint64_t done, uint64_t total)
{
    double now = woi_now_s();
    if (!current || strcmp(current, stage) != 0) {
        current = stage;
        started = now;
    }
    if (drawn && now - last_drawn < 0.1 && done < total) return;
    last_drawn = now;
    drawn = true;
    if (total == 0) {
        fprintf(stderr, "\r%-10s %s\033[K", stage, cli_number(done));
        return;
    }
    enum { WIDTH = 30 };
    double part = done < total ? (double)done / (double)total : 1;
    int full = (int)(part * WIDTH);
    char bar[WIDTH + 1];
    memset(bar, ' ', WIDTH);
    memset(bar, '=', (size_t)full);
    bar[WIDTH] = '\0';
    fprintf(stderr, "\r%-10s [%s] %3.0f%%", stage, bar, 100 * part);
    if (part > 0 && now - started > 1) fprintf(stderr, ", %.0f s left", (now - started) * (1 - part) / part);
    fputs("\033[K", stderr);
}

/* A line that wraps could not be wiped, so it ends where the terminal does. */
void cli_progress_line(const char *text)
{
    struct winsize size;
    const int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 79;
    drawn = true;
    fprintf(stderr, "\r%.*s\033[K", columns, text);
}

static int report_bar(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    (void)ctx;
    draw(stage, done, total);
    return stop_now();
}

static int report_silent(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    (void)ctx, (void)stage, (void)done, (void)total;
    return stop_now();
}

wo_progress cli_progress(const cli_common *common)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    struct sigaction deadline = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &deadline, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    bool bar = !common->quiet && !common->json && isatty(STDERR_FILENO);
    return (wo_progress){bar ? report_bar : report_silent, NULL};
}

void cli_progress_end(void)
{
    if (drawn) fputs("\r\033[K", stderr);
    drawn = false;
}
