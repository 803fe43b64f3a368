/* judge/energy: RAPL counters in a made-up powercap folder. */
#include "testing.h"

#include "judge/energy.h"

#include <sys/stat.h>

static char folder[64];

static int folder_setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/wideout-test-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    return setenv("WIDEOUT_POWERCAP", folder, 1);
}

static int folder_teardown(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    unsetenv("WIDEOUT_POWERCAP");
    return system(command);
}

static const char *path_of(const char *domain, const char *file)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/%s/%s", folder, domain, file);
    return path;
}

static void put(const char *domain, const char *file, const char *text)
{
    FILE *out = fopen(path_of(domain, file), "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(fclose(out), 0);
}

static void make_domain(const char *domain, const char *name, const char *energy, const char *range)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, domain);
    assert_int_equal(mkdir(path, 0700), 0);
    put(domain, "name", name);
    put(domain, "energy_uj", energy);
    put(domain, "max_energy_range_uj", range);
}

static void assert_reads(woi_energy *energy, double expected)
{
    double joules = -1;
    if (!woi_energy_read(energy, &joules)) fail_msg("%s", energy->reason);
    assert_true(joules > expected - 1e-9 && joules < expected + 1e-9);
}

static void assert_not_measured(const char *reason)
{
    woi_energy energy;
    assert_false(woi_energy_open(&energy));
    assert_string_equal(energy.reason, reason);
    assert_int_equal(energy.n, 0);
}

/* Packages and memory are added up; parts of a package, the whole platform and other drivers are not. */
static void packages_and_memory_are_added_up(void **state)
{
    (void)state;
    make_domain("intel-rapl:0", "package-0\n", "1000000\n", "262143328850\n");
    make_domain("intel-rapl:0:0", "core\n", "1\n", "262143328850\n");
    make_domain("intel-rapl:0:1", "dram\n", "5000000\n", "65712999613\n");
    make_domain("intel-rapl:1", "package-1-die-0\n", "0\n", "262143328850\n");
    make_domain("intel-rapl:2", "psys\n", "0\n", "262143328850\n");
    make_domain("intel-rapl-mmio:0", "package-0\n", "0\n", "262143328850\n");
    woi_energy energy;
    assert_true(woi_energy_open(&energy));
    assert_int_equal(energy.n, 3);
    assert_string_equal(energy.reason, "");
    assert_reads(&energy, 0);
    put("intel-rapl:0", "energy_uj", "3500000\n");
    assert_reads(&energy, 2.5);
    put("intel-rapl:0:1", "energy_uj", "5250000\n");
    put("intel-rapl:1", "energy_uj", "1000000\n");
    put("intel-rapl:0:0", "energy_uj", "777000000\n");
    put("intel-rapl:2", "energy_uj", "777000000\n");
    put("intel-rapl-mmio:0", "energy_uj", "777000000\n");
    assert_reads(&energy, 3.75);
}

static void a_counter_may_start_over(void **state)
{
    (void)state;
    make_domain("intel-rapl:0", "package-0\n", "9000000\n", "10000000\n");
    woi_energy energy;
    assert_true(woi_energy_open(&energy));
    put("intel-rapl:0", "energy_uj", "500000\n"); /* 1 J to the end of the range, 0.5 J beyond */
    assert_reads(&energy, 1.5);
    put("intel-rapl:0", "energy_uj", "1500000\n");
    assert_reads(&energy, 2.5);
    put("intel-rapl:0", "energy_uj", "0\n");
    assert_reads(&energy, 11);
}

static void no_folder_is_not_measured(void **state)
{
    (void)state;
    setenv("WIDEOUT_POWERCAP", "/nonexistent/powercap", 1);
    assert_not_measured("/nonexistent/powercap cannot be opened: No such file or directory");
}

static void no_package_is_not_measured(void **state)
{
    (void)state;
    char reason[128];
    snprintf(reason, sizeof reason, "no RAPL package in %s", folder);
    assert_not_measured(reason);
    make_domain("intel-rapl:0", "psys\n", "1\n", "2\n");
    assert_not_measured(reason);
}

/* One package of two: a part must not be taken for all. */
static void an_unreadable_counter_is_not_measured(void **state)
{
    (void)state;
    make_domain("intel-rapl:0", "package-0\n", "1\n", "10\n");
    make_domain("intel-rapl:1", "package-1\n", "1\n", "10\n");
    const char *path = path_of("intel-rapl:1", "energy_uj");
    if (geteuid() == 0) { /* root may read everything but a folder */
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkdir(path, 0700), 0);
        assert_not_measured("intel-rapl:1/energy_uj cannot be read: Is a directory");
    } else {
        assert_int_equal(chmod(path, 0), 0);
        assert_not_measured("intel-rapl:1/energy_uj cannot be read: Permission denied (needs root)");
    }
}

static void odd_counters_are_not_measured(void **state)
{
    (void)state;
    make_domain("intel-rapl:0", "package-0\n", "-1\n", "10\n");
    assert_not_measured("intel-rapl:0/energy_uj does not hold a number");
    put("intel-rapl:0", "energy_uj", "99999999999999999999999\n");
    assert_not_measured("intel-rapl:0/energy_uj does not hold a number");
    put("intel-rapl:0", "energy_uj", "");
    assert_not_measured("intel-rapl:0/energy_uj cannot be read: No data available");
    put("intel-rapl:0", "energy_uj", "5");
    put("intel-rapl:0", "max_energy_range_uj", "many");
    assert_not_measured("intel-rapl:0/max_energy_range_uj does not hold a number");
}

static void a_counter_may_go_away(void **state)
{
    (void)state;
    make_domain("intel-rapl:0", "package-0\n", "1\n", "10\n");
    woi_energy energy;
    double joules;
    assert_true(woi_energy_open(&energy));
    assert_int_equal(unlink(path_of("intel-rapl:0", "energy_uj")), 0);
    assert_false(woi_energy_read(&energy, &joules));
    assert_string_equal(energy.reason, "intel-rapl:0/energy_uj cannot be read: No such file or directory");
    assert_false(woi_energy_read(&energy, &joules));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)
    const struct CMUnitTest tests[] = {
        TEST(packages_and_memory_are_added_up),
        TEST(a_counter_may_start_over),
        TEST(no_folder_is_not_measured),
        TEST(no_package_is_not_measured),
        TEST(an_unreadable_counter_is_not_measured),
        TEST(odd_counters_are_not_measured),
        TEST(a_counter_may_go_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
