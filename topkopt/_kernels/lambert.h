/* V(t) = W(e^t), the Lambert function of an exponential, over arrays.
 *
 * Solve        V + log V = t        for V > 0.
 * The solution is, with z = e^t,
 *   t <  1:  V = z P(z)/Q(z), a rational approximation of W(z)/z on [0, e];
 *   t >= 1:  w = t - L + g(L), L ~ log t, good to 3e-4, and then one step of order four
 *            (Fritsch, Shafer, Crowley, CACM 16 (1973) 123, doi:10.1145/361952.361970):
 *            r = t - w - log w,  p = 1 + w,  a = p(p + 2r/3),
 *            V = w + w (r/p) (a - r/2)/(a - r).
 * Above 2^60 (float: 2^32) log t is below the rounding of t, so that V(t + d) = V(t) + d there.
 *
 * The bodies are free of branches and the loops have constant length, so that any compiler can
 * vectorise them; elements that do not fill a block are padded, hence V(t) has the same bits
 * wherever t stands in an array.
 *
 * Coefficients: least squares on Chebyshev nodes in 50 digits, reweighted (Lawson) until the
 * relative error (absolute, for logarithms) levels out; rationals with the denominator of the
 * previous sweep in the weight (Sanathanan, Koerner).  The error left is noted at each of them.
 */
#ifndef TOPKOPT_LAMBERT_H
#define TOPKOPT_LAMBERT_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "simd.h"

#define TK_CHUNK 64 /* elements that share one decision on which branches to run */
#define TK_BLOCK 16 /* elements of one unrolled step: a multiple of every vector length */

/* ---- double ------------------------------------------------------------------------------ */

TK_INLINE uint64_t tk_bits(double x) { uint64_t u; memcpy(&u, &x, sizeof u); return u; }
TK_INLINE double tk_double(uint64_t u) { double x; memcpy(&x, &u, sizeof x); return x; }

/* e^t for any t, within 0.8 ulp, subnormal results included. */
TK_INLINE double tk_exp(double t)
{
    t = t > 710.0 ? 710.0 : t; /* comparisons are written so that NaN passes through */
    t = t < -750.0 ? -750.0 : t;
    /* t = k log 2 + r; adding 1.5 * 2^52 rounds to the integer k and leaves it in the low bits */
    const double shifted = t * 1.4426950408889634 + 6755399441055744.0;
    const double k = shifted - 6755399441055744.0;
    const double r = (t - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    const double r2 = r * r;
    const double r4 = r2 * r2;
    /* (e^r - 1 - r)/r^2 on |r| <= log(2)/2, 0.016 eps */
    const double low = (0.5000000000000011 + r * 0.16666666666666405)
                     + r2 * (0.04166666666652824 + r * 0.008333333333496592);
    const double high = (0.0013888888944145242 + r * 0.00019841269504164964)
                      + r2 * (2.480149255758801e-05 + r * 2.7557587253449927e-06)
                      + r4 * (2.763044366630845e-07 + r * 2.5000120604132466e-08);
    const double mantissa = 1.0 + (r + r2 * (low + r4 * high));
    /* 2^k as a product of two powers: neither leaves the range when the result is subnormal */
    const uint64_t u = tk_bits(shifted);
    const uint64_t half = u >> 1;
    const uint64_t one = UINT64_C(0x3ff0000000000000);
    return mantissa * tk_double((half << 52) + one) * tk_double(((u - half) << 52) + one);
}

/* Splits x >= 1/sqrt(2) into 2^e (1 + f), 1/sqrt(2) <= 1 + f < sqrt(2). */
TK_INLINE double tk_split(double x, double *e)
{
    const uint64_t u = tk_bits(x);
    const uint64_t k = (u - UINT64_C(0x3fe6a09e667f3bcd)) >> 52;
    *e = tk_double(k | UINT64_C(0x4330000000000000)) - 4503599627370496.0;
    return tk_double(u - (k << 52)) - 1.0;
}

/* log x for x >= 1/sqrt(2): 2 atanh(s) = 2s + s^3 G(s^2), s = f/(2 + f), 0.001 eps. */
TK_INLINE double tk_log(double x)
{
    double e;
    const double f = tk_split(x, &e);
    const double s = f / (2.0 + f);
    const double v = s * s;
    const double v2 = v * v;
    const double g = (0.6666666666666811 + v * 0.39999999999007907)
                   + v2 * ((0.2857142881992589 + v * 0.22222191497584057)
                           + v2 * (0.18183899015412994 + v * 0.15306131987652163
                                   + v2 * 0.148700684358606));
    return e * 6.93147180369123816490e-01
         + (2.0 * s + (s * v * g + e * 1.90821492927058770002e-10));
}

/* V(t) for t <= 1 (larger t: V(1)). */
TK_INLINE double tk_v_low(double t)
{
    t = t > 1.0 ? 1.0 : t;
    const double z = tk_exp(t);
    const double z2 = z * z;
    /* W(z)/z on [0, e], 0.18 eps; even and odd powers apart for shorter chains */
    const double p_even = 1.0 + z2 * (26.600423054184795 + z2 * (37.47850236316534
                        + z2 * (3.884847274007596 + z2 * 0.010876444377105785)));
    const double p_odd = 8.227168240465886 + z2 * (43.19340723565981 + z2 * (17.181760719475964
                       + z2 * (0.373277412195983 + z2 * 1.9944868719328638e-05)));
    const double q_even = 1.0 + z2 * (34.327591294654304 + z2 * (71.7314769049142
                        + z2 * (14.408501506583095 + z2 * 0.16061302274019176)));
    const double q_odd = 9.227168240465865 + z2 * (66.34691283606746 + z2 * (43.67494378643172
                       + z2 * (2.356834095158829 + z2 * 0.0030467544724977883)));
    return z * ((p_even + z * p_odd) / (q_even + z * q_odd));
}

/* V(t) for t >= 1 (smaller t: V(1)). */
TK_INLINE double tk_v_high(double t)
{
    t = t > 1.0 ? t : 1.0;
    const double s = t > 1152921504606846976.0 ? 1152921504606846976.0 : t;
    double e;
    const double f = tk_split(s, &e);
    /* L = log s to 7e-5; g(L) = V(e^L) - e^L + L to 1.2e-4 V, and negligible beyond L = 5 */
    const double log_s = e * 0.6931471805599453 + f * (0.9993522972274571
        + f * (-0.5024689786017116 + f * (0.3587066053371651 + f * -0.2284461147133555)));
    const double l = log_s > 5.0 ? 5.0 : log_s;
    const double g = l * (0.49716301802249174 + l * (-0.16728055213225418
        + l * (-0.07049681128282348 + l * (0.04727351475197383
        + l * (-0.008971161539498842 + l * 0.0005769131253257359)))));
    const double w = s - log_s + g;
    const double r = s - w - tk_log(w);
    const double p = 1.0 + w;
    const double a = p * (p + r * 0.6666666666666666);
    return w + w * (r * (a - 0.5 * r) / (p * (a - r))) + (t - s);
}

/* Which branches a chunk needs: 1 = low, 2 = high, 3 = both. -inf, the padding, needs none. */
TK_INLINE int tk_branches(const double *t, ptrdiff_t blocks)
{
    int64_t above = 0, below = 0;
    for (ptrdiff_t i = 0; i < blocks * TK_BLOCK; i++) {
        above += t[i] >= 1.0;
        below += !(t[i] >= 1.0) & (t[i] != -HUGE_VAL);
    }
    return above == 0 ? 1 : below == 0 ? 2 : 3;
}

/* IN t, OUT w, both blocks * TK_BLOCK long. Blocks before high_start need the low branch only, blocks
 * from low_end on the high one only. */
TK_INLINE void tk_v_blocks(const double *restrict t, double *restrict w, ptrdiff_t blocks,
                           ptrdiff_t high_start, ptrdiff_t low_end)
{
    for (ptrdiff_t b = 0; b < low_end; b++)
        for (int i = 0; i < TK_BLOCK; i++)
            w[b * TK_BLOCK + i] = tk_v_low(t[b * TK_BLOCK + i]);
    for (ptrdiff_t b = low_end; b < blocks; b++)
        for (int i = 0; i < TK_BLOCK; i++) {
            const double high = tk_v_high(t[b * TK_BLOCK + i]);
            w[b * TK_BLOCK + i] = t[b * TK_BLOCK + i] >= 1.0 ? high : 0.0;
        }
    for (ptrdiff_t b = high_start; b < low_end; b++)
        for (int i = 0; i < TK_BLOCK; i++) {
            const double x = t[b * TK_BLOCK + i];
            const double high = tk_v_high(x);
            w[b * TK_BLOCK + i] = x >= 1.0 ? high : w[b * TK_BLOCK + i];
        }
}

TK_INLINE void tk_v_chunk(const double *restrict t, double *restrict w, ptrdiff_t blocks)
{
    const int branches = tk_branches(t, blocks);
    tk_v_blocks(t, w, blocks, branches == 1 ? blocks : 0, branches == 2 ? 0 : blocks);
}

/* The same, worth its decisions where small t stand before large ones. */
TK_INLINE void tk_v_parted_chunk(const double *restrict t, double *restrict w, ptrdiff_t blocks)
{
    ptrdiff_t low_end = blocks, high_start = 0;
    while (low_end > 0 && tk_branches(t + (low_end - 1) * TK_BLOCK, 1) == 2)
        low_end--;
    while (high_start < low_end && tk_branches(t + high_start * TK_BLOCK, 1) == 1)
        high_start++;
    tk_v_blocks(t, w, blocks, high_start, low_end);
}

/* Elements of the chunk that starts at i, and the blocks that hold them. */
TK_INLINE ptrdiff_t tk_chunk_length(ptrdiff_t i, ptrdiff_t n, ptrdiff_t *blocks)
{
    const ptrdiff_t m = n - i < TK_CHUNK ? n - i : TK_CHUNK;
    *blocks = (m + TK_BLOCK - 1) / TK_BLOCK;
    return m;
}

/* OUT x: b - t, padded with -inf, whose V and exponential are 0. */
TK_INLINE void tk_load_shifted(const double *b, double t, double *restrict x, ptrdiff_t m,
                               ptrdiff_t blocks)
{
    for (ptrdiff_t i = 0; i < m; i++)
        x[i] = b[i] - t;
    for (ptrdiff_t i = m; i < blocks * TK_BLOCK; i++)
        x[i] = -HUGE_VAL;
}

/* Sums in lanes, with what each addition of a chunk loses carried along (Kahan): the error does
 * not grow with n, and the order of the additions is fixed. */
typedef struct {
    double sum[TK_BLOCK], carry[TK_BLOCK];
} tk_lanes;

TK_INLINE void tk_accumulate(const double *restrict y, ptrdiff_t blocks, tk_lanes *restrict lanes)
{
    double part[TK_BLOCK];
    for (int i = 0; i < TK_BLOCK; i++)
        part[i] = y[i] - lanes->carry[i];
    for (ptrdiff_t b = 1; b < blocks; b++)
        for (int i = 0; i < TK_BLOCK; i++)
            part[i] += y[b * TK_BLOCK + i];
    for (int i = 0; i < TK_BLOCK; i++) {
        const double total = lanes->sum[i] + part[i];
        lanes->carry[i] = (total - lanes->sum[i]) - part[i];
        lanes->sum[i] = total;
    }
}

TK_INLINE double tk_add_up(const tk_lanes *lanes)
{
    double total[TK_BLOCK];
    memcpy(total, lanes->sum, sizeof total);
    for (int width = TK_BLOCK / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            total[i] += total[i + width];
    return total[0];
}

/* w = V(t); IN t, OUT w (may be t). */
TK_DISPATCH(void, tk_v_row, (const double *t, double *w, ptrdiff_t n), (t, w, n))
{
    double x[TK_CHUNK], y[TK_CHUNK];
    for (ptrdiff_t i = 0; i < n; i += TK_CHUNK) {
        ptrdiff_t blocks, m = tk_chunk_length(i, n, &blocks);
        tk_load_shifted(t + i, 0.0, x, m, blocks);
        tk_v_chunk(x, y, blocks);
        memcpy(w + i, y, (size_t)m * sizeof *y);
    }
}

TK_DISPATCH(double, tk_v_scalar, (double t), (t))
{
    return t >= 1.0 ? tk_v_high(t) : tk_v_low(t);
}

/* w = V(b - t), returns sum w; OUT slope: sum V'(b - t) = sum w/(1 + w). */
TK_DISPATCH(double, tk_v_sums, (const double *b, double t, double *w, ptrdiff_t n, double *slope),
            (b, t, w, n, slope))
{
    double x[TK_CHUNK], y[TK_CHUNK];
    tk_lanes sums = {{0.0}, {0.0}}, slopes = {{0.0}, {0.0}};
    for (ptrdiff_t i = 0; i < n; i += TK_CHUNK) {
        ptrdiff_t blocks, m = tk_chunk_length(i, n, &blocks);
        tk_load_shifted(b + i, t, x, m, blocks);
        tk_v_chunk(x, y, blocks);
        for (ptrdiff_t j = 0; j < blocks * TK_BLOCK; j++)
            x[j] = y[j] / (1.0 + y[j]);
        tk_accumulate(y, blocks, &sums);
        tk_accumulate(x, blocks, &slopes);
        memcpy(w + i, y, (size_t)m * sizeof *y);
    }
    *slope = tk_add_up(&slopes);
    return tk_add_up(&sums);
}

/* e = exp(b - t), returns sum e. */
TK_DISPATCH(double, tk_exp_sum, (const double *b, double t, double *e, ptrdiff_t n), (b, t, e, n))
{
    double x[TK_CHUNK], y[TK_CHUNK];
    tk_lanes sums = {{0.0}, {0.0}};
    for (ptrdiff_t i = 0; i < n; i += TK_CHUNK) {
        ptrdiff_t blocks, m = tk_chunk_length(i, n, &blocks);
        tk_load_shifted(b + i, t, x, m, blocks);
        for (ptrdiff_t c = 0; c < blocks; c++)
            for (int l = 0; l < TK_BLOCK; l++)
                y[c * TK_BLOCK + l] = tk_exp(x[c * TK_BLOCK + l]);
        tk_accumulate(y, blocks, &sums);
        memcpy(e + i, y, (size_t)m * sizeof *y);
    }
    return tk_add_up(&sums);
}

/* ---- float: the same with shorter polynomials -------------------------------------------- */

TK_INLINE uint32_t tk_bitsf(float x) { uint32_t u; memcpy(&u, &x, sizeof u); return u; }
TK_INLINE float tk_float(uint32_t u) { float x; memcpy(&x, &u, sizeof x); return x; }

TK_INLINE float tk_expf(float t) /* t <= 1 */
{
    t = t < -110.0f ? -110.0f : t;
    const float shifted = t * 1.44269504f + 12582912.0f;
    const float k = shifted - 12582912.0f;
    const float r = (t - k * 0.693359375f) - k * -2.12194440e-4f;
    const float r2 = r * r;
    /* 0.026 eps */
    const float poly = (0.49999994f + r * 0.1666652f)
                     + r2 * (0.04166839f + r * 0.008368784f + r2 * 0.0013814786f);
    const float mantissa = 1.0f + (r + r2 * poly);
    const uint32_t u = tk_bitsf(shifted);
    const uint32_t half = u >> 1;
    const uint32_t one = UINT32_C(0x3f800000);
    return mantissa * tk_float((half << 23) + one) * tk_float(((u - half) << 23) + one);
}

TK_INLINE float tk_splitf(float x, float *e)
{
    const uint32_t u = tk_bitsf(x);
    const uint32_t k = (u - UINT32_C(0x3f3504f3)) >> 23;
    *e = tk_float(k | UINT32_C(0x4b000000)) - 8388608.0f;
    return tk_float(u - (k << 23)) - 1.0f;
}

TK_INLINE float tk_logf(float x) /* 0.0015 eps */
{
    float e;
    const float f = tk_splitf(x, &e);
    const float s = f / (2.0f + f);
    const float v = s * s;
    const float g = 0.6666682f + v * (0.39973527f + v * 0.29963213f);
    return e * 0.693359375f + (2.0f * s + (s * v * g + e * -2.12194440e-4f));
}

TK_INLINE float tk_v_lowf(float t)
{
    t = t > 1.0f ? 1.0f : t;
    const float z = tk_expf(t);
    /* 0.004 eps */
    const float p = 1.0f + z * (4.149758f + z * (5.2268147f + z * (2.1875703f
                  + z * (0.23432332f + z * 0.0015125838f))));
    const float q = 1.0f + z * (5.149758f + z * (8.876578f + z * (6.0060773f
                  + z * (1.4509014f + z * 0.08590068f))));
    return z * (p / q);
}

TK_INLINE float tk_v_highf(float t)
{
    t = t > 1.0f ? t : 1.0f;
    const float s = t > 4294967296.0f ? 4294967296.0f : t;
    float e;
    const float f = tk_splitf(s, &e);
    /* L to 4e-3, g to 1.6e-3 V */
    const float log_s = e * 0.6931472f + f * (1.0280670f + f * -0.48468724f);
    const float l = log_s > 4.0f ? 4.0f : log_s;
    const float g = l * (0.5200695f + l * (-0.25626976f + l * 0.032374302f));
    const float w = s - log_s + g;
    const float r = s - w - tk_logf(w);
    const float p = 1.0f + w;
    const float a = p * (p + r * 0.6666667f);
    return w + w * (r * (a - 0.5f * r) / (p * (a - r))) + (t - s);
}

TK_INLINE int tk_branchesf(const float *t, ptrdiff_t blocks)
{
    int32_t above = 0;
    for (ptrdiff_t i = 0; i < blocks * TK_BLOCK; i++)
        above += t[i] >= 1.0f;
    return above == 0 ? 1 : above == blocks * TK_BLOCK ? 2 : 3;
}

TK_INLINE void tk_v_chunkf(const float *restrict t, float *restrict w, ptrdiff_t blocks)
{
    const int branches = tk_branchesf(t, blocks);
    if (branches != 2)
        for (ptrdiff_t b = 0; b < blocks; b++)
            for (int i = 0; i < TK_BLOCK; i++)
                w[b * TK_BLOCK + i] = tk_v_lowf(t[b * TK_BLOCK + i]);
    if (branches == 2)
        for (ptrdiff_t b = 0; b < blocks; b++)
            for (int i = 0; i < TK_BLOCK; i++)
                w[b * TK_BLOCK + i] = tk_v_highf(t[b * TK_BLOCK + i]);
    if (branches == 3)
        for (ptrdiff_t b = 0; b < blocks; b++)
            for (int i = 0; i < TK_BLOCK; i++) {
                const float x = t[b * TK_BLOCK + i];
                const float high = tk_v_highf(x);
                w[b * TK_BLOCK + i] = x >= 1.0f ? high : w[b * TK_BLOCK + i];
            }
}

TK_DISPATCH(void, tk_v_rowf, (const float *t, float *w, ptrdiff_t n), (t, w, n))
{
    float x[TK_CHUNK], y[TK_CHUNK];
    for (ptrdiff_t i = 0; i < n; i += TK_CHUNK) {
        ptrdiff_t blocks, m = tk_chunk_length(i, n, &blocks);
        memcpy(x, t + i, (size_t)m * sizeof *x);
        for (ptrdiff_t j = m; j < blocks * TK_BLOCK; j++)
            x[j] = 0.0f;
        tk_v_chunkf(x, y, blocks);
        memcpy(w + i, y, (size_t)m * sizeof *y);
    }
}

#endif
