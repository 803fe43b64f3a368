/* What the files of the server share. A request's way:
 *
 *   http.c        bytes on a connection become a woi_request, and a woi_reply goes back
 *   route.c       which function answers a path; who may
 *   v1.c, v2.c    read a body into a woi_job, and write its answers down, each in its dialect
 *   search.c      runs a job with a searcher of the snapshot that is current
 *   snapshot.c    the index and the network that are served: opened, lent, replaced
 *   reload.c      when they are replaced
 *   shards.h      or, in place of an index: other servers, each with a part of the classes
 *
 * Handlers see requests and replies alone, no connection: so they can be called, and fuzzed, without one. */
#ifndef WOI_SERVE_SERVER_H
#define WOI_SERVE_SERVER_H

#include "net/net.h"
#include "out.h"
#include "serve.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

/* ---- Requests and replies ---------------------------------------------------------------------------------- */

typedef enum woi_part { WOI_HEADERS, WOI_ARGUMENTS } woi_part;

/* All of it is the caller's. */
typedef struct woi_request {
    const char *method, *path; /* unescaped, without what follows a question mark */
    const char *(*header)(const void *ctx, const char *name);
    const char *(*argument)(const void *ctx, const char *name);       /* behind the question mark; NULL: absent */
    const char *(*name_at)(const void *ctx, woi_part part, size_t i); /* of all there are; NULL: no more */
    const void *ctx;
    const void *body; /* aligned for floats */
    size_t body_bytes;
    bool loopback; /* it comes from this machine, as far as the connection tells */
} woi_request;

typedef struct woi_server woi_server;
typedef struct woi_ticket woi_ticket;
typedef struct woi_job woi_job;
typedef struct woi_work woi_work;

/* A zeroed one is empty. */
typedef struct woi_reply {
    int status;       /* HTTP's */
    const char *type; /* of the body; static */
    woi_out body;
    uint64_t checksum;      /* of the index that answered; 0: none did */
    uint64_t generation;    /* of what it has learned since */
    size_t json_bytes;      /* KServe: where binary tensors follow, the bytes before them; else 0 */
    const char *allow;      /* 405: the methods that do */
    unsigned retry_after_s; /* 503 */
    size_t n_queries, n_k;  /* that were answered */
    const char *fixed;      /* in place of the body: static */
    size_t fixed_bytes;
    char *missing; /* shards that have no part in the answer, with commas between them; malloc's, or NULL */
    /* The answer comes later: whoever answers calls this once the connection sleeps; it wakes by the ticket's `done`.
     */
    void (*later)(woi_server *server, woi_ticket *ticket);
    woi_work *work; /* that it waits for; of a batch */
} woi_reply;

/* A request that is answered later. */
struct woi_ticket {
    woi_ticket *next;
    woi_reply reply; /* to be filled, then done is called, once */
    void (*done)(woi_ticket *ticket);
};

void woi_reply_free(woi_reply *reply);
/* {"error": "SENTENCE"}, in place of whatever the reply had. */
void woi_refusal(woi_reply *reply, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same, and false: checks end with it. */
#define woi_refuse(...) (woi_refusal(__VA_ARGS__), false)
/* The same for a failure of the library: 400 where the request asks for what cannot be, else 500. */
bool woi_refuse_error(woi_reply *reply, const wo_error *err);

/* say.c: a line on standard error, "wideout serve: ...", with nothing in it that a terminal would obey. */
void woi_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- Snapshots --------------------------------------------------------------------------------------------- */

/* The index that answers: the one that was opened, number 0, or one that was learned. Freed when it is no longer that
 * of its snapshot and no search is under way. */
typedef struct woi_generation {
    wo_index *index;
    uint64_t number;
    size_t refs; /* under the server's lock */
} woi_generation;

/* What stat says of the index, the network, the layer and its biases: which file it is, its size and the time of its
 * content, and behind these the time of its last change of any kind, which no program can set. */
enum { WOI_FILES = 4, WOI_CONTENT_WORDS = 4, WOI_FILE_WORDS = 6 };
typedef struct woi_file_state {
    uint64_t words[WOI_FILES][WOI_FILE_WORDS];
} woi_file_state;

/* An index with its network and searchers, as they were opened together. Never changes but for what is lent; freed when
 * it is no longer current and nobody has a part of it. */
typedef struct woi_snapshot {
    wo_index *index;
    wo_layer *layer; /* that was given, or of an index without rows; or NULL */
    woi_network *net;
    wo_index_info info;
    size_t m;        /* classes of the whole layer, which ids are of; info.m: those that are here */
    char digits[17]; /* the checksum */
    bool prior, has_full;
    pthread_mutex_t naming;
    int32_t *by_name; /* the classes in the order of their names; NULL until one is asked for. Under `naming` */
    uint32_t max_probes;
    struct woi_members *members; /* the shards that answer in place of the index, which is NULL then */
    woi_file_state files;        /* as they were when they were opened, */
    int held[WOI_FILES];         /* and descriptors of them; -1: there is none */
    atomic_bool damaged;         /* what is mapped is no longer what was opened: see woi_snapshot_whole */
    /* under the server's lock */
    size_t refs, n_idle, n_searchers;
    wo_searcher **idle; /* made for a generation that may be gone: moved to one before they search */
    woi_generation *generation;
} woi_snapshot;

typedef struct woi_lease {
    woi_snapshot *snapshot;
    wo_searcher *searcher;
    woi_generation *generation; /* that the searcher searches; NULL where there is no searcher */
} woi_lease;

/* ---- Metrics: metrics.c ------------------------------------------------------------------------------------ */

enum { WOI_TEXTS = 16 };       /* times the largest text: what all of a request may have together, see woi_most_texts */
enum { WOI_HELD_BODIES = 16 }; /* times the largest body: what all requests may hold together */
enum { WOI_MAX_ROUTES = 24, WOI_N_CODES = 16, WOI_N_LATENCIES = 18, WOI_N_SIZES = 14 };

typedef struct woi_metrics {
    atomic_ullong requests[WOI_MAX_ROUTES + 1][WOI_N_CODES]; /* the last row: paths that are none */
    atomic_ullong latency[WOI_N_LATENCIES + 1], latency_us;
    atomic_ullong sizes[WOI_N_SIZES + 1], queries, classes;
    atomic_ullong by_cells, by_wider, by_full;
    atomic_ullong reloads, failed_reloads, expired, unread;
    atomic_llong connections, in_flight;
    atomic_size_t held; /* bytes of bodies, and of answers that are not read yet */
} woi_metrics;

/* ---- The server -------------------------------------------------------------------------------------------- */

struct woi_server {
    woi_serve_options options;
    int threads;
    pthread_mutex_t lock; /* of `current` and of what snapshots lend */
    woi_snapshot *current;
    atomic_bool draining;
    double started_s;
    woi_metrics metrics;
    char *token;                 /* or NULL: none is needed */
    int access_log;              /* -1: none */
    woi_ticket *reloaders;       /* who waits for the next reload; under the lock */
    bool may_reload;             /* somebody looks at that list */
    struct woi_shadow *shadow;   /* NULL: none */
    struct woi_learner *learner; /* NULL: nothing is learned */
    struct woi_batcher *batcher; /* NULL: every request is answered by itself */
    struct woi_shards *shards;   /* NULL: the index is here */
};

/* Opens the files of the options. Sentences of a failure are about *at. */
wo_status woi_server_open(woi_server *server, const woi_serve_options *options, const char **at, wo_error *err);
void woi_server_close(woi_server *server);

/* snapshot.c: opens the files and makes the result current; what was current stays where that fails. */
wo_status woi_snapshot_load(woi_server *server, const char **at, wo_error *err);
extern const char woi_no_exact[]; /* what is said where has_full is false */
void woi_snapshot_take(woi_server *server, woi_lease *lease);
void woi_snapshot_give(woi_server *server, const woi_lease *lease);
/* A part of the same snapshot once more, without a searcher; and a searcher for it, if one is left. */
void woi_snapshot_return(woi_server *server, woi_lease *lease); /* the searcher alone */
void woi_snapshot_keep(woi_server *server, const woi_lease *from, woi_lease *lease);
bool woi_snapshot_borrow(woi_server *server, woi_lease *lease);
void woi_snapshot_drop(woi_server *server); /* nothing is current any more */
/* From now on searches of the snapshot are by this index, which is the snapshot's then. */
wo_status woi_snapshot_replace(woi_server *server, woi_snapshot *snapshot, wo_index *index, uint64_t number,
                               wo_error *err);
/* The classes of a name, rising, in the snapshot's memory; n 0: there is none. */
typedef struct woi_called {
    const int32_t *ids;
    size_t n;
} woi_called;
/* Whether classes can be asked for by name: a shard knows but its own. */
bool woi_snapshot_named(const woi_snapshot *snapshot);
/* Of one that is named; false where memory runs out. The first call sorts the names: of a million a second or two. */
bool woi_snapshot_called(const woi_snapshot *snapshot, const char *name, size_t bytes, woi_called *called);

/* files.c: as they are now; and the same, waiting for so long that every write from then on changes their times. */
woi_file_state woi_files_look(const woi_serve_options *options);
woi_file_state woi_files_settled(const woi_serve_options *options);
/* Descriptors of the files that a snapshot was opened from, whatever their names lead to later. */
void woi_files_hold(woi_snapshot *snapshot, const woi_serve_options *options);
void woi_files_let_go(woi_snapshot *snapshot);
/* Whether all that this thread has read of the snapshot's files up to now was as they were opened: asked before
 * anything is answered out of them. Where it was not, the snapshot is damaged from then on. */
bool woi_snapshot_whole(woi_snapshot *snapshot);

/* reload.c: opens the files again, answers all that wait for it, and says on standard error what came of it. Where they
 * cannot be opened, what is served stays, unless its files were overwritten: then nobody is answered from them. If they
 * were `touched`, that is so where what is in them is wrong. */
void woi_reload(woi_server *server, bool touched);
/* Those that wait will not be answered by a reload any more. */
void woi_reload_refuse(woi_server *server);
/* Whether the files have changed since the last call, and are the same as a moment ago: half-written ones may wait. */
typedef struct woi_watch {
    woi_file_state loaded, seen;
} woi_watch;
bool woi_watch_changed(woi_watch *watch, const woi_serve_options *options);
void woi_watch_begin(woi_watch *watch, const woi_serve_options *options);
/* Whether one that is served was overwritten since the last reload: that cannot wait. `touched`: it may have been, as
 * its times tell where somebody has set the time of its content back. */
bool woi_watch_overwritten(woi_watch *watch, woi_server *server, bool *touched);

/* auth.c: the token of the file. */
wo_status woi_token_read(const char *path, char **token, wo_error *err);
typedef enum woi_access { WOI_FOR_ALL, WOI_FOR_CLIENTS, WOI_FOR_ADMINS } woi_access;
/* Whether a request may have what is for these; false: the reply says why not. */
bool woi_may(const woi_server *server, const woi_request *request, woi_access access, woi_reply *reply);

/* access_log.c */
typedef struct woi_access_line {
    const char *peer, *method, *path;
    size_t bytes_in, bytes_out;
    double seconds;
} woi_access_line;
wo_status woi_access_open(woi_server *server, wo_error *err);
void woi_access_reopen(woi_server *server); /* the file of that name, which may be another by now */
void woi_access_write(woi_server *server, const woi_access_line *line, const woi_reply *reply);

/* shadow.c: a share of the queries is also answered over all classes, on a thread of low priority. */
wo_status woi_shadow_start(woi_server *server, wo_error *err);
void woi_shadow_stop(woi_server *server);
void woi_shadow_see(woi_server *server, const woi_lease *lease, const woi_job *job);
/* A share of the best answers, and of the five best, with 95% confidence. */
typedef struct woi_share {
    double at1, low1, high1, at5, low5, high5;
} woi_share;
/* Of the last queries that were checked: how many of the answers among all classes the index had. `same` is by the same
 * scores, so that it tells what the cells missed; `layer` is by the layer's logits alone, so that it also has what a
 * prior changes. The alarm goes by `same`: a prior is meant to change answers. */
typedef struct woi_agreement {
    uint64_t n; /* queries */
    woi_share same, layer;
    uint64_t checked, dropped; /* since the start */
    bool alarm;
    /* How much better the same was in the first window of this index; has_drift: that window is full. */
    bool has_drift;
    double drift1, drift5;
} woi_agreement;
bool woi_shadow_tell(woi_server *server, woi_agreement *agreement); /* false: there is no shadow */

/* learn.c: queries whose labels became known are counted, and indexes that know them replace the one that is served, on
 * a thread of its own. */
wo_status woi_learn_start(woi_server *server, const char **at, wo_error *err);
void woi_learn_end(woi_server *server);  /* after what it has; lessons that still come are refused */
void woi_learn_stop(woi_server *server); /* the same, when none can come */
/* Queries (n, d of the snapshot) with labels, as wo_adapter_observe takes them, are copied; or why they are not. */
typedef struct woi_lesson {
    struct woi_lesson *next;
    size_t n, d, n_labels;
    const float *queries;
    const int64_t *indptr;
    const int32_t *labels;
} woi_lesson;
const char *woi_learn_offer(woi_server *server, const woi_lesson *lesson);
typedef struct woi_learning {
    wo_adapter_info of_index; /* since the index was opened; what the journal has is among it */
    uint64_t dropped, generation;
    bool stopped;             /* no lesson is taken: it could not be kept, or the index cannot be learned for */
    uint64_t journal_changes; /* how often it was found cut, moved or removed */
} woi_learning;
bool woi_learn_tell(woi_server *server, woi_learning *learning); /* false: nothing is learned */

/* batch.c: requests that come together are searched together. */
wo_status woi_batch_start(woi_server *server, wo_error *err);
/* The thread ends, after what it has; requests that still come are answered one by one. Then, when none can come: */
void woi_batch_stop(woi_server *server);
void woi_batch_free(woi_server *server);
bool woi_batch_takes(const woi_server *server, const woi_job *job);
void woi_batch_enter(woi_server *server, woi_ticket *ticket); /* a woi_reply's `later` */

/* shards.c, fanout.c: other servers answer, each with a part of the classes (--shards). */
wo_status woi_shards_open(woi_server *server, const char **at, wo_error *err);
/* Asks all of them who they are, and makes the snapshot one of theirs. */
wo_status woi_shards_describe(woi_server *server, woi_snapshot *snapshot, wo_error *err);
void woi_members_free(struct woi_members *members);
wo_status woi_shards_start(woi_server *server, wo_error *err);
/* What is under way is answered with a refusal; then, when no request can come: */
void woi_shards_stop(woi_server *server);
void woi_shards_free(woi_server *server);
/* Takes the work over, to be answered later; false: the reply says why not. */
bool woi_shards_take(woi_server *server, woi_work *work, woi_reply *reply);
/* Whether enough of them are there; `why` receives a sentence of this thread's where they are not. */
bool woi_shards_ready(woi_server *server, const char **why);
void woi_shards_info(woi_server *server, woi_out *out); /* members of an object */
void woi_shards_metrics(woi_server *server, woi_out *out);

/* guard.c: from now on a mapped file that is cut short is no end of the process. A thread that met such a place reads
 * zeros there, and woi_guard_met says so, once, to that thread. */
void woi_guard_set(void);
bool woi_guard_met(void);
extern const char woi_damaged[]; /* what is said of a snapshot where that was so */

/* route.c: finds who answers and whether they may. `route` receives its number, for the metrics; false: the reply says
 * why nobody will. Decided by the head of a request, before there is a body. */
bool woi_route_find(woi_server *server, const woi_request *request, size_t *route, woi_reply *reply);
void woi_route_answer(woi_server *server, size_t route, const woi_request *request, woi_reply *reply);
const char *woi_route_name(size_t route); /* NULL beyond the last */

/* Handlers: each fills the reply. */
typedef void woi_handler(woi_server *server, const woi_request *request, woi_reply *reply);
woi_handler woi_v1_search, woi_v1_predict, woi_v1_info, woi_v1_feedback;
woi_handler woi_v2_server, woi_v2_live, woi_v2_ready, woi_v2_model, woi_v2_model_ready, woi_v2_infer;
woi_handler woi_healthz, woi_readyz, woi_metrics_show, woi_admin_reload;
woi_handler woi_page, woi_page_style, woi_page_script;

/* v2.c: the rest of a path behind "/v2/models/NAME" or "/v2/models/NAME/versions/VERSION"; NULL: the path does not
 * begin so, or, where the reply has a status then, of a model that is not served. */
const char *woi_v2_rest(woi_server *server, const char *path, woi_reply *reply);

/* Whether requests are answered at all; `why` receives a sentence where they are not. */
bool woi_is_ready(woi_server *server, const char **why);

void woi_metrics_request(woi_server *server, size_t route, int status, double seconds);

/* ---- Jobs: params.c, search.c ------------------------------------------------------------------------------ */

/* One search. A zeroed one is empty; what it points to is its own, unless it says otherwise. */
struct woi_job {
    size_t n, k;          /* queries; answers of each: never more than there are classes */
    const float *queries; /* (n, d), not its own */
    float *made;          /* where queries had to be made; its own */
    wo_scores score;
    bool exact, no_prior, names;
    bool may_teach; /* who asks may change the server: what the shadow finds of these queries is learned */
    uint32_t probes;
    int32_t *forbid, *require;
    size_t n_forbid, n_require;
    float *bias;     /* (m) */
    uint32_t *known; /* (n), predict: features or words that the network knows */
    bool wants_log_z;
    /* answers */
    int32_t *ids;  /* (n, k) */
    float *scores; /* (n, k) */
    wo_query_stats *stats;
    float *log_z;     /* (n), where it is wanted */
    char *labels;     /* of shards: the names of the answers, one behind the other, */
    size_t *label_at; /* (n * k + 1), and where each begins; NULL: the index has the names */
    double seconds;   /* that the search took, with those that shared its batch */
};

/* A job with its lease, and what is done with its answers: at once, or when a batch has it. */
struct woi_work {
    woi_work *next;
    woi_job job;
    woi_lease lease;
    woi_ticket *ticket;
    /* Called once: writes the answers down where the job was done, and frees the work, which is within something
     * larger. */
    void (*finish)(woi_server *server, woi_work *work, woi_reply *reply, bool done);
};

/* Takes a snapshot for the work of a request. */
void woi_work_begin(woi_server *server, const woi_request *request, woi_work *work,
                    void (*finish)(woi_server *server, woi_work *work, woi_reply *reply, bool done));
/* Runs it, or leaves it to a batch, which then finishes it; `read`: its job is complete, else it is finished as it is.
 */
void woi_work_run(woi_server *server, woi_work *work, bool read, woi_reply *reply);
/* What every finish ends with: gives back the snapshot and frees the job. The answer becomes a refusal where it may be
 * out of files that have changed. */
void woi_work_end(woi_server *server, woi_work *work, woi_reply *reply);

void woi_job_begin(woi_job *job, const woi_server *server);
void woi_job_free(woi_job *job);
/* One member of a JSON object that all dialects share: k, scores, exact, ... false: the reply says what is wrong with
 * it, or, where its status is 0, it is none of these. */
bool woi_job_set(woi_job *job, const woi_snapshot *snapshot, const char *key, const json_t *value, woi_reply *reply);
/* Whether it is one of these. */
bool woi_is_parameter(const char *key);
/* The same from what follows a question mark, where the body is raw. */
bool woi_job_arguments(woi_job *job, const woi_snapshot *snapshot, const woi_request *request, woi_reply *reply);
/* Whether nothing follows a question mark, where the body has all that is said. */
bool woi_no_arguments(const woi_request *request, woi_reply *reply);
/* A number that is a key: written in one way alone, so that an object, whose keys differ, has none twice. */
bool woi_read_number(const char *text, long long *number);
/* Queries as JSON: numbers, lists of d numbers; `what` is for the sentence. */
bool woi_job_queries(woi_job *job, const woi_server *server, const woi_snapshot *snapshot, const json_t *list,
                     const char *what, woi_reply *reply);
/* One query: a list of d numbers, and of nothing else. */
bool woi_json_row(const json_t *row, size_t query, size_t d, float *to, woi_reply *reply);
/* The same where its numbers are those from `first` on of a longer list. */
bool woi_json_numbers(const json_t *list, size_t query, size_t first, size_t d, float *to, woi_reply *reply);
/* Queries of texts, or of features, by the network: predict.c. */
typedef struct woi_raw_input {
    const json_t *texts; /* a list of strings, or of objects, which are features */
    woi_raw format;
    const char *what; /* for sentences */
} woi_raw_input;
/* Bytes that all texts of a request may have together. */
size_t woi_most_texts(const woi_server *server, const woi_network *net);
bool woi_job_read(woi_job *job, const woi_server *server, const woi_snapshot *snapshot, const woi_raw_input *input,
                  woi_reply *reply);
/* Whether k and n are within the limits; k is then no more than there are classes, and there is room for the answers.
 */
bool woi_job_room(woi_job *job, const woi_server *server, const woi_snapshot *snapshot, woi_reply *reply);
/* Counts what was searched. */
void woi_job_count(woi_server *server, const woi_job *job);
/* The name of the answer at a place of `ids`; NULL: it has none. */
const char *woi_job_label(const woi_job *job, const woi_snapshot *snapshot, size_t at, size_t *bytes);
/* "text", "deb822" or "xc"; and one text or object, or a list of them, as a list: NULL where memory ran out. */
bool woi_raw_format(const json_t *value, woi_raw *format, woi_reply *reply);
json_t *woi_raw_list(json_t *value);
/* Whether the header Content-Type, or NULL, is that of JSON, or what curl -d says when it is told nothing. */
bool woi_check_json(const char *type, woi_reply *reply);
/* Whether so many queries may be asked. */
bool woi_job_fits(const woi_server *server, size_t n, woi_reply *reply);
/* Searches, and counts what was searched. */
bool woi_job_run(woi_job *job, woi_server *server, const woi_lease *lease, woi_reply *reply);
const char *woi_job_scores(const woi_job *job, const woi_snapshot *snapshot); /* "logits+prior" */
/* A body that should be a JSON object; NULL: the reply says why it is none. It may have as many values as the most
 * queries need, each with d numbers and so many values `beside` them, and as three masks of all classes. */
json_t *woi_body_object(woi_server *server, const char *body, size_t bytes, size_t beside, woi_reply *reply);
/* Whether a header, Content-Type or Accept, names this type. */
bool woi_names_type(const char *header, const char *type);

extern const char woi_type_json[], woi_type_bytes[], woi_type_text[];

#endif
