"""Every error names the parameter, the constraint, the value and, where there is one, a remedy."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from topkopt import losses
from topkopt.estimators import MultilabelClassifier, TopKClassifier, TopKClassifierCV
from topkopt.metrics import topk_accuracy
from topkopt.projections import (
    project_bipartite_simplex,
    project_capped_simplex,
    project_simplex,
    project_topk_cone,
    project_topk_simplex,
    project_weighted_topk,
)
from topkopt.prox import prox_entropy_simplex, prox_topk_entropy
from topkopt.solvers import solve
from topkopt.special import lambertw_exp

from .cases import OPERATORS
from .expect import raises
from .test_arrays import SIMPLE, apply, rows

operators = pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
writers = pytest.mark.parametrize(
    "op", [op for op in OPERATORS if not op.paired], ids=lambda op: op.name
)
INF, NAN = np.inf, np.nan
X = [1.0, 0.5, -1.0]


def first_name(op):
    return "b" if op.module == "prox" else "x"


# Entries ------------------------------------------------------------------------------------


@operators
@pytest.mark.parametrize(("value", "found"), [(NAN, "NaN"), (INF, "+inf")])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("place", [0, 1])
def test_nan_and_infinity(op, value, found, dtype, place):
    x = rows(40, 6, dtype=dtype)
    x[37, place] = value
    with raises(ValueError, first_name(op), "must not hold NaN or +inf", found, "37", "clean"):
        apply(op, x)


@operators
def test_nan_in_a_long_row(op):
    x = rows(2, 1000)
    x[1, 1] = NAN
    with raises(ValueError, "NaN", "row 1"):
        apply(op, x)


@operators
def test_all_minus_infinity(op):
    x = rows(3, 6)
    x[1] = -INF
    with raises(ValueError, first_name(op), "above -inf"):
        apply(op, x)


@operators
def test_an_error_leaves_out_alone(op):
    x = rows(3, 6)
    x[2, 0] = NAN
    before = x.copy()
    more = {} if op.paired else {"out": x}
    with raises(ValueError, "NaN"):
        apply(op, x, **more)
    np.testing.assert_array_equal(x, before)


@writers
@pytest.mark.parametrize("x", [3.0, np.float64(1.0), np.array(2.0)])
def test_scalar(op, x):
    with raises(ValueError, first_name(op), "at least one dimension", "scalar", "list"):
        apply(op, x)


@writers
@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_no_entries(op, shape):
    with raises(ValueError, first_name(op), "at least one entry", "axis", "none"):
        apply(op, np.empty(shape))


@writers
@pytest.mark.parametrize(
    ("x", "fragment"),
    [
        (np.ones(6, dtype=complex), "complex128"),
        (np.array(["1"] * 6), "<U1"),
        (np.array(["2020-01-01"] * 6, dtype="M8[D]"), "datetime64"),
        (np.array([1.0, "a", 1.0, 1.0, 1.0, 1.0], dtype=object), "float"),
    ],
)
def test_not_real_numbers(op, x, fragment):
    with raises(TypeError, first_name(op), "must hold real numbers", fragment):
        apply(op, x)


@operators
@pytest.mark.parametrize("axis", [2, -3, 17])
def test_axis_out_of_range(op, axis):
    x = rows(3, 6)
    with raises(ValueError, "axis", "between -2 and 1", axis):
        op.public(*([x, x] if op.paired else [x]), **_without_cut(op), axis=axis)


def _without_cut(op):
    return {name: value for name, value in SIMPLE[op.name].items() if name != "cut"}


# Output -------------------------------------------------------------------------------------


@writers
@pytest.mark.parametrize(
    ("out", "fragment"),
    [
        (np.empty((3, 5)), "(3, 5)"),
        (np.empty((1, 3, 6)), "(1, 3, 6)"),
        (np.empty((3, 6), dtype=np.float32), "float32"),
        (np.empty((3, 6), dtype=">f8"), ">f8"),
        ([[0.0] * 6] * 3, "list"),
    ],
)
def test_unfit_out(op, out, fragment):
    with raises(ValueError, "out must be an array of shape (3, 6) and float64", fragment):
        apply(op, rows(3, 6), out=out)


@writers
def test_read_only_out(op):
    out = np.empty((3, 6))
    out.flags.writeable = False
    with raises(ValueError, "out must be writeable", "read-only", "copy"):
        apply(op, rows(3, 6), out=out)


@writers
def test_out_that_overlaps_itself(op):
    """Two results in one place: one of them would be lost."""
    for out in (
        as_strided(np.empty(6), (3, 6), (0, 8)),
        as_strided(np.empty(18), (3, 6), (8, 8)),
        as_strided(np.empty(18), (3, 6), (-8, 8)),
    ):
        with raises(ValueError, "out must have a place of its own for every entry", "copy"):
            apply(op, rows(3, 6), out=out)
    apply(op, rows(1, 6), out=as_strided(np.empty(6), (1, 6), (0, 8)))


PAIR = np.ones((2, 3)), np.ones((2, 3))


@pytest.mark.parametrize(
    ("out", "fragment"),
    [
        (np.empty((2, 3)), "one ndarray"),
        (np.empty((2, 2, 3)), "one ndarray"),
        (list(PAIR), "one list"),
        (PAIR[:1], "a tuple of 1"),
        (PAIR * 2, "a tuple of 4"),
        ((), "a tuple of 0"),
        (3.0, "one float"),
    ],
)
def test_bipartite_out_is_no_pair(out, fragment):
    with raises(ValueError, "out must be a tuple of two arrays, got", fragment, "out=(p, q)"):
        project_bipartite_simplex(*PAIR, out=out)


def test_bipartite_out_of_wrong_shape():
    with raises(ValueError, "out[1] must be an array of shape (2, 3) and float64", "(3, 2)"):
        project_bipartite_simplex(*PAIR, out=(np.empty((2, 3)), np.empty((3, 2))))
    with raises(ValueError, "out[0] must be an array of shape (2, 3)", "list"):
        project_bipartite_simplex(*PAIR, out=([], np.empty((2, 3))))


def test_bipartite_outs_overlap_each_other():
    x, y = rows(2, 4, 3)
    buffer = np.empty((5, 3))
    for out in ((x, x), (buffer[:4], buffer[1:]), (buffer[:4], buffer[3::-1])):
        before = x.copy()
        with raises(ValueError, "out must hold two arrays that do not overlap", "copy"):
            project_bipartite_simplex(x, y, out=out)
        np.testing.assert_array_equal(x, before)


# Masked arrays ------------------------------------------------------------------------------


def masked(array):
    mask = np.zeros(np.shape(array), dtype=bool)
    mask.flat[1] = True
    return np.ma.MaskedArray(array, mask)


@operators
def test_masked_input(op):
    x = rows(3, 6)
    sides = [x[:, :2], x[:, 2:]] if op.paired else [x]
    with raises(ValueError, first_name(op), "must not hold masked entries", "filled"):
        op.public(*map(masked, sides), **_without_cut(op))
    result = op.public(*map(np.ma.MaskedArray, sides), **_without_cut(op))  # nothing is masked
    assert not np.ma.isMaskedArray(result[0])


MASKED = [
    (lambda a: lambertw_exp(a), "t"),
    (lambda a: project_bipartite_simplex(X, a), "y"),
    (lambda a: project_capped_simplex(X, a, 5.0, 3.0), "lower"),
    (lambda a: project_capped_simplex(X, 0.0, a, 3.0), "upper"),
    (lambda a: project_weighted_topk(X, a), "weights"),
    (lambda a: project_simplex([a, a]), "x"),
    (lambda a: losses.Hinge().value(a, 0), "scores"),
    (lambda a: losses.WeightedTopKHinge(a), "weights"),
    (lambda a: losses.Hinge().value(np.eye(3), a.astype(int)), "y"),
    (lambda a: solve(np.ma.diag(a), [0, 1, 2], "hinge"), "X"),
    (lambda a: solve(np.eye(3), a.astype(int), "hinge"), "y"),
    (lambda a: solve(np.eye(3), [0, 1, 2], "hinge", sample_weight=a), "sample_weight"),
    (lambda a: topk_accuracy([0, 1, 2], np.ma.diag(a)), "y_score"),
    (lambda a: topk_accuracy(a.astype(int), np.eye(3)), "y_true"),
    (lambda a: topk_accuracy([0, 1, 2], np.eye(3), sample_weight=a), "sample_weight"),
    (lambda a: TopKClassifier().fit(np.ma.diag(a), [0, 1, 2]), "X"),
    (lambda a: TopKClassifier().fit(np.eye(3), a), "y"),
    (lambda a: TopKClassifier().fit(np.eye(3), [0, 1, 2], sample_weight=a), "sample_weight"),
    (lambda a: TopKClassifier().fit(np.eye(3), [0, 1, 2]).predict(np.ma.diag(a)), "X"),
    (lambda a: TopKClassifierCV().fit(np.ma.diag(a), [0, 1, 2]), "X"),
    (lambda a: MultilabelClassifier().fit(np.eye(3), np.ma.diag(a)), "y"),
]


@pytest.mark.parametrize(("call", "name"), MASKED)
def test_masked_anywhere(call, name):
    with raises(ValueError, name, "must not hold masked entries", f"{name}.filled(value)"):
        call(masked([2.0, 1.0, 0.0]))


@writers
def test_masked_out(op):
    with raises(ValueError, "out must be an array of shape (3, 6) and float64, got MaskedArray"):
        apply(op, rows(3, 6), out=np.ma.MaskedArray(np.empty((3, 6))))


# Parameters ---------------------------------------------------------------------------------

SCALARS = [
    (lambda v: project_simplex(X, v), "radius"),
    (lambda v: project_topk_simplex(X, 1, v), "radius"),
    (lambda v: project_weighted_topk(X, [1.0], v), "radius"),
    (lambda v: project_bipartite_simplex(X, X, v), "radius"),
    (lambda v: prox_entropy_simplex(X, 1.0, v), "radius"),
    (lambda v: project_capped_simplex(X, 0.0, 1.0, 1.0, bias=v), "bias"),
    (lambda v: project_topk_cone(X, 1, bias=v), "bias"),
    (lambda v: project_topk_simplex(X, 1, bias=v), "bias"),
    (lambda v: project_weighted_topk(X, [1.0], bias=v), "bias"),
    (lambda v: prox_entropy_simplex(X, v), "alpha"),
    (lambda v: prox_topk_entropy(X, v), "alpha"),
]


@pytest.mark.parametrize(("call", "name"), SCALARS)
@pytest.mark.parametrize("value", [-1.0, -1e-300, NAN, INF, -INF])
def test_scalar_out_of_range(call, name, value):
    with raises(ValueError, f"{name} must be a finite non-negative number, got", value):
        call(value)


@pytest.mark.parametrize(("call", "name"), SCALARS)
@pytest.mark.parametrize("value", ["one", None, [1.0, 2.0], 1j])
def test_scalar_of_wrong_type(call, name, value):
    with raises(TypeError, f"{name} must be a real number, got", value):
        call(value)


def test_infinite_radius_has_a_remedy():
    with raises(ValueError, "radius", "inf", "project_topk_cone"):
        project_topk_simplex(X, 1, INF)


@pytest.mark.parametrize("total", [NAN, INF, -INF])
def test_total(total):
    with raises(ValueError, "total must be a finite number, got", total):
        project_capped_simplex(X, 0.0, 1.0, total)


@pytest.mark.parametrize("upper", [NAN, -0.5])
def test_entropy_upper(upper):
    with raises(ValueError, "upper must be a non-negative number, got", upper):
        prox_entropy_simplex(X, 1.0, upper=upper)


KS = [
    (lambda k: project_topk_cone(X, k), 3),
    (lambda k: project_topk_simplex(X, k), 3),
    (lambda k: project_topk_simplex(X, k, kind="beta"), 3),
    (lambda k: project_topk_simplex(X, k, kind="label"), 4),
    (lambda k: prox_topk_entropy(X, 1.0, k), 3),
]


@pytest.mark.parametrize(("call", "most"), KS)
def test_k_out_of_range(call, most):
    assert np.isfinite(call(most)).all()
    assert np.isfinite(call(np.int32(most))).all()
    for k in (0, -1, most + 1, 10**6):
        with raises(ValueError, "k must be between 1 and", f"({most})", f"got {k}"):
            call(k)


@pytest.mark.parametrize(("call", "most"), KS)
@pytest.mark.parametrize("k", [1.0, "1", None, [1]])
def test_k_of_wrong_type(call, most, k):
    with raises(TypeError, "k must be an integer, got", k):
        call(k)


@pytest.mark.parametrize("kind", ["gamma", "", "ALPHA", None, 0])
def test_kind(kind):
    with raises(ValueError, "kind must be one of alpha, beta, label, got", repr(kind)):
        project_topk_simplex(X, 1, kind=kind)


@pytest.mark.parametrize(
    "weights", [[1.0, 2.0], [1.0, -0.5], [NAN], [INF, 1.0], [2.0, 1.0, 1.5], [-1.0]]
)
@pytest.mark.parametrize("label", [False, True])
def test_weights_not_in_order(weights, label):
    with raises(ValueError, "weights must be finite, non-negative and non-increasing", "sort"):
        project_weighted_topk(X, weights, label=label)


@pytest.mark.parametrize("weights", [[], 1.0, [[1.0, 0.5]]])
def test_weights_of_wrong_shape(weights):
    with raises(ValueError, "weights must be a non-empty 1-D array, got shape"):
        project_weighted_topk(X, weights)


@pytest.mark.parametrize("label", [False, True])
def test_too_many_weights(label):
    most = 3 + label
    assert project_weighted_topk(X, [1.0] * most, label=label).shape == (3,)
    with raises(ValueError, f"at most {most} positive", f"got {most + 1}", "drop"):
        project_weighted_topk(X, [1.0] * (most + 1), label=label)


def test_weights_of_wrong_type():
    with raises(TypeError, "weights must hold real numbers"):
        project_weighted_topk(X, ["a"])


def test_zero_weights_give_zero():
    np.testing.assert_array_equal(project_weighted_topk(X, [0.0, 0.0]), np.zeros(3))


# Infeasible sets ----------------------------------------------------------------------------


@pytest.mark.parametrize("as_bound", [float, lambda v: np.full(3, v)], ids=["scalar", "array"])
class TestBox:
    def test_total_below_lower(self, as_bound):
        for equality in (True, False):
            with raises(ValueError, "total must be at least", "1.5", "got 1", "lower the bounds"):
                project_capped_simplex(X, as_bound(0.5), as_bound(2), 1.0, equality=equality)

    def test_total_above_upper(self, as_bound):
        box = as_bound(0.0), as_bound(0.5)
        with raises(ValueError, "total must be at most", "1.5", "got 2", "equality=False"):
            project_capped_simplex(X, *box, 2.0)
        result = project_capped_simplex(X, *box, 2.0, equality=False)
        np.testing.assert_array_equal(result, [0.5, 0.5, 0.0])

    def test_minus_infinity_counts_with_its_lower_bound(self, as_bound):
        x = [1.0, -INF, 0.5]
        with raises(ValueError, "above -inf", "(1)", "got 1.25"):
            project_capped_simplex(x, as_bound(0.0), as_bound(0.5), 1.25)
        result = project_capped_simplex(x, as_bound(0.0), as_bound(0.5), 1.0)
        np.testing.assert_array_equal(result, [0.5, 0.0, 0.5])

    def test_crossed_bounds(self, as_bound):
        with raises(ValueError, "lower must not exceed upper", "swap"):
            project_capped_simplex(X, as_bound(1.0), as_bound(0.5), 2.0)

    def test_infinite_lower(self, as_bound):
        with raises(ValueError, "lower must be finite"):
            project_capped_simplex(X, as_bound(-INF), as_bound(1.0), 1.0)

    @pytest.mark.parametrize("bounds", [(NAN, 1.0), (0.0, NAN)])
    def test_nan(self, as_bound, bounds):
        with raises(ValueError, "lower"):
            project_capped_simplex(X, *map(as_bound, bounds), 1.0)

    def test_rounding_is_forgiven(self, as_bound):
        """Ten times 0.1 is not 1 in binary, but a total of 1 is meant to be feasible."""
        for total in (np.nextafter(0.3, 1), np.nextafter(0.3, 0)):
            bound = as_bound(0.1)
            result = project_capped_simplex(X, bound, bound, total)
            np.testing.assert_array_equal(result, [0.1, 0.1, 0.1])


def test_one_infeasible_row_of_many():
    lower = np.zeros((5, 3))
    lower[3] = 0.5
    with raises(ValueError, "total must be at least", "1.5"):
        project_capped_simplex(rows(5, 3), lower, 1.0, 1.0)


def test_bounds_that_do_not_broadcast():
    with raises(ValueError, "lower must broadcast to the input's shape (3,), got shape (2,)"):
        project_capped_simplex(X, [0.0, 0.0], 1.0, 1.0)
    with raises(ValueError, "upper must broadcast to the input's shape (3,), got shape (2, 3)"):
        project_capped_simplex(X, 0.0, np.ones((2, 3)), 1.0)


def test_bounds_of_wrong_type():
    for bounds in (("a", 1.0), (0.0, "a"), ([0.0, "a", 0.0], 1.0)):
        with pytest.raises((TypeError, ValueError)):
            project_capped_simplex(X, *bounds, 1.0)


def test_entropy_cap_too_low():
    with raises(ValueError, "upper", "3 * 0.3 < 1", "raise upper or lower radius"):
        prox_entropy_simplex(X, 1.0, upper=0.3)
    with raises(ValueError, "upper", "2 * 0.4 < 1"):
        prox_entropy_simplex([1.0, -INF, 0.5], 1.0, upper=0.4)
    np.testing.assert_allclose(prox_entropy_simplex(X, 1.0, upper=1 / 3), 1 / 3, rtol=1e-15)


def test_bipartite_shapes():
    with raises(ValueError, "x and y must have equal shapes", "(2, 3)", "(4, 3)"):
        project_bipartite_simplex(np.ones((2, 3)), np.ones((4, 3)))


def test_bipartite_names_the_side():
    with raises(ValueError, "y must not hold NaN"):
        project_bipartite_simplex([1.0], [NAN])
    with raises(ValueError, "y must not hold NaN"):
        project_bipartite_simplex(np.float32([1.0]), [NAN])


# The elementwise function --------------------------------------------------------------------


def test_lambertw_errors():
    with raises(TypeError, "t must hold real numbers", "complex128"):
        lambertw_exp([1j])
    with raises(ValueError, "out must be an array of shape (2,) and float64", "(3,)"):
        lambertw_exp([1.0, 2.0], out=np.empty(3))
    with raises(ValueError, "out must be writeable"):
        lambertw_exp([1.0, 2.0], out=np.broadcast_to(0.0, 2))
