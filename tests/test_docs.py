"""Every Python block of the documentation runs, and every public name is on a page of the API."""

import doctest
import importlib
import re
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt

import topkopt

DOCS = Path(__file__).parents[1] / "docs"
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Its blocks are steps that test_new_loss follows.
PAGES = sorted(p for p in DOCS.rglob("*.md") if p.name != "development.md")
WITH_CODE = [page for page in PAGES if FENCE.search(page.read_text("utf-8"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
EXTRAS = ["torch", "dask", "distributed"]
MODULES = ["losses", "projections", "prox", "special", "metrics", "plotting", "datasets"]


def name_of(page):
    return str(page.relative_to(DOCS))


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_code_blocks(page, tmp_path, monkeypatch):
    """The blocks of a page run one after the other, as a reader would type them."""
    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    text = page.read_text("utf-8")
    for extra in re.findall(rf"(?:from|import) (?:topkopt\.)?({'|'.join(EXTRAS)})\b", text):
        pytest.importorskip(extra)
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=FLAGS)
    names = {}
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        block = parser.get_doctest(match[1], names, page.name, str(page), line)
        if block.examples:
            failed, _ = runner.run(block, clear_globs=False)
            assert failed == 0, f"{page.name}, line {line}: see the captured output"
            names = block.globs
        else:
            exec(compile("\n" * line + match[1], str(page), "exec"), names)
    plt.close("all")


def test_something_is_run():
    assert {"quickstart.md", "guide/losses.md", "course/11-oracles.md"} <= set(
        map(name_of, WITH_CODE)
    )


def test_every_public_name_is_in_the_api():
    text = "\n".join(page.read_text("utf-8") for page in (DOCS / "api").glob("*.md"))
    public = [f"topkopt.{name}" for name in topkopt.__all__ if name not in MODULES]
    for module in MODULES:
        names = importlib.import_module(f"topkopt.{module}").__all__
        public += [f"topkopt.{module}.{name}" for name in names]
    for name in public:
        short = name.removeprefix("topkopt.")
        listed = re.search(rf"^ +{re.escape(name)}$", text, re.MULTILINE) or f"`{short}`" in text
        assert listed, f"docs/api lists no {name}"


def test_every_name_for_clusters_is_in_the_api():
    """Without Dask the module cannot be imported, but its list of names can be read."""
    source = Path(topkopt.__file__).with_name("distributed") / "__init__.py"
    listed = re.search(r"^__all__ = \[(.*?)\]", source.read_text("utf-8"), re.MULTILINE)
    text = (DOCS / "api" / "distributed.md").read_text("utf-8")
    names = set(re.findall(r'"(\w+)"', listed[1]))
    assert set(re.findall(r"^ +topkopt\.distributed\.(\w+)$", text, re.MULTILINE)) == names


def test_every_name_for_torch_is_in_the_api():
    """The list is read from the source: PyTorch may not be there."""
    source = Path(topkopt.__file__).with_name("torch") / "__init__.py"
    names = re.findall(r'^    "(\w+)",$', source.read_text("utf-8"), re.MULTILINE)
    assert "project_simplex" in names
    text = (DOCS / "api" / "torch.md").read_text("utf-8")
    assert set(re.findall(r"^ +topkopt\.torch\.(\w+)$", text, re.MULTILINE)) == set(names)


def test_every_chapter_is_complete():
    """A problem, a picture, a derivation, the code, an exercise and its answer."""
    chapters = sorted((DOCS / "course").glob("[0-9]*.md"))
    assert len(chapters) >= 10
    drawn = (DOCS / "course" / "pictures.py").read_text("utf-8")
    for chapter in chapters:
        text = chapter.read_text("utf-8")
        for part in ("The problem", "The derivation", "The code", "Exercise"):
            assert f"\n## {part}\n" in text, f"{chapter.name} lacks {part!r}"
        assert "{literalinclude} ../../reference/" in text
        assert ":::{dropdown} Answer" in text
        for picture in re.findall(r"\]\(pictures/(\w+)\.png\)", text):
            assert f"def {picture}(" in drawn, f"nothing draws {picture}.png of {chapter.name}"
