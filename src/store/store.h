/* Reading and writing files. This room trusts nothing that it reads: every count is compared with the bytes that are
 * there before it is used, and a malformed file ends in one sentence with the place and the value.
 *
 *   safetensors   layers, logs, networks and indexes; also other people's models, sharded ones included
 *   npy           NumPy arrays
 *   GGUF          models of llama.cpp's, their matrices and tokens
 *   fastText      supervised models of fastText's, words and labels and two matrices
 *
 * Files are little-endian and may be larger than 4 GiB: so the machines that wideout runs on are little-endian and have
 * 64-bit addresses. */
#ifndef WOI_STORE_STORE_H
#define WOI_STORE_STORE_H

#include "wideout.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "wideout maps little-endian files as they are: big-endian machines are not supported"
#endif
#if defined(__SIZEOF_POINTER__) && __SIZEOF_POINTER__ < 8
#error "wideout maps whole files, which may be larger than 4 GiB: machines with 32-bit addresses are not supported"
#endif

/* ---- Element types ----------------------------------------------------------------------------------------- */

/* Those of safetensors. All can be listed; F64, F32, F16, BF16 convert to float, I64, I32, I8, U8 to int64. */
typedef enum woi_dtype {
    WOI_F64,
    WOI_F32,
    WOI_F16,
    WOI_BF16,
    WOI_I64,
    WOI_I32,
    WOI_I16,
    WOI_I8,
    WOI_U64,
    WOI_U32,
    WOI_U16,
    WOI_U8,
    WOI_BOOL,
    WOI_F8_E5M2,
    WOI_F8_E4M3,
    WOI_N_DTYPES
} woi_dtype;

const char *woi_dtype_name(woi_dtype dtype); /* "F32" */
size_t woi_dtype_bytes(woi_dtype dtype);     /* of one element */

/* Converts n elements at `from` (any alignment). WO_ERR_UNSUPPORTED for a type that does not convert. */
wo_status woi_convert_f32(woi_dtype dtype, const void *from, size_t n, float *to, wo_error *err);
wo_status woi_convert_i64(woi_dtype dtype, const void *from, size_t n, int64_t *to, wo_error *err);

float woi_f16_to_f32(uint16_t half);
uint16_t woi_f32_to_bf16(float value); /* rounds to nearest even; NaN stays NaN */
bool woi_fits_bf16(float value);       /* false for a finite value that rounding would make infinite */

/* ---- Files in and out -------------------------------------------------------------------------------------- */

typedef enum woi_file_kind {
    WOI_FILE_SAFETENSORS,
    WOI_FILE_SHARD_INDEX, /* the JSON that lists the shards of a safetensors model */
    WOI_FILE_NPY,
    WOI_FILE_FASTTEXT,
    WOI_FILE_GGUF,
    WOI_FILE_JOURNAL, /* a log that grows: journal.h */
    WOI_FILE_XC,      /* text */
    WOI_FILE_GZIP,    /* compressed: of what, only its reader can tell. We read text that way, and nothing else */
} woi_file_kind;

/* Recognises a file by its first bytes, never by its name. Fails for what wideout does not read, saying what it is
 * where that is known (a zip archive, a pickle). */
wo_status woi_file_recognise(const char *path, woi_file_kind *kind, wo_error *err);
/* The same of what begins so: n bytes, WOI_HEAD_BYTES of them at most. */
enum { WOI_HEAD_BYTES = 16 };
wo_status woi_head_recognise(const void *head, size_t n, woi_file_kind *kind, wo_error *err);
/* Fails, saying so, where a file that begins like this is compressed with gzip and its reader maps what it reads. */
wo_status woi_refuse_gzip(const void *head, size_t bytes, wo_error *err);

/* A file that appears under its name only when it is complete: written without a name in the same folder, then fsync, a
 * temporary name and rename. Freed before commit, it leaves nothing behind and the old file as it was. */
typedef struct woi_outfile woi_outfile;
wo_status woi_outfile_create(const char *path, woi_outfile **out, wo_error *err);
wo_status woi_outfile_write(woi_outfile *out, const void *data, size_t bytes, wo_error *err);
/* Overwrites bytes that were written before. */
wo_status woi_outfile_patch(woi_outfile *out, uint64_t offset, const void *data, size_t bytes, wo_error *err);
/* Reads bytes that were written before: what is never committed is a place to keep things meanwhile. */
wo_status woi_outfile_read(woi_outfile *out, uint64_t offset, void *data, size_t bytes, wo_error *err);
/* Maps what was written, before it has its name: for woi_unmap, store/map.h. */
wo_status woi_outfile_map(woi_outfile *out, const void **data, size_t *bytes, wo_error *err);
wo_status woi_outfile_commit(woi_outfile *out, wo_error *err);
/* The parts of commit: everything is on the disk; it has the temporary name. Several files that belong together are all
 * synced, which may take long, then all named, and then committed: a full disk spares the old ones, and a process that
 * ends while it syncs leaves no name behind. */
wo_status woi_outfile_sync(woi_outfile *out, wo_error *err);
wo_status woi_outfile_name(woi_outfile *out, wo_error *err);
void woi_outfile_free(woi_outfile *out);
/* Before work for n outputs: their paths name n different files, and `at_once` of them can be open at once; else the
 * failure names `option`, which asks for so many. */
wo_status woi_outfiles_check(const char *const *paths, size_t n, size_t at_once, const char *option, wo_error *err);
/* From the first temporary name to the last rename signals that would end the program wait, so that of files that
 * appear together there are all or none. Those of the calling thread, until they are let go; one file's commit has its
 * own. */
void woi_outfiles_hold_signals(sigset_t *before);
void woi_outfiles_let_signals(const sigset_t *before);

/* ---- safetensors ------------------------------------------------------------------------------------------- */

#define WOI_MAX_DIMS 8

typedef struct woi_tensor {
    const char *name;
    woi_dtype dtype;
    int n_dims;
    uint64_t shape[WOI_MAX_DIMS];
    uint64_t n;       /* elements */
    const void *data; /* in the mapped file; aligned to 64 bytes in our own files, perhaps not at all in others */
    size_t bytes;
    uint64_t offset; /* of data in its file */
    size_t shard;    /* which file: 0 for a single one */
} woi_tensor;

/* A mapped model: one file, or all the shards that an index JSON names. Tensors in the order of their data. */
typedef struct woi_st woi_st;
wo_status woi_st_open(const char *path, woi_st **st, wo_error *err);
/* The same of a file in the caller's memory, which begins at a multiple of 8 bytes and stays until woi_st_free. */
wo_status woi_st_open_memory(const void *data, size_t bytes, woi_st **st, wo_error *err);
void woi_st_free(woi_st *st);

size_t woi_st_n_tensors(const woi_st *st);
const woi_tensor *woi_st_tensor(const woi_st *st, size_t i);
const woi_tensor *woi_st_find(const woi_st *st, const char *name); /* NULL where there is none */
size_t woi_st_n_shards(const woi_st *st);
const char *woi_st_shard_name(const woi_st *st, size_t shard); /* without its folder */

/* __metadata__ of the first file; sharded models have none of their own. */
const char *woi_st_meta(const woi_st *st, const char *key); /* NULL where there is none */
/* One entry after the other, in the file's order: *cursor starts as NULL; false after the last. */
bool woi_st_meta_next(const woi_st *st, void **cursor, const char **key, const char **value);

/* "layer", "log", "network", "index", "tokens" for our own files; NULL for other people's. */
const char *woi_st_kind(const woi_st *st);

/* The version that wrote a file of ours; "?" where it does not say. */
const char *woi_st_version(const woi_st *st);

/* Compares tensors of one of our own files with their checksums, all or one. Other people's files have none: WO_OK at
 * once. */
wo_status woi_st_verify(const woi_st *st, const wo_progress *progress, wo_error *err);
wo_status woi_st_verify_tensor(const woi_st *st, const woi_tensor *tensor, wo_error *err);
/* The same for a hash (XXH3, 64 bits) that was taken of the tensor's bytes on the way. */
wo_status woi_st_verify_hash(const woi_st *st, const woi_tensor *tensor, uint64_t hash, wo_error *err);

/* Writes one of our own files. Declare all tensors, then append their data in the same order, in pieces of any size;
 * the checksums are put into the header at the end. The same calls give the same bytes. */
typedef struct woi_st_writer woi_st_writer;
wo_status woi_st_create(const char *path, const char *kind, woi_st_writer **writer, wo_error *err);
wo_status woi_st_set_meta(woi_st_writer *writer, const char *key, const char *value, wo_error *err);
wo_status woi_st_declare(woi_st_writer *writer, const char *name, woi_dtype dtype, int n_dims, const uint64_t *shape,
                         wo_error *err);
wo_status woi_st_append(woi_st_writer *writer, const void *data, size_t bytes, wo_error *err);
/* Where sizes are not known before: forgets what is declared, but keeps the room that its header takes, and `spare`
 * bytes. From then on a tensor is declared when those before it are complete, and woi_st_grow adds rows to the first
 * dimension of the last one. */
wo_status woi_st_stream(woi_st_writer *writer, size_t spare, wo_error *err);
wo_status woi_st_grow(woi_st_writer *writer, uint64_t rows, wo_error *err);
wo_status woi_st_sync(woi_st_writer *writer, wo_error *err); /* complete, and on the disk */
/* Synced, and mapped: to look at it before it has a name. For woi_unmap, store/map.h. */
wo_status woi_st_read_back(woi_st_writer *writer, const void **data, size_t *bytes, wo_error *err);
wo_status woi_st_name(woi_st_writer *writer, wo_error *err);   /* and under its temporary name */
wo_status woi_st_finish(woi_st_writer *writer, wo_error *err); /* all of that, and committed; then free it */
void woi_st_writer_free(woi_st_writer *writer);

/* ---- npy --------------------------------------------------------------------------------------------------- */

typedef struct woi_npy {
    woi_dtype dtype; /* F16, F32, F64, I32 or I64 */
    bool swapped;    /* the file's bytes are big-endian */
    bool fortran;    /* first index fastest */
    int n_dims;
    uint64_t shape[WOI_MAX_DIMS];
    uint64_t n; /* elements */
    int version;
    const void *data; /* in the mapped file, as stored */
    const void *map;
    size_t map_bytes;
} woi_npy;

wo_status woi_npy_open(const char *path, woi_npy *npy, wo_error *err);
/* The same of a file in the caller's memory, which stays until it is closed. */
wo_status woi_npy_open_memory(const void *data, size_t bytes, woi_npy *npy, wo_error *err);
void woi_npy_close(woi_npy *npy); /* a zeroed or closed one is fine */

/* All elements in C order and native byte order. Floats from F16, F32, F64; integers from I32, I64. */
wo_status woi_npy_read_f32(const woi_npy *npy, float *to, wo_error *err);
wo_status woi_npy_read_i64(const woi_npy *npy, int64_t *to, wo_error *err);

/* ---- fastText ---------------------------------------------------------------------------------------------- */

#define WOI_FASTTEXT_MAGIC 793712314

/* fastText's numbers for those that end in a layer. What is learned differs, what is computed does not, but for what
 * fastText makes of a score s: softmax, or for the others 1 / (1 + exp(-s)). */
/* Words or letters of an n-gram. fastText sets no limit; its own search for options ends at 5 words and 6 letters, and
 * each more is another row for every word or letter of a text. */
enum { WOI_FASTTEXT_MOST_GRAM = 16 };

typedef enum woi_fasttext_loss {
    WOI_FASTTEXT_NS = 2,
    WOI_FASTTEXT_SOFTMAX = 3,
    WOI_FASTTEXT_OVA = 4
} woi_fasttext_loss;

const char *woi_fasttext_loss_name(woi_fasttext_loss loss); /* "softmax" */

/* A mapped model. Pointers are into the file, and of any alignment. */
typedef struct woi_fasttext {
    woi_fasttext_loss loss;
    size_t d;
    int32_t n_words, n_labels;
    int32_t word_ngrams, minn, maxn; /* words of an n-gram at most; letters of one at least and at most (0: none) */
    int32_t bucket;                  /* rows that n-grams share; 0 where there are none */
    woi_tensor input, output;        /* (n_words + bucket or more, d), (n_labels, d) */
    const char *words, *labels;      /* the first entry of each, for woi_fasttext_name */
    const void *map;
    size_t map_bytes;
} woi_fasttext;

/* WO_ERR_UNSUPPORTED for models that have no such layer: word vectors, hierarchical softmax, quantised ones. Whether
 * the numbers are finite is not looked at. Names of labels are lines of UTF-8, words are any bytes. */
wo_status woi_fasttext_open(const char *path, woi_fasttext *model, wo_error *err);
void woi_fasttext_close(woi_fasttext *model); /* a zeroed or closed one is fine */

/* The name at *entry, terminated, and its bytes; *entry then is the next one. There are as many as the counts say. */
const char *woi_fasttext_name(const char **entry, size_t *bytes);

/* ---- GGUF -------------------------------------------------------------------------------------------------- */

#define WOI_GGUF_MAX_DIMS 4

typedef struct woi_gguf_tensor {
    const char *name; /* not terminated */
    size_t name_bytes;
    uint32_t type; /* ggml's number */
    int n_dims;
    uint64_t shape[WOI_GGUF_MAX_DIMS]; /* as in the file: the numbers of a row first, then the rows */
    uint64_t n;                        /* numbers */
    const void *data;                  /* in the mapped file */
    size_t bytes;                      /* of data; 0 where the type is not read */
    uint64_t offset;                   /* of data in the file */
} woi_gguf_tensor;

/* A mapped model. Texts are into the file. */
typedef struct woi_gguf {
    uint32_t version, alignment;
    uint64_t n_pairs; /* of metadata */
    size_t n_tensors;
    woi_gguf_tensor *tensors; /* in the file's order */
    const char *architecture; /* "llama", not terminated; NULL where it does not say */
    size_t architecture_bytes;
    uint64_t n_tokens;
    const char *tokens; /* the first, for woi_gguf_token; NULL where there are none */
    const void *map;
    size_t map_bytes;
} woi_gguf;

wo_status woi_gguf_open(const char *path, woi_gguf *gguf, wo_error *err);
void woi_gguf_close(woi_gguf *gguf);                                          /* a zeroed or closed one is fine */
const woi_gguf_tensor *woi_gguf_find(const woi_gguf *gguf, const char *name); /* NULL where there is none */

/* The token at *entry, any bytes; *entry then is the next one. */
const char *woi_gguf_token(const char **entry, size_t *bytes);

const char *woi_gguf_type_name(uint32_t type); /* "Q4_K"; "unknown" */
/* All t->n numbers as floats. WO_ERR_UNSUPPORTED for a type that is not read. */
wo_status woi_gguf_read(const woi_gguf_tensor *tensor, float *to, wo_error *err);

#endif
