/* The module wideout._core: what it imports, its functions, its types. */
#include "core.h"

wopy_imports wopy;
const char *const wopy_verify_words[3] = {"all", "used", "none"};

/* cpu(): which instruction set runs, and why */
static PyObject *cpu(PyObject *module, PyObject *ignored)
{
    (void)module, (void)ignored;
    wo_cpu_info info = {.struct_size = sizeof info};
    const char *name, *path;
    wo_error err;
    if (wo_cpu_query(&info, &err)) return wopy_raise(&err, NULL);
    PyObject *kernels = PyDict_New();
    for (size_t i = 0; kernels && wo_cpu_kernel(i, &name, &path); i++) {
        PyObject *text = PyUnicode_FromString(path);
        if (!text || PyDict_SetItemString(kernels, name, text)) Py_CLEAR(kernels);
        Py_XDECREF(text);
    }
    if (!kernels) return NULL;
    return Py_BuildValue("{s:s,s:s,s:s,s:s,s:s,s:N}", "level", info.level, "best", info.best, "reason", info.reason,
                         "model", info.model, "features", info.features, "kernels", kernels);
}

/* options(): name -> (help, values or None, low, high) of every build option */
static PyObject *options(PyObject *module, PyObject *ignored)
{
    (void)module, (void)ignored;
    PyObject *all = PyDict_New();
    wo_option_info info = {.struct_size = sizeof info};
    for (size_t i = 0; all && wo_option_at(i, &info); i++) {
        PyObject *row = Py_BuildValue("(szdd)", info.help, info.values, info.low, info.high);
        if (!row || PyDict_SetItemString(all, info.name, row)) Py_CLEAR(all);
        Py_XDECREF(row);
    }
    return all;
}

static PyMethodDef functions[] = {
    {"cpu", cpu, METH_NOARGS, NULL},
    {"options", options, METH_NOARGS, NULL},
    {"sample", wopy_sample, METH_VARARGS, NULL},
    {0},
};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "wideout._core", .m_doc = "wideout.h for Python.",
    .m_size = -1,          .m_methods = functions,
};

/* An attribute of a module that is imported for it; NULL with an exception. */
static PyObject *import(const char *module, const char *name)
{
    PyObject *from = PyImport_ImportModule(module);
    PyObject *found = from ? PyObject_GetAttrString(from, name) : NULL;
    Py_XDECREF(from);
    return found;
}

static PyObject *dtype_of(const char *name)
{
    PyObject *dtype = import("numpy", "dtype"), *found = NULL;
    if (dtype) found = PyObject_CallFunction(dtype, "s", name);
    Py_XDECREF(dtype);
    return found;
}

static int import_all(void)
{
    return (wopy.ndarray = import("numpy", "ndarray")) && (wopy.float32 = dtype_of("float32")) &&
                   (wopy.int32 = dtype_of("int32")) && (wopy.int64 = dtype_of("int64")) &&
                   (wopy.stats = import("wideout._arrays", "STATS")) &&
                   (wopy.to_floats = import("wideout._arrays", "to_floats")) &&
                   (wopy.to_ids = import("wideout._arrays", "to_ids")) &&
                   (wopy.make_error = import("wideout._errors", "make_error")) &&
                   (wopy.closed = import("wideout._errors", "ClosedError"))
               ? 0
               : -1;
}

/* The header that this was compiled with, and the library that was linked: the patch may differ, the rest may not. */
static int check_version(void)
{
    if (wo_version_number() / 100 == WO_VERSION / 100) return 0;
    PyErr_Format(
        PyExc_ImportError,
        "wideout's extension was compiled for version %d.%d of the library, and linked with %s: build both anew",
        WO_VERSION_MAJOR, WO_VERSION_MINOR, wo_version());
    return -1;
}

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    if (check_version() || import_all()) return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module && (PyModule_AddStringConstant(module, "version", wo_version()) || wopy_layer_register(module) ||
                   wopy_log_register(module) || wopy_log_writer_register(module) || wopy_index_register(module)))
        Py_CLEAR(module);
    return module;
}
