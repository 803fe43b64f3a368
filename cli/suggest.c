/* Which word was meant: the one that takes the fewest changes (a letter more, less, other, or two in turn), as long as
 * those are no more than a third of what was typed. */
#include "suggest.h"

#include <string.h>

enum { LONGEST = 32 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Optimal string alignment; of longer words their first LONGEST letters. */
static size_t distance(const char *a, const char *b)
{
    size_t rows[3][LONGEST + 1]; /* two rows ago, one, this one: in turn */
    const size_t n = least(strlen(a), LONGEST), m = least(strlen(b), LONGEST);
    for (size_t j = 0; j <= m; j++) rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = rows[i % 3];
        const size_t *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

typedef struct search {
    const char *typed, *best;
    size_t changes; /* of the best; what has as many, or more, is no better */
} search;

/* `as`: what is compared; `name`: what is then said. */
static void compare(search *s, const char *as, const char *name)
{
    const size_t bytes = strlen(s->typed);
    const bool begins = bytes >= 3 && strncmp(as, s->typed, bytes) == 0;
    const size_t changes = begins ? 1 : distance(s->typed, as);
    if (changes >= s->changes) return;
    s->changes = changes;
    s->best = name;
}

static search begin(const char *typed)
{
    const size_t bytes = strlen(typed), most = bytes / 3;
    return (search){typed, NULL, (most < 1 ? 1 : most) + (bytes > 1)};
}

/* The first word of a command of two; "" where it has one. */
static const char *group_of(const cli_command *command, char group[LONGEST])
{
    const size_t bytes = strcspn(command->name, " ");
    const bool has = bytes < LONGEST && command->name[bytes];
    memcpy(group, command->name, has ? bytes : 0);
    group[has ? bytes : 0] = '\0';
    return group;
}

const char *cli_suggest_command(const cli_command *const *commands, const char *typed)
{
    static char group[LONGEST]; /* handed out */
    char other[LONGEST];
    search s = begin(typed);
    for (const cli_command *const *c = commands; *c; c++) {
        const size_t before = s.changes;
        if (*group_of(*c, other)) compare(&s, other, group);
        if (s.changes < before) memcpy(group, other, sizeof group);
    }
    for (const cli_command *const *c = commands; *c; c++) compare(&s, (*c)->name, (*c)->name);
    for (const cli_command *const *c = commands; *c; c++) { /* "xc" alone is "data xc" */
        const char *last = strrchr((*c)->name, ' ');
        if (last) compare(&s, last + 1, (*c)->name);
    }
    return s.best;
}

static void compare_option(const cli_option *option, void *ctx)
{
    compare(ctx, option->name, option->name);
}

const char *cli_suggest_option(const cli_command *command, const char *typed)
{
    search s = begin(typed);
    cli_each_option(command, compare_option, &s);
    return s.best;
}
