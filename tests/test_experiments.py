"""Every experiment runs on small made data, trains no cell twice, and draws what its page shows."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from sklearn import metrics

DOCS = Path(__file__).parents[1] / "docs"
SCRIPTS = [p for p in sorted((DOCS / "experiments").glob("*.py")) if "__main__" in p.read_text()]
MULTILABEL = ["emotions", "medical"]  # a dense and a sparse one
DENSE = ["letter", "caltech101_silhouettes", "wtopk_demo450_01", "emotions"]
SPARSE = ["banking77", "clinc150", "20newsgroups_bydate", "medical"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a folder of archives as the experiments read them."""
    folder = tmp_path_factory.mktemp("data")
    for seed, name in enumerate(DENSE + SPARSE):
        rng, held = np.random.default_rng(seed), {}
        means = rng.normal(size=(12, 6))
        for part in ("train", "val", "test"):
            y = np.concatenate([np.arange(12), rng.integers(0, 12, 48)])
            X = np.abs(means[y] + 0.5 * rng.normal(size=(60, 6)))
            if name in SPARSE:
                X = scipy.sparse.csr_array(np.round(X))
                held |= {f"X_{part}_{a}": getattr(X, a) for a in ("data", "indices", "indptr")}
                held[f"X_{part}_shape"] = np.array(X.shape)
            else:
                held[f"X_{part}"] = X
            if name in MULTILABEL:
                held[f"Y_{part}"] = (rng.random((60, 5)) < 0.4).astype(np.uint8)
            else:
                held[f"y_{part}"] = y
        if name != "caltech101_silhouettes":  # the one that comes with a validation part
            held = {key: array for key, array in held.items() if "_val" not in key}
        np.savez(folder / f"{name}.npz", **held)
    return folder


def run(script, data, out):
    """Return what an experiment prints."""
    command = [sys.executable, str(script), "--quick", "--data", str(data), "--out", str(out)]
    if script.stem == "multilabel":
        command += ["--sets", *MULTILABEL]
    # A script imports its neighbours, which this variable of the special builds would forbid.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_experiment(script, data, tmp_path, is_drawn):
    assert "'seconds'" in run(script, data, tmp_path)
    pages = [p.read_text("utf-8") for p in tmp_path.glob("*.md")]
    assert len(pages) == 1
    assert pages[0].count("| --- |") >= 1
    assert all(is_drawn(picture) for picture in tmp_path.glob("*.png"))
    # Another run trains nothing, and one that lost a cell trains that alone.
    assert "'seconds'" not in run(script, data, tmp_path)
    file = min(tmp_path.glob("*.json"))
    held = json.loads(file.read_text("utf-8"))
    lost, _ = held["cells"].popitem()
    file.write_text(json.dumps(held), "utf-8")
    again = [line for line in run(script, data, tmp_path).splitlines() if "'seconds'" in line]
    assert len(again) == 1
    assert again[0].startswith(f"{file.stem}: {lost}: ")


def test_results_of_other_data_are_not_mixed(data, tmp_path):
    script = DOCS / "experiments" / "letter.py"
    (tmp_path / "letter.json").write_text('{"about": {"features": 3}, "cells": {}}')
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(script, data, tmp_path)
    assert "move it away" in caught.value.stderr


def test_label_metrics_are_those_of_scikit_learn(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "experiments")
    from multilabel import label_metrics

    rng = np.random.default_rng(0)
    truth, guess = rng.random((2, 40, 5)) < 0.3
    truth[:2], guess[:1], truth[:, 4], guess[:, 4] = False, False, False, False
    by_example = {"average": "samples", "zero_division": 1.0}
    expected = {
        "Hamming": metrics.hamming_loss(truth, guess),
        "accuracy": metrics.jaccard_score(truth, guess, **by_example),
        "subset": metrics.accuracy_score(truth, guess),
        "F1 micro": metrics.f1_score(truth, guess, average="micro"),
        "F1 macro": metrics.f1_score(truth, guess, average="macro", zero_division=0.0),
        "F1 instance": metrics.f1_score(truth, guess, **by_example),
    }
    assert label_metrics(truth, guess) == pytest.approx(expected)


def test_every_script_has_a_page_with_its_pictures(is_drawn):
    for script in SCRIPTS:
        page = DOCS / "results" / f"{script.stem}.md"
        text = page.read_text("utf-8")
        assert f"docs/experiments/{script.name}" in text
        for picture in re.findall(r"\]\((\w+\.png)\)", text):
            assert is_drawn(page.parent / picture)
