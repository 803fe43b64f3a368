/* wideout data deb822: the package catalogue of a Debian or Ubuntu machine as an extreme-classification data set. */
#include "cli.h"
#include "inputs.h"
#include "net/net.h"
#include "outputs.h"

#include <jansson.h>

typedef struct arguments {
    cli_common common;
    const char *output;
    uint64_t min_label_count, min_feature_count;
} arguments;

static const cli_option options[] = {
    {"output", 'o', CLI_OUTPUT, offsetof(arguments, output), "DIR", "the folder to write to, made where it is missing",
     false},
    {"min-label-count", 0, CLI_SIZE, offsetof(arguments, min_label_count), "N",
     "keep labels that N packages or more have (default: 2)", false},
    {"min-feature-count", 0, CLI_SIZE, offsetof(arguments, min_feature_count), "N",
     "keep features that N packages or more have (default: 2)", false},
    {0},
};

enum { DEFAULT_COUNT = 2, FEATURES = WOI_DEB822_PARTS, LABELS };
static const char *const names[] = {"train.txt", "valid.txt", "test.txt", "features.txt", "labels.txt", NULL};

static wo_status write_files(const woi_catalogue *catalogue, cli_outputs *outputs, const char *folder)
{
    wo_status status = cli_outputs_open(outputs, folder, names);
    for (int i = 0; !status && i < outputs->n; i++) {
        if ((status = cli_outputs_create(outputs, i))) break;
        if (i == FEATURES)
            status = woi_names_print(woi_catalogue_features(catalogue), outputs->file[i], &outputs->err);
        else if (i == LABELS)
            status = woi_names_print(woi_catalogue_labels(catalogue), outputs->file[i], &outputs->err);
        else
            status = woi_catalogue_write(catalogue, i, outputs->file[i], &outputs->err);
    }
    return status ? status : cli_outputs_commit(outputs);
}

static int report(const woi_catalogue_counts *c, const arguments *args, double seconds)
{
    uint64_t n = c->part[0] + c->part[1] + c->part[2];
    if (args->common.json)
        return cli_print_json(
            json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "stanzas", (json_int_t)c->n_stanzas,
                      "packages", (json_int_t)n, "train", (json_int_t)c->part[0], "valid", (json_int_t)c->part[1],
                      "test", (json_int_t)c->part[2], "features", (json_int_t)c->n_features, "labels",
                      (json_int_t)c->n_labels, "dropped_without_label", (json_int_t)c->unlabelled, "dropped_repeated",
                      (json_int_t)c->repeated, "dropped_without_name", (json_int_t)c->nameless, "seconds", seconds));
    printf("wrote ");
    cli_print_text(stdout, args->output);
    printf(": %s (%s train, %s valid, %s test), %s, %s\n", cli_count(n, "package"), cli_number(c->part[0]),
           cli_number(c->part[1]), cli_number(c->part[2]), cli_count(c->n_features, "feature"),
           cli_count(c->n_labels, "label"));
    printf("dropped of %s: %s without a label, %s repeated, %s without a name\n", cli_count(c->n_stanzas, "stanza"),
           cli_number(c->unlabelled), cli_number(c->repeated), cli_number(c->nameless));
    return cli_end();
}

static int run(const cli_command *self, void *given, int n, char **rest)
{
    const arguments *args = given;
    if (n > 1) return cli_usage(self, "expected one file, found %d", n);
    if (!args->output) return cli_usage(self, "needs -o DIR, the folder to write to");
    if (cli_output_try_folder(args->output, names)) return CLI_FAILED;
    uint64_t min_labels = args->min_label_count ? args->min_label_count : DEFAULT_COUNT;
    uint64_t min_features = args->min_feature_count ? args->min_feature_count : DEFAULT_COUNT;
    double start = woi_now_s();
    const char *path = n ? rest[0] : "-";
    const int refused = cli_refuse_inputs_in(self, args->output, names, &path, 1);
    if (refused) return refused;
    cli_outputs outputs = {.at = path[0] == '-' && !path[1] ? "standard input" : path};
    wo_progress progress = cli_progress(&args->common);
    woi_catalogue *catalogue = NULL;
    wo_status status = woi_catalogue_read(
        path,
        &(woi_catalogue_options){
            .min_features = min_features, .min_labels = min_labels, .seed = args->common.seed, .progress = &progress},
        &catalogue, &outputs.err);
    if (!status) status = write_files(catalogue, &outputs, args->output);
    cli_progress_end();
    int code = status ? cli_fail(outputs.at, &outputs.err)
                      : report(woi_catalogue_get_counts(catalogue), args, woi_now_s() - start);
    cli_outputs_free(&outputs);
    woi_catalogue_free(catalogue);
    return code;
}

const cli_command cli_cmd_data_deb822 = {
    "data deb822",
    "[options] -o DIR [FILE|-]",
    "make a data set of Debian package stanzas",
    "Every Debian or Ubuntu machine carries a real extreme-classification set, its package catalogue:\n"
    "what a package is, and which of tens of thousands of packages it needs.\n"
    "\n"
    "  apt-cache dumpavail | wideout data deb822 -o debian\n"
    "  apt-cache dumpavail | wideout data deb822 --min-label-count 1 -o debian-all\n"
    "  wideout data deb822 Packages.gz -o debian\n"
    "\n"
    "Writes to DIR: train.txt, valid.txt and test.txt (80, 5 and 15 in a hundred packages, by a hash of\n"
    "the package name and --seed), features.txt and labels.txt (names; line number, from 0, = id).\n"
    "Files with these names are replaced, all of them or none.\n"
    "\n"
    "Features are words of the short description (desc:), parts of the name without digits (name:),\n"
    "section:, maint:, each tag:, and source: without digits; a feature's value is its count. Labels are\n"
    "all packages named in Depends, Pre-Depends, Recommends and Suggests, alternatives included, without\n"
    "versions. How many packages have a feature or label is counted over all stanzas, before the split;\n"
    "ids go by that number, largest first, then by name. Packages left without a label are dropped. Of\n"
    "several stanzas of one package the first counts; those without a name are skipped. Bytes that are\n"
    "not UTF-8 are read as '?'.",
    options,
    sizeof(arguments),
    run,
};
