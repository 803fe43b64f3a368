/* Searching, and what else a searcher is for: scores of given classes, log Z; and drawing from answers.
 *
 * Idle searchers wait in a list of the index. A call takes one that is large enough for it, or makes one, and puts it
 * back: so there are as many as calls at once, whatever threads they come from, and a forked child has those that were
 * idle. One query takes a searcher of one thread: those of all cores have scratch for each of them. */
#include "core.h"

/* Below so many multiply-adds, some 20 us, a call keeps the GIL: to have it back may take longer where others want it.
 */
enum { SHORT = 1 << 18 };
/* Scores that are drawn from: some 10 ns each. */
enum { SAMPLE_SHORT = 2048 };
/* Queries between two looks at signals: at first as many as take some 2^34 multiply-adds, a quarter of a second of one
 * core; then as many as take between the two times. Fewer than PIECE_MIN would read FULL's rows too often. */
enum { PIECE_MIN = 64, PIECE = 65536 };
static const size_t PIECE_WORK = (size_t)1 << 34;
static const double PIECE_LEAST_S = 0.1, PIECE_MOST_S = 0.5;
/* The same for the rows of single classes, which lie anywhere in memory. */
static const size_t SCORE_WORK = (size_t)1 << 28;

static const char *const by_words[] = {"planner", "cells", "full"};
static const char *const score_words[] = {"logits", "softmax", "logprob"};

/* ---- Searchers ---------------------------------------------------------------------------------------------- */

void wopy_searchers_free(wopy_index *self)
{
    while (self->idle) {
        wopy_searcher *s = self->idle;
        self->idle = s->next;
        wo_searcher_free(s->searcher);
        PyMem_Free(s);
    }
}

/* One that serves; the first of those that are too small is replaced. */
static wopy_searcher *take_searcher(wopy_index *self, int threads, uint32_t probes, size_t mandatory)
{
    wopy_searcher **at = &self->idle, **small = NULL;
    wo_searcher_options o;
    wo_error err;
    for (; *at; at = &(*at)->next) {
        wopy_searcher *s = *at;
        if (s->threads != threads) continue;
        if (probes <= s->max_probes && mandatory <= s->max_mandatory) {
            *at = s->next;
            return s;
        }
        if (!small) small = at;
    }
    wo_searcher_defaults(&o, sizeof o);
    wopy_searcher *s = small ? *small : PyMem_Calloc(1, sizeof *s);
    if (!s) return wopy_no_memory(sizeof *s);
    if (small) *small = s->next;
    o.threads = threads;
    o.max_probes = probes > s->max_probes ? probes : s->max_probes;
    if (s->max_mandatory > o.max_mandatory) o.max_mandatory = s->max_mandatory;
    if (mandatory > o.max_mandatory) o.max_mandatory = mandatory > UINT32_MAX ? UINT32_MAX : (uint32_t)mandatory;
    wo_searcher_free(s->searcher);
    *s = (wopy_searcher){.threads = threads, .max_probes = o.max_probes, .max_mandatory = o.max_mandatory};
    if (!wo_searcher_create(self->index, &o, &s->searcher, &err)) return s;
    PyMem_Free(s);
    return wopy_raise(&err, NULL);
}

static void put_searcher(wopy_index *self, wopy_searcher *s)
{
    s->next = self->idle;
    self->idle = s;
}

/* ---- Arguments ---------------------------------------------------------------------------------------------- */

/* What a search was asked for; objects are borrowed. */
typedef struct asked {
    PyObject *q, *k, *forbid, *require, *bias, *probes, *by, *scores, *prior, *exact_fallback, *stats, *threads, *out;
} asked;
enum { N_ASKED = sizeof(asked) / sizeof(PyObject *), N_POSITIONAL = 2 };
static const char *const asked_names[N_ASKED] = {"q",      "k",       "forbid", "require", "bias",
                                                 "probes", "by",      "scores", "prior",   "exact_fallback",
                                                 "stats",  "threads", "out"};

/* PyArg_ParseTupleAndKeywords takes 1 us with this many names. */
static int read_arguments(PyObject *const *args, Py_ssize_t n_args, PyObject *names, asked *found)
{
    PyObject **fields = (PyObject **)found;
    if (n_args > N_POSITIONAL) {
        PyErr_Format(PyExc_TypeError, "search() takes q and k, and the rest by name: %zd were given", n_args);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n_args; i++) fields[i] = args[i];
    const Py_ssize_t n_names = names ? PyTuple_GET_SIZE(names) : 0;
    for (Py_ssize_t i = 0; i < n_names; i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        int f = 0;
        while (f < N_ASKED && PyUnicode_CompareWithASCIIString(name, asked_names[f]) != 0) f++;
        if (f == N_ASKED || fields[f]) {
            PyErr_Format(PyExc_TypeError,
                         f == N_ASKED ? "search() has no argument '%U'" : "search() was given '%U' twice", name);
            return -1;
        }
        fields[f] = args[n_args + i];
    }
    if (!found->q) PyErr_SetString(PyExc_TypeError, "search() needs queries");
    return found->q ? 0 : -1;
}

int wopy_word(PyObject *word, const char *what, const char *const *words, int n)
{
    if (!word || word == Py_None) return 0;
    const char *text = PyUnicode_Check(word) ? PyUnicode_AsUTF8(word) : NULL;
    for (int i = 0; text && i < n; i++)
        if (strcmp(text, words[i]) == 0) return i;
    PyErr_Clear();
    char all[96] = "";
    for (int i = 0; i < n; i++) {
        strncat(all, i ? (i == n - 1 ? " or " : ", ") : "", sizeof all - strlen(all) - 1);
        strncat(all, words[i], sizeof all - strlen(all) - 1);
    }
    wopy_refuse(what, "%s takes %s, not %.40s", what, all, text ? text : Py_TYPE(word)->tp_name);
    return -1;
}

/* ---- A call ------------------------------------------------------------------------------------------------- */

/* All that a search holds while it runs. */
typedef struct task {
    wo_search_call call;
    wopy_floats q, bias;
    wopy_ids forbid, require;
    Py_buffer out[2];    /* the caller's arrays for scores and ids, where there are some */
    PyObject *arrays[3]; /* scores, ids, stats: owned */
    void *places[3];     /* their numbers */
    uint64_t threads;
} task;

static void release(task *t)
{
    wopy_floats_release(&t->q);
    wopy_floats_release(&t->bias);
    wopy_ids_release(&t->forbid);
    wopy_ids_release(&t->require);
    for (int i = 0; i < 2; i++) PyBuffer_Release(&t->out[i]);
    for (int i = 0; i < 3; i++) Py_CLEAR(t->arrays[i]);
}

static int take_queries(const wopy_index *self, PyObject *object, wopy_floats *q)
{
    if (wopy_floats_get(object, "queries", q)) return -1;
    if (q->d == self->d) return 0;
    wopy_refuse("q", "queries have %zu numbers each, and the index takes %zu", q->d, self->d);
    return -1;
}

static int read_rest(const wopy_index *self, const asked *a, task *t)
{
    wo_search_call *c = &t->call;
    uint64_t probes = 0;
    bool prior = true, fallback = false;
    int by, scores;
    if (wopy_number(a->threads, "threads", WOPY_MAX_THREADS, &t->threads)) return -1;
    if (wopy_number(a->probes, "probes", UINT32_MAX, &probes)) return -1;
    if ((by = wopy_word(a->by, "by", by_words, 3)) < 0) return -1;
    if ((scores = wopy_word(a->scores, "scores", score_words, 3)) < 0) return -1;
    if (wopy_flag(a->prior, "prior", &prior) || wopy_flag(a->exact_fallback, "exact_fallback", &fallback)) return -1;
    if (wopy_ids_get(a->forbid, "forbid", &t->forbid) || wopy_ids_get(a->require, "require", &t->require)) return -1;
    if (wopy_ids_own(&t->forbid) || wopy_ids_own(&t->require)) return -1;
    wopy_ids_drop_none(&t->forbid); /* answers are forbidden as they come, padded with -1 */
    if (a->bias && a->bias != Py_None) {
        if (wopy_floats_get(a->bias, "bias", &t->bias)) return -1;
        if (!t->bias.one || t->bias.d != self->m) {
            wopy_refuse("bias", "bias takes one number for each of the %zu classes", self->m);
            return -1;
        }
    }
    c->by = (wo_by)by;
    c->score = (wo_scores)scores;
    c->probes = (uint32_t)probes;
    c->exact_fallback = fallback;
    c->no_prior = !prior;
    c->forbidden = t->forbid.data;
    c->n_forbidden = t->forbid.n * t->forbid.d;
    c->mandatory = t->require.data;
    c->n_mandatory = t->require.n * t->require.d;
    c->logit_bias = t->bias.data;
    return 0;
}

/* An answer to be filled: a tensor where the queries were one. */
static PyObject *new_answer(wopy_kind kind, bool tensor, bool one, size_t n, size_t k, void **data)
{
    PyObject *dtype = kind == WOPY_IDS ? wopy.int32 : wopy.float32;
    return tensor ? wopy_tensor_new(kind, one, n, k, data) : wopy_array_new(dtype, one, n, k, data);
}

/* Ids of tensors are int64. The library leaves its int32 in the upper half of such an array, and this moves them to
 * where they belong, some at a time: each is read before anything is written over it. */
static int32_t *upper_half(void *ids, size_t n)
{
    return (int32_t *)ids + n;
}

enum { SOME = 16 };
static void widen_some(const int32_t *from, int64_t *to)
{
    int32_t narrow[SOME];
    memcpy(narrow, from, sizeof narrow);
    for (int i = 0; i < SOME; i++) to[i] = narrow[i];
}

static void widen(void *ids, size_t n)
{
    const int32_t *from = upper_half(ids, n);
    int64_t *to = ids;
    size_t i = 0;
    for (; i + SOME <= n; i += SOME) widen_some(from + i, to + i);
    for (int32_t id; i < n; i++) {
        memcpy(&id, from + i, sizeof id);
        to[i] = id;
    }
}

static bool share_memory(const Py_buffer *written, const void *read, size_t read_bytes)
{
    const uintptr_t a = (uintptr_t)written->buf, b = (uintptr_t)read;
    return a < b ? b - a < (size_t)written->len : a - b < read_bytes;
}

/* Answers are written while queries and biases are still read. */
static int check_apart(const task *t)
{
    const char *other = share_memory(&t->out[0], t->out[1].buf, (size_t)t->out[1].len) ? "the other" : NULL;
    for (int i = 0; i < 2; i++) {
        if (share_memory(&t->out[i], t->q.data, t->q.n * t->q.d * sizeof(float))) other = "the queries";
        if (share_memory(&t->out[i], t->bias.data, t->bias.d * sizeof(float))) other = "the bias";
    }
    if (!other) return 0;
    wopy_refuse("out", "out takes two arrays of its own: one of them and %s share memory", other);
    return -1;
}

/* Where the answers go. */
static int take_places(const asked *a, task *t)
{
    wo_search_call *c = &t->call;
    const bool one = t->q.one;
    if (a->out && a->out != Py_None) {
        if (!PyTuple_Check(a->out) || PyTuple_GET_SIZE(a->out) != 2) {
            wopy_refuse("out", "out takes two arrays, (scores, ids)");
            return -1;
        }
        PyObject *scores = PyTuple_GET_ITEM(a->out, 0), *ids = PyTuple_GET_ITEM(a->out, 1);
        if (wopy_array_check(scores, "f", one, c->n, c->k, &t->out[0]) ||
            wopy_array_check(ids, "i", one, c->n, c->k, &t->out[1]))
            return -1;
        for (int i = 0; i < 2; i++) t->places[i] = t->out[i].buf;
        if (check_apart(t)) return -1;
        t->arrays[0] = Py_NewRef(scores);
        t->arrays[1] = Py_NewRef(ids);
        t->q.tensor = false; /* they are what the caller wants them to be */
    } else {
        for (int i = 0; i < 2; i++) {
            const wopy_kind kind = i ? WOPY_IDS : WOPY_FLOATS;
            if (!(t->arrays[i] = new_answer(kind, t->q.tensor, one, c->n, c->k, &t->places[i]))) return -1;
        }
    }
    bool stats = false;
    if (wopy_flag(a->stats, "stats", &stats)) return -1;
    if (stats && !(t->arrays[2] = wopy_array_new(wopy.stats, true, 1, c->n, &t->places[2]))) return -1;
    c->scores = t->places[0];
    c->ids = t->q.tensor ? upper_half(t->places[1], c->n * c->k) : t->places[1];
    c->stats = t->places[2];
    c->stats_bytes = sizeof(wo_query_stats);
    return 0;
}

/* Whether FULL answers. */
static bool is_full(const wopy_index *self, const wo_search_call *c)
{
    const bool planned = self->full_from && c->n >= self->full_from && c->n <= self->full_to;
    return c->by == WO_BY_FULL || (c->by == WO_BY_PLANNER && planned);
}

/* Multiply-adds of a query, at most. */
static size_t work_each(const wopy_index *self, const wo_search_call *c)
{
    const size_t wider = c->exact_fallback || c->probes || c->n_mandatory || c->logit_bias ? 64 : 1;
    return is_full(self, c) ? self->m * self->d : self->work * wider;
}

/* Whether a call is too short to give the GIL away. */
static bool is_short(const wopy_index *self, const wo_search_call *c)
{
    return c->n == 0 || work_each(self, c) < SHORT / c->n;
}

/* No fewer than FULL is planned for, and not so few that nothing else is done. */
static size_t in_bounds(const wopy_index *self, const wo_search_call *c, size_t n)
{
    const size_t planned = c->by == WO_BY_PLANNER && is_full(self, c) ? self->full_from : 0;
    const size_t least = planned > PIECE_MIN ? planned : PIECE_MIN, most = planned > PIECE ? planned : PIECE;
    return n < least ? least : n > most ? most : n;
}

/* In pieces, between which signals are noticed; they are planned as the whole is: none is smaller than what FULL is
 * planned for, and where it is not, the cells answer. log_z: of each query, instead of answers. */
static int run_call(const wopy_index *self, wo_searcher *searcher, const wo_search_call *call, float *log_z)
{
    wo_error err;
    if (!log_z && is_short(self, call)) {
        if (!wo_search_run(searcher, call, &err)) return 0;
        wopy_raise(&err, NULL);
        return -1;
    }
    size_t most = in_bounds(self, call, PIECE_WORK / (work_each(self, call) + 1));
    wo_search_call piece = *call;
    if (call->by == WO_BY_PLANNER && !is_full(self, call)) piece.by = WO_BY_CELLS;
    size_t begin = 0;
    do {
        piece.n = call->n - begin < 2 * most ? call->n - begin : most;
        piece.queries = call->queries + begin * self->d;
        if (!log_z) {
            piece.ids = call->ids + begin * call->k;
            piece.scores = call->scores + begin * call->k;
            if (call->stats) piece.stats = call->stats + begin;
        }
        wo_status status;
        const double start = wopy_clock(CLOCK_MONOTONIC);
        Py_BEGIN_ALLOW_THREADS status =
            log_z ? wo_log_partition(searcher, &piece, log_z + begin, &err) : wo_search_run(searcher, &piece, &err);
        Py_END_ALLOW_THREADS if (status) wopy_raise(&err, NULL);
        if (status || (begin + piece.n < call->n && PyErr_CheckSignals())) return -1;
        begin += piece.n;
        const double took = wopy_clock(CLOCK_MONOTONIC) - start;
        if (took < PIECE_LEAST_S || took > PIECE_MOST_S)
            most = in_bounds(self, call, took > PIECE_MOST_S ? most / 2 : most * 2);
    } while (begin < call->n);
    return 0;
}

static int run(wopy_index *self, const task *t, float *log_z)
{
    const int threads = t->call.n == 1 ? 1 : (int)t->threads;
    if (!wopy_index_enter_rows(self)) return -1;
    wopy_searcher *s = take_searcher(self, threads, t->call.probes, t->call.n_mandatory);
    const int failed = s ? run_call(self, s->searcher, &t->call, log_z) : -1;
    if (s) put_searcher(self, s);
    wopy_index_leave(self);
    return failed;
}

static PyObject *answer(task *t)
{
    const int n = t->arrays[2] ? 3 : 2;
    PyObject *all = PyTuple_New(n);
    if (t->q.tensor) widen(t->places[1], t->call.n * t->call.k);
    for (int i = 0; all && i < n; i++) {
        PyObject *array = wopy_answer(Py_NewRef(t->arrays[i]));
        if (array)
            PyTuple_SET_ITEM(all, i, array);
        else
            Py_CLEAR(all);
    }
    return all;
}

PyObject *wopy_index_search(PyObject *object, PyObject *const *args, Py_ssize_t n_args, PyObject *names)
{
    wopy_index *self = (wopy_index *)object;
    asked a = {0};
    task t = {.call.struct_size = sizeof t.call, .threads = (uint64_t)self->threads};
    uint64_t k = 10;
    PyObject *result = NULL;
    if (read_arguments(args, n_args, names, &a) || take_queries(self, a.q, &t.q)) goto done;
    if (wopy_number(a.k, "k", INT32_MAX, &k) || (names && read_rest(self, &a, &t))) goto done;
    t.call.queries = t.q.data;
    t.call.n = t.q.n;
    t.call.k = k;
    if (!take_places(&a, &t) && !run(self, &t, NULL)) result = answer(&t);
done:
    release(&t);
    return result;
}

/* ---- Other uses of a searcher ------------------------------------------------------------------------------- */

/* _score(q, ids): exact logits of given classes: ids (j,) for every query, or (n, j) */
PyObject *wopy_index_score(PyObject *object, PyObject *args)
{
    wopy_index *self = (wopy_index *)object;
    PyObject *given, *classes, *result = NULL;
    wopy_floats q = {0};
    wopy_ids ids = {0};
    void *out = NULL;
    wopy_searcher *s = NULL;
    wo_error err;
    if (!PyArg_ParseTuple(args, "OO", &given, &classes)) return NULL;
    if (classes == Py_None) return wopy_refuse("ids", "score needs ids of classes");
    if (take_queries(self, given, &q) || wopy_ids_get(classes, "ids", &ids) || wopy_ids_own(&ids)) goto done;
    if (!ids.one && ids.n != q.n) {
        wopy_refuse("ids", "ids are for %zu queries, and there are %zu", ids.n, q.n);
        goto done;
    }
    result = new_answer(WOPY_FLOATS, q.tensor, q.one && ids.one, q.n, ids.d, &out);
    if (!result || !wopy_index_enter_rows(self)) goto failed;
    s = take_searcher(self, 1, 0, 0);
    if (s) {
        const size_t piece = SCORE_WORK / (ids.d * q.d + 1) + 1;
        wo_status status = WO_OK;
        for (size_t i = 0; i < q.n && !status && !(i && PyErr_CheckSignals());) {
            const size_t end = q.n - i < piece ? q.n : i + piece;
            Py_BEGIN_ALLOW_THREADS for (; i < end && !status; i++) status =
                wo_score(s->searcher, q.data + i * q.d, ids.data + (ids.one ? 0 : i * ids.d), ids.d,
                         (float *)out + i * ids.d, &err);
            Py_END_ALLOW_THREADS
        }
        put_searcher(self, s);
        if (status) wopy_raise(&err, NULL);
    }
    wopy_index_leave(self);
    if (!PyErr_Occurred()) {
        result = wopy_answer(result);
        goto done;
    }
failed:
    Py_CLEAR(result);
done:
    wopy_floats_release(&q);
    wopy_ids_release(&ids);
    return result;
}

/* The one number of an array or a tensor, which it takes: tensors are no sequences. */
static PyObject *first_of(PyObject *array)
{
    PyObject *zero = PyLong_FromLong(0), *first = zero ? PyObject_GetItem(array, zero) : NULL;
    Py_XDECREF(zero);
    Py_DECREF(array);
    return first;
}

/* _log_partition(q, by, prior, threads): log Z of each query */
PyObject *wopy_index_log_partition(PyObject *object, PyObject *args)
{
    wopy_index *self = (wopy_index *)object;
    asked a = {0};
    task t = {.call.struct_size = sizeof t.call, .threads = (uint64_t)self->threads};
    PyObject *array = NULL;
    void *out = NULL;
    if (!PyArg_ParseTuple(args, "OOOO", &a.q, &a.by, &a.prior, &a.threads)) return NULL;
    if (take_queries(self, a.q, &t.q) || read_rest(self, &a, &t)) goto done;
    t.call.queries = t.q.data;
    t.call.n = t.q.n;
    if (!(array = new_answer(WOPY_FLOATS, t.q.tensor, true, 1, t.q.n, &out))) goto done;
    if (run(self, &t, out)) {
        Py_CLEAR(array);
        goto done;
    }
    array = wopy_answer(array);
    if (array && t.q.one) array = first_of(array);
done:
    release(&t);
    return array;
}

/* _time(q, k, threads, calls): seconds of so many wo_search calls, without Python between, for bench/python.py; calls
 * 0: one call a query. Those of the processor where there is one thread: others use the machine too. */
PyObject *wopy_index_time(PyObject *object, PyObject *args)
{
    wopy_index *self = (wopy_index *)object;
    PyObject *given, *seconds = NULL;
    Py_ssize_t k, calls;
    int threads;
    task t = {.call.struct_size = sizeof t.call};
    wo_error err;
    if (!PyArg_ParseTuple(args, "Onin", &given, &k, &threads, &calls)) return NULL;
    if (take_queries(self, given, &t.q)) goto done;
    t.call.n = t.q.n;
    t.call.k = (size_t)k;
    if (take_places(&(asked){0}, &t) || !wopy_index_enter_rows(self)) goto done;
    const size_t step = calls ? 0 : 1, each = calls ? t.q.n : 1, n_calls = calls ? (size_t)calls : t.q.n;
    wopy_searcher *s = take_searcher(self, each == 1 ? 1 : threads, 0, 0);
    wo_status status = WO_OK;
    const clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    const double begin = wopy_clock(clock);
    for (size_t i = 0; s && !status && i < n_calls; i++)
        status = wo_search(s->searcher, t.q.data + i * step * t.q.d, each, t.call.k, t.call.ids + i * step * t.call.k,
                           t.call.scores + i * step * t.call.k, &err);
    const double end = wopy_clock(clock);
    if (s) put_searcher(self, s);
    wopy_index_leave(self);
    if (s) seconds = status ? wopy_raise(&err, NULL) : PyFloat_FromDouble(end - begin);
done:
    release(&t);
    return seconds;
}

/* sample(ids, scores, temperature, top_p, top_k, seed, position): a class for each query */
PyObject *wopy_sample(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *ids_given, *scores_given, *given[5], *drawn = NULL;
    wo_sample_call c = {.struct_size = sizeof c, .temperature = 1, .top_p = 1};
    uint64_t top_k = 0;
    wopy_ids ids = {0};
    wopy_floats scores = {0};
    void *out = NULL;
    wo_error err;
    if (!PyArg_ParseTuple(args, "OOOOOOO", &ids_given, &scores_given, &given[0], &given[1], &given[2], &given[3],
                          &given[4]))
        return NULL;
    if (wopy_real(given[0], "temperature", &c.temperature) || wopy_real(given[1], "top_p", &c.top_p) ||
        wopy_number(given[2], "top_k", UINT32_MAX, &top_k) || wopy_number(given[3], "seed", UINT64_MAX, &c.seed) ||
        wopy_number(given[4], "position", UINT64_MAX, &c.position))
        return NULL;
    if (wopy_ids_get(ids_given, "ids", &ids) || wopy_floats_get(scores_given, "scores", &scores)) goto done;
    if (ids.one != scores.one || ids.n != scores.n || ids.d != scores.d) {
        wopy_refuse("scores", "ids and scores must have the same shape");
        goto done;
    }
    c.ids = ids.data;
    c.scores = scores.data;
    c.n = ids.n;
    c.k = ids.d;
    c.top_k = (uint32_t)top_k;
    if (!(drawn = new_answer(WOPY_IDS, scores.tensor, true, 1, ids.n, &out))) goto done;
    int32_t *classes = scores.tensor ? upper_half(out, ids.n) : out;
    const bool others_may = c.n * c.k >= SAMPLE_SHORT;
    PyThreadState *const own = others_may ? PyEval_SaveThread() : NULL;
    const wo_status status = wo_sample(&c, classes, &err);
    if (own) PyEval_RestoreThread(own);
    if (status) {
        wopy_raise(&err, NULL);
        Py_CLEAR(drawn);
        goto done;
    }
    if (scores.tensor) widen(out, ids.n);
    drawn = wopy_answer(drawn);
    if (drawn && ids.one) drawn = first_of(drawn);
done:
    wopy_floats_release(&scores);
    wopy_ids_release(&ids);
    return drawn;
}
