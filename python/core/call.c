/* Long calls: the GIL is given away, progress is reported, signals are noticed. */
#include "core.h"

static const double LOOK_S = 0.05; /* signals are looked at, and bars drawn, so often at most */

double wopy_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

wopy_call wopy_call_begin(PyObject *fn)
{
    return (wopy_call){.fn = fn && fn != Py_None ? fn : NULL, .state = PyEval_SaveThread()};
}

/* What the callable raises, and what a signal's handler raises (KeyboardInterrupt), stops the work. */
static int look(wopy_call *call, const char *stage, uint64_t done, uint64_t total)
{
    int stops = 0;
    PyEval_RestoreThread(call->state);
    if (PyErr_CheckSignals()) call->failed = true;
    if (!call->failed && call->fn && stage) {
        PyObject *answer =
            PyObject_CallFunction(call->fn, "sKK", stage, (unsigned long long)done, (unsigned long long)total);
        stops = answer ? PyObject_IsTrue(answer) : -1;
        Py_XDECREF(answer);
        if (stops < 0) call->failed = true;
    }
    call->state = PyEval_SaveThread();
    return stops || call->failed;
}

static int report(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    wopy_call *call = ctx;
    if (call->failed) return 1;
    const double now = wopy_clock(CLOCK_MONOTONIC);
    if (now - call->last < LOOK_S && (done < total || total == 0)) return 0;
    call->last = now;
    return look(call, stage, done, total);
}

wo_progress wopy_call_progress(wopy_call *call)
{
    return (wo_progress){report, call};
}

int wopy_call_enough(void *ctx)
{
    wopy_call *call = ctx;
    if (call->failed) return 1;
    const double now = wopy_clock(CLOCK_MONOTONIC);
    if (now - call->last < LOOK_S) return 0;
    return look(call, NULL, 0, 0);
}

int wopy_call_end(wopy_call *call)
{
    PyEval_RestoreThread(call->state);
    return call->failed ? -1 : 0;
}
