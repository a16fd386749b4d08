"""The race to a given objective: its data, its entrants, and the same as a benchmark.

Every entrant minimises 1/2 |W|^2 + C sum of losses, without an intercept. `asv_benches/race.py`
runs them all and makes a table; the benchmark here follows a few cells of it over time.
"""

import warnings

import numpy as np
import scipy.sparse
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import topkopt

from .common import QUICK, seconds

TOLERANCES = (1e-3, 1e-6)
PEER_TOLERANCES = tuple(10.0**-e for e in range(1, 9))
PEERS = {
    "hinge": ("LinearSVC",),
    "softmax": ("lbfgs", "newton-cg", "newton-cholesky", "saga"),
}


def standardised(X):
    """Return features of mean 0 and variance 1/d."""
    X = np.asarray(X, dtype=np.float64)
    X = X - X.mean(axis=0)
    spread = X.std(axis=0)
    return X / np.where(spread > 0, spread, 1.0) / np.sqrt(X.shape[1])


def unit_rows(X):
    """Return tf-idf of counts, with rows of length 1."""
    X = scipy.sparse.csr_array(X, dtype=np.float64)
    seen = np.bincount(X.indices, minlength=X.shape[1])
    X.data *= np.log((1 + X.shape[0]) / (1 + seen))[X.indices] + 1
    lengths = np.sqrt(X.multiply(X).sum(axis=1))
    X = scipy.sparse.csr_array(scipy.sparse.diags_array(1 / np.where(lengths > 0, lengths, 1)) @ X)
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X


def overlapping(n, d, m, noise, seed=0):
    """Return classes around random means, with as much noise in every feature."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(m), rng.integers(0, m, n - m)])
    return standardised(rng.normal(size=(m, d))[y] + noise * rng.normal(size=(n, d))), y


def text_like(n=8000, d=20000, m=20, words=60, seed=0):
    """Return counts of words, most of them rare, of which every class prefers some."""
    rng = np.random.default_rng(seed)
    common = 1.0 / np.arange(1, d + 1)
    topics = [common * rng.gamma(0.3, size=d) for _ in range(m)]
    y = np.concatenate([np.arange(m), rng.integers(0, m, n - m)])
    chosen = [rng.choice(d, words, p=topics[c] / topics[c].sum()) for c in y]
    rows = np.repeat(np.arange(n), words)
    counts = scipy.sparse.coo_array((np.ones(n * words), (rows, np.concatenate(chosen))), (n, d))
    return unit_rows(counts.tocsr()), y


def digits():
    """Return the data set that ships with scikit-learn."""
    X, y = load_digits(return_X_y=True)
    return standardised(X), y


MADE = {
    "digits": digits,
    "15000 x 16, 26 classes": lambda: overlapping(15000, 16, 26, 1.0),
    "5000 x 784, 101 classes": lambda: overlapping(5000, 784, 101, 5.0),
    "2000 x 4096, 397 classes": lambda: overlapping(2000, 4096, 397, 8.0),
    "text-like, 8000 x 20000, 20 classes": text_like,
}


# Data on which every peer is there within seconds
SMALL = {
    "digits": digits,
    "3000 x 16, 26 classes": lambda: overlapping(3000, 16, 26, 1.0),
    "text-like, 2000 x 5000, 20 classes": lambda: text_like(2000, 5000),
}


def objective(loss, X, y, W, C):
    """Return 1/2 |W|^2 + C sum of losses, computed without the library."""
    scores = X @ W
    own = scores[np.arange(len(y)), y].copy()
    if loss == "softmax":
        largest = scores.max(axis=1)
        values = largest + np.log(np.exp(scores - largest[:, None]).sum(axis=1)) - own
    else:
        scores[np.arange(len(y)), y] = -np.inf
        values = np.maximum(0.0, 1.0 + scores.max(axis=1) - own)
    return 0.5 * float((W**2).sum()) + C * float(values.sum())


def train_ours(loss, X, y, C, tol, **options):
    """Return the solution, or one that was not reached, without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", topkopt.ConvergenceWarning)
        return topkopt.solve(X, y, loss, C=C, tol=tol, random_state=0, **options)


def train_peer(name, X, y, C, tol):
    """Return the W of a peer."""
    if name == "LinearSVC":
        peer = LinearSVC(
            multi_class="crammer_singer",
            fit_intercept=False,
            C=C,
            tol=tol,
            max_iter=10**7,
            random_state=0,
        )
    else:
        peer = LogisticRegression(C=C, fit_intercept=False, solver=name, tol=tol, max_iter=10**6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(peer.fit(X, y).coef_.T, dtype=np.float64)


class FirstToAnAnswer:
    """How many times faster ours is than a peer, which knows its best tolerance beforehand.

    The peer is run with falling tolerances; the first whose objective is as close to the optimum
    as asked for counts. Ours certifies it; the peer is compared with a minimum it does not know.
    """

    params = (list(PEERS), list(SMALL), [0.1, 1.0, 10.0], list(TOLERANCES))
    param_names = ("loss", "data", "C", "tolerance")
    timeout = 600

    def setup(self, loss, data, C, tol):
        self.X, self.y = overlapping(60, 8, 7, 1.0) if QUICK else SMALL[data]()
        best = train_ours(loss, self.X, self.y, C, 1e-8, max_epochs=20 if QUICK else 5000)
        self.best = objective(loss, self.X, self.y, best.coef, C)

    def track_speed_up(self, loss, data, C, tol):
        def ours():
            return train_ours(loss, self.X, self.y, C, tol, max_epochs=20 if QUICK else 1000)

        if not (ours().converged or QUICK):
            return 0.0
        for peer_tol in PEER_TOLERANCES:

            def peer(peer_tol=peer_tol):
                return train_peer(PEERS[loss][0], self.X, self.y, C, peer_tol)

            if QUICK or objective(loss, self.X, self.y, peer(), C) <= self.best * (1 + tol):
                mine, theirs = seconds(ours, peer)
                return theirs / mine
        return np.inf

    track_speed_up.unit = "times faster"
