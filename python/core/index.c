/* Index: opening, saving and closing. Building is in build.c, searching in search.c, evaluation in evaluate.c, what it
 * says of itself in describe.c.
 *
 * An index may be closed while other threads are inside: it is then freed by the last of them. */
#include "core.h"

PyTypeObject *wopy_index_type;

static void free_index(wopy_index *self)
{
    wopy_searchers_free(self);
    wo_index_free(self->index);
    self->index = NULL;
    PyBuffer_Release(&self->bytes);
    Py_CLEAR(self->layer);
}

const wo_index *wopy_index_enter(wopy_index *self)
{
    if (self->closed) {
        PyErr_SetString(wopy.closed, "the index is closed");
        return NULL;
    }
    self->inside++;
    return self->index;
}

const wo_index *wopy_index_enter_rows(wopy_index *self)
{
    const wo_layer *layer;
    return self->layer && wopy_layer_get(self->layer, &layer) ? NULL : wopy_index_enter(self);
}

void wopy_index_leave(wopy_index *self)
{
    if (--self->inside == 0 && self->closed) free_index(self);
}

static void index_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    free_index((wopy_index *)object);
    type->tp_free(object);
    Py_DECREF(type);
}

/* What a query costs at most by the cells, in multiply-adds: whether a call is worth giving the GIL away for. */
static size_t work_of(const wo_index_info *info, const wo_build_options *o)
{
    const size_t opened = o->method == WO_METHOD_POPULAR                                   ? 1
                          : o->method == WO_METHOD_EVIDENCE && o->router == WO_ROUTER_TREE ? o->probes
                                                                                           : (size_t)o->L * o->probes;
    const bool all = o->method == WO_METHOD_FULL || o->method == WO_METHOD_SCREEN || info->largest > info->m / opened;
    return (all ? info->m : info->largest * opened) * info->d;
}

PyObject *wopy_index_make(PyObject *type, wo_index *index, PyObject *layer)
{
    PyTypeObject *of = (PyTypeObject *)type;
    wopy_index *self = (wopy_index *)of->tp_alloc(of, 0);
    if (!self) {
        wo_index_free(index);
        return NULL;
    }
    wo_index_info info = {.struct_size = sizeof info};
    wo_build_options o = {.struct_size = sizeof o};
    wo_index_describe(index, &info);
    wo_index_options(index, &o);
    self->index = index;
    self->layer = Py_XNewRef(layer);
    self->m = info.m;
    self->d = info.d;
    self->work = work_of(&info, &o);
    self->full_from = info.full_from;
    self->full_to = info.full_from && !info.full_to ? SIZE_MAX : info.full_to;
    return (PyObject *)self;
}

/* Index._open(path, layer, verify, progress) */
static PyObject *index_open(PyObject *type, PyObject *args)
{
    PyObject *path, *layer, *verify, *progress, *bytes = NULL;
    wo_open_options o = {.struct_size = sizeof o};
    wo_index *index = NULL;
    wo_error err;
    if (!PyArg_ParseTuple(args, "OOOO", &path, &layer, &verify, &progress)) return NULL;
    if (wopy_layer_get(layer, &o.layer)) return NULL;
    const int much = wopy_word(verify, "verify", wopy_verify_words, 3);
    if (much < 0 || !PyUnicode_FSConverter(path, &bytes)) return NULL;
    o.verify = (wo_verify)much;
    wopy_call call = wopy_call_begin(progress);
    o.progress = wopy_call_progress(&call);
    const wo_status status = wo_index_open(PyBytes_AS_STRING(bytes), &o, &index, &err);
    const int failed = wopy_call_end(&call);
    Py_DECREF(bytes);
    if (failed) {
        wo_index_free(index);
        return NULL;
    }
    if (status) return wopy_raise(&err, err.about == WO_ABOUT_LAYER ? NULL : path);
    return wopy_index_make(type, index, layer != Py_None ? layer : NULL);
}

/* Index._open_bytes(data, layer): the bytes of a file, which are not copied */
static PyObject *index_open_bytes(PyObject *type, PyObject *args)
{
    PyObject *data, *layer;
    Py_buffer bytes;
    wo_open_options o = {.struct_size = sizeof o};
    wo_index *index = NULL;
    wo_error err;
    if (!PyArg_ParseTuple(args, "OO", &data, &layer)) return NULL;
    if (wopy_layer_get(layer, &o.layer) || PyObject_GetBuffer(data, &bytes, PyBUF_SIMPLE)) return NULL;
    wo_status status;
    Py_BEGIN_ALLOW_THREADS status = wo_index_open_memory(bytes.buf, (size_t)bytes.len, &o, &index, &err);
    Py_END_ALLOW_THREADS PyObject *self =
        status ? wopy_raise(&err, NULL) : wopy_index_make(type, index, layer != Py_None ? layer : NULL);
    if (self)
        ((wopy_index *)self)->bytes = bytes;
    else
        PyBuffer_Release(&bytes);
    return self;
}

static PyObject *index_save(PyObject *object, PyObject *path)
{
    wopy_index *self = (wopy_index *)object;
    PyObject *bytes = NULL;
    wo_error err;
    if (!PyUnicode_FSConverter(path, &bytes)) return NULL;
    const wo_index *index = wopy_index_enter_rows(self);
    if (!index) {
        Py_DECREF(bytes);
        return NULL;
    }
    wo_status status;
    Py_BEGIN_ALLOW_THREADS status = wo_index_save(index, PyBytes_AS_STRING(bytes), &err);
    Py_END_ALLOW_THREADS wopy_index_leave(self);
    Py_DECREF(bytes);
    if (status) return wopy_raise(&err, path);
    return Py_NewRef(Py_None);
}

static PyObject *index_close(PyObject *object, PyObject *ignored)
{
    wopy_index *self = (wopy_index *)object;
    (void)ignored;
    self->closed = true;
    if (!self->inside) free_index(self);
    return Py_NewRef(Py_None);
}

static PyObject *get_m(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromSize_t(((wopy_index *)object)->m);
}

static PyObject *get_d(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromSize_t(((wopy_index *)object)->d);
}

static PyObject *get_closed(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyBool_FromLong(((wopy_index *)object)->closed);
}

static PyObject *get_layer(PyObject *object, void *ignored)
{
    (void)ignored;
    PyObject *layer = ((wopy_index *)object)->layer;
    return Py_NewRef(layer ? layer : Py_None);
}

static PyObject *get_threads(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromLong(((wopy_index *)object)->threads);
}

static int set_threads(PyObject *object, PyObject *value, void *ignored)
{
    (void)ignored;
    uint64_t threads = 0;
    if (!value) return wopy_refuse("threads", "threads cannot be deleted: 0 stands for all cores"), -1;
    if (wopy_number(value, "threads", WOPY_MAX_THREADS, &threads)) return -1;
    ((wopy_index *)object)->threads = (int)threads;
    return 0;
}

static PyMethodDef methods[] = {
    {"_open", index_open, METH_VARARGS | METH_CLASS, NULL},
    {"_open_bytes", index_open_bytes, METH_VARARGS | METH_CLASS, NULL},
    {"_build", wopy_index_build, METH_VARARGS | METH_CLASS, NULL},
    {"_save", index_save, METH_O, NULL},
    {"_evaluate", wopy_index_evaluate, METH_VARARGS, NULL},
    {"_score", wopy_index_score, METH_VARARGS, NULL},
    {"_log_partition", wopy_index_log_partition, METH_VARARGS, NULL},
    {"_time", wopy_index_time, METH_VARARGS, NULL},
    {"_describe", wopy_index_describe, METH_NOARGS, NULL},
    {"_options", wopy_index_options, METH_NOARGS, NULL},
    {"_curve", wopy_index_curve, METH_NOARGS, NULL},
    {"_trace", wopy_index_trace, METH_NOARGS, NULL},
    {"name", wopy_index_name, METH_O,
     "name($self, id, /)\n--\n\nWhat a class is called, or None where that is not known."},
    {"close", index_close, METH_NOARGS,
     "close($self, /)\n--\n\nFrees the index, as soon as no thread is inside it. It cannot be used afterwards."},
    {"search", (PyCFunction)(void (*)(void))wopy_index_search, METH_FASTCALL | METH_KEYWORDS,
     "search($self, q, k=10, *, forbid=None, require=None, bias=None, probes=0, by='planner', scores='logits', "
     "prior=True,\n"
     "       exact_fallback=False, stats=False, threads=None, out=None)\n--\n\n"
     "The k best classes of one query (d,) or of many (n, d): scores and ids, best first, ties to the lower id.\n\n"
     "Arrays of float32 in C order are not copied; see docs/PYTHON.md for what is. Answers of one query have shape\n"
     "(k,), those of many (n, k): float32 and int32 of numpy, or of torch where the queries are a tensor, and then\n"
     "int64. Where there are fewer candidates than k the rest has the id -1 and the score -inf; so has all of a query\n"
     "with NaN or infinite numbers.\n\n"
     "forbid: ids that are never answered; require: ids that are always candidates; bias: (m,) is added to the "
     "logits.\n"
     "probes: cells to open, 0: as the index says. by: 'planner', 'cells' or 'full', who answers. scores: 'logits',\n"
     "'softmax' over the candidates, or 'logprob' over all classes, of an index with a partition. prior=False: logits\n"
     "whatever prior the index has. exact_fallback: FULL answers queries that the index knows little about.\n"
     "stats=True: a third array with what each query took. threads: of a batch, 0: all cores; None: those of the\n"
     "index. out: (scores, ids), arrays to be filled and returned.\n"},
    {0},
};
static PyGetSetDef fields[] = {
    {"m", get_m, NULL, "classes", NULL},
    {"d", get_d, NULL, "dimensions", NULL},
    {"closed", get_closed, NULL, "whether close was called", NULL},
    {"layer", get_layer, NULL, "the Layer whose rows it borrows, or None", NULL},
    {"threads", get_threads, set_threads, "that a batch may use, unless a call says otherwise; 0: all cores", NULL},
    {0},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, index_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, fields},
    {0},
};
static PyType_Spec spec = {
    .name = "wideout._core.Index",
    .basicsize = sizeof(wopy_index),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

int wopy_index_register(PyObject *module)
{
    wopy_index_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return wopy_index_type ? PyModule_AddObjectRef(module, "Index", (PyObject *)wopy_index_type) : -1;
}
