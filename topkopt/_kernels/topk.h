/* The top-k cone by jumps from a guess of its solution x = clip(b - t, 0, u).
 *
 * A guess (t, u) places the entries: U at the cap u, M in the middle, L at zero. While no entry
 * changes its place, t and u are the solution of two linear equations. A jump solves them and moves
 * there; when the places have not changed, all conditions of optimality hold. The equations are
 * derived in reference/jumps.py, whose jump and jump_to_topk_cone are the readable twins.
 *
 * Entries are kept relative to a shift, usually the largest entry, and the threshold as
 * t = shift + offset, so that large entries that are close to each other keep their digits.
 *
 * Every step of the top-k hinge losses waits for these jumps, on rows so short that loops which
 * compilers vectorise do not pay off. This is why topk_jump.h is compiled for vectors too: of one
 * row, four entries are looked at together, and topk_values.h solves four rows side by side.
 */
#ifndef TOPKOPT_TOPK_H
#define TOPKOPT_TOPK_H

#include <float.h>
#include <math.h>
#include <stddef.h>

#include "simd.h"

/* Sums of b - t lose digits of x when they are taken at a t that is more than this many times
 * max(x) away from the solution. Such a solution is computed once more from nearby. */
#define TOPK_FAR 16
/* The sum of x has the rounding of t once for each entry between 0 and the cap. So a solution was
 * computed too far away if the way, times their number, is more than this many times the sum, which
 * is k max(x). A few entries count as this many. */
#define TOPK_FEW 4
#define TOPK_SPREAD (TOPK_FEW * TOPK_FAR)
/* Jumps can go in circles. Every fourth goes only halfway, which leaves most circles; a row that
 * has not come to rest after three such chances is solved along the path. */
#define TOPK_HALFWAY 4
#define TOPK_JUMPS (3 * TOPK_HALFWAY)

#include "number_one.h"
#include "topk_jump.h"
#include "number_end.h"

#ifdef TK_X86
#include "number_lanes.h"
#include "topk_jump.h"
#include "number_end.h"

/* Reduces the four lanes of a to the first of two numbers and those of b to the second: side
 * by side the two reductions share their instructions. */
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

/* The piece of one row, from those of its entries 0, 4, 8, ..., of its entries 1, 5, 9, ... and so
 * on in the four lanes. */
TK_INLINE TK_AVX2 Piece_one piece_at_avx2(const double *b, ptrdiff_t n, double offset, double cap)
{
    const Piece_lanes at =
        piece_at_lanes(b, n, _mm256_set1_pd(offset), _mm256_set1_pd(cap));
    const __m128d counts = both_add(at.n_upper, at.n_above);
    const __m128d sums = both_add(at.sum_upper, at.sum_middle);
    const __m128d least = both_min(at.least_upper, at.least_above);
    const __m128d most = both_max(at.most_below, at.most_lower);
    return (Piece_one){counts[0], sums[0],  least[0], counts[1],
                       sums[1],   least[1], most[0],  most[1]};
}
#else
#define piece_at_avx2 piece_at_one
#endif

/* As jump_one, for a row by itself, with the instructions that the processor has. */
TK_AVX2 static int jump_avx2(const double *b, ptrdiff_t n, const Cone_one *cone, Point_one *point)
{
    return jump_one(b, n, *cone, 1, point, piece_at_avx2);
}

static int jump_base(const double *b, ptrdiff_t n, const Cone_one *cone, Point_one *point)
{
    return jump_one(b, n, *cone, 1, point, piece_at_one);
}

TK_INLINE int jump_along_path(const double *b, ptrdiff_t n, const Cone_one *cone, Point_one *point)
{
    return TK_HAS_AVX2() ? jump_avx2(b, n, cone, point) : jump_base(b, n, cone, point);
}

#endif
