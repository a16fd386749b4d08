"""What the experiments share: data, cells that are trained once, and pages with tables.

Every experiment is a script, ``python docs/experiments/letter.py --data DIR``, where DIR holds
archives such as letter.npz. What is trained is kept at once, cell by cell, in a JSON file under
docs/results: a run that is stopped goes on where it was, and one that is complete only writes its
tables and pictures again.
"""

import argparse
import json
import os
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import topkopt

RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True)
class Data:
    """Examples to train with, to choose C with and to test on."""

    name: str
    train: tuple[Any, Any]
    validation: tuple[Any, Any]
    test: tuple[Any, Any]

    def about(self):
        """Return what a file of results says of its data."""
        X, y = self.train
        classes = y.shape[1] if y.ndim == 2 else int(y.max()) + 1
        sizes = [part[0].shape[0] for part in (self.train, self.validation, self.test)]
        return {"examples": sizes, "features": X.shape[1], "classes": classes}


def read(name, folder):
    """Return a data set of a folder of archives, or of OpenML if there is no folder."""
    if folder is None:
        return _letter_of_openml() if name == "letter" else _no_folder(name)
    with np.load(Path(folder) / f"{name}.npz", allow_pickle=False) as held:
        train, validation, test = (_part(held, part) for part in ("train", "val", "test"))
        mask = held.get("is_tr")
    if validation is None:
        X, y = train
        mask = _four_fifths(len(y)) if mask is None else mask
        train, validation = (X[mask], y[mask]), (X[~mask], y[~mask])
    return Data(name, train, validation, test)


def read_parts(name, folder):
    """Return all training and all test examples of a data set of a folder."""
    if folder is None:
        _no_folder(name)
    with np.load(Path(folder) / f"{name}.npz", allow_pickle=False) as held:
        return _part(held, "train"), _part(held, "test")


def read_training_part(name, folder):
    """Return all training examples; there may be no others."""
    return read_parts(name, folder)[0]


def _part(held, part):
    """Return features and labels; None if the archive has no such part."""
    labels = next((held[f"{letter}_{part}"] for letter in "yY" if f"{letter}_{part}" in held), None)
    if labels is None:
        return None
    if f"X_{part}" in held:
        return held[f"X_{part}"].astype(np.float64), labels.astype(np.int64)
    arrays = [held[f"X_{part}_{name}"] for name in ("data", "indices", "indptr")]
    X = scipy.sparse.csr_array(tuple(arrays), shape=tuple(held[f"X_{part}_shape"]))
    return X.astype(np.float64), labels.astype(np.int64)


def _four_fifths(n):
    """Return which examples to train with, where the source does not say; the same every time."""
    return np.random.default_rng(0).permutation(n) < 0.8 * n


def _letter_of_openml():
    """Return Letter as it is in the papers: features 0, ..., 15 become -1, ..., 1."""
    from sklearn.datasets import fetch_openml

    bunch = fetch_openml("letter", version=1, as_frame=False)
    X = 2.0 * bunch.data.astype(np.float64) / 15 - 1
    y = np.unique(bunch.target, return_inverse=True)[1]
    part = np.random.default_rng(0).permutation(15000)
    train, validation = part[:10500], part[10500:]
    return Data(
        "letter",
        (X[train], y[train]),
        (X[validation], y[validation]),
        (X[15000:], y[15000:]),
    )


def _no_folder(name):
    raise SystemExit(f"--data must name a folder with {name}.npz: it is not read from OpenML.")


def unit_rows(data):
    """Return counts as tf-idf with rows of length 1; the weights are those of the training part."""
    X = data.train[0]
    seen = np.bincount(X.indices, minlength=X.shape[1])
    idf = np.log((1 + X.shape[0]) / (1 + seen)) + 1

    def scaled(part):
        rows = scipy.sparse.csr_array(part[0].multiply(idf))
        lengths = np.sqrt(rows.multiply(rows).sum(axis=1))
        rows = scipy.sparse.diags_array(1 / np.where(lengths > 0, lengths, 1)) @ rows
        return scipy.sparse.csr_array(rows), part[1]

    return replace(
        data, train=scaled(data.train), validation=scaled(data.validation), test=scaled(data.test)
    )


class Cells:
    """Results that are kept in a file as soon as they are there."""

    def __init__(self, file, about):
        self.file, self.held = Path(file), {"about": about, "cells": {}}
        if self.file.exists():
            self.held = json.loads(self.file.read_text("utf-8"))
            if self.held["about"] != about:
                raise SystemExit(
                    f"{self.file} holds results of {self.held['about']}, not of {about}; "
                    "move it away, or write elsewhere with --out."
                )

    def get(self, name, train):
        """Return the result of that name, trained only if it is not there."""
        cells = self.held["cells"]
        if name not in cells:
            start = time.process_time()
            cells[name] = {**train(), "seconds": round(time.process_time() - start, 3)}
            self._save()
            print(f"{self.file.stem}: {name}: {cells[name]}", flush=True)
        return cells[name]

    def __contains__(self, name):
        return name in self.held["cells"]

    def _save(self):
        """Write a new file and put it in the place of the old one: a stop leaves one of them."""
        lines = ",\n".join(
            f"{json.dumps(k)}: {json.dumps(v)}" for k, v in self.held["cells"].items()
        )
        text = f'{{"about": {json.dumps(self.held["about"])},\n"cells": {{\n{lines}\n}}}}\n'
        new = self.file.with_suffix(".new")
        self.file.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text, "utf-8")
        os.replace(new, self.file)


def solve(X, y, loss, *, limit, **options):
    """Train until the gap is reached or the seconds are over; the gap says which."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", topkopt.ConvergenceWarning)
        return topkopt.solve(
            X,
            y,
            loss,
            random_state=0,
            callback=lambda state: time.process_time() - start > limit,
            **options,
        )


def percent(value):
    """Return a share as the papers print it."""
    return "–" if value is None else f"{100 * value:.1f}"


def table(head, rows):
    """Return Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def write_block(page, name, text):
    """Put a table between the marks of a page; what is written around them stays."""
    first, last = f"<!-- {name} -->\n", f"<!-- end {name} -->\n"
    old = page.read_text("utf-8") if page.exists() else f"# {page.stem}\n"
    if first not in old:
        old += f"\n{first}{last}"
    before, _, rest = old.partition(first)
    page.write_text(f"{before}{first}{text}\n{last}{rest.partition(last)[2]}", "utf-8")


def save_picture(figure, file):
    """Write a picture of few colours, which is a small file."""
    figure.savefig(file, dpi=90)


def arguments(text, sets=None):
    """Return the command line of an experiment; of one with many data sets also which of them."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of archives, e.g. letter.npz")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--limit", type=float, default=120.0, help="CPU seconds of one training")
    parser.add_argument("--quick", action="store_true", help="few trainings, to see that it runs")
    if sets:
        parser.add_argument("--sets", nargs="+", default=sets, choices=sets)
    return parser.parse_args()
