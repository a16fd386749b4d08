r"""The losses: value, gradient, conjugate, and the dual step that trains with them.

Every loss L here is a function of the scores s of ONE example.  All but the truncated entropy
are convex, with the conjugate  L*(v) = sup_s <s,v> - L(s).  Solve, for given q and alpha >= 0,

    min_v  L*(v) - <q,v> + alpha/2 <v,v>.                                                 (1)

The solution answers both questions a solver asks:

    gradient    alpha = 0, q = s:  the v that attains  L(s) = max_v <s,v> - L*(v);
    dual step   alpha = kappa C:   a = -C v maximizes the dual objective over the block a,

            max_a  -C L*(-a/C) - <q,a> - kappa/2 <a,a>,      kappa = ||x||^2,  q = s - kappa a_old.

So each class is its value, its conjugate and one `_prox` that solves (1).  The form of v is

    label y, u_j = s_j - s_y          v = (p on the others, -<1,p> on y),  h = 1 + u
      hinge losses                    p = projection of h/(alpha + gamma) onto the set of the loss
      softmax, top-k entropy          p = prox_topk_entropy(u, alpha, k)
    label set Y, N = |Y|              v = (-p on Y, p' on the others)
      multilabel hinge                projection of (1/2 - q_Y, 1/2 + q_rest)/(alpha + gamma)
      multilabel softmax              x - 1_Y/N, x = prox_entropy_simplex(q + alpha 1_Y/N, alpha)
    one problem per class, c = +-1    v_j = -c_j p_j,  c_j = 1 on Y
      hinge                           p = clip((1 - c q)/(alpha + gamma), 0, 1)
      logistic                        log(p/(1-p)) + alpha p = -c q

gamma is the smoothing: gamma/2 <p,p> is added to the conjugate of a hinge loss, which rounds the
corners of the loss itself ([A] Prop. 2).  Without it, alpha = 0 leaves a linear problem, solved by
the largest entries of h.

By hand: s = (1, 0.5, 0), y = 0, h = (0.5, 0).  With alpha = 10 the step is p = (0.025, 0), and
a = 10 (0.025, -0.025, 0) moves the scores to (1.25, 0.25, 0), where the margin is exactly 1.

>>> import numpy as np
>>> s = [1.0, 0.5, 0.0]
>>> Hinge().value(s, 0), Hinge().gradient(s, 0).tolist()
(0.5, [-1.0, 1.0, 0.0])
>>> Hinge().dual_step(s, 0, 1.0, 10.0).tolist()
[0.25, -0.25, 0.0]
>>> TopKHinge(2).value(s, 0), TopKHinge(2).conjugate([-1.0, 0.5, 0.5], 0)
(0.25, -1.0)
>>> Softmax().gradient([0.0, 0.0, np.log(2)], 0).round(12).tolist()
[-0.75, 0.25, 0.5]
>>> MultilabelHinge().value([3.0, 1.0, 0.5], [True, True, False])
0.5

References
----------
[T] Lapin, Hein, Schiele. Top-k Multiclass SVM. NIPS 2015.
[A] Lapin, Hein, Schiele. Analysis and Optimization of Loss Functions for Multiclass, Top-k
    and Multilabel Classification. TPAMI 2018, sections 3 and 5.
[W] Hirohashi, Kato. Learning Weighted Top-k Support Vector Machine. ACML 2019.
"""

from .base import Loss
from .binary import *  # noqa: F403
from .entropy import *  # noqa: F403
from .hinge import *  # noqa: F403
from .multilabel import *  # noqa: F403

__all__ = [name for name, value in globals().items() if not name.startswith("_")
           and isinstance(value, type) and issubclass(value, Loss) and value is not Loss]
