/* index/keep.c, update/: queries that stay, and classes that come, change and go. */
#include "index_files.h"

#include "index/keep.h"

enum { OLD = 40, NEW = 6, D = 20, N = 300 }; /* classes, those that are added, dimensions, queries */

/* A scene of all classes, and one of the first OLD of them, with the log's labels among these. */
typedef struct before_and_after {
    scene all;
    wo_layer *old, *add;
    wo_log *log;
    int64_t *indptr;
    int32_t *labels;
} before_and_after;

static before_and_after make_both(uint64_t seed, bool bias)
{
    before_and_after b = {.all = make_scene(OLD + NEW, D, N, bias, seed)};
    wo_error err;
    const scene *s = &b.all;
    b.indptr = room(N + 1, sizeof *b.indptr);
    b.labels = room((size_t)s->indptr[N], sizeof *b.labels);
    for (size_t i = 0; i < N; i++) {
        b.indptr[i + 1] = b.indptr[i];
        for (int64_t at = s->indptr[i]; at < s->indptr[i + 1]; at++)
            if (s->labels[at] < OLD) b.labels[b.indptr[i + 1]++] = s->labels[at];
    }
    assert_int_equal(wo_layer_wrap(s->w, s->b, OLD, D, &b.old, &err), WO_OK);
    assert_int_equal(wo_layer_wrap(s->w + OLD * D, s->b ? s->b + OLD : NULL, NEW, D, &b.add, &err), WO_OK);
    assert_int_equal(wo_log_wrap(s->q, N, D, b.indptr, b.labels, &b.log, &err), WO_OK);
    return b;
}

static void free_both(before_and_after *b)
{
    wo_layer_free(b->old);
    wo_layer_free(b->add);
    wo_log_free(b->log);
    free(b->indptr);
    free(b->labels);
    free_scene(&b->all);
}

static wo_index *build_from(const wo_layer *layer, const wo_log *log, const wo_build_options *o)
{
    wo_index *index = NULL;
    wo_error err;
    if (wo_index_build(layer, log, o, &index, &err)) fail_msg("%s", err.text);
    return index;
}

static wo_index *update(const wo_index *index, wo_update_options o)
{
    wo_index *updated = NULL;
    wo_error err;
    o.struct_size = sizeof o;
    if (wo_index_update(index, &o, &updated, &err)) fail_msg("%s", err.text);
    return updated;
}

static bool holds(const woi_cells *cells, uint32_t c, int32_t id)
{
    for (uint32_t at = cells->offsets[c]; at < cells->offsets[c + 1]; at++)
        if (cells->ids[at] == id) return true;
    return false;
}

/* Evidence in its variants, popular, and every precision of rows. */
enum { N_KINDS = 10 };
static wo_build_options options_of(int kind)
{
    wo_build_options o = small_options(kind == 0  ? WO_METHOD_POPULAR
                                       : kind < 3 ? WO_METHOD_EVIDENCE
                                                  : EVIDENCE_BY_TREE);
    o.source_k = 3;
    o.lambda = 0.3;
    if (kind == 2 || kind >= 5) o.prior = 0.5;
    if (kind >= 4) o.spread = 3;
    if (kind == 6) o.weights = WO_WEIGHTS_BF16;
    if (kind == 7) o.weights = WO_WEIGHTS_INT8;
    if (kind == 8) o.partition = 1;
    if (kind == 9) {
        o.fallback = 30;
        o.fallback_by = WO_FALLBACK_SCREEN;
    }
    return o;
}

/* ---- Keeping ----------------------------------------------------------------------------------------------- */

static void kept_queries_are_logged_ones_with_their_bars(void **state)
{
    (void)state;
    scene s = make_scene(OLD, D, N, true, 3);
    for (int kind = 0; kind < N_KINDS; kind++) {
        wo_build_options o = options_of(kind);
        static const uint32_t numbers[] = {0, 1, 50, N, 8192};
        for (size_t turn = 0; turn < 5; turn++) {
            o.keep = numbers[turn];
            wo_index *index = build(&s, &o);
            const woi_keep *kept = &index->kept;
            wo_index_info info = {.struct_size = sizeof info};
            assert_int_equal(kept->n, o.keep < N ? o.keep : N);
            assert_int_equal(wo_index_describe(index, &info), WO_OK);
            assert_int_equal(info.n_kept, kept->n);
            size_t at = 0;
            for (size_t i = 0; i < kept->n; i++) {
                float q[D];
                int32_t ids[3];
                double scores[3];
                woi_keep_read(kept, D, NULL, i, 1, q);
                while (at < N && memcmp(q, s.q + at * D, sizeof q) != 0) at++; /* whole numbers: bf16 has them */
                assert_true(at < N);
                brute_force(&s, q, &(rules){0}, 3, ids, scores);
                assert_true((double)kept->bars[i] == scores[2]);
            }
            wo_index_free(index);
        }
        /* Another seed draws others. */
        o.keep = 50;
        wo_index *one = build(&s, &o);
        o.seed++;
        wo_index *other = build(&s, &o);
        assert_true(memcmp(one->kept.queries, other->kept.queries, 50 * D * sizeof(uint16_t)) != 0);
        wo_index_free(one);
        wo_index_free(other);
    }
    free_scene(&s);
}

/* Fewer classes than are asked for, queries that bf16 has not, and logits that overflow. */
static void odd_queries_are_kept_or_left_out(void **state)
{
    (void)state;
    scene s = make_scene(2, D, 30, false, 4);
    wo_build_options o = options_of(1);
    wo_index *index = build(&s, &o);
    assert_int_equal(index->kept.n, 30);
    for (size_t i = 0; i < 30; i++) assert_true(index->kept.bars[i] == -INFINITY); /* there is no third */
    save(index, scratch("few"));
    wo_index *again = open_index(scratch("few"), NULL);
    assert_int_equal(again->kept.n, 30);
    wo_index_free(again);
    wo_index_free(index);
    o.source_k = 1;
    for (size_t j = 0; j < D; j++) s.q[j] = 3.4e38F;                               /* no bf16 */
    for (size_t j = 0; j < D; j++) s.q[5 * D + j] = (s.w[j] < 0 ? -1 : 1) * 1e38F; /* infinite, with three or more */
    index = build(&s, &o);
    assert_int_equal(index->kept.n, 28);
    wo_index_free(index);
    free_scene(&s);
}

/* ---- Adding and replacing ---------------------------------------------------------------------------------- */

static void rows_without_queries_make_what_is_built_with_them(void **state)
{
    (void)state;
    static const wo_method all[] = {WO_METHOD_FULL, WO_METHOD_SCREEN, WO_METHOD_SLIDE};
    for (int turn = 0; turn < 24; turn++) {
        before_and_after b = make_both(20 + (uint64_t)turn, turn / 3 % 2);
        wo_build_options o = small_options(all[turn % 3]);
        o.weights = turn / 6 % 2 ? WO_WEIGHTS_NONE : WO_WEIGHTS_F32;
        if (o.method == WO_METHOD_SLIDE && turn >= 12) o.weights = turn < 18 ? WO_WEIGHTS_BF16 : WO_WEIGHTS_INT8;
        const bool named = turn / 12;
        if (named) {
            const char *names[OLD + NEW];
            char text[OLD + NEW][16];
            wo_error err;
            for (int i = 0; i < OLD + NEW; i++) {
                snprintf(text[i], sizeof text[i], "class %d", i % 30);
                names[i] = text[i];
            }
            assert_int_equal(wo_layer_set_names(b.all.layer, names, OLD + NEW, &err), WO_OK);
            assert_int_equal(wo_layer_set_names(b.old, names, OLD, &err), WO_OK);
            assert_int_equal(wo_layer_set_names(b.add, names + OLD, NEW, &err), WO_OK);
        }
        wo_index *with = build_from(b.all.layer, NULL, &o), *less = build_from(b.old, NULL, &o);
        wo_index *more = update(less, (wo_update_options){.add = b.add, .threads = 1 + turn % 2});
        wo_index_free(less);
        save(with, scratch("with"));
        save(more, scratch("more"));
        assert_same_file(scratch("with"), scratch("more"));
        assert_same_answers(&b.all, with, more);
        wo_index_free(with);
        wo_index_free(more);
        free_both(&b);
    }
}

/* Rows without biases: what is replaced keeps its own, what is added has 0. */
static void rows_may_come_without_biases(void **state)
{
    (void)state;
    before_and_after b = make_both(23, true);
    const int32_t ids[] = {3, 4};
    wo_layer *rows = NULL, *added = NULL, *expected = NULL;
    wo_error err;
    float *bias = room(OLD + NEW, sizeof *bias);
    memcpy(bias, b.all.b, OLD * sizeof *bias);
    assert_int_equal(wo_layer_wrap(b.all.w + 3 * D, NULL, 2, D, &rows, &err), WO_OK);
    assert_int_equal(wo_layer_wrap(b.all.w + OLD * D, NULL, NEW, D, &added, &err), WO_OK);
    assert_int_equal(wo_layer_wrap(b.all.w, bias, OLD + NEW, D, &expected, &err), WO_OK);
    for (int kind = 3; kind < N_KINDS; kind++) {
        const wo_build_options o = options_of(kind);
        wo_index *index = build_from(b.old, b.log, &o);
        wo_index *same = update(index, (wo_update_options){.replace = rows, .replace_ids = ids});
        assert_true(same->layer_checksum == index->layer_checksum);
        wo_index *more = update(index, (wo_update_options){.replace = rows, .replace_ids = ids, .add = added});
        assert_true(more->layer_checksum == expected->checksum);
        wo_index_free(index);
        wo_index_free(same);
        wo_index_free(more);
    }
    wo_layer_free(rows);
    wo_layer_free(added);
    wo_layer_free(expected);
    free(bias);
    free_both(&b);
}

/* The definition, taken literally. `fresh` (m): a row that came or changed. */
static void assert_filed(const scene *s, const wo_index *old, const wo_index *new, const bool *fresh)
{
    const size_t m = new->rows.m, k = new->options.source_k, n = new->kept.n;
    woi_keep_cells of = {0};
    wo_error err;
    bool *serves = room(new->cells.n *m, 1), *anywhere = room(m, 1);
    assert_int_equal(woi_keep_route(new, 1, &of, &err), WO_OK);
    asker *searcher = create(new, NULL);
    for (size_t i = 0; i < n; i++) {
        float q[D];
        int32_t ids[8], candidates[OLD + NEW];
        double scores[8];
        size_t found;
        bool *allowed = room(m, 1);
        for (size_t j = 0; j < m; j++) allowed[j] = !woi_is_removed(new, (int32_t)j);
        woi_keep_read(&new->kept, D, NULL, i, 1, q);
        brute_force(s, q, &(rules){.allowed = allowed}, k, ids, scores);
        assert_true((double)new->kept.bars[i] == scores[k - 1]);
        const wo_search_call call = {.struct_size = sizeof call, .queries = q, .n = 1, .k = 1};
        assert_int_equal(wo_search_candidates(searcher->searcher, &call, candidates, OLD + NEW, &found, &err), WO_OK);
        for (size_t j = 0; j < k && ids[j] >= 0; j++) {
            if (!fresh[ids[j]]) continue;
            bool held = false;
            for (size_t c = 0; c < found; c++) held |= candidates[c] == ids[j];
            assert_true(held);
            anywhere[ids[j]] = true;
            for (uint32_t r = 0; r < of.each; r++)
                if (of.of[i * of.each + r] != UINT32_MAX) serves[of.of[i * of.each + r] * m + (size_t)ids[j]] = true;
        }
        free(allowed);
    }
    free_asker(searcher);
    for (size_t j = 0; j < m; j++) {
        size_t places = 0;
        for (uint32_t c = 0; c < new->cells.n; c++) {
            const bool held = holds(&new->cells, c, (int32_t)j);
            places += held;
            if (woi_is_removed(new, (int32_t)j))
                assert_false(held);
            else if (!fresh[j])
                assert_int_equal(held, holds(&old->cells, c, (int32_t)j));
            else if (anywhere[j] || j < OLD)
                assert_int_equal(held, serves[c * m + j]);
        }
        if (fresh[j] && j >= OLD) assert_true(places > 0 && places <= N * of.each); /* no new class is lost */
    }
    woi_free(of.of);
    free(serves);
    free(anywhere);
}

static void rows_go_where_they_serve(void **state)
{
    (void)state;
    for (int turn = 0; turn < 3 * N_KINDS; turn++) {
        before_and_after b = make_both(60 + (uint64_t)turn, turn / N_KINDS != 1);
        wo_build_options o = options_of(turn % N_KINDS);
        if (turn / N_KINDS == 2) o.keep = 40;
        bool fresh[OLD + NEW] = {false};
        /* Three rows change: two become others' likes, one becomes nothing. */
        static const int32_t ids[] = {7, 31, 2};
        float rows[3 * D], biases[3];
        scene after = b.all;
        wo_layer *replace = NULL;
        wo_error err;
        float *w = room((OLD + NEW) * D, sizeof *w), *bias = room(OLD + NEW, sizeof *bias);
        memcpy(w, b.all.w, (OLD + NEW) * D * sizeof *w);
        if (b.all.b) memcpy(bias, b.all.b, (OLD + NEW) * sizeof *bias);
        for (size_t i = 0; i < 3; i++) {
            for (size_t j = 0; j < D; j++) rows[i * D + j] = i == 2 ? 0 : b.all.w[(10 + i) * D + j] + (float)(j % 2);
            biases[i] = i == 2 ? -99 : 2;
            memcpy(w + (size_t)ids[i] * D, rows + i * D, D * sizeof *w);
            bias[ids[i]] = biases[i];
            fresh[ids[i]] = true;
        }
        for (size_t j = 0; j < D; j++) w[(OLD + 1) * D + j] = 0; /* and one that comes is of no use to anybody */
        bias[OLD + 1] = -50;
        for (size_t i = OLD; i < OLD + NEW; i++) fresh[i] = true;
        wo_layer *add = NULL;
        assert_int_equal(wo_layer_wrap(rows, biases, 3, D, &replace, &err), WO_OK);
        assert_int_equal(wo_layer_wrap(w + OLD * D, bias + OLD, NEW, D, &add, &err), WO_OK);
        after.w = w;
        after.b = bias;
        const int32_t gone[] = {5, 39, 5};
        wo_index *old = build_from(b.old, b.log, &o);
        const wo_update_options what = {
            .add = add, .replace = replace, .replace_ids = ids, .remove = gone, .n_remove = 3, .threads = 1};
        wo_index *new = update(old, what);
        wo_layer *whole = NULL;
        assert_int_equal(wo_layer_wrap(w, bias, OLD + NEW, D, &whole, &err), WO_OK);
        assert_true(new->layer_checksum == whole->checksum);
        assert_int_equal(new->n_removed, 2);
        assert_filed(&after, old, new, fresh);
        /* Its file is as good, and the same whatever the threads; so is an update of what was opened. */
        save(new, scratch("new"));
        wo_index *again = open_index(scratch("new"), turn % 2 ? whole : NULL);
        save(again, scratch("again"));
        assert_same_file(scratch("new"), scratch("again"));
        assert_same_answers(&after, new, again);
        save(old, scratch("old"));
        wo_index *opened = open_index(scratch("old"), NULL);
        wo_update_options two = what;
        two.threads = 2;
        wo_index *other = update(opened, two);
        wo_index_free(opened);
        save(other, scratch("other"));
        assert_same_file(scratch("new"), scratch("other"));
        wo_index *const made[] = {old, new, again, other};
        for (size_t i = 0; i < 4; i++) wo_index_free(made[i]);
        wo_layer_free(add);
        wo_layer_free(replace);
        wo_layer_free(whole);
        free(w);
        free(bias);
        free_both(&b);
    }
}

/* In steps, or at once: the cells are the same, and so are the bars. */
static void updates_follow_each_other(void **state)
{
    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        before_and_after b = make_both(200 + (uint64_t)kind, true);
        const wo_build_options o = options_of(kind);
        const int32_t gone[] = {1, 12, 13};
        wo_error err;
        wo_layer *parts[2];
        assert_int_equal(wo_layer_wrap(b.all.w + OLD * D, b.all.b + OLD, 2, D, &parts[0], &err), WO_OK);
        assert_int_equal(wo_layer_wrap(b.all.w + (OLD + 2) * D, b.all.b + OLD + 2, NEW - 2, D, &parts[1], &err), WO_OK);
        wo_index *old = build_from(b.old, b.log, &o);
        wo_index *first = update(old, (wo_update_options){.remove = gone, .n_remove = 2});
        wo_index *second = update(first, (wo_update_options){.remove = gone + 2, .n_remove = 1});
        wo_index *third = update(second, (wo_update_options){.add = parts[0]});
        wo_index *last = update(third, (wo_update_options){.add = parts[1]});
        wo_index *once = update(old, (wo_update_options){.add = b.add, .remove = gone, .n_remove = 3});
        assert_int_equal(last->n_removed, 3);
        assert_memory_equal(last->removed, gone, sizeof gone);
        assert_memory_equal(last->kept.bars, once->kept.bars, once->kept.n * sizeof(float));
        assert_true(last->layer_checksum == once->layer_checksum);
        for (uint32_t c = 0; c < once->cells.n; c++)
            for (int32_t id = 0; id < OLD + NEW; id++)
                if (holds(&once->cells, c, id)) assert_true(holds(&last->cells, c, id)); /* earlier bars were lower */
        wo_index *const made[] = {old, first, second, third, last, once};
        for (size_t i = 0; i < 6; i++) wo_index_free(made[i]);
        wo_layer_free(parts[0]);
        wo_layer_free(parts[1]);
        free_both(&b);
    }
}

static void names_come_along(void **state)
{
    (void)state;
    before_and_after b = make_both(9, true);
    const wo_build_options o = options_of(1);
    const char *names[OLD], *new[NEW] = {"a", "b", "c", "d", "e", "f"};
    wo_error err;
    for (int i = 0; i < OLD; i++) names[i] = "old";
    assert_int_equal(wo_layer_set_names(b.old, names, OLD, &err), WO_OK);
    wo_index *old = build_from(b.old, b.log, &o);
    size_t bytes = 0;
    wo_index *plain = update(old, (wo_update_options){.add = b.add});
    assert_memory_equal(wo_index_label(plain, OLD + 2, &bytes), "42", 2);
    assert_int_equal(bytes, 2);
    assert_int_equal(wo_layer_set_names(b.add, new, NEW, &err), WO_OK);
    const int32_t ids[NEW] = {9, 8, 7, 6, 5, 4};
    wo_index *named = update(plain, (wo_update_options){.add = b.add, .replace = b.add, .replace_ids = ids});
    assert_int_equal(wo_index_m(named), OLD + 2 * NEW);
    assert_memory_equal(wo_index_label(named, OLD + NEW, &bytes), "a", 1);
    assert_memory_equal(wo_index_label(named, 4, &bytes), "f", 1);
    assert_memory_equal(wo_index_label(named, 3, &bytes), "old", 3);
    save(named, scratch("named"));
    wo_index_free(open_index(scratch("named"), NULL));
    wo_index_free(named);
    wo_index_free(plain);
    wo_index_free(old);
    free_both(&b);
}

/* ---- Removing ---------------------------------------------------------------------------------------------- */

static void assert_absent(const wo_index *index, const scene *s, const int32_t *gone, size_t n_gone)
{
    enum { K = 10 };
    wo_error err;
    wo_searcher *searcher = NULL;
    const wo_searcher_options so = {.struct_size = sizeof so, .threads = 2, .max_mandatory = 8};
    const int32_t demanded[] = {gone[0], 3, gone[n_gone - 1], 4}, forbidden[] = {gone[0], 20};
    assert_int_equal(wo_searcher_create(index, &so, &searcher, &err), WO_OK);
    int32_t *ids = room(s->n * K, sizeof *ids), listed[OLD];
    float *scores = room(s->n * K, sizeof *scores);
    size_t answered = 0;
    for (int turn = 0; turn < 3 * 3 * 2 * 2 * 2; turn++) {
        const wo_search_call call = {.struct_size = sizeof call,
                                     .queries = s->q,
                                     .n = s->n,
                                     .k = K,
                                     .ids = ids,
                                     .scores = scores,
                                     .by = (wo_by)(turn % 3),
                                     .score = (wo_scores)(turn / 3 % 3),
                                     .exact_fallback = turn / 9 % 2,
                                     .mandatory = turn / 18 % 2 ? demanded : NULL,
                                     .n_mandatory = turn / 18 % 2 ? 4 : 0,
                                     .forbidden = turn / 36 ? forbidden : NULL,
                                     .n_forbidden = turn / 36 ? 2 : 0};
        if (wo_search_run(searcher, &call, &err)) continue; /* no f32 rows, no log Z */
        answered++;
        for (size_t i = 0; i < s->n * K; i++)
            for (size_t j = 0; j < n_gone; j++) assert_int_not_equal(ids[i], gone[j]);
        wo_search_call one = call;
        one.n = 1;
        size_t n = 0;
        if (wo_search_candidates(searcher, &one, listed, OLD, &n, &err)) continue;
        assert_true(n <= OLD - n_gone);
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n_gone; j++) assert_int_not_equal(listed[i], gone[j]);
    }
    assert_true(answered >= 12);
    assert_int_equal(wo_search(searcher, s->q, s->n, K, ids, scores, &err), WO_OK);
    for (size_t i = 0; i < s->n * K; i++)
        for (size_t j = 0; j < n_gone; j++) assert_int_not_equal(ids[i], gone[j]);
    assert_int_equal(wo_score(searcher, s->q, demanded, 2, scores, &err), WO_ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "was removed from the index"));
    wo_searcher_free(searcher);
    free(ids);
    free(scores);
}

static void what_is_removed_is_never_answered(void **state)
{
    (void)state;
    const int32_t gone[] = {39, 0, 7, 8};
    for (int turn = 0; turn < 2 * (N_METHODS + N_KINDS); turn++) {
        const int kind = turn / 2;
        scene s = make_scene(OLD, D, N, true, 300 + (uint64_t)turn);
        wo_build_options o = kind < N_METHODS ? small_options(methods[kind]) : options_of(kind - N_METHODS);
        wo_index *built = build(&s, &o);
        if (turn % 2) built->full = (woi_batches){2, 0}; /* FULL answers batches */
        wo_index *index = update(built, (wo_update_options){.remove = gone, .n_remove = 4});
        assert_true(index->layer_checksum == built->layer_checksum); /* their rows stay */
        assert_absent(index, &s, gone, 4);
        save(index, scratch("less"));
        wo_index *again = open_index(scratch("less"), turn % 2 ? s.layer : NULL);
        assert_absent(again, &s, gone, 4);
        save(again, scratch("again"));
        assert_same_file(scratch("less"), scratch("again"));
        /* FULL answers as if they had never been. */
        bool allowed[OLD];
        for (int j = 0; j < OLD; j++) allowed[j] = j != 39 && j != 0 && j != 7 && j != 8;
        if (again->rows.w) {
            int32_t ids[5];
            float scores[5];
            wo_searcher *searcher = NULL;
            wo_error err;
            assert_int_equal(wo_searcher_create(again, NULL, &searcher, &err), WO_OK);
            for (size_t i = 0; i < 20; i++) {
                const wo_search_call call = {.struct_size = sizeof call,
                                             .queries = s.q + i * D,
                                             .n = 1,
                                             .k = 5,
                                             .ids = ids,
                                             .scores = scores,
                                             .by = WO_BY_FULL,
                                             .no_prior = 1};
                assert_int_equal(wo_search_run(searcher, &call, &err), WO_OK);
                assert_answer(&s, call.queries, &(rules){.allowed = allowed}, 5, ids, scores);
            }
            wo_searcher_free(searcher);
            wo_eval_result r = {.struct_size = sizeof r};
            wo_eval_options eo;
            wo_eval_defaults(&eo, sizeof eo);
            eo.skip_timing = 1;
            eo.no_prior = 1;
            if (wo_evaluate(again, NULL, s.log, &eo, &r, &err)) fail_msg("%s", err.text);
            if (o.method == WO_METHOD_FULL) assert_true(r.agreement[0] == 1 && r.p_at_1 == r.full_p_at_1);
        }
        wo_index_free(again);
        wo_index_free(index);
        wo_index_free(built);
        free_scene(&s);
    }
}

/* ---- What is refused --------------------------------------------------------------------------------------- */

static void refuse_update(const wo_index *index, wo_update_options o, wo_status status, const char *part)
{
    wo_index *updated = (wo_index *)&updated;
    wo_error err = {0};
    o.struct_size = sizeof o;
    const wo_status got = wo_index_update(index, &o, &updated, &err);
    if (got != status || !strstr(err.text, part)) fail_msg("status %d, \"%s\", expected \"%s\"", got, err.text, part);
    assert_null(updated);
}

static int stop(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    (void)ctx;
    (void)stage;
    (void)done;
    (void)total;
    return 1;
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    before_and_after b = make_both(7, true);
    wo_build_options o = options_of(4);
    wo_index *index = build_from(b.old, b.log, &o);
    const int32_t good[] = {1, 2, 3, 4, 5, 6}, twice[] = {1, 2, 3, 3, 5, 6}, beyond[] = {OLD}, below[] = {-1};
    wo_error err;
    wo_layer *narrow = NULL;
    assert_int_equal(wo_layer_wrap(b.all.w, NULL, 2, D - 1, &narrow, &err), WO_OK);
    refuse_update(index, (wo_update_options){.add = narrow}, WO_ERR_ARGUMENT,
                  "have 19 numbers each, those of the index");
    refuse_update(index, (wo_update_options){.replace = narrow, .replace_ids = good}, WO_ERR_ARGUMENT, "19 numbers");
    refuse_update(index, (wo_update_options){.replace = b.add}, WO_ERR_ARGUMENT, "ids of 6 classes are at NULL");
    refuse_update(index, (wo_update_options){.replace = b.add, .replace_ids = twice}, WO_ERR_ARGUMENT,
                  "class 3 is named twice");
    refuse_update(index, (wo_update_options){.remove = beyond, .n_remove = 1}, WO_ERR_ARGUMENT,
                  "class 40 is not one of the 40 classes");
    refuse_update(index, (wo_update_options){.remove = below, .n_remove = 1}, WO_ERR_ARGUMENT, "class -1 is not");
    refuse_update(index, (wo_update_options){.remove = NULL, .n_remove = 1}, WO_ERR_ARGUMENT, "at NULL");
    refuse_update(index, (wo_update_options){.replace = b.add, .replace_ids = good, .remove = good, .n_remove = 1},
                  WO_ERR_ARGUMENT, "class 1 is named twice");
    refuse_update(index, (wo_update_options){.threads = -1}, WO_ERR_ARGUMENT, "threads is -1");
    refuse_update(index, (wo_update_options){.add = b.add, .progress = {stop, NULL}}, WO_ERR_CANCELLED, "");
    wo_index *less = update(index, (wo_update_options){.remove = good, .n_remove = 1});
    refuse_update(less, (wo_update_options){.remove = good, .n_remove = 1}, WO_ERR_ARGUMENT,
                  "class 1 was removed before");
    refuse_update(less, (wo_update_options){.replace = b.add, .replace_ids = good}, WO_ERR_ARGUMENT,
                  "class 1 was removed before");
    wo_index_free(less);
    wo_index_free(index);
    const char *names[NEW] = {"a", "b", "c", "d", "e", "f"};
    assert_int_equal(wo_layer_set_names(b.add, names, NEW, &err), WO_OK);
    o.keep = 0;
    index = build_from(b.old, b.log, &o);
    refuse_update(index, (wo_update_options){.add = b.add}, WO_ERR_ARGUMENT, "have names, but those of the index none");
    refuse_update(index, (wo_update_options){.replace = b.add, .replace_ids = good}, WO_ERR_UNSUPPORTED,
                  "keeps no training queries");
    wo_index_free(update(index, (wo_update_options){.remove = good, .n_remove = 3})); /* that needs none */
    wo_index_free(index);
    wo_layer_free(narrow);
    free_both(&b);
}

/* Files that say of kept queries and removed classes what cannot be. */
static void hostile_files_are_refused(void **state)
{
    (void)state;
    scene s = make_scene(OLD, D, N, true, 5);
    wo_build_options o = options_of(4);
    o.keep = 7;
    wo_index *index = build(&s, &o);
    const int32_t gone[] = {3, 9};
    wo_index *less = update(index, (wo_update_options){.remove = gone, .n_remove = 2});
    save(less, scratch("good"));
    static float bars[8];
    static uint16_t queries[7 * D];
    static const int32_t lists[][2] = {{9, 3}, {3, 3}, {-1, 3}, {3, OLD}, {3, 10}};
    char good[128];
    snprintf(good, sizeof good, "%s", scratch("good"));
    const edit long_bars = {.name = "sample.bars", .dtype = WOI_F32, .n_dims = 1, .shape = {8}, .data = bars},
               few_bars = {.name = "sample.bars", .dtype = WOI_F32, .n_dims = 1, .shape = {6}, .data = bars},
               other_bars = {.name = "sample.bars", .dtype = WOI_F64, .n_dims = 1, .shape = {7}},
               flat = {.name = "sample.queries", .dtype = WOI_BF16, .n_dims = 1, .shape = {7 * D}},
               no_queries = {.name = "sample.queries", .drop = true};
    refuse(rewrite(good, &long_bars), NULL, WO_ERR_FORMAT, "keeps 8 queries, more than its 7");
    refuse(rewrite(good, &few_bars), NULL, WO_ERR_FORMAT, "'sample.queries' is not of the expected shape (6, 20)");
    refuse(rewrite(good, &other_bars), NULL, WO_ERR_FORMAT, "'sample.bars' is of type F64");
    refuse(rewrite(good, &flat), NULL, WO_ERR_FORMAT, "'sample.queries' is not of the expected shape (7, 20)");
    refuse(rewrite(good, &no_queries), NULL, WO_ERR_FORMAT, "the index has no tensor 'sample.queries'");
    const edit with_bars = {.name = "sample.bars", .dtype = WOI_F32, .n_dims = 1, .shape = {7}, .data = bars},
               with_queries = {
                   .name = "sample.queries", .dtype = WOI_BF16, .n_dims = 2, .shape = {7, D}, .data = queries};
    static const float wrong[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++) {
        bars[3] = wrong[i];
        refuse(rewrite(good, &with_bars), NULL, WO_ERR_FORMAT, "'sample.bars' has");
    }
    queries[5] = 0x7f80;
    refuse(rewrite(good, &with_queries), NULL, WO_ERR_FORMAT, "'sample.queries' has a number that is not finite");
    for (size_t i = 0; i < 5; i++) {
        const edit with_list = {.name = "removed.ids", .dtype = WOI_I32, .n_dims = 1, .shape = {2}, .data = lists[i]};
        bool told = false;
        for (uint32_t at = 0; at < less->cells.offsets[less->cells.n]; at++) told |= less->cells.ids[at] == 10;
        if (i == 4) assert_true(told);
        refuse(rewrite(good, &with_list), NULL, WO_ERR_FORMAT,
               i == 4 ? "cells.ids has class 10, which is removed" : "removed.ids has class");
    }
    wo_index_free(index);
    wo_index_free(less);
    free_scene(&s);
}

/* ---- Checking ---------------------------------------------------------------------------------------------- */

static wo_layer_check check_of(const wo_index *index, const wo_layer *layer, int32_t *changed)
{
    wo_layer_check c = {.struct_size = sizeof c, .changed = changed, .changed_room = changed ? OLD : 0};
    wo_error err;
    if (wo_index_check_layer(index, layer, 1, &c, &err)) fail_msg("%s", err.text);
    return c;
}

/* Of an index that has bf16 rows alone, as from a file: what is the same when rounded is the same. */
static void rows_in_bf16_are_compared_as_rounded(void **state)
{
    (void)state;
    before_and_after b = make_both(17, true);
    const wo_build_options o = options_of(6);
    wo_index *built = build_from(b.old, b.log, &o), *index = NULL;
    wo_error err;
    wo_layer *layer = NULL;
    int32_t changed[OLD];
    float *w = room(OLD * D, sizeof *w);
    assert_int_equal(wo_index_save(built, scratch("halves"), &err), WO_OK);
    assert_int_equal(wo_index_open(scratch("halves"), NULL, &index, &err), WO_OK);
    wo_layer_check c = check_of(index, b.old, changed);
    assert_true(c.n_changed == 0 && c.verdict == WO_VERDICT_FINE);
    memcpy(w, b.all.w, OLD * D * sizeof *w);
    for (size_t j = 0; j < D; j++) w[11 * D + j] *= 2;
    assert_int_equal(wo_layer_wrap(w, b.all.b, OLD, D, &layer, &err), WO_OK);
    c = check_of(index, layer, changed);
    assert_true(c.n_changed == 1 && changed[0] == 11);
    wo_layer_free(layer);
    wo_index_free(index);
    wo_index_free(built);
    free(w);
    free_both(&b);
}

static void a_check_counts_what_differs(void **state)
{
    (void)state;
    before_and_after b = make_both(17, true);
    float *w = room(OLD * D, sizeof *w), *bias = room(OLD, sizeof *bias);
    wo_layer *layer = NULL, *narrow = NULL, *few = NULL, *unbiased = NULL;
    wo_error err;
    int32_t changed[OLD];
    for (int kind = 0; kind < N_KINDS; kind++) {
        const wo_build_options o = options_of(kind);
        wo_index *index = build_from(b.old, b.log, &o);
        wo_layer_check c = check_of(index, b.old, NULL);
        assert_true(c.verdict == WO_VERDICT_FINE && c.n_changed == 0 && c.n_added == 0 && c.n_kept == N);
        assert_true(c.held_1 == c.own_held_1 && c.held_5 == c.own_held_5 && c.same_1 == 1 && isnan(c.mean_change));
        assert_true(c.own_held_1 > 0 && c.own_held_1 <= 1);
        c = check_of(index, b.all.layer, NULL);
        assert_true(c.verdict == WO_VERDICT_UPDATE && c.n_changed == 0 && c.n_added == NEW && c.held_1 < c.own_held_1);
        /* One row doubles. */
        memcpy(w, b.all.w, OLD * D * sizeof *w);
        memcpy(bias, b.all.b, OLD * sizeof *bias);
        for (size_t j = 0; j < D; j++) w[11 * D + j] *= 2;
        bias[11] *= 2;
        assert_int_equal(wo_layer_wrap(w, bias, OLD, D, &layer, &err), WO_OK);
        c = check_of(index, layer, changed);
        assert_true(c.n_changed == 1 && changed[0] == 11);
        assert_true(fabs(c.mean_change - 1) < 1e-9 && fabs(c.most_change - 1) < 1e-9);
        /* After the update there is nothing left to do. */
        const int32_t id = 11;
        wo_layer *row = NULL;
        assert_int_equal(wo_layer_wrap(w + 11 * D, bias + 11, 1, D, &row, &err), WO_OK);
        wo_index *updated = update(index, (wo_update_options){.replace = row, .replace_ids = &id});
        c = check_of(updated, layer, NULL);
        assert_true(c.verdict == WO_VERDICT_FINE && c.n_changed == 0);
        wo_layer_free(row);
        wo_layer_free(layer);
        wo_index_free(updated);
        /* All rows turn into those of others: the cells hold the wrong ones. */
        for (size_t i = 0; i < OLD; i++)
            for (size_t j = 0; j < D; j++) w[i * D + j] = b.all.w[(i * 7 + 3) % OLD * D + j];
        assert_int_equal(wo_layer_wrap(w, bias, OLD, D, &layer, &err), WO_OK);
        c = check_of(index, layer, changed);
        assert_true(c.n_changed > OLD / 4 && c.same_1 < 0.9);
        const bool lost = o.prior > 0 || c.held_5 < 0.95 * c.own_held_5;
        assert_int_equal(c.verdict, lost ? WO_VERDICT_REBUILD : WO_VERDICT_UPDATE);
        if (kind == 3) assert_int_equal(c.verdict, WO_VERDICT_REBUILD);
        wo_layer_free(layer);
        wo_index_free(index);
    }
    wo_build_options o = options_of(1);
    o.keep = 0;
    wo_index *index = build_from(b.old, b.log, &o);
    const wo_layer_check c = check_of(index, b.all.layer, NULL);
    assert_true(c.n_kept == 0 && isnan(c.held_1) && isnan(c.same_1) && c.verdict == WO_VERDICT_UPDATE);
    wo_layer_check out = {.struct_size = sizeof out};
    assert_int_equal(wo_layer_wrap(b.all.w, NULL, OLD, D - 1, &narrow, &err), WO_OK);
    assert_int_equal(wo_layer_wrap(b.all.w, NULL, OLD - 1, D, &few, &err), WO_OK);
    assert_int_equal(wo_index_check_layer(index, narrow, 1, &out, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "the layer has 19 dimensions, the index 20");
    assert_int_equal(wo_index_check_layer(index, few, 1, &out, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "the layer has 39 classes, fewer than the 40 of the index");
    assert_int_equal(wo_layer_wrap(b.all.w, NULL, OLD, D, &unbiased, &err), WO_OK);
    assert_int_equal(wo_index_check_layer(index, unbiased, 1, &out, &err), WO_ERR_ARGUMENT);
    assert_string_equal(err.text, "the layer has no bias, the index has: was that left out?");
    out.struct_size = 0;
    assert_int_equal(wo_index_check_layer(index, b.old, 1, &out, &err), WO_ERR_ARGUMENT);
    wo_index_free(index);
    wo_layer_free(narrow);
    wo_layer_free(few);
    wo_layer_free(unbiased);
    free(w);
    free(bias);
    free_both(&b);
}

/* The rows at 0, 13, 26 and 39 alone, and nothing is judged. */
static void a_sample_compares_a_few_rows(void **state)
{
    (void)state;
    before_and_after b = make_both(17, true);
    const wo_build_options o = options_of(6);
    wo_index *index = build_from(b.old, b.log, &o);
    float *w = room(OLD * D, sizeof *w);
    wo_error err;
    for (size_t row = 0; row < OLD; row++) {
        wo_layer *layer = NULL;
        wo_layer_check c = {.struct_size = sizeof c, .sample = 4};
        memcpy(w, b.all.w, OLD * D * sizeof *w);
        w[row * D + 5] += 1;
        assert_int_equal(wo_layer_wrap(w, b.all.b, OLD, D, &layer, &err), WO_OK);
        assert_int_equal(wo_index_check_layer(index, layer, 1, &c, &err), WO_OK);
        assert_true(c.n_changed == (row % 13 == 0) && c.n_kept == 0 && isnan(c.same_1) && c.sample == 4);
        wo_layer_free(layer);
    }
    wo_index_free(index);
    free(w);
    free_both(&b);
}

/* ---- Ids of the rows' own file ----------------------------------------------------------------------------- */

static void write_rows(const char *path, const before_and_after *b, woi_dtype dtype, const void *ids, size_t bytes)
{
    woi_st_writer *writer = NULL;
    wo_error err;
    assert_int_equal(woi_st_create(path, "layer", &writer, &err), WO_OK);
    assert_int_equal(woi_st_declare(writer, "weight", WOI_F32, 2, (const uint64_t[]){2, D}, &err), WO_OK);
    assert_int_equal(woi_st_declare(writer, "ids", dtype, 1, &(uint64_t){2}, &err), WO_OK);
    assert_int_equal(woi_st_append(writer, b->all.w + OLD * D, 2 * D * sizeof(float), &err), WO_OK);
    assert_int_equal(woi_st_append(writer, ids, bytes, &err), WO_OK);
    assert_int_equal(woi_st_finish(writer, &err), WO_OK);
    woi_st_writer_free(writer);
}

/* Rows and ids are of one file, also where another has taken its name after it was opened. */
static void rows_bring_their_ids(void **state)
{
    (void)state;
    before_and_after b = make_both(7, false);
    wo_build_options o = options_of(4);
    wo_index *index = build_from(b.old, b.log, &o);
    const int64_t wide[] = {3, 11}, huge[] = {3, INT64_C(1) << 40};
    const int32_t narrow[] = {3, 11}, other[] = {5, 6};
    wo_layer *rows = NULL;
    wo_error err;
    char path[96];
    snprintf(path, sizeof path, "%s", scratch("rows"));
    for (int i = 0; i < 2; i++) {
        write_rows(path, &b, i ? WOI_I32 : WOI_I64, i ? (const void *)narrow : wide, i ? sizeof narrow : sizeof wide);
        assert_int_equal(wo_layer_open(path, NULL, &rows, &err), WO_OK);
        write_rows(path, &b, WOI_I32, other, sizeof other);
        wo_index *updated = update(index, (wo_update_options){.replace = rows}),
                 *expected = update(index, (wo_update_options){.replace = rows, .replace_ids = narrow});
        assert_true(updated->layer_checksum == expected->layer_checksum);
        assert_true(updated->layer_checksum != index->layer_checksum);
        wo_index_free(updated);
        wo_index_free(expected);
        wo_layer_free(rows);
    }
    write_rows(path, &b, WOI_I64, huge, sizeof huge);
    assert_int_equal(wo_layer_open(path, NULL, &rows, &err), WO_OK);
    refuse_update(index, (wo_update_options){.replace = rows}, WO_ERR_FORMAT, "'ids' has 1099511627776 at place 1");
    wo_layer_free(rows);
    wo_index_free(index);
    free_both(&b);
}

/* ---- Memory ------------------------------------------------------------------------------------------------ */

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    allocations_left = -1;
    allocations_alive = 0;
    before_and_after b = make_both(3, true);
    const char *old_names[OLD];
    wo_error err;
    for (size_t i = 0; i < OLD; i++) old_names[i] = "name";
    assert_int_equal(wo_layer_set_names(b.old, old_names, OLD, &err), WO_OK);
    const int32_t ids[NEW] = {1, 2, 3, 4, 5, 6}, gone[] = {9};
    for (int turn = 0; turn < N_KINDS + 2; turn++) {
        wo_build_options o =
            turn < N_KINDS ? options_of(turn) : small_options(turn == N_KINDS ? WO_METHOD_SLIDE : WO_METHOD_SCREEN);
        o.keep = 20;
        wo_index *index = build_from(b.old, b.log, &o);
        const wo_update_options what = {.struct_size = sizeof what,
                                        .add = b.add,
                                        .replace = b.add,
                                        .replace_ids = ids,
                                        .remove = gone,
                                        .n_remove = 1,
                                        .threads = 1};
        const long alive = allocations_alive;
        long tries = 0;
        for (wo_status status = WO_ERR_MEMORY; status; tries++) {
            wo_index *updated = NULL;
            allocations_left = tries;
            status = wo_index_update(index, &what, &updated, &err);
            allocations_left = -1;
            assert_true(status == WO_OK || (status == WO_ERR_MEMORY && !updated && err.text[0]));
            wo_index_free(updated);
            assert_int_equal(allocations_alive, alive);
        }
        assert_true(tries > 8);
        for (wo_status status = WO_ERR_MEMORY, more = 0; status; more++) {
            wo_layer_check c = {.struct_size = sizeof c};
            allocations_left = (long)more;
            status = wo_index_check_layer(index, b.all.layer, 1, &c, &err);
            allocations_left = -1;
            assert_true(status == WO_OK || status == WO_ERR_MEMORY);
            assert_int_equal(allocations_alive, alive);
        }
        wo_index_free(index);
    }
    free_both(&b);
    assert_int_equal(allocations_alive, 0);
    assert_int_equal(wo_allocator_set(NULL), WO_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_queries_are_logged_ones_with_their_bars),
        cmocka_unit_test(odd_queries_are_kept_or_left_out),
        cmocka_unit_test(rows_without_queries_make_what_is_built_with_them),
        cmocka_unit_test(rows_may_come_without_biases),
        cmocka_unit_test(rows_go_where_they_serve),
        cmocka_unit_test(updates_follow_each_other),
        cmocka_unit_test(names_come_along),
        cmocka_unit_test(what_is_removed_is_never_answered),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(hostile_files_are_refused),
        cmocka_unit_test(rows_in_bf16_are_compared_as_rounded),
        cmocka_unit_test(a_check_counts_what_differs),
        cmocka_unit_test(a_sample_compares_a_few_rows),
        cmocka_unit_test(rows_bring_their_ids),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
