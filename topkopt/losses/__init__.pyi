from topkopt.losses.base import Loss as Loss
from topkopt.losses.binary import OneVsAllHinge as OneVsAllHinge
from topkopt.losses.binary import OneVsAllLogistic as OneVsAllLogistic
from topkopt.losses.custom import CustomLoss as CustomLoss
from topkopt.losses.entropy import Softmax as Softmax
from topkopt.losses.entropy import TopKEntropy as TopKEntropy
from topkopt.losses.entropy import TruncatedTopKEntropy as TruncatedTopKEntropy
from topkopt.losses.hinge import Hinge as Hinge
from topkopt.losses.hinge import TopKHinge as TopKHinge
from topkopt.losses.hinge import WeightedTopKHinge as WeightedTopKHinge
from topkopt.losses.multilabel import MultilabelHinge as MultilabelHinge
from topkopt.losses.multilabel import MultilabelSoftmax as MultilabelSoftmax
from topkopt.losses.registry import classes as classes
from topkopt.losses.registry import declaration_of as declaration_of
from topkopt.losses.registry import from_flat as from_flat
from topkopt.losses.registry import get as get
from topkopt.losses.registry import names as names

# A loss whose stub is not written yet.
def __getattr__(name: str) -> type[Loss]: ...
