/* LogWriter: queries and labels straight to a file. */
#include "core.h"

typedef struct wopy_log_writer {
    PyObject_HEAD wo_log_writer *writer; /* NULL: finished, or given up */
    PyObject *path;
    size_t d, n;
    bool busy; /* a thread is inside */
} wopy_log_writer;

static void writer_dealloc(PyObject *object)
{
    wopy_log_writer *self = (wopy_log_writer *)object;
    PyTypeObject *type = Py_TYPE(object);
    wo_log_writer_free(self->writer);
    Py_CLEAR(self->path);
    type->tp_free(object);
    Py_DECREF(type);
}

/* LogWriter._create(path, d, labels, n, n_labels, bf16) */
static PyObject *writer_create(PyObject *type, PyObject *args)
{
    PyObject *path, *bytes = NULL, *given[3], *flags[2];
    uint64_t d = 0, n = 0, n_labels = 0;
    bool labels = true, bf16 = false;
    wo_error err;
    if (!PyArg_ParseTuple(args, "OOOOOO", &path, &given[0], &flags[0], &given[1], &given[2], &flags[1])) return NULL;
    if (wopy_number(given[0], "d", SIZE_MAX, &d) || wopy_number(given[1], "n", UINT64_MAX, &n) ||
        wopy_number(given[2], "n_labels", UINT64_MAX, &n_labels))
        return NULL;
    if (wopy_flag(flags[0], "labels", &labels) || wopy_flag(flags[1], "bf16", &bf16)) return NULL;
    if (d < 1) return wopy_refuse("d", "d is 0: a query has one number or more");
    if (!PyUnicode_FSConverter(path, &bytes)) return NULL;
    const wo_log_writer_options o = {
        .struct_size = sizeof o, .d = (size_t)d, .n = n, .n_labels = n_labels, .labels = labels, .bf16 = bf16};
    PyTypeObject *of = (PyTypeObject *)type;
    wopy_log_writer *self = (wopy_log_writer *)of->tp_alloc(of, 0);
    if (self && wo_log_writer_create(PyBytes_AS_STRING(bytes), &o, &self->writer, &err)) {
        wopy_raise(&err, path);
        Py_CLEAR(self);
    }
    Py_DECREF(bytes);
    if (!self) return NULL;
    self->path = Py_NewRef(path);
    self->d = (size_t)d;
    return (PyObject *)self;
}

static wo_log_writer *writer_of(wopy_log_writer *self)
{
    if (!self->writer) {
        PyErr_SetString(wopy.closed, "the log is closed: it was finished, or given up");
        return NULL;
    }
    if (self->busy) return wopy_refuse("", "another thread is writing to this log: one at a time");
    return self->writer;
}

/* _append(queries, indptr, labels) */
static PyObject *writer_append(PyObject *object, PyObject *args)
{
    wopy_log_writer *self = (wopy_log_writer *)object;
    PyObject *given, *indptr, *labels;
    wopy_floats queries;
    Py_buffer at = {0}, of = {0};
    wo_error err;
    if (!PyArg_ParseTuple(args, "OOO", &given, &indptr, &labels)) return NULL;
    wo_log_writer *writer = writer_of(self);
    if (!writer || wopy_floats_get(given, "queries", &queries)) return NULL;
    PyObject *result = NULL;
    if (queries.d != self->d) {
        wopy_refuse("queries", "queries have %zu numbers each, and the log takes %zu", queries.d, self->d);
        goto done;
    }
    if (indptr != Py_None &&
        (PyObject_GetBuffer(indptr, &at, PyBUF_CONTIG_RO) || PyObject_GetBuffer(labels, &of, PyBUF_CONTIG_RO)))
        goto done;
    if (indptr != Py_None && (size_t)at.len != (queries.n + 1) * sizeof(int64_t)) {
        wopy_refuse("labels", "there are labels of %zd queries and %zu queries",
                    at.len / (Py_ssize_t)sizeof(int64_t) - 1, queries.n);
        goto done;
    }
    const int64_t *ends = at.buf;
    if (ends && (ends[queries.n] < 0 || (size_t)of.len != (size_t)ends[queries.n] * sizeof(int32_t))) {
        wopy_refuse("labels", "labels end at %lld, and there are %zd", (long long)ends[queries.n],
                    of.len / (Py_ssize_t)sizeof(int32_t));
        goto done;
    }
    if (!(writer = writer_of(self))) goto done; /* converting may have run other threads */
    wo_status status;
    self->busy = true;
    Py_BEGIN_ALLOW_THREADS status = wo_log_append(writer, queries.data, queries.n, at.buf, of.buf, &err);
    Py_END_ALLOW_THREADS self->busy = false;
    if (status) {
        wopy_raise(&err, err.status == WO_ERR_IO ? self->path : NULL);
    } else {
        self->n += queries.n;
        result = Py_NewRef(Py_None);
    }
done:
    PyBuffer_Release(&at);
    PyBuffer_Release(&of);
    wopy_floats_release(&queries);
    return result;
}

static PyObject *writer_finish(PyObject *object, PyObject *ignored)
{
    wopy_log_writer *self = (wopy_log_writer *)object;
    (void)ignored;
    wo_error err;
    wo_log_writer *writer = writer_of(self);
    if (!writer) return NULL;
    wo_status status;
    self->busy = true;
    Py_BEGIN_ALLOW_THREADS status = wo_log_finish(writer, &err);
    wo_log_writer_free(writer);
    Py_END_ALLOW_THREADS self->busy = false;
    self->writer = NULL;
    if (status) return wopy_raise(&err, self->path);
    return Py_NewRef(Py_None);
}

static PyObject *writer_discard(PyObject *object, PyObject *ignored)
{
    wopy_log_writer *self = (wopy_log_writer *)object;
    (void)ignored;
    if (!self->writer) return Py_NewRef(Py_None);
    if (!writer_of(self)) return NULL;
    wo_log_writer_free(self->writer);
    self->writer = NULL;
    return Py_NewRef(Py_None);
}

static PyObject *get_n(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromSize_t(((wopy_log_writer *)object)->n);
}

static PyObject *get_d(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromSize_t(((wopy_log_writer *)object)->d);
}

static PyObject *get_path(PyObject *object, void *ignored)
{
    (void)ignored;
    return Py_NewRef(((wopy_log_writer *)object)->path);
}

static PyObject *get_closed(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyBool_FromLong(!((wopy_log_writer *)object)->writer);
}

static PyMethodDef methods[] = {
    {"_create", writer_create, METH_VARARGS | METH_CLASS, NULL},
    {"_append", writer_append, METH_VARARGS, NULL},
    {"finish", writer_finish, METH_NOARGS, "Completes the file, which then appears under its name."},
    {"discard", writer_discard, METH_NOARGS, "Gives the file up: nothing is left behind, and an old file as it was."},
    {0},
};
static PyGetSetDef fields[] = {
    {"n", get_n, NULL, "queries so far", NULL},
    {"d", get_d, NULL, "dimensions", NULL},
    {"path", get_path, NULL, "the file that is written", NULL},
    {"closed", get_closed, NULL, "whether it was finished or given up", NULL},
    {0},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, writer_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, fields},
    {0},
};
static PyType_Spec spec = {
    .name = "wideout._core.LogWriter",
    .basicsize = sizeof(wopy_log_writer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

int wopy_log_writer_register(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    if (!type) return -1;
    const int failed = PyModule_AddObjectRef(module, "LogWriter", type);
    Py_DECREF(type);
    return failed;
}
