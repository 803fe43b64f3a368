#!/bin/bash
# An index's answers beside FULL's, for people: beside.sh QUESTIONS INDEX FULL [SHOWN]
# QUESTIONS has a line each; INDEX and FULL are what 'wideout predict' printed for them. Of each list the first SHOWN names
# are printed, 6 by default, and what the index lacks of all that FULL has.
set -eu
LC_ALL=C exec awk -F '\t' -v shown="${4:-6}" '
    function list(   line, i) { # the names of an answer: every other field
        line = ""
        for (i = 1; i < NF && i < 2 * shown; i += 2) line = line " " $i
        return line (NF > 2 * shown ? " ..." : "")
    }
    FILENAME == ARGV[1] { question[FNR] = $0 }
    FILENAME == ARGV[2] { index_list[FNR] = list(); for (i = 1; i < NF; i += 2) found[FNR, $i] = 1 }
    FILENAME == ARGV[3] {
        print question[FNR]
        print "  index " index_list[FNR]
        missed = ""
        hits = 0
        for (i = 1; i < NF; i += 2) if ((FNR, $i) in found) hits++; else missed = missed " " $i
        if (missed == "" && index_list[FNR] == list()) print "  FULL   the same"
        else print "  FULL  " list()
        if (missed != "") printf "         the index has %d of FULL'"'"'s %d and lacks:%s\n", hits, hits + split(missed, words, " "), missed
        all += int(NF / 2)
        all_hits += hits
    }
    END { printf "In all, the index has %d of the %d answers of FULL.\n", all_hits, all }' "$1" "$2" "$3"
