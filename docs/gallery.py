"""Run the examples and save what they draw: ``python docs/gallery.py``."""

import runpy
from importlib.util import find_spec
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

HERE = Path(__file__).parent


def run(example: Path, target: Path) -> None:
    """Run one example and save what it drew last."""
    plt.show = lambda: None  # there may be no screen
    runpy.run_path(str(example), run_name="__main__")
    plt.gcf().savefig(target, dpi=80)
    plt.close("all")


if __name__ == "__main__":
    mpl.use("Agg")
    (HERE / "gallery").mkdir(exist_ok=True)
    for path in sorted((HERE.parent / "examples").glob("plot_*.py")):
        if path.stem.endswith("_torch") and find_spec("torch") is None:
            print(f"== {path.name} left out: it needs PyTorch")
            continue
        print(f"== {path.name}", flush=True)
        run(path, HERE / "gallery" / f"{path.stem.removeprefix('plot_')}.png")
