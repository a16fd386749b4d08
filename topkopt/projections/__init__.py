"""Euclidean projections onto the sets of top-k classification.

Every function solves, for each vector along ``axis``,

    minimise  1/2 |x - b|^2 + bias/2 <1, x>^2   subject to   x in a set,

exactly (up to rounding) and in linear time in practice. The input may be of any shape, of float32
or float64 (kept; integers are promoted), read-only or strided. Entries of -inf get no mass.

``out`` may be an input, or overlap one in any way: the result is that of separate arrays.

Entries may be of any size that their dtype has; refused are results that it cannot hold, and
lengths (a radius, a total, bounds) below 1e-240, but not 0, next to numbers beyond 1e240.
"""

from topkopt.projections.bipartite import project_bipartite_simplex
from topkopt.projections.simplex import project_capped_simplex, project_simplex
from topkopt.projections.topk import project_topk_cone, project_topk_simplex
from topkopt.projections.weighted import project_weighted_topk

__all__ = [
    "project_bipartite_simplex",
    "project_capped_simplex",
    "project_simplex",
    "project_topk_cone",
    "project_topk_simplex",
    "project_weighted_topk",
]
