"""topkopt.torch next to what PyTorch and others do: ratios of forward and backward passes.

Without PyTorch these benchmarks are left out; `make smoke-torch` runs them where it is installed.
"""

from importlib.util import find_spec

from .common import QUICK, seconds

SHAPE = (64, 100) if QUICK else (4096, 1000)


class Passes:
    """Rows of scores with labels, and one pass forward and backward over them."""

    timeout = 600

    def setup(self, *_):
        if find_spec("torch") is None:
            raise NotImplementedError("PyTorch is not installed")
        import torch

        import topkopt.torch as tk
        from topkopt.torch import _differentiation

        self.torch, self.tk, self.bodies = torch, tk, _differentiation
        torch.manual_seed(0)
        self.scores = torch.randn(SHAPE, requires_grad=True)
        self.target = torch.randint(0, SHAPE[1], SHAPE[:1])

    def both_ways(self, function, body="compiled"):
        def run():
            self.bodies.use_kernels = body == "compiled"
            self.scores.grad = None
            function(self.scores).backward()

        return run

    def ratio(self, function, opponent, body="compiled"):
        ours, theirs = seconds(self.both_ways(function, body), self.both_ways(opponent))
        self.bodies.use_kernels = True
        return ours / theirs


class OverCrossEntropy(Passes):
    """The losses over `torch.nn.functional.cross_entropy`: 3 (compiled) and 12 (pure) at most."""

    params = (["topk_entropy", "topk_hinge", "truncated_topk_entropy"], ["compiled", "pure"])
    param_names = ("loss", "body")

    def track_ratio(self, loss, body):
        own = getattr(self.tk, loss)
        return self.ratio(
            lambda s: own(s, self.target, 5),
            lambda s: self.torch.nn.functional.cross_entropy(s, self.target),
            body,
        )

    track_ratio.unit = "times cross_entropy"


class OverSortedSparsemax(Passes):
    """`project_simplex` over the projection by a full sort and a running sum, as entmax has it."""

    params = (["compiled", "pure"],)
    param_names = ("body",)

    def track_ratio(self, body):
        weights = self.torch.randn(SHAPE)
        return self.ratio(
            lambda s: (weights * self.tk.project_simplex(s)).sum(),
            lambda s: (weights * sorted_sparsemax(self.torch, s)).sum(),
            body,
        )

    track_ratio.unit = "times the sorted one"


class OverSmoothTopK(Passes):
    """`topk_hinge`, smoothed, over a smooth top-k loss by sums over all sets of k classes."""

    params = (["compiled", "pure"],)
    param_names = ("body",)

    def track_ratio(self, body):
        return self.ratio(
            lambda s: self.tk.topk_hinge(s, self.target, 5, smoothing=1.0),
            lambda s: smooth_topk(self.torch, s, self.target, 5),
            body,
        )

    track_ratio.unit = "times the sum over sets"


def sorted_sparsemax(torch, s):
    """Project onto the simplex; autograd goes through the threshold of the sorted row."""
    row = s.sort(dim=-1, descending=True).values
    sums = row.cumsum(-1) - 1.0
    place = torch.arange(1, s.shape[-1] + 1)
    count = (place * row > sums).sum(-1, keepdim=True)
    return (s - sums.gather(-1, count - 1) / count).clamp(min=0.0)


def smooth_topk(torch, s, target, k, temperature=1.0):
    """Return log(sum over k-sets of others, or with the label) minus that over sets with it.

    The sums are elementary symmetric polynomials of exp(s): products of polynomials, pairwise, of
    which the first k + 1 coefficients are kept, in logarithms.
    """
    margins = s + 1.0
    own = target.unsqueeze(-1)
    margins = margins.scatter(-1, own, -torch.inf) / (k * temperature)
    label = s.gather(-1, own) / (k * temperature)
    logs = torch.stack([torch.zeros_like(margins), margins], dim=-1)
    while logs.shape[-2] > 1:
        if logs.shape[-2] % 2:
            one = torch.full_like(logs[..., :1, :], -torch.inf)
            one[..., 0] = 0.0
            logs = torch.cat([logs, one], dim=-2)
        logs = _product(torch, logs[..., ::2, :], logs[..., 1::2, :], k)
    without, with_label = logs[..., 0, k], label[..., 0] + logs[..., 0, k - 1]
    return temperature * (torch.logaddexp(without, with_label) - with_label).mean()


def _product(torch, a, b, k):
    terms = [[] for _ in range(min(k, a.shape[-1] + b.shape[-1] - 2) + 1)]
    for i in range(a.shape[-1]):
        for j in range(b.shape[-1]):
            if i + j < len(terms):
                terms[i + j].append((a[..., i] + b[..., j]).clamp(min=-1e30))
    return torch.stack([torch.stack(t).logsumexp(0) for t in terms], dim=-1)
