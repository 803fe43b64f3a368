/* From what the library and the workshop say of a failure to the option or the command that helps. */
#include "hints.h"

#include <string.h>

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
    /* Of the workshop, whose data are files that the command names before the sentence. */
    {WO_ABOUT_NONE, "lenient", WO_OK, "--lenient accepts it"},
    {WO_ABOUT_NONE, "path", WO_OK, "'wideout info' says what a file is"},
    {WO_ABOUT_NONE, "matrix", WO_OK, "'wideout data xc' joins the two files of the two-file form"},
    {WO_ABOUT_NONE, "fasttext", WO_OK, "its trained .bin is a network: 'wideout embed FILE.bin --data TEXT'"},
    {WO_ABOUT_NONE, "counts", WO_OK, "'wideout data split' of the whole set gives its parts one header"},
    {WO_ABOUT_NONE, "tokens", WO_OK, "'wideout data text' makes one of text"},
    {WO_ABOUT_NONE, "shares", WO_OK, "--split says how large the parts are"},
    {WO_ABOUT_NONE, "min_labels", WO_OK, "--min-label-count takes fewer"},
    {WO_ABOUT_NONE, "distinct", WO_OK, "leave out --distinct"},
    {WO_ABOUT_NONE, "lr", WO_OK, "try a smaller --lr"},
    {WO_ABOUT_NONE, "log1p", WO_OK, "try --counts raw"},
    {WO_ABOUT_NONE, "drop_top", WO_OK, "try a smaller --drop-top"},
    {WO_ABOUT_NONE, "auto_epochs", WO_OK, "give --epochs a number"},
    {WO_ABOUT_NONE, "resume", WO_ERR_ARGUMENT, "delete it, or train without --resume"},
    {WO_ABOUT_NONE, "resume", WO_ERR_CANCELLED, "--resume goes on from the end of the one before"},
};

const char *cli_hint_of(const wo_error *err)
{
    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++)
        if (hints[i].about == err->about && strcmp(hints[i].option, err->option) == 0 &&
            (hints[i].status == WO_OK || hints[i].status == err->status))
            return hints[i].text;
    return NULL;
}
