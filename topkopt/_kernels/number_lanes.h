/* The words of number_one.h for AVX2: a number is four doubles, and a mask has all bits of a lane
 * set where it is true. As there, the least and the most of a NaN and a number is the second of
 * the two. */
#define NAMED(name) name##_lanes
#define TARGET TK_INLINE TK_AVX2
#define NUMBER __m256d
#define MASK __m256d
#define LANES 4
#define NOWHERE _mm256_setzero_pd()
#define LOAD(p) _mm256_loadu_pd(p)
#define ALL(a) _mm256_set1_pd(a)
#define LEAST(a, b) _mm256_min_pd(a, b)
#define MOST(a, b) _mm256_max_pd(a, b)
#define SIZE(a) _mm256_andnot_pd(_mm256_set1_pd(-0.0), a)
#define IS_LESS(a, b) _mm256_cmp_pd(a, b, _CMP_LT_OQ)
#define IS_AT_MOST(a, b) _mm256_cmp_pd(a, b, _CMP_LE_OQ)
#define IS_AT_LEAST(a, b) _mm256_cmp_pd(a, b, _CMP_GE_OQ)
#define IS_EQUAL(a, b) _mm256_cmp_pd(a, b, _CMP_EQ_OQ)
#define BOTH(p, q) _mm256_and_pd(p, q)
#define EITHER(p, q) _mm256_or_pd(p, q)
#define BUT_NOT(p, q) _mm256_andnot_pd(q, p)
#define ANY(p) _mm256_movemask_pd(p)
#define WHERE(p, a, b) _mm256_blendv_pd(b, a, p)
#define ONLY(p, a) _mm256_and_pd(p, a)
#define VECTORISE(...)
