/* A server in front of others, each with a part of the classes (--shards):
 *
 *   shards.c   who they are: asked at the start, and every second from then on; whether they fit together
 *   fanout.c   a job goes to all of them at once, by libcurl, which no other file knows
 *   merge.c    what they answer is read, trusted in nothing, and becomes one answer
 *
 * A snapshot of a front has no index but members: the version of each shard that was found to fit. Requests name that
 * version, by KServe's paths, so that a shard which has another index by now says so, and its answer is in none of
 * ours. A shard answers with the ids that classes have in the whole layer. */
#ifndef WOI_SERVE_SHARDS_H
#define WOI_SERVE_SHARDS_H

#include "server.h"

enum { WOI_MAX_SHARDS = 256, WOI_WHY_BYTES = 160 };

/* What a shard says of itself: /v1/info. */
typedef struct woi_shard_info {
    char digits[17], layer[17], model[128];
    size_t m, d, classes; /* m: of the whole layer; classes: its own */
    size_t number, count; /* which shard of how many its file says that it is, from 1; 0: it does not */
    char dealing[17];
    uint32_t max_probes;
    bool names, prior, exact_rows, log_z;
} woi_shard_info;

typedef struct woi_shard {
    char *address; /* "host:port" */
    /* under the lock of all */
    bool up;                 /* it answered when it was last asked, as a snapshot has it */
    char why[WOI_WHY_BYTES]; /* not */
    char seen[17];           /* the version that it had then */
    /* since the start */
    atomic_ullong answers, failures, retries, missing, us;
} woi_shard;

typedef struct woi_shards {
    woi_shard *shard;
    size_t n;
    char *token; /* that they ask for, or NULL */
    pthread_mutex_t lock;
    uint64_t tried;        /* what they were when a snapshot was last made of them, or could not be */
    atomic_ullong partial; /* answers that lack a shard */
    pthread_t watcher;
    bool watching, stop, hurry;
    pthread_cond_t change; /* of these */
    struct woi_lane *lanes;
    size_t n_lanes;
    atomic_size_t next_lane;
} woi_shards;

/* As a snapshot has them. */
typedef struct woi_members {
    size_t n, classes; /* of all that are there, together */
    bool log_z;        /* all estimate it */
    struct woi_member {
        bool there;
        char digits[17], model[128];
    } of[];
} woi_members;

bool woi_shards_enough(const woi_server *server, size_t there);
void woi_shard_down(woi_shards *shards, size_t i, const char *why);
void woi_shards_hurry(woi_shards *shards); /* looks at them now, and not only when the second is over */

/* fanout.c: asks every shard for /v1/info at once. bodies[i] is what came, or why[i] says why nothing did. */
typedef struct woi_told {
    woi_out body;
    bool done;
    char why[WOI_WHY_BYTES];
} woi_told;
wo_status woi_fanout_open(wo_error *err);
void woi_fanout_free(woi_shards *shards);
void woi_fanout_ask(const woi_server *server, woi_told *told);
wo_status woi_fanout_start(woi_server *server, wo_error *err);
void woi_fanout_stop(woi_server *server);
void woi_fanout_enter(woi_server *server, woi_ticket *ticket); /* a woi_reply's `later` */

/* merge.c: the request that all shards get, and their answers. */
bool woi_shard_request(const woi_job *job, const woi_snapshot *snapshot, woi_out *body, size_t *json_bytes);
size_t woi_shard_most(const woi_job *job); /* bytes that an answer may have */

/* What one shard answered; a zeroed one is empty. */
typedef struct woi_piece {
    size_t k;
    int32_t *ids, *candidates; /* (n, k), (n) */
    float *scores, *log_z;     /* (n, k), (n): NULL where it was not asked for */
    size_t *name_at;           /* (n * k + 1): names lie in its body, each after 4 bytes of length; or NULL */
} woi_piece;
typedef struct woi_piece_body {
    const char *text;
    size_t bytes, json_bytes;
} woi_piece_body;
void woi_piece_free(woi_piece *piece);
/* False: `why`, of WOI_WHY_BYTES, says what is wrong with it. */
bool woi_piece_read(woi_piece *piece, const woi_job *job, size_t m, const woi_piece_body *body, char *why);
/* The best of all pieces, by score, ties to the lower id, into the job, which has room; a class that two pieces have is
 * answered once. bodies[i] is that of pieces[i]; n_pieces at most WOI_MAX_SHARDS. */
bool woi_pieces_merge(woi_job *job, const woi_piece *pieces, const woi_piece_body *bodies, size_t n_pieces);

#endif
