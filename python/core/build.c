/* Building and tuning: options come by name and as text, as the library's table has them. */
#include "core.h"

/* What was given is not tuned. */
static unsigned fixes(const char *name)
{
    wo_option_info info = {.struct_size = sizeof info};
    for (size_t i = 0; wo_option_at(i, &info); i++)
        if (strcmp(info.name, name) == 0) return info.fix;
    return 0;
}

/* The next option of a dict of texts. 1: there is one; -1: it is no text. */
static int next_option(PyObject *options, Py_ssize_t *at, const char **name, const char **text)
{
    PyObject *key, *value;
    if (!PyDict_Next(options, at, &key, &value)) return 0;
    if (!(*name = PyUnicode_AsUTF8(key)) || !(*text = PyUnicode_AsUTF8(value))) return -1;
    return 1;
}

/* Sets all of them, and refuses those that have no part in the index. */
static int set_options(PyObject *given, wo_build_options *o, unsigned *fixed)
{
    const char *name, *text;
    wo_error err;
    int more = 0;
    for (Py_ssize_t at = 0; (more = next_option(given, &at, &name, &text)) > 0;) {
        if (wo_build_set(o, name, text, &err)) return wopy_raise(&err, NULL), -1;
        *fixed |= fixes(name);
    }
    if (more < 0) return -1;
    for (Py_ssize_t at = 0; (more = next_option(given, &at, &name, &text)) > 0;) {
        char method[16], router[16];
        if (wo_build_uses(o, name)) continue;
        wo_build_get(o, "method", method, sizeof method);
        wo_build_get(o, "router", router, sizeof router);
        const bool routed = o->method == WO_METHOD_EVIDENCE;
        wopy_refuse(name, "%s has no part in an index with method %s%s%s", name, method, routed ? " and router " : "",
                    routed ? router : "");
        return -1;
    }
    return more;
}

/* The goals and limits of tuning, by the names of wo_tune_options' fields. */
static int set_goals(PyObject *given, wo_tune_options *o)
{
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(given, &at, &key, &value);) {
        const char *name = PyUnicode_AsUTF8(key);
        const double x = PyFloat_AsDouble(value);
        if (!name || (x == -1 && PyErr_Occurred())) return -1;
        const struct {
            const char *name;
            double *real;
            uint32_t *whole;
        } all[] = {{"target", &o->target, NULL},
                   {"target5", &o->target5, NULL},
                   {"target_agree", &o->target_agree, NULL},
                   {"target_us", &o->target_us, NULL},
                   {"max_time", &o->max_time_s, NULL},
                   {"k", NULL, &o->k},
                   {"batch", NULL, &o->batch}};
        bool known = false;
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
            if (strcmp(all[i].name, name) != 0) continue;
            known = true;
            if (all[i].whole && !(x >= 0 && x < UINT32_MAX)) return wopy_refuse(name, "%s is out of range", name), -1;
            if (all[i].whole) *all[i].whole = (uint32_t)x;
            if (all[i].real) *all[i].real = x;
        }
        if (strcmp(name, "max_queries") == 0) {
            if (!(x >= 0 && x < 1e18)) return wopy_refuse(name, "max_queries is out of range"), -1;
            o->max_queries = (uint64_t)x;
            known = true;
        }
        if (!known) return wopy_refuse(name, "there is no goal '%s'", name), -1;
    }
    return 0;
}

enum { JUDGED = 500 }; /* queries of the log that an index is judged on, where it is not tuned; as the tool has it */

/* Index._build(layer, log, tune_log, options, goals, threads, progress): goals None: exactly what the options say */
PyObject *wopy_index_build(PyObject *type, PyObject *args)
{
    PyObject *layer, *log, *tune_log, *given, *goals, *n_threads, *progress;
    uint64_t threads = 0;
    const wo_layer *rows;
    const wo_log *of = NULL, *tuned_on = NULL;
    wo_build_options o;
    wo_tune_options tune;
    wo_index *index = NULL;
    wo_error err;
    if (!PyArg_ParseTuple(args, "O!OOO!OOO", wopy_layer_type, &layer, &log, &tune_log, &PyDict_Type, &given, &goals,
                          &n_threads, &progress))
        return NULL;
    if (wopy_number(n_threads, "threads", WOPY_MAX_THREADS, &threads)) return NULL;
    if (wopy_layer_get(layer, &rows) || wopy_log_get(log, &of) || wopy_log_get(tune_log, &tuned_on)) return NULL;
    wo_build_defaults(WO_METHOD_EVIDENCE, &o, sizeof o);
    PyObject *method = PyDict_GetItemString(given, "method"); /* first: defaults go by it */
    const char *word = method ? PyUnicode_AsUTF8(method) : NULL;
    if (method && !word) return NULL;
    if (word && wo_build_set(&o, "method", word, &err)) return wopy_raise(&err, NULL);
    wo_build_defaults(o.method, &o, sizeof o);
    wo_tune_defaults(&tune, sizeof tune);
    if (set_options(given, &o, &tune.fixed)) return NULL;
    if (wo_build_check(&o, &err)) return wopy_raise(&err, NULL);
    if (goals != Py_None && (!PyDict_Check(goals) || set_goals(goals, &tune))) {
        if (!PyErr_Occurred()) wopy_refuse("goals", "goals are a dict");
        return NULL;
    }
    wopy_call call = wopy_call_begin(progress);
    o.threads = (int)threads;
    o.progress = wopy_call_progress(&call);
    if (goals == Py_None) o.held_out = JUDGED;
    tune.build = &o;
    tune.enough = wopy_call_enough;
    tune.enough_ctx = &call;
    const wo_status status = goals != Py_None ? wo_index_tune(rows, of, tuned_on, &tune, &index, &err)
                                              : wo_index_build(rows, of, &o, &index, &err);
    if (wopy_call_end(&call)) {
        wo_index_free(index);
        return NULL;
    }
    if (status) return wopy_raise(&err, NULL);
    return wopy_index_make(type, index, layer);
}
