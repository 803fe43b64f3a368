/* OpenBLAS as we use it: one thread inside each call, our own parallel loops outside.
 *
 * Its number of threads is one setting for the whole process, so whoever changes it puts it back. */
#ifndef WOI_LAYER_BLAS_H
#define WOI_LAYER_BLAS_H

#include <cblas.h>
#include <stddef.h>

/* Sets one thread and returns what was set before, for woi_blas_restore; always in pairs, from any thread. One thread
 * stays set until the last of those inside is out. */
int woi_blas_single(void);
void woi_blas_restore(int before);

/* C (n, m) = A (n, k) B (m, k)^T + beta C, all row-major; ld: elements from one row to the next. */
static inline void woi_gemm_nt(size_t n, size_t m, size_t k, const float *a, size_t lda, const float *b, size_t ldb,
                               float beta, float *c, size_t ldc)
{
    if (n == 1) /* sgemm would pack all of B for one row */
        cblas_sgemv(CblasRowMajor, CblasNoTrans, (int)m, (int)k, 1, b, (int)ldb, a, 1, beta, c, 1);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)m, (int)k, 1, a, (int)lda, b, (int)ldb, beta,
                    c, (int)ldc);
}

/* C (n, m) = A (n, k) B (k, m) + beta C. */
static inline void woi_gemm_nn(size_t n, size_t m, size_t k, const float *a, size_t lda, const float *b, size_t ldb,
                               float beta, float *c, size_t ldc)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, (int)m, (int)k, 1, a, (int)lda, b, (int)ldb, beta, c,
                (int)ldc);
}

/* C (n, m) = A (k, n)^T B (k, m) + beta C. */
static inline void woi_gemm_tn(size_t n, size_t m, size_t k, const float *a, size_t lda, const float *b, size_t ldb,
                               float beta, float *c, size_t ldc)
{
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)n, (int)m, (int)k, 1, a, (int)lda, b, (int)ldb, beta, c,
                (int)ldc);
}

#endif
