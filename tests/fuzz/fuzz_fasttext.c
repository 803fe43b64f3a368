/* Any bytes as a model of fastText's: refused with a sentence, or its layer and its network can be had, and lines read
 * as rows that the network has. */
#include "fuzz.h"

#include "net/fasttext.h"

#include <string.h>

static void check_line(const woi_network *net, const char *text, size_t bytes)
{
    woi_fasttext_lines lines = {.net = net, .threads = 1};
    float *q = malloc(net->d * sizeof *q);
    if (!q) abort();
    woi_fasttext_begin(&lines, q);
    if (woi_fasttext_read(&lines, text, bytes, bytes % 2, NULL) != WO_OK || lines.n != 1) abort();
    if (lines.n_rows != lines.counts[0]) abort();
    for (size_t i = 0; i < lines.n_rows; i++)
        if (lines.rows[i] < 0 || (size_t)lines.rows[i] >= net->n_inputs) abort();
    for (size_t i = 0; i < lines.n_labels; i++)
        if (lines.labels[i] < 0 || (size_t)lines.labels[i] >= net->m) abort();
    woi_fasttext_end(&lines);
    woi_fasttext_free(&lines);
    free(q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char text[] = "__label__fruit a pear\tand an apple in the Stra\xc3\x9f"
                               "e \xff </s> unheard";
    char path[32];
    const int fd = fuzz_file(data, bytes, path);
    woi_network *net = NULL;
    wo_layer *layer = NULL;
    wo_error err = {0};
    const wo_status status = woi_fasttext_network(path, &net, &err);
    if (status && !err.text[0]) abort();
    if (!status) {
        check_line(net, text, sizeof text - 1);
        check_line(net, (const char *)data, bytes < 400 ? bytes : 400);
        if (wo_layer_open(path, NULL, &layer, &err) || wo_layer_m(layer) != net->m) abort();
    }
    wo_layer_free(layer);
    woi_network_free(net);
    close(fd);
    return 0;
}
