"""The losses: against the reference, their own conjugates, each other and the error they bound.

One table, `CASES`, drives everything: a class of `topkopt.losses` with its arguments.
"""

import copy
import pickle
import re
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from tests.exact_losses import (
    conjugate_rounding,
    distance,
    exact_conjugate,
    exact_value,
    rounding,
)
from topkopt import losses, reference, solve

SMOOTHINGS = (0.0, 0.7)


@dataclass(frozen=True)
class Case:
    """A loss, its readable twin and what the tests need to know of it."""

    name: str
    arguments: dict = field(default_factory=dict)

    @property
    def loss(self):
        return getattr(losses, self.name)(**self.arguments)

    @property
    def twin(self):
        return getattr(reference, self.name)(**self.arguments)

    @property
    def smooth(self):
        """Whether the gradient is continuous."""
        return self.loss.smooth and self.loss.convex

    def __str__(self):
        return repr(self.loss)


def _cases():
    weights = [0.5, 0.3, 0.2]
    for smoothing in SMOOTHINGS:
        yield Case("Hinge", {"smoothing": smoothing})
        for k, kind in product((1, 2, 3), ("alpha", "beta", "label")):
            yield Case("TopKHinge", {"k": k, "kind": kind, "smoothing": smoothing})
        for label, envelope in product((False, True), ("others", "all")):
            more = {"label": label, "smoothing": smoothing, "envelope": envelope}
            yield Case("WeightedTopKHinge", {"weights": weights, **more})
        yield Case("WeightedTopKHinge", {"weights": "linear", "k": 3, "smoothing": smoothing})
        yield Case("OneVsAllHinge", {"smoothing": smoothing})
        yield Case("MultilabelHinge", {"smoothing": smoothing})
    yield Case("WeightedTopKHinge", {"weights": "exp", "k": 2, "label": True})
    yield Case("Softmax")
    for k in (1, 2, 3):
        yield Case("TopKEntropy", {"k": k})
        yield Case("TruncatedTopKEntropy", {"k": k})
    yield Case("OneVsAllLogistic")
    yield Case("MultilabelSoftmax")


CASES = list(_cases())
# A loss that the table does not know takes part with the example that it declares.
CASES += [
    Case(cls.__name__, dict(cls.declaration.example))
    for cls in losses.classes()
    if cls.__name__ not in {case.name for case in CASES}
]
CONVEX = [case for case in CASES if case.loss.convex]


def over(table):
    return pytest.mark.parametrize("case", table, ids=str)


everything = over(CASES)
convex = over(CONVEX)
smooth = over([case for case in CASES if case.smooth])

FAMILIES = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "wide": lambda rng, shape: 20 * rng.standard_normal(shape),
    "tied": lambda rng, shape: rng.integers(-1, 2, shape).astype(float),
    "equal": lambda rng, shape: np.zeros(shape),
    "margin": lambda rng, shape: rng.integers(0, 2, shape) - 1.0 + np.arange(shape[1]) % 2,
    "tiny": lambda rng, shape: 1e-9 * rng.standard_normal(shape),
    "huge": lambda rng, shape: 1e9 * rng.standard_normal(shape),
    "far": lambda rng, shape: 1e6 + rng.standard_normal(shape),
}


def scores_of(family, n=12, m=6):
    return FAMILIES[family](np.random.default_rng([n, m]), (n, m))


def labels_of(loss, n=12, m=6):
    """Return labels, or label sets of all sizes."""
    rng = np.random.default_rng([m, n])
    if not loss.multilabel:
        return rng.integers(0, m, n)
    order = rng.permuted(np.tile(np.arange(m), (n, 1)), axis=1)
    return order < np.arange(n)[:, None] % (m + 1)


def row_by_row(function, rows, y):
    return np.array([function(row, label) for row, label in zip(rows, y, strict=True)])


def one_wrong_row(loss, m=3):
    """Return scores that are wrong by far, and their label (set)."""
    y = np.arange(m) < 1 if loss.multilabel else 0
    return np.where(np.arange(m) == 0, -40.0, 40.0), y


# Against the reference ----------------------------------------------------------------------


@everything
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("m", [5, 6, 40])
def test_value_and_gradient(case, family, m):
    loss, scores = case.loss, scores_of(family, m=m)
    y, size = labels_of(loss, m=m), max(1.0, np.abs(scores).max())
    expected = row_by_row(case.twin.value, scores, y)
    np.testing.assert_allclose(loss.value(scores, y), expected, rtol=1e-12, atol=1e-13 * size)
    expected = row_by_row(case.twin.gradient, scores, y)
    np.testing.assert_allclose(loss.gradient(scores, y), expected, rtol=1e-10, atol=1e-12)


@convex
@pytest.mark.parametrize("family", ["normal", "wide", "tied", "tiny"])
def test_conjugate(case, family):
    loss, scores = case.loss, scores_of(family)
    y = labels_of(loss)
    inside = loss.gradient(scores, y)
    inside = 0.3 * inside + 0.7 * loss.gradient(scores[::-1], y)
    for v in (inside, 1.5 * inside - 0.01, -inside):
        expected = row_by_row(case.twin.conjugate, v, y)
        np.testing.assert_allclose(loss.conjugate(v, y), expected, rtol=1e-12, atol=1e-13)
    assert np.isfinite(loss.conjugate(inside, y)).all()


@everything
@pytest.mark.parametrize("m", [2, 3, 4])
def test_few_classes(case, m):
    """Down to two classes, and to k = m - 1; with fewer the loss says what is wrong."""
    loss, scores = case.loss, scores_of("normal", m=m)
    y = labels_of(loss, m=m)
    places = len(loss.weights) if case.name.startswith("Weighted") else getattr(loss, "k", 1)
    if places > m - 1 + getattr(loss, "label", False):
        with pytest.raises(ValueError, match=rf"(k|weights) must .* got {places}"):
            loss.value(scores, y)
        return
    expected = row_by_row(case.twin.value, scores, y)
    np.testing.assert_allclose(loss.value(scores, y), expected, rtol=1e-12, atol=1e-13)
    expected = row_by_row(case.twin.gradient, scores, y)
    np.testing.assert_allclose(loss.gradient(scores, y), expected, rtol=1e-10, atol=1e-12)


@everything
def test_large_k(case):
    """More places than are kept by insertion."""
    places = {"weights": np.linspace(1, 0.1, 60)} if "weights" in case.arguments else {"k": 60}
    if not places.keys() & case.arguments.keys():
        return
    many = Case(case.name, {**case.arguments, **places, **({} if "k" in places else {"k": None})})
    for family in ("normal", "tied"):
        scores = scores_of(family, n=4, m=80)
        y = labels_of(many.loss, n=4, m=80)
        expected = row_by_row(many.twin.value, scores, y)
        np.testing.assert_allclose(many.loss.value(scores, y), expected, rtol=1e-12)
        expected = row_by_row(many.twin.gradient, scores, y)
        np.testing.assert_allclose(many.loss.gradient(scores, y), expected, rtol=1e-9, atol=1e-12)


# Conjugates and gradients -------------------------------------------------------------------


@convex
@pytest.mark.parametrize("family", FAMILIES)
def test_fenchel_young(case, family):
    """<s,v> <= L(s) + L*(v) for all s and v, with equality at the gradient."""
    loss, scores = case.loss, scores_of(family)
    y, size = labels_of(loss), max(1.0, np.abs(scores).max())
    values, v = loss.value(scores, y), loss.gradient(scores, y)
    slack = values + loss.conjugate(v, y) - np.einsum("ij,ij->i", scores, v)
    np.testing.assert_allclose(slack, 0.0, atol=1e-13 * size)
    for other in FAMILIES:
        v = 0.5 * v + 0.5 * loss.gradient(scores_of(other)[::-1], y)
        slack = values + loss.conjugate(v, y) - np.einsum("ij,ij->i", scores, v)
        assert (slack >= -1e-13 * size).all()


@smooth
@pytest.mark.parametrize("family", ["normal", "wide", "tied"])
def test_finite_differences(case, family):
    loss, scores, step = case.loss, scores_of(family), 1e-6
    y = labels_of(loss)
    for j in range(scores.shape[1]):
        shift = step * (np.arange(scores.shape[1]) == j)
        slope = (loss.value(scores + shift, y) - loss.value(scores - shift, y)) / (2 * step)
        np.testing.assert_allclose(loss.gradient(scores, y)[:, j], slope, atol=1e-5)


@everything
def test_finite_differences_away_from_corners(case):
    """Of the other losses almost everywhere: random scores are at no corner."""
    loss, scores, step = case.loss, scores_of("wide"), 1e-6
    y = labels_of(loss)
    direction = np.random.default_rng(1).standard_normal(scores.shape)
    slope = loss.value(scores + step * direction, y) - loss.value(scores - step * direction, y)
    expected = np.einsum("ij,ij->i", loss.gradient(scores, y), direction)
    np.testing.assert_allclose(expected, slope / (2 * step), atol=1e-5)


def highest(loss, v, y, box, gap=1e-7):
    """Return max <s,v> - L(s) over |s_j| <= box by cutting planes: values and gradients alone.

    The maximum is not below what is returned, and above it by less than gap.
    """
    m = len(v)
    s, cuts, floors, best = np.zeros(m), [], [], -np.inf
    for _ in range(300):
        value, slope = loss.value(s, y), loss.gradient(s, y)
        best = max(best, s @ v - value)
        cuts.append(np.append(slope, -1.0))  # L(s') >= value + <slope, s' - s>
        floors.append(slope @ s - value)
        bounds = [*[(-box, box)] * m, (None, None)]
        plan = scipy.optimize.linprog(np.append(-v, 1.0), A_ub=cuts, b_ub=floors, bounds=bounds)
        if -plan.fun - best < gap:
            return best
        s = plan.x[:m]
    raise AssertionError(f"no maximum within {-plan.fun - best}")


@convex
def test_conjugate_is_the_supremum(case):
    """L*(v) = max <s,v> - L(s) where it is finite; elsewhere there is no maximum."""
    m = 3 if case.arguments.get("k", 1) < 3 and "weights" not in case.arguments else 4
    loss, (wrong, y) = case.loss, one_wrong_row(case.loss, m)
    for point in scores_of("normal", n=2, m=m):
        v = 0.5 * loss.gradient(point, y) + 0.3 * loss.gradient(-point, y)
        v += 0.1 * loss.gradient(wrong, y) + 0.1 * loss.gradient(-wrong, y)
        assert loss.conjugate(v, y) == pytest.approx(highest(loss, v, y, 20.0), abs=1e-6)
    edge = loss.gradient(wrong, y)
    for v in (1.5 * edge, -0.5 * edge):
        assert loss.conjugate(v, y) == np.inf
        assert highest(loss, v, y, 40.0, gap=0.5) > highest(loss, v, y, 20.0, gap=0.5) + 1.5
    if not case.name.startswith("OneVsAll"):
        v = 0.5 * edge + 0.1  # no longer of sum 0
        assert loss.conjugate(v, y) == np.inf
        assert highest(loss, v, y, 40.0, gap=0.5) > highest(loss, v, y, 20.0, gap=0.5) + 1.5


@convex
def test_value_is_the_supremum(case):
    """L(s) = max <s,v> - L*(v) over all v, here over mixtures of very many gradients."""
    loss, m = case.loss, 5
    _, y = one_wrong_row(loss, m)
    rng = np.random.default_rng(3)
    places = 4 * rng.standard_normal((3000, m))
    points = loss.gradient(
        places, np.tile(y, (3000, 1)) if loss.multilabel else np.zeros(3000, int)
    )
    near = rng.dirichlet(np.ones(4), 3000)
    mixtures = np.einsum("ij,ijk->ik", near, points[rng.integers(0, 3000, (3000, 4))])
    every = np.concatenate([points, mixtures])
    marks = np.tile(y, (6000, 1)) if loss.multilabel else np.zeros(6000, int)
    conjugates = loss.conjugate(every, marks)
    assert np.isfinite(conjugates).all()
    for s in rng.standard_normal((5, m)):
        found, value = (every @ s - conjugates).max(), loss.value(s, y)
        assert found <= value + 1e-12
        assert found == pytest.approx(value, abs=0.1 if case.smooth else 1e-12)


@convex
def test_rounding_is_forgiven(case):
    loss, (wrong, y) = case.loss, one_wrong_row(case.loss, 5)
    edge = loss.gradient(wrong, y)
    assert np.isfinite(loss.conjugate(edge * (1 + 1e-12), y))
    assert loss.conjugate(edge * (1 + 1e-6), y) == np.inf


# Relations ----------------------------------------------------------------------------------


def assert_same_loss(first, second, y=None, second_y=None):
    for family in FAMILIES:
        scores = scores_of(family)
        labels = np.arange(12) % 6 if y is None else y
        others = labels if second_y is None else second_y
        size = max(1.0, np.abs(scores).max())
        np.testing.assert_allclose(
            first.value(scores, labels), second.value(scores, others), rtol=1e-12, atol=1e-13 * size
        )
        slopes = first.gradient(scores, labels), second.gradient(scores, others)
        if family not in ("tied", "equal", "margin"):  # a corner has many subgradients
            np.testing.assert_allclose(*slopes, rtol=1e-9, atol=1e-12)
        v = 0.5 * slopes[0]
        np.testing.assert_allclose(
            first.conjugate(v, labels), second.conjugate(v, others), rtol=1e-12, atol=1e-13
        )


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("kind", ["alpha", "beta", "label"])
def test_top_1_hinge(kind, smoothing):
    assert_same_loss(losses.TopKHinge(1, kind, smoothing), losses.Hinge(smoothing))


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("label", [False, True])
def test_top_1_weighted(label, smoothing):
    weighted = losses.WeightedTopKHinge([1.0], label=label, smoothing=smoothing)
    assert_same_loss(weighted, losses.Hinge(smoothing))


def test_top_1_entropy():
    assert_same_loss(losses.TopKEntropy(1), losses.Softmax())
    for family in FAMILIES:
        scores, y = scores_of(family), np.arange(12) % 6
        truncated, softmax = losses.TruncatedTopKEntropy(1), losses.Softmax()
        size = max(1.0, np.abs(scores).max())
        np.testing.assert_allclose(
            truncated.value(scores, y), softmax.value(scores, y), rtol=1e-12, atol=1e-13 * size
        )
        np.testing.assert_allclose(
            truncated.gradient(scores, y), softmax.gradient(scores, y), rtol=1e-9, atol=1e-15
        )


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("k", [1, 2, 4])
def test_flat_weights(k, smoothing):
    for label, kind in ((False, "alpha"), (True, "label")):
        flat = losses.WeightedTopKHinge("flat", k, label=label, smoothing=smoothing)
        assert_same_loss(flat, losses.TopKHinge(k, kind, smoothing))


@pytest.mark.parametrize("indicator", [False, True])
def test_one_label_is_multiclass(indicator):
    labels = np.arange(12) % 6
    y = np.eye(6, dtype=bool)[labels] if indicator else labels
    assert_same_loss(losses.MultilabelHinge(), losses.Hinge(), y, labels)
    assert_same_loss(losses.MultilabelSoftmax(), losses.Softmax(), y, labels)
    # The multilabel smoothing weighs all classes, the label too.
    weighted = losses.WeightedTopKHinge([1.0], smoothing=0.7, envelope="all")
    assert_same_loss(losses.MultilabelHinge(0.7), weighted, y, labels)


@pytest.mark.parametrize("loss", [losses.MultilabelHinge(), losses.MultilabelSoftmax()], ids=repr)
def test_nothing_to_rank(loss):
    scores = scores_of("normal", n=2)
    y = np.array([[False] * 6, [True] * 6])
    for labels in (y, y[:1], y[1:]):
        rows = scores[: len(labels)]
        np.testing.assert_array_equal(loss.value(rows, labels), 0.0)
        np.testing.assert_array_equal(loss.gradient(rows, labels), 0.0)
        np.testing.assert_array_equal(loss.conjugate(0 * rows, labels), 0.0)
        np.testing.assert_array_equal(loss.conjugate(rows, labels), np.inf)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("family", FAMILIES)
def test_upper_bounds(k, family):
    """Of the top-k error: the label's score is below the k largest."""
    scores, y = scores_of(family, n=200), np.arange(200) % 6
    own = scores[np.arange(200), y]
    error = np.sort(scores, axis=1)[:, -k] > own
    alpha, label, beta = (losses.TopKHinge(k, kind) for kind in ("alpha", "label", "beta"))
    assert (alpha.value(scores, y) >= error).all()
    size = 1e-12 * max(1.0, np.abs(scores).max())
    assert (alpha.value(scores, y) <= label.value(scores, y) + size).all()
    assert (label.value(scores, y) <= beta.value(scores, y) + size).all()
    for profile in ("flat", "linear", "exp"):
        weighted = losses.WeightedTopKHinge(profile, k)
        assert (weighted.value(scores, y) >= error * (1 - 1e-12)).all()
    for loss in (losses.TopKEntropy(k), losses.TruncatedTopKEntropy(k)):
        assert (loss.value(scores, y) / np.log(2) >= error * (1 - 1e-12)).all()


@pytest.mark.parametrize("smoothing", [1e-6, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("case", [c for c in CASES if "smoothing" in c.arguments], ids=str)
def test_smoothing_is_from_below(case, smoothing):
    scores, y = scores_of("wide"), labels_of(case.loss)
    sharp = Case(case.name, {**case.arguments, "smoothing": 0.0}).loss.value(scores, y)
    loss = Case(case.name, {**case.arguments, "smoothing": smoothing}).loss
    assert (loss.value(scores, y) <= sharp + 1e-12).all()
    assert (loss.value(scores, y) >= sharp - smoothing * 6).all()


# Extremes -----------------------------------------------------------------------------------


@everything
@pytest.mark.parametrize("size", [1e15, 1e100, 1e150, 1e-100, 1e-300])
def test_extreme_scores(case, size):
    loss = case.loss
    scores = size * scores_of("normal")
    y = labels_of(loss)
    values, slopes = loss.value(scores, y), loss.gradient(scores, y)
    assert np.isfinite(values).all()
    assert (values >= -1e-12 * max(1.0, size)).all()
    assert np.isfinite(slopes).all()
    assert (np.abs(slopes).max(axis=1) <= 1 + 1e-12).all()
    if size < 1:
        np.testing.assert_allclose(values, loss.value(0 * scores, y), rtol=1e-12)


@everything
def test_a_common_shift_changes_nothing(case):
    if case.name.startswith("OneVsAll"):
        return
    loss, scores = case.loss, scores_of("tied") / 4  # a shift by 2^20 is exact
    y = labels_of(loss)
    shifted = scores + 2.0**20
    np.testing.assert_allclose(loss.value(shifted, y), loss.value(scores, y), atol=1e-9)
    np.testing.assert_allclose(loss.gradient(shifted, y), loss.gradient(scores, y), atol=1e-9)


# Arrays -------------------------------------------------------------------------------------


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


# Objects ------------------------------------------------------------------------------------


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


# Errors -------------------------------------------------------------------------------------

ROWS = [[1.0, 0.5, 0.0], [0.0, 3.0, 1.0]]


def raises(error, *fragments):
    """Expect an error whose message holds the fragments in this order."""
    return pytest.raises(error, match=".*".join(re.escape(str(f)) for f in fragments))


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


@pytest.mark.parametrize("m", [2, 3, 26, 300])
@pytest.mark.parametrize("family", ["normal", "tied", "equal", "exponential", "two far", "huge"])
def test_top_k_sums(family, m):
    # The k largest margins are added up without listing them; whatever their spacing.
    rng = np.random.default_rng(m)
    scores = {
        "normal": rng.standard_normal((20, m)),
        "tied": rng.integers(3, size=(20, m)).astype(float),
        "equal": np.ones((20, m)),
        "exponential": rng.permuted(np.tile(2.0 ** np.linspace(20, -20, m), (20, 1)), axis=1),
        "two far": np.where(rng.random((20, m)) < 0.5, 1e6, 1e-6) * rng.standard_normal((20, m)),
        "huge": 1e15 * rng.standard_normal((20, m)),
    }[family]
    y = rng.integers(m, size=20)
    margins = 1.0 + scores - scores[np.arange(20), y][:, None]
    others = margins[np.arange(m) != y[:, None]].reshape(20, m - 1)
    for k in {1, 2, 5, m // 2, m - 1} & set(range(1, m)):
        for kind in ("alpha", "beta", "label"):
            slots = np.hstack([others, np.zeros((20, 1))]) if kind == "label" else others
            largest = np.sort(slots)[:, ::-1][:, :k]
            expected = (np.maximum(largest, 0) if kind == "beta" else largest).sum(1) / k
            np.testing.assert_allclose(
                losses.TopKHinge(k, kind).value(scores, y),
                np.maximum(0, expected),
                rtol=0,
                atol=1e-14 * np.abs(margins).max(),
            )


@pytest.mark.parametrize("smoothing", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("kind", ["alpha", "beta", "label"])
def test_margins_that_overflow(kind, smoothing):
    # 1e308 - (-1e308) is infinite.
    loss = losses.TopKHinge(1, kind, smoothing=smoothing)
    scores = np.tile([1e308, -1e308, 0.0], (3, 1))
    np.testing.assert_array_equal(loss.value(scores, [0, 1, 2])[:2], [0.0, np.inf])
    assert np.isfinite(loss.gradient(scores, [0, 1, 2])).all()


@pytest.mark.parametrize(("m", "k"), [(2, 1), (5, 4), (26, 5), (64, 1), (64, 63), (65, 9)])
@pytest.mark.parametrize("smoothing", [1e-3, 1.0, 30.0])
def test_values_do_not_depend_on_their_neighbours(m, k, smoothing):
    # Smoothed values of short rows are found four at a time; those of weights, one by one.
    rng = np.random.default_rng(m + k)
    loss = losses.TopKHinge(k, smoothing=smoothing)
    single = losses.WeightedTopKHinge("flat", k=k, smoothing=smoothing)
    scores = rng.standard_normal((24, m)) * 10.0 ** rng.integers(-3, 4, (24, 1))
    y = rng.integers(0, m, 24)
    scores[::7] = np.round(scores[::7])
    scores[2::7] = np.round(scores[2::7], 1) + 1e-8 * rng.standard_normal(scores[2::7].shape)
    scores[3::8] = 1e308 * rng.choice([-1.0, 1.0], (3, m))
    scores[5, :] = 0.25
    scores[6, y[6]] = 1e4
    values, expected = loss.value(scores, y), single.value(scores, y)
    assert values[6] == 0.0
    np.testing.assert_array_equal(values, row_by_row(loss.value, scores, y))
    huge = np.arange(24) % 8 == 3
    np.testing.assert_array_equal(values[huge], expected[huge])
    size = 1 + np.abs(scores[~huge] - scores[~huge, y[~huge], None]).max(axis=1)
    np.testing.assert_allclose((values[~huge] - expected[~huge]) / size, 0.0, atol=1e-14)


# Digits -------------------------------------------------------------------------------------


def rows_that_cost_digits(m):
    """Return scores, and a label that is 0 in each row: its differences are exact."""
    rng = np.random.default_rng(m)
    rows = [scale * rng.standard_normal(m) for scale in 10.0 ** np.arange(-8, 9, 2)]
    rows += [-gap * (1 + rng.random(m)) for gap in (1.0, 10.0, 36.0, 100.0, 300.0)]
    rows += [-1 + sign * 10.0 ** rng.uniform(-9, -2, m) for sign in (1, -1)]
    rows += [-1 + rng.choice([-1, 1], m) * 10.0 ** rng.uniform(-9, 0, m) for _ in range(4)]
    rows = np.array(rows)
    y = rng.integers(0, m, len(rows))
    rows[np.arange(len(rows)), y] = 0.0
    return rows, y


def units_off(loss, s, y):
    """Return the error of a value in units of what rounding the margins can do to it."""
    value, v = loss.value(s, y), loss.gradient(s, y)
    return distance(value, exact_value(loss, s, y)) / rounding(loss, s, y, v, value)


@everything
@pytest.mark.parametrize("m", [5, 8])
def test_values_keep_their_digits(case, m):
    scores, y = rows_that_cost_digits(m)
    assert max(map(units_off, [case.loss] * len(y), scores, y)) <= 8


@everything
@pytest.mark.parametrize("m", [5, 8])
def test_values_of_the_twin_keep_their_digits(case, m):
    scores, y = rows_that_cost_digits(m)
    for s, label in zip(scores, y, strict=True):
        value, v = case.twin.value(s, label), case.twin.gradient(s, label)
        unit = rounding(case.loss, s, label, v, value)
        assert distance(value, exact_value(case.loss, s, label)) <= 16 * unit


@convex
def test_conjugates_keep_their_digits(case):
    loss, (scores, y) = case.loss, rows_that_cost_digits(6)
    gradients = loss.gradient(scores, y)
    for share in (1.0, 1e-3, 1e-12, 1e-100, 1e-290):
        for v, label in zip(share * gradients, y, strict=True):
            error = distance(loss.conjugate(v, label), exact_conjugate(loss, v, label))
            assert error <= 4 * conjugate_rounding(loss, v, label)


@pytest.mark.parametrize("gap", [1.0, 30.0, 40.0, 300.0, 700.0])
def test_tails_of_entropies(gap):
    """log(1 + e^-gap) is e^-gap next to nothing; it used to be 0 from 37 on."""
    tail = np.log1p(np.exp(-gap))
    for loss in (losses.Softmax(), losses.TruncatedTopKEntropy(1), losses.MultilabelSoftmax()):
        for name in ("value", "gradient"):
            result = getattr(loss, name)([0.0, gap], 1)
            share = tail if name == "value" else [1 / (1 + np.exp(gap)), -1 / (1 + np.exp(gap))]
            np.testing.assert_allclose(result, share, rtol=1e-15)
    np.testing.assert_allclose(
        losses.OneVsAllLogistic().value([-gap, gap], 1), 2 * tail, rtol=1e-15
    )
    scores = [gap, 0.0, 0.0, -1e3]
    np.testing.assert_allclose(  # two at the cap of 1/2
        losses.TopKEntropy(2).value(scores, 0), np.log1p(2 * np.exp(-gap)), rtol=1e-13
    )
    assert losses.Softmax().value([40.0, 0.0], 0) == 4.248354255291589e-18


def test_large_scores_keep_the_digits_of_their_differences():
    scores = 1e8 + np.array([0.25, 1.0, 0.5, -3.0])
    for loss in (losses.MultilabelSoftmax(), losses.MultilabelHinge(0.5)):
        for y in ([True, False, True, False], [False, True, False, False]):
            expected = loss.value(scores - 1e8, y)
            np.testing.assert_allclose(loss.value(scores, y), expected, rtol=4e-16)
    same = np.full(26, 3.2972779928237662e35)
    value = losses.MultilabelSoftmax().value(same, np.arange(26) < 5)
    np.testing.assert_allclose(value, np.log(26), rtol=4e-16)
    truncated = losses.TruncatedTopKEntropy(2)
    slopes = truncated.gradient([1e8 + 1, -1e8, 1e8, 3e8], 1)
    np.testing.assert_allclose(slopes, truncated.gradient([1.0, -700.0, 0.0, 900.0], 1), rtol=1e-15)


def test_sums_of_largest_margins_keep_their_digits():
    """The k largest are near 0, and the search for them begins far below."""
    near = np.array([0.0, -1 + 9.3e-12, -1 - 3.3e-12])
    scores = np.append(near, [-1.0000018636385695, -1.0005507902318314, -1.0016470047869408])
    for kind in ("alpha", "label"):
        loss = losses.TopKHinge(2, kind)
        assert loss.value(scores, 0) == loss.value(near, 0)
        assert units_off(loss, scores, 0) <= 1


@pytest.mark.parametrize(
    ("loss", "scores", "y"),
    [
        (
            losses.WeightedTopKHinge(
                [0.6696889771141877, 0.496448492379297], None, True, 1e6, "all"
            ),
            [0.0, -0.9999999999387618, -1.0000000019738098],
            0,
        ),
        (losses.MultilabelHinge(30.0), [0.0, 4.7e133, 4.7e133], [False, True, False]),
        (losses.TopKHinge(5, "label", 1e6), 1.5e291 * np.array([0, 1, 1, -1, 1, 2]), 2),
    ],
    ids=lambda x: type(x).__name__,
)
def test_values_are_never_negative(loss, scores, y):
    assert loss.value(scores, y) >= 0


def test_classes_far_below_change_nothing():
    """They used to make the smoothing look too small to matter."""
    for far in (-1e9, -1e30, -1e300):
        scores, near = [0.0, -1 + 1e-10, far], [0.0, -1 + 1e-10, -5.0]
        for loss in (losses.Hinge(1e-8), losses.TopKHinge(1, "beta", 1e-8)):
            assert loss.value(scores, 0) == loss.value(near, 0)
        for loss in (losses.Hinge(1e-8), losses.MultilabelHinge(1e-8)):
            np.testing.assert_array_equal(loss.gradient(scores, 0), loss.gradient(near, 0))
        assert losses.MultilabelHinge(1e-8).value(scores, 0) == pytest.approx(
            losses.WeightedTopKHinge([1.0], smoothing=1e-8, envelope="all").value(near, 0),
            rel=1e-15,
        )


@pytest.mark.parametrize("smoothing", [1e-3, 1.0, 30.0])
def test_margins_that_overflow_below(smoothing):
    """-1e308 - 1e308 is as far below as can be, and changes nothing either."""
    for kind in ("alpha", "beta", "label"):
        loss = losses.TopKHinge(1, kind, smoothing)
        value = loss.value([1e308, 1e308, -1e308], 0)
        assert value == loss.value([0.0, 0.0, -5.0], 0) > 0
    loss = losses.MultilabelHinge(smoothing)
    assert loss.value([1e308, 1e308, -1e308], 0) == loss.value([0.0, 0.0, -5.0], 0) > 0


def test_smoothing_that_is_lost_in_rounding():
    """Of margins of 1e44 only the order counts; their projection used to be infeasible."""
    loss = losses.TopKHinge(2, smoothing=30.0)
    scores = [1.2418924218433522e45, -7.9500439974216252e43, 2.3615956259751435e44]
    np.testing.assert_array_equal(loss.gradient(scores, 1), [0.5, -1.0, 0.5])
    mean = (scores[0] + scores[2]) / 2 - scores[1]
    np.testing.assert_allclose(loss.value(scores, 1), mean, rtol=1e-15)


def test_smoothing_of_large_weights_is_not_lost():
    """Beyond margins of smoothing/eps a vertex is as good as any; its square still counts."""
    loss = losses.WeightedTopKHinge([100.0, 50.0], smoothing=1e-9, envelope="all")
    scores = np.array([0.0, 1.2e7, -2.4e7])
    assert units_off(loss, scores, 0) <= 1
    assert loss.value(scores, 0) == 150.0 - 0.5e-9 * (100.0**2 + 50.0**2 + 150.0**2)


def test_smoothing_so_large_that_squares_underflow():
    for loss in (losses.Hinge(1e200), losses.TopKHinge(1, "beta", 1e200)):
        np.testing.assert_allclose(loss.value([0.0, 1.0], 0), 2e-200, rtol=1e-15)
        v = loss.gradient([0.0, 1.0], 0)
        np.testing.assert_allclose(loss.conjugate(v, 0), -2e-200 + 2e-200, atol=1e-215)
    np.testing.assert_allclose(
        losses.MultilabelHinge(1e200).value([0.0, 1.0], 0), 1e-200, rtol=1e-15
    )


def test_differences_that_overflow():
    scores = np.array([1e308, -1e308, 0.0])
    for loss in (losses.Softmax(), losses.TopKEntropy(1), losses.MultilabelSoftmax()):
        np.testing.assert_array_equal(loss.value(np.tile(scores, (2, 1)), [0, 1]), [0.0, np.inf])
        np.testing.assert_array_equal(loss.gradient(scores, 1), [1.0, -1.0, 0.0])
    assert losses.TopKEntropy(2).gradient(scores, 1).tolist() == [0.5, -1.0, 0.5]
    assert losses.TruncatedTopKEntropy(2).gradient(scores, 1).tolist() == [0.0, -1.0, 1.0]
    assert losses.MultilabelHinge(0.5).value(scores, 1) == np.inf
    np.testing.assert_array_equal(losses.MultilabelHinge(0.5).gradient(scores, 1), [1.0, -1.0, 0.0])


def test_conjugates_near_a_vertex():
    """1 - x keeps its digits: log x is not found from 1/x there."""
    for loss in (losses.Softmax(), losses.TopKEntropy(1), losses.MultilabelSoftmax()):
        for rest in (1e-3, 2.0**-30, 2.0**-50):
            v = [-1.0, 1 - rest, rest]
            expected = (1 - rest) * np.log1p(-rest) + rest * np.log(rest)
            np.testing.assert_allclose(loss.conjugate(v, 0), expected, rtol=1e-15)
        tiny = [-1e-305, 1e-305, 0.0]
        expected = 1e-305 * (np.log(1e-305) - 1)
        np.testing.assert_allclose(loss.conjugate(tiny, 0), expected, rtol=1e-14)


@convex
@pytest.mark.filterwarnings("ignore::topkopt.ConvergenceWarning")
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_dual_is_not_above_the_primal(case, scale):
    """Not even where both are next to 0, because the examples are far apart or C is large."""
    X, y = scale * np.eye(5), np.arange(5)
    for C in 10.0 ** np.arange(-8, 13, 4):
        solution = solve(X, y, case.loss, C=C, tol=1e-9, max_epochs=50, random_state=0)
        loss, penalty = C * case.loss.value(X @ solution.coef, y).sum(), (solution.coef**2).sum()
        size = (loss + penalty + np.abs(solution.dual).sum()) / (C * 5)
        assert solution.primal - solution.dual_value >= -1e-14 * size
        assert solution.gap >= -1e-13


def test_a_certificate_of_a_tail():
    solution = solve(1000 * np.eye(2), [0, 1], "softmax", C=1e10, tol=1e-9)
    assert 0 < solution.dual_value <= solution.primal * (1 + 1e-14)
    assert abs(solution.gap) <= 1e-9


# Subclasses ---------------------------------------------------------------------------------


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
