"""Turn user input into a row of numbers, or say what is wrong with it."""

import numpy as np


def as_row(x, name="x", allow_empty=False):
    """Return `x` as a float64 row; entries -inf are allowed, they get no mass."""
    row = np.asarray(x, dtype=np.float64)
    if row.ndim != 1:
        raise ValueError(f"{name} must be one row (1-D), got {row.ndim}-D; loop over the rows.")
    if np.isnan(row).any() or np.isposinf(row).any():
        raise ValueError(f"{name} must not contain NaN or +inf; remove or clip those entries.")
    if not allow_empty and not np.isfinite(row).any():
        raise ValueError(f"{name} must have at least one finite entry, got {row!r}.")
    return row


def at_least(value, bound, name):
    """Return `value` as a finite float not below `bound`."""
    value = float(value)
    if not (np.isfinite(value) and value >= bound):
        raise ValueError(f"{name} must be finite and >= {bound}, got {value}.")
    return value


def count(k, largest, name="k"):
    """Return `k` as an integer in 1..largest."""
    if k != int(k) or not 1 <= k <= largest:
        raise ValueError(f"{name} must be an integer in 1..{largest} for this row, got {k}.")
    return int(k)
