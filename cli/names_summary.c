/* Files of names: see cli/names_summary.h. */
#include "names_summary.h"

#include "text/names_text.h"

#include <jansson.h>

enum { SHOWN = 3, SHOWN_BYTES = 100 };

typedef struct summary {
    woi_names names;
    int32_t distinct, empty;
    size_t shortest, longest; /* bytes */
} summary;

static void summarise(summary *s)
{
    for (int32_t i = 0; i < s->names.n; i++) {
        const size_t bytes = woi_names_bytes(&s->names, i);
        if (i == 0 || bytes < s->shortest) s->shortest = bytes;
        if (bytes > s->longest) s->longest = bytes;
        if (bytes == 0) s->empty++;
        if (woi_names_find(&s->names, woi_names_get(&s->names, i), bytes) == i) s->distinct++;
    }
}

static void print_name(const summary *s, int32_t id)
{
    char text[SHOWN_BYTES + 4];
    const char *name = woi_names_get(&s->names, id);
    const size_t bytes = woi_names_bytes(&s->names, id);
    size_t shown = bytes < SHOWN_BYTES ? bytes : SHOWN_BYTES;
    while (shown < bytes && ((unsigned char)name[shown] & 0xc0) == 0x80) shown--; /* whole characters */
    snprintf(text, sizeof text, "%.*s%s", (int)shown, name, shown < bytes ? "..." : "");
    printf("  %11s  ", cli_number((uint64_t)id));
    cli_print_text(stdout, text);
    printf("\n");
}

static void print_summary(const char *path, const summary *s)
{
    cli_print_text(stdout, path);
    printf(": names, one a line\n  %s, ", cli_count((uint64_t)s->names.n, "name"));
    if (s->distinct == s->names.n)
        printf("all different");
    else
        printf("%s of them different", cli_number((uint64_t)s->distinct));
    if (s->empty) printf(", %s empty", cli_number((uint64_t)s->empty));
    printf("; %s to %s\n", cli_number(s->shortest), cli_count(s->longest, "byte"));
    for (int32_t i = 0; i < s->names.n && i < SHOWN; i++) print_name(s, i);
    if (s->names.n > SHOWN + 1) printf("  %11s\n", "...");
    if (s->names.n > SHOWN) print_name(s, s->names.n - 1);
}

static json_t *name_json(const summary *s, int32_t id)
{
    return json_stringn_nocheck(woi_names_get(&s->names, id), woi_names_bytes(&s->names, id));
}

static json_t *summary_json(const summary *s)
{
    json_t *first = json_array();
    for (int32_t i = 0; i < s->names.n && i < SHOWN; i++) json_array_append_new(first, name_json(s, i));
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "format", "names", "n", (json_int_t)s->names.n,
                     "distinct", (json_int_t)s->distinct, "empty", (json_int_t)s->empty, "shortest",
                     (json_int_t)s->shortest, "longest", (json_int_t)s->longest, "first", first, "last",
                     name_json(s, s->names.n - 1));
}

int cli_names_info(const char *path, bool json)
{
    summary s = {0};
    wo_error err;
    if (woi_names_read(path, &s.names, &err)) return cli_fail(path, &err);
    summarise(&s);
    int code;
    if (json) {
        code = cli_print_json(summary_json(&s));
    } else {
        print_summary(path, &s);
        code = cli_end();
    }
    woi_names_free(&s.names);
    return code;
}
