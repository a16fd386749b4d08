"""The maps and losses of topkopt.torch, their parameters, and rows to try them on."""

from functools import partial

import numpy as np

from topkopt import reference
from topkopt import torch as tk

MAPS = {
    "simplex": ("project_simplex", {"radius": 1.0}),
    "large simplex": ("project_simplex", {"radius": 10.0}),
    "capped": ("project_capped_simplex", {"lower": 0.0, "upper": 0.3, "total": 1.0}),
    "box": ("project_capped_simplex", {"lower": -0.5, "upper": 0.7, "total": 0.4}),
    "at most": (
        "project_capped_simplex",
        {"lower": 0.0, "upper": 0.5, "total": 1.0, "equality": False, "bias": 0.5},
    ),
    "alpha": ("project_topk_simplex", {"k": 2}),
    "alpha, biased": ("project_topk_simplex", {"k": 3, "radius": 10.0, "bias": 0.5}),
    "alpha, all": ("project_topk_simplex", {"k": 5, "radius": 2.0}),
    "beta": ("project_topk_simplex", {"k": 2, "kind": "beta", "bias": 0.5}),
    "label": ("project_topk_simplex", {"k": 3, "kind": "label"}),
    "label, biased": ("project_topk_simplex", {"k": 2, "kind": "label", "radius": 3, "bias": 0.5}),
    "weighted": ("project_weighted_topk", {"weights": [0.6, 0.3, 0.1]}),
    "weighted, loose": ("project_weighted_topk", {"weights": [0.6, 0.4], "radius": 9, "bias": 0.2}),
    "weighted, all": ("project_weighted_topk", {"weights": [5.0, 4.0, 3.0, 2.0, 1.0]}),
    "weighted, label": ("project_weighted_topk", {"weights": [0.6, 0.3, 0.1], "label": True}),
    "weighted, label, biased": (
        "project_weighted_topk",
        {"weights": [0.5, 0.3, 0.2], "label": True, "radius": 2.0, "bias": 0.7},
    ),
    "softmax": ("prox_entropy_simplex", {"alpha": 0.0}),
    "capped softmax": ("prox_entropy_simplex", {"alpha": 0.0, "upper": 0.4}),
    "entropy": ("prox_entropy_simplex", {"alpha": 2.0, "radius": 3.0}),
    "capped entropy": ("prox_entropy_simplex", {"alpha": 0.5, "upper": 0.3}),
    "top-k softmax": ("prox_topk_entropy", {"alpha": 0.0, "k": 2}),
    "top-k entropy": ("prox_topk_entropy", {"alpha": 0.7, "k": 3}),
    "top-k entropy, all": ("prox_topk_entropy", {"alpha": 10.0, "k": 5}),
}


def the_map(case):
    """Return a map with its parameters filled in, and its twin for one row."""
    name, params = MAPS[case]
    known = getattr(reference, name)
    return partial(getattr(tk, name), **params), lambda row: known(row, **params)


def rows(length=7):
    """Return random, tied, masked and extreme rows, with at least five entries above -inf."""
    rng = np.random.default_rng(length)
    normal = rng.standard_normal((12, length))
    tied = rng.integers(-1, 2, (6, length)).astype(float)
    masked = np.where(rng.permuted(np.arange(length) >= 5, axis=0), -np.inf, normal[:6])
    some, half = np.arange(length) < 2, np.arange(length) % 2 == 0
    extreme = np.concatenate(
        [
            normal[:2] + 1e6,
            normal[:2] * 1e4,
            normal[:2] * 1e-8,
            -50.0 + normal[:2],
            np.where(np.arange(length) == 1, 60.0, normal[:1]),
            np.zeros((1, length)),
            # Some are far from the others, which are close to each other.
            *(
                normal + 1e3 * rng.permuted(np.where(far, sign, 0.0)[None].repeat(12, 0), axis=1)
                for far in (np.arange(length) == 0, some, half)
                for sign in (-1, 1)
            ),
            normal * 10.0 ** rng.uniform(-6, 3, normal.shape),
            normal * 1e30,
        ]
    )
    return {"random": normal, "tied": tied, "masked": masked, "extreme": extreme}


LOSSES = {
    "hinge": ("topk_hinge", {"k": 1}, "TopKHinge"),
    "top-k hinge": ("topk_hinge", {"k": 3}, "TopKHinge"),
    "top-k hinge, smooth": ("topk_hinge", {"k": 2, "smoothing": 0.7}, "TopKHinge"),
    "beta": ("topk_hinge", {"k": 3, "kind": "beta"}, "TopKHinge"),
    "beta, smooth": ("topk_hinge", {"k": 3, "kind": "beta", "smoothing": 0.7}, "TopKHinge"),
    "label": ("topk_hinge", {"k": 3, "kind": "label"}, "TopKHinge"),
    "label, smooth": ("topk_hinge", {"k": 3, "kind": "label", "smoothing": 0.7}, "TopKHinge"),
    "weighted": ("weighted_topk_hinge", {"weights": [0.7, 0.3]}, "WeightedTopKHinge"),
    "weighted, label": (
        "weighted_topk_hinge",
        {"weights": [0.5, 0.3, 0.2], "label": True},
        "WeightedTopKHinge",
    ),
    "weighted, smooth": (
        "weighted_topk_hinge",
        {"weights": "linear", "k": 3, "smoothing": 0.7, "envelope": "all"},
        "WeightedTopKHinge",
    ),
    "softmax": ("topk_entropy", {"k": 1}, "TopKEntropy"),
    "top-k entropy": ("topk_entropy", {"k": 3}, "TopKEntropy"),
    "truncated": ("truncated_topk_entropy", {"k": 3}, "TruncatedTopKEntropy"),
    "multilabel hinge": ("multilabel_hinge", {}, "MultilabelHinge"),
    "multilabel hinge, smooth": ("multilabel_hinge", {"smoothing": 0.7}, "MultilabelHinge"),
    "multilabel softmax": ("multilabel_softmax", {}, "MultilabelSoftmax"),
    "one-vs-all hinge": ("one_vs_all_hinge", {"smoothing": 0.7}, "OneVsAllHinge"),
    "one-vs-all logistic": ("one_vs_all_logistic", {}, "OneVsAllLogistic"),
}
MULTILABEL = [case for case in LOSSES if LOSSES[case][0].startswith(("multilabel", "one_vs"))]
SMOOTH = [
    case
    for case in LOSSES
    if "smoothing" in LOSSES[case][1] or case.endswith(("softmax", "entropy", "logistic"))
] + ["truncated"]


def the_loss(case):
    """Return a loss with its parameters filled in, and its twin for one row."""
    name, params, twin = LOSSES[case]
    return partial(getattr(tk, name), **params), getattr(reference, twin)(**params)


def the_target(case, n, m):
    """Return labels or label sets, as arrays."""
    rng = np.random.default_rng(m)
    if case not in MULTILABEL:
        return rng.integers(0, m, n)
    target = rng.random((n, m)) < 0.4
    target[0], target[-1] = False, True  # nothing to rank
    return target
