"""Multilabel data sets with an RBF kernel: the figures of docs/multilabel.md.

``python docs/multilabel.py path/to/scene.npz`` reads X_train, Y_train, X_test and Y_test, chooses C
and the kernel's width by 10-fold cross-validation on the training part (for the rank loss, and
together with the threshold for the micro F1), and prints the test figures.
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.metrics import f1_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import KFold

import topkopt
from topkopt.metrics import rank_loss, tune_threshold

CS = 4.0 ** np.arange(-1, 4)
WIDTHS = (0.5, 1.0, 2.0, 4.0)  # times 1 / (n_features * X.var()), which gamma="scale" means


def held_out_scores(K, Y, options):
    """Return the scores (C, n, m) of each example by models that were not trained on it."""
    scores = np.empty((len(CS), *Y.shape))
    for train, test in KFold(10, shuffle=True, random_state=0).split(K):
        path = topkopt.path(K[np.ix_(train, train)], Y[train], Cs=CS, **options)
        scores[:, test] = path.scores(K[np.ix_(test, train)])
    return scores


def search(X, Y, options):
    """Return for each metric the best (value, gamma, C, threshold)."""
    scale = 1 / (X.shape[1] * X.var())
    ranked, cut = [], []
    for gamma in scale * np.array(WIDTHS):
        held_out = held_out_scores(rbf_kernel(X, gamma=gamma), Y, options)
        for C, scores in zip(CS, held_out, strict=True):
            threshold, f1 = tune_threshold(Y, scores, "f1_micro")
            ranked.append((rank_loss(Y, scores, ties="pessimistic"), gamma, C, threshold))
            cut.append((f1, gamma, C, threshold))
    return min(ranked), max(cut)


def main():
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    for file in parser.parse_args().files:
        data = np.load(file)
        X, X_test = (data[f"X_{part}"].astype(np.float64) for part in ("train", "test"))
        Y, Y_test = (data[f"Y_{part}"].astype(int) for part in ("train", "test"))
        options = {
            "loss": "multilabel_hinge",
            "smoothing": 1.0,
            "kernel": True,
            "tol": 1e-2,
            "random_state": 0,
        }
        best_rank, best_f1 = search(X, Y, options)
        for name, (value, gamma, C, threshold) in (("rank loss", best_rank), ("F1", best_f1)):
            classifier = topkopt.MultilabelClassifier(
                smoothing=1.0,
                kernel="rbf",
                gamma=gamma,
                C=C,
                fit_intercept=False,
                threshold=threshold,
                random_state=0,
            ).fit(X, Y)
            rank = rank_loss(Y_test, classifier.decision_function(X_test), ties="pessimistic")
            f1 = f1_score(Y_test, classifier.predict(X_test), average="micro")
            print(
                f"{file.stem}, tuned for {name} (held out {100 * value:.1f}): "
                f"gamma {gamma * X.shape[1] * X.var():g} times the scale, C {C:g}, "
                f"threshold {threshold:.3g}, gap {classifier.duality_gap_:.1e}: "
                f"test rank loss {100 * rank:.1f}, micro F1 {100 * f1:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
