"""The losses of top-k classification: value, conjugate and one prox each.

Every convex loss L answers, for given q and alpha >= 0,

    Solve    min_v  L*(v) - <q,v> + alpha/2 <v,v>.

The solution is the gradient of L at q for alpha = 0, and for alpha = kappa C it gives the dual step
a = -C v, which maximises -C L*(-a/C) - <q,a> - kappa/2 <a,a>. The forms of v are listed in
`reference/losses.py`, whose classes these are the twins of.
"""
import numpy as np

from libc.float cimport DBL_EPSILON, DBL_MAX, DBL_MIN
from libc.math cimport INFINITY, NAN, exp, fabs, fmax, log, log1p
from libc.string cimport memcpy, memmove

from topkopt._bipartite cimport BIPARTITE_WORK, project_bipartite_row
from topkopt._entropy cimport (ENTROPY_WORK, TOPK_ENTROPY_WORK, prox_entropy_row,
                               prox_topk_entropy_row, x_log_x_sum)
from topkopt._lambert cimport exp_row, lambertw_exp_scalar
from topkopt._select cimport (heap_pop, heapify, rank_of, row_dot, row_max, row_max_abs, row_sum,
                              scratch)
from topkopt._topk cimport (SHORT, TOPK_ALPHA, TOPK_BETA, TOPK_LABEL, TOPK_WORK, TopKKind,
                            project_topk_row)
from topkopt._weighted cimport WEIGHTED_WORK, project_weighted_row

from topkopt import _validation

_TOPK_KINDS = ("alpha", "beta", "label")

cdef enum:
    FEW = 32             # up to this k the k largest are kept by insertion
    NEAR = 3             # ranks that are crossed one by one on the way to the k-th
    LOSS = 16            # times its own size, the rounding that a sum may have
    LOOKS = 12           # for the k-th largest entry, before k of them are listed
    NEWTON_STEPS = 60    # six suffice; the bound only ends a search that rounding keeps alive

cdef enum What:
    VALUE
    GRADIENT
    CONJUGATE

cdef double PLAIN_ALPHA = 1e3    # up to this alpha the softmax step loses at most 3 digits
cdef double DOMAIN_SLACK = 1e-9  # of rounding, forgiven outside a domain of size 1


# Rows --------------------------------------------------------------------------------------------

cdef extern from "_rows.h" nogil:
    # How many entries are above t and how many not below, what those above have more than t in
    # all, the smallest of them, and the largest below t
    ctypedef struct Around:
        double n_above
        double n_from
        double sum
        double above
        double below
    Around look_around(const double* b, Py_ssize_t n, double t)

    # OUT others (m entries): (s_j - s_own + margin) scale for j != own, in the order in which the
    # last has taken the place of own; returns the sum of their sizes
    double take_others(const double* s, Py_ssize_t own, Py_ssize_t m, double margin, double scale,
                       double* others)

    # scale <p,p> and scale <p,b - p>, where squares of p may underflow
    double scaled_square(const double* p, Py_ssize_t n, double scale)
    double scaled_rest(const double* p, const double* b, Py_ssize_t n, double scale)


cdef extern from "_topk.h" nogil:
    # For up to four rows of m scores, with h the margins s_j - s_own + 1. OUT values (4): the
    # largest <h,p> - smoothing/2 <p,p> over the top-k simplex of kind alpha and radius 1, for rows
    # whose bit is set in what it returns. INOUT starts: START for each row. TEMP work: 4 m
    int side_by_side(const double* s, const Py_ssize_t* own, Py_ssize_t n_rows, Py_ssize_t m,
                     double k, double smoothing, double* starts, double* values, double* work)


cdef inline void take_differences(const double* s, Py_ssize_t own, Py_ssize_t m,
                                  double* u) noexcept nogil:
    # OUT u (m entries): s_j - s_own in the order of take_others; what overflows is the largest
    # number there is
    if take_others(s, own, m, 0.0, 1.0, u) == INFINITY:
        keep_finite(u, m)


cdef void keep_finite(double* u, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(n):
        u[j] = max(-DBL_MAX, min(u[j], DBL_MAX))


cdef inline void return_others(Py_ssize_t own, Py_ssize_t m, double* v) noexcept nogil:
    # INOUT v: p in the order of take_others; becomes p on the others, -<1,p> on the label
    cdef double total = row_sum(v, m - 1)
    v[m - 1] = v[own]
    v[own] = -total


# Between equal entries the order of the classes decides, where one has to. Both take others of m
# entries, of which the last means nothing.
cdef inline void into_class_order(double* others, Py_ssize_t own, Py_ssize_t m) noexcept nogil:
    memmove(others + own, others + own + 1, (m - 1 - own) * sizeof(double))


cdef inline void out_of_class_order(double* others, Py_ssize_t own, Py_ssize_t m) noexcept nogil:
    memmove(others + own + 1, others + own, (m - 1 - own) * sizeof(double))
    others[own] = others[m - 1]


cdef double chosen_sum(const double* p, const double* h, Py_ssize_t n) noexcept nogil:
    # <p,h> over p > 0; other margins may have overflown
    cdef double total = 0.0
    cdef Py_ssize_t j
    for j in range(n):
        total += p[j] * h[j] if p[j] > 0.0 else 0.0
    return total


cdef inline double x_log_x(double x) noexcept nogil:
    return x * log(x) if x > 0.0 else 0.0   # what rounding left below 0 counts as 0


cdef inline double shifted_x_log_x(double z) noexcept nogil:
    # (1 + z) log(1 + z), exact for small z
    return (1.0 + z) * log1p(z) if z > -1.0 else 0.0


cdef inline double log1p_exp(double t) noexcept nogil:
    return t + log1p(exp(-t)) if t > 0.0 else log1p(exp(t))


cdef double softmax_value(const double* s, Py_ssize_t own, Py_ssize_t m,
                          double* work) noexcept nogil:
    # log(1 + sum_{j != own} exp(s_j - s_own)). Next to the largest score the label is a summand
    # like all others; where it is the largest itself, the others may be far below rounding.
    cdef double largest = row_max(s, m), total
    exp_row(s, largest, work, m, &total)
    if largest > s[own]:
        return (largest - s[own]) + log(total)
    work[own] = 0.0
    return log1p(row_sum(work, m))


cdef void softmax_prox(const double* q, Py_ssize_t own, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil:
    # With k = 1 the label is one more entry of the simplex, and no cap is looked for. But its
    # alpha swallows digits of the others when it is large.
    cdef Py_ssize_t j
    if alpha > PLAIN_ALPHA:
        topk_entropy_prox(q, own, m, alpha, 1, v, start, work)
        return
    for j in range(m):
        work[j] = q[j] - q[own]
    work[own] = alpha
    if row_max(<const double*>work, m) == INFINITY:
        keep_finite(work, m)
    start[0] = prox_entropy_row(<const double*>work, v, m, alpha, 1.0, INFINITY, start[0],
                                work + m)
    v[own] = 0.0
    v[own] = -row_sum(v, m)


cdef void topk_entropy_prox(const double* q, Py_ssize_t own, Py_ssize_t m, double alpha,
                            Py_ssize_t k, double* v, double* start, double* work) noexcept nogil:
    take_differences(q, own, m, work)
    start[0] = prox_topk_entropy_row(<const double*>work, v, m - 1, alpha, k, start[0],
                                     work + m - 1)
    return_others(own, m, v)


cdef inline bint is_label(Labels y, Py_ssize_t j, Py_ssize_t* next_label) noexcept nogil:
    # For j = 0, 1, 2, ... in turn; next_label starts at 0.
    if next_label[0] < y.n and y.index[next_label[0]] == j:
        next_label[0] += 1
        return True
    return False


cdef void take_largest(const double* h, Py_ssize_t n, Py_ssize_t k, double* top,
                       double* heap) noexcept nogil:
    # OUT top: the k largest entries of h, descending. TEMP heap: n
    cdef Py_ssize_t i, j
    cdef double v
    if k > FEW:
        for j in range(n):
            heap[j] = h[j]
        heapify(heap, n)
        for j in range(k):
            top[j] = heap_pop(heap, n - j)
        return
    for j in range(k):
        top[j] = -INFINITY
    for j in range(n):
        v = h[j]
        if v > top[k - 1]:
            i = k - 1
            while i > 0 and top[i - 1] < v:
                top[i] = top[i - 1]
                i -= 1
            top[i] = v


cdef double largest_sum(const double* h, Py_ssize_t n, Py_ssize_t k, double largest,
                        double* start, double* work) noexcept nogil:
    # The sum of the k largest entries: the smallest value of  k t + sum_j max(0, h_j - t),  which
    # has its place at the k-th of them. INOUT start: a guess of where that is, below the largest;
    # NaN for none. TEMP work: 2 n
    cdef Around now
    cdef double t = largest + start[0], low = -INFINITY, guess, total, kth
    cdef Py_ssize_t j, _
    if t != t:
        t = row_sum(h, n) / n
    for _ in range(LOOKS):
        now = look_around(h, n, t)
        if now.below == -INFINITY and now.n_from == n and fabs(t) > 2 * fabs(now.above):
            t = now.above       # from far below all of them, sums lose digits
            continue
        total = k * t + now.sum
        kth = now.above if now.n_above >= k else t
        if now.n_above == k + 1:
            total -= now.above - t
        elif now.n_from == k - 1:
            total += now.below - t
            kth = now.below
        elif now.n_above > k:
            low = t
            t = now.above if now.n_above <= k + NEAR else t + now.sum / now.n_above
            continue
        elif now.n_from < k:
            guess = t - (largest - t) * (k / max(1.0, now.n_from) - 1.0)
            t = guess if now.n_from < k - NEAR and low < guess < t else now.below
            continue
        if kth != t and k * fabs(t) > LOSS * fabs(total):
            t = kth             # a sum that is small next to t has lost digits
            continue
        start[0] = (0.5 * (kth + now.below) if now.n_from == k < n else kth) - largest
        return total
    take_largest(h, n, k, work, work + n)
    total = 0.0
    for j in range(k):
        total += work[j]
    start[0] = work[k - 1] - largest
    return total


cdef void weigh_largest(const double* h, double* p, Py_ssize_t n, const double* w, Py_ssize_t n_w,
                        bint label, double* work) noexcept nogil:
    # OUT p: w_1 on the largest entry of h, w_2 on the next, ...; with `label` a slot 0 takes part
    # and keeps the weight it wins. Of equal entries the first is the larger. TEMP work: 3 n
    cdef Py_ssize_t j, first, rank, k = min(n, n_w)
    cdef double* top = work
    cdef double* placed = work + n
    take_largest(h, n, k, top, placed)
    for j in range(k):
        placed[j] = 0.0
    for j in range(n):
        p[j] = 0.0
        if h[j] < top[k - 1]:
            continue
        first = rank_of(h[j], top, k)
        rank = first + <Py_ssize_t>placed[first] + (label and h[j] < 0.0)
        placed[first] += 1.0
        if rank < n_w:
            p[j] = w[rank]


# The base: arrays of rows ------------------------------------------------------------------------

def _refuse_subclass(cls, **parameters):
    # Only classes written in Python come here.
    raise TypeError(
        f"losses are compiled and final, so {cls.__name__} cannot be a subclass of "
        f"{cls.__base__.__name__}: training would never call what it overrides. Choose one of "
        "topkopt.losses.names(), or write a function of scores that calls a loss."
    )


cdef class Loss:
    """A loss of the scores of an example: the base of all losses."""

    name = ""

    def __cinit__(self):
        if type(self) is Loss:
            raise TypeError("Loss is the base of all losses; use one of those, such as Hinge().")

    __init_subclass__ = classmethod(_refuse_subclass)

    cdef Py_ssize_t work_size(self, Py_ssize_t m) noexcept nogil:
        return 0

    cdef double row_value(self, const double* s, Labels y, Py_ssize_t m, double* start,
                          double* work) noexcept nogil:
        return NAN

    cdef void row_values(self, const double* s, const Labels* y, Py_ssize_t n_rows, Py_ssize_t m,
                         double* start, double* values, double* work) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(n_rows):
            values[i] = self.row_value(s + i * m, y[i], m, start + i * START, work)

    cdef double row_conjugate(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        return NAN

    cdef double row_violation(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        return NAN

    cdef void row_prox(self, const double* q, Labels y, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil:
        pass

    def check_classes(self, m):
        """Raise unless the loss is defined for m classes."""
        if m < 2:
            raise ValueError(f"there must be at least 2 classes, got {m}; add examples of others.")

    def value(self, scores, y):
        """Return the loss of each row of scores.

        Parameters
        ----------
        scores : array_like of shape (n, m) or (m,)
            The scores of m classes.
        y : array_like of shape (n,) or (n, m), or int
            The labels, counted from 0; for multilabel losses also an indicator matrix.

        Returns
        -------
        ndarray of shape (n,) or float
        """
        rows = _validation.as_scores(scores, y, self)
        out = np.empty(rows.scores.shape[0])
        self._fill(rows.scores, rows.label_index, rows.label_start, out[:, None], VALUE)
        return rows.finish(out)

    def gradient(self, scores, y):
        """Return the gradient of the loss in each row of scores (a subgradient at a corner).

        Parameters
        ----------
        scores : array_like of shape (n, m) or (m,)
            The scores of m classes.
        y : array_like of shape (n,) or (n, m), or int
            The labels, counted from 0; for multilabel losses also an indicator matrix.

        Returns
        -------
        ndarray of the shape of `scores`
        """
        rows = _validation.as_scores(scores, y, self)
        out = np.empty(rows.scores.shape)
        self._fill(rows.scores, rows.label_index, rows.label_start, out, GRADIENT)
        return rows.finish(out)

    def conjugate(self, v, y):
        """Return the convex conjugate, ``max_s <s, v> - value(s)``, of each row of v.

        Parameters
        ----------
        v : array_like of shape (n, m) or (m,)
            Points of score space, such as gradients.
        y : array_like of shape (n,) or (n, m), or int
            The labels, counted from 0; for multilabel losses also an indicator matrix.

        Returns
        -------
        ndarray of shape (n,) or float
            Infinite outside the domain of the conjugate (a slack of rounding size is forgiven).
        """
        if not self.convex:
            raise ValueError(f"{self!r} is not convex and has no useful conjugate.")
        rows = _validation.as_scores(v, y, self, name="v")
        out = np.empty(rows.scores.shape[0])
        self._fill(rows.scores, rows.label_index, rows.label_start, out[:, None], CONJUGATE)
        return rows.finish(out)

    def _fill(self, const double[:, ::1] scores, const Py_ssize_t[::1] label_index,
              const Py_ssize_t[::1] label_start, double[:, :] out, int what):
        cdef Py_ssize_t i = 0, j, n_rows, m = scores.shape[1]
        cdef Labels[SIDE_BY_SIDE] y
        cdef double[SIDE_BY_SIDE * START] start
        cdef double[SIDE_BY_SIDE] values
        cdef double[::1] work = scratch(self.work_size(m))
        with nogil:
            while i < scores.shape[0]:
                n_rows = min(scores.shape[0] - i, <Py_ssize_t>SIDE_BY_SIDE)
                for j in range(n_rows):
                    y[j].index = &label_index[0] + label_start[i + j]
                    y[j].n = label_start[i + j + 1] - label_start[i + j]
                    start[j * START] = NAN
                if what == VALUE:
                    self.row_values(&scores[i, 0], y, n_rows, m, start, values, &work[0])
                for j in range(n_rows):
                    if what == VALUE:
                        out[i, 0] = values[j]
                    elif what == GRADIENT:
                        self.row_prox(&scores[i, 0], y[j], m, 0.0, &out[i, 0], start + j * START,
                                      &work[0])
                    elif self.row_violation(&scores[i, 0], y[j], m, &work[0]) > DOMAIN_SLACK:
                        out[i, 0] = INFINITY
                    else:
                        out[i, 0] = self.row_conjugate(&scores[i, 0], y[j], m, &work[0])
                    i += 1

    def _parameters(self):
        return ()

    def __reduce__(self):
        return type(self), tuple(value for _, value in self._parameters())

    def __eq__(self, other):
        return type(self) is type(other) and self.__reduce__() == other.__reduce__()

    def __hash__(self):
        return hash(self.__reduce__())

    def __repr__(self):
        listed = ", ".join(f"{name}={value!r}" for name, value in self._parameters())
        return f"{type(self).__name__}({listed})"


# Hinge losses: h = 1 + s_j - s_y over the others j -----------------------------------------------

cdef class MaxMargin(Loss):
    """The largest <h,p> - smoothing/2 <p,p> over a set of p, which a subclass describes.

    v is p on the other classes and -<1,p> on the label.
    """

    cdef readonly double smoothing
    cdef bint all_slots     # whether the smoothing also weighs <1,p>^2

    def __cinit__(self):
        self.convex = True

    # OUT x: the point of the set closest to b, with the bias term; x may be b
    cdef void project(self, const double* b, double* x, Py_ssize_t n, double bias, double* start,
                      double* work) noexcept nogil:
        pass

    # OUT p: a point of the set that maximises <h,p>
    cdef void vertex(self, const double* h, double* p, Py_ssize_t n, double* work) noexcept nogil:
        pass

    # OUT p: the point that maximises <b,p> - 1/2 <p,p> less the bias, where b (OUT) are the margins
    # of s, in the order of take_others, over the curvature alpha + smoothing. Returns the
    # curvature; where it is lost in rounding 0, and b are the margins themselves. TEMP work
    cdef double best(self, const double* s, Py_ssize_t own, Py_ssize_t m, double alpha, double* b,
                     double* p, double* start, double* work) noexcept nogil:
        cdef double curvature = alpha + self.smoothing, size
        if curvature >= DBL_MIN:
            size = take_others(s, own, m, 1.0, 1.0 / curvature, b)
            if size == INFINITY:
                keep_finite(b, m)
            # Entries far below the others may be as large as they like.
            if size < 1.0 / DBL_EPSILON or row_max(<const double*>b, m - 1) < 1.0 / DBL_EPSILON:
                self.project(b, p, m - 1, 1.0 if self.all_slots else alpha / curvature, start,
                             work)
                return curvature
        take_others(s, own, m, 1.0, 1.0, b)
        into_class_order(b, own, m)
        self.vertex(b, p, m - 1, work)
        out_of_class_order(b, own, m)
        out_of_class_order(p, own, m)
        return 0.0

    cdef double row_value(self, const double* s, Labels y, Py_ssize_t m, double* start,
                          double* work) noexcept nogil:
        # With 0 in the set, <p, b - p> less the bias is not negative, and it is 0 where only the
        # set's cone binds: what is left of a small p then keeps its digits.
        cdef double* p = work + m
        cdef double smoothing = self.best(s, y.index[0], m, 0.0, work, p, start, p + m)
        cdef double total, square, rest
        if smoothing == 0.0:
            return chosen_sum(p, work, m - 1)
        square = scaled_square(p, m - 1, smoothing)
        rest = scaled_rest(p, work, m - 1, smoothing)
        if self.all_slots:
            total = row_sum(p, m - 1)
            square += total * (smoothing * total)
            rest -= total * (smoothing * total)
        return 0.5 * square + fmax(0.0, rest)

    cdef double row_conjugate(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        # -<1,p> + smoothing/2 <p,p>; v_y = -<1,p>
        cdef Py_ssize_t own = y.index[0]
        cdef double square
        if self.smoothing == 0.0:
            return v[own]
        square = (scaled_square(v, own, self.smoothing)
                  + scaled_square(v + own + 1, m - own - 1, self.smoothing))
        if self.all_slots:
            square += v[own] * (self.smoothing * v[own])
        return v[own] + 0.5 * square

    cdef double row_violation(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        # The distance to the set, and to v_y = -<1,p>
        cdef Py_ssize_t j, n = m - 1
        cdef double* p = work
        cdef double* inside = work + n
        cdef double far
        take_others(v, y.index[0], m, v[y.index[0]], 1.0, p)
        far = fabs(v[y.index[0]] + row_sum(p, n))
        self.project(p, inside, n, 0.0, NULL, work + 2 * n)
        for j in range(n):
            far = fmax(far, fabs(p[j] - inside[j]))
        return far

    cdef void row_prox(self, const double* q, Labels y, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil:
        self.best(q, y.index[0], m, alpha, work, v, start, work + m)
        return_others(y.index[0], m, v)


cdef class TopKHinge(MaxMargin):
    """Top-k hinge loss.

    With h the margins ``1 + s_j - s_y`` of the other classes in descending order:

    ====== ====================================================================
    kind   value
    ====== ====================================================================
    alpha  ``max(0, mean of the k largest h)``
    beta   ``mean of max(0, h) over the k largest``
    label  alpha over the margins and a slot 0 for the label itself
    ====== ====================================================================

    All bound the top-k error from above, and alpha <= label <= beta.

    Parameters
    ----------
    k : int
        At least 1 and less than the number of classes.
    kind : {"alpha", "beta", "label"}, default "alpha"
        Which of the three.
    smoothing : float, default 0
        Subtracts ``smoothing/2 |p|^2`` from the linear problem whose maximum the loss is; positive
        values make the loss differentiable.

    Examples
    --------
    >>> from topkopt.losses import TopKHinge
    >>> TopKHinge(2).value([[1.0, 0.5, 0.0], [0.0, 3.0, 1.0]], [0, 0])
    array([0.25, 3.  ])
    """

    name = "topk_hinge"
    cdef readonly Py_ssize_t k
    cdef readonly str kind
    cdef TopKKind code

    def __init__(self, k, kind="alpha", smoothing=0.0):
        if kind not in _TOPK_KINDS:
            raise ValueError(f"kind must be one of {', '.join(_TOPK_KINDS)}, got {kind!r}.")
        self.k = _validation.check_k(k, np.iinfo(np.intp).max, "the number of other classes")
        self.kind = str(kind)   # NumPy has strings of its own
        self.code = <TopKKind><int>_TOPK_KINDS.index(kind)
        self.smoothing = _validation.check_scalar(smoothing, "smoothing")

    def _parameters(self):
        return ("k", self.k), ("kind", self.kind), ("smoothing", self.smoothing)

    def check_classes(self, m):
        """Raise unless the loss is defined for m classes."""
        super().check_classes(m)
        _validation.check_k(self.k, m - 1, "the number of other classes")

    cdef Py_ssize_t work_size(self, Py_ssize_t m) noexcept nogil:
        return (2 + max(<Py_ssize_t>TOPK_WORK, 4)) * m

    cdef void project(self, const double* b, double* x, Py_ssize_t n, double bias, double* start,
                      double* work) noexcept nogil:
        project_topk_row(b, x, n, self.k, 1.0, self.code, bias, start, work)

    cdef double row_value(self, const double* s, Labels y, Py_ssize_t m, double* start,
                          double* work) noexcept nogil:
        cdef Py_ssize_t n = m - 1, k = self.k
        cdef double* temp = work + n
        cdef double largest, total
        cdef Around positive
        if self.smoothing > 0.0:
            return MaxMargin.row_value(self, s, y, m, start, work)
        take_others(s, y.index[0], m, 1.0, 1.0, work)
        largest = row_max(<const double*>work, n)
        if k == 1:
            return max(0.0, largest)
        if self.code == TOPK_BETA:
            positive = look_around(work, n, 0.0)
            if positive.n_above <= k:
                return positive.sum / k
        total = largest_sum(work, n, k, largest, start, temp)
        if self.code == TOPK_LABEL and k > 1:   # its slot may have the last of the k places
            total = max(total, largest_sum(work, n, k - 1, largest, start, temp))
        return max(0.0, total) / k

    cdef void row_values(self, const double* s, const Labels* y, Py_ssize_t n_rows, Py_ssize_t m,
                         double* start, double* values, double* work) noexcept nogil:
        cdef Py_ssize_t[SIDE_BY_SIDE] own
        cdef double[SIDE_BY_SIDE] together
        cdef Py_ssize_t i
        cdef int found = 0
        if self.smoothing >= DBL_MIN and self.code == TOPK_ALPHA and m <= SHORT:
            for i in range(n_rows):
                own[i] = y[i].index[0]
            found = side_by_side(s, own, n_rows, m, self.k, self.smoothing, start, together, work)
        for i in range(n_rows):
            if found >> i & 1:
                values[i] = together[i]
            else:
                values[i] = self.row_value(s + i * m, y[i], m, start + i * START, work)

    cdef void vertex(self, const double* h, double* p, Py_ssize_t n, double* work) noexcept nogil:
        cdef Py_ssize_t j
        cdef double* weights = work + 3 * n
        for j in range(self.k):
            weights[j] = 1.0 / self.k
        weigh_largest(h, p, n, weights, self.k, self.code == TOPK_LABEL, work)
        for j in range(n):
            if self.code == TOPK_BETA and h[j] <= 0.0:
                p[j] = 0.0
        if self.code != TOPK_BETA and chosen_sum(p, h, n) <= 0.0:
            for j in range(n):
                p[j] = 0.0


cdef class Hinge(TopKHinge):
    """Multiclass hinge loss ``max(0, 1 + max_{j != y} s_j - s_y)``: top-k hinge with k = 1.

    Parameters
    ----------
    smoothing : float, default 0
        As for `TopKHinge`.

    Examples
    --------
    >>> from topkopt.losses import Hinge
    >>> Hinge().value([1.0, 0.5, 0.0], 0)
    0.5
    """

    name = "hinge"

    def __init__(self, smoothing=0.0):
        super().__init__(1, smoothing=smoothing)

    def _parameters(self):
        return (("smoothing", self.smoothing),)


cdef class WeightedTopKHinge(MaxMargin):
    """Weighted top-k hinge loss ``max(0, w_1 h_[1] + w_2 h_[2] + ...)``.

    h are the margins ``1 + s_j - s_y`` of the other classes in descending order.

    Parameters
    ----------
    weights : array_like or {"flat", "linear", "exp"}
        Non-increasing and non-negative, or one of three profiles of sum 1 over k places: equal,
        falling linearly to 0 at place k + 1, or falling like ``exp(-j/k)``.
    k : int, optional
        The number of places of a named profile.
    label : bool, default False
        Whether a slot 0 for the label itself takes part in the order.
    smoothing : float, default 0
        As for `TopKHinge`.
    envelope : {"others", "all"}, default "others"
        Whether the smoothing weighs ``|p|^2`` over the other classes or also the label's entry,
        ``(sum p)^2``, which makes it the Moreau envelope in all scores.

    Examples
    --------
    >>> from topkopt.losses import WeightedTopKHinge
    >>> WeightedTopKHinge([0.75, 0.25]).value([1.0, 0.5, 0.0], 0)
    0.375
    """

    name = "weighted_topk_hinge"
    cdef readonly tuple weights
    cdef readonly bint label
    cdef readonly str envelope
    cdef double[::1] w

    def __init__(self, weights, k=None, label=False, smoothing=0.0, envelope="others"):
        if envelope not in ("others", "all"):
            raise ValueError(f"envelope must be others or all, got {envelope!r}.")
        self.w = _validation.check_profile(weights, k)
        self.weights = tuple(np.asarray(self.w).tolist())
        self.label = label
        self.smoothing = _validation.check_scalar(smoothing, "smoothing")
        self.envelope = str(envelope)
        self.all_slots = envelope == "all"

    def _parameters(self):
        return (("weights", self.weights), ("k", None), ("label", self.label),
                ("smoothing", self.smoothing), ("envelope", self.envelope))

    def check_classes(self, m):
        """Raise unless the loss is defined for m classes."""
        super().check_classes(m)
        _validation.check_weights(self.weights, m - 1 + self.label)

    cdef Py_ssize_t work_size(self, Py_ssize_t m) noexcept nogil:
        return (2 + WEIGHTED_WORK) * m

    cdef void project(self, const double* b, double* x, Py_ssize_t n, double bias, double* start,
                      double* work) noexcept nogil:
        project_weighted_row(b, x, n, &self.w[0], self.w.shape[0], 1.0, self.label, bias, start,
                             work)

    cdef void vertex(self, const double* h, double* p, Py_ssize_t n, double* work) noexcept nogil:
        cdef Py_ssize_t j
        weigh_largest(h, p, n, &self.w[0], self.w.shape[0], self.label, work)
        if chosen_sum(p, h, n) <= 0.0:
            for j in range(n):
                p[j] = 0.0


# Entropies: u = s_j - s_y over the others j ------------------------------------------------------

cdef class TopKEntropy(Loss):
    """Top-k entropy loss ``log(1 + e^M)``, M the largest ``<u,q> - <q, log q>`` over q_j <= 1/k.

    q runs over the simplex and u are the differences ``s_j - s_y`` of the other classes. With
    k = 1 it is the softmax loss.

    Parameters
    ----------
    k : int
        At least 1 and less than the number of classes.

    Examples
    --------
    >>> from topkopt.losses import Softmax, TopKEntropy
    >>> float(TopKEntropy(1).value([0.0, 1.0, 2.0], 0) - Softmax().value([0.0, 1.0, 2.0], 0))
    0.0
    """

    name = "topk_entropy"
    cdef readonly Py_ssize_t k

    def __cinit__(self):
        self.convex = True

    def __init__(self, k):
        self.k = _validation.check_k(k, np.iinfo(np.intp).max, "the number of other classes")

    def _parameters(self):
        return (("k", self.k),)

    def check_classes(self, m):
        """Raise unless the loss is defined for m classes."""
        super().check_classes(m)
        _validation.check_k(self.k, m - 1, "the number of other classes")

    cdef Py_ssize_t work_size(self, Py_ssize_t m) noexcept nogil:
        return (2 + max(<Py_ssize_t>TOPK_ENTROPY_WORK, <Py_ssize_t>ENTROPY_WORK)) * m

    cdef double row_value(self, const double* s, Labels y, Py_ssize_t m, double* start,
                          double* work) noexcept nogil:
        cdef Py_ssize_t j, n = m - 1
        cdef double* q = work + n
        cdef double largest = 0.0, cap = 1.0 / self.k, t
        if self.k == 1:
            return softmax_value(s, y.index[0], m, work)
        take_differences(s, y.index[0], m, work)
        t = prox_entropy_row(<const double*>work, q, n, 0.0, 1.0, cap, start[0], q + n)
        start[0] = t
        for j in range(n):      # log q_j = u_j - t below the cap
            largest += t * q[j] if q[j] < cap else (work[j] + log(<double>self.k)) * cap
        return log1p_exp(largest)

    cdef double row_conjugate(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        # the label's entry of v is negative and counts as 0 in the sum
        return shifted_x_log_x(v[y.index[0]]) + x_log_x_sum(v, m)

    cdef double row_violation(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        cdef Py_ssize_t j, n = m - 1
        cdef double* inside = work + n
        cdef double far
        take_others(v, y.index[0], m, v[y.index[0]], 1.0, work)
        far = fabs(v[y.index[0]] + row_sum(work, n))
        project_topk_row(<const double*>work, inside, n, self.k, 1.0, TOPK_ALPHA, 0.0, NULL,
                         inside + n)
        for j in range(n):
            far = fmax(far, fabs(work[j] - inside[j]))
        return far

    cdef void row_prox(self, const double* q, Labels y, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil:
        topk_entropy_prox(q, y.index[0], m, alpha, self.k, v, start, work)


cdef class Softmax(TopKEntropy):
    """Softmax (multinomial logistic, cross-entropy) loss ``log(sum_j exp(s_j - s_y))``.

    Examples
    --------
    >>> from topkopt.losses import Softmax
    >>> Softmax().gradient([0.0, 0.0], 0)
    array([-0.5,  0.5])
    """

    name = "softmax"

    def __init__(self):
        super().__init__(1)

    def _parameters(self):
        return ()

    cdef void row_prox(self, const double* q, Labels y, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil:
        softmax_prox(q, y.index[0], m, alpha, v, start, work)


cdef class TruncatedTopKEntropy(Loss):
    """Truncated top-k entropy loss ``log(1 + sum_J exp(s_j - s_y))``.

    J are the m - k smallest of the other classes, so that k - 1 mistakes cost nothing. The loss
    is not convex: it has no conjugate, and its training no certificate.

    Parameters
    ----------
    k : int
        At least 1 (the softmax loss) and less than the number of classes.

    Examples
    --------
    >>> from topkopt.losses import TruncatedTopKEntropy
    >>> TruncatedTopKEntropy(2).gradient([0.0, 5.0, 0.0], 0)
    array([-0.5,  0. ,  0.5])
    """

    name = "truncated_topk_entropy"
    cdef readonly Py_ssize_t k

    def __init__(self, k):
        self.k = _validation.check_k(k, np.iinfo(np.intp).max, "the number of other classes")

    def _parameters(self):
        return (("k", self.k),)

    def check_classes(self, m):
        """Raise unless the loss is defined for m classes."""
        super().check_classes(m)
        _validation.check_k(self.k, m - 1, "the number of other classes")

    cdef Py_ssize_t work_size(self, Py_ssize_t m) noexcept nogil:
        return 5 * m

    cdef double truncate(self, const double* s, Labels y, Py_ssize_t m, double* e, double* total,
                         double* work) noexcept nogil:
        # Returns the largest of 0 and the u of J. OUT e: the exponentials of u minus that, 0 for
        # the k - 1 largest u; total: their sum. TEMP work: 4 m
        cdef Py_ssize_t j, n = m - 1, left = self.k - 1
        cdef double* top = work + m
        cdef double largest
        take_differences(s, y.index[0], m, work)
        into_class_order(work, y.index[0], m)
        if left > 0:
            take_largest(work, n, self.k, top, top + n)
            for j in range(n):          # entries above the k-th, then equal ones, the first first
                if work[j] > top[self.k - 1]:
                    work[j] = -INFINITY
                    left -= 1
            for j in range(n):
                if left > 0 and work[j] == top[self.k - 1]:
                    work[j] = -INFINITY
                    left -= 1
        largest = max(0.0, row_max(<const double*>work, n))
        exp_row(work, largest, e, n, total)
        return largest

    cdef double row_value(self, const double* s, Labels y, Py_ssize_t m, double* start,
                          double* work) noexcept nogil:
        cdef double total, largest = self.truncate(s, y, m, work, &total, work + m)
        return log1p(total) if largest == 0.0 else largest + log(total + exp(-largest))

    cdef void row_prox(self, const double* q, Labels y, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil:
        # Only ever called for the gradient, alpha = 0.
        cdef double total, largest = self.truncate(q, y, m, v, &total, work)
        cdef Py_ssize_t j
        total += exp(-largest)
        for j in range(m - 1):
            v[j] /= total
        out_of_class_order(v, y.index[0], m)
        return_others(y.index[0], m, v)


# One binary problem per class --------------------------------------------------------------------

cdef class OneVsAll(Loss):
    """A sum over the classes of a loss of c_j s_j, c_j = 1 for labels and -1 for the others."""

    def __cinit__(self):
        self.convex = True
        self.multilabel = True

    cdef double margin_value(self, double z) noexcept nogil:
        return NAN

    cdef double margin_conjugate(self, double p) noexcept nogil:
        # The conjugate at -p, 0 <= p <= 1
        return NAN

    cdef double margin_prox(self, double z, double alpha) noexcept nogil:
        # The p that minimises conjugate(-p) + z p + alpha/2 p^2
        return NAN

    cdef double row_value(self, const double* s, Labels y, Py_ssize_t m, double* start,
                          double* work) noexcept nogil:
        cdef Py_ssize_t j, label = 0
        cdef double total = 0.0
        for j in range(m):
            total += self.margin_value(s[j] if is_label(y, j, &label) else -s[j])
        return total

    cdef double row_conjugate(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        cdef Py_ssize_t j, label = 0
        cdef double total = 0.0
        for j in range(m):
            total += self.margin_conjugate(-v[j] if is_label(y, j, &label) else v[j])
        return total

    cdef double row_violation(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        cdef Py_ssize_t j, label = 0
        cdef double far = 0.0, p
        for j in range(m):
            p = -v[j] if is_label(y, j, &label) else v[j]
            far = fmax(far, fmax(-p, p - 1.0))
        return far

    cdef void row_prox(self, const double* q, Labels y, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil:
        cdef Py_ssize_t j, label = 0
        for j in range(m):
            if is_label(y, j, &label):
                v[j] = -self.margin_prox(q[j], alpha)
            else:
                v[j] = self.margin_prox(-q[j], alpha)


cdef class OneVsAllHinge(OneVsAll):
    """Sum over the classes of ``max(0, 1 - c_j s_j)``, c_j = 1 for labels, -1 for the others.

    Parameters
    ----------
    smoothing : float, default 0
        The terms become ``max over 0 <= p <= 1 of p (1 - c_j s_j) - smoothing/2 p^2``.

    Examples
    --------
    >>> from topkopt.losses import OneVsAllHinge
    >>> OneVsAllHinge().value([0.5, -2.0, 0.0], 0)
    1.5
    """

    name = "ova_hinge"
    cdef readonly double smoothing

    def __init__(self, smoothing=0.0):
        self.smoothing = _validation.check_scalar(smoothing, "smoothing")

    def _parameters(self):
        return (("smoothing", self.smoothing),)

    cdef double margin_value(self, double z) noexcept nogil:
        cdef double p = self.margin_prox(z, 0.0)
        return p * ((1.0 - z) - 0.5 * self.smoothing * p)

    cdef double margin_conjugate(self, double p) noexcept nogil:
        return 0.5 * self.smoothing * p * p - p

    cdef double margin_prox(self, double z, double alpha) noexcept nogil:
        cdef double curvature = alpha + self.smoothing
        if 1.0 - z <= 0.0:
            return 0.0
        return (1.0 - z) / curvature if 1.0 - z < curvature else 1.0


cdef class OneVsAllLogistic(OneVsAll):
    """Sum over the classes of ``log(1 + exp(-c_j s_j))``, c_j = 1 for labels, -1 for the others.

    Examples
    --------
    >>> from topkopt.losses import OneVsAllLogistic
    >>> OneVsAllLogistic().gradient([0.0, 0.0], 0)
    array([-0.5,  0.5])
    """

    name = "ova_logistic"

    cdef double margin_value(self, double z) noexcept nogil:
        return log1p_exp(-z)

    cdef double margin_conjugate(self, double p) noexcept nogil:
        return x_log_x(p) + shifted_x_log_x(-p)

    cdef double margin_prox(self, double z, double alpha) noexcept nogil:
        # log(p/(1-p)) + alpha p = b with b = -z. If p solves it, 1 - p solves it for alpha - b:
        # turn it so that p <= 1/2 keeps its digits. In u = log(p/(1-p)) the root lies within
        # log 2 to the left of the root of u + alpha/2 e^u = b, which is a V; there Newton's
        # method turns an error e into e^2/2 at most.
        cdef double b = -z, u = 0.0, half = 0.5 * alpha, e = 0.0, p = 0.0, change, lift
        cdef bint turned = b > half
        cdef int _
        if turned:
            b = alpha - b
        u = b
        if half > DBL_MIN:
            lift = log(half)
            e = lambertw_exp_scalar(b + lift)
            u = min(0.0, b - e if e < 1.0 else log(e) - lift)
        for _ in range(NEWTON_STEPS):
            e = exp(u)
            p = e / (1.0 + e)
            change = (u + alpha * p - b) / (1.0 + alpha * p / (1.0 + e))
            u = min(0.0, u - change)
            if fabs(change) <= DBL_EPSILON * fmax(1.0, fabs(u)):
                break
        e = exp(u)
        p = e / (1.0 + e)
        return 1.0 - p if turned else p


# Label sets --------------------------------------------------------------------------------------

cdef class MultilabelHinge(Loss):
    """Multilabel hinge loss ``max(0, 1 + max_{j not in Y} s_j - min_{y in Y} s_y)``.

    With no label, or all of them, there is nothing to rank and the loss is 0.

    Parameters
    ----------
    smoothing : float, default 0
        Weight of the squared norm in the conjugate, over all classes.

    Examples
    --------
    >>> from topkopt.losses import MultilabelHinge
    >>> MultilabelHinge().value([3.0, 1.0, 0.5], [True, True, False])
    0.5
    """

    name = "multilabel_hinge"
    cdef readonly double smoothing

    def __cinit__(self):
        self.convex = True
        self.multilabel = True

    def __init__(self, smoothing=0.0):
        self.smoothing = _validation.check_scalar(smoothing, "smoothing")

    def _parameters(self):
        return (("smoothing", self.smoothing),)

    cdef Py_ssize_t work_size(self, Py_ssize_t m) noexcept nogil:
        return (3 + BIPARTITE_WORK) * m

    cdef double split(self, const double* s, Labels y, Py_ssize_t m, double* b) noexcept nogil:
        # OUT b: for each label and behind them for each other class what it adds to the margins
        # 1 + s_j - s_y; the largest of either side are half of the largest margin, which it
        # returns. (A shift from one side to the other changes nothing, as v sums to 0.)
        cdef Py_ssize_t j, label = 0, other = y.n
        cdef double low = INFINITY, high, largest, half
        for j in range(m):
            if is_label(y, j, &label):
                b[label - 1] = s[j]
                low = min(low, s[j])
            else:
                b[other] = s[j]
                other += 1
        high = row_max(<const double*>b + y.n, m - y.n)
        largest = (high - low) + 1.0
        half = 0.5 * min(largest, DBL_MAX)
        for j in range(y.n):
            b[j] = half - (b[j] - low)
        for j in range(y.n, m):
            b[j] = half + (b[j] - high)
        return largest

    cdef void best(self, double* b, Py_ssize_t n, Py_ssize_t m, double alpha, double* p,
                   double* work) noexcept nogil:
        # OUT p: the maximiser of <b,p> - (alpha + smoothing)/2 <p,p> on the bipartite simplex.
        # IN b: as `split` leaves it, the largest of either side are equal.
        cdef double curvature = alpha + self.smoothing, top = row_max(<const double*>b, m)
        cdef Py_ssize_t j, first = 0, second = n
        if curvature > DBL_EPSILON * fabs(top):
            top /= curvature
            for j in range(m):      # what is as far down as this has no share
                p[j] = max(b[j] / curvature, -fabs(top) - 1.0)
            project_bipartite_row(<const double*>p, n, <const double*>p + n, m - n, 1.0,
                                  p, p + n, work)
            return
        for j in range(m):
            p[j] = 0.0
            if j < n and b[j] > b[first]:
                first = j
            elif j >= n and b[j] > b[second]:
                second = j
        if b[first] + b[second] > 0.0:
            p[first] = 1.0
            p[second] = 1.0

    cdef double row_value(self, const double* s, Labels y, Py_ssize_t m, double* start,
                          double* work) noexcept nogil:
        cdef double* p = work + m
        cdef double largest, square
        if y.n == 0 or y.n == m:
            return 0.0
        largest = self.split(s, y, m, work)
        if largest <= 0.0 or self.smoothing == 0.0 or largest == INFINITY:
            return max(0.0, largest)
        self.best(work, y.n, m, 0.0, p, p + m)
        square = scaled_square(p, m, self.smoothing)
        return 0.5 * square + fmax(0.0, row_dot(work, p, m) - square)

    cdef double row_conjugate(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        cdef double total = 0.0
        cdef Py_ssize_t j
        for j in range(y.n):
            total += v[y.index[j]]
        return total + 0.5 * scaled_square(v, m, self.smoothing)

    cdef double row_violation(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        cdef Py_ssize_t j, label = 0, other = y.n
        cdef double* inside = work + m
        cdef double far = 0.0
        if y.n == 0 or y.n == m:
            return row_max_abs(v, m)
        for j in range(m):
            if is_label(y, j, &label):
                work[label - 1] = -v[j]
            else:
                work[other] = v[j]
                other += 1
        project_bipartite_row(<const double*>work, y.n, <const double*>work + y.n, m - y.n, 1.0,
                              inside, inside + y.n, inside + m)
        for j in range(m):
            far = fmax(far, fabs(work[j] - inside[j]))
        return far

    cdef void row_prox(self, const double* q, Labels y, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil:
        cdef Py_ssize_t j, label = 0, other = y.n
        cdef double* p = work + m
        if y.n == 0 or y.n == m:
            for j in range(m):
                v[j] = 0.0
            return
        self.split(q, y, m, work)
        self.best(work, y.n, m, alpha, p, p + m)
        for j in range(m):
            if is_label(y, j, &label):
                v[j] = -p[label - 1]
            else:
                v[j] = p[other]
                other += 1


cdef class MultilabelSoftmax(Loss):
    """Multilabel softmax loss, the mean over the labels y of ``log(sum_j exp(s_j - s_y))``.

    With no label, or all of them, there is nothing to rank and the loss is 0.

    Examples
    --------
    >>> from topkopt.losses import MultilabelSoftmax
    >>> MultilabelSoftmax().gradient([0.0, 0.0], 0)
    array([-0.5,  0.5])
    """

    name = "multilabel_softmax"

    def __cinit__(self):
        self.convex = True
        self.multilabel = True

    cdef Py_ssize_t work_size(self, Py_ssize_t m) noexcept nogil:
        return (1 + max(<Py_ssize_t>TOPK_ENTROPY_WORK, <Py_ssize_t>ENTROPY_WORK)) * m

    cdef double row_value(self, const double* s, Labels y, Py_ssize_t m, double* start,
                          double* work) noexcept nogil:
        cdef double largest, total, below = 0.0
        cdef Py_ssize_t j
        if y.n == 0 or y.n == m:
            return 0.0
        if y.n == 1:
            return softmax_value(s, y.index[0], m, work)
        largest = row_max(s, m)
        exp_row(s, largest, work, m, &total)
        for j in range(y.n):
            below += largest - s[y.index[j]]
        return below / y.n + log(total)

    cdef double row_conjugate(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        # <x, log x>, x = v + 1/N on the labels, exact where v is small: x log x there is
        # (1 + N v) (log(1 + N v) - log N)/N
        cdef Py_ssize_t j, label = 0
        cdef double total = 0.0, n = y.n
        if y.n == 0 or y.n == m:
            return 0.0
        memcpy(work, v, m * sizeof(double))
        for j in range(y.n):
            label = y.index[j]
            work[label] = 0.0
            total += (shifted_x_log_x(n * v[label]) - (1.0 + n * v[label]) * log(n)) / n
        return total + x_log_x_sum(work, m)

    cdef double row_violation(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        cdef Py_ssize_t j, label = 0
        cdef double far
        if y.n == 0 or y.n == m:
            return row_max_abs(v, m)
        far = fabs(row_sum(v, m))
        for j in range(m):
            far = fmax(far, -v[j] - 1.0 / y.n if is_label(y, j, &label) else -v[j])
        return far

    cdef void row_prox(self, const double* q, Labels y, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil:
        cdef Py_ssize_t j, label = 0
        if y.n == 0 or y.n == m:
            for j in range(m):
                v[j] = 0.0
            return
        if y.n == 1:
            softmax_prox(q, y.index[0], m, alpha, v, start, work)
            return
        for j in range(m):
            work[j] = q[j] + (alpha / y.n if is_label(y, j, &label) else 0.0)
        start[0] = prox_entropy_row(<const double*>work, v, m, alpha, 1.0, INFINITY, start[0],
                                    work + m)
        for j in range(y.n):
            v[y.index[j]] -= 1.0 / y.n
