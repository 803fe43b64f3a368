/* The driver for fuzz targets where libFuzzer is absent: runs every file that is named, and some mutations of each,
 * always the same ones. Usage: fuzz_xxx MUTATIONS FILE... */
#include "fuzz.h"

#include "base/rng.h"

#include <string.h>

/* What a target that knows its format has in place of `mutate`. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed) __attribute__((weak));

/* Change, delete, or double a few bytes, as seed and round say. */
static size_t mutate(uint8_t *data, size_t bytes, uint64_t seed, uint64_t round)
{
    uint64_t edits = 1 + woi_rng_below(seed, round, 0, 4);
    for (uint64_t i = 1; i <= edits && bytes > 0; i++) {
        uint64_t choice = woi_rng_u64(seed, round, 4 * i);
        size_t at = woi_rng_below(seed, round, 4 * i + 1, bytes), n = 1 + woi_rng_below(seed, round, 4 * i + 2, 8);
        if (n > bytes - at) n = bytes - at;
        static const char likely[] = "0123456789 ,:\n\r.-{}[]\"e\0\xff|#(\t";
        switch (choice % 4) {
        case 0: data[at] ^= (uint8_t)(1u << (choice >> 8 & 7)); break;
        case 1: data[at] = (uint8_t)likely[choice / 4 % (sizeof likely - 1)]; break;
        case 2:
            memmove(data + at, data + at + n, bytes - at - n);
            bytes -= n;
            break;
        default: /* the buffer has room for 4 edits of 8 bytes */
            memmove(data + at + n, data + at, bytes - at);
            bytes += n;
        }
    }
    return bytes;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s MUTATIONS FILE...\n", argv[0]);
        return 2;
    }
    const size_t most = LLVMFuzzerCustomMutator ? 100000 : 10000; /* bytes of a file that is worth mutating */
    uint64_t runs = 0, mutations = strtoull(argv[1], NULL, 10);
    for (int i = 2; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        if (!file || fseek(file, 0, SEEK_END) != 0) return 1;
        size_t bytes = (size_t)ftell(file);
        rewind(file);
        uint8_t *data = malloc(bytes + 64), *copy = malloc(bytes + 64);
        if (!data || !copy || fread(data, 1, bytes, file) != bytes) return 1;
        fclose(file);
        LLVMFuzzerTestOneInput(data, bytes);
        runs++;
        for (uint64_t round = 0; round < mutations && bytes < most; round++, runs++) {
            memcpy(copy, data, bytes);
            const unsigned seed = (unsigned)woi_rng_u64((uint64_t)i, round, 0);
            const size_t changed = LLVMFuzzerCustomMutator ? LLVMFuzzerCustomMutator(copy, bytes, bytes + 64, seed)
                                                           : mutate(copy, bytes, (uint64_t)i, round);
            LLVMFuzzerTestOneInput(copy, changed);
        }
        free(data);
        free(copy);
    }
    printf("%llu inputs\n", (unsigned long long)runs);
    return 0;
}
