"""Training to a duality gap that the user asks for.

In the order in which the modules build on each other: `data` (feature matrices), `problem` (data,
labels, loss and C), `solution` (what users get), `certificate`, `progress`, `method` (what all
methods have in common), the methods (`sdca`, `frank_wolfe`, and `lbfgs` with its `objective`,
`preconditioner` and `quasi_newton`), `choice` (the methods by name), `starts` (where a
training starts), `training` (the loop of all methods), `solve` and `path`.
"""

from topkopt.solvers.solution import ConvergenceWarning, Solution, State
from topkopt.solvers.solve import solve

__all__ = ["ConvergenceWarning", "Solution", "State", "solve"]
