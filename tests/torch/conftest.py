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


def pytest_collection_modifyitems(items):
    """Let torch call what it has deprecated itself."""
    for words in (".*should not be instantiated", ".*torch.jit.* is deprecated"):
        for item in items:
            if "torch" in item.path.parts:
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{words}:DeprecationWarning"))
