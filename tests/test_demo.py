"""The command line, and the progress of a training."""

import logging
import re
import subprocess
import sys

import numpy as np
import pytest

from topkopt import TopKClassifier, __version__, _demo
from topkopt._demo import operators, training


def test_demo(tmp_path, capsys, is_drawn):
    target = tmp_path / "demo.png"
    _demo.main(["demo", "--output", str(target)])
    printed = capsys.readouterr().out
    for title, *_ in training.LOSSES:
        assert len(re.findall(rf"^{title}  ", printed, re.MULTILINE)) == 2
    for heading in ("top-1", "top-2", "top-3", "top-5", "certified gap", "epochs", "seconds"):
        assert heading in printed
    assert printed.count("not convex") == 3  # a line in each table, and the note below
    for name in ("digits", "circle"):
        assert is_drawn(tmp_path / f"demo-{name}.png")


def test_projections(tmp_path, capsys, is_drawn):
    target = tmp_path / "projections.png"
    _demo.main(["projections", "--output", str(target)])
    printed = capsys.readouterr().out
    assert all(title in printed for title, *_ in operators.CASES)
    assert is_drawn(target)


def test_no_picture(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(operators, "SHAPE", (4, 100))
    _demo.main(["projections", "--no-picture"])
    assert "violation" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_help_and_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        _demo.main(["--help"])
    said = capsys.readouterr().out
    assert "demo" in said
    assert "--no-picture" in said
    call = [sys.executable, "-m", "topkopt", "--version"]
    said = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    assert said.strip() == f"topkopt {__version__}"


@pytest.mark.parametrize(
    ("module", "options", "remedy"),
    [
        ("matplotlib", [], 'pip install "topkopt[plot]"'),
        ("sklearn", ["--no-picture"], 'pip install "topkopt[sklearn]"'),
    ],
)
def test_missing_packages(module, options, remedy):
    code = (
        f"import sys; sys.modules['{module}'] = None\n"
        f"from topkopt._demo import main; main({options})"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said.returncode == 1
    assert remedy in said.stderr
    assert "Traceback" not in said.stderr


# Progress ------------------------------------------------------------------------------------

X, Y = np.random.default_rng(0).standard_normal((60, 4)), np.arange(60) % 3


class Terminal:
    """A standard error that says whether it is interactive."""

    def __init__(self, interactive):
        self.interactive, self.text = interactive, ""

    def isatty(self):
        return self.interactive

    def write(self, text):
        self.text += text

    def flush(self):
        pass


@pytest.mark.parametrize("interactive", [True, False])
def test_verbose_1_is_one_live_line_on_a_terminal(interactive, monkeypatch, capsys):
    terminal = Terminal(interactive)
    monkeypatch.setattr(sys, "stderr", terminal)
    TopKClassifier("hinge", verbose=1, random_state=0).fit(X, Y)
    assert capsys.readouterr().out == ""
    if not interactive:
        assert terminal.text == ""
        return
    assert terminal.text.count("\n") == 1
    assert re.search(r"\repoch \d+  gap \S+ -> 1.0e-03  \S+ s  about \S+ s left", terminal.text)


def test_verbose_2_prints_a_line_per_certificate(capsys):
    model = TopKClassifier("hinge", verbose=2, random_state=0).fit(X, Y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(model.history_["epoch"])
    assert all(re.match(r"epoch \d+  gap \S+ -> 1.0e-03  \S+ s", line) for line in lines)


def test_the_logger_gets_the_same_facts(caplog):
    with caplog.at_level(logging.INFO, logger="topkopt"):
        model = TopKClassifier("hinge", random_state=0).fit(X, Y)
    assert len(caplog.records) == len(model.history_["epoch"])
    assert "gap" in caplog.messages[-1]
