/* The loops over a row of floats or doubles that the projections and the solver are made of.
 *
 * They are written so that compilers vectorise them. Each file below is compiled twice: REAL is the
 * type of the entries, and NAMED(max) is max_f32 or max_f64. The sum over a row is a sum of doubles
 * for both types, in an order that depends on nothing but the length of the row.
 */
#ifndef TOPKOPT_ROWS_H
#define TOPKOPT_ROWS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "rows_sums.h"
#include "simd.h"

/* Few entries are near the maximum, and only they matter to a projection. So this many entries are
 * compared at once, and mostly all of them are passed over together. */
#define ROWS_SKIP 16

/* Padded rows are a multiple of so many entries, one vector of AVX2: their loops have no rest. */
#define ROWS_PAD 4

/* A block of a row has so many peaks (see rows_peaks.h), and so many peaks are looked at before
 * the entries below them are. */
#define ROWS_PEAKS 8
#define ROWS_HIGH 64

/* How many entries a peak stands for. In a longer row a smaller share of the entries matters, and
 * then it pays to have fewer peaks, though each of the high ones costs more. */
TK_INLINE ptrdiff_t peak_depth(ptrdiff_t n)
{
    return n < 4096 ? 4 : 32;
}

/* The solver adds up so many scores at once: their sums still fit into registers. */
#define ROWS_TILE 16

/* The solver adds shorter rows faster than it lists their non-zero entries. */
#define ROWS_LIST 64

#define REAL float
#define NAMED(name) name##_f32
#include "rows_check.h"
#include "rows_clip.h"
#include "rows_gather.h"
#include "rows_peaks.h"
#include "rows_update.h"
#undef REAL
#undef NAMED

#define REAL double
#define NAMED(name) name##_f64
#include "rows_check.h"
#include "rows_clip.h"
#include "rows_gather.h"
#include "rows_peaks.h"
#include "rows_update.h"
#undef REAL
#undef NAMED

#endif
