/* Runs gnuplot, and makes its SVG fit to stand inside the page.
 *
 *   script ── unlinked file ──> gnuplot -d ── pipe ──> the SVG ── copied tag by tag ──> page
 *
 * There is no shell, and no text from a result file in the script: a label is written "@7" there and put in its place
 * while the SVG is copied. Copying keeps known tags and attributes only, which also drops what a page may have but once
 * (ids, the definitions of marks), groups without content (a third of gnuplot's bytes), and fonts. Colours become the
 * style's variables, so that a picture follows dark and light. */
#include "report_data.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- Colours ------------------------------------------------------------------------------------------------- */

/* The light scheme's, as scripts name them. Series first: REPORT_COLOURS of them. */
static const struct {
    const char *rgb, *variable;
} colours[] = {
    {"#c2410c", "var(--s0)"},  {"#6b7280", "var(--s1)"},    {"#0891b2", "var(--s2)"},    {"#7c3aed", "var(--s3)"},
    {"#c026d3", "var(--s4)"},  {"#15803d", "var(--s5)"},    {"#2563eb", "var(--s6)"},    {"#65a30d", "var(--s7)"},
    {"#854d0e", "var(--s8)"},  {"#be123c", "var(--s9)"},    {"#0f766e", "var(--s10)"},   {"#475569", "var(--s11)"},
    {"#831843", "var(--s12)"}, {"#1f2328", "currentColor"}, {"#59636e", "var(--muted)"}, {"#d8dde3", "var(--line)"},
};
enum { N_COLOURS = sizeof colours / sizeof *colours };

const char *report_colour(int colour)
{
    return colours[colour == REPORT_INK ? REPORT_COLOURS : colour == REPORT_MUTED ? REPORT_COLOURS + 1 : colour].rgb;
}

/* "rgb( 194, 65, 12)" or "#c2410c" as a variable, or, where it stays, as "#c2410c"; everything else, "none" and
 * "currentColor" too, as it is. */
static void put_colour(FILE *page, const char *value, size_t bytes, bool stays)
{
    char text[32];
    unsigned rgb = 0, red, green, blue;
    snprintf(text, sizeof text, "%.*s", (int)bytes, value);
    bool found = false;
    if (sscanf(text, "rgb(%u ,%u ,%u", &red, &green, &blue) == 3) {
        rgb = red << 16 | green << 8 | blue;
        found = true;
    } else if (text[0] == '#' && strlen(text) == 7) {
        rgb = (unsigned)strtoul(text + 1, NULL, 16);
        found = true;
    }
    if (stays && (found || strcmp(text, "black") == 0)) {
        fprintf(page, "#%06x", rgb & 0xffffff);
        return;
    }
    for (size_t i = 0; found && i < N_COLOURS; i++) {
        if (strtoul(colours[i].rgb + 1, NULL, 16) != rgb) continue;
        fputs(colours[i].variable, page);
        return;
    }
    if (found || strcmp(text, "black") == 0)
        fputs("currentColor", page);
    else
        report_put_text(page, text);
}

/* ---- The SVG, tag by tag ------------------------------------------------------------------------------------ */

typedef struct copier {
    const char *at, *end;
    const char *const *labels;
    size_t n_labels;
    FILE *page;
    bool colours_stay;
    const char *group; /* a <g ...> that was read and not yet written: it may turn out to be empty */
    size_t group_bytes;
} copier;

static bool is_one_of(const char *word, size_t bytes, const char *const *words)
{
    for (; *words; words++)
        if (strlen(*words) == bytes && memcmp(*words, word, bytes) == 0) return true;
    return false;
}

static size_t name_bytes(const char *at, const char *end)
{
    size_t n = 0;
    while (at + n < end && (isalnum((unsigned char)at[n]) || at[n] == '-' || at[n] == ':' || at[n] == '_')) n++;
    return n;
}

/* A tag from behind its '<' to before its '>'. */
static void put_tag(FILE *page, const char *tag, size_t bytes, bool colours_stay)
{
    static const char *const kept[] = {"transform",
                                       "d",
                                       "x",
                                       "y",
                                       "width",
                                       "height",
                                       "r",
                                       "cx",
                                       "cy",
                                       "points",
                                       "stroke",
                                       "fill",
                                       "color",
                                       "stroke-width",
                                       "stroke-linecap",
                                       "stroke-linejoin",
                                       "stroke-dasharray",
                                       "fill-opacity",
                                       "text-anchor",
                                       "font-size",
                                       "xlink:href",
                                       NULL};
    static const char *const coloured[] = {"stroke", "fill", "color", NULL};
    const char *end = tag + bytes, *at = tag + name_bytes(tag, end);
    fprintf(page, "<%.*s", (int)(at - tag), tag);
    while (at < end) {
        const size_t n = name_bytes(at, end);
        const char *value = at + n; /* behind the opening quote; polygons have spaces around '=' */
        while (value < end && (*value == ' ' || *value == '=')) value++;
        if (n == 0 || value + 1 >= end || (*value != '"' && *value != '\'')) {
            at += n ? n : 1;
            continue;
        }
        value++;
        const char *close = memchr(value, value[-1], (size_t)(end - value));
        if (!close) break;
        const size_t length = (size_t)(close - value);
        if (is_one_of(at, n, kept)) {
            fprintf(page, " %.*s=\"", (int)n, at);
            if (is_one_of(at, n, coloured))
                put_colour(page, value, length, colours_stay);
            else
                for (const char *c = value; c < close; c++) /* gnuplot breaks long paths into lines */
                    if (!isspace((unsigned char)*c))
                        fputc(*c, page);
                    else if (c + 1 < close && !isspace((unsigned char)c[1]))
                        fputc(' ', page);
            fputc('"', page);
        }
        at = close + 1;
    }
    fputs(end[-1] == '/' ? "/>" : ">", page);
}

static void put_group(copier *c)
{
    if (c->group) put_tag(c->page, c->group, c->group_bytes, c->colours_stay);
    c->group = NULL;
}

static void put_content(copier *c, const char *text, size_t bytes)
{
    while (bytes && isspace((unsigned char)*text)) text++, bytes--;
    while (bytes && isspace((unsigned char)text[bytes - 1])) bytes--;
    if (!bytes) return;
    put_group(c);
    char *end = NULL;
    const unsigned long label = text[0] == '@' ? strtoul(text + 1, &end, 10) : 0;
    if (end == text + bytes && label < c->n_labels)
        report_put_short(c->page, c->labels[label], 16);
    else
        fwrite(text, 1, bytes, c->page); /* XML already */
}

static void copy_tags(copier *c)
{
    static const char *const kept[] = {"g",        "path", "rect", "circle", "polygon",
                                       "polyline", "use",  "text", "tspan",  NULL};
    static const char *const dropped[] = {"title", "desc", "defs", "style", "script", NULL}; /* with their content */
    while (c->at < c->end) {
        const char *open = memchr(c->at, '<', (size_t)(c->end - c->at));
        const char *close = open ? memchr(open, '>', (size_t)(c->end - open)) : NULL;
        if (!close) return;
        put_content(c, c->at, (size_t)(open - c->at));
        c->at = close + 1;
        const bool ends = open[1] == '/';
        const char *tag = open + 1 + ends;
        const size_t bytes = (size_t)(close - tag), n = name_bytes(tag, close);
        if (is_one_of(tag, n, dropped) && !ends) {
            char closing[16];
            snprintf(closing, sizeof closing, "</%.*s>", (int)n, tag);
            const char *behind = memmem(c->at, (size_t)(c->end - c->at), closing, strlen(closing));
            if (behind) c->at = behind + strlen(closing);
        } else if (!is_one_of(tag, n, kept)) {
            continue;
        } else if (ends && c->group && n == 1) {
            c->group = NULL;
        } else if (ends) {
            fprintf(c->page, "</%.*s>", (int)n, tag);
        } else {
            put_group(c);
            if (n == 1) { /* g */
                c->group = tag;
                c->group_bytes = bytes;
            } else {
                put_tag(c->page, tag, bytes, c->colours_stay);
            }
        }
    }
}

/* ---- The program --------------------------------------------------------------------------------------------- */

static int script_file(const char *script)
{
    const int fd = memfd_create("script", MFD_CLOEXEC);
    const size_t bytes = strlen(script);
    if (fd >= 0 && write(fd, script, bytes) == (ssize_t)bytes && lseek(fd, 0, SEEK_SET) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* All that comes out of fd, terminated; NULL where memory runs out. The caller frees it. */
static char *read_all(int fd, size_t *n_bytes)
{
    char *text = NULL, piece[4096];
    FILE *out = open_memstream(&text, n_bytes);
    if (!out) return NULL;
    for (ssize_t n; (n = read(fd, piece, sizeof piece)) != 0;) {
        if (n < 0 && errno != EINTR) break;
        if (n > 0) fwrite(piece, 1, (size_t)n, out);
    }
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

/* gnuplot's standard output; NULL with the problem. */
static char *run_gnuplot(report_plotter *plotter, const char *script, size_t *n_bytes)
{
    char arg0[] = "gnuplot", arg1[] = "-d"; /* -d: not the user's own settings */
    char *const argv[] = {arg0, arg1, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2], status = 0;
    char *svg = NULL;
    pid_t child;
    const int in = script_file(script);
    if (in < 0 || pipe2(ends, O_CLOEXEC)) {
        snprintf(plotter->problem, sizeof plotter->problem, "gnuplot could not be started: %s", strerror(errno));
        if (in >= 0) close(in);
        return NULL;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    const int failed = posix_spawnp(&child, "gnuplot", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in);
    close(ends[1]);
    if (failed == ENOENT) {
        snprintf(plotter->problem, sizeof plotter->problem, "gnuplot is not installed (Debian: gnuplot-nox)");
    } else if (failed) {
        snprintf(plotter->problem, sizeof plotter->problem, "gnuplot could not be started: %s", strerror(failed));
    } else {
        svg = read_all(ends[0], n_bytes);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
        if (!svg || status != 0 || !strstr(svg, "</svg>")) {
            snprintf(plotter->problem, sizeof plotter->problem, "gnuplot did not draw a picture (version 5 is needed)");
            free(svg);
            svg = NULL;
        }
    }
    close(ends[0]);
    return svg;
}

/* The marks that gnuplot's pictures refer to. */
static void put_marks(FILE *out, const char *ground)
{
    static const char *const shapes[] = {
        /* gpPtN is gnuplot's type N + 1: squares, circles, triangles, triangles upside down, diamonds, pentagons */
        "M-1,-1 h2 v2 h-2 z",
        "M-1,0 a1,1 0 1,0 2,0 a1,1 0 1,0 -2,0 z",
        "M0,-1.33 L-1.33,0.67 L1.33,0.67 z",
        "M0,1.33 L-1.33,-0.67 L1.33,-0.67 z",
        "M0,-1.41 L1.41,0 L0,1.41 L-1.41,0 z",
        "M0,-1.33 L1.265,-0.411 L0.782,1.067 L-0.782,1.067 L-1.265,-0.411 z"};
    fputs("<defs>\n", out);
    fputs("<path id=\"gpPt2\" stroke-width=\"0.35\" stroke=\"currentColor\" fill=\"currentColor\" d=\"M-1.3,-0.7 "
          "L-0.7,-1.3 L0,-0.6 "
          "L0.7,-1.3 L1.3,-0.7 L0.6,0 L1.3,0.7 L0.7,1.3 L0,0.6 L-0.7,1.3 L-1.3,0.7 L-0.6,0 z\"/>\n",
          out);                  /* a cross */
    for (int i = 0; i < 12; i++) /* open ones hide the line below them */
        fprintf(out, "<path id=\"gpPt%d\" stroke-width=\"0.35\" stroke=\"currentColor\" fill=\"%s\" d=\"%s\"/>\n",
                3 + i, i % 2 ? "currentColor" : ground, shapes[i / 2]);
    fputs("</defs>", out);
}

void report_put_marks(FILE *page)
{
    fputs("<svg width=\"0\" height=\"0\" class=\"marks\" aria-hidden=\"true\" "
          "xmlns=\"http://www.w3.org/2000/svg\">",
          page);
    put_marks(page, "var(--ground)");
    fputs("</svg>\n", page);
}

/* A picture that stands alone: white, as it may be shown upon anything. */
static bool keep_picture(report_plotter *plotter, const report_frame *frame, const char *alt, copier from, int width,
                         int height)
{
    enum { TITLE = 48 };
    static const char ground[] = "#ffffff";
    report_picture picture = {.name = ""};
    report_picture *all = realloc(plotter->pictures, (plotter->n_pictures + 1) * sizeof *all);
    if (!all) return false;
    plotter->pictures = all;
    from.page = open_memstream(&picture.text, &picture.bytes);
    if (!from.page) return false;
    const int all_height = TITLE + height + report_keys_height(frame->keys, frame->n_keys, width) + 4;
    fprintf(from.page,
            "<svg viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\" "
            "xmlns:xlink=\"http://www.w3.org/1999/xlink\" color=\"%s\" font-family=\"system-ui,-apple-system,'Segoe "
            "UI',Roboto,'Noto Sans','DejaVu Sans',sans-serif\">\n<title>",
            width, all_height, width * 3 / 2, all_height * 3 / 2, report_colour(REPORT_INK));
    report_put_text(from.page, alt);
    fputs("</title>\n", from.page);
    put_marks(from.page, ground);
    fprintf(from.page, "<rect width=\"%d\" height=\"%d\" rx=\"6\" fill=\"%s\"/>\n", width, all_height, ground);
    fprintf(from.page, "<text x=\"16\" y=\"24\" font-size=\"14\" font-weight=\"600\" fill=\"%s\">",
            report_colour(REPORT_INK));
    report_put_short(from.page, frame->title, 50);
    fprintf(from.page, "</text>\n<text x=\"16\" y=\"41\" font-size=\"11\" fill=\"%s\">", report_colour(REPORT_MUTED));
    report_put_short(from.page, frame->subtitle, 74);
    fprintf(from.page, "</text>\n<g transform=\"translate(0,%d)\">\n", TITLE);
    copy_tags(&from);
    fputs("\n</g>\n", from.page);
    report_draw_keys(frame->keys, frame->n_keys, width, TITLE + height, from.page);
    fputs("</svg>\n", from.page);
    if (fclose(from.page)) {
        free(picture.text);
        return false;
    }
    memcpy(picture.name, frame->name, sizeof picture.name);
    plotter->pictures[plotter->n_pictures++] = picture;
    return true;
}

void report_plotter_free(report_plotter *plotter)
{
    for (size_t i = 0; i < plotter->n_pictures; i++) free(plotter->pictures[i].text);
    free(plotter->pictures);
    *plotter = (report_plotter){{0}, false, NULL, 0};
}

bool report_plot(report_plotter *plotter, const report_drawing *drawing, FILE *page)
{
    if (plotter->problem[0]) return false;
    size_t bytes = 0;
    char *svg = run_gnuplot(plotter, drawing->script, &bytes);
    if (!svg) return false;
    const char *box = strstr(svg, "viewBox=\""), *body = strstr(svg, "<svg");
    int width = 0, height = 0;
    bool kept = true;
    if (!box || !body || sscanf(box, "viewBox=\"0 0 %d %d\"", &width, &height) != 2) {
        snprintf(plotter->problem, sizeof plotter->problem, "gnuplot drew a picture of an unknown form");
        free(svg);
        return false;
    }
    copier c = {.at = body,
                .end = strstr(svg, "</svg>"),
                .labels = drawing->labels,
                .n_labels = drawing->n_labels,
                .page = page};
    if (plotter->keeps) {
        c.colours_stay = true;
        kept = keep_picture(plotter, drawing->frame, drawing->alt, c, width, height);
        c.colours_stay = false;
    }
    fprintf(page,
            "<svg viewBox=\"0 0 %d %d\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\" "
            "xmlns:xlink=\"http://www.w3.org/1999/xlink\" aria-label=\"",
            width, height);
    report_put_text(page, drawing->alt);
    fputs("\">\n", page);
    copy_tags(&c);
    fputs("\n</svg>\n", page);
    free(svg);
    if (!kept) snprintf(plotter->problem, sizeof plotter->problem, "there is no memory for pictures");
    return kept;
}
