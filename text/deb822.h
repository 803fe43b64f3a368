/* Debian package stanzas ("apt-cache dumpavail", Packages files): reading them, and what they say about a package.
 *
 * Features, each with the name of its field before it, so that fields never collide:
 *   desc:WORD     words of the short description: runs of a-z, 0-9, + and letters beyond ASCII; A-Z becomes a-z
 *   name:PART     parts of the package name, split at - . + _; digits are dropped ("libgtk-4-1" is "libgtk")
 *   section:TEXT  maint:TEXT  tag:TAG (each)   source:NAME (or the package's, without digits and version)
 * Labels: the packages named in Depends, Pre-Depends, Recommends and Suggests, alternatives included, without versions
 * and qualifiers (":any").
 *
 * Field names are matched in any case; of a field that is repeated the first counts. Control characters become spaces,
 * bytes that are no UTF-8 become '?'. */
#ifndef WOI_TEXT_DEB822_H
#define WOI_TEXT_DEB822_H

#include "store/names.h"

typedef enum woi_deb822_field {
    WOI_DEB822_PACKAGE,
    WOI_DEB822_SOURCE,
    WOI_DEB822_SECTION,
    WOI_DEB822_TAG,
    WOI_DEB822_MAINTAINER,
    WOI_DEB822_DESCRIPTION, /* its first line: the short description */
    WOI_DEB822_DEPENDS,
    WOI_DEB822_PRE_DEPENDS,
    WOI_DEB822_RECOMMENDS,
    WOI_DEB822_SUGGESTS,
    WOI_DEB822_N_FIELDS
} woi_deb822_field;

typedef struct woi_span {
    const char *text; /* not terminated, trimmed; NULL where the field is missing */
    size_t bytes;
} woi_span;

typedef struct woi_stanza {
    woi_span field[WOI_DEB822_N_FIELDS]; /* folded lines are joined by a space */
} woi_stanza;

/* A streaming reader: memory for one stanza. "-" is standard input; plain or gzip. */
typedef struct woi_deb822 woi_deb822;
wo_status woi_deb822_open(const char *path, woi_deb822 **reader, wo_error *err);
/* The same of an open text (text/text.h), which belongs to the reader from then on, also when this fails. */
struct woi_text;
wo_status woi_deb822_open_text(struct woi_text *text, woi_deb822 **reader, wo_error *err);
/* The next stanza, valid until the next call; *more is false after the last. */
wo_status woi_deb822_next(woi_deb822 *reader, woi_stanza *stanza, bool *more, wo_error *err);
void woi_deb822_position(const woi_deb822 *reader, uint64_t *done, uint64_t *total); /* for progress */
void woi_deb822_free(woi_deb822 *reader);

/* Takes one name; what it returns, unless WO_OK, ends the extraction. */
typedef wo_status (*woi_name_fn)(void *ctx, const char *name, size_t bytes, wo_error *err);

/* Every occurrence of every feature, in the order of the fields above. Words over 200 bytes are left out. */
wo_status woi_deb822_features(const woi_stanza *stanza, woi_name_fn fn, void *ctx, wo_error *err);
/* The words of a description alone, each with `prefix` before it. The text must be UTF-8. */
wo_status woi_deb822_words(const char *prefix, woi_span text, woi_name_fn fn, void *ctx, wo_error *err);
/* Every mention of every label. */
wo_status woi_deb822_labels(const woi_stanza *stanza, woi_name_fn fn, void *ctx, wo_error *err);

/* ---- A data set of stanzas --------------------------------------------------------------------------------- */

enum { WOI_DEB822_PARTS = 3 }; /* train, valid, test: 80, 5 and 15 in a hundred, by a seeded hash of the package name */

typedef struct woi_catalogue woi_catalogue;

typedef struct woi_catalogue_options {
    uint64_t min_features, min_labels; /* packages that a feature or label must have */
    uint64_t seed;                     /* of the parts */
    const wo_progress *progress;       /* NULL: nobody asks */
} woi_catalogue_options;

typedef struct woi_catalogue_counts {
    uint64_t n_stanzas;
    uint64_t nameless, repeated, unlabelled; /* dropped */
    uint64_t part[WOI_DEB822_PARTS];         /* packages kept */
    uint64_t n_features, n_labels;
} woi_catalogue_counts;

/* Reads all stanzas of a file, keeps the features and labels that enough packages have (the first stanza of each
 * package counts) and the packages that then have a label. Ids go by falling number of packages, then by name. */
wo_status woi_catalogue_read(const char *path, const woi_catalogue_options *options, woi_catalogue **catalogue,
                             wo_error *err);
const woi_catalogue_counts *woi_catalogue_get_counts(const woi_catalogue *catalogue);
const woi_names *woi_catalogue_features(const woi_catalogue *catalogue);
const woi_names *woi_catalogue_labels(const woi_catalogue *catalogue);
/* One part as extreme-classification text, in the order of the stanzas; the value of a feature is its count. */
wo_status woi_catalogue_write(const woi_catalogue *catalogue, int part, woi_outfile *out, wo_error *err);
void woi_catalogue_free(woi_catalogue *catalogue);

#endif
