/* The rates of a run that is to find out itself when it is done.
 *
 * A one-cycle rate must know its end in advance. Here the rate rises over the first epoch and stays at its peak while
 * validation P@1 rises. When it no longer does, training goes back to the state after the best epoch and the rate falls
 * from there; the best epoch of all is kept. What comes next follows from the precisions so far and nothing else, so
 * that a resumed run decides as an undisturbed one. */
#ifndef WOI_NET_PACE_H
#define WOI_NET_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum { WOI_PACE_EPOCHS = 60 }; /* no run is longer */

/* Validation P@1 and mean loss of the epochs that are done. */
typedef struct woi_history {
    uint64_t n;
    double p_at_1[WOI_PACE_EPOCHS], loss[WOI_PACE_EPOCHS];
} woi_history;

typedef struct woi_pace {
    uint64_t kept;   /* the best epoch, from 1; of equal ones the first; 0 where none is done */
    bool back;       /* the next epoch starts from the state after that one */
    bool over;       /* there is no next epoch */
    double from, to; /* rates of the next epoch, at its start and at its end, as shares of the peak */
} woi_pace;

woi_pace woi_pace_after(const woi_history *history);

/* The rate within an epoch, along a line; part: 0 at its start, 1 at its end. */
double woi_pace_rate(const woi_pace *pace, double part);

#endif
