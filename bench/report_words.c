/* What the words on the page mean: the columns, the methods and the settings that are on this page, and no others. */
#include "report_data.h"

#include <math.h>
#include <string.h>

typedef struct word {
    const char *name, *meaning; /* HTML of our own */
} word;

static const word words[] = {
    {"FULL",
     "The exact layer: every class is scored for every query, and the best are kept. All else is held against it, on "
     "the same queries and, for times, in turn with it in the same run."},
    {"P@1, P@5", "The share of queries whose best answer is a true label; the share of true labels among the five best "
                 "answers. <i>Of FULL’s</i> is a method’s P@1 divided by FULL’s: an index can be above 100%."},
    {"classes scored", "With how many classes a query is compared, on average. The rest of the layer is not touched."},
    {"labels found", "The share of all true labels that are among the classes scored, whatever their place."},
    {"batch, threads",
     "How many queries are handed over in one call, and on how many threads it runs. One by one is what a "
     "server with single requests sees, a large batch what a nightly job sees."},
    {"µs a query", "Microseconds, the median over many calls: a call’s time divided by its batch. Caches are warm."},
    {"times as fast", "FULL’s time divided by the method’s, of the same batch and threads."},
    {"configuration",
     "A method with its settings. A row of a table is one, a curve of a plot is a method’s row of them."},
    {NULL, NULL},
};

static const word methods[] = {
    {"evidence",
     "wideout’s own: a router sends a query to a few cells, and a cell holds the classes that logged queries in it "
     "needed."},
    {"tuned", "What wideout’s tuner found on validation data to be the fastest with its share of FULL’s quality."},
    {"screen", "All classes are looked through in int8, and the best few are scored exactly."},
    {"popular", "The same few most frequent classes are scored for every query: what any method must beat."},
    {"slide", "Tables of random hyperplanes; a class lies where its own weights hash to."},
    {"lss", "Tables of hyperplanes that are learned from labels (<i>Climbing the WOL</i>, 2020), filled as those of "
            "slide: by the hash of a class’s weights."},
    {"torch-full", "The exact layer by PyTorch."},
    {"pq", "Faiss: product quantisation of all classes, the best scored again with exact rows."},
    {"sq8", "Faiss: all classes in 8 bits, the best scored again with exact rows."},
    {"ivf", "Faiss: lists of similar classes, of which the nearest are scanned."},
    {"ip-nsw", "hnswlib: a graph over the classes, walked by inner product."},
    {"graph-decoder", "hnswlib: a graph over the classes, walked by distance after a transform."},
    {NULL, NULL},
};

static const word settings[] = {
    {"K", "bits of a cell’s number: hyperplanes in a table"},
    {"L", "tables"},
    {"lambda", "how much of a cell’s evidence a class must have to stay in it; smaller: more classes"},
    {"probes", "cells that are opened in a table"},
    {"router", "what finds the cells: hyperplanes, or a tree of k-means"},
    {"N", "how many classes"},
    {"ef", "length of the list that a walk keeps"},
    {"M", "links of a point"},
    {"efc", "the list’s length while building"},
    {"nprobe", "lists scanned"},
    {"rerank", "answers scored again"},
    {"part", "weights to a code"},
    {"seconds", "how long the tuner searched"},
    {NULL, NULL},
};

static void put_word(FILE *page, const word *w)
{
    fprintf(page, "<dt>%s</dt><dd>%s</dd>\n", w->name, w->meaning);
}

static bool is_method(const report *r, const char *name)
{
    for (int i = 0; i < r->n_series; i++)
        if (strcmp(r->series[i].method, name) == 0) return true;
    return false;
}

/* Whether a label or what a tuner chose has " NAME=" in it. */
static bool has_setting(const char *text, const char *name)
{
    const size_t bytes = strlen(name);
    for (const char *at = text; at && (at = strstr(at, name)); at++)
        if (at > text && at[-1] == ' ' && at[bytes] == '=') return true;
    return false;
}

static bool is_setting(const report *r, const char *name)
{
    for (size_t i = 0; i < r->n_sets; i++)
        for (size_t j = 0; j < r->sets[i].n_rows; j++)
            if (has_setting(r->sets[i].rows[j].label, name) || has_setting(r->sets[i].rows[j].chosen, name))
                return true;
    return false;
}

static void put_settings(const report *r, FILE *page)
{
    const char *before = "<dt>settings</dt><dd>";
    for (const word *w = settings; w->name; w++) {
        if (!is_setting(r, w->name)) continue;
        fprintf(page, "%s<i>%s</i>: %s", before, w->name, w->meaning);
        before = "; ";
    }
    if (before[0] == ';') fputs(".</dd>\n", page);
}

void report_put_words(const report *r, FILE *page)
{
    bool built = false, sized = false, seconds = false, joules = false;
    for (size_t i = 0; i < r->n_sets; i++) {
        for (size_t j = 0; j < r->sets[i].n_rows; j++) {
            const report_row *row = &r->sets[i].rows[j];
            built |= !isnan(row->build_s);
            sized |= !isnan(row->index_bytes);
            seconds |= !isnan(row->cpu_s_per_1000);
            joules |= !isnan(row->energy_j_per_1000);
        }
    }
    fputs("<section>\n<h2 id=\"words\">What the words mean</h2>\n<dl class=\"words\">\n", page);
    for (const word *w = words; w->name; w++) put_word(page, w);
    if (built) put_word(page, &(word){"build s", "Seconds that building the index took, on all threads."});
    if (sized)
        put_word(
            page,
            &(word){"MiB",
                    "What the index holds in memory besides the layer’s rows; a peer’s copy of them is counted in."});
    if (seconds) put_word(page, &(word){"CPU s", "Seconds of all processors for 1,000 queries, in the largest batch."});
    put_word(
        page,
        joules ? &(word){"J", "Joules of processor and memory for 1,000 queries, those of the idle machine taken off."}
               : &(word){"joules", "Energy was not measured here. It is never estimated."});
    for (const word *w = methods; w->name; w++)
        if (is_method(r, w->name)) put_word(page, w);
    put_settings(r, page);
    fputs("</dl>\n</section>\n", page);
}
