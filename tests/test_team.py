"""Teams of threads: no more than asked for, what ends them, and what they leave behind."""

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
from threadpoolctl import threadpool_info, threadpool_limits

from topkopt import TopKClassifier, _threads, losses, path, solve
from topkopt._threads import ALONE, Team, as_team, blas_threads
from topkopt.projections import project_simplex, project_topk_simplex
from topkopt.special import lambertw_exp

from .expect import raises
from .loss_cases import labels_of
from .team_cases import M, N, features, share_small_work


@pytest.fixture(autouse=True)
def no_work_is_too_small(monkeypatch):
    share_small_work(monkeypatch)


def blas_counts():
    return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]


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


def test_a_team_of_one_asks_for_nothing():
    pool = _threads._pool
    before = pool.helpers
    assert ALONE.run(abs, [-1, -2]) == [1, 2]
    project_simplex(np.ones((640, 4)), n_threads=1)
    assert pool.helpers == before


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
