"""What runs where topkopt is installed: versions, instructions, BLAS and threads."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import scipy.linalg.cython_blas  # noqa: F401  (loads the BLAS that the solvers call)
from threadpoolctl import threadpool_info

from topkopt._kernels.simd import instructions

__all__ = ["show_config"]


def show_config(mode: str = "stdout") -> dict[str, Any] | None:
    """Print the version, the compiled loops that run on this processor, BLAS and threads.

    Paste what it prints into a report of a bug or of a time.

    Parameters
    ----------
    mode : {"stdout", "dicts"}, default "stdout"
        Whether to print the facts, or to return them.

    Returns
    -------
    dict or None
        With ``mode="dicts"``, the facts by name. "instructions" is "AVX2 + FMA" where the
        processor has them, and otherwise what every processor of its kind has: "SSE2" on x86-64,
        "NEON" on 64-bit ARM. "blas" lists each BLAS library that is loaded with its version and
        threads; the solvers call SciPy's.

    Examples
    --------
    >>> import topkopt
    >>> topkopt.show_config()
    topkopt ...
    Python ...
    NumPy ..., SciPy ..., scikit-learn ...
    loops ...
    BLAS ...
    >>> sorted(topkopt.show_config("dicts"))
    ['blas', 'free_threading', 'instructions', 'machine', 'python', 'versions']
    """
    if mode not in ("stdout", "dicts"):
        raise ValueError(f'mode must be "stdout" or "dicts", got {mode!r}.')
    facts = _facts()
    if mode == "dicts":
        return facts
    print(_as_text(facts))
    return None


def _facts() -> dict[str, Any]:
    return {
        "versions": {
            name: _version_of(name) for name in ("topkopt", "numpy", "scipy", "scikit-learn")
        },
        "python": platform.python_version(),
        "free_threading": not getattr(sys, "_is_gil_enabled", lambda: True)(),
        "machine": f"{platform.system()} {platform.machine()}",
        "instructions": instructions(),
        "blas": [
            {
                "name": pool["internal_api"],
                "version": pool["version"],
                "threads": pool["num_threads"],
                "file": Path(pool["filepath"]).name,
            }
            for pool in threadpool_info()
            if pool["user_api"] == "blas"
        ],
    }


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except ImportError:  # PackageNotFoundError is one: an extra that is not installed
        return None


def _as_text(facts: dict[str, Any]) -> str:
    versions = facts["versions"]
    lock = "off" if facts["free_threading"] else "on"
    lines = [
        f"topkopt {versions['topkopt']}",
        f"Python {facts['python']} (GIL {lock}) on {facts['machine']}",
        f"NumPy {versions['numpy']}, SciPy {versions['scipy']}, "
        f"scikit-learn {versions['scikit-learn'] or 'not installed'}",
        f"loops use {facts['instructions']}",
    ]
    lines += [
        f"BLAS {blas['name']} {blas['version'] or ''}, {blas['threads']} threads ({blas['file']})"
        for blas in facts["blas"]
    ] or ["BLAS unknown to threadpoolctl"]
    return "\n".join(lines)
