/* The methods, their settings, and sweeps over them: "lss loss=paper,margin K=4 L=1,10" is four configurations. */
#ifndef BENCH_SWEEP_H
#define BENCH_SWEEP_H

#include "peers/peers.h"
#include "wideout.h"

#include <jansson.h>
#include <stdbool.h>

typedef enum bench_kind { BENCH_OURS, BENCH_TUNED, BENCH_PEER, BENCH_TORCH } bench_kind;

typedef struct bench_method {
    const char *name;   /* "ip-nsw" */
    const char *family; /* "ours", "baseline", "peer" or "exact" */
    const char *dial;   /* the setting that trades quality for speed, or NULL */
    bench_kind kind;
    int which; /* wo_method or peer_kind */
} bench_method;

/* What settings become. */
typedef struct bench_options {
    wo_build_options build; /* of ours; of those that are tuned, the seed alone */
    double target, seconds; /* tuned: of wo_tune_options */
    uint32_t tune_batch;
    /* Of peers; 0: the peer's default. Lists are list_factor sqrt(m), parts of PQ d / part; metric 1: inner product, 2:
     * L2 after the transform of peers.h. */
    uint32_t links, ef_construction, list_factor, part, metric;
    uint32_t dial; /* ef, nprobe, rerank */
} bench_options;

enum { BENCH_MAX_SETTINGS = 12, BENCH_VALUE_BYTES = 24, BENCH_LABEL_BYTES = 160 };

/* One row to be: a method, and a value for each of the settings that the sweep names. */
typedef struct bench_config {
    const bench_method *method;
    size_t n_settings;
    struct {
        const char *name; /* static */
        char value[BENCH_VALUE_BYTES];
    } settings[BENCH_MAX_SETTINGS];
    bench_options options;
    char label[BENCH_LABEL_BYTES]; /* "lss paper K=4 L=10": tells it from all others */
} bench_config;

typedef struct bench_configs {
    size_t n, room;
    bench_config *list;
} bench_configs;

/* NULL for a name that is none. */
const bench_method *bench_method_find(const char *name, size_t name_bytes);
/* "full, popular, ...": static. */
const char *bench_method_names(void);

/* The sweep that stands for a method where a workload names none: a text in the same syntax, several of them with
 * newlines between; those behind a line "full:" are for the full run only. */
extern const char bench_default_sweeps[];

/* Adds the configurations of a sweep, each label once. Settings that come later in the text vary faster. */
wo_status bench_sweep_expand(const char *text, bench_configs *configs, wo_error *err);
void bench_configs_free(bench_configs *configs);

/* Whether `b` can use what was built for `a`: they differ in the dial of a peer, or the probes of evidence, alone. */
bool bench_config_shares_build(const bench_config *a, const bench_config *b);

json_t *bench_config_options_json(const bench_config *config);
json_t *bench_config_dial_json(const bench_config *config);

#endif
