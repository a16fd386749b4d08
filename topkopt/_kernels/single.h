/* Rows of single precision, looked at a few times and never copied: the few largest entries, and
 * the exponentials of all of them.
 *
 * Training in float32 calls these; the answers are good to a few units of its rounding.
 */
#ifndef TOPKOPT_SINGLE_H
#define TOPKOPT_SINGLE_H

#include <math.h>
#include <stddef.h>

#include "lambert.h"
#include "simd.h"

#define SINGLE_LANES 64 /* a row has at least so many entries, */
#define SINGLE_MOST_K 32 /* and not more than so many of them are asked for */

/* A number that at least `count` entries of s reach: the count-th largest of the maxima of lanes. */
TK_INLINE float tk_reached(const float *s, ptrdiff_t m, ptrdiff_t count)
{
    float lane[SINGLE_LANES];
    ptrdiff_t j = SINGLE_LANES;
    for (int i = 0; i < SINGLE_LANES; i++)
        lane[i] = s[i];
    for (; j + SINGLE_LANES <= m; j += SINGLE_LANES)
        for (int i = 0; i < SINGLE_LANES; i++)
            lane[i] = s[j + i] > lane[i] ? s[j + i] : lane[i];
    for (ptrdiff_t i = 0; j + i < m; i++)
        lane[i] = s[j + i] > lane[i] ? s[j + i] : lane[i];
    for (ptrdiff_t n = 0;; n++) {
        int best = 0;
        for (int i = 1; i < SINGLE_LANES; i++)
            best = lane[i] > lane[best] ? i : best;
        if (n + 1 == count)
            return lane[best];
        lane[best] = -INFINITY;
    }
}

/* OUT index: where the k largest entries of s but s[own] are, the largest first, and of equal ones
 * the first first. m >= SINGLE_LANES, k < SINGLE_MOST_K */
TK_DISPATCH(void, tk_largest_places,
            (const float *s, ptrdiff_t m, ptrdiff_t own, ptrdiff_t k, ptrdiff_t *index),
            (s, m, own, k, index))
{
    float least = tk_reached(s, m, k + 1); /* one more, as it may be own */
    ptrdiff_t found = 0;
    for (ptrdiff_t start = 0; start < m; start += SINGLE_LANES) {
        const ptrdiff_t end = start + SINGLE_LANES < m ? start + SINGLE_LANES : m;
        int any = 0;
        for (ptrdiff_t j = start; j < end; j++)
            any |= s[j] >= least;
        for (ptrdiff_t j = start; any && j < end; j++) {
            if (s[j] < least || j == own)
                continue;
            ptrdiff_t i = found < k ? found++ : k;
            if (i == k && !(s[j] > s[index[k - 1]]))
                continue;
            for (i = i == k ? k - 1 : i; i > 0 && s[j] > s[index[i - 1]]; i--)
                index[i] = index[i - 1];
            index[i] = j;
        }
        if (found == k)
            least = s[index[k - 1]] > least ? s[index[k - 1]] : least;
    }
}

/* OUT e_j = exp(min(0, s_j - near)); returns their sum. */
TK_DISPATCH(float, tk_exp_below, (const float *s, ptrdiff_t m, float near, float *e),
            (s, m, near, e))
{
    float lane[TK_BLOCK] = {0}, total = 0.0f;
    ptrdiff_t j = 0;
    for (; j + TK_BLOCK <= m; j += TK_BLOCK)
        for (int i = 0; i < TK_BLOCK; i++) {
            const float d = s[j + i] - near;
            e[j + i] = tk_expf(d > 0.0f ? 0.0f : d);
            lane[i] += e[j + i];
        }
    for (; j < m; j++) {
        const float d = s[j] - near;
        e[j] = tk_expf(d > 0.0f ? 0.0f : d);
        total += e[j];
    }
    for (int i = 0; i < TK_BLOCK; i++)
        total += lane[i];
    return total;
}

TK_DISPATCH(void, tk_scale, (float *v, ptrdiff_t m, float factor), (v, m, factor))
{
    for (ptrdiff_t j = 0; j < m; j++)
        v[j] *= factor;
}

#endif
