"""The losses and projections inside PyTorch (extra ``torch``).

On a CPU in float32 and float64 the compiled kernels do the work, on other devices and in other
dtypes torch operations that need no word from the device; the results are the same.

>>> import torch
>>> from topkopt.torch import TopKEntropyLoss
>>> logits = torch.zeros(4, 10, requires_grad=True)
>>> TopKEntropyLoss(k=3)(logits, torch.tensor([1, 2, 3, 4])).backward()
>>> logits.grad[0, 1]
tensor(-0.2250)
"""

from topkopt._extras import require

require("torch")

from topkopt.torch.losses import (  # noqa: E402
    multilabel_hinge,
    multilabel_softmax,
    one_vs_all_hinge,
    one_vs_all_logistic,
    topk_entropy,
    topk_hinge,
    truncated_topk_entropy,
    weighted_topk_hinge,
)
from topkopt.torch.maps import (  # noqa: E402
    project_capped_simplex,
    project_simplex,
    project_topk_simplex,
    project_weighted_topk,
    prox_entropy_simplex,
    prox_topk_entropy,
)
from topkopt.torch.modules import (  # noqa: E402
    MultilabelHingeLoss,
    MultilabelSoftmaxLoss,
    OneVsAllHingeLoss,
    OneVsAllLogisticLoss,
    TopKEntropyLoss,
    TopKHingeLoss,
    TruncatedTopKEntropyLoss,
    WeightedTopKHingeLoss,
)

__all__ = [
    "MultilabelHingeLoss",
    "MultilabelSoftmaxLoss",
    "OneVsAllHingeLoss",
    "OneVsAllLogisticLoss",
    "TopKEntropyLoss",
    "TopKHingeLoss",
    "TruncatedTopKEntropyLoss",
    "WeightedTopKHingeLoss",
    "multilabel_hinge",
    "multilabel_softmax",
    "one_vs_all_hinge",
    "one_vs_all_logistic",
    "project_capped_simplex",
    "project_simplex",
    "project_topk_simplex",
    "project_weighted_topk",
    "prox_entropy_simplex",
    "prox_topk_entropy",
    "topk_entropy",
    "topk_hinge",
    "truncated_topk_entropy",
    "weighted_topk_hinge",
]
