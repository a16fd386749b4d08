"""Certified top-k classification: exact projections, losses and solvers."""

from importlib.metadata import version

from topkopt import losses, projections, prox, special
from topkopt.solvers import ConvergenceWarning, Solution, solve

__version__ = version("topkopt")

__all__ = ["ConvergenceWarning", "Solution", "losses", "projections", "prox", "solve", "special"]
