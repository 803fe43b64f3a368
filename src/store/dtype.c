/* Element types: names, sizes, conversion to the two types that we compute with. */
#include "base/bf16.h"
#include "base/error.h"
#include "store/store.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[WOI_N_DTYPES] = {
    [WOI_F64] = {"F64", 8},   [WOI_F32] = {"F32", 4},         [WOI_F16] = {"F16", 2},         [WOI_BF16] = {"BF16", 2},
    [WOI_I64] = {"I64", 8},   [WOI_I32] = {"I32", 4},         [WOI_I16] = {"I16", 2},         [WOI_I8] = {"I8", 1},
    [WOI_U64] = {"U64", 8},   [WOI_U32] = {"U32", 4},         [WOI_U16] = {"U16", 2},         [WOI_U8] = {"U8", 1},
    [WOI_BOOL] = {"BOOL", 1}, [WOI_F8_E5M2] = {"F8_E5M2", 1}, [WOI_F8_E4M3] = {"F8_E4M3", 1},
};

const char *woi_dtype_name(woi_dtype dtype)
{
    return dtypes[dtype].name;
}

size_t woi_dtype_bytes(woi_dtype dtype)
{
    return dtypes[dtype].bytes;
}

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float woi_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = (half >> 10) & 31, mantissa = half & 1023;
    if (exponent == 31) return float_of_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent != 0) return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float tiny = (float)mantissa * 0x1p-24f;
    return sign ? -tiny : tiny;
}

uint16_t woi_f32_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40); /* keep a NaN a NaN */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

bool woi_fits_bf16(float value)
{
    const float largest = 0x1.fep127F, half_a_step = 0x1p119F; /* the tie goes to the even one, which is infinity */
    return !isfinite(value) || fabsf(value) < largest + half_a_step;
}

/* memcpy per element: tensors of other people's files may lie at any byte. Compilers make plain loads of it. */
#define CONVERT(source_type, expression)                         \
    for (size_t i = 0; i < n; i++) {                             \
        source_type x;                                           \
        memcpy(&x, (const char *)from + i * sizeof x, sizeof x); \
        to[i] = (expression);                                    \
    }                                                            \
    return WO_OK

wo_status woi_convert_f32(woi_dtype dtype, const void *from, size_t n, float *to, wo_error *err)
{
    switch (dtype) {
    case WOI_F64: CONVERT(double, (float)x);
    case WOI_F32: CONVERT(float, x);
    case WOI_F16: CONVERT(uint16_t, woi_f16_to_f32(x));
    case WOI_BF16: CONVERT(uint16_t, woi_bf16_to_f32(x));
    default:
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET, "%s elements cannot be read as floats",
                        woi_dtype_name(dtype));
    }
}

wo_status woi_convert_i64(woi_dtype dtype, const void *from, size_t n, int64_t *to, wo_error *err)
{
    switch (dtype) {
    case WOI_I64: CONVERT(int64_t, x);
    case WOI_I32: CONVERT(int32_t, x);
    case WOI_I8: CONVERT(int8_t, x);
    case WOI_U8: CONVERT(uint8_t, x);
    default:
        return woi_fail(err, WO_ERR_UNSUPPORTED, WO_NO_OFFSET, "%s elements cannot be read as integers",
                        woi_dtype_name(dtype));
    }
}
