# wideout: plain GNU make, no configure step. `make help` lists the targets.
#
# Yours to set: CC, CFLAGS, CPPFLAGS, LDFLAGS, PREFIX, DESTDIR, BUILD (the output folder), DEPS=0 (install nothing).

CC       ?= cc
CFLAGS   ?= -O2 -g
PREFIX   ?= /usr/local
DESTDIR  ?=
BUILD    ?= build
DEPS     ?= 1
CLANG    ?= clang
# Warnings stop the build in CI only: a newer compiler's new warning must not stop a user.
WERROR   := $(if $(CI),-Werror)
SAN      ?=
# Short lines by default; V=1 shows the whole commands.
V        ?= 0
say       = $(if $(filter 0,$(V)),@printf '  %-5s %s\n' $(1) $@ &&)
# For targets that build before they do something: all cores, unless -j was given to the outer make.
INNER     = $(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || echo 1))

VERSION  := $(shell awk '/define WO_VERSION_(MAJOR|MINOR|PATCH)/{printf "%s%s", s, $$3; s="."}' include/wideout.h)
SOVERSION := $(firstword $(subst ., ,$(VERSION)))

WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wwrite-strings
# The library needs PKGS, the workshop (text/, net/) and the tool zlib besides.
PKGS     := jansson openblas
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) zlib 2>/dev/null)
PKG_LIBS := $(or $(shell pkg-config --libs $(PKGS) 2>/dev/null),-ljansson -lopenblas)
ZLIB     := $(or $(shell pkg-config --libs zlib 2>/dev/null),-lz)
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
ALL_CFLAGS = -std=c17 -D_GNU_SOURCE -Iinclude -Isrc -I. $(WARN) $(WERROR) $(SANFLAGS) -fvisibility=hidden -fPIC -pthread \
             -fopenmp -ffp-contract=off $(PKG_CFLAGS) $(CPPFLAGS) $(CFLAGS)
LIBS     = $(PKG_LIBS) -lm -pthread -fopenmp

# One file per instruction set, each with its own flags; nothing else gets them. Other processors than x86-64 have the
# reference kernels only.
X86      := $(filter x86_64%,$(shell $(CC) -dumpmachine 2>/dev/null || echo x86_64))
ISA_avx2       := -mavx2 -mfma -mf16c
ISA_avx2pick   := $(ISA_avx2)
ISA_avx512     := $(ISA_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl
ISA_avx512pick := $(ISA_avx512)
ISA_avx512vnni := $(ISA_avx512) -mavx512vnni

LIB_SRC  := $(wildcard src/*/*.c)
LIB_SRC  := $(if $(X86),$(LIB_SRC),$(filter-out src/kernels/avx%,$(LIB_SRC)))
LIB_OBJ  := $(LIB_SRC:%.c=$(BUILD)/obj/%.o)
SHOP_SRC := $(wildcard text/*.c net/*.c)
SHOP_OBJ := $(SHOP_SRC:%.c=$(BUILD)/obj/%.o)
# What our own programs link, in this order: the workshop stands on the library.
ARCHIVES := $(BUILD)/libworkshop.a $(BUILD)/libwideout.a
CLI_SRC  := $(wildcard cli/*.c)
CLI_OBJ  := $(CLI_SRC:%.c=$(BUILD)/obj/%.o)

.DEFAULT_GOAL := all
all: $(BUILD)/libwideout.a $(BUILD)/libwideout.so $(BUILD)/wideout  ## build the library and the tool (default)

$(BUILD)/obj/%.o: %.c $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,CC) $(CC) $(ALL_CFLAGS) $(ISA_$(notdir $*)) -MMD -MP -c $< -o $@

# Rewritten only when the compiler or its flags change, so that everything is then rebuilt and otherwise nothing.
FLAGS_NOW = $(CC) $(ALL_CFLAGS)
$(BUILD)/.flags: FORCE
	@mkdir -p $(@D)
	@echo '$(FLAGS_NOW)' | cmp -s - $@ || echo '$(FLAGS_NOW)' > $@
FORCE:

$(BUILD)/libwideout.a: $(LIB_OBJ)
	@rm -f $@
	$(call say,AR) ar rcs $@ $^
$(BUILD)/libworkshop.a: $(SHOP_OBJ)
	@rm -f $@
	$(call say,AR) ar rcs $@ $^
# nodelete: the library's threads sleep until the process ends (src/base/team.c), and must not lose their code to dlclose.
$(BUILD)/libwideout.so: $(LIB_OBJ)
	$(call say,LD) $(CC) $(SANFLAGS) $(LDFLAGS) -shared -Wl,-z,nodelete -Wl,-soname,libwideout.so.$(SOVERSION) -o $@ $^ $(LIBS)
$(BUILD)/wideout: $(CLI_OBJ) $(ARCHIVES)
	$(call say,LD) $(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $^ $(ZLIB) $(LIBS)

-include $(LIB_OBJ:.o=.d) $(SHOP_OBJ:.o=.d) $(CLI_OBJ:.o=.d)

# ---- Set-up ----------------------------------------------------------------------------------------------------------

# Installs a group's missing packages before anything that needs them; $(call setup,build test)
setup = $(if $(filter 0,$(DEPS)),,@scripts/deps.sh $(1))

deps:  ## install the packages that building, testing and checking need
	@scripts/deps.sh build test bench check

# ---- Tests -----------------------------------------------------------------------------------------------------------

TEST_SRC := $(wildcard tests/unit/test_*.c tests/kernels/test_*.c)
# The cmocka programs are an optional part: left out, with a line, where the library is missing (DEPS=0).
CMOCKA   := $(shell pkg-config --libs cmocka 2>/dev/null)
TESTS    := $(if $(CMOCKA),$(TEST_SRC:tests/%.c=$(BUILD)/tests/%))
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZERS  := $(FUZZ_SRC:tests/%.c=$(BUILD)/tests/%)
EXAMPLES := $(patsubst %.c,$(BUILD)/%,$(wildcard examples/*.c))

# A test includes one .c and links the static library, so it sees the internal symbols too.
$(BUILD)/tests/fuzz/%: tests/fuzz/%.c tests/fuzz/replay.c $(ARCHIVES) $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,TEST) $(CC) $(ALL_CFLAGS) -o $@ $< tests/fuzz/replay.c $(ARCHIVES) $(LDFLAGS) $(ZLIB) $(LIBS)
$(BUILD)/tests/%: tests/%.c $(wildcard tests/*.h) $(ARCHIVES) $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,TEST) $(CC) $(ALL_CFLAGS) -Itests -o $@ $< $(ARCHIVES) $(LDFLAGS) $(CMOCKA) $(ZLIB) $(LIBS)
# Examples are built as a user would: the public header and the library, nothing else.
$(BUILD)/examples/%: examples/%.c $(BUILD)/libwideout.a $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,EX) $(CC) -std=c11 -Iinclude $(WARN) $(WERROR) $(SANFLAGS) $(CFLAGS) -o $@ $< $(BUILD)/libwideout.a $(LDFLAGS) $(LIBS)

test:  ## all set-up, then every test
	$(call setup,build test)
	@$(INNER) check

# Not under ThreadSanitizer: Faiss brings an OpenMP of its own, which is not instrumented.
check: all $(TESTS) $(FUZZERS) $(EXAMPLES) $(if $(filter thread,$(SAN)),,$(BUILD)/wideout-bench)  # the tests alone, without set-up
	@$(if $(CMOCKA),:,echo 'the unit tests are left out: cmocka is not installed (make deps)')
	@BUILD=$(BUILD) SAN=$(SAN) CC='$(CC)' tests/run.sh

asan:  ## the tests under AddressSanitizer and UBSan, in build/asan
	$(call setup,build test)
	@$(INNER) BUILD=build/asan SAN=address,undefined CFLAGS='-O1 -g' check
ubsan:  ## the tests under UBSan alone, in build/ubsan
	$(call setup,build test)
	@$(INNER) BUILD=build/ubsan SAN=undefined CFLAGS='-O2 -g' check
tsan:  ## the tests under ThreadSanitizer (clang, LLVM's OpenMP), in build/tsan
	$(call setup,build test check)
	@$(INNER) BUILD=build/tsan SAN=thread CC=$(CLANG) CFLAGS='-O1 -g' check

# libFuzzer, for as long as you like: make fuzz TARGET=fuzz_xc FUZZ_TIME=600
TARGET    ?= fuzz_xc
FUZZ_TIME ?= 60
fuzz:  ## fuzz one parser with libFuzzer: TARGET=fuzz_(xc|safetensors|npy|deb822|text), FUZZ_TIME=seconds
	$(call setup,build check)
	@$(INNER) BUILD=build/fuzz SAN=address,undefined CC=$(CLANG) CFLAGS='-O1 -g -fsanitize=fuzzer-no-link' build/fuzz/libwideout.a build/fuzz/libworkshop.a
	@mkdir -p build/fuzz/corpus/$(TARGET)
	$(CLANG) -std=c17 -D_GNU_SOURCE -Iinclude -Isrc -I. -O1 -g -fsanitize=fuzzer,address,undefined -o build/fuzz/$(TARGET) \
	    tests/fuzz/$(TARGET).c build/fuzz/libworkshop.a build/fuzz/libwideout.a $(ZLIB) $(LIBS)
	@tests/cli/malformed.sh --make build/fuzz/seeds
	build/fuzz/$(TARGET) -artifact_prefix=build/fuzz/ -max_total_time=$(FUZZ_TIME) build/fuzz/corpus/$(TARGET) build/fuzz/seeds tests/fuzz/seeds

# ---- Lint ------------------------------------------------------------------------------------------------------------

C_FILES := $(wildcard include/*.h src/*/*.[ch] text/*.[ch] net/*.[ch] cli/*.[ch] bench/*.[ch] bench/peers/*.[ch] bench/peers/*.cpp tests/*/*.[ch] tests/*.h examples/*.c)
SH_FILES := $(wildcard scripts/*.sh bench/*.sh tests/*.sh tests/*/*.sh .ci/run)

format:  ## format the C code in place
	$(call setup,check)
	clang-format -i $(C_FILES)

lint:  ## formatting, clang-tidy, cppcheck, include arrows, shellcheck
	$(call setup,build check)
	clang-format --dry-run -Werror $(C_FILES)
	scripts/check-arrows.sh
	shellcheck $(SH_FILES)
	cppcheck --quiet --std=c11 --error-exitcode=1 --inline-suppr --enable=warning,portability,performance \
	    --suppress=missingIncludeSystem --suppress=uninitvar:/usr/include/xxhash.h -D_GNU_SOURCE -Iinclude -Isrc -I. -Icli src text net cli
	printf '%s\n' $(filter-out src/kernels/avx%,$(LIB_SRC)) $(SHOP_SRC) $(CLI_SRC) | xargs -P $$(nproc) -n 4 sh -c \
	    'clang-tidy --quiet --warnings-as-errors="*" "$$@" -- -std=c17 -D_GNU_SOURCE -Iinclude -Isrc -I. $(PKG_CFLAGS) 2>/dev/null' tidy

# ---- Demo and benchmarks ---------------------------------------------------------------------------------------------

demo:  ## all set-up, then from the package catalogue to an index 100 times faster than its layer, in three minutes
	$(call setup,build demo)
	@$(INNER) all $(BUILD)/wideout-bench
	@BUILD=$(BUILD) scripts/demo.sh

$(BUILD)/bench/%: bench/%.c $(ARCHIVES) $(BUILD)/.flags
	@mkdir -p $(@D)
	$(call say,BENCH) $(CC) $(ALL_CFLAGS) -o $@ $< $(ARCHIVES) $(LDFLAGS) $(ZLIB) $(LIBS)

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

bench-exact:  ## the exact layer beside bare sgemm and a plain read
	$(call setup,build bench)
	@$(INNER) $(BUILD)/bench/exact
	@$(BUILD)/bench/exact --json bench/results/exact.json

bench-layout:  ## what the order and the pages of the rows are worth, on Debian's network (INDEX=FILE: time that too)
	$(call setup,build bench)
	@$(INNER) $(BUILD)/bench/layout
	@cd $${WIDEOUT_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/wideout}/debian && \
	    $(abspath $(BUILD))/bench/layout net.safetensors train.log test.log $(abspath $(INDEX))

# The peers of bench/peers, each where its headers are; peers.c says which are absent. CXXFLAGS is yours to set; so is
# FAISS_LIBS, for a Faiss of your own instead of Debian's, which is compiled for any x86-64.
HASH       := \#
PEERS      := $(shell printf '%s\n' '$(HASH)if __has_include(<hnswlib/hnswlib.h>)' hnswlib '$(HASH)endif' \
                  '$(HASH)if __has_include(<faiss/IndexPQ.h>)' faiss '$(HASH)endif' | $(CXX) -E -P -x c++ - 2>/dev/null)
PEER_OBJ   := $(patsubst %,$(BUILD)/obj/bench/peers/%.o,peers $(PEERS))
PEER_LD     = $(if $(PEERS),$(CXX),$(CC))
FAISS_LIBS ?= -lfaiss
PEER_LIBS  := $(if $(filter faiss,$(PEERS)),$(FAISS_LIBS))
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

# wideout-bench: the harness, the peers, the report, and the tool's own way with options and messages. Linked by CC, whose
# OpenMP the library was compiled for.
BENCH_SRC := $(filter-out bench/kernels.c bench/parse.c bench/exact.c bench/layout.c,$(wildcard bench/*.c))
BENCH_OBJ := $(BENCH_SRC:%.c=$(BUILD)/obj/%.o)
BENCH_CLI := $(patsubst %,$(BUILD)/obj/cli/%.o,options build_options output progress)
$(BENCH_OBJ): private CPPFLAGS += -DBENCH_DIR='"$(CURDIR)/bench"'
$(BUILD)/wideout-bench: $(BENCH_OBJ) $(BENCH_CLI) $(PEER_OBJ) $(ARCHIVES)
	$(call say,LD) $(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $^ $(PEER_LIBS) $(ZLIB) $(LIBS) $(if $(PEERS),-lstdc++)
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

# ---- Install ---------------------------------------------------------------------------------------------------------

SHARED := libwideout.so.$(VERSION)
# wideout-bench stays in the tree: it needs its workloads, and the peers.
MAN1   := $(filter-out docs/man/wideout-bench.1,$(wildcard docs/man/*.1))
MAN3   := $(wildcard docs/man/*.3)
D      := $(DESTDIR)$(PREFIX)

# Libs.private and not Requires.private: OpenBLAS's own private libraries (gfortran) are for linking it statically too.
$(BUILD)/wideout.pc: include/wideout.h FORCE
	@mkdir -p $(@D)
	@printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$${prefix}/lib' 'includedir=$${prefix}/include' '' 'Name: wideout' \
	    'Description: cheap inference for wide output layers on CPUs' 'Version: $(VERSION)' \
	    'Libs: -L$${libdir} -lwideout' 'Libs.private: $(PKG_LIBS) -lm -pthread -fopenmp' \
	    'Cflags: -I$${includedir}' > $@

install: all $(BUILD)/wideout.pc  ## install under PREFIX (default /usr/local), DESTDIR before it
	install -d $(D)/bin $(D)/lib/pkgconfig $(D)/include $(D)/share/man/man1 $(D)/share/man/man3 \
	    $(D)/share/bash-completion/completions $(D)/share/zsh/site-functions
	install -m 755 $(BUILD)/wideout $(D)/bin/wideout
	install -m 644 $(BUILD)/libwideout.a $(D)/lib/libwideout.a
	install -m 755 $(BUILD)/libwideout.so $(D)/lib/$(SHARED)
	ln -sf $(SHARED) $(D)/lib/libwideout.so.$(SOVERSION)
	ln -sf $(SHARED) $(D)/lib/libwideout.so
	install -m 644 include/wideout.h $(D)/include/wideout.h
	install -m 644 $(BUILD)/wideout.pc $(D)/lib/pkgconfig/wideout.pc
	install -m 644 $(MAN1) $(D)/share/man/man1
	install -m 644 $(MAN3) $(D)/share/man/man3
	$(BUILD)/wideout completion bash > $(D)/share/bash-completion/completions/wideout
	$(BUILD)/wideout completion zsh > $(D)/share/zsh/site-functions/_wideout

uninstall:  ## remove what install put there
	rm -f $(D)/bin/wideout $(D)/lib/libwideout.a $(D)/lib/libwideout.so $(D)/lib/libwideout.so.$(SOVERSION) \
	    $(D)/lib/$(SHARED) $(D)/include/wideout.h $(D)/lib/pkgconfig/wideout.pc \
	    $(MAN1:docs/man/%=$(D)/share/man/man1/%) $(MAN3:docs/man/%=$(D)/share/man/man3/%) \
	    $(D)/share/bash-completion/completions/wideout $(D)/share/zsh/site-functions/_wideout

clean:  ## remove everything that was built
	rm -rf $(BUILD)

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' Makefile

.PHONY: all deps test check asan ubsan tsan fuzz format lint demo bench bench-full bench-kernels bench-parse bench-exact bench-layout bench-peers-test nets install uninstall \
        clean help FORCE
.DELETE_ON_ERROR:
