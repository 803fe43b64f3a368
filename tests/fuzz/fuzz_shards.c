/* What a shard answers, as a front of shards reads it: an input is the JSON, a line end, and the tensors behind it.
 * Whatever is read can be merged, and what is merged is in order. */
#include "fuzz.h"

#include "serve/shards.h"

#include <math.h>
#include <string.h>

enum { N = 2, K = 3, M = 64 };

static void require(bool fine)
{
    if (!fine) abort();
}

static void run(const woi_piece_body *body, bool names, wo_scores score)
{
    int32_t ids[N * K];
    float scores[N * K];
    wo_query_stats stats[N];
    char why[WOI_WHY_BYTES] = "";
    woi_job job = {.n = N, .k = K, .names = names, .score = score, .ids = ids, .scores = scores, .stats = stats};
    woi_piece piece;
    if (!woi_piece_read(&piece, &job, M, body, why)) {
        require(why[0] && !piece.ids && !piece.scores && !piece.name_at);
        return;
    }
    const woi_piece both[] = {piece, piece};
    const woi_piece_body bodies[] = {*body, *body};
    require(woi_pieces_merge(&job, both, bodies, 2));
    for (size_t i = 0; i < N * K; i++) {
        size_t bytes = 0;
        require(ids[i] >= -1 && ids[i] < M && (ids[i] < 0 || isfinite(scores[i]) || score == WO_SCORES_LOGPROB));
        if (i % K && ids[i] >= 0) require(ids[i] != ids[i - 1] && scores[i] <= scores[i - 1]);
        if (names) require(woi_job_label(&job, &(woi_snapshot){0}, i, &bytes) && bytes <= body->bytes);
    }
    free(job.labels);
    free(job.label_at);
    woi_piece_free(&piece);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const uint8_t *end = memchr(data, '\n', bytes);
    const size_t json = end ? (size_t)(end - data) : bytes, rest = end ? bytes - json - 1 : 0;
    char *text = malloc(json + rest + 1); /* of its own, so that a read beyond it is seen */
    require(text);
    memcpy(text, data, json);
    memcpy(text + json, data + bytes - rest, rest);
    char *exact = json + rest ? realloc(text, json + rest) : text;
    const woi_piece_body body = {exact, json + rest, json};
    run(&body, true, WO_SCORES_LOGITS);
    run(&body, false, WO_SCORES_LOGPROB);
    free(exact);
    return 0;
}
