#!/bin/bash
# Sentences of the library, and of the workshop, name no option and no command of the tool: who embeds the one has neither,
# and the server hands on what the other says. The tool adds both (cli/hints.c). And the library's have a subject: nobody
# need put the name of a file before them.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

# tool_words FILE...: string literals, as "FILE:LINE:...", with an option of the tool or one of its commands in them
tool_words() {
    local verbs='build|shard|join|update|check|eval|predict|embed|train|data|info|cpu|version|completion|generate|serve|bench'
    grep -HnoE '"([^"\\]|\\.)*"' "$@" | grep -E "[^-[:alnum:]]--(%s|[a-z])|wideout ($verbs)([^[:alnum:]]|\$)"
}

same 'no sentence of src/, text/ and net/ names what the tool has' '' "$(tool_words {src/*,text,net}/*.[ch])"

# And what they say would help, the tool has a hint for: the option that a failure of the workshop names, about none of the
# library's things.
same 'each option that would help has a hint' '' "$(tr '\n' ' ' <<<"$(cat {text,net}/*.c)" |
    grep -oE 'WO_ABOUT_NONE, ("[a-z0-9_]+"|[^,;]*[?] "[a-z0-9_]+")' | grep -oE '"[a-z0-9_]+"' | sort -u |
    while read -r option; do grep -qF "{WO_ABOUT_NONE, $option," cli/hints.c || echo "$option"; done)"

same 'each has a subject: "the file cannot be opened", not "cannot open"' '' "$(grep -nE '"cannot ' src/*/*.[ch] text/*.c net/*.c)"

# What a failure is about stands in its fields. A sentence may be shown in other words, but never tells whose fault it was.
same 'the tool looks at no sentence to find out' '' \
    "$(grep -nE '(strstr|strchr|str(n|case|ncase)?cmp|memcmp) *\(err(\.|->)text' cli/*.c mpi/*.c | grep -v 'err->option')"

# The pattern finds what it should, and only that.
cat >"$scratch/bad.c" <<'END'
    return fail(err, "give the layer too (--layer)");
    return fail(err, "--probes is too large");
    return fail(err, "'wideout build' makes one");
    return fail(err, "a \"quoted\" word, then --log");
    return fail(err, "--%s %d is too large", name, n);
    return fail(err, "as 'wideout join' does");
END
cat >"$scratch/good.c" <<'END'
    i--; /* "one less" --and so on */
    return fail(err, "this version of wideout reads format 1, from 0 -- 9");
    puts("a wideout file"), n--, puts("a-b");
END
same 'each of these is found' 6 "$(tool_words "$scratch/bad.c" | wc -l)"
same 'none of these is' '' "$(tool_words "$scratch/good.c")"
finish
