/* search/search.c: every answer against trying every class. */
#include "engine.h"

#include <pthread.h>

/* ---- Searching --------------------------------------------------------------------------------------------- */

/* All queries of a scene, at once and one by one, with `allowed` (n, m) or everything. */
static void assert_search(const scene *s, asker *searcher, const bool *allowed, const rules *r, size_t k)
{
    wo_error err;
    int32_t *ids = room(s->n * k, sizeof *ids), *one_ids = room(k, sizeof *one_ids);
    float *scores = room(s->n * k, sizeof *scores), *one_scores = room(k, sizeof *one_scores);
    wo_query_stats *stats = room(s->n, sizeof *stats);
    assert_int_equal(ask_stats(searcher, s->q, s->n, k, (answers){ids, scores, stats}, &err), WO_OK);
    for (size_t i = 0; i < s->n; i++) {
        const rules own = {allowed ? allowed + i * s->m : r->allowed, r->logit_bias, r->softmax, NULL};
        assert_answer(s, s->q + i * s->d, &own, k, ids + i * k, scores + i * k);
        size_t n = 0;
        for (size_t j = 0; j < s->m; j++) n += !own.allowed || own.allowed[j];
        assert_int_equal(stats[i].status, WO_OK);
        assert_int_equal(stats[i].candidates, n);
        assert_int_equal(ask(searcher, s->q + i * s->d, 1, k, (answers){one_ids, one_scores, NULL}, &err), WO_OK);
        assert_memory_equal(one_ids, ids + i * k, k * sizeof *ids);
        if (!r->softmax) assert_memory_equal(one_scores, scores + i * k, k * sizeof *scores);
    }
    free(ids);
    free(one_ids);
    free(scores);
    free(one_scores);
    free(stats);
}

/* Probes that open all 2^K cells of every table: each class lies in one of them. */
static void every_cell_open_is_the_exact_layer(void **state)
{
    (void)state;
    static const uint32_t shapes[][2] = {{1, 1}, {1, 3}, {3, 1}, {3, 4}, {6, 2}};
    static const size_t ks[] = {1, 5, 40, 100};
    for (size_t turn = 0; turn < 10; turn++) {
        const uint32_t K = shapes[turn / 2][0], L = shapes[turn / 2][1];
        scene s = make_scene(turn % 3 ? 60 : 1 + turn, 3 + turn, 70, turn % 2, turn);
        wo_build_options o = small_options(WO_METHOD_SLIDE);
        o.K = K;
        o.L = L;
        o.probes = 1U << K;
        wo_index *index = build(&s, &o);
        asker *searcher = create(index, NULL);
        for (size_t i = 0; i < 4; i++) assert_search(&s, searcher, NULL, &(rules){0}, ks[i]);
        wo_query_stats stats;
        int32_t id;
        float score;
        wo_error err;
        assert_int_equal(ask_stats(searcher, s.q, 1, 1, (answers){&id, &score, &stats}, &err), WO_OK);
        assert_int_equal(stats.cells, L << K);
        free_asker(searcher);
        wo_index_free(index);
        free_scene(&s);
    }
}

/* The candidates of every method are what lies in the cells that the query opens. More than 255 searches, so that the
 * stamps of the union wrap around. */
static void candidates_are_the_union_of_the_cells(void **state)
{
    (void)state;
    wo_error err;
    static const int methods[] = {WO_METHOD_FULL, WO_METHOD_POPULAR, WO_METHOD_SLIDE, WO_METHOD_EVIDENCE,
                                  EVIDENCE_BY_TREE};
    for (uint64_t turn = 0; turn < 20; turn++) {
        const bool tree = methods[turn % 5] == EVIDENCE_BY_TREE;
        scene s = make_scene(50, tree && turn > 10 ? 20 : 6, 120, turn % 2, 20 + turn); /* with a basis, and without */
        wo_build_options o = small_options(methods[turn % 5]);
        o.L = 1 + (uint32_t)(turn % 3);
        o.lambda = 0.3;
        o.beam = 1 + (uint32_t)(turn % 4);
        if (tree) o.probes = 1 + (uint32_t)turn;
        wo_index *index = build(&s, &o);
        asker *searcher = create(index, NULL);
        bool *allowed = room(s.n * s.m, sizeof *allowed);
        int32_t *ids = room(s.m, sizeof *ids);
        size_t told = 0, n = 0;
        for (size_t i = 0; i < s.n; i++) {
            bool *own = allowed + told * s.m, *met = room(s.m, sizeof *met);
            if (naive_candidates(index, s.q + i * s.d, false, own)) {
                memmove(s.q + told * s.d, s.q + i * s.d, s.d * sizeof *s.q); /* those that are told move up */
                assert_int_equal(ask_candidates(searcher, s.q + told * s.d, ids, s.m, &n, &err), WO_OK);
                for (size_t j = 0; j < n; j++) {
                    assert_false(met[ids[j]]);
                    met[ids[j]] = true;
                }
                assert_memory_equal(met, own, s.m * sizeof *met);
                told++;
            }
            free(met);
        }
        assert_true(told > (tree ? 60 : 100)); /* equal leaves are many */
        s.n = told;
        for (size_t k = 1; k < 60; k += 19)
            assert_search(&s, searcher, allowed, &(rules){0}, k); /* 4 x 240 searches and more */
        free_asker(searcher);
        wo_index_free(index);
        free(allowed);
        free(ids);
        free_scene(&s);
    }
}

/* A class that was met long ago is new again, however many searches lie between: its stamp is a byte. */
static void old_stamps_do_not_hide_classes(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(50, 6, 40, true, 31);
    wo_build_options o = small_options(WO_METHOD_SLIDE);
    o.L = 1;
    wo_index *index = build(&s, &o);
    asker *searcher = create(index, NULL);
    /* Two queries that share no class. */
    const float *rare = s.q, *often = NULL;
    int32_t first[50], ids[50];
    size_t n_first, n;
    assert_int_equal(ask_candidates(searcher, rare, first, 50, &n_first, &err), WO_OK);
    assert_true(n_first > 0);
    for (size_t i = 1; !often && i < s.n; i++) {
        assert_int_equal(ask_candidates(searcher, s.q + i * s.d, ids, 50, &n, &err), WO_OK);
        if (n && ids[0] != first[0]) often = s.q + i * s.d;
    }
    assert_non_null(often);
    for (int between = 245; between < 265; between++) {
        for (int i = 0; i < between; i++) assert_int_equal(ask_candidates(searcher, often, ids, 50, &n, &err), WO_OK);
        assert_int_equal(ask_candidates(searcher, rare, ids, 50, &n, &err), WO_OK);
        assert_int_equal(n, n_first);
        assert_memory_equal(ids, first, n * sizeof *ids);
    }
    free_asker(searcher);
    wo_index_free(index);
    free_scene(&s);
}

static void candidates_fit_what_room_there_is(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(30, 4, 50, true, 5);
    static const int methods[] = {WO_METHOD_FULL, WO_METHOD_POPULAR, WO_METHOD_EVIDENCE, EVIDENCE_BY_TREE,
                                  WO_METHOD_SCREEN};
    for (size_t i = 0; i < 5; i++) {
        const wo_build_options o = small_options(methods[i]);
        wo_index *index = build(&s, &o);
        asker *searcher = create(index, NULL);
        int32_t all[30], some[31];
        size_t n, again;
        assert_int_equal(ask_candidates(searcher, s.q, all, 30, &n, &err), WO_OK);
        assert_true(n > 1 && n <= 30);
        for (size_t capacity = 0; capacity < n; capacity++) {
            for (size_t j = 0; j < 31; j++) some[j] = -77;
            assert_int_equal(ask_candidates(searcher, s.q, capacity ? some : NULL, capacity, &again, &err), WO_OK);
            assert_int_equal(again, n);
            assert_memory_equal(some, all, capacity * sizeof *all);
            assert_int_equal(some[capacity], -77);
        }
        float bad[4] = {1, NAN, 1, 1};
        assert_int_equal(ask_candidates(searcher, bad, all, 30, &n, &err), WO_ERR_ARGUMENT);
        assert_int_equal(n, 0);
        free_asker(searcher);
        wo_index_free(index);
    }
    free_scene(&s);
}

/* Forbidden, mandatory and biased classes, in every combination, for every method; exact search too. */
static void masks_and_biases_are_obeyed(void **state)
{
    (void)state;
    wo_error err;
    static const int methods[] = {WO_METHOD_FULL, WO_METHOD_POPULAR, WO_METHOD_SLIDE, WO_METHOD_EVIDENCE,
                                  EVIDENCE_BY_TREE};
    for (uint64_t turn = 0; turn < 80; turn++) {
        scene s = make_scene(40, 5, 60, turn % 3 == 0, 60 + turn);
        const int method = methods[turn % 5];
        wo_build_options o = small_options(method);
        o.K = 2;
        o.probes = 4; /* all cells: no query is close to a plane that matters */
        if (method == EVIDENCE_BY_TREE) o.beam = 16;
        o.lambda = 1;
        wo_index *index = build(&s, &o);
        const bool softmax = turn / 5 % 2;
        int32_t forbidden[12], mandatory[9];
        float bias[40];
        bool never[40] = {false}, always[40] = {false};
        for (size_t i = 0; i < 12; i++) never[forbidden[i] = (int32_t)woi_rng_below(turn, 30, i, 40)] = true;
        for (size_t i = 0; i < 9; i++) always[mandatory[i] = (int32_t)woi_rng_below(turn, 31, i, 40)] = true;
        for (size_t j = 0; j < 40; j++) bias[j] = 0.5F * whole(turn, 32, j, 9);
        const bool with_never = turn / 10 % 2, with_always = turn / 20 % 2, with_bias = turn / 40 % 2;
        asked so = {0};
        so.threads = 1 + (int)(turn % 2);
        so.scores = softmax ? WO_SCORES_SOFTMAX : WO_SCORES_LOGITS;
        if (method == EVIDENCE_BY_TREE) so.probes = 64; /* all leaves: none is without a query, of which there are 60 */
        if (with_never) so.forbidden = forbidden, so.n_forbidden = 12;
        if (with_always) so.mandatory = mandatory, so.n_mandatory = 9;
        if (with_bias) so.logit_bias = bias;
        asker *searcher = create(index, &so);
        bool allowed[40], anything[40];
        assert_true(naive_candidates(index, s.q, true, allowed));
        for (size_t j = 0; j < 40; j++) {
            allowed[j] = (allowed[j] || (with_always && always[j])) && !(with_never && never[j]);
            anything[j] = !(with_never && never[j]);
        }
        const rules r = {allowed, with_bias ? bias : NULL, softmax, NULL};
        assert_search(&s, searcher, NULL, &r, 3);
        assert_search(&s, searcher, NULL, &r, 40);

        const rules exact = {anything, with_bias ? bias : NULL, softmax, NULL};
        int32_t ids[60 * 6];
        float scores[60 * 6];
        assert_int_equal(ask_exact(searcher, s.q, s.n, 6, (answers){ids, scores, NULL}, &err), WO_OK);
        for (size_t i = 0; i < s.n; i++) assert_answer(&s, s.q + i * s.d, &exact, 6, ids + i * 6, scores + i * 6);
        /* Nothing of a call stays. */
        searcher->o = (asked){.probes = so.probes};
        assert_true(naive_candidates(index, s.q, true, allowed));
        assert_search(&s, searcher, NULL, &(rules){.allowed = allowed}, 2);
        free_asker(searcher);
        wo_index_free(index);
        free_scene(&s);
    }
}

static void everything_forbidden_is_no_answer(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(6, 3, 20, true, 8);
    static const int methods[] = {WO_METHOD_FULL, WO_METHOD_POPULAR, WO_METHOD_SLIDE, EVIDENCE_BY_TREE,
                                  WO_METHOD_SCREEN};
    for (int i = 0; i < 10; i++) {
        const wo_build_options o = small_options(methods[i / 2]);
        wo_index *index = build(&s, &o);
        asked so = {0};
        so.forbidden = (const int32_t[]){0, 1, 2, 3, 4, 5, 5};
        so.n_forbidden = 7;
        so.mandatory = so.forbidden;
        so.n_mandatory = 3;
        so.scores = i % 2 ? WO_SCORES_SOFTMAX : WO_SCORES_LOGITS;
        asker *searcher = create(index, &so);
        int32_t ids[40];
        float scores[40];
        wo_query_stats stats[20];
        assert_int_equal(ask_stats(searcher, s.q, 20, 2, (answers){ids, scores, stats}, &err), WO_OK);
        for (int j = 0; j < 40; j++) {
            assert_int_equal(ids[j], -1);
            assert_true(scores[j] == (i % 2 ? 0 : -INFINITY));
            assert_int_equal(stats[j / 2].candidates, 0);
            assert_int_equal(stats[j / 2].status, WO_OK);
        }
        free_asker(searcher);
        wo_index_free(index);
    }
    free_scene(&s);
}

/* Answers of one call that the next forbids, or demands, where they lie; also where the next writes into the middle of
 * them. It is as if the list were elsewhere, and nothing of it stays. */
static void lists_may_lie_where_the_answers_go(void **state)
{
    (void)state;
    wo_error err;
    enum { N = 80, K = 6, LIST = 20 };
    static const int methods[] = {WO_METHOD_FULL,     WO_METHOD_POPULAR, WO_METHOD_SLIDE,
                                  WO_METHOD_EVIDENCE, EVIDENCE_BY_TREE,  WO_METHOD_SCREEN};
    for (size_t turn = 0; turn < 24; turn++) {
        const bool demanded = turn / 6 % 2;
        scene s = make_scene(90, 12, N, true, 40 + turn);
        const wo_build_options o = small_options(methods[turn % 6]);
        wo_index *index = build(&s, &o);
        asked so = {.threads = 2, .n_mandatory = LIST, .mandatory = (int32_t[LIST]){0}};
        asker *searcher = create(index, &so);
        searcher->o = (asked){0};
        int32_t first[N * K], ids[N * K], expected[N * K], list[LIST];
        float scores[N * K], expected_scores[N * K];
        assert_int_equal(ask(searcher, s.q, N, K, (answers){first, scores, NULL}, &err), WO_OK);
        memcpy(ids, first, sizeof ids);
        int32_t *const shared = ids + (turn / 12 ? LIST : 0);
        for (int i = 0; i < LIST; i++) list[i] = shared[i] = i % 6 ? (i * 7 + (int32_t)turn) % 90 : first[i / 6];
        for (int alias = 0; alias < 2; alias++) {
            *(demanded ? &searcher->o.mandatory : &searcher->o.forbidden) = alias ? shared : list;
            *(demanded ? &searcher->o.n_mandatory : &searcher->o.n_forbidden) = LIST;
            const answers to = {alias ? ids : expected, alias ? scores : expected_scores, NULL};
            assert_int_equal(ask(searcher, s.q, N, K, to, &err), WO_OK);
        }
        assert_memory_equal(ids, expected, sizeof ids);
        assert_memory_equal(scores, expected_scores, sizeof scores);
        memcpy(shared, list, sizeof list); /* candidates, which are written likewise */
        size_t n, wanted;
        int32_t candidates[90];
        *(demanded ? &searcher->o.mandatory : &searcher->o.forbidden) = list;
        assert_int_equal(ask_candidates(searcher, s.q, candidates, 90, &wanted, &err), WO_OK);
        *(demanded ? &searcher->o.mandatory : &searcher->o.forbidden) = shared;
        assert_int_equal(ask_candidates(searcher, s.q, ids, 90, &n, &err), WO_OK);
        assert_int_equal(n, wanted);
        assert_memory_equal(ids, candidates, n * sizeof *ids);
        searcher->o = (asked){0};
        assert_int_equal(ask(searcher, s.q, N, K, (answers){ids, scores, NULL}, &err), WO_OK);
        assert_memory_equal(ids, first, sizeof ids);
        searcher->o = (asked){.forbidden = list, .n_forbidden = LIST};
        assert_int_equal(ask(searcher, s.q, N, K, (answers){ids, scores, NULL}, &err), WO_OK);
        for (size_t i = 0; i < N * K * (size_t)LIST; i++) assert_true(ids[i / LIST] != list[i % LIST]);
        free_asker(searcher);
        wo_index_free(index);
        free_scene(&s);
    }
}

/* Batches of any size, on any number of threads, are single queries one after the other; queries that are not finite
 * get no answer, and the others are not disturbed. */
static void batches_are_single_queries(void **state)
{
    (void)state;
    wo_error err;
    enum { N = 700, K = 4 };
    static const int methods[] = {WO_METHOD_FULL,     WO_METHOD_POPULAR, WO_METHOD_SLIDE,
                                  WO_METHOD_EVIDENCE, EVIDENCE_BY_TREE,  WO_METHOD_SCREEN};
    scene s = make_scene(80, 7, N, true, 9);
    float *q = room(N * 7, sizeof *q);
    memcpy(q, s.q, N * 7 * sizeof *q);
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < N; i += 37) q[i * 7 + i % 7] = bad[i % 3];
    int32_t *one = room(N * K, sizeof *one), *ids = room(N * K, sizeof *ids);
    float *one_scores = room(N * K, sizeof *one_scores), *scores = room(N * K, sizeof *scores);
    wo_query_stats *stats = room(N, sizeof *stats), single;
    for (size_t turn = 0; turn < 12; turn++) {
        const wo_build_options o = small_options(methods[turn / 2]);
        wo_index *index = build(&s, &o);
        asked so = {0};
        so.scores = turn % 2 ? WO_SCORES_SOFTMAX : WO_SCORES_LOGITS;
        asker *alone = create(index, &so);
        for (size_t i = 0; i < N; i++) {
            assert_int_equal(
                ask_stats(alone, q + i * 7, 1, K, (answers){one + i * K, one_scores + i * K, &single}, &err), WO_OK);
            const bool refused = i % 37 == 0;
            assert_int_equal(single.status, refused ? WO_ERR_ARGUMENT : WO_OK);
            if (refused) assert_int_equal(single.candidates, 0);
            for (size_t k = 0; refused && k < K; k++) {
                assert_int_equal(one[i * K + k], -1);
                assert_true(one_scores[i * K + k] == (turn % 2 ? 0 : -INFINITY));
            }
            assert_true(refused || one[i * K] >= 0 || methods[turn / 2] == WO_METHOD_SLIDE);
        }
        free_asker(alone);
        for (int threads = 0; threads <= 3; threads++) {
            static const size_t sizes[] = {0, 2, 63, 127, 128, 129, 200, N};
            so.threads = threads;
            asker *searcher = create(index, &so);
            for (size_t i = 0; i < 8; i++) {
                const size_t n = sizes[i], first = N - n;
                assert_int_equal(ask_stats(searcher, q + first * 7, n, K, (answers){ids, scores, stats}, &err), WO_OK);
                assert_memory_equal(ids, one + first * K, n * K * sizeof *ids);
                for (size_t j = 0; j < n * K; j++)
                    assert_true(scores[j] == one_scores[first * K + j] ||
                                fabsf(scores[j] - one_scores[first * K + j]) < (turn % 2 ? 1e-6F : 0));
                for (size_t j = 0; j < n; j++)
                    assert_int_equal(stats[j].status, (first + j) % 37 == 0 ? WO_ERR_ARGUMENT : WO_OK);
            }
            free_asker(searcher);
        }
        wo_index_free(index);
    }
    free(q);
    free(one);
    free(ids);
    free(one_scores);
    free(scores);
    free(stats);
    free_scene(&s);
}

/* Finite queries and weights whose products overflow: some answer, no crash, also in building. */
static void huge_numbers_do_no_harm(void **state)
{
    (void)state;
    wo_error err;
    scene s = make_scene(20, 4, 60, true, 10);
    for (size_t i = 0; i < 20 * 4; i++) s.w[i] *= 1e38F;
    for (size_t i = 0; i < 60 * 4; i++) s.q[i] *= i % 3 ? 1e37F : 1;
    for (int method = WO_METHOD_FULL; method <= EVIDENCE_BY_TREE; method++) {
        if (method == WO_METHOD_LSS) continue;
        wo_build_options o = small_options(method);
        o.source = WO_SOURCE_TOP;
        wo_log *bare = NULL;
        assert_int_equal(wo_log_wrap(s.q, s.n, s.d, NULL, NULL, &bare, &err), WO_OK);
        wo_index *index = NULL;
        assert_int_equal(wo_index_build(s.layer, bare, &o, &index, &err), WO_OK);
        for (int softmax = 0; softmax < 2; softmax++) {
            asked so = {0};
            so.scores = softmax ? WO_SCORES_SOFTMAX : WO_SCORES_LOGITS;
            asker *searcher = create(index, &so);
            int32_t ids[60 * 25];
            float scores[60 * 25];
            assert_int_equal(ask(searcher, s.q, 60, 25, (answers){ids, scores, NULL}, &err), WO_OK);
            for (size_t i = 0; i < 60 * 25; i++) {
                assert_true(ids[i] >= -1 && ids[i] < 20);
                if (ids[i] == -1) assert_true(scores[i] == (softmax ? 0 : -INFINITY));
            }
            free_asker(searcher);
        }
        wo_index_free(index);
        wo_log_free(bare);
    }
    free_scene(&s);
}

/* ---- Threads and memory ------------------------------------------------------------------------------------ */

typedef struct client {
    const wo_index *index;
    const scene *s;
    const int32_t *expected;
    int threads, wrong;
} client;

static void *run_client(void *argument)
{
    client *c = argument;
    enum { K = 3 };
    wo_error err;
    asked so = {0};
    so.threads = c->threads;
    asker *searcher = NULL;
    int32_t *ids = malloc(c->s->n * K * sizeof *ids);
    float *scores = malloc(c->s->n * K * sizeof *scores);
    c->wrong = !ids || !scores || try_create(c->index, &so, &searcher, &err);
    for (int turn = 0; !c->wrong && turn < 4; turn++) {
        if (turn % 2)
            for (size_t i = 0; i < c->s->n; i++)
                ask(searcher, c->s->q + i * c->s->d, 1, K, (answers){ids + i * K, scores + i * K, NULL}, &err);
        else
            ask(searcher, c->s->q, c->s->n, K, (answers){ids, scores, NULL}, &err);
        c->wrong |= memcmp(ids, c->expected, c->s->n * K * sizeof *ids) != 0;
        c->wrong |= ask_exact(searcher, c->s->q, 5, K, (answers){ids, scores, NULL}, &err) != WO_OK;
    }
    free_asker(searcher);
    free(ids);
    free(scores);
    return NULL;
}

static void several_searchers_share_an_index(void **state)
{
    (void)state;
    wo_error err;
    for (int turn = 0; turn < 2; turn++) {
        const int method = turn ? EVIDENCE_BY_TREE : WO_METHOD_EVIDENCE;
        scene s = make_scene(100, 20, 300, true, 11);
        wo_build_options o = small_options(method);
        o.probes = 2;
        wo_index *index = build(&s, &o);
        asker *searcher = create(index, NULL);
        int32_t *ids = room(s.n * 3, sizeof *ids);
        float *scores = room(s.n * 3, sizeof *scores);
        assert_int_equal(ask(searcher, s.q, s.n, 3, (answers){ids, scores, NULL}, &err), WO_OK);
        pthread_t threads[4];
        client clients[4];
        for (int t = 0; t < 4; t++) {
            clients[t] = (client){index, &s, ids, 1 + t % 2, 0};
            assert_int_equal(pthread_create(&threads[t], NULL, run_client, &clients[t]), 0);
        }
        for (int t = 0; t < 4; t++) {
            assert_int_equal(pthread_join(threads[t], NULL), 0);
            assert_int_equal(clients[t].wrong, 0);
        }
        free_asker(searcher);
        wo_index_free(index);
        free(ids);
        free(scores);
        free_scene(&s);
    }
}

static void searching_allocates_nothing(void **state)
{
    (void)state;
    wo_error err;
    enum { N = 300, K = 5 };
    static int32_t ids[N * K], all[60];
    static float scores[N * K];
    static wo_query_stats stats[N];
    assert_int_equal(wo_allocator_set(&failing_allocator), WO_OK);
    allocations_left = -1;
    allocations_alive = 0;
    static const int methods[] = {WO_METHOD_FULL,     WO_METHOD_POPULAR, WO_METHOD_SLIDE,
                                  WO_METHOD_EVIDENCE, EVIDENCE_BY_TREE,  WO_METHOD_SCREEN};
    for (int turn = 0; turn < 12; turn++) {
        scene s = make_scene(60, 20, N, true, 12);
        const wo_build_options o = small_options(methods[turn / 2]);
        wo_index *index = build(&s, &o);
        asked so = {0};
        so.threads = 2;
        so.forbidden = so.mandatory = (const int32_t[]){3, 4};
        so.n_forbidden = so.n_mandatory = 1 + (size_t)turn % 2;
        so.scores = turn % 2 ? WO_SCORES_SOFTMAX : WO_SCORES_LOGITS;
        asker *searcher = create(index, &so);
        const long made = allocations_made;
        assert_true(made > 0);
        size_t n;
        allocations_left = 0;
        assert_int_equal(ask(searcher, s.q, 1, K, (answers){ids, scores, NULL}, &err), WO_OK);
        assert_int_equal(ask_stats(searcher, s.q, N, K, (answers){ids, scores, stats}, &err), WO_OK);
        assert_int_equal(ask(searcher, s.q, N, 200 / N + 1, (answers){ids, scores, NULL}, &err), WO_OK);
        assert_int_equal(ask_exact(searcher, s.q, 1, K, (answers){ids, scores, NULL}, &err), WO_OK);
        assert_int_equal(ask_exact(searcher, s.q, N, K, (answers){ids, scores, NULL}, &err), WO_OK);
        assert_int_equal(ask_candidates(searcher, s.q, all, 60, &n, &err), WO_OK);
        allocations_left = -1;
        assert_int_equal(allocations_made, made);
        free_asker(searcher);
        wo_index_free(index);
        free_scene(&s);
    }
    assert_int_equal(allocations_alive, 0);
    assert_int_equal(wo_allocator_set(NULL), WO_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_open_is_the_exact_layer),
        cmocka_unit_test(candidates_are_the_union_of_the_cells),
        cmocka_unit_test(old_stamps_do_not_hide_classes),
        cmocka_unit_test(candidates_fit_what_room_there_is),
        cmocka_unit_test(masks_and_biases_are_obeyed),
        cmocka_unit_test(everything_forbidden_is_no_answer),
        cmocka_unit_test(lists_may_lie_where_the_answers_go),
        cmocka_unit_test(batches_are_single_queries),
        cmocka_unit_test(huge_numbers_do_no_harm),
        cmocka_unit_test(several_searchers_share_an_index),
        cmocka_unit_test(searching_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
