/* The training loop: rates, epochs, checkpoints, validation. */
#include "net/train.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/team.h"
#include "net/checkpoints.h"
#include "net/trainer.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const float BETA1 = 0.9f, BETA2 = 0.999f;

woi_train_options woi_train_defaults(woi_arch arch)
{
    woi_train_options o = {.d = 128, .epochs = 7, .batch = 256, .seed = 1, .lr = 2e-3, .dropout = 0.3};
    o.input = (woi_bag_input){.log1p = true, .l2 = true, .relu = true};
    if (arch == WOI_ARCH_W2V) {
        o.epochs = 4;
        o.lr = 1e-2;
        o.dropout = 0;
        o.window = 25;
    }
    if (arch == WOI_ARCH_LM) {
        o.d = 200;
        o.batch = 64;
        o.steps = 35;
        o.lr = 4e-3;
        o.dropout = 0.35;
        o.clip = 0.5;
    }
    return o;
}

wo_status woi_bag_step(woi_network *net, woi_bag_trainer *bag, woi_softmax *softmax, const woi_bag_rows *rows,
                       const woi_step *step, wo_error *err)
{
    woi_wide wide = woi_network_wide(net);
    wo_status status = woi_bag_train_forward(bag, rows, step->number, step->q, err);
    if (!status) status = woi_softmax_step(softmax, &wide, step, err);
    if (!status) status = woi_bag_train_backward(bag, rows, step->dq, NULL, err);
    if (!status) woi_bag_train_apply(bag, 1, step->adam);
    return status;
}

void woi_shuffle(uint64_t *order, uint64_t n, uint64_t seed, uint64_t epoch)
{
    for (uint64_t i = 0; i < n; i++) order[i] = i;
    for (uint64_t i = n; i > 1; i--) {
        uint64_t j = woi_rng_below(seed, WOI_STREAM_ORDER + (epoch << 16), i, i), swap = order[j];
        order[j] = order[i - 1];
        order[i - 1] = swap;
    }
}

uint64_t woi_hash(uint64_t hash, const void *data, size_t bytes)
{
    return XXH3_64bits_withSeed(data, bytes, hash);
}

static uint64_t hash_names(uint64_t hash, const woi_names *names)
{
    if (!names->n) return hash;
    hash = woi_hash(hash, names->indptr, ((size_t)names->n + 1) * sizeof *names->indptr);
    return woi_hash(hash, names->bytes, (size_t)names->indptr[names->n]);
}

uint64_t woi_hash_tokens(const woi_tokens *tokens)
{
    return hash_names(woi_hash(tokens->n, tokens->ids, (size_t)tokens->n * sizeof *tokens->ids), &tokens->words);
}

/* ---- Rates ------------------------------------------------------------------------------------------------- */

static double cosine(double from, double to, double part)
{
    return to + (from - to) * (1 + cos(3.141592653589793 * part)) / 2;
}

static double one_cycle(double lr, uint64_t step, uint64_t steps)
{
    const double first = lr / 25, last = first / 1e4;
    const double peak = 0.3 * (double)steps - 1, end = (double)steps - 1, at = (double)step;
    if (at <= peak) return cosine(first, lr, peak > 0 ? at / peak : 1);
    return cosine(lr, last, end > peak ? (at - peak) / (end - peak) : 1);
}

static woi_adam_step adam_at(double rate, uint64_t step)
{
    const double t = (double)step + 1;
    return (woi_adam_step){.beta1 = BETA1,
                           .beta2 = BETA2,
                           .rate = (float)(rate / (1 - pow((double)BETA1, t))),
                           .root_scale = (float)(1 / sqrt(1 - pow((double)BETA2, t))),
                           .epsilon = 1e-8f};
}

/* ---- The run ----------------------------------------------------------------------------------------------- */

typedef struct run {
    const woi_train_options *o;
    woi_trainer trainer;
    woi_checkpoints checkpoints;
    char fingerprint[64]; /* of data and options */
    woi_train_watch watch;
    woi_train_report report;
    woi_train_result *result;
    woi_history history; /* with auto_epochs: what is done, what follows from it, and the best epoch's state */
    woi_pace pace;
    woi_kept kept;
    size_t by_epoch_room;
    double step_seconds; /* in all steps of this run */
    uint64_t examples;   /* in them */
    float *times;        /* of each step, in ms */
    size_t n_times, times_room;
    const char **at;
} run;

/* The bytes of a file as they are: whoever compresses it anew changes the hash, which costs a resumed run but is safe.
 */
static wo_status hash_file(const char *path, uint64_t *hash, wo_error *err)
{
    char piece[1 << 14];
    size_t bytes;
    FILE *file = fopen(path, "rb");
    if (!file) return woi_fail_errno(err, "the file cannot be opened", errno);
    while ((bytes = fread(piece, 1, sizeof piece, file)) > 0) *hash = woi_hash(*hash, piece, bytes);
    wo_status status = WO_OK;
    if (ferror(file)) status = woi_fail_errno(err, "the file cannot be read", errno);
    fclose(file);
    return status;
}

/* Everything that the result depends on, but for the number of epochs that are done. */
static wo_status make_fingerprint(run *r, woi_arch arch, wo_error *err)
{
    const woi_train_options *o = r->o;
    char text[512];
    int n = snprintf(text, sizeof text,
                     "%s m %zu d %zu inputs %zu epochs %" PRIu64 " batch %" PRIu64 " seed %" PRIu64 " sampled %" PRIu64
                     " lr %a dropout %a clip %a input %d%d%d window %" PRIu64 " drop %" PRIu64 " steps %" PRIu64,
                     woi_arch_name(arch), r->trainer.net->m, r->trainer.net->d, r->trainer.net->n_inputs, o->epochs,
                     o->batch, o->seed, o->sampled, o->lr, o->dropout, o->clip, o->input.log1p, o->input.l2,
                     o->input.relu, o->window, o->drop_top, o->steps);
    uint64_t hash = woi_hash(0, text, (size_t)n);
    *r->at = o->valid;
    wo_status status = o->auto_epochs ? hash_file(o->valid, &hash, err) : WO_OK;
    snprintf(r->fingerprint, sizeof r->fingerprint, "%016" PRIx64 "-%016" PRIx64, r->trainer.data_hash, hash);
    return status;
}

static void enter(const run *r, const char *phase)
{
    if (r->watch.phase) r->watch.phase(phase);
}

static wo_status tell(run *r, const char *doing, wo_error *err)
{
    r->report.doing = doing;
    const bool go_on = !r->watch.fn || !r->watch.fn(r->watch.ctx, &r->report);
    bool all_go_on;
    const wo_status status = woi_ranks_all(r->o->ranks, go_on, &all_go_on, err);
    if (status || all_go_on) return status;
    return woi_fail_about(err, WO_ERR_CANCELLED, WO_ABOUT_NONE, r->report.epoch > 1 ? "resume" : "",
                          "stopped in epoch %" PRIu64 "%s", r->report.epoch,
                          r->report.epoch > 1 ? "" : "; nothing was saved yet");
}

static int forward_progress(void *ctx, const char *stage, uint64_t done, uint64_t total)
{
    run *r = ctx;
    (void)done, (void)total;
    return tell(r, stage, NULL) != WO_OK;
}

static wo_status evaluate(run *r, const char *path, woi_precision *precision, wo_error *err)
{
    const woi_queries_options options = {.seed = r->o->seed, .threads = r->o->threads, .xc = r->o->xc};
    *r->at = path;
    enter(r, "evaluate");
    return woi_evaluate(r->trainer.net, path, &options, &(wo_progress){forward_progress, r}, precision, err);
}

enum { WARM_UP = 5 }; /* steps that are not timed */

static bool timing_is_over(const run *r)
{
    return r->o->time_steps && r->n_times >= WARM_UP + r->o->time_steps;
}

/* i: within the epoch; step: in all. */
static double rate_at(const run *r, uint64_t i, uint64_t step)
{
    const uint64_t steps = r->trainer.steps_per_epoch;
    if (r->o->auto_epochs) return r->o->lr * woi_pace_rate(&r->pace, ((double)i + 1) / (double)steps);
    return one_cycle(r->o->lr, step, steps * r->o->epochs);
}

static wo_status run_epoch(run *r, wo_error *err)
{
    woi_trainer *t = &r->trainer;
    const uint64_t steps = t->steps_per_epoch, first = (r->report.epoch - 1) * steps;
    double loss_sum = 0;
    uint64_t seen = 0;
    enter(r, "train");
    wo_status status = t->begin_epoch(t->self, r->report.epoch, err);
    for (uint64_t i = 0; !status && i < steps; i++) {
        const woi_adam_step adam = adam_at(rate_at(r, i, first + i), first + i);
        const double start = woi_now_s();
        double loss;
        size_t examples;
        if ((status = t->step(t->self, &(woi_turn){i, first + i, &adam}, &loss, &examples, err))) break;
        if (!isfinite(loss))
            return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_NONE, "lr",
                                  "the loss is %g in epoch %" PRIu64 ", step %" PRIu64, loss, r->report.epoch, i + 1);
        const double seconds = woi_now_s() - start;
        loss_sum += loss * (double)examples;
        seen += examples;
        r->step_seconds += seconds;
        r->examples += examples;
        if ((status = woi_grow(&r->times, &r->times_room, r->n_times, r->n_times + 1, sizeof(float), err))) break;
        r->times[r->n_times++] = (float)(1e3 * seconds);
        r->report.step = first + i + 1;
        r->report.loss = loss_sum / (double)seen;
        r->report.examples_per_s = (double)r->examples / r->step_seconds;
        status = tell(r, "training", err);
        if (timing_is_over(r)) break;
    }
    r->result->loss = r->report.loss;
    return status;
}

static wo_status validate(run *r, wo_error *err)
{
    woi_train_result *result = r->result;
    const uint64_t epoch = r->report.epoch;
    wo_status status = evaluate(r, r->o->valid, &result->valid, err);
    if (!status)
        status = woi_grow(&result->valid_by_epoch, &r->by_epoch_room, result->n_by_epoch, (size_t)epoch, sizeof(double),
                          err);
    if (status) return status;
    while (result->n_by_epoch < epoch - 1) result->valid_by_epoch[result->n_by_epoch++] = (double)NAN;
    result->valid_by_epoch[result->n_by_epoch++] = result->valid.p_at_1;
    r->report.valid_p_at_1 = result->valid.p_at_1;
    r->report.valid_p_at_5 = result->valid.p_at_5;
    return WO_OK;
}

static wo_status save_checkpoint(run *r, wo_error *err)
{
    *r->at = r->o->output;
    enter(r, "checkpoint");
    const woi_network *net = r->trainer.net;
    const woi_kept *kept = r->pace.back || r->pace.kept == r->history.n ? NULL : &r->kept;
    const char *path = woi_checkpoints_target(&r->checkpoints);
    wo_status status = woi_checkpoints_check(&r->checkpoints, err);
    if (!status)
        status = r->o->auto_epochs
                     ? woi_checkpoint_save_auto(net, kept, path, r->fingerprint, &r->history, err)
                     : woi_checkpoint_save(net, path, r->fingerprint, r->report.epoch, r->report.loss, err);
    return woi_checkpoints_written(&r->checkpoints, status, err);
}

/* After a validation: whether this epoch is the best, and from which state the next one starts. */
static wo_status decide(run *r, wo_error *err)
{
    woi_history *h = &r->history;
    if (r->result->valid.n == r->result->valid.unlabelled)
        return woi_fail_about(err, WO_ERR_FORMAT, WO_ABOUT_NONE, "auto_epochs",
                              "no example has a label, by which it would be known when to stop");
    h->p_at_1[h->n] = r->result->valid.p_at_1;
    h->loss[h->n++] = r->report.loss;
    r->pace = woi_pace_after(h);
    r->report.kept = r->pace.kept;
    if (r->pace.kept == h->n) woi_kept_take(&r->kept, r->trainer.net);
    if (r->pace.back) woi_kept_give(&r->kept, r->trainer.net);
    return WO_OK;
}

/* Every rank has updated its own copy of what is not spread. */
static wo_status compare_embeddings(run *r, wo_error *err)
{
    if (!r->o->ranks) return WO_OK;
    const woi_param *embedding = &r->trainer.net->params[0];
    return woi_ranks_same(r->o->ranks, woi_hash(0, embedding->w, embedding->n * sizeof(float)),
                          "has another embedding than rank 0: these machines do not compute alike", err);
}

/* A checkpoint of a fixed number of epochs does not depend on the validation, and is there before it. */
static wo_status end_epoch(run *r, wo_error *err)
{
    wo_status status = compare_embeddings(r, err);
    if (!status && !r->o->auto_epochs) status = save_checkpoint(r, err);
    if (!status && r->o->valid) status = validate(r, err);
    if (!status && r->o->auto_epochs) status = decide(r, err);
    if (!status && r->o->auto_epochs) status = save_checkpoint(r, err);
    return status;
}

static wo_status run_epochs(run *r, uint64_t done, wo_error *err)
{
    wo_status status = WO_OK;
    for (uint64_t epoch = done + 1; !status && epoch <= r->o->epochs && !r->pace.over; epoch++) {
        r->report.epoch = epoch;
        *r->at = r->o->train;
        if ((status = run_epoch(r, err)) || timing_is_over(r)) break;
        if (!r->o->time_steps) status = end_epoch(r, err);
    }
    return status;
}

/* The network becomes that of the best epoch. */
static void keep_best(run *r)
{
    r->result->epochs = r->result->kept = r->o->epochs;
    if (!r->o->auto_epochs || !r->history.n) return;
    woi_kept_give(&r->kept, r->trainer.net);
    r->result->epochs = r->history.n;
    r->result->kept = r->pace.kept;
    r->result->loss = r->history.loss[r->pace.kept - 1];
}

static wo_status save(run *r, wo_error *err)
{
    const woi_train_options *o = r->o;
    woi_meta record[] = {{"train.data", ""}, {"train.examples", ""}, {"train.epochs", ""}, {"train.batch", ""},
                         {"train.lr", ""},   {"train.dropout", ""},  {"train.seed", ""},   {"train.sampled", ""},
                         {"train.loss", ""}, {"train.steps", ""},    {"train.clip", ""},   {"", ""}};
    size_t n_record = sizeof record / sizeof record[0] - (r->trainer.net->arch == WOI_ARCH_LM ? 1 : 3);
    snprintf(record[0].value, 64, "%016" PRIx64, r->trainer.data_hash);
    snprintf(record[1].value, 64, "%" PRIu64, r->trainer.n_examples);
    snprintf(record[2].value, 64, "%" PRIu64, r->result->epochs);
    snprintf(record[3].value, 64, "%" PRIu64, o->batch);
    snprintf(record[4].value, 64, "%g", o->lr);
    snprintf(record[5].value, 64, "%g", o->dropout);
    snprintf(record[6].value, 64, "%" PRIu64, o->seed);
    snprintf(record[7].value, 64, "%" PRIu64, o->sampled);
    snprintf(record[8].value, 64, "%.6g", r->result->loss);
    snprintf(record[9].value, 64, "%" PRIu64, o->steps);
    snprintf(record[10].value, 64, "%g", o->clip);
    if (o->auto_epochs) {
        record[n_record].key = "train.kept_epoch";
        snprintf(record[n_record++].value, 64, "%" PRIu64, r->result->kept);
    }
    *r->at = o->output;
    enter(r, "write");
    return woi_network_save(r->trainer.net, o->output, record, n_record, err);
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void fill_result(run *r)
{
    woi_train_result *result = r->result;
    result->m = r->trainer.net->m;
    result->d = r->trainer.net->d;
    result->n_inputs = r->trainer.net->n_inputs;
    result->n_examples = r->trainer.n_examples;
    result->seconds = r->step_seconds;
    result->examples_per_s = r->step_seconds > 0 ? (double)r->examples / r->step_seconds : 0;
    const size_t skipped = r->o->time_steps && r->n_times > WARM_UP ? WARM_UP : 0, n = r->n_times - skipped;
    if (n) {
        qsort(r->times + skipped, n, sizeof *r->times, by_size);
        result->step_ms = (double)r->times[skipped + n / 2];
    }
}

/* What follows from the history of the run before. */
static wo_status resume_auto(run *r, uint64_t *done, double *loss, wo_error *err)
{
    const woi_history *h = &r->history;
    woi_train_result *result = r->result;
    *done = h->n;
    *loss = h->loss[h->n - 1];
    r->pace = woi_pace_after(h);
    r->report.kept = r->pace.kept;
    wo_status status = woi_grow(&result->valid_by_epoch, &r->by_epoch_room, 0, (size_t)h->n, sizeof(double), err);
    if (status) return status;
    memcpy(result->valid_by_epoch, h->p_at_1, (size_t)h->n * sizeof(double));
    result->n_by_epoch = (size_t)h->n;
    return WO_OK;
}

/* Where the last run stopped. A missing checkpoint is a start from nothing, but not after --resume was asked for. */
static wo_status resume(run *r, uint64_t *done, wo_error *err)
{
    *done = 0;
    if (!r->o->resume) return WO_OK;
    double loss = NAN;
    *r->at = r->o->output;
    woi_network *net = r->trainer.net;
    const char *path = NULL;
    wo_status status = woi_checkpoints_find(&r->checkpoints, net, r->fingerprint, &path, err);
    if (status) return status;
    status = r->o->auto_epochs ? woi_checkpoint_load_auto(net, &r->kept, path, r->fingerprint, &r->history, err)
                               : woi_checkpoint_load(net, path, r->fingerprint, done, &loss, err);
    if (!status && !r->o->auto_epochs && (*done < 1 || *done > r->o->epochs))
        status =
            woi_fail(err, WO_ERR_FORMAT, 8, "has %" PRIu64 " epochs done, expected 1 to %" PRIu64, *done, r->o->epochs);
    status = woi_checkpoints_loaded(&r->checkpoints, path, status, err);
    if (!status && r->o->auto_epochs) status = resume_auto(r, done, &loss, err);
    r->result->loss = r->report.loss = loss;
    return status;
}

/* The output's folder must be there before the work is done, not after. */
static wo_status try_output(const char *path, wo_error *err)
{
    woi_outfile *out = NULL;
    wo_status status = woi_outfile_create(path, &out, err);
    woi_outfile_free(out);
    return status;
}

/* So must the files that are evaluated at the end of it, and they must fit the network. */
static wo_status try_data(const run *r, const char *path, wo_error *err)
{
    const woi_queries_options options = {.seed = r->o->seed, .threads = r->o->threads, .xc = r->o->xc};
    woi_queries *queries = NULL;
    if (!path) return WO_OK;
    *r->at = path;
    wo_status status = woi_queries_open(r->trainer.net, path, &options, &queries, err);
    woi_queries_free(queries);
    return status;
}

/* The product of batch and steps is the size of buffers. */
static wo_status check_options(const woi_train_options *o, woi_arch arch, wo_error *err)
{
    static const double most = 1 << 20;
    if (o->ranks && arch != WOI_ARCH_XC)
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET, "several processes train a bag network (xc), not %s",
                        woi_arch_name(arch));
    if (o->auto_epochs && !o->valid)
        return woi_fail_option(err, WO_ERR_ARGUMENT, "valid",
                               "there are no validation data, by which it would be known when to stop");
    const wo_status status = woi_check_range("batch", (double)o->batch, 1, most, err);
    return status ? status : woi_check_range("steps", (double)o->steps, 0, most, err);
}

/* What can fail before the first step in this process alone. */
static wo_status prepare(run *r, woi_arch arch, wo_error *err)
{
    static wo_status (*const make[WOI_N_ARCHS])(const woi_train_options *, woi_trainer *, const char **,
                                                wo_error *) = {woi_trainer_xc, woi_trainer_w2v, woi_trainer_lm};
    const woi_train_options *o = r->o;
    wo_status status = check_options(o, arch, err);
    if (!status && woi_ranks_first(o->ranks)) status = try_output(o->output, err);
    if (!status) status = woi_checkpoints_create(o->output, o->ranks, &r->checkpoints, err);
    if (!status && !o->time_steps) status = woi_checkpoints_try(&r->checkpoints, err);
    if (!status) status = make[arch](o, &r->trainer, r->at, err);
    if (!status) status = try_data(r, o->valid, err);
    if (!status) status = try_data(r, o->test, err);
    if (!status) status = make_fingerprint(r, arch, err);
    if (!status && o->auto_epochs) status = woi_kept_create(r->trainer.net, &r->kept, err);
    return status;
}

/* Whether all processes are ready, and will do the same. */
static wo_status compare_ranks(run *r, wo_status prepared, wo_error *err)
{
    const woi_train_options *o = r->o;
    const char *const places[] = {o->output, o->train, o->valid, o->test, o->label_names, o->feature_names};
    int place = 0;
    for (int i = 0; i < (int)(sizeof places / sizeof places[0]); i++)
        if (places[i] && *r->at == places[i]) place = i;
    wo_status status = woi_ranks_agree(o->ranks, prepared, &place, err);
    *r->at = places[place] ? places[place] : o->output;
    if (status || !o->ranks) return status;

    /* Each file under its own name; what else there may be under that of the training data. */
    const uint64_t numbers[] = {o->resume, o->time_steps, o->valid != NULL, o->test != NULL};
    const woi_network *net = r->trainer.net;
    struct {
        const char *at, *differs;
        uint64_t hash;
    } all[] = {
        {o->valid, "has another file than rank 0", 0},
        {o->test, "has another file than rank 0", 0},
        {o->label_names, "has other names of labels than rank 0", hash_names(0, &net->labels)},
        {o->feature_names, "has other names of features than rank 0", hash_names(0, &net->features)},
        {o->train, "has other files or options than rank 0",
         woi_hash(woi_hash(0, r->fingerprint, sizeof r->fingerprint), numbers, sizeof numbers)},
    };
    for (size_t i = 0; !status && i < sizeof all / sizeof *all; i++) {
        *r->at = all[i].at ? all[i].at : o->train;
        wo_status read = i < 2 && all[i].at ? hash_file(all[i].at, &all[i].hash, err) : WO_OK;
        status = woi_ranks_agree(o->ranks, read, NULL, err);
        if (!status) status = woi_ranks_same(o->ranks, all[i].hash, all[i].differs, err);
    }
    return status;
}

/* Epochs, the network and what is said of it. */
static wo_status train(run *r, wo_error *err)
{
    const woi_train_options *o = r->o;
    woi_train_result *result = r->result;
    uint64_t done = 0;
    wo_status status;
    r->report.steps = r->trainer.steps_per_epoch * o->epochs;
    if ((status = resume(r, &done, err)) || (status = run_epochs(r, done, err))) return status;
    keep_best(r);
    fill_result(r);
    if (o->time_steps || (status = save(r, err))) return status;
    result->has_valid =
        o->valid && ((!o->auto_epochs && done < o->epochs) || !(status = evaluate(r, o->valid, &result->valid, err)));
    result->has_test = !status && o->test && !(status = evaluate(r, o->test, &result->test, err));
    if (!status) woi_checkpoints_remove(&r->checkpoints);
    return status;
}

wo_status woi_train(woi_arch arch, const woi_train_options *options, woi_train_watch watch, woi_train_result *result,
                    const char **at, wo_error *err)
{
    woi_train_options o = *options;
    o.threads = woi_team_threads(o.threads);
    if (o.auto_epochs) o.epochs = WOI_PACE_EPOCHS;
    if (o.ranks && o.ranks->size < 2) o.ranks = NULL;
    memset(result, 0, sizeof *result);
    run r = {.o = &o, .watch = watch, .result = result, .at = at, .pace = woi_pace_after(&(woi_history){0})};
    r.report = (woi_train_report){
        .epochs = o.auto_epochs ? 0 : o.epochs, .valid_p_at_1 = NAN, .valid_p_at_5 = NAN, .loss = NAN, .epoch = 1};
    *at = o.output;
    enter(&r, "read");
    wo_status status = prepare(&r, arch, err);
    status = compare_ranks(&r, status, err);
    if (!status) status = train(&r, err);
    if (r.trainer.free) r.trainer.free(r.trainer.self);
    woi_network_free(r.trainer.net);
    woi_checkpoints_free(&r.checkpoints);
    woi_free(r.times);
    woi_kept_free(&r.kept);
    if (status) woi_train_result_free(result);
    return status;
}

void woi_train_result_free(woi_train_result *result)
{
    woi_free(result->valid_by_epoch);
    result->valid_by_epoch = NULL;
}
