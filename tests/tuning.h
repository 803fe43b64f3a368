/* What tests of the tuner share: a log to build from and one to judge on, and a quick tuning. */
#ifndef WO_TUNING_H
#define WO_TUNING_H

#include "engine.h"

#include "tune/tune.h"

enum { M = 60, D = 8, N = 1500, N_TUNE = 700 };

/* A scene whose labels FULL knows, cut into a log to build from and one to judge on. */
typedef struct pair {
    scene s;
    wo_log *log, *tune, *bare; /* bare: the log to judge on, without labels */
    int64_t *indptr;
} pair;

static inline pair make_pair_of(size_t m)
{
    pair p = {.s = make_scene(m, D, N + N_TUNE, true, 31)};
    wo_error err;
    for (size_t i = 0; i < p.s.n; i++) {
        int32_t best;
        double score;
        brute_force(&p.s, p.s.q + i * D, &(rules){0}, 1, &best, &score);
        p.s.labels[i] = best;
        p.s.indptr[i + 1] = (int64_t)i + 1;
    }
    const float *rest = p.s.q + (size_t)N * D;
    assert_int_equal(wo_log_wrap(p.s.q, N, D, p.s.indptr, p.s.labels, &p.log, &err), WO_OK);
    assert_int_equal(wo_log_wrap(rest, N_TUNE, D, p.s.indptr, p.s.labels + N, &p.tune, &err), WO_OK);
    assert_int_equal(wo_log_wrap(rest, N_TUNE, D, NULL, NULL, &p.bare, &err), WO_OK);
    return p;
}

static inline pair make_pair(void)
{
    return make_pair_of(M);
}

static inline void free_pair(pair *p)
{
    wo_log_free(p->log);
    wo_log_free(p->tune);
    wo_log_free(p->bare);
    free_scene(&p->s);
}

/* A small tree, a goal that several hundred queries can show, and no time: one setting of each kind at most. */
static wo_build_options built; /* of what quick() returns */

static inline wo_tune_options quick(void)
{
    wo_tune_options o;
    wo_tune_defaults(&o, sizeof o);
    wo_build_defaults(WO_METHOD_EVIDENCE, &built, sizeof built);
    o.build = &built;
    built.threads = 1;
    built.iterations = 4;
    built.batch = 16;
    built.thin = 3;
    built.nodes = built.leaves = 16;
    o.fixed = WO_FIX_METHOD | WO_FIX_ROUTER | WO_FIX_TREE | WO_FIX_SOURCE;
    built.router = WO_ROUTER_TREE;
    o.target = 0.97;
    o.target5 = 0.9;
    o.max_time_s = 0.001;
    return o;
}

static inline wo_index *tune(const pair *p, const wo_log *tune_log, const wo_tune_options *o)
{
    wo_index *index = NULL;
    wo_error err;
    if (wo_index_tune(p->s.layer, p->log, tune_log, o, &index, &err)) fail_msg("%s", err.text);
    return index;
}

static inline void refused(const pair *p, const wo_log *tune_log, const wo_tune_options *o, wo_status status,
                           const char *part)
{
    wo_index *index = NULL;
    wo_error err = {0};
    const wo_status got = wo_index_tune(p->s.layer, p->log, tune_log, o, &index, &err);
    if (got != status || !strstr(err.text, part) || index)
        fail_msg("status %d, \"%s\", expected %d, \"%s\"", got, err.text, status, part);
}

static inline double at(const wo_curve *curve, size_t row, int column)
{
    return curve->values[row * curve->columns + (size_t)column];
}

#endif
