#!/bin/bash
# The Python package: its own tests, under AddressSanitizer too where the library is; what it exports; a library of another
# version; 'make install-python', and pip without a network.
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
PYTHON=${PYTHON:-/usr/bin/python3}
[ -n "${PY_TESTED:-}" ] || { ok 'the Python package is left out # SKIP no python3-dev, no numpy, or ThreadSanitizer'; finish; exit; }
case $BUILD in /*) built=$BUILD/python ;; *) built=$PWD/$BUILD/python ;; esac
suffix=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
core=$built/wideout/_core$suffix

# tests COMMAND...: TAP of another program, numbered on
tests() {
    local line
    while IFS= read -r line; do
        case $line in
        'ok '*) ok "${line#ok * - }" ;;
        'not ok '*) not_ok "${line#not ok * - }" ;;
        1..*) ;;
        *) echo "$line" ;;
        esac
    done < <("$@" 2>&1 || echo 'not ok 0 - the tests ended well')
}

preload=
case $SAN in
*address*)
    preload="$("$CC" -print-file-name=libasan.so):$("$CC" -print-file-name=libubsan.so)"
    # Python keeps what it allocates until it ends; with malloc every object has its own guards.
    export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0:detect_odr_violation=0 PYTHONMALLOC=malloc
    ;;
esac
tests env LD_PRELOAD="$preload" PYTHONPATH="$built" "$PYTHON" tests/python/run.py
[ -z "$SAN" ] || { finish; exit; }

same 'the extension exports its entry alone' PyInit__core "$(nm -D --defined-only "$core" | awk '{ print $3 }')"
same 'it needs jansson and the C library' 'libc.so libjansson.so libm.so' \
    "$(readelf -d "$core" | sed -n 's/.*NEEDED.*\[\(lib[a-z]*\.so\).*/\1/p' | LC_ALL=C sort | tr '\n' ' ' | sed 's/ $//')"

# What the tool has changed since it was tuned.
"$WIDEOUT" update -q tests/golden/index-tuned.safetensors --layer tests/golden/layer.safetensors --remove 3,7 -o "$scratch/fewer" >/dev/null
same 'figures of before an update are said to be' '2: 2 classes added, replaced or removed since: these figures are of before' "$(PYTHONPATH=$built "$PYTHON" -c '
import sys, wideout
index = wideout.open(sys.argv[1])
print(index.tuning["changed"], [line for line in str(index).splitlines() if "since" in line][0], sep=": ")' "$scratch/fewer")"

# An extension that was compiled with another header than its library's.
mkdir -p "$scratch/other/wideout" "$scratch/include"
sed 's/define WO_VERSION_MINOR [0-9]*/define WO_VERSION_MINOR 77/' include/wideout.h >"$scratch/include/wideout.h"
cp "$built"/wideout/*.py "$scratch/other/wideout"
# shellcheck disable=SC2046 # a list of words
check 'an extension for another header compiles' "$CC" -std=c17 -D_GNU_SOURCE -O0 -fPIC -shared -I"$scratch/include" \
    -isystem "$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))')" python/core/*.c "$BUILD/libwideout.a" \
    -o "$scratch/other/wideout/_core$suffix" $(pkg-config --libs jansson) -lm -pthread
version=$(awk '/define WO_VERSION_(MAJOR|MINOR|PATCH)/{printf "%s%s", s, $3; s="."}' include/wideout.h)
same 'and says that it does not fit' \
    "ImportError: wideout's extension was compiled for version 0.77 of the library, and linked with $version: build both anew" \
    "$(PYTHONPATH=$scratch/other "$PYTHON" -c 'import wideout' 2>&1 | tail -1)"

# Another libwideout.so that is in the process already.
printf '%s\n' 'int wo_version_number(void) { return 99999; }' 'const char *wo_version(void) { return "9.99.99"; }' \
    'int wo_index_build(void) { __builtin_trap(); }' >"$scratch/other.c"
check 'another library compiles' "$CC" -shared -fPIC "$scratch/other.c" -o "$scratch/libother.so"
same 'and does no harm' "$version full" "$(LD_PRELOAD=$scratch/libother.so PYTHONPATH=$built "$PYTHON" -c '
import wideout
W, b, queries, labels = wideout.example()
print(wideout._core.version, wideout.build(W, b, method="full").info["method"])' 2>&1 | tail -1)"

make=(make -s DEPS=0 BUILD="$BUILD" CC="$CC" PYTHON="$PYTHON")
check 'make install-python' "${make[@]}" DESTDIR="$scratch/root" PREFIX=/opt/wo install-python
folder=$("$PYTHON" python/backend.py where /opt/wo)
same 'it runs from there' "wideout $version" \
    "$(cd / && PYTHONPATH=$scratch/root$folder "$PYTHON" -m wideout --version | cut -d, -f1)"
same 'and is known by its name' "$version" \
    "$(cd / && PYTHONPATH=$scratch/root$folder "$PYTHON" -c 'import importlib.metadata as m; print(m.version("wideout"))')"
check 'make uninstall-python' "${make[@]}" DESTDIR="$scratch/root" PREFIX=/opt/wo uninstall-python
same 'nothing is left' '' "$(find "$scratch/root" -type f)"
"$PYTHON" -c 'import ensurepip' 2>/dev/null || { ok 'pip is left out # SKIP no python3-venv'; finish; exit; }
check 'a venv' "$PYTHON" -m venv --system-site-packages "$scratch/venv"
check 'pip install ./python, without a network' env WIDEOUT_BUILD="$BUILD" no_proxy= http_proxy=http://127.0.0.1:9 \
    https_proxy=http://127.0.0.1:9 "$scratch/venv/bin/pip" install --quiet --disable-pip-version-check ./python
same 'and it is there' "wideout $version" "$(cd / && "$scratch/venv/bin/python" -m wideout --version | cut -d, -f1)"
check 'with its hints' test -f "$(cd / && "$scratch/venv/bin/python" -c 'import wideout, os; print(os.path.dirname(wideout.__file__))')/py.typed"
check 'pip uninstall' "$scratch/venv/bin/pip" uninstall --quiet --yes wideout
finish
