/* How fast the extreme-classification parser reads a file: streaming (rows looked at and forgotten) and into CSR, with
 * a plain read of the same file as the ceiling. One thread, median of the runs. Usage: parse FILE [runs]. */
#include "base/clock.h"
#include "store/store.h"
#include "text/xc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static _Noreturn void die(const char *path, const char *text)
{
    fprintf(stderr, "parse: %s: %s\n", path, text);
    exit(1);
}

static double stream(const char *path, uint64_t *text_bytes, uint64_t *n_values)
{
    woi_xc *xc = NULL;
    wo_error err;
    double start = woi_now_s();
    if (woi_xc_open(path, &(woi_xc_options){0}, &xc, &err)) die(path, err.text);
    woi_xc_row row;
    bool more = true;
    *n_values = 0;
    while (more) {
        if (woi_xc_next(xc, &row, &more, &err)) die(path, err.text);
        *n_values += row.n_features;
    }
    *text_bytes = woi_xc_text_bytes(xc);
    woi_xc_free(xc);
    return woi_now_s() - start;
}

static double load(const char *path)
{
    woi_xc_data data;
    wo_error err;
    double start = woi_now_s();
    if (woi_xc_load(path, &(woi_xc_options){0}, NULL, &data, &err)) die(path, err.text);
    double seconds = woi_now_s() - start;
    woi_xc_data_free(&data);
    return seconds;
}

static double plain_read(const char *path)
{
    static char buffer[1 << 20];
    double start = woi_now_s();
    int fd = open(path, O_RDONLY);
    if (fd < 0) die(path, "cannot open");
    while (read(fd, buffer, sizeof buffer) > 0) continue;
    close(fd);
    return woi_now_s() - start;
}

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    enum { MOST = 99 };
    int runs = argc > 2 ? atoi(argv[2]) : 9;
    if (argc < 2 || argc > 3 || runs < 1 || runs > MOST) {
        fprintf(stderr, "usage: parse FILE [runs, 1 to %d]\n", MOST);
        return 2;
    }
    double seconds[3][MOST];
    uint64_t text_bytes = 0, n_values = 0;
    for (int i = 0; i < runs; i++) {
        seconds[0][i] = stream(argv[1], &text_bytes, &n_values);
        seconds[1][i] = load(argv[1]);
        seconds[2][i] = plain_read(argv[1]);
    }
    printf("%s: %.1f MB of text, %llu values, median of %d runs, one thread\n", argv[1], (double)text_bytes / 1e6,
           (unsigned long long)n_values, runs);
    static const char *const names[] = {"rows, streamed", "into CSR", "plain read of the file"};
    for (int i = 0; i < 3; i++) {
        qsort(seconds[i], (size_t)runs, sizeof(double), by_time);
        printf("  %-24s %8.1f MB/s\n", names[i], (double)text_bytes / 1e6 / seconds[i][runs / 2]);
    }
    return 0;
}
