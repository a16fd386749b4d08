"""The losses of top-k classification: value, conjugate and one prox each.

Every convex loss L answers, for given q and alpha >= 0,

    Solve    min_v  L*(v) - <q,v> + alpha/2 <v,v>.

The solution is the gradient of L at q for alpha = 0, and for alpha = kappa C it gives the dual step
a = -C v, which maximises -C L*(-a/C) - <q,a> - kappa/2 <a,a>. The forms of v are listed in
`reference/losses`, whose classes these are the twins of.
"""
import numpy as np

from libc.math cimport INFINITY, NAN, fabs
from libc.stdint cimport int32_t

from topkopt._kernels.select cimport scratch

from topkopt import _validation
from topkopt._threads import as_team

cdef enum What:
    VALUE
    GRADIENT
    CONJUGATE

# The domains of conjugates have size 1. What lies outside by no more than this does so by rounding,
# and has a finite conjugate.
cdef double DOMAIN_SLACK = 1e-9


def _refuse_subclass(cls, **parameters):
    # Only classes written in Python come here.
    raise TypeError(
        f"losses are compiled and final, so {cls.__name__} cannot be a subclass of "
        f"{cls.__base__.__name__}: training would never call what it overrides. Choose one of "
        "topkopt.losses.names(), or give a function of scores to topkopt.losses.CustomLoss."
    )


cdef void whole_derivative(const Derivative* d, Py_ssize_t m, double* out) noexcept nogil:
    cdef Py_ssize_t a, b, c
    cdef double mass
    for a in range(m):
        mass = 0.0
        for b in range(m):
            mass += d.delta[b] if d.pool[b] == d.pool[a] else 0.0
        for b in range(m):
            out[a * m + b] = d.delta[a] if a == b else 0.0
            if d.pool[a] >= 0 and d.pool[b] == d.pool[a] and mass > 0.0:
                out[a * m + b] -= d.delta[a] * d.delta[b] / mass
            for c in range(d.n_columns):
                out[a * m + b] += d.columns[c * m + a] * d.columns[c * m + b]


cdef int evaluate_afresh(Loss loss, const ScoreRows* rows, double* values, double* v,
                         double* work) except -1 nogil:
    cdef double[TOGETHER * START] value_start
    cdef double[TOGETHER * START] start
    cdef Py_ssize_t i
    for i in range(rows.n_rows):
        value_start[i * START] = start[i * START] = NAN
    return loss.rows_value_and_gradient(rows, values, v, value_start, start, work)


cdef class Loss:
    """A loss of the scores of an example: the base of all losses."""

    declaration = None
    separable = False   # A separable loss is a sum of losses of one class each.

    def __cinit__(self):
        if self.declaration is None:
            raise TypeError(
                f"{type(self).__name__} is a base of losses; use one of those, such as Hinge()."
            )
        self.convex = self.declaration.convex
        self.multilabel = "multilabel" in self.declaration.tasks

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
        cdef Py_ssize_t j
        for j in range(m):
            v[j] = NAN

    cdef void row_derivative(self, const double* q, Labels y, Py_ssize_t m, double alpha,
                             const double* v, Derivative* d, double* work) noexcept nogil:
        cdef Py_ssize_t j
        d.n_columns = 0
        for j in range(m):
            d.delta[j] = NAN
            d.pool[j] = -1

    cdef double row_value_and_gradient(self, const double* s, Labels y, Py_ssize_t m, double* v,
                                       double* value_start, double* start,
                                       double* work) noexcept nogil:
        self.row_prox(s, y, m, 0.0, v, start, work)
        return self.row_value(s, y, m, value_start, work)

    cdef int rows_value_and_gradient(self, const ScoreRows* rows, double* values, double* v,
                                     double* value_start, double* start,
                                     double* work) except -1 nogil:
        cdef Py_ssize_t i, m = rows.n_classes
        for i in range(rows.n_rows):
            values[i] = self.row_value_and_gradient(
                rows.scores + i * m, labels_of(rows.labels, i), m, v + i * m,
                value_start + i * START, start + i * START, work)
        return 0

    cdef void row_curvatures(self, const double* v, Py_ssize_t m, double* h) noexcept nogil:
        # Where |v| are probabilities p, as those of entropic losses, p (1 - p) is exact.
        cdef Py_ssize_t j
        for j in range(m):
            h[j] = max(0.0, fabs(v[j]) * (1.0 - fabs(v[j])))

    def check_classes(self, m):
        """Raise unless the loss is defined for m classes."""
        if m < 2:
            raise ValueError(f"there must be at least 2 classes, got {m}; add examples of others.")

    def value(self, scores, y, *, n_threads=None):
        """Return the loss of each row of scores.

        Parameters
        ----------
        scores : array_like of shape (n, m) or (m,)
            The scores of m classes.
        y : array_like of shape (n,) or (n, m), or int
            The labels, counted from 0; for multilabel losses also an indicator matrix.
        n_threads : int, optional
            How many threads share the rows; by default as many as BLAS would use.

        Returns
        -------
        ndarray of shape (n,) or float
        """
        rows = _validation.as_scores(scores, y, self, as_team(n_threads))
        out = np.empty(rows.scores.shape[0])
        rows.each(lambda s, index, start, part: self._fill(s, index, start, out[part, None], VALUE))
        return rows.finish(out)

    def gradient(self, scores, y, *, n_threads=None):
        """Return the gradient of the loss in each row of scores (a subgradient at a corner).

        Parameters
        ----------
        scores : array_like of shape (n, m) or (m,)
            The scores of m classes.
        y : array_like of shape (n,) or (n, m), or int
            The labels, counted from 0; for multilabel losses also an indicator matrix.
        n_threads : int, optional
            How many threads share the rows; by default as many as BLAS would use.

        Returns
        -------
        ndarray of the shape of `scores`
        """
        rows = _validation.as_scores(scores, y, self, as_team(n_threads))
        out = np.empty(rows.scores.shape)
        rows.each(lambda s, index, start, part: self._fill(s, index, start, out[part], GRADIENT))
        return rows.finish(out)

    def value_and_gradient(self, scores, y, *, n_threads=None):
        """Return the loss of each row of scores and its gradient, in one pass.

        Parameters
        ----------
        scores : array_like of shape (n, m) or (m,)
            The scores of m classes.
        y : array_like of shape (n,) or (n, m), or int
            The labels, counted from 0; for multilabel losses also an indicator matrix.
        n_threads : int, optional
            How many threads share the rows; by default as many as BLAS would use.

        Returns
        -------
        values : ndarray of shape (n,) or float
            What `value` returns.
        gradients : ndarray of the shape of `scores`
            What `gradient` returns.

        Examples
        --------
        >>> from topkopt.losses import Hinge
        >>> Hinge().value_and_gradient([1.0, 0.5, 0.0], 0)
        (0.5, array([-1.,  1.,  0.]))
        """
        rows = _validation.as_scores(scores, y, self, as_team(n_threads))
        values = np.empty(rows.scores.shape[0])
        gradients = np.empty(rows.scores.shape)
        rows.each(lambda s, index, start, part: self._evaluate(s, index, start, values[part],
                                                               gradients[part]))
        return rows.finish(values), rows.finish(gradients)

    def _evaluate(self, const double[:, ::1] scores, const Py_ssize_t[::1] label_index,
                  const Py_ssize_t[::1] label_start, double[::1] values,
                  double[:, ::1] gradients):
        cdef Py_ssize_t i = 0, m = scores.shape[1]
        cdef double[::1] work = scratch(self.work_size(m))
        cdef ScoreRows rows
        rows.n_classes = m
        rows.labels = label_lists(label_index, label_start)
        with nogil:
            while i < scores.shape[0]:
                rows.scores = &scores[i, 0]
                rows.n_rows = min(scores.shape[0] - i, <Py_ssize_t>TOGETHER)
                evaluate_afresh(self, &rows, &values[i], &gradients[i, 0], &work[0])
                i += rows.n_rows
                rows.labels.start += rows.n_rows

    def conjugate(self, v, y, *, n_threads=None):
        """Return the convex conjugate, ``max_s <s, v> - value(s)``, of each row of v.

        Parameters
        ----------
        v : array_like of shape (n, m) or (m,)
            Points of score space, such as gradients.
        y : array_like of shape (n,) or (n, m), or int
            The labels, counted from 0; for multilabel losses also an indicator matrix.
        n_threads : int, optional
            How many threads share the rows; by default as many as BLAS would use.

        Returns
        -------
        ndarray of shape (n,) or float
            Infinite outside the domain of the conjugate (a slack of rounding size is forgiven).
        """
        if not self.convex:
            raise ValueError(f"{self!r} is not convex and has no useful conjugate.")
        rows = _validation.as_scores(v, y, self, as_team(n_threads), name="v")
        out = np.empty(rows.scores.shape[0])
        rows.each(lambda s, index, start, part: self._fill(s, index, start, out[part, None],
                                                           CONJUGATE))
        return rows.finish(out)

    def prox(self, q, y, alpha, *, n_threads=None):
        """Return the v that minimises ``conjugate(v) - <q,v> + alpha/2 <v,v>`` for each row of q.

        With alpha = 0 it is the gradient; with ``alpha = C |x|^2`` the dual step of an example x is
        ``-C v``.

        Parameters
        ----------
        q : array_like of shape (n, m) or (m,)
            The scores of m classes.
        y : array_like of shape (n,) or (n, m), or int
            The labels, counted from 0; for multilabel losses also an indicator matrix.
        alpha : float
            The weight of the quadratic, at least 0.
        n_threads : int, optional
            How many threads share the rows; by default as many as BLAS would use.

        Returns
        -------
        ndarray of the shape of `q`
        """
        rows, alpha = self._prox_arguments(q, y, alpha, n_threads)
        out = np.empty(rows.scores.shape)
        rows.each(lambda q, index, start, part: self._fill_prox(q, index, start, alpha, out[part],
                                                                None))
        return rows.finish(out)

    def prox_derivative(self, q, y, alpha, *, n_threads=None):
        """Return the derivative of `prox` in q, a symmetric matrix for each row.

        At a kink, where the prox has no derivative, it is that of one side.

        Parameters
        ----------
        q : array_like of shape (n, m) or (m,)
            The scores of m classes.
        y : array_like of shape (n,) or (n, m), or int
            The labels, counted from 0; for multilabel losses also an indicator matrix.
        alpha : float
            The weight of the quadratic, at least 0.
        n_threads : int, optional
            How many threads share the rows; by default as many as BLAS would use.

        Returns
        -------
        ndarray of shape (n, m, m) or (m, m)
            For a smooth loss and alpha = 0 the Hessian.

        Examples
        --------
        >>> from topkopt.losses import Softmax
        >>> Softmax().prox_derivative([0.0, 0.0], 0, 0.0)
        array([[ 0.25, -0.25],
               [-0.25,  0.25]])
        """
        rows, alpha = self._prox_arguments(q, y, alpha, n_threads)
        n, m = rows.scores.shape
        out = np.empty((n, m, m))
        rows.each(lambda q, index, start, part: self._fill_prox(q, index, start, alpha,
                                                                np.empty(q.shape), out[part]), m)
        return rows.finish(out)

    def _prox_arguments(self, q, y, alpha, n_threads):
        if not self.convex:
            raise ValueError(f"{self!r} is not convex and has no prox; use one that is.")
        return (_validation.as_scores(q, y, self, as_team(n_threads), name="q"),
                _validation.check_scalar(alpha, "alpha"))

    def _fill_prox(self, const double[:, ::1] q, const Py_ssize_t[::1] label_index,
                   const Py_ssize_t[::1] label_start, double alpha, double[:, ::1] v,
                   double[:, :, ::1] out):
        cdef Py_ssize_t i, m = q.shape[1]
        cdef Labels y
        cdef LabelLists labels = label_lists(label_index, label_start)
        cdef double[START] start
        cdef double[::1] work = scratch(self.work_size(m))
        cdef double[::1] parts = np.empty((1 + COLUMNS) * m)
        cdef int32_t[::1] pool = np.empty(m, np.int32)
        cdef Derivative d
        d.delta = &parts[0]
        d.columns = &parts[0] + m
        d.pool = &pool[0]
        with nogil:
            for i in range(q.shape[0]):
                y = labels_of(labels, i)
                start[0] = NAN
                self.row_prox(&q[i, 0], y, m, alpha, &v[i, 0], start, &work[0])
                if out is not None:
                    self.row_derivative(&q[i, 0], y, m, alpha, &v[i, 0], &d, &work[0])
                    whole_derivative(&d, m, &out[i, 0, 0])

    def _fill(self, const double[:, ::1] scores, const Py_ssize_t[::1] label_index,
              const Py_ssize_t[::1] label_start, double[:, :] out, int what):
        cdef Py_ssize_t i = 0, j, n_rows, m = scores.shape[1]
        cdef Labels[SIDE_BY_SIDE] y
        cdef double[SIDE_BY_SIDE * START] start
        cdef double[SIDE_BY_SIDE] values
        cdef double[::1] work = scratch(self.work_size(m))
        cdef LabelLists labels = label_lists(label_index, label_start)
        with nogil:
            while i < scores.shape[0]:
                n_rows = min(scores.shape[0] - i, <Py_ssize_t>SIDE_BY_SIDE)
                for j in range(n_rows):
                    y[j] = labels_of(labels, i + j)
                    start[j * START] = NAN
                if what == VALUE:
                    self.row_values(&scores[i, 0], y, n_rows, m, start, values, &work[0])
                for j in range(n_rows):
                    if what == VALUE:
                        out[i, 0] = values[j]
                    elif what == GRADIENT:
                        self.row_prox(&scores[i, 0], y[j], m, 0.0, &out[i, 0], start + j * START,
                                      &work[0])
                    elif self.row_violation(&scores[i, 0], y[j], m, &work[0]) <= DOMAIN_SLACK:
                        out[i, 0] = self.row_conjugate(&scores[i, 0], y[j], m, &work[0])
                    else:
                        out[i, 0] = INFINITY
                    i += 1

    @property
    def name(self):
        """The name of the loss in the registry."""
        return self.declaration.name

    @property
    def smooth(self):
        """Whether the loss is differentiable everywhere."""
        smooth = self.declaration.smooth
        return self.smoothing > 0 if smooth is None else smooth

    @property
    def curvature(self):
        """How large second derivatives are; infinite if the loss is not smooth."""
        curvature = self.declaration.curvature
        if self.declaration.smooth is None:
            return curvature / self.smoothing if self.smoothing > 0 else INFINITY
        return curvature if self.declaration.smooth else INFINITY

    @property
    def places(self):
        """How many classes may be named before it counts as a mistake; None if it has no such k."""
        return getattr(self, "k", None) if "k" in self.declaration.parameters else None

    def _parameters(self):
        return tuple((name, getattr(self, name)) for name in self.declaration.parameters)

    def __reduce__(self):
        return type(self), tuple(value for _, value in self._parameters())

    def __eq__(self, other):
        return type(self) is type(other) and self.__reduce__() == other.__reduce__()

    def __hash__(self):
        return hash(self.__reduce__())

    def __repr__(self):
        listed = ", ".join(f"{name}={value!r}" for name, value in self._parameters())
        return f"{type(self).__name__}({listed})"
