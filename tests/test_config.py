"""What show_config says is so."""

import platform
import subprocess
import sys

import pytest
from threadpoolctl import threadpool_limits

import topkopt


def test_facts_are_true():
    facts = topkopt.show_config("dicts")
    assert facts["versions"]["topkopt"] == topkopt.__version__
    assert facts["python"] == platform.python_version()
    assert facts["blas"]
    if platform.machine() in ("x86_64", "AMD64"):
        assert facts["instructions"] in ("AVX2 + FMA", "SSE2")
    elif platform.machine() in ("aarch64", "arm64"):
        assert facts["instructions"] == "NEON"


def test_threads_are_those_of_the_moment():
    with threadpool_limits(1, user_api="blas"):
        assert {blas["threads"] for blas in topkopt.show_config("dicts")["blas"]} == {1}


def test_printed_facts(capsys):
    assert topkopt.show_config() is None
    said = capsys.readouterr().out
    facts = topkopt.show_config("dicts")
    for part in (topkopt.__version__, facts["instructions"], facts["blas"][0]["file"]):
        assert part in said


def test_without_scikit_learn():
    """The version of an extra that is missing is not invented."""
    code = (
        "import importlib.metadata as m; real = m.version\n"
        "def version(name):\n"
        "    if name == 'scikit-learn': raise m.PackageNotFoundError(name)\n"
        "    return real(name)\n"
        "m.version = version; import topkopt; topkopt.show_config()"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "scikit-learn not installed" in run.stdout


def test_mode():
    with pytest.raises(ValueError, match=r'mode must be "stdout" or "dicts", got "?\'?json'):
        topkopt.show_config("json")
