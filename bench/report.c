/* wideout-bench report: the command. Reads every file, makes the page in memory, and only then touches the disk. */
#include "report.h"

#include "report_data.h"
#include "store/store.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char usage[] =
    "Usage: wideout-bench report FILE... [-o PAGE] [--plots DIR] [--title TEXT]\n"
    "\n"
    "Makes one HTML page, tables and plots, out of result files: those of wideout-bench and those of\n"
    "'wideout eval --json', of which each is one row. The page needs no network and nothing beside it.\n"
    "Plots are drawn by gnuplot; without it the page has the tables.\n"
    "\n"
    "  -o PAGE       where to write it (default: report.html)\n"
    "  --plots DIR   also leave every plot there as a picture of its own, NAME.svg\n"
    "  --title TEXT  its heading (default: wideout: benchmark report)\n"
    "  -h, --help    this text\n";

/* One sentence on stderr behind `who`; text of files and names may hold control characters, a terminal gets none. */
__attribute__((format(printf, 3, 4))) static void complain(const char *who, const char *path, const char *format, ...)
{
    char text[REPORT_ERROR_BYTES + 512];
    int used = path ? snprintf(text, sizeof text, "%.400s: ", path) : 0;
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, sizeof text - (size_t)used, format, args);
    va_end(args);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    fprintf(stderr, "%s: %s\n", who, text);
}

static const char program[] = "wideout-bench", command[] = "wideout-bench report";

static bool write_page(const char *path, const char *text, size_t bytes)
{
    woi_outfile *out = NULL;
    wo_error err;
    const bool failed = woi_outfile_create(path, &out, &err) || woi_outfile_write(out, text, bytes, &err) ||
                        woi_outfile_commit(out, &err);
    if (failed) complain(program, path, "%s", err.text);
    woi_outfile_free(out);
    return !failed;
}

static bool same_file(const char *a, const char *b)
{
    struct stat one, two;
    return stat(a, &one) == 0 && stat(b, &two) == 0 && one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

static bool write_pictures(const char *folder, const report_plotter *plotter)
{
    char path[4096];
    if (mkdir(folder, 0777) && errno != EEXIST) {
        complain(program, folder, "cannot make the folder: %s", strerror(errno));
        return false;
    }
    for (size_t i = 0; i < plotter->n_pictures; i++) {
        const report_picture *picture = &plotter->pictures[i];
        snprintf(path, sizeof path, "%s/%s.svg", folder, picture->name);
        if (!write_page(path, picture->text, picture->bytes)) return false;
    }
    printf("%s: %zu pictures\n", folder, plotter->n_pictures);
    return true;
}

static int make_report(char **files, int n, const char *path, const char *plots, const char *title)
{
    report r = {0};
    report_plotter plotter = {.keeps = plots != NULL};
    char error[REPORT_ERROR_BYTES], *text = NULL;
    size_t bytes = 0;
    int code = 1;
    FILE *page = NULL;
    for (int i = 0; i < n; i++) {
        const report_read_result result = report_read(&r, files[i], error);
        if (result == REPORT_OTHER)
            complain(program, files[i], "left out: neither results of wideout-bench nor of 'wideout eval --json'");
        if (result != REPORT_FAILED) continue;
        complain(program, files[i], "%s", error);
        goto done;
    }
    if (r.n_sets == 0) {
        complain(program, NULL, "no results in the files that were named, so that there is no page");
        goto done;
    }
    report_finish(&r);
    page = open_memstream(&text, &bytes);
    if (!page || !report_page(&r, title, &plotter, page) || fflush(page)) {
        complain(program, NULL, "out of memory");
        goto done;
    }
    if (plotter.problem[0]) complain(program, NULL, "no plots: %s", plotter.problem);
    if (!write_page(path, text, bytes) || (plots && !write_pictures(plots, &plotter))) goto done;
    printf("%s: %zu data set%s, %zu kB\n", path, r.n_sets, r.n_sets == 1 ? "" : "s", (bytes + 999) / 1000);
    code = 0;
done:
    if (page) fclose(page);
    free(text);
    report_plotter_free(&plotter);
    report_free(&r);
    return code;
}

int bench_report(int argc, char **argv)
{
    const char *path = "report.html", *title = "wideout: benchmark report", *plots = NULL;
    char **files = calloc((size_t)argc + 1, sizeof *files);
    int n = 0, code = 2;
    bool options = true;
    if (!files) return complain(program, NULL, "out of memory"), 1;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        const char **value = !options                       ? NULL
                             : strcmp(arg, "-o") == 0       ? &path
                             : strcmp(arg, "--output") == 0 ? &path
                             : strcmp(arg, "--plots") == 0  ? &plots
                             : strcmp(arg, "--title") == 0  ? &title
                                                            : NULL;
        if (value && i + 1 == argc) {
            complain(command, NULL, "%s needs a value (see 'wideout-bench report --help')", arg);
            goto done;
        } else if (value) {
            *value = argv[++i];
        } else if (options && (strcmp(arg, "-h") == 0 || strcmp(arg, "--help") == 0)) {
            code = fputs(usage, stdout) < 0 || fflush(stdout) ? 1 : 0;
            goto done;
        } else if (options && strcmp(arg, "--") == 0) {
            options = false;
        } else if (options && arg[0] == '-') {
            complain(command, NULL, "unknown option '%s' (see 'wideout-bench report --help')", arg);
            goto done;
        } else {
            files[n++] = argv[i];
        }
    }
    if (n == 0) {
        complain(command, NULL, "needs at least one file of results (see 'wideout-bench report --help')");
        goto done;
    }
    for (int i = 0; i < n; i++) {
        if (!same_file(files[i], path)) continue;
        complain(command, NULL, "-o %s is one of the files of results", path);
        goto done;
    }
    code = make_report(files, n, path, plots, title);
done:
    free(files);
    return code;
}
