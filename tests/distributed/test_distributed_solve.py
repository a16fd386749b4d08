import os
import subprocess
import sys

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse

from topkopt import ConvergenceWarning, losses, solve
from topkopt.distributed import RowsOfFile
from topkopt.distributed import solve as solve_on_cluster
from topkopt.distributed.ascent import Sweep, begin, dual_of, pull_of, sums_of, visit
from topkopt.distributed.partition import Terms, make_partition

# Dask leaves sockets to the garbage collector when it looks for its address.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in.*socket")


def examples(n=90, d=4, m=3, multilabel=False, seed=0, dtype=float):
    """Return classes that overlap, so that no loss is 0 at the optimum."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % m)
    X = rng.normal(size=(m, d))[y] + rng.normal(size=(n, d))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(dtype)
    if multilabel:
        return X, np.eye(m, dtype=bool)[y] | (rng.random((n, m)) < 0.2)
    return X, y


def in_chunks(X, y, rows=15):
    return da.from_array(X, chunks=(rows, -1)), da.from_array(y, chunks=(rows, *y.shape[1:]))


def made(cls):
    taken = cls.declaration.parameters
    return cls(
        **({"k": 2} if "k" in taken else {}),
        **({"weights": [0.6, 0.4]} if "weights" in taken else {}),
    )


CONVEX = [cls for cls in losses.classes() if cls.declaration.convex]


@pytest.mark.parametrize("cls", CONVEX, ids=lambda cls: cls.__name__)
def test_agrees_with_one_machine(client, cls):
    loss = made(cls)
    X, y = examples(multilabel="multiclass" not in cls.declaration.tasks)
    there = solve_on_cluster(*in_chunks(X, y), loss, C=0.1, tol=1e-4, random_state=0)
    here = solve(X, y, loss, C=0.1, tol=1e-7, random_state=0)
    assert there.converged
    assert there.primal >= here.dual_value * (1 - 1e-12)
    assert there.dual_value <= here.primal * (1 + 1e-12)
    assert there.primal == pytest.approx(here.primal, rel=1e-4)
    assert there.dual is None
    assert set(there.history["method"]) == {"lbfgs" if loss.smooth else "sdca"}


def test_coordinate_ascent_trains_smooth_losses_too(client):
    X, y = examples()
    chunked = in_chunks(X, y)
    there = solve_on_cluster(*chunked, "softmax", C=0.1, method="sdca", tol=1e-4, random_state=0)
    assert there.converged
    assert set(there.history["method"]) == {"sdca"}
    assert there.primal == pytest.approx(solve(X, y, "softmax", C=0.1, tol=1e-7).primal, rel=1e-4)


@pytest.mark.parametrize("loss", ["hinge", "softmax"])
def test_the_certificate_is_that_of_what_comes_back(client, loss):
    X, y = examples()
    weight = np.random.default_rng(1).integers(0, 3, len(X))
    X[:30][y[:30] == 2] = 0
    there = solve_on_cluster(
        *in_chunks(X, y),
        loss,
        sample_weight=weight,
        C=0.1,
        tol=1e-4,
        keep_dual=True,
        random_state=0,
    )
    loss, cost = losses.get(loss), 0.1 * weight
    scores, v = X @ there.coef, -there.dual[cost > 0] / cost[cost > 0, None]
    pull = X.T @ there.dual
    primal = cost @ loss.value(scores, y) + 0.5 * (there.coef**2).sum()
    dual = -cost[cost > 0] @ loss.conjugate(v, y[cost > 0]) - 0.5 * (pull**2).sum()
    assert there.primal * 0.1 * len(X) == pytest.approx(primal, rel=1e-9)
    assert there.dual_value * 0.1 * len(X) == pytest.approx(dual, rel=1e-9)
    assert np.array_equal(there.cost, cost)
    assert not there.dual[weight == 0].any()


@pytest.mark.parametrize("loss", ["hinge", "softmax"])
def test_single_precision_is_kept(client, loss):
    X, y = examples(dtype=np.float32)
    there = solve_on_cluster(*in_chunks(X, y), loss, C=0.1, tol=1e-4, keep_dual=True)
    assert there.converged
    assert there.coef.dtype == there.dual.dtype == np.float32
    assert there.primal == pytest.approx(solve(X, y, loss, C=0.1, tol=1e-5).primal, rel=1e-4)
    if loss == "hinge":
        assert X.T @ there.dual == pytest.approx(there.coef, abs=1e-5)


def test_rows_come_in_many_forms(client, tmp_path):
    X, y = examples()
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    X.tofile(tmp_path / "X.bin")
    cuts = [(0, 40), (40, 40), (40, 90)]

    def opened(name, **plain):
        return [RowsOfFile(tmp_path / name, *cut, **plain) for cut in cuts]

    def delayed(array):
        return [dask.delayed(lambda rows=array[slice(*cut)]: rows)() for cut in cuts]

    sparse = da.from_array(X, chunks=(30, -1)).map_blocks(scipy.sparse.csr_array)
    by_columns = da.from_array(X, chunks=(30, 2))
    unknown = da.from_array(X, chunks=(30, -1))
    unknown = unknown[da.from_array(np.ones(len(X), bool), chunks=30)]
    assert np.isnan(unknown.shape[0])
    forms = {
        "files": (opened("X.npy"), opened("y.npy")),
        "files of plain numbers": (opened("X.bin", dtype="f8", n_columns=4), y),
        "delayed": (delayed(X), delayed(y)),
        "futures": (client.compute(delayed(X)), client.compute(delayed(y))),
        "an array and labels here": (da.from_array(X, chunks=(30, -1)), y.tolist()),
        "labels in other chunks": (by_columns, da.from_array(y, chunks=45)),
        "sparse": (sparse, y),
        "of unknown length": (unknown, y),
    }
    optimum = solve(X, y, "softmax", C=0.1, tol=1e-9).coef
    for name, form in forms.items():
        found = solve_on_cluster(*form, "softmax", C=0.1, tol=1e-9, sample_weight=np.ones(len(y)))
        assert found.coef == pytest.approx(optimum, abs=1e-4), name


def test_partitions_without_some_classes_or_weights(client):
    X, y = examples()
    order, weight = np.argsort(y), np.ones(len(y))
    X, y, weight[:15] = X[order], y[order], 0
    here = solve(X, y, "hinge", C=0.1, tol=1e-7, sample_weight=weight, random_state=0)
    there = solve_on_cluster(
        *in_chunks(X, y),
        "hinge",
        C=0.1,
        tol=1e-4,
        sample_weight=da.from_array(weight, chunks=15),
        n_partitions=6,
        random_state=0,
    )
    assert there.primal == pytest.approx(here.primal, rel=1e-4)


def test_a_loss_that_is_not_convex(client):
    X, y = examples()
    loss = losses.TruncatedTopKEntropy(1)
    here, there = solve(X, y, loss, C=0.1), solve_on_cluster(*in_chunks(X, y), loss, C=0.1)
    assert np.isnan(there.gap)
    assert there.converged
    assert there.primal == pytest.approx(here.primal, rel=1e-3)


def test_repeats_bit_for_bit(client):
    X, y = examples()
    for loss in ("hinge", "softmax"):
        one, other = (
            solve_on_cluster(
                *in_chunks(X, y), loss, C=0.03, n_partitions=3, random_state=4, tol=1e-3
            ).coef
            for _ in range(2)
        )
        assert np.array_equal(one, other)


@pytest.mark.parametrize("loss", ["hinge", "softmax"])
def test_a_warm_start_goes_on(client, loss):
    X, y = examples()
    chunked = in_chunks(X, y)
    first = solve_on_cluster(*chunked, loss, C=0.03, tol=1e-4, keep_dual=True, random_state=0)
    again = solve_on_cluster(*chunked, loss, C=0.03, tol=2e-4, warm_start=first, random_state=0)
    assert again.n_epochs <= 1
    further = solve_on_cluster(*chunked, loss, C=0.05, tol=1e-4, warm_start=first, random_state=0)
    assert further.primal == pytest.approx(solve(X, y, loss, C=0.05, tol=1e-7).primal, rel=1e-4)


def test_callbacks_see_states_and_stop(client):
    X, y = examples()
    states = []

    def callback(state):
        states.append(state)
        return len(states) == 3

    with pytest.warns(ConvergenceWarning, match="stopped by the callback"):
        found = solve_on_cluster(*in_chunks(X, y), "hinge", tol=1e-9, callback=callback)
    assert len(states) == len(found.history["gap"]) == 3
    assert np.array_equal(states[-1].coef, found.coef)
    assert states[0].dual is None


def test_local_epochs_and_checks_by_number(client):
    X, y = examples()
    optimum = solve(X, y, "hinge", C=0.1, tol=1e-7, random_state=0).primal
    for options in ({"local_epochs": 0.5}, {"local_epochs": 4}, {"check_every": 2}):
        found = solve_on_cluster(
            *in_chunks(X, y), "hinge", C=0.1, tol=1e-3, random_state=0, **options
        )
        assert found.converged
        assert found.primal == pytest.approx(optimum, rel=1e-3)


@pytest.mark.parametrize("loss", ["hinge", "softmax"])
def test_what_travels_is_of_the_size_of_the_weights(client, loss):
    """A round brings W to a worker, and a change of its size away; the rows never travel."""
    X, y = examples(n=4000, d=20, m=10)
    seen = []

    def moved(dask_worker):
        incoming = sum(entry["total"] for entry in dask_worker.transfer_incoming_log)
        return incoming + dask_worker.transfer_outgoing_bytes_total

    def callback(state):
        seen.append(client.run(moved))
        return len(seen) == 9

    with pytest.warns(ConvergenceWarning, match="stopped by the callback"):
        solve_on_cluster(
            *in_chunks(X, y, rows=2000), loss, tol=0, check_every=1, C=0.1, callback=callback
        )
    matrix = 20 * 10 * 8
    for worker in seen[2]:
        # In a round or an evaluation W comes, with the rounds once more for the certificate, and
        # sums of its size go from worker to worker and to the client; all with some wrapping.
        per_round = (seen[8][worker] - seen[2][worker]) / 6
        assert matrix < per_round < 5 * matrix + 2000
        assert per_round < X.nbytes / 50


def test_the_subproblem_is_ordinary_ascent_with_larger_costs():
    """A round of partitions never lowers the dual objective, and W stays X'A."""
    X, y = examples()
    terms = Terms(losses.TopKHinge(2), 0.1, 3)
    parts = [make_partition([X[i::3]], [y[i::3]], None) for i in range(3)]
    ascents = [begin(part, terms, 3.0) for part in parts]
    coef, values = np.zeros((4, 3)), []
    for turn in range(100):
        steps = [
            visit(part, ascent, coef, None, terms, Sweep(2, 0, 1, (turn, i), "auto", 0.0, -1.0))
            for i, (part, ascent) in enumerate(zip(parts, ascents, strict=True))
        ]
        ascents = [after for after, _ in steps]
        coef = coef + sum(change.matrix for _, change in steps)
        pulls = [pull_of(*pair).matrix for pair in zip(parts, ascents, strict=True)]
        assert coef == pytest.approx(sum(pulls), abs=1e-12)
        sums = sum(
            sums_of(part, ascent, coef, terms)[0]
            for part, ascent in zip(parts, ascents, strict=True)
        )
        values.append(-sums[1] - 0.5 * (coef**2).sum())
        assert sums[2] == pytest.approx((coef**2).sum())
    assert np.diff(values).min() >= -1e-12
    best = solve(X, y, terms.loss, C=0.1, tol=1e-9, random_state=0)
    assert values[-1] / (0.1 * len(X)) == pytest.approx(best.primal, rel=3e-3)
    dual = [dual_of(part, ascent, terms) for part, ascent in zip(parts, ascents, strict=True)]
    assert sum(part.data.X.T @ a for part, a in zip(parts, dual, strict=True)) == pytest.approx(
        coef
    )


MISTAKES = {
    "X must be a Dask array": lambda X, y: {"X": np.ones((4, 2)), "y": [0, 1, 0, 1]},
    "y must have one entry per row of X": lambda X, y: {"y": np.zeros(7, int)},
    "y must be one-dimensional": lambda X, y: {"y": np.zeros(len(y))},
    "y must hold at least 2 classes": lambda X, y: {"y": np.zeros(len(y), int)},
    "y must have examples of at least half": lambda X, y: {"y": 9 * (np.arange(len(y)) % 2)},
    "X must be finite": lambda X, y: {"X": X * np.nan},
    "X must have blocks of the same dtype": lambda X, y: {
        "X": [dask.delayed(np.ones)((3, 2), "f4"), dask.delayed(np.ones)((3, 2), "f8")],
        "y": [0, 1, 0, 1, 0, 1],
    },
    "sample_weight must not be all zero": lambda X, y: {"sample_weight": np.zeros(len(y))},
    "sample_weight must be finite": lambda X, y: {"sample_weight": -np.ones(len(y))},
    "method must be one of": lambda X, y: {"method": "newton"},
    "needs a smooth loss": lambda X, y: {"method": "lbfgs"},
    "n_partitions must be": lambda X, y: {"n_partitions": 7},
    "local_epochs must be": lambda X, y: {"local_epochs": "many"},
    "client must be": lambda X, y: {"client": "tcp://127.0.0.1"},
    "warm_start must be a Solution": lambda X, y: {"warm_start": 3},
    "first and last must be rows": lambda X, y: {
        "X": [RowsOfFile(__file__, dtype="u1", first=-1)],
        "y": [0, 1],
    },
}


@pytest.mark.parametrize("message", MISTAKES)
def test_errors_say_what_to_do(client, message):
    X, y = in_chunks(*examples())
    arguments = {"X": X, "y": y, "loss": "hinge", **MISTAKES[message](X, y)}
    with pytest.raises((ValueError, TypeError), match=message):
        solve_on_cluster(**arguments)


def test_the_core_does_without_dask():
    """Neither the library nor this part of it imports Dask before it is needed."""
    code = (
        "import sys; sys.modules['dask'] = sys.modules['distributed'] = None; "
        "import topkopt, topkopt.estimators, topkopt.distributed; "
        "topkopt.distributed.solve([], [], 'hinge')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False
    )
    assert 'pip install "topkopt[dask]"' in ran.stderr
