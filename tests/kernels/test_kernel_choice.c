/* kernels/select.c: the table of kernels, and the choice between the instruction sets of this machine. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/kernels.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void tables_are_full(void **state)
{
    (void)state;
    for (int p = 0; p < 2 * WOI_N_LEVELS; p++) { /* every level alone, then with its dot products of bytes */
        woi_kernels table;
        memset(&table, 0, sizeof table);
        if (!woi_kernels_at((woi_level)(p / 2), p % 2, &table)) continue;
#define WOI_KERNEL(ret, name, params) \
    assert_true(table.name != NULL);  \
    assert_non_null(table.path[WOI_K_##name]);
#include "kernels/kernels.def"
#undef WOI_KERNEL
        const char *level = woi_level_name((woi_level)(p / 2));
        assert_string_equal(table.path[WOI_K_dot_f32], level);
        if (p % 2) /* "avx512vnni" of "avx512", "neondot" of "neon" */
            assert_true(strlen(table.path[WOI_K_dot_i8]) > strlen(level) &&
                        !strncmp(table.path[WOI_K_dot_i8], level, strlen(level)));
        else
            assert_string_equal(table.path[WOI_K_dot_i8], level);
    }
}

static void *get_table(void *barrier)
{
    pthread_barrier_wait(barrier);
    return (void *)woi_kernels_get(NULL);
}

static void threads_get_one_table(void **state)
{
    (void)state;
    pthread_t thread[4];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 4);
    for (int t = 0; t < 4; t++) assert_int_equal(pthread_create(&thread[t], NULL, get_table, &barrier), 0);
    for (int t = 0; t < 4; t++) {
        void *table;
        assert_int_equal(pthread_join(thread[t], &table), 0);
        assert_ptr_equal(table, woi_kernels_get(NULL));
        assert_non_null(table);
    }
    pthread_barrier_destroy(&barrier);
}

static void public_list_is_complete(void **state)
{
    (void)state;
    const char *name, *path;
    size_t i = 0;
    const woi_kernels *table = woi_kernels_get(NULL);
#define WOI_KERNEL(ret, kernel, params)          \
    assert_true(wo_cpu_kernel(i, &name, &path)); \
    assert_string_equal(name, #kernel);          \
    assert_string_equal(path, table->path[i++]);
#include "kernels/kernels.def"
#undef WOI_KERNEL
    assert_false(wo_cpu_kernel(i, &name, &path));
    assert_false(wo_cpu_kernel(SIZE_MAX, &name, &path));
    assert_int_equal(wo_cpu_query(NULL, NULL), WO_ERR_ARGUMENT);
}

/* The choice is made once per process, so each value of WIDEOUT_CPU gets a child, forked before this process has chosen
 * (and not started anew: an emulator such as qemu-user could not). It prints what it sees and its exit status is the
 * wo_status. */
static int describe_choice(void)
{
    wo_cpu_info info = {.struct_size = sizeof info};
    wo_error err = {0}, again = {0};
    const char *name, *path;
    const wo_status status = wo_cpu_query(&info, &err);
    if (status == WO_OK) {
        printf("%s|%s|%s", info.level, info.best, info.reason);
        return !woi_kernels_get(&again) || !wo_cpu_kernel(0, &name, &path) || strcmp(path, info.level) ? 99 : 0;
    }
    printf("%s", err.text);
    /* Every later call says the same; no error struct is fine. */
    const bool same = !woi_kernels_get(&again) && again.status == status && again.offset == WO_NO_OFFSET &&
                      !strcmp(again.text, err.text) && !woi_kernels_get(NULL) && !wo_cpu_kernel(0, &name, &path);
    return same ? (int)status : 99;
}

/* Runs describe_choice under WIDEOUT_CPU=value (unset where NULL); its output in `text`. */
static int choice_under(const char *value, char text[512])
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        if (value) setenv("WIDEOUT_CPU", value, 1);
        const int status = describe_choice();
        fflush(stdout);
        _exit(status);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t got; used < 511 && (got = read(ends[0], text + used, 511 - used)) > 0;) used += (size_t)got;
    text[used] = '\0';
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void environment_lowers_the_choice(void **state)
{
    (void)state;
    woi_kernels table;
    const char *levels[WOI_N_LEVELS];
    for (int level = 0; level < WOI_N_LEVELS; level++) levels[level] = woi_level_name((woi_level)level);
    int best = WOI_N_LEVELS - 1;
    while (!woi_kernels_at((woi_level)best, 0, &table)) best--;
    char text[512], want[512], plain[512];

    snprintf(plain, sizeof plain, "%s|%s|the best this machine has", levels[best], levels[best]);
    assert_int_equal(choice_under(NULL, text), WO_OK);
    assert_string_equal(text, plain);
    assert_int_equal(choice_under("", text), WO_OK);
    assert_string_equal(text, plain);
    for (int level = 0; level < WOI_N_LEVELS; level++) {
        const int status = choice_under(levels[level], text);
        if (level > best) {
            assert_int_equal(status, WO_ERR_UNSUPPORTED);
            assert_non_null(strstr(text, levels[level]));
            assert_non_null(strstr(text, levels[best]));
            continue;
        }
        assert_int_equal(status, WO_OK);
        snprintf(want, sizeof want, "%s|%s|lowered by WIDEOUT_CPU=%s", levels[level], levels[best], levels[level]);
        assert_string_equal(text, level < best ? want : plain);
    }
    static const char *const refused[] = {"AVX2", "avx",  "avx2 ",    "avx512vnni", "1",
                                          "NEON", "ref,", "neondot ", "sse\n"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(choice_under(refused[i], text), WO_ERR_UNSUPPORTED);
        assert_non_null(strstr(text, "WIDEOUT_CPU is '"));
#if defined(__x86_64__)
        assert_non_null(strstr(text, "it must be ref, avx2 or avx512:"));
#elif defined(__aarch64__)
        assert_non_null(strstr(text, "it must be ref or neon:"));
#endif
        assert_null(strchr(text, '\n'));
    }
    char long_value[300];
    memset(long_value, 'x', sizeof long_value - 1);
    long_value[sizeof long_value - 1] = '\0';
    assert_int_equal(choice_under(long_value, text), WO_ERR_UNSUPPORTED);
    assert_non_null(strstr(text, "xxx...', but"));
}

int main(void)
{
    unsetenv("WIDEOUT_CPU");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(environment_lowers_the_choice), /* first: see describe_choice */
        cmocka_unit_test(tables_are_full),
        cmocka_unit_test(threads_get_one_table),
        cmocka_unit_test(public_list_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
