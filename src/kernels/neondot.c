/* The i8 kernels for NEON with the dot-product instructions (ASIMDDP, in most Arm processors since 2018): sdot adds
 * four products of bytes to each 32-bit lane. */
#define WOI_NEON_DOT 1
#include "kernels/neon_i8.h"

void woi_kernels_use_neondot(woi_kernels *table)
{
    WOI_USE(table, dot_i8, neondot);
    WOI_USE(table, gather_i8, neondot);
    WOI_USE(table, project_i8, neondot);
    WOI_USE(table, tile_i8, neondot);
}
