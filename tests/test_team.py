"""Threads share rows: the same results, the same bits again, no more threads than asked for."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
import scipy.sparse
from threadpoolctl import threadpool_info, threadpool_limits

from topkopt import TopKClassifier, TopKClassifierCV, _threads, losses, path, solve
from topkopt._threads import ALONE, Team, as_team, blas_threads
from topkopt.projections import project_simplex, project_topk_simplex
from topkopt.solvers import threads as worth
from topkopt.solvers.epochs import Examples
from topkopt.solvers.problem import as_problem
from topkopt.solvers.vertices import VertexExamples
from topkopt.special import lambertw_exp

from .cases import OPERATORS
from .expect import raises
from .loss_cases import CASES, CONVEX, labels_of, over
from .test_arrays import apply

N, D, M = 43, 7, 6
KINDS = ("dense", "sparse", "kernel")


@pytest.fixture(autouse=True)
def no_work_is_too_small(monkeypatch):
    """Let threads have a part of the small problems of these tests."""
    monkeypatch.setattr(_threads, "_WORTH_A_THREAD", 1)
    monkeypatch.setattr(worth, "_WORTH_THREADS", 1.0)


def features(kind="dense", dtype=np.float64, n=N):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, D)).astype(dtype)
    X[::5] *= rng.random(D) < 0.5
    return {"dense": X, "sparse": scipy.sparse.csr_array(X), "kernel": X @ X.T}[kind]


def problem_of(loss, kind="dense", dtype=np.float64, n=N):
    y, weight = labels_of(loss, n, M), 0.5 + np.random.default_rng(2).random(n)
    return as_problem(features(kind, dtype, n), y, loss, 2.0, weight, kind == "kernel", M)


def blas_counts():
    return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]


# Examples in parts ----------------------------------------------------------------------------


def examples_of(problem, kind):
    if kind is Examples:
        return problem.examples()
    return problem.examples(
        VertexExamples, type(problem.loss)(*(v for _, v in _hard(problem))), False
    )


def _hard(problem):
    return [(k, 0.0 if k == "smoothing" else v) for k, v in problem.loss._parameters()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("examples_kind", [Examples, VertexExamples])
def test_parts_of_examples(kind, examples_kind):
    """The sums of parts add up to those of all, and what they learn of an example is shared."""
    problem = problem_of(losses.TopKHinge(2, smoothing=0.5), kind)
    whole, parted = (examples_of(problem, examples_kind) for _ in range(2))
    data, rows = problem.data, np.arange(N)
    dual = np.zeros((N, M))
    coef = data.coef_from(dual)
    data.epoch(whole, coef, dual, rows, 1)
    expected = data.sums(whole, coef, dual, rows)
    total = np.zeros(3)
    for part in (slice(0, 10), slice(10, 11), slice(11, N)):
        own = parted.part(part)
        assert type(own) is examples_kind
        some = np.arange(part.stop - part.start)
        total += data.range_sums(own, coef, dual[part], some, part)
    np.testing.assert_allclose(total, expected, rtol=1e-12)
    np.testing.assert_allclose(parted.row_gaps, whole.row_gaps, rtol=1e-9, atol=1e-12)
    assert parted.row_gaps.any()


@pytest.mark.parametrize("examples_kind", [Examples, VertexExamples])
def test_steps_of_parts(examples_kind):
    """A part takes the steps of its rows: those of the whole, if these rows alone are visited."""
    problem = problem_of(losses.TopKHinge(2, smoothing=0.5))
    whole, parted = (examples_of(problem, examples_kind) for _ in range(2))
    part, data = slice(8, 20), problem.data
    results = []
    for examples, X, rows in ((whole, data, np.arange(8, 20)), (parted.part(part), None, None)):
        dual, coef = np.zeros((N, M)), np.zeros((D, M))
        if X is None:
            X = as_problem(features()[part], np.zeros(12, int), losses.Hinge(), 1.0, None, False, M)
            X.data.epoch(examples, coef, dual[part], np.arange(12), 1)
        else:
            X.epoch(examples, coef, dual, rows, 1)
        results.append((coef, dual))
    assert results[0][1].any()
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(parted.moved_rows[part], whole.moved_rows[part])


# Teams ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (0, ValueError, ("n_threads must be at least 1", "got 0", "None takes as many as BLAS")),
        (-1, ValueError, ("got -1",)),
        (1.5, TypeError, ("n_threads must be an integer or None", "got 1.5")),
        ("2", TypeError, ("got '2'",)),
        (True, TypeError, ("got True",)),
    ],
)
def test_bad_numbers(value, error, words):
    calls = [
        lambda: as_team(value),
        lambda: project_simplex([1.0], n_threads=value),
        lambda: lambertw_exp(1.0, n_threads=value),
        lambda: losses.Softmax().value([0.0, 1.0], 0, n_threads=value),
        lambda: solve(features(), labels_of(losses.Hinge(), N, M), "hinge", n_threads=value),
        lambda: path(features(), labels_of(losses.Hinge(), N, M), "hinge", n_threads=value),
        lambda: TopKClassifier(n_threads=value).fit(features(), labels_of(losses.Hinge(), N, M)),
    ]
    for call in calls:
        with raises(error, *words):
            call()


@pytest.mark.parametrize("n_rows", [0, 1, 4, 5, 8, 43, 1000])
@pytest.mark.parametrize("n_threads", [1, 2, 3, 7, 10**9])
def test_ranges_cover_all_rows_once(n_rows, n_threads):
    ranges = Team(n_threads).ranges(n_rows, 1e9)
    assert [i for part in ranges for i in range(part.start, part.stop)] == list(range(n_rows))
    assert 1 <= len(ranges) <= n_threads
    assert all(part.stop > part.start for part in ranges) or n_rows == 0
    assert all(part.start % 4 == 0 for part in ranges)
    assert ranges == Team(n_threads).ranges(n_rows, 1e9)


def test_small_work_stays_on_one_thread(monkeypatch):
    monkeypatch.undo()
    x = np.random.default_rng(0).standard_normal((100, 100))
    seen = []
    Team(4).each_row(lambda part: seen.append(threading.get_ident()), *x.shape)
    assert seen == [threading.get_ident()]


def test_results_stand_in_the_order_of_the_parts():
    parts = list(range(50))
    assert Team(3).run(lambda part: part * part, parts) == [part * part for part in parts]


def test_as_many_threads_as_asked_for():
    """Three threads meet at a barrier that lets only three through, one of them the caller."""
    barrier, seen = threading.Barrier(3, timeout=60), []

    def meet(part):
        seen.append(threading.get_ident())
        barrier.wait()

    Team(3).run(meet, [0, 1, 2])
    assert len(set(seen)) == 3
    assert threading.get_ident() in seen


def most_at_once(team, start):
    """Return how many threads work at the same time at most, where start(work) has them work."""
    lock, now, most = threading.Lock(), 0, 0

    def work(_):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.002)
        with lock:
            now -= 1

    start(lambda: team.run(work, range(20)))
    return most


def test_callers_of_a_pool_count():
    """With four callers at work nobody else helps: they are as many as one of them asked for."""

    def start(call):
        ready = threading.Barrier(4, timeout=60)

        def caller(_):
            with Team(4).at_work():
                ready.wait()
                call()
                ready.wait()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(caller, range(4)))

    assert most_at_once(Team(4), start) <= 4
    assert most_at_once(Team(2), start) <= 4
    assert 2 <= most_at_once(Team(2), lambda call: call()) <= 2


def test_one_thread_in_one_of_ours():
    """Calls inside of a part stay on its thread, also if they ask for more."""

    def inner(_):
        own = threading.get_ident()
        assert as_team(None).size() == 1
        assert Team(3).run(lambda part: threading.get_ident(), [1, 2, 3]) == [own] * 3
        return project_simplex(np.ones((64, 3)), n_threads=3)

    for result in Team(2).run(inner, range(4)):
        np.testing.assert_allclose(result, 1 / 3)


def test_joblib_threads():
    x = np.random.default_rng(0).standard_normal((400, 30))
    expected = project_topk_simplex(x, 3, n_threads=1)
    found = joblib.Parallel(n_jobs=3, backend="threading")(
        joblib.delayed(project_topk_simplex)(x, 3, n_threads=2) for _ in range(30)
    )
    for result in found:
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("share", [1, 2])
def test_processes_of_joblib_have_their_share(share):
    """A worker of loky knows how many threads BLAS may have there, and so do we."""

    def ask():
        from topkopt._threads import as_team

        return as_team(None).size()

    with joblib.parallel_config("loky", inner_max_num_threads=share):
        assert joblib.Parallel(n_jobs=2)(joblib.delayed(ask)() for _ in range(4)) == [share] * 4


def test_default_is_that_of_blas_at_the_moment():
    with threadpool_limits(2, "blas"):
        assert as_team(None).size() == 2
        with blas_threads(1):  # ours, which is none of the user's
            assert blas_counts() == [1] * len(blas_counts())
            assert as_team(None).size() == 2
        assert blas_counts() == [2] * len(blas_counts())
        with threadpool_limits(1, "blas"):
            assert as_team(None).size() == 1


def test_limits_of_two_threads_at_once():
    """Whoever ends last, BLAS has its threads back."""
    with threadpool_limits(2, "blas"):
        entered, leave = threading.Event(), threading.Event()

        def hold():
            with blas_threads(1):
                entered.set()
                leave.wait(60)

        first = threading.Thread(target=hold)
        first.start()
        assert entered.wait(60)
        with blas_threads(1):
            leave.set()
            first.join()
        assert blas_counts() == [2] * len(blas_counts())


def test_limits_are_those_before_also_after_an_error():
    before = blas_counts()
    with pytest.raises(ZeroDivisionError):
        Team(2).run(lambda part: 1 // part, [1, 0], blas=True)
    assert blas_counts() == before
    solve(features(), labels_of(losses.Hinge(), N, M), "hinge", n_threads=2)
    assert blas_counts() == before


@pytest.mark.parametrize("bad", [0, 1, 5])
def test_an_exception_in_one_range(bad):
    """It is the one that is raised, the other parts stop, and the next call works."""
    stopped = []

    def work(part):
        if part == bad:
            raise KeyError(part)
        try:
            while True:
                project_simplex(np.ones((8, 3)))
        except BaseException as error:
            stopped.append(type(error).__name__)
            raise

    with pytest.raises(KeyError, match=str(bad)):
        Team(6).run(work, range(6))
    assert set(stopped) <= {"Stopped"}
    assert Team(2).run(abs, [-1, -2]) == [1, 2]


def test_an_exception_of_a_function_of_the_user():
    def fails(scores, y):
        raise OSError("no more")

    X, y = features(), labels_of(losses.Hinge(), N, M)
    with pytest.raises(OSError, match="no more"):
        solve(X, y, losses.CustomLoss(fails), n_threads=3)


def test_a_function_of_the_user_is_called_by_one_at_a_time():
    inside = threading.Lock()

    def squared(scores, y):
        assert inside.acquire(blocking=False)
        time.sleep(1e-4)
        away = scores - np.eye(scores.shape[1])[y]
        inside.release()
        return 0.5 * (away**2).sum(axis=1), away

    X, y = features(), labels_of(losses.Hinge(), N, M)
    one, three = (solve(X, y, losses.CustomLoss(squared), n_threads=n, tol=1e-8) for n in (1, 3))
    np.testing.assert_allclose(one.coef, three.coef, atol=1e-6)


# Ctrl-C and fork ------------------------------------------------------------------------------


def in_a_process(code, **options):
    """Start Python with a program; it says so when it is ready for Ctrl-C."""
    preamble = (
        "import signal, threading, numpy as np\n"
        "from topkopt import _threads, losses, solve\n"
        "from topkopt.projections import project_simplex\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "_threads._WORTH_A_THREAD = 1\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", preamble + code], stdout=subprocess.PIPE, text=True, **options
    )


ENDLESS = {
    "rows": """
def work(part):
    while True:
        project_simplex(np.ones((8, 3)))
run = lambda: _threads.Team(3).run(work, range(3))
""",
    # the caller has done its part, and waits for the helpers
    "waiting": """
begun = threading.Event()
def work(part):
    if threading.current_thread() is threading.main_thread():
        begun.wait()
    while threading.current_thread() is not threading.main_thread():
        begun.set()
        project_simplex(np.ones((8, 3)))
run = lambda: _threads.Team(3).run(work, range(9))
""",
    # one pass takes minutes: the kernels of both threads have to look
    "kernel": """
from topkopt.solvers.problem import as_problem
n, m = 4000, 20000
X = np.ones((n, 1))
problem = as_problem(X, np.zeros(n, int), losses.OneVsAllLogistic(), 1.0, None, False, m)
data, examples = problem.data.on(_threads.Team(2)), problem.examples()
coef, rows = np.ones((1, m)), np.arange(n)
dual = np.lib.stride_tricks.as_strided(np.zeros(m), (n, m), (0, 8))
def run():
    while True:
        data.evaluate(examples, coef, np.empty((1, m)))
""",
}


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
@pytest.mark.parametrize("kind", ENDLESS)
def test_ctrl_c_ends_all_threads(kind):
    code = """
threading.Timer(0.3, lambda: print("ready", flush=True)).start()
try:
    run()
except KeyboardInterrupt:
    print(_threads._pool.busy, [call for call in _threads._pool.calls], flush=True)
"""
    process = in_a_process(ENDLESS[kind] + code)
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[0] == "0 []\n"
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def test_an_interrupted_training_is_certified():
    """What is certified after Ctrl-C on threads is what is returned."""
    import _thread

    X, y = features(), labels_of(losses.Hinge(), N, M)

    def callback(state):
        if state.epoch >= 3:
            _thread.interrupt_main()

    with pytest.warns(UserWarning, match="interrupted"):
        solution = solve(
            X, y, losses.TopKEntropy(2), tol=0.0, n_threads=3, method="sdca", callback=callback,
            on_interrupt="return", block_size=16,
        )  # fmt: skip
    again = solve(
        X, y, losses.TopKEntropy(2), tol=1.0, warm_start=solution, method="sdca", n_threads=1
    )
    assert again.gap == pytest.approx(solution.gap, rel=1e-6, abs=1e-12)


def _child(results):
    results.put((project_simplex(np.ones((64, 4)), n_threads=3), _threads._pool.helpers))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork():
    """The helpers stay in the parent; the child has its own."""
    Team(3).run(abs, [1, 2, 3])
    context = multiprocessing.get_context("fork")
    with blas_threads(1):
        results = context.Queue()
        child = context.Process(target=_child, args=(results,))
        child.start()
        found, helpers = results.get(timeout=60)
        child.join(60)
    assert child.exitcode == 0
    np.testing.assert_allclose(found, 0.25)
    assert helpers == 2


# The same results -----------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [3, 43])
def test_operators(op, dtype, n):
    """A row knows nothing of the others: all numbers of threads give the same bits."""
    x = np.random.default_rng(5).standard_normal((n, 6)).astype(dtype)
    x[0, 0] = -np.inf
    expected = apply(op, x, n_threads=1)
    for n_threads in (2, 3, 50):
        np.testing.assert_array_equal(apply(op, x, n_threads=n_threads), expected)


def test_special():
    t = np.random.default_rng(5).standard_normal((9, 7))
    np.testing.assert_array_equal(lambertw_exp(t, n_threads=3), lambertw_exp(t, n_threads=1))


def test_errors_name_the_row_whatever_thread_finds_it():
    x = np.zeros((40, 3))
    x[25, 1] = np.nan
    x[33, 1] = np.inf
    with raises(ValueError, "NaN in row 25"):
        project_simplex(x, n_threads=4)


@over(CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_losses(case, dtype):
    loss, y = case.loss, labels_of(case.loss, N, M)
    scores = np.random.default_rng(3).standard_normal((N, M)).astype(dtype)
    calls = {
        "value": lambda n: loss.value(scores, y, n_threads=n),
        "gradient": lambda n: loss.gradient(scores, y, n_threads=n),
        "both": lambda n: loss.value_and_gradient(scores, y, n_threads=n)[1],
    }
    if loss.convex:
        v = loss.gradient(scores.astype(np.float64), y)
        calls["conjugate"] = lambda n: loss.conjugate(v, y, n_threads=n)
        calls["prox"] = lambda n: loss.prox(scores, y, 0.5, n_threads=n)
        calls["derivative"] = lambda n: loss.prox_derivative(scores, y, 0.5, n_threads=n)
    for call in calls.values():
        expected = call(1)
        assert expected.dtype == dtype or call is calls.get("conjugate")
        for n_threads in (2, 3, 50):
            np.testing.assert_array_equal(call(n_threads), expected)


def rounding_of(dtype):
    return 2e-5 if dtype == np.float32 else 1e-12


@over(CASES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_evaluations(case, kind, dtype):
    """Values, gradients, duals and the sums of a certificate, up to rounding."""
    problem = problem_of(case.loss, kind, dtype)
    rng = np.random.default_rng(4)
    size = N if kind == "kernel" else D
    coef = rng.standard_normal((size, M)).astype(dtype)
    found = []
    for n_threads in (1, 2, 3, 3):
        data, examples = problem.data.on(Team(n_threads)), problem.examples()
        dual = np.empty((N, M), dtype)
        pull = data.scores(coef).copy() if kind == "kernel" else np.empty((D, M))
        values = data.evaluate(examples, coef, pull, dual)
        parameters = dual if kind == "kernel" else coef
        sums = data.sums(examples, parameters, dual, np.arange(N))
        some = data.sums(examples, parameters, dual, np.arange(3, N - 1))
        found.append((pull, dual, *values, *sums, *some, data.scores(coef), data.coef_from(dual)))
    for others in found[1:]:
        for first, other in zip(found[0], others, strict=True):
            slack = rounding_of(dtype) * max(1.0, float(np.nan_to_num(np.abs(first)).max()))
            np.testing.assert_allclose(other, first, rtol=0, atol=slack)
    for first, again in zip(found[2], found[3], strict=True):
        np.testing.assert_array_equal(first, again)


@over(CONVEX)
@pytest.mark.parametrize("kind", ["dense", "kernel"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_epochs_in_blocks(case, kind, dtype):
    """The iterates of one thread, up to rounding; the last block is shorter."""
    problem = problem_of(case.loss, kind, dtype)
    order = np.random.default_rng(6).permutation(N).astype(np.intp)
    found = []
    for n_threads in (1, 2, 3, 5, 5):
        data, examples = problem.data.on(Team(n_threads)), problem.examples()
        dual = np.zeros((N, M), dtype)
        coef = data.coef_from(dual)
        for _ in range(2):
            data.epoch(examples, coef, dual, order, 16)
        found.append((coef, dual, examples.moved_rows.copy()))
    size = max(1.0, float(np.abs(found[0][1]).max()))
    for coef, dual, _ in found[1:]:
        np.testing.assert_allclose(dual, found[0][1], atol=100 * rounding_of(dtype) * size)
        np.testing.assert_allclose(coef, found[0][0], atol=1e3 * rounding_of(dtype) * size)
    for first, again in zip(found[3], found[4], strict=True):
        np.testing.assert_array_equal(first, again)


@over(CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_trainings(case, kind):
    """All numbers of threads reach the same optimum, certified; a fixed one repeats its bits."""
    X, y = features(kind), labels_of(case.loss, N, M)
    options = {"kernel": kind == "kernel", "tol": 1e-7, "random_state": 0, "n_classes": M}
    found = [
        solve(X, y, case.loss, n_threads=n_threads, block_size=16, **options)
        for n_threads in (1, 2, 3, 3)
    ]
    for solution in found:
        assert solution.converged
        if case.loss.convex:
            assert -1e-12 <= solution.gap <= 1e-7
            assert solution.primal == pytest.approx(found[0].primal, rel=3e-7)
    np.testing.assert_array_equal(found[2].dual, found[3].dual)
    if kind != "kernel":
        np.testing.assert_array_equal(found[2].coef, found[3].coef)


@pytest.mark.parametrize("method", ["lbfgs", "newton", "frank_wolfe", "pairwise", "sdca"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_methods(method, kind, dtype):
    X, y = features(kind, dtype), labels_of(losses.Hinge(), N, M)
    loss = losses.TopKHinge(2, smoothing=1.0)
    options = {"kernel": kind == "kernel", "tol": 1e-3, "random_state": 0, "method": method}
    found = [solve(X, y, loss, n_threads=n, max_epochs=5000, **options) for n in (1, 2, 3)]
    for solution in found:
        assert solution.gap <= 1e-3
        assert solution.primal == pytest.approx(found[0].primal, rel=2e-3)


def test_more_threads_than_rows():
    X, y = np.eye(3), [0, 1, 2]
    one, many = (solve(X, y, losses.Softmax(), tol=1e-9, n_threads=n) for n in (1, 64))
    np.testing.assert_allclose(one.coef, many.coef, atol=1e-8)


def test_estimators_and_paths():
    X, y = features(), labels_of(losses.Hinge(), N, M)
    found = [path(X, y, "softmax", Cs=[0.1, 1.0], tol=1e-11, n_threads=n) for n in (1, 3)]
    np.testing.assert_allclose(found[0].coefs, found[1].coefs, atol=1e-4)
    options = {"loss": "softmax", "tol": 1e-11}
    one, three = (TopKClassifier(n_threads=n, **options).fit(X, y) for n in (1, 3))
    np.testing.assert_allclose(one.decision_function(X), three.decision_function(X), atol=1e-3)
    rows = scipy.sparse.csr_array(X)
    np.testing.assert_allclose(
        three.decision_function(rows), three.decision_function(X), atol=1e-12
    )
    search = TopKClassifierCV([0.1, 1.0], cv=2, n_jobs=2, n_threads=2, **options).fit(X, y)
    assert search.duality_gap_ <= 1e-11
    assert (search.cv_gap_ <= 1e-11).all()


def test_a_team_of_one_asks_for_nothing():
    pool = _threads._pool
    before = pool.helpers
    assert ALONE.run(abs, [-1, -2]) == [1, 2]
    project_simplex(np.ones((640, 4)), n_threads=1)
    assert pool.helpers == before
