/* Every kernel of kernels.def on every path that this machine has.
 *
 * Integer results equal the definition exactly. A float sum of d products is judged against the same sum in double: it
 * may be off by (d + 8) 2^-24 sum |q_j w_j|, which covers any order of summation. Arguments lie against pages that must
 * not be touched, at their end or at their start, in every alignment. A kernel added to kernels.def needs a test_<name>
 * in one of the headers before this file compiles. */
#include "check_picks.h"
#include "check_products.h"
#include "check_sums.h"

static void on_every_path(const char *kernel, void (*test)(const woi_kernels *))
{
    for (int p = 0; p < N_PATHS; p++) {
        woi_kernels table;
        if (!get_path(p, &table)) continue;
        kernel_name = kernel;
        snprintf(path_name, sizeof path_name, "%s%s", woi_level_name((woi_level)(p / 2)), p % 2 ? " with dot" : "");
        test(&table);
    }
}

#define WOI_KERNEL(ret, name, params)      \
    static void run_##name(void **state)   \
    {                                      \
        (void)state;                       \
        on_every_path(#name, test_##name); \
    }
#include "kernels/kernels.def"
#undef WOI_KERNEL

int main(void)
{
    unsetenv("WIDEOUT_CPU");
    const struct CMUnitTest tests[] = {
#define WOI_KERNEL(ret, name, params) {#name, run_##name, NULL, NULL, NULL},
#include "kernels/kernels.def"
#undef WOI_KERNEL
    };
    return cmocka_run_group_tests_name("kernels", tests, make_guarded, NULL);
}
