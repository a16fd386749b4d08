"""A certificate is never given without ground: scales, kernels, broken matrices, interrupts."""

import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_iris
from sklearn.metrics.pairwise import sigmoid_kernel

import topkopt
from topkopt import ConvergenceWarning, losses, solve
from topkopt._threads import Team
from topkopt.solvers.certificate import Certificate
from topkopt.solvers.threads import threads_for

from .expect import raises
from .loss_cases import CONVEX, over
from .trainings import problem, quietly

convex = over(CONVEX)
RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 5))
Y = RNG.integers(0, 4, 60)


# Scales ---------------------------------------------------------------------------------------


@convex
@pytest.mark.parametrize("block_size", [1, 16])
def test_features_too_large_for_their_squares_are_refused(case, block_size):
    rows, y = problem(case.loss)
    for data in (rows * 1e160, scipy.sparse.csr_array(rows * 1e160)):
        with raises(ValueError, "X must", "squared norm", "scale the features"):
            solve(data, y, case.loss, block_size=block_size)


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e-19, 1e-10, 1e10, 1e18, 1e19, 1e20])
@pytest.mark.parametrize("block_size", [1, 16, "auto"])
@pytest.mark.parametrize("loss", [losses.Softmax(), losses.TopKHinge(2, smoothing=1.0)], ids=repr)
def test_float32_at_every_scale(loss, block_size, scale):
    """W/scale solves the problem of scale 1 for C/scale^2: solved, where float32 holds C."""
    C = 0.5 / scale**2
    data = (X * scale).astype(np.float32)
    options = {"tol": 1e-4, "random_state": 0, "block_size": block_size}
    if float(np.finfo(np.float32).max) < C:
        with raises(ValueError, "C times sample_weight", "float32", "scale the features"):
            solve(data, Y, loss, C=C, **options)
        return
    expected = solve(X.astype(np.float32), Y, loss, C=0.5, **options)
    solution = solve(data, Y, loss, C=C, **options)
    assert solution.converged
    assert solution.primal == pytest.approx(expected.primal, rel=2e-4)
    assert solution.objective == pytest.approx(solution.primal * C * 60, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_repeated_features_of_any_scale(dtype):
    """Next to 1e16 the identity of the regulariser is lost in rounding, and X'X is singular."""
    data = (np.hstack([X, X, X[:, :1]]) * 1e8).astype(dtype)
    solution = quietly(data, Y, "softmax", method="lbfgs", max_epochs=50)
    assert 0.0 < solution.primal < np.log(4.0)  # that of W = 0


@pytest.mark.parametrize("C", [5e-324, 1e-310, 1e307, 1e308])
def test_C_that_cannot_be_divided_by(C):
    with raises(ValueError, "C must be between", repr(C), "scale the features"):
        solve(X, Y, "softmax", C=C)
    with raises(ValueError, "C must be between", repr(C)):
        topkopt.path(X, Y, "softmax", Cs=[C])


@pytest.mark.parametrize(
    ("C", "weight"), [(1e-300, 1e-20), (1e300, 1e20), (1e-300, np.r_[1e-20, np.ones(59)])]
)
def test_weights_times_C_out_of_range(C, weight):
    with raises(ValueError, "C times sample_weight", "scale the features"):
        solve(X, Y, "softmax", C=C, sample_weight=weight)


def test_C_times_norms_out_of_range():
    with raises(ValueError, "C times the squared norm", "1e+100", "scale the features"):
        solve(X * 1e110, Y, "softmax", C=1e100)


@pytest.mark.parametrize("loss", [losses.Softmax(), losses.TruncatedTopKEntropy(2)], ids=repr)
def test_an_objective_that_overflows_is_an_error(loss):
    """Steps keep W in range, but a start from other features need not."""
    small, large = ((X * scale).astype(np.float32) for scale in (1e-15, 1e25))
    start = solve(small, Y, losses.Softmax(), C=1e30, random_state=0)
    with raises(ValueError, "objective finite", "float32", "scale the features"):
        solve(large, Y, loss, C=1e-30, warm_start=replace(start, cost=start.cost / 1e60))


@pytest.mark.parametrize(
    ("gap", "tol", "reached"),
    [(1e-4, 1e-3, True), (2e-3, 1e-3, False), (-1e-14, 0.0, True), (-0.05, 1e-3, False)],
)
def test_a_dual_above_the_primal_certifies_nothing(gap, tol, reached):
    assert Certificate(1.0, 1.0 - gap, gap, rounding=1e-13).reaches(tol) is reached
    assert not Certificate(np.nan, 1.0, np.nan, rounding=np.nan).reaches(tol)


@convex
@pytest.mark.parametrize("C", [1e-6, 1.0, 1e10])
def test_separable_data_with_an_optimum_near_zero(case, C):
    y = np.array([0, 1, 2, 3, 4])
    solution = quietly(np.eye(5) * 1000, y, case.loss, C=C, tol=1e-9, random_state=0)
    size = max(abs(solution.primal), abs(solution.dual_value))
    assert solution.primal - solution.dual_value >= -1e-12 * max(size, abs(solution.primal))
    assert not (solution.converged and solution.gap > 1e-9)


# Kernels ---------------------------------------------------------------------------------------


def gram(dtype=np.float64):
    return (X @ X.T).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", [True, "psd"])
def test_asymmetric_kernels_are_refused(dtype, kernel):
    K = gram(dtype)
    one_off = K.copy()
    one_off[57, 3] += 1e-2
    for wrong in (np.tril(K), np.triu(K), one_off, one_off.T, np.asfortranarray(np.tril(K))):
        with raises(ValueError, "X must be symmetric", "X[", "all pairs"):
            solve(wrong, Y, "softmax", kernel=kernel)
    big = np.eye(1100, dtype=dtype)
    big[1050, 10] = 0.5
    with raises(ValueError, "symmetric", "X[10, 1050] = 0", "X[1050, 10] = 0.5"):
        solve(big, np.arange(1100) % 3, "softmax", kernel=kernel)


def test_rounding_is_no_asymmetry():
    K = gram()
    K[np.triu_indices(60, 1)] *= 1 + 4e-16
    assert solve(K, Y, "softmax", kernel=True).converged


def indefinite():
    iris, y = load_iris(return_X_y=True)
    yield sigmoid_kernel(iris, iris, gamma=0.01), y
    flipped = np.eye(60)
    flipped[0, 1] = flipped[1, 0] = 1.0 + 1e-3
    yield flipped, Y
    hollow = gram()
    hollow[5, 5] = 0.0
    yield hollow, Y
    values, vectors = np.linalg.eigh(gram() + np.eye(60))
    values[7] = -1e-3
    K = (vectors * values) @ vectors.T
    yield (K + K.T) / 2, Y


@pytest.mark.parametrize("case", range(4))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_indefinite_kernels_are_refused(case, dtype):
    K, y = list(indefinite())[case]
    for call in (solve, topkopt.path):
        with raises(ValueError, "positive semi-definite", "certificate", "rbf"):
            call(K.astype(dtype), y, "softmax", kernel=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rank", [0, 1, 2, 5])
@pytest.mark.parametrize("loss", [losses.Hinge(), losses.TopKEntropy(2)], ids=repr)
def test_singular_kernels_train(loss, rank, dtype):
    rng = np.random.default_rng(rank)
    F = rng.standard_normal((40, rank)).astype(dtype)
    y = rng.permutation(np.arange(40) % 3)
    K = F @ F.T
    options = {"C": 10.0, "random_state": 0, "max_epochs": 20000}
    solution = solve((K + K.T) / 2, y, loss, kernel=True, **options)
    linear = solve(F, y, loss, **options)
    assert solution.converged
    assert solution.primal == pytest.approx(linear.primal, rel=3e-3)


def test_the_promise_is_taken():
    """With "psd" no factorisation is done; the same training otherwise."""
    K, y = next(indefinite())
    checked = solve(gram(), Y, "softmax", kernel=True, random_state=0)
    promised = solve(gram(), Y, "softmax", kernel="psd", random_state=0)
    np.testing.assert_array_equal(promised.dual, checked.dual)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("topkopt.solvers.gram._has_cholesky", lambda K, shift: pytest.fail("used"))
        quietly(K, y, "softmax", kernel="psd", max_epochs=1)


@pytest.mark.parametrize("kernel", ["no", "rbf", 1, None])
def test_kernel_is_a_flag_or_a_promise(kernel):
    with raises(TypeError, "kernel must be True or False", "'psd'", repr(kernel)):
        solve(gram(), Y, "softmax", kernel=kernel)


def test_a_path_looks_at_its_kernel_once(monkeypatch):
    looks = []
    original = topkopt.solvers.gram._has_cholesky
    monkeypatch.setattr(
        "topkopt.solvers.gram._has_cholesky",
        lambda K, shift: looks.append(1) or original(K, shift),
    )
    topkopt.path(gram(), Y, "softmax", kernel=True, Cs=[0.1, 1.0, 10.0])
    assert len(looks) == 1


# Sparse matrices -------------------------------------------------------------------------------


def broken(kind):
    """Return matrices that scipy builds without a look at their parts."""
    for name, value, place in [
        ("indices", 5, 3),
        ("indices", 2**31 - 1, 3),
        ("indices", -1, 0),
        ("indptr", -2, 4),
        ("indptr", 10**6, -1),
        ("indptr", 10**6, 7),
        ("indptr", 1, 0),
        ("indptr", 0, 30),
    ]:
        matrix = kind(X)
        getattr(matrix, name)[place] = value
        yield matrix


@pytest.mark.parametrize("case", range(8))
@pytest.mark.parametrize(
    "kind", [scipy.sparse.csr_array, scipy.sparse.csr_matrix], ids=["array", "matrix"]
)
def test_broken_csr_is_refused(kind, case):
    wrong = list(broken(kind))[case]
    for call in (solve, topkopt.path):
        with raises(ValueError, "X must have", "ind", "coo_array"):
            call(wrong, Y, "softmax")
    path = topkopt.path(X, Y, "softmax", Cs=[1.0])
    with raises(ValueError, "X must have", "ind", "coo_array"):
        path.scores(wrong)
    indicator = list(broken(lambda _: kind((X > 0).astype(int))))[case]
    with raises(ValueError, "y must have", "ind", "coo_array"):
        solve(X, indicator, "multilabel_softmax")


def test_broken_csc_is_refused():
    wrong = scipy.sparse.csc_array(X)
    wrong.indices[3] = 60
    with raises(ValueError, "X must have indices from 0 to 59", "60"):
        solve(wrong, Y, "softmax")


def test_sparse_of_one_dimension():
    with raises(ValueError, "X must be a matrix", "(5,)"):
        solve(scipy.sparse.coo_array(X[0]), Y, "softmax")
    with raises(ValueError, "y must", "(60,)"):
        solve(X, scipy.sparse.coo_array(Y.astype(float)), "multilabel_softmax")


# Labels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["softmax", "multilabel_softmax"])
@pytest.mark.parametrize("stray", [50, 10**7, 2**62])
def test_a_stray_label_is_refused(stray, loss):
    y = Y.copy()
    y[7] = stray
    for call in (solve, topkopt.path):
        with raises(ValueError, "y must have", f"4 of {stray + 1}", "encode", "n_classes"):
            call(X, np.where(y == 3, 0, y), loss)


def test_n_classes_are_those_who_mean_it():
    assert solve(X, Y, "softmax", n_classes=30).coef.shape == (5, 30)
    assert topkopt.path(X, Y, "softmax", Cs=[1.0], n_classes=30).coefs.shape == (1, 5, 30)
    with raises(ValueError, "y must hold labels from 0 to 2", "0 to 3"):
        solve(X, Y, "softmax", n_classes=3)
    with raises(ValueError, "y must have one column per class (5)", "4"):
        solve(X, np.eye(4, dtype=int)[Y], "multilabel_softmax", n_classes=5)
    for wrong in (0, -1):
        with raises(ValueError, "n_classes must be at least 1", str(wrong)):
            solve(X, Y, "softmax", n_classes=wrong)
    with raises(TypeError, "n_classes must be an integer", "2.5"):
        solve(X, Y, "softmax", n_classes=2.5)


# Callbacks and Ctrl-C ------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["hinge", losses.TruncatedTopKEntropy(2)], ids=str)
@pytest.mark.parametrize("kernel", [False, True])
def test_states_own_what_they_show(loss, kernel):
    states, copies = [], []

    def callback(state):
        states.append(state)
        copies.append((None if state.coef is None else state.coef.copy(), state.dual.copy()))
        state.dual[:] = np.nan  # to look at, and whatever is done to it stays without effect

    data = gram() if kernel else X
    options = {"kernel": kernel, "random_state": 0, "tol": 1e-9, "max_epochs": 30}
    seen = quietly(data, Y, loss, callback=callback, **options)
    alone = quietly(data, Y, loss, **options)
    np.testing.assert_array_equal(seen.dual, alone.dual)
    assert len(states) > 3
    for state, (coef, _) in zip(states, copies, strict=True):
        if not kernel:
            np.testing.assert_array_equal(state.coef, coef)
    assert not np.array_equal(copies[0][1], copies[-1][1])


@pytest.mark.parametrize("answer", [np.zeros(3), np.array([True, False]), scipy.sparse.eye(2)])
def test_an_answer_that_is_neither_true_nor_false(answer):
    with raises(TypeError, "callback must return True", type(answer).__name__):
        solve(X, Y, "softmax", callback=lambda state: answer)


def test_on_interrupt_is_checked():
    with raises(ValueError, "on_interrupt must be raise or return", "'ignore'"):
        solve(X, Y, "softmax", on_interrupt="ignore")


@pytest.mark.parametrize(
    "loss", [losses.Softmax(), losses.TruncatedTopKEntropy(2), losses.MultilabelHinge()], ids=repr
)
def test_one_interrupt_ends_a_path(loss):
    seen = []

    def callback(state):
        seen.append(state)
        if len(seen) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        topkopt.path(X, Y, loss, Cs=[0.1, 1.0, 10.0], tol=1e-9, callback=callback)
    assert len(seen) == 4


@pytest.mark.parametrize("kind", ["dense", "sparse", "kernel", "pairwise", "frank_wolfe"])
def test_an_interrupt_within_an_epoch(kind):
    """Ctrl-C does not wait for the end of a long epoch: part of the examples was not visited."""
    import _thread

    n, m = (300, 30000) if kind in ("dense", "sparse", "kernel") else (300, 10000)
    features = np.ones((n, 2)) + np.random.default_rng(0).standard_normal((n, 2))
    data = {"sparse": scipy.sparse.csr_array(features), "kernel": features @ features.T}
    loss = losses.OneVsAllLogistic() if m == 30000 else losses.TopKHinge(5000)
    started = threading.Event()
    timer = threading.Thread(
        target=lambda: (started.wait(), threading.Event().wait(0.15), _thread.interrupt_main())
    )

    def callback(state):
        if state.epoch == 0:
            started.set()

    timer.start()
    try:
        with pytest.warns(ConvergenceWarning, match="interrupted"):
            solution = solve(
                data.get(kind, features),
                np.arange(n) % m,
                loss,
                tol=0.0,
                n_classes=m,
                kernel=kind == "kernel",
                method="sdca" if m == 30000 else kind,
                on_interrupt="return",
                callback=callback,
                max_epochs=10**6,
            )
    finally:
        timer.join()
    if m == 30000:
        assert solution.n_epochs == 0
        assert 0 < np.count_nonzero(solution.dual.any(axis=1)) < n


# The rest --------------------------------------------------------------------------------------


def test_the_softmax_phase_of_the_truncated_loss_does_not_warn():
    """Thirty epochs do not suffice for softmax, but the loss that was asked for converges."""
    loss = losses.TruncatedTopKEntropy(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning):
            solve(X, Y, "softmax", C=10.0, max_epochs=30, method="sdca", random_state=0)
        solution = solve(X, Y, loss, C=10.0, max_epochs=30, method="sdca", random_state=0)
    assert solution.converged


@convex
def test_the_objective_of_scikit_learn(case):
    rows, y = problem(case.loss)
    weight = np.linspace(0.5, 2.0, len(rows))
    solution = solve(rows, y, case.loss, C=3.0, sample_weight=weight, random_state=0)
    total = weight @ case.loss.value(rows @ solution.coef, y)
    expected = 0.5 * (solution.coef**2).sum() + 3.0 * total
    assert solution.objective == pytest.approx(expected, rel=1e-10)
    assert f"{solution.objective:.10g}" in solution.report()
    assert f"{solution.primal:.10g}" in solution.report()


def test_duals_are_kept_when_asked_for():
    options = {"Cs": [0.1, 1.0], "random_state": 0}
    kept = topkopt.path(X, Y, "hinge", keep_dual=True, **options)
    plain = topkopt.path(X, Y, "hinge", **options)
    kernel = topkopt.path(gram(), Y, "hinge", kernel=True, **options)
    assert [s.dual for s in plain.solutions] == [None, None]
    np.testing.assert_array_equal(plain.coefs, kept.coefs)
    np.testing.assert_array_equal(plain.gaps, kept.gaps)
    for solution in kept.solutions:
        np.testing.assert_allclose(X.T @ solution.dual, solution.coef, atol=1e-12)
    assert all(s.dual.shape == (60, 4) for s in kernel.solutions)
    assert plain[0].report().splitlines()[0] == kept[0].report().splitlines()[0]
    with raises(ValueError, "warm_start", "dual variables", "keep_dual"):
        solve(X, Y, "hinge", warm_start=plain[0])
    with raises(TypeError, "keep_dual must be True or False", "'yes'"):
        topkopt.path(X, Y, "hinge", keep_dual="yes", **options)


def test_a_path_names_its_C(capsys):
    topkopt.path(X, Y, "softmax", Cs=[0.1, 10.0], verbose=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("C = 0.1 (1 of 2)  epoch 0  gap")
    assert lines[-1].startswith("C = 10 (2 of 2)  epoch")


def blas_threads():
    from threadpoolctl import threadpool_info

    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}


def test_small_products_run_on_one_thread():
    from threadpoolctl import threadpool_limits

    seen = []
    with threadpool_limits(2, "blas"):
        before = blas_threads()
        solve(X, Y, "softmax", callback=lambda state: seen.append(blas_threads()))
        assert seen[0] == {1}
        assert blas_threads() == before
        with threads_for(1e10, Team(2)):
            assert blas_threads() == before
