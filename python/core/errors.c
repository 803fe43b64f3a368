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

int wopy_forgive(void)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return -1;
    PyErr_Clear();
    return 0;
}
