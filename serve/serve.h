/* The server: an index behind a port. What the tool knows of it. */
#ifndef WOI_SERVE_SERVE_H
#define WOI_SERVE_SERVE_H

#include "wideout.h"

#include <stdbool.h>

/* Strings are the caller's and must stay until woi_serve returns; NULL: not wanted. */
typedef struct woi_serve_options {
    const char *index, *net; /* files; an index without rows has those of the network */
    /* NULL, or the layer of the index: it has the rows that the index lacks, and the f32 rows of exact answers */
    const char *layer, *weight_name, *bias_name, *bias_path;
    const char *listen;           /* "127.0.0.1:8080", "[::1]:0": port 0 is any that is free */
    const char *name;             /* of the model, in the KServe dialect */
    const char *ready_file;       /* receives the address, when requests are taken */
    const char *token_file;       /* its first line is what requests must bring, but for health and the page */
    const char *access_log;       /* a line of JSON for each request; "-": standard output */
    bool watch;                   /* files that change are opened anew */
    int threads;                  /* 0: all cores */
    bool exact;                   /* the exact layer answers, unless a request says otherwise */
    size_t max_body, max_queries; /* bytes and queries of a request */
    size_t max_text;              /* bytes of one text; all of a request: see woi_most_texts */
    size_t max_k, max_connections;
    double timeout_s;    /* within which a request must have come; connections without one may stay twice as long */
    double drain_s;      /* after SIGTERM, how long new connections are still taken, and told that it is not ready */
    double shadow;       /* share of the queries that is also answered exactly; 0: none */
    double alarm;        /* a line on standard error where agreement on the best answer is surely below; 0: none */
    double window_s;     /* in which requests wait for others to share a search with; 0: they do not */
    bool learn;          /* from feedback, and from what the shadow finds missing */
    uint64_t half_life;  /* queries after which what was learned counts half; 0: nothing fades */
    const char *learned; /* a journal of what is learned from, which is read again at the start and at reloads */
    /* Servers that answer in place of an index, each with a part of the classes: "host:port,host:port"; NULL: none */
    const char *shards, *shard_token_file;
    bool need_most;         /* more than half of them do; else all must answer */
    double shard_timeout_s; /* in which one must have answered, a second try included */
    bool json, quiet;       /* the first line on standard output: an object, or none */
} woi_serve_options;

/* Serves until SIGTERM or SIGINT. A failure is one before the first request: a file, the address. *at is the file that
 * it is about, or NULL. The calling thread must be the only one; where it has served, SIGTERM, SIGINT and SIGHUP are
 * blocked from then on. */
wo_status woi_serve(const woi_serve_options *options, const char **at, wo_error *err);

#endif
