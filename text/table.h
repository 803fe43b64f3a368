/* Tables as text, CSV and the like: nothing reads them here, but who brings one is told what it is. */
#ifndef WOI_TEXT_TABLE_H
#define WOI_TEXT_TABLE_H

/* What stands between the values of a table, ',', ';' or a tab, where text looks like one: its first two lines have
 * several values, and the second has numbers alone, as many as the first, or the file's name ends in .csv or .tsv. 0:
 * it does not, or cannot be read. */
char woi_table_look(const char *path);

#endif
