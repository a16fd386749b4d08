"""What training says and when it stops: seeds, history, callbacks, Ctrl-C, lines, logs."""

import logging
import re
import sys
from io import StringIO

import numpy as np
import pytest

from topkopt import ConvergenceWarning, losses, solve

from .loss_cases import CASES
from .trainings import assert_same_optimum, objectives, problem, quietly, some, uninterrupted


@some
def test_same_seed_same_bits(loss):
    X, y = problem(loss, n=60)
    results = [
        solve(X, y, loss, random_state=seed, tol=1e-5, max_epochs=10000)
        for seed in (7, 7, np.random.default_rng(7), np.random.RandomState(7), 8)
    ]
    for name in ("coef", "dual"):
        first = getattr(results[0], name)
        for same in results[1:3]:
            np.testing.assert_array_equal(getattr(same, name), first)
        assert not np.array_equal(getattr(results[4], name), first)
    for other in results:
        assert_same_optimum(results[0], other)
    assert results[0].primal == results[1].primal
    assert results[0].gap == results[1].gap


def test_history():
    loss = losses.Softmax()
    X, y = problem(loss)
    solution = solve(X, y, loss, tol=1e-8, random_state=0)
    history = solution.history
    assert list(history) == ["epoch", "seconds", "primal", "dual", "gap", "method"]
    assert all(
        isinstance(a, np.ndarray) and a.shape == history["gap"].shape for a in history.values()
    )
    assert history["epoch"][0] == 0
    assert history["epoch"][-1] == solution.n_epochs
    assert (np.diff(history["epoch"]) > 0).all()
    assert (np.diff(history["seconds"]) >= 0).all()
    assert (np.diff(history["dual"]) >= -1e-12).all()
    assert (history["gap"][:-1] > 1e-8).all()
    last = history["primal"][-1], history["dual"][-1], history["gap"][-1]
    assert last == (solution.primal, solution.dual_value, solution.gap)
    size = np.maximum(np.abs(history["primal"]), np.abs(history["dual"]))
    np.testing.assert_allclose(history["gap"], (history["primal"] - history["dual"]) / size)


@pytest.mark.parametrize(("every", "epochs"), [(1, [0, 1, 2, 3, 4]), (3, [0, 3, 4]), (9, [0, 4])])
def test_check_every_and_max_epochs(every, epochs):
    loss = losses.Softmax()
    X, y = problem(loss)
    solution = quietly(X, y, loss, tol=0.0, max_epochs=4, check_every=every, random_state=0)
    assert solution.history["epoch"].tolist() == epochs
    assert solution.n_epochs == 4
    every_epoch = quietly(X, y, loss, tol=0.0, max_epochs=4, check_every=1, random_state=0)
    np.testing.assert_array_equal(solution.dual, every_epoch.dual)


def test_not_converged_warns_with_both_figures():
    loss = losses.Softmax()
    X, y = problem(loss)
    with pytest.warns(ConvergenceWarning) as caught:
        solution = solve(X, y, loss, tol=1e-13, max_epochs=2)
    message = str(caught[0].message)
    assert len(caught) == 1
    assert f"{solution.gap:.3e}" in message
    assert "1.000e-13" in message
    assert "max_epochs" in message
    assert caught[0].filename == __file__
    assert not solution.converged
    assert solution.n_epochs == 2


@some
def test_report(loss):
    X, y = problem(loss)
    solution = solve(X, y, loss, C=2.0, tol=1e-4, max_epochs=10000)
    report = solution.report()
    for fact in (
        repr(loss),
        "C = 2",
        "20 examples",
        "5 classes",
        f"{solution.n_epochs} epochs",
        f"{solution.gap:.2e}",
        "1.00e-04",
        f"{solution.primal:.10g}",
        f"{solution.dual_value:.10g}",
    ):
        assert fact in report
    assert len(repr(solution)) < 1000


@some
@pytest.mark.parametrize("kernel", [False, True])
def test_callback(loss, kernel):
    X, y = problem(loss)
    states, copies = [], []

    def callback(state):
        states.append(state)
        copies.append(state.dual.copy())
        return state.epoch == 2

    with pytest.warns(ConvergenceWarning, match="stopped"):
        solution = solve(
            X @ X.T if kernel else X,
            y,
            loss,
            tol=0.0,
            method="sdca",
            kernel=kernel,
            check_every=1,
            callback=callback,
        )
    assert [state.epoch for state in states] == [0, 1, 2]
    assert solution.n_epochs == 2
    np.testing.assert_array_equal(copies[-1], solution.dual)
    for name in ("primal", "dual_value", "gap"):
        assert getattr(states[-1], name) == getattr(solution, name)
    assert (states[-1].coef is None) == kernel
    with pytest.raises(AttributeError):
        states[-1].epoch = 3


@some
@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("kernel", [False, True])
def test_interrupt(loss, once, kernel):
    """Ctrl-C, once or again and again, returns what is certified so far, if that is asked for."""
    X, y = problem(loss)
    seen = []

    def callback(state):
        seen.append(state.epoch)
        if state.epoch == 2 and (not once or seen.count(2) == 1):
            raise KeyboardInterrupt

    data = X @ X.T if kernel else X
    with pytest.warns(ConvergenceWarning, match=r"interrupted.*tol=1.000e-14"):
        solution = uninterrupted(
            data,
            y,
            loss,
            tol=1e-14,
            method="sdca",
            kernel=kernel,
            check_every=1,
            callback=callback,
        )
    assert not solution.converged
    assert solution.n_epochs == 2
    assert solution.history["epoch"][-1] == 2
    twin = next(case.twin for case in CASES if type(case.loss) is type(loss))
    twin = type(twin)(**dict(loss._parameters()))
    assert objectives(data, y, twin, solution, kernel=kernel) == pytest.approx(
        (solution.primal, solution.dual_value, solution.gap), rel=1e-10
    )


LINE = r"epoch \d+ +gap \d\.\d+e[+-]\d+ .*\d s"


def test_verbose_lines(capsys):
    loss = losses.Softmax()
    X, y = problem(loss)
    solution = solve(X, y, loss, tol=1e-6, verbose=2)
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert len(lines) == len(solution.history["epoch"])
    assert all(re.fullmatch(LINE + ".*", line) for line in lines)
    assert any("left" in line for line in lines)


@pytest.mark.parametrize("verbose", [0, 1])
def test_quiet_without_a_terminal(capsys, verbose):
    X, y = problem(losses.Softmax())
    solve(X, y, losses.Softmax(), verbose=verbose)
    assert capsys.readouterr() == ("", "")


def test_one_line_on_a_terminal(monkeypatch):
    class Terminal(StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    X, y = problem(losses.Softmax())
    solution = solve(X, y, losses.Softmax(), verbose=1)
    shown = terminal.getvalue()
    assert shown.count("\n") == 1
    assert shown.endswith("\n")
    lines = shown.strip().split("\r")
    assert len(lines) == len(solution.history["epoch"])
    assert all(re.match(LINE, line) for line in lines)


def test_logger(caplog):
    X, y = problem(losses.Softmax())
    with caplog.at_level(logging.INFO, logger="topkopt"):
        solution = solve(X, y, losses.Softmax())
    assert [record.name for record in caplog.records] == ["topkopt"] * len(
        solution.history["epoch"]
    )
    assert f"{solution.gap:.2e}" in caplog.messages[-1]
