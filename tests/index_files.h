/* What tests of index files share: saving, opening, refusing, and files that are written again with one thing changed.
 */
#ifndef WO_INDEX_FILES_H
#define WO_INDEX_FILES_H

#include "engine.h"

static const int methods[] = {WO_METHOD_FULL,     WO_METHOD_POPULAR, WO_METHOD_SLIDE,
                              WO_METHOD_EVIDENCE, EVIDENCE_BY_TREE,  WO_METHOD_SCREEN};
enum { N_METHODS = sizeof methods / sizeof *methods };

static inline void save(const wo_index *index, const char *path)
{
    wo_error err;
    if (wo_index_save(index, path, &err)) fail_msg("%s", err.text);
}

static inline wo_index *open_index(const char *path, const wo_layer *layer)
{
    wo_index *index = NULL;
    wo_error err;
    const wo_open_options o = {.struct_size = sizeof o, .layer = layer};
    if (wo_index_open(path, &o, &index, &err)) fail_msg("%s", err.text);
    return index;
}

static inline void assert_same_file(const char *a, const char *b)
{
    size_t n, other;
    char *left = slurp(a, &n), *right = slurp(b, &other);
    assert_int_equal(n, other);
    assert_memory_equal(left, right, n);
    free(left);
    free(right);
}

static inline void assert_same_answers(const scene *s, const wo_index *a, const wo_index *b)
{
    wo_error err;
    int32_t *ids[2] = {room(s->n * 3, sizeof(int32_t)), room(s->n * 3, sizeof(int32_t))};
    float *scores[2] = {room(s->n * 3, sizeof(float)), room(s->n * 3, sizeof(float))};
    for (int i = 0; i < 2; i++) {
        asker *searcher = create(i ? b : a, NULL);
        assert_int_equal(ask(searcher, s->q, s->n, 3, (answers){ids[i], scores[i], NULL}, &err), WO_OK);
        free_asker(searcher);
    }
    assert_memory_equal(ids[0], ids[1], s->n * 3 * sizeof(int32_t));
    assert_memory_equal(scores[0], scores[1], s->n * 3 * sizeof(float));
    for (int i = 0; i < 2; i++) {
        free(ids[i]);
        free(scores[i]);
    }
}

static inline void name_classes(scene *s)
{
    wo_error err;
    char name[16];
    for (size_t j = 0; j < s->m; j++) {
        const int bytes = snprintf(name, sizeof name, "class %zu", j * j);
        assert_int_equal(woi_names_append(&s->layer->labels, name, (size_t)bytes, &err), WO_OK);
    }
}

static inline void refuse(const char *path, const wo_layer *layer, wo_status status, const char *part)
{
    wo_index *index = (wo_index *)&index;
    wo_error err = {0};
    const wo_open_options o = {.struct_size = sizeof o, .layer = layer};
    const wo_status got = wo_index_open(path, &o, &index, &err);
    if (got != status || !strstr(err.text, part))
        fail_msg("status %d, \"%s\", expected %d, \"%s\"", got, err.text, status, part);
    assert_null(index);
    assert_int_equal(err.status, status);
    /* Also where an option in the file is wrong: that is the file's fault. */
    assert_int_equal(err.about, strncmp(err.text, "the layer", 9) == 0 ? WO_ABOUT_LAYER : WO_ABOUT_INDEX);
}

/* One thing that a rewritten file has otherwise: a line of metadata, or a tensor. */
typedef struct edit {
    const char *name;
    const char *text; /* metadata: the new value; NULL: see below */
    bool drop;        /* leave it out */
    bool add;         /* a line of metadata that the file does not have */
    woi_dtype dtype;  /* a tensor of this type and shape, its data `data`, or zeros where that is NULL */
    int n_dims;
    uint64_t shape[2];
    const void *data;
} edit;

static const char *rewritten_by; /* NULL: this version */

/* Writes the file `from` again, with correct checksums, and one edit. */
static inline const char *rewrite(const char *from, const edit *e)
{
    wo_error err;
    woi_st *st = NULL;
    woi_st_writer *writer = NULL;
    assert_int_equal(woi_st_open(from, &st, &err), WO_OK);
    const char *to = scratch("edited"), *key, *value;
    assert_int_equal(woi_st_create(to, "index", &writer, &err), WO_OK);
    for (void *cursor = NULL; woi_st_meta_next(st, &cursor, &key, &value);) {
        const bool ours = strncmp(key, "index.", 6) == 0 || strncmp(key, "layer.", 6) == 0;
        const bool edited = strcmp(key, e->name) == 0;
        if (ours && !(edited && e->drop))
            assert_int_equal(woi_st_set_meta(writer, key, edited && e->text ? e->text : value, &err), WO_OK);
    }
    if (e->add) assert_int_equal(woi_st_set_meta(writer, e->name, e->text, &err), WO_OK);
    if (rewritten_by) assert_int_equal(woi_st_set_meta(writer, "wideout.version", rewritten_by, &err), WO_OK);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < woi_st_n_tensors(st); i++) {
            const woi_tensor *t = woi_st_tensor(st, i);
            const bool edited = !e->text && strcmp(t->name, e->name) == 0;
            if (strncmp(t->name, "padding.", 8) == 0 || (edited && e->drop)) continue;
            const woi_dtype dtype = edited ? e->dtype : t->dtype;
            const int n_dims = edited ? e->n_dims : t->n_dims;
            const uint64_t *shape = edited ? e->shape : t->shape;
            size_t bytes = woi_dtype_bytes(dtype);
            for (int k = 0; k < n_dims; k++) bytes *= shape[k];
            void *zeros = room(bytes, 1);
            const void *data = edited ? (e->data ? e->data : zeros) : t->data;
            if (pass)
                assert_int_equal(woi_st_append(writer, data, bytes, &err), WO_OK);
            else
                assert_int_equal(woi_st_declare(writer, t->name, dtype, n_dims, shape, &err), WO_OK);
            free(zeros);
        }
    assert_int_equal(woi_st_finish(writer, &err), WO_OK);
    woi_st_writer_free(writer);
    woi_st_free(st);
    return to;
}

#endif
