/* From what the library says a failure is about to files and options of the tool. */
#include "blame.h"

#include "store/store.h"
#include "words.h"

#include <string.h>

static const char *file_of(const cli_files *files, const wo_error *err)
{
    switch (err->about) {
    case WO_ABOUT_LAYER: return files->layer;
    case WO_ABOUT_BIAS: return files->bias;
    case WO_ABOUT_LOG: return files->log;
    case WO_ABOUT_TUNE_LOG: return files->tune_log;
    case WO_ABOUT_INDEX: return files->index;
    case WO_ABOUT_QUERY: return files->query;
    case WO_ABOUT_OUTPUT: return files->output;
    case WO_ABOUT_LABELS: return strcmp(err->option, "tune_log") == 0 ? files->tune_labels : files->labels;
    case WO_ABOUT_OPTION: return strcmp(err->option, "checkpoint") == 0 ? files->checkpoint : NULL;
    case WO_ABOUT_NONE: break;
    }
    return NULL;
}

/* What helps, by what the failure is about, the option, and the status. */
static const struct hint {
    wo_about about;
    const char *option;
    wo_status status; /* WO_OK: any */
    const char *text;
} hints[] = {
    {WO_ABOUT_LAYER, "weight_name", WO_ERR_FORMAT, "choose with --weight-name NAME"},
    {WO_ABOUT_LAYER, "weight_name", WO_ERR_ARGUMENT, "leave out --weight-name"},
    {WO_ABOUT_LAYER, "bias_name", WO_ERR_FORMAT, "choose with --bias-name NAME"},
    {WO_ABOUT_LAYER, "bias_name", WO_ERR_ARGUMENT, "leave out --bias-name"},
    {WO_ABOUT_LAYER, "bias_path", WO_OK, "name a tensor with --bias-name NAME instead of --bias"},
    {WO_ABOUT_LAYER, "bias", WO_OK, "--bias-name NAME or --bias FILE gives one"},
    {WO_ABOUT_INDEX, "layer", WO_OK, "give the layer too: --layer FILE"},
    {WO_ABOUT_INDEX, "keep", WO_OK, "build it anew: 'wideout build' keeps some unless --keep is 0"},
    {WO_ABOUT_INDEX, "shard", WO_OK, "'wideout join' makes one index of all, 'wideout-mpi eval' asks all"},
    {WO_ABOUT_INDEX, "partition", WO_OK, "build it with --partition, or ask for --exact"},
    {WO_ABOUT_OUTPUT, "resume", WO_OK, "--resume names each file as soon as it is complete"},
    {WO_ABOUT_LOG, "tune_log", WO_OK, "give another one with --tune-log FILE"},
    {WO_ABOUT_LOG, "target", WO_OK, "ask with --target-agree or --target-us"},
    {WO_ABOUT_TUNE_LOG, "target", WO_OK, "ask with --target-agree or --target-us"},
    {WO_ABOUT_LOG, "source", WO_OK, "--source top takes it"},
};

static const char *hint_of(const wo_error *err)
{
    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++)
        if (hints[i].about == err->about && strcmp(hints[i].option, err->option) == 0 &&
            (hints[i].status == WO_OK || hints[i].status == err->status))
            return hints[i].text;
    return NULL;
}

/* A file that was taken for another: the layer is a log, or the log a layer. */
static const char *swapped(const cli_files *files, const wo_error *err)
{
    static const char *const layers[] = {"weight", "output.weight", "lm_head.weight"};
    const char *path = file_of(files, err);
    const bool log_wanted = err->about == WO_ABOUT_LOG || err->about == WO_ABOUT_TUNE_LOG;
    woi_st *st = NULL;
    bool other = false;
    if (err->status != WO_ERR_FORMAT || !path || (!log_wanted && err->about != WO_ABOUT_LAYER)) return NULL;
    if (woi_st_open(path, &st, NULL)) return NULL;
    if (!log_wanted) other = woi_st_find(st, "queries") != NULL;
    for (size_t i = 0; log_wanted && i < sizeof layers / sizeof *layers; i++)
        other |= woi_st_find(st, layers[i]) != NULL;
    woi_st_free(st);
    return !other ? NULL : log_wanted ? "it is a layer: are two files swapped?" : "it is a log: are two files swapped?";
}

/* Raw data where a log is wanted: whoever has only these needs a network first. */
static const char *raw(const cli_files *files, const wo_error *err)
{
    const char *path = file_of(files, err);
    char head[64];
    woi_file_kind kind;
    if (err->status != WO_ERR_FORMAT || !path || (err->about != WO_ABOUT_LOG && err->about != WO_ABOUT_TUNE_LOG))
        return NULL;
    if (woi_file_recognise(path, &kind, NULL) || kind != WOI_FILE_XC) return NULL; /* or any text */
    FILE *file = fopen(path, "re");
    const size_t n = file ? fread(head, 1, sizeof head, file) : 0;
    if (file) fclose(file);
    for (size_t i = 0, bytes; i + 4 <= n; i += bytes) { /* the last character may be cut */
        bool fit;
        bytes = cli_character(head + i, n - i, &fit);
        if (!fit && !strchr("\t\r\n", head[i])) return NULL;
    }
    return n ? "it looks like text: 'wideout embed' makes a log of raw data" : NULL;
}

static const cli_option *find(const cli_option *options, const char *name)
{
    for (; options && options->name; options++)
        if (strcmp(options->name, name) == 0) return options;
    return NULL;
}

/* The command's own option, as it is written: "--source-k", "-K"; NULL where it has none. */
static const char *option_of(const cli_command *command, const char *option, char text[64])
{
    char here[sizeof((wo_error *)0)->option];
    snprintf(here, sizeof here, "%s", cli_word_of(option));
    for (char *c = here; *c; c++)
        if (*c == '_') *c = '-';
    const cli_option *found = find(command->options, here);
    if (!found) found = find(cli_common_options, here);
    if (!found) return NULL;
    if (found->letter)
        snprintf(text, 64, "-%c", found->letter);
    else
        snprintf(text, 64, "--%s", found->name);
    return text;
}

int cli_blame(const cli_command *command, const cli_files *files, const wo_error *err)
{
    char option[64];
    const char *about = file_of(files, err);
    if (!about && err->about == WO_ABOUT_OPTION) about = option_of(command, err->option, option);
    const char *hint = swapped(files, err);
    if (!hint) hint = raw(files, err);
    return cli_fail_hint(about, err, hint ? hint : hint_of(err));
}

void cli_warn_bias(const char *path, const char *tensor)
{
    fprintf(stderr, "%s: warning: ", cli_program);
    cli_print_text(stderr, path);
    fputs(": the layer has no bias of its weight's name, but there is '", stderr);
    cli_print_text(stderr, tensor);
    fputs("' of as many numbers: --bias-name takes it\n", stderr);
}
