/* Reading lists of classes: see class_list.h. */
#include "class_list.h"

#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGEST_LINE = 1 << 20 }; /* of a list: a name is shorter */

void cli_class_names_free(cli_class_names *of)
{
    woi_names_free(&of->names);
    free(of->class_of);
    free(of->same);
}

void cli_classes_free(cli_classes *list)
{
    free(list->ids);
    free(list->whole);
}

/* The first class of a name, or -1. */
static int32_t find_name(const cli_class_names *of, const char *name, size_t bytes)
{
    const int32_t at = woi_names_find(&of->names, name, bytes);
    return at < 0 ? -1 : of->class_of[at];
}

/* Names with their classes and, for each class, the next one of the same name, or -1. */
static wo_status list_names(cli_class_names *of, wo_error *err)
{
    if (of->same || !of->m) return WO_OK;
    int32_t *last = calloc(of->m, sizeof *last); /* of a name's first class: the last one that has it */
    of->class_of = malloc(of->m * sizeof *of->class_of);
    of->same = malloc(of->m * sizeof *of->same);
    if (!last || !of->class_of || !of->same) {
        free(last);
        return cli_set_error(err, WO_ERR_MEMORY, "out of memory");
    }
    wo_status status = WO_OK;
    for (size_t i = 0; !status && i < of->m; i++) {
        size_t bytes = 0;
        const char *name = of->name_of(of->ctx, (int32_t)i, &bytes);
        of->same[i] = -1;
        if (!name) continue;
        of->class_of[of->names.n] = (int32_t)i;
        if ((status = woi_names_append(&of->names, name, bytes, err))) break;
        const int32_t first = find_name(of, name, bytes);
        if (first != (int32_t)i) of->same[last[first]] = (int32_t)i;
        last[first] = (int32_t)i;
    }
    free(last);
    return status;
}

static wo_status add_id(cli_classes *list, int32_t id, wo_error *err)
{
    if (list->n == list->room) {
        const size_t room = 2 * list->room + 64;
        int32_t *ids = realloc(list->ids, room * sizeof *ids);
        if (!ids) return cli_set_error(err, WO_ERR_MEMORY, "out of memory");
        list->ids = ids;
        list->room = room;
    }
    list->ids[list->n++] = id;
    return WO_OK;
}

/* What is all digits, as a number, at most INT32_MAX; -1: it is something else. */
static int64_t as_number(const char *text, size_t bytes)
{
    int64_t id = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9') return -1;
        if (id < INT32_MAX) id = id * 10 + (text[i] - '0');
    }
    return bytes ? id : -1;
}

/* Behind a prefix: "name:59" */
static bool skip(const char **text, size_t *bytes, const char *prefix)
{
    const size_t n = strlen(prefix);
    if (*bytes <= n || memcmp(*text, prefix, n) != 0) return false;
    *text += n;
    *bytes -= n;
    return true;
}

/* The class of a number, and all that have a name; -1: there is none. */
typedef struct meant {
    int64_t number, name;
} meant;

/* Where classes are called by digits, answers show those, and whoever copies one from there means a name: a mask that
 * took it for a number would be open, and close on another class. What could be both is refused. A name that begins
 * with "number:" or "name:" is a name. */
static wo_status look_up(cli_class_names *of, const char *text, size_t bytes, meant *found, wo_error *err)
{
    const char *all = text;
    const size_t all_bytes = bytes;
    found->number = as_number(text, bytes);
    found->name = find_name(of, text, bytes);
    if (found->number < 0 && found->name < 0 && skip(&text, &bytes, "number:"))
        found->number = as_number(text, bytes);
    else if (found->number < 0 && found->name < 0 && skip(&text, &bytes, "name:"))
        found->name = find_name(of, text, bytes);
    if (found->number < 0 && found->name < 0)
        return cli_set_error(err, WO_ERR_ARGUMENT, "'%.*s' is neither the number nor the name of a class",
                             (int)(all_bytes < 60 ? all_bytes : 60), all);
    if (found->name >= 0 && (uint64_t)found->number >= of->m) found->number = -1; /* that of no class: the name alone */
    if ((uint64_t)found->number >= of->m && found->name < 0)
        return cli_set_error(err, WO_ERR_ARGUMENT, "class %" PRId64 " is not below the %zu of the index", found->number,
                             of->m);
    if (found->number >= 0 && found->name >= 0 && (found->name != found->number || of->same[found->name] >= 0))
        return cli_set_error(err, WO_ERR_ARGUMENT,
                             "%.*s is the number of one class and the name of another: "
                             "number:%.*s or name:%.*s says which is meant",
                             (int)bytes, text, (int)bytes, text, (int)bytes, text);
    return WO_OK;
}

/* All classes of a name, of which `first` is the first; that one alone where they are in the list already: a list of a
 * name again and again would otherwise be as long as both together. */
static wo_status add_name(const cli_class_names *of, cli_classes *list, int32_t first, wo_error *err)
{
    if (!list->whole && !(list->whole = calloc(of->m, 1))) return cli_set_error(err, WO_ERR_MEMORY, "out of memory");
    wo_status status = add_id(list, first, err);
    for (int32_t id = of->same[first]; !status && !list->whole[first] && id >= 0; id = of->same[id])
        status = add_id(list, id, err);
    list->whole[first] = 1;
    return status;
}

/* An id, or a name, of which all classes are meant that have it. */
static wo_status add_class(cli_class_names *of, cli_classes *list, const char *text, size_t bytes, wo_error *err)
{
    meant found;
    wo_status status = list_names(of, err);
    if (!status) status = look_up(of, text, bytes, &found, err);
    if (status) return status;
    if (found.name < 0) return add_id(list, (int32_t)found.number, err);
    return add_name(of, list, (int32_t)found.name, err);
}

/* A plain file. What a pipe has not brought is not known to be all there is, and one that nobody writes to never ends:
 * a mask would be open then. */
static wo_status open_list(const char *path, FILE **file, wo_error *err)
{
    struct stat about;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return cli_set_error(err, WO_ERR_IO, "the file cannot be opened: %s", strerror(errno));
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && (*file = fdopen(fd, "r"))) return WO_OK;
    const wo_status status = cli_set_error(err, WO_ERR_IO, "a list of classes is read from a plain file");
    close(fd);
    return status;
}

/* The next line, without its end, into room for LONGEST_LINE + 1 bytes, which one that is too long fills: no more of it
 * is read. False: there is none. */
static bool next_line(FILE *file, char *line, size_t *bytes)
{
    int c = 0;
    size_t n = 0;
    while (n <= LONGEST_LINE && (c = getc_unlocked(file)) != EOF && c != '\n') line[n++] = (char)c;
    *bytes = n;
    return n || c != EOF;
}

static wo_status read_classes(cli_class_names *of, cli_classes *list, const char *path, wo_error *err)
{
    FILE *file = NULL;
    wo_status status = open_list(path, &file, err);
    if (status) return status;
    char *line = malloc(LONGEST_LINE + 1);
    uint64_t number = 0;
    if (!line) status = cli_set_error(err, WO_ERR_MEMORY, "out of memory");
    for (size_t got; line && !status && next_line(file, line, &got);) {
        number++;
        if (got > LONGEST_LINE) {
            status = cli_set_error(err, WO_ERR_FORMAT, "line %" PRIu64 " has more than %d bytes", number, LONGEST_LINE);
            break;
        }
        const size_t mark = number == 1 ? woi_utf8_mark(line, got) : 0;
        while (got > mark && line[got - 1] == '\r') got--;
        if (got == mark) continue;
        wo_error why;
        if ((status = add_class(of, list, line + mark, got - mark, &why)))
            cli_set_error(err, status, "line %" PRIu64 ": %.160s", number, why.text);
    }
    /* Only the end of the file is the end of the list. */
    if (!status && (ferror(file) || !feof(file)))
        status = cli_set_error(err, WO_ERR_IO, "the file cannot be read on after line %" PRIu64 ": %s", number,
                               strerror(errno));
    free(line);
    fclose(file);
    return status;
}

/* A file that was cut short, or not written yet, is no mask: whoever gave it should know. */
static void warn_empty(const char *path)
{
    fprintf(stderr, "%s: warning: ", cli_program);
    cli_print_text(stderr, path);
    fputs(" names no class\n", stderr);
}

/* Whether the option itself names classes: "3,17", "name:3,number:17". Else it names a file of them. */
static bool is_list(const char *given)
{
    for (;;) {
        const char *at = given;
        size_t bytes = strcspn(given, ",");
        given += bytes;
        if (!skip(&at, &bytes, "number:")) skip(&at, &bytes, "name:");
        if (bytes && as_number(at, bytes) < 0) return false;
        if (!*given++) return true;
    }
}

/* Whoever typed a name is told where names go. */
static int fail_list(const char *option, const char *given, const wo_error *err)
{
    char hint[80];
    snprintf(hint, sizeof hint, "%s takes numbers, 3,17, or a file of numbers or names, one a line", option);
    return cli_fail_hint(given, err, access(given, F_OK) == 0 ? NULL : hint);
}

static int take_one(cli_class_names *of, const char *option, const char *given, cli_classes *list)
{
    const size_t before = list->n;
    wo_error err;
    if (!is_list(given)) {
        if (read_classes(of, list, given, &err)) return fail_list(option, given, &err);
        if (list->n == before) warn_empty(given);
        return CLI_OK;
    }
    for (const char *at = given;; at++) {
        const size_t bytes = strcspn(at, ",");
        if (add_class(of, list, at, bytes, &err)) return cli_fail(option, &err);
        at += bytes;
        if (!*at) return CLI_OK;
    }
}

int cli_classes_take(cli_class_names *of, const char *option, const cli_texts *given, cli_classes *list)
{
    int code = CLI_OK;
    for (size_t i = 0; !code && i < given->n; i++) code = take_one(of, option, given->of[i], list);
    return code;
}
