"""Hinge losses: the margins h = 1 + s_j - s_y of the other classes j."""
import numpy as np

from libc.float cimport DBL_EPSILON, DBL_MAX, DBL_MIN
from libc.math cimport INFINITY, fabs, fmax

from topkopt._kernels.largest cimport largest_sum, weigh_largest
from topkopt._kernels.select cimport (Around, look_around, row_max, row_sum,
                                      scaled_gain, scaled_square, take_others)
from topkopt._kernels.topk cimport (SHORT, TOPK_ALPHA, TOPK_BETA, TOPK_LABEL, TOPK_WORK,
                                    ScoredRows, TopKKind, TopKSet, project_topk_row, side_by_side)
from topkopt._kernels.weighted cimport WEIGHTED_WORK, WeightedSet, project_weighted_row
from topkopt.losses.base cimport SIDE_BY_SIDE, START, Derivative, Labels, Loss
from topkopt.losses.derivative cimport (AT_BOUND, Cap, Curvatures, capped_derivative,
                                        no_derivative, weighted_derivative)
from topkopt.losses.rows cimport (into_class_order, keep_finite, out_of_class_order,
                                  return_others, smoothed_curvatures)

from topkopt import _validation
from topkopt.losses.declaration import Declaration

_TOPK_KINDS = ("alpha", "beta", "label")


cdef double chosen_sum(const double* p, const double* h, Py_ssize_t n) noexcept nogil:
    # Returns <p,h>. Margins where p is 0 are left out, because they may have overflown.
    cdef double total = 0.0
    cdef Py_ssize_t j
    for j in range(n):
        total += p[j] * h[j] if p[j] > 0.0 else 0.0
    return total


cdef class MaxMargin(Loss):
    """The largest <h,p> - smoothing/2 <p,p> over a set of p, which a subclass describes.

    v is p on the other classes and -<1,p> on the label.
    """

    cdef readonly double smoothing
    cdef bint all_slots     # whether the smoothing also weighs <1,p>^2

    # OUT x: the point of the set closest to b, with the bias term; x may be b
    cdef void project(self, const double* b, double* x, Py_ssize_t n, double bias, double* start,
                      double* work) noexcept nogil:
        pass

    # OUT p: a point of the set that maximises <h,p>
    cdef void vertex(self, const double* h, double* p, Py_ssize_t n, double* work) noexcept nogil:
        pass

    # Let b be the margins of s, in the order of take_others, over the curvature alpha + smoothing.
    # OUT p (may be work + m): the point of the set that maximises <b,p> - 1/2 <p,p> minus the bias
    # term; work: b, of m entries. Returns the curvature. Where that is too small to be divided by,
    # it returns 0, b are the margins themselves, and p is a vertex. TEMP work + 2 m
    cdef double best(self, const double* s, Py_ssize_t own, Py_ssize_t m, double alpha, double* p,
                     double* start, double* work) noexcept nogil:
        cdef double curvature = alpha + self.smoothing, size
        cdef double* b = work
        cdef double* temp = work + 2 * m
        if curvature >= DBL_MIN:
            size = take_others(s, own, m, 1.0, 1.0 / curvature, b)
            if size == INFINITY:
                keep_finite(b, m, 0.5 * DBL_MAX / fmax(1.0, curvature))
            # Entries far below the others may be as large as they like.
            if size < 1.0 / DBL_EPSILON or row_max(<const double*>b, m - 1) < 1.0 / DBL_EPSILON:
                self.project(b, p, m - 1, 1.0 if self.all_slots else alpha / curvature, start,
                             temp)
                return curvature
        take_others(s, own, m, 1.0, 1.0, b)
        into_class_order(b, own, m)
        self.vertex(b, p, m - 1, temp)
        out_of_class_order(b, own, m)
        out_of_class_order(p, own, m)
        return 0.0

    cdef double row_value(self, const double* s, Labels y, Py_ssize_t m, double* start,
                          double* work) noexcept nogil:
        return self.value_at(s, y.index[0], m, work + m, start, work)

    cdef double value_at(self, const double* s, Py_ssize_t own, Py_ssize_t m, double* p,
                         double* start, double* work) noexcept nogil:
        # OUT p: where the maximum is attained, in the order of take_others
        cdef double value, total
        if self.best(s, own, m, 0.0, p, start, work) > 0.0:
            value = scaled_gain(p, work, m - 1, self.smoothing)
        else:
            value = chosen_sum(p, work, m - 1) - 0.5 * scaled_square(p, m - 1, self.smoothing)
        if self.all_slots:
            total = row_sum(p, m - 1)
            value -= 0.5 * total * (self.smoothing * total)
        return 0.0 if value < 0.0 else value    # p = 0 is in the set: less than 0 is rounding.

    cdef double row_conjugate(self, const double* v, Labels y, Py_ssize_t m,
                              double* work) noexcept nogil:
        # Returns -<1,p> + smoothing/2 <p,p>, where -<1,p> is v_y.
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
        # Returns the larger of the distances of p from the set and of v_y from -<1,p>.
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

    cdef double row_value_and_gradient(self, const double* s, Labels y, Py_ssize_t m, double* v,
                                       double* value_start, double* start,
                                       double* work) noexcept nogil:
        cdef double value
        if self.smoothing == 0.0:
            return Loss.row_value_and_gradient(self, s, y, m, v, value_start, start, work)
        value = self.value_at(s, y.index[0], m, v, start, work)
        return_others(y.index[0], m, v)
        return value

    cdef void row_curvatures(self, const double* v, Py_ssize_t m, double* h) noexcept nogil:
        smoothed_curvatures(v, m, self.smoothing, h)

    cdef void row_prox(self, const double* q, Labels y, Py_ssize_t m, double alpha, double* v,
                       double* start, double* work) noexcept nogil:
        self.best(q, y.index[0], m, alpha, v, start, work)
        return_others(y.index[0], m, v)


cdef class TopKHinge(MaxMargin):
    """Top-k hinge loss, for kind alpha ``max(0, mean of the k largest 1 + s_j - s_y)``.

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

    declaration = Declaration(
        name="topk_hinge",
        parameters=("k", "kind", "smoothing"),
        curvature=2.0,
        vertices=True,
        variants={"topk_hinge_beta": {"kind": "beta"}, "topk_hinge_label": {"kind": "label"}},
        example={"k": 2},
    )
    cdef readonly Py_ssize_t k
    cdef readonly str kind
    cdef TopKKind code

    def __init__(self, k, kind="alpha", smoothing=0.0):
        if kind not in _TOPK_KINDS:
            raise ValueError(f"kind must be one of {', '.join(_TOPK_KINDS)}, got {kind!r}.")
        self.k = _validation.check_k(k, np.iinfo(np.intp).max, "the number of other classes")
        self.kind = str(kind)   # NumPy's strings are made plain ones.
        self.code = <TopKKind><int>_TOPK_KINDS.index(kind)
        self.smoothing = _validation.check_scalar(smoothing, "smoothing")

    def check_classes(self, m):
        """Raise unless the loss is defined for m classes."""
        super().check_classes(m)
        _validation.check_k(self.k, m - 1, "the number of other classes")

    cdef Py_ssize_t work_size(self, Py_ssize_t m) noexcept nogil:
        return (2 + max(<Py_ssize_t>TOPK_WORK, 4)) * m

    cdef void project(self, const double* b, double* x, Py_ssize_t n, double bias, double* start,
                      double* work) noexcept nogil:
        project_topk_row(b, x, n, TopKSet(self.k, 1.0, self.code), bias, start, work)

    cdef void row_derivative(self, const double* q, Labels y, Py_ssize_t m, double alpha,
                             const double* v, Derivative* d, double* work) noexcept nogil:
        cdef Py_ssize_t j
        cdef double total = -v[y.index[0]]
        cdef Cap cap
        cap.curvature = Curvatures(alpha + self.smoothing, alpha)
        if cap.curvature.other < DBL_MIN:
            no_derivative(d, m)
            return
        for j in range(m):
            d.delta[j] = 1.0 / cap.curvature.other
        cap.sum_stays = total >= 1.0 - AT_BOUND
        cap.k = self.k if self.code == TOPK_ALPHA else 0
        if self.code == TOPK_LABEL and total * self.k < (self.k - 1) * (1.0 + AT_BOUND):
            # The set has two caps, 1/k and <1,p>/(k - 1). The second is the lower one where
            # <1,p> < (k - 1)/k. Where they are equal, <1,p> stays while an entry is at them.
            if total * self.k < (self.k - 1) * (1.0 - AT_BOUND):
                cap.k = self.k - 1
            else:
                cap.sum_stays = row_max(v, m) * self.k >= 1.0 - AT_BOUND
        cap.top = (total / cap.k if cap.k > 0 else 1.0 / self.k) * (1.0 - AT_BOUND)
        capped_derivative(d, v, y.index[0], m, cap)

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
        if self.code == TOPK_LABEL and k > 1:   # The label's 0 may be among the k largest.
            total = max(total, largest_sum(work, n, k - 1, largest, start, temp))
        return max(0.0, total) / k

    cdef void row_values(self, const double* s, const Labels* y, Py_ssize_t n_rows, Py_ssize_t m,
                         double* start, double* values, double* work) noexcept nogil:
        cdef Py_ssize_t[SIDE_BY_SIDE] own
        cdef double[SIDE_BY_SIDE] together
        cdef ScoredRows rows = ScoredRows(s, &own[0], n_rows, m, self.k, self.smoothing)
        cdef Py_ssize_t i
        cdef int found = 0
        if self.smoothing >= DBL_MIN and self.code == TOPK_ALPHA and m <= SHORT:
            for i in range(n_rows):
                own[i] = y[i].index[0]
            found = side_by_side(&rows, start, together, work)
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

    declaration = Declaration(
        name="hinge",
        parameters=("smoothing",),
        curvature=2.0,
        vertices=True,
    )

    def __init__(self, smoothing=0.0):
        super().__init__(1, smoothing=smoothing)


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

    declaration = Declaration(
        name="weighted_topk_hinge",
        parameters=("weights", "k", "label", "smoothing", "envelope"),
        curvature=2.0,
        vertices=True,
        variants={"weighted_topk_hinge_label": {"label": True}},
        example={"weights": (0.75, 0.25)},
    )
    cdef readonly tuple weights
    cdef readonly bint label
    cdef readonly str envelope
    cdef double[::1] w

    @property
    def k(self):
        """None: the places are as many as the weights."""
        return None

    @property
    def places(self):
        """The number of weights."""
        return len(self.weights)

    def __init__(self, weights, k=None, label=False, smoothing=0.0, envelope="others"):
        if envelope not in ("others", "all"):
            raise ValueError(f"envelope must be others or all, got {envelope!r}.")
        self.w = _validation.check_profile(weights, k)
        self.weights = tuple(np.asarray(self.w).tolist())
        self.label = label
        self.smoothing = _validation.check_scalar(smoothing, "smoothing")
        self.envelope = str(envelope)
        self.all_slots = envelope == "all"

    def check_classes(self, m):
        """Raise unless the loss is defined for m classes."""
        super().check_classes(m)
        _validation.check_weights(self.weights, m - 1 + self.label)

    cdef Py_ssize_t work_size(self, Py_ssize_t m) noexcept nogil:
        return (2 + WEIGHTED_WORK) * m

    cdef WeightedSet weighted_set(self) noexcept nogil:
        return WeightedSet(&self.w[0], self.w.shape[0], 1.0, self.label)

    cdef void project(self, const double* b, double* x, Py_ssize_t n, double bias, double* start,
                      double* work) noexcept nogil:
        cdef WeightedSet onto = self.weighted_set()
        project_weighted_row(b, x, n, &onto, bias, start, work)

    cdef void row_derivative(self, const double* q, Labels y, Py_ssize_t m, double alpha,
                             const double* v, Derivative* d, double* work) noexcept nogil:
        cdef WeightedSet onto = self.weighted_set()
        cdef Curvatures curved = Curvatures(alpha + self.smoothing, alpha)
        if self.all_slots:
            curved.own = curved.other
        weighted_derivative(d, q, v, y.index[0], m, &onto, curved, work)

    cdef void vertex(self, const double* h, double* p, Py_ssize_t n, double* work) noexcept nogil:
        cdef Py_ssize_t j
        weigh_largest(h, p, n, &self.w[0], self.w.shape[0], self.label, work)
        if chosen_sum(p, h, n) <= 0.0:
            for j in range(n):
                p[j] = 0.0
