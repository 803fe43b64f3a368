/* Counters that any thread adds to, and their text for Prometheus. */
#include "server.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* 0: any other. */
static const int codes[WOI_N_CODES] = {200, 400, 401, 403, 404, 405, 408, 411, 413, 415, 500, 501, 503, 0};

/* Upper bounds in microseconds: searches take one, the exact layer a thousand times that. */
static const unsigned latencies_us[WOI_N_LATENCIES] = {
    5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000, 5000000};

void woi_metrics_request(woi_server *server, size_t route, int status, double seconds)
{
    woi_metrics *m = &server->metrics;
    size_t code = 0, slot = 0;
    while (codes[code] && codes[code] != status) code++;
    const double us = 1e6 * seconds;
    while (slot < WOI_N_LATENCIES && us > latencies_us[slot]) slot++;
    if (route > WOI_MAX_ROUTES) route = WOI_MAX_ROUTES;
    atomic_fetch_add_explicit(&m->requests[route][code], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->latency[slot], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->latency_us, (unsigned long long)us, memory_order_relaxed);
}

/* ---- Text -------------------------------------------------------------------------------------------------- */

static void begin_metric(woi_out *out, const char *name, const char *type, const char *help)
{
    woi_out_format(out, "# HELP wideout_%s %s\n# TYPE wideout_%s %s\n", name, help, name, type);
}

static void counter(woi_out *out, const char *name, const char *help, unsigned long long value)
{
    begin_metric(out, name, "counter", help);
    woi_out_format(out, "wideout_%s %llu\n", name, value);
}

static void gauge(woi_out *out, const char *name, const char *help, double value)
{
    begin_metric(out, name, "gauge", help);
    woi_out_format(out, "wideout_%s %.10g\n", name, value);
}

static void show_requests(woi_out *out, const woi_metrics *m)
{
    begin_metric(out, "requests_total", "counter", "Requests that were answered, by path and status.");
    for (size_t route = 0; route <= WOI_MAX_ROUTES; route++)
        for (size_t code = 0; code < WOI_N_CODES; code++) {
            const unsigned long long n = atomic_load_explicit(&m->requests[route][code], memory_order_relaxed);
            const char *name = woi_route_name(route);
            char status[16] = "other";
            if (codes[code]) snprintf(status, sizeof status, "%d", codes[code]);
            if (n)
                woi_out_format(out, "wideout_requests_total{path=\"%s\",code=\"%s\"} %llu\n", name ? name : "other",
                               status, n);
        }
    unsigned long long errors = 0;
    for (size_t route = 0; route <= WOI_MAX_ROUTES; route++)
        for (size_t code = 0; code < WOI_N_CODES; code++)
            if (codes[code] != 200) errors += atomic_load_explicit(&m->requests[route][code], memory_order_relaxed);
    counter(out, "errors_total", "Requests that were answered with another status than 200.", errors);
}

static void show_latency(woi_out *out, const woi_metrics *m)
{
    unsigned long long sum = 0;
    begin_metric(out, "request_seconds", "histogram", "From the last byte of a request to its answer.");
    for (size_t i = 0; i < WOI_N_LATENCIES; i++) {
        sum += atomic_load_explicit(&m->latency[i], memory_order_relaxed);
        woi_out_format(out, "wideout_request_seconds_bucket{le=\"%g\"} %llu\n", latencies_us[i] * 1e-6, sum);
    }
    sum += atomic_load_explicit(&m->latency[WOI_N_LATENCIES], memory_order_relaxed);
    woi_out_format(out, "wideout_request_seconds_bucket{le=\"+Inf\"} %llu\n", sum);
    woi_out_format(out, "wideout_request_seconds_sum %.6f\nwideout_request_seconds_count %llu\n",
                   (double)atomic_load(&m->latency_us) * 1e-6, sum);
}

static void show_sizes(woi_out *out, const woi_metrics *m)
{
    unsigned long long sum = 0;
    begin_metric(out, "batch_queries", "histogram", "Queries of a search.");
    for (size_t i = 0; i < WOI_N_SIZES; i++) {
        sum += atomic_load_explicit(&m->sizes[i], memory_order_relaxed);
        woi_out_format(out, "wideout_batch_queries_bucket{le=\"%zu\"} %llu\n", (size_t)1 << i, sum);
    }
    sum += atomic_load_explicit(&m->sizes[WOI_N_SIZES], memory_order_relaxed);
    woi_out_format(out, "wideout_batch_queries_bucket{le=\"+Inf\"} %llu\n", sum);
    woi_out_format(out, "wideout_batch_queries_sum %llu\nwideout_batch_queries_count %llu\n",
                   (unsigned long long)atomic_load(&m->queries), sum);
}

static void show_searches(woi_out *out, const woi_metrics *m)
{
    counter(out, "classes_scored_total", "Classes whose rows were multiplied with a query.", atomic_load(&m->classes));
    begin_metric(out, "queries_total", "counter", "Queries, by who answered them.");
    woi_out_format(out,
                   "wideout_queries_total{by=\"cells\"} %llu\nwideout_queries_total{by=\"wider\"} %llu\n"
                   "wideout_queries_total{by=\"full\"} %llu\n",
                   (unsigned long long)atomic_load(&m->by_cells), (unsigned long long)atomic_load(&m->by_wider),
                   (unsigned long long)atomic_load(&m->by_full));
}

static void show_bound(woi_out *out, const char *name, const char *help, double at1, double at5)
{
    begin_metric(out, name, "gauge", help);
    woi_out_format(out, "wideout_%s{k=\"1\"} %.6f\nwideout_%s{k=\"5\"} %.6f\n", name, at1, name, at5);
}

static void show_share(woi_out *out, const char *name, const char *help, const woi_share *share)
{
    char bound[40];
    show_bound(out, name, help, share->at1, share->at5);
    snprintf(bound, sizeof bound, "%s_low", name);
    show_bound(out, bound, "Its lower bound, with 95% confidence.", share->low1, share->low5);
    snprintf(bound, sizeof bound, "%s_high", name);
    show_bound(out, bound, "Its upper bound, with 95% confidence.", share->high1, share->high5);
}

static void show_agreement(woi_out *out, const woi_agreement *a)
{
    counter(out, "shadow_checked_total", "Queries that were also answered over all classes.", a->checked);
    counter(out, "shadow_dropped_total", "Queries that were drawn for that, but came too fast.", a->dropped);
    gauge(out, "shadow_alarm", "1 where agreement is below the alarm.", a->alarm);
    if (!a->n) return;
    gauge(out, "shadow_window_queries", "Queries that agreement is about: the last ones.", (double)a->n);
    show_share(out, "agreement",
               "Share of the k best answers among all classes, by the same scores, that the index had.", &a->same);
    if (a->has_drift)
        show_bound(out, "drift", "Agreement in the first window of this index, less that of the last.", a->drift1,
                   a->drift5);
    show_share(out, "layer_agreement", "The same beside the layer alone, without the index's prior.", &a->layer);
}

static void show_learning(woi_out *out, const woi_learning *l)
{
    const wo_adapter_info *of = &l->of_index;
    gauge(out, "generation", "Of the index that answers: publications of what was learned, since the start.",
          (double)l->generation);
    gauge(out, "learned_queries", "Queries that the index has learned from since it was opened.", (double)of->queries);
    gauge(out, "learned_cells", "Cells that changed by them.", (double)of->cells);
    gauge(out, "learned_entries_added", "Classes that joined a cell.", (double)of->entries_added);
    gauge(out, "learned_entries_left", "Classes that left a cell.", (double)of->entries_left);
    counter(out, "learned_dropped_total",
            "Queries that came too fast to be learned from, could not be kept, or do not fit the index.", l->dropped);
    gauge(out, "learning_stopped",
          "1 where no feedback is taken: the journal cannot be written, or the index cannot be learned for.",
          l->stopped);
    counter(out, "journal_changes_total",
            "Times that the journal was found cut, moved, removed or replaced, and opened anew.", l->journal_changes);
}

static size_t open_files(void)
{
    size_t n = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) n++;
    if (folder) closedir(folder);
    return n > 3 ? n - 3 : 0; /* ., .. and the folder itself */
}

static double resident_bytes(void)
{
    unsigned long long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%llu %llu", &all, &resident) != 2) resident = 0; // NOLINT(cert-err34-c): the kernel's own text
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

static void show_process(woi_out *out)
{
    woi_out_text(out, "# HELP process_open_fds Open file descriptors.\n# TYPE process_open_fds gauge\n");
    woi_out_format(out, "process_open_fds %zu\n", open_files());
    woi_out_text(out, "# HELP process_resident_memory_bytes Resident memory.\n"
                      "# TYPE process_resident_memory_bytes gauge\n");
    woi_out_format(out, "process_resident_memory_bytes %.0f\n", resident_bytes());
}

void woi_metrics_show(woi_server *server, const woi_request *request, woi_reply *reply)
{
    (void)request;
    const woi_metrics *m = &server->metrics;
    woi_out *out = &reply->body;
    const char *why;
    woi_lease lease;
    reply->status = 200;
    reply->type = "text/plain; version=0.0.4; charset=utf-8";
    show_requests(out, m);
    show_latency(out, m);
    show_sizes(out, m);
    show_searches(out, m);
    begin_metric(out, "reloads_total", "counter", "Times that the files were opened again.");
    woi_out_format(out, "wideout_reloads_total{result=\"ok\"} %llu\nwideout_reloads_total{result=\"failed\"} %llu\n",
                   (unsigned long long)atomic_load(&m->reloads), (unsigned long long)atomic_load(&m->failed_reloads));
    counter(out, "expired_requests_total", "Requests that did not come within their time.", atomic_load(&m->expired));
    counter(out, "unread_answers_total", "Answers that were not read within their time.", atomic_load(&m->unread));
    gauge(out, "connections", "Open connections.", (double)atomic_load(&m->connections));
    gauge(out, "held_bytes",
          "Bytes of bodies that are not answered, and of answers that are not read, beyond 16384 each.",
          (double)atomic_load(&m->held));
    gauge(out, "ready", "1 where requests are answered.", woi_is_ready(server, &why));
    woi_snapshot_take(server, &lease);
    begin_metric(out, "index_info", "gauge", "The index that answers.");
    woi_out_format(out, "wideout_index_info{checksum=\"%s\",method=\"%s\",m=\"%zu\",d=\"%zu\"} 1\n",
                   lease.snapshot->digits, lease.snapshot->info.method_name, lease.snapshot->info.m,
                   lease.snapshot->info.d);
    woi_snapshot_give(server, &lease);
    if (server->shards) woi_shards_metrics(server, out);
    woi_agreement agreement;
    if (woi_shadow_tell(server, &agreement)) show_agreement(out, &agreement);
    woi_learning learning;
    if (woi_learn_tell(server, &learning)) show_learning(out, &learning);
    show_process(out);
}
