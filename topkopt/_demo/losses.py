"""The table of losses: what each computes and allows, from what the classes declare."""

from __future__ import annotations

import re

from topkopt.losses import Loss, classes

__all__ = ["run", "table"]

_HEADINGS = ["loss", "value", "labels", "smoothing", "certificate", "Frank–Wolfe", "probabilities"]


def table() -> str:
    """Return the table as Markdown.

    >>> print(table().splitlines()[0])
    | loss | value | labels | smoothing | certificate | Frank–Wolfe | probabilities |
    """
    lines = [_HEADINGS, ["---", "---", "---", *[":-:"] * 4], *(_row(cls) for cls in classes())]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _row(cls: type[Loss]) -> list[str]:
    declared = cls.declaration
    marks = [
        "smoothing" in declared.parameters,
        declared.convex,
        declared.vertices,
        declared.probabilities is not None,
    ]
    number = " or ".join(
        {"multiclass": "one", "multilabel": "any"}[task] for task in declared.tasks
    )
    return [f"`{cls.__name__}`", _summary(cls), number, *("✓" if mark else "" for mark in marks)]


def _summary(cls: type[Loss]) -> str:
    """Return the first sentence of the docstring, before which Cython puts the signature."""
    paragraphs = (cls.__doc__ or "").split("\n\n")
    first = paragraphs[1 if paragraphs[0].startswith(f"{cls.__name__}(") else 0]
    text = " ".join(first.split()).rstrip(".").replace("``", "`")
    return re.sub(r"\|", r"\\|", text)


def run(output: str, picture: bool) -> None:
    """Print the table."""
    print(table())
