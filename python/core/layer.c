/* Layer: a file, or the caller's arrays. */
#include "core.h"

PyTypeObject *wopy_layer_type;

static void layer_dealloc(PyObject *object)
{
    wopy_layer *self = (wopy_layer *)object;
    PyTypeObject *type = Py_TYPE(object);
    wo_layer_free(self->layer);
    wopy_floats_release(&self->weight);
    wopy_floats_release(&self->bias);
    type->tp_free(object);
    Py_DECREF(type);
}

int wopy_layer_get(PyObject *object, const wo_layer **layer)
{
    *layer = NULL;
    if (object == Py_None) return 0;
    if (!PyObject_TypeCheck(object, wopy_layer_type)) {
        wopy_refuse("layer", "layer takes a Layer, not %s", Py_TYPE(object)->tp_name);
        return -1;
    }
    const wopy_layer *self = (wopy_layer *)object;
    *layer = self->layer;
    return wopy_floats_stay(&self->weight, "the layer's weights") || wopy_floats_stay(&self->bias, "the layer's bias")
               ? -1
               : 0;
}

/* Names of classes, from a list of texts. */
static int set_names(wo_layer *layer, PyObject *names)
{
    wo_error err;
    PyObject *list = PyUnicode_Check(names) ? NULL : PySequence_Tuple(names); /* of our own, which stays as it is */
    if (!list) {
        if (PyErr_Occurred() && wopy_forgive()) return -1;
        wopy_refuse("names", "names are a list of texts, one a class, not %.40s", Py_TYPE(names)->tp_name);
        return -1;
    }
    const Py_ssize_t n = PyTuple_GET_SIZE(list);
    const char **texts = PyMem_New(const char *, (size_t)n + 1);
    int failed = -1;
    if (!texts) {
        wopy_no_memory((double)n * sizeof *texts);
        goto done;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *name = PyTuple_GET_ITEM(list, i);
        Py_ssize_t bytes;
        if (!PyUnicode_Check(name)) {
            wopy_refuse("names", "name %zd is no text", i);
            goto done;
        }
        if (!(texts[i] = PyUnicode_AsUTF8AndSize(name, &bytes))) {
            if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
                PyErr_Clear();
                wopy_refuse("names", "name %zd has half a letter, a surrogate, which UTF-8 cannot write", i);
            }
            goto done;
        }
        if (strlen(texts[i]) != (size_t)bytes) {
            wopy_refuse("names", "name %zd has a NUL byte", i);
            goto done;
        }
    }
    wo_status status;
    Py_BEGIN_ALLOW_THREADS status = wo_layer_set_names(layer, texts, (size_t)n, &err);
    Py_END_ALLOW_THREADS if (status) wopy_raise(&err, NULL);
    else failed = 0;
done:
    PyMem_Free(texts);
    Py_DECREF(list);
    return failed;
}

static int check_bias(const wopy_layer *self)
{
    const wopy_floats *W = &self->weight, *b = &self->bias;
    if (b->one && b->d == W->n) return 0;
    if (!b->one)
        wopy_refuse("bias", "the layer's bias has shape (%zu, %zu): it takes one number for each class, (%zu,)", b->n,
                    b->d, W->n);
    else if (b->d == W->d)
        wopy_refuse(
            "bias",
            "there are %zu biases for %zu classes of %zu numbers: is the layer transposed? Its rows are classes", b->d,
            W->n, W->d);
    else
        wopy_refuse("bias", "the layer's bias must have one number for each of the %zu classes, not %zu", W->n, b->d);
    return -1;
}

/* Layer._wrap(weight, bias, names) */
static PyObject *layer_wrap(PyObject *type, PyObject *args)
{
    PyObject *weight, *bias, *names;
    wo_error err;
    if (!PyArg_ParseTuple(args, "OOO", &weight, &bias, &names)) return NULL;
    PyTypeObject *of = (PyTypeObject *)type;
    wopy_layer *self = (wopy_layer *)of->tp_alloc(of, 0);
    if (!self || wopy_floats_get(weight, "the layer's weights", &self->weight)) goto failed;
    if (self->weight.one) {
        wopy_refuse("weight", "the layer's weights have one dimension: W has two, (m, d)");
        goto failed;
    }
    if (bias != Py_None && wopy_floats_get(bias, "the layer's bias", &self->bias)) goto failed;
    if (bias != Py_None && check_bias(self)) goto failed;
    wo_status status;
    Py_BEGIN_ALLOW_THREADS status =
        wo_layer_wrap(self->weight.data, self->bias.data, self->weight.n, self->weight.d, &self->layer, &err);
    Py_END_ALLOW_THREADS if (status)
    {
        wopy_raise(&err, NULL);
        goto failed;
    }
    if (names != Py_None && set_names(self->layer, names)) goto failed;
    return (PyObject *)self;
failed:
    Py_XDECREF(self);
    return NULL;
}

/* Layer._open(path, weight_name, bias_name, bias_path, verify, names, progress) */
static PyObject *layer_open(PyObject *type, PyObject *args)
{
    PyObject *given, *bytes = NULL, *bias_bytes = NULL, *verify, *names, *progress;
    wo_layer_options o = {.struct_size = sizeof o};
    wo_layer *layer = NULL;
    wo_error err;
    if (!PyArg_ParseTuple(args, "OzzOOOO", &given, &o.weight_name, &o.bias_name, &bias_bytes, &verify, &names,
                          &progress))
        return NULL;
    const int much = wopy_word(verify, "verify", wopy_verify_words, 3);
    if (much < 0 || !PyUnicode_FSConverter(given, &bytes)) return NULL;
    if (bias_bytes == Py_None)
        bias_bytes = NULL;
    else if (!PyUnicode_FSConverter(bias_bytes, &bias_bytes)) {
        Py_DECREF(bytes);
        return NULL;
    }
    o.verify = (wo_verify)much;
    o.bias_path = bias_bytes ? PyBytes_AS_STRING(bias_bytes) : NULL;
    wopy_call call = wopy_call_begin(progress);
    o.progress = wopy_call_progress(&call);
    const wo_status status = wo_layer_open(PyBytes_AS_STRING(bytes), &o, &layer, &err);
    wopy_layer *self = NULL;
    if (!wopy_call_end(&call)) {
        PyTypeObject *of = (PyTypeObject *)type;
        if (status)
            wopy_raise(&err, err.about == WO_ABOUT_BIAS ? NULL : given);
        else if (names == Py_None || !set_names(layer, names))
            self = (wopy_layer *)of->tp_alloc(of, 0);
    }
    Py_DECREF(bytes);
    Py_XDECREF(bias_bytes);
    if (self)
        self->layer = layer;
    else
        wo_layer_free(layer);
    return (PyObject *)self;
}

static PyObject *layer_describe(PyObject *object, PyObject *ignored)
{
    (void)ignored;
    wo_layer_info info = {.struct_size = sizeof info};
    wo_layer_describe(((wopy_layer *)object)->layer, &info);
    return Py_BuildValue("{s:n,s:n,s:N,s:N,s:z,s:z,s:z}", "m", (Py_ssize_t)info.m, "d", (Py_ssize_t)info.d, "has_bias",
                         PyBool_FromLong(info.has_bias), "has_names", PyBool_FromLong(info.has_names), "weight_name",
                         info.weight_name, "bias_name", info.bias_name, "unused_bias", info.unused_bias);
}

static PyObject *get_m(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromSize_t(wo_layer_m(((wopy_layer *)object)->layer));
}

static PyObject *get_d(PyObject *object, void *ignored)
{
    (void)ignored;
    return PyLong_FromSize_t(wo_layer_d(((wopy_layer *)object)->layer));
}

static PyMethodDef methods[] = {
    {"_wrap", layer_wrap, METH_VARARGS | METH_CLASS, NULL},
    {"_open", layer_open, METH_VARARGS | METH_CLASS, NULL},
    {"_describe", layer_describe, METH_NOARGS, NULL},
    {0},
};
static PyGetSetDef fields[] = {
    {"m", get_m, NULL, "classes", NULL},
    {"d", get_d, NULL, "dimensions", NULL},
    {0},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, layer_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, fields},
    {0},
};
static PyType_Spec spec = {
    .name = "wideout._core.Layer",
    .basicsize = sizeof(wopy_layer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

int wopy_layer_register(PyObject *module)
{
    wopy_layer_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return wopy_layer_type ? PyModule_AddObjectRef(module, "Layer", (PyObject *)wopy_layer_type) : -1;
}
