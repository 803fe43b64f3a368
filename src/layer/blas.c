/* Who is inside OpenBLAS with one thread. Searches run at the same time: if each put back what it found, one that ends
 * would give the others' calls all cores in the middle of their work. So the first one in remembers, the last one out
 * puts back. */
#include "layer/blas.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int inside, outside_threads;

int woi_blas_single(void)
{
    pthread_mutex_lock(&lock);
    if (inside++ == 0) {
        outside_threads = openblas_get_num_threads();
        if (outside_threads != 1) openblas_set_num_threads(1);
    }
    const int before = outside_threads;
    pthread_mutex_unlock(&lock);
    return before;
}

void woi_blas_restore(int before)
{
    pthread_mutex_lock(&lock);
    if (--inside == 0 && before != 1) openblas_set_num_threads(before);
    pthread_mutex_unlock(&lock);
}
