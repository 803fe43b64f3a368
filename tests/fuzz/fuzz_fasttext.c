/* Any bytes as a model of fastText's: refused with a sentence, or its layer and its network can be had, and lines read
 * as rows that the network has. */
#include "fuzz.h"

#include "net/fasttext.h"

#include <string.h>

static void check_line(const woi_network *net, const char *text, size_t bytes)
{
    woi_fasttext_line line = {0};
    if (woi_fasttext_read(net, text, bytes, bytes % 2, &line, NULL) != WO_OK) abort();
    for (size_t i = 0; i < line.n_rows; i++)
        if (line.rows[i] < 0 || (size_t)line.rows[i] >= net->n_inputs) abort();
    for (size_t i = 0; i < line.n_labels; i++)
        if (line.labels[i] < 0 || (size_t)line.labels[i] >= net->m) abort();
    woi_fasttext_line_free(&line);
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
