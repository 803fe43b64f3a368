/* A product in bf16 by oneDNN's matmul, for products.c: C (n, m) = Q W^T, Q (n, d) and W (m, d) in bf16, C in f32. It
 * takes no f32 queries beside bf16 weights.
 *
 * The library is the caller's, loaded by dlopen: nothing is linked. */
#ifndef BENCH_PEERS_ONEDNN_H
#define BENCH_PEERS_ONEDNN_H

#include <stddef.h>
#include <stdint.h>

typedef struct peer_matmul peer_matmul;

/* Q and C are borrowed; W is laid out here as the library asks, and not needed afterwards. */
typedef struct peer_matmul_operands {
    size_t n, m, d;
    uint16_t *q, *w;
    float *c;
} peer_matmul_operands;

/* NULL: the library cannot, or is of another version than the header that this was compiled with; or there was none. */
peer_matmul *peer_matmul_create(void *library, const peer_matmul_operands *operands);
void peer_matmul_run(const peer_matmul *product);
void peer_matmul_free(peer_matmul *product); /* NULL is fine */

#endif
