"""Which method `method="auto"` goes on with; that all end at the optimum is tested elsewhere."""

import numpy as np
import pytest
import scipy.sparse

from topkopt import losses, solve
from topkopt.solvers import auto
from topkopt.solvers.problem import as_problem


def overlapping(n, d, m, noise=1.0, seed=0):
    """Return classes around random means, which many examples are nearer to than to their own."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % m
    X = rng.standard_normal((m, d))[y] + noise * rng.standard_normal((n, d))
    return (X - X.mean(axis=0)) / (X.std(axis=0) * np.sqrt(d)), y


def methods(X, y, loss, **options):
    """Return the methods that made the steps, each once, and what they found."""
    solution = solve(X, y, loss, random_state=0, **options)
    assert solution.converged
    return list(dict.fromkeys(map(str, solution.history["method"]))), solution


SOFTMAX, SMOOTHED, HINGE = losses.Softmax(), losses.Hinge(smoothing=1.0), losses.Hinge()


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((6000, 12, 8), float),  # few features: a preconditioner of a block for each class
        ((3000, 300, 5), float),  # few classes: an epoch is mostly what surrounds its products
        ((6000, 160, 40), np.float32),  # single precision: products are fast, searches are not
    ],
)
def test_softmax_begins_with_lbfgs_where_an_evaluation_is_cheap(shape, dtype):
    X, y = overlapping(*shape, noise=2.0)
    assert methods(X.astype(dtype), y, SOFTMAX, tol=1e-3)[0] == ["lbfgs"]


@pytest.mark.parametrize(("C", "first"), [(0.01, "lbfgs"), (10.0, "sdca")])
def test_softmax_begins_with_lbfgs_where_few_evaluations_are_needed(C, first):
    X, y = overlapping(1200, 400, 60)
    assert methods(X, y, SOFTMAX, C=C, tol=1e-3)[0][0] == first


def test_the_condition_of_huge_features_is_not_small():
    X, y = overlapping(900, 40, 5)
    held = as_problem(1e150 * X, y, SOFTMAX, 1e7, None, False, None)
    assert not auto._condition(held) < auto._CONDITION


@pytest.mark.parametrize("weight", [1.0, 4.0])
def test_the_condition_is_that_of_the_hessian(weight):
    X, y = overlapping(900, 40, 5)
    held = as_problem(X, y, SOFTMAX, 2.0, np.full(900, weight), False, None)
    exact = 1 + 0.25 * 2.0 * weight * np.linalg.eigvalsh(X.T @ X)[-1]
    assert auto._condition(held) == pytest.approx(exact, rel=0.3)


def test_softmax_begins_with_epochs_where_they_are_cheap():
    X, y = overlapping(1000, 600, 10)
    assert methods(X, y, SOFTMAX, tol=1e-3)[0][0] == "sdca"  # more features than half the rows
    X, y = overlapping(3000, 300, 5)
    assert methods(scipy.sparse.csr_array(X), y, SOFTMAX, tol=1e-3)[0][0] == "sdca"
    X, y = overlapping(60, 4, 3)
    assert methods(X, y, SOFTMAX, tol=1e-3)[0] == ["sdca"]  # over before L-BFGS has begun


def test_a_smoothed_loss_goes_on_with_lbfgs_only_where_its_blocks_pay():
    X, y = overlapping(6000, 6, 8)
    used, found = methods(X, y, SMOOTHED, C=100.0, tol=1e-8)
    assert used == ["sdca", "lbfgs"]
    by_hand = solve(X, y, SMOOTHED, C=100.0, tol=1e-8, method="sdca", random_state=0)
    assert found.primal == pytest.approx(by_hand.primal, rel=1e-7)
    assert found.n_epochs < by_hand.n_epochs
    assert methods(X, y, SMOOTHED, C=0.01, tol=1e-8)[0] == ["sdca"]  # there are few passes
    assert "lbfgs" not in methods(scipy.sparse.csr_array(X), y, SMOOTHED, C=100.0, tol=1e-8)[0]


def test_a_hinge_goes_on_with_newton_where_passes_are_many():
    X, y = overlapping(1500, 5, 8)
    used, found = methods(X, y, HINGE, C=1000.0, tol=1e-9, max_epochs=20000)
    assert used == ["sdca", "newton"]
    by_hand = solve(X, y, HINGE, C=1000.0, tol=1e-9, method="sdca", max_epochs=20000)
    assert found.n_epochs < by_hand.n_epochs
    assert methods(X, y, HINGE, C=1e-3, tol=1e-9)[0] == ["sdca"]


def test_newton_comes_sooner_where_max_epochs_would_end_the_passes():
    X, y = overlapping(900, 12, 6)
    options = {"C": 100.0, "tol": 1e-8}
    passes = solve(X, y, HINGE, method="sdca", max_epochs=20000, random_state=0, **options).n_epochs
    first = []
    for most in (20000, passes * 2 // 3):
        history = methods(X, y, HINGE, max_epochs=most, **options)[1].history
        first.append(history["epoch"][list(history["method"]).index("newton")])
    assert first[1] < first[0]


def test_lbfgs_gives_way_after_as_many_evaluations_as_passes_were_left(monkeypatch):
    """On a smoothed hinge that is mostly at rest it is far behind; it is not tried again."""
    monkeypatch.setattr(auto, "_FEW", 0.0)
    X, y = overlapping(3000, 20, 10, noise=0.3)
    solution = solve(X, y, SMOOTHED, C=100.0, tol=1e-6, random_state=0)
    names = [str(name) for name in solution.history["method"]]
    assert solution.converged
    turns = [name for place, name in enumerate(names) if names[place - 1 : place] != [name]]
    assert turns == ["sdca", "lbfgs", "sdca"]


@pytest.mark.parametrize(("loss", "C"), [(SMOOTHED, 1000.0), (HINGE, 1000.0), (SOFTMAX, 10.0)])
def test_a_seed_repeats_methods_and_bits(loss, C):
    X, y = overlapping(1500, 5, 8)
    first, second = (solve(X, y, loss, C=C, tol=1e-7, random_state=3) for _ in range(2))
    assert first.coef.tobytes() == second.coef.tobytes()
    assert list(first.history["method"]) == list(second.history["method"])
