"""Nothing public without a reference twin, witnesses, a benchmark, a stub and a doc entry."""

import ast
import dataclasses
import importlib
import inspect
import re
from itertools import pairwise
from pathlib import Path

import pytest
from topkopt.reference import oracles

import topkopt
from topkopt import reference
from topkopt._demo.losses import table as losses_table

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
LOSSES = {cls.__name__: cls for cls in topkopt.losses.classes()}
COMPILED = sorted((ROOT / "topkopt").rglob("*.pyx"))
FOLDERS = sorted(
    {path.parent for top in ("topkopt", "reference") for path in (ROOT / top).rglob("*.py")}
)
SHARED = {"axis", "out", "n_threads"}  # what batching adds to the reference's arguments

public = pytest.mark.parametrize("name", PUBLIC)
every_loss = pytest.mark.parametrize("name", LOSSES)
compiled = pytest.mark.parametrize("source", COMPILED, ids=lambda path: path.stem)


def text_of(folder, pattern):
    return "\n".join(path.read_text("utf-8") for path in sorted((ROOT / folder).rglob(pattern)))


def mentions(text, name):
    return re.search(rf"\b{name}\b", text) is not None


def compiled_signature(cls):
    """Return the names and defaults of a compiled constructor, as its docstring records them."""
    first = cls.__doc__.splitlines()[0]
    recorded = re.fullmatch(rf"{cls.__name__}\((.*)\)", first)
    call = ast.parse(f"def f({recorded.group(1) if recorded else ''}): ...").body[0].args
    defaults = [ast.literal_eval(node) for node in call.defaults]
    missing = [inspect.Parameter.empty] * (len(call.args) - len(defaults))
    return list(zip([a.arg for a in call.args], [*missing, *defaults], strict=True))


def stub_signature(tree, name):
    """Return the names and defaults of a constructor in a stub."""
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    for node in found.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            defaults = [ast.literal_eval(d) for d in node.args.defaults]
            names = [a.arg for a in node.args.args[1:]]
            missing = [inspect.Parameter.empty] * (len(names) - len(defaults))
            return list(zip(names, [*missing, *defaults], strict=True))
    return []


def headings_of(text):
    lines = text.splitlines()
    return [above for above, below in pairwise(lines) if set(below.strip()) == {"-"}]


def test_something_is_public():
    assert {"lambertw_exp", "project_simplex", "prox_topk_entropy"} <= PUBLIC.keys()
    stems = {path.stem for path in COMPILED}
    assert {"lambert", "knapsack", "topk", "weighted", "bipartite", "hinge", "epochs"} <= stems
    assert {"Softmax", "TopKHinge", "MultilabelHinge"} <= set(LOSSES) <= set(topkopt.losses.__all__)


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_all_is_complete(module):
    defined = {
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and f"{value.__module__}.".startswith(f"{module.__name__}.")
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


def test_every_loss_is_found():
    assert sorted(topkopt.losses.__all__) == topkopt.losses.__all__
    declared = [topkopt.losses.declaration_of(name) for name in topkopt.losses.names()]
    assert {cls.declaration for cls in LOSSES.values()} == set(declared)
    assert set(topkopt.__all__) >= {"ConvergenceWarning", "Solution", "losses", "solve"}


@every_loss
def test_loss_twin(name):
    """The same name and the same constructor in the reference and in the stub."""
    twin = inspect.signature(getattr(reference, name)).parameters.values()
    assert name in reference.__all__
    assert compiled_signature(LOSSES[name]) == [(p.name, p.default) for p in twin]
    family = LOSSES[name].__module__.rpartition(".")[2]
    stub = ast.parse((ROOT / "topkopt" / "losses" / f"{family}.pyi").read_text("utf-8"))
    if any(isinstance(node, ast.ClassDef) and node.name == name for node in stub.body):
        assert stub_signature(stub, name) == compiled_signature(LOSSES[name])


@every_loss
def test_loss_methods(name):
    for method in ("value", "gradient", "conjugate"):
        assert callable(getattr(getattr(reference, name), method))
        for section in ("Parameters", "Returns"):
            assert section in map(str.strip, headings_of(getattr(LOSSES[name], method).__doc__))


@every_loss
def test_loss_docstring(name):
    text = inspect.getdoc(LOSSES[name])
    headings = headings_of(text)
    assert "Examples" in headings
    assert f">>> {name}(" in text or re.search(rf">>> .*\b{name}\(", text)
    parameters = [parameter for parameter, _ in compiled_signature(LOSSES[name])]
    assert ("Parameters" in headings) == bool(parameters)
    for parameter in parameters:
        assert re.search(rf"^{parameter} : ", text, re.MULTILINE)


def test_training_is_benchmarked_and_listed():
    assert mentions(text_of("asv_benches", "*.py"), "solve")
    assert mentions(text_of(".", "README.md"), "solve")


def test_the_table_of_losses():
    assert losses_table() in text_of(".", "README.md"), (
        "paste what `python -m topkopt losses` prints"
    )


def test_solve_twin():
    """The reference takes some of the arguments, with the same meaning and the same defaults."""
    mine = inspect.signature(topkopt.solve).parameters
    twin = inspect.signature(reference.solve).parameters
    for name, parameter in twin.items():
        assert (parameter.default, parameter.kind) == (mine[name].default, mine[name].kind), name
    fields = {field.name for field in dataclasses.fields(topkopt.Solution)}
    assert set(reference.sdca.Solution._fields) <= fields


def public_attributes(cls):
    """Return the names of the fields and the properties of a data class."""
    fields = [field.name for field in dataclasses.fields(cls)]
    properties = [name for name, value in vars(cls).items() if isinstance(value, property)]
    return [name for name in [*fields, *properties] if not name.startswith("_")]


@pytest.mark.parametrize("item", [topkopt.solve, topkopt.Solution, topkopt.solvers.State])
def test_solver_docstrings(item):
    text = inspect.getdoc(item)
    assert text.splitlines()[0].endswith(".")
    names = inspect.signature(item).parameters if item is topkopt.solve else public_attributes(item)
    for name in names:
        assert re.search(rf"^(\w+, )*{name}(, \w+)* : ", text, re.MULTILINE), name


def names_in(text, pattern):
    return {name for name in re.findall(pattern, text, re.MULTILINE) if not name.startswith("_")}


@compiled
def test_stub(source):
    """Every compiled module has a stub that declares its functions and classes, and only those.

    A stub that answers for names it does not declare may lack some.
    """
    written, stub = source.read_text("utf-8"), source.with_suffix(".pyi").read_text("utf-8")
    for declared, defined in (
        (names_in(stub, r"^def (\w+)"), names_in(written, r"^def (\w+)")),
        (names_in(stub, r"^class (\w+)"), names_in(written, r"^(?:cdef )?class (\w+)")),
    ):
        assert declared <= defined
        assert declared == defined or "def __getattr__" in stub


@compiled
def test_compiled_modules_import(source):
    name = ".".join(source.relative_to(ROOT).with_suffix("").parts)
    assert importlib.import_module(name).__doc__


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_everything_is_installed(folder):
    listed = (folder / "meson.build").read_text("utf-8")
    for path in sorted(folder.iterdir()):
        name = path.stem if path.suffix == ".pyx" else path.name
        if path.suffix in (".py", ".pyi", ".pyx"):
            assert f"'{name}'" in listed, f"{path.name} is missing in its meson.build"


def test_version():
    assert f'version = "{topkopt.__version__}"' in (ROOT / "pyproject.toml").read_text("utf-8")
