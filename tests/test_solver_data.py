"""Data that training takes and refuses: layouts, precisions, memory, errors."""

import tracemalloc

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from topkopt import losses, solve
from topkopt._validation import as_labels
from topkopt.solvers.matrices import as_data

from .expect import raises
from .test_arrays import unaligned
from .trainings import assert_same_optimum, problem, quietly, some

# Memory and layouts ---------------------------------------------------------------------------


def peak(call):
    tracemalloc.start()
    try:
        result = call()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def layouts(X, folder):
    path = folder / "X.npy"
    np.save(path, X)
    frozen = X.copy()
    frozen.flags.writeable = False
    return {
        "C": X,
        "Fortran": np.asfortranarray(X),
        "rows": np.repeat(X, 2, axis=0)[::2],
        "columns": np.repeat(X, 2, axis=1)[:, ::2],
        "part": np.hstack([X, X])[:, : X.shape[1]],
        "reversed": X[::-1, ::-1].copy()[::-1, ::-1],
        "frozen": frozen,
        "mapped": np.load(path, mmap_mode="r"),
    }


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_layouts_without_a_copy(tmp_path, dtype):
    loss = losses.TopKHinge(2, smoothing=1.0)
    X, y = problem(loss, n=1500, d=1000)
    X = X.astype(dtype)
    options = {"tol": 0.0, "max_epochs": 2, "random_state": 0, "block_size": 32}
    expected = quietly(X, y, loss, **options)
    for name, other in layouts(X, tmp_path).items():
        solution, memory = peak(lambda other=other: quietly(other, y, loss, **options))
        np.testing.assert_allclose(solution.coef, expected.coef, atol=30 * np.finfo(dtype).eps)
        assert solution.coef.dtype == solution.dual.dtype == dtype
        assert memory < X.nbytes / 2, f"{name}: {memory} of {X.nbytes} bytes"


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_sparse_matrices_and_labels_at_odd_addresses(form):
    """As they come from a file or a buffer; copied once, so that kernels read aligned numbers."""
    X, y = problem(losses.Hinge())
    even = scipy.sparse.csr_array(X).asformat(form)
    odd = even.copy()
    odd.data, odd.indices = unaligned(even.data), unaligned(even.indices)
    odd.indptr = unaligned(even.indptr)
    assert not any(part.flags.aligned for part in (odd.data, odd.indices, odd.indptr))
    assert all(part.flags.aligned for part in as_data(odd, kernel=False).parts)
    assert as_labels(unaligned(y), len(y), multilabel=False)[0].flags.aligned
    found = solve(odd, unaligned(y), losses.Hinge(), random_state=0)
    np.testing.assert_array_equal(found.coef, solve(even, y, losses.Hinge(), random_state=0).coef)


@pytest.mark.parametrize("kernel", [False, True])
def test_unusual_strides(kernel):
    """Rows that overlap, stand still or run backwards in memory."""
    loss, y = losses.Softmax(), np.arange(12) % 3
    values = np.cos(np.arange(30.0))
    views = [
        np.lib.stride_tricks.sliding_window_view(values, 5)[:12],
        np.broadcast_to(values[:5], (12, 5)),
        values[:12, None][:, [0] * 5][::-1],
    ]
    if kernel:
        views = [np.broadcast_to(np.ones(12), (12, 12)), np.eye(12)[::-1, ::-1]]
    for X in views:
        # Plain epochs: what they do does not depend on digits that the layout may change.
        options = {"kernel": kernel, "tol": 1e-8, "random_state": 0}
        options |= {"method": "sdca", "check_every": 1}
        expected = solve(X.copy(), y, loss, **options)
        solution = solve(X, y, loss, **options)
        np.testing.assert_allclose(solution.dual, expected.dual, atol=1e-9)
        assert solution.primal == pytest.approx(expected.primal, rel=1e-7)


@some
def test_float32(loss):
    X, y = problem(loss, n=60, d=10)
    options = {"tol": 1e-4, "max_epochs": 2000, "random_state": 0}
    exact = solve(X, y, loss, **options)
    single = X.astype(np.float32)
    for data in (single, scipy.sparse.csr_array(single)):
        solution = solve(data, y, loss, **options)
        assert solution.coef.dtype == solution.dual.dtype == np.float32
        assert_same_optimum(solution, exact, more=1.01)
    kernel = solve(single @ single.T, y, loss, kernel=True, **options)
    assert kernel.dual.dtype == np.float32
    for other in (X.astype(np.float16), (4 * X).astype(int)):
        assert solve(other, y, loss, tol=1e-2, max_epochs=2000).converged
    assert solve(X.tolist(), y.tolist(), loss, **options).primal == exact.primal


MEGABYTE = 1 << 20


def bytes_beyond(call, block=0):
    """Return what a training needs beyond X, W, the duals and one block."""
    solution, memory = peak(call)
    return memory - solution.coef.nbytes - solution.dual.nbytes - block


def test_memory_of_many_examples():
    loss = losses.TopKHinge(5)
    X, y = problem(loss, n=30000, d=64, m=100)
    block = 256 * (64 + 2 * 100 + 256) * 8
    beyond = bytes_beyond(lambda: quietly(X, y, loss, tol=0.0, max_epochs=1), block)
    assert beyond < 8 * MEGABYTE


def test_memory_of_many_coefficients():
    loss = losses.TopKHinge(5)
    X, y = problem(loss, n=50, d=25000, m=400)
    block = 50 * (25000 + 2 * 400 + 50) * 8
    beyond = bytes_beyond(lambda: solve(X, y, loss, tol=0.5, n_classes=400), block)
    assert beyond < 64 * MEGABYTE


def test_sparse_stays_sparse():
    loss = losses.TopKHinge(2)
    places = np.random.default_rng(1).integers(0, 100000, 20000)
    parts = np.cos(places), places, np.arange(0, 20001, 10)
    X, y = scipy.sparse.csr_array(parts, shape=(2000, 100000)), np.arange(2000) % 5
    X.sum_duplicates()
    beyond = bytes_beyond(lambda: quietly(X, y, loss, tol=0.0, max_epochs=2))
    assert beyond < 16 * MEGABYTE


# Errors ---------------------------------------------------------------------------------------


X0 = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, 0.0]])
Y0 = np.array([0, 1, 2, 0])
KIND = losses.Softmax()


def with_nan(value=np.nan):
    X = X0.copy()
    X[2, 1] = value
    return X


@pytest.mark.parametrize(
    ("arguments", "options", "error", "fragments"),
    [
        ((X0, Y0 - 1, KIND), {}, ValueError, ("y must hold labels from 0", "-1", "encode")),
        ((X0, Y0 * 1.0, KIND), {}, ValueError, ("y must", "integers", "float64", "encode")),
        ((X0, list("abca"), KIND), {}, ValueError, ("y must", "integers", "encode")),
        ((X0, Y0 > 0, KIND), {}, ValueError, ("y must", "integers", "bool", "encode")),
        ((X0, Y0[:3], KIND), {}, ValueError, ("y must have one entry per row", "4", "(3,)")),
        ((X0, np.eye(4), KIND), {}, ValueError, ("y must be one-dimensional", "(4, 4)")),
        ((X0, 0 * Y0, KIND), {}, ValueError, ("at least 2 classes", "1", "add examples")),
        ((X0[:0], Y0[:0], KIND), {}, ValueError, ("X must have at least one row", "none")),
        ((X0[0], Y0, KIND), {}, ValueError, ("X must be a matrix", "(2,)")),
        ((with_nan(), Y0, KIND), {}, ValueError, ("X must be finite", "NaN", "clean")),
        ((with_nan(-np.inf), Y0, KIND), {}, ValueError, ("X must be finite", "clean")),
        (
            (scipy.sparse.csr_array(with_nan()), Y0, KIND),
            {},
            ValueError,
            ("X must be finite", "NaN", "clean"),
        ),
        ((X0.astype(complex), Y0, KIND), {}, TypeError, ("X must hold real numbers", "complex")),
        (
            (scipy.sparse.csr_array(X0.astype(complex)), Y0, KIND),
            {},
            TypeError,
            ("X must hold real numbers", "complex"),
        ),
        ((X0, Y0, losses.TopKHinge(3)), {}, ValueError, ("k must be", "other classes (2)", "3")),
        ((X0, Y0, losses.TopKEntropy(3)), {}, ValueError, ("k must be", "(2)", "got 3")),
        ((X0, Y0, losses.TruncatedTopKEntropy(5)), {}, ValueError, ("k must be", "(2)", "got 5")),
        (
            (X0, Y0, losses.WeightedTopKHinge("flat", 3)),
            {},
            ValueError,
            ("weights", "at most 2", "3", "drop"),
        ),
        ((X0, Y0, "margin"), {}, ValueError, ("loss must be one of", "softmax", "'margin'")),
        ((X0, Y0, None), {}, ValueError, ("loss must be one of", "None")),
        ((X0, Y0, losses.Softmax), {}, ValueError, ("loss must be one of", "Softmax")),
        ((X0, Y0, "topk_hinge"), {}, TypeError, ("topk_hinge", "k")),
        ((X0, Y0, KIND), {"C": 0}, ValueError, ("C must be", "positive", "got 0")),
        ((X0, Y0, KIND), {"C": -1.0}, ValueError, ("C must be", "positive", "-1.0")),
        ((X0, Y0, KIND), {"C": np.nan}, ValueError, ("C must be", "finite", "nan")),
        ((X0, Y0, KIND), {"C": "big"}, TypeError, ("C must be a real number", "'big'")),
        ((X0, Y0, KIND), {"tol": -1.0}, ValueError, ("tol must be", "non-negative", "-1.0", "0")),
        ((X0, Y0, KIND), {"method": "bfgs"}, ValueError, ("method must be", "sdca", "bfgs")),
        ((X0, Y0, KIND), {"max_epochs": 0}, ValueError, ("max_epochs must be", "1", "got 0")),
        ((X0, Y0, KIND), {"max_epochs": 1.5}, TypeError, ("max_epochs", "integer", "1.5")),
        ((X0, Y0, KIND), {"check_every": 0}, ValueError, ("check_every must be", "1", "got 0")),
        ((X0, Y0, KIND), {"block_size": 0}, ValueError, ("block_size must be", "1", "got 0")),
        ((X0, Y0, KIND), {"block_size": "big"}, ValueError, ("block_size", "auto", "'big'")),
        (
            (X0, Y0, KIND),
            {"kernel": True},
            ValueError,
            ("X must be a square Gram matrix", "kernel=True", "(4, 2)", "all pairs"),
        ),
        (
            (scipy.sparse.eye_array(4), Y0, KIND),
            {"kernel": True},
            ValueError,
            ("X must be dense when kernel=True", "toarray"),
        ),
        (
            (-np.eye(4), Y0, KIND),
            {"kernel": True},
            ValueError,
            ("Gram matrix", "-1", "positive semi-definite"),
        ),
        (
            (X0, Y0, KIND),
            {"sample_weight": [1, 1, -0.5, 1]},
            ValueError,
            ("sample_weight", "non-negative", "-0.5"),
        ),
        (
            (X0, Y0, KIND),
            {"sample_weight": [1, 1, np.nan, 1]},
            ValueError,
            ("sample_weight", "finite", "nan"),
        ),
        (
            (X0, Y0, KIND),
            {"sample_weight": [0, 0, 0, 0]},
            ValueError,
            ("sample_weight", "not all zero"),
        ),
        (
            (X0, Y0, KIND),
            {"sample_weight": [1, 1]},
            ValueError,
            ("sample_weight", "one entry per example (4)", "(2,)"),
        ),
        ((X0, Y0, KIND), {"warm_start": 3}, TypeError, ("warm_start", "Solution", "int")),
        (
            (X0, Y0, KIND),
            {"warm_start": solve(X0[:3], Y0[:3], KIND)},
            ValueError,
            ("warm_start", "4 examples and 3 classes", "3 and 3"),
        ),
        (
            (X0, Y0, KIND),
            {"warm_start": solve(X0, Y0, losses.Hinge())},
            ValueError,
            ("warm_start", "same loss", "Hinge", "Softmax"),
        ),
        (
            (X0, Y0, losses.TruncatedTopKEntropy(2)),
            {"warm_start": solve(X0[:, :1], Y0, KIND)},
            ValueError,
            ("warm_start",),
        ),
        (
            (X0, Y0, losses.TruncatedTopKEntropy(2)),
            {"warm_start": solve(X0 @ X0.T, Y0, KIND, kernel=True)},
            ValueError,
            ("warm_start",),
        ),
    ],
)
def test_bad_input(arguments, options, error, fragments):
    with raises(error, *fragments):
        solve(*arguments, **options)
