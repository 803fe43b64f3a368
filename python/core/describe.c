/* What an index says of itself, as dicts and lists; wideout/_report.py makes tables of them. */
#include "core.h"

PyObject *wopy_index_describe(PyObject *object, PyObject *ignored)
{
    wopy_index *self = (wopy_index *)object;
    (void)ignored;
    const wo_index *index = wopy_index_enter(self);
    if (!index) return NULL;
    wo_index_info i = {.struct_size = sizeof i};
    wo_index_describe(index, &i);
    PyObject *found = Py_BuildValue(
        "{s:s,s:N,s:n,s:n,s:K,s:K,s:K,s:K,s:K,s:I,s:I,s:d,s:d,s:d,s:d,s:K,s:d,s:d,s:d}", "method", i.method_name,
        "has_names", PyBool_FromLong(i.has_names), "m", (Py_ssize_t)i.m, "d", (Py_ssize_t)i.d, "cells",
        (unsigned long long)i.n_cells, "entries", (unsigned long long)i.n_entries, "empty_cells",
        (unsigned long long)i.n_empty, "largest_cell", (unsigned long long)i.largest, "index_bytes",
        (unsigned long long)i.index_bytes, "full_from", i.full_from, "full_to", i.full_to, "same_best", i.same_best,
        "same_five", i.same_five, "log_z_error", i.log_z_error, "log_z_bias", i.log_z_bias, "held_n",
        (unsigned long long)i.held_n, "held_same_best", i.held_same_best, "held_p_at_1", i.held_p_at_1,
        "held_full_p_at_1", i.held_full_p_at_1);
    wopy_index_leave(self);
    return found;
}

/* The value of an option as Python would have it. */
static PyObject *option_value(const wo_option_info *info, const wo_build_options *o)
{
    char text[40];
    wo_build_get(o, info->name, text, sizeof text);
    if (info->values) return PyUnicode_FromString(text);
    if (!info->whole) return PyFloat_FromDouble(PyOS_string_to_double(text, NULL, NULL));
    PyObject *number = PyLong_FromString(text, NULL, 10);
    if (!number || info->low != 0 || info->high != 1) return number;
    const int is = PyObject_IsTrue(number);
    Py_DECREF(number);
    return PyBool_FromLong(is);
}

/* Those that have a part in it. */
PyObject *wopy_index_options(PyObject *object, PyObject *ignored)
{
    wopy_index *self = (wopy_index *)object;
    (void)ignored;
    const wo_index *index = wopy_index_enter(self);
    if (!index) return NULL;
    wo_build_options o = {.struct_size = sizeof o};
    wo_index_options(index, &o);
    wopy_index_leave(self);
    PyObject *all = PyDict_New();
    wo_option_info info = {.struct_size = sizeof info};
    for (size_t i = 0; all && wo_option_at(i, &info); i++) {
        if (!wo_build_uses(&o, info.name)) continue;
        PyObject *value = option_value(&info, &o);
        if (!value || PyDict_SetItemString(all, info.name, value)) Py_CLEAR(all);
        Py_XDECREF(value);
    }
    return all;
}

/* [names, [[number, ...], ...]] */
static PyObject *table(size_t rows, size_t columns, const double *values, const char *const *names)
{
    PyObject *heads = PyList_New((Py_ssize_t)columns), *lines = PyList_New((Py_ssize_t)rows);
    for (size_t c = 0; heads && c < columns; c++) {
        PyObject *name = PyUnicode_FromString(names[c]);
        if (!name) goto failed;
        PyList_SET_ITEM(heads, (Py_ssize_t)c, name);
    }
    for (size_t r = 0; heads && lines && r < rows; r++) {
        PyObject *line = PyList_New((Py_ssize_t)columns);
        if (!line) goto failed;
        PyList_SET_ITEM(lines, (Py_ssize_t)r, line);
        for (size_t c = 0; c < columns; c++) {
            PyObject *x = PyFloat_FromDouble(values[r * columns + c]);
            if (!x) goto failed;
            PyList_SET_ITEM(line, (Py_ssize_t)c, x);
        }
    }
    if (heads && lines) return Py_BuildValue("(NN)", heads, lines);
failed:
    Py_XDECREF(heads);
    Py_XDECREF(lines);
    return NULL;
}

PyObject *wopy_index_trace(PyObject *object, PyObject *ignored)
{
    wopy_index *self = (wopy_index *)object;
    (void)ignored;
    const wo_index *index = wopy_index_enter(self);
    if (!index) return NULL;
    wo_trace trace = {.struct_size = sizeof trace};
    PyObject *found = wo_index_trace(index, &trace) ? table(trace.rows, trace.columns, trace.values, trace.names)
                                                    : Py_NewRef(Py_None);
    wopy_index_leave(self);
    return found;
}

/* (names, rows, settings, goal), or None */
PyObject *wopy_index_curve(PyObject *object, PyObject *ignored)
{
    static const char *const proofs[] = {"none", "hits", "agreement", "all-equal", "held-out"};
    wopy_index *self = (wopy_index *)object;
    (void)ignored;
    const wo_index *index = wopy_index_enter(self);
    if (!index) return NULL;
    wo_curve c = {.struct_size = sizeof c};
    PyObject *all = NULL, *rows = NULL, *settings = NULL;
    if (!wo_index_curve(index, &c)) {
        all = Py_NewRef(Py_None);
        goto done;
    }
    rows = table(c.rows, c.columns, c.values, c.names);
    settings = PyList_New((Py_ssize_t)c.rows);
    for (size_t r = 0; settings && r < c.rows; r++) {
        char text[192];
        wo_curve_text(&c, r, text, sizeof text);
        PyObject *line = PyUnicode_FromString(text);
        if (!line) goto done;
        PyList_SET_ITEM(settings, (Py_ssize_t)r, line);
    }
    if (!rows || !settings) goto done;
    all = Py_BuildValue(
        "(OOO{s:n,s:d,s:d,s:d,s:d,s:I,s:I,s:K,s:s,s:s,s:K,s:K,s:K,s:K,s:K})", PyTuple_GET_ITEM(rows, 0),
        PyTuple_GET_ITEM(rows, 1), settings, "chosen", (Py_ssize_t)c.chosen, "target", c.target, "target5", c.target5,
        "target_agree", c.target_agree, "target_us", c.target_us, "k", c.k, "batch", c.batch, "queries",
        (unsigned long long)c.n, "proof", proofs[c.proof <= WO_PROOF_HELD_OUT ? c.proof : 0], "provable",
        proofs[c.provable <= WO_PROOF_HELD_OUT ? c.provable : 0], "labelled", (unsigned long long)c.labelled, "needed",
        (unsigned long long)c.needed, "built_from", (unsigned long long)c.built_from, "held_out",
        (unsigned long long)c.held_out, "changed", (unsigned long long)c.changed);
done:
    Py_XDECREF(rows);
    Py_XDECREF(settings);
    wopy_index_leave(self);
    return all;
}

PyObject *wopy_index_name(PyObject *object, PyObject *id)
{
    wopy_index *self = (wopy_index *)object;
    uint64_t at = self->m;
    if (wopy_number(id, "id", self->m - 1, &at)) return NULL;
    if (at == self->m) return wopy_refuse("id", "id takes a whole number");
    const wo_index *index = wopy_index_enter(self);
    if (!index) return NULL;
    size_t bytes = 0;
    const char *name = wo_index_label(index, (int32_t)at, &bytes);
    PyObject *found = name ? PyUnicode_DecodeUTF8(name, (Py_ssize_t)bytes, "replace") : Py_NewRef(Py_None);
    wopy_index_leave(self);
    return found;
}
