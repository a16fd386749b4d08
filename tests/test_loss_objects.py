"""What losses take and what they are: arrays, names, parameters, errors."""

import copy
import pickle

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from topkopt import losses

from .expect import raises
from .loss_cases import CASES, everything, labels_of, over, scores_of

# Arrays ---------------------------------------------------------------------------------------


@everything
def test_single_rows_and_lists(case):
    loss, scores = case.loss, scores_of("normal")
    y = labels_of(loss)
    values, slopes = loss.value(scores, y), loss.gradient(scores, y)
    assert values.shape == (12,)
    assert slopes.shape == scores.shape
    for i in range(12):
        one = loss.value(scores[i].tolist(), y[i].tolist())
        assert isinstance(one, float)
        assert one == values[i]
        np.testing.assert_array_equal(loss.gradient(scores[i].tolist(), y[i].tolist()), slopes[i])
        if loss.convex:
            assert isinstance(loss.conjugate(slopes[i], y[i]), float)
    np.testing.assert_array_equal(loss.value(scores.tolist(), y.tolist()), values)
    assert loss.value(scores[:0], y[:0]).shape == (0,)
    assert loss.gradient(scores[:0], y[:0]).shape == (0, 6)


@everything
def test_any_memory_layout(case):
    loss, scores = case.loss, scores_of("normal")
    y = labels_of(loss)
    wide = np.repeat(scores, 2, axis=1)
    frozen = scores.copy()
    frozen.flags.writeable = False
    layouts = (np.asfortranarray(scores), wide[:, ::2], frozen, scores.astype(">f8"))
    for other in layouts:
        np.testing.assert_array_equal(loss.value(other, y), loss.value(scores, y))
        np.testing.assert_array_equal(loss.gradient(other, y), loss.gradient(scores, y))
    np.testing.assert_array_equal(frozen, scores)


@everything
def test_float32(case):
    loss, scores = case.loss, scores_of("normal").astype(np.float32)
    y = labels_of(loss)
    for name in ("value", "gradient"):
        result = getattr(loss, name)(scores, y)
        assert result.dtype == np.float32
        expected = getattr(loss, name)(scores.astype(np.float64), y)
        np.testing.assert_array_equal(result, expected.astype(np.float32))
    assert loss.value(np.zeros((1, 6), dtype=int), y[:1]).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8, np.uint64, np.intp])
def test_label_types(dtype):
    scores, y = scores_of("normal"), np.arange(12) % 6
    for loss in (losses.Hinge(), losses.MultilabelHinge()):
        np.testing.assert_array_equal(
            loss.value(scores, y.astype(dtype)), loss.value(scores, y.tolist())
        )


@over([case for case in CASES if case.loss.multilabel])
def test_indicator_types(case):
    loss, scores = case.loss, scores_of("normal")
    y = labels_of(loss)
    expected = loss.value(scores, y)
    formats = (
        y.astype(int),
        y.astype(float),
        np.asfortranarray(y),
        scipy.sparse.csr_array(y),
        scipy.sparse.csc_matrix(y.astype(np.int8)),
        scipy.sparse.coo_array(y.astype(float)),
    )
    for other in formats:
        np.testing.assert_array_equal(loss.value(scores, other), expected)
        np.testing.assert_array_equal(loss.gradient(scores, other), loss.gradient(scores, y))


# Objects --------------------------------------------------------------------------------------


def test_every_loss_is_public_and_has_a_name():
    public = {name for name in losses.__all__ if name[0].isupper()} - {"Loss", "CustomLoss"}
    assert {case.name for case in CASES} == public
    assert {case.loss.name for case in CASES} <= set(losses.names())
    assert {case.loss.name for case in CASES} == {
        losses.declaration_of(name).name for name in losses.names()
    }


@pytest.mark.parametrize(
    ("name", "parameters", "loss"),
    [
        ("topk_hinge_beta", {"k": 3}, losses.TopKHinge(3, "beta")),
        ("topk_hinge_label", {"k": 3, "smoothing": 0.5}, losses.TopKHinge(3, "label", 0.5)),
        (
            "weighted_topk_hinge_label",
            {"weights": "linear", "k": 3},
            losses.WeightedTopKHinge("linear", 3, label=True),
        ),
    ],
)
def test_names_of_variants(name, parameters, loss):
    assert name in losses.names()
    named = losses.get(name, **parameters)
    assert named == loss
    assert type(named) is type(loss)
    assert named.name == name.rpartition("_")[0]  # the object keeps the name of its class


def test_a_variant_has_no_parameter_for_what_it_implies():
    with raises(TypeError, "'topk_hinge_beta'", "kind"):
        losses.get("topk_hinge_beta", k=3, kind="alpha")
    with raises(TypeError, "'weighted_topk_hinge_label'", "label"):
        losses.get("weighted_topk_hinge_label", weights=[1.0], label=False)


def test_a_parameter_of_the_wrong_type_is_named():
    for parameters, message in (
        ({"k": 1.5}, "k must be an integer, got 1.5."),
        ({"k": 1, "smoothing": "1"}, "smoothing must be a real number, got '1'."),
    ):
        with pytest.raises(TypeError) as info:
            losses.get("topk_hinge", **parameters)
        assert str(info.value) == message


@everything
def test_objects(case):
    loss = case.loss
    assert loss == case.loss
    assert loss is not case.loss
    assert hash(loss) == hash(case.loss)
    assert loss != object()
    assert [other for other in CASES if other.loss == loss] == [case]
    for twin in (pickle.loads(pickle.dumps(loss)), copy.copy(loss), copy.deepcopy(loss)):
        assert twin == loss
        assert type(twin) is type(loss)
        assert (twin.convex, twin.multilabel) == (loss.convex, loss.multilabel)
        row, y = scores_of("normal"), labels_of(loss)
        np.testing.assert_array_equal(twin.gradient(row, y), loss.gradient(row, y))
    assert eval(repr(loss), vars(losses)) == loss
    assert losses.get(loss.name, **case.arguments) == loss
    assert losses.get(loss) is loss
    for name, value in case.arguments.items():
        if name not in ("weights", "k"):
            assert getattr(loss, name) == value
        with pytest.raises(AttributeError):
            setattr(loss, name, value)


def test_repr():
    assert repr(losses.Hinge()) == "Hinge(smoothing=0.0)"
    assert repr(losses.Softmax()) == "Softmax()"
    assert repr(losses.TopKHinge(np.int64(3))) == "TopKHinge(k=3, kind='alpha', smoothing=0.0)"
    assert "weights=(0.75, 0.25)" in repr(losses.WeightedTopKHinge([0.75, 0.25, 0.0]))


def test_profiles():
    assert losses.WeightedTopKHinge("flat", 4).weights == (0.25,) * 4
    linear = losses.WeightedTopKHinge("linear", 3).weights
    np.testing.assert_allclose(linear, [3 / 6, 2 / 6, 1 / 6])
    falling = np.array(losses.WeightedTopKHinge("exp", 3).weights)
    np.testing.assert_allclose(falling[1:] / falling[:-1], np.exp(-1 / 3))
    assert falling.sum() == pytest.approx(1.0)


# Errors ---------------------------------------------------------------------------------------


ROWS = [[1.0, 0.5, 0.0], [0.0, 3.0, 1.0]]


@pytest.mark.parametrize(
    ("make", "error", "fragments"),
    [
        (lambda: losses.TopKHinge(0), ValueError, ("k must be", "1", "got 0")),
        (lambda: losses.TopKHinge(1.5), TypeError, ("k must be an integer", "1.5")),
        (lambda: losses.TopKHinge(2, "gamma"), ValueError, ("kind", "alpha, beta, label", "gamma")),
        (lambda: losses.TopKEntropy(-1), ValueError, ("k must be", "got -1")),
        (lambda: losses.TruncatedTopKEntropy("2"), TypeError, ("k must be an integer", "'2'")),
        (lambda: losses.Hinge(-1.0), ValueError, ("smoothing", "non-negative", "-1.0")),
        (lambda: losses.Hinge(np.nan), ValueError, ("smoothing", "finite", "nan")),
        (lambda: losses.Hinge(np.inf), ValueError, ("smoothing", "finite", "inf")),
        (lambda: losses.OneVsAllHinge("x"), TypeError, ("smoothing", "real number", "'x'")),
        (lambda: losses.MultilabelHinge(-2), ValueError, ("smoothing", "non-negative", "-2")),
        (
            lambda: losses.WeightedTopKHinge([0.1, 0.2]),
            ValueError,
            ("weights", "non-increasing", "[0.1 0.2]", "sort"),
        ),
        (lambda: losses.WeightedTopKHinge([]), ValueError, ("weights", "non-empty", "(0,)")),
        (lambda: losses.WeightedTopKHinge([0.0]), ValueError, ("weights", "positive", "zeros")),
        (lambda: losses.WeightedTopKHinge("flat"), ValueError, ("k must be given", "'flat'")),
        (lambda: losses.WeightedTopKHinge("x", 2), ValueError, ("weights", "flat, linear", "'x'")),
        (lambda: losses.WeightedTopKHinge([1.0], 2), ValueError, ("k must be None", "2", "drop")),
        (
            lambda: losses.WeightedTopKHinge([1.0], envelope="some"),
            ValueError,
            ("envelope", "others", "all", "'some'"),
        ),
        (lambda: losses.get("margin"), ValueError, ("loss must be one of", "hinge", "'margin'")),
        (lambda: losses.get(None), ValueError, ("loss must be one of", "None")),
        (lambda: losses.get(["hinge"]), ValueError, ("loss must be one of", "hinge")),
        (lambda: losses.get("softmax", k=2), TypeError, ("softmax", "parameters", "k")),
        (lambda: losses.get("topk_hinge"), TypeError, ("topk_hinge", "parameter")),
        (lambda: losses.get(losses.Hinge(), k=2), ValueError, ("parameters", "left out", "'k'")),
    ],
)
def test_bad_parameters(make, error, fragments):
    with raises(error, *fragments):
        make()


@everything
@pytest.mark.parametrize(
    ("scores", "fragments"),
    [
        ([0.0, np.nan] * 3, ("must be finite", "NaN", "clean")),
        ([0.0, np.inf] * 3, ("must be finite", "infinite", "clean")),
        ([0.0, -np.inf] * 3, ("must be finite", "infinite", "clean")),
        ([[[0.0]]], ("must have shape (n, m)", "(1, 1, 1)")),
    ],
)
def test_bad_scores(case, scores, fragments):
    loss = case.loss
    y = labels_of(loss)[0]
    for name, method in (("scores", loss.value), ("scores", loss.gradient), ("v", loss.conjugate)):
        if name != "v" or loss.convex:
            with raises(ValueError, name, *fragments):
                method(scores, y)


@everything
@pytest.mark.parametrize(
    ("y", "fragments"),
    [
        ([0, 6], ("y must hold labels from 0 to 5", "6", "encode")),
        ([-1, 0], ("y must hold labels from 0 to 5", "-1", "encode")),
        ([0.0, 1.0], ("y must", "integers", "float64", "encode")),
        (["a", "b"], ("y must", "integers", "encode")),
        ([0], ("y must have one entry per row", "2", "(1,)")),
        (1, ("y must have one entry per row", "2", "()")),
    ],
)
def test_bad_labels(case, y, fragments):
    with raises(ValueError, *fragments):
        case.loss.value(np.zeros((2, 6)), y)


def test_bad_label_sets():
    for loss in (losses.MultilabelHinge(), losses.MultilabelSoftmax(), losses.OneVsAllHinge()):
        with raises(ValueError, "y must have one column per class (3)", "2"):
            loss.value(ROWS, [[True, False], [False, True]])
        with raises(ValueError, "y must be an indicator matrix of 0 and 1"):
            loss.value(ROWS, [[0, 1, 2], [0, 0, 1]])
    with raises(ValueError, "y must be one-dimensional and hold integers", "(2, 3)"):
        losses.Hinge().value(ROWS, np.eye(2, 3, dtype=bool))


@everything
def test_too_few_classes(case):
    with raises(ValueError, "at least 2 classes", "1"):
        case.loss.value([[0.0]], [0])


def test_no_conjugate():
    with raises(ValueError, "TruncatedTopKEntropy(k=2)", "not convex"):
        losses.TruncatedTopKEntropy(2).conjugate(ROWS, [0, 0])


def test_base_is_not_a_loss():
    with pytest.raises(TypeError, match="Loss is a base of losses; use one of those"):
        losses.Loss()


# Subclasses -----------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [losses.Loss, *losses.classes()])
def test_losses_are_final(base):
    """What a subclass overrides, compiled code would never call."""
    with raises(TypeError, "compiled and final", "Mine", base.__name__, "losses.names()"):

        class Mine(base):
            def value(self, scores, y):
                return 0.0

    with raises(TypeError, "compiled and final"):
        type("Mine", (base,), {})
    assert "Mine" not in {cls.__name__ for cls in losses.classes()}
