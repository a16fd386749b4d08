"""The losses: the reference's values, and cross_entropy's manners."""

import copy
import pickle
from functools import cache

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from tests.exact_losses import exact_gradient, exact_value
from topkopt import losses
from topkopt import torch as tk

from .cases import LOSSES, MULTILABEL, rows, the_loss, the_target

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


@pytest.mark.parametrize("family", ["random", "tied", "extreme"])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("case", list(LOSSES))
@pytest.mark.usefixtures("body")
def test_agrees_with_the_reference(case, dtype, family):
    ours, reference = the_loss(case)
    for length in (7, 80):  # float32 has kernels of its own for long rows
        scores = torch.tensor(rows(length)[family], dtype=dtype, requires_grad=True)
        target = the_target(case, *scores.shape)
        values = ours(scores, torch.from_numpy(target), reduction="none")
        (gradient,) = torch.autograd.grad(values.sum(), scores)
        for i, row in enumerate(scores.detach().double().numpy()):
            y = target[i] if case in MULTILABEL else int(target[i])
            size = TOLERANCE[dtype] * max(1.0, np.abs(row).max())
            np.testing.assert_allclose(
                values[i].item(), reference.value(row, y), rtol=TOLERANCE[dtype], atol=size
            )
            expected = reference.gradient(row, y)
            np.testing.assert_allclose(gradient[i], expected, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("allowed", [0.02, 0.5, 0.9])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("case", list(LOSSES))
@pytest.mark.usefixtures("body")
def test_a_score_of_minus_infinity_is_the_limit(case, dtype, allowed):
    """A class that cannot be has a score that is low beyond all measure, and no gradient."""
    ours, reference = the_loss(case)
    scores = torch.randn(12, 80, dtype=dtype)
    target = the_target(case, 12, 80)
    labels = target if case in MULTILABEL else np.arange(80) == target[:, None]
    masked = (torch.rand(12, 80) > allowed) & ~torch.from_numpy(labels)
    x = scores.masked_fill(masked, -torch.inf).requires_grad_()
    values = ours(x, torch.from_numpy(target), reduction="none")
    (gradient,) = torch.autograd.grad(values.sum(), x)
    assert (gradient[masked] == 0).all()
    for i, row in enumerate(scores.masked_fill(masked, -1e3).double().numpy()):
        y = target[i] if case in MULTILABEL else int(target[i])
        for got, expected in (
            (values[i].item(), reference.value(row, y)),
            (gradient[i], reference.gradient(row, y)),
        ):
            np.testing.assert_allclose(got, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@cache
def masked_rows(case, allowed):
    """Return scores with masked classes, targets, and exact values and gradients of their limit."""
    rng = np.random.default_rng(3)
    scores = rng.standard_normal((5, 12)).astype(np.float32).astype(float)
    target = the_target(case, *scores.shape)
    labels = target if case in MULTILABEL else np.arange(12) == target[:, None]
    scores[(rng.random(scores.shape) > allowed) & ~labels] = -np.inf
    _, params, twin = LOSSES[case]
    loss = getattr(losses, twin)(**params)
    far = np.where(np.isneginf(scores), -1e9, scores)
    values = [float(exact_value(loss, *row)) for row in zip(far, target, strict=True)]
    gradients = [exact_gradient(loss, *row) for row in zip(far, target, strict=True)]
    return scores, target, np.array(values), np.array(gradients)


@pytest.mark.parametrize("allowed", [0.02, 0.3, 0.7])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("case", list(LOSSES))
@pytest.mark.usefixtures("body")
def test_a_score_of_minus_infinity_has_the_exact_gradient(case, dtype, allowed):
    """The witness knows no gradients: it takes differences of values with a hundred digits."""
    ours, _ = the_loss(case)
    scores, target, exact_values, exact_gradients = masked_rows(case, allowed)
    x = torch.tensor(scores, dtype=dtype, requires_grad=True)
    values = ours(x, torch.from_numpy(target), reduction="none")
    (gradient,) = torch.autograd.grad(values.sum(), x)
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    np.testing.assert_allclose(values.detach(), exact_values, **close)
    np.testing.assert_allclose(gradient, exact_gradients, **close)


@pytest.mark.parametrize("case", list(LOSSES))
@pytest.mark.usefixtures("body")
def test_what_is_not_a_number_stays_in_its_row(case):
    ours, _ = the_loss(case)
    scores = torch.randn(6, 80)
    target = torch.from_numpy(the_target(case, 6, 80))
    expected = ours(scores, target, reduction="none")
    scores[2, 5] = torch.nan
    found = ours(scores, target, reduction="none")
    assert found[2].isnan()
    rest = torch.arange(6) != 2
    torch.testing.assert_close(found[rest], expected[rest])


@pytest.mark.parametrize("case", [case for case in LOSSES if case not in MULTILABEL])
@pytest.mark.usefixtures("body")
def test_a_label_that_cannot_be_costs_infinity(case):
    ours, _ = the_loss(case)
    scores = torch.randn(3, 80)
    scores[1, 7] = -torch.inf
    values = ours(scores, torch.full((3,), 7), reduction="none")
    assert values.isinf().tolist() == [False, True, False]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(), (9,), (4, 3), (2, 3, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_top_1_entropy_is_cross_entropy(dtype, shape, weighted, reduction, body):
    classes = (*shape[:1], 5, *shape[1:])
    scores = torch.randn(classes, dtype=dtype)
    target = torch.randint(0, 5, shape)
    if shape:
        target[0] = -100
    options = {"weight": torch.rand(5, dtype=dtype) if weighted else None, "reduction": reduction}
    found = []
    for function in (cross_entropy, tk.TopKEntropyLoss(1, **options)):
        x = scores.clone().requires_grad_()
        extra = options if function is cross_entropy else {}
        value = function(x, target, **extra)
        value.sum().backward()
        found.append((value.detach(), x.grad))
    for theirs, ours in zip(*found, strict=True):
        assert theirs.shape == ours.shape
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("case", list(LOSSES))
def test_nothing_to_learn_from(case, reduction, body):
    ours, _ = the_loss(case)
    empty = torch.empty(0, dtype=torch.int64)
    theirs = cross_entropy(torch.zeros(0, 6), empty, reduction=reduction)
    got = ours(torch.zeros(0, 6), empty, reduction=reduction)
    torch.testing.assert_close(got, theirs, equal_nan=True)
    ignored = torch.full((3,), 2)
    x, y = (torch.randn(3, 6, requires_grad=True) for _ in range(2))
    theirs = cross_entropy(x, ignored, ignore_index=2, reduction=reduction)
    got = ours(y, ignored, ignore_index=2, reduction=reduction)
    torch.testing.assert_close(got, theirs, equal_nan=True)
    if reduction != "mean":
        got.sum().backward()
        assert (y.grad == 0).all()


@pytest.mark.parametrize("case", list(LOSSES))
def test_weights_and_ignored_examples(case, body):
    """The weighted mean is the sum over what counts, over what it counts."""
    ours, _ = the_loss(case)
    scores, weight = torch.randn(8, 6, dtype=torch.float64), torch.rand(6, dtype=torch.float64)
    target = torch.randint(0, 6, (8,))
    target[[1, 5]] = -1
    options = {"weight": weight, "ignore_index": -1}
    alone = ours(scores, target.clamp(min=0), reduction="none")
    counts = torch.where(target < 0, 0.0, weight[target.clamp(min=0)])
    for reduction, expected in (
        ("none", alone * counts),
        ("sum", (alone * counts).sum()),
        ("mean", (alone * counts).sum() / counts.sum()),
    ):
        torch.testing.assert_close(ours(scores, target, reduction=reduction, **options), expected)


@pytest.mark.parametrize("case", MULTILABEL)
def test_multi_hot_targets(case, body):
    ours, _ = the_loss(case)
    scores = torch.randn(4, 6, 3, dtype=torch.float64)
    target = torch.rand(4, 6, 3) < 0.4
    expected = ours(scores, target, reduction="none")
    assert expected.shape == (4, 3)
    for dtype in (torch.int64, torch.float32):
        same = ours(scores, target.to(dtype), reduction="none")
        torch.testing.assert_close(same, expected, rtol=0, atol=0)
    marked = target.long()
    marked[1, 2, 0] = -100
    got = ours(scores, marked, reduction="none")
    assert got[1, 0] == 0
    assert (got != expected).sum() <= 1
    single = torch.randint(0, 6, (4, 3))
    hot = torch.nn.functional.one_hot(single, 6).movedim(-1, 1)
    torch.testing.assert_close(ours(scores, single), ours(scores, hot))
    weight = torch.rand(6, dtype=torch.float64)
    counts = (hot * weight[:, None]).sum(1)
    weighted = ours(scores, hot, weight=weight, reduction="none")
    torch.testing.assert_close(weighted, counts * ours(scores, hot, reduction="none"))


MODULES = {
    "TopKHingeLoss(k=3, kind='beta', smoothing=0.5)": lambda **o: tk.TopKHingeLoss(
        3, "beta", 0.5, **o
    ),
    "WeightedTopKHingeLoss(weights=(0.75, 0.25), label=False, smoothing=0.0, envelope='others')": (
        lambda **o: tk.WeightedTopKHingeLoss([0.75, 0.25], **o)
    ),
    "TopKEntropyLoss(k=2)": lambda **o: tk.TopKEntropyLoss(2, **o),
    "TruncatedTopKEntropyLoss(k=2)": lambda **o: tk.TruncatedTopKEntropyLoss(2, **o),
    "MultilabelHingeLoss(smoothing=0.0)": lambda **o: tk.MultilabelHingeLoss(**o),
    "MultilabelSoftmaxLoss()": lambda **o: tk.MultilabelSoftmaxLoss(**o),
    "OneVsAllHingeLoss(smoothing=1.0)": lambda **o: tk.OneVsAllHingeLoss(1.0, **o),
    "OneVsAllLogisticLoss()": lambda **o: tk.OneVsAllLogisticLoss(**o),
}


@pytest.mark.parametrize("text", list(MODULES))
def test_modules(text):
    make = MODULES[text]
    assert repr(make()) == text
    module = make(weight=torch.rand(6), reduction="sum", ignore_index=3)
    assert "reduction='sum'" in repr(module)
    assert "ignore_index=3" in repr(module)
    assert set(module.state_dict()) == {"weight"}
    assert module.double().weight.dtype == torch.float64
    scores, target = torch.randn(5, 6, dtype=torch.float64), torch.randint(0, 6, (5,))
    expected = module(scores, target)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert repr(twin) == repr(module)
        torch.testing.assert_close(twin(scores, target), expected, rtol=0, atol=0)
    assert make().to("meta").weight is None


def test_parameters_of_modules_are_attributes():
    assert tk.TopKHingeLoss(3, smoothing=0.5).smoothing == 0.5
    with pytest.raises(AttributeError, match="nothing"):
        _ = tk.TopKEntropyLoss(3).nothing


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tk.TopKHingeLoss(0), "k must be"),
        (lambda: tk.TopKHingeLoss(2, "gamma"), "kind must be"),
        (lambda: tk.TopKEntropyLoss(2, reduction="batch"), "reduction must be"),
        (lambda: tk.WeightedTopKHingeLoss([1.0], envelope="x"), "envelope must be"),
        (lambda: tk.topk_entropy(torch.zeros(2, 3), torch.tensor([0, 1]), 3), "k must be"),
        (lambda: tk.topk_entropy(torch.zeros(2, 3), torch.zeros(2, 3), 1), "target must be"),
        (lambda: tk.topk_entropy(torch.zeros(2, 3), torch.zeros(2), 1), "class indices"),
        (lambda: tk.multilabel_hinge(torch.zeros(2, 3), torch.zeros(2, 4)), "multi-hot"),
        (
            lambda: tk.topk_entropy(
                torch.zeros(2, 3), torch.tensor([0, 1]), 1, weight=torch.ones(2)
            ),
            "weight must have one entry",
        ),
        (lambda: tk.topk_entropy(torch.tensor(0.0), torch.tensor(0), 1), "input must be"),
        (lambda: tk.topk_entropy(torch.zeros(2, 3), torch.tensor([0, 3]), 1), "from 0 to 2"),
        (lambda: tk.topk_entropy(torch.zeros(2, 3), torch.tensor([0, -1]), 1), "ignore_index"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises((ValueError, TypeError, IndexError), match=words):
        call()
