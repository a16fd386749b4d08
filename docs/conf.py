"""How Sphinx builds the site: ``make docs``."""

import re
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "course"), str(HERE.parent / "asv_benches")]

import curves  # noqa: E402  (draws the recorded benchmarks)
import pictures  # noqa: E402  (draws the pictures of the course)

project = "topkopt"
author = "The topkopt developers"
copyright = "the topkopt developers, BSD-3-Clause"
version = release = installed_version("topkopt")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.extlinks",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinx-mathjax-offline",
]
# A table for those who read the repository; the site has the gallery.
exclude_patterns = ["examples.md"]
suppress_warnings = ["config.cache"]
extlinks = {"doi": ("https://doi.org/%s", "doi:%s")}

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say them in words
numpydoc_show_class_members = False  # the template of classes lists them with their texts
autodoc_member_order = "bysource"
templates_path = ["_templates"]

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "min_reported_time": 3600,
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "topkopt"
html_static_path = ["_static"]
html_css_files = ["topkopt.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "topkopt"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
alone = ["index", "install", "quickstart", "mathematics", "performance-overview", "changelog"]
html_sidebars = {page: [] for page in alone}


def keep_existing(app, docname, source):
    """Drop the lines ``?page`` of toctrees that no page answers, and the mark of the others."""
    folder = (HERE / docname).parent

    def resolve(match):
        pages = sorted(folder.glob(f"{match[1]}.md"))
        return "".join(f"/{page.resolve().relative_to(HERE).with_suffix('')}\n" for page in pages)

    source[0] = re.sub(r"^\?(\S+)\n", resolve, source[0], flags=re.MULTILINE)


def drop_dead_links(app, exception):
    """Take out of the pages of sources what viewcode lists but cannot show.

    Compiled modules have no page, and a module with names of two packages links to one of them.
    """
    sources = Path(app.outdir) / "_modules"
    if exception or not sources.exists():
        return
    index = sources / "index.html"
    lines = index.read_text("utf-8").splitlines(keepends=True)
    listed = re.compile(r'<li><a href="(topkopt/[^"]+)">')
    missing = [m and not (sources / m[1]).exists() for m in map(listed.search, lines)]
    lines = [line for line, gone in zip(lines, missing, strict=True) if not gone]
    index.write_text("".join(lines), "utf-8")
    for page in sources.rglob("*.html"):

        def keep(match, page=page):
            target = page.parent / match[1]
            found = target.exists() and f'id="{match[2]}"' in target.read_text("utf-8")
            return match[0] if found else ""

        text = page.read_text("utf-8")
        back = r'<a class="viewcode-back" href="([^"#]+)#([^"]+)">\[docs\]</a>'
        page.write_text(re.sub(back, keep, text), "utf-8")


def setup(app):
    """Draw what is not committed before the pages that show it are read."""
    app.connect("builder-inited", lambda _: pictures.draw_all(HERE / "course" / "pictures"))
    app.connect("builder-inited", lambda _: curves.draw(HERE / "curves.png"))
    app.connect("source-read", keep_existing)
    app.connect("build-finished", drop_dead_links)
