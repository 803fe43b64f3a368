/* A language model word by word: see reader.h. The same steps as queries.c makes over a file, one at a time. */
#include "net/reader.h"

#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "net/lstm.h"

#include <assert.h>
#include <string.h>

struct woi_reader {
    const woi_network *net;
    woi_lstm lstm;
    woi_lstm_slice *slice; /* of one step */
    float *hidden;         /* (d) */
};

wo_status woi_reader_create(const woi_network *net, woi_reader **reader, wo_error *err)
{
    *reader = NULL;
    if (net->arch != WOI_ARCH_LM)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "is a network of kind %s, expected a language model (lm)",
                        woi_arch_name(net->arch));
    if (net->labels.n == 0)
        return woi_fail(err, WO_ERR_ARGUMENT, WO_NO_OFFSET, "has no vocabulary: it cannot read words");
    woi_reader *r = woi_alloc_zero(1, sizeof *r, err);
    if (!r) return WO_ERR_MEMORY;
    r->net = net;
    r->lstm = woi_network_lstm(net);
    wo_status status = woi_lstm_slice_create(net->d, 1, 1, &r->slice, err);
    if (!status && !(r->hidden = woi_alloc(net->d, sizeof *r->hidden, err))) status = WO_ERR_MEMORY;
    if (status)
        woi_reader_free(r);
    else
        *reader = r;
    return status;
}

void woi_reader_free(woi_reader *r)
{
    if (!r) return;
    woi_lstm_slice_free(r->slice);
    woi_free(r->hidden);
    woi_free(r);
}

void woi_reader_reset(woi_reader *r)
{
    woi_lstm_slice_reset(r->slice);
}

const float *woi_reader_take(woi_reader *r, int32_t word)
{
    assert(word >= 0 && (size_t)word < r->net->n_inputs);
    woi_lstm_forward(&r->lstm, r->slice, 1, r->net->params[0].w + (size_t)word * r->net->d, NULL, r->hidden);
    return r->hidden;
}

wo_status woi_reader_read(woi_reader *r, const char *text, const float **query, size_t *n_words, wo_error *err)
{
    static const char space[] = " \t\n\v\f\r";
    const woi_names *known = &r->net->labels;
    *n_words = 0;
    if (!woi_utf8_valid(text, strlen(text))) return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "is not UTF-8");
    for (text += strspn(text, space); *text; text += strspn(text, space)) {
        const size_t bytes = strcspn(text, space);
        int32_t id = woi_names_find(known, text, bytes);
        if (id < 0) id = woi_names_find(known, "<unk>", 5);
        char quoted[WOI_QUOTE_BYTES];
        if (id < 0)
            return woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET,
                            "the word '%s' is not in the network's vocabulary, which has no <unk>",
                            woi_quote(quoted, text, bytes));
        *query = woi_reader_take(r, id);
        ++*n_words;
        text += bytes;
    }
    return *n_words ? WO_OK : woi_fail(err, WO_ERR_FORMAT, WO_NO_OFFSET, "has no words");
}
