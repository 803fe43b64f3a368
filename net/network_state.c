/* Checkpoints: parameters, their moments, and how far a run is, in a file. Which files, net/checkpoints.c says. */
#include "net/network.h"

#include "base/error.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "NAME", "NAME.adam_m", "NAME.adam_v" */
static void state_name(const woi_param *param, int part, char name[64])
{
    static const char *const endings[] = {"", ".adam_m", ".adam_v"};
    snprintf(name, 64, "%s%s", param->name, endings[part]);
}

static float *state_data(const woi_param *param, int part)
{
    return part == 0 ? param->w : part == 1 ? param->m : param->v;
}

wo_status woi_kept_create(const woi_network *net, woi_kept *kept, wo_error *err)
{
    for (size_t i = 0; i < 3 * net->n_params; i++)
        if (!(kept->state[i] = woi_alloc(net->params[i / 3].n, sizeof(float), err))) return WO_ERR_MEMORY;
    return WO_OK;
}

void woi_kept_free(woi_kept *kept)
{
    for (size_t i = 0; i < sizeof kept->state / sizeof kept->state[0]; i++) woi_free(kept->state[i]);
}

void woi_kept_take(woi_kept *kept, const woi_network *net)
{
    for (size_t i = 0; i < 3 * net->n_params; i++)
        memcpy(kept->state[i], state_data(&net->params[i / 3], (int)(i % 3)), net->params[i / 3].n * sizeof(float));
}

void woi_kept_give(const woi_kept *kept, woi_network *net)
{
    for (size_t i = 0; i < 3 * net->n_params; i++)
        memcpy(state_data(&net->params[i / 3], (int)(i % 3)), kept->state[i], net->params[i / 3].n * sizeof(float));
}

/* What reading would refuse must not take the place of the last good checkpoint. */
static wo_status check_state(const woi_network *net, wo_error *err)
{
    for (size_t i = 0; i < 3 * net->n_params; i++) {
        const woi_param *param = &net->params[i / 3];
        const float *x = state_data(param, (int)(i % 3));
        for (size_t j = 0; j < param->n; j++) {
            if (isfinite(x[j])) continue;
            char name[64];
            state_name(param, (int)(i % 3), name);
            return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_NONE, "lr",
                                  "would have %g as element %zu of '%s', and is not saved", (double)x[j], j, name);
        }
    }
    return WO_OK;
}

/* What a file says about a run beside the parameters. A run of a fixed number of epochs has no history, and its file
 * neither. */
typedef struct position {
    const char *fingerprint;
    char share[32]; /* "1 of 4": whose rows these are; "0 of 1" where all of them are here, and then not in the file */
    uint64_t done;
    double loss;
    woi_history *history;
} position;

enum { HISTORY_TEXT = 32 * WOI_PACE_EPOCHS };

static void list_text(const double *values, uint64_t n, char *text)
{
    size_t used = 0;
    text[0] = 0;
    for (uint64_t i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, HISTORY_TEXT - used, "%s%a", i ? " " : "", values[i]);
}

/* As many numbers as epochs are done. */
static wo_status read_list(const woi_st *st, const char *key, uint64_t n, double *values, wo_error *err)
{
    const char *text = woi_st_meta(st, key);
    char *end;
    uint64_t found = 0;
    while (text && found < n) {
        values[found] = strtod(text, &end);
        if (end == text || !isfinite(values[found])) break;
        text = end;
        found++;
    }
    if (found == n && text && *text == 0) return WO_OK;
    return woi_fail(err, WO_ERR_FORMAT, 8, "its '%s' is not a list of %" PRIu64 " numbers", key, n);
}

static const char all_rows[] = "0 of 1";

static position position_of(const woi_network *net, const char *fingerprint, woi_history *history)
{
    position at = {.fingerprint = fingerprint, .history = history};
    const woi_portion share = woi_portion_of(net->ranks, net->m);
    snprintf(at.share, sizeof at.share, "%zu of %zu", share.first, share.stride);
    return at;
}

static wo_status set_position(woi_st_writer *writer, const position *at, wo_error *err)
{
    char text[HISTORY_TEXT];
    wo_status status = woi_st_set_meta(writer, "fingerprint", at->fingerprint, err);
    if (!status && strcmp(at->share, all_rows) != 0) status = woi_st_set_meta(writer, "share", at->share, err);
    snprintf(text, sizeof text, "%" PRIu64, at->done);
    if (!status) status = woi_st_set_meta(writer, "epochs_done", text, err);
    snprintf(text, sizeof text, "%a", at->loss);
    if (!status) status = woi_st_set_meta(writer, "loss", text, err);
    if (status || !at->history) return status;
    list_text(at->history->p_at_1, at->history->n, text);
    if ((status = woi_st_set_meta(writer, "valid_p_at_1", text, err))) return status;
    list_text(at->history->loss, at->history->n, text);
    return woi_st_set_meta(writer, "losses", text, err);
}

static wo_status read_position(const woi_st *st, position *at, wo_error *err)
{
    if (!woi_st_kind(st) || strcmp(woi_st_kind(st), "checkpoint") != 0)
        return woi_fail(err, WO_ERR_FORMAT, 8, "is not a checkpoint of wideout's");
    const char *share = woi_st_meta(st, "share"), *fingerprint = woi_st_meta(st, "fingerprint");
    char quoted[WOI_QUOTE_BYTES], *end;
    if (!share) share = all_rows;
    if (strcmp(share, at->share) != 0)
        return woi_fail(err, WO_ERR_ARGUMENT, 8, "is share '%s' of a run, expected %s: resume with as many processes",
                        woi_quote(quoted, share, strlen(share)), at->share);
    if (!fingerprint || strcmp(fingerprint, at->fingerprint) != 0)
        return woi_fail_about(err, WO_ERR_ARGUMENT, WO_ABOUT_NONE, "resume",
                              "belongs to another network, other data or other options");
    const char *epochs = woi_st_meta(st, "epochs_done"), *stated = woi_st_meta(st, "loss");
    if (!epochs || !stated) return woi_fail(err, WO_ERR_FORMAT, 8, "does not say how many epochs are done");
    errno = 0;
    at->done = strtoull(epochs, &end, 10);
    if (*epochs < '0' || *epochs > '9' || *end || errno)
        return woi_fail(err, WO_ERR_FORMAT, 8, "has '%s' epochs done, expected a number",
                        woi_quote(quoted, epochs, strlen(epochs)));
    at->loss = strtod(stated, &end);
    if (end == stated || *end || !isfinite(at->loss))
        return woi_fail(err, WO_ERR_FORMAT, 8, "has a loss of '%s', expected a number",
                        woi_quote(quoted, stated, strlen(stated)));
    if (!at->history) return WO_OK;
    if (at->done == 0 || at->done > WOI_PACE_EPOCHS)
        return woi_fail(err, WO_ERR_FORMAT, 8, "has %" PRIu64 " epochs done, expected 1 to %d", at->done,
                        WOI_PACE_EPOCHS);
    at->history->n = at->done;
    wo_status status = read_list(st, "valid_p_at_1", at->done, at->history->p_at_1, err);
    return status ? status : read_list(st, "losses", at->done, at->history->loss, err);
}

/* "NAME.kept", "NAME.adam_m.kept", "NAME.adam_v.kept" */
static void kept_name(const woi_param *param, int part, char name[64])
{
    state_name(param, part, name);
    strncat(name, ".kept", 63 - strlen(name));
}

static wo_status save_checkpoint(const woi_network *net, const woi_kept *kept, const char *path, const position *at,
                                 wo_error *err)
{
    const size_t n = 3 * net->n_params, all = kept ? 2 * n : n;
    woi_st_writer *writer = NULL;
    wo_status status = check_state(net, err);
    if (!status) status = woi_st_create(path, "checkpoint", &writer, err);
    if (status) return status;
    status = set_position(writer, at, err);
    for (size_t i = 0; !status && i < all; i++) {
        const woi_param *param = &net->params[(i < n ? i : i - n) / 3];
        char name[64];
        (i < n ? state_name : kept_name)(param, (int)(i % 3), name);
        status = woi_st_declare(writer, name, WOI_F32, param->n_dims, param->shape, err);
    }
    for (size_t i = 0; !status && i < all; i++) {
        const woi_param *param = &net->params[(i < n ? i : i - n) / 3];
        status = woi_st_append(writer, i < n ? state_data(param, (int)(i % 3)) : kept->state[i - n],
                               param->n * sizeof(float), err);
    }
    if (!status) status = woi_st_finish(writer, err);
    woi_st_writer_free(writer);
    return status;
}

static wo_status read_checkpoint(const woi_st *st, woi_network *net, woi_kept *kept, position *at, wo_error *err)
{
    const size_t n = 3 * net->n_params;
    char name[64];
    wo_status status = read_position(st, at, err);
    if (!status) status = woi_st_verify(st, NULL, err);
    for (size_t i = 0; !status && i < n; i++) {
        state_name(&net->params[i / 3], (int)(i % 3), name);
        status = woi_param_read(st, name, &net->params[i / 3], state_data(&net->params[i / 3], (int)(i % 3)), err);
    }
    if (status || !kept) return status;
    kept_name(&net->params[0], 0, name);
    if (!woi_st_find(st, name)) {
        woi_kept_take(kept, net);
        return WO_OK;
    }
    for (size_t i = 0; !status && i < n; i++) {
        kept_name(&net->params[i / 3], (int)(i % 3), name);
        status = woi_param_read(st, name, &net->params[i / 3], kept->state[i], err);
    }
    return status;
}

static wo_status load_checkpoint(woi_network *net, woi_kept *kept, const char *path, position *at, wo_error *err)
{
    woi_st *st = NULL;
    wo_status status = woi_st_open(path, &st, err);
    if (!status) status = read_checkpoint(st, net, kept, at, err);
    woi_st_free(st);
    return status;
}

wo_status woi_checkpoint_save(const woi_network *net, const char *path, const char *fingerprint, uint64_t done,
                              double loss, wo_error *err)
{
    position at = position_of(net, fingerprint, NULL);
    at.done = done;
    at.loss = loss;
    return save_checkpoint(net, NULL, path, &at, err);
}

wo_status woi_checkpoint_load(woi_network *net, const char *path, const char *fingerprint, uint64_t *done, double *loss,
                              wo_error *err)
{
    position at = position_of(net, fingerprint, NULL);
    wo_status status = load_checkpoint(net, NULL, path, &at, err);
    *done = at.done;
    *loss = at.loss;
    return status;
}

wo_status woi_checkpoint_peek(const woi_network *net, const char *path, const char *fingerprint, uint64_t *done,
                              wo_error *err)
{
    position at = position_of(net, fingerprint, NULL);
    woi_st *st = NULL;
    wo_status status = woi_st_open(path, &st, err);
    if (!status) status = read_position(st, &at, err);
    woi_st_free(st);
    *done = at.done;
    return status;
}

wo_status woi_checkpoint_save_auto(const woi_network *net, const woi_kept *kept, const char *path,
                                   const char *fingerprint, const woi_history *history, wo_error *err)
{
    woi_history copy = *history;
    position at = position_of(net, fingerprint, &copy);
    at.done = copy.n;
    at.loss = copy.loss[copy.n - 1];
    return save_checkpoint(net, kept, path, &at, err);
}

wo_status woi_checkpoint_load_auto(woi_network *net, woi_kept *kept, const char *path, const char *fingerprint,
                                   woi_history *history, wo_error *err)
{
    position at = position_of(net, fingerprint, history);
    return load_checkpoint(net, kept, path, &at, err);
}
