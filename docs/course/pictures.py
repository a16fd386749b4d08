"""Draw the pictures of the course into docs/course/pictures; ``make docs`` does it too."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from topkopt.reference import frank_wolfe, lambert, losses, newton, oracles, sdca

from topkopt import reference

BLUE, ORANGE, GREEN, GREY = "#3a6ea5", "#d9822b", "#3d8c5a", "#8a8a8a"


def draw_all(folder: Path) -> None:
    """Write one PNG per chapter, named as the function that draws it."""
    folder.mkdir(exist_ok=True)
    for draw in PICTURES:
        figure = Figure(figsize=(8, 3), layout="constrained")
        draw(*figure.subplots(1, 2))
        for ax in figure.axes:
            ax.spines[["top", "right"]].set_visible(False)
        figure.savefig(folder / f"{draw.__name__}.png", dpi=110)


def lambert_function(left, right):
    """V between its two asymptotes, and how fast the steps converge."""
    t = np.linspace(-4, 5, 300)
    left.plot(t, lambert.lambertw_exp(t), color=BLUE, label="V(t)")
    left.plot(t[t < 1.6], np.exp(t[t < 1.6]), "--", color=ORANGE, label="eᵗ")
    big = t[t > 1]
    left.plot(big, big - np.log(big), "--", color=GREEN, label="t − log t")
    left.set(xlabel="t", ylim=(-0.2, 4.5))
    left.legend(frameon=False)
    for start, colour in ((2.0, ORANGE), (4.0, GREEN), (30.0, BLUE)):
        w, errors = start - np.log(start), []
        for _ in range(5):
            residual = start - w - np.log(w)
            errors.append(max(abs(residual), 1e-17))
            w *= 1 + residual / (1 + w)
        right.semilogy(errors, "o-", color=colour, label=f"t = {start:g}")
    right.set(xlabel="plain Newton steps", title="|t − w − log w|", xticks=range(5))
    right.legend(frameon=False)


def knapsack(left, right):
    """Show the sum as a function of the threshold, and the water level."""
    b = np.array([1.6, 1.1, 0.7, 0.4, -0.2])
    t = np.linspace(-0.6, 1.8, 200)
    total = np.clip(b[:, None] - t, 0, 0.6).sum(axis=0)
    root = float(np.interp(-1.0, -total, t))
    left.plot(t, total, color=BLUE)
    left.axhline(1, color=GREY, lw=0.8)
    left.plot([root], [1], "o", color=ORANGE)
    left.set(xlabel="threshold t", title="S(t) = Σ clip(bⱼ − t, 0, 0.6)")
    x = np.clip(b - root, 0, 0.6)
    right.bar(range(5), b, color="none", edgecolor=GREY, label="b")
    right.bar(
        range(5), x, bottom=np.where(x > 0, root, 0), color=ORANGE, label="x, above the level t"
    )
    right.axhline(root, color=BLUE, lw=1)
    right.set(xticks=[], title="what stands above the level, at most 0.6")
    right.legend(frameon=False)


def topk(left, right):
    """Follow the path: entries sink, the pool grows; the best zeta."""
    b, k = np.array([3.0, 1.0, 0.0]), 2
    zetas = np.linspace(0, 6, 200)
    sunk = np.array([b - _scaled(b, k, z) for z in zetas])
    for j, colour in enumerate((BLUE, ORANGE, GREEN)):
        left.plot(zetas, sunk[:, j], color=colour, label=f"b = {b[j]:g}")
    left.set(xlabel="ζ", title="v = b − x: two meet at ζ = 2")
    left.legend(frameon=False)
    slope = -sunk[:, :k].mean(axis=1)
    right.plot(zetas, slope, color=BLUE)
    right.axhline(0, color=GREY, lw=0.8)
    right.plot([14 / 3], [0], "o", color=ORANGE)
    right.annotate("ζ = 14/3", (14 / 3, 0), (3.0, 0.35))
    right.set(xlabel="ζ", title="φ′(ζ) = −⟨v, w⟩")


def _scaled(b, k, zeta):
    """Return the projection with the sum fixed at zeta, each entry at most zeta/k."""
    return reference.project_capped_simplex(b, 0.0, zeta / k, zeta)


def weighted(left, right):
    """Pooling adjacent violators, and the permutahedron of three weights."""
    b, w = np.array([3.0, 2.4, 2.2, 0.5]), np.array([1.2, 0.9, 0.2, 0.0])
    y = b - w
    v = oracles._isotonic(y.astype(np.longdouble)).astype(float)
    left.plot(y, "o", color=GREY, label="b − ζw, out of order")
    left.step(
        np.arange(5) - 0.5, np.append(v, v[-1]), where="post", color=ORANGE, label="v, pooled"
    )
    left.set(xticks=range(4), xlabel="place")
    left.legend(frameon=False)
    w = np.array([0.6, 0.3, 0.1])
    around = ((0, 1, 2), (0, 2, 1), (1, 2, 0), (2, 1, 0), (2, 0, 1), (1, 0, 2))
    corners = np.array([w[list(places)] for places in around])
    flat = corners @ np.array([[0, 0], [1, 0], [0.5, np.sqrt(3) / 2]])
    ring = np.vstack([flat, flat[:1]])
    right.fill(*ring.T, color=BLUE, alpha=0.2)
    right.plot(*ring.T, color=BLUE)
    right.plot([0, 1, 0.5, 0], [0, 0, np.sqrt(3) / 2, 0], color=GREY, lw=0.8)
    right.set(aspect="equal", xticks=[], yticks=[], title="Perm(0.6, 0.3, 0.1) in the simplex")


def bipartite(left, right):
    """Two sums that must agree."""
    b, c = np.array([1.5, 0.8, 0.1]), np.array([0.4, -0.1])
    t = np.linspace(-1, 2, 200)
    ours, theirs = (np.maximum(side, 0).sum(axis=0) for side in (b[:, None] - t, c[:, None] + t))
    place = np.argmin(np.abs(ours - theirs))
    left.plot(t, ours, color=BLUE, label="Σ max(0, b − t)")
    left.plot(t, theirs, color=ORANGE, label="Σ max(0, b′ + t)")
    left.plot(t[place], ours[place], "o", color=GREEN)
    left.set(xlabel="t", title="the sums meet")
    left.legend(frameon=False)
    p, q = reference.project_bipartite_simplex(b, c, 10.0)
    right.bar([0, 1, 2], p, color=BLUE, label="x, the labels")
    right.bar([4, 5], q, color=ORANGE, label="y, the others")
    right.set(xticks=[], ylim=(0, 1.35), title=f"both sums are {p.sum():.2f}")
    right.legend(frameon=False)


def entropy(left, right):
    """Softmax, with a quadratic, with a cap."""
    b = np.array([2.0, 1.4, 0.6, 0.0, -0.6])
    cases = (
        ("softmax", {"alpha": 0.0}),
        ("α = 3", {"alpha": 3.0}),
        ("cap 0.3", {"alpha": 0.0, "upper": 0.3}),
    )
    for place, (label, options) in enumerate(cases):
        x = reference.prox_entropy_simplex(b, **options)
        left.bar(
            np.arange(5) + 0.27 * (place - 1),
            x,
            0.25,
            label=label,
            color=(GREY, BLUE, ORANGE)[place],
        )
    left.legend(frameon=False)
    left.set(xticks=[], title="the minimiser on the simplex")
    alphas = np.logspace(-2, 3, 60)
    shares = np.array([reference.prox_entropy_simplex(b, a) for a in alphas])
    right.semilogx(alphas, shares, color=BLUE)
    right.axhline(0.2, color=GREY, lw=0.8)
    right.set(xlabel="α", title="a heavy quadratic makes all equal")


def losses_of_two_scores(left, right):
    """Losses as functions of the margin, and a smoothed corner."""
    u = np.linspace(-3, 3, 200)
    rows = np.stack([np.zeros_like(u), u, np.full_like(u, -1.0)], axis=1)
    for loss, label, colour in (
        (losses.Hinge(), "hinge", BLUE),
        (losses.Softmax(), "softmax", ORANGE),
        (losses.TopKHinge(2), "top-2 hinge", GREEN),
    ):
        left.plot(u, [loss.value(s, 0) for s in rows], color=colour, label=label)
    left.set(xlabel="score of the first rival; the label has 0, the second −1")
    left.legend(frameon=False)
    for gamma, colour in ((0.0, GREY), (0.5, BLUE), (1.0, ORANGE)):
        values = [losses.Hinge(gamma).value(s, 0) for s in rows]
        right.plot(u, values, color=colour, label=f"γ = {gamma:g}")
    right.set(xlim=(-2, 1.5), ylim=(-0.1, 2.2), xlabel="smoothing rounds the corner")
    right.legend(frameon=False)


def _problem():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(5), 5)
    return rng.standard_normal((25, 5)) + 1.5 * np.eye(5)[y], y


def _gaps(solver, epochs, **options):
    X, y = _problem()
    found = [
        solver(X, y, losses.TopKHinge(2), tol=0.0, max_epochs=e, random_state=0, **options)
        for e in epochs
    ]
    return found


def sdca_gap(left, right):
    """Primal and dual meet."""
    epochs = range(1, 31)
    found = _gaps(sdca.solve, epochs)
    left.plot(epochs, [s.primal for s in found], "-", color=BLUE, label="P(W)")
    left.plot(epochs, [s.dual_value for s in found], "-", color=ORANGE, label="D(A)")
    left.set(xlabel="epochs", title="the optimum is in between")
    left.legend(frameon=False)
    right.semilogy(epochs, [max(s.gap, 1e-16) for s in found], "-", color=GREEN)
    right.set(xlabel="epochs", title="relative gap")


def frank_wolfe_gaps(left, right):
    """Zigzag towards a face, and four methods."""
    corners, target = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 1.2]]), np.array([0.9, -0.25])
    x, path = corners[2], [corners[2]]
    for _ in range(8):
        d = corners[np.argmin(corners @ (x - target))] - x
        x = x + min(max((target - x) @ d / (d @ d), 0.0), 1.0) * d if d @ d > 0 else x
        path.append(x)
    left.fill(*corners.T, color=BLUE, alpha=0.15)
    left.plot(*np.array(path).T, "o-", ms=3, color=ORANGE, lw=1)
    left.plot(*target, "*", color=GREEN, ms=10)
    left.set(aspect="equal", xticks=[], yticks=[], title="towards vertices: a zigzag")
    epochs = [1, 4, 16, 64, 256]
    for method, colour in zip(frank_wolfe.METHODS, (GREY, GREEN, ORANGE, BLUE), strict=True):
        found = _gaps(frank_wolfe.solve_frank_wolfe, epochs, method=method)
        right.loglog(
            epochs, [max(s.gap, 1e-12) for s in found], "o-", ms=3, color=colour, label=method
        )
    right.set(xlabel="epochs", title="relative gap", ylim=(1e-7, None))
    right.legend(frameon=False, fontsize=8)


def newton_centers(left, right):
    """Round the hinge around three centers; gaps of SDCA and of Newton's method."""
    h = np.linspace(-2, 2, 200)
    left.plot(h, np.maximum(0, h), color=GREY, lw=3, alpha=0.5, label="max(0, h)")
    for c, colour in ((0.0, BLUE), (0.5, GREEN), (1.0, ORANGE)):
        p = np.clip(c + h, 0, 1)
        left.plot(h, h * p - (p - c) ** 2 / 2, color=colour, label=f"center {c:g}")
    left.set(xlabel="margin h", title="rounded, σ = 1", ylim=(-0.6, 2.1))
    left.legend(frameon=False)
    X, y = _problem()
    loss, turns = losses.TopKHinge(2), range(1, 9)
    epochs = [1, 2, 5, 10, 20, 50, 100, 200]
    climbed = [
        sdca.solve(X, y, loss, C=10.0, tol=0.0, max_epochs=e, random_state=0).gap for e in epochs
    ]
    solved = [newton.solve_newton(X, y, loss, C=10.0, tol=0.0, max_centers=t).gap for t in turns]
    right.loglog(epochs, climbed, "o-", ms=3, color=BLUE, label="epochs of SDCA")
    right.loglog(turns, np.maximum(solved, 1e-16), "o-", ms=3, color=ORANGE, label="centers")
    right.set(title="relative gap, C = 10", ylim=(1e-16, 2))
    right.legend(frameon=False)


def oracles_picture(left, right):
    """Bisection halves; the certificate sees every mistake."""
    b = np.array([3.0, 0.5, 0.0])
    low, high, widths = -5.0, 5.0, []
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(b - middle, 0).sum() > 2 else (low, middle)
        widths.append(high - low)
    left.semilogy(widths, color=BLUE)
    left.set(xlabel="halvings", title="what is left of the interval")
    wrong = np.logspace(-12, -1, 40)
    seen = [oracles.kkt_project_simplex(b, [2 - e, e, 0.0], 2.0) for e in wrong]
    right.loglog(wrong, seen, color=ORANGE)
    right.set(xlabel="error put into the projection", title="what the certificate says")


PICTURES = (
    lambert_function,
    knapsack,
    topk,
    weighted,
    bipartite,
    entropy,
    losses_of_two_scores,
    sdca_gap,
    frank_wolfe_gaps,
    newton_centers,
    oracles_picture,
)

if __name__ == "__main__":
    draw_all(Path(__file__).with_name("pictures"))
