/* Numbers in files have a point, whatever sign the program's locale has for it: for this thread, from enter to leave.
 */
#ifndef WOI_BASE_C_LOCALE_H
#define WOI_BASE_C_LOCALE_H

#include <locale.h>

typedef struct woi_c_locale {
    locale_t c, before;
} woi_c_locale;

/* The C locale is always there, so that newlocale does not fail for it; if it did, numbers would be as they are. */
static inline woi_c_locale woi_c_locale_enter(void)
{
    woi_c_locale own = {.c = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    if (own.c) own.before = uselocale(own.c);
    return own;
}

static inline void woi_c_locale_leave(woi_c_locale own)
{
    if (!own.c) return;
    uselocale(own.before);
    freelocale(own.c);
}

#endif
