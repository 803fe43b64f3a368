/* Evaluation: an index beside FULL, as a dict; wideout/_report.py makes a table of it. */
#include "core.h"

/* Numbers from a sequence, 1 to WO_EVAL_MAX of them. */
static int read_list(PyObject *given, const char *what, uint32_t *numbers, size_t *n)
{
    PyObject *list = PySequence_Tuple(given); /* of our own, which stays as it is */
    if (!list && wopy_forgive()) return -1;
    const Py_ssize_t length = list ? PyTuple_GET_SIZE(list) : 0;
    int failed = length < 1 || length > WO_EVAL_MAX;
    for (Py_ssize_t i = 0; !failed && i < length; i++) {
        uint64_t x = 0;
        failed = wopy_number(PyTuple_GET_ITEM(list, i), what, UINT32_MAX, &x);
        numbers[i] = (uint32_t)x;
    }
    Py_XDECREF(list);
    *n = (size_t)length;
    if (!failed) return 0;
    if (PyErr_Occurred() && wopy_forgive()) return -1;
    wopy_refuse(what, "%s takes 1 to %d whole numbers", what, WO_EVAL_MAX);
    return -1;
}

static PyObject *timing_dict(const wo_eval_timing *t)
{
    return Py_BuildValue("{s:I,s:i,s:I,s:I,s:d,s:d,s:d,s:d,s:d,s:d,s:d}", "batch", t->batch, "threads", t->threads,
                         "calls", t->calls, "full_calls", t->full_calls, "us", t->us, "us_p99", t->us_p99, "full_us",
                         t->full_us, "full_us_p99", t->full_us_p99, "speedup", t->speedup, "cpu_s_per_1000",
                         t->cpu_s_per_1000, "full_cpu_s_per_1000", t->full_cpu_s_per_1000);
}

/* Adds a value, which it takes, to a dict. */
static int add(PyObject *dict, const char *name, PyObject *value)
{
    const int failed = value ? PyDict_SetItemString(dict, name, value) : -1;
    Py_XDECREF(value);
    return failed;
}

static PyObject *result_dict(const wo_eval_options *o, const wo_eval_result *r)
{
    const struct {
        const char *name;
        double value;
    } figures[] = {
        {"p_at_1", r->p_at_1},
        {"p_at_3", r->p_at_3},
        {"p_at_5", r->p_at_5},
        {"full_p_at_1", r->full_p_at_1},
        {"full_p_at_3", r->full_p_at_3},
        {"full_p_at_5", r->full_p_at_5},
        {"label_recall", r->label_recall},
        {"sample_size", r->sample_size},
        {"cells", r->cells},
        {"empty_share", r->empty_share},
        {"wider_share", r->wider_share},
        {"exact_share", r->exact_share},
        {"label_rank", r->label_rank},
        {"label_rank_retrieved", r->label_rank_retrieved},
        {"cold_us", r->cold_us},
        {"full_cold_us", r->full_cold_us},
        {"energy_j_per_1000", r->energy_j_per_1000},
        {"full_energy_j_per_1000", r->full_energy_j_per_1000},
        {"full_of_peak", r->full_of_peak},
        {"full_of_read", r->full_of_read},
        {"perplexity", r->perplexity},
        {"full_perplexity", r->full_perplexity},
        {"log_z_error", r->log_z_error},
        {"log_z_bias", r->log_z_bias},
        {"probability_sum", r->probability_sum},
    };
    PyObject *all = PyDict_New(), *agreement = PyDict_New(), *timings = PyList_New(0);
    int failed = !all || !agreement || !timings;
    for (size_t i = 0; !failed && i < sizeof figures / sizeof figures[0]; i++)
        failed = add(all, figures[i].name, PyFloat_FromDouble(figures[i].value));
    for (size_t i = 0; !failed && i < o->n_ks; i++) {
        PyObject *k = PyLong_FromUnsignedLong(o->ks[i]), *share = PyFloat_FromDouble(r->agreement[i]);
        failed = !k || !share || PyDict_SetItem(agreement, k, share);
        Py_XDECREF(k);
        Py_XDECREF(share);
    }
    for (size_t i = 0; !failed && i < r->n_timings; i++) {
        PyObject *timing = timing_dict(&r->timings[i]);
        failed = !timing || PyList_Append(timings, timing);
        Py_XDECREF(timing);
    }
    if (!failed)
        failed = add(all, "n", PyLong_FromUnsignedLongLong(r->n)) ||
                 add(all, "without_label", PyLong_FromUnsignedLongLong(r->skipped)) ||
                 add(all, "not_finite", PyLong_FromUnsignedLongLong(r->refused)) ||
                 add(all, "k", PyLong_FromUnsignedLong(r->k)) || add(all, "headline", PyLong_FromSize_t(r->headline)) ||
                 add(all, "energy_note",
                     PyUnicode_DecodeUTF8(r->energy_note, (Py_ssize_t)strlen(r->energy_note), "replace")) ||
                 PyDict_SetItemString(all, "agreement", agreement) || PyDict_SetItemString(all, "timings", timings);
    Py_XDECREF(agreement);
    Py_XDECREF(timings);
    if (failed) Py_CLEAR(all);
    return all;
}

/* _evaluate(log, layer, ks, batches, batch, max_queries, rounds, probes, exact_fallback, timing, prior, seed, threads,
 * progress) */
PyObject *wopy_index_evaluate(PyObject *object, PyObject *args)
{
    wopy_index *self = (wopy_index *)object;
    PyObject *log, *layer, *ks, *batches, *progress, *given[6], *flags[3];
    uint64_t batch = 0, rounds = 0, probes = 0, threads = 0;
    bool exact_fallback = false, timing = true, prior = true;
    const wo_layer *rows;
    const wo_log *of;
    wo_eval_options o;
    wo_eval_timing timings[WO_EVAL_MAX + 1];
    wo_eval_result r = {.struct_size = sizeof r,
                        .timings = timings,
                        .timings_room = WO_EVAL_MAX + 1,
                        .timing_bytes = sizeof timings[0]};
    wo_error err;
    wo_eval_defaults(&o, sizeof o);
    if (!PyArg_ParseTuple(args, "O!OOOOOOOOOOOOO", wopy_log_type, &log, &layer, &ks, &batches, &given[0], &given[1],
                          &given[2], &given[3], &flags[0], &flags[1], &flags[2], &given[4], &given[5], &progress))
        return NULL;
    if (read_list(ks, "ks", o.ks, &o.n_ks) || read_list(batches, "batches", o.batches, &o.n_batches)) return NULL;
    if (wopy_number(given[0], "batch", UINT32_MAX, &batch) ||
        wopy_number(given[1], "max_queries", UINT64_MAX, &o.max_queries) ||
        wopy_number(given[2], "rounds", UINT32_MAX, &rounds) || wopy_number(given[3], "probes", UINT32_MAX, &probes) ||
        wopy_number(given[4], "seed", UINT64_MAX, &o.seed) ||
        wopy_number(given[5], "threads", WOPY_MAX_THREADS, &threads))
        return NULL;
    if (wopy_flag(flags[0], "exact_fallback", &exact_fallback) || wopy_flag(flags[1], "timing", &timing) ||
        wopy_flag(flags[2], "prior", &prior))
        return NULL;
    o.batch = (uint32_t)batch;
    o.rounds = (uint32_t)rounds;
    o.probes = (uint32_t)probes;
    o.threads = (int)threads;
    o.exact_fallback = exact_fallback;
    o.skip_timing = !timing;
    o.no_prior = !prior;
    if (wopy_layer_get(layer, &rows) || wopy_log_get(log, &of)) return NULL;
    const wo_index *index = wopy_index_enter_rows(self);
    if (!index) return NULL;
    wopy_call call = wopy_call_begin(progress);
    o.progress = wopy_call_progress(&call);
    const wo_status status = wo_evaluate(index, rows, of, &o, &r, &err);
    const int failed = wopy_call_end(&call);
    wopy_index_leave(self);
    if (failed) return NULL;
    return status ? wopy_raise(&err, NULL) : result_dict(&o, &r);
}
