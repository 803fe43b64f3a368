/* The options of `build`, from the library's table: see build_options.h. */
#include "build_options.h"

#include "words.h"

#include <string.h>

enum { WORD = 32, HELP = 256 };

static bool option_at(size_t i, wo_option_info *info)
{
    info->struct_size = sizeof *info;
    return i < CLI_BUILD_MAX && wo_option_at(i, info);
}

static bool is_flag(const wo_option_info *info)
{
    return !info->values && info->whole && info->low == 0 && info->high == 1;
}

/* Whether it may be left to be chosen, by the word auto. */
static bool is_auto(const wo_option_info *info)
{
    return strcmp(info->name, "prior") == 0 || strcmp(info->name, "mix") == 0;
}

/* K is -K too. */
static char letter_of(const char *name)
{
    return name[1] ? '\0' : name[0];
}

/* "source-k". The tool's --batch is that of searches. */
static void long_name(const char *name, char text[WORD])
{
    snprintf(text, WORD, "%s", strcmp(name, "batch") == 0 ? "learn-batch" : cli_word_of(name));
    for (char *c = text; *c; c++)
        if (*c == '_') *c = '-';
}

/* As sentences call it: "-K", "--source-k". */
static void shown_name(const char *name, char text[WORD])
{
    if (letter_of(name)) {
        snprintf(text, WORD, "-%c", letter_of(name));
    } else {
        text[0] = text[1] = '-';
        char plain[WORD];
        long_name(name, plain);
        snprintf(text + 2, WORD - 2, "%.*s", WORD - 3, plain);
    }
}

/* ---- Help -------------------------------------------------------------------------------------------------- */

static void method_word(wo_method method, char text[WORD])
{
    wo_build_options o;
    wo_build_defaults(method, &o, sizeof o);
    wo_build_get(&o, "method", text, WORD);
}

/* "slide, lss and evidence" */
static void list_methods(unsigned methods, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (unsigned m = 0, n = 0; methods >> m; m++) {
        char word[WORD];
        if (!(methods >> m & 1)) continue;
        method_word((wo_method)m, word);
        const char *join = n++ == 0 ? "" : methods >> (m + 1) == 0 ? " and " : ", ";
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", join, word);
        if (used >= bytes) return;
    }
}

static void default_of(const char *name, wo_method method, char text[WORD])
{
    wo_build_options o;
    wo_build_defaults(method, &o, sizeof o);
    wo_build_get(&o, name, text, WORD);
}

/* "10; slide and lss: 4": that of the last method, which is the one to use, then others. */
static void list_defaults(const wo_option_info *info, char *text, size_t bytes)
{
    char main[WORD], other[WORD] = "", who[WORD];
    unsigned rest = 0;
    wo_method last = WO_METHOD_FULL;
    for (unsigned m = 0; info->methods >> m; m++)
        if (info->methods >> m & 1) last = (wo_method)m;
    default_of(info->name, last, main);
    for (unsigned m = 0; m < (unsigned)last; m++) {
        char own[WORD];
        default_of(info->name, (wo_method)m, own);
        if (!(info->methods >> m & 1) || strcmp(own, main) == 0) continue;
        snprintf(other, sizeof other, "%s", own);
        rest |= 1u << m;
    }
    list_methods(rest, who, sizeof who);
    snprintf(text, bytes, "%s%s%s%s%s", main, rest ? ", " : "", who, rest ? " " : "", other);
}

/* "evidence: ", "tree: ", nothing for all methods. */
static void whose(const wo_option_info *info, char *text, size_t bytes)
{
    const unsigned evidence = 1u << WO_METHOD_EVIDENCE;
    text[0] = '\0';
    if (info->methods == evidence && info->routers == 1u << WO_ROUTER_TREE)
        snprintf(text, bytes, "tree: ");
    else if (!(info->methods & 1u << WO_METHOD_FULL) && info->methods != 0)
        list_methods(info->methods, text, bytes);
    if (text[0] && !strchr(text, ':')) strncat(text, ": ", bytes - strlen(text) - 1);
}

static void make_help(const wo_option_info *info, char text[HELP])
{
    char owner[48], defaults[128], range[48] = "";
    whose(info, owner, sizeof owner);
    list_defaults(info, defaults, sizeof defaults);
    if (!info->values && info->high > 2e9)
        snprintf(range, sizeof range, "%.10g or more; ", info->low);
    else if (!info->values && info->low > -1e9)
        snprintf(range, sizeof range, "%.10g to %.10g; ", info->low, info->high);
    if (strcmp(info->name, "method") == 0)
        snprintf(text, HELP, "%s (default: what tuning finds best)", info->help);
    else if (is_flag(info))
        snprintf(text, HELP, "%s%s", owner, info->help);
    else
        snprintf(text, HELP, "%s%s\n(%sdefault: %s)", owner, info->help, range, defaults);
}

const cli_option *cli_build_options(size_t offset)
{
    static cli_option options[CLI_BUILD_MAX + 1];
    static char names[CLI_BUILD_MAX][WORD], helps[CLI_BUILD_MAX][HELP];
    wo_option_info info;
    size_t n = 0;
    for (size_t i = 0; option_at(i, &info); i++) {
        if (strcmp(info.name, "seed") == 0) continue;
        const size_t at = is_flag(&info) ? offsetof(cli_build, flag) + i * sizeof(bool)
                                         : offsetof(cli_build, text) + i * sizeof(char *);
        long_name(info.name, names[n]);
        make_help(&info, helps[n]);
        options[n] = (cli_option){.name = names[n],
                                  .letter = letter_of(info.name),
                                  .kind = is_flag(&info) ? CLI_FLAG : CLI_TEXT,
                                  .offset = offset + at,
                                  .value = is_flag(&info)   ? NULL
                                           : info.values    ? info.values
                                           : is_auto(&info) ? "auto|off|X"
                                           : info.whole     ? "N"
                                                            : "X",
                                  .help = helps[n]};
        n++;
    }
    options[n] = (cli_option){0};
    return options;
}

/* ---- What was given ---------------------------------------------------------------------------------------- */

/* What the i-th option was given as, NULL: it was not. A word leaves it to be chosen, or switches it off. */
static const char *text_of(const cli_build *given, size_t i, const wo_option_info *info)
{
    const char *text = given->flag[i] ? "1" : given->text[i];
    if (!text || !is_auto(info)) return text;
    return strcmp(text, "auto") == 0 ? NULL : strcmp(text, "off") == 0 ? "0" : text;
}

bool cli_build_given(const cli_build *given, const char *name)
{
    wo_option_info info;
    for (size_t i = 0; option_at(i, &info); i++)
        if (strcmp(info.name, name) == 0) return text_of(given, i, &info);
    return false;
}

unsigned cli_build_fixed(const cli_build *given)
{
    wo_option_info info;
    unsigned fixed = 0;
    for (size_t i = 0; option_at(i, &info); i++)
        if (text_of(given, i, &info)) fixed |= info.fix;
    return fixed;
}

/* The library's sentence, in the tool's words: where it is about an option, it may begin with the name. */
static int refuse(const cli_command *self, const wo_error *err)
{
    const size_t bytes = err->about == WO_ABOUT_OPTION ? strlen(err->option) : 0;
    char shown[WORD];
    if (!bytes || strncmp(err->text, err->option, bytes) != 0 || err->text[bytes] != ' ')
        return cli_usage(self, "%s", err->text);
    shown_name(err->option, shown);
    return cli_usage(self, "%s%s", shown, err->text + bytes);
}

int cli_build_method(const cli_command *self, const cli_build *given, wo_method *method)
{
    wo_build_options o;
    wo_option_info info;
    wo_error err;
    wo_build_defaults(WO_METHOD_EVIDENCE, &o, sizeof o);
    for (size_t i = 0; option_at(i, &info); i++)
        if (given->text[i] && strcmp(info.name, "method") == 0 && wo_build_set(&o, info.name, given->text[i], &err))
            return refuse(self, &err);
    *method = o.method;
    return CLI_OK;
}

/* Why an option has no part in the index. */
static int refuse_unused(const cli_command *self, const wo_option_info *info, const wo_build_options *o)
{
    char shown[WORD], own[WORD], list[64];
    shown_name(info->name, shown);
    method_word(o->method, own);
    list_methods(info->methods, list, sizeof list);
    if (!(info->methods >> o->method & 1))
        return cli_usage(self, "%s belongs to --method %s, not to %s", shown, list, own);
    if (!(info->routers >> o->router & 1))
        return cli_usage(self, "%s belongs to --router %s", shown, o->router == WO_ROUTER_TREE ? "hash" : "tree");
    if (strcmp(info->name, "mix") == 0) return cli_usage(self, "%s is of probabilities: give --partition too", shown);
    return cli_usage(self, "%s is for learning, and --learner none does not", shown);
}

int cli_build_set(const cli_command *self, const cli_build *given, wo_build_options *options)
{
    wo_option_info info;
    wo_error err;
    for (size_t i = 0; option_at(i, &info); i++) {
        const char *text = text_of(given, i, &info);
        if (text && wo_build_set(options, info.name, text, &err)) return refuse(self, &err);
    }
    for (size_t i = 0; option_at(i, &info); i++)
        if (text_of(given, i, &info) && !wo_build_uses(options, info.name)) return refuse_unused(self, &info, options);
    return wo_build_check(options, &err) ? refuse(self, &err) : CLI_OK;
}

size_t cli_build_text(const wo_build_options *options, char *text, size_t text_bytes)
{
    wo_option_info info;
    size_t used = 0;
    if (text_bytes) text[0] = '\0';
    for (size_t i = 0; option_at(i, &info); i++) {
        char shown[WORD], value[WORD];
        if (!wo_build_uses(options, info.name)) continue;
        wo_build_get(options, info.name, value, sizeof value);
        shown_name(info.name, shown);
        if (is_flag(&info) && strcmp(value, "0") == 0) continue;
        const size_t left = used < text_bytes ? text_bytes - used : 0;
        used += (size_t)snprintf(left ? text + used : NULL, left, is_flag(&info) ? " %s" : " %s %s", shown, value);
    }
    return used;
}
