/* Messages, numbers and JSON for people and programs. */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

void cli_print_text(FILE *to, const char *text)
{
    for (; *text; text++) fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, to);
}

void cli_print_shell(FILE *to, const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:=@%+,";
    bool control = false;
    if (*text && text[strspn(text, plain)] == '\0') {
        fputs(text, to);
        return;
    }
    for (const char *c = text; *c; c++) control |= (unsigned char)*c < 0x20 || *c == 0x7f;
    fputs(control ? "$'" : "'", to);
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            fprintf(to, "\\x%02x", (unsigned)*text);
        else if (*text == '\'')
            fputs(control ? "\\'" : "'\\''", to);
        else if (*text == '\\' && control)
            fputs("\\\\", to);
        else
            fputc(*text, to);
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

int cli_fail(const char *path, const wo_error *err)
{
    return cli_fail_hint(path, err, NULL);
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
    if (fflush(stdout) == 0 && !ferror(stdout)) return CLI_OK;
    fprintf(stderr, "%s: cannot write to standard output: %s\n", cli_program, strerror(errno));
    return CLI_FAILED;
}

int cli_print_json(json_t *object)
{
    char *text = object ? json_dumps(object, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    if (!text) {
        fprintf(stderr, "%s: out of memory\n", cli_program);
        return CLI_FAILED;
    }
    puts(text);
    free(text);
    return cli_end();
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

bool cli_same_file(const char *a, const char *b)
{
    struct stat one, two;
    return a && b && stat(a, &one) == 0 && stat(b, &two) == 0 && one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

double cli_peak_mib(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (double)usage.ru_maxrss / 1024 : 0;
}
