"""The folders are layers: nothing imports upwards, and what is private stays where it is."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1] / "topkopt"

# From the bottom to the top; what stands in one line may use each other only within a folder.
LAYERS = [
    ["_kernels", "_extras"],
    ["_threads"],
    ["_validation"],
    ["special", "projections", "prox", "losses", "datasets", "_config"],
    ["solvers"],
    ["distributed"],
    ["_scores", "metrics"],
    ["estimators", "plotting", "torch"],
    ["__init__"],
    ["_demo"],
    ["__main__"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
FILES = sorted(path for end in ("py", "pyx", "pxd") for path in ROOT.rglob(f"*.{end}"))
TESTS = sorted(Path(__file__).parent.rglob("*.py"))
# They tell types of what they are given, or are imported when they are needed.
LATE = {("__init__", "estimators"), ("_validation", "losses")}


def room(parts):
    """Return the file or the folder below topkopt that a module belongs to."""
    return parts[0] if parts else "__init__"


def imports_of(path):
    """Return (module, name) for all that a file imports or cimports from topkopt."""
    text = path.read_text("utf-8")
    found = re.findall(r"^\s*from (topkopt[\w.]*) cimport \(?([^)\n]*(?:\n[^)]*)?)\)?", text, re.M)
    pairs = [(module, name.strip()) for module, names in found for name in names.split(",")]
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("topkopt"):
                pairs += [(node.module, alias.name) for alias in node.names]
            elif isinstance(node, ast.Import):
                pairs += [(a.name, "") for a in node.names if a.name.startswith("topkopt")]
    else:
        for module, names in re.findall(r"^from (topkopt[\w.]*) import ([\w, ]+)", text, re.M):
            pairs += [(module, name.strip()) for name in names.split(",")]
    return [pair for pair in pairs if not pair[0].startswith("topkopt.reference")]


def target_of(module, name):
    """Return the room that an import goes to: `from topkopt import losses` goes to losses."""
    parts = module.split(".")[1:]
    return room(parts) if parts else (name if name in RANK else "__init__")


def edges():
    """Return which room uses which, and where."""
    for path in FILES:
        own = room(path.relative_to(ROOT).with_suffix("").parts)
        for module, name in imports_of(path):
            yield path, own, target_of(module, name), module, name


def graph():
    """Return the graph for docs/development.md."""
    used = {name: set() for name in RANK}
    for _, own, target, _, _ in edges():
        if own != target and (own, target) not in LATE:
            used[own].add(target)
    lines = []
    for name in RANK:
        below = sorted(used[name], key=lambda other: (RANK[other], other))
        lines.append(f"{name:<12} {', '.join(below) or 'nothing'}")
    return "\n".join(lines)


def test_every_room_has_a_layer():
    rooms = {room(path.relative_to(ROOT).with_suffix("").parts) for path in FILES}
    assert rooms == set(RANK)


def test_nothing_is_imported_upwards():
    found = list(edges())
    assert len(found) > 100
    for path, own, target, module, _ in found:
        allowed = own == target or RANK[target] < RANK[own] or (own, target) in LATE
        assert allowed, f"{path.relative_to(ROOT)} imports {module}, which is above or beside it"


def test_privates_do_not_cross_borders():
    for path, _, _, module, name in edges():
        home = ".".join(["topkopt", *path.relative_to(ROOT).with_suffix("").parts])
        private = name.startswith("_") and name not in RANK and not name.startswith("__")
        assert not private or module == home, f"{path.name} imports {name} of {module}"


def test_headers_are_opened_by_the_kernels_alone():
    for path in FILES:
        if path.suffix == ".pyx" and path.parent.name != "_kernels":
            opened = re.findall(r'cdef extern from "(\w+\.h)"', path.read_text("utf-8"))
            assert not opened, f"{path.name} opens {opened} behind its .pxd"


def test_the_graph_in_the_documentation():
    text = (ROOT.parent / "docs" / "development.md").read_text("utf-8")
    assert graph() in text, f"docs/development.md must show this graph:\n{graph()}"


def test_the_walks_in_the_documentation_pass_files_that_exist():
    text = (ROOT.parent / "docs" / "development.md").read_text("utf-8")
    named = set(re.findall(r"`([\w/.]+\.(?:py|pyx|pxd|h|c))`", text))
    assert {"solvers/solve.py", "_kernels/topk.pyx"} <= named
    paths = [path.as_posix() for path in ROOT.rglob("*.*")]
    for name in named:
        inside = any(path.endswith(f"/{name}") for path in paths)
        assert inside or (ROOT.parent / name).exists(), name


def test_files_are_short_enough_to_be_read():
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in FILES + TESTS}
    assert {path.name: lines for path, lines in lengths.items() if lines > 530} == {}
