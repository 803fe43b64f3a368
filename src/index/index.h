/* An index: a router, a fill and the rows that they lead to. Immutable once made.
 *
 *   wo_index
 *     options           what it was built with
 *     hash or tree      the router of slide, lss and evidence
 *     cells             what lies in each cell; none for full and screen
 *     screen            all rows in int8, of screen, and of a fallback by it
 *     kept, removed     training queries that updates go by; classes that an update took out
 *     rows              W and b: the layer's, or those in the mapped file
 *     st                the mapped file that planes, centres and rows may lie in: nothing that decides an address */
#ifndef WOI_INDEX_INDEX_H
#define WOI_INDEX_INDEX_H

#include "base/team.h"
#include "fill/cells.h"
#include "layer/layer.h"
#include "layer/screen.h"
#include "layer/small.h"
#include "route/hash.h"
#include "route/tree.h"
#include "store/log.h"

/* The columns of a trace. */
enum {
    WOI_TRACE_STEP,
    WOI_TRACE_LOSS,
    WOI_TRACE_CP_POSITIVE,
    WOI_TRACE_CP_NEGATIVE,
    WOI_TRACE_SAMPLE_SIZE,
    WOI_TRACE_LABEL_RECALL,
    WOI_TRACE_EMPTY,
    WOI_TRACE_LARGEST,
    WOI_TRACE_ENTROPY,
    WOI_TRACE_FIRST_COLUMNS,                           /* a file may have these alone: those of 0.1.0 */
    WOI_TRACE_JUDGED_RECALL = WOI_TRACE_FIRST_COLUMNS, /* NAN in both: not judged, the last step was to be kept */
    WOI_TRACE_JUDGED_NEURONS,
    WOI_TRACE_KEPT, /* 1 in the row of the step that the index is of */
    WOI_TRACE_COLUMNS
};

/* The columns of a tuner's curve: figures, then the settings that they belong to. */
enum {
    WOI_CURVE_P1,
    WOI_CURVE_P5,
    WOI_CURVE_AGREEMENT,
    WOI_CURVE_SURE_P1, /* the share of FULL's P@1 that it has with 99.5% confidence: see judge/compare.c */
    WOI_CURVE_SURE_P5,
    WOI_CURVE_SURE_AGREEMENT,
    WOI_CURVE_CLASSES,
    WOI_CURVE_US,
    WOI_CURVE_MET,
    WOI_CURVE_CHOSEN,
    WOI_CURVE_METHOD, /* from here on the values of wo_build_options, 0 where the method has no such thing */
    WOI_CURVE_ROUTER,
    WOI_CURVE_K,
    WOI_CURVE_L,
    WOI_CURVE_NODES,
    WOI_CURVE_LEAVES,
    WOI_CURVE_BEAM,
    WOI_CURVE_ROUTE_D,
    WOI_CURVE_PROBES,
    WOI_CURVE_LAMBDA,
    WOI_CURVE_POPULAR,
    WOI_CURVE_WEIGHTS,
    WOI_CURVE_FALLBACK,
    WOI_CURVE_FIRST_COLUMNS, /* what the first files had */
    WOI_CURVE_SOURCE = WOI_CURVE_FIRST_COLUMNS,
    WOI_CURVE_THIN,
    WOI_CURVE_CAP,
    WOI_CURVE_PRIOR,
    WOI_CURVE_FOCUS,
    WOI_CURVE_SPREAD,
    WOI_CURVE_LAST_SETTING = WOI_CURVE_SPREAD,
    WOI_CURVE_ERROR_P1, /* of the share of FULL's P@1, a standard error */
    WOI_CURVE_COLUMNS
};

/* What a tuner was asked for: see wo_curve. */
typedef struct woi_goal {
    double target, target5, target_agree, target_us;
    uint32_t k, batch;
    uint64_t n;
    uint32_t proof; /* wo_proof */
    uint64_t labelled, needed;
    uint64_t built_from, held_out;
    uint32_t provable; /* wo_proof */
    uint64_t changed;  /* classes, by updates since */
} woi_goal;

/* What log Z is estimated from: see partition.h. */
enum {
    WOI_LOG_Z_INTERCEPT,
    WOI_LOG_Z_OF_LENGTH,
    WOI_LOG_Z_OF_CANDIDATES,
    WOI_LOG_Z_TYPICAL, /* what a query without candidates is taken to have */
    WOI_LOG_Z_ERROR,   /* as in wo_index_info */
    WOI_LOG_Z_BIAS,
    WOI_LOG_Z_NUMBERS
};

typedef struct woi_partition {
    float *numbers;   /* (WOI_LOG_Z_NUMBERS); NULL: none was learned */
    float *direction; /* (d) */
    float *of_cell;   /* a number for each cell */
} woi_partition;

/* Training queries that stay: see keep.h. */
typedef struct woi_keep {
    size_t n;
    uint16_t *queries; /* (n, d), bf16 */
    float *bars;       /* (n): the source_k-th best logit of each, -INFINITY where there are fewer classes */
} woi_keep;

/* Batches of `from` to `to` queries; from 0: none, to 0: without end. */
typedef struct woi_batches {
    uint32_t from, to;
} woi_batches;

static inline bool woi_batches_have(woi_batches batches, size_t n)
{
    return batches.from && n >= batches.from && (!batches.to || n <= batches.to);
}

/* What queries said that the cells did not know: see wo_index_info.held_n. */
typedef struct woi_held {
    size_t n;
    double same_best, p_at_1, full_p_at_1;
} woi_held;

struct wo_index {
    wo_build_options options;
    woi_dense rows; /* w is NULL where the file has none and no layer was given */
    woi_small small;
    woi_screen screen; /* rows NULL: none */
    woi_shard shard;   /* which classes the rows are; the checksum is of the whole layer */
    uint64_t layer_checksum;
    uint64_t checksum;                /* of the file's header; 0: it was built */
    _Atomic uint64_t router_checksum; /* found when it is first asked for; 0: not yet */
    woi_hash hash;                    /* K = 0: none */
    woi_tree tree;                    /* A = 0: none */
    woi_cells cells;
    woi_partition partition;
    woi_keep kept;
    int32_t *removed; /* (n_removed): classes that are never answered, rising; in no cell */
    size_t n_removed;
    float *own_w, *own_b; /* rows of its own, where it was updated; NULL */
    woi_names labels;
    double *trace; /* (n_trace, trace_columns) */
    size_t n_trace, trace_columns;
    double *curve;  /* (n_curve, curve_columns) */
    size_t n_curve; /* 0: not tuned */
    size_t curve_columns;
    woi_goal goal;
    uint64_t n_empty, largest; /* cells without a class; classes in the largest */
    woi_batches full;          /* that FULL answers; see wo_index_info */
    double same_best, same_five;
    woi_held held;
    struct woi_findings *findings;   /* of a build that is under way; NULL */
    const wo_index *base;            /* of an index that an adapter published: whose all but its cells are; or NULL */
    woi_st *st;                      /* mapped: hash, tree and rows lie in it and are not freed; NULL: they are ours */
    double *trace_copy, *curve_copy; /* of tables that the file has more columns of, or NULL */
};

static inline bool woi_uses_tree(const wo_build_options *o)
{
    return o->method == WO_METHOD_EVIDENCE && o->router == WO_ROUTER_TREE;
}

static inline bool woi_uses_hash(const wo_build_options *o)
{
    return o->method >= WO_METHOD_SLIDE && o->method <= WO_METHOD_EVIDENCE && !woi_uses_tree(o);
}

#define WOI_MOST_MIX 0.9

/* Whether the classes of cells come with shares. */
static inline bool woi_has_shares(const wo_build_options *o)
{
    return o->prior > 0 || (o->partition && o->mix > 0);
}

/* Whether a mixture is to be chosen; and, in an index that was built, whether none ever was. */
static inline bool woi_lacks_mix(const wo_build_options *o)
{
    return o->partition && o->mix < 0;
}

/* Whether probabilities are others than logits, and a prior, make. */
static inline bool woi_has_mixture(const wo_index *index)
{
    const wo_build_options *o = &index->options;
    return index->partition.numbers && (o->mix > 0 || (o->mix == 0 && o->prior > 0));
}

/* Whether queries that know little have a screen. */
static inline bool woi_screens_little(const wo_build_options *o)
{
    return o->method == WO_METHOD_EVIDENCE && o->fallback && o->fallback_by == WO_FALLBACK_SCREEN;
}

/* Whether an update took the class out. */
static inline bool woi_is_removed(const wo_index *index, int32_t id)
{
    size_t low = 0, high = index->n_removed;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (index->removed[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < index->n_removed && index->removed[low] == id;
}

extern const char *const woi_trace_names[WOI_TRACE_COLUMNS];
const char *woi_method_name(wo_method method);

/* Counts the cells: after every change of them. */
void woi_index_count(wo_index *index);

/* The biases of the cells' classes beside their ids, where int8 rows screen them: of 10^7 classes every bias lies in a
 * line of memory of its own, and fetching 1,400 of them took 6 us of a query's 24. What is made of an index later, by
 * an update or an adapter, does without. */
wo_status woi_index_line_up_biases(wo_index *index, wo_error *err);

/* wo_index_save of an index that was made of files: it is opened once before it gets its name. */
wo_status woi_index_save_joined(const wo_index *index, const char *path, wo_error *err);

/* ---- Checks ------------------------------------------------------------------------------------------------ */

/* Fails where the layer is not the one that the index was built for, with the likely cause: it has no bias, but the
 * index may have one (`biased`; of an index without rows nobody knows). */
wo_status woi_refuse_other_layer(const wo_index *index, const wo_layer *layer, bool biased, wo_error *err);

/* Fails where the index is a shard: with what it cannot do, "is not updated". */
wo_status woi_refuse_shard(const wo_index *index, const char *what, wo_error *err);

/* A piece of something that is hashed or kept. */
typedef struct woi_piece {
    void *data; /* NULL: none */
    size_t bytes;
} woi_piece;

/* The arrays of the index's router, and how many queries its cells had: of a tree first where its leaves begin, which
 * says how large the rest is. Returns how many there are. */
enum { WOI_ROUTER_PIECES = 13 };
size_t woi_router_pieces(const wo_index *index, woi_piece pieces[WOI_ROUTER_PIECES]);

void woi_partition_free(woi_partition *partition); /* and zeroed again */

#endif
