"""The demonstrations behind ``python -m topkopt``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from topkopt import __version__
from topkopt._demo import losses, operators, training
from topkopt._extras import require

__all__ = ["main"]

_ACTIONS = {"demo": training.run, "losses": losses.run, "projections": operators.run}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m topkopt",
        description="demo: train six losses on the digits of scikit-learn and on three classes on "
        "a circle, print top-k accuracies and certified duality gaps, draw both. projections: "
        "apply every operator to a small vector, time it, check its optimality conditions. losses: "
        "print what each loss computes and allows.",
    )
    parser.add_argument(
        "command", nargs="?", choices=sorted(_ACTIONS), default="demo", help="what to do"
    )
    parser.add_argument("--output", default="topkopt-demo.png", help="the picture (%(default)s)")
    parser.add_argument("--no-picture", action="store_true", help="print the tables only")
    parser.add_argument("--version", action="version", version=f"topkopt {__version__}")
    options = parser.parse_args(arguments)
    action = _ACTIONS[options.command]
    try:
        if not options.no_picture and action is not losses.run:
            require("matplotlib")
        action(options.output, not options.no_picture)
    except ImportError as error:
        sys.exit(f"{error}, or pass --no-picture." if "matplotlib" in str(error) else str(error))
