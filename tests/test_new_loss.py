"""The steps of docs/development.md for a new loss, followed to the letter."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Python finds the two files that the steps change in place of those that are installed.
PLUGIN = """
import importlib.util, sys

REPLACED = {replaced!r}

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in REPLACED:
            return importlib.util.spec_from_file_location(name, REPLACED[name])

sys.meta_path.insert(0, Finder())
"""


def steps(language):
    text = (ROOT / "docs" / "development.md").read_text("utf-8")
    (code,) = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return code


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """Follow the steps in copies of the two files, compile one, and return a folder to run with."""
    compiler = (sysconfig.get_config_var("CC") or "none").split()
    if importlib.util.find_spec("Cython") is None or shutil.which(compiler[0]) is None:
        pytest.skip("Cython or the compiler of this Python is not installed")
    folder = tmp_path_factory.mktemp("new_loss")
    package = folder / "topkopt" / "losses"
    package.mkdir(parents=True)
    for place in (folder / "topkopt", package):
        (place / "__init__.py").touch()
    family = (ROOT / "topkopt" / "losses" / "binary.pyx").read_text("utf-8")
    (package / "binary.pyx").write_text(f"{family}\n\n{steps('cython')}", "utf-8")
    twins = (ROOT / "reference" / "losses" / "binary.py").read_text("utf-8")
    (folder / "binary.py").write_text(f"{twins}\n\n{steps('python')}", "utf-8")
    library = package / f"binary{sysconfig.get_config_var('EXT_SUFFIX')}"
    directives = ["language_level=3", "cdivision=True", "embedsignature=True"]
    run(
        *[sys.executable, "-m", "cython", str(package / "binary.pyx"), "-I", str(ROOT)],
        *[part for directive in directives for part in ("-X", directive)],
    )
    run(
        *[*compiler, "-shared", "-fPIC", "-O0", "-w"],
        *["-I", sysconfig.get_path("include"), "-I", str(ROOT / "topkopt" / "_kernels")],
        *[str(package / "binary.c"), "-o", str(library), "-lm"],
    )
    replaced = {
        "topkopt.losses.binary": str(library),
        "topkopt.reference.losses.binary": str(folder / "binary.py"),
    }
    # The plugin is apart from the folder topkopt, which would hide an installation of the library.
    plugin = tmp_path_factory.mktemp("plugin")
    (plugin / "with_new_loss.py").write_text(PLUGIN.format(replaced=replaced), "utf-8")
    return plugin


def in_changed(folder, *command):
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return run(*command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path})


def test_a_new_loss_is_everywhere(changed):
    code = """
import with_new_loss
import numpy as np
import topkopt
from topkopt import TopKClassifier, MultilabelClassifier, losses, reference, solve

loss = losses.get("ova_squared_hinge")
assert loss == losses.OneVsAllSquaredHinge() and repr(loss) == "OneVsAllSquaredHinge()"
assert "OneVsAllSquaredHinge" in losses.__all__ and "OneVsAllSquaredHinge" in reference.__all__
rng = np.random.default_rng(0)
X, y = rng.standard_normal((60, 5)), rng.integers(0, 4, 60)
solution = solve(X, y, loss, tol=1e-8, random_state=0)
assert solution.converged and solution.gap <= 1e-8
twin = reference.solve(X, y, reference.OneVsAllSquaredHinge(), tol=1e-8, random_state=0)
assert abs(twin.primal - solution.primal) < 1e-7
newton = solve(X, y, loss, tol=1e-10, method="newton")
assert newton.gap <= 1e-10 and abs(newton.primal - solution.primal) < 1e-7
assert abs(solve(X @ X.T, y, loss, kernel=True, tol=1e-8).primal - solution.primal) < 1e-7
TopKClassifier("ova_squared_hinge").fit(X, y)
MultilabelClassifier("ova_squared_hinge", threshold=0.0).fit(X, np.eye(4, dtype=int)[y])
from topkopt._demo.losses import table
assert "| `OneVsAllSquaredHinge` | Sum over the classes of `max(0, 1 - c_j s_j)^2`" in table()
print("everywhere")
"""
    assert in_changed(changed, sys.executable, "-c", code).strip() == "everywhere"


# These tests take for granted that a loss grows like its scores, or has an oracle of many digits.
SPECIAL = ("huge", "far", "extreme", "supremum", "digits", "forgiven", "scaled")


def test_a_new_loss_is_tested(changed):
    """The tables of the tests know it from its declaration, and it passes."""
    said = in_changed(
        changed,
        *[sys.executable, "-m", "pytest", "-q", "-p", "with_new_loss", "-p", "no:cacheprovider"],
        *["-k", " and not ".join(["SquaredHinge", *SPECIAL])],
        *["tests/test_losses.py", "tests/test_loss_objects.py", "tests/test_solvers.py"],
        *["tests/test_newton.py", "tests/test_api.py"],
        *["--deselect", "tests/test_api.py::test_the_table_of_losses"],
    )
    assert int(re.search(r"(\d+) passed", said)[1]) > 25


def test_a_forgotten_method_is_an_error_at_import(changed):
    code = """
import with_new_loss
from topkopt import losses
from topkopt.losses.registry import check_complete

class Unfinished:
    __name__ = "Unfinished"
    declaration = losses.Softmax.declaration

    def __new__(cls):
        return cls.loss

from types import SimpleNamespace
import numpy as np
whole = losses.Softmax()
known = ("value", "gradient", "conjugate", "prox_derivative")
for missing in known:
    methods = {name: getattr(whole, name) for name in known}
    methods[missing] = lambda s, *rest: np.nan * np.asarray(s)
    if missing in ("value", "conjugate"):
        methods[missing] = lambda *rest: np.nan
    Unfinished.loss = SimpleNamespace(convex=True, **methods)
    try:
        check_complete(Unfinished)
    except TypeError as error:
        print(error)
"""
    said = in_changed(changed, sys.executable, "-c", code)
    assert re.search("row_value.*\n.*row_prox.*\n.*row_conjugate.*\n.*row_derivative", said)
