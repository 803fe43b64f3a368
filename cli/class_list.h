/* Lists of classes that the command line names: masks, and classes to remove. */
#ifndef WOI_CLI_CLASS_LIST_H
#define WOI_CLI_CLASS_LIST_H

#include "cli.h"
#include "text/names_text.h"

/* A zeroed one is empty. */
typedef struct cli_classes {
    int32_t *ids;
    size_t n, room;
    uint8_t *whole; /* (m), of the first class of a name: all that have it are in the list. NULL: none was named */
} cli_classes;

void cli_classes_free(cli_classes *list);

/* What classes are called. Set m, name_of and ctx. */
typedef struct cli_class_names {
    size_t m;
    const char *(*name_of)(void *ctx, int32_t id, size_t *bytes); /* not terminated; NULL: it has none */
    void *ctx;
    woi_names names;   /* all of them, once a list has been read */
    int32_t *class_of; /* (names.n): the class of each: some may have no name, as of a shard those of the others */
    int32_t *same;     /* (m): the next class of the same name, or -1 */
} cli_class_names;

void cli_class_names_free(cli_class_names *of);

/* Adds all that an option was given as to the list: "3,17", or a file with an id or a name in each line. Digits that
 * are the number of one class and the name of another are refused, unless "number:" or "name:" stands before them. A
 * file that names no class gets a warning. Returns the exit code. */
int cli_classes_take(cli_class_names *of, const char *option, const cli_texts *given, cli_classes *list);

#endif
