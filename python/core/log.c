/* Log: a file, or the caller's arrays. Its queries can be viewed without a copy. */
#include "core.h"

PyTypeObject *wopy_log_type;

static void log_dealloc(PyObject *object)
{
    wopy_log *self = (wopy_log *)object;
    PyTypeObject *type = Py_TYPE(object);
    wo_log_free(self->log);
    wopy_floats_release(&self->queries);
    PyBuffer_Release(&self->indptr);
    PyBuffer_Release(&self->labels);
    type->tp_free(object);
    Py_DECREF(type);
}

int wopy_log_get(PyObject *object, const wo_log **log)
{
    *log = NULL;
    if (object == Py_None) return 0;
    if (!PyObject_TypeCheck(object, wopy_log_type)) return wopy_refuse("log", "a log is a Log"), -1;
    const wopy_log *self = (wopy_log *)object;
    *log = self->log;
    return wopy_floats_stay(&self->queries, "the queries");
}

/* Log._wrap(queries, indptr, labels): what wideout/_labels.py makes of labels, int64 and int32, or None and None. */
static PyObject *log_wrap(PyObject *type, PyObject *args)
{
    PyObject *queries, *indptr, *labels;
    wo_error err;
    if (!PyArg_ParseTuple(args, "OOO", &queries, &indptr, &labels)) return NULL;
    PyTypeObject *of = (PyTypeObject *)type;
    wopy_log *self = (wopy_log *)of->tp_alloc(of, 0);
    if (!self || wopy_floats_get(queries, "queries", &self->queries)) goto failed;
    if (self->queries.one) {
        wopy_refuse("queries", "queries have one dimension: a log has two, (n, d)");
        goto failed;
    }
    const size_t n = self->queries.n;
    if (indptr != Py_None) {
        if (PyObject_GetBuffer(indptr, &self->indptr, PyBUF_CONTIG_RO) ||
            PyObject_GetBuffer(labels, &self->labels, PyBUF_CONTIG_RO))
            goto failed;
        if ((size_t)self->indptr.len != (n + 1) * sizeof(int64_t)) {
            wopy_refuse("labels", "there are labels of %zd queries and %zu queries",
                        self->indptr.len / (Py_ssize_t)sizeof(int64_t) - 1, n);
            goto failed;
        }
        const int64_t *at = self->indptr.buf;
        if (at[n] < 0 || (size_t)self->labels.len != (size_t)at[n] * sizeof(int32_t)) {
            wopy_refuse("labels", "labels end at %lld, and there are %zd", (long long)at[n],
                        self->labels.len / (Py_ssize_t)sizeof(int32_t));
            goto failed;
        }
    }
    wo_status status;
    Py_BEGIN_ALLOW_THREADS status =
        wo_log_wrap(self->queries.data, n, self->queries.d, self->indptr.buf, self->labels.buf, &self->log, &err);
    Py_END_ALLOW_THREADS if (status)
    {
        wopy_raise(&err, NULL);
        goto failed;
    }
    return (PyObject *)self;
failed:
    Py_XDECREF(self);
    return NULL;
}

/* Log._open(path, labels_path) */
static PyObject *log_open(PyObject *type, PyObject *args)
{
    PyObject *given, *labels, *bytes = NULL, *labels_bytes = NULL;
    wo_log *log = NULL;
    wo_error err;
    if (!PyArg_ParseTuple(args, "OO", &given, &labels)) return NULL;
    if (!PyUnicode_FSConverter(given, &bytes)) return NULL;
    if (labels != Py_None && !PyUnicode_FSConverter(labels, &labels_bytes)) {
        Py_DECREF(bytes);
        return NULL;
    }
    wo_status status;
    Py_BEGIN_ALLOW_THREADS status = wo_log_open_labelled(
        PyBytes_AS_STRING(bytes), labels_bytes ? PyBytes_AS_STRING(labels_bytes) : NULL, &log, &err);
    Py_END_ALLOW_THREADS Py_DECREF(bytes);
    Py_XDECREF(labels_bytes);
    if (status) return wopy_raise(&err, err.about == WO_ABOUT_LABELS ? labels : given);
    PyTypeObject *of = (PyTypeObject *)type;
    wopy_log *self = (wopy_log *)of->tp_alloc(of, 0);
    if (self)
        self->log = log;
    else
        wo_log_free(log);
    return (PyObject *)self;
}

/* (n, d) of f32, not to be written to. */
static int log_view(PyObject *object, Py_buffer *view, int flags)
{
    wopy_log *self = (wopy_log *)object;
    const size_t n = wo_log_n(self->log), d = wo_log_d(self->log);
    float *queries = (float *)(uintptr_t)wo_log_queries(self->log);
    view->obj = NULL;
    if (wopy_floats_stay(&self->queries, "the queries")) return -1;
    if (PyBuffer_FillInfo(view, object, queries, (Py_ssize_t)(n * d * sizeof(float)), 1, flags)) return -1;
    self->shape[0] = (Py_ssize_t)n, self->shape[1] = (Py_ssize_t)d;
    self->strides[0] = (Py_ssize_t)(d * sizeof(float)), self->strides[1] = sizeof(float);
    view->itemsize = sizeof(float);
    static char format[] = "f";
    if (flags & PyBUF_FORMAT) view->format = format;
    if (flags & PyBUF_ND) view->ndim = 2, view->shape = self->shape;
    if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES) view->strides = self->strides;
    return 0;
}

static PyObject *get_n(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromSize_t(wo_log_n(((wopy_log *)object)->log));
}

static PyObject *get_d(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromSize_t(wo_log_d(((wopy_log *)object)->log));
}

static PyObject *get_may_have_labels(PyObject *object, void *ignored)
{
    (void)ignored;
    const int64_t *indptr;
    wo_log_labels(((wopy_log *)object)->log, &indptr);
    return PyBool_FromLong(indptr != NULL);
}

static PyObject *get_most_frequent(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyFloat_FromDouble(wo_log_most_frequent(((wopy_log *)object)->log));
}

static PyMethodDef methods[] = {
    {"_wrap", log_wrap, METH_VARARGS | METH_CLASS, NULL},
    {"_open", log_open, METH_VARARGS | METH_CLASS, NULL},
    {0},
};
static PyGetSetDef fields[] = {
    {"n", get_n, NULL, "queries", NULL},
    {"d", get_d, NULL, "dimensions", NULL},
    {"_may_have_labels", get_may_have_labels, NULL, "whether it has a place for labels, perhaps of none", NULL},
    {"_most_frequent", get_most_frequent, NULL, "the share of the most frequent label, or NaN", NULL},
    {0},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, log_dealloc}, {Py_tp_methods, methods}, {Py_tp_getset, fields}, {Py_bf_getbuffer, log_view}, {0},
};
static PyType_Spec spec = {
    .name = "wideout._core.Log",
    .basicsize = sizeof(wopy_log),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

int wopy_log_register(PyObject *module)
{
    wopy_log_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return wopy_log_type ? PyModule_AddObjectRef(module, "Log", (PyObject *)wopy_log_type) : -1;
}
