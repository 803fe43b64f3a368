/* judge/: what the machine can do at most. Times are judged loosely: the machine may be busy. */
#include "testing.h"

#include "judge/ceilings.h"

#include <stdlib.h>

static void rates_are_plausible(void **state)
{
    (void)state;
    wo_cpu_rates rates = {.struct_size = sizeof rates};
    wo_error err;
    wo_cpu_info info = {.struct_size = sizeof info};
    assert_int_equal(wo_cpu_measure(&rates, &err), WO_OK);
    assert_int_equal(wo_cpu_query(&info, &err), WO_OK);
    assert_string_equal(rates.tile, info.level);
    assert_true(rates.tile_rows > 0 && rates.tile_columns > 0);
    assert_true(rates.read_gb_s > 0.01 && rates.read_gb_s < 10000);
    /* A core does less than 1,000 multiply-adds in a nanosecond; a product is no faster than the peak, but for noise.
     */
    assert_true(rates.peak_gflops > 0.01 && rates.peak_gflops < 2000);
    assert_true(rates.product_gflops > 0 && rates.product_gflops < 3 * rates.peak_gflops);
}

/* An older caller's struct is filled as far as it goes; one without a size is refused. */
static void the_size_counts(void **state)
{
    (void)state;
    wo_cpu_rates rates = {.struct_size = offsetof(wo_cpu_rates, product_gflops), .product_gflops = -1};
    wo_error err;
    assert_int_equal(wo_cpu_measure(&rates, &err), WO_OK);
    assert_true(rates.tile_rows > 0 && rates.product_gflops == -1);
    rates.struct_size = 0;
    assert_int_equal(wo_cpu_measure(&rates, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "struct_size of the processor's rates is not set");
    assert_int_equal(wo_cpu_measure(NULL, &err), WO_ERR_ARGUMENT);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    wo_cpu_rates rates = {.struct_size = sizeof rates};
    wo_error err;
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    for (allocations_left = 0; allocations_left < 4;) {
        const int before = (int)allocations_left;
        assert_int_equal(wo_cpu_measure(&rates, &err), WO_ERR_MEMORY);
        allocations_left = before + 1;
    }
    allocations_left = -1;
    assert_int_equal(wo_allocator_set(NULL), WO_OK);
}

/* Four threads on fewer cores take turns, which costs a little. */
static void more_threads_do_not_do_less(void **state)
{
    (void)state;
    const double one = woi_peak_gflops(1), four = woi_peak_gflops(4);
    assert_true(one > 0 && four > 0.25 * one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_plausible),
        cmocka_unit_test(the_size_counts),
        cmocka_unit_test(no_memory_is_an_error),
        cmocka_unit_test(more_threads_do_not_do_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
