"""The entropic prox on the top-k simplex.

Solve   min alpha/2 (|x|^2 + s^2) - <b,x> + <x,log x> + (1-s)log(1-s),   0 <= x <= s/k, s = sum x.
The solution is x = min(V(b - t)/alpha, s/k).  With c = alpha s/k, the multipliers
mu_j = max(0, b_j - t - c - log c) and y = alpha (1 - s), stationarity in s reads
    k c(t) + y(t) = alpha,                                                                    (2)
    y = V(alpha - t - sum(mu)/k),                                                             (3)
    k c = sum_j min(V(b_j - t), c),                                                           (4)
and the left side of (2) decreases in t.  Both terms are positive: nothing cancels as s tends to 1.

The root finder, with equation (1), is described in entropy_root.pxd. The readable twin of this file
is reference/entropy.py.
"""
from libc.float cimport DBL_EPSILON
from libc.math cimport INFINITY, NAN, exp, fabs, fmax, fmin, isnan, log, log1p
from libc.string cimport memcpy

from topkopt._kernels.entropy_root cimport (GOOD_GUESS, GUESSES, LAST_STEP, MAX_MOVES, MAX_STEPS,
                                            NO_ALPHA, PATIENT_STEPS, TINY, Totals, clipped,
                                            entropy_guess, entropy_move, entropy_pass,
                                            excess_curvature, inverse, is_short, within)
from topkopt._kernels.lambert cimport lambertw_exp_derivative, lambertw_exp_scalar
from topkopt._kernels.largest cimport take_largest
from topkopt._kernels.real cimport real
from topkopt._kernels.select cimport scratch

# Beyond this threshold V and exp agree, and alpha s is far below rounding.
cdef double FAR = 600
# The model is only a guess, so that its root need not be closer than this to be worth a pass.
cdef double MODEL_STEP = 1e-3


# Near t0 the sum (4) behaves like  k c(t) = m V(a - t),  if `capped` of the k largest entries, of
# sum `top_sum`, are at the cap.
cdef struct Model:
    double m
    double a
    double t0
    double bend         # the second derivative of the argument of V at t0, see excess_curvature
    double k
    double capped
    double top_sum
    double alpha
    double mu           # is added to sum(mu)/k
    double shift        # has been subtracted from the entries, so t + shift is their threshold


cdef struct State:
    double cap          # c = alpha s/k
    double residual     # k c + y - alpha, which is 0 at the solution by (2)
    double slope        # minus its derivative with respect to t


cdef Py_ssize_t find_cap(const double* u, Py_ssize_t k, Totals* below,
                         bint exponential) noexcept nogil:
    # Solves (4): c is below.sum/i, where i is the number returned. IN u: the values of the k
    # largest entries, ascending. INOUT below: the totals of the other entries, which become those
    # of all entries below the cap, i of them among the k largest. Going up from the smallest adds
    # only what the answer needs, hence nothing cancels, and nothing overflows: exponentials above
    # the cap are never touched. At least one of the k stays below the cap. If all other entries
    # underflow, that one is at the cap, as k entries then are.
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
    # Returns the residual of (2) and its slope, from c and -dc/dt.
    cdef State s
    cdef double mu = q.mu, mu_slope = 0, slack, rest
    if q.capped > 0:
        # Each entry at the cap adds b - t - c - log c to sum(mu).
        mu += (q.top_sum - q.capped * (t + inverse(cap, False))) / q.k
        mu_slope = q.capped * (1 - cap_slope * (1 + cap) / cap) / q.k
    slack = lambertw_exp_scalar(q.alpha - q.shift - t - mu)
    s.cap = cap
    # For large alpha, alpha - y loses digits as y tends to alpha. But by (3) and the definition of
    # V, y + log y = alpha - t - mu.
    rest = q.alpha - slack
    if 2 * slack > q.alpha > fabs(q.shift) + fabs(t) + fabs(mu) + 1:
        rest = q.shift + t + mu + log(slack)
    s.residual = q.k * cap - rest
    s.slope = q.k * cap_slope + lambertw_exp_derivative(slack) * (1 - mu_slope)
    return s


cdef inline double residual_step(const State* s, double alpha) noexcept nogil:
    # Returns the step (1) from F = alpha + residual to A = alpha, without forming the sum.
    cdef double excess = s.residual / (alpha + s.residual)
    return -log1p(-excess) + ((alpha + s.residual) / s.slope - 1) * excess


cdef State evaluate(Model* q, const double* top, const double* u, Totals rest,
                    double t) noexcept nogil:
    # IN top, u: the k largest entries, ascending, and V(top - t); rest: the totals of the others.
    # OUT q: the model that agrees with them at t.
    cdef Py_ssize_t j, k = <Py_ssize_t> q.k
    cdef Py_ssize_t below = find_cap(u, k, &rest, False)
    # The quotient would be 0, and its logarithm infinite, where the squares in it underflow.
    cdef double v = fmax(rest.excess / rest.slope, TINY * rest.sum)
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
    # Returns about the t at which the model reaches alpha, starting at t. INOUT low, high: a
    # bracket of it.
    cdef double v, step, away, rate
    cdef State s
    cdef int _
    for _ in range(MAX_STEPS):
        # Two curves have this bend at t0. On either side of it, take the one that keeps falling.
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
        step = residual_step(&s, q.alpha)
        if is_short(step, t) or fabs(step) <= MODEL_STEP * fabs(away) * (1 + fabs(away)):
            return t + step
        t = within(t + step, low[0], high[0])
    return t


cdef void bound_threshold(Model* q, const double* top, Py_ssize_t n, double* low,
                          double* high) noexcept nogil:
    # OUT low, high: bounds on t. TEMP the model in q.
    # Below: V(top[0] - t) <= c, and sum(mu) <= sum(top) because top[0] = 0 has mu = 0. So the
    # problem with k equal entries and that mean multiplier has a smaller t. Above: half of alpha is
    # in y, or in k c <= k n V(top[k-1] - t).
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


cdef void sort_branches(double* c, double* place, Py_ssize_t n, double split,
                        double* temp) noexcept nogil:
    # V has one formula below a bound and another above it, and a block with entries on both sides
    # needs both. So this moves the entries from `split` on behind the others. INOUT c, and place
    # along with it. TEMP temp: 2 n
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
    # Returns about the t of find_topk_cap, from values in single precision. TEMP w: m + k
    cdef double t = low, last, model_low, model_high
    cdef Py_ssize_t k = <Py_ssize_t> q.k
    cdef Totals rest
    cdef int _
    for _ in range(GUESSES):
        rest = entropy_guess(c, t, w, m + k, m)
        if rest.sum + w[m] < TINY:
            break
        evaluate(q, c + m, w + m, rest, t)
        model_low = low
        model_high = high
        last = t
        t = clipped(solve_model(q, t, &model_low, &model_high), low, high)
        if fabs(t - last) < GOOD_GUESS:
            break
    return t


cdef double find_topk_cap(double* c, double* place, double* w, Py_ssize_t m, Py_ssize_t k,
                          double alpha, double shift, double* t) noexcept nogil:
    # Returns the cap alpha s/k at the solution, or 0 if the threshold is not below FAR.
    # INOUT c: entries minus shift, the m smaller ones (which are reordered, with place) and behind
    # them the k largest, ascending from 0; t: a start, or NaN, and the solution. OUT w: V(c - t).
    # TEMP w[:2 m]
    cdef Model q
    cdef State s
    cdef Totals rest
    cdef double low, high, model_low, model_high, step
    cdef int i, moves = 0
    cdef const double* top = c + m
    cdef const double* u = w + m
    cdef bint far
    q.k = k
    q.alpha = alpha
    q.mu = 0
    q.shift = shift
    bound_threshold(&q, top, m + k, &low, &high)
    if low >= FAR:
        return 0
    far = high > FAR
    high = fmin(high, FAR)
    if isnan(t[0]):
        t[0] = guess_threshold(&q, c, w, m, low, high)
    t[0] = clipped(t[0], low, high)
    # The formulas of V part at 1, see lambert.h.
    sort_branches(c, place, m, t[0] + 1, w)
    rest = entropy_pass(c, t[0], INFINITY, w, m + k, m, False)
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
        step = residual_step(&s, alpha)
        if is_short(step, t[0]):
            rest = entropy_move(w, -step, INFINITY, m + k, m, False)
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
            rest = entropy_pass(c, t[0], INFINITY, w, m + k, m, False)
    return s.cap


cdef double find_softmax_cap(const double* c, double* w, Py_ssize_t m, Py_ssize_t k, double shift,
                             double* t, double* unit) noexcept nogil:
    # As find_topk_cap for alpha = 0, but w and the cap are multiplied by `unit`. Exponentials only
    # scale with t, so one pass finds the capped entries for all t. Then (2) and (3) read
    # log(s/(1 - s)) = log(k cap) + shift + sum(mu)/k and t = -log(1 - s) - sum(mu)/k.
    cdef double cap, odds, mu = 0
    cdef Py_ssize_t j, below
    cdef const double* top = c + m
    cdef const double* u = w + m
    cdef Totals rest = entropy_pass(c, 0, INFINITY, w, m + k, m, True)
    below = find_cap(u, k, &rest, True)
    cap = rest.sum / below
    for j in range(below, k):
        mu += (top[j] - log(cap)) / k
    odds = log(k * cap) + shift + mu
    t[0] = (log1p(exp(odds)) if odds < 0 else odds + log1p(exp(-odds))) - mu - shift
    unit[0] = k * cap * (1 + exp(-odds))
    return cap


cdef Py_ssize_t part_largest(const real* b, Py_ssize_t n, Py_ssize_t k, double* c, double* place,
                             double* shift, double* temp) noexcept nogil:
    # OUT shift: the k-th largest entry of b; c: the other finite entries minus shift, in order, and
    # behind them the k largest, ascending from 0; place: where in b each of them is. Returns the
    # number of the others. If the shift is -inf, c and place are not written. TEMP temp: 3 n
    cdef double* top = temp
    cdef double* where = temp + n
    cdef double* others = temp + 2 * n
    cdef double entry, kth
    cdef Py_ssize_t j, m = 0
    for j in range(n):
        others[j] = b[j]
    take_largest(others, n, k, top, where)
    kth = top[k - 1]
    shift[0] = kth
    if kth == -INFINITY:
        return 0
    for j in range(k):
        others[<Py_ssize_t> where[j]] = -INFINITY
    for j in range(n):
        entry = others[j] - kth
        c[m] = entry
        place[m] = <double> j
        m += entry > -INFINITY
    for j in range(k):
        c[m + k - 1 - j] = top[j] - kth
        place[m + k - 1 - j] = where[j]
    return m


cdef double prox_topk_entropy_row(const real* b, real* x, Py_ssize_t n, double alpha, Py_ssize_t k,
                                  double start, double* work) noexcept nogil:
    cdef double* c = work
    cdef double* place = work + n
    cdef double* w = work + 2 * n
    cdef double shift, t, unit = alpha, cap = 0
    cdef Py_ssize_t j, m = part_largest(b, n, k, c, place, &shift, w)
    if shift == -INFINITY:  # Fewer than k entries can be positive, and k must be to share s/k.
        for j in range(n):
            x[j] = 0
        return NAN
    t = start - shift
    if alpha >= NO_ALPHA:
        cap = find_topk_cap(c, place, w, m, k, alpha, shift, &t)
    if cap == 0:
        # There is no quadratic term, or it is below rounding because s < k n e^-FAR/alpha.
        cap = find_softmax_cap(c, w, m, k, shift, &t, &unit)
    if m + k < n:
        for j in range(n):
            x[j] = 0
    for j in range(m + k):
        w[j] = min(w[j], cap) / unit
    for j in range(m + k):
        x[<Py_ssize_t> place[j]] = <real> w[j]
    return shift + t


def prox_topk_entropy_rows(const real[:, ::1] b, real[:, ::1] x, double alpha, Py_ssize_t k):
    """Prox of each row of `b` into `x`, which has its shape and may be `b`."""
    cdef Py_ssize_t i, rows = b.shape[0], n = b.shape[1]
    if rows == 0 or n == 0:
        return
    cdef double[::1] work = scratch(TOPK_ENTROPY_WORK * n)
    with nogil:
        for i in range(rows):
            prox_topk_entropy_row(&b[i, 0], &x[i, 0], n, alpha, k, NAN, &work[0])
