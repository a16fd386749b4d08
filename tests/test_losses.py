"""The losses: the reference, conjugates, gradients, relations between them."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from topkopt import losses

from .loss_cases import (
    CASES,
    FAMILIES,
    SMOOTHINGS,
    Case,
    convex,
    everything,
    labels_of,
    one_wrong_row,
    row_by_row,
    scores_of,
    smooth,
)

# Against the reference ------------------------------------------------------------------------


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


# Conjugates and gradients ---------------------------------------------------------------------


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


# Relations ------------------------------------------------------------------------------------


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


# Extremes -------------------------------------------------------------------------------------


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


# Hinges ---------------------------------------------------------------------------------------


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
