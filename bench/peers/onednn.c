/* oneDNN's matmul by the C API of its version 2, which Debian 12 has: see onednn.h. */
#include "onednn.h"

#if __has_include(<dnnl.h>)
#include <dnnl.h>
#endif

#if DNNL_VERSION_MAJOR == 2
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>

#define FUNCTIONS(X)                 \
    X(version)                       \
    X(engine_create)                 \
    X(stream_create)                 \
    X(stream_wait)                   \
    X(memory_desc_init_by_tag)       \
    X(matmul_desc_init)              \
    X(primitive_desc_create)         \
    X(primitive_desc_query_md)       \
    X(primitive_desc_destroy)        \
    X(reorder_primitive_desc_create) \
    X(primitive_create)              \
    X(primitive_execute)             \
    X(primitive_destroy)             \
    X(memory_create)                 \
    X(memory_destroy)

#define FIELD(name) __typeof__(dnnl_##name) *name;
static struct {
    FUNCTIONS(FIELD)
} call;
static dnnl_engine_t engine;
static dnnl_stream_t stream;

struct peer_matmul {
    dnnl_primitive_t product;
    dnnl_memory_t q, w, c;
};

static bool load(void *library)
{
#define FIND(name)                                                \
    *(void **)(void *)&call.name = dlsym(library, "dnnl_" #name); \
    if (!call.name) return false;
    FUNCTIONS(FIND)
    return call.version()->major == DNNL_VERSION_MAJOR && !call.engine_create(&engine, dnnl_cpu, 0) &&
           !call.stream_create(&stream, engine, dnnl_stream_default_flags);
}

/* Rows (n, d) by the tag ab; the same memory is (d, n) by ba. */
static dnnl_memory_desc_t matrix(size_t rows, size_t columns, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t desc = {0};
    call.memory_desc_init_by_tag(&desc, 2, (dnnl_dims_t){(dnnl_dim_t)rows, (dnnl_dim_t)columns}, type, tag);
    return desc;
}

/* Weights as they are into those that the product wants. */
static bool lay_out(const dnnl_memory_desc_t *from, void *w, const dnnl_memory_desc_t *to, dnnl_memory_t laid)
{
    dnnl_memory_t plain = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_primitive_t reorder = NULL;
    const bool done =
        !call.memory_create(&plain, from, engine, w) &&
        !call.reorder_primitive_desc_create(&desc, from, engine, to, engine, NULL) &&
        !call.primitive_create(&reorder, desc) &&
        !call.primitive_execute(reorder, stream, 2, (dnnl_exec_arg_t[]){{DNNL_ARG_FROM, plain}, {DNNL_ARG_TO, laid}}) &&
        !call.stream_wait(stream);
    if (reorder) call.primitive_destroy(reorder);
    if (desc) call.primitive_desc_destroy(desc);
    if (plain) call.memory_destroy(plain);
    return done;
}

peer_matmul *peer_matmul_create(void *library, const peer_matmul_operands *o)
{
    if (!stream && !load(library)) return NULL;
    peer_matmul *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    const dnnl_memory_desc_t q = matrix(o->n, o->d, dnnl_bf16, dnnl_ab), c = matrix(o->n, o->m, dnnl_f32, dnnl_ab),
                             w = matrix(o->d, o->m, dnnl_bf16, dnnl_ba),
                             any = matrix(o->d, o->m, dnnl_bf16, dnnl_format_tag_any);
    dnnl_matmul_desc_t product;
    dnnl_primitive_desc_t desc = NULL;
    const dnnl_memory_desc_t *laid = NULL;
    if (!call.matmul_desc_init(&product, &q, &any, NULL, &c) &&
        !call.primitive_desc_create(&desc, &product, NULL, engine, NULL))
        laid = call.primitive_desc_query_md(desc, dnnl_query_weights_md, 0);
    const bool done =
        laid && !call.primitive_create(&made->product, desc) && !call.memory_create(&made->q, &q, engine, o->q) &&
        !call.memory_create(&made->c, &c, engine, o->c) &&
        !call.memory_create(&made->w, laid, engine, DNNL_MEMORY_ALLOCATE) && lay_out(&w, o->w, laid, made->w);
    if (desc) call.primitive_desc_destroy(desc);
    if (done) return made;
    peer_matmul_free(made);
    return NULL;
}

void peer_matmul_run(const peer_matmul *product)
{
    call.primitive_execute(
        product->product, stream, 3,
        (dnnl_exec_arg_t[]){{DNNL_ARG_SRC, product->q}, {DNNL_ARG_WEIGHTS, product->w}, {DNNL_ARG_DST, product->c}});
    call.stream_wait(stream);
}

void peer_matmul_free(peer_matmul *product)
{
    if (!product) return;
    if (product->product) call.primitive_destroy(product->product);
    if (product->q) call.memory_destroy(product->q);
    if (product->w) call.memory_destroy(product->w);
    if (product->c) call.memory_destroy(product->c);
    free(product);
}

#else

peer_matmul *peer_matmul_create(void *library, const peer_matmul_operands *operands)
{
    (void)library, (void)operands;
    return NULL;
}

void peer_matmul_run(const peer_matmul *product)
{
    (void)product;
}

void peer_matmul_free(peer_matmul *product)
{
    (void)product;
}

#endif
