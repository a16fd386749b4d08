"""What a fit shows on its way: lines, interrupts, callbacks of scikit-learn."""

import logging
import re
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import (
    GridSearchCV,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import topkopt
from topkopt import ConvergenceWarning, MultilabelClassifier, TopKClassifier, TopKClassifierCV

from .classifiers import GRAM, NAMES, XM, YM, X, Y
from .expect import raises, run_python

# Progress -------------------------------------------------------------------------------------


def test_progress_of_a_search(capsys):
    options = {"loss": "topk_entropy", "cv": 2, "random_state": 0}
    TopKClassifierCV([0.1, 1.0], [1, 2], verbose=2, **options).fit(X, Y)
    lines = capsys.readouterr().out.splitlines()
    places = list(dict.fromkeys(line.partition("  epoch")[0] for line in lines))
    assert places[:-1] == [
        f"fold {fold}/2  k = {k}  C = {C}" for fold in (1, 2) for k in (1, 2) for C in ("0.1", "1")
    ]
    assert re.fullmatch("all examples  k = [12]  C = (0.1|1)", places[-1])
    assert all("gap" in line for line in lines)
    TopKClassifierCV([0.1], verbose=1, **options).fit(X, Y)
    out = capsys.readouterr()
    assert out.out == out.err == ""  # there is no terminal


def test_progress_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    TopKClassifierCV([0.1, 1.0], cv=2, loss="softmax", verbose=1, random_state=0).fit(X, Y)
    said = capsys.readouterr().err
    for place in ("fold 1/2  k = 1  C = 0.1", "fold 2/2  k = 1  C = 1", "all examples"):
        assert f"\r{place}" in said
    assert said.endswith("\n")


def test_progress_of_a_loss_that_is_not_convex(capsys):
    """Its path has two trainings for each C: the softmax one, then its own."""
    TopKClassifierCV(
        [0.1, 1.0], loss="truncated_topk_entropy", cv=2, verbose=2, random_state=0
    ).fit(X, Y)
    lines = capsys.readouterr().out.splitlines()
    begun = [line.partition("  epoch")[0] for line in lines if "epoch 0" in line]
    assert begun[:4] == [f"fold 1/2  k = 1  C = {C}" for C in ("0.1", "0.1", "1", "1")]


def test_progress_in_the_log(caplog):
    caplog.set_level(logging.INFO, "topkopt")
    TopKClassifierCV([0.1], cv=2, loss="softmax", random_state=0).fit(X, Y)
    assert "fold 2/2  k = 1  C = 0.1" in caplog.messages


# Interrupts -----------------------------------------------------------------------------------


class Interrupt(logging.Handler):
    """Interrupts a training at its second certificate, as Ctrl-C does, and counts trainings."""

    def __init__(self, training):
        super().__init__()
        self.training, self.begun, self.raised = training, 0, 0

    def emit(self, record):
        said = re.search(r"\b(?:epoch|iteration) (\d+)\b", record.getMessage())
        epoch = said and int(said[1])
        self.begun += epoch == 0
        if self.begun == self.training and epoch == 1:
            self.raised += 1
            raise KeyboardInterrupt


@pytest.fixture
def interrupt():
    logger = logging.getLogger("topkopt")
    added, level = [], logger.level

    def arm(training):
        added.append(Interrupt(training))
        logger.addHandler(added[-1])
        logger.setLevel(logging.INFO)
        return added[-1]

    yield arm
    for handler in added:
        logger.removeHandler(handler)
    logger.setLevel(level)


INTERRUPTED = [
    (TopKClassifier("softmax"), (X, Y), 1),
    (TopKClassifier("softmax", kernel="rbf"), (X, Y), 1),
    (TopKClassifier("softmax", kernel="precomputed"), (GRAM, Y), 1),
    (TopKClassifier("truncated_topk_entropy", k=2), (X, Y), 1),
    (TopKClassifierCV([0.1, 1.0], cv=3, loss="softmax"), (X, Y), 1),
    (TopKClassifierCV([0.1, 1.0], cv=3, loss="softmax"), (X, Y), 2),
    (TopKClassifierCV([0.1, 1.0], cv=3, loss="softmax"), (X, Y), 7),  # on all examples
    (MultilabelClassifier(smoothing=1.0, C=0.1, cv=3), (XM, YM), 2),
    (MultilabelClassifier(smoothing=1.0, C=0.1, cv=3), (XM, YM), 4),
]


@pytest.mark.parametrize(("model", "data", "training"), INTERRUPTED)
def test_one_interrupt_ends_a_fit(interrupt, model, data, training):
    """No training begins after it, and nothing of the fit is left behind."""
    fresh, fitted = clone(model), clone(model).fit(*data)
    before, scores = vars(fitted).copy(), fitted.decision_function(data[0])
    for estimator in (fresh, fitted):
        handler = interrupt(training)
        with pytest.raises(KeyboardInterrupt):
            estimator.fit(*data)
        assert (handler.begun, handler.raised) == (training, 1)
        logging.getLogger("topkopt").removeHandler(handler)
    assert vars(fresh).keys() == vars(clone(model)).keys()
    with pytest.raises(NotFittedError):
        fresh.predict(data[0])
    assert vars(fitted).keys() == before.keys()
    assert all(vars(fitted)[name] is value for name, value in before.items())
    np.testing.assert_array_equal(fitted.decision_function(data[0]), scores)


def test_one_interrupt_ends_a_path(interrupt):
    handler = interrupt(2)
    with pytest.raises(KeyboardInterrupt):
        topkopt.path(X, Y, "softmax", Cs=[0.1, 1.0, 10.0])
    assert (handler.begun, handler.raised) == (2, 1)


def interrupted_scorer(model, X, y):
    raise KeyboardInterrupt


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupt_in_a_worker_ends_the_search(n_jobs):
    search = TopKClassifierCV([0.1], cv=3, scoring=interrupted_scorer, n_jobs=n_jobs)
    with pytest.raises(KeyboardInterrupt):
        search.fit(X, Y)
    assert not hasattr(search, "classes_")


def test_a_fit_that_fails_changes_nothing():
    model = TopKClassifier("softmax", random_state=0).fit(X, NAMES)
    before = model.decision_function(X)
    with raises(ValueError, "C must be"):
        model.set_params(C=-1.0).fit(X[:100, :2], Y[:100])
    np.testing.assert_array_equal(model.decision_function(X), before)
    assert model.classes_.tolist() == sorted(set(NAMES))


# Callbacks of scikit-learn --------------------------------------------------------------------


class Recorder:
    """Writes down what it is told, and may ask to stop."""

    def __init__(self, stop_at=None):
        self.stop_at, self.said, self.scores = stop_at, [], []

    def setup(self, estimator, context):
        self.said.append(("setup", type(estimator).__name__))

    def teardown(self, estimator, context):
        self.said.append(("teardown", type(estimator).__name__))

    def on_fit_task_begin(self, estimator, context):
        self.said.append(("begin", context.task_name))

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.said.append(("end", context.task_name))
        if hasattr(fitted_estimator, "score"):
            self.scores.append(fitted_estimator.score(X, y))
        return len(self.scores) == self.stop_at

    def count(self, hook, task):
        return self.said.count((hook, task))


class PropagatedRecorder(Recorder):
    max_propagation_depth = None


@pytest.fixture
def callbacks():
    pytest.importorskip("sklearn.callback")


@pytest.mark.usefixtures("callbacks")
@pytest.mark.parametrize("kernel", ["linear", "rbf", "precomputed"])
@pytest.mark.parametrize("loss", ["hinge", "truncated_topk_entropy"])
def test_callbacks_see_epochs(loss, kernel):
    recorder = Recorder()
    data = GRAM if kernel == "precomputed" else X
    model = TopKClassifier(loss, C=0.1, kernel=kernel, random_state=0).set_callbacks(recorder)
    model.fit(data, NAMES)
    plain = TopKClassifier(loss, C=0.1, kernel=kernel, random_state=0).fit(data, NAMES)
    np.testing.assert_array_equal(model.decision_function(data), plain.decision_function(data))
    assert recorder.said[0] == ("setup", "TopKClassifier")
    assert recorder.said[1] == ("begin", "fit")
    assert recorder.said[-2:] == [("end", "fit"), ("teardown", "TopKClassifier")]
    assert recorder.count("begin", "epoch") == recorder.count("end", "epoch")
    steps = len(model.history_["epoch"]) - 1  # which may take more than one pass each, or less
    extra = recorder.count("end", "epoch") - steps
    assert extra in ((0, 1) if loss.startswith("truncated") else (0,))
    assert len(recorder.scores) == steps + 1
    assert recorder.scores[-1] == model.score(data, NAMES)


@pytest.mark.usefixtures("callbacks")
def test_a_callback_stops_the_training():
    model = TopKClassifier("hinge", C=1.0, random_state=0).set_callbacks(Recorder(stop_at=3))
    with pytest.warns(ConvergenceWarning, match="stopped"):
        model.fit(X, Y)
    assert len(model.history_["epoch"]) == 3 + 1


@pytest.mark.usefixtures("callbacks")
def test_callbacks_see_searches():
    recorder = Recorder()
    search = TopKClassifierCV([0.1, 1.0], [1, 2], loss="topk_entropy", cv=3, random_state=0)
    search.set_callbacks(recorder).fit(X, Y)
    for fold in ("1/3", "2/3", "3/3"):
        assert recorder.count("begin", f"fold {fold}") == recorder.count("end", f"fold {fold}") == 1
        for k in (1, 2):
            for C in ("0.1", "1"):
                place = f"fold {fold}  k = {k}  C = {C}"
                assert recorder.count("begin", place) == recorder.count("end", place) == 1
    assert recorder.count("end", "epoch") == len(search.history_["epoch"]) - 1
    assert recorder.scores[-1] == search.score(X, Y)
    assert recorder.said[-1] == ("teardown", "TopKClassifierCV")


@pytest.mark.usefixtures("callbacks")
@pytest.mark.parametrize("recorder", [Recorder, PropagatedRecorder])
def test_callbacks_see_thresholds(recorder):
    recorder = recorder()
    model = MultilabelClassifier(smoothing=1.0, C=0.1, cv=3, random_state=0)
    model.set_callbacks(recorder).fit(XM, YM)
    assert recorder.count("setup", "MultilabelClassifier") == 1
    assert recorder.count("teardown", "MultilabelClassifier") == 1
    assert recorder.count("begin", "all examples") == recorder.count("end", "all examples") == 1
    if isinstance(recorder, PropagatedRecorder):  # a fold is the fit of another classifier
        assert recorder.count("begin", "fit") == recorder.count("end", "fit") == 4
        assert recorder.count("end", "epoch") > model.n_iter_
    else:
        assert recorder.count("begin", "fold 2/3") == recorder.count("end", "fold 2/3") == 1
        assert recorder.count("end", "epoch") == len(model.history_["epoch"]) - 1
    assert not hasattr(model, "_callback_fit_ctx")


@pytest.mark.usefixtures("callbacks")
def test_callbacks_through_other_tools():
    recorder = PropagatedRecorder()
    pipeline = make_pipeline(StandardScaler(), TopKClassifier("softmax", random_state=0))
    search = GridSearchCV(pipeline, {"topkclassifier__C": [0.1, 1.0]}, cv=2)
    search.set_callbacks(recorder).fit(X, Y)
    assert (
        recorder.count("setup", "GridSearchCV") == recorder.count("teardown", "GridSearchCV") == 1
    )
    assert recorder.count("end", "epoch") > 5


@pytest.mark.usefixtures("callbacks")
def test_callbacks_are_torn_down_after_an_interrupt(interrupt):
    recorder = Recorder()
    model = TopKClassifier("softmax").set_callbacks(recorder)
    interrupt(1)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert recorder.said[-1] == ("teardown", "TopKClassifier")
    assert vars(model).keys() - vars(TopKClassifier()).keys() == {"_skl_callbacks"}


@pytest.mark.usefixtures("callbacks")
def test_a_monitor_of_scikit_learn_with_workers():
    from sklearn.callback import ScoringMonitor

    monitor = ScoringMonitor(scoring="accuracy")
    search = TopKClassifierCV([0.1, 1.0], cv=2, loss="softmax", n_jobs=2, random_state=0)
    search.set_callbacks(monitor).fit(pd.DataFrame(X, columns=list("abcd")), NAMES)
    log = monitor.get_logs().data
    assert [row["accuracy"] for row in log][-1] > 0.9


def test_scikit_learn_before_callbacks():
    code = (
        "import sys, sklearn.model_selection, sklearn.pipeline, sklearn.preprocessing\n"
        "sys.modules['sklearn.callback'] = None\n"
        "import topkopt\n"
        "model = topkopt.TopKClassifierCV([0.1], cv=2).fit([[-1.0], [1.0]] * 9, [0, 1] * 9)\n"
        "print(hasattr(model, 'set_callbacks'), model.best_score_)"
    )
    assert run_python(code) == "False 1.0"
