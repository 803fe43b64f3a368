/* The end of the page: on which machine, by which version, when and by which commands its numbers were made. A fact
 * that no file has is named as missing. */
#include "report_data.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void put_machine(const json_t *about, FILE *out)
{
    const json_t *machine = json_object_get(about, "machine");
    const char *cpu = json_string_value(json_object_get(machine, "cpu"));
    const char *kernel = json_string_value(json_object_get(machine, "kernel"));
    const char *level = json_string_value(json_object_get(machine, "instructions"));
    const json_t *cores = json_object_get(machine, "cores"), *memory = json_object_get(machine, "memory_gib");
    const char *before = "";
    if (cpu) report_put_text(out, cpu), before = ", ";
    if (json_is_integer(cores))
        fprintf(out, "%s%s core%s", before, report_count(json_number_value(cores)),
                json_integer_value(cores) == 1 ? "" : "s"),
            before = ", ";
    if (json_is_number(memory))
        fprintf(out, "%s%s GiB of memory", before, report_digits(json_number_value(memory))), before = ", ";
    if (kernel) fprintf(out, "%sLinux ", before), report_put_text(out, kernel), before = ", ";
    if (level) fprintf(out, "%skernels ", before), report_put_text(out, level);
}

/* "openblas 0.3.21, faiss 1.7.3 (generic build)": NAME_note belongs to NAME. */
static void put_packages(const json_t *about, FILE *out)
{
    json_t *packages = json_object_get(about, "packages");
    const char *name, *before = "";
    json_t *value;
    json_object_foreach(packages, name, value)
    {
        const size_t bytes = strlen(name);
        if (!json_is_string(value) || (bytes > 5 && strcmp(name + bytes - 5, "_note") == 0)) continue;
        fputs(before, out);
        if (strncasecmp(name, json_string_value(value), bytes) != 0) { /* "OpenBLAS 0.3.21" names itself */
            report_put_short(out, name, 60);
            fputc(' ', out);
        }
        report_put_short(out, json_string_value(value), 120);
        char key[80];
        snprintf(key, sizeof key, "%.70s_note", name);
        const char *note = json_string_value(json_object_get(packages, key));
        if (note) {
            fputs(" (", out);
            report_put_short(out, note, 160);
            fputc(')', out);
        }
        before = ", ";
    }
}

static void put_member(const json_t *about, const char *key, FILE *out)
{
    const json_t *value = json_object_get(about, key);
    if (json_is_string(value)) report_put_text(out, json_string_value(value));
    if (json_is_integer(value)) fputs(report_count(json_number_value(value)), out);
}

static void put_compiler(const json_t *about, FILE *out)
{
    put_member(about, "compiler", out);
}

/* "0.1.0, commit 1c237bb538": older results lack the one, eval's files the other. */
static void put_version(const json_t *about, FILE *out)
{
    const bool version = json_is_string(json_object_get(about, "version"));
    put_member(about, "version", out);
    if (!json_is_string(json_object_get(about, "commit"))) return;
    fputs(version ? ", commit " : "commit ", out);
    put_member(about, "commit", out);
}

/* The day of "2026-11-16T17:00:00Z": files of one run differ in their minutes. */
static void put_day(const json_t *about, FILE *out)
{
    const char *date = json_string_value(json_object_get(about, "date"));
    char day[11];
    if (!date) return;
    snprintf(day, sizeof day, "%s", date);
    report_put_text(out, day);
}

static void put_threads(const json_t *about, FILE *out)
{
    put_member(about, "threads", out);
}

static char *fact_of(const json_t *about, void (*put)(const json_t *, FILE *))
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return NULL;
    put(about, out);
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

/* The data sets whose files say this, each once: " — Debian, Synthetic". */
static void put_titles(const report *r, char *const *facts, size_t first, FILE *page)
{
    const char *between = " — ";
    for (size_t j = first; j < r->n_sources; j++) {
        bool before = !facts[j] || strcmp(facts[first], facts[j]) != 0;
        for (size_t k = first; k < j && !before; k++)
            before = r->sources[k].set == r->sources[j].set && facts[k] && strcmp(facts[first], facts[k]) == 0;
        if (before) continue;
        fputs(between, page);
        report_put_text(page, r->sets[r->sources[j].set].title);
        between = ", ";
    }
}

/* A fact once where all files agree on it, else each value with the data sets it is for. */
static void put_fact(const report *r, const char *name, void (*put)(const json_t *, FILE *), FILE *page)
{
    char **facts = calloc(r->n_sources + 1, sizeof *facts);
    if (!facts) return;
    size_t n_kinds = 0;
    for (size_t i = 0; i < r->n_sources; i++) {
        facts[i] = fact_of(r->sources[i].about, put);
        size_t j = 0;
        while (j < i && (!facts[i] || !facts[j] || strcmp(facts[i], facts[j]) != 0)) j++;
        n_kinds += j == i && facts[i] && facts[i][0];
    }
    fprintf(page, "<dt>%s</dt>", name);
    if (n_kinds == 0) fputs("<dd class=\"no\">not in the files</dd>", page);
    for (size_t i = 0; i < r->n_sources; i++) {
        bool before = !facts[i] || !facts[i][0];
        for (size_t j = 0; j < i && !before; j++) before = facts[j] && strcmp(facts[i], facts[j]) == 0;
        if (before) continue;
        fprintf(page, "<dd>%s", facts[i]);
        if (n_kinds > 1) put_titles(r, facts, i, page);
        fputs("</dd>", page);
    }
    fputc('\n', page);
    for (size_t i = 0; i < r->n_sources; i++) free(facts[i]);
    free(facts);
}

/* A word for a shell: as it is, or in quotes where it has more than letters, digits and the like. */
static void put_word(FILE *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
    if (*word && !word[strspn(word, plain)]) {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word; word++) fputs(*word == '\'' ? "'\\''" : (char[2]){*word, '\0'}, out);
    fputc('\'', out);
}

/* One of eval's options, " --max-queries 100"; what is null, false or 0 was not given. */
static void put_option(FILE *out, const char *name, const json_t *value)
{
    const bool given = json_is_integer(value) ? json_integer_value(value) != 0
                                              : json_is_true(value) || json_is_string(value) || json_array_size(value);
    if (!given) return;
    fputs(" --", out);
    for (; *name; name++) fputc(*name == '_' ? '-' : *name, out);
    if (json_is_integer(value)) fprintf(out, " %" JSON_INTEGER_FORMAT, json_integer_value(value));
    if (json_is_string(value)) fputc(' ', out), put_word(out, json_string_value(value));
    for (size_t i = 0; i < json_array_size(value); i++)
        fprintf(out, "%c%" JSON_INTEGER_FORMAT, i ? ',' : ' ', json_integer_value(json_array_get(value, i)));
}

/* The command of a file; of eval's it is made of what they name. */
static char *command_of(const report_source *source)
{
    const char *command = json_string_value(json_object_get(source->about, "command"));
    const char *index = json_string_value(json_object_get(source->about, "index"));
    const char *log = json_string_value(json_object_get(source->about, "log"));
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return NULL;
    if (command) {
        fputs(command, out);
    } else if (index && log) {
        fputs("wideout eval --index ", out);
        put_word(out, index);
        fputs(" --log ", out);
        put_word(out, log);
        const char *name;
        json_t *value;
        json_object_foreach(json_object_get(source->about, "options"), name, value) put_option(out, name, value);
    }
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

static void put_commands(const report *r, FILE *page)
{
    char **commands = calloc(r->n_sources + 1, sizeof *commands);
    if (!commands) return;
    fputs("<dt>Commands</dt>", page);
    for (size_t i = 0; i < r->n_sources; i++) {
        commands[i] = command_of(&r->sources[i]);
        bool before = !commands[i] || !commands[i][0]; /* one command may run several workloads */
        for (size_t j = 0; j < i && !before; j++) before = commands[j] && strcmp(commands[i], commands[j]) == 0;
        if (before) continue;
        fputs("<dd><code>", page);
        report_put_text(page, commands[i]);
        fputs("</code></dd>", page);
    }
    fputc('\n', page);
    for (size_t i = 0; i < r->n_sources; i++) free(commands[i]);
    free(commands);
}

static bool anybody_has(const report *r, const char *key)
{
    for (size_t i = 0; i < r->n_sources; i++)
        if (json_object_get(r->sources[i].about, key)) return true;
    return false;
}

void report_put_made(const report *r, FILE *page)
{
    fputs("<footer>\n<h2 id=\"made\">How this was made</h2>\n<dl>\n", page);
    put_fact(r, "Machine", put_machine, page);
    put_fact(r, "wideout", put_version, page);
    put_fact(r, "Measured on", put_day, page);
    if (anybody_has(r, "compiler")) put_fact(r, "Compiler", put_compiler, page);
    if (anybody_has(r, "packages")) put_fact(r, "Packages", put_packages, page);
    put_fact(r, "Threads", put_threads, page);
    put_commands(r, page);
    fputs("</dl>\n</footer>\n", page);
}
