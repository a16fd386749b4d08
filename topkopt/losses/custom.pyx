"""A loss of one's own: a Python function of rows of scores."""
import threading

import numpy as np

from libc.math cimport INFINITY
from libc.string cimport memcpy

from topkopt.losses.base cimport Loss, ScoreRows, labels_of

from topkopt import _validation
from topkopt.losses.declaration import Declaration


cdef enum:
    # A function is tried on so many rows.
    TRIED = 64

# A value may be off by this share without being taken for one of a wrong function.
cdef double SLACK = 1e-9


cdef class CustomLoss(Loss):
    """A smooth loss that a Python function computes, for `topkopt.solve` and the estimators.

    It is trained by L-BFGS. Where it is convex, its gradients make dual variables and so a
    certificate, as for every other loss; the certificate is as true as the promise that the
    function is convex and its gradients are right, which is tried on random scores and on the way.

    Parameters
    ----------
    value_and_gradient : callable
        Takes scores of shape (n, m) and labels of shape (n,), counted from 0, and returns the
        losses, of shape (n,), and their gradients in the scores, of shape (n, m). Each row counts
        for itself, and any number of rows may come at once. The loss must be differentiable.
    convex : bool, default True
        Whether the loss is convex. If not, training starts from the softmax solution and ends where
        the gradient is small; there is no certificate, and the gap is NaN.
    curvature : float, optional
        A bound of the second derivative in any direction, if one is known: it helps with few
        features.
    name : str, optional
        How it is called; by default as the function.

    Notes
    -----
    One thread at a time calls the function, but not always the same one.

    It can be pickled if the function can: one that is defined in a module, not a lambda.

    Examples
    --------
    >>> import numpy as np
    >>> from topkopt import solve
    >>> from topkopt.losses import CustomLoss
    >>> def squared_error(scores, y):
    ...     away = scores - np.eye(scores.shape[1])[y]
    ...     return 0.5 * (away**2).sum(axis=1), away
    >>> solution = solve(np.eye(2), [0, 1], CustomLoss(squared_error), tol=1e-9)
    >>> solution.coef.round(6)
    array([[0.5, 0. ],
           [0. , 0.5]])
    """

    declaration = Declaration(
        name="custom",
        parameters=("value_and_gradient", "convex", "curvature", "name"),
        smooth=True,
        named=False,
    )
    cdef object function
    cdef object bound
    cdef str title
    cdef object turn    # This lock lets one thread at a time call the function.

    def __init__(self, value_and_gradient, convex=True, curvature=None, name=None):
        if not callable(value_and_gradient):
            raise TypeError(
                "value_and_gradient must be a function of scores and labels that returns losses "
                f"and gradients, got {value_and_gradient!r}."
            )
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name must be a string or None, got {name!r}.")
        self.function = value_and_gradient
        self.turn = threading.RLock()
        self.convex = _validation.check_flag(convex, "convex")
        self.bound = None
        if curvature is not None:
            self.bound = _validation.check_scalar(curvature, "curvature", positive=True)
        called = type(value_and_gradient).__name__
        self.title = name or getattr(value_and_gradient, "__name__", called)

    @property
    def name(self):
        """How it is called."""
        return self.title

    @property
    def curvature(self):
        """The bound of the second derivative; infinite if none is known."""
        return INFINITY if self.bound is None else self.bound

    def _parameters(self):
        given = (self.function, self.convex, self.bound, self.title)
        return tuple(zip(self.declaration.parameters, given))

    def __repr__(self):
        listed = [self.title]
        if not self.convex:
            listed.append("convex=False")
        if self.bound is not None:
            listed.append(f"curvature={self.bound!r}")
        return f"CustomLoss({', '.join(listed)})"

    def value(self, scores, y, *, n_threads=None):
        """Return the loss of each row of scores.

        Parameters
        ----------
        scores : array_like of shape (n, m) or (m,)
            The scores of m classes.
        y : array_like of shape (n,) or int
            The labels, counted from 0.
        n_threads : int, optional
            How many threads share the work around the function, which is called by one at a time.

        Returns
        -------
        ndarray of shape (n,) or float
        """
        return self.value_and_gradient(scores, y, n_threads=n_threads)[0]

    def gradient(self, scores, y, *, n_threads=None):
        """Return the gradient of the loss in each row of scores.

        Parameters
        ----------
        scores : array_like of shape (n, m) or (m,)
            The scores of m classes.
        y : array_like of shape (n,) or int
            The labels, counted from 0.
        n_threads : int, optional
            How many threads share the work around the function, which is called by one at a time.

        Returns
        -------
        ndarray of the shape of `scores`
        """
        return self.value_and_gradient(scores, y, n_threads=n_threads)[1]

    def conjugate(self, v, y, *, n_threads=None):
        """Raise: the function says nothing of the conjugate."""
        raise ValueError(
            f"{self!r} has no known conjugate; at the gradient v of scores s it is <s, v> - value."
        )

    cdef void row_curvatures(self, const double* v, Py_ssize_t m, double* h) noexcept nogil:
        cdef Py_ssize_t j
        with gil:
            bound = <double>self.curvature
            for j in range(m):
                h[j] = bound if v[j] != 0.0 else 0.0

    cdef int rows_value_and_gradient(self, const ScoreRows* rows, double* values, double* v,
                                     double* value_start, double* start,
                                     double* work) except -1 nogil:
        cdef Py_ssize_t i, n_rows = rows.n_rows, m = rows.n_classes
        cdef double[:, ::1] scores
        cdef Py_ssize_t[::1] labels
        cdef const double[::1] found
        cdef const double[:, ::1] gradients
        if n_rows == 0:
            return 0
        with gil:
            scores = np.empty((n_rows, m))      # The function may keep or change this array.
            labels = np.empty(n_rows, np.intp)
            memcpy(&scores[0, 0], rows.scores, n_rows * m * sizeof(double))
            for i in range(n_rows):
                labels[i] = labels_of(rows.labels, i).index[0]
            found, gradients = self.call(np.asarray(scores), np.asarray(labels))
            memcpy(values, &found[0], n_rows * sizeof(double))
            memcpy(v, &gradients[0, 0], n_rows * m * sizeof(double))
        return 0

    def check(self, m):
        """Raise unless gradients, and convexity if it is promised, agree with a few values."""
        rng = np.random.default_rng(0)
        labels = np.linspace(0, m - 1, TRIED).astype(np.intp)
        for size in (0.1, 1.0, 10.0):
            here, there = size * rng.standard_normal((2, len(labels), m))
            values, gradients = self.call(here.copy(), labels)
            self.check_slope(here, labels, gradients)
            middle = self.call(0.5 * (here + there), labels)[0]
            ends = 0.5 * (values + self.call(there.copy(), labels)[0])
            above = middle - ends > SLACK * (np.abs(middle) + np.abs(ends))
            if self.convex and above.any():
                row = int(np.flatnonzero(above)[0])
                raise ValueError(
                    f"value_and_gradient must be convex in the scores, but {self.title} is "
                    f"{middle[row]:.6g} between scores where it is {ends[row]:.6g} on the average "
                    f"(label {labels[row]}); pass convex=False."
                )

    def check_slope(self, scores, labels, gradients):
        """Raise unless the values around the scores change as the gradients say."""
        way = np.random.default_rng(1).standard_normal(scores.shape)
        width = 1e-5 * (1.0 + np.abs(scores).max())
        before = self.call(scores - width * way, labels)[0]
        after = self.call(scores + width * way, labels)[0]
        slope, promised = (after - before) / (2.0 * width), (gradients * way).sum(axis=1)
        rounding = 1e-15 * (np.abs(before) + np.abs(after)) / width
        steep = np.sqrt((gradients**2).sum(axis=1) * (way**2).sum(axis=1))
        wrong = np.abs(slope - promised) > 1e-2 * steep + rounding + SLACK
        # A few rows may be where the second derivative jumps.
        if wrong.sum() > len(wrong) // 8:
            row = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                "value_and_gradient must return the gradients of the losses, but those of "
                f"{self.title} promise a slope of {promised[row]:.6g} where the losses have "
                f"{slope[row]:.6g}; compare them with scipy.optimize.check_grad."
            )

    def call(self, scores, labels):
        """Call the function, and check what it returns."""
        shape = scores.shape
        with self.turn:
            answer = self.function(scores, labels)
        if not isinstance(answer, (tuple, list)) or len(answer) != 2:
            raise TypeError(
                f"value_and_gradient must return two arrays, losses and gradients, got "
                f"{type(answer).__name__} from {self.title}."
            )
        values, gradients = (np.ascontiguousarray(part, dtype=np.float64) for part in answer)
        if values.shape != shape[:1] or gradients.shape != shape:
            raise ValueError(
                f"value_and_gradient must return arrays of shape {shape[:1]} and {shape} for "
                f"scores of shape {shape}, got {values.shape} and {gradients.shape} from "
                f"{self.title}."
            )
        # A loss may overflow on a step that is too long; it is not taken then.
        wrong = np.isnan(values) | (np.isfinite(values) & ~np.isfinite(gradients).all(axis=1))
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"value_and_gradient must return finite numbers, got {values[row]} with the "
                f"gradient {gradients[row]} from {self.title} for the scores {scores[row]} and "
                f"the label {labels[row]}."
            )
        return values, gradients
