"""Every example runs, warns of nothing and draws something."""

import runpy
from importlib.util import find_spec
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))
RUNNABLE = [path for path in EXAMPLES if not path.stem.endswith("_torch") or find_spec("torch")]


@pytest.mark.parametrize("path", RUNNABLE, ids=lambda path: path.stem)
def test_example(path, monkeypatch, capsys):
    mpl.use("Agg")
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.gcf().axes))
    runpy.run_path(str(path), run_name="__main__")
    plt.close("all")
    assert len(shown) == 1
    assert all(ax.has_data() for ax in shown[0])
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_picture(path, is_drawn):
    name = path.stem.removeprefix("plot_")
    assert is_drawn(ROOT / "docs" / "gallery" / f"{name}.png")
    assert f"gallery/{name}.png" in (ROOT / "docs" / "examples.md").read_text("utf-8")
