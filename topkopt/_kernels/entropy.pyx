"""The entropic prox on the simplex, with caps.

Solve   min alpha/2 |x|^2 - <b,x> + <x,log x>,   sum x = radius, x <= upper.
The solution is x = min(V(b - t)/alpha, upper), V(t) = W(e^t), with t such that sum x = radius
(for small alpha, e^(b - t) takes the place of V(b - t)/alpha).

The root finder is described in entropy_root.pxd, and its readable twin is reference/entropy.py.
"""
from libc.float cimport DBL_EPSILON
from libc.math cimport INFINITY, NAN, ceil, fabs, fmax, fmin, isnan

from topkopt._kernels.entropy_root cimport (GOOD_GUESS, GUESSES, LAST_STEP, MAX_MOVES, MAX_STEPS,
                                            NO_ALPHA, PATIENT_STEPS, TINY, Totals, clipped,
                                            curved_step, entropy_guess, entropy_move, entropy_pass,
                                            inverse, is_short, model_step, tk_x_log_x, within)
from topkopt._kernels.largest cimport kth_largest
from topkopt._kernels.real cimport real
from topkopt._kernels.select cimport row_max, scratch

cdef enum:
    # A first guess for a long row comes from so many of its entries, by at most so many steps.
    SAMPLE = 128
    SAMPLE_STEPS = 6
    # A search without a cap in mind gives up after so many steps that began at a given start.
    PATIENCE = 3

# An exponential is moved over a step up to this one by a factor, which neither overflows nor
# makes the values lose digits.
cdef double FACTOR_STEP = 20


# The equation sum_j min(V(c_j - t), cap) = target in t, or the same with e^(c_j - t) instead of V.
# The n entries c are those of b minus a shift. OUT w: the values at the t found. TEMP kept: n
cdef struct Equation:
    const double* c
    double* kept
    double* w
    Py_ssize_t n
    double target
    double cap
    bint exponential


cdef double x_log_x_sum(const double* x, Py_ssize_t n) noexcept nogil:
    return tk_x_log_x(x, n)


cdef Py_ssize_t shift_by_max(const real* b, Py_ssize_t n, double* c, double* top) noexcept nogil:
    # OUT c: b - max(b); top: max(b). Returns the number of finite entries.
    cdef Py_ssize_t j, finite = 0
    cdef double largest = row_max(b, n)
    for j in range(n):
        c[j] = b[j] - largest
        finite += b[j] > -INFINITY
    top[0] = largest
    return finite


cdef double fill_cap(const real* b, real* x, Py_ssize_t n, double upper) noexcept nogil:
    # OUT x: upper for every finite entry, 0 for the others. Returns the smallest finite entry.
    cdef Py_ssize_t j
    cdef double entry, smallest = INFINITY
    for j in range(n):
        entry = b[j]  # This is read before x is written, because x may be b.
        x[j] = <real> upper if entry > -INFINITY else <real> 0
        if entry > -INFINITY:
            smallest = min(smallest, entry)
    return smallest


cdef Py_ssize_t keep_undecided(const double* c, double* kept, Py_ssize_t n, double negligible,
                               double capped, double* n_capped) noexcept nogil:
    # Of the entries c, those above `capped` are at the cap wherever in the bracket the root is, and
    # those below `negligible` do not change the sum. OUT kept (may be c): the others; returns their
    # number. INOUT n_capped: grows by the number of entries at the cap.
    cdef Py_ssize_t j, size = 0
    for j in range(n):
        if c[j] >= capped:
            n_capped[0] += 1
        elif c[j] > negligible:
            kept[size] = c[j]
            size += 1
    return size


cdef double step_to_target(const Equation* e, const Totals* s, double remaining) noexcept nogil:
    # Returns by how much t should grow. The entries at the cap leave `remaining` of the target to
    # the others. If they leave nothing, there are too many of them: then the step is that of the
    # model for the whole sum, whose slope is that of the entries below the cap.
    cdef double total
    if remaining > 0:
        return curved_step(s, remaining)
    total = s.sum + e.cap * s.capped
    return model_step(total, total / s.slope - 1, e.target)


cdef double search(const Equation* e, double low, double high, double t, int patience,
                   bint* give_up) noexcept nogil:
    # Returns the root of e between low and high, starting at t. OUT give_up: whether the cap is
    # active and more than `patience` steps were needed, which is a case for search_capped; a
    # patience below 0 never ends.
    cdef double remaining, step, capped, n_capped = 0
    # At a t below this the largest entry, which is 0, is at the cap.
    cdef double top_at_cap = -inverse(e.cap, e.exponential)
    cdef bint halve, may_give_up = patience >= 0 and e.cap < e.target
    cdef const double* active = e.c
    cdef Py_ssize_t size = e.n
    cdef Totals s = entropy_pass(e.c, t, e.cap, e.w, e.n, e.n, e.exponential)
    cdef int i, moves = 0
    for i in range(MAX_STEPS):
        s.capped += n_capped
        remaining = e.target - e.cap * s.capped if s.capped > 0 else e.target
        # With a cap the sum has plateaus, which rounding may put slightly off the target.
        if fabs(s.sum - remaining) <= (4 if s.capped > 0 else 1) * DBL_EPSILON * e.target:
            break
        if s.sum > remaining:
            low = fmax(low, t)
        else:
            high = fmin(high, t)
            if may_give_up and t <= top_at_cap and (i >= patience or s.sum == 0):
                give_up[0] = True
                return t + curved_step(&s, remaining) if s.sum > 0 else NAN
        step = step_to_target(e, &s, remaining)
        # Steps that go round in a circle have both ends of it in the bracket.
        halve = i >= PATIENT_STEPS and i % 2 == 0 and high - low < INFINITY
        if halve:
            step = low + (high - low) / 2 - t
            if t + step == low or t + step == high:
                give_up[0] = may_give_up
                break
        if is_short(step, t) and active != e.c:
            # The end is near, and from here on all entries count.
            active, size, n_capped = e.c, e.n, 0
            t += step
            s = entropy_pass(active, t, e.cap, e.w, size, size, e.exponential)
        elif is_short(step, t) or (e.exponential and fabs(step) < FACTOR_STEP
                                   and low <= t + step <= high):
            capped = s.capped
            s = entropy_move(e.w, -step, e.cap, size, size, e.exponential)
            t += step
            moves += is_short(step, t)
            # Where entries reach or leave the cap, the sum has a kink that the model did not see.
            if (s.capped == capped and not halve
                    and (fabs(step) <= LAST_STEP or moves >= MAX_MOVES)):
                break
        else:
            step = within(t + step if i < PATIENT_STEPS else NAN, low, high) - t
            if step == 0:  # No number is left in the bracket.
                give_up[0] = may_give_up
                break
            t += step
            if i > 0 and low > -INFINITY:
                size = keep_undecided(
                    active, e.kept, size,
                    low + inverse(DBL_EPSILON / 4 * e.target / e.n, e.exponential),
                    high + inverse(e.cap, e.exponential), &n_capped)
                active = e.kept
            s = entropy_pass(active, t, e.cap, e.w, size, size, e.exponential)
    if active != e.c:
        entropy_pass(e.c, t, e.cap, e.w, e.n, e.n, e.exponential)
    return t


cdef double guess_from_sample(const Equation* e, double t) noexcept nogil:
    # Returns a start for `search` without a cap, beginning at t, from one entry in n/SAMPLE, or
    # from all entries of a shorter row. TEMP w
    cdef Py_ssize_t j, stride = 1 if e.n < 4 * SAMPLE else e.n // SAMPLE
    cdef Py_ssize_t size = e.n if stride == 1 else SAMPLE
    cdef const double* sample = e.c
    cdef double* w = e.w
    cdef double step, share = e.target / e.n * size
    cdef Totals s
    cdef int _
    if stride > 1:
        for j in range(size):
            w[j] = e.c[j * stride]
        sample = w
        w += size
    for _ in range(GUESSES if stride == 1 else SAMPLE_STEPS):
        s = entropy_guess(sample, t, w, size, size)
        if s.sum < TINY:
            break
        step = curved_step(&s, share)
        t += step
        if fabs(step) < GOOD_GUESS:
            break
    return t


cdef double search_free(const Equation* e, double start, bint* give_up) noexcept nogil:
    # `search` with max(c) = 0. At `first` the largest entry alone would reach the target or the
    # cap, so that without a cap the root is not below; if all entries were 0, it would be at high.
    cdef double first = -inverse(fmin(e.target, e.cap), e.exponential)
    cdef double low = first if e.cap >= e.target else -INFINITY
    cdef double high = -inverse(e.target / e.n, e.exponential)
    cdef double t = first if isnan(start) else start
    # Exponentials only scale with t: the first step is exact, whatever the start.
    if isnan(start) and e.cap >= e.target and not e.exponential:
        t = guess_from_sample(e, t)
    return search(e, low, high, clipped(t, low, high), 0 if isnan(start) else PATIENCE, give_up)


cdef double search_capped(const Equation* e, double count, double start) noexcept nogil:
    # `search` where c is b minus the count-th largest of b, and count >= target/cap entries are
    # needed. The `count` largest suffice at low, where V(0 - low) = target/count. One fewer leave
    # something to the others, none of which is above 0.
    cdef double rest = e.target - (count - 1) * e.cap
    cdef double low = -inverse(e.target / count, e.exponential)
    cdef double high = -inverse(rest / (e.n - count + 1), e.exponential)
    cdef bint give_up
    return search(e, low, high, within(start, low, high), -1, &give_up)


cdef double prox_entropy_row(const real* b, real* x, Py_ssize_t n, double alpha, double radius,
                             double upper, double start, double* work) noexcept nogil:
    cdef double* c = work
    cdef double* w = work + 2 * n
    cdef bint give_up = False, exponential = alpha * radius < NO_ALPHA
    cdef double share = upper / radius, shift, t, count
    cdef Py_ssize_t j, finite = shift_by_max(b, n, c, &shift)
    # Exponentials may have any sum, and of 1 no digits underflow.
    cdef Equation e = Equation(c, work + n, w, n, 1 if exponential else alpha * radius,
                               share if exponential else alpha * upper, exponential)
    if share * finite <= 1 + 4 * DBL_EPSILON:
        return fill_cap(b, x, n, upper) - inverse(e.cap, exponential)
    t = shift + search_free(&e, start - shift, &give_up)
    if give_up:
        # Entries near the threshold matter now; next to the largest they may have no digits left.
        count = ceil(1 / share * (1 - 4 * DBL_EPSILON))
        for j in range(n):
            w[j] = b[j]
        shift = kth_largest(w, n, <Py_ssize_t> count)
        for j in range(n):
            c[j] = b[j] - shift
        t = shift + search_capped(&e, count, t - shift)
    for j in range(n):
        x[j] = <real> min(w[j] * radius if exponential else w[j] / alpha, upper)
    return t


def prox_entropy_rows(const real[:, ::1] b, real[:, ::1] x, double alpha, double radius,
                      double upper):
    """Prox of each row of `b` into `x`, which has its shape and may be `b`."""
    cdef Py_ssize_t i, rows = b.shape[0], n = b.shape[1]
    if rows == 0 or n == 0:
        return
    cdef double[::1] work = scratch(ENTROPY_WORK * n)
    with nogil:
        for i in range(rows):
            prox_entropy_row(&b[i, 0], &x[i, 0], n, alpha, radius, upper, NAN, &work[0])
