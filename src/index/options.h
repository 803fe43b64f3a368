/* The table of build options: one row each, and everything that is said about an option follows from its row: the
 * defaults, the checks, the metadata of an index, the tool's help, the benchmark's sweeps. Most of it is public:
 * wo_option_at, wo_build_set, wo_build_get, wo_build_uses. */
#ifndef WOI_INDEX_OPTIONS_H
#define WOI_INDEX_OPTIONS_H

#include "wideout.h"

#include <stdbool.h>

enum { WOI_N_METHODS = WO_METHOD_SCREEN + 1 };

typedef enum woi_option_kind { WOI_OPTION_U32, WOI_OPTION_U64, WOI_OPTION_REAL, WOI_OPTION_FLAG } woi_option_kind;

typedef struct woi_option {
    const char *name; /* "source_k": in files behind "index." */
    woi_option_kind kind;
    size_t offset;                  /* in wo_build_options; enums are as wide as uint32_t */
    const char *words;              /* "labels|top|both", numbered from `low`; NULL: a number */
    double low, high;               /* what it takes */
    unsigned step;                  /* a multiple of this; 0: any */
    unsigned methods, routers;      /* see wo_option_info */
    bool learns;                    /* of the learner: without one it has no part */
    double defaults[WOI_N_METHODS]; /* by method; a file that lacks the option was written with these */
    const char *help;
    unsigned fix; /* see wo_option_info */
    /* It came after the first files of format 1: indexes without it did what `missing` says. It is written where it has
     * a part in the index and is something else, so that older files are written again as they were. */
    bool late;
    double missing;
} woi_option;

extern const woi_option woi_options[]; /* ends with name NULL; method comes first */

/* `-` and `_` are the same; NULL where there is none. */
const woi_option *woi_option_find(const char *name);

/* The words or numbers that it is set to, as numbers; a seed may lose bits. */
double woi_option_value(const woi_option *option, const wo_build_options *options);
void woi_option_set_value(const woi_option *option, double value, wo_build_options *options);

bool woi_option_used(const woi_option *option, const wo_build_options *options);

/* Reads a value; false where it is none that the option takes. The C locale is the caller's business. */
bool woi_option_parse(const woi_option *option, const char *text, wo_build_options *options);

/* As a file has it: reals with 17 digits. Also in the C locale. */
enum { WOI_OPTION_BYTES = 40 };
void woi_option_print(const woi_option *option, const wo_build_options *options, char text[WOI_OPTION_BYTES]);

/* The defaults of a method: what wo_build_defaults gives. */
wo_build_options woi_build_defaults(wo_method method);
/* Every option by itself: "lambda is 3, expected 0 to 2". */
wo_status woi_options_check(const wo_build_options *options, wo_error *err);
/* The same, and what must hold among them. */
wo_status woi_build_check(const wo_build_options *options, wo_error *err);
/* A caller's options, of whatever size, completed and checked; NULL: the defaults. */
wo_status woi_build_take(const wo_build_options *given, wo_build_options *options, wo_error *err);

#endif
