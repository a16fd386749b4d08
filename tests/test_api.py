"""Nothing public without a reference twin, witnesses, a benchmark, a stub and a doc entry."""

import importlib
import inspect
import re
from itertools import pairwise
from pathlib import Path

import pytest
from topkopt.reference import oracles

import topkopt
from topkopt import reference

from .cases import BY_NAME

ROOT = Path(__file__).parents[1]
MODULES = {
    name: importlib.import_module(f"topkopt.{name}") for name in ("special", "projections", "prox")
}
PUBLIC = {
    function: getattr(module, function)
    for module in MODULES.values()
    for function in module.__all__
}
KERNELS = sorted(path.stem for path in (ROOT / "topkopt").glob("*.pyx"))
SHARED = {"axis", "out"}  # what batching adds to the reference's arguments

public = pytest.mark.parametrize("name", PUBLIC)
kernels = pytest.mark.parametrize("kernel", KERNELS)


def text_of(folder, pattern):
    return "\n".join(path.read_text("utf-8") for path in sorted((ROOT / folder).rglob(pattern)))


def mentions(text, name):
    return re.search(rf"\b{name}\b", text) is not None


def test_something_is_public():
    assert {"lambertw_exp", "project_simplex", "prox_topk_entropy"} <= PUBLIC.keys()
    assert {"_lambert", "_knapsack", "_topk", "_weighted", "_bipartite"} <= set(KERNELS)


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_all_is_complete(module):
    defined = {
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    }
    assert sorted(module.__all__) == list(module.__all__)
    assert {name for name in defined if not name.startswith("_")} == set(module.__all__)


@public
def test_reference_twin(name):
    """The same arguments in the same order, with the same defaults; no more, no fewer."""
    twin = inspect.signature(getattr(reference, name)).parameters.values()
    mine = inspect.signature(PUBLIC[name]).parameters.values()
    assert [(p.name, p.default, p.kind) for p in mine if p.name not in SHARED] == [
        (p.name, p.default, p.kind) for p in twin
    ]


@public
def test_witnesses(name):
    assert name in reference.__all__
    assert callable(getattr(oracles, name))
    assert callable(getattr(oracles, f"kkt_{name}"))


@pytest.mark.parametrize("name", [*MODULES["projections"].__all__, *MODULES["prox"].__all__])
def test_table_of_cases(name):
    assert BY_NAME[name].public is PUBLIC[name]


@public
def test_benchmark(name):
    assert mentions(text_of("asv_benches", "*.py"), name), f"no benchmark in asv_benches/ of {name}"


@public
def test_readme(name):
    table = [line for line in text_of(".", "README.md").splitlines() if line.startswith("|")]
    assert mentions("\n".join(table), name), f"no row in README.md's support table for {name}"


@public
def test_docstring(name):
    lines = inspect.getdoc(PUBLIC[name]).splitlines()
    headings = [above for above, below in pairwise(lines) if set(below) == {"-"}]
    assert lines[0].endswith(".")
    for section in ("Parameters", "Returns", "Examples"):
        assert section in headings, f"{name} has no section {section}"
    for parameter in inspect.signature(PUBLIC[name]).parameters:
        assert re.search(rf"^(\w+, )*{parameter}(, \w+)* : ", "\n".join(lines), re.MULTILINE)


@kernels
def test_stub(kernel):
    """Every compiled module has a stub that declares its functions, and only those."""
    source = (ROOT / "topkopt" / f"{kernel}.pyx").read_text("utf-8")
    stub = (ROOT / "topkopt" / f"{kernel}.pyi").read_text("utf-8")
    declared = set(re.findall(r"^def (\w+)", stub, re.MULTILINE))
    assert declared == set(re.findall(r"^def (\w+)", source, re.MULTILINE))


@kernels
def test_kernel_imports(kernel):
    assert importlib.import_module(f"topkopt.{kernel}").__doc__


@pytest.mark.parametrize("folder", ["topkopt", "reference"])
def test_everything_is_installed(folder):
    listed = (ROOT / folder / "meson.build").read_text("utf-8")
    for path in sorted((ROOT / folder).iterdir()):
        name = path.stem if path.suffix == ".pyx" else path.name
        if path.suffix in (".py", ".pyi", ".pyx"):
            assert f"'{name}'" in listed, f"{path.name} is missing in {folder}/meson.build"


def test_version():
    assert f'version = "{topkopt.__version__}"' in (ROOT / "pyproject.toml").read_text("utf-8")
