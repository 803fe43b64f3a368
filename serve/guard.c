/* A mapped file that is cut short: its last pages are gone, and whoever reads one gets SIGBUS. A server must not end of
 * that, nor answer from it. The handler puts a page of zeros in the place that was read, and notes it for the thread
 * that did: whoever searched asks woi_snapshot_whole afterwards, and says that the index is damaged instead of
 * answering.
 *
 * mmap is a system call and nothing else, which a handler may make. */
#include "server.h"

#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

const char woi_damaged[] = "a file that is served was shortened or overwritten while it was in use";

static _Thread_local volatile sig_atomic_t met;

static void on_bus(int signal_number, siginfo_t *info, void *context)
{
    (void)context;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *at = (void *)((uintptr_t)info->si_addr & ~(page - 1));
    if (info->si_code == BUS_ADRERR &&
        mmap(at, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at) {
        met = 1;
        return;
    }
    signal(signal_number, SIG_DFL); /* broken memory, or a wrong address of our own: that is an end */
}

void woi_guard_set(void)
{
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

bool woi_guard_met(void)
{
    const bool was = met;
    met = 0;
    return was;
}
