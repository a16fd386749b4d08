"""Any shape, axis, stride, byte order and dtype: always the rows' own results, bit by bit."""

import numpy as np
import pytest

from topkopt.projections import (
    project_bipartite_simplex,
    project_capped_simplex,
    project_weighted_topk,
)
from topkopt.special import lambertw_exp

from .cases import OPERATORS

SIMPLE = {  # one parameter set each, for rows of six entries
    "project_simplex": {"radius": 0.7},
    "project_capped_simplex": {"lower": -0.1, "upper": 0.5, "total": 1.0},
    "project_topk_cone": {"k": 2, "bias": 0.5},
    "project_topk_simplex": {"k": 3, "kind": "label"},
    "project_weighted_topk": {"weights": [0.5, 0.3, 0.2]},
    "project_bipartite_simplex": {"cut": 2},
    "prox_entropy_simplex": {"alpha": 0.5, "upper": 0.4},
    "prox_topk_entropy": {"alpha": 0.5, "k": 2},
}

operators = pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
writers = pytest.mark.parametrize(
    "op", [op for op in OPERATORS if not op.paired], ids=lambda op: op.name
)


def rows(*shape, dtype=np.float64):
    return np.random.default_rng(5).standard_normal(shape).astype(dtype)


def apply(op, x, **more):
    return op(x, **SIMPLE[op.name], **more)


def by_loop(op, x, axis=-1):
    return np.apply_along_axis(lambda row: apply(op, np.ascontiguousarray(row)), axis, x)


def test_every_operator_has_a_simple_case():
    assert SIMPLE.keys() == {op.name for op in OPERATORS}


@operators
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((6,), 0),
        ((6,), -1),
        ((5, 6), 1),
        ((6, 5), 0),
        ((2, 3, 6), 2),
        ((2, 6, 3), 1),
        ((6, 2, 3), 0),
        ((6, 2, 3), -3),
        ((2, 2, 6, 3), np.int64(-2)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_shape_and_axis(op, shape, axis, dtype):
    x = rows(*shape, dtype=dtype)
    before = x.copy()
    result = apply(op, x, axis=axis)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, by_loop(op, x, axis))
    np.testing.assert_array_equal(x, before)
    assert not np.shares_memory(x, result)


@operators
@pytest.mark.parametrize("shape", [(0, 6), (3, 0, 6), (0, 0, 6)])
def test_empty_batch(op, shape):
    assert apply(op, np.empty(shape)).shape == shape
    assert apply(op, np.empty(shape, dtype=np.float32)).dtype == np.float32


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def unaligned(x):
    buffer = np.zeros(x.nbytes + 1, dtype=np.uint8)
    view = buffer[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


LAYOUTS = {
    "read-only": read_only,
    "fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(np.repeat(x, 2, axis=0), 3, axis=1)[::2, ::3],
    "reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "unaligned": unaligned,
    "swapped bytes": lambda x: x.astype(x.dtype.newbyteorder()),
    "broadcast": lambda x: np.broadcast_to(x, (2, *x.shape))[1],
}


@operators
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_layout(op, layout, dtype):
    x = rows(5, 6, dtype=dtype)
    strange = LAYOUTS[layout](x)
    result = apply(op, strange)
    assert result.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(result, apply(op, x))
    np.testing.assert_array_equal(strange, x)


@operators
def test_broadcast_batch(op):
    x = rows(6)
    result = apply(op, np.broadcast_to(x, (4, 6)))
    np.testing.assert_array_equal(result, np.tile(apply(op, x), (4, 1)))


CONVERSIONS = {
    "list": (lambda x: x.tolist(), np.float64),
    "tuple of lists": (lambda x: tuple(x.tolist()), np.float64),
    "int64": (lambda x: x.astype(np.int64), np.float64),
    "int8": (lambda x: x.astype(np.int8), np.float64),
    "bool": (lambda x: x.astype(bool), np.float64),
    "object": (lambda x: x.astype(object), np.float64),
    "float16": (lambda x: x.astype(np.float16), np.float32),
    "longdouble": (lambda x: x.astype(np.longdouble), np.float64),
}


@writers
@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_promotion(op, conversion):
    convert, dtype = CONVERSIONS[conversion]
    x = np.rint(2 * rows(5, 6))
    values = convert(x)
    result = apply(op, values)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, apply(op, np.array(values, dtype=dtype)))


@writers
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_out(op, axis, dtype):
    x = rows(6, 6, 6, dtype=dtype)
    expected = apply(op, x, axis=axis)
    for out in (np.empty_like(x), np.asfortranarray(x), np.empty((6, 12, 6), dtype)[:, ::2]):
        out[...] = np.nan
        assert apply(op, x, axis=axis, out=out) is out
        np.testing.assert_array_equal(out, expected)


@writers
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("layout", ["plain", "fortran", "strided", "reversed"])
def test_out_is_the_input(op, axis, layout):
    x = LAYOUTS.get(layout, np.copy)(rows(6, 6))
    expected = apply(op, x, axis=axis)
    assert apply(op, x, axis=axis, out=x) is x
    np.testing.assert_array_equal(x, expected)


@writers
@pytest.mark.parametrize(
    "view", [lambda x: x[::-1], lambda x: x[:, ::-1], lambda x: x.T], ids=["rows", "ends", "T"]
)
def test_out_is_the_input_in_another_order(op, view):
    x = rows(6, 6)
    expected = apply(op, x.copy())
    apply(op, x, out=view(x))
    np.testing.assert_array_equal(view(x), expected)


@writers
def test_out_overlaps_the_input(op):
    buffer = rows(7, 6)
    expected = apply(op, buffer[:-1].copy())
    apply(op, buffer[:-1], out=buffer[1:])
    np.testing.assert_array_equal(buffer[1:], expected)


@writers
@pytest.mark.parametrize("by", range(1, 7))
@pytest.mark.parametrize("forward", [False, True])
def test_out_is_the_input_moved(op, by, forward):
    """Parts of rows, not only whole ones, are overwritten before they are read."""
    buffer = rows(1, 36 + by).ravel()
    x, out = buffer[:36].reshape(6, 6), buffer[by:].reshape(6, 6)
    if forward:
        x, out = out, x
    expected = apply(op, x.copy())
    apply(op, x, out=out)
    np.testing.assert_array_equal(out, expected)


@writers
def test_out_begins_where_the_input_does(op):
    """The same address, but other strides."""
    buffer = rows(12, 6)
    x, out = buffer[:6], buffer[::2]
    expected = apply(op, x.copy())
    apply(op, x, out=out)
    np.testing.assert_array_equal(out, expected)
    x, out = buffer[::2], buffer[:6]
    expected = apply(op, x.copy())
    apply(op, x, out=out)
    np.testing.assert_array_equal(out, expected)


@writers
def test_out_next_to_the_input(op):
    """Interleaved arrays share no number: both stay what they are."""
    buffer = rows(6, 6, 2)
    x, out = buffer[..., 0], buffer[..., 1]
    before = x.copy()
    np.testing.assert_array_equal(apply(op, x, out=out), apply(op, before))
    np.testing.assert_array_equal(x, before)


@writers
def test_unaligned_out(op):
    x = rows(5, 6)
    out = unaligned(np.empty_like(x))
    assert apply(op, x, out=out) is out
    np.testing.assert_array_equal(out, apply(op, x))


@writers
def test_out_for_a_list(op):
    x = np.rint(rows(3, 6))
    out = np.empty((3, 6))
    assert apply(op, x.tolist(), out=out) is out
    np.testing.assert_array_equal(out, apply(op, x))


@operators
def test_rows_do_not_see_each_other(op):
    """A row of wild numbers next to a tame one changes no bit of it."""
    x = rows(3, 6)
    x[1] *= 1e12
    np.testing.assert_array_equal(apply(op, x), by_loop(op, x))


# The capped simplex: bounds of any shape that broadcasts -------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("lower_shape", [(), (4, 1), (3, 1, 5), (3, 4, 5)])
@pytest.mark.parametrize("upper_shape", [(5,), (1, 4, 1), (3, 4, 5)])
def test_broadcast_bounds(axis, lower_shape, upper_shape):
    x, rng = rows(3, 4, 5), np.random.default_rng(1)
    lower, upper = -rng.random(lower_shape), 0.5 + rng.random(upper_shape)
    result = project_capped_simplex(x, lower, upper, 1.0, axis=axis)
    moved = [
        np.moveaxis(np.broadcast_to(a, x.shape), axis, -1).reshape(-1, x.shape[axis])
        for a in (x, lower, upper, result)
    ]
    for row, low, high, projected in zip(*moved, strict=True):
        expected = project_capped_simplex(row, low, high, 1.0)
        np.testing.assert_array_equal(projected, expected)


@pytest.mark.parametrize("name", ["lower", "upper"])
@pytest.mark.parametrize("by", [-7, -6, -1, 0, 1, 5, 6, 12])
def test_out_overlaps_a_bound(name, by):
    """Bounds are read to the end, wherever the results go."""
    buffer = np.random.default_rng(2).random(42 + 2 * 12)
    bound, out = (buffer[12 + shift :][:30].reshape(5, 6) for shift in (0, by))
    x = rows(5, 6)
    if name == "lower":
        bound /= 10
    bounds = {"lower": np.zeros((5, 6)), "upper": np.ones((5, 6))} | {name: bound}
    copies = {key: value.copy() for key, value in bounds.items()}
    expected = project_capped_simplex(x, **copies, total=1.0)
    result = project_capped_simplex(x, **bounds, total=1.0, out=out)
    np.testing.assert_array_equal(result, expected)


def test_out_is_the_input_and_a_bound():
    x = np.abs(rows(5, 6))
    expected = project_capped_simplex(x.copy(), 0.0, x.copy(), 0.1)
    np.testing.assert_array_equal(project_capped_simplex(x, 0.0, x, 0.1, out=x), expected)


@pytest.mark.parametrize("row", range(4))
def test_out_overlaps_the_weights(row):
    x, weights = rows(4, 3), np.array([0.5, 0.3, 0.2])
    expected = project_weighted_topk(x, weights)
    out = np.empty((4, 3))
    out[row] = weights
    project_weighted_topk(x, out[row], out=out)
    np.testing.assert_array_equal(out, expected)


def test_bounds_of_another_dtype():
    x = rows(4, 5, dtype=np.float32)
    lower, upper = np.zeros(5, dtype=np.int8), np.ones(5, dtype=np.float32)
    result = project_capped_simplex(x, lower, upper.tolist(), 2)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, project_capped_simplex(x, np.zeros(5), np.ones(5), 2.0))


# The bipartite simplex: two inputs, two outputs ----------------------------------------------


def test_bipartite_batch():
    x, y = rows(4, 3, 2), rows(4, 7, 2)
    p, q = project_bipartite_simplex(x, y, axis=1)
    assert (p.shape, q.shape) == (x.shape, y.shape)
    for i, j in np.ndindex(4, 2):
        pair = project_bipartite_simplex(x[i, :, j], y[i, :, j])
        np.testing.assert_array_equal(p[i, :, j], pair[0])
        np.testing.assert_array_equal(q[i, :, j], pair[1])


@pytest.mark.parametrize(("n", "m"), [(0, 3), (3, 0), (0, 0)])
def test_bipartite_empty_side(n, m):
    p, q = project_bipartite_simplex(np.ones((2, n)), np.ones((2, m)))
    np.testing.assert_array_equal(p, np.zeros((2, n)))
    np.testing.assert_array_equal(q, np.zeros((2, m)))


def pair_of(x, y, radius=0.7):
    return project_bipartite_simplex(x.copy(), y.copy(), radius)


PAIRS = {  # views of a buffer of (8, 10) numbers: x, y and where the results go
    "in place": lambda b: (b[:4], b[4:], (b[:4], b[4:])),
    "swapped": lambda b: (b[:4], b[4:], (b[4:], b[:4])),
    "rows moved": lambda b: (b[:3], b[3:6], (b[1:4], b[5:])),
    "sides moved": lambda b: (b[:, :4], b[:, 4:8], (b[:, 1:5], b[:, 6:])),
    "reversed": lambda b: (b[:4], b[4:], (b[::-1][:4], b[::-1][4:])),
    "interleaved": lambda b: (b[::2], b[1::2], (b[1::2], b[::2])),
    "transposed": lambda b: (b[:4, :4], b[4:, :4], (b[4:, :4].T, b[:4, :4].T)),
    "first only": lambda b: (b[:4], b[4:], (b[4:], None)),
    "second only": lambda b: (b[:4], b[4:], (None, b[:4])),
}


@pytest.mark.parametrize("layout", PAIRS)
@pytest.mark.parametrize("radius", [0.7, 100.0])
def test_bipartite_out_overlaps_the_inputs(layout, radius):
    x, y, out = PAIRS[layout](rows(8, 10))
    expected = pair_of(x, y, radius)
    results = project_bipartite_simplex(x, y, radius, out=out)
    for result, target, side in zip(results, out, expected, strict=True):
        assert target is None or result is target
        np.testing.assert_array_equal(result, side)


def test_bipartite_outs_side_by_side():
    """Strided arrays may lie within each other as long as they share no number."""
    x, y, buffer = rows(6), rows(6) + 1, np.empty(12)
    out = buffer[::2], buffer[1::2]
    project_bipartite_simplex(x, y, out=out)
    for result, side in zip(out, pair_of(x, y, 1.0), strict=True):
        np.testing.assert_array_equal(result, side)


def test_bipartite_dtypes():
    x, y = rows(3, dtype=np.float32), rows(4, dtype=np.float32)
    assert {side.dtype for side in project_bipartite_simplex(x, y)} == {np.dtype(np.float32)}
    mixed = project_bipartite_simplex(x, y.astype(np.float64))
    wide = project_bipartite_simplex(x.astype(np.float64), y.astype(np.float64))
    for side, expected in zip(mixed, wide, strict=True):
        assert side.dtype == np.float64
        np.testing.assert_array_equal(side, expected)


def test_bipartite_lists_and_integers():
    p, q = project_bipartite_simplex([3, 0], [1], 5)
    np.testing.assert_array_equal(p, [2.0, 0.0])
    np.testing.assert_array_equal(q, [2.0])


# The elementwise function --------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (63,), (64,), (65,), (0,), (3, 0), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lambertw_shapes(shape, dtype):
    t = np.asarray(10 * rows(*shape), dtype=dtype)
    result = lambertw_exp(t)
    assert (result.shape, result.dtype) == (shape, dtype)
    expected = np.array([lambertw_exp(t[i]) for i in np.ndindex(shape)], dtype=dtype)
    np.testing.assert_array_equal(result, expected.reshape(shape))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lambertw_layout(layout, dtype):
    t = rows(7, 9, dtype=dtype)
    np.testing.assert_array_equal(lambertw_exp(LAYOUTS[layout](t)), lambertw_exp(t))


@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_lambertw_promotion(conversion):
    convert, dtype = CONVERSIONS[conversion]
    values = convert(np.rint(2 * rows(3, 6)))
    result = lambertw_exp(values)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, lambertw_exp(np.array(values, dtype=dtype)))


@pytest.mark.parametrize(
    "view",
    [lambda x: x, lambda x: x[::-1], lambda x: x.T, lambda x: x[:, ::-1], unaligned],
    ids=["same", "rows", "T", "ends", "unaligned"],
)
def test_lambertw_out(view):
    t = rows(6, 6)
    expected = lambertw_exp(t.copy())
    out = view(t)
    assert lambertw_exp(t, out=out) is out
    np.testing.assert_array_equal(out, expected)
