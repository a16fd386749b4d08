"""The two bodies next to each other, and the gradients of maps next to differences.

That both agree with the reference in their values, and losses in their gradients, is tested in
test_maps and test_losses. It has no gradients of maps: its differences stand in for them.
"""

from functools import cache

import numpy as np
import pytest
import torch

from topkopt.torch import _differentiation

from .cases import LOSSES, MAPS, MULTILABEL, rows, the_loss, the_map, the_target

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
FAMILIES = list(rows())
STEP = 3e-4


def both(monkeypatch, evaluate):
    """Return what the kernels give, and what other devices would compute."""
    found = []
    for kernels in (True, False):
        monkeypatch.setattr(_differentiation, "use_kernels", kernels)
        found.append(evaluate())
    return zip(*found, strict=True)


def products(ours, b):
    """Return the Jacobians of all rows: D is symmetric, and so its columns are gradients."""
    n, length = b.shape
    x = b.repeat_interleave(length, 0).requires_grad_()
    (columns,) = torch.autograd.grad(ours(x), x, torch.eye(length, dtype=b.dtype).repeat(n, 1))
    return columns.reshape(n, length, length)


@cache
def smooth_rows(case, dtype, family):
    """Return rows that are on no kink, and their Jacobians as differences of the reference."""
    _, reference = the_map(case)
    kept, jacobians = [], []
    some = rows()[family][:: 3 if family == "extreme" else 1]
    for row in torch.tensor(some, dtype=dtype).double().numpy():
        here, steps = reference(row), STEP * np.eye(row.size)
        ahead = np.array([reference(row + step) for step in steps]) - here
        behind = here - np.array([reference(row - step) for step in steps])
        if np.abs(ahead - behind).max() < 1e-3 * STEP:
            kept.append(row)
            jacobians.append((ahead + behind) / (2 * STEP))
    return torch.tensor(np.array(kept), dtype=dtype), np.array(jacobians)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("case", list(MAPS))
def test_gradients_of_maps_are_differences_of_the_reference(case, dtype, family, body):
    ours, _ = the_map(case)
    b, expected = smooth_rows(case, dtype, family)
    assert len(b) >= 3, "nearly all rows are on kinks"
    np.testing.assert_allclose(products(ours, b), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("case", list(MAPS))
def test_maps_agree(case, dtype, family, monkeypatch):
    ours, _ = the_map(case)
    b = torch.tensor(rows()[family], dtype=dtype)
    size = b.abs().masked_fill(b.isinf(), 0.0).amax(-1, keepdim=True).clamp(min=1.0)
    for one, other in both(monkeypatch, lambda: (ours(b) / size, products(ours, b))):
        torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCE[dtype])


def score_rows(case, family):
    """Return scores and targets; a label is not masked."""
    scores = rows(80 if family != "masked" else 12)[family]
    target = the_target(case, *scores.shape)
    if family == "masked":
        labels = target if case in MULTILABEL else np.eye(12, dtype=bool)[target]
        scores = np.where(labels & np.isneginf(scores), 0.5, scores)
    return scores, torch.from_numpy(target)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("case", list(LOSSES))
def test_losses_agree(case, dtype, family, monkeypatch):
    ours, _ = the_loss(case)
    numbers, target = score_rows(case, family)
    scores = torch.tensor(numbers, dtype=dtype)
    size = scores.abs().masked_fill(scores.isinf(), 0.0).amax(-1).clamp(min=1.0)

    def evaluate():
        x = scores.clone().requires_grad_()
        values = ours(x, target, reduction="none")
        (gradients,) = torch.autograd.grad(values.sum(), x)
        return values.detach() / size, gradients

    for one, other in both(monkeypatch, evaluate):
        torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCE[dtype])
