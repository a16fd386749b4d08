"""torch's own checks of operators, torch.compile without graph breaks, autocast, devices."""

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from topkopt import losses, projections, prox
from topkopt import torch as tk
from topkopt.torch import _compiled, _operators, _row_losses

from .cases import LOSSES, MAPS, MULTILABEL, the_loss, the_map, the_target

OPERATORS = [
    _operators.Simplex(1.0),
    _operators.TopKSimplex(2, 1.0, "alpha", 0.0),
    _operators.WeightedTopK((0.6, 0.4), 1.0, True, 0.1),
    _operators.EntropySimplex(0.5, 1.0, 0.4),
    _operators.TopKEntropy(0.5, 2),
]
ROW_LOSSES = [
    _row_losses.TopKHinge(0.5, 2, "label"),
    _row_losses.WeightedTopKHinge(0.5, (0.6, 0.4), False, "all"),
    _row_losses.TopKEntropy(2),
    _row_losses.TruncatedTopKEntropy(2),
    _row_losses.MultilabelHinge(0.5),
    _row_losses.MultilabelSoftmax(),
    _row_losses.OneVsAllHinge(0.5),
    _row_losses.OneVsAllLogistic(),
]


def scores(dtype=torch.float64):
    return torch.randn(3, 6, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
def test_operators_pass_opcheck(operator):
    call = _compiled._NAMED[type(operator)]
    torch.library.opcheck(call, (scores(), *operator.parameters()))
    torch.library.opcheck(call, (scores(torch.float32), *operator.parameters()))


def test_the_box_passes_opcheck():
    bounds = torch.zeros(()).double(), torch.full((6,), 0.4).double()
    call = torch.ops.topkopt.project_capped_simplex.default
    torch.library.opcheck(call, (scores(), *bounds, 1.0, True, 0.0))


@pytest.mark.parametrize("loss", ROW_LOSSES, ids=repr)
def test_losses_pass_opcheck(loss):
    target = torch.rand(3, 6) < 0.5 if loss.multilabel else torch.tensor([0, 5, 2])
    torch.library.opcheck(_compiled._NAMED[type(loss)], (scores(), target, *loss.parameters()))


def train(step, model, data):
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(3):
        optimiser.zero_grad()
        value = step(model, *data)
        value.backward()
        optimiser.step()
        found.append(value.item())
    return found


@pytest.mark.parametrize(
    "case", ["top-k hinge", "top-k entropy", "label, smooth", "weighted, smooth"]
)
def test_a_compiled_training_step(case, body):
    """The same numbers as without compilation, in one graph."""
    torch._dynamo.reset()
    ours, _ = the_loss(case)
    data = torch.randn(16, 5), torch.randint(0, 8, (16,))

    def step(model, x, y):
        hidden = tk.project_topk_simplex(model[0](x), 2)
        return ours(model[1](hidden), y)

    found = []
    for compiled in (False, True):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 8))
        call = torch.compile(step, fullgraph=True, backend="aot_eager") if compiled else step
        found.append(train(call, model, data))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_a_step_compiled_with_the_default_backend(body):
    torch._dynamo.reset()
    data = torch.randn(16, 5), torch.randint(0, 8, (16,))
    loss = tk.TopKEntropyLoss(3)

    def step(model, x, y):
        return loss(model(x), y)

    found = []
    for call in (step, torch.compile(step, fullgraph=True)):
        torch.manual_seed(1)
        found.append(train(call, torch.nn.Linear(5, 8), data))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


@pytest.mark.parametrize("case", list(MAPS))
def test_maps_compile_in_one_graph(case, body):
    torch._dynamo.reset()
    ours, _ = the_map(case)
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    found = []
    for call in (ours, compiled):
        x = torch.linspace(-1, 2, 12).reshape(2, 6).sin().requires_grad_()
        y = call(x)
        y.square().sum().backward()
        found.append((y.detach(), x.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.usefixtures("body")
def test_what_is_not_differentiated_compiles():
    torch._dynamo.reset()
    x, target = torch.randn(4, 8), torch.tensor([0, 1, 2, 3])
    for ours in (tk.project_simplex, lambda x: tk.topk_hinge(x, target, 2)):
        compiled = torch.compile(ours, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(x), ours(x))


@pytest.mark.parametrize("case", list(LOSSES))
def test_losses_compile_in_one_graph(case, body):
    torch._dynamo.reset()
    ours, _ = the_loss(case)
    target = torch.from_numpy(the_target(case, 4, 8))
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    found = []
    for call in (ours, compiled):
        x = torch.linspace(-1, 2, 32).reshape(4, 8).sin().requires_grad_()
        value = call(x, target)
        value.backward()
        found.append((value.detach(), x.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("case", list(LOSSES))
def test_autocast(case, body):
    """Half precision goes in, as a network gives it; the loss is float32, as cross_entropy is."""
    ours, _ = the_loss(case)
    x = torch.randn(5, 8, dtype=torch.bfloat16, requires_grad=True)
    target = torch.from_numpy(the_target(case, 5, 8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = ours(x, target)
    assert value.dtype == torch.float32
    value.backward()
    expected = ours(x.detach().float(), target)
    torch.testing.assert_close(value.detach(), expected)
    assert x.grad.dtype == torch.bfloat16
    assert ours(x.detach(), target).dtype == torch.bfloat16


class OnTheDevice(TorchFunctionMode):
    """Fail where the host would be asked, or would send numbers: either makes it wait."""

    waits = frozenset(
        {torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy, torch.nonzero}
        | {getattr(torch.Tensor, name) for name in ("cpu", "cuda", "numpy", "item", "tolist")}
        | {torch.Tensor.nonzero, torch.Tensor.__bool__}
    )

    def __torch_function__(self, function, types, arguments=(), options=None):
        assert function not in self.waits, f"{function} waits for the device"
        return function(*arguments, **(options or {}))


@pytest.mark.parametrize("case", list(MAPS))
def test_maps_ask_nothing_of_the_device(case):
    """On the meta device there are no numbers: whoever asks for one fails."""
    ours, _ = the_map(case)
    x = torch.empty(3, 7, device="meta", requires_grad=True)
    with OnTheDevice():
        y = ours(x)
    y.sum().backward()
    assert y.device.type == x.grad.device.type == "meta"
    assert y.shape == x.grad.shape == x.shape


@pytest.mark.parametrize("case", list(LOSSES))
def test_losses_ask_nothing_of_the_device(case):
    ours, _ = the_loss(case)
    x = torch.empty(5, 8, device="meta", requires_grad=True)
    target = torch.zeros((5, 8) if case in MULTILABEL else (5,), dtype=torch.int64, device="meta")
    weight = torch.ones(8, device="meta")
    with OnTheDevice():
        value = ours(x, target, weight=weight)
    value.backward()
    assert value.shape == ()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("operator", OPERATORS + ROW_LOSSES, ids=repr)
def test_derivatives_ask_nothing_of_the_device(operator):
    """They are called by hand here: autograd hides them from the mode."""
    x, g = torch.empty(2, 3, 6, device="meta")
    target = torch.zeros(3, dtype=torch.int64, device="meta")
    if getattr(operator, "multilabel", True):
        target = torch.zeros(3, 6, dtype=torch.bool, device="meta")
    arguments = (x, target, g) if operator in ROW_LOSSES else (x, g)
    with OnTheDevice():
        assert operator.derivative(*arguments).shape == x.shape


def test_whoever_waits_is_seen():
    for wait in (lambda x: x.sum().item(), lambda x: bool(x[0] > 0), lambda x: x.cpu()):
        with OnTheDevice(), pytest.raises(AssertionError, match="waits"):
            wait(torch.ones(2))
    with OnTheDevice(), pytest.raises(AssertionError, match="waits"):
        torch.tensor([1.0, 2.0])


def test_the_pure_body_is_deterministic(monkeypatch):
    monkeypatch.setattr("topkopt.torch._differentiation.use_kernels", False)
    torch.use_deterministic_algorithms(True)
    try:
        for case in MAPS:
            x = torch.randn(4, 9)
            ours, _ = the_map(case)
            assert torch.equal(ours(x), ours(x))
    finally:
        torch.use_deterministic_algorithms(False)


def test_numpy_functions_take_tensors_of_the_cpu():
    x = torch.randn(3, 5)
    for function in (
        lambda a: projections.project_simplex(a),
        lambda a: projections.project_topk_simplex(a, 2),
        lambda a: projections.project_bipartite_simplex(a, a)[0],
        lambda a: prox.prox_topk_entropy(a, 0.5, 2),
        lambda a: losses.TopKHinge(2).value(a, [0, 1, 2]),
    ):
        got = function(x)
        assert type(got) is np.ndarray
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, function(x.numpy()))
    labels = torch.tensor([0, 1, 2])
    assert losses.TopKHinge(2).gradient(x, labels).shape == (3, 5)
    exact = projections.project_simplex(torch.tensor([0.5, 1.0], dtype=torch.bfloat16))
    np.testing.assert_array_equal(exact, [0.25, 0.75])


@pytest.mark.parametrize("x", [torch.empty(3, device="meta"), torch.zeros(3, requires_grad=True)])
def test_other_tensors_are_for_topkopt_torch(x):
    for function in (
        lambda a: projections.project_simplex(a),
        lambda a: prox.prox_topk_entropy(a, 0.5, 2),
        lambda a: losses.TopKHinge(2).value(a, 0),
    ):
        with pytest.raises(TypeError, match=r"topkopt\.torch"):
            function(x)
