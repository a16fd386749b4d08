"""What the Makefile installs, and what an editable installation needs to rebuild itself."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from topkopt._kernels import lambert

ROOT = Path(__file__).parents[1]
BUILD = Path(lambert.__file__).parents[2]  # of an editable installation, Meson's directory

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
editable = pytest.mark.skipif(
    not (BUILD / "build.ninja").exists(), reason="topkopt is not installed in editable mode"
)


def planned(target):
    """Return the commands that make would run for target in a fresh clone."""
    call = ["make", "--dry-run", "--always-make", "--no-print-directory", target]
    return subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@needs_make
def test_the_demo_installs_only_what_it_needs():
    said = planned("demo")
    assert said.count("--editable") == 1
    assert "--editable '.[sklearn,plot]'" in said
    assert "-m topkopt demo" in said


@needs_make
def test_who_develops_is_ready_for_the_demo():
    said = planned("dev")
    assert said.count("--editable") == 1
    assert "--editable '.[dev]'" in said
    assert said.splitlines()[-1] == "touch .venv/ready .venv/ready-for-demo"


@needs_make
@pytest.mark.parametrize("target", ["sanitize", "test-baseline", "test-boundscheck"])
def test_special_builds_leave_the_installation_alone(target):
    """They go to environments of their own, and run the tests that `make test` runs."""
    *_, install, run = planned(target).replace("\\\n", " ").splitlines()
    assert f"--python build/{target}/bin/python install" in install
    assert f"-Cbuild-dir=build/{target}/" in install
    assert f"build/{target}/bin/python -m pytest" in run
    assert run.endswith(" tests README.md reference/README.md --pyargs topkopt")


@editable
def test_cython_is_found_without_a_path(tmp_path):
    """Importing topkopt repeats the commands that ninja lists, whatever PATH is by then."""
    listed = subprocess.run(
        [sys.executable, "-m", "ninja", "-C", BUILD, "-t", "commands"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (command,) = [line for line in listed.splitlines() if "blas.pyx -o" in line]
    call = shlex.split(command)
    place = call.index("-o") + 1
    call[place] = str(tmp_path / "blas.c")
    # Through a shell, as ninja does it: subprocess itself would look in our PATH.
    bare = {**os.environ, "PATH": os.defpath}
    subprocess.run(shlex.join(call), shell=True, cwd=BUILD, env=bare, check=True)
    assert "PyInit_blas" in (tmp_path / "blas.c").read_text("utf-8")
