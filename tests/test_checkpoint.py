"""Trainings that were stopped go on, and a file that does not belong to them is refused."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import scipy.sparse

from topkopt import ConvergenceWarning, losses, solve
from topkopt.solvers import checkpoint as checkpoints
from topkopt.solvers.blocked_dual import BlockedDual
from topkopt.solvers.compact import pack, unpack
from topkopt.solvers.npz import read_arrays, write_arrays

from .expect import raises
from .loss_cases import CASES, CONVEX, over
from .test_streams import Dataset
from .trainings import objectives, problem, quietly, uninterrupted

convex = over(CONVEX)


@pytest.fixture
def always(monkeypatch):
    """Write after every advance."""
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    monkeypatch.setattr(checkpoints, "_COST", 0.0)


def methods(case):
    able = ["sdca", "auto", "newton"]
    return [*able, "lbfgs"] if case.smooth else able


@convex
def test_goes_on(case, tmp_path):
    """From another tol and max_epochs: the epochs count on, and the optimum is the same."""
    X, y = problem(case.loss, n=40)
    last = 1e-7 if case.smooth else 1e-4
    for method in methods(case):
        file = tmp_path / f"{method}.npz"
        options = {"method": method, "random_state": 0, "checkpoint": file}
        rough = quietly(X, y, case.loss, tol=1e-9, max_epochs=2, **options)
        assert file.exists()
        more = quietly(X, y, case.loss, tol=1e-9, max_epochs=3, **options)
        assert 2 <= rough.n_epochs <= more.n_epochs
        # Only SDCA has W = X'A, which is all that is computed anew; the others vouched for more.
        slack = 1 + 1e-6 if method == "sdca" else 3.0
        assert more.history["gap"][len(rough.history["gap"])] <= rough.gap * slack + 1e-12
        for name, column in rough.history.items():
            np.testing.assert_array_equal(more.history[name][: len(column)], column)
        end = solve(X, y, case.loss, tol=last, max_epochs=100000, **options)
        assert end.converged
        assert end.n_epochs >= more.n_epochs
        assert (np.diff(end.history["epoch"]) >= 0).all()
        assert (np.diff(end.history["seconds"]) >= 0).all()
        found = objectives(X, y, case.twin, end)
        assert found[:2] == pytest.approx((end.primal, end.dual_value), rel=1e-9)
        again = solve(X, y, case.loss, tol=last, max_epochs=100000, **options)
        assert again.n_epochs == end.n_epochs or method == "newton"
        assert again.gap <= last
        assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    "kind", ["kernel", "sparse", "float32", "blocks", "truncated", "lbfgs kernel"]
)
def test_goes_on_with_all_data(kind, tmp_path):
    loss = losses.TruncatedTopKEntropy(2) if kind == "truncated" else losses.Softmax()
    X, y = problem(loss, n=40)
    options = {"random_state": 0, "checkpoint": tmp_path / "training.npz"}
    if kind.endswith("kernel"):
        X = X @ X.T
        options.update(kernel=True, method="lbfgs" if kind == "lbfgs kernel" else "sdca")
    X = {"sparse": scipy.sparse.csr_array, "blocks": Dataset}.get(kind, np.asarray)(X)
    X = X.astype(np.float32) if kind == "float32" else X
    first = quietly(X, y, loss, tol=1e-9, max_epochs=2, **options)
    tol = 1e-3 if kind == "float32" else 1e-6
    end = solve(X, y, loss, tol=tol, max_epochs=5000, **options)
    cold = solve(X, y, loss, tol=tol, max_epochs=5000, **{**options, "checkpoint": None})
    assert end.n_epochs >= first.n_epochs == 2
    assert end.primal == pytest.approx(cold.primal, rel=3 * tol)
    assert len(end.history["gap"]) > len(first.history["gap"])


def test_interrupt_saves(tmp_path):
    X, y = problem(losses.Hinge(), n=40)

    def interrupt(state):
        if state.epoch >= 2:
            raise KeyboardInterrupt

    options = {"tol": 1e-9, "method": "sdca", "check_every": 1, "callback": interrupt}
    for name, ask in (("raise", solve), ("return", uninterrupted)):
        file = tmp_path / f"{name}.npz"
        if name == "raise":
            with pytest.raises(KeyboardInterrupt):
                ask(X, y, "hinge", checkpoint=file, **options)
        else:
            with pytest.warns(ConvergenceWarning, match="interrupted"):
                ask(X, y, "hinge", checkpoint=file, **options)
        solution = quietly(X, y, "hinge", tol=1e-9, max_epochs=2, checkpoint=file, method="sdca")
        assert solution.n_epochs == 2
        assert solution.history["epoch"].tolist()[:3] == [0, 1, 2]


def test_method_may_change(tmp_path, always):
    X, y = problem(losses.Softmax(), n=40)
    file = tmp_path / "training.npz"
    options = {"checkpoint": file, "max_epochs": 5000}
    rough = solve(X, y, "softmax", method="sdca", tol=1e-2, **options)
    better = solve(X, y, "softmax", method="lbfgs", tol=1e-7, **options)
    assert better.history["method"][0] == "sdca"
    assert better.history["method"][-1] == "lbfgs"
    assert better.n_epochs > rough.n_epochs
    assert solve(X, y, "softmax", tol=1e-8, **options).converged
    with raises(ValueError, "checkpoint", "dual variables", "'sdca'", "lbfgs", "delete"):
        solve(X, y, "softmax", method="sdca", tol=1e-9, **options)


KILLED = """
import sys, numpy as np
from topkopt import losses, solve
from topkopt.solvers import checkpoint
checkpoint.EVERY = checkpoint._COST = 0.0
rng = np.random.default_rng(0)
X, y = rng.standard_normal((300, 8)), rng.integers(0, 4, 300)
print("begins", flush=True)
solve(X, y, {loss}, C=100.0, tol=0.0, max_epochs=10**9, method={method!r}, check_every=1,
      sampling={sampling!r}, random_state=0, checkpoint=sys.argv[1], callback=lambda state: None)
"""


@pytest.mark.parametrize(
    ("loss", "method", "sampling"),
    [
        ("losses.TopKHinge(2)", "sdca", "rows"),
        ("losses.TopKHinge(2, smoothing=1.0)", "sdca", "blocks"),
        ("losses.Hinge()", "newton", "rows"),
        ("losses.OneVsAllLogistic()", "auto", "rows"),
    ],
)
def test_kill_9(loss, method, sampling, tmp_path):
    """A process is killed while it writes a checkpoint after each step; the training goes on."""
    file = tmp_path / "training.npz"
    code = textwrap.dedent(KILLED).format(loss=loss, method=method, sampling=sampling)
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline, written = time.monotonic() + 120, 0
    while written < 5 and process.poll() is None and time.monotonic() < deadline:
        before = file.stat().st_mtime_ns if file.exists() else None
        time.sleep(0.02)
        written += file.exists() and file.stat().st_mtime_ns != before
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    _, complaint = process.communicate()
    assert file.exists(), complaint.decode()
    arrays = read_arrays(str(file))
    done = float(arrays["passes"])
    assert done > 0
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 8)), rng.integers(0, 4, 300)
    made = eval(loss, {"losses": losses})
    options = {"C": 100.0, "tol": 1e-2, "max_epochs": 10**6, "random_state": 1}
    resumed = solve(X, y, made, method=method, sampling=sampling, checkpoint=file, **options)
    assert resumed.converged
    assert resumed.n_epochs >= done
    assert len(resumed.history["epoch"]) > len(arrays["history_epoch"])
    fresh = solve(X, y, made, **options)
    assert resumed.primal == pytest.approx(fresh.primal, rel=2.1e-2)
    twin = next(case.twin for case in CASES if type(case.loss) is type(made))
    twin = type(twin)(**dict(made._parameters()))
    found = objectives(X, y, twin, resumed)
    assert found[:2] == pytest.approx((resumed.primal, resumed.dual_value), rel=1e-8)


# Files that are refused ----------------------------------------------------------------------


def written(tmp_path, **options):
    X, y = problem(losses.Hinge(), n=40)
    file = tmp_path / "training.npz"
    quietly(X, y, "hinge", tol=1e-9, max_epochs=3, checkpoint=file, method="sdca", **options)
    return X, y, file


@pytest.mark.parametrize("part", [0.0, 0.3, 0.7, 0.99])
def test_truncated_file(part, tmp_path):
    X, y, file = written(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[: int(part * len(whole))])
    with raises(ValueError, "checkpoint must be", "training.npz", "delete"):
        solve(X, y, "hinge", checkpoint=file)


def test_damaged_file(tmp_path):
    X, y, file = written(tmp_path)
    whole = bytearray(file.read_bytes())
    place = bytes(whole).index(b"dual_") + 400
    whole[place] ^= 0xFF
    file.write_bytes(whole)
    with raises(ValueError, "checkpoint must be", "cannot be read", "delete"):
        solve(X, y, "hinge", checkpoint=file)


def test_nothing_is_unpickled(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    X, y, file = written(tmp_path)
    arrays = read_arrays(str(file))
    arrays["coef"] = np.array([Bomb()], dtype=object)
    np.savez(file, **arrays)
    with raises(ValueError, "checkpoint must be", "cannot be read"):
        solve(X, y, "hinge", checkpoint=file)
    file.write_bytes(pickle.dumps(Bomb()))
    with raises(ValueError, "checkpoint must be", "cannot be read"):
        solve(X, y, "hinge", checkpoint=file)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("name", "value", "fragments"),
    [
        ("version", 99, ("version 1", "99")),
        ("coef", np.zeros((3, 5)), ("coef of shape (4, 5)",)),
        ("coef", np.full((4, 5), np.nan), ("finite coef",)),
        ("passes", None, ("passes", "delete")),
        ("history_gap", None, ("gap", "delete")),
        ("loss", None, ("loss", "delete")),
    ],
)
def test_changed_file(name, value, fragments, tmp_path):
    X, y, file = written(tmp_path)
    arrays = read_arrays(str(file))
    arrays[name] = value
    write_arrays(str(file), {key: array for key, array in arrays.items() if array is not None})
    with raises(ValueError, "checkpoint", *fragments):
        solve(X, y, "hinge", checkpoint=file)


@pytest.mark.parametrize(
    ("change", "fragments"),
    [
        (lambda X, y: (X[:-1], y[:-1], "hinge", {}), ("shape", "40", "39")),
        (lambda X, y: (X[:, :3], y, "hinge", {}), ("shape", "4", "3")),
        (lambda X, y: (X, y, "hinge", {"n_classes": 6}), ("shape", "5", "6")),
        (lambda X, y: (X.astype(np.float32), y, "hinge", {}), ("dtype", "float64", "float32")),
        (lambda X, y: (X, y, "softmax", {}), ("loss", "Hinge", "Softmax")),
        (lambda X, y: (X, y, losses.TopKHinge(2), {}), ("loss", "TopKHinge")),
        (lambda X, y: (X, y, "hinge", {"C": 2.0}), ("another C", "1.0", "2.0")),
        (lambda X, y: (X, (y + 1) % 5, "hinge", {}), ("another y",)),
        (lambda X, y: (X, y, "hinge", {"sample_weight": y + 1}), ("another sample_weight",)),
        (lambda X, y: (-X, y, "hinge", {}), ("another X", "differs")),
        (lambda X, y: (2 * X, y, "hinge", {}), ("another X", "differs")),
        (lambda X, y: (X[:, ::-1], y, "hinge", {}), ("another X", "differs")),
        (lambda X, y: (X @ X.T, y, "hinge", {"kernel": True}), ("shape",)),
    ],
)
def test_another_problem(change, fragments, tmp_path):
    X, y, file = written(tmp_path)
    before = file.read_bytes()
    X, y, loss, options = change(X, y)
    with raises(ValueError, "checkpoint must be of the same problem", *fragments, "delete"):
        solve(X, y, loss, checkpoint=file, **options)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("path", "error", "fragments"),
    [
        (3.5, TypeError, ("checkpoint must be the path of a file", "3.5")),
        ("no/such/folder/a.npz", ValueError, ("checkpoint", "folder that exists", "no/such")),
        (".", ValueError, ("checkpoint must be the path of a file", "'.'")),
        ("", ValueError, ("checkpoint must be the path of a file",)),
    ],
)
def test_bad_paths(path, error, fragments):
    X, y = problem(losses.Hinge())
    with raises(error, *fragments):
        solve(X, y, "hinge", checkpoint=path)


def test_a_full_disk_does_not_end_a_training(tmp_path, always, monkeypatch):
    X, y, file = written(tmp_path)
    before = file.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(RuntimeWarning, match="could not be written.*No space left"):
        solution = solve(X, y, "hinge", tol=1e-4, max_epochs=5000, checkpoint=file)
    assert solution.converged
    assert file.read_bytes() == before


def test_written_now_and_then(tmp_path, monkeypatch):
    X, y = problem(losses.Hinge(), n=40)
    count = []
    write = checkpoints.write_arrays
    monkeypatch.setattr(checkpoints, "write_arrays", lambda *a: (count.append(1), write(*a)))
    options = {"tol": 0.0, "max_epochs": 10, "method": "sdca", "check_every": 1}
    quietly(X, y, "hinge", checkpoint=tmp_path / "a.npz", **options)
    assert len(count) == 1  # at the end
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    monkeypatch.setattr(checkpoints, "_COST", 0.0)
    quietly(X, y, "hinge", checkpoint=tmp_path / "b.npz", **options)
    assert len(count) == 1 + 10 + 1


# Dual variables in little memory -------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m", [1, 5, 300])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.2, 1.0])
def test_pack(share, m, dtype):
    rng = np.random.default_rng(m)
    matrix = rng.standard_normal((50, m)).astype(dtype) * (rng.random((50, m)) < share)
    held = pack(matrix)
    np.testing.assert_array_equal(unpack(held), matrix)
    assert unpack(held).dtype == dtype
    if share == 1.0:
        assert unpack(held) is matrix
    elif m == 300:
        size = sum(array.nbytes for array in held.values())
        assert size < max(0.6 * matrix.nbytes, 450)
        assert size < 2.1 * share * matrix.nbytes + 450
        assert not unpack(held).flags.writeable


@pytest.mark.parametrize("n_rows", [1, 7, 50, 80])
@pytest.mark.parametrize("shares", [(0.01, 0.01), (1.0, 1.0), (1.0, 0.01), (0.01, 1.0)])
def test_dual_in_blocks(shares, n_rows):
    """It is the matrix, whether blocks are packed, are not, or change from one to the other."""
    rng = np.random.default_rng(0)
    matrix = np.zeros((50, 300), np.float32)
    held = BlockedDual(matrix.shape, matrix.dtype, n_rows)
    np.testing.assert_array_equal(np.asarray(held), matrix)
    for share in shares:
        for number in rng.permutation(-(-50 // n_rows)):
            rows = slice(number * n_rows, min(50, (number + 1) * n_rows))
            block = held[rows]
            np.testing.assert_array_equal(block, matrix[rows])
            block *= rng.random(block.shape) < share
            block += rng.standard_normal(block.shape) * (rng.random(block.shape) < share)
            matrix[rows] = block
            held[rows] = block
        some = rng.permutation(50)[:20]
        np.testing.assert_array_equal(held[some], matrix[some])
        values = held[some] * np.float32(2)
        held[some] = values
        matrix[some] = values
        np.testing.assert_array_equal(held.copy(), matrix)
        np.testing.assert_array_equal(unpack(pack(held)), matrix)
        np.testing.assert_array_equal(np.asarray(BlockedDual.of(matrix, n_rows)), matrix)
        assert held.copy() is not held.whole
    if shares[-1] < 0.1 and n_rows > 1:
        assert held.size < 0.1 * matrix.size
    if shares == (1.0, 1.0):
        assert pack(held)["dense"] is held.whole


def test_solutions_are_small(tmp_path):
    """Those of a hinge loss hold the few dual variables that are not 0, pickled or not."""
    X, y = problem(losses.Hinge(), n=300, d=30, m=100)
    loss = losses.Hinge()
    file = tmp_path / "training.npz"
    options = {"tol": 1e-3, "max_epochs": 2000, "method": "sdca", "random_state": 0, "C": 10.0}
    solution = solve(X, y, loss, checkpoint=file, **options)
    dual = solution.dual
    assert (dual != 0).mean() < 0.2
    np.testing.assert_allclose(X.T @ dual, solution.coef, atol=1e-10)
    held = vars(solution)["dual"]
    assert sum(array.nbytes for array in held.values()) < dual.nbytes / 2
    text = pickle.dumps(solution)
    assert len(text) < dual.nbytes / 2 + solution.coef.nbytes + 20000
    again = pickle.loads(text)
    np.testing.assert_array_equal(again.dual, dual)
    assert file.stat().st_size < dual.nbytes / 2 + solution.coef.nbytes + 20000
    warm = solve(X, y, loss, warm_start=again, **options)
    assert warm.n_epochs == 0
    np.testing.assert_array_equal(warm.dual, dual)
    with pytest.raises(ValueError, match="read-only"):
        solution.dual[0, 0] = 1.0
