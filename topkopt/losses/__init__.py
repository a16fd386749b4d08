"""The losses of top-k classification, and the registry of their names.

A loss is a small immutable object: it can be compared, pickled and printed, and it evaluates
``value``, ``gradient`` and ``conjugate`` on rows of scores. Its class is compiled and final: what a
subclass overrides would never be called, and so subclassing is an error.

`base` says what a loss is, `hinge`, `entropy`, `binary` and `multilabel` hold one family each,
`custom` the loss that a Python function computes, `declaration` and `registry` make the rest of the
library know them.
"""

from topkopt.losses import binary, entropy, hinge, multilabel  # noqa: F401  (they declare losses)
from topkopt.losses.base import Loss as Loss
from topkopt.losses.custom import CustomLoss as CustomLoss
from topkopt.losses.registry import (
    check_complete,
    classes,
)
from topkopt.losses.registry import (
    declaration_of as declaration_of,
)
from topkopt.losses.registry import (
    from_flat as from_flat,
)
from topkopt.losses.registry import (
    get as get,
)
from topkopt.losses.registry import (
    names as names,
)

for _loss in classes():
    check_complete(_loss)
globals().update({_loss.__name__: _loss for _loss in classes()})

__all__ = sorted(
    ["CustomLoss", "Loss", "classes", "declaration_of", "from_flat", "get", "names"]
    + [_loss.__name__ for _loss in classes()]
)
