/* One binary, two instruction sets: a loop compiled for the baseline and for AVX2 + FMA.
 *
 * The build has no -march flag, so binaries run everywhere; the faster body is taken where the
 * processor has the instructions. (GCC's target_clones does the same, but with an `arch=` it looks
 * at the maker of the processor too, and it needs a loader with ifunc.)
 */
#ifndef TOPKOPT_SIMD_H
#define TOPKOPT_SIMD_H

#include <stddef.h>

#if defined(_MSC_VER)
#define TK_INLINE static __forceinline
#elif defined(__GNUC__)
#define TK_INLINE static inline __attribute__((always_inline))
#else
#define TK_INLINE static inline
#endif

#if !defined(TOPKOPT_BASELINE_ONLY) && (defined(__GNUC__) || defined(__clang__)) && \
    defined(__x86_64__)
#include <immintrin.h>
#define TK_X86
#define TK_AVX2 __attribute__((target("avx2,fma")))
#if defined(_MSC_VER)
/* clang-cl links no runtime library that could answer: ask the processor, once. */
#define TK_HAS_AVX2() tk_has_avx2()
#include <cpuid.h>
TK_INLINE int tk_asks_for_avx2(void)
{
    unsigned a, b, c, d, saved;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (~c & (bit_FMA | bit_OSXSAVE | bit_AVX)))
        return 0;
    /* The system must save the wide registers, too, when it changes the process. */
    __asm__("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));
    return (saved & 6) == 6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2) != 0;
}
static int tk_has_avx2(void)
{
    static int known = -1; /* Threads that meet here all write the same answer. */
    if (known < 0)
        known = tk_asks_for_avx2();
    return known;
}
#else
#define TK_HAS_AVX2() (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#endif
#else
#define TK_AVX2
#define TK_HAS_AVX2() 0
#endif

/* Names the instructions that the loops run on this processor. */
TK_INLINE const char *tk_instructions(void)
{
    if (TK_HAS_AVX2())
        return "AVX2 + FMA";
#if defined(__aarch64__)
    return "NEON";
#elif defined(__x86_64__) || defined(_M_X64)
    return "SSE2";
#else
    return "plain C";
#endif
}

/* Asks for memory that is soon read, so that nobody waits for it then. */
TK_INLINE void prefetch(const void *start, ptrdiff_t size)
{
#if defined(__GNUC__)
    for (ptrdiff_t i = 0; i < size; i += 64)
        __builtin_prefetch((const char *)start + i);
    if (size > 0)
        __builtin_prefetch((const char *)start + size - 1);
#else
    (void)start;
    (void)size;
#endif
}

/* Declares a function that is compiled for both, and is followed by its body:
 *
 *     TK_DISPATCH(double, first, (const double *b, ptrdiff_t n), (b, n))
 *     {
 *         return n > 0 ? b[0] : 0.0;
 *     }
 *
 * The body becomes TK_BODY(first), which is inlined into first_avx2 and first_base, and first calls
 * one of these. Other bodies call TK_BODY(first), to have it inlined and not choose again. The name
 * may itself be a macro, hence the second step. */
#define TK_DISPATCH(type, name, parameters, arguments) \
    TK_DISPATCH_EXPANDED(, type, name, parameters, arguments)
#define TK_DISPATCH_EXPANDED(attributes, type, name, parameters, arguments) \
    TK_INLINE type name##_body parameters; \
    attributes TK_AVX2 static type name##_avx2 parameters { return name##_body arguments; } \
    attributes static type name##_base parameters { return name##_body arguments; } \
    TK_INLINE type name parameters \
    { \
        return TK_HAS_AVX2() ? name##_avx2 arguments : name##_base arguments; \
    } \
    TK_INLINE type name##_body parameters

/* The same for a body that GCC should compile as it stands. Where it knows the arguments of all
 * callers, it compiles for these alone, and has made a loop take half as long again that way. */
#if defined(__GNUC__) && !defined(__clang__)
#define TK_DISPATCH_AS_IS(type, name, parameters, arguments) \
    TK_DISPATCH_EXPANDED(__attribute__((noipa)), type, name, parameters, arguments)
#else
#define TK_DISPATCH_AS_IS TK_DISPATCH
#endif

#define TK_BODY(name) TK_BODY_EXPANDED(name)
#define TK_BODY_EXPANDED(name) name##_body

#endif
