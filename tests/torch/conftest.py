"""Both bodies of topkopt.torch, on a CPU."""

import pytest
import torch

from topkopt.torch import _differentiation


@pytest.fixture(params=["compiled", "pure"])
def body(request, monkeypatch):
    """Run a test with the kernels, and again as other devices would run it."""
    monkeypatch.setattr(_differentiation, "use_kernels", request.param == "compiled")
    return request.param


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
