/* Names as text: a line each, where the line number, from 0, is the id. */
#ifndef WOI_TEXT_NAMES_TEXT_H
#define WOI_TEXT_NAMES_TEXT_H

#include "store/names.h"

wo_status woi_names_print(const woi_names *names, woi_outfile *out, wo_error *err);
/* Plain or gzip, with a byte order mark or without. */
wo_status woi_names_read(const char *path, woi_names *names, wo_error *err);

/* Whether text looks like names: two lines or more, the first with a letter in it, which no header and no row of
 * extreme-classification text has, and no field of a package stanza. False too where the file cannot be read. */
bool woi_names_look(const char *path);

#endif
