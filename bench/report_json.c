/* Reading JSON that strangers wrote: every member is checked for its type and range, and what is wrong is one sentence
 * with the place, what was expected and what is there. */
#include "report_data.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_FILE_BYTES = 32 << 20 };

static const char *kind_of(const json_t *value)
{
    if (!value) return "nothing";
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a text";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_NULL: return "null";
    default: return "true or false";
    }
}

static bool wrong(char error[REPORT_ERROR_BYTES], const char *where, const char *key, const char *expected,
                  const json_t *value)
{
    if (json_is_number(value))
        snprintf(error, REPORT_ERROR_BYTES, "%s%s: expected %s, not %.6g", where, key, expected,
                 json_number_value(value));
    else
        snprintf(error, REPORT_ERROR_BYTES, "%s%s: expected %s, not %s", where, key, expected, kind_of(value));
    return false;
}

static json_t *member(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

bool report_get_number(const json_t *object, const char *where, const char *key, report_numbers expected, double *out,
                       char error[REPORT_ERROR_BYTES])
{
    const double low = expected.low, high = expected.high;
    const json_t *value = member(object, key);
    if (!value && !expected.required) return true;
    const double number = json_number_value(value);
    if (json_is_number(value) && number >= low && number <= high) {
        *out = number;
        return true;
    }
    char words[80];
    if (high < 1e100)
        snprintf(words, sizeof words, "a number from %.6g to %.6g", low, high);
    else
        snprintf(words, sizeof words, low > -1e100 ? "a number of at least %.6g" : "a number", low);
    return wrong(error, where, key, words, value);
}

bool report_get_count(const json_t *object, const char *where, const char *key, report_counts expected, uint64_t *out,
                      char error[REPORT_ERROR_BYTES])
{
    const uint64_t low = expected.low, high = expected.high;
    const json_t *value = member(object, key);
    if (!value && !expected.required) return true;
    const json_int_t number = json_integer_value(value);
    if (json_is_integer(value) && number >= 0 && (uint64_t)number >= low && (uint64_t)number <= high) {
        *out = (uint64_t)number;
        return true;
    }
    char words[80];
    snprintf(words, sizeof words, "a whole number from %" PRIu64 " to %" PRIu64, low, high);
    return wrong(error, where, key, words, value);
}

bool report_get_text(const json_t *object, const char *where, const char *key, bool required, const char **out,
                     char error[REPORT_ERROR_BYTES])
{
    const json_t *value = member(object, key);
    if (!value && !required) return true;
    if (!json_is_string(value)) return wrong(error, where, key, "a text", value);
    *out = json_string_value(value);
    return true;
}

bool report_get_array(const json_t *object, const char *where, const char *key, size_t most, json_t **out,
                      char error[REPORT_ERROR_BYTES])
{
    *out = member(object, key);
    if (!*out) return true;
    if (!json_is_array(*out)) return wrong(error, where, key, "an array", *out);
    if (json_array_size(*out) <= most) return true;
    snprintf(error, REPORT_ERROR_BYTES, "%s%s: at most %zu entries, not %zu", where, key, most, json_array_size(*out));
    return false;
}

bool report_get_object(const json_t *object, const char *where, const char *key, json_t **out,
                       char error[REPORT_ERROR_BYTES])
{
    *out = member(object, key);
    return !*out || json_is_object(*out) || wrong(error, where, key, "an object", *out);
}

json_t *report_load(const char *path, char error[REPORT_ERROR_BYTES])
{
    json_t *root = NULL;
    json_error_t at;
    struct stat info;
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &info)) {
        snprintf(error, REPORT_ERROR_BYTES, "cannot open: %s", strerror(errno));
    } else if (S_ISDIR(info.st_mode)) {
        snprintf(error, REPORT_ERROR_BYTES, "is a folder, not a file of results");
    } else if (info.st_size > MAX_FILE_BYTES) {
        snprintf(error, REPORT_ERROR_BYTES, "has %jd bytes; results have at most %d", (intmax_t)info.st_size,
                 MAX_FILE_BYTES);
    } else if (!(root = json_loadf(file, JSON_REJECT_DUPLICATES, &at))) {
        snprintf(error, REPORT_ERROR_BYTES, "is not JSON: line %d: %s", at.line, at.text);
    }
    if (file) fclose(file);
    return root;
}
