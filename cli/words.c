/* What options of the library are called here: see words.h. */
#include "words.h"

#include <stddef.h>
#include <string.h>

/* Options of the library that are not called the same here, but for '_' and '-'. */
static const struct word {
    const char *option, *here;
} words[] = {
    {"K", "bits"},
    {"L", "tables"},
    {"k", "top"},
    {"ks", "top"},
    {"n_popular", "popular"},
    {"forbidden", "forbid"},
    {"mandatory", "require"},
    {"bias_path", "bias"},
    {"t_are_values", "t-values"},
    {"max_time_s", "max-time"},
    {"replace_ids", "replace"},
};

const char *cli_word_of(const char *option)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i].option, option) == 0) return words[i].here;
    return option;
}
