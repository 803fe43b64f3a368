/* wideout-bench report: one page, in one file, out of result files. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

/* argv[0] is the subcommand's name; behind it FILE... [-o PAGE] [--plots DIR] [--title TEXT]. Reads results of
 * wideout-bench and of 'wideout eval --json', in any mixture, and writes the page; prints a sentence on stderr for
 * every failure. Returns the exit code: 0, 1 for a failure, 2 for wrong usage. For one thread at a time. */
int bench_report(int argc, char **argv);

#endif
