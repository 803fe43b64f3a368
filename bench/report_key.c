/* Legends: HTML lists on the page, where they wrap, and lines of text below a picture that stands alone. */
#include "report_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool has_series(const report_set *set, int series)
{
    for (size_t i = 0; i < set->n_rows; i++)
        if (set->rows[i].series == series) return true;
    return false;
}

report_key report_series_key(const report_series *s)
{
    report_key key = {.colour = s->colour, .mark = s->mark, .width = s->family == REPORT_OURS ? "2.6" : "1.4"};
    snprintf(key.text, sizeof key.text, "%.40s%s%.40s", s->method, s->variant ? " " : "", s->variant ? s->variant : "");
    return key;
}

report_key report_full_key(void)
{
    return (report_key){.text = "FULL, the exact layer", .colour = REPORT_INK, .width = "1.5"};
}

size_t report_set_keys(const report *r, const report_set *set, report_key keys[REPORT_MAX_KEYS])
{
    size_t n = 0;
    for (int i = 0; i < r->n_series; i++)
        if (has_series(set, i)) keys[n++] = report_series_key(&r->series[i]);
    keys[n++] = report_full_key();
    keys[n] = (report_key){.colour = REPORT_MUTED, .width = "1", .dash = "2,3"};
    snprintf(keys[n].text, sizeof keys[n].text, "%g%% of its P@1", 100 * report_floor);
    return n + 1;
}

/* ---- On the page --------------------------------------------------------------------------------------------- */

void report_put_keys(const report_key *keys, size_t n, FILE *page)
{
    fputs("<ul class=\"key\">", page);
    for (size_t i = 0; i < n; i++) {
        const report_key *k = &keys[i];
        fputs("<li><svg viewBox=\"0 0 26 10\" xmlns=\"http://www.w3.org/2000/svg\" aria-hidden=\"true\"><g color=\"",
              page);
        if (k->colour >= 0)
            fprintf(page, "var(--s%d)", k->colour);
        else
            fputs(k->colour == REPORT_INK ? "var(--ink)" : "var(--muted)", page);
        fprintf(page, "\"><path d=\"M1,5 H25\" stroke=\"currentColor\" stroke-width=\"%s\"", k->width);
        if (k->dash) fprintf(page, " stroke-dasharray=\"%s\"", k->dash);
        fputs("/>", page);
        if (k->mark) fprintf(page, "<use href=\"#gpPt%d\" transform=\"translate(13,5) scale(3.4)\"/>", k->mark - 1);
        fputs("</g></svg>", page);
        report_put_short(page, k->text, 80);
        fputs("</li>", page);
    }
    fputs("</ul>\n", page);
}

/* ---- In a picture -------------------------------------------------------------------------------------------- */

enum { LINE = 18, LEFT = 16, CELL = 138, CHARACTER = 7 }; /* CHARACTER: as wide as most are, at 12 units */

/* A cell is one or more columns wide. */
static int cells_of(const report_key *k)
{
    return (int)((34 + CHARACTER * strlen(k->text)) / CELL) + 1;
}

/* Where a legend's entry lies, from the one before it. */
static void next_cell(const report_key *k, int columns, int *column, int *row)
{
    const int wide = cells_of(k) < columns ? cells_of(k) : columns;
    if (*column + wide > columns) {
        *column = 0;
        ++*row;
    }
}

int report_keys_height(const report_key *keys, size_t n, int width)
{
    int column = 0, row = 0;
    for (size_t i = 0; i < n; i++) {
        next_cell(&keys[i], (width - LEFT) / CELL, &column, &row);
        column += cells_of(&keys[i]);
    }
    return n ? (row + 1) * LINE + 12 : 0;
}

void report_draw_keys(const report_key *keys, size_t n, int width, int top, FILE *out)
{
    int column = 0, row = 0;
    for (size_t i = 0; i < n; i++) {
        const report_key *k = &keys[i];
        next_cell(k, (width - LEFT) / CELL, &column, &row);
        const int x = LEFT + column * CELL, y = top + 6 + row * LINE + LINE / 2;
        fprintf(out, "<g color=\"%s\"><path d=\"M%d,%d h24\" stroke=\"currentColor\" stroke-width=\"%s\"",
                report_colour(k->colour), x, y, k->width);
        if (k->dash) fprintf(out, " stroke-dasharray=\"%s\"", k->dash);
        fputs("/>", out);
        if (k->mark)
            fprintf(out, "<use xlink:href=\"#gpPt%d\" transform=\"translate(%d,%d) scale(3.4)\"/>", k->mark - 1, x + 12,
                    y);
        fprintf(out, "</g><text x=\"%d\" y=\"%d\" font-size=\"12\" fill=\"%s\">", x + 31, y + 4,
                report_colour(REPORT_INK));
        report_put_short(out, k->text, 56);
        fputs("</text>\n", out);
        column += cells_of(k);
    }
}
