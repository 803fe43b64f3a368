/* What the files of the extension share: errors, arrays, progress and the four types.
 *
 * The extension knows wideout.h alone. It takes arrays by the buffer protocol, and makes arrays by calling numpy's own
 * ndarray type, so that it need not be compiled against numpy. What is not as the library wants it (another dtype,
 * strides, lists, torch tensors) is handed to wideout/_arrays.py, which converts it or says why not.
 *
 * Everything that changes an object is done under the GIL, which is its lock; the library is called without it, but for
 * calls that are shorter than giving it away. */
#ifndef WOPY_CORE_H
#define WOPY_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include <wideout.h>

/* ---- What is imported once: borrowed by everybody ----------------------------------------------------------- */

typedef struct wopy_imports {
    PyObject *ndarray;                         /* numpy.ndarray */
    PyObject *float32, *int32, *int64, *stats; /* dtypes */
    PyObject *to_floats, *to_ids;              /* of wideout._arrays */
    PyObject *make_error, *closed;             /* of wideout._errors */
} wopy_imports;
extern wopy_imports wopy;

enum { WOPY_MAX_THREADS = 1024 };

/* ---- Errors: each returns NULL or -1 with an exception set -------------------------------------------------- */

/* A failure of the library's; `path` names the file that it is about, NULL where there is none. */
void *wopy_raise(const wo_error *err, PyObject *path);

/* The caller's mistake, as the library would say it; `option` is the argument. */
void *wopy_refuse(const char *option, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* An allocation of so many bytes failed: in place of PyErr_NoMemory, which has no sentence. */
void *wopy_no_memory(double bytes);

/* A whole number from 0 to `most`; where it was not given (NULL, None) the number stays as it is. */
int wopy_number(PyObject *object, const char *what, uint64_t most, uint64_t *number);

/* The same of a number that need not be whole, of any size. */
int wopy_real(PyObject *object, const char *what, double *number);

/* True or False, or what Python takes for one of them and has no length; where it was not given it stays as it is. */
int wopy_flag(PyObject *object, const char *what, bool *flag);

/* Clears an exception that only says that something cannot be done; -1: it is one that must go on, as Ctrl-C's. */
int wopy_forgive(void);

/* ---- Arrays ------------------------------------------------------------------------------------------------- */

/* Floats that somebody else has, in one or two dimensions, held until wopy_floats_release. */
typedef struct wopy_floats {
    Py_buffer view;
    PyObject *owner; /* the tensor's storage, where there is no view; or NULL */
    uintptr_t begin; /* of the storage's memory */
    const float *data;
    size_t n, d; /* one dimension: n is 1 */
    bool one;    /* one dimension */
    bool tensor; /* it was a torch tensor, and so are answers */
} wopy_floats;

/* f32 in C order is taken as it is. `what` names the argument. */
int wopy_floats_get(PyObject *object, const char *what, wopy_floats *floats);
void wopy_floats_release(wopy_floats *floats);

/* -1 with an exception: the tensor's storage has other memory now, and `data` is freed. */
int wopy_floats_stay(const wopy_floats *floats, const char *what);

/* A torch tensor that can be read where it lies: 1. 0: it is not one, and no exception is set; -1: one is. */
int wopy_tensor_take(PyObject *object, wopy_floats *floats);

/* Ids of classes, in one or two dimensions (n, d). int32 in C order is taken as it is. None is an empty list. */
typedef struct wopy_ids {
    Py_buffer view;
    const int32_t *data;
    int32_t *own; /* what `data` is a copy in, or NULL */
    size_t n, d;
    bool one;
} wopy_ids;
int wopy_ids_get(PyObject *object, const char *what, wopy_ids *ids);
void wopy_ids_release(wopy_ids *ids);

/* Copies them: what is read without the GIL, where another thread may write to the caller's, or after answers were
 * written, which may go there. */
int wopy_ids_own(wopy_ids *ids);

/* Leaves out of a copy every -1, which stands for no class in what a search has answered: the others are in one row. */
void wopy_ids_drop_none(wopy_ids *ids);

/* An array of ours to be filled at `data`: (n, k), or (k) where `one`. */
PyObject *wopy_array_new(PyObject *dtype, bool one, size_t n, size_t k, void **data);

/* The same for answers, as the caller has arrays. Of torch's, ids are int64, for its own functions take no others; what
 * comes back is not a tensor yet. wopy_answer takes it when it is filled, and gives the array or the tensor. */
typedef enum wopy_kind { WOPY_FLOATS, WOPY_IDS } wopy_kind;
PyObject *wopy_tensor_new(wopy_kind kind, bool one, size_t n, size_t k, void **data);
PyObject *wopy_answer(PyObject *made);

/* A caller's array to be filled: of this format ("f", "i"), writable, in C order, (n, k) or (k). */
int wopy_array_check(PyObject *array, const char *format, bool one, size_t n, size_t k, Py_buffer *view);

/* ---- Long calls --------------------------------------------------------------------------------------------- */

/* A call without the GIL that reports progress to a Python callable and notices signals:
 *
 *   wopy_call call = wopy_call_begin(progress);    from here the GIL is not held
 *   status = wo_...(..., wopy_call_progress(&call), &err);
 *   wopy_call_end(&call);                          held again; -1: an exception is set, and the library's error is not
 * it
 */
typedef struct wopy_call {
    PyThreadState *state;
    PyObject *fn; /* NULL: reports to nobody */
    double last;  /* when signals were looked at */
    bool failed;  /* an exception is set in `state` */
} wopy_call;
wopy_call wopy_call_begin(PyObject *fn);
wo_progress wopy_call_progress(wopy_call *call);
int wopy_call_enough(void *call); /* for wo_tune_options */
int wopy_call_end(wopy_call *call);

double wopy_clock(clockid_t clock); /* in seconds */

/* ---- Types -------------------------------------------------------------------------------------------------- */

typedef struct wopy_layer {
    PyObject_HEAD wo_layer *layer;
    wopy_floats weight, bias; /* the caller's arrays; view.obj NULL: there is none */
} wopy_layer;

typedef struct wopy_log {
    PyObject_HEAD wo_log *log;
    wopy_floats queries; /* the caller's arrays */
    Py_buffer indptr, labels;
    Py_ssize_t shape[2], strides[2]; /* of the queries, for who views them */
} wopy_log;

/* An idle searcher. */
typedef struct wopy_searcher {
    wo_searcher *searcher;
    int threads;
    uint32_t max_probes, max_mandatory;
    struct wopy_searcher *next;
} wopy_searcher;

typedef struct wopy_index {
    PyObject_HEAD wo_index *index; /* NULL: closed */
    PyObject *layer;               /* whose rows it borrows, or NULL */
    size_t m, d;
    size_t work;               /* multiply-adds of a query, at most, by the cells */
    size_t full_from, full_to; /* batches that FULL answers; 0, 0: none */
    int threads;               /* of batches; 0: all cores */
    bool closed;               /* as soon as nobody is inside */
    size_t inside;             /* calls of the library that use it */
    wopy_searcher *idle;       /* those that wait for the next call */
    Py_buffer bytes;           /* the file in memory, of one that was opened from bytes; obj NULL: there is none */
} wopy_index;

extern PyTypeObject *wopy_layer_type, *wopy_log_type, *wopy_index_type;
int wopy_layer_register(PyObject *module);
int wopy_log_register(PyObject *module);
int wopy_log_writer_register(PyObject *module);
int wopy_index_register(PyObject *module);

/* The library's layer or log of an object, NULL of None; -1 with an exception: it is another, or its memory moved. */
int wopy_layer_get(PyObject *object, const wo_layer **layer);
int wopy_log_get(PyObject *object, const wo_log **log);

/* The index, which stays until wopy_index_leave; NULL with an exception set: it was closed. Its rows are for those who
 * ask for them: they may be freed. */
const wo_index *wopy_index_enter(wopy_index *self);
const wo_index *wopy_index_enter_rows(wopy_index *self);
void wopy_index_leave(wopy_index *self);
void wopy_searchers_free(wopy_index *self);

/* A word of a list as its number; -1 with an exception. */
int wopy_word(PyObject *word, const char *what, const char *const *words, int n);
extern const char *const wopy_verify_words[3];

/* Methods of Index that have files of their own. */
PyObject *wopy_index_search(PyObject *self, PyObject *const *args, Py_ssize_t n_args, PyObject *names);
PyObject *wopy_index_score(PyObject *self, PyObject *args);
PyObject *wopy_index_log_partition(PyObject *self, PyObject *args);
PyObject *wopy_index_time(PyObject *self, PyObject *args);
PyObject *wopy_index_evaluate(PyObject *self, PyObject *args);
PyObject *wopy_index_build(PyObject *type, PyObject *args);
PyObject *wopy_index_describe(PyObject *self, PyObject *ignored);
PyObject *wopy_index_options(PyObject *self, PyObject *ignored);
PyObject *wopy_index_curve(PyObject *self, PyObject *ignored);
PyObject *wopy_index_trace(PyObject *self, PyObject *ignored);
PyObject *wopy_index_name(PyObject *self, PyObject *id);
PyObject *wopy_sample(PyObject *module, PyObject *args);

/* A new index object of a type that is wopy_index_type or below it; takes the index. */
PyObject *wopy_index_make(PyObject *type, wo_index *index, PyObject *layer);

#endif
