/* wideout: cheap inference for wide output layers on CPUs.
 *
 * This header is all that users of the library need. A class is one of the layer's m outputs, a label is a class that
 * is true of a query, a name is what people call a class.
 *
 * Rules that hold for every function:
 *   - Functions that can fail return a wo_status (0 is success) and take an optional `wo_error *`, owned by the
 *     caller, that receives one sentence. NULL is fine where the sentence is not wanted.
 *   - On failure nothing is half-made: output handles stay NULL, output files keep their old content.
 *   - The library never prints, exits or aborts on input, and changes no setting of the process.
 *   - Functions may be called from any thread unless their comment says otherwise. A thread that waits
 *     sleeps, after some 20 us in which it lets others run. A forked child may go on searching.
 *   - Structs that begin with struct_size: set it to sizeof the struct. Options of an older header are served, and have
 *     the defaults in what they lack; so are those of a newer one where all that this library does not know is zero.
 *     Results are filled as far as there is room. NULL in place of options means the defaults.
 *
 * What it does not do: search by a range of scores, another k for each query of a call, train networks, use a GPU.
 */
#ifndef WIDEOUT_H
#define WIDEOUT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WO_VERSION_MAJOR 0
#define WO_VERSION_MINOR 1
#define WO_VERSION_PATCH 0
/* 100 is 0.1.0, 10203 would be 1.2.3. */
#define WO_VERSION (WO_VERSION_MAJOR * 10000 + WO_VERSION_MINOR * 100 + WO_VERSION_PATCH)

#if defined(__GNUC__)
#define WO_API __attribute__((visibility("default")))
#else
#define WO_API
#endif

/* The version of the library that is linked, which may differ from the header's: "0.1.0", in static storage, and as
 * WO_VERSION counts. */
WO_API const char *wo_version(void);
WO_API unsigned wo_version_number(void);

/* ---- Status and errors ------------------------------------------------------------------------------------ */

/* Values are pinned: they never change meaning between versions. */
typedef enum wo_status {
    WO_OK = 0,
    WO_ERR_MEMORY = 1,      /* an allocation failed */
    WO_ERR_IO = 2,          /* the operating system refused to open, read, write or rename a file */
    WO_ERR_FORMAT = 3,      /* a file is not what it should be: malformed, truncated, out of range */
    WO_ERR_UNSUPPORTED = 4, /* well-formed, but not something that wideout, or this machine, can do */
    WO_ERR_ARGUMENT = 5,    /* the caller passed something that cannot be right */
    WO_ERR_CHECKSUM = 6,    /* the bytes of a file differ from those that were written */
    WO_ERR_CANCELLED = 7    /* the progress callback asked to stop */
} wo_status;

/* "out of memory", "malformed file", ...: static storage; "unknown status" for a value not listed above. */
WO_API const char *wo_status_text(wo_status status);

/* wo_error.offset where no position applies. */
#define WO_NO_OFFSET UINT64_MAX

/* Which of the things that were handed over a failure is about. Values are pinned. */
typedef enum wo_about {
    WO_ABOUT_NONE = 0,     /* none of them: memory, the processor, a goal that cannot be reached */
    WO_ABOUT_OPTION = 1,   /* an option: wo_error.option has its name */
    WO_ABOUT_LAYER = 2,    /* the layer, or its file */
    WO_ABOUT_BIAS = 3,     /* the file of the layer's biases (wo_layer_options.bias_path) */
    WO_ABOUT_LOG = 4,      /* the log, or its file */
    WO_ABOUT_TUNE_LOG = 5, /* the log that is tuned on */
    WO_ABOUT_INDEX = 6,    /* the index, or its file */
    WO_ABOUT_QUERY = 7,    /* queries, or an array that their answers go to */
    WO_ABOUT_OUTPUT = 8,   /* the file that is written */
    WO_ABOUT_LABELS = 9    /* the file of a log's labels (wo_log_open_labelled) */
} wo_about;

/* One sentence about a failure, without the name of the file (the caller knows it) and without a final stop. All of it
 * is set by every call that fails, and nothing by one that does not. */
typedef struct wo_error {
    wo_status status;
    wo_about about;
    uint64_t offset; /* byte position in the file where reading failed, or WO_NO_OFFSET */
    /* The field of an options struct, or the argument, that is wrong or that would help: "weight_name". Of build
     * options the name that wo_option_at has: "lambda", or "popular" for n_popular. Empty where there is none. With
     * WO_ABOUT_INDEX, "layer": the call needs the layer too. With WO_ABOUT_LABELS, "tune_log": the labels are of the
     * log that is tuned on. */
    char option[32];
    char text[240];             /* always terminated; shortened with "..." where a value is long */
    unsigned char reserved[32]; /* zero: room for what later versions say */
} wo_error;

/* ---- Memory ------------------------------------------------------------------------------------------------ */

/* Where the library gets its memory. `alloc` returns at least `bytes` bytes (never 0) aligned to `align` (a power of
 * two, at most 64), or NULL; `release` takes what alloc returned. Both may be called from several threads at once. */
typedef struct wo_allocator {
    void *(*alloc)(void *ctx, size_t bytes, size_t align);
    void (*release)(void *ctx, void *memory);
    void *ctx;
} wo_allocator;

/* Replaces the allocator for the whole process; NULL restores the default (aligned_alloc and free). Call it before
 * any other function of the library, or at a moment when no object of the library is alive and no other thread is
 * inside it. The struct is copied. */
WO_API wo_status wo_allocator_set(const wo_allocator *allocator);

/* ---- Progress ---------------------------------------------------------------------------------------------- */

/* Called now and then during long work, from the thread that started it. `stage` names the work ("reading"); `done`
 * counts up to `total` (0 where unknown). Return non-zero to stop: the call ends with WO_ERR_CANCELLED. */
typedef int (*wo_progress_fn)(void *ctx, const char *stage, uint64_t done, uint64_t total);

typedef struct wo_progress {
    wo_progress_fn fn; /* NULL: no reports */
    void *ctx;
} wo_progress;

/* ---- Processor --------------------------------------------------------------------------------------------- */

/* Which instruction set the kernels use. It is decided once per process, at first use, from what the processor has and
 * the operating system lets it use, and from the environment variable WIDEOUT_CPU, which can only lower it: ref, avx2
 * or avx512 on x86-64, ref or neon on 64-bit Arm. Other processors have ref only. */
typedef struct wo_cpu_info {
    size_t struct_size;   /* set it to sizeof(wo_cpu_info) */
    const char *level;    /* what runs: "ref", "avx2" or "avx512"; "ref" or "neon" */
    const char *best;     /* the best that this machine could run */
    const char *reason;   /* one sentence: why `level` */
    const char *model;    /* the processor's own name, or "unknown" */
    const char *features; /* those that matter here and that the operating system enables: "avx2 fma avx512f ...",
                             "asimd asimddp" */
} wo_cpu_info;

/* Fills `info`; the strings are static. Fails with WO_ERR_UNSUPPORTED when WIDEOUT_CPU names something this machine
 * cannot run, and so does, with the same sentence, everything else in the library that computes. */
WO_API wo_status wo_cpu_query(wo_cpu_info *info, wo_error *err);

/* The i-th kernel's name and the instruction set of the version that runs ("dot_i8", "avx512vnni"); returns 0 when
 * there is no i-th kernel or no usable choice (see wo_cpu_query). Static storage. */
WO_API int wo_cpu_kernel(size_t i, const char **name, const char **path);

/* The exact layer's product on one thread, beside what the machine can do at most. */
typedef struct wo_cpu_rates {
    size_t struct_size;               /* set it to sizeof(wo_cpu_rates) */
    const char *tile;                 /* whose instruction set multiplies: "avx512" */
    uint32_t tile_rows, tile_columns; /* queries and classes that it takes at once */
    double product_gflops; /* of 1,024 queries with 8,192 classes and 128 dimensions, with the 5 best of each query */
    double peak_gflops;    /* multiply-adds on registers alone, two operations each, by the best instruction set */
    double read_gb_s;      /* 64 MiB read in order */
} wo_cpu_rates;

/* Measures for about 0.2 s on the calling thread, and takes 64 MiB for that time. Fails as wo_cpu_query does, and
 * without memory. */
WO_API wo_status wo_cpu_measure(wo_cpu_rates *rates, wo_error *err);

/* ---- Files ------------------------------------------------------------------------------------------------- */

/* How much of a file is compared with its checksums when it is opened. Whatever is chosen, everything that decides an
 * address is checked: docs/FORMAT.md says what. */
typedef enum wo_verify {
    WO_VERIFY_ALL = 0,  /* every byte */
    WO_VERIFY_USED = 1, /* what is used: of an index not the records of learning and tuning */
    /* Nothing: the file is trusted, and rows and router are read when they are needed. What decides an address or an
     * answer is read and checked all the same: docs/FORMAT.md lists it. */
    WO_VERIFY_NONE = 2
} wo_verify;

/* ---- Layers ------------------------------------------------------------------------------------------------ */

/* A wide layer: logits = W q + b, with m classes and d dimensions. Immutable; shared freely between threads. An index
 * that was built from a layer, or opened with one, borrows its rows: free the layer last. */
typedef struct wo_layer wo_layer;

typedef struct wo_layer_options {
    size_t struct_size;      /* set it to sizeof(wo_layer_options) */
    const char *weight_name; /* tensor of W (m, d); NULL: "weight" of a layer, "output.weight" of a network or model */
    const char *bias_name;   /* tensor of b (m); NULL: the name that goes with the weight's, where there is one */
    const char *bias_path;   /* with a .npy file of W: the .npy file of b; NULL: no bias */
    wo_verify verify;        /* of a file of ours; others' have no checksums */
    uint32_t reserved;       /* 0 */
    wo_progress progress;
    /* n_parts above 1: of a whole layer this part alone, as by wo_layer_take_part; of a file in safetensors whose
     * numbers become F32 only those of its rows are then in memory. A file that is a shard is opened as it is. */
    uint32_t part, n_parts;
    /* With a part: the whole layer's checksum (wo_layer_info), as who has read all of it found it. Of a file in
     * safetensors the other rows are then not read, and W and b not compared with their checksums. 0: it is found. */
    uint64_t checksum;
    /* NULL, or of a whole layer in safetensors (n_parts): filled with a checksum of the rows and biases of each part
     * that is read; with `checksum` that is this part alone. Who was given the checksum learns by it whether the file
     * is that of who has read all of it. */
    uint64_t *part_checksums;
} wo_layer_options;

/* Opens a layer, an index, a network or a model in safetensors (its shards too), W as .npy, a supervised model of
 * fastText's (.bin, its labels are the names), or a GGUF file: `output.weight`, or `token_embd.weight` where a model
 * has one matrix for both, its tokens as names. F32 is mapped and not copied where floats may lie so; everything else,
 * GGUF's BF16, F16, Q8_0, Q4_K and Q6_K too, becomes F32 in memory. Values must be finite. `options` may be NULL. */
WO_API wo_status wo_layer_open(const char *path, const wo_layer_options *options, wo_layer **layer, wo_error *err);

/* Wraps the caller's arrays, which are not copied and must stay: weight (m, d), row after row; bias (m) or NULL. */
WO_API wo_status wo_layer_wrap(const float *weight, const float *bias, size_t m, size_t d, wo_layer **layer,
                               wo_error *err);
WO_API void wo_layer_free(wo_layer *layer);

WO_API size_t wo_layer_m(const wo_layer *layer);
WO_API size_t wo_layer_d(const wo_layer *layer);
/* W (m, d) and b (m; NULL: none), in the layer's memory. */
WO_API const float *wo_layer_weight(const wo_layer *layer);
WO_API const float *wo_layer_bias(const wo_layer *layer);

/* Names the m classes, in place of those that its file may have: UTF-8, no line ends, copied. An index that is built
 * from the layer then has them. A part of a layer, or a shard's file, takes the names of all classes of the
 * whole one, and keeps its own. To be called before other threads have the layer. */
WO_API wo_status wo_layer_set_names(wo_layer *layer, const char *const *names, size_t n, wo_error *err);

typedef struct wo_layer_info {
    size_t struct_size; /* set it to sizeof(wo_layer_info) */
    size_t m, d;
    int has_bias, has_names;
    /* Of a file whose tensors have names: those that W and b are in, and where no bias was found a tensor that may be
     * it, (m) with "bias" in its name. NULL: there is none. In the layer's memory. */
    const char *weight_name, *bias_name, *unused_bias;
    /* Of a shard: which one, from 0, of how many (0: it is none), and the classes of the whole layer. The checksum is
     * that of the whole one, which ties an index to it. */
    uint32_t shard, n_shards;
    size_t m_whole;
    uint64_t checksum;
    /* Of a shard: a digest of which class is in which shard, and of their names. Only shards with the same one are
     * together the whole layer. 0: it is none, or of a file that does not say. */
    uint64_t dealing;
} wo_layer_info;

/* Fails, with WO_ERR_ARGUMENT, only where struct_size is not set. */
WO_API wo_status wo_layer_describe(const wo_layer *layer, wo_layer_info *info);

/* Keeps one of n_parts nearly equal ranges of the classes, a shard, and forgets the rest: `part` counts from 0. Rows
 * that are mapped are then read no more. Searches of an index that is built of a shard answer with the classes' numbers
 * in the whole layer. To be called before other threads have the layer. */
WO_API wo_status wo_layer_take_part(wo_layer *layer, uint32_t part, uint32_t n_parts, wo_error *err);

/* Writes the layer as n layer files, shards: its classes are dealt out one after the other, the most frequent labels of
 * `log` first (NULL: by number), so that all have as many and as much work. Each file has its classes' numbers and the
 * checksum of the whole layer. The paths are of n different files. All are on the disk before the first of them gets
 * its name, which takes a descriptor for each until then: where the process may not have as many, the call fails with
 * WO_ERR_IO before it begins. With `resume` each gets its name as soon as it is complete, and one that is there, of
 * this dealing and with all its checksums right, stays: a call that was stopped is then to be repeated. */
typedef struct wo_log wo_log;
WO_API wo_status wo_layer_save_shards(const wo_layer *layer, const wo_log *log, const char *const *paths, size_t n,
                                      int resume, wo_error *err);

/* ---- Logs -------------------------------------------------------------------------------------------------- */

/* Queries that a network sent to its wide layer and, where they are known, the labels of each: what an index is built
 * from and judged on: a wo_log. Immutable. */

/* Opens a log file, a journal, or queries (n, d) as .npy, which have no labels. F32 is mapped; F16, BF16 and F64 become
 * F32 in memory. Anyone's safetensors file is a log that has `queries` (n, d) and, for labels, `labels.indptr` and
 * `labels.indices` as in wo_log_wrap, or `labels`: (n), one each, or (n, l), up to l each, where -1 and -100 stand for
 * none. A counted log has `queries.counts` (n), how many queries each row stands for, and `labels.counts`, how many of
 * them had each of labels.indices: cells by evidence are filled as by all these queries. What else reads a log takes
 * each row for one query. */
WO_API wo_status wo_log_open(const char *path, wo_log **log, wo_error *err);

/* The same with labels from a .npy file of integers, (n) or (n, l) as above, for queries that come without. NULL: as
 * wo_log_open. */
WO_API wo_status wo_log_open_labelled(const char *path, const char *labels_path, wo_log **log, wo_error *err);

/* Wraps the caller's arrays, which are not copied and must stay: queries (n, d); the labels of query i are
 * labels[indptr[i] .. indptr[i+1]), with indptr (n+1) rising from 0. Both NULL: no labels. */
WO_API wo_status wo_log_wrap(const float *queries, size_t n, size_t d, const int64_t *indptr, const int32_t *labels,
                             wo_log **log, wo_error *err);

/* Several logs (n) as one, in their order: a copy, so that they may be freed. They must have the same d, and all of
 * them labels, or none. */
WO_API wo_status wo_log_join(const wo_log *const *logs, size_t n, wo_log **joined, wo_error *err);
WO_API void wo_log_free(wo_log *log);

WO_API size_t wo_log_n(const wo_log *log);
WO_API size_t wo_log_d(const wo_log *log);
WO_API const float *wo_log_queries(const wo_log *log); /* (n, d) */
/* The labels, with *indptr (n+1), as in wo_log_wrap; NULL, both, where the log has none. */
WO_API const int32_t *wo_log_labels(const wo_log *log, const int64_t **indptr);
/* The share that the most frequent label has of the queries with labels: what answering it always is right for. Of a
 * long log by 100,000 of its queries. NAN: none has a label, or memory ran out. */
WO_API double wo_log_most_frequent(const wo_log *log);

/* Writes a log file, any number of queries at a time, in memory that does not grow. The file appears under its name,
 * complete, when wo_log_finish succeeds; a writer that is freed before leaves nothing behind, and an old file as it
 * was. The same queries give the same bytes, whatever the pieces. For one thread at a time. */
typedef struct wo_log_writer wo_log_writer;

typedef struct wo_log_writer_options {
    size_t struct_size; /* set it to sizeof(wo_log_writer_options) */
    size_t d;           /* numbers in a query: 1 or more */
    /* How many queries and labels there will be, where that is known; 0: it is not. What is said must come true. Where
     * all is known the header has no room to spare. */
    uint64_t n, n_labels;
    int labels; /* not 0: every query comes with its labels, perhaps none */
    int bf16;   /* not 0: queries are rounded to bf16, which halves the file */
} wo_log_writer_options;

WO_API wo_status wo_log_writer_create(const char *path, const wo_log_writer_options *options, wo_log_writer **writer,
                                      wo_error *err);

/* Adds queries (n, d), and their labels as in wo_log_wrap: indptr (n+1) rises from 0 in every call. Both are NULL in a
 * log without labels. Arrays that cannot be right are refused, and nothing is added; after a failure to write, the
 * writer is good for nothing but wo_log_writer_free. */
WO_API wo_status wo_log_append(wo_log_writer *writer, const float *queries, size_t n, const int64_t *indptr,
                               const int32_t *labels, wo_error *err);

/* Completes the file: checksums, fsync, rename. Nothing can be added afterwards. */
WO_API wo_status wo_log_finish(wo_log_writer *writer, wo_error *err);
WO_API void wo_log_writer_free(wo_log_writer *writer);

/* A log that grows while it is in use, and that wo_log_open takes as any other: what a service has learned from. A
 * query is in it when wo_journal_append returns, whatever becomes of the process then; what a process that was killed
 * left half-written is not read. One writer at a time, in all processes, and one thread. */
typedef struct wo_journal wo_journal;

/* Opens a journal of queries of d numbers, to go on at its end, or begins one. A half-written end is cut off. */
WO_API wo_status wo_journal_open(const char *path, size_t d, wo_journal **journal, wo_error *err);
/* Adds queries (n, d) and their labels, as in wo_log_wrap: all of them, or on failure none. Fails with WO_ERR_FORMAT
 * where the file is not what was written any more: somebody cut, moved, removed or replaced it. Then open it anew. */
WO_API wo_status wo_journal_append(wo_journal *journal, const float *queries, size_t n, const int64_t *indptr,
                                   const int32_t *labels, wo_error *err);
/* All that was added is on the disk: it survives the end of the machine too. Fails as wo_journal_append does. */
WO_API wo_status wo_journal_sync(wo_journal *journal, wo_error *err);
WO_API void wo_journal_free(wo_journal *journal);

/* ---- Building an index ------------------------------------------------------------------------------------- */

/* Every method but screen is a router (query -> a few cells), a fill (cell -> classes) and exact scoring of those
 * classes. */
typedef enum wo_method {
    WO_METHOD_FULL = 0,    /* no router, all classes: the exact layer */
    WO_METHOD_POPULAR = 1, /* one cell: the most frequent labels */
    WO_METHOD_SLIDE = 2,   /* L tables of K random hyperplanes; each class lies where its [w, b] hashes to */
    WO_METHOD_LSS = 3,     /* the same with hyperplanes learned from the labels (the paper) */
    WO_METHOD_EVIDENCE =
        4, /* learned hyperplanes or a tree over queries; a cell holds what its training queries needed */
    /* No router: all classes in int8, the best few then exactly. A row has one scale, and so has a query: where columns
     * of the weights or of the queries have very different scales the best are missed. A log tells: see held_out. */
    WO_METHOD_SCREEN = 5
} wo_method;

typedef enum wo_router { WO_ROUTER_HASH = 0, WO_ROUTER_TREE = 1 } wo_router;
/* Of queries that know little: they open more cells, or have the best of a screen of all classes besides. */
typedef enum wo_fallback { WO_FALLBACK_WIDER = 0, WO_FALLBACK_SCREEN = 1 } wo_fallback;
/* Of hyperplanes: left random, or learned. */
typedef enum wo_learner { WO_LEARNER_NONE = 0, WO_LEARNER_MIX = 1 } wo_learner;
typedef enum wo_loss { WO_LOSS_PAPER = 0, WO_LOSS_MARGIN = 1 } wo_loss;
typedef enum wo_init { WO_INIT_RANDOM = 0, WO_INIT_MEAN = 1 } wo_init;
typedef enum wo_optimiser { WO_OPTIMISER_ADAM = 0, WO_OPTIMISER_SGD = 1 } wo_optimiser;
typedef enum wo_source { WO_SOURCE_LABELS = 1, WO_SOURCE_TOP = 2, WO_SOURCE_BOTH = 3 } wo_source;
typedef enum wo_weights {
    WO_WEIGHTS_F32 = 0,
    WO_WEIGHTS_BF16 = 1,
    WO_WEIGHTS_INT8 = 2,
    WO_WEIGHTS_NONE = 3,
    WO_WEIGHTS_INT8_BF16 = 4
} wo_weights;

typedef struct wo_build_options {
    size_t struct_size; /* wo_build_defaults sets it */
    wo_method method;
    uint32_t K, L;   /* slide, lss, evidence: hyperplanes in a table (1 to 24), tables (1 to 256) */
    uint32_t probes; /* cells opened in each table, or leaves of the tree, 1 to 64: the query's own, then the nearest */
    uint32_t n_popular; /* popular: classes in its cell */

    /* evidence */
    wo_router router;   /* hyperplanes, or a tree of k-means centres (K, L and learner are then not used) */
    wo_learner learner; /* of the hyperplanes */
    wo_source source;   /* what a query needed: its labels, FULL's top-k, or both */
    uint32_t source_k;  /* k of FULL's top-k: at least as many answers as will be asked for */
    double lambda;      /* a class joins a cell when the cell's queries needed it at least this often on average */
    uint32_t thin;      /* cells with fewer queries than this borrow their neighbours' */
    uint32_t
        fallback; /* a query whose cells had fewer training queries than this, together, knows little: it opens
                   * WO_WIDER times as many (see fallback_by), or FULL answers it where the call says so; 0: none */

    /* the tree; what was chosen is in wo_index_info */
    uint32_t nodes, leaves; /* centres on the first level, up to 1024 (1: flat k-means), and below a node, on average;
                             * 0: chosen from the number of queries */
    uint32_t beam;          /* nodes that are looked into, at most: 1 to 64 */
    uint32_t route_d;       /* coordinates that it works in, a multiple of 16; d or more: all; 0: 32 */

    /* learning: evidence and lss */
    uint32_t iterations; /* steps of the learner */
    double rate;         /* its learning rate */
    uint32_t batch;      /* queries a step */

    /* lss */
    wo_loss loss;
    wo_init init;
    wo_optimiser optimiser;
    double t1, t2;         /* a missed label counts when its logit is above t1, a retrieved non-label when below t2: */
    uint8_t t_are_values;  /* ... as logits; otherwise as ranks among the query's m, 1 the highest, 0 no threshold */
    uint32_t trace_points; /* how often the trace is taken while learning */

    /* Rows inside the index. bf16: candidates are scored with halves; int8: screened in int8, the best few scored
     * exactly; int8_bf16: screened in int8, the best few scored with halves. wo_index_save writes all rows in that
     * precision (int8: and in f32; int8_bf16: in both), or none: the layer is then needed to open it. Without
     * the layer FULL needs f32 or int8. full and screen take f32 or none: screen has its int8 rows in any case. */
    wo_weights weights;
    uint64_t seed;
    int threads; /* 0: all cores. The result does not depend on it. */
    wo_progress progress;

    /* lss: the step that is kept is the one with the best label recall at no more than max_classes classes a query (0:
     * any number; where no step has so few, the one with the fewest), on a tenth of the queries with labels, 4,096 at
     * most, that is not learned from; below 1,000 of them on all. last_step: the last one, as in the paper, and all of
     * the log is learned from. wo_index_trace says which it was. */
    uint32_t max_classes;
    uint8_t last_step;

    /* evidence */
    uint32_t cap; /* a cell holds at most so many classes, the most needed ones; 0: any number */
    /* Evidence as a prior: scores are logit + prior * log(1 + share / WO_PRIOR_FLOOR), where `share` is how often the
     * class was a label of the opened cells' training queries (among FULL's best, where labels are no source): a mean
     * over the cells, in which nearer leaves of a tree count more, by exp(focus * score). prior 0: none, scores are
     * logits; up to 2. focus 0: all cells count alike. It is for ranks; for probabilities see mix. */
    double prior, focus;
    /* 1: log Z is learned too, the logarithm of the sum of exp(logit) over all m classes, so that searches can answer
     * with probabilities: WO_SCORES_LOGPROB, wo_log_partition. wo_index_info says how far off it is. */
    uint8_t partition;
    /* evidence: who helps queries that know little. WO_FALLBACK_SCREEN: the best of all classes in int8 are candidates
     * too, as of method screen, unless scores are relative to a sum over candidates (softmax, log Z). The index then
     * has all rows in int8. */
    wo_fallback fallback_by;
    /* evidence by a tree: a logged query's needs count in so many more leaves than its own, up to 15: those next
     * nearest, the r-th nearest of all with weight 1 / sqrt(r). A query then finds in one cell what it would have to
     * open several for. */
    uint32_t spread;
    /* With a partition: how much of the cells' own evidence is mixed into probabilities, 0 to 0.9. Of class y
     *
     *   p(y) = (1 - mix * mass) * exp(logit(y) - log Z) + mix * share(y)
     *
     * where `share` is as of the prior, and `mass` the sum of all shares, so that probabilities of all m classes still
     * sum to 1. The prior has no part in it. 0: the network's own. Default: -1, chosen so that labels of queries that
     * the cells were not filled by are most likely: those that a tuner judges on, or a tenth of the log, 10,000 at
     * most; 0 where nothing is gained. wo_index_options has what was chosen; -1 without a partition, and in files of
     * versions that had none, whose probabilities have the prior. */
    double mix;
    /* evidence by a tree: each class lies in so many leaves besides, up to 16, for its row alone: those nearest to
     * where its queries are to be expected. For layers with far more classes than a log names. The tree is learned from
     * those places too, which lie in clusters more clearly than queries do. In a cell, classes with evidence come
     * first, then those that the layer thinks most frequent, up to the cap. 0: none. */
    uint32_t rows;
    /* evidence, popular: so many of the log's queries stay in the index, drawn by the seed, in bf16, each with its
     * source_k-th best logit: what wo_index_update files new rows by, and wo_index_check_layer judges by. 0: none */
    uint32_t keep;
    /* Where a layer is in shards, one in each of several processes: the calls that they make together; the layer is the
     * shard of this rank. Each process then gets an index of its own classes, and all have the same router: together
     * they answer as one would that was built of the whole layer. Each class must be in one shard. The log is the whole
     * one everywhere. Not for lss, nor with a partition. NULL: there is one process. */
    const struct wo_collective *together;
    /* Queries of the log to judge the index by, while its cells are filled by the others, if it has cells: see
     * wo_index_info.held_n. Not for several processes. 0: none. */
    uint64_t held_out;
    /* A file where what takes long is kept until the index is saved: FULL's best of the log, block by block, and the
     * router. With `resume` a build that was stopped goes on from there, to the same bytes, in as many processes as may
     * be; it is refused where options, layer, log, version or instruction set are others. Without, it begins anew.
     * What is there and is no such file is never written over. One path for all processes: rank 0's. Of popular and
     * evidence; wo_index_tune keeps nothing. NULL: none. wo_build_forget removes it. */
    const char *checkpoint;
    uint8_t resume;
} wo_build_options;

#define WO_PRIOR_FLOOR (1.0 / 1024)

enum { WO_WIDER = 4 };

/* The defaults of a method: they serve without tuning. options_bytes: sizeof *options. */
WO_API void wo_build_defaults(wo_method method, wo_build_options *options, size_t options_bytes);

/* Whether an index can be built with these options; the sentence begins with the name of the option where one alone is
 * wrong. */
WO_API wo_status wo_build_check(const wo_build_options *options, wo_error *err);

/* The build options as a table, for programs that take them by name: tools, bindings, sweeps. All but threads and
 * progress, which are of a call and not of an index. Defaults are asked with wo_build_defaults and wo_build_get. */
typedef struct wo_option_info {
    size_t struct_size; /* sizeof(wo_option_info): set it before the call */
    const char *name;   /* "lambda": as in the metadata of an index */
    const char *help;   /* one line */
    const char *values; /* "labels|top|both"; NULL: a number */
    double low, high;   /* of numbers: what it takes; of words the numbers of the first and the last */
    int whole;          /* whole numbers only; from 0 to 1: a flag */
    unsigned step;      /* multiples of this only; 0: any */
    unsigned methods;   /* bit 1 << wo_method: those that have it */
    unsigned routers;   /* of evidence, bit 1 << wo_router: those that have it */
    unsigned fix;       /* WO_FIX_...: what wo_tune_options.fixed needs where it was given; 0: it is never tuned */
} wo_option_info;

/* Fills `info`, the strings static; returns 0 where there is no i-th option. */
WO_API int wo_option_at(size_t i, wo_option_info *info);

/* Sets an option by its name (`-` does for `_`) from a number with a point, or a word. Fails, with a sentence that
 * begins with the name, where the option does not take the value; then nothing is changed. */
WO_API wo_status wo_build_set(wo_build_options *options, const char *name, const char *text, wo_error *err);

/* The value of an option as text that wo_build_set reads, as snprintf writes: terminated, and the length that all of
 * it has. 0: there is no such option. */
WO_API size_t wo_build_get(const wo_build_options *options, const char *name, char *text, size_t text_bytes);

/* Whether an option has a part in an index with these options: not K in a tree, nor rate where nothing is learned. */
WO_API int wo_build_uses(const wo_build_options *options, const char *name);

/* Immutable once made, shared by any number of threads. */
typedef struct wo_index wo_index;

/* `log` may be NULL for full, slide and screen. The layer must outlive the index. options NULL: evidence with its
 * defaults. */
WO_API wo_status wo_index_build(const wo_layer *layer, const wo_log *log, const wo_build_options *options,
                                wo_index **index, wo_error *err);

/* Removes the checkpoint of a build, once its index is saved; there need be none. */
WO_API wo_status wo_build_forget(const char *checkpoint, wo_error *err);

/* The same index gives the same bytes. */
WO_API wo_status wo_index_save(const wo_index *index, const char *path, wo_error *err);

/* The same in each of several processes, each to a path of its own: all files appear, or none. Where one process dies
 * just then, or cannot replace its file, others' may be there, complete; none has returned WO_OK. */
WO_API wo_status wo_index_save_together(const wo_index *index, const char *path, const struct wo_collective *together,
                                        wo_error *err);

/* Makes one index of those of all shards, which must be of one build and have each class once: the bytes that one
 * process would have written that built it of the whole layer. All rows are in memory meanwhile. What was written is
 * opened and verified before it replaces `output`. */
WO_API wo_status wo_index_join(const char *const *paths, size_t n, const char *output, wo_error *err);

typedef struct wo_open_options {
    size_t struct_size; /* set it to sizeof(wo_open_options) */
    /* Needed where the file has no rows. It must be the layer that the index was built for (checksums are compared),
     * and must outlive the index. NULL: none */
    const wo_layer *layer;
    wo_verify verify;
    uint32_t reserved; /* 0 */
    wo_progress progress;
} wo_open_options;

/* Maps an index file. A file that is replaced by rename while it is in use, as ours are, does no harm. One that is
 * overwritten in place gives wrong scores, but ids of classes: what decides an address is copied and checked, whatever
 * is verified. One that is cut short raises SIGBUS, for which the library sets no handler: that is the program's. */
WO_API wo_status wo_index_open(const char *path, const wo_open_options *options, wo_index **index, wo_error *err);

/* The same of the bytes of a file in memory, aligned to 8, which are not copied and must stay as they are. */
WO_API wo_status wo_index_open_memory(const void *data, size_t bytes, const wo_open_options *options, wo_index **index,
                                      wo_error *err);
WO_API void wo_index_free(wo_index *index);

WO_API size_t wo_index_m(const wo_index *index); /* classes */
WO_API size_t wo_index_d(const wo_index *index); /* dimensions */

enum { WO_HELD_FEW = 1000 }; /* queries: an index of a log of fewer is not judged, see wo_index_info.held_n */
enum { WO_LOG_Z_FEW = 200 }; /* queries: fewer are not divided, see wo_index_info.log_z_error */

typedef struct wo_index_info {
    size_t struct_size; /* set it to sizeof(wo_index_info) */
    wo_method method;
    int has_names;
    const char *method_name; /* "evidence" */
    size_t m, d;
    uint64_t n_cells;          /* over all tables; of a tree all leaves, used or not */
    uint64_t n_entries;        /* classes in them */
    uint64_t n_empty, largest; /* cells without a class, unused leaves among them; classes in the largest */
    uint64_t index_bytes;      /* router and cells, or screen's int8 rows; without the layer's rows */
    /* Batches of full_from to full_to queries are answered by FULL, which a tuner found to be faster there; full_from
     * 0: none are; full_to 0: all larger ones. */
    uint32_t full_from, full_to;
    /* Of an index that was just built with rows in bf16 or int8: what they changed, beside f32 rows, on up to 2,000 of
     * the logged queries: the share with the same best answer, and of the five best that stayed. Of a screen: on held_n
     * of them. NAN: not measured. */
    double same_best, same_five;
    /* Of an index with a partition: how far its log Z is from the exact one, on up to 25,000 of the logged queries that
     * it was not fitted to: the root of the mean square in nats, and the mean; without the prior. Of a log with
     * fewer than WO_LOG_Z_FEW, on those that it was fitted to. NAN: it has none. */
    double log_z_error, log_z_bias;
    /* Of an index that was opened: its file's own checksum, which is over the checksums of all that is in it: two files
     * with one are the same index. 0: it was built, and is in no file. */
    uint64_t checksum;
    uint64_t layer_checksum; /* of the layer that it was built for: one layer may have many indexes */
    uint64_t n_kept;         /* training queries that it keeps: see wo_build_options.keep */
    uint64_t n_removed;      /* classes that were removed: see wo_index_update */
    /* Of an index of a shard: which one, from 0, of how many (0: it is none), and the classes of all of them. m then
     * counts those of the shard; ids in calls and answers are those of the whole layer. */
    uint32_t shard, n_shards;
    size_t m_whole;
    uint64_t router_checksum; /* the same in all shards of one build, as the layer's is */
    /* Of an index that was just built with held_out: on how many queries it was judged, the share whose best answer was
     * FULL's, and the shares of labelled ones whose best answer was a label, the index's and FULL's (NAN: none has
     * one). An index of evidence had them left out of its cells meanwhile, not of its router. held_n is 0 and the rest
     * NAN where it was not judged: a log of fewer than WO_HELD_FEW, of a screen 50, or a layer so large that FULL takes
     * long. */
    uint64_t held_n;
    double held_same_best, held_p_at_1, held_full_p_at_1;
    uint64_t dealing; /* as in wo_layer_info */
} wo_index_info;

/* Both fail, with WO_ERR_ARGUMENT, only where struct_size is not set. */
WO_API wo_status wo_index_describe(const wo_index *index, wo_index_info *info);
/* The options that it was built with; progress and threads are empty. */
WO_API wo_status wo_index_options(const wo_index *index, wo_build_options *options);

/* The name of a class, not terminated, in the index's memory; NULL where names or the class are unknown. */
WO_API const char *wo_index_label(const wo_index *index, int32_t id, size_t *name_bytes);

/* What learning looked like (lss): `rows` points of `columns` numbers, row after row, in the index's
 * memory; names[c] tells what column c is. Files of older versions have fewer columns. Returns 0 where there is no
 * trace. */
typedef struct wo_trace {
    size_t struct_size; /* set it to sizeof(wo_trace) */
    size_t rows, columns;
    const double *values;
    const char *const *names;
} wo_trace;
WO_API int wo_index_trace(const wo_index *index, wo_trace *trace);

/* ---- Updating an index ------------------------------------------------------------------------------------- */

/* What becomes of classes. Rows come as layers, opened or wrapped, of the index's d; they are copied. */
typedef struct wo_update_options {
    size_t struct_size; /* set it to sizeof(wo_update_options) */
    /* Rows of new classes, with ids from wo_index_m on; no shard of a layer. NULL: none. Of an index with names they
     * bring theirs, or are called by their numbers; to an index without names they bring none. Without biases they
     * have 0. */
    const wo_layer *add;
    /* Row i takes the place of that of class replace_ids[i]; where it has names or biases, those too, else the class
     * keeps its own. NULL: none */
    const wo_layer *replace;
    /* As many as `replace` has rows, each once. NULL: its file says them, in a tensor `ids` of I32 or I64, which are
     * then of the same file as the rows, whatever has its name since. */
    const int32_t *replace_ids;
    const int32_t *remove; /* classes that are never answered again */
    size_t n_remove;
    int threads;       /* 0: all cores. The result does not depend on it. */
    uint32_t reserved; /* 0 */
    wo_progress progress;
} wo_update_options;

/* A new index in which classes have come, changed and gone; the router stays as it was learned. It has copies of all
 * that it needs: neither the old index nor layers must outlive it.
 *
 * evidence, popular: a new or changed row goes into the cells of those kept queries (wo_build_options.keep) that have
 * it among their source_k best, and a changed one leaves all others; a new class that none of them has goes where it
 * comes closest. Its share, for prior and mixture, is what the network makes of it there, until an index is built with
 * its labels. slide, lss: it lies where it hashes to. full, screen: there are no cells. Caps do not hold for what is
 * added, and log Z (partition) stays as it was learned.
 *
 * A removed class is in no answer, whoever gives it, mandatory or not; wo_score refuses it. Ids of the others stay, and
 * so does its row: the index's layer is the one with new and changed rows, and its checksum that layer's. Of an index
 * with rows in bf16 alone, opened without its layer, it is that of the rounded rows.
 *
 * Fails with WO_ERR_UNSUPPORTED where rows are to be filed and the index keeps no queries. */
WO_API wo_status wo_index_update(const wo_index *index, const wo_update_options *options, wo_index **updated,
                                 wo_error *err);

/* What to do with an index whose layer has changed. Values are pinned. */
typedef enum wo_verdict {
    WO_VERDICT_FINE = 0,   /* nothing: no row differs, or 99.5% of the kept queries have the same best class */
    WO_VERDICT_UPDATE = 1, /* wo_index_update with the rows that differ: they are a quarter of the index's or fewer, or
                            * the cells hold 95% or more of what they hold of the index's own five best, and there is
                            * no prior: replaced rows have the layer's own answers for their shares, not labels */
    WO_VERDICT_REBUILD = 2 /* build it anew, from queries of the changed network: neither is so */
} wo_verdict;

typedef struct wo_layer_check {
    size_t struct_size; /* set it to sizeof(wo_layer_check) */
    /* Set these too: where the ids of rows that differ go, rising (NULL: nowhere), and room for so many. */
    int32_t *changed;
    size_t changed_room;
    uint64_t n_changed; /* rows that differ, in bf16 where the index has no others; none of removed classes */
    uint64_t n_added;   /* rows beyond the index's m */
    double mean_change, most_change; /* |new - old| / |old| of those that differ, biases among them; NAN: none */
    uint64_t n_kept;                 /* queries that the rest is about; 0: the index keeps none, all of it is NAN */
    double held_1, held_5;           /* of the new layer's best, and of its 5 best, the share that is in the cells */
    double own_held_1, own_held_5;   /* the same of the index's own rows */
    double same_1;                   /* queries with the same best class */
    wo_verdict verdict;
    /* Set it too: compare so many rows alone, from the first to the last in even steps, and judge no queries: another
     * layer differs in nearly every row. An index of a shard will do. 0: all. */
    uint32_t sample;
} wo_layer_check;

/* How stale an index is for a layer that has changed since: a whole one of the index's d, with as many classes or more,
 * and with biases where the index has them. */
WO_API wo_status wo_index_check_layer(const wo_index *index, const wo_layer *layer, int threads, wo_layer_check *check,
                                      wo_error *err);

/* ---- Tuning ------------------------------------------------------------------------------------------------ */

/* What of `build` is kept as it is; the rest is tuned. Router, K, L, lambda and tree belong to evidence, which they fix
 * too where the method is not; K and L belong to hyperplanes, tree to the tree. */
enum {
    WO_FIX_METHOD = 1,
    WO_FIX_ROUTER = 2,
    WO_FIX_K = 4,
    WO_FIX_L = 8,
    WO_FIX_LAMBDA = 16,
    WO_FIX_PROBES = 32,
    WO_FIX_WEIGHTS = 64,
    WO_FIX_TREE = 128, /* nodes and leaves */
    WO_FIX_ROUTE_D = 256,
    WO_FIX_BEAM = 512,
    WO_FIX_POPULAR = 1024,
    WO_FIX_FALLBACK = 2048,
    WO_FIX_SOURCE = 4096,
    WO_FIX_CAP = 8192,
    WO_FIX_PRIOR = 16384, /* and focus */
    WO_FIX_SPREAD = 32768
};

/* What shows that the chosen index reaches the goal. */
typedef enum wo_proof {
    WO_PROOF_NONE = 0,      /* nothing: it was the best that was found, or it need not be shown (FULL, a time) */
    WO_PROOF_HITS = 1,      /* its hits beside FULL's, with confidence */
    WO_PROOF_AGREEMENT = 2, /* hits were too few to tell: as many hits as asked for, and FULL's own answers with
                             * confidence, on the queries that were judged or on others of the log */
    WO_PROOF_ALL_EQUAL = 3, /* it looks through every class, and answered as FULL on these queries */
    WO_PROOF_HELD_OUT = 4   /* hits were too few to tell: as many hits as asked for, and hits with confidence on queries
                             * of the log that were held out from building */
} wo_proof;

/* What the tuner tried, in the order of trying: `rows` points of `columns` numbers, row after row, in the index's
 * memory; names[c] tells what column c is (docs/FORMAT.md). NAN stands for what does not apply. */
typedef struct wo_curve {
    size_t struct_size; /* set it to sizeof(wo_curve) */
    size_t rows, columns;
    const double *values;
    const char *const *names;
    size_t chosen; /* row */
    double target, target5, target_agree, target_us;
    uint32_t k, batch;
    uint64_t n; /* queries it was judged on */
    wo_proof proof;
    uint64_t labelled;   /* of these with labels */
    uint64_t needed;     /* that would do to prove the goal by hits, about; 0: these do, or nobody can tell */
    uint64_t built_from; /* queries of the log, where there was no time to build from all of them; 0: there was */
    uint64_t held_out;   /* queries of the log that were held out to show by what hits were too few for; 0: none */
    wo_proof provable;   /* what these queries could show at best, known once FULL was asked; WO_PROOF_NONE: a file that
                          * does not say, or a goal that need not be shown */
    uint64_t changed;    /* classes that updates have added, replaced and removed since: all this is of before */
} wo_curve;

typedef struct wo_tune_options {
    size_t struct_size; /* wo_tune_defaults sets it */
    /* What is fixed, and what is never tuned: seed, threads, progress, ... NULL: evidence's defaults */
    const wo_build_options *build;
    unsigned fixed;    /* WO_FIX_...; 0: everything is tuned. A prior above 0 goes with no target_agree */
    uint32_t reserved; /* 0 */

    /* The goal, one of three. Where no judged query has labels, or FULL's best answer never is one, so that every index
     * has any share of its hits, `target` is taken for target_agree, 0.99 at most: wo_curve then has target 0, and
     * target_agree says what was reached for. One above 1 needs labels alone. */
    double target, target5; /* shares of FULL's P@1 (above 0 to 2) and P@5 (0: any). Default: 0.995 and 0.99 */
    double target_agree;    /* above 0: instead, this share of FULL's own k best. Needs no labels. */
    double target_us;       /* above 0: instead, at most so many microseconds a query, and the best quality there: the
                             * mean of the shares of FULL's P@1 and P@5; hits alone where FULL's best answer is never a
                             * label; agreement where target_agree is set, without labels, or where nobody has a hit;
                             * INFINITY: at most a tenth of FULL's time */

    uint32_t k;           /* answers that are asked for, in agreement and when timing, 1 to 1,000. Default: 5 */
    uint32_t batch;       /* queries a call when timing, 1 to 65,536; 1 runs on one thread. Default: 1 */
    double max_time_s;    /* about so long, the last build counted, and 5 s at least: what does not fit is left
                           * unfinished. Default: 180 */
    uint64_t max_queries; /* judge a seeded sample of so many, or fewer, in proportion to the time. Default: 200,000 */
    /* Asked now and then while settings are tried; not 0: that is enough, and the best so far is built. Before there is
     * one the call fails with WO_ERR_CANCELLED. NULL: never. */
    int (*enough)(void *ctx);
    void *enough_ctx;
    /* Not 0, with target_us: where nothing is as fast, the fastest that was found rather than a failure; the curve says
     * that it does not reach the goal. Default: 0 */
    int anyway;
    /* Called once, as soon as FULL was asked and before settings are tried, with a curve of no rows: what is asked for,
     * and what the queries can show of it (labelled, held_out, needed, provable). Where FULL's own answers became the
     * goal it has target_agree. NULL: nobody is told. */
    void (*early)(void *ctx, const wo_curve *goal);
    void *early_ctx;
} wo_tune_options;

enum { WO_TUNE_FEW = 20 }; /* queries: of a log of fewer none are held out, where there is no tune log */

WO_API void wo_tune_defaults(wo_tune_options *options, size_t options_bytes);

/* Tries methods, routers, probes, lambdas and precisions on `tune_log`, and builds the fastest that reaches the goal
 * there with 95% confidence, from all of `log`. Nothing but times depends on the machine, but they decide: two runs may
 * give different indexes. With tune_log NULL it judges on a seeded tenth of the log, from which the final index is
 * built too, and on all of one of fewer than WO_TUNE_FEW; queries that the network was trained on flatter every index.
 *
 * FULL is always tried unless the method is fixed, so that any share can be reached: it is the answer where nothing
 * else reaches it, and where nothing else is faster. Fails with WO_ERR_UNSUPPORTED where a fixed method cannot reach
 * the goal, or nothing is as fast as target_us and `anyway` is 0; the sentence says what the best had. `options` may be
 * NULL. */
WO_API wo_status wo_index_tune(const wo_layer *layer, const wo_log *log, const wo_log *tune_log,
                               const wo_tune_options *options, wo_index **index, wo_error *err);

/* Returns 0 where the index was not tuned. */
WO_API int wo_index_curve(const wo_index *index, wo_curve *curve);

/* The settings of a row in words, "evidence tree 32x48 r=32 beam=2 probes=2 lambda=0.043 bf16", as snprintf writes:
 * terminated, and the length that all of it has; empty where there is no such row. */
WO_API size_t wo_curve_text(const wo_curve *curve, size_t row, char *text, size_t text_bytes);

/* ---- Searching --------------------------------------------------------------------------------------------- */

/* The scratch memory of one thread's searches. Several may share an index; one must not be used by two threads at once.
 * Nothing is allocated after its creation. */
typedef struct wo_searcher wo_searcher;

typedef struct wo_searcher_options {
    size_t struct_size;     /* wo_searcher_defaults sets it */
    int threads;            /* that a batch may use; 0: all cores. Default: 1. One query never starts a thread. */
    uint32_t max_probes;    /* that a call may ask for; 0: the index's own */
    uint32_t max_mandatory; /* classes that a call may demand. Default: 1,024 */
    uint32_t reserved;      /* 0 */
} wo_searcher_options;

WO_API void wo_searcher_defaults(wo_searcher_options *options, size_t options_bytes);
WO_API wo_status wo_searcher_create(const wo_index *index, const wo_searcher_options *options, wo_searcher **searcher,
                                    wo_error *err);
WO_API void wo_searcher_free(wo_searcher *searcher);

/* The k best classes of each of n queries (n, d): ids and scores (n, k), best first, ties to the lower id, padded with
 * -1 and -INFINITY where there are fewer candidates. A query with NaN or infinite numbers gets -1, and so does one
 * whose logits are so large that an answer's score would be infinite; the others are answered. */
WO_API wo_status wo_search(wo_searcher *searcher, const float *queries, size_t n, size_t k, int32_t *ids, float *scores,
                           wo_error *err);

typedef enum wo_scores {
    WO_SCORES_LOGITS = 0, /* with the prior of the index, where it has one: see wo_build_options */
    /* Probabilities over the candidates, 0 in place of -INFINITY. The cells answer, whatever the planner says, so that
     * a query has the same ones in every batch; FULL, where it is asked for, or the fallback to it, answers over all
     * classes, and so does method screen. */
    WO_SCORES_SOFTMAX = 1,
    /* The logarithm of a probability, over all m classes. The cells answer, whatever the planner says, with the log Z
     * that an index with a partition estimates and what it mixes in of their evidence: see wo_build_options.mix. FULL,
     * where it is asked for, answers with the layer's own, logit - log Z, exactly. Logits and log probabilities are two
     * meanings: a prior is in the first alone, a mixture in the second alone. */
    WO_SCORES_LOGPROB = 2
} wo_scores;

/* Who answers. */
typedef enum wo_by {
    WO_BY_PLANNER = 0, /* FULL for batches where the index knows it to be faster, else the cells */
    WO_BY_CELLS = 1,   /* the cells: a query has the same answer in every batch */
    WO_BY_FULL = 2     /* all m classes, exactly. Needs f32 rows. */
} wo_by;

typedef struct wo_query_stats {
    wo_status status;    /* WO_ERR_ARGUMENT: the query or its scores are not finite, all its ids are -1 */
    uint32_t cells;      /* opened */
    uint32_t candidates; /* distinct classes scored */
    uint8_t wider;       /* little evidence: more cells were opened, or the screen was asked too */
    uint8_t exact;       /* answered by FULL */
    uint8_t reserved[2];
} wo_query_stats;

/* A search with all that can be asked of it. What is 0 or NULL has its default; nothing is kept after the call. What is
 * written shares no memory with queries and logit_bias, which are read until the end; the two lists of classes are read
 * before the first answer is written, so that they may be answers of an earlier call, in the same place. */
typedef struct wo_search_call {
    size_t struct_size;   /* set it to sizeof(wo_search_call) */
    const float *queries; /* (n, d) */
    size_t n, k;
    int32_t *ids;          /* (n, k) */
    float *scores;         /* (n, k) */
    wo_query_stats *stats; /* (n), or NULL: one for every query */
    size_t stats_bytes;    /* sizeof(wo_query_stats), from one to the next; 0: 16 */
    wo_by by;
    wo_scores score;
    uint32_t probes;    /* 0: the index's own; at most the searcher's max_probes */
    int exact_fallback; /* FULL answers queries that the index knows little about: see wo_build_options */
    /* Classes that are never answered, and classes that are always candidates: a pass over each list a call. */
    const int32_t *forbidden, *mandatory;
    size_t n_forbidden, n_mandatory;
    const float *logit_bias; /* (m), finite, added to the logits */
    int no_prior;            /* scores are of logits alone: no prior, and nothing is mixed into probabilities */
    /* (n, 2), or NULL: the logarithm of the sum of exp(score) over the candidates, as a sum of two numbers, the largest
     * score and what the others add: what turns logits into a softmax, and adds up over shards. Goes with logits. */
    double *log_sums;
} wo_search_call;

WO_API wo_status wo_search_run(wo_searcher *searcher, const wo_search_call *call, wo_error *err);

/* All candidates of a call's only query, in no particular order: at most `capacity` go to `ids`, *n_candidates counts
 * all: those of the cells, also where the planner or the fallback would ask FULL, unless WO_BY_FULL is asked for. ids
 * and scores of the call are not used, and k where there is a screen alone: the more answers, the more classes it
 * scores. */
WO_API wo_status wo_search_candidates(wo_searcher *searcher, const wo_search_call *call, int32_t *ids, size_t capacity,
                                      size_t *n_candidates, wo_error *err);

/* log Z of each query of a call: log_z (n), NAN where a query or its logits are not finite. With the logit of a class
 * it gives the logarithm of its probability, logit - log Z: of any class, where nothing is mixed in (no_prior,
 * WO_BY_FULL, mix 0); else of those that are no candidates, with log(1 - mix * mass) taken off log Z: candidates have
 * theirs by WO_SCORES_LOGPROB. Estimated by the cells, unless WO_BY_FULL is asked for; k, ids, scores and score of the
 * call are not used. Fails where the index was built without a
 * partition, and, as WO_SCORES_LOGPROB by the cells does, where a call changes what log Z was learned for: probes,
 * forbidden and mandatory classes, logit_bias. */
WO_API wo_status wo_log_partition(wo_searcher *searcher, const wo_search_call *call, float *log_z, wo_error *err);

/* The logits of given classes for one query, as exact as the index's rows are: logits (n). */
WO_API wo_status wo_score(wo_searcher *searcher, const float *query, const int32_t *ids, size_t n, float *logits,
                          wo_error *err);

/* Draws a class for each of n queries from the answers of a search, whose scores are logits or log probabilities, not
 * softmax: with exp(score / temperature) for odds, among the first top_k, and of these among the fewest that together
 * have top_p of the probability. What is left out by the search is never drawn. */
typedef struct wo_sample_call {
    size_t struct_size;  /* set it to sizeof(wo_sample_call) */
    const int32_t *ids;  /* (n, k), best first, as wo_search_run leaves them */
    const float *scores; /* (n, k) */
    size_t n, k;
    double temperature; /* 0: the best class; 1: as the network learned; up to 1e6 */
    double top_p;       /* 0: the best class alone; 1: all */
    uint32_t top_k;     /* 0: all k */
    uint32_t reserved;  /* 0 */
    /* Query i draws by number position + i of the seed's. The same seed and position draw the same class from two lists
     * with the same scores, the answers of an index and of FULL, unless one of them lacks it. */
    uint64_t seed, position;
} wo_sample_call;

/* drawn (n): a class, or -1 where a query has no answer. */
WO_API wo_status wo_sample(const wo_sample_call *call, int32_t *drawn, wo_error *err);

/* ---- Learning while it serves ------------------------------------------------------------------------------ */

/* An adapter learns from queries whose labels became known after they were answered. It counts them in the cells of an
 * index, and publishes indexes with the cells that the counts make: by the index's own rule, lambda and cap, so that
 * classes join and leave; shares, which the prior and the mixture go by, follow. An index never changes: a search works
 * on the one that its searcher has, and never waits. To replace it is the caller's, by a pointer and wo_searcher_move.
 *
 * What the base counted is taken from its cells: shares of the queries that each had, or, where no shares are kept,
 * twice the least that would have put a class there. What it counted of classes that it did not take in is not known.
 * log Z, of an index with a partition, stays that of the base's cells.
 *
 * For one thread at a time; several adapters are fine. Memory grows with the classes that were observed in each cell,
 * a half-life lets those go that do not come back. The base must outlive the adapter and all that it published. */
typedef struct wo_adapter wo_adapter;

typedef struct wo_adapter_options {
    size_t struct_size; /* set it to sizeof(wo_adapter_options) */
    double half_life;   /* after so many observed queries what was counted counts half; 0: nothing fades */
} wo_adapter_options;

/* Of an index with method evidence; others count nothing. `base` may be an index that an adapter published. */
WO_API wo_status wo_adapter_create(const wo_index *base, const wo_adapter_options *options, wo_adapter **adapter,
                                   wo_error *err);
WO_API void wo_adapter_free(wo_adapter *adapter);

/* Counts queries (n, d) and their labels, as in wo_log_wrap: indptr (n+1) rises from 0. One that is not finite, or a
 * label that is no class, is refused with all others of the call: then nothing is counted. A label of a class that was
 * removed (wo_index_update) is passed over. */
WO_API wo_status wo_adapter_observe(wo_adapter *adapter, const float *queries, size_t n, const int64_t *indptr,
                                    const int32_t *labels, wo_error *err);

/* An index that knows what was observed, or NULL where nothing was since the last one. It has its own cells, those in
 * which nothing was observed as they were, and all else of the base. Takes as long as a copy of the cells, and a
 * little for each cell that changed. Free it before the base; the adapter does not need it. Its checksum
 * (wo_index_info) is 0 until it is saved and opened. */
WO_API wo_status wo_adapter_publish(wo_adapter *adapter, wo_index **next, wo_error *err);

/* All since the adapter was created. */
typedef struct wo_adapter_info {
    size_t struct_size;     /* set it to sizeof(wo_adapter_info) */
    uint64_t queries;       /* observed */
    uint64_t cells;         /* in which something was */
    uint64_t entries_added; /* classes that joined a cell in some publication, and that left one */
    uint64_t entries_left;
    uint64_t publications;
} wo_adapter_info;

/* Fails, with WO_ERR_ARGUMENT, only where struct_size is not set. */
WO_API wo_status wo_adapter_describe(const wo_adapter *adapter, wo_adapter_info *info);

/* From now on the searcher searches `index`, which has the same base as the one before, or is its base: an index that
 * was published, or what it was published from. Memory is taken only where cells have become larger; where there is
 * none the searcher stays as it was. The index before may then be freed, or have been. */
WO_API wo_status wo_searcher_move(wo_searcher *searcher, const wo_index *index, wo_error *err);

/* ---- Several processes ------------------------------------------------------------------------------------- */

/* Calls that all processes of a job make together, each the same ones in the same order. The library knows no MPI: a
 * program fills in this table. Sums are added in the order of ranks, so that every rank has the same bits. A call that
 * fails on one rank fails on all of them, within a limited time. */
typedef struct wo_collective {
    size_t struct_size; /* set it to sizeof(wo_collective) */
    int rank, size;     /* rank 0 .. size - 1 */
    void *ctx;          /* handed to every call */
    wo_status (*broadcast)(void *ctx, void *data, size_t bytes, int root, wo_error *err);
    /* all: what rank 0 has, rank 1, ...: bytes[r] bytes of rank r; every rank knows all of `bytes` and gets all. `data`
     * may be the rank's own place in `all`. */
    wo_status (*gather)(void *ctx, const void *data, const size_t *bytes, void *all, wo_error *err);
    wo_status (*sum_f32)(void *ctx, float *data, size_t n, wo_error *err); /* in place, the same on every rank */
    wo_status (*sum_f64)(void *ctx, double *data, size_t n, wo_error *err);
} wo_collective;

/* Answers to n queries, k each. */
typedef struct wo_answers {
    size_t struct_size; /* set it to sizeof(wo_answers) */
    size_t n, k;
    int32_t *ids;     /* (n, k), best first, padded with -1 */
    float *scores;    /* (n, k) */
    double *log_sums; /* (n, 2), as in wo_search_call, or NULL */
} wo_answers;

/* The k best of what all ranks have found for the same queries, on every rank: the answers become those of all, ties to
 * the lower id, and the sums those of all. The arrays are written. */
WO_API wo_status wo_merge_best(const wo_collective *together, const wo_answers *answers, wo_error *err);

/* ---- Evaluation -------------------------------------------------------------------------------------------- */

enum { WO_EVAL_MAX = 16 }; /* numbers of answers, batch sizes */

typedef struct wo_eval_options {
    size_t struct_size; /* wo_eval_defaults sets it */
    /* k: for each, the share of FULL's k best that are among the method's k best. The largest is also how many answers
     * are asked for when searches are timed. 1 to 1,000 each. Default: 1 and 5. */
    uint32_t ks[WO_EVAL_MAX];
    size_t n_ks;
    /* Batch sizes to time, 1 to 65,536 each. A batch of 1 runs on one thread, others on `threads`, the method and FULL
     * alike. Default: 1 and 1024. */
    uint32_t batches[WO_EVAL_MAX];
    size_t n_batches;
    uint32_t batch;       /* the one that `headline` is about; timed too if it is not in the list. Default: 1024 */
    uint64_t max_queries; /* judge a seeded sample of so many; 0: the whole log */
    uint32_t rounds;      /* of timing, each of the method, then of FULL; 0: 9, fewer on layers that take long */
    uint32_t probes;      /* 0: the index's own */
    int exact_fallback;   /* as in wo_search_call */
    int skip_timing;      /* quality only */
    uint64_t seed;
    int threads; /* 0: all cores. Quality does not depend on it. */
    wo_progress progress;
    int no_prior; /* as in wo_search_call */
} wo_eval_options;

WO_API void wo_eval_defaults(wo_eval_options *options, size_t options_bytes);

/* Microseconds a query, of the method and of FULL: a call's time divided by its batch, the median and the 99th
 * percentile over the calls, which is the slowest where there are fewer than 100. Caches are warm: untimed calls with
 * other queries go before. NAN where there is no FULL. */
typedef struct wo_eval_timing {
    uint32_t batch;
    int threads;
    uint32_t calls, full_calls; /* that were timed */
    double us, us_p99;
    double full_us, full_us_p99;
    double speedup; /* full_us / us */
    /* CPU seconds of all threads per 1,000 queries */
    double cpu_s_per_1000, full_cpu_s_per_1000;
} wo_eval_timing;

/* NAN stands for what does not apply: precision without labels, FULL without f32 rows, times that were skipped. */
typedef struct wo_eval_result {
    size_t struct_size; /* set it to sizeof(wo_eval_result) */
    /* Set these too: where the timings go (NULL: nowhere), room for so many, and sizeof(wo_eval_timing), from one to
     * the next (0: 72). */
    wo_eval_timing *timings;
    size_t timings_room, timing_bytes;
    uint64_t n;       /* queries judged */
    uint64_t skipped; /* of them without a label: left out of P@k */
    uint64_t refused; /* queries that are not finite, or whose scores are not: left out of everything, not in n */
    /* P@k: labels among the first k answers / k, mean over queries with a label */
    double p_at_1, p_at_3, p_at_5;
    double full_p_at_1, full_p_at_3, full_p_at_5;
    double agreement[WO_EVAL_MAX]; /* for ks[i]: of FULL's ks[i] best, the share among the method's ks[i] best */
    double label_recall;           /* labels among the candidates / labels */
    double sample_size;            /* distinct classes scored, mean */
    double cells;                  /* opened, mean */
    double empty_share;            /* queries without a candidate */
    double wider_share;            /* queries that opened more cells, because theirs had little evidence */
    double exact_share;            /* queries that FULL answered */
    /* Mean rank of the labels among all m by FULL's logits, 1 the highest, ties to the lower id; where there are more
     * than 20,000 queries, of a seeded sample of so many */
    double label_rank;
    /* Mean rank among a query's candidates of the labels that are candidates: read it beside label_recall */
    double label_rank_retrieved;

    uint32_t k; /* answers asked for when timing */
    uint32_t reserved;
    size_t n_timings; /* batch sizes, rising: at most WO_EVAL_MAX + 1; those beyond timings_room are left out */
    size_t headline;  /* timings[headline] is that of options.batch */
    /* One query, one thread, after a walk through twice the last-level cache: microseconds, median */
    double cold_us, full_cold_us;
    /* Joules per 1,000 queries at the headline's batch, those of the idle machine subtracted: packages and memory by
     * RAPL. NAN where not measured, and why. */
    double energy_j_per_1000, full_energy_j_per_1000;
    char energy_note[160];
    /* What FULL reaches of the machine's measured limits: with the largest batch, if that is 256 or more, of the
     * multiply-adds that its threads can do; one query at a time, of the rate at which one thread reads the rows. Below
     * 0.4 FULL is weak here, and `speedup` too high. NAN for fewer than a million weights. */
    double full_of_peak, full_of_read;

    /* Of an index with a partition, NAN for others and where `probes` are not its own. Perplexity is exp(mean of -log
     * p) over all labels, candidates or not: by the cells, with what they mix in; and by the layer alone. */
    double perplexity, full_perplexity;
    /* Of the estimated log Z, beside the exact one, nothing mixed in: the root of the mean square, in nats, and the
     * mean; and what probabilities of all m classes sum to, on average. */
    double log_z_error, log_z_bias, probability_sum;
} wo_eval_result;

/* Judges an index on a log that it was not built from, and times it against FULL in the same run. `layer` may be NULL:
 * FULL then uses the rows in the index. Given, it must be the layer that the index was built for. `options` may be
 * NULL. Fails when the log does not fit the index: another d, labels beyond m. Time it while nothing else runs. */
WO_API wo_status wo_evaluate(const wo_index *index, const wo_layer *layer, const wo_log *log,
                             const wo_eval_options *options, wo_eval_result *result, wo_error *err);

#ifdef __cplusplus
}
#endif
#endif
