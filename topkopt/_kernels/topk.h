/* Jumps along the path of the top-k cone (see topk.pyx): from a guess of t and u, solving on the
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

#include "simd.h"

#define TOPK_FAR 16 /* times the size of a solution: from there, sums lose its digits */
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

/* Pieces in four lanes: of the entries of one row, or four rows side by side. */
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

/* u, where n_middle >= 1 entries are between their bounds; t is the threshold of their sums. */
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
    /* On a plateau k entries share the cap: rest and middle are 0, and any count will do. */
    const double rest = k - at->n_upper, count = MOST(at->n_middle, 1.0);
    *solved = at->n_middle > 0.0 ? rest > 0.0 : rest == 0.0;
    if (*solved) {
        const double cap =
            cap_on_piece(at->sum_upper, at->n_upper, at->sum_middle, count, k, bias, t);
        *u = LEAST(most, cap);
    }
    if (at->n_middle > 0.0)
        return (at->sum_middle - rest * *u) / count;
    if (*solved) {
        /* t may be anywhere between them and the others: not at the edge, and not far from it. */
        const double past = at->least_upper - *u, room = LEAST(*u, past - at->most_lower);
        const double nearest = past - 0.5 * MOST(0.0, room);
        return past < 0.0 ? nearest : MOST(0.0, nearest);
    }
    if (rest > 0.0)
        return at->most_lower - rest * *u;
    /* Past as many as are too many, were they u apart, but not past the largest, at 0. */
    const double share = k / at->n_upper * *u, past = at->least_upper - (rest + 1.0) * *u;
    const double most_move = LEAST(past, -offset - share);
    return MOST(at->least_upper - share, most_move);
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
        double move, slack, largest;
        int solved;
        if (at.sum_upper + at.sum_middle + k * t <= 0.0) {
            *offset = at_offset;
            *cap = 0.0; /* the sum of the k largest entries is not positive either */
            return 1;
        }
        move = solve_on_piece(&at, k, bias, most, t, at_offset, &u, &solved);
        if (!(u > 0.0 && fabs(move) < INFINITY))
            return 0;
        slack = 2 * DBL_EPSILON * (fabs(at_offset) + fabs(move) + u);
        largest = LEAST(u, fabs(at_offset + move)); /* of x: from far off, sums lose its digits */
        if (solved && fabs(move) <= TOPK_FAR * largest + slack
            && is_on_piece(&at, move, u, slack)) {
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

/* Four short rows side by side, a row in each lane: entry j of row i is b[4 j + i] ------------- */

#ifdef TK_X86
#define WHERE(mask, yes, no) _mm256_blendv_pd(no, yes, mask)
#define IS_LESS(a, b) _mm256_cmp_pd(a, b, _CMP_LT_OQ)
#define IS_AT_MOST(a, b) _mm256_cmp_pd(a, b, _CMP_LE_OQ)
#define SIZE(a) _mm256_andnot_pd(_mm256_set1_pd(-0.0), a)

/* solve_on_piece in lanes, without a bias. */
TK_INLINE TK_AVX2 __m256d solve_on_pieces(const Pieces *at, __m256d k, __m256d t, __m256d offset,
                                          __m256d *u, __m256d *solved)
{
    const __m256d none = _mm256_setzero_pd(), one = _mm256_set1_pd(1.0), rest = k - at->n_upper;
    const __m256d n_middle = at->n_above - at->n_upper, some = IS_LESS(none, n_middle);
    const __m256d count = _mm256_max_pd(n_middle, one);
    const __m256d cap = (count * (at->sum_upper + k * t) + rest * at->sum_middle)
                        / (count * at->n_upper + rest * rest);
    const __m256d few = at->most_lower - rest * *u, share = k / at->n_upper * *u;
    const __m256d many = _mm256_max_pd(
        at->least_upper - share,
        _mm256_min_pd(at->least_upper - (rest + one) * *u, -offset - share));
    __m256d past, nearest;
    *solved = WHERE(some, IS_LESS(none, rest), _mm256_cmp_pd(rest, none, _CMP_EQ_OQ));
    *u = WHERE(*solved, _mm256_min_pd(one / k, cap), *u);
    past = at->least_upper - *u;
    nearest = past - 0.5 * _mm256_max_pd(none, _mm256_min_pd(*u, past - at->most_lower));
    nearest = WHERE(IS_LESS(past, none), nearest, _mm256_max_pd(none, nearest));
    return WHERE(some, (at->sum_middle - rest * *u) / count,
                 WHERE(*solved, nearest, WHERE(IS_LESS(none, rest), few, many)));
}

/* jump_along_path in lanes, with radius 1. IN open: which rows to solve; returns which of them came
 * to rest. */
TK_INLINE TK_AVX2 __m256d jump_side_by_side(const double *b, ptrdiff_t n, __m256d k, __m256d shift,
                                            __m256d open, __m256d *offset, __m256d *cap)
{
    const __m256d none = _mm256_setzero_pd(), infinite = _mm256_set1_pd(INFINITY);
    __m256d at_offset = *offset, at_cap = *cap, arrived = none;
    for (int jump = 0; jump < TOPK_JUMPS && _mm256_movemask_pd(open); jump++) {
        const Pieces at = pieces_at(b, 4 * n, at_offset, at_cap);
        const __m256d t = shift + at_offset;
        const __m256d zero = IS_AT_MOST(at.sum_upper + at.sum_middle + k * t, none);
        __m256d u = at_cap, solved, sound, slack, rests;
        __m256d move = solve_on_pieces(&at, k, t, at_offset, &u, &solved);
        sound = _mm256_and_pd(IS_LESS(none, u), IS_LESS(SIZE(move), infinite));
        slack = 2 * DBL_EPSILON * (SIZE(at_offset) + SIZE(move) + u);
        rests = _mm256_min_pd(u, SIZE(at_offset + move));
        rests = IS_AT_MOST(SIZE(move), TOPK_FAR * rests + slack);
        rests = _mm256_and_pd(rests, IS_AT_MOST(at.most_lower - move, slack));
        rests = _mm256_and_pd(rests, IS_AT_MOST(-slack, at.least_above - move));
        rests = _mm256_and_pd(rests, IS_AT_MOST(at.most_below - move, u + slack));
        rests = _mm256_and_pd(rests, IS_AT_MOST(u - slack, at.least_upper - move));
        rests = _mm256_or_pd(zero, _mm256_and_pd(rests, _mm256_and_pd(sound, solved)));
        rests = _mm256_and_pd(open, rests);
        *offset = WHERE(rests, at_offset + _mm256_andnot_pd(zero, move), *offset);
        *cap = WHERE(rests, _mm256_andnot_pd(zero, u), *cap);
        arrived = _mm256_or_pd(arrived, rests);
        open = _mm256_and_pd(_mm256_andnot_pd(rests, open), sound);
        if (jump % 4 == 3) {
            move *= 0.5;
            u = 0.5 * u + 0.5 * at_cap;
        }
        at_offset += move;
        at_cap = u;
    }
    return arrived;
}

/* OUT b: the margins (s_j - s_own + 1) scale minus the largest of them; -inf in the place of own.
 * Returns which rows are finite, and not too large to be told apart from p. */
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

/* For up to four rows of m scores: h are the margins s_j - s_own + 1 of the classes j but own. OUT
 * values (4): the largest <h,p> - smoothing/2 <p,p> over 0 <= p_j <= <1,p>/k, <1,p> <= 1, for the
 * rows whose bit is set in what it returns. INOUT starts: two numbers for each row. TEMP b: 4 m */
TK_AVX2 static int side_by_side_avx2(const double *s, const ptrdiff_t *own, ptrdiff_t n_rows,
                                     ptrdiff_t m, double k, double smoothing, double *starts,
                                     double *values, double *b)
{
    const __m256d none = _mm256_setzero_pd(), most = _mm256_set1_pd(1.0 / k);
    const double *rows[4];
    double start[2][4];
    ptrdiff_t labels[4];
    __m256d largest, square = none, rest = none;
    for (int i = 0; i < 4; i++) {
        const ptrdiff_t row = i < n_rows ? i : n_rows - 1; /* the last takes all free places */
        rows[i] = s + row * m;
        labels[i] = own[row];
        start[0][i] = starts[2 * row];
        start[1][i] = starts[2 * row + 1];
    }
    const __m256d sound = margins_side_by_side(rows, labels, m, 1.0 / smoothing, b, &largest);
    const __m256d open = _mm256_and_pd(sound, IS_LESS(none, largest));
    __m256d offset = _mm256_loadu_pd(start[0]), cap = _mm256_min_pd(most, largest), found;
    const __m256d given = _mm256_cmp_pd(offset, offset, _CMP_ORD_Q);
    offset = WHERE(given, offset, -2.0 * cap);
    cap = WHERE(given, _mm256_loadu_pd(start[1]), cap);
    found = jump_side_by_side(b, m, _mm256_set1_pd(k), largest, open, &offset, &cap);
    /* Entries far below the largest lost digits when that was subtracted. */
    found = _mm256_and_pd(found, _mm256_or_pd(IS_AT_MOST(-offset, TOPK_FAR * k * cap),
                                              IS_AT_MOST(cap, none)));
    for (ptrdiff_t j = 0; j < 4 * m; j += 4) {
        const __m256d v = _mm256_max_pd(_mm256_loadu_pd(b + j), offset); /* with 0 < p the entry */
        const __m256d p = _mm256_min_pd(v - offset, cap);
        square += p * (smoothing * p);
        rest += p * (smoothing * ((v + largest) - p));
    }
    /* The rest, <p,h> - smoothing <p,p>, is never negative, and 0 unless the radius binds. */
    _mm256_storeu_pd(values, _mm256_and_pd(open, 0.5 * square + _mm256_max_pd(rest, none)));
    _mm256_storeu_pd(start[0], offset);
    _mm256_storeu_pd(start[1], WHERE(IS_LESS(none, cap), cap, most));
    for (ptrdiff_t i = 0; i < n_rows; i++)
        if (_mm256_movemask_pd(found) >> i & 1) {
            starts[2 * i] = start[0][i];
            starts[2 * i + 1] = start[1][i];
        }
    /* Where no entry is above 0, neither is the gain. */
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
    return 0; /* one after the other, then */
}

#endif
