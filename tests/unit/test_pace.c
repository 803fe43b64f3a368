/* net/: the rates of a run that finds out itself when it is done. */
#include "testing.h"

#include "net/pace.h"

#include <math.h>

static woi_pace after(const double *p_at_1, uint64_t n)
{
    woi_history history = {.n = n};
    for (uint64_t i = 0; i < n; i++) history.p_at_1[i] = p_at_1[i];
    return woi_pace_after(&history);
}

/* What follows after n epochs: the epoch that is kept, whether it is gone back to, the share of the next rate. */
static void assert_pace(const double *p_at_1, uint64_t n, uint64_t kept, bool back, double share)
{
    const woi_pace pace = after(p_at_1, n);
    assert_int_equal(pace.kept, kept);
    assert_int_equal(pace.back, back);
    assert_true(fabs(pace.from - share) < 1e-12 && fabs(pace.to - share) < 1e-12);
    assert_int_equal(pace.over, share < 0.02);
}

static void the_rate_rises_in_the_first_epoch(void **state)
{
    (void)state;
    const woi_pace pace = after(NULL, 0);
    assert_int_equal(pace.kept, 0);
    assert_false(pace.back || pace.over);
    assert_true(woi_pace_rate(&pace, 0) > 0 && woi_pace_rate(&pace, 0) < 0.1);
    assert_true(woi_pace_rate(&pace, 0.5) > 0.4 && woi_pace_rate(&pace, 0.5) < 0.6);
    assert_true(woi_pace_rate(&pace, 1) == 1);
}

static void it_falls_when_nothing_is_gained(void **state)
{
    (void)state;
    static const double p[] = {0.1, 0.2, 0.19, 0.3, 0.3, 0.29, 0.35, 0.36, 0.36, 0.37, 0.1, 0.1};
    assert_pace(p, 1, 1, false, 1);
    assert_pace(p, 2, 2, false, 1);
    assert_pace(p, 3, 2, false, 1); /* one dip at the peak is noise */
    assert_pace(p, 4, 4, false, 1);
    assert_pace(p, 5, 4, false, 1); /* the same again is no gain */
    assert_pace(p, 6, 4, true, 0.3);
    assert_pace(p, 7, 7, false, 0.3);
    assert_pace(p, 8, 8, false, 0.3);
    assert_pace(p, 9, 8, true, 0.09); /* below the peak, one is enough */
    assert_pace(p, 10, 10, false, 0.09);
    assert_pace(p, 11, 10, true, 0.027);
    assert_pace(p, 12, 10, true, 0.0081);
    assert_true(woi_pace_rate(&(woi_pace){.from = 0.3, .to = 0.3}, 0.7) == 0.3);
}

/* Any course of P@1: the best epoch is kept, the first of equal ones, and there is an end. */
static void every_run_ends_with_its_best_epoch(void **state)
{
    (void)state;
    uint64_t x = 1;
    for (int trial = 0; trial < 2000; trial++) {
        woi_history history = {0};
        uint64_t best = 0;
        woi_pace pace = woi_pace_after(&history);
        while (!pace.over) {
            assert_true(history.n < WOI_PACE_EPOCHS);
            x = x * 6364136223846793005u + 1442695040888963407u;
            const double gain = trial % 3 ? 0 : (double)history.n; /* every third rises for long */
            history.p_at_1[history.n] = (gain + (double)(x >> 60)) / 100;
            if (history.p_at_1[history.n] > history.p_at_1[best]) best = history.n;
            history.n++;
            pace = woi_pace_after(&history);
            assert_int_equal(pace.kept, best + 1);
            assert_true(!pace.back || pace.kept < history.n);
        }
    }
    woi_history rising = {.n = WOI_PACE_EPOCHS};
    for (int i = 0; i < WOI_PACE_EPOCHS; i++) rising.p_at_1[i] = 0.01 * i;
    assert_true(woi_pace_after(&rising).over);
    assert_int_equal(woi_pace_after(&rising).kept, WOI_PACE_EPOCHS);
    rising.n--;
    assert_false(woi_pace_after(&rising).over);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rate_rises_in_the_first_epoch),
        cmocka_unit_test(it_falls_when_nothing_is_gained),
        cmocka_unit_test(every_run_ends_with_its_best_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
