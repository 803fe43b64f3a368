/* Exceptions with the library's sentence and its fields: the classes are in wideout/_errors.py. */
#include "core.h"

#include <stdarg.h>
#include <stdio.h>

static void *raise_as(int status, int about, const char *option, PyObject *text, PyObject *offset, PyObject *path)
{
    PyObject *error = text && offset ? PyObject_CallFunction(wopy.make_error, "iisOOO", status, about, option, text,
                                                             offset, path ? path : Py_None)
                                     : NULL;
    if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    Py_XDECREF(text);
    Py_XDECREF(offset);
    return NULL;
}

void *wopy_raise(const wo_error *err, PyObject *path)
{
    PyObject *offset = err->offset == WO_NO_OFFSET ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(err->offset);
    /* A name from a file may be anything. */
    PyObject *text = PyUnicode_DecodeUTF8(err->text, (Py_ssize_t)strlen(err->text), "replace");
    return raise_as((int)err->status, (int)err->about, err->option, text, offset, path);
}

void *wopy_refuse(const char *option, const char *format, ...)
{
    char text[240];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    /* What did not fit is cut, perhaps in the middle of a letter. */
    PyObject *sentence = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    return raise_as(WO_ERR_ARGUMENT, WO_ABOUT_OPTION, option, sentence, Py_NewRef(Py_None), NULL);
}

void *wopy_no_memory(double bytes)
{
    wo_error err = {.status = WO_ERR_MEMORY, .offset = WO_NO_OFFSET};
    snprintf(err.text, sizeof err.text, "there is no memory for %.0f bytes", bytes);
    return wopy_raise(&err, NULL);
}

/* Whether an exception says that an object is no number at all, or no number of this size: it is then cleared. */
static bool is_no_number(void)
{
    if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError) &&
        !PyErr_ExceptionMatches(PyExc_OverflowError))
        return false;
    PyErr_Clear();
    return true;
}

static int refuse_range(PyObject *whole, const char *what, uint64_t most)
{
    PyObject *given = PyObject_Str(whole);
    const char *text = given ? PyUnicode_AsUTF8(given) : NULL;
    PyErr_Clear(); /* Python writes no number of thousands of digits */
    const char *cut = text && strlen(text) > 40 ? "..." : "";
    wopy_refuse(what, "%s takes a number from 0 to %llu, not %.40s%s", what, (unsigned long long)most,
                text ? text : "one of so many digits", cut);
    Py_XDECREF(given);
    return -1;
}

int wopy_number(PyObject *object, const char *what, uint64_t most, uint64_t *number)
{
    if (!object || object == Py_None) return 0;
    PyObject *whole = PyNumber_Index(object);
    if (!whole) {
        if (is_no_number()) wopy_refuse(what, "%s takes a whole number", what);
        return -1;
    }
    int failed = 0;
    const unsigned long long found = PyLong_AsUnsignedLongLong(whole);
    if (found == (unsigned long long)-1 && PyErr_Occurred())
        failed = is_no_number() ? refuse_range(whole, what, most) : -1;
    else if (found > most)
        failed = refuse_range(whole, what, most);
    else
        *number = found;
    Py_DECREF(whole);
    return failed;
}

int wopy_real(PyObject *object, const char *what, double *number)
{
    if (!object || object == Py_None) return 0;
    const double found = PyFloat_AsDouble(object);
    if (found == -1 && PyErr_Occurred()) {
        if (is_no_number()) wopy_refuse(what, "%s takes a number", what);
        return -1;
    }
    *number = found;
    return 0;
}

int wopy_flag(PyObject *object, const char *what, bool *flag)
{
    if (!object) return 0;
    int is = PyBool_Check(object) ? object == Py_True : -1;
    if (is < 0 && PyObject_Size(object) < 0) { /* what has a length is none */
        if (wopy_forgive()) return -1;
        is = PyObject_IsTrue(object);
    }
    if (is < 0 && wopy_forgive()) return -1;
    if (is < 0) return wopy_refuse(what, "%s takes True or False, not %.60s", what, Py_TYPE(object)->tp_name), -1;
    *flag = is;
    return 0;
}

int wopy_forgive(void)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return -1;
    PyErr_Clear();
    return 0;
}
