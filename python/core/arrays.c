/* Arrays in, by the buffer protocol, and arrays out, made by numpy. */
#include "core.h"

#include <string.h>

/* Whether the library can read it where it lies: the format, one or two dimensions, C order, aligned. */
static bool is_plain(const Py_buffer *view, char format)
{
    const char *f = view->format ? view->format : "B";
    return f[0] == format && f[1] == '\0' && (view->ndim == 1 || view->ndim == 2) && view->itemsize == 4 &&
           PyBuffer_IsContiguous(view, 'C') && (uintptr_t)view->buf % 4 == 0;
}

/* A view of it as it is; false: it is not plain, and nothing is held. Subclasses of numpy's array may have a mask. */
static bool take_plain(PyObject *object, char format, Py_buffer *view)
{
    if (!PyObject_CheckBuffer(object)) return false;
    PyTypeObject *ndarray = (PyTypeObject *)wopy.ndarray;
    if (Py_TYPE(object) != ndarray && PyType_IsSubtype(Py_TYPE(object), ndarray)) return false;
    if (PyObject_GetBuffer(object, view, PyBUF_RECORDS_RO)) {
        PyErr_Clear();
        return false;
    }
    if (is_plain(view, format)) return true;
    PyBuffer_Release(view);
    return false;
}

/* The same of what `convert(object, what)` makes of it: an array, and whether it was a tensor. */
static int take_converted(PyObject *convert, PyObject *object, const char *what, Py_buffer *view, bool *tensor)
{
    const char format = convert == wopy.to_floats ? 'f' : 'i';
    PyObject *both = PyObject_CallFunction(convert, "Os", object, what);
    if (!both) return -1;
    int failed = -1;
    if (!PyTuple_Check(both) || PyTuple_GET_SIZE(both) != 2 || !take_plain(PyTuple_GET_ITEM(both, 0), format, view)) {
        wopy_refuse(what, "%s could not be made an array", what);
    } else {
        *tensor = PyTuple_GET_ITEM(both, 1) == Py_True;
        failed = 0;
    }
    Py_DECREF(both);
    return failed;
}

int wopy_floats_get(PyObject *object, const char *what, wopy_floats *floats)
{
    *floats = (wopy_floats){0};
    if (!take_plain(object, 'f', &floats->view)) {
        const int taken = PyObject_CheckBuffer(object) ? 0 : wopy_tensor_take(object, floats);
        if (taken) return taken < 0 ? -1 : 0;
        if (take_converted(wopy.to_floats, object, what, &floats->view, &floats->tensor)) return -1;
    }
    const Py_buffer *view = &floats->view;
    floats->one = view->ndim == 1;
    floats->n = floats->one ? 1 : (size_t)view->shape[0];
    floats->d = (size_t)view->shape[floats->one ? 0 : 1];
    floats->data = view->buf;
    return 0;
}

void wopy_floats_release(wopy_floats *floats)
{
    PyBuffer_Release(&floats->view);
    Py_CLEAR(floats->owner);
}

int wopy_ids_get(PyObject *object, const char *what, wopy_ids *ids)
{
    bool tensor;
    *ids = (wopy_ids){.one = true};
    if (!object || object == Py_None) return 0;
    if (!take_plain(object, 'i', &ids->view) && take_converted(wopy.to_ids, object, what, &ids->view, &tensor))
        return -1;
    const Py_buffer *view = &ids->view;
    ids->one = view->ndim == 1;
    ids->n = ids->one ? 1 : (size_t)view->shape[0];
    ids->d = (size_t)view->shape[ids->one ? 0 : 1];
    ids->data = view->buf;
    return 0;
}

void wopy_ids_release(wopy_ids *ids)
{
    PyBuffer_Release(&ids->view);
    PyMem_Free(ids->own);
}

int wopy_ids_own(wopy_ids *ids)
{
    const size_t n = ids->n * ids->d;
    if (!n) return 0;
    if (!(ids->own = PyMem_New(int32_t, n))) {
        wopy_no_memory((double)n * sizeof *ids->own);
        return -1;
    }
    memcpy(ids->own, ids->data, n * sizeof *ids->own);
    ids->data = ids->own;
    return 0;
}

void wopy_ids_drop_none(wopy_ids *ids)
{
    const size_t n = ids->n * ids->d;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (ids->own[i] != -1) ids->own[kept++] = ids->own[i];
    ids->n = 1;
    ids->d = kept;
}

/* numpy.ndarray itself is called: numpy.empty goes through a dispatcher in Python, which takes 0.3 us more. */
PyObject *wopy_array_new(PyObject *dtype, bool one, size_t n, size_t k, void **data)
{
    PyObject *sizes[2] = {PyLong_FromSize_t(one ? k : n), one ? NULL : PyLong_FromSize_t(k)};
    PyObject *shape = sizes[0] && (one || sizes[1]) ? PyTuple_New(one ? 1 : 2) : NULL;
    if (!shape) {
        Py_XDECREF(sizes[0]);
        Py_XDECREF(sizes[1]);
        return NULL;
    }
    PyTuple_SET_ITEM(shape, 0, sizes[0]);
    if (!one) PyTuple_SET_ITEM(shape, 1, sizes[1]);
    PyObject *const args[] = {shape, dtype};
    PyObject *array = PyObject_Vectorcall(wopy.ndarray, args, 2, NULL);
    Py_DECREF(shape);
    if (!array && (PyErr_ExceptionMatches(PyExc_MemoryError) || PyErr_ExceptionMatches(PyExc_ValueError))) {
        PyErr_Clear();
        const size_t width = dtype == wopy.stats ? sizeof(wo_query_stats) : 4;
        return wopy_no_memory((double)n * (double)k * (double)width);
    }
    Py_buffer view;
    if (array && PyObject_GetBuffer(array, &view, PyBUF_WRITABLE)) Py_CLEAR(array);
    if (!array) return NULL;
    *data = view.buf; /* which stays: nobody else has the array */
    PyBuffer_Release(&view);
    return array;
}

int wopy_array_check(PyObject *array, const char *format, bool one, size_t n, size_t k, Py_buffer *view)
{
    const char *type = format[0] == 'f' ? "float32" : "int32";
    if (!PyObject_CheckBuffer(array) || PyObject_GetBuffer(array, view, PyBUF_RECORDS)) {
        if (PyErr_Occurred()) PyErr_Clear();
        wopy_refuse("out", "out takes two arrays that can be written to, scores in float32 and ids in int32");
        return -1;
    }
    const bool fits = is_plain(view, format[0]) && view->ndim == (one ? 1 : 2) &&
                      (size_t)view->shape[one ? 0 : 1] == k && (one || (size_t)view->shape[0] == n);
    if (fits) return 0;
    PyBuffer_Release(view);
    if (one)
        wopy_refuse("out", "out takes an array of %s in C order with shape (%zu,) here", type, k);
    else
        wopy_refuse("out", "out takes an array of %s in C order with shape (%zu, %zu) here", type, n, k);
    return -1;
}
