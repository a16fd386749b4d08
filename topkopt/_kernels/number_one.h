/* The words in which topk_jump.h is written, in plain C for any processor: a number is a double,
 * and loops are left to compilers to vectorise. number_end.h takes the words back. */
#define NAMED(name) name##_one
#define TARGET TK_INLINE
#define NUMBER double
#define MASK int
#define LANES 1
#define NOWHERE 0
#define LOAD(p) (*(p))
#define ALL(a) (a)
#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define MOST(a, b) ((a) > (b) ? (a) : (b))
#define SIZE(a) fabs(a)
#define IS_LESS(a, b) ((a) < (b))
#define IS_AT_MOST(a, b) ((a) <= (b))
#define IS_AT_LEAST(a, b) ((a) >= (b))
#define IS_EQUAL(a, b) ((a) == (b))
#define BOTH(p, q) ((p) && (q))
#define EITHER(p, q) ((p) || (q))
#define BUT_NOT(p, q) ((p) && !(q))
#define ANY(p) (p)
#define WHERE(p, a, b) ((p) ? (a) : (b))
#define ONLY(p, a) ((p) ? (a) : 0.0)
#define VECTORISE(...) _Pragma(#__VA_ARGS__)
