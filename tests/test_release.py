"""What a release says of itself agrees in all places that say it."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def text_of(name):
    return (ROOT / name).read_text("utf-8")


def test_versions_agree():
    version = PROJECT["version"]
    assert f"\nversion: {version}\n" in text_of("CITATION.cff")
    assert f'version = "{version}" %}}' in text_of(".github/conda-recipe/meta.yaml")
    assert f"## [{version}]" in text_of("CHANGELOG.md")


def test_the_recipe_asks_for_what_the_package_needs():
    recipe = text_of(".github/conda-recipe/meta.yaml")
    for requirement in PROJECT["dependencies"]:
        name, _, least = requirement.partition(">=")
        assert f"- {name} >={least}\n" in recipe.partition("  run:\n")[2]


def test_every_announced_python_is_tested_and_built():
    announced = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d", c)]
    tested, built = text_of(".github/workflows/tests.yml"), text_of("pyproject.toml")
    assert announced[0] == PROJECT["requires-python"].removeprefix(">=")
    for python in [*announced, f"{announced[-1]}t"]:
        assert f'"{python}"' in tested
        assert f"cp{python.replace('.', '')}-*" in built


def test_minimum_versions_are_the_declared_ones():
    tested = text_of(".github/workflows/tests.yml")
    extras = PROJECT["optional-dependencies"]
    for requirement in [*PROJECT["dependencies"], *extras["sklearn"], *extras["plot"]]:
        name, _, least = requirement.partition(">=")
        assert re.search(rf"\b{name}=={re.escape(least)}(\.0)*\s", tested), requirement


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_targets_that_exist(workflow):
    text = workflow.read_text("utf-8")
    called = re.findall(r"run: make ([\w -]+)", text) + re.findall(r"target: \[(.*)\]", text)
    targets = {target for call in called for target in re.split(r"[ ,]+", call.strip()) if target}
    known = text_of("Makefile")
    for target in targets:
        assert re.search(rf"^(?:[\w-]+ )*{target}(?: [\w-]+)*:", known, re.MULTILINE), target


def test_no_two_files_of_a_wheel_are_equal():
    """check-wheel-contents, which `make dist` asks, takes them for a mistake."""
    packages = [ROOT / "topkopt", ROOT / "reference"]
    files = [
        f for package in packages for kind in ("py", "pyi") for f in package.rglob(f"*.{kind}")
    ]
    texts = [file.read_text("utf-8") for file in files if file.stat().st_size]
    assert len(files) > 100
    assert len(set(texts)) == len(texts)


def test_the_readme_is_short():
    assert len(text_of("README.md").splitlines()) <= 150
