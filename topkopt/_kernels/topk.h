/* The top-k cone by jumps from a guess of its solution x = clip(b - t, 0, u).
 *
 * A guess (t, u) places the entries: U at the cap u, M in the middle, L at zero. While no entry
 * changes its place, t and u are the solution of two linear equations. A jump solves them and moves
 * there; when the places have not changed, all conditions of optimality hold. Equations (1) to (5)
 * below are derived in reference/jumps.py, whose jump and jump_to_topk_cone are the readable twins.
 *
 * Entries are kept relative to a shift, usually the largest entry, and the threshold as
 * t = shift + offset, so that large entries that are close to each other keep their digits.
 *
 * Every step of the top-k hinge losses waits for these jumps, on rows so short that loops which
 * compilers vectorise do not pay off. This is why the AVX2 bodies are written by hand.
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
/* Jumps can go in circles. Every fourth goes only halfway, which leaves most circles; a row that
 * has not come to rest after three such chances is solved along the path. */
#define TOPK_HALFWAY 4
#define TOPK_JUMPS (3 * TOPK_HALFWAY)

#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define MOST(a, b) ((a) > (b) ? (a) : (b))

/* What the equations need to know about a piece. All values are v = b - t: those with v >= cap are
 * in U (upper), those with 0 < v < cap in M (middle) and those with v <= 0 in L (lower). The
 * extreme values tell how far t and u may move before an entry changes its place: least_above is
 * the least v > 0, of M or else of U, and most_below is the greatest v < cap, of M or else of L.
 * The counts are doubles because the vector units count in the lanes in which they add. */
typedef struct {
    double n_upper, sum_upper, least_upper;
    double n_middle, sum_middle, least_above, most_below;
    double most_lower;
} Piece;

typedef Piece (*PieceAt)(const double *b, ptrdiff_t n, double offset, double cap);

/* The piece of the n entries of b, in plain C for any processor; piece_at_avx2 is its twin. The
 * row is padded with -inf, which is in L, to a multiple of 4 entries. */
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

/* Four pieces, one in each lane. They are either those of the entries 0, 4, 8, ... of one row, of
 * its entries 1, 5, 9, ... and so on, or those of four rows whose entries alternate in memory. As
 * in piece_at_base, n_above counts U and M together: M alone is their difference. */
typedef struct {
    __m256d n_upper, sum_upper, least_upper;
    __m256d n_above, sum_middle, least_above, most_below;
    __m256d most_lower;
} Pieces;

TK_INLINE TK_AVX2 Pieces pieces_at(const double *b, ptrdiff_t n, __m256d offset, __m256d cap)
{
    const __m256d none = _mm256_setzero_pd(), one = _mm256_set1_pd(1.0);
    const __m256d high = _mm256_set1_pd(INFINITY), low = _mm256_set1_pd(-INFINITY);
    Pieces at = {none, none, high, none, none, high, low, low};
    for (ptrdiff_t j = 0; j < n; j += 4) {
        const __m256d v = _mm256_loadu_pd(b + j) - offset;
        const __m256d is_upper = _mm256_cmp_pd(v, cap, _CMP_GE_OQ);
        const __m256d is_above = _mm256_cmp_pd(v, none, _CMP_GT_OQ);
        const __m256d below_cap = _mm256_blendv_pd(v, low, is_upper);
        at.n_upper += _mm256_and_pd(is_upper, one);
        at.sum_upper += _mm256_and_pd(is_upper, v);
        at.n_above += _mm256_and_pd(is_above, one);
        at.sum_middle += _mm256_max_pd(below_cap, none);
        at.least_upper = _mm256_min_pd(at.least_upper, _mm256_blendv_pd(high, v, is_upper));
        at.least_above = _mm256_min_pd(at.least_above, _mm256_blendv_pd(high, v, is_above));
        at.most_below = _mm256_max_pd(at.most_below, below_cap);
        at.most_lower = _mm256_max_pd(at.most_lower, _mm256_blendv_pd(v, low, is_above));
    }
    return at;
}

TK_INLINE TK_AVX2 Piece piece_at_avx2(const double *b, ptrdiff_t n, double offset, double cap)
{
    const Pieces at = pieces_at(b, n, _mm256_set1_pd(offset), _mm256_set1_pd(cap));
    const __m128d counts = both_add(at.n_upper, at.n_above);
    const __m128d sums = both_add(at.sum_upper, at.sum_middle);
    const __m128d least = both_min(at.least_upper, at.least_above);
    const __m128d most = both_max(at.most_below, at.most_lower);
    return (Piece){counts[0], sums[0],  least[0], counts[1] - counts[0],
                   sums[1],   least[1], most[0],  most[1]};
}
#else
#define piece_at_avx2 piece_at_base
#endif

/* Returns u by equation (3), without the minimum. The sums are those of b - t for the given t,
 * which need not be the solution's: with k t they make up for it. Needs n_middle >= 1. */
TK_INLINE double cap_on_piece(double sum_upper, double n_upper, double sum_middle, double n_middle,
                              double k, double bias, double t)
{
    const double rest = k - n_upper;
    return (n_middle * (sum_upper + k * t) + rest * sum_middle)
           / (n_middle * (bias * k * k + n_upper) + rest * rest);
}

/* Solves (3) and (4) on a piece and returns by how much t has to grow. INOUT u. OUT solvable:
 * whether a piece of this kind can hold the solution. By (1) either some entries are in M and
 * fewer than k at the cap, or none is in M and exactly k at the cap (a plateau). On other pieces u
 * says nothing about the solution, so it is kept, and t alone moves towards (1). */
TK_INLINE double solve_on_piece(const Piece *at, double k, double bias, double max_cap, double t,
                                double offset, double *u, int *solvable)
{
    /* The d of the equations is `rest`. On a plateau it is 0, as is sum_middle, so that n_middle,
     * which must not be 0, cancels in (3). */
    const double rest = k - at->n_upper, n_middle = MOST(at->n_middle, 1.0);
    *solvable = at->n_middle > 0.0 ? rest > 0.0 : rest == 0.0;
    if (*solvable) {
        const double cap =
            cap_on_piece(at->sum_upper, at->n_upper, at->sum_middle, n_middle, k, bias, t);
        *u = LEAST(max_cap, cap);
    }
    if (at->n_middle > 0.0)
        return (at->sum_middle - rest * *u) / n_middle;
    if (*solvable) {
        /* Every t between the greatest of L and the least of U minus u gives the same x. It should
         * not lie on the edge, where the next row leaves the plateau, nor farther than u/2 from
         * it, where b - t has fewer digits. A t between the two stays. */
        const double edge = at->least_upper - *u, room = LEAST(*u, edge - at->most_lower);
        const double inside = edge - 0.5 * MOST(0.0, room);
        return edge < 0.0 ? inside : MOST(0.0, inside);
    }
    /* Too few entries are at the cap. The greatest of L would solve (1) if it alone were in M. */
    if (rest > 0.0)
        return at->most_lower - rest * *u;
    /* Too many entries are at the cap, and how they are spread is not known. If they were u apart,
     * t at the (n_upper - k)-th from below would leave k at the cap (spread_move). If they were
     * equal, each would get `share` of the sum k u: t should grow at least until the least entry
     * has no more than that, and at most until the largest, which is 0 - offset, has no less. */
    const double share = k / at->n_upper * *u, spread_move = at->least_upper - (rest + 1.0) * *u;
    const double bounded_move = LEAST(spread_move, -offset - share);
    return MOST(at->least_upper - share, bounded_move);
}

/* Whether all entries keep their places, up to rounding, if t grows by move and the cap is u. */
TK_INLINE int is_on_piece(const Piece *at, double move, double u, double slack)
{
    return at->most_lower - move <= slack && at->least_above - move >= -slack
           && at->most_below - move <= u + slack && at->least_upper - move >= u - slack;
}

/* Jumps until it comes to rest, and returns whether it did. IN b: n entries minus shift, with n a
 * multiple of 4; max_cap: radius / k. INOUT offset, cap: a guess of t - shift and of u, which
 * becomes the solution, and is left as it was if there is no rest. x = 0 is told by a cap of 0. */
TK_INLINE int jump_body(const double *b, ptrdiff_t n, double k, double bias, double max_cap,
                        double shift, double *offset, double *cap, PieceAt piece_at)
{
    double at_offset = *offset, u = *cap;
    for (int jump = 0; jump < TOPK_JUMPS; jump++) {
        const Piece at = piece_at(b, n, at_offset, u);
        const double t = shift + at_offset, last_u = u;
        double move, slack, max_x;
        int solvable;
        /* By (5) the sum of the k largest entries is at most the sum tested here. If that is not
         * positive, x is 0. */
        if (at.sum_upper + at.sum_middle + k * t <= 0.0) {
            *offset = at_offset;
            *cap = 0.0;
            return 1;
        }
        move = solve_on_piece(&at, k, bias, max_cap, t, at_offset, &u, &solvable);
        if (!(u > 0.0 && fabs(move) < INFINITY))
            return 0;
        /* The comparisons below subtract these three numbers, each rounded once or twice. */
        slack = 2 * DBL_EPSILON * (fabs(at_offset) + fabs(move) + u);
        /* The largest entry is 0, relative to the shift, and so exceeds the new t by -offset. */
        max_x = LEAST(u, fabs(at_offset + move));
        if (solvable && fabs(move) <= TOPK_FAR * max_x + slack
            && is_on_piece(&at, move, u, slack)) {
            *offset = at_offset + move;
            *cap = u;
            return 1;
        }
        if (jump % TOPK_HALFWAY == TOPK_HALFWAY - 1) {
            move *= 0.5;
            u = 0.5 * u + 0.5 * last_u;
        }
        at_offset += move;
    }
    return 0;
}

TK_AVX2 static int jump_avx2(const double *b, ptrdiff_t n, double k, double bias, double max_cap,
                             double shift, double *offset, double *cap)
{
    return jump_body(b, n, k, bias, max_cap, shift, offset, cap, piece_at_avx2);
}

static int jump_base(const double *b, ptrdiff_t n, double k, double bias, double max_cap,
                     double shift, double *offset, double *cap)
{
    return jump_body(b, n, k, bias, max_cap, shift, offset, cap, piece_at_base);
}

TK_INLINE int jump_along_path(const double *b, ptrdiff_t n, double k, double bias, double max_cap,
                              double shift, double *offset, double *cap)
{
    return TK_HAS_AVX2() ? jump_avx2(b, n, k, bias, max_cap, shift, offset, cap)
                         : jump_base(b, n, k, bias, max_cap, shift, offset, cap);
}

/* Four short rows side by side ------------------------------------------------------------------
 *
 * From here on each lane of a vector holds another row: entry j of row i is b[4 j + i]. No
 * reductions across lanes are needed, and each instruction serves four rows. */

#ifdef TK_X86
#define WHERE(mask, yes, no) _mm256_blendv_pd(no, yes, mask)
#define IS_LESS(a, b) _mm256_cmp_pd(a, b, _CMP_LT_OQ)
#define IS_AT_MOST(a, b) _mm256_cmp_pd(a, b, _CMP_LE_OQ)
#define SIZE(a) _mm256_andnot_pd(_mm256_set1_pd(-0.0), a)

/* As solve_on_piece, for four rows, without a bias and with radius 1. All cases are computed, and
 * each lane takes the one that applies. */
TK_INLINE TK_AVX2 __m256d solve_on_pieces(const Pieces *at, __m256d k, __m256d t, __m256d offset,
                                          __m256d *u, __m256d *solvable)
{
    const __m256d none = _mm256_setzero_pd(), one = _mm256_set1_pd(1.0), rest = k - at->n_upper;
    const __m256d n_middle = at->n_above - at->n_upper, has_middle = IS_LESS(none, n_middle);
    const __m256d n_middle_or_1 = _mm256_max_pd(n_middle, one);
    const __m256d cap = (n_middle_or_1 * (at->sum_upper + k * t) + rest * at->sum_middle)
                        / (n_middle_or_1 * at->n_upper + rest * rest);
    const __m256d move_if_few = at->most_lower - rest * *u, share = k / at->n_upper * *u;
    const __m256d move_if_many = _mm256_max_pd(
        at->least_upper - share,
        _mm256_min_pd(at->least_upper - (rest + one) * *u, -offset - share));
    __m256d edge, inside;
    *solvable = WHERE(has_middle, IS_LESS(none, rest), _mm256_cmp_pd(rest, none, _CMP_EQ_OQ));
    *u = WHERE(*solvable, _mm256_min_pd(one / k, cap), *u);
    edge = at->least_upper - *u;
    inside = edge - 0.5 * _mm256_max_pd(none, _mm256_min_pd(*u, edge - at->most_lower));
    inside = WHERE(IS_LESS(edge, none), inside, _mm256_max_pd(none, inside));
    return WHERE(has_middle, (at->sum_middle - rest * *u) / n_middle_or_1,
                 WHERE(*solvable, inside, WHERE(IS_LESS(none, rest), move_if_few, move_if_many)));
}

/* As jump_body, for four rows, without a bias and with radius 1. IN open: a mask of the rows to
 * solve. Returns a mask of those that came to rest. The others go on, and what they compute after
 * they have rested or failed is not used. */
TK_INLINE TK_AVX2 __m256d jump_side_by_side(const double *b, ptrdiff_t n, __m256d k, __m256d shift,
                                            __m256d open, __m256d *offset, __m256d *cap)
{
    const __m256d none = _mm256_setzero_pd(), infinite = _mm256_set1_pd(INFINITY);
    __m256d at_offset = *offset, at_cap = *cap, arrived = none;
    for (int jump = 0; jump < TOPK_JUMPS && _mm256_movemask_pd(open); jump++) {
        const Pieces at = pieces_at(b, 4 * n, at_offset, at_cap);
        const __m256d t = shift + at_offset;
        const __m256d zero = IS_AT_MOST(at.sum_upper + at.sum_middle + k * t, none);
        __m256d u = at_cap, solvable, sound, slack, rests;
        __m256d move = solve_on_pieces(&at, k, t, at_offset, &u, &solvable);
        sound = _mm256_and_pd(IS_LESS(none, u), IS_LESS(SIZE(move), infinite));
        slack = 2 * DBL_EPSILON * (SIZE(at_offset) + SIZE(move) + u);
        rests = _mm256_min_pd(u, SIZE(at_offset + move));
        rests = IS_AT_MOST(SIZE(move), TOPK_FAR * rests + slack);
        rests = _mm256_and_pd(rests, IS_AT_MOST(at.most_lower - move, slack));
        rests = _mm256_and_pd(rests, IS_AT_MOST(-slack, at.least_above - move));
        rests = _mm256_and_pd(rests, IS_AT_MOST(at.most_below - move, u + slack));
        rests = _mm256_and_pd(rests, IS_AT_MOST(u - slack, at.least_upper - move));
        rests = _mm256_or_pd(zero, _mm256_and_pd(rests, _mm256_and_pd(sound, solvable)));
        rests = _mm256_and_pd(open, rests);
        *offset = WHERE(rests, at_offset + _mm256_andnot_pd(zero, move), *offset);
        *cap = WHERE(rests, _mm256_andnot_pd(zero, u), *cap);
        arrived = _mm256_or_pd(arrived, rests);
        open = _mm256_and_pd(_mm256_andnot_pd(rests, open), sound);
        if (jump % TOPK_HALFWAY == TOPK_HALFWAY - 1) {
            move *= 0.5;
            u = 0.5 * u + 0.5 * at_cap;
        }
        at_offset += move;
        at_cap = u;
    }
    return arrived;
}

/* OUT b: for four rows of m scores the margins (s_j - s_own + 1) scale, minus the largest of them;
 * -inf, which is always in L, takes the place of the label's own. Returns a mask of the rows that
 * are finite and whose sizes sum to less than 1/eps: larger ones have no digits left for x, which
 * is at most 1. */
TK_INLINE TK_AVX2 __m256d margins_side_by_side(const double *const *rows, const ptrdiff_t *own,
                                               ptrdiff_t m, double scale, double *b,
                                               __m256d *largest)
{
    const __m256d low = _mm256_set1_pd(-INFINITY);
    const __m256d label =
        _mm256_set_pd((double)own[3], (double)own[2], (double)own[1], (double)own[0]);
    const __m256d own_score =
        _mm256_set_pd(rows[3][own[3]], rows[2][own[2]], rows[1][own[1]], rows[0][own[0]]);
    __m256d size = _mm256_setzero_pd();
    *largest = low;
    for (ptrdiff_t j = 0; j < m; j++) {
        const __m256d s = _mm256_set_pd(rows[3][j], rows[2][j], rows[1][j], rows[0][j]);
        const __m256d is_own = _mm256_cmp_pd(label, _mm256_set1_pd((double)j), _CMP_EQ_OQ);
        __m256d v = ((s - own_score) + 1.0) * scale;
        size += SIZE(v);
        v = WHERE(is_own, low, v);
        *largest = _mm256_max_pd(*largest, v);
        _mm256_storeu_pd(b + 4 * j, v);
    }
    for (ptrdiff_t j = 0; j < 4 * m; j += 4)
        _mm256_storeu_pd(b + j, _mm256_loadu_pd(b + j) - *largest);
    return IS_LESS(size, _mm256_set1_pd(1.0 / DBL_EPSILON));
}

/* The values of the smooth top-k hinge loss for up to four rows of m scores. Let h be the margins
 * s_j - s_own + 1 of the other classes. The value is the maximum of <h,p> - smoothing/2 <p,p> over
 * 0 <= p_j <= <1,p>/k, <1,p> <= 1, and p is the projection of h / smoothing. OUT values: four
 * numbers, valid for the rows whose bit is set in the returned mask. INOUT starts: offset and cap
 * of each row, the guess and then the solution; an offset that is NaN means that there is no
 * guess. TEMP b: 4 m. */
TK_AVX2 static int side_by_side_avx2(const double *s, const ptrdiff_t *own, ptrdiff_t n_rows,
                                     ptrdiff_t m, double k, double smoothing, double *starts,
                                     double *values, double *b)
{
    const __m256d none = _mm256_setzero_pd(), max_cap = _mm256_set1_pd(1.0 / k);
    const double *rows[4];
    double start[2][4];
    ptrdiff_t labels[4];
    __m256d largest, value = none;
    for (int i = 0; i < 4; i++) {
        /* Lanes without a row of their own repeat the last row. */
        const ptrdiff_t row = i < n_rows ? i : n_rows - 1;
        rows[i] = s + row * m;
        labels[i] = own[row];
        start[0][i] = starts[2 * row];
        start[1][i] = starts[2 * row + 1];
    }
    const __m256d sound = margins_side_by_side(rows, labels, m, 1.0 / smoothing, b, &largest);
    const __m256d open = _mm256_and_pd(sound, IS_LESS(none, largest));
    __m256d offset = _mm256_loadu_pd(start[0]), cap = _mm256_min_pd(max_cap, largest), found;
    const __m256d given = _mm256_cmp_pd(offset, offset, _CMP_ORD_Q);
    offset = WHERE(given, offset, -2.0 * cap);
    cap = WHERE(given, _mm256_loadu_pd(start[1]), cap);
    found = jump_side_by_side(b, m, _mm256_set1_pd(k), largest, open, &offset, &cap);
    /* Where t is far below the largest entry, the entries near t lost digits when that was
     * subtracted: such rows are left to project_topk_row, which subtracts t instead. */
    found = _mm256_and_pd(found, _mm256_or_pd(IS_AT_MOST(-offset, TOPK_FAR * k * cap),
                                              IS_AT_MOST(cap, none)));
    for (ptrdiff_t j = 0; j < 4 * m; j += 4) {
        /* Entries below t count as t. Their p is 0, and 0 times -inf would be NaN. */
        const __m256d v = _mm256_max_pd(_mm256_loadu_pd(b + j), offset);
        const __m256d p = _mm256_min_pd(v - offset, cap);
        value += p * (smoothing * ((v + largest) - 0.5 * p));
    }
    /* The set holds 0, so only rounding can make a value negative. (NaN stays NaN in this order.) */
    _mm256_storeu_pd(values, _mm256_and_pd(open, _mm256_max_pd(none, value)));
    _mm256_storeu_pd(start[0], offset);
    _mm256_storeu_pd(start[1], WHERE(IS_LESS(none, cap), cap, max_cap));
    for (ptrdiff_t i = 0; i < n_rows; i++)
        if (_mm256_movemask_pd(found) >> i & 1) {
            starts[2 * i] = start[0][i];
            starts[2 * i + 1] = start[1][i];
        }
    /* Where no margin is positive, p = 0 is best, and the value 0 stored above is right. */
    return _mm256_movemask_pd(_mm256_or_pd(found, _mm256_andnot_pd(open, sound)));
}
#endif

TK_INLINE int side_by_side(const double *s, const ptrdiff_t *own, ptrdiff_t n_rows, ptrdiff_t m,
                           double k, double smoothing, double *starts, double *values, double *b)
{
#ifdef TK_X86
    if (TK_HAS_AVX2())
        return side_by_side_avx2(s, own, n_rows, m, k, smoothing, starts, values, b);
#endif
    (void)s, (void)own, (void)n_rows, (void)m, (void)k, (void)smoothing, (void)starts, (void)values;
    (void)b;
    return 0; /* No row is solved here, so the caller solves each of them by itself. */
}

#endif
