/* Messages, numbers and JSON for people and programs. */
#include "base/utf8.h"
#include "cli.h"
#include "hints.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

size_t cli_character(const char *text, size_t bytes, bool *fit)
{
    uint32_t code = 0;
    const size_t n = woi_utf8_next(text, bytes, &code);
    *fit = n > 0 && !woi_is_unfit(code);
    return n ? n : 1;
}

void cli_print_bytes(FILE *to, const char *text, size_t bytes)
{
    for (size_t i = 0, n; i < bytes; i += n) {
        bool fit;
        n = cli_character(text + i, bytes - i, &fit);
        if (fit)
            fwrite(text + i, 1, n, to);
        else
            fputc('?', to);
    }
}

void cli_print_text(FILE *to, const char *text)
{
    cli_print_bytes(to, text, strlen(text));
}

json_t *cli_json_text(const char *text)
{
    return cli_json_bytes(text, strlen(text));
}

json_t *cli_json_bytes(const char *text, size_t bytes)
{
    static const char replacement[] = "\xef\xbf\xbd";
    size_t used = 0;
    char *clean = malloc(3 * bytes + 1);
    if (!clean) return NULL;
    for (size_t i = 0, n; i < bytes; i += n ? n : 1) {
        uint32_t code;
        n = woi_utf8_next(text + i, bytes - i, &code);
        memcpy(clean + used, n ? text + i : replacement, n ? n : 3);
        used += n ? n : 3;
    }
    json_t *string = json_stringn(clean, used);
    free(clean);
    return string;
}

void cli_print_shell(FILE *to, const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:=@%+,";
    bool control = false;
    if (*text && text[strspn(text, plain)] == '\0') {
        fputs(text, to);
        return;
    }
    size_t left = strlen(text);
    for (size_t i = 0, n; i < left; i += n) {
        bool fit;
        n = cli_character(text + i, left - i, &fit);
        control |= !fit;
    }
    fputs(control ? "$'" : "'", to);
    for (size_t n; left > 0; text += n, left -= n) {
        bool fit;
        n = cli_character(text, left, &fit);
        if (!fit)
            for (size_t i = 0; i < n; i++) fprintf(to, "\\x%02x", (unsigned)(unsigned char)text[i]);
        else if (*text == '\'')
            fputs(control ? "\\'" : "'\\''", to);
        else if (*text == '\\' && control)
            fputs("\\\\", to);
        else
            fwrite(text, 1, n, to);
    }
    fputc('\'', to);
}

int cli_columns(int otherwise)
{
    struct winsize size;
    const char *given = getenv("COLUMNS");
    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1) return size.ws_col;
    const int columns = given ? (int)strtol(given, NULL, 10) : 0;
    return columns > 1 ? columns : otherwise;
}

void cli_print_tensor(const char *type, const char *shape, const char *bytes)
{
    enum { ROOMY = 64 }; /* with a name of 20 */
    printf(cli_columns(ROOMY) < ROOMY ? "  %-4s %12s %9s " : "  %-8s %20s %10s  ", type, shape, bytes);
}

int cli_fail(const char *path, const wo_error *err)
{
    return cli_fail_hint(path, err, err->about == WO_ABOUT_NONE ? cli_hint_of(err) : NULL);
}

int cli_fail_hint(const char *path, const wo_error *err, const char *hint)
{
    cli_progress_end();
    fprintf(stderr, "%s: ", cli_program);
    if (path) {
        cli_print_text(stderr, path);
        fputs(": ", stderr);
    }
    cli_print_text(stderr, err->text);
    if (hint) fprintf(stderr, "; %s", hint);
    fputc('\n', stderr);
    return CLI_FAILED;
}

wo_status cli_set_error(wo_error *err, wo_status status, const char *format, ...)
{
    va_list args;
    *err = (wo_error){.status = status, .offset = WO_NO_OFFSET};
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return status;
}

int cli_end(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return CLI_OK;
    /* What failed earlier left no reason: a server's first line, hours ago. */
    fprintf(stderr, "%s: cannot write to standard output%s%s\n", cli_program, errno ? ": " : "",
            errno ? strerror(errno) : "");
    return CLI_FAILED;
}

/* What is unfit for a terminal as \u escapes, which is the same JSON. The library that wrote it has escaped C0. */
static void print_escaped(const char *text)
{
    for (const char *end = text + strlen(text); text < end;) {
        const char *plain = text;
        uint32_t code = 0;
        while (plain < end && (unsigned char)*plain < 0x7f) plain++;
        fwrite(text, 1, (size_t)(plain - text), stdout);
        if ((text = plain) == end) return;
        const size_t n = woi_utf8_next(text, (size_t)(end - text), &code);
        if (n && woi_is_unfit(code))
            printf("\\u%04" PRIx32, code);
        else
            fwrite(text, 1, n ? n : 1, stdout);
        text += n ? n : 1;
    }
}

bool cli_write_json(const json_t *value, size_t flags)
{
    char *text = value ? json_dumps(value, flags | JSON_REAL_PRECISION(9)) : NULL;
    if (!text) return false;
    print_escaped(text);
    putchar('\n');
    free(text);
    return true;
}

int cli_print_json(json_t *object)
{
    const bool written = cli_write_json(object, JSON_INDENT(1));
    json_decref(object);
    if (written) return cli_end();
    fprintf(stderr, "%s: out of memory\n", cli_program);
    return CLI_FAILED;
}

static char *rotating(void)
{
    static char buffers[16][64];
    static unsigned next;
    return buffers[next++ % 16];
}

const char *cli_number(uint64_t n)
{
    char digits[24], *out = rotating(), *to = out;
    int length = snprintf(digits, sizeof digits, "%" PRIu64, n);
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return out;
}

const char *cli_count(uint64_t n, const char *one)
{
    const size_t bytes = strlen(one), stem = bytes - (n != 1 && bytes > 1 && one[bytes - 1] == 'y');
    const char *end = n == 1 ? "" : stem < bytes ? "ies" : one[bytes - 1] == 's' ? "es" : "s";
    char *out = rotating();
    snprintf(out, 64, "%s %.*s%s", cli_number(n), (int)stem, one, end);
    return out;
}

const char *cli_bytes(uint64_t n)
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    double value = (double)n;
    int unit = 0;
    for (; value >= 999.5 && unit < 4; unit++) value /= 1000;
    char *out = rotating();
    snprintf(out, 40, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return out;
}

/* The path of a file that is not there yet, through its folder's; false: the folder is not there either. */
static bool future_path(const char *name, char path[PATH_MAX])
{
    char folder[PATH_MAX], real[PATH_MAX];
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    if (snprintf(folder, sizeof folder, "%.*s", slash ? (int)(base - name) : 1, slash ? name : ".") >= PATH_MAX ||
        !realpath(folder, real))
        return false;
    return snprintf(path, PATH_MAX, "%s/%s", real, base) < PATH_MAX;
}

bool cli_same_file(const char *a, const char *b)
{
    struct stat one, two;
    char first[PATH_MAX], second[PATH_MAX];
    if (!a || !b) return false;
    const bool has_one = stat(a, &one) == 0, has_two = stat(b, &two) == 0;
    if (has_one && has_two) return one.st_dev == two.st_dev && one.st_ino == two.st_ino;
    return !has_one && !has_two && future_path(a, first) && future_path(b, second) && strcmp(first, second) == 0;
}

double cli_peak_mib(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (double)usage.ru_maxrss / 1024 : 0;
}
