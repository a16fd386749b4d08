"""Examples read in blocks: the results of those in memory, in the memory of a few blocks."""

import mmap
import threading

import numpy as np
import pytest
import scipy.sparse

from topkopt import ConvergenceWarning, losses, path, solve
from topkopt.solvers import row_blocks
from topkopt.solvers.data import DenseData
from topkopt.solvers.matrices import as_data
from topkopt.solvers.problem import as_problem
from topkopt.solvers.row_blocks import RowBlocks, is_mapped, is_stream
from topkopt.solvers.streams import StreamData

from .expect import raises
from .loss_cases import CONVEX, over
from .trainings import objectives, problem

convex = over(CONVEX)
smooth = over([case for case in CONVEX if case.smooth])
BOTH = [losses.TopKHinge(2), losses.TopKEntropy(2)]
both = pytest.mark.parametrize("loss", BOTH, ids=repr)


class Dataset:
    """What h5py and Zarr have in common: no array, but slices of rows that are read anew."""

    def __init__(self, X, chunk=None):
        self._X, self.reads, self.threads = X, [], set()
        self.shape, self.dtype = X.shape, X.dtype
        if chunk is not None:
            self.chunks = (chunk, X.shape[1])

    def __getitem__(self, rows):
        self.reads.append((rows.start, rows.stop))
        self.threads.add(threading.current_thread().name)
        return self._X[rows].copy()


@pytest.fixture(params=[1, 7, 1000], autouse=True)
def rows_of_block(request, monkeypatch):
    """Blocks of one row, of an odd number of rows, and of more rows than there are."""
    monkeypatch.setattr(row_blocks, "_rows_of_block", lambda X, row_bytes: request.param)
    return request.param


def fitted(kind, X, folder):
    """Return the same numbers as something else that is read in blocks."""
    name = folder / "X.npy"
    if kind == "dataset":
        return Dataset(X)
    if kind == "mapped":
        np.save(name, X)
        return np.load(name, mmap_mode="r")
    if kind == "Fortran":
        np.save(name, np.asfortranarray(X))
        return np.load(name, mmap_mode="r")
    if kind == "strided":
        np.save(name, np.repeat(np.repeat(X, 3, axis=0), 2, axis=1))
        return np.load(name, mmap_mode="r")[1::3, ::2]
    return X


KINDS = ["array", "dataset", "mapped", "Fortran", "strided"]


@convex
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_passes_are_those_of_an_array(case, dtype, rows_of_block):
    """Every pass over the data, at a W and dual blocks that mean nothing, is that of DenseData."""
    X, y = problem(case.loss, n=23)
    X = X.astype(dtype)
    weight = np.arange(23) % 4 + 0.5
    rng = np.random.default_rng(1)
    arrays = [as_problem(A, y, case.loss, 1.3, weight, False, None) for A in (X, Dataset(X))]
    assert type(arrays[0].data) is DenseData
    assert type(arrays[1].data) is StreamData
    W = rng.standard_normal((4, 5)).astype(dtype)
    results = []
    for one in arrays:
        data, examples = one.data, one.examples()
        pull, dual = np.empty((4, 5)), one.zero_dual()
        total = data.evaluate(examples, W, pull, dual)
        without = data.evaluate(examples, W, np.empty((4, 5)), None, True)
        assert without == pytest.approx(total, rel=1e-12)
        rows = np.flatnonzero(np.arange(23) % 3)
        sums = data.sums(examples, W, dual, rows)
        gaps = examples.row_gaps.copy()
        coef = data.coef_from(dual)
        order = np.arange(23)[np.argsort(np.sin(np.arange(23)))].astype(np.intp)
        moved, moved_coef = dual.copy(), coef.copy()
        data.epoch(examples, moved_coef, moved, order, 4)
        np.testing.assert_array_equal(examples.moved_rows, (moved != dual).any(axis=1))
        results.append(
            (data.square_norms, total, pull, dual, sums, gaps, coef, data.scores(W), moved,
             moved_coef)
        )  # fmt: skip
    slack = 200 * np.finfo(dtype).eps
    for expected, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, rtol=slack, atol=slack)


@both
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_source_gives_the_same_bits(loss, kind, dtype, tmp_path):
    X, y = problem(loss, n=60)
    X = X.astype(dtype)
    options = {"sampling": "blocks", "tol": 1e-4, "random_state": 3, "max_epochs": 3000}
    expected = solve(X, y, loss, **options)
    source = fitted(kind, X, tmp_path)
    solution = solve(source, y, loss, **options)
    np.testing.assert_array_equal(solution.coef, expected.coef)
    np.testing.assert_array_equal(solution.dual, expected.dual)
    assert solution.coef.dtype == solution.dual.dtype == dtype
    assert solution.converged
    if isinstance(source, Dataset) and len(source.reads) > 1:
        assert all(first < last for first, last in source.reads)


@convex
def test_same_optimum(case):
    X, y = problem(case.loss, n=40)
    tol = 1e-6 if case.smooth else 1e-4
    options = {"tol": tol, "random_state": 0, "max_epochs": 100000}
    expected = solve(X, y, case.loss, **options)
    for method in ["sdca", "auto", *(["lbfgs"] if case.smooth else [])]:
        solution = solve(Dataset(X), y, case.loss, method=method, **options)
        assert solution.converged
        assert abs(solution.primal - expected.primal) <= 2 * tol * expected.primal
        found = objectives(X, y, case.twin, solution)
        assert found[:2] == pytest.approx((solution.primal, solution.dual_value), rel=1e-9)


def test_one_block_is_the_array(rows_of_block):
    """Where the order of the rows is the same, so are the bits."""
    X, y = problem(losses.Hinge(), n=30)
    if rows_of_block < len(X):
        order = np.arange(30)
        data = as_data(Dataset(X), False)
        shuffled = data.shuffled(np.random.default_rng(0), order)
        np.testing.assert_array_equal(np.sort(shuffled), order)
        assert not np.array_equal(shuffled, order)
        changes = np.count_nonzero(np.diff(shuffled // rows_of_block))
        assert changes == -(-30 // rows_of_block) - 1  # each block is read once
        return
    for method in ("lbfgs", "auto"):
        loss = losses.Softmax()
        solutions = [
            solve(A, y, loss, method=method, sampling="blocks", tol=1e-8) for A in (X, Dataset(X))
        ]
        np.testing.assert_array_equal(solutions[0].coef, solutions[1].coef)
    lbfgs = solve(X, y, losses.Softmax(), method="lbfgs", tol=1e-8)
    np.testing.assert_array_equal(lbfgs.coef, solutions[0].coef)


@both
def test_usual_options(loss):
    """Weights, warm starts, callbacks, paths and interrupts work as with arrays."""
    X, y = problem(loss, n=40)
    source = Dataset(X)
    weight = np.arange(40) % 3
    options = {"tol": 1e-5, "random_state": 0, "max_epochs": 20000}
    seen = []
    solution = solve(
        source, y, loss, sample_weight=weight, callback=lambda s: seen.append(s.gap), **options
    )
    expected = solve(X, y, loss, sample_weight=weight, **options)
    assert solution.primal == pytest.approx(expected.primal, rel=2e-5)
    assert seen[-1] == solution.gap
    again = solve(source, y, loss, sample_weight=weight, warm_start=solution, **options)
    assert again.n_epochs == 0
    Cs = [0.1, 1.0, 3.0]
    paths = [path(A, y, loss, Cs=Cs, random_state=0, tol=1e-4) for A in (X, source)]
    for one, other in zip(*paths, strict=True):
        assert one.dual is None
        assert other.dual is None
        assert one.primal == pytest.approx(other.primal, rel=2e-4)
    np.testing.assert_allclose(paths[1].scores(source), paths[1].scores(X), rtol=1e-12, atol=1e-14)

    def interrupt(state):
        if state.epoch >= 1:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        stopped = solve(source, y, loss, tol=0.0, callback=interrupt, on_interrupt="return")
    assert stopped.gap < 1


def test_truncated_and_custom_losses():
    X, y = problem(losses.Softmax(), n=40)
    loss = losses.TruncatedTopKEntropy(2)
    expected = solve(X, y, loss, tol=1e-7, random_state=0)
    solution = solve(Dataset(X), y, loss, tol=1e-7, random_state=0)
    assert solution.primal == pytest.approx(expected.primal, rel=1e-5)

    def squares(scores, labels):
        off = scores - np.eye(scores.shape[1])[labels]
        return 0.5 * (off**2).sum(axis=1), off

    custom = losses.CustomLoss(squares)
    expected = solve(X, y, custom, tol=1e-8)
    solution = solve(Dataset(X), y, custom, tol=1e-8)
    np.testing.assert_allclose(solution.coef, expected.coef, atol=1e-4)


def test_read_ahead_is_a_thread_and_ends(rows_of_block):
    X, y = problem(losses.Softmax(), n=30)
    source = Dataset(X)
    solve(source, y, "softmax", tol=1e-3)
    ahead = any(name.startswith("topkopt-read-ahead") for name in source.threads)
    assert ahead == (rows_of_block < 30)
    assert not any(t.name.startswith("topkopt-read-ahead") for t in threading.enumerate())


def test_integers_and_lists(tmp_path):
    X, y = problem(losses.Softmax(), n=30)
    whole = (4 * X).round().astype(np.int16)
    expected = solve(whole, y, "softmax", method="lbfgs", tol=1e-7)
    lists = Dataset(whole.astype(np.float64))
    lists.__class__ = type(
        "Lists", (Dataset,), {"__getitem__": lambda self, r: self._X[r].tolist()}
    )
    swapped = Dataset(whole.astype(">f4"))
    half = Dataset(whole.astype(np.float16))
    for source in (Dataset(whole), lists, swapped, half):
        solution = solve(source, y, "softmax", method="lbfgs", tol=1e-6)
        np.testing.assert_allclose(solution.coef, expected.coef, atol=1e-2)
        assert solution.coef.dtype == (np.float32 if source in (swapped, half) else np.float64)


def test_who_is_a_stream(tmp_path):
    X = np.eye(3)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for other in (X, mapped, X.tolist(), scipy.sparse.eye_array(3), np.float64(1), None, "text"):
        assert not is_stream(other)
    assert is_stream(Dataset(X))
    assert is_mapped(mapped)
    assert is_mapped(np.asarray(mapped)[1:, ::2].T)
    assert is_mapped(np.frombuffer(mmap.mmap(-1, 80)))
    assert not is_mapped(X[1:])


def test_large_files_are_read_in_blocks(tmp_path, monkeypatch):
    X, y = problem(losses.Softmax(), n=30)
    source, seen = fitted("mapped", X, tmp_path), []
    hold = DenseData._hold
    monkeypatch.setattr(DenseData, "_hold", lambda self, A: (seen.append(A), hold(self, A)))
    for size, method, sampling, rows in [
        (X.nbytes + 1, "lbfgs", "auto", True),
        (X.nbytes, "lbfgs", "auto", False),
        (X.nbytes, "sdca", "auto", False),
        (X.nbytes, "sdca", "rows", True),
        (X.nbytes, "newton", "auto", True),
    ]:
        monkeypatch.setattr(row_blocks, "LARGE_FILE", size)
        seen.clear()
        assert solve(source, y, "softmax", method=method, sampling=sampling).converged
        assert bool(seen) == rows
    seen.clear()
    assert path(source, y, "softmax", Cs=[1.0], method="lbfgs")[0].converged
    assert not seen
    assert solve(X, y, "softmax", method="lbfgs").converged
    assert seen


# Chunks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [(None, 128), ((50, 4), 100), ((128, 4), 128), ((200, 4), 200), ((10**6, 4), 128)],
)
def test_rows_of_a_block_are_whole_chunks(chunks, expected, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", 128 * 32)
    source = Dataset(np.zeros((1000, 4)))
    if chunks is not None:
        source.chunks = chunks
    assert RowBlocks(source).n_rows == expected


# What goes wrong -----------------------------------------------------------------------------


def later(change, after):
    """Return a source that is changed after some reads."""
    X, y = problem(losses.Softmax(), n=30)

    class Changing(Dataset):
        def __getitem__(self, rows):
            if len(self.reads) >= after:
                change(self)
            return super().__getitem__(rows)

    return Changing(X), y


def spoil(source):
    source._X = source._X.copy()
    source._X[:, 2] = np.nan


def cut(source):
    source._X = source._X[:, :2]


def convert(source):
    source._X = source._X.astype(np.float32)


def fail(source):
    raise OSError("the disk has gone")


@pytest.mark.parametrize("method", ["sdca", "lbfgs"])
@pytest.mark.parametrize("after", [0, 8])
@pytest.mark.parametrize(
    ("change", "error", "fragments"),
    [
        (spoil, ValueError, ("X must be finite", "rows", "clean")),
        (cut, ValueError, ("must have the shape", "X.shape", "must not change")),
        (convert, ValueError, ("the dtype float64", "float32", "must not change")),
        (fail, OSError, ("the disk has gone",)),
    ],
)
def test_blocks_that_change(change, error, fragments, method, after):
    source, y = later(change, after)
    with raises(error, *fragments):
        solve(source, y, "softmax", method=method, tol=0.0)


@pytest.mark.parametrize(
    ("source", "options", "error", "fragments"),
    [
        (Dataset(np.zeros((3, 2, 1))), {}, ValueError, ("X must be a matrix", "(3, 2, 1)")),
        (Dataset(np.eye(3) * 1j), {}, TypeError, ("X must hold real numbers", "complex128")),
        (Dataset(np.full((3, 2), 1e200)), {}, ValueError, ("squared norm", "row 0", "scale")),
        (Dataset(np.zeros((0, 2))), {}, ValueError, ("X must have at least one row",)),
        (Dataset(np.eye(3)), {"kernel": True}, ValueError, ("in memory", "kernel=True")),
        (np.eye(3), {"kernel": True, "sampling": "blocks"}, ValueError, ("in memory", "rows")),
        (Dataset(np.eye(3)), {"sampling": "rows"}, ValueError, ("sampling", "asarray", "Dataset")),
        (scipy.sparse.eye_array(3), {"sampling": "blocks"}, ValueError, ("sampling", "sparse")),
        (np.eye(3), {"sampling": "some"}, ValueError, ("sampling must be", "blocks", "'some'")),
        (Dataset(np.eye(3)), {"method": "newton"}, ValueError, ("method", "sdca", "numpy.asarray")),
        (Dataset(np.eye(3)), {"method": "pairwise"}, ValueError, ("method", "blocks", "rows")),
        (np.eye(3), {"keep_dual": 1}, TypeError, ("keep_dual must be True or False", "1")),
    ],
)
def test_bad_input(source, options, error, fragments):
    with raises(error, *fragments):
        solve(source, [0, 1, 2], losses.Hinge(), **options)


# Dual variables that nobody asks for ---------------------------------------------------------


@smooth
@pytest.mark.parametrize("method", ["lbfgs", "auto", "sdca"])
def test_without_dual(case, method):
    """The same training and certificate; a path and a warm start go on from W alone."""
    X, y = problem(case.loss, n=40)
    options = {"tol": 1e-7, "random_state": 0, "max_epochs": 20000, "method": method}
    expected = solve(X, y, case.loss, **options)
    solution = solve(X, y, case.loss, keep_dual=False, **options)
    assert solution.dual is None
    assert solution.cost is None
    np.testing.assert_array_equal(solution.coef, expected.coef)
    assert solution.gap == pytest.approx(expected.gap, abs=1e-12)
    assert solution.dual_value == pytest.approx(expected.dual_value, rel=1e-12)
    if method == "sdca":
        with raises(ValueError, "warm_start", "without", "keep_dual=True"):
            solve(X, y, case.loss, warm_start=solution, **options)
        return
    warm = solve(X, y, case.loss, C=1.1, warm_start=solution, **options)
    cold = solve(X, y, case.loss, C=1.1, **options)
    assert warm.history["gap"][0] < 0.5
    assert warm.primal == pytest.approx(cold.primal, rel=1e-6)
    kernel = solve(X @ X.T, y, case.loss, kernel=True, keep_dual=False, tol=1e-4, method=method)
    assert kernel.dual is not None


def test_state_has_the_dual_if_it_is_asked_for():
    X, y = problem(losses.Softmax(), n=40)
    seen = []

    def callback(state):
        seen.append((state.coef, state.dual))

    options = {"method": "lbfgs", "tol": 1e-6, "callback": callback}
    solution = solve(X, y, "softmax", keep_dual=False, **options)
    assert solution.dual is None
    coef, dual = seen[-1]
    assert dual.shape == (40, 5)
    assert np.linalg.norm(X.T @ dual - coef) < 0.02 * np.linalg.norm(coef)
