"""Pictures of trainings, accuracies, paths and projections, as scikit-learn's displays.

A display is made by a ``from_...`` method, which also draws it; ``plot(ax)`` draws it again, and
leaves ``ax_`` and ``figure_``. matplotlib (the extra ``plot``) is imported when something is drawn.
"""

from topkopt.plotting.accuracy import TopKAccuracyDisplay
from topkopt.plotting.convergence import ConvergenceDisplay
from topkopt.plotting.path import PathDisplay
from topkopt.plotting.projection import ProjectionDisplay

__all__ = ["ConvergenceDisplay", "PathDisplay", "ProjectionDisplay", "TopKAccuracyDisplay"]
