"""The maps: two bodies, one result, which is the reference's."""

import numpy as np
import pytest
import torch

from topkopt import torch as tk

from .cases import MAPS, rows, the_map

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


@pytest.mark.parametrize("family", list(rows()))
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("case", list(MAPS))
@pytest.mark.usefixtures("body")
def test_agrees_with_the_reference(case, dtype, family):
    ours, reference = the_map(case)
    for length in (5, 7, 30) if family == "random" else (7,):
        b = torch.tensor(rows(length)[family], dtype=dtype)
        got = ours(b)
        assert got.dtype == dtype
        for row, x in zip(b.double().numpy(), got.double().numpy(), strict=True):
            expected = reference(row)
            size = max(1.0, np.abs(row[np.isfinite(row)]).max(), np.abs(expected).sum())
            np.testing.assert_allclose(x, expected, rtol=0, atol=TOLERANCE[dtype] * size)
            assert (
                x[np.isneginf(row)] == max(0.0, x[np.isneginf(row)].min(initial=0.0))
            ).all() or (case == "box")


@pytest.mark.parametrize("case", list(MAPS))
def test_along_any_dimension(case, body):
    ours, _ = the_map(case)
    x = torch.randn(4, 6, 3, dtype=torch.float64)
    expected = ours(x.movedim(1, -1)).movedim(-1, 1)
    torch.testing.assert_close(ours(x, dim=1), expected, rtol=0, atol=0)
    torch.testing.assert_close(ours(x[1, :, 2]), expected[1, :, 2], rtol=0, atol=1e-15)


@pytest.mark.parametrize("case", list(MAPS))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_single_inside(case, dtype, body):
    ours, _ = the_map(case)
    x = torch.randn(5, 8, dtype=dtype, requires_grad=True)
    got = ours(x)
    assert got.dtype == dtype
    torch.testing.assert_close(got, ours(x.float()).to(dtype), rtol=0, atol=0)
    got.float().square().sum().backward()
    assert x.grad.dtype == dtype
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("case", list(MAPS))
def test_what_has_no_solution_is_nan_and_leaves_the_others_alone(case, body):
    ours, _ = the_map(case)
    x = torch.randn(5, 7, dtype=torch.float64)
    expected = ours(x)
    x[1, 2], x[2, 0], x[3] = torch.nan, torch.inf, -torch.inf
    got = ours(x)
    assert got[1:4].isnan().all()
    torch.testing.assert_close(got[[0, 4]], expected[[0, 4]])


def test_too_few_entries_for_a_cap_are_nan(body):
    x = torch.tensor([[1.0, 2.0, 3.0], [1.0, -torch.inf, -torch.inf]])
    got = tk.prox_entropy_simplex(x, 0.0, upper=0.4)
    assert got[0].isfinite().all()
    assert got[1].isnan().all()
    got = tk.project_capped_simplex(x, 0.0, 0.4, 1.0)
    assert got[0].isfinite().all()
    assert got[1].isnan().all()


def test_bounds_may_be_tensors(body):
    x = torch.randn(3, 4, dtype=torch.float64)
    upper = torch.tensor([0.1, 0.2, 0.5, 1.0], dtype=torch.float64)
    got = tk.project_capped_simplex(x, 0.0, upper, 1.0)
    assert (got <= upper).all()
    torch.testing.assert_close(got.sum(-1), torch.ones(3, dtype=torch.float64))
    for i in range(3):
        alone = tk.project_capped_simplex(x[i], torch.zeros(4).double(), upper, 1.0)
        torch.testing.assert_close(alone, got[i])
    turned = tk.project_capped_simplex(x.T, 0.0, upper[:, None], 1.0, dim=0)
    torch.testing.assert_close(turned.T, got)


def test_no_rows_are_no_rows(body):
    for case in MAPS:
        assert the_map(case)[0](torch.empty(0, 7)).shape == (0, 7)


def test_threads_change_nothing(monkeypatch):
    x = torch.randn(3000, 100)
    expected = tk.project_topk_simplex(x, 5)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(tk.project_topk_simplex(x, 5), expected)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: tk.project_simplex([0.0]), "x must be a tensor"),
        (lambda x: tk.project_simplex(x.long()), "floating point"),
        (lambda x: tk.project_simplex(x, -1.0), "radius must be"),
        (lambda x: tk.project_simplex(x, dim=2), "dim must be"),
        (lambda x: tk.project_topk_simplex(x, 4), "k must be between 1 and"),
        (lambda x: tk.project_topk_simplex(x, 2, kind="gamma"), "kind must be one of"),
        (lambda x: tk.project_capped_simplex(x, 0.0, 0.2, 1.0), "raise upper"),
        (lambda x: tk.project_capped_simplex(x, 1.0, 0.2, 1.0), "lower must not exceed"),
        (
            lambda x: tk.project_capped_simplex(x, 0.0, torch.ones(3, requires_grad=True), 1.0),
            "upper must not require",
        ),
        (lambda x: tk.project_capped_simplex(x, torch.zeros(2), 1.0, 1.0), "lower must broadcast"),
        (lambda x: tk.project_weighted_topk(x, [1.0, 2.0]), "non-increasing"),
        (lambda x: tk.prox_entropy_simplex(x, -1.0), "alpha must be"),
        (lambda x: tk.prox_entropy_simplex(x, 0.0, upper=0.1), "upper must let"),
        (lambda x: tk.prox_topk_entropy(x, 0.0, 4), "k must be between 1 and"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call(torch.zeros(2, 3))
