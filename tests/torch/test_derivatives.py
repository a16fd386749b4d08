"""First and second derivatives, in reverse and forward mode, batched, and behind masks."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from .cases import LOSSES, MAPS, MULTILABEL, SMOOTH, the_loss, the_map, the_target


def points(*shape):
    """Return numbers that are, with this seed, on no kink of any case."""
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("case", list(MAPS))
@pytest.mark.usefixtures("body")
def test_map(case):
    ours, _ = the_map(case)
    x = points(3, 6)
    assert gradcheck(ours, x, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(ours, x)


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("case", list(MAPS))
def test_jacobian_on_many_pieces(case, scale, body):
    """D is what finite differences give, and symmetric."""
    ours, _ = the_map(case)
    step = 1e-6 * scale
    for _ in range(8):
        x = scale * torch.randn(6, dtype=torch.float64)
        jacobian = torch.func.jacrev(ours)(x)
        shifts = step * torch.eye(6, dtype=torch.float64)
        differences = (ours(x + shifts) - ours(x - shifts)).T / (2 * step)
        torch.testing.assert_close(jacobian, differences, rtol=0, atol=2e-7)
        torch.testing.assert_close(jacobian, jacobian.T, rtol=0, atol=1e-12)
        torch.testing.assert_close(torch.func.jacfwd(ours)(x), jacobian, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", list(MAPS))
def test_masked_entries_get_nothing(case, body):
    ours, _ = the_map(case)
    x = points(1, 8).detach()
    x[0, [1, 4]] = -torch.inf
    x.requires_grad_()
    got = ours(x)
    (slope,) = torch.autograd.grad(got.square().sum(), x, create_graph=True)
    assert slope.isfinite().all()
    assert (slope[0, [1, 4]] == 0).all()
    kept = [0, 2, 3, 5, 6, 7]
    if case != "box":  # there, masked entries have a lower bound to be at
        y = x.detach()[:, kept].requires_grad_()
        (alone,) = torch.autograd.grad(ours(y).square().sum(), y)
        torch.testing.assert_close(slope[:, kept], alone)


@pytest.mark.parametrize("case", list(MAPS))
def test_vmap(case, body):
    ours, _ = the_map(case)
    x = points(4, 6).detach()

    def energy(row):
        return ours(row).square().sum()

    one_by_one = torch.stack([torch.func.grad(energy)(row) for row in x])
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(energy))(x), one_by_one)
    torch.testing.assert_close(torch.func.vmap(ours, in_dims=1, out_dims=1)(x.T), ours(x).T)
    hessians = torch.func.vmap(torch.func.hessian(energy))(x)
    alone = torch.stack([torch.func.jacrev(torch.func.jacrev(energy))(row) for row in x])
    torch.testing.assert_close(hessians, alone)


def test_vmap_over_bounds(body):
    ours, _ = the_map("capped")
    x, upper = torch.randn(4, 6).double(), 0.3 + torch.rand(4, 6).double()

    def project(row, bound):
        return ours(row, upper=bound)

    torch.testing.assert_close(torch.func.vmap(project)(x, upper), ours(x, upper=upper))
    shared = torch.func.vmap(project, in_dims=(None, 0))(x[0], upper)
    torch.testing.assert_close(shared, ours(x[0].expand(4, 6), upper=upper))


@pytest.mark.parametrize("case", sorted(set(SMOOTH)))
@pytest.mark.usefixtures("body")
def test_smooth_loss(case):
    ours, _ = the_loss(case)
    x, target = points(5, 6), torch.from_numpy(the_target(case, 5, 6))

    def value(scores):
        return ours(scores, target, reduction="none")

    assert gradcheck(value, x, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(value, x)


@pytest.mark.parametrize("case", list(LOSSES))
def test_gradients_of_losses_are_batched(case, body):
    ours, _ = the_loss(case)
    x, target = points(5, 6).detach(), torch.from_numpy(the_target(case, 5, 6))
    one_by_one = torch.stack([torch.func.grad(ours)(x[i], target[i]) for i in range(5)])
    batched = torch.func.vmap(torch.func.grad(ours))(x, target)
    torch.testing.assert_close(batched, one_by_one)


@pytest.mark.parametrize("case", sorted(set(SMOOTH)))
def test_loss_under_transforms(case, body):
    ours, _ = the_loss(case)
    x, target = points(5, 6).detach(), torch.from_numpy(the_target(case, 5, 6))
    hessian = torch.func.vmap(torch.func.hessian(ours))(x, target)
    alone = torch.func.vmap(torch.func.jacrev(torch.func.jacrev(ours)))(x, target)
    torch.testing.assert_close(hessian, alone)
    if case in MULTILABEL:
        many = torch.func.vmap(ours, in_dims=(0, None))(x, target[1])
        torch.testing.assert_close(many, torch.stack([ours(row, target[1]) for row in x]))
