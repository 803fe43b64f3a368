/* Names as text: a line each, where the line number, from 0, is the id. */
#ifndef WOI_TEXT_NAMES_TEXT_H
#define WOI_TEXT_NAMES_TEXT_H

#include "store/names.h"

wo_status woi_names_print(const woi_names *names, woi_outfile *out, wo_error *err);
wo_status woi_names_read(const char *path, woi_names *names, wo_error *err); /* plain or gzip */

#endif
