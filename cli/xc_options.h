/* The options of every command that reads the extreme-classification format. */
#ifndef WOI_CLI_XC_OPTIONS_H
#define WOI_CLI_XC_OPTIONS_H

#include "cli.h"
#include "store/store.h"
#include "text/xc.h"

typedef struct cli_xc {
    bool lenient;
    int one_based; /* CLI_CHOICE: 0 not given, 1 all ids, 2 features only */
} cli_xc;

#define CLI_XC_OPTIONS(args_type, member)                                                                      \
    {"lenient", 0,                                                                                             \
     CLI_FLAG,  offsetof(args_type, member) + offsetof(cli_xc, lenient),                                       \
     NULL,      "accept other dialects: no header, CRLF, unsorted ids, ...",                                   \
     false},                                                                                                   \
    {                                                                                                          \
        "one-based", 0, CLI_CHOICE, offsetof(args_type, member) + offsetof(cli_xc, one_based), "all|features", \
            "ids in the file count from 1 (LIBSVM copies)", true                                               \
    }

static inline woi_xc_options cli_xc_options(const cli_xc *given)
{
    static const woi_xc_base bases[] = {WOI_XC_ZERO_BASED, WOI_XC_ONE_BASED, WOI_XC_ONE_BASED_FEATURES};
    return (woi_xc_options){given->lenient, bases[given->one_based]};
}

#endif
