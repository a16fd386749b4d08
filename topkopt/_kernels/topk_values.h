/* The values of the smooth top-k hinge loss for four short rows of scores side by side.
 *
 * Each lane of a vector holds another row: entry j of row i is b[4 j + i]. No reductions across
 * lanes are needed, and each instruction serves four rows, which makes the check of the duality gap
 * about twice as fast. Without AVX2 no row is solved here.
 */
#ifndef TOPKOPT_TOPK_VALUES_H
#define TOPKOPT_TOPK_VALUES_H

#include "topk.h"

/* Up to four rows of scores behind each other, the labels, and the loss. */
typedef struct {
    const double *scores;
    const ptrdiff_t *labels;
    ptrdiff_t n_rows, n_classes;
    double k, smoothing;
} ScoredRows;

#ifdef TK_X86
#include "number_lanes.h"

/* The row that a lane works on: lanes without a row of their own repeat the last row. */
TK_INLINE ptrdiff_t row_of_lane(const ScoredRows *rows, int lane)
{
    return lane < rows->n_rows ? lane : rows->n_rows - 1;
}

/* OUT b: for four rows the margins (s_j - s_label + 1) / smoothing, minus the largest of them;
 * -inf, which is always in L, takes the place of the label's own. Returns a mask of the rows that
 * are finite and whose sizes sum to less than 1/eps: larger ones have no digits left for x, which
 * is at most 1. */
TK_INLINE TK_AVX2 __m256d margins_side_by_side(const ScoredRows *rows, double *b, __m256d *largest)
{
    const ptrdiff_t m = rows->n_classes;
    const double scale = 1.0 / rows->smoothing, *s[4];
    double label[4], label_score[4];
    for (int i = 0; i < 4; i++) {
        const ptrdiff_t row = row_of_lane(rows, i);
        s[i] = rows->scores + row * m;
        label[i] = (double)rows->labels[row];
        label_score[i] = s[i][rows->labels[row]];
    }
    const __m256d labels = LOAD(label), label_scores = LOAD(label_score), low = ALL(-INFINITY);
    __m256d size = ALL(0.0);
    *largest = low;
    for (ptrdiff_t j = 0; j < m; j++) {
        const __m256d scores = _mm256_set_pd(s[3][j], s[2][j], s[1][j], s[0][j]);
        __m256d v = ((scores - label_scores) + 1.0) * scale;
        size += SIZE(v);
        v = WHERE(IS_EQUAL(labels, ALL((double)j)), low, v);
        *largest = MOST(*largest, v);
        _mm256_storeu_pd(b + 4 * j, v);
    }
    for (ptrdiff_t j = 0; j < 4 * m; j += 4)
        _mm256_storeu_pd(b + j, LOAD(b + j) - *largest);
    return IS_LESS(size, ALL(1.0 / DBL_EPSILON));
}

/* Returns the guesses in starts, two numbers for each row. Where the first is NaN there is none,
 * and the largest entry is taken to exceed t by 2 u. */
TK_INLINE TK_AVX2 Point_lanes guess_side_by_side(const ScoredRows *rows, const double *starts,
                                                 const Cone_lanes *cone)
{
    double start[2][4];
    for (int i = 0; i < 4; i++)
        for (int part = 0; part < 2; part++)
            start[part][i] = starts[2 * row_of_lane(rows, i) + part];
    const __m256d offset = LOAD(start[0]), cap = LEAST(cone->max_cap, cone->shift);
    const __m256d given = IS_EQUAL(offset, offset);
    return (Point_lanes){WHERE(given, offset, -2.0 * cap), WHERE(given, LOAD(start[1]), cap)};
}

/* Returns <h,p> - smoothing/2 <p,p> with h = smoothing (b + largest), for the p of four points. */
TK_INLINE TK_AVX2 __m256d value_side_by_side(const double *b, ptrdiff_t m, const Point_lanes *point,
                                             __m256d largest, double smoothing)
{
    __m256d value = ALL(0.0);
    for (ptrdiff_t j = 0; j < 4 * m; j += 4) {
        /* Entries below t count as t. Their p is 0, and 0 times -inf would be NaN. */
        const __m256d v = MOST(LOAD(b + j), point->offset);
        const __m256d p = LEAST(v - point->offset, point->cap);
        value += p * (smoothing * ((v + largest) - 0.5 * p));
    }
    return value;
}

TK_AVX2 static int side_by_side_avx2(const ScoredRows *rows, double *starts, double *values,
                                     double *b)
{
    const ptrdiff_t m = rows->n_classes;
    const __m256d zero = ALL(0.0);
    Cone_lanes cone = {ALL(rows->k), zero, ALL(1.0 / rows->k), zero};
    const __m256d sound = margins_side_by_side(rows, b, &cone.shift);
    const __m256d open = BOTH(sound, IS_LESS(zero, cone.shift));
    Point_lanes point = guess_side_by_side(rows, starts, &cone);
    __m256d found = jump_lanes(b, 4 * m, cone, open, &point, piece_at_lanes);
    double start[2][4];
    /* Where t is far below the largest entry, the entries near t lost digits when that was
     * subtracted: such rows are left to project_topk_row, which subtracts t instead. */
    found = BOTH(found, keeps_digits_lanes(b, 4 * m, &point, cone.k));
    const __m256d value = value_side_by_side(b, m, &point, cone.shift, rows->smoothing);
    /* The set holds 0, so only rounding can make a value negative. (NaN stays NaN in this order.)
     * Where no margin is positive, p = 0 is best and the value is 0. */
    _mm256_storeu_pd(values, ONLY(open, MOST(zero, value)));
    _mm256_storeu_pd(start[0], point.offset);
    _mm256_storeu_pd(start[1], WHERE(IS_LESS(zero, point.cap), point.cap, cone.max_cap));
    for (ptrdiff_t i = 0; i < rows->n_rows; i++)
        if (ANY(found) >> i & 1) {
            starts[2 * i] = start[0][i];
            starts[2 * i + 1] = start[1][i];
        }
    return ANY(EITHER(found, BUT_NOT(sound, open)));
}

#include "number_end.h"
#endif

/* Let h be the margins s_j - s_label + 1 of the other classes. The value of the loss is the maximum
 * of <h,p> - smoothing/2 <p,p> over 0 <= p_j <= <1,p>/k, <1,p> <= 1, and p is the projection of
 * h / smoothing. OUT values: four numbers, valid for the rows whose bit is set in what is returned;
 * the caller solves each of the others by itself. INOUT starts: offset and cap of each row, a guess
 * and then the solution; an offset that is NaN means that there is no guess. TEMP b: 4 m. */
TK_INLINE int side_by_side(const ScoredRows *rows, double *starts, double *values, double *b)
{
#ifdef TK_X86
    if (TK_HAS_AVX2())
        return side_by_side_avx2(rows, starts, values, b);
#endif
    (void)rows, (void)starts, (void)values, (void)b;
    return 0;
}

#endif
