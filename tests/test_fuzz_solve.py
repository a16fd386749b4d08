"""`solve` on random problems; P, D and feasibility are computed again in NumPy.

Nothing of the library is used for the check but the public `value` and `conjugate` of the losses,
which have a fuzzer of their own. ``--fuzz-seconds`` sets how long it runs, ``--fuzz-seed`` where it
begins.
"""

import warnings

import numpy as np
import scipy.sparse

from topkopt import ConvergenceWarning, losses, solve
from topkopt.solvers.choice import METHODS

KINDS = ("alpha", "beta", "label")


def draw_loss(rng, m):
    k = int(rng.choice([1, m - 1, rng.integers(1, m)]))
    smoothing = float(rng.choice([0.0, 0.0, 1.0, 10.0 ** rng.uniform(-6, 3)]))
    width = int(rng.integers(1, m))
    weights = np.sort(rng.random(width))[::-1] * 10.0 ** rng.uniform(-2, 2)
    return rng.choice(
        np.array(
            [
                losses.Hinge(smoothing),
                losses.TopKHinge(k, KINDS[rng.integers(3)], smoothing),
                losses.WeightedTopKHinge(
                    weights,
                    label=bool(rng.integers(2)),
                    smoothing=smoothing,
                    envelope=("others", "all")[rng.integers(2)],
                ),
                losses.Softmax(),
                losses.TopKEntropy(k),
                losses.OneVsAllHinge(smoothing),
                losses.OneVsAllLogistic(),
                losses.MultilabelHinge(smoothing),
                losses.MultilabelSoftmax(),
            ],
            dtype=object,
        )
    )


def draw_features(rng, n):
    d = int(rng.choice([0, 1, 2, 5, 30, 90]))
    X = rng.standard_normal((n, d))
    style = rng.integers(6)
    if style == 1:
        X = np.round(X)  # ties, rows of zeros, equal rows
    elif style == 2:
        X *= 10.0 ** rng.uniform(-4, 4, (n, 1))  # rows of all lengths
    elif style == 3:
        X *= rng.random((n, d)) < 0.2
    elif style == 4 and d:
        X[:] = X[:1]  # all the same
    return X * 10.0 ** (rng.uniform(-60, 60) if rng.random() < 0.2 else rng.uniform(-2, 2))


def draw_problem(rng):
    n, m = int(rng.integers(1, 60)), int(rng.choice([2, 3, 4, 7, 20, 70]))
    loss = draw_loss(rng, m)
    X = draw_features(rng, n)
    y = rng.integers(0, m, n)
    if loss.multilabel and rng.random() < 0.7:
        y = rng.random((n, m)) < rng.choice([0.0, 0.2, 0.5, 1.0])
    options = {
        "C": float(10.0 ** rng.uniform(-4, 4) / max(1e-300, np.mean((X**2).sum(1)) or 1.0)),
        "tol": float(rng.choice([1e-2, 1e-5, 1e-9])),
        "max_epochs": int(rng.integers(1, 60)),
        "random_state": int(rng.integers(1000)),
        "n_classes": m,
        "check_every": int(rng.choice([1, 1, 3])),
    }
    if rng.random() < 0.4:
        weight = rng.choice([0.0, 0.5, 1.0, 3.0, 1e-6], n)
        options["sample_weight"] = weight if weight.any() else None
    if isinstance(loss, losses.TopKHinge | losses.WeightedTopKHinge) and rng.random() < 0.3:
        able = [method for method in METHODS if loss.smooth or method != "lbfgs"]
        options["method"] = str(rng.choice(able))
    dtype = np.float32 if rng.random() < 0.3 else np.float64
    if dtype == np.float32:
        X = X / max(1e-30, np.abs(X).max(initial=0.0))
        options["C"] = float(10.0 ** rng.uniform(-3, 3))
    return X.astype(dtype), y, loss, options


def check(rng, X, y, loss, options):
    exact = X.astype(np.float64)
    form = rng.choice(["dense", "fortran", "sparse", "kernel"])
    data = {"dense": X, "fortran": np.asfortranarray(X), "sparse": scipy.sparse.csr_array(X)}
    K = exact @ exact.T
    if form == "kernel":
        data["kernel"] = K.astype(X.dtype)
        options = {**options, "kernel": True}
    else:
        options = {**options, "block_size": ["auto", 1, 2, 7, 64][rng.integers(5)]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = solve(data[str(form)], y, loss, **options)
    warned = any(issubclass(entry.category, ConvergenceWarning) for entry in caught)
    assert warned != solution.converged, "a warning is given if and only if it did not converge"
    assert all(issubclass(entry.category, ConvergenceWarning) for entry in caught), caught[0]

    eps = np.finfo(X.dtype).eps
    n, C = len(X), options["C"]
    weight = options.get("sample_weight")
    cost = C * (np.ones(n) if weight is None else np.asarray(weight, float))
    used = cost > 0
    A = solution.dual.astype(np.float64)
    assert not A[~used].any(), "an example of weight 0 takes no part"
    labels = y[used]
    V = -A[used] / cost[used, None]
    conjugates = loss.conjugate(np.asarray(V), labels)
    if X.dtype == np.float64:
        # The domains hold 0 and are convex: what rounding put outside is inside after it shrinks.
        inside = loss.conjugate(V * (1 - 1e-8), labels)
        assert np.isfinite(inside).all(), "the dual variables are feasible"
        conjugates = np.where(np.isfinite(conjugates), conjugates, inside)
    coef = exact.T @ A
    if form == "kernel":
        scores, square = K @ A, float(np.vdot(A, K @ A))
    else:
        scores = exact @ solution.coef.astype(np.float64)
        square = float(np.vdot(solution.coef.astype(np.float64), solution.coef.astype(np.float64)))
        unit = np.abs(exact).T @ np.abs(A)
        off = np.abs(solution.coef - coef)
        if solution.history["method"][-1] not in ("lbfgs", "newton"):  # which have a W of their own
            assert (off <= 64 * eps * unit + np.finfo(X.dtype).tiny).all(), "W = X'A"
    total = float(cost[used] @ loss.value(scores[used], labels))
    scale = 1.0 / (C * n)
    primal = scale * (total + 0.5 * square)
    # What rounding of the scores makes of the losses, which change at most by 2 times as much.
    width = np.abs(loss.weights).sum() if isinstance(loss, losses.WeightedTopKHinge) else 1.0
    width = max(1.0, width) * (scores.shape[1] if type(loss).__name__.startswith("One") else 1.0)
    if form == "kernel":
        reach = np.abs(K) @ np.abs(A) + np.sqrt(n) * np.diagonal(K).max() * np.abs(A)
    else:
        reach = np.abs(exact) @ np.abs(solution.coef.astype(np.float64))
    noise = scale * float(cost[used] @ (width * reach[used].max(axis=1, initial=0.0)))
    # Each of the m entries of a row may add its rounding to a value.
    slack = (64 + 2 * scores.shape[1]) * eps * (abs(primal) + scale * square + 8 * noise) + 1e-300
    assert abs(solution.primal - primal) <= slack, f"P is {primal}, off {solution.primal - primal}"
    if X.dtype == np.float64:
        dual = scale * (-float(cost[used] @ conjugates) - 0.5 * float(np.vdot(coef, coef)))
        sizes = np.abs(conjugates) + np.abs(inside - conjugates) / (64 * eps)
        room = slack + 64 * eps * scale * (float(cost[used] @ sizes) + square)
        assert abs(solution.dual_value - dual) <= room, f"D is {dual}, not {solution.dual_value}"
        assert solution.primal - solution.dual_value >= -room, "weak duality"
    size = max(abs(solution.primal), abs(solution.dual_value))
    gap = (solution.primal - solution.dual_value) / size if size else 0.0
    assert solution.gap == gap or abs(solution.gap - gap) < 1e-15
    if solution.converged:
        assert solution.gap <= options["tol"]


def test_fuzz_solve(fuzz_rounds):
    rounds = 0
    for seed, rng in fuzz_rounds:
        X, y, loss, options = draw_problem(rng)
        try:
            check(rng, X, y, loss, options)
        except Exception as error:
            raise AssertionError(
                f"seed {seed}: {loss!r}, X of {X.dtype} {X.shape}, {options}: {error}"
            ) from error
        rounds += 1
    assert rounds > 0
