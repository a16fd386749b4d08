"""Reference implementations in plain NumPy: one row at a time, written to be read.

Every function has the name and the arguments of its compiled twin.  Read the files in the order
given in README.md; each opens with the problem it solves and the form of its solution.

>>> project_simplex([0.5, 1.5, -1.0]).tolist()
[0.0, 1.0, 0.0]
"""

from . import losses as _losses
from .bipartite import project_bipartite_simplex
from .entropy import prox_entropy_simplex, prox_topk_entropy
from .frank_wolfe import solve_frank_wolfe
from .knapsack import project_capped_simplex, project_simplex
from .lambert import lambertw_exp, lambertw_exp_derivatives
from .losses import *  # noqa: F403
from .newton import solve_newton
from .sdca import solve
from .topk import project_topk_cone, project_topk_simplex
from .weighted import project_weighted_topk

__all__ = [
    *_losses.__all__,
    "lambertw_exp",
    "lambertw_exp_derivatives",
    "project_bipartite_simplex",
    "project_capped_simplex",
    "project_simplex",
    "project_topk_cone",
    "project_topk_simplex",
    "project_weighted_topk",
    "prox_entropy_simplex",
    "prox_topk_entropy",
    "solve",
    "solve_frank_wolfe",
    "solve_newton",
]
