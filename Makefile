# wideout: plain GNU make, no configure step. `make help` lists the targets.
#
# Yours to set: CC, AR, RANLIB, PKG_CONFIG, CFLAGS, CPPFLAGS, LDFLAGS, PREFIX (and BINDIR, LIBDIR, INCLUDEDIR, MANDIR
# where they are not below it), DESTDIR, BUILD (the output folder), LTO=1 (optimise across files; gcc), DEPS=0 (install
# nothing). Another processor: make CC=aarch64-linux-gnu-gcc PKG_CONFIG=aarch64-linux-gnu-pkg-config

CC       ?= cc
CFLAGS   ?= -O2 -g
RANLIB   ?= ranlib
PKG_CONFIG ?= pkg-config
PREFIX   ?= /usr/local
BINDIR   ?= $(PREFIX)/bin
LIBDIR   ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR   ?= $(PREFIX)/share/man
DESTDIR  ?=
BUILD    ?= build
DEPS     ?= 1
CLANG    ?= clang
# Warnings stop the build in CI only: a newer compiler's new warning must not stop a user.
# Nor under LTO, where gcc warns of loops that it has inlined and cannot see the bounds of.
WERROR   := $(if $(CI),$(if $(filter-out 0,$(LTO)),,-Werror))
SAN      ?=
LTO      ?=
# What runs a program that was built for another processor: qemu-aarch64 -L /usr/aarch64-linux-gnu
RUN      ?=
# Short lines by default; V=1 shows the whole commands.
V        ?= 0
say       = $(if $(filter 0,$(V)),@printf '  %-5s %s\n' $(1) $@ &&)
# For targets that build before they do something: all cores, unless -j was given to the outer make.
INNER     = $(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || echo 1))

VERSION  := $(shell awk '/define WO_VERSION_(MAJOR|MINOR|PATCH)/{printf "%s%s", s, $$3; s="."}' include/wideout.h)
# Before 1.0 every minor version may change the ABI.
SOVERSION := $(if $(filter 0.%,$(VERSION)),$(basename $(VERSION)),$(firstword $(subst ., ,$(VERSION))))

WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wwrite-strings
# The library needs PKGS, the workshop (text/, net/) and the tool zlib besides.
PKGS     := jansson
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PKGS) zlib 2>/dev/null)
PKG_LIBS := $(or $(shell $(PKG_CONFIG) --libs $(PKGS) 2>/dev/null),-ljansson)
ZLIB     := $(or $(shell $(PKG_CONFIG) --libs zlib 2>/dev/null),-lz)
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
# Fat objects: the static library can then be linked by a program, and packed by an ar, that know nothing of LTO.
LTOFLAGS := $(if $(filter-out 0,$(LTO)),-flto=auto -ffat-lto-objects)
ALL_CFLAGS = -std=c17 -D_GNU_SOURCE -Iinclude -Isrc -I. $(WARN) $(WERROR) $(SANFLAGS) $(LTOFLAGS) -fvisibility=hidden -fPIC -pthread \
             -fopenmp-simd -ffp-contract=off $(PKG_CFLAGS) $(CPPFLAGS) $(CFLAGS)
LIBS     = $(PKG_LIBS) -lm -pthread
LINK     = $(CC) $(SANFLAGS) $(LTOFLAGS) $(LDFLAGS)

# One file per instruction set, each with its own flags; nothing else gets them. Processors other than x86-64 and 64-bit
# Arm have the reference kernels only.
MACHINE  := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null || echo x86_64)))
ISA_avx2       := -mavx2 -mfma -mf16c
ISA_avx2pick   := $(ISA_avx2)
ISA_avx512     := $(ISA_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl
ISA_avx512pick := $(ISA_avx512)
ISA_avx2tile   := $(ISA_avx2)
ISA_avx2tile8  := $(ISA_avx2)
ISA_avx512tile := $(ISA_avx512)
ISA_avx512vnni := $(ISA_avx512) -mavx512vnni
ISA_neondot    := -march=armv8.2-a+dotprod

LIB_SRC  := $(wildcard src/*/*.c)
LIB_SRC  := $(filter-out $(if $(filter x86_64,$(MACHINE)),,src/kernels/avx%) $(if $(filter aarch64,$(MACHINE)),,src/kernels/neon%),$(LIB_SRC))
LIB_OBJ  := $(LIB_SRC:%.c=$(BUILD)/obj/%.o)
SHOP_SRC := $(wildcard text/*.c net/*.c)
SHOP_OBJ := $(SHOP_SRC:%.c=$(BUILD)/obj/%.o)
# What our own programs link, in this order: the workshop stands on the library.
ARCHIVES := $(BUILD)/libworkshop.a $(BUILD)/libwideout.a
CLI_SRC  := $(wildcard cli/*.c)
CLI_OBJ  := $(CLI_SRC:%.c=$(BUILD)/obj/%.o)
# The server is an optional part: without libmicrohttpd 'wideout serve' says that it is missing.
MHD      := $(shell $(PKG_CONFIG) --libs libmicrohttpd 2>/dev/null)
# In front of other servers (--shards) it needs libcurl too, and says so.
CURL     := $(if $(MHD),$(shell $(PKG_CONFIG) --libs libcurl 2>/dev/null))
SERVE_SRC := $(if $(MHD),$(filter-out $(if $(CURL),serve/no_shards.c,serve/shards.c serve/fanout.c serve/merge.c),$(wildcard serve/*.c)))
SERVE_OBJ := $(SERVE_SRC:%.c=$(BUILD)/obj/%.o)
$(BUILD)/obj/serve/page.o: $(wildcard serve/page/*)
$(BUILD)/obj/cli/cmd_serve.o: private CPPFLAGS += $(if $(MHD),-DWOI_HAVE_SERVE)

# So is wideout-mpi, the commands that run on several processes, which needs an MPI. All but the tool's main serves it too.
MPI_LIBS := $(shell $(PKG_CONFIG) --libs ompi-c 2>/dev/null || $(PKG_CONFIG) --libs mpi-c 2>/dev/null)
MPI_CFLAGS := $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags ompi-c 2>/dev/null || $(PKG_CONFIG) --cflags mpi-c 2>/dev/null))
MPI_SRC  := $(if $(MPI_LIBS),$(wildcard mpi/*.c))
MPI_OBJ  := $(MPI_SRC:%.c=$(BUILD)/obj/%.o)
MPI_MADE := $(if $(MPI_LIBS),$(BUILD)/wideout-mpi)
$(MPI_OBJ) $(BUILD)/tests/mpi/collective: private CPPFLAGS += $(MPI_CFLAGS)

# Which Python: Debian's, unless another is named. Its headers are asked for only by goals that need them: name a new one here.
PYTHON   ?= $(firstword $(wildcard /usr/bin/python3) python3)
PY_GOALS := $(filter python check test-python bench-python bench-python-torch install-python lint,$(MAKECMDGOALS))
PY_ASKED := $(if $(PY_GOALS),$(shell $(PYTHON) python/backend.py ask 2>/dev/null))
PY_SUFFIX := $(word 2,$(PY_ASKED))
# Whether its tests can run. Not under ThreadSanitizer, which Python is not made for.
PY_TESTED := $(if $(filter thread,$(SAN)),,$(filter numpy,$(PY_ASKED)))
PY_BUILT := $(BUILD)/python
PY_FILES := $(patsubst python/%,$(PY_BUILT)/%,$(wildcard python/wideout/*.py python/wideout/*.pyi python/wideout/py.typed))
PY_SRC   := $(wildcard python/core/*.c)
PY_OBJ   := $(PY_SRC:python/core/%.c=$(BUILD)/obj/python$(PY_SUFFIX)/%.o)
PY_CORE  := $(PY_BUILT)/wideout/_core$(PY_SUFFIX)


.DEFAULT_GOAL := all
all: $(BUILD)/libwideout.a $(BUILD)/libwideout.so $(BUILD)/wideout $(MPI_MADE)  ## build the library and the tool (default)

$(BUILD)/obj/%.o: %.c $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,CC) $(CC) $(ALL_CFLAGS) $(ISA_$(notdir $*)) -MMD -MP -c $< -o $@

# Rewritten only when the compiler or its flags change, so that everything is then rebuilt and otherwise nothing.
FLAGS_NOW = $(CC) $(ALL_CFLAGS) $(LDFLAGS)
$(BUILD)/.flags: FORCE
	@mkdir -p $(@D)
	@echo '$(FLAGS_NOW)' | cmp -s - $@ || echo '$(FLAGS_NOW)' > $@
FORCE:

$(BUILD)/libwideout.a: $(LIB_OBJ)
$(BUILD)/libworkshop.a: $(SHOP_OBJ)
$(BUILD)/libserve.a: $(SERVE_OBJ)
$(ARCHIVES) $(BUILD)/libserve.a:
	@rm -f $@
	$(call say,AR) $(AR) rc $@ $^ && $(RANLIB) $@
# nodelete: the library's threads sleep until the process ends (src/base/team.c), and must not lose their code to dlclose.
$(BUILD)/libwideout.so: $(LIB_OBJ)
	$(call say,LD) $(LINK) -shared -Wl,-z,nodelete -Wl,-soname,libwideout.so.$(SOVERSION) -o $@ $^ $(LIBS)
$(BUILD)/wideout: $(CLI_OBJ) $(if $(MHD),$(BUILD)/libserve.a) $(ARCHIVES)
	$(call say,LD) $(LINK) -o $@ $^ $(MHD) $(CURL) $(ZLIB) $(LIBS)
# What wideout-mpi takes from the tool: everything that it asks for.
$(BUILD)/libcli.a: $(filter-out $(BUILD)/obj/cli/main.o,$(CLI_OBJ))
	@rm -f $@
	$(call say,AR) $(AR) rc $@ $^ && $(RANLIB) $@
$(BUILD)/wideout-mpi: $(MPI_OBJ) $(BUILD)/libcli.a $(ARCHIVES)
	$(call say,LD) $(LINK) -o $@ $^ $(MPI_LIBS) $(ZLIB) $(LIBS)

-include $(LIB_OBJ:.o=.d) $(SHOP_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(SERVE_OBJ:.o=.d) $(MPI_OBJ:.o=.d)


# ---- Set-up ----------------------------------------------------------------------------------------------------------

# Installs a group's missing packages before anything that needs them; $(call setup,build test)
setup = $(if $(filter 0,$(DEPS)),,@scripts/deps.sh $(1))

deps:  ## install the packages that building, testing and checking need
	@scripts/deps.sh build test bench check

# ---- Tests -----------------------------------------------------------------------------------------------------------

TEST_SRC := $(wildcard tests/unit/test_*.c tests/kernels/test_*.c)
# The cmocka programs are an optional part: left out, with a line, where the library is missing (DEPS=0).
CMOCKA   := $(shell $(PKG_CONFIG) --libs cmocka 2>/dev/null)
TESTS    := $(if $(CMOCKA),$(TEST_SRC:tests/%.c=$(BUILD)/tests/%))
# That of the server is left out where there is no server.
FUZZ_SRC := $(filter-out $(if $(MHD),,tests/fuzz/fuzz_serve.c) $(if $(CURL),,tests/fuzz/fuzz_shards.c),$(wildcard tests/fuzz/fuzz_*.c))
FUZZERS  := $(FUZZ_SRC:tests/%.c=$(BUILD)/tests/%)
TOOLS    := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/tools/*.c))
PRELOADS := $(BUILD)/tests/failing_io.so
EXAMPLES := $(patsubst %.c,$(BUILD)/%,$(wildcard examples/*.c))

# A test includes one .c and links the static library, so it sees the internal symbols too.
SERVE_FUZZERS := $(BUILD)/tests/fuzz/fuzz_serve $(BUILD)/tests/fuzz/fuzz_shards
$(SERVE_FUZZERS): FUZZ_LIBS := $(BUILD)/libserve.a
$(SERVE_FUZZERS): FUZZ_NEEDS := $(CURL)
$(SERVE_FUZZERS): $(BUILD)/libserve.a
$(BUILD)/tests/fuzz/%: tests/fuzz/%.c tests/fuzz/replay.c $(wildcard tests/fuzz/*.h tests/*.h) $(ARCHIVES) $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,TEST) $(CC) $(ALL_CFLAGS) -Itests -o $@ $< tests/fuzz/replay.c $(FUZZ_LIBS) $(ARCHIVES) $(LDFLAGS) $(FUZZ_NEEDS) $(ZLIB) $(LIBS)
$(BUILD)/tests/%: tests/%.c $(wildcard tests/*.h tests/*/*.h) $(ARCHIVES) $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,TEST) $(CC) $(ALL_CFLAGS) -Itests -o $@ $< $(ARCHIVES) $(LDFLAGS) $(CMOCKA) $(ZLIB) $(LIBS)
# The collective calls themselves, without the commands.
$(BUILD)/tests/mpi/collective: tests/mpi/collective.c $(filter %/job.o %/collective.o %/outside.o,$(MPI_OBJ)) $(BUILD)/libcli.a $(ARCHIVES) $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,TEST) $(CC) $(ALL_CFLAGS) -o $@ $(filter-out %/.flags,$^) $(LDFLAGS) $(MPI_LIBS) $(ZLIB) $(LIBS)
# What tests load in front of the tool, as it is: not sanitized.
$(BUILD)/tests/failing_io.so: tests/preload/failing_io.c
	@mkdir -p $(@D)
	$(call say,TEST) $(CC) -std=c17 -D_GNU_SOURCE $(WARN) $(WERROR) -O1 -g -fPIC -shared -o $@ $< $(LDFLAGS) -ldl
# Examples are built as a user would: the public header and the library, nothing else.
$(BUILD)/examples/%: examples/%.c $(BUILD)/libwideout.a $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,EX) $(CC) -std=c11 -Iinclude $(WARN) $(WERROR) $(SANFLAGS) $(LTOFLAGS) $(CFLAGS) -o $@ $< $(BUILD)/libwideout.a $(LDFLAGS) $(LIBS)

test:  ## all set-up, then every test
	$(call setup,build test)
	@$(INNER) check

# Not under ThreadSanitizer: Faiss brings an OpenMP of its own, which is not instrumented.
check: all $(TESTS) $(FUZZERS) $(TOOLS) $(EXAMPLES) $(PRELOADS) $(if $(MPI_LIBS),$(BUILD)/tests/mpi/collective) $(if $(PY_TESTED),python) $(if $(filter thread,$(SAN)),,$(BUILD)/wideout-bench) $(if $(MHD),$(BUILD)/bench/replay)  # the tests alone, without set-up
	@$(if $(CMOCKA),:,echo 'the unit tests are left out: cmocka is not installed (make deps)')
	@$(if $(MPI_LIBS),:,echo 'wideout-mpi and its tests are left out: libopenmpi-dev is not installed (make deps)')
	@$(if $(PY_TESTED),:,echo 'the Python tests are left out: python3-dev or numpy is not installed (make deps), or this is ThreadSanitizer')
	@BUILD=$(BUILD) SAN=$(SAN) CC='$(CC)' PYTHON='$(PYTHON)' PY_TESTED='$(PY_TESTED)' tests/run.sh

# Chromium, node and promtool are large, so 'make test' looks at the page, and has the metrics checked, only where they are here
# already.
browser:  ## set-up alone: what 'make test' then looks at the server's page and metrics with
	$(call setup,build test browser)
	@scripts/browser.sh $(BUILD)
	@scripts/promtool.sh $(BUILD)/promtool
test-browser:  ## all set-up, then the server's page in Debian's Chromium, its metrics by promtool: pictures in build/screenshots
	$(if $(filter 0,$(DEPS)),,@$(MAKE) --no-print-directory browser)
	@$(INNER) all
	@BUILD=$(BUILD) tests/cli/serve_page.sh
	@WIDEOUT=$(BUILD)/wideout /usr/bin/python3 -B tests/serve/v1.py

# KINDS of tests, for those who want fewer: unit, kernels.
KINDS ?= unit kernels
check-unit: all $(foreach kind,$(KINDS),$(filter $(BUILD)/tests/$(kind)/%,$(TESTS)))  # the unit and kernel tests alone, without set-up
	@BUILD=$(BUILD) SAN=$(SAN) CC='$(CC)' RUN='$(RUN)' CPUS='$(CPUS)' LEAVE_OUT='$(LEAVE_OUT)' tests/run.sh $(KINDS)

# Arm's packages are unpacked into build/arm/root and not installed: scripts/arm-root.sh says why.
ARM      := build/arm
ARM_ROOT := $(abspath $(ARM))/root/usr
# What measures time makes no sense on an emulator: the tuner's tests search by it, and the machine's ceilings are rates. Both
# are the slowest besides.
ARM_LEAVE_OUT := unit/test_tune unit/test_tune_best unit/test_tune_edges unit/test_ceilings
ARM_LIBS := $(ARM_ROOT)/lib/aarch64-linux-gnu
test-arm:  ## the unit and kernel tests for 64-bit Arm, under qemu-user, with and without dot-product instructions; not those of time
	$(call setup,build arm)
	@scripts/arm-root.sh $(ARM)/root
	@$(INNER) check-unit BUILD=$(ARM) CC=aarch64-linux-gnu-gcc RUN='qemu-aarch64 -L /usr/aarch64-linux-gnu' CPUS='max cortex-a53' \
	    LEAVE_OUT='$(ARM_LEAVE_OUT)' \
	    PKG_CONFIG='env PKG_CONFIG_LIBDIR=$(ARM_LIBS)/pkgconfig pkg-config' CPPFLAGS='-isystem $(ARM_ROOT)/include' \
	    LDFLAGS='-L$(ARM_LIBS) -Wl,-rpath,$(ARM_LIBS)'

asan:  ## the tests under AddressSanitizer and UBSan, in build/asan
	$(call setup,build test)
	@$(INNER) BUILD=build/asan SAN=address,undefined CFLAGS='-O1 -g' check
ubsan:  ## the tests under UBSan alone, in build/ubsan
	$(call setup,build test)
	@$(INNER) BUILD=build/ubsan SAN=undefined CFLAGS='-O2 -g' check
tsan:  ## the tests under ThreadSanitizer, in build/tsan
	$(call setup,build test)
	@$(INNER) BUILD=build/tsan SAN=thread CFLAGS='-O1 -g' check

# What 'make test' does in short: indexes mutated and signed anew, every I/O call failing in turn, and kills at hundreds of
# random moments (KILLS=N a command; SEED=N is printed, and gives the same moments again). TMPDIR=/dev/shm makes it faster.
torture:  ## the long form of the tests that mutate indexes, fail I/O calls and kill commands: five minutes and more
	$(call setup,build test)
	@$(INNER) all $(PRELOADS) $(BUILD)/tests/fuzz/fuzz_index
	$(BUILD)/tests/fuzz/fuzz_index 50000 tests/golden/index-*.safetensors
	@BUILD=$(BUILD) TORTURE=1 tests/cli/io_faults.sh
	@BUILD=$(BUILD) TORTURE=1 tests/cli/kills.sh
	@BUILD=$(BUILD) KILLS=20 tests/cli/mpi.sh
	@BUILD=$(BUILD) TORTURE=1 tests/cli/mpi_train.sh

# libFuzzer, for as long as you like: make fuzz TARGET=fuzz_xc FUZZ_TIME=600
TARGET    ?= fuzz_xc
FUZZ_TIME ?= 60
fuzz:  ## fuzz one parser with libFuzzer: TARGET=fuzz_(xc|safetensors|npy|journal|deb822|text|fasttext|gguf|npz|index|serve|shards), FUZZ_TIME=seconds
	$(call setup,build check)
	@$(INNER) BUILD=build/fuzz SAN=address,undefined CC=$(CLANG) CFLAGS='-O1 -g -fsanitize=fuzzer-no-link' build/fuzz/libwideout.a build/fuzz/libworkshop.a $(if $(MHD),build/fuzz/libserve.a)
	@mkdir -p build/fuzz/corpus/$(TARGET)
	$(CLANG) -std=c17 -D_GNU_SOURCE -Iinclude -Isrc -I. -Itests -O1 -g -fsanitize=fuzzer,address,undefined -o build/fuzz/$(TARGET) \
	    tests/fuzz/$(TARGET).c $(if $(MHD),build/fuzz/libserve.a) build/fuzz/libworkshop.a build/fuzz/libwideout.a $(CURL) $(ZLIB) $(LIBS)
	@tests/cli/malformed.sh --make build/fuzz/seeds
	build/fuzz/$(TARGET) -artifact_prefix=build/fuzz/ -max_total_time=$(FUZZ_TIME) build/fuzz/corpus/$(TARGET) build/fuzz/seeds tests/fuzz/seeds tests/golden

# ---- Lint ------------------------------------------------------------------------------------------------------------

C_FILES := $(wildcard include/*.h src/*/*.[ch] text/*.[ch] net/*.[ch] serve/*.[ch] cli/*.[ch] mpi/*.[ch] bench/*.[ch] bench/peers/*.[ch] bench/peers/*.cpp tests/*/*.[ch] tests/*.h examples/*.c python/core/*.[ch])
SH_FILES := $(wildcard scripts/*.sh bench/*.sh tests/*.sh tests/*/*.sh mpi/wideout-mpirun .ci/run)

format:  ## format the C code in place
	$(call setup,check)
	clang-format -i $(C_FILES)

# The ABI of the shared library as it was recorded, for x86-64: the functions, and the structs that wideout.h shows.
ABI := tests/abi/libwideout.abi
abi:  ## record the ABI of the shared library: after a change of it that is meant
	$(call setup,build check)
	@$(INNER) $(BUILD)/libwideout.so
	abidw --headers-dir include --exported-interfaces-only --drop-private-types --drop-undefined-syms --no-corpus-path \
	    --no-comp-dir-path --no-show-locs --no-write-default-sizes --out-file $(ABI) $(BUILD)/libwideout.so

lint:  ## formatting, clang-tidy, cppcheck, include arrows, shellcheck, mypy, the ABI
	$(call setup,build check)
	@$(INNER) $(BUILD)/libwideout.so
	$(if $(filter x86_64,$(MACHINE)),abidiff $(ABI) $(BUILD)/libwideout.so)
	clang-format --dry-run -Werror $(C_FILES)
	scripts/check-arrows.sh
	shellcheck $(SH_FILES)
	cppcheck -j $$(nproc) --quiet --std=c11 --error-exitcode=1 --inline-suppr --enable=warning,portability,performance \
	    --suppress=missingIncludeSystem --suppress=uninitvar:/usr/include/xxhash.h --suppress=uninitvar:src/kernels/avx2pick.c -D_GNU_SOURCE -Iinclude -Isrc -I. -Icli src text net serve cli mpi
	printf '%s\n' $(filter-out src/kernels/avx%,$(LIB_SRC)) $(SHOP_SRC) $(SERVE_SRC) $(CLI_SRC) $(MPI_SRC) | xargs -P $$(nproc) -n 4 sh -c \
	    'clang-tidy --quiet --warnings-as-errors="*" "$$@" -- -std=c17 -D_GNU_SOURCE -Iinclude -Isrc -I. $(PKG_CFLAGS) $(MPI_CFLAGS) 2>/dev/null' tidy
	$(if $(PY_SUFFIX),clang-tidy --quiet --warnings-as-errors="*" $(PY_SRC) -- -std=c17 -D_GNU_SOURCE -Iinclude \
	    -isystem $(firstword $(PY_ASKED)) 2>/dev/null)
	cppcheck --quiet --std=c11 --error-exitcode=1 --inline-suppr --enable=warning,portability,performance \
	    --suppress=missingIncludeSystem -D_GNU_SOURCE -Iinclude python/core
	mypy --ignore-missing-imports --cache-dir $(BUILD)/mypy python/wideout

# ---- Demo and benchmarks ---------------------------------------------------------------------------------------------

demo:  ## all set-up, then from the package catalogue to an index 100 times faster than its layer, in three minutes
	$(call setup,build demo)
	@$(INNER) all $(BUILD)/wideout-bench
	@BUILD=$(BUILD) scripts/demo.sh

$(BUILD)/bench/%: bench/%.c $(ARCHIVES) $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,BENCH) $(CC) $(ALL_CFLAGS) -o $@ $< $(ARCHIVES) $(LDFLAGS) $(BENCH_LIBS) $(ZLIB) $(LIBS)
$(BUILD)/bench/load: BENCH_LIBS := $(MHD)

# What a reduced run covers, and what everything is; workloads whose data are not here are left out with a sentence.
BENCH_WORKLOADS := debian synthetic-100k eurlex57k diginetica wikitext-2
BENCH_ALL       := $(patsubst bench/workloads/%.workload,%,$(wildcard bench/workloads/*.workload))
BENCH_NETS      := debian eurlex57k diginetica wikitext-2-torch

# Networks that are not cached yet are trained first, which takes longer than the rest.
bench:  ## all set-up, then every method and peer on the data at hand, reduced: report.html in ten minutes
	$(call setup,build bench)
	@$(INNER) all $(BUILD)/wideout-bench
	@BUILD=$(BUILD) bench/nets.sh $(BENCH_NETS)
	@$(BUILD)/wideout-bench run $(BENCH_WORKLOADS)
	@$(BUILD)/wideout-bench report $$(ls $(BENCH_WORKLOADS:%=bench/results/%.json) 2>/dev/null) -o report.html

bench-full:  ## the same with every workload and the whole sweep: a night
	$(call setup,build bench)
	@$(INNER) all $(BUILD)/wideout-bench
	@BUILD=$(BUILD) bench/nets.sh
	@$(BUILD)/wideout-bench run --full $(BENCH_ALL)
	@$(BUILD)/wideout-bench report $$(ls $(BENCH_ALL:%=bench/results/%.json) 2>/dev/null) -o report.html

bench-kernels:  ## each kernel beside its reference and the machine's ceilings
	$(call setup,build bench)
	@$(INNER) $(BUILD)/bench/kernels
	@$(BUILD)/bench/kernels

# The text to read: EURLEX57K's training file where the data are at hand, else a made one of the same shape.
bench-parse:  ## how fast the extreme-classification parser reads
	$(call setup,build bench)
	@$(INNER) $(BUILD)/bench/parse
	@BUILD=$(BUILD) bench/parse.sh

bench-exact:  ## the exact layer beside the bare product and a plain read
	$(call setup,build bench)
	@$(INNER) $(BUILD)/bench/exact
	@$(BUILD)/bench/exact --json bench/results/exact.json

# Rivals are loaded where they are installed. On another machine: products --libs DIR, with the libraries in DIR.
# libxsmm is static in Debian, and not there for Arm: where it is, it becomes a library beside the program. A product that it
# has no tiles for it leaves to a BLAS: here to its own, which is slow and says so.
XSMM_LIBS := $(if $(filter $(BUILD)/bench/products,$(MAKECMDGOALS)),$(shell $(PKG_CONFIG) --libs libxsmmext libxsmmnoblas 2>/dev/null))
ONEDNN    := $(BUILD)/obj/bench/peers/onednn.o
$(BUILD)/bench/libxsmm.so:
	@mkdir -p $(@D)
	$(call say,LD) $(CC) -shared -o $@ $(patsubst %,-u libxsmm_%,smmdispatch sgemm_omp_ get_target_arch) $(XSMM_LIBS)
$(BUILD)/bench/products: $(ONEDNN) $(if $(XSMM_LIBS),$(BUILD)/bench/libxsmm.so)
$(BUILD)/bench/products: BENCH_LIBS := $(ONEDNN) -Wl,-rpath,'$$ORIGIN'
-include $(ONEDNN:.o=.d)
bench-products:  ## our products beside those of OpenBLAS, oneDNN, BLIS and libxsmm
	$(call setup,build bench)
	@$(INNER) $(BUILD)/bench/products
	@$(BUILD)/bench/products --json bench/results/products.json

bench-python: python  ## what Python adds to a search, beside the C call: a minute
	@PYTHONPATH=$(PY_BUILT) $(PYTHON) bench/python.py --json bench/results/python.json

# The network is trained once, in 15 minutes of processor time: ONLY_TRAIN=1 stops there.
bench-python-torch: all python  ## Debian's layer trained in PyTorch: WideLinear beside torch's own
	@WIDEOUT=$(BUILD)/wideout PYTHONPATH=$(PY_BUILT) $(PYTHON) bench/python_torch.py $(if $(ONLY_TRAIN),--only-train) \
	    --json bench/results/python-torch.json "$${WIDEOUT_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/wideout}/python-debian"

# SECONDS a round; SOAK=600: then full load for so many seconds, and a tenth of that with --exact, where nothing may fail and
# nothing grow. It goes to bench/results/serve.json. INDEX and LOG may be yours, and OTHER, an index of the same layer, to
# reload: then it is printed alone, and the soak stands in place of the rounds.
SECONDS ?= 2
SOAK    ?=
bench-serve:  ## load on 'wideout serve' beside a bare libmicrohttpd, over loopback: [SOAK=600] [INDEX=FILE LOG=FILE [OTHER=FILE]]
	$(call setup,build bench)
	@$(INNER) all $(BUILD)/bench/load
	@$(if $(INDEX),$(BUILD)/bench/load $(if $(SOAK),--soak $(SOAK)) $(BUILD)/wideout $(INDEX) $(LOG) $(if $(SOAK),,$(SECONDS) $(OTHER)),\
	    BUILD=$(BUILD) bench/serve.sh $(SECONDS) $(or $(SOAK),0))

bench-drift:  ## an index that learns while it serves, beside others, on the second half of Diginetica ('make nets')
	$(call setup,build bench)
	@$(INNER) all $(BUILD)/bench/replay
	@BUILD=$(BUILD) bench/drift.sh

bench-layout:  ## what the order and the pages of the rows are worth, on Debian's network (INDEX=FILE: time that too)
	$(call setup,build bench)
	@$(INNER) $(BUILD)/bench/layout
	@cd $${WIDEOUT_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/wideout}/debian && \
	    $(abspath $(BUILD))/bench/layout net.safetensors train.log test.log $(abspath $(INDEX))

# The peers of bench/peers, each where its headers are; peers.c says which are absent. CXXFLAGS is yours to set; so is
# FAISS_LIBS, for a Faiss of your own instead of Debian's, which is compiled for any x86-64.
# The C++ compiler is asked only for goals that link the peers: name a new one here. Sanitizers have none: hnswlib 0.6.2
# reads an id behind its lists, to prefetch it, and Faiss brings an OpenMP that is not instrumented.
PEER_GOALS := $(if $(SAN),,$(filter check $(BUILD)/wideout-bench $(BUILD)/bench/peers/test_peers,$(MAKECMDGOALS)))
HASH       := \#
PEERS      := $(if $(PEER_GOALS),$(shell printf '%s\n' '$(HASH)if __has_include(<hnswlib/hnswlib.h>)' hnswlib '$(HASH)endif' \
                  '$(HASH)if __has_include(<faiss/IndexPQ.h>)' faiss '$(HASH)endif' | $(CXX) -E -P -x c++ - 2>/dev/null))
PEER_OBJ   := $(patsubst %,$(BUILD)/obj/bench/peers/%.o,peers $(PEERS))
PEER_LD     = $(if $(PEERS),$(CXX),$(CC))
FAISS_LIBS ?= -lfaiss -llapack -lblas
# Both use OpenMP, which the library does not.
PEER_LIBS  := $(if $(filter faiss,$(PEERS)),$(FAISS_LIBS)) $(if $(PEERS),-fopenmp)
CXXFLAGS   ?= -O3 -march=native
PACKAGE_hnswlib = -DHNSWLIB_VERSION='"$(shell dpkg-query -W -f '$${Version}' libhnswlib-dev 2>/dev/null || echo of unknown version)"'
PACKAGE_faiss   = -DFAISS_PACKAGE='"$(shell dpkg-query -W -f 'Debian $${Version}' libfaiss-dev 2>/dev/null || echo no package)"'
$(BUILD)/obj/bench/peers/%.o: bench/peers/%.cpp $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,CXX) $(CXX) -std=c++17 -Wall -Wextra -Wshadow $(WERROR) $(SANFLAGS) -fvisibility=hidden -fPIC -fopenmp \
	    $(PKG_CFLAGS) $(PACKAGE_$*) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP -c $< -o $@
$(BUILD)/bench/peers/test_peers: $(BUILD)/obj/bench/peers/test_peers.o $(PEER_OBJ) $(ARCHIVES)
	@mkdir -p $(@D)
	$(call say,LD) $(PEER_LD) $(SANFLAGS) $(LDFLAGS) -o $@ $^ $(PEER_LIBS) $(ZLIB) $(LIBS)
-include $(wildcard $(BUILD)/obj/bench/peers/*.d)

# wideout-bench: the harness, the peers, the report, and the tool's own way with options and messages.
BENCH_SRC := $(filter-out bench/kernels.c bench/parse.c bench/exact.c bench/layout.c bench/products.c bench/coordinates.c bench/nearest.c bench/load.c bench/replay.c,$(wildcard bench/*.c))
BENCH_OBJ := $(BENCH_SRC:%.c=$(BUILD)/obj/%.o)
BENCH_CLI := $(patsubst %,$(BUILD)/obj/cli/%.o,options build_options words hints inputs output progress suggest)
$(BENCH_OBJ): private CPPFLAGS += -DBENCH_DIR='"$(CURDIR)/bench"'
$(BUILD)/wideout-bench: $(BENCH_OBJ) $(BENCH_CLI) $(PEER_OBJ) $(ARCHIVES)
	$(call say,LD) $(LINK) -o $@ $^ $(PEER_LIBS) $(ZLIB) $(LIBS) $(if $(PEERS),-lstdc++)
-include $(wildcard $(BENCH_OBJ:.o=.d))

# The checks; ON="net.safetensors test.log" adds the table of recall and time along each dial, some ten minutes.
bench-peers-test:  ## are hnswlib and Faiss set up rightly for the benchmark?
	$(call setup,build bench)
	@$(INNER) $(BUILD)/bench/peers/test_peers
	@$(BUILD)/bench/peers/test_peers $(ON)

# In the background: make nets > nets.log 2>&1 &
NETS ?=
nets:  ## train the networks that benchmarks use, once, into $WIDEOUT_CACHE (NETS="debian eurlex57k": only these)
	$(call setup,build bench)
	@$(INNER) all
	@BUILD=$(BUILD) bench/nets.sh $(NETS)

# ---- Python ----------------------------------------------------------------------------------------------------------

$(BUILD)/obj/python$(PY_SUFFIX)/%.o: python/core/%.c $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,CC) $(CC) $(filter-out -Isrc -I. -Wpedantic,$(ALL_CFLAGS)) -isystem $(firstword $(PY_ASKED)) $(word 4,$(PY_ASKED)) -MMD -MP -c $< -o $@
# The library is inside, its symbols hidden: another version of it in the same process does no harm.
$(PY_CORE): $(PY_OBJ) $(BUILD)/libwideout.a
	@mkdir -p $(@D)
	$(call say,LD) $(LINK) -shared -Wl,--exclude-libs,ALL -Wl,-z,nodelete -o $@ $^ $(LIBS)
$(PY_BUILT)/%: python/%
	@mkdir -p $(@D)
	@cp $< $@
ifneq ($(PY_SUFFIX),)
-include $(PY_OBJ:.o=.d)
python: $(PY_CORE) $(PY_FILES)  ## the Python package, in build/python (PYTHON=another python3)
else
python:
	@echo 'the Python package needs Python.h: install python3-dev (make deps)' >&2; exit 1
endif

test-python: python  ## the Python tests alone (PYTHON=/usr/bin/python3-dbg: under a debug Python)
	@BUILD=$(BUILD) SAN=$(SAN) CC='$(CC)' PYTHON='$(PYTHON)' PY_TESTED='$(PY_TESTED)' tests/run.sh python

PYTHONDIR = $(shell $(PYTHON) python/backend.py where $(PREFIX))
install-python: python  ## install the Python package under PREFIX (PYTHONDIR: the folder itself), DESTDIR before it
	@$(PYTHON) python/backend.py install $(PY_BUILT) $(DESTDIR)$(PYTHONDIR)
uninstall-python:  ## remove it
	@$(PYTHON) python/backend.py uninstall $(DESTDIR)$(PYTHONDIR)

# ---- Install ---------------------------------------------------------------------------------------------------------

SHARED := libwideout.so.$(VERSION)
# wideout-bench stays in the tree: it needs its workloads, and the peers.
MAN1   := $(filter-out docs/man/wideout-bench.1,$(wildcard docs/man/*.1))
MAN3   := $(wildcard docs/man/*.3)
# Where a folder is inside PREFIX, wideout.pc says so: a moved tree then needs one line changed.
pc      = $(patsubst $(PREFIX)/%,$${prefix}/%,$(1))
TO_BIN     = $(DESTDIR)$(BINDIR)
TO_LIB     = $(DESTDIR)$(LIBDIR)
TO_INCLUDE = $(DESTDIR)$(INCLUDEDIR)
TO_MAN     = $(DESTDIR)$(MANDIR)
TO_SHARE   = $(DESTDIR)$(PREFIX)/share

$(BUILD)/wideout.pc: include/wideout.h FORCE
	@mkdir -p $(@D)
	@printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(call pc,$(LIBDIR))' 'includedir=$(call pc,$(INCLUDEDIR))' '' 'Name: wideout' \
	    'Description: cheap inference for wide output layers on CPUs' 'Version: $(VERSION)' \
	    'Libs: -L$${libdir} -lwideout' 'Libs.private: $(PKG_LIBS) -lm -pthread' \
	    'Cflags: -I$${includedir}' > $@

install: all $(BUILD)/wideout.pc  ## install under PREFIX (default /usr/local), DESTDIR before it
	install -d $(TO_BIN) $(TO_LIB)/pkgconfig $(TO_INCLUDE) $(TO_MAN)/man1 $(TO_MAN)/man3 \
	    $(TO_SHARE)/bash-completion/completions $(TO_SHARE)/zsh/site-functions
	install -m 755 $(BUILD)/wideout $(TO_BIN)/wideout
	$(if $(MPI_MADE),install -m 755 $(MPI_MADE) mpi/wideout-mpirun $(TO_BIN))
	install -m 644 $(BUILD)/libwideout.a $(TO_LIB)/libwideout.a
	install -m 755 $(BUILD)/libwideout.so $(TO_LIB)/$(SHARED)
	ln -sf $(SHARED) $(TO_LIB)/libwideout.so.$(SOVERSION)
	ln -sf $(SHARED) $(TO_LIB)/libwideout.so
	install -m 644 include/wideout.h $(TO_INCLUDE)/wideout.h
	install -m 644 $(BUILD)/wideout.pc $(TO_LIB)/pkgconfig/wideout.pc
	install -m 644 $(MAN1) $(TO_MAN)/man1
	install -m 644 $(MAN3) $(TO_MAN)/man3
	$(RUN) $(BUILD)/wideout completion bash > $(TO_SHARE)/bash-completion/completions/wideout
	$(RUN) $(BUILD)/wideout completion zsh > $(TO_SHARE)/zsh/site-functions/_wideout
	@DESTDIR='$(DESTDIR)' scripts/ldconfig.sh '$(LIBDIR)' libwideout.so.$(SOVERSION)

uninstall:  ## remove what install put there
	rm -f $(TO_BIN)/wideout $(TO_BIN)/wideout-mpi $(TO_BIN)/wideout-mpirun $(TO_LIB)/libwideout.a $(TO_LIB)/libwideout.so $(TO_LIB)/libwideout.so.$(SOVERSION) \
	    $(TO_LIB)/$(SHARED) $(TO_INCLUDE)/wideout.h $(TO_LIB)/pkgconfig/wideout.pc \
	    $(MAN1:docs/man/%=$(TO_MAN)/man1/%) $(MAN3:docs/man/%=$(TO_MAN)/man3/%) \
	    $(TO_SHARE)/bash-completion/completions/wideout $(TO_SHARE)/zsh/site-functions/_wideout

clean:  ## remove everything that was built
	rm -rf $(BUILD)

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' Makefile

.PHONY: all abi deps test browser test-browser check check-unit test-arm asan ubsan tsan torture fuzz format lint demo bench bench-full bench-kernels bench-parse bench-exact bench-products bench-python bench-python-torch bench-layout bench-serve bench-drift bench-peers-test nets install uninstall \
        python test-python install-python uninstall-python clean help FORCE
.DELETE_ON_ERROR:
