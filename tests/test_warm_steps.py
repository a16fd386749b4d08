"""Steps and values do not depend on those before them."""

from itertools import product

import numpy as np
import pytest

from topkopt import losses
from topkopt.solvers import epochs


@pytest.mark.parametrize("m", [10, 60, 300])
@pytest.mark.parametrize("kind", ["alpha", "beta", "label"])
def test_a_step_after_a_far_one(kind, m):
    # Where the last threshold is far from the new one, the step is that of a cold start.
    def last_step(*weights):
        examples = epochs.Examples(
            losses.TopKHinge(3, kind), np.array([0]), np.array([0, 1]), np.ones(1), np.ones(1), m
        )
        for row in weights:
            dual = np.zeros((1, m))
            epochs.dense_epoch(examples, np.ones((1, 1)), row[None].copy(), dual, np.array([0]), 1)
        return dual

    near = np.random.default_rng(m).standard_normal(m)
    near[0] = -3.0
    for own in (-1e12, 1e12):
        far = near.copy()
        far[0] = own
        np.testing.assert_allclose(last_step(far, near), last_step(near), rtol=0, atol=1e-14)


def _varied_rows(rng, m):
    # Each differs from the one before in another way: anew, slightly, rounded, equal, larger or
    # smaller, one entry far above the others.
    row = rng.standard_normal(m)
    for change in rng.integers(6, size=12):
        if change == 0:
            row = rng.standard_normal(m) * 10.0 ** rng.uniform(-6, 6)
        elif change == 1:
            row = row + 0.1 * rng.standard_normal(m)
        elif change == 2:
            row = np.round(2 * row) / 2
        elif change == 3:
            row = np.full(m, rng.standard_normal())
        elif change == 4:
            row = row * 10.0 ** rng.uniform(-3, 3)
        else:
            row = row.copy()
            row[rng.integers(m)] += 10.0 ** rng.uniform(-2, 8)
        yield row


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 34, 35, 86, 251])
@pytest.mark.parametrize("smoothing", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("kind", ["alpha", "beta", "label"])
def test_steps_and_values_do_not_depend_on_earlier_ones(kind, smoothing, seed):
    rng = np.random.default_rng(seed)
    for m, k in product((2, 7, 26, 65, 200), (0.0, 0.3, 1.0)):
        loss = losses.TopKHinge(1 + int(k * (m - 2)), kind, smoothing=smoothing)
        cost = 10.0 ** rng.uniform(-3, 3, 1)
        own = rng.integers(m)

        def fresh(loss=loss, cost=cost, own=own, m=m):
            return epochs.Examples(loss, np.array([own]), np.array([0, 1]), cost, np.ones(1), m)

        def step_and_value(examples, row):
            x, dual = np.ones((1, 1)), np.zeros_like(row)
            value = epochs.dense_sums(examples, x, row, dual, np.arange(1), 1)[0]
            epochs.dense_epoch(examples, x, row.copy(), dual, np.array([0]), 1)
            return dual, value

        warm = fresh()
        for scores in _varied_rows(rng, m):
            row = scores[None]
            dual, value = step_and_value(warm, row)
            cold_dual, cold_value = step_and_value(fresh(), row)
            largest = 1.0 + np.abs(row - row[0, own]).max()
            # each of m entries has its rounding
            unit = np.finfo(float).eps * cost[0] * largest / (cost[0] + smoothing)
            others = np.arange(m) != own
            np.testing.assert_allclose(
                dual[0, others], cold_dual[0, others], rtol=0, atol=min(40 + m, 100) * unit
            )
            slack = (40 + 4 * m) * np.finfo(float).eps * cost[0] * largest
            assert abs(value - cold_value) <= slack


@pytest.mark.parametrize("kind", ["alpha", "beta", "label"])
@pytest.mark.parametrize("m", [20, 50, 90])
def test_values_of_ties_far_apart_keep_their_digits(kind, m):
    # Next to such scores over the smoothing, the cap 1/k has hardly a digit.
    rng = np.random.default_rng(m)
    scores = np.round(rng.standard_normal((40, m)) * 2) * 5e7
    own = np.zeros(40, dtype=np.intp)
    for k in (1, m // 2, 2 * m // 3):
        loss = losses.TopKHinge(k, kind, smoothing=2.5e-5)
        examples = epochs.Examples(loss, own[:1], np.arange(2), np.ones(1), np.ones(1), m)
        for row, cold in zip(scores, loss.value(scores, own), strict=True):
            x, dual = np.ones((1, 1)), np.zeros((1, m))
            warm = epochs.dense_sums(examples, x, row[None].copy(), dual, np.arange(1), 1)[0]
            assert warm == pytest.approx(cold, rel=0, abs=(40 + 4 * m) * 2.3e-16 * np.ptp(row))
            if kind == "alpha":
                hard = np.sort(1 + row[1:] - row[0])[-k:].mean()
                assert warm == pytest.approx(max(0.0, hard), rel=1e-12, abs=1e-4)
