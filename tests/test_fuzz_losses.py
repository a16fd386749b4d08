"""Losses under random scores of every size, by what must hold whatever they are.

The Fenchel-Young inequality binds value, gradient and conjugate together, the readable twin and a
hundred digits pin the value down. A failure names the seed and the loss: repeat it with
``--fuzz-seed``, and run longer with ``--fuzz-seconds``.
"""

import numpy as np

from tests.exact_losses import (
    conjugate_rounding,
    differences,
    distance,
    exact_conjugate,
    exact_value,
    label_list,
    rounding,
)
from topkopt import losses, reference

EPS = np.finfo(float).eps
SMOOTHINGS = (0.0, 1e-9, 1e-3, 0.5, 1.0, 30.0, 1e6)
FEW = 9  # classes: all rows so short are compared with a hundred digits, else one in a round


# What is drawn ------------------------------------------------------------------------------


def draw_loss(rng, m):
    """Return a loss of the registry, with any parameters that m classes allow."""
    name = str(rng.choice(losses.names()))
    smoothing = float(rng.choice(SMOOTHINGS))
    k = int(rng.choice([1, m - 1, rng.integers(1, m), min(5, m - 1)]))
    if name.startswith("weighted"):
        k += name.endswith("label") and rng.random() < 0.5
        weights = rng.choice(["flat", "linear", "exp", "any", "ties"])
        steps = np.sort(rng.random(k))[::-1] + 0.01
        steps = {"any": steps, "ties": np.ceil(3 * steps)}.get(weights)
        envelope = str(rng.choice(["others", "all"]))
        places = {"weights": str(weights), "k": k} if steps is None else {"weights": steps}
        return losses.get(name, **places, smoothing=smoothing, envelope=envelope)
    if name in ("softmax", "ova_logistic", "multilabel_softmax"):
        return losses.get(name)
    if name.endswith("entropy"):
        return losses.get(name, k=k)
    places = {"k": k} if name.startswith("topk") else {}
    return losses.get(name, **places, smoothing=smoothing)


def draw_scores(rng, n, m):
    """Return scores of one of many shapes; their size is anything from 1e-300 to 1e300."""
    exponent = rng.choice([0.0, rng.uniform(-8, 8), rng.uniform(-300, 300)], p=[0.4, 0.4, 0.2])
    scores = rng.standard_normal((n, m))
    shape = rng.integers(7)
    if shape == 1:  # ties
        scores = rng.integers(-2, 3, (n, m)).astype(float)
    elif shape == 2:  # all equal, or nearly
        scores = np.ones((n, m)) + rng.choice([0.0, EPS, 1e-8]) * scores
    elif shape == 3:  # every entry of another size
        scores *= 10.0 ** rng.uniform(-12, 0, (n, m))
    elif shape == 4:  # one far above
        scores[np.arange(n), rng.integers(0, m, n)] += 10.0 ** rng.uniform(0, 3)
    scores *= 10.0**exponent
    if shape == 5:  # margins around 0
        scores = -1.0 + 10.0 ** rng.uniform(-14, 0, (n, m)) * rng.choice([-1, 1], (n, m))
        scores[:, 0] = 0.0
    return scores


def draw_labels(rng, loss, scores):
    """Return labels, often those of the largest score, or label sets of all sizes."""
    n, m = scores.shape
    right = rng.random(n) < 0.4
    y = np.where(right, scores.argmax(axis=1), rng.integers(0, m, n))
    if np.all(scores[:, 0] == 0.0):
        y = np.where(rng.random(n) < 0.7, 0, y)
    if not loss.multilabel or rng.random() < 0.3:
        return y
    sets = rng.random((n, m)) < rng.choice([0.0, 0.1, 0.5, 0.9, 1.0])
    sets[np.arange(n), y] |= rng.random(n) < 0.9
    return sets


def require(holds, message, *details):
    if not holds:
        raise AssertionError(message.format(*details))


# What must hold -----------------------------------------------------------------------------


def room_for(loss, m):
    """Return how many units a value may be off: it takes sums over a row, eight side by side."""
    # A slot for the label needs the sum of all entries more than once, and one after the other.
    return 16 + (4 * m if getattr(loss, "label", False) else m / 8)


def check_value(loss, s, y, value, v, unit, exactly):
    require(value >= 0, "value {!r}", value)
    twin = getattr(reference, type(loss).__name__)(**dict(loss._parameters()))
    # The twin projects margins over the smoothing, and knows a threshold to their rounding.
    smoothing = getattr(loss, "smoothing", 0.0)
    margin = differences(loss, s, y).max()
    blur = EPS * s.size * margin * max(1.0, margin / smoothing) if smoothing else 0.0
    error = abs(twin.value(s, y) - value) if value < np.inf else 0.0
    require(error <= (16 + s.size) * unit + blur, "value {!r}, twin {!r}", value, value + error)
    sizes = np.abs(s[s != 0])
    if exactly and sizes.max(initial=1.0) < 1e40 and sizes.min(initial=1.0) > 1e-40:
        units = distance(value, exact_value(loss, s, y)) / unit
        require(units <= room_for(loss, s.size), "value {!r}, {:.3g} units off", value, units)


def check_gradient(loss, s, y, v):
    require(np.isfinite(v).all(), "gradient {}", v.min())
    if not loss.name.startswith("ova"):
        size = np.abs(v).sum() + (loss.name == "multilabel_softmax" and np.ndim(y))
        room = 32 + s.size * (loss.name == "multilabel_hinge")  # all of whose entries are rounded
        require(abs(v.sum()) <= room * EPS * size, "gradient of sum {}", v.sum())
    if not loss.multilabel:
        require(np.delete(v, y).min() >= 0, "gradient {}", v.min())


def check_pair(loss, s, y, value, v, conjugate, equal):
    """Fenchel-Young: value + conjugate >= <s,v>, which sums to 0 and may be taken anywhere."""
    labels = label_list(y)
    if labels.size and not loss.name.startswith("ova"):
        shifted = s - s[labels[np.abs(v[labels]).argmax()]]
    else:
        shifted = s
    inner = float(np.where(v == 0, 0.0, shifted * v).sum())
    slack = value + conjugate - inner
    unit = rounding(loss, s, y, v, inner) + conjugate_rounding(loss, v, y) + EPS * value
    room = (s.size + room_for(loss, s.size)) * unit
    require(slack >= -room, "below <s,v> by {:.3g} units", -slack / unit)
    require(slack <= room or not equal, "above <s,v> by {:.3g} units at the gradient", slack / unit)


def check_conjugate(loss, v, y):
    conjugate = loss.conjugate(v, y)
    require(np.isfinite(conjugate), "conjugate {} in the domain", conjugate)
    if v.size <= FEW:
        error = distance(conjugate, exact_conjugate(loss, v, y))
        unit = conjugate_rounding(loss, v, y)
        require(error <= 8 * unit, "conjugate {!r}, {:.3g} units off", conjugate, error / unit)
    return conjugate


def check_outside(loss, v, y):
    reach = sum(getattr(loss, "weights", [1.0]))
    points = []
    if np.abs(v).max() > 1e-3 * reach:
        points = [v * (2 * reach / np.abs(v).max())]
        if loss.name != "multilabel_softmax":  # whose labels may trade places
            points.append(-v)
    if not loss.name.startswith("ova"):
        points.append(v + 1e-3 * reach)  # no longer of sum 0
    for point in points:
        require(loss.conjugate(point, y) == np.inf, "finite conjugate outside")


def check_segment(loss, s, other, y, value):
    """Convexity, at a random point between two rows of scores."""
    if not loss.convex:
        return
    share = 0.25
    middle = (1 - share) * s + share * other
    values = loss.value(np.stack([middle, other]), np.stack([y, y]))
    size = sum(getattr(loss, "weights", [1.0])) * (np.abs([s, other]).max() + 1)
    bound = (1 - share) * value + share * values[1]
    require(values[0] <= bound + 64 * EPS * (size + bound), "not convex: {} > {}", values[0], bound)


def check_shift(loss, s, y, value, v):
    """A power of two so near to the scores that adding it is exact changes nothing."""
    if loss.name.startswith("ova"):
        return
    shift = 2.0 ** np.floor(np.log2(np.abs(s[s != 0]).min(initial=1.0)))
    moved = s + shift
    labels = label_list(y)
    own = labels[0] if labels.size else 0
    if np.array_equal(moved - moved[own], s - s[own]) and np.array_equal(moved - shift, s):
        error = abs(loss.value(moved, y) - value) / rounding(loss, s, y, v, value)
        require(error <= 8, "a shift by {} changes the value by {:.3g} units", shift, error)


def check_batches(loss, scores, y, values, gradients):
    """Bit by bit: a row does not see its neighbours, nor its precision what it came from."""
    for i in range(len(scores)):
        same = loss.value(scores[i], y[i]) == values[i]
        same &= np.array_equal(loss.gradient(scores[i], y[i]), gradients[i])
        require(same, "row {} alone is not row {} of many", i, i)
    single = scores.astype(np.float32)
    if np.isfinite(single).all():
        rounded = loss.value(single.astype(float), y).astype(np.float32)
        require(np.array_equal(loss.value(single, y), rounded), "float32 is not rounded float64")


def check_rows(rng, loss, scores, y):
    values, gradients = loss.value(scores, y), loss.gradient(scores, y)
    check_batches(loss, scores, y, values, gradients)
    vertices = loss.gradient(1e6 * rng.standard_normal(scores.shape), y)
    shares = rng.choice([0.0, 0.5, 1.0, rng.random()], size=3)
    for i, (s, label, value, v) in enumerate(zip(scores, y, values, gradients, strict=True)):
        unit = rounding(loss, s, label, v, value)
        check_value(loss, s, label, value, v, unit, i == 0 or s.size <= FEW)
        check_gradient(loss, s, label, v)
        check_segment(loss, s, scores[i - 1], label, value)
        check_shift(loss, s, label, value, v)
        if loss.convex:
            check_pair(loss, s, label, value, v, check_conjugate(loss, v, label), equal=True)
            other = loss.gradient(scores[i - 1], label)
            for share in shares:
                mixed = (1 - share) * other + share * vertices[i]
                check_pair(
                    loss, s, label, value, mixed, check_conjugate(loss, mixed, label), equal=False
                )
            check_outside(loss, vertices[i], label)


def test_losses(fuzz_rounds):
    for seed, rng in fuzz_rounds:
        m = int(rng.choice([2, 3, rng.integers(4, FEW + 1), rng.integers(4, 70), 64, 65, 300]))
        loss = draw_loss(rng, m)
        scores = draw_scores(rng, int(rng.integers(1, 7)), m)
        y = draw_labels(rng, loss, scores)
        try:
            with np.errstate(all="ignore"):
                check_rows(rng, loss, scores, y)
        except AssertionError as error:
            raise AssertionError(f"--fuzz-seed={seed}: {error}; {m} classes, {loss!r}") from error
