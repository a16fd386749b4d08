"""Entropic proxes on the simplex and on the top-k simplex.

Solve   min alpha/2 |x|^2 - <b,x> + <x,log x>,   sum x = radius, x <= upper.
The solution is x = min(V(b - t)/alpha, upper), V(t) = W(e^t), with t such that sum x = radius
(for small alpha, e^(b - t) takes the place of V(b - t)/alpha).

Solve   min alpha/2 (|x|^2 + s^2) - <b,x> + <x,log x> + (1-s)log(1-s),   0 <= x <= s/k, s = sum x.
The solution is x = min(V(b - t)/alpha, s/k).  With c = alpha s/k, the multipliers
mu_j = max(0, b_j - t - c - log c) and y = alpha (1 - s), stationarity in s reads
    k c(t) + y(t) = alpha,     y = V(alpha - t - sum(mu)/k),     k c = sum_j min(V(b_j - t), c),
and its left side decreases in t.  Both terms are positive: nothing cancels as s tends to 1.

Root finder.  A sum F of values V(b_j - t) with slope -S behaves like m V(a - t) with m and a that
give the same F and S; that model reaches the target A after the step
    log(F/A) + v (1 - A/F),      v = F/S - 1,
which is exact for equal b, for exponentials, and for large V.  The last steps, once they are
short, move the values without evaluating V again (see `entropy.h`).
"""
from libc.float cimport DBL_EPSILON
from libc.math cimport INFINITY, NAN, ceil, exp, fabs, fmax, fmin, isnan, log, log1p, sqrt
from libc.string cimport memcpy

from topkopt._kernels.lambert cimport lambertw_exp_derivative, lambertw_exp_scalar
from topkopt._kernels.real cimport real
from topkopt._kernels.select cimport row_max, scratch


cdef extern from "entropy.h" nogil:
    ctypedef struct tk_totals:
        double sum
        double slope
        double excess
        double curvature
        double capped
    tk_totals tk_entropy_pass(const double* b, double t, double cap, double* w, Py_ssize_t n,
                              Py_ssize_t counted, bint exponential)
    tk_totals tk_entropy_guess(const double* b, double t, double* w, Py_ssize_t n,
                               Py_ssize_t counted)
    double tk_x_log_x(const double* x, Py_ssize_t n)
    tk_totals tk_entropy_move(double* w, double r, double cap, Py_ssize_t n, Py_ssize_t counted,
                              bint exponential)

cdef enum:
    MAX_STEPS = 200          # a guard: a dozen is already exceptional,
    PATIENT_STEPS = 20       # and after so many the bracket is halved instead
    MAX_MOVES = 4            # short steps in a row; the second or third is already rounding
    GUESSES = 2              # of a threshold, in single precision
    SAMPLE = 128
    SAMPLE_STEPS = 6

# Below this, single precision loses the sum.
cdef double TINY = 1e-30
# Moving values over such a distance leaves a relative error of 1e-16, see `entropy.h`.
cdef double SHORT_STEP = 3e-4
# After a step this short the next one would be below rounding.
cdef double LAST_STEP = 1e-8
# So small a quadratic term changes no digit of a solution of sum 1: V(t) is e^t.
cdef double NO_ALPHA = DBL_EPSILON / 8


cdef double x_log_x_sum(const double* x, Py_ssize_t n) noexcept nogil:
    return tk_x_log_x(x, n)


cdef inline double inverse(double v, bint exponential) noexcept nogil:
    """The t with V(t) = v, or e^t = v."""
    return log(v) if exponential else v + log(v)


cdef inline double model_step(double total, double v, double target) noexcept nogil:
    """By how much t must grow to bring the sum from `total` to `target`."""
    return log(total / target) + v * (1 - target / total)


cdef inline double excess_curvature(const tk_totals* s, double v) noexcept nogil:
    """How much more the sum is curved than its model.

    In t, V^-1(F/m) is not linear but has the second derivative F''/S - 1/(1+v)^2 >= 0.
    """
    return fmax(0, s.curvature / s.slope - 1 / ((1 + v) * (1 + v)))


cdef inline double curved_step(const tk_totals* s, double target) noexcept nogil:
    """`model_step`, corrected by the excess curvature."""
    cdef double v = s.excess / s.slope
    cdef double step = model_step(s.sum, v, target), bend = excess_curvature(s, v)
    return 2 * step / (1 + sqrt(fmax(0, 1 - 2 * bend * step)))


cdef inline bint is_short(double step, double t) noexcept nogil:
    # The rounding of t itself is no obstacle: it moves the values, not the sum.
    return fabs(step) <= SHORT_STEP + 8 * DBL_EPSILON * fabs(t)


cdef inline double within(double t, double low, double high) noexcept nogil:
    """`t`, or the middle of the bracket if `t` is outside (or NaN) and there is a middle."""
    if low <= t <= high or low == -INFINITY or high == INFINITY:
        return t
    return low + (high - low) / 2


cdef inline double clipped(double t, double low, double high) noexcept nogil:
    return fmin(fmax(t, low), high)


cdef void swap(double* a, double* b) noexcept nogil:
    cdef double t = a[0]
    a[0] = b[0]
    b[0] = t


# ---- simplex -------------------------------------------------------------------------------------

cdef Py_ssize_t shift_by_max(const real* b, Py_ssize_t n, double* c, double* top) noexcept nogil:
    """OUT c = b - max(b), top = max(b); returns the number of finite entries."""
    cdef Py_ssize_t j, finite = 0
    cdef double largest = row_max(b, n)
    for j in range(n):
        c[j] = b[j] - largest
        finite += b[j] > -INFINITY
    top[0] = largest
    return finite


cdef double fill_cap(const real* b, real* x, Py_ssize_t n, double upper) noexcept nogil:
    """Every finite entry at its cap; returns the smallest of them."""
    cdef Py_ssize_t j
    cdef double entry, smallest = INFINITY
    for j in range(n):
        entry = b[j]        # x may be b
        x[j] = <real> upper if entry > -INFINITY else <real> 0
        if entry > -INFINITY:
            smallest = min(smallest, entry)
    return smallest


cdef double select_largest(double* a, Py_ssize_t n, Py_ssize_t rank) noexcept nogil:
    """The entry of rank `rank` (1 = the largest) by quickselect.  TEMP a, reordered."""
    cdef Py_ssize_t first = 0, last = n - 1, i, j, middle
    cdef double pivot
    while first < last:
        middle = first + (last - first) // 2
        pivot = max(min(a[first], a[last]), min(max(a[first], a[last]), a[middle]))
        i = first
        j = last
        while i <= j:
            while a[i] > pivot:
                i += 1
            while a[j] < pivot:
                j -= 1
            if i <= j:
                swap(&a[i], &a[j])
                i += 1
                j -= 1
        if rank - 1 <= j:
            last = j
        elif rank - 1 >= i:
            first = i
        else:
            break
    return a[rank - 1]


cdef Py_ssize_t keep_undecided(const double* c, double* kept, Py_ssize_t n, double negligible,
                               double capped, double* base) noexcept nogil:
    """Drops what is negligible or at the cap anyway.  IN c, OUT kept (may be c), INOUT base."""
    cdef Py_ssize_t j, size = 0
    for j in range(n):
        if c[j] >= capped:
            base[0] += 1
        elif c[j] > negligible:
            kept[size] = c[j]
            size += 1
    return size


cdef double search(const double* c, double* kept, double* w, Py_ssize_t n, double target,
                   double cap, double low, double high, double t, int patience,
                   bint* give_up, bint exponential) noexcept nogil:
    """t with sum min(V(c - t), cap) = target, to be found between low and high.

    IN c; OUT w = V(c - t); TEMP kept; t: start.  OUT give_up: the cap is active and `patience`
    steps were not enough; a case for `search_capped`.  (patience < 0: never.)
    """
    cdef double top_at_cap = -inverse(cap, exponential)     # for t below, the largest is capped
    cdef double remaining, step, capped, base = 0
    cdef bint halve, may_give_up = patience >= 0 and cap < target
    cdef const double* active = c
    cdef Py_ssize_t size = n
    cdef tk_totals s = tk_entropy_pass(c, t, cap, w, n, n, exponential)
    cdef int i, moves = 0
    for i in range(MAX_STEPS):
        s.capped += base
        remaining = target - cap * s.capped if s.capped > 0 else target
        # With a cap the sum has plateaus, which rounding may put slightly off the target.
        if fabs(s.sum - remaining) <= (4 if s.capped > 0 else 1) * DBL_EPSILON * target:
            break
        if s.sum > remaining:
            low = fmax(low, t)
        else:
            high = fmin(high, t)
            if may_give_up and t <= top_at_cap and (i >= patience or s.sum == 0):
                give_up[0] = True
                return t + curved_step(&s, remaining) if s.sum > 0 else NAN
        if remaining > 0:
            step = curved_step(&s, remaining)
        else:       # too many at the cap: Newton's step for the whole sum
            remaining = s.sum + cap * s.capped
            step = model_step(remaining, remaining / s.slope - 1, target)
        # Steps that go round in a circle have both ends of it in the bracket.
        halve = i >= PATIENT_STEPS and i % 2 == 0 and high - low < INFINITY
        if halve:
            step = low + (high - low) / 2 - t
            if t + step == low or t + step == high:
                give_up[0] = may_give_up
                break
        if is_short(step, t) and active != c:
            active, size, base = c, n, 0
            t += step
            s = tk_entropy_pass(active, t, cap, w, size, size, exponential)
        elif is_short(step, t) or (exponential and fabs(step) < 20 and low <= t + step <= high):
            capped = s.capped
            s = tk_entropy_move(w, -step, cap, size, size, exponential)
            t += step
            moves += is_short(step, t)
            # Where entries reach or leave the cap, the sum has a kink that the model did not see.
            if (s.capped == capped and not halve
                    and (fabs(step) <= LAST_STEP or moves >= MAX_MOVES)):
                break
        else:
            step = within(t + step if i < PATIENT_STEPS else NAN, low, high) - t
            if step == 0:       # no number is left in the bracket
                give_up[0] = may_give_up
                break
            t += step
            if i > 0 and low > -INFINITY:
                size = keep_undecided(
                    active, kept, size,
                    low + inverse(DBL_EPSILON / 4 * target / n, exponential),
                    high + inverse(cap, exponential), &base)
                active = kept
            s = tk_entropy_pass(active, t, cap, w, size, size, exponential)
    if active != c:
        tk_entropy_pass(c, t, cap, w, n, n, exponential)
    return t


cdef double guess_from_sample(const double* c, double* w, Py_ssize_t n, double target,
                              double t) noexcept nogil:
    """A start for `search` from one entry in n/SAMPLE, or all.  IN c, t: where to begin; TEMP w."""
    cdef Py_ssize_t j, stride = 1 if n < 4 * SAMPLE else n // SAMPLE
    cdef Py_ssize_t size = n if stride == 1 else SAMPLE
    cdef const double* sample = c
    cdef double step, share = target / n * size
    cdef tk_totals s
    cdef int _
    if stride > 1:
        for j in range(size):
            w[j] = c[j * stride]
        sample = w
        w += size
    for _ in range(GUESSES if stride == 1 else SAMPLE_STEPS):
        s = tk_entropy_guess(sample, t, w, size, size)
        if s.sum < TINY:
            break
        step = curved_step(&s, share)
        t += step
        if fabs(step) < 0.01:
            break
    return t


cdef double search_free(const double* c, double* kept, double* w, Py_ssize_t n, double target,
                        double cap, double start, bint* give_up, bint exponential) noexcept nogil:
    """`search` with max(c) = 0 and the bounds that hold without a cap."""
    cdef double first = -inverse(fmin(target, cap), exponential)
    cdef double low = first if cap >= target else -INFINITY
    cdef double high = -inverse(target / n, exponential)
    cdef double t = first if isnan(start) else start
    # Exponentials only scale with t: the first step is exact, whatever the start.
    if isnan(start) and cap >= target and not exponential:
        t = guess_from_sample(c, w, n, target, t)
    return search(c, kept, w, n, target, cap, low, high, clipped(t, low, high),
                  0 if isnan(start) else 3, give_up, exponential)


cdef double search_capped(const double* c, double* kept, double* w, Py_ssize_t n, double target,
                          double cap, double count, double start, bint exponential) noexcept nogil:
    """`search` with c = b - (the count-th largest of b), count >= target/cap entries needed.

    The `count` largest suffice at low, V(0 - low) = target/count; one fewer leave something to
    the others, none of which is above 0.
    """
    cdef double rest = target - (count - 1) * cap
    cdef double low = -inverse(target / count, exponential)
    cdef double high = -inverse(rest / (n - count + 1), exponential)
    cdef bint give_up
    return search(c, kept, w, n, target, cap, low, high, within(start, low, high), -1, &give_up,
                  exponential)


cdef double prox_entropy_row(const real* b, real* x, Py_ssize_t n, double alpha, double radius,
                             double upper, double start, double* work) noexcept nogil:
    cdef double* c = work
    cdef double* kept = work + n
    cdef double* w = work + 2 * n
    cdef bint give_up = False
    cdef bint exponential = alpha * radius < NO_ALPHA
    # Exponentials may have any sum, and of 1 no digits underflow.
    cdef double target = 1 if exponential else alpha * radius
    cdef double share = upper / radius, cap = share if exponential else alpha * upper
    cdef double shift, t, count
    cdef Py_ssize_t j, finite = shift_by_max(b, n, c, &shift)
    if share * finite <= 1 + 4 * DBL_EPSILON:
        return fill_cap(b, x, n, upper) - inverse(cap, exponential)
    t = shift + search_free(c, kept, w, n, target, cap, start - shift, &give_up, exponential)
    if give_up:
        # Entries near the threshold matter now; next to the largest they may have no digits left.
        count = ceil(1 / share * (1 - 4 * DBL_EPSILON))
        for j in range(n):
            w[j] = b[j]
        shift = select_largest(w, n, <Py_ssize_t> count)
        for j in range(n):
            c[j] = b[j] - shift
        t = shift + search_capped(c, kept, w, n, target, cap, count, t - shift, exponential)
    for j in range(n):
        x[j] = <real> min(w[j] * radius if exponential else w[j] / alpha, upper)
    return t


# ---- top-k simplex -------------------------------------------------------------------------------

cdef void sift_down(double* heap, double* place, Py_ssize_t root, Py_ssize_t size) noexcept nogil:
    """Restores the min-heap of pairs (heap, place) below `root`."""
    cdef Py_ssize_t parent = root, child = 2 * root + 1
    cdef double value = heap[root], where = place[root]
    while child < size:
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if not heap[child] < value:
            break
        heap[parent] = heap[child]
        place[parent] = place[child]
        parent = child
        child = 2 * parent + 1
    heap[parent] = value
    place[parent] = where


cdef void select_top(const real* b, Py_ssize_t n, Py_ssize_t k, double* top,
                     double* place) noexcept nogil:
    """OUT top: the k largest in ascending order; place: where they are."""
    cdef Py_ssize_t j
    for j in range(k):
        top[j] = b[j]
        place[j] = <double> j
    for j in range(k // 2 - 1, -1, -1):
        sift_down(top, place, j, k)
    for j in range(k, n):
        if b[j] > top[0]:
            top[0] = b[j]
            place[0] = <double> j
            sift_down(top, place, 0, k)
    for j in range(k - 1, 0, -1):       # heapsort leaves a min-heap in descending order
        swap(&top[0], &top[j])
        swap(&place[0], &place[j])
        sift_down(top, place, 0, j)
    for j in range(k // 2):
        swap(&top[j], &top[k - 1 - j])
        swap(&place[j], &place[k - 1 - j])


# Beyond this threshold V and exp agree, and alpha s is far below rounding.
cdef double FAR = 600


cdef struct Model:
    # k c(t) = m V(a - t) near t0, with `capped` of the k largest, of sum `top_sum`, at the cap;
    # the argument has the second derivative `bend` there, see excess_curvature
    double m
    double a
    double t0
    double bend
    double k
    double capped
    double top_sum
    double alpha
    double mu           # added to sum(mu)/k
    double shift        # t + shift is the t of the unshifted entries


cdef struct State:
    double cap          # c = alpha s/k
    double residual     # k c + y - alpha
    double slope        # minus its derivative in t


cdef Py_ssize_t find_cap(const double* u, Py_ssize_t k, tk_totals* below,
                         bint exponential) noexcept nogil:
    """The c with k c = sum_j min(V_j, c) is below.sum/i, i the number returned.

    IN u: values of the k largest, ascending.  INOUT below: totals of the other entries; of all
    entries below the cap, i of them among the k largest.
    Going up from the smallest adds only what the answer needs, hence no cancellation (and no
    overflow: exponentials above the cap are never touched).  At least one entry stays below the
    cap; if the others underflow it is at the cap, which is the case |U| = k.
    """
    cdef Py_ssize_t i = 0
    cdef double slope
    while True:
        slope = u[i] if exponential else lambertw_exp_derivative(u[i])
        below.sum += u[i]
        below.slope += slope
        below.excess += u[i] * slope
        below.curvature += slope / ((1 + u[i]) * (1 + u[i]))
        i += 1
        if i == k or u[i] >= below.sum / i:
            return i


cdef State combine(const Model* q, double cap, double cap_slope, double t) noexcept nogil:
    """k c + y - alpha and its slope from c and -dc/dt."""
    cdef State s
    cdef double mu = q.mu, mu_slope = 0, slack, rest
    if q.capped > 0:
        # mu = b - t - c - log c for each entry at the cap
        mu += (q.top_sum - q.capped * (t + inverse(cap, False))) / q.k
        mu_slope = q.capped * (1 - cap_slope * (1 + cap) / cap) / q.k
    slack = lambertw_exp_scalar(q.alpha - q.shift - t - mu)
    s.cap = cap
    # For large alpha, alpha - y loses digits as y tends to alpha; but y + log y = alpha - t - mu.
    rest = q.alpha - slack
    if 2 * slack > q.alpha > fabs(q.shift) + fabs(t) + fabs(mu) + 1:
        rest = q.shift + t + mu + log(slack)
    s.residual = q.k * cap - rest
    s.slope = q.k * cap_slope + lambertw_exp_derivative(slack) * (1 - mu_slope)
    return s


cdef inline double model_residual_step(const State* s, double alpha) noexcept nogil:
    """`model_step` from alpha + residual to alpha, without forming the sum."""
    cdef double excess = s.residual / (alpha + s.residual)
    return -log1p(-excess) + ((alpha + s.residual) / s.slope - 1) * excess


cdef State evaluate(Model* q, const double* top, const double* u, tk_totals rest,
                    double t) noexcept nogil:
    """OUT q: the model that agrees with V(top - t) = u and the rest."""
    cdef Py_ssize_t j, k = <Py_ssize_t> q.k
    cdef Py_ssize_t below = find_cap(u, k, &rest, False)
    # v > 0 even where the squares underflow
    cdef double v = fmax(rest.excess / rest.slope, 1e-30 * rest.sum)
    q.capped = k - below
    q.top_sum = 0
    for j in range(below, k):
        q.top_sum += top[j]
    q.t0 = t
    q.a = t + inverse(v, False)
    q.m = rest.sum / v * (q.k / below)
    q.bend = excess_curvature(&rest, v)
    return combine(q, rest.sum / below, rest.slope / below, t)


cdef double solve_model(const Model* q, double t, double* low, double* high) noexcept nogil:
    """About the t at which the model reaches alpha.  t: start, INOUT low, high: bracket."""
    cdef double v, step, away, rate
    cdef State s
    cdef int _
    for _ in range(MAX_STEPS):
        # Of the two curves with this bend the one that keeps falling
        away = t - q.t0
        if away > 0:
            rate = 1 / (1 + 0.5 * q.bend * away)
            v = lambertw_exp_scalar((q.a - q.t0) - away * rate)
            rate *= rate
        else:
            rate = 1 - q.bend * away
            v = lambertw_exp_scalar((q.a - q.t0) - away * (1 - 0.5 * q.bend * away))
        if v == 0:
            high[0] = t
            t = low[0] + (high[0] - low[0]) / 2
            continue
        s = combine(q, q.m * v / q.k, rate * q.m * lambertw_exp_derivative(v) / q.k, t)
        if s.residual > 0:
            low[0] = fmax(low[0], t)
        else:
            high[0] = fmin(high[0], t)
        step = model_residual_step(&s, q.alpha)
        if is_short(step, t) or fabs(step) <= 1e-3 * fabs(away) * (1 + fabs(away)):
            return t + step
        t = within(t + step, low[0], high[0])
    return t


cdef void sort_branches(double* c, double* place, Py_ssize_t n, double split,
                        double* temp) noexcept nogil:
    """Moves the entries from `split` on behind the others: fewer blocks need both branches of V.

    INOUT c, and place along with it.  TEMP temp: 2 n.
    """
    cdef Py_ssize_t j, low = 0, high = 0
    cdef double* where = temp + n
    cdef double entry, its_place
    for j in range(n):
        entry = c[j]
        its_place = place[j]
        temp[high] = entry
        where[high] = its_place
        c[low] = entry
        place[low] = its_place
        high += entry >= split
        low += entry < split
    memcpy(c + low, temp, high * sizeof(double))
    memcpy(place + low, where, high * sizeof(double))


cdef double guess_threshold(Model* q, const double* c, double* w, Py_ssize_t m, double low,
                            double high) noexcept nogil:
    """About the t of `find_topk_cap`, from single precision.  TEMP w."""
    cdef double t = low, last, model_low, model_high
    cdef Py_ssize_t k = <Py_ssize_t> q.k
    cdef tk_totals rest
    cdef int _
    for _ in range(GUESSES):
        rest = tk_entropy_guess(c, t, w, m + k, m)
        if rest.sum + w[m] < TINY:
            break
        evaluate(q, c + m, w + m, rest, t)
        model_low = low
        model_high = high
        last = t
        t = clipped(solve_model(q, t, &model_low, &model_high), low, high)
        if fabs(t - last) < 0.01:
            break
    return t


cdef double find_topk_cap(double* c, double* place, double* w, Py_ssize_t m, Py_ssize_t k,
                          double alpha, double shift, double* t) noexcept nogil:
    """The cap alpha s/k at the solution; 0 if the threshold is not below FAR.

    INOUT c: entries minus shift, the m smaller ones (reordered, with place) and behind them the k
    largest, ascending from 0.  OUT w: V(c - t).  INOUT t: start and solution.  TEMP w[:2 m]
    """
    cdef Model q
    cdef State s
    cdef tk_totals rest
    cdef double low, high, model_low, model_high, step
    cdef int i, moves = 0
    cdef const double* top = c + m
    cdef const double* u = w + m
    q.k = k
    q.alpha = alpha
    q.mu = 0
    q.shift = shift
    bound_topk(&q, top, m + k, &low, &high)
    if low >= FAR:
        return 0
    cdef bint far = high > FAR
    high = fmin(high, FAR)
    if isnan(t[0]):
        t[0] = guess_threshold(&q, c, w, m, low, high)
    t[0] = clipped(t[0], low, high)
    sort_branches(c, place, m, t[0] + 1, w)
    rest = tk_entropy_pass(c, t[0], INFINITY, w, m + k, m, False)
    for i in range(MAX_STEPS):
        s = evaluate(&q, top, u, rest, t[0])
        if fabs(s.residual) <= DBL_EPSILON * k * s.cap:
            break
        if s.residual > 0:
            if t[0] >= FAR:
                return 0
            low = fmax(low, t[0])
        else:
            high = fmin(high, t[0])
            far = False
        step = model_residual_step(&s, alpha)
        if is_short(step, t[0]):
            rest = tk_entropy_move(w, -step, INFINITY, m + k, m, False)
            t[0] += step
            moves += 1
            if fabs(step) <= LAST_STEP or moves == MAX_MOVES:
                s = evaluate(&q, top, u, rest, t[0])
                break
        else:
            model_low = low
            model_high = high
            t[0] = solve_model(&q, within(t[0] + step, low, high), &model_low, &model_high)
            if far and t[0] > FAR:
                t[0] = FAR
            else:
                t[0] = within(t[0] if i < PATIENT_STEPS else NAN, low, high)
            rest = tk_entropy_pass(c, t[0], INFINITY, w, m + k, m, False)
    return s.cap


cdef void bound_topk(Model* q, const double* top, Py_ssize_t n, double* low,
                     double* high) noexcept nogil:
    """OUT low, high: bounds on t.  TEMP the model in q.

    V(top[0] - t) <= c, and sum(mu) <= sum(top) because top[0] has mu = 0: the problem with k
    equal entries and that mean multiplier has a smaller t.  Half of alpha is in y, or in
    k c <= k n V(top[k-1] - t).
    """
    cdef Py_ssize_t j, k = <Py_ssize_t> q.k
    cdef double model_high
    high[0] = fmax(q.alpha - q.shift - inverse(q.alpha / 2, False),
                   top[k - 1] - inverse(q.alpha / (2 * q.k * n), False))
    low[0] = -inverse(q.alpha / k, False)
    for j in range(k):
        q.mu += top[j] / k
    q.m = k
    q.a = 0
    q.bend = 0
    q.t0 = low[0]
    q.capped = 0
    model_high = high[0]
    solve_model(q, low[0], low, &model_high)
    q.mu = 0


cdef double find_softmax_cap(const double* c, double* w, Py_ssize_t m, Py_ssize_t k, double shift,
                             double* t, double* unit) noexcept nogil:
    """The same for alpha = 0, with w and the cap multiplied by `unit`.

    Exponentials only scale with t, so one pass finds the capped entries for all t; then
    log(s/(1 - s)) = log(k cap) + shift + sum(mu)/k.
    """
    cdef double cap, odds, mu = 0
    cdef Py_ssize_t j, below
    cdef const double* top = c + m
    cdef const double* u = w + m
    cdef tk_totals rest = tk_entropy_pass(c, 0, INFINITY, w, m + k, m, True)
    below = find_cap(u, k, &rest, True)
    cap = rest.sum / below
    for j in range(below, k):
        mu += (top[j] - log(cap)) / k
    odds = log(k * cap) + shift + mu
    # t = -log(1 - s) - sum(mu)/k
    t[0] = (log1p(exp(odds)) if odds < 0 else odds + log1p(exp(-odds))) - mu - shift
    unit[0] = k * cap * (1 + exp(-odds))
    return cap


cdef double prox_topk_entropy_row(const real* b, real* x, Py_ssize_t n, double alpha, Py_ssize_t k,
                                  double start, double* work) noexcept nogil:
    cdef double* c = work
    cdef double* place = work + n
    cdef double* w = work + 2 * n
    cdef double* top = work + 3 * n
    cdef double* where = work + 4 * n
    cdef double shift, t, entry, unit = alpha, cap = 0
    cdef Py_ssize_t j, m = 0
    select_top(b, n, k, top, where)
    shift = top[0]
    if shift == -INFINITY:      # s/k > 0 needs k entries
        for j in range(n):
            x[j] = 0
        return NAN
    for j in range(n):
        w[j] = b[j] - shift
    for j in range(k):
        w[<Py_ssize_t> where[j]] = -INFINITY
    for j in range(n):
        entry = w[j]
        c[m] = entry
        place[m] = <double> j
        m += entry > -INFINITY
    for j in range(k):
        c[m + j] = top[j] - shift
        place[m + j] = where[j]
    t = start - shift
    if alpha >= NO_ALPHA:
        cap = find_topk_cap(c, place, w, m, k, alpha, shift, &t)
    if cap == 0:
        # No quadratic term, or one that is below rounding because s < k n e^-FAR/alpha.
        cap = find_softmax_cap(c, w, m, k, shift, &t, &unit)
    if m + k < n:
        for j in range(n):
            x[j] = 0
    for j in range(m + k):
        w[j] = min(w[j], cap) / unit
    for j in range(m + k):
        x[<Py_ssize_t> place[j]] = <real> w[j]
    return shift + t


# ---- rows ----------------------------------------------------------------------------------------

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


def prox_topk_entropy_rows(const real[:, ::1] b, real[:, ::1] x, double alpha, Py_ssize_t k):
    """Prox of each row of `b` into `x`, which has its shape and may be `b`."""
    cdef Py_ssize_t i, rows = b.shape[0], n = b.shape[1]
    if rows == 0 or n == 0:
        return
    cdef double[::1] work = scratch(TOPK_ENTROPY_WORK * n)
    with nogil:
        for i in range(rows):
            prox_topk_entropy_row(&b[i, 0], &x[i, 0], n, alpha, k, NAN, &work[0])
