"""The loss without a certificate."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from topkopt import ConvergenceWarning, losses, reference, solve

from .trainings import problem, uninterrupted


def truncated_objective(X, y, k, C, coef):
    value = reference.TruncatedTopKEntropy(k).value
    total = sum(value(s, label) for s, label in zip(X @ coef, y, strict=True))
    return (C * total + 0.5 * (coef**2).sum()) / (C * len(X))


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("data", ["dense", "sparse", "kernel"])
def test_truncated(k, data):
    loss = losses.TruncatedTopKEntropy(k)
    X, y = problem(loss, n=40)
    form = {"dense": X, "sparse": scipy.sparse.csr_array(X), "kernel": X @ X.T}[data]
    options = {"C": 3.0, "kernel": data == "kernel", "tol": 1e-8, "random_state": 0}
    states = []
    solution = solve(form, y, loss, callback=states.append, **options)
    softmax = solve(X, y, losses.Softmax(), **{**options, "kernel": False})
    coef = X.T @ solution.dual if data == "kernel" else solution.coef
    start, end = (truncated_objective(X, y, k, 3.0, W) for W in (softmax.coef, coef))
    assert states[0].primal == pytest.approx(start, rel=1e-4)
    assert solution.primal == pytest.approx(end, rel=1e-10)
    assert end < start - 1e-4 if k > 1 else end <= start + 1e-9
    assert np.isnan(solution.gap)
    assert np.isnan(solution.dual_value)
    assert solution.converged
    assert "no certificate" in solution.report()
    assert "not convex" in solution.report()
    assert solution.dual.shape == (40, 5)
    assert (solution.coef is None) == (data == "kernel")
    assert np.isnan(solution.history["gap"]).all()
    assert (np.diff(solution.history["primal"]) <= 1e-12).all()
    again = solve(form, y, loss, **options)
    np.testing.assert_array_equal(again.dual, solution.dual)
    warm = solve(form, y, loss, warm_start=solution, **options)
    assert warm.primal <= solution.primal + 1e-12


def test_truncated_stops_and_says_so(capsys):
    loss = losses.TruncatedTopKEntropy(2)
    X, y = problem(loss, n=40)
    with pytest.warns(ConvergenceWarning, match="max_epochs=2 reached"):
        solve(X, y, loss, tol=1e-9, max_epochs=2, warm_start=solve(X, y, losses.Softmax()))
    with pytest.warns(ConvergenceWarning):
        solution = solve(X, y, loss, tol=1e-4, callback=lambda state: state.epoch == 1, verbose=2)
    assert solution.n_epochs == 1
    assert "objective" in capsys.readouterr().out
    single = solve(X.astype(np.float32), y, loss)
    assert single.coef.dtype == single.dual.dtype == np.float32


@pytest.mark.parametrize("at", [0, 1])
def test_truncated_interrupt(at):
    loss = losses.TruncatedTopKEntropy(2)
    X, y = problem(loss, n=40)

    def callback(state):
        if state.epoch == at:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        solution = uninterrupted(X, y, loss, tol=1e-6, callback=callback)
    assert solution.primal == pytest.approx(
        truncated_objective(X, y, 2, 1.0, solution.coef), rel=1e-10
    )
