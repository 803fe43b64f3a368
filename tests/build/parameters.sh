#!/bin/bash
# No function has more than six parameters: what is more gets a struct, whose fields a caller names.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

# long_lists FILE...: functions and pointers to functions with more than six, as "FILE:LINE: NAME has N parameters". As
# clang-format leaves the code, what begins in the first column and has a name before its parenthesis is a function.
long_lists() {
    awk '
    function strip(s,    out, token) { # without comments; texts become 0
        out = ""
        while (s != "") {
            if (comment) {
                if (!index(s, "*/")) return out
                s = substr(s, index(s, "*/") + 2)
                comment = 0
            } else if (match(s, /"([^"\\]|\\.)*"|\047([^\047\\]|\\.)*\047|\/[*]|\/\//)) {
                token = substr(s, RSTART, RLENGTH)
                out = out substr(s, 1, RSTART - 1)
                s = substr(s, RSTART + RLENGTH)
                if (token == "//") return out
                if (token == "/*") comment = 1
                else out = out "0"
            } else return out s
        }
        return out
    }
    function depth_of(s) { return gsub(/[(]/, "(", s) - gsub(/[)]/, ")", s) }
    function report(s,    i, c, depth, n, from, name, last) {
        for (i = 1; i <= length(s); i++) {
            c = substr(s, i, 1)
            if (c == "(" && depth++ == 0) {
                name = substr(s, 1, i - 1)
                if (name ~ /[)]$/) name = last # (*name)(...)
                sub(/^.*[^A-Za-z0-9_]/, "", name)
                n = 1
                from = i
            } else if (c == ")" && --depth == 0) {
                last = substr(s, from, i - from)
                sub(/[[].*$/, "", last)
                if (n > 6) printf "%s:%d: %s has %d parameters\n", FILENAME, start, name, n
            } else if (c == "," && depth == 1) n++
        }
    }
    FNR == 1 { comment = skips = 0; head = "" }
    {
        line = strip($0)
        if (skips || line ~ /^ *#/) { skips = line ~ /\\$/; next }
        if (head == "") {
            start = FNR
            if (line ~ /^[A-Za-z_][^={(]*[ *][A-Za-z_0-9]+[(]/ || line ~ /^__attribute__[(]/) head = line
            else if (match(line, /[(][*][^()]*[)][(]/)) head = substr(line, RSTART)
            else next
        } else head = head " " line
        if (depth_of(head) > 0) next
        report(head)
        head = ""
    }' "$@"
}

# What may have more, and why.
cat >"$scratch/exceptions" <<'END'
(wo_search|wo_log_wrap) has # public, and callers have them: wo_search_run is the one with a struct
^src/kernels/(ref|x86|avx[0-9a-z]*|neon[0-9a-z_]*)[.][ch]: # inner loops, some called for a single row: a struct would have to be filled before every call
^(serve/http|bench/load)[.]c:[0-9]+: on_(request|echo) has # libmicrohttpd calls it
^bench/products[.]c:[0-9]+: [*]?(cblas|dnnl|xsmm)_ # other people's functions
END
sed 's/ *#.*//' "$scratch/exceptions" >"$scratch/patterns"

files=(include/*.h src/*/*.[ch] text/*.[ch] net/*.[ch] serve/*.[ch] cli/*.[ch] mpi/*.[ch] bench/*.[ch] bench/peers/*.[ch] bench/peers/*.cpp
    python/core/*.[ch] tests/*.h tests/*/*.[ch] examples/*.c)
long_lists "${files[@]}" >"$scratch/found"
same 'no function has more than six parameters' '' "$(grep -vE -f "$scratch/patterns" "$scratch/found")"
while read -r pattern; do
    check "an exception that is needed: $pattern" grep -qE "$pattern" "$scratch/found"
done <"$scratch/patterns"

# The pattern finds what it should, and only that.
cat >"$scratch/bad.c" <<'END'
static int one(int a, int b, int c, int d, int e, int f, int g)
{
    return 0;
}
const char *const *two(int, int, const char *x /* (a, b) */, int (*y)(int, int), int, int,
                       char z[8]);
typedef struct table {
    int (*three)(void *self, int a, int b, int c, int d, int e,
                 int f);
} table;
typedef void four(int, int, int, int, int, int, int, int);
__attribute__((noinline)) static int five(int a, int b, int c, int d, int e, const char *format, ...);
END
cat >"$scratch/good.c" <<'END'
static int six(int a, int b, int c, int d, int e, void (*f)(int, int, int, int, int, int))
{
    return one(1, 2, 3, 4, 5, 6, 7) + /* static int g(int a, int b, int c, int d, int e, int f, int g) */
           two(1, 2, 3, 4, 5, 6, "a, b");
}
#define MANY(a, b, c, d, e, f, g) \
int many(int a, int b, int c, int d, int e, int f, int g)
MANY(a, b, c, d, e, f, g)
static const int list[] = {MAX(1, 2, 3, 4, 5, 6, 7)};
END
same 'each of these is found' 'bad.c:1: one has 7 parameters
bad.c:5: two has 7 parameters
bad.c:8: three has 7 parameters
bad.c:11: four has 8 parameters
bad.c:12: five has 7 parameters' "$(cd "$scratch" && long_lists bad.c)"
same 'none of these is' '' "$(long_lists "$scratch/good.c")"
finish
