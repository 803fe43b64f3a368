/* Torch tensors: those that the library can read where they lie are taken by their address.
 *
 * Tensor.numpy() takes 0.8 to 1.6 us, which is more than a search. The questions below take 0.05 us each. Torch is not
 * imported: who has a tensor has imported it.
 *
 * It is the storage that is held, not the tensor: model.half() and `parameter.data = ...` give a tensor another one. */
#include "core.h"

/* Of torch, once somebody has imported it. */
static struct {
    PyObject *tensor, *parameter, *float32, *from_numpy, *from_dlpack;
} torch;

static bool keep(PyObject **place, const char *module_name, const char *name)
{
    if (*place) return true;
    PyObject *module = PyImport_ImportModule(module_name);
    if (module) *place = PyObject_GetAttrString(module, name);
    Py_XDECREF(module);
    return *place != NULL;
}

/* False, perhaps with an exception: torch was not imported, or only just is being, and has all of these later. */
static bool find_torch(void)
{
    if (torch.tensor) return true;
    PyObject *name = PyUnicode_FromString("torch"), *module = name ? PyImport_GetModule(name) : NULL;
    Py_XDECREF(name);
    if (!module) return false;
    Py_DECREF(module);
    return keep(&torch.parameter, "torch.nn", "Parameter") && keep(&torch.float32, "torch", "float32") &&
           keep(&torch.from_numpy, "torch", "from_numpy") &&
           keep(&torch.from_dlpack, "torch.utils.dlpack", "from_dlpack") && keep(&torch.tensor, "torch", "Tensor");
}

/* Whether a question without arguments is answered by `expected`. */
static bool says(PyObject *tensor, PyObject *method, PyObject *expected)
{
    PyObject *found = PyObject_CallMethodNoArgs(tensor, method);
    const bool same = found == expected;
    Py_XDECREF(found);
    return same;
}

static bool has(PyObject *tensor, PyObject *attribute, PyObject *expected)
{
    PyObject *found = PyObject_GetAttr(tensor, attribute);
    const bool same = found == expected;
    Py_XDECREF(found);
    return same;
}

/* Names of attributes, made once. */
enum { DTYPE, IS_CPU, IS_CONTIGUOUS, IS_NEG, SHAPE, DATA_PTR, STORAGE, NBYTES, DLPACK, N_NAMES };
static PyObject *names[N_NAMES];
static bool make_names(void)
{
    if (names[N_NAMES - 1]) return true;
    const char *storage = PyObject_HasAttrString(torch.tensor, "_storage") ? "_storage" : "untyped_storage"; /* 1, 2 */
    const char *const texts[] = {"dtype",    "is_cpu", "is_contiguous", "is_neg",    "shape",
                                 "data_ptr", storage,  "nbytes",        "__dlpack__"};
    for (int i = 0; i < N_NAMES; i++)
        if (!names[i] && !(names[i] = PyUnicode_InternFromString(texts[i]))) return false;
    return true;
}

/* The shape, of one or two dimensions. */
static bool read_shape(PyObject *tensor, wopy_floats *floats)
{
    PyObject *shape = PyObject_GetAttr(tensor, names[SHAPE]); /* a kind of tuple */
    const Py_ssize_t dimensions = shape && PyTuple_Check(shape) ? PyTuple_GET_SIZE(shape) : 0;
    if (dimensions == 1 || dimensions == 2) {
        floats->one = dimensions == 1;
        floats->n = floats->one ? 1 : PyLong_AsSize_t(PyTuple_GET_ITEM(shape, 0));
        floats->d = PyLong_AsSize_t(PyTuple_GET_ITEM(shape, dimensions - 1));
    }
    Py_XDECREF(shape);
    return (dimensions == 1 || dimensions == 2) && !PyErr_Occurred();
}

/* A number that a question without arguments is answered by; 0 with an exception where it fails. */
static uintptr_t number(PyObject *object, PyObject *method)
{
    PyObject *found = PyObject_CallMethodNoArgs(object, method);
    const uintptr_t value = found ? (uintptr_t)PyLong_AsVoidPtr(found) : 0;
    Py_XDECREF(found);
    return value;
}

/* Whether all of the numbers are inside the storage: it can be made shorter than the tensors that it is of. */
static bool is_inside(const wopy_floats *floats)
{
    const uintptr_t begin = number(floats->owner, names[DATA_PTR]), bytes = number(floats->owner, names[NBYTES]);
    const uintptr_t at = (uintptr_t)floats->data;
    if (PyErr_Occurred()) return false;
    if (!floats->n || !floats->d) return true; /* it has no address */
    if (!at || at % sizeof(float) || at < begin || at - begin > bytes) return false;
    return (bytes - (at - begin)) / sizeof(float) / floats->d >= floats->n;
}

static bool take(PyObject *tensor, wopy_floats *floats)
{
    if (!has(tensor, names[DTYPE], torch.float32) || !has(tensor, names[IS_CPU], Py_True) ||
        !says(tensor, names[IS_CONTIGUOUS], Py_True) || !says(tensor, names[IS_NEG], Py_False) ||
        !read_shape(tensor, floats))
        return false;
    floats->tensor = true;
    floats->owner = PyObject_CallMethodNoArgs(tensor, names[STORAGE]);
    if (floats->owner) floats->data = (const float *)number(tensor, names[DATA_PTR]);
    return !PyErr_Occurred() && is_inside(floats);
}

/* Subclasses may answer as they like: wideout/_arrays.py takes those. */
int wopy_tensor_take(PyObject *object, wopy_floats *floats)
{
    if (!find_torch() || !make_names()) return wopy_forgive();
    PyObject *type = (PyObject *)Py_TYPE(object);
    if (type != torch.tensor && type != torch.parameter) return 0;
    if (take(object, floats)) return 1;
    Py_CLEAR(floats->owner);
    *floats = (wopy_floats){0};
    return wopy_forgive();
}

/* By DLPack: torch.from_numpy takes 0.4 us more, most of it when the tensor is freed. It is for numpy before 1.22. */
static PyObject *tensor_of(PyObject *array)
{
    PyObject *capsule = PyObject_CallMethodNoArgs(array, names[DLPACK]);
    if (!capsule) {
        if (wopy_forgive()) return NULL;
        return PyObject_CallOneArg(torch.from_numpy, array);
    }
    PyObject *tensor = PyObject_CallOneArg(torch.from_dlpack, capsule);
    Py_DECREF(capsule);
    return tensor;
}

PyObject *wopy_answer(PyObject *array, bool tensor)
{
    if (!tensor || !array) return array;
    PyObject *found = find_torch() && make_names() ? tensor_of(array) : NULL;
    Py_DECREF(array);
    if (!found && !PyErr_Occurred()) PyErr_SetString(PyExc_ImportError, "torch cannot be found");
    return found;
}
