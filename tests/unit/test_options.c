/* index/options.c, and what is made of its table: the tool's options, its help, its man page. */
#include "testing.h"

#include "cli/build_options.c"
#include "cli/words.c"
#include "index/index.h"
#include "index/options.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>

/* ---- The tool, as far as build_options.c needs it ---------------------------------------------------------- */

static char said[1024];

int cli_usage(const cli_command *command, const char *format, ...)
{
    (void)command;
    va_list args;
    va_start(args, format);
    vsnprintf(said, sizeof said, format, args);
    va_end(args);
    return CLI_USAGE;
}

/* ---- Values ------------------------------------------------------------------------------------------------ */

static void get(const wo_build_options *o, const char *name, char text[40])
{
    const size_t length = wo_build_get(o, name, text, 40);
    assert_true(length > 0 && length == strlen(text));
}

static void set(wo_build_options *o, const char *name, const char *text)
{
    wo_error err;
    if (wo_build_set(o, name, text, &err)) fail_msg("%s", err.text);
}

static void refuse_set(wo_build_options *o, const char *name, const char *text, const char *sentence)
{
    wo_error err = {0};
    const wo_build_options before = *o;
    assert_int_equal(wo_build_set(o, name, text, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, sentence);
    assert_memory_equal(o, &before, sizeof before);
    assert_int_equal(wo_build_set(o, name, text, NULL), WO_ERR_ARGUMENT);
}

/* The table says what the struct's comments and users of 0.1.0 know. */
static void the_defaults(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *by_method[WOI_N_METHODS];
    } expected[] = {
        {"method", {"full", "popular", "slide", "lss", "evidence", "screen"}},
        {"K", {"0", "0", "4", "4", "10", "0"}},
        {"L", {"0", "0", "10", "10", "4", "0"}},
        {"probes", {"1", "1", "1", "1", "1", "1"}},
        {"popular", {"500", "500", "500", "500", "500", "500"}},
        {"router", {"hash", "hash", "hash", "hash", "hash", "hash"}},
        {"nodes", {"0", "0", "0", "0", "0", "0"}},
        {"leaves", {"0", "0", "0", "0", "0", "0"}},
        {"beam", {"0", "0", "0", "0", "2", "0"}},
        {"route_d", {"0", "0", "0", "0", "0", "0"}},
        {"learner", {"mix", "mix", "mix", "mix", "mix", "mix"}},
        {"source", {"both", "both", "both", "both", "both", "both"}},
        {"source_k", {"5", "5", "5", "5", "5", "5"}},
        {"lambda", {"0.1", "0.1", "0.1", "0.1", "0.1", "0.1"}},
        {"thin", {"16", "16", "16", "16", "16", "16"}},
        {"fallback", {"0", "0", "0", "0", "0", "0"}},
        {"iterations", {"0", "0", "1500", "1500", "300", "0"}},
        {"rate", {"0", "0", "0.015", "0.015", "0.02", "0"}},
        {"batch", {"0", "0", "256", "256", "1024", "0"}},
        {"loss", {"paper", "paper", "paper", "paper", "paper", "paper"}},
        {"init", {"random", "random", "random", "random", "random", "random"}},
        {"optimiser", {"adam", "adam", "adam", "adam", "adam", "adam"}},
        {"t1", {"0", "0", "0", "0", "0", "0"}},
        {"t2", {"0", "0", "0", "0", "0", "0"}},
        {"t_are_values", {"0", "0", "0", "0", "0", "0"}},
        {"trace_points", {"50", "50", "50", "50", "50", "50"}},
        {"weights", {"f32", "f32", "f32", "f32", "f32", "f32"}},
        {"seed", {"1", "1", "1", "1", "1", "1"}},
        {"max_neurons", {"0", "0", "0", "0", "0", "0"}},
        {"last_step", {"0", "0", "0", "0", "0", "0"}},
        {"cap", {"0", "0", "0", "0", "0", "0"}},
        {"prior", {"0", "0", "0", "0", "0", "0"}},
        {"focus", {"0", "0", "0", "0", "0", "0"}},
        {"spread", {"0", "0", "0", "0", "0", "0"}},
        {"partition", {"0", "0", "0", "0", "0", "0"}},
        {"fallback_by", {"wider", "wider", "wider", "wider", "wider", "wider"}},
        {"mix", {"-1", "-1", "-1", "-1", "-1", "-1"}},
        {"rows", {"0", "0", "0", "0", "0", "0"}},
        {"keep", {"0", "8192", "0", "0", "8192", "0"}},
    };
    wo_option_info info = {.struct_size = sizeof info};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_true(wo_option_at(i, &info)); /* in the order of the file */
        assert_string_equal(info.name, expected[i].name);
        for (int m = 0; m < WOI_N_METHODS; m++) {
            wo_build_options o;
            char text[40];
            wo_error err;
            wo_build_defaults((wo_method)m, &o, sizeof o);
            get(&o, info.name, text);
            assert_string_equal(text, expected[i].by_method[m]);
            assert_int_equal(wo_build_check(&o, &err), WO_OK);
        }
    }
    assert_false(wo_option_at(sizeof expected / sizeof *expected, &info));
    for (int m = 0; m < WOI_N_METHODS; m++)
        assert_string_equal(woi_method_name((wo_method)m), expected[0].by_method[m]);
}

/* Every bit of wo_tune_options.fixed is some option's, and what the tuner never changes has none. */
static void options_say_what_fixes_them(void **state)
{
    (void)state;
    wo_option_info info = {.struct_size = sizeof info};
    unsigned all = 0;
    for (size_t i = 0; wo_option_at(i, &info); i++) {
        all |= info.fix;
        if (strcmp(info.name, "nodes") == 0 || strcmp(info.name, "leaves") == 0)
            assert_int_equal(info.fix, WO_FIX_TREE);
        if (strcmp(info.name, "focus") == 0) assert_int_equal(info.fix, WO_FIX_PRIOR);
        if (strcmp(info.name, "seed") == 0 || strcmp(info.name, "iterations") == 0) assert_int_equal(info.fix, 0);
    }
    assert_int_equal(all, 2 * WO_FIX_SPREAD - 1); /* the last of them, and all before */
}

/* Each value of each option: set, got, and set from what was got. */
static void what_is_set_is_got(void **state)
{
    (void)state;
    wo_option_info info = {.struct_size = sizeof info};
    for (size_t i = 0; wo_option_at(i, &info); i++) {
        wo_build_options o;
        char text[40], word[40], dashed[40];
        wo_build_defaults(WO_METHOD_EVIDENCE, &o, sizeof o);
        snprintf(dashed, sizeof dashed, "%s", info.name);
        for (char *c = dashed; *c; c++)
            if (*c == '_') *c = '-';
        for (const char *at = info.values; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
            snprintf(word, sizeof word, "%.*s", (int)strcspn(at, "|"), at);
            set(&o, dashed, word);
            get(&o, info.name, text);
            assert_string_equal(text, word);
        }
        if (info.values) {
            assert_int_equal(wo_build_set(&o, info.name, "", NULL), WO_ERR_ARGUMENT);
            continue;
        }
        for (int high = 0; high < 2; high++) {
            const double end = high ? info.high : info.low;
            if (strcmp(info.name, "seed") == 0 && high) continue; /* see below */
            snprintf(word, sizeof word, "%.10g", end);
            set(&o, dashed, word);
            assert_true(woi_option_value(woi_option_find(info.name), &o) == end);
            get(&o, info.name, text);
            assert_true(strtod(text, NULL) == end);
        }
    }
}

static void texts_of_numbers(void **state)
{
    (void)state;
    wo_build_options o;
    char text[40];
    wo_build_defaults(WO_METHOD_EVIDENCE, &o, sizeof o);
    set(&o, "seed", "18446744073709551615");
    assert_true(o.seed == UINT64_MAX);
    get(&o, "seed", text);
    assert_string_equal(text, "18446744073709551615");
    refuse_set(&o, "seed", "18446744073709551616",
               "seed takes a whole number from 0 to 1.844674407e+19, not '18446744073709551616'");
    set(&o, "lambda", "0.1");
    get(&o, "lambda", text);
    assert_string_equal(text, "0.1");
    o.lambda = 0.1 + 1e-17 + 1.0 / 3;
    get(&o, "lambda", text);
    assert_true(strtod(text, NULL) == o.lambda);
    char four[4] = "abc";
    assert_int_equal(wo_build_get(&o, "source", four, sizeof four), 4); /* as snprintf */
    assert_string_equal(four, "bot");
    assert_int_equal(wo_build_get(&o, "source", NULL, 0), 4);
    assert_int_equal(wo_build_get(&o, "colour", text, sizeof text), 0);
    /* A comma for a point is another country's. */
    if (setlocale(LC_ALL, "de_DE.UTF-8") || setlocale(LC_ALL, "fr_FR.UTF-8")) {
        set(&o, "lambda", "0.25");
        get(&o, "lambda", text);
        setlocale(LC_ALL, "C");
        assert_string_equal(text, "0.25");
    }
}

static void values_that_are_none_are_refused(void **state)
{
    (void)state;
    wo_build_options o;
    wo_build_defaults(WO_METHOD_EVIDENCE, &o, sizeof o);
    refuse_set(&o, "K", "25", "K takes a whole number from 1 to 24, not '25'");
    refuse_set(&o, "K", "0", "K takes a whole number from 1 to 24, not '0'");
    refuse_set(&o, "K", "4294967297", "K takes a whole number from 1 to 24, not '4294967297'");
    refuse_set(&o, "K", "-1", "K takes a whole number from 1 to 24, not '-1'");
    refuse_set(&o, "K", "2.5", "K takes a whole number from 1 to 24, not '2.5'");
    refuse_set(&o, "K", " 2", "K takes a whole number from 1 to 24, not ' 2'");
    refuse_set(&o, "K", "", "K takes a whole number from 1 to 24, not ''");
    refuse_set(&o, "nodes", "1025", "nodes takes a whole number from 0 to 1024, not '1025'");
    refuse_set(&o, "leaves", "65537", "leaves takes a whole number from 0 to 65536, not '65537'");
    refuse_set(&o, "prior", "2.5", "prior takes a number from 0 to 2, not '2.5'");
    refuse_set(&o, "focus", "-1", "focus takes a number from 0 to 10000, not '-1'");
    refuse_set(&o, "cap", "0.5", "cap takes a whole number from 0 to 2147483647, not '0.5'");
    refuse_set(&o, "lambda", "nan", "lambda takes a number from 0 to 2, not 'nan'");
    refuse_set(&o, "lambda", "0,1", "lambda takes a number from 0 to 2, not '0,1'");
    refuse_set(&o, "source-k", "0", "source_k takes a whole number from 1 to 1000, not '0'");
    refuse_set(&o, "t_are_values", "2", "t_are_values takes a whole number from 0 to 1, not '2'");
    refuse_set(&o, "last_step", "2", "last_step takes a whole number from 0 to 1, not '2'");
    refuse_set(&o, "max_neurons", "-1", "max_neurons takes a whole number from 0 to 4294967295, not '-1'");
    refuse_set(&o, "max-neurons", "2.5", "max_neurons takes a whole number from 0 to 4294967295, not '2.5'");
    refuse_set(&o, "router", "graph", "router takes hash|tree, not 'graph'");
    refuse_set(&o, "router", "hash|tree", "router takes hash|tree, not 'hash|tree'");
    refuse_set(&o, "colour", "blue", "'colour' is no build option");
    refuse_set(&o, "index.K", "3", "'index.K' is no build option");
    refuse_set(&o, "", "3", "'' is no build option");
    o.struct_size = offsetof(wo_build_options, seed); /* an older program's */
    refuse_set(&o, "seed", "3", "'seed' is no build option");
    assert_int_equal(wo_build_get(&o, "seed", said, sizeof said), 0);
}

static void an_older_program_gets_what_it_knows(void **state)
{
    (void)state;
    wo_option_info info = {.struct_size = offsetof(wo_option_info, values), .values = "mine"};
    assert_true(wo_option_at(5, &info));
    assert_string_equal(info.name, "router");
    assert_string_equal(info.values, "mine");
    assert_int_equal(info.struct_size, offsetof(wo_option_info, values));
}

static void which_options_have_a_part(void **state)
{
    (void)state;
    wo_build_options o;
    wo_build_defaults(WO_METHOD_EVIDENCE, &o, sizeof o);
    assert_true(wo_build_uses(&o, "K") && wo_build_uses(&o, "rate") && wo_build_uses(&o, "source-k"));
    assert_false(wo_build_uses(&o, "beam") || wo_build_uses(&o, "loss") || wo_build_uses(&o, "popular"));
    set(&o, "learner", "none");
    assert_true(wo_build_uses(&o, "learner"));
    assert_false(wo_build_uses(&o, "rate") || wo_build_uses(&o, "iterations") || wo_build_uses(&o, "batch"));
    set(&o, "router", "tree");
    assert_true(wo_build_uses(&o, "beam") && wo_build_uses(&o, "nodes") && wo_build_uses(&o, "probes"));
    assert_false(wo_build_uses(&o, "K") || wo_build_uses(&o, "learner") || wo_build_uses(&o, "colour"));
    wo_build_defaults(WO_METHOD_LSS, &o, sizeof o);
    o.router = WO_ROUTER_TREE; /* which lss does not look at */
    assert_true(wo_build_uses(&o, "K") && wo_build_uses(&o, "rate") && wo_build_uses(&o, "t1"));
    assert_false(wo_build_uses(&o, "router") || wo_build_uses(&o, "beam") || wo_build_uses(&o, "lambda"));
    wo_build_defaults(WO_METHOD_FULL, &o, sizeof o);
    assert_true(wo_build_uses(&o, "weights") && wo_build_uses(&o, "seed") && !wo_build_uses(&o, "probes"));
    o.method = (wo_method)77;
    assert_false(wo_build_uses(&o, "weights"));
}

/* ---- The tool ---------------------------------------------------------------------------------------------- */

/* The entry of an option in a man page: from the line that names it, behind .TP, to the next entry. */
static char *man_entry(const char *page, const char *option)
{
    for (const char *at = page; (at = strstr(at, "\n.TP\n")); at++) {
        const char *name = at + 5, *end = strchr(name, '\n'), *found = strstr(name, option);
        if (!found || found > end || isalnum((unsigned char)found[strlen(option)]) || found[strlen(option)] == '-')
            continue;
        const char *stop = strstr(end, "\n.TP\n"), *section = strstr(end, "\n.S");
        if (!stop || (section && section < stop)) stop = section;
        return strndup(name, (size_t)(stop - name));
    }
    return NULL;
}

/* The page without escapes and fonts, and without commas in numbers. */
static char *plain_page(const char *path)
{
    size_t bytes, used = 0;
    char *page = slurp(path, &bytes);
    for (size_t i = 0; i < bytes; i++) {
        if (page[i] == '\\' && page[i + 1] == '-') continue;
        if (page[i] == ',' && i > 0 && isdigit((unsigned char)page[i - 1]) && isdigit((unsigned char)page[i + 1]))
            continue;
        page[used++] = page[i];
    }
    page[used] = '\0';
    return page;
}

/* `word` stands in the text, not inside another word or number. */
static bool has_word(const char *text, const char *word)
{
    const size_t bytes = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at++) {
        const char before = at > text ? at[-1] : ' ', after = at[bytes];
        if (isalnum((unsigned char)before) || before == '.' || before == '-' || isalnum((unsigned char)after)) continue;
        if (after == '.' && isdigit((unsigned char)at[bytes + 1])) continue;
        return true;
    }
    return false;
}

static void assert_told(const char *where, const char *text, const wo_option_info *info)
{
    char word[40];
    for (const char *at = info->values; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, "|"), at);
        if (!has_word(text, word)) fail_msg("%s does not name %s of %s", where, word, info->name);
    }
    if (strcmp(info->name, "method") == 0 || is_flag(info)) return; /* chosen by the tuner; off */
    for (int m = 0; m < WOI_N_METHODS; m++) {
        wo_build_options o;
        if (!(info->methods >> m & 1)) continue;
        wo_build_defaults((wo_method)m, &o, sizeof o);
        get(&o, info->name, word);
        if (!has_word(text, word)) fail_msg("%s does not name %s, the default of %s", where, word, info->name);
    }
}

static const cli_option *find_cli_option(const char *name)
{
    for (const cli_option *o = cli_build_options(0); o->name; o++)
        if (strcmp(o->name, name) == 0) return o;
    return NULL;
}

static void the_man_page_and_the_help_tell_all(void **state)
{
    (void)state;
    char *page = plain_page("docs/man/wideout-build.1"), name[WORD], text[512];
    wo_option_info info;
    for (size_t i = 0; option_at(i, &info); i++) {
        long_name(info.name, name);
        snprintf(text, sizeof text, "--%s", name);
        char *entry = man_entry(page, text);
        if (!entry) fail_msg("the man page has no entry for %s", text);
        assert_told("the man page", entry, &info);
        free(entry);
        const cli_option *option = find_cli_option(name);
        assert_true(!option == (strcmp(info.name, "seed") == 0)); /* which every command has */
        if (!option) continue;
        snprintf(text, sizeof text, "%s %s", option->value ? option->value : "", option->help);
        assert_told("the help", text, &info);
    }
    free(page);
}

static void the_check_of_the_man_page_can_fail(void **state)
{
    (void)state;
    char *page = plain_page(scratch_text("page", "\n.TP\n.BI \\-\\-rate \" X\"\nBy default 1,500.\n.SS Next\n0.02\n"));
    char *entry = man_entry(page, "--rate");
    assert_non_null(entry);
    assert_true(has_word(entry, "1500") && !has_word(entry, "0.02") && !has_word(entry, "500"));
    assert_null(man_entry(page, "--ra"));
    free(entry);
    free(page);
}

static void the_tool_sets_what_was_given(void **state)
{
    (void)state;
    wo_option_info info;
    cli_build given = {{NULL}, {false}};
    wo_build_options o;
    wo_method method;
    wo_build_defaults(WO_METHOD_LSS, &o, sizeof o);
    for (size_t i = 0; option_at(i, &info); i++) {
        if (strcmp(info.name, "K") == 0) given.text[i] = "5";
        if (strcmp(info.name, "loss") == 0) given.text[i] = "margin";
        if (strcmp(info.name, "t_are_values") == 0) given.flag[i] = true;
        if (strcmp(info.name, "method") == 0) given.text[i] = "lss";
    }
    assert_int_equal(cli_build_method(NULL, &given, &method), CLI_OK);
    assert_int_equal(method, WO_METHOD_LSS);
    assert_int_equal(cli_build_set(NULL, &given, &o), CLI_OK);
    assert_true(o.K == 5 && o.loss == WO_LOSS_MARGIN && o.t_are_values == 1);
    assert_true(cli_build_given(&given, "K") && cli_build_given(&given, "t_are_values"));
    assert_false(cli_build_given(&given, "L") || cli_build_given(&given, "colour"));
    for (size_t i = 0; option_at(i, &info); i++)
        if (strcmp(info.name, "K") == 0) given.text[i] = "x";
    assert_int_equal(cli_build_set(NULL, &given, &o), CLI_USAGE);
    assert_string_equal(said, "-K takes a whole number from 1 to 24, not 'x'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_defaults),
        cmocka_unit_test(options_say_what_fixes_them),
        cmocka_unit_test(what_is_set_is_got),
        cmocka_unit_test(texts_of_numbers),
        cmocka_unit_test(values_that_are_none_are_refused),
        cmocka_unit_test(an_older_program_gets_what_it_knows),
        cmocka_unit_test(which_options_have_a_part),
        cmocka_unit_test(the_man_page_and_the_help_tell_all),
        cmocka_unit_test(the_check_of_the_man_page_can_fail),
        cmocka_unit_test(the_tool_sets_what_was_given),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
