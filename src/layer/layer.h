/* A wide layer in memory or in a mapped file, and the checksum that ties an index to it. */
#ifndef WOI_LAYER_LAYER_H
#define WOI_LAYER_LAYER_H

#include "layer/exact.h"
#include "layer/shard.h"
#include "store/names.h"

struct wo_layer {
    woi_dense dense;        /* m, d and where the rows and biases are; b is NULL where there are none */
    woi_st *st;             /* the mapped file they lie in, or NULL */
    woi_npy npy_w, npy_b;   /* the same for arrays of NumPy's */
    woi_fasttext fasttext;  /* the same for a model of fastText's */
    woi_gguf gguf;          /* the same for a GGUF file */
    woi_tensor own[2];      /* W and b of a GGUF file, as tensors whose names are ours */
    float *copy_w, *copy_b; /* what had to be converted, or NULL */
    const woi_tensor *weight, *bias, *unused_bias; /* W, b, and what may be b where none was found; or NULL */
    woi_names labels;                              /* the names of the classes; empty where unknown */
    uint64_t checksum;                             /* XXH3 of m, d, W and b as floats; no b counts as zeros */
    woi_shard shard;                               /* which classes these are; the checksum is that of all */
    bool by_range;                                 /* the shard is a range that was taken of a whole layer */
    bool part_w, part_b; /* copy_w, copy_b have the rows of the part alone that is about to be taken */
};

/* Reads a layer out of an open safetensors file, and takes the file over, on failure too. Whatever is verified, its
 * numbers are looked through once: they must be finite, and their checksum ties an index to them. */
wo_status woi_layer_read(woi_st *st, const wo_layer_options *options, wo_layer **layer, wo_error *err);

/* shard.c: gives a part of a layer its own of all names, which are freed. */
wo_status woi_shard_name(wo_layer *layer, woi_names *all, wo_error *err);

/* Fill a zeroed layer from a file of their kind, GGUF's in gguf_layer.c. On failure it is still to be freed. */
wo_status woi_layer_read_npy(wo_layer *layer, const char *path, const wo_layer_options *options, wo_error *err);
wo_status woi_layer_read_fasttext(wo_layer *layer, const char *path, const wo_layer_options *options, wo_error *err);
wo_status woi_layer_read_gguf(wo_layer *layer, const char *path, const wo_layer_options *options, wo_error *err);

/* Looks through the rows and biases that `layer` has: they must be finite. Fills its checksum. */
wo_status woi_layer_scan(wo_layer *layer, const char *weight, const char *bias, wo_status status, wo_error *err);

/* m and d are those of a layer that can be, or else this is the sentence. */
wo_status woi_layer_check_shape(uint64_t m, uint64_t d, wo_status status, wo_error *err);

#endif
