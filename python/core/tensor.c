/* Torch tensors: those that the library can read where they lie are taken by their address.
 *
 * Tensor.numpy() takes 0.8 to 1.6 us, which is more than a search. The questions below take 0.05 us each. Torch is not
 * imported: who has a tensor has imported it.
 *
 * It is the storage that is held, not the tensor: model.half() and `parameter.data = ...` give a tensor another one.
 * But share_memory() gives the storage other memory, which nobody outside of torch can hold: it is noticed. */
#include "core.h"

/* Of torch, once somebody has imported it. */
static struct {
    PyObject *tensor, *parameter, *float32, *from_dlpack;
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
    /* The public function is one of Python that asks what it was given; this is what it calls. */
    if (!keep(&torch.from_dlpack, "torch._C", "_from_dlpack")) {
        if (wopy_forgive() || !keep(&torch.from_dlpack, "torch.utils.dlpack", "from_dlpack")) return false;
    }
    return keep(&torch.parameter, "torch.nn", "Parameter") && keep(&torch.float32, "torch", "float32") &&
           keep(&torch.tensor, "torch", "Tensor");
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
enum { DTYPE, IS_CPU, IS_CONTIGUOUS, IS_NEG, SHAPE, DATA_PTR, STORAGE, NBYTES, N_NAMES };
static PyObject *names[N_NAMES];
static bool make_names(void)
{
    if (names[N_NAMES - 1]) return true;
    const char *storage = PyObject_HasAttrString(torch.tensor, "_storage") ? "_storage" : "untyped_storage"; /* 1, 2 */
    const char *const texts[] = {"dtype", "is_cpu", "is_contiguous", "is_neg", "shape", "data_ptr", storage, "nbytes"};
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
    const uintptr_t begin = floats->begin, bytes = number(floats->owner, names[NBYTES]);
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
    if (floats->data) floats->begin = number(floats->owner, names[DATA_PTR]);
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

int wopy_floats_stay(const wopy_floats *floats, const char *what)
{
    if (!floats->begin || number(floats->owner, names[DATA_PTR]) == floats->begin) return 0;
    if (!PyErr_Occurred())
        wopy_refuse(what,
                    "the memory of %s has moved, as share_memory() and torch.multiprocessing move it: call "
                    "share_memory() first, then build",
                    what);
    return -1;
}

/* ---- Answers ------------------------------------------------------------------------------------------------ */

/* DLPack's tensor, of version 0 (dlpack.h): what torch takes numbers of others by. Torch.from_numpy, and numpy's own
 * DLPack, take twice as long, and after a batch has swept the caches three times. */
typedef struct dl_tensor {
    void *data;
    int32_t device, device_id; /* 1, 0: the processor */
    int32_t n_dimensions;
    uint8_t kind, bits; /* 0: int, 2: float */
    uint16_t lanes;
    int64_t *shape, *strides; /* strides NULL: in C order */
    uint64_t byte_offset;
} dl_tensor;
typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *);
} dl_managed;

/* One block has the struct, the shape and, at a cache line, the numbers. */
typedef struct block {
    dl_managed managed;
    int64_t shape[2];
} block;
enum { LINE = 64 };

/* By whoever frees the tensor, with the GIL or without. */
static void free_block(dl_managed *managed)
{
    PyMem_RawFree(managed->context);
}

/* A capsule that became a tensor has another name, and the tensor has the block. */
static void free_unused(PyObject *capsule)
{
    dl_managed *managed = PyCapsule_IsValid(capsule, "dltensor") ? PyCapsule_GetPointer(capsule, "dltensor") : NULL;
    if (managed) managed->deleter(managed);
}

PyObject *wopy_tensor_new(wopy_kind kind, bool one, size_t n, size_t k, void **data)
{
    const size_t width = kind == WOPY_IDS ? sizeof(int64_t) : sizeof(float);
    const size_t head = sizeof(block) + LINE;
    const bool fits = !k || n <= (PY_SSIZE_T_MAX - head) / width / k;
    block *b = fits ? PyMem_RawMalloc(head + n * k * width) : NULL;
    if (!b) return wopy_no_memory((double)n * (double)k * (double)width);
    *data = (void *)(((uintptr_t)b + sizeof(block) + LINE - 1) / LINE * LINE);
    *b = (block){.managed.tensor = {.data = *data,
                                    .device = 1,
                                    .n_dimensions = one ? 1 : 2,
                                    .kind = kind == WOPY_IDS ? 0 : 2,
                                    .bits = (uint8_t)(8 * width),
                                    .lanes = 1,
                                    .shape = b->shape},
                 .managed.context = b,
                 .managed.deleter = free_block,
                 .shape = {(int64_t)(one ? k : n), (int64_t)k}};
    PyObject *capsule = PyCapsule_New(&b->managed, "dltensor", free_unused);
    if (!capsule) PyMem_RawFree(b);
    return capsule;
}

PyObject *wopy_answer(PyObject *made)
{
    if (!made || !PyCapsule_CheckExact(made)) return made;
    PyObject *tensor = PyObject_CallOneArg(torch.from_dlpack, made);
    Py_DECREF(made);
    return tensor;
}
