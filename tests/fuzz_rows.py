"""Random rows and parameters where numbers are least friendly, in any layout and overlap."""

import numpy as np

from .test_arrays import unaligned

INF = np.inf


def draw_length(rng, near=1.0):
    """Return a radius, cap or weight: anywhere, near a given size, or 0."""
    choice = rng.random()
    if choice < 0.05:
        return 0.0
    if choice < 0.4:
        return float(10.0 ** rng.uniform(-300, 300))
    return float(np.clip(near, 1e-307, 1e307) * 10.0 ** rng.uniform(-3, 1))


def draw_rows(rng, shape, dtype):
    """Return rows of one family, each with a scale of its own."""
    n = shape[1]
    family = rng.choice(["normal", "ties", "two", "spread", "near", "zeros", "limits"])
    rows = rng.standard_normal(shape)
    if family == "ties":
        rows = rows.round(1)
    elif family == "two":
        rows = rng.choice(rng.standard_normal(2), shape)
    elif family == "spread":
        rows = rows * 10.0 ** rng.uniform(-30, 0, shape)
    elif family == "near":  # to each other
        rows = 1 + rng.integers(-3, 4, shape) * float(np.finfo(dtype).eps)
    elif family == "zeros":
        rows = rows * (rng.random(shape) < 0.5)
    exponent = 300 if dtype == np.float64 else 37
    scale = 10.0 ** rng.uniform(-exponent, exponent, (shape[0], 1))
    rows = rows * np.where(rng.random(scale.shape) < 0.5, scale, 1.0)
    if family == "limits":
        info = np.finfo(dtype)
        limits = [info.max, -info.max, info.max / 2, info.tiny, info.smallest_subnormal, 1.0, 0.0]
        rows = rng.choice(limits, shape)
    if rng.random() < 0.3:
        rows[rng.random(shape) < 0.3] = -INF
        empty = ~np.isfinite(rows).any(axis=1)
        rows[empty, rng.integers(n)] = 1.0
    return rows.astype(dtype)


def draw_size(rows):
    return float(np.abs(rows[np.isfinite(rows)]).max(initial=1e-300))


def draw_bias(rng):
    return float(rng.choice([0.0, 1.0, 0.5, 10.0 ** rng.uniform(-60, 60)]))


def lay_out(rng, rows):
    """Return the same numbers in another layout, and the axis along which the rows lie."""
    axis = int(rng.integers(2))
    x = np.array(rows.T if axis == 0 else rows, order="C")
    layout = rng.choice(["plain", "fortran", "strided", "reversed", "unaligned", "read-only"])
    if layout == "fortran":
        x = np.asfortranarray(x)
    elif layout == "strided":
        x = np.repeat(np.repeat(x, 2, axis=0), 3, axis=1)[::2, ::3]
    elif layout == "reversed":
        x = x[::-1, ::-1].copy()[::-1, ::-1]
    elif layout == "unaligned":
        x = unaligned(x)
    elif layout == "read-only":
        x.flags.writeable = False
    return x, axis


def draw_out(rng, x):
    """Return (x, out), where out is new or overlaps x in some way; x is moved where need be."""
    choice = rng.choice(["new", "same", "reversed", "shifted", "interleaved", "unaligned"])
    if choice == "same" and x.flags.writeable:
        return x, x
    if choice == "reversed" and x.flags.writeable:
        return x, x[::-1, ::-1]
    if choice == "shifted":
        by = int(rng.integers(x.shape[1] + 1))
        buffer = np.empty(x.size + by, dtype=x.dtype)
        moved, out = buffer[by:].reshape(x.shape), buffer[: x.size].reshape(x.shape)
        if rng.random() < 0.5:
            moved, out = out, moved
        moved[...] = x
        return moved, out
    if choice == "interleaved":
        buffer = np.empty((*x.shape, 2), dtype=x.dtype)
        buffer[..., 0] = x
        return buffer[..., 0], buffer[..., int(rng.integers(2))]
    return x, unaligned(np.empty_like(x)) if choice == "unaligned" else np.empty_like(x)
