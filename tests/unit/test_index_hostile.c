/* index/open.c: files that are damaged, or written on purpose, are refused. */
#include "index_files.h"

#include "base/mem.h"
#include "index/options.h"

/* ---- Damage ------------------------------------------------------------------------------------------------ */

static void damaged_files_are_refused(void **state)
{
    (void)state;
    scene s = make_scene(4, 2, 12, true, 8);
    wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    o.K = 2;
    o.L = 1;
    name_classes(&s);
    wo_index *index = build(&s, &o);
    save(index, scratch("whole"));
    size_t bytes;
    char *data = slurp(scratch("whole"), &bytes);
    assert_true(bytes < 8192);
    const char *path = scratch("damaged");
    FILE *file = fopen(scratch_write("damaged", data, bytes), "r+b");
    assert_non_null(file);
    setvbuf(file, NULL, _IONBF, 0);
    for (size_t at = 0; at < bytes; at++) {
        wo_index *opened = NULL;
        wo_error err = {0};
        const char flipped = (char)(data[at] ^ 1 << at % 8);
        assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
        assert_int_equal(fwrite(&flipped, 1, 1, file), 1);
        if (wo_index_open(path, NULL, &opened, &err) == WO_OK)
            fail_msg("bit %zu of byte %zu went unnoticed", at % 8, at);
        assert_null(opened);
        assert_true(err.text[0] && err.status);
        assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
        assert_int_equal(fwrite(data + at, 1, 1, file), 1);
    }
    wo_index_free(open_index(path, NULL)); /* all is back */
    for (size_t length = bytes; length-- > 0;) {
        wo_index *opened = NULL;
        wo_error err = {0};
        assert_int_equal(ftruncate(fileno(file), (off_t)length), 0);
        if (wo_index_open(path, NULL, &opened, &err) == WO_OK) fail_msg("%zu of %zu bytes passed", length, bytes);
        assert_null(opened);
        assert_true(err.text[0]);
    }
    fclose(file);
    free(data);
    refuse(scratch("absent"), NULL, WO_ERR_IO, "No such file");
    wo_index_free(index);
    free_scene(&s);
}

/* Files that were written on purpose: every checksum is right. */
static void hostile_files_are_refused(void **state)
{
    (void)state;
    scene s = make_scene(6, 2, 30, true, 9);
    name_classes(&s);
    wo_build_options o = small_options(WO_METHOD_EVIDENCE);
    o.K = 2;
    o.L = 1;
    wo_index *index = build(&s, &o);
    const uint32_t n_ids = index->cells.offsets[4];
    assert_true(n_ids >= 4);
    save(index, scratch("whole"));
    wo_index_free(open_index(rewrite(scratch("whole"), &(edit){.name = "nothing"}), NULL)); /* rewriting is sound */
    int32_t *beyond = room(n_ids, sizeof *beyond), *negative = room(n_ids, sizeof *negative);
    int32_t *twice = room(n_ids, sizeof *twice); /* a search has room for every class once */
    memcpy(beyond, index->cells.ids, n_ids * sizeof *beyond);
    beyond[n_ids - 1] = 6;
    negative[0] = -1;
    const uint32_t falling[] = {0, 3, 2, n_ids, n_ids}, late[] = {1, 1, 2, 3, n_ids}, far[] = {0, 1, 2, 3, n_ids + 1},
                   wild[] = {0, 1U << 31, 2, 3, n_ids};
    const int64_t five[] = {0, 1, 2, 3, 4, 5};
    const struct {
        edit e;
        const char *part;
    } cases[] = {
        {{.name = "cells.ids", .dtype = WOI_I32, .n_dims = 1, .shape = {n_ids}, .data = beyond},
         "cells.ids has class 6 of 6"},
        {{.name = "cells.ids", .dtype = WOI_I32, .n_dims = 1, .shape = {n_ids}, .data = twice},
         "cells.ids has class 0 twice in cell "},
        {{.name = "cells.ids", .dtype = WOI_I32, .n_dims = 1, .shape = {n_ids}, .data = negative},
         "cells.ids has class -1 of 6"},
        {{.name = "cells.ids", .dtype = WOI_I32, .n_dims = 1, .shape = {n_ids - 1}}, "cells.offsets ends at"},
        {{.name = "cells.ids", .dtype = WOI_I32, .n_dims = 2, .shape = {n_ids, 1}}, "cells.ids"},
        {{.name = "cells.ids", .dtype = WOI_I64, .n_dims = 1, .shape = {n_ids}}, "'cells.ids' is of type I64"},
        {{.name = "cells.ids", .drop = true}, "no tensor 'cells.ids'"},
        {{.name = "cells.offsets", .dtype = WOI_U32, .n_dims = 1, .shape = {5}, .data = falling}, "falls"},
        {{.name = "cells.offsets", .dtype = WOI_U32, .n_dims = 1, .shape = {5}, .data = late}, "does not start at 0"},
        {{.name = "cells.offsets", .dtype = WOI_U32, .n_dims = 1, .shape = {5}, .data = far}, "cells.offsets ends at"},
        {{.name = "cells.offsets", .dtype = WOI_U32, .n_dims = 1, .shape = {5}, .data = wild}, "falls"},
        {{.name = "cells.offsets", .dtype = WOI_U32, .n_dims = 1, .shape = {4}}, "expected shape (5)"},
        {{.name = "cells.offsets", .dtype = WOI_I32, .n_dims = 1, .shape = {5}}, "is of type I32, expected U32"},
        {{.name = "cells.offsets", .drop = true}, "no tensor 'cells.offsets'"},
        {{.name = "router.planes", .dtype = WOI_F32, .n_dims = 2, .shape = {16, 2}}, "expected shape (2, 16)"},
        {{.name = "router.planes", .dtype = WOI_F32, .n_dims = 2, .shape = {1, 16}}, "expected shape (2, 16)"},
        {{.name = "router.planes", .dtype = WOI_F32, .n_dims = 1, .shape = {32}}, "expected shape (2, 16)"},
        {{.name = "router.planes", .dtype = WOI_F64, .n_dims = 2, .shape = {2, 16}}, "is of type F64"},
        {{.name = "router.planes", .drop = true}, "no tensor 'router.planes'"},
        {{.name = "router.offsets", .dtype = WOI_F32, .n_dims = 1, .shape = {2}}, "expected shape (16)"},
        {{.name = "router.offsets", .drop = true}, "no tensor 'router.offsets'"},
        {{.name = "weight", .dtype = WOI_F32, .n_dims = 2, .shape = {2, 6}}, "expected shape (6, 2)"},
        {{.name = "weight", .dtype = WOI_BF16, .n_dims = 2, .shape = {6, 2}}, "is of type BF16"},
        {{.name = "weight", .drop = true}, "no tensor 'weight'"},
        {{.name = "bias", .dtype = WOI_F32, .n_dims = 1, .shape = {5}}, "expected shape (6)"},
        {{.name = "bias", .dtype = WOI_F32, .n_dims = 1, .shape = {0}}, "expected shape (6)"},
        {{.name = "names.labels.indptr", .dtype = WOI_I64, .n_dims = 1, .shape = {6}, .data = five}, ""},
        {{.name = "names.labels.bytes", .dtype = WOI_U8, .n_dims = 1, .shape = {5}}, ""},
        {{.name = "names.labels.indptr", .drop = true}, ""},
        {{.name = "index.method", .text = "lss"}, "no tensor 'router.bias'"},
        {{.name = "index.method", .text = "slide"}, "no tensor 'router.bias'"},
        {{.name = "index.method", .text = "popular"}, "expected shape (2)"},
        {{.name = "index.method", .text = "tree"}, "'index.method' is \"tree\""},
        {{.name = "index.method", .text = ""}, "'index.method' is \"\""},
        {{.name = "index.method", .drop = true}, "no 'index.method'"},
        {{.name = "index.K", .text = "0"}, "K is 0"},
        {{.name = "index.K", .text = "3"}, "expected shape (9)"},
        {{.name = "index.K", .text = "24"}, "expected shape (2, 32)"},
        {{.name = "index.K", .text = "25"}, "K is 25"},
        {{.name = "index.K", .text = "4294967295"}, "K is 4294967295"},
        {{.name = "index.K", .text = "4294967296"}, "'index.K' is \"4294967296\""},
        {{.name = "index.K", .text = "-2"}, "'index.K' is \"-2\""},
        {{.name = "index.K", .text = "2 "}, "'index.K' is \"2 \""},
        {{.name = "index.L", .text = "0"}, "L is 0"},
        {{.name = "index.L", .text = "256"}, "expected shape (2, 512)"},
        {{.name = "index.L", .text = "300"}, "L is 300"},
        {{.name = "index.probes", .text = "0"}, "probes is 0"},
        {{.name = "index.probes", .text = "5"}, "probes is 5, more than the 4 cells"},
        {{.name = "index.probes", .text = "1000000"}, "probes is 1000000"},
        {{.name = "index.lambda", .text = "nan"}, "'index.lambda' is \"nan\""},
        {{.name = "index.lambda", .text = "0,1"}, "'index.lambda' is \"0,1\""},
        {{.name = "index.lambda", .text = ""}, "'index.lambda' is \"\""},
        {{.name = "index.t_are_values", .text = "2"}, "'index.t_are_values' is \"2\""},
        {{.name = "index.weights", .text = "int4"}, "'index.weights' is \"int4\""},
        {{.name = "index.weights", .text = "bf16"}, "'weight' is of type F32, expected BF16"},
        {{.name = "index.weights", .text = "int8"}, "no tensor 'weight.int8'"},
        {{.name = "index.weights", .text = ""}, "'index.weights' is \"\""},
        {{.name = "index.seed", .text = "18446744073709551616"}, "'index.seed' is"},
        {{.name = "layer.m", .text = "5"}, ""},
        {{.name = "layer.m", .text = "7"}, "expected shape (7, 2)"},
        {{.name = "layer.m", .text = "0"}, "'layer.m' is \"0\""},
        {{.name = "layer.m", .text = "9999999999"}, "'layer.m' is \"9999999999\""},
        {{.name = "layer.d", .text = "3"}, "expected shape (6, 3)"},
        {{.name = "layer.d", .text = "2147483647"}, "expected shape (6, 2147483647)"},
        {{.name = "layer.d", .drop = true}, "no 'layer.d'"},
        {{.name = "layer.xxh3", .text = "12"}, "'layer.xxh3' is \"12\""},
        {{.name = "layer.xxh3", .text = "-123456789abcdef"}, "'layer.xxh3' is \"-123456789abcdef\""},
        {{.name = "layer.xxh3", .text = "0x23456789abcdef"}, "'layer.xxh3' is \"0x23456789abcdef\""},
        {{.name = "layer.xxh3", .text = "123456789abcdefg"}, "'layer.xxh3' is \"123456789abcdefg\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(rewrite(scratch("whole"), &cases[i].e), NULL, WO_ERR_FORMAT, cases[i].part);
    free(beyond);
    free(negative);
    free(twice);
    wo_index_free(index);
    free_scene(&s);
}

/* Gives every node of the index's tree B places: as before version 0.2, and nothing else changes. */
static void even_out(wo_index *index, uint32_t B)
{
    woi_tree *tree = &index->tree;
    woi_cells *cells = &index->cells;
    const size_t A = tree->A, bytes = 4 * woi_tree_fours(tree), n = A * B;
    assert_true(tree->widest <= B);
    uint8_t *leaves = woi_alloc(n, bytes, NULL);
    float *scales = woi_alloc_zero(n, sizeof *scales, NULL), *offsets = woi_alloc(n, sizeof *offsets, NULL);
    uint32_t *begins = woi_alloc_zero(n + 1, sizeof *begins, NULL), *queries = woi_alloc_zero(n, sizeof *queries, NULL);
    assert_true(leaves && scales && offsets && begins && queries);
    memset(leaves, 128, n * bytes);
    for (size_t a = 0; a < A; a++) {
        const size_t first = tree->starts[a], room = tree->starts[a + 1] - first;
        for (size_t b = 0; b < B; b++) {
            const size_t to = a * B + b, from = first + b;
            offsets[to] = -INFINITY;
            begins[to + 1] = begins[to];
            if (b >= room) continue;
            offsets[to] = tree->leaf_offsets[from];
            scales[to] = tree->leaf_scales[from];
            queries[to] = cells->queries[from];
            begins[to + 1] += cells->offsets[from + 1] - cells->offsets[from];
            for (size_t j = 0; j < bytes; j++)
                leaves[a * B * bytes + (j / 4 * B + b) * 4 + j % 4] =
                    tree->leaves[first * bytes + (j / 4 * room + b) * 4 + j % 4];
        }
    }
    void *const old[] = {tree->leaves,   tree->leaf_scales, tree->leaf_offsets,
                         cells->offsets, cells->queries,    tree->n_leaves};
    for (size_t i = 0; i < sizeof old / sizeof *old; i++) woi_free(old[i]);
    for (size_t a = 0; a <= A; a++) tree->starts[a] = (uint32_t)a * B;
    tree->leaves = leaves;
    tree->leaf_scales = scales;
    tree->leaf_offsets = offsets;
    cells->offsets = begins;
    cells->queries = queries;
    cells->n = n;
    index->options.leaves = B;
    assert_int_equal(woi_tree_count_leaves(tree, NULL), WO_OK);
}

/* What a file says that its reader must know; "" where it says nothing. */
static void assert_needs(const char *path, const char *needs)
{
    wo_error err;
    woi_st *st = NULL;
    assert_int_equal(woi_st_open(path, &st, &err), WO_OK);
    const char *found = woi_st_meta(st, "wideout.needs");
    assert_string_equal(found ? found : "", needs);
    assert_int_equal(woi_st_find(st, "tree.starts") != NULL, strstr(needs, "uneven-tree") != NULL);
    assert_int_equal(woi_st_find(st, "cells.shares") != NULL, strstr(needs, "prior") != NULL);
    woi_st_free(st);
}

/* A tree whose nodes are alike is written as version 0.1 wrote it, so that it can read it. */
static void files_say_what_they_need(void **state)
{
    (void)state;
    scene s = make_scene(6, 20, 30, true, 9);
    wo_build_options o = small_options(EVIDENCE_BY_TREE);
    o.leaves = 2;
    for (int prior = 0; prior < 2; prior++) {
        o.prior = prior;
        o.focus = 2 * prior;
        wo_index *index = build(&s, &o), *even = build(&s, &o);
        even_out(even, 32);
        assert_same_answers(&s, index, even);
        save(index, scratch("uneven"));
        save(even, scratch("even"));
        assert_needs(scratch("uneven"), prior ? "prior,uneven-tree" : "uneven-tree");
        assert_needs(scratch("even"), prior ? "prior" : "");
        wo_index *opened[] = {open_index(scratch("uneven"), NULL), open_index(scratch("even"), NULL)};
        for (int i = 0; i < 2; i++) {
            assert_same_answers(&s, index, opened[i]);
            save(opened[i], scratch("again"));
            assert_same_file(scratch("again"), scratch(i ? "even" : "uneven"));
            wo_index_free(opened[i]);
        }
        wo_index_free(index);
        wo_index_free(even);
    }
    o = small_options(WO_METHOD_EVIDENCE);
    o.prior = 1;
    wo_index *index = build(&s, &o);
    save(index, scratch("hash"));
    assert_needs(scratch("hash"), "prior");
    wo_index_free(index);
    free_scene(&s);
}

/* Where a node begins is told by the file, and a search relies on it. */
static void hostile_starts_are_refused(void **state)
{
    (void)state;
    scene s = make_scene(6, 20, 30, true, 9);
    wo_build_options o = small_options(EVIDENCE_BY_TREE);
    o.leaves = 10;
    wo_index *index = build(&s, &o);
    save(index, scratch("whole"));
    uint32_t starts[17], *good = index->tree.starts;
    size_t node = 1;
    while (!good[node]) node++; /* the first that does not begin at 0 */
    assert_true(node < 16);
    const uint32_t cells = good[16];
    const struct {
        size_t at;
        uint32_t value;
    } changes[] = {{node + 1, good[node] - 16}, {node, good[node] + 1},       {0, 16},
                   {16, good[15] + 65552},      {16, UINT32_MAX / 16 * 16},   {1, UINT32_MAX},
                   {node, good[node] - 8},      {16, good[15] + 0x80000000U}, {node, 70000 / 16 * 16}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char sentence[128];
        memcpy(starts, good, sizeof starts);
        starts[changes[i].at] = changes[i].value;
        snprintf(sentence, sizeof sentence, "tree.starts: node %zu begins at %u, the one before at %u", changes[i].at,
                 changes[i].value, changes[i].at ? starts[changes[i].at - 1] : 0);
        refuse(rewrite(scratch("whole"),
                       &(edit){.name = "tree.starts", .dtype = WOI_U32, .n_dims = 1, .shape = {17}, .data = starts}),
               NULL, WO_ERR_FORMAT, sentence);
    }
    char leaves[64], scales[64], more[64];
    snprintf(leaves, sizeof leaves, "'tree.leaves' is not of the expected shape (%u, 16)", cells + 16);
    snprintf(scales, sizeof scales, "'tree.leaf_scales' is not of the expected shape (%u)", cells);
    snprintf(more, sizeof more, "'cells.offsets' is not of the expected shape (%u)", cells + 1);
    memcpy(starts, good, sizeof starts);
    starts[16] += 16;
    const struct {
        edit e;
        const char *part;
    } cases[] = {
        {{.name = "tree.starts", .dtype = WOI_U32, .n_dims = 1, .shape = {17}, .data = starts}, leaves},
        {{.name = "tree.starts", .dtype = WOI_U32, .n_dims = 1, .shape = {17}}, "expected shape (0, 16)"},
        {{.name = "tree.starts", .dtype = WOI_U32, .n_dims = 1, .shape = {16}}, "expected shape (17)"},
        {{.name = "tree.starts", .dtype = WOI_U32, .n_dims = 2, .shape = {17, 1}}, "expected shape (17)"},
        {{.name = "tree.starts", .dtype = WOI_I32, .n_dims = 1, .shape = {17}}, "'tree.starts' is of type I32"},
        {{.name = "tree.starts", .drop = true}, "the tree has 10 leaves below a node, not a multiple of 16"},
        {{.name = "tree.leaf_scales", .dtype = WOI_F32, .n_dims = 2, .shape = {cells / 16, 16}}, scales},
        {{.name = "tree.leaf_offsets", .dtype = WOI_F32, .n_dims = 1, .shape = {cells - 1}}, "expected shape"},
        {{.name = "cells.offsets", .dtype = WOI_U32, .n_dims = 1, .shape = {cells}}, more},
        {{.name = "index.nodes", .text = "17"}, "'tree.starts' is not of the expected shape (33)"},
        {{.name = "index.leaves", .text = "0"}, "the tree has 16 x 0 centres"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(rewrite(scratch("whole"), &cases[i].e), NULL, WO_ERR_FORMAT, cases[i].part);
    wo_index_free(index);
    free_scene(&s);
}

/* Shares lie beside ids, and are numbers from 0 to 2. */
static void hostile_shares_are_refused(void **state)
{
    (void)state;
    scene s = make_scene(6, 20, 30, true, 9);
    for (int tree = 0; tree < 2; tree++) {
        wo_build_options o = small_options(tree ? EVIDENCE_BY_TREE : WO_METHOD_EVIDENCE);
        o.prior = 1;
        wo_index *index = build(&s, &o);
        save(index, scratch("whole"));
        const uint64_t n = index->cells.offsets[index->cells.n];
        static const uint16_t bad[] = {0x4001, 0x7f80, 0x7fc0, 0x8000, 0xbf80, 0xffff}; /* 2 and more, NaN, below 0 */
        uint16_t *shares = room(n, sizeof *shares);
        const edit whole = {.name = "cells.shares", .dtype = WOI_BF16, .n_dims = 1, .shape = {n}, .data = shares};
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            char sentence[80];
            const size_t at = (n - 1) * i / 5;
            snprintf(sentence, sizeof sentence, "entry %zu of 'cells.shares' is not a number from 0 to 2", at);
            shares[at] = bad[i];
            refuse(rewrite(scratch("whole"), &whole), NULL, WO_ERR_FORMAT, sentence);
            shares[at] = 0x4000;
        }
        wo_index_free(open_index(rewrite(scratch("whole"), &whole), NULL)); /* 2 and 0 are fine */
        free(shares);
        const struct {
            edit e;
            const char *part;
        } cases[] = {
            {{.name = "cells.shares", .drop = true}, "the index has no tensor 'cells.shares'"},
            {{.name = "cells.shares", .dtype = WOI_BF16, .n_dims = 1, .shape = {n - 1}}, "expected shape"},
            {{.name = "cells.shares", .dtype = WOI_BF16, .n_dims = 2, .shape = {n, 1}}, "expected shape"},
            {{.name = "cells.shares", .dtype = WOI_F32, .n_dims = 1, .shape = {n}}, "'cells.shares' is of type F32"},
            {{.name = "index.prior", .text = "2.5"}, "prior is 2.5, expected 0 to 2"},
            {{.name = "index.prior", .text = "-1"}, "prior is -1, expected 0 to 2"},
            {{.name = "index.prior", .text = "nan"}, "'index.prior' is \"nan\""},
            {{.name = "index.prior", .text = "much"}, "'index.prior' is \"much\""},
            {{.name = "index.method", .text = "full"}, "prior is 1, but method full counts no evidence"},
            {{.name = "index.method", .text = "slide"}, "prior is 1, but method slide counts no evidence"},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            refuse(rewrite(scratch("whole"), &cases[i].e), NULL, WO_ERR_FORMAT, cases[i].part);
        wo_index_free(index);
    }
    free_scene(&s);
}

/* The same for a tree, of 16 x 32 centres in 16 of 20 coordinates, all nodes alike. */
static void hostile_trees_are_refused(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(6, 20, 30, true, 9);
    wo_build_options o = small_options(EVIDENCE_BY_TREE);
    o.leaves = 2;
    o.probes = 3;
    o.prior = 1; /* whose weights follow from the numbers too */
    o.focus = 4;
    wo_index *index = build(&s, &o);
    even_out(index, 32);
    save(index, scratch("whole"));
    static const float minus = -0.5F, nan = NAN, endless = INFINITY;
    const struct {
        edit e;
        const char *part;
    } cases[] = {
        {{.name = "tree.basis", .dtype = WOI_U8, .n_dims = 2, .shape = {64, 5}}, "expected shape (5, 64)"},
        {{.name = "tree.basis", .dtype = WOI_I8, .n_dims = 2, .shape = {5, 64}}, "'tree.basis' is of type I8"},
        {{.name = "tree.basis_scales", .dtype = WOI_F32, .n_dims = 1, .shape = {15}}, "expected shape (16)"},
        {{.name = "tree.basis_scales", .drop = true}, "no tensor 'tree.basis_scales'"},
        {{.name = "tree.basis", .drop = true}, "no tensor 'tree.basis'"},
        {{.name = "tree.nodes", .dtype = WOI_U8, .n_dims = 2, .shape = {4, 60}}, "expected shape (4, 64)"},
        {{.name = "tree.nodes", .dtype = WOI_U8, .n_dims = 1, .shape = {256}}, "expected shape (4, 64)"},
        {{.name = "tree.nodes", .dtype = WOI_I8, .n_dims = 2, .shape = {4, 64}}, "'tree.nodes' is of type I8"},
        {{.name = "tree.nodes", .drop = true}, "no tensor 'tree.nodes'"},
        {{.name = "tree.node_offsets", .dtype = WOI_F32, .n_dims = 1, .shape = {15}}, "expected shape (16)"},
        {{.name = "tree.node_offsets", .dtype = WOI_F32, .n_dims = 2, .shape = {16, 1}}, "expected shape (16)"},
        {{.name = "tree.node_offsets", .drop = true}, "no tensor 'tree.node_offsets'"},
        {{.name = "tree.node_scales", .dtype = WOI_F32, .n_dims = 1, .shape = {15}}, "expected shape (16)"},
        {{.name = "tree.node_scales", .drop = true}, "no tensor 'tree.node_scales'"},
        {{.name = "tree.leaves", .dtype = WOI_U8, .n_dims = 2, .shape = {4, 128}}, "expected shape (64, 128)"},
        {{.name = "tree.leaves", .dtype = WOI_U8, .n_dims = 2, .shape = {64, 64}}, "expected shape (64, 128)"},
        {{.name = "tree.leaf_scales", .dtype = WOI_F32, .n_dims = 2, .shape = {32, 16}}, "expected shape (16, 32)"},
        {{.name = "tree.leaf_scales", .drop = true}, "no tensor 'tree.leaf_scales'"},
        {{.name = "tree.leaves", .drop = true}, "no tensor 'tree.leaves'"},
        {{.name = "tree.leaf_offsets", .dtype = WOI_F32, .n_dims = 1, .shape = {512}}, "expected shape (16, 32)"},
        {{.name = "tree.leaf_offsets", .dtype = WOI_F32, .n_dims = 2, .shape = {32, 16}}, "expected shape (16, 32)"},
        {{.name = "tree.leaf_offsets", .drop = true}, "no tensor 'tree.leaf_offsets'"},
        {{.name = "tree.margin", .drop = true}, "no tensor 'tree.margin'"},
        {{.name = "tree.margin", .dtype = WOI_F32, .n_dims = 1, .shape = {2}}, "expected shape (1)"},
        {{.name = "tree.margin", .dtype = WOI_F32, .n_dims = 1, .shape = {1}, .data = &minus}, "tree.margin is -0.5"},
        {{.name = "tree.margin", .dtype = WOI_F32, .n_dims = 1, .shape = {1}, .data = &nan}, "tree.margin is nan"},
        {{.name = "tree.margin", .dtype = WOI_F32, .n_dims = 1, .shape = {1}, .data = &endless}, "tree.margin is inf"},
        {{.name = "cells.offsets", .dtype = WOI_U32, .n_dims = 1, .shape = {512}}, "expected shape (513)"},
        {{.name = "index.router", .text = "hash"}, "no tensor 'router.planes'"},
        {{.name = "index.router", .text = "forest"}, "'index.router' is \"forest\""},
        {{.name = "index.router", .drop = true}, "no tensor 'router.planes'"},
        {{.name = "index.nodes", .text = "0"}, "the tree has 0 x 32 centres in 16 of 20 coordinates"},
        {{.name = "index.nodes", .text = "17"}, "'tree.nodes' is not of the expected shape (4, 128)"},
        {{.name = "index.nodes", .text = "32"}, "'tree.nodes' is not of the expected shape (4, 128)"},
        {{.name = "index.nodes", .text = "1024"}, "'tree.nodes' is not of the expected shape (4, 4096)"},
        {{.name = "index.nodes", .text = "1040"}, "nodes is 1040, expected 0 to 1024"},
        {{.name = "index.nodes", .text = "4294967280"}, "nodes is 4294967280"},
        {{.name = "index.nodes", .text = "-16"}, "'index.nodes' is \"-16\""},
        {{.name = "index.nodes", .drop = true}, "the tree has 0 x 32 centres"},
        {{.name = "index.leaves", .text = "0"}, "the tree has 16 x 0 centres in 16 of 20 coordinates"},
        {{.name = "index.leaves", .text = "33"}, "the tree has 33 leaves below a node, not a multiple of 16"},
        {{.name = "index.leaves", .text = "16"}, "'tree.leaves' is not of the expected shape (64, 64)"},
        {{.name = "index.leaves", .text = "4294967296"}, "'index.leaves' is"},
        {{.name = "index.route_d", .text = "0"}, "centres in 0 of 20 coordinates"},
        {{.name = "index.route_d", .text = "15"}, "centres in 15 of 20 coordinates"},
        {{.name = "index.route_d", .text = "20"}, "'tree.nodes' is not of the expected shape (5, 64)"},
        {{.name = "index.route_d", .text = "32"}, "centres in 32 of 20 coordinates"},
        {{.name = "index.route_d", .text = "4294967280"}, "centres in 4294967280 of 20 coordinates"},
        {{.name = "index.beam", .text = "0"}, "beam is 0, expected 1 to 64"},
        {{.name = "index.beam", .text = "65"}, "beam is 65, expected 1 to 64"},
        {{.name = "index.beam", .text = "4294967295"}, "beam is 4294967295"},
        {{.name = "index.probes", .text = "0"}, "probes is 0, expected 1 to 64"},
        {{.name = "index.probes", .text = "65"}, "probes is 65, expected 1 to 64"},
        {{.name = "layer.d", .text = "16"}, "'weight' is not of the expected shape (6, 16)"},
        {{.name = "layer.d", .text = "21"}, "expected shape (6, 21)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(rewrite(scratch("whole"), &cases[i].e), NULL, WO_ERR_FORMAT, cases[i].part);
    /* Any numbers are searched, and lead to cells that are there. */
    static float odd[256 * 32];
    const edit edits[] = {
        {.name = "tree.basis", .dtype = WOI_U8, .n_dims = 2, .shape = {5, 64}, .data = odd},
        {.name = "tree.basis_scales", .dtype = WOI_F32, .n_dims = 1, .shape = {16}, .data = odd},
        {.name = "tree.nodes", .dtype = WOI_U8, .n_dims = 2, .shape = {4, 64}, .data = odd},
        {.name = "tree.node_scales", .dtype = WOI_F32, .n_dims = 1, .shape = {16}, .data = odd},
        {.name = "tree.leaf_scales", .dtype = WOI_F32, .n_dims = 2, .shape = {16, 32}, .data = odd},
        {.name = "tree.node_offsets", .dtype = WOI_F32, .n_dims = 1, .shape = {16}, .data = odd},
        {.name = "tree.leaves", .dtype = WOI_U8, .n_dims = 2, .shape = {64, 128}, .data = odd},
        {.name = "tree.leaf_offsets", .dtype = WOI_F32, .n_dims = 2, .shape = {16, 32}, .data = odd},
    };
    for (size_t turn = 0; turn < 40; turn++) {
        for (size_t i = 0; i < 256 * 32; i++)
            odd[i] = turn < 16 ? (float[]){NAN, -INFINITY}[turn / 8]
                               : (float[]){NAN, INFINITY, -INFINITY, 3e38F, 1}[woi_rng_below(turn, 1, i, 5)];
        wo_index *opened = open_index(rewrite(scratch("whole"), &edits[turn % 8]), NULL);
        asked so = {0};
        for (int wide = 0; wide < 2; wide++) { /* within the margin, and beyond */
            so.probes = wide ? 4 + (uint32_t)turn : 1;
            asker *searcher = create(opened, &so);
            int32_t ids[30 * 4];
            float scores[30 * 4];
            assert_int_equal(ask(searcher, s.q, 30, 4, (answers){ids, scores, NULL}, &err), WO_OK);
            for (size_t j = 0; j < 30 * 4; j++) assert_true(ids[j] >= -1 && ids[j] < 6);
            free_asker(searcher);
        }
        wo_index_free(opened);
    }
    wo_index_free(index);
    free_scene(&s);
}

static void hostile_small_rows_are_refused(void **state)
{
    (void)state;
    scene s = make_scene(6, 2, 30, true, 9);
    const struct {
        wo_weights weights;
        edit e;
        const char *part;
    } cases[] = {
        {WO_WEIGHTS_BF16, {.name = "weight", .drop = true}, "no tensor 'weight'"},
        {WO_WEIGHTS_BF16, {.name = "weight", .dtype = WOI_BF16, .n_dims = 2, .shape = {2, 6}}, "expected shape (6, 2)"},
        {WO_WEIGHTS_INT8, {.name = "weight", .dtype = WOI_BF16, .n_dims = 2, .shape = {6, 2}}, "expected F32"},
        {WO_WEIGHTS_INT8, {.name = "weight", .drop = true}, "no tensor 'weight'"},
        {WO_WEIGHTS_INT8_BF16, {.name = "weight", .dtype = WOI_F32, .n_dims = 2, .shape = {6, 2}}, "expected BF16"},
        {WO_WEIGHTS_INT8_BF16, {.name = "weight.int8", .drop = true}, "no tensor 'weight.int8'"},
        {WO_WEIGHTS_INT8, {.name = "weight.int8", .dtype = WOI_U8, .n_dims = 2, .shape = {6, 2}}, "expected I8"},
        {WO_WEIGHTS_INT8,
         {.name = "weight.int8", .dtype = WOI_I8, .n_dims = 1, .shape = {12}},
         "expected shape (6, 2)"},
        {WO_WEIGHTS_INT8, {.name = "weight.scales", .drop = true}, "no tensor 'weight.scales'"},
        {WO_WEIGHTS_INT8, {.name = "weight.scales", .dtype = WOI_F32, .n_dims = 1, .shape = {5}}, "expected shape (6)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wo_build_options o = small_options(WO_METHOD_POPULAR);
        o.weights = cases[i].weights;
        wo_index *index = build(&s, &o);
        save(index, scratch("whole"));
        refuse(rewrite(scratch("whole"), &cases[i].e), NULL, WO_ERR_FORMAT, cases[i].part);
        wo_index_free(index);
    }
    free_scene(&s);
}

static void hostile_screens_are_refused(void **state)
{
    (void)state;
    scene s = make_scene(20, 6, 30, true, 9);
    const struct {
        edit e;
        const char *part;
    } cases[] = {
        {{.name = "screen.rows", .drop = true}, "no tensor 'screen.rows'"},
        {{.name = "screen.rows", .dtype = WOI_I8, .n_dims = 2, .shape = {4, 64}}, "expected U8"},
        {{.name = "screen.rows", .dtype = WOI_U8, .n_dims = 2, .shape = {2, 64}}, "expected shape (4, 64)"},
        {{.name = "screen.scales", .drop = true}, "no tensor 'screen.scales'"},
        {{.name = "screen.scales", .dtype = WOI_F32, .n_dims = 1, .shape = {20}}, "expected shape (32)"},
        {{.name = "index.fallback_by", .text = "graph"}, "'index.fallback_by'"},
    };
    for (int method = 0; method < 2; method++) { /* of the method, and of queries that know little */
        wo_build_options o = small_options(method ? EVIDENCE_BY_TREE : WO_METHOD_SCREEN);
        o.fallback = method ? 5 : 0;
        o.fallback_by = method ? WO_FALLBACK_SCREEN : WO_FALLBACK_WIDER;
        wo_index *index = build(&s, &o);
        save(index, scratch("whole"));
        for (size_t i = 0; i < sizeof cases / sizeof *cases - !method; i++)
            refuse(rewrite(scratch("whole"), &cases[i].e), NULL, WO_ERR_FORMAT, cases[i].part);
        wo_index_free(index);
    }
    /* Without a threshold there is nothing to help, and nothing is looked for. */
    wo_build_options o = small_options(EVIDENCE_BY_TREE);
    wo_index *index = build(&s, &o), *opened;
    save(index, scratch("whole"));
    opened = open_index(rewrite(scratch("whole"), &(edit){.name = "index.fallback_by", .text = "screen", .add = true}),
                        NULL);
    assert_int_equal(opened->options.fallback_by, WO_FALLBACK_SCREEN);
    assert_same_answers(&s, index, opened);
    wo_index_free(index);
    wo_index_free(opened);
    free_scene(&s);
}

/* Without rows the shape is the file's word: it must be the given layer's, though the checksum is. */
static void a_layer_of_another_shape_is_refused(void **state)
{
    (void)state;
    scene s = make_scene(6, 2, 30, true, 9);
    wo_build_options o = small_options(WO_METHOD_POPULAR);
    static const wo_weights all[] = {WO_WEIGHTS_NONE, WO_WEIGHTS_F32, WO_WEIGHTS_BF16, WO_WEIGHTS_INT8,
                                     WO_WEIGHTS_INT8_BF16};
    for (size_t i = 0; i < 5; i++) { /* with rows of its own it could hold together, and its layer is another */
        o.weights = all[i];
        wo_index *index = build(&s, &o);
        save(index, scratch("whole"));
        refuse(rewrite(scratch("whole"), &(edit){.name = "layer.m", .text = "1000"}), s.layer, WO_ERR_FORMAT,
               "1000 x 2, but that is 6 x 2");
        refuse(rewrite(scratch("whole"), &(edit){.name = "layer.d", .text = "1"}), s.layer, WO_ERR_FORMAT,
               "6 x 1, but that is 6 x 2");
        wo_index_free(index);
    }
    free_scene(&s);
}

static void other_files_are_no_index(void **state)
{
    (void)state;
    wo_error err;
    woi_st_writer *writer = NULL;
    assert_int_equal(woi_st_create(scratch("log"), "log", &writer, &err), WO_OK);
    assert_int_equal(woi_st_finish(writer, &err), WO_OK);
    woi_st_writer_free(writer);
    refuse(scratch("log"), NULL, WO_ERR_FORMAT, "the file is of kind log, not an index");
    char others[72] = {60};
    memcpy(others + 8, "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 53);
    memset(others + 61, ' ', 7);
    refuse(scratch_write("others", others, 70), NULL, WO_ERR_FORMAT, "is a safetensors file of someone else");
    refuse(scratch_text("text", "hello"), NULL, WO_ERR_FORMAT, "");
    scene s = make_scene(4, 2, 5, true, 1);
    const wo_build_options o = small_options(WO_METHOD_FULL);
    wo_index *index = build(&s, &o);
    assert_int_equal(wo_index_save(index, scratch("no/such/folder"), &err), WO_ERR_IO);
    wo_index_free(index);
    free_scene(&s);
}

/* ---- Memory ------------------------------------------------------------------------------------------------ */

static size_t largest_allocation;

static void *measuring_alloc(void *ctx, size_t bytes, size_t align)
{
    (void)ctx;
    if (bytes > largest_allocation) largest_allocation = bytes;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void measuring_release(void *ctx, void *memory)
{
    (void)ctx;
    free(memory);
}

/* A small file that speaks of 2^31 classes is refused before memory for them is taken. */
static void memory_is_in_proportion_to_the_file(void **state)
{
    (void)state;
    static const wo_allocator measuring = {measuring_alloc, measuring_release, NULL};
    for (size_t turn = 0; turn < 2 * N_METHODS; turn++) {
        scene s = make_scene(40, 5, 60, true, turn);
        wo_build_options o = small_options(methods[turn / 2]);
        if (turn % 2) o.weights = WO_WEIGHTS_NONE;
        wo_index *index = build(&s, &o);
        save(index, scratch("whole"));
        const char *edited = rewrite(scratch("whole"), &(edit){.name = "layer.m", .text = "2147483647"});
        assert_int_equal(wo_allocator_set(&measuring), WO_OK);
        largest_allocation = 0;
        refuse(edited, turn % 2 ? s.layer : NULL, WO_ERR_FORMAT, "");
        assert_int_equal(wo_allocator_set(NULL), WO_OK);
        assert_true(largest_allocation < (size_t)1 << 20);
        wo_index_free(index);
        free_scene(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_in_proportion_to_the_file),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(hostile_files_are_refused),
        cmocka_unit_test(files_say_what_they_need),
        cmocka_unit_test(hostile_starts_are_refused),
        cmocka_unit_test(hostile_shares_are_refused),
        cmocka_unit_test(hostile_trees_are_refused),
        cmocka_unit_test(hostile_small_rows_are_refused),
        cmocka_unit_test(hostile_screens_are_refused),
        cmocka_unit_test(a_layer_of_another_shape_is_refused),
        cmocka_unit_test(other_files_are_no_index),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
