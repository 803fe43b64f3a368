/* The version, from the numbers in the public header. */
#include "wideout.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

unsigned wo_version_number(void)
{
    return WO_VERSION;
}

const char *wo_version(void)
{
    return TEXT(WO_VERSION_MAJOR) "." TEXT(WO_VERSION_MINOR) "." TEXT(WO_VERSION_PATCH);
}
