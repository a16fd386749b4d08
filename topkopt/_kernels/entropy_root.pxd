# What the two entropic proxes share: passes over a row, and steps towards the root in t.
#
# Root finder.  A sum F of values V(b_j - t) with slope -S behaves like m V(a - t) with m and a that
# give the same F and S; that model reaches the target A after the step
#     log(F/A) + v (1 - A/F),      v = F/S - 1,                                               (1)
# which is exact for equal b, for exponentials, and for large V.  The last steps, once they are
# short, move the values without evaluating V again (see entropy.h).
from libc.float cimport DBL_EPSILON
from libc.math cimport INFINITY, fabs, fmax, fmin, log, sqrt


cdef extern from "entropy.h" nogil:
    # Over the entries below the cap: the sums of w = V(b - t), of its derivative w', of w w' and of
    # w''. Then the number of entries that are not below it.
    ctypedef struct Totals "tk_totals":
        double sum
        double slope
        double excess
        double curvature
        double capped

    # OUT w: V(b - t), or e^(b - t) if `exponential`. Returns the totals of the first `counted`.
    Totals entropy_pass "tk_entropy_pass"(const double* b, double t, double cap, double* w,
                                          Py_ssize_t n, Py_ssize_t counted, bint exponential)
    # The same for V alone, without a cap and in single precision.
    Totals entropy_guess "tk_entropy_guess"(const double* b, double t, double* w, Py_ssize_t n,
                                            Py_ssize_t counted)
    # INOUT w: becomes V(b - t + r), for a short r, or w e^r. Returns the totals as above.
    Totals entropy_move "tk_entropy_move"(double* w, double r, double cap, Py_ssize_t n,
                                          Py_ssize_t counted, bint exponential)
    double tk_x_log_x(const double* x, Py_ssize_t n)

    enum:
        MAX_STEPS "TK_MAX_STEPS"
        PATIENT_STEPS "TK_PATIENT_STEPS"
        MAX_MOVES "TK_MAX_MOVES"
        GUESSES "TK_GUESSES"
    double TINY "TK_TINY"
    double GOOD_GUESS "TK_GOOD_GUESS"
    double SHORT_STEP "TK_SHORT_STEP"
    double LAST_STEP "TK_LAST_STEP"
    double NO_ALPHA "TK_NO_ALPHA"


cdef inline double inverse(double v, bint exponential) noexcept nogil:
    # Returns the t with V(t) = v, or e^t = v.
    return log(v) if exponential else v + log(v)


cdef inline double model_step(double total, double v, double target) noexcept nogil:
    # Returns the step (1), by which t must grow to bring the sum from `total` to `target`.
    return log(total / target) + v * (1 - target / total)


cdef inline double excess_curvature(const Totals* s, double v) noexcept nogil:
    # Returns by how much more the sum is curved than its model. As a function of t, V^-1(F/m) is
    # not linear but has the second derivative F''/S - 1/(1 + v)^2 >= 0.
    return fmax(0, s.curvature / s.slope - 1 / ((1 + v) * (1 + v)))


cdef inline double curved_step(const Totals* s, double target) noexcept nogil:
    # Returns the step (1), corrected by the excess curvature.
    cdef double v = s.excess / s.slope
    cdef double step = model_step(s.sum, v, target), bend = excess_curvature(s, v)
    return 2 * step / (1 + sqrt(fmax(0, 1 - 2 * bend * step)))


cdef inline bint is_short(double step, double t) noexcept nogil:
    # Steps below the rounding of t count as short: they move the values, if not t.
    return fabs(step) <= SHORT_STEP + 8 * DBL_EPSILON * fabs(t)


cdef inline double within(double t, double low, double high) noexcept nogil:
    # Returns t, or the middle of the bracket if t is outside (or NaN) and there is a middle.
    if low <= t <= high or low == -INFINITY or high == INFINITY:
        return t
    return low + (high - low) / 2


cdef inline double clipped(double t, double low, double high) noexcept nogil:
    return fmin(fmax(t, low), high)
