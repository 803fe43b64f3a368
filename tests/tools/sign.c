/* Changes files of ours so that their checksums are right afterwards, for the scripts that play an attacker.
 *
 *   sign FROM TO OLD NEW...   every OLD in the header, a text of as many bytes, becomes NEW; then all is signed
 *   sign --curve N FROM TO    a tuned index whose curve has N rows, each better and slower than the one before */
#include "signing.h"

#include <math.h>

static unsigned char *slurp(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) return NULL;
    *bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char *data = malloc(*bytes + 1);
    if (data && fread(data, 1, *bytes, file) != *bytes) *bytes = 0;
    fclose(file);
    return data;
}

static int change(int n, char **words)
{
    size_t bytes = 0;
    unsigned char *data = slurp(words[0], &bytes);
    uint64_t header_bytes;
    if (!data || bytes < 8) return 1;
    memcpy(&header_bytes, data, 8);
    for (int i = 2; i + 1 < n; i += 2) {
        const size_t length = strlen(words[i]);
        if (strlen(words[i + 1]) != length || header_bytes > bytes - 8) return 1;
        char *at = memmem(data + 8, header_bytes, words[i], length);
        if (!at) fprintf(stderr, "sign: '%s' is not in the header\n", words[i]);
        if (!at) return 1;
        memcpy(at, words[i + 1], length);
    }
    if (!sign(data, bytes)) fprintf(stderr, "sign: no file of ours any more\n");
    FILE *to = fopen(words[1], "wb");
    const bool written = to && fwrite(data, 1, bytes, to) == bytes;
    free(data);
    return to && fclose(to) == 0 && written ? 0 : 1;
}

/* The first row of the curve, again and again. */
static double *repeat(const woi_tensor *curve, uint64_t n)
{
    const size_t columns = (size_t)curve->shape[1];
    double *rows = malloc(n * columns * sizeof *rows);
    for (uint64_t i = 0; rows && i < n; i++) {
        double *row = rows + i * columns;
        memcpy(row, curve->data, columns * sizeof *row);
        row[0] = row[1] = row[2] = (double)(i + 1) / (double)n; /* P@1, P@5, agreement */
        row[7] = (double)(i + 1);                               /* us */
        row[8] = row[9] = 0;                                    /* met, chosen */
    }
    return rows;
}

static bool write_tensors(woi_st *st, woi_st_writer *to, const uint64_t shape[2], const double *rows)
{
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < woi_st_n_tensors(st); i++) {
            const woi_tensor *t = woi_st_tensor(st, i);
            const bool edited = strcmp(t->name, "curve") == 0;
            if (strncmp(t->name, "padding.", 8) == 0) continue;
            const size_t bytes = edited ? shape[0] * shape[1] * sizeof *rows : t->bytes;
            if (pass ? woi_st_append(to, edited ? rows : t->data, bytes, NULL)
                     : woi_st_declare(to, t->name, t->dtype, t->n_dims, edited ? shape : t->shape, NULL))
                return false;
        }
    return true;
}

static int lengthen(uint64_t n, const char *from, const char *path)
{
    woi_st *st = NULL;
    woi_st_writer *to = NULL;
    if (woi_st_open(from, &st, NULL) || woi_st_create(path, "index", &to, NULL)) return 1;
    const char *key, *value;
    for (void *cursor = NULL; woi_st_meta_next(st, &cursor, &key, &value);)
        if (strncmp(key, "wideout.", 8) != 0 && strncmp(key, "xxh3.", 5) != 0 && strcmp(key, "kind") != 0 &&
            woi_st_set_meta(to, key, value, NULL))
            return 1;
    const woi_tensor *curve = woi_st_find(st, "curve");
    if (!curve) return 1;
    double *rows = repeat(curve, n);
    const bool done = rows && write_tensors(st, to, (uint64_t[]){n, curve->shape[1]}, rows) && !woi_st_finish(to, NULL);
    woi_st_writer_free(to);
    woi_st_free(st);
    free(rows);
    return done ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "--curve") == 0) return lengthen(strtoull(argv[2], NULL, 10), argv[3], argv[4]);
    if (argc >= 3 && argc % 2 == 1) return change(argc - 1, argv + 1);
    fprintf(stderr, "usage: sign FROM TO [OLD NEW]... | sign --curve N FROM TO\n");
    return 2;
}
