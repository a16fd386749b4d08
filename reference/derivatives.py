r"""How the solution of a prox moves with its argument: the directions that its piece allows.

Each loss has a prox v(q), the solution of (1) in `losses/`.  It is made of smooth pieces: on each
of them some entries of v are held by a bound, others move together, and the rest is free.  Let the
columns of B span what is left to v, and let Q be the Hessian of what the prox minimizes, a
diagonal matrix for all losses here.  Moving q by dq moves v by the best B z:

    min_z  1/2 (B z)' Q (B z) - <dq, B z>,       so       dv/dq = B (B'Q B)^-1 B'.

This file names the directions.  With u = s/k the cap of a top-k set and s = <1,p>, the entries at
the cap follow every other entry, because s moves: the column of j is e_j + 1_U/(k - |U|).

By hand: of two entries 0 < p < u whose sum is at its bound, one can only gain what the other loses.

>>> topk_directions(np.array([0.4, 0.6, 0.0]), 1, "beta").tolist()
[[-1.0], [1.0], [0.0]]
>>> derivative(np.array([[-1.0], [1.0]]), np.array([1.0, 1.0])).tolist()
[[0.5, -0.5], [-0.5, 0.5]]
"""

import numpy as np

AT_BOUND = 1e-9           # what is closer than this to a bound of size 1 counts as being there


def derivative(B, Q):
    """Return B (B'Q B)^-1 B' for a diagonal Q, given as a row."""
    return B @ np.linalg.solve(B.T @ (Q[:, None] * B), B.T)


def exchanges(entries, m):
    """Return columns that move the given entries of m and keep their sum."""
    units = np.eye(m)[:, entries]
    return units[:, 1:] - units[:, :1]


def topk_directions(p, k, kind):
    """Return columns for p in a top-k simplex of radius 1."""
    s, largest = p.sum(), p.max()
    in_cone = kind == "label" and s * k < (k - 1) * (1 - AT_BOUND)
    cone = k if kind == "alpha" else k - 1 if in_cone else 0
    cap = (s / cone if cone else 1 / k) * (1 - AT_BOUND)
    upper, middle = (p > 0) & (p >= cap), (p > 0) & (p < cap)
    columns = exchanges(np.flatnonzero(middle), p.size)
    meet = kind == "label" and abs(s * k - (k - 1)) <= AT_BOUND * k and largest >= cap   # two caps
    if s >= 1 - AT_BOUND or meet:
        return columns
    n_upper = np.count_nonzero(upper)
    if cone and n_upper >= cone:
        return upper[:, None].astype(float)
    if not middle.any():
        return columns
    sum_moves = np.eye(p.size)[:, middle.argmax()] + (upper / (cone - n_upper) if cone else 0.0)
    return np.column_stack([columns, sum_moves])


def weighted_directions(p, price, w, mu):
    """Return columns for p in zeta Perm(w), zeta <= 1; mu is None without a slot for the label.

    The entries of a pool have one price, what was projected minus p.  They keep their sum, or get
    their mean weight more as zeta grows.  With a slot for the label, entries of price mu are free,
    and those below it have the weights one place further on.
    """
    order = np.argsort(-price - p, kind="stable")
    order = order[p[order] > 0]
    pools, places = [], {}
    for place, j in enumerate(order):
        places[j] = place
        if pools and abs(price[j] - price[pools[-1][0]]) <= AT_BOUND * (1 + abs(price[j])):
            pools[-1].append(j)
        else:
            pools.append([j])
    columns, scale_moves, zeta = [np.zeros((p.size, 0))], np.zeros(p.size), 1.0
    for pool in pools:
        away = 0.0 if mu is None else price[pool[0]] - mu
        if mu is not None and abs(away) <= AT_BOUND * (1 + abs(mu)):
            columns.append(np.eye(p.size)[:, pool])
            continue
        columns.append(exchanges(pool, p.size))
        ranks = [places[j] + (away < 0) for j in pool]
        scale_moves[pool] = np.mean([w[r] if r < w.size else 0.0 for r in ranks])
    if scale_moves.any():
        zeta = p[scale_moves > 0].sum() / scale_moves.sum()
    if zeta < 1 - AT_BOUND:
        columns.append(scale_moves[:, None])
    return np.hstack(columns)
