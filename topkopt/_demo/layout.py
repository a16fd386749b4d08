"""Tables of text and empty figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["as_table", "new_figure"]


def as_table(rows: Sequence[Sequence[str]], text_columns: int) -> str:
    """Lay out rows below a heading, with the columns that are no text aligned on the right.

    >>> print(as_table([["loss", "epochs"], ["hinge", "12"]], 1))
    loss   epochs
    -----  ------
    hinge      12
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    ruled = [rows[0], ["-" * width for width in widths], *rows[1:]]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < text_columns else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in ruled
    )


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure that needs no display."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")
