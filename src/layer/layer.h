/* A wide layer in memory or in a mapped file, and the checksum that ties an index to it. */
#ifndef WOI_LAYER_LAYER_H
#define WOI_LAYER_LAYER_H

#include "layer/exact.h"
#include "store/names.h"

struct wo_layer {
    woi_dense dense;        /* m, d and where the rows and biases are; b is NULL where there are none */
    woi_st *st;             /* the mapped file they lie in, or NULL */
    woi_npy npy_w, npy_b;   /* the same for arrays of NumPy's */
    float *copy_w, *copy_b; /* what had to be converted, or NULL */
    const woi_tensor *weight, *bias, *unused_bias; /* of st: W, b, and what may be b where none was found; or NULL */
    woi_names labels;                              /* the names of the classes; empty where unknown */
    uint64_t checksum;                             /* XXH3 of m, d, W and b as floats; no b counts as zeros */
};

/* Reads a layer out of an open safetensors file, and takes the file over, on failure too. Whatever is verified, its
 * numbers are looked through once: they must be finite, and their checksum ties an index to them. */
wo_status woi_layer_read(woi_st *st, const wo_layer_options *options, wo_layer **layer, wo_error *err);

#endif
