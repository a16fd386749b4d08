/* Jumps along the path of the top-k cone (see _topk.pyx): from a guess of t and u, solving on the
 * piece they are on and moving there, until that is on the same piece.
 *
 * This is what a step of the top-k hinge losses waits for, on rows too short for loops that
 * compilers vectorise: with AVX2 a piece is described by hand.
 */
#ifndef TOPKOPT_TOPK_H
#define TOPKOPT_TOPK_H

#include <float.h>
#include <math.h>
#include <stddef.h>

#include "_simd.h"

#define TOPK_FAR 16 /* sums of a solution between the largest entry and t */
#define TOPK_JUMPS 12 /* from piece to piece, before the path is followed merger by merger */

#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define MOST(a, b) ((a) > (b) ? (a) : (b))

/* The entries relative to a threshold: those from cap on (upper), those between 0 and cap (middle)
 * and the others (lower). Counts are doubles because they are counted and used as such. */
typedef struct {
    double n_upper, sum_upper, least_upper;
    double n_middle, sum_middle, least_above /* 0 */, most_below /* cap */;
    double most_lower;
} Piece;

typedef Piece (*PieceAt)(const double *b, ptrdiff_t n, double offset, double cap);

/* b: a multiple of 4 entries */
TK_INLINE Piece piece_at_base(const double *b, ptrdiff_t n, double offset, double cap)
{
    double n_upper = 0.0, sum_upper = 0.0, least_upper = INFINITY;
    double n_above = 0.0, sum_middle = 0.0, least_above = INFINITY, most_below = -INFINITY;
    double most_lower = -INFINITY;
#pragma omp simd reduction(+ : n_upper, sum_upper, n_above, sum_middle) \
    reduction(min : least_upper, least_above) reduction(max : most_below, most_lower)
    for (ptrdiff_t j = 0; j < n; j++) {
        const double v = b[j] - offset;
        const double upper = v >= cap ? v : INFINITY, lower = v > 0.0 ? -INFINITY : v;
        const double above_0 = v > 0.0 ? v : INFINITY, below_cap = v >= cap ? -INFINITY : v;
        n_upper += v >= cap ? 1.0 : 0.0;
        sum_upper += v >= cap ? v : 0.0;
        n_above += v > 0.0 ? 1.0 : 0.0;
        sum_middle += MOST(below_cap, 0.0);
        least_upper = LEAST(upper, least_upper);
        least_above = LEAST(above_0, least_above);
        most_below = MOST(below_cap, most_below);
        most_lower = MOST(lower, most_lower);
    }
    return (Piece){n_upper, sum_upper, least_upper, n_above - n_upper, sum_middle, least_above,
                   most_below, most_lower};
}

#ifdef TK_X86
/* Both reductions of two vectors at once. */
#define DEFINE_BOTH(OP)                                                                          \
    TK_INLINE TK_AVX2 __m128d both_##OP(__m256d a, __m256d b)                                    \
    {                                                                                            \
        const __m256d lanes =                                                                    \
            _mm256_##OP##_pd(_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));                \
        return _mm_##OP##_pd(_mm256_castpd256_pd128(lanes), _mm256_extractf128_pd(lanes, 1));    \
    }

DEFINE_BOTH(add)
DEFINE_BOTH(min)
DEFINE_BOTH(max)

TK_INLINE TK_AVX2 Piece piece_at_avx2(const double *b, ptrdiff_t n, double offset, double cap)
{
    const __m256d none = _mm256_setzero_pd(), one = _mm256_set1_pd(1.0);
    const __m256d high = _mm256_set1_pd(INFINITY), low = _mm256_set1_pd(-INFINITY);
    const __m256d offsets = _mm256_set1_pd(offset), caps = _mm256_set1_pd(cap);
    __m256d n_upper = none, sum_upper = none, n_above = none, sum_middle = none;
    __m256d least_upper = high, least_above = high, most_below = low, most_lower = low;
    for (ptrdiff_t j = 0; j < n; j += 4) {
        const __m256d v = _mm256_sub_pd(_mm256_loadu_pd(b + j), offsets);
        const __m256d is_upper = _mm256_cmp_pd(v, caps, _CMP_GE_OQ);
        const __m256d is_above = _mm256_cmp_pd(v, none, _CMP_GT_OQ);
        const __m256d below_cap = _mm256_blendv_pd(v, low, is_upper);
        n_upper = _mm256_add_pd(n_upper, _mm256_and_pd(is_upper, one));
        sum_upper = _mm256_add_pd(sum_upper, _mm256_and_pd(is_upper, v));
        n_above = _mm256_add_pd(n_above, _mm256_and_pd(is_above, one));
        sum_middle = _mm256_add_pd(sum_middle, _mm256_max_pd(below_cap, none));
        least_upper = _mm256_min_pd(least_upper, _mm256_blendv_pd(high, v, is_upper));
        least_above = _mm256_min_pd(least_above, _mm256_blendv_pd(high, v, is_above));
        most_below = _mm256_max_pd(most_below, below_cap);
        most_lower = _mm256_max_pd(most_lower, _mm256_blendv_pd(v, low, is_above));
    }
    const __m128d counts = both_add(n_upper, n_above), sums = both_add(sum_upper, sum_middle);
    const __m128d least = both_min(least_upper, least_above);
    const __m128d most = both_max(most_below, most_lower);
    return (Piece){_mm_cvtsd_f64(counts),
                   _mm_cvtsd_f64(sums),
                   _mm_cvtsd_f64(least),
                   _mm_cvtsd_f64(_mm_unpackhi_pd(counts, counts)) - _mm_cvtsd_f64(counts),
                   _mm_cvtsd_f64(_mm_unpackhi_pd(sums, sums)),
                   _mm_cvtsd_f64(_mm_unpackhi_pd(least, least)),
                   _mm_cvtsd_f64(most),
                   _mm_cvtsd_f64(_mm_unpackhi_pd(most, most))};
}
#else
#define piece_at_avx2 piece_at_base
#endif

/* u, where n_middle > 0 entries are between their bounds; t is the threshold of their sums. */
TK_INLINE double cap_on_piece(double sum_upper, double n_upper, double sum_middle, double n_middle,
                              double k, double bias, double t)
{
    const double rest = k - n_upper;
    return (n_middle * (sum_upper + k * t) + rest * sum_middle)
           / (n_middle * (bias * k * k + n_upper) + rest * rest);
}

/* Returns by how much t has to grow. INOUT u: at most `most`. OUT solved: whether the two would be
 * the solution, were they on the same piece; otherwise u stays and its t is sought. */
TK_INLINE double solve_on_piece(const Piece *at, double k, double bias, double most, double t,
                                double offset, double *u, int *solved)
{
    double share, past, cap;
    *solved = at->n_middle > 0 ? at->n_upper < k : at->n_upper == k;
    if (at->n_middle > 0) {
        if (*solved) {
            cap = cap_on_piece(at->sum_upper, at->n_upper, at->sum_middle, at->n_middle, k, bias, t);
            *u = LEAST(most, cap);
        }
        return (at->sum_middle - (k - at->n_upper) * *u) * (1.0 / at->n_middle);
    }
    if (*solved) {
        /* They share the cap, wherever t is between them and the others: not at the edge. */
        cap = (at->sum_upper + k * t) / (bias * k * k + k);
        *u = LEAST(most, cap);
        past = at->least_upper - *u;
        if (past >= 0.0)
            return 0.0;
        cap = LEAST(*u, past - at->most_lower);
        return past - 0.5 * MOST(0.0, cap);
    }
    if (at->n_upper < k)
        return at->most_lower - (k - at->n_upper) * *u;
    /* Past as many as are too many, were they u apart, but not past the largest, at 0. */
    share = k / at->n_upper * *u;
    past = at->least_upper + (at->n_upper - k - 1.0) * *u;
    past = LEAST(past, -offset - share);
    return MOST(at->least_upper - share, past);
}

TK_INLINE int is_on_piece(const Piece *at, double move, double u, double slack)
{
    return at->most_lower - move <= slack && at->least_above - move >= -slack
           && at->most_below - move <= u + slack && at->least_upper - move >= u - slack;
}

/* Returns whether it came to rest. b: minus shift, a multiple of 4 entries; most: of the cap.
 * INOUT offset (t minus shift), cap: a guess, the solution */
TK_INLINE int jump_body(const double *b, ptrdiff_t n, double k, double bias, double most,
                        double shift, double *offset, double *cap, PieceAt piece_at)
{
    double at_offset = *offset, u = *cap;
    for (int jump = 0; jump < TOPK_JUMPS; jump++) {
        const Piece at = piece_at(b, n, at_offset, u);
        const double t = shift + at_offset, last_u = u;
        double move;
        int solved;
        if (at.most_lower == -INFINITY && at.least_above > TOPK_FAR * u) {
            at_offset += at.least_above; /* from far below all of them, sums lose digits */
            continue;
        }
        if (at.sum_upper + at.sum_middle + k * t <= 0.0) {
            *offset = at_offset;
            *cap = 0.0; /* the sum of the k largest entries is not positive either */
            return 1;
        }
        move = solve_on_piece(&at, k, bias, most, t, at_offset, &u, &solved);
        if (!(u > 0.0 && fabs(move) < INFINITY))
            return 0;
        if (solved && fabs(move) <= TOPK_FAR * fabs(at_offset + move) /* or it loses digits as well */
            && is_on_piece(&at, move, u, 2 * DBL_EPSILON * (fabs(at_offset) + fabs(move) + u))) {
            *offset = at_offset + move;
            *cap = u;
            return 1;
        }
        if (jump % 4 == 3) { /* halfway, should it go round in a circle */
            move *= 0.5;
            u = 0.5 * u + 0.5 * last_u;
        }
        at_offset += move;
    }
    return 0;
}

TK_AVX2 static int jump_avx2(const double *b, ptrdiff_t n, double k, double bias, double most,
                             double shift, double *offset, double *cap)
{
    return jump_body(b, n, k, bias, most, shift, offset, cap, piece_at_avx2);
}

static int jump_base(const double *b, ptrdiff_t n, double k, double bias, double most,
                     double shift, double *offset, double *cap)
{
    return jump_body(b, n, k, bias, most, shift, offset, cap, piece_at_base);
}

TK_INLINE int jump_along_path(const double *b, ptrdiff_t n, double k, double bias, double most,
                              double shift, double *offset, double *cap)
{
    return TK_HAS_AVX2() ? jump_avx2(b, n, k, bias, most, shift, offset, cap)
                         : jump_base(b, n, k, bias, most, shift, offset, cap);
}

#endif
