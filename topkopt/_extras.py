"""Optional dependencies: imported when needed, and asked for by name when missing."""

from __future__ import annotations

import importlib
from typing import Any

# The package behind an import name, and the extra of topkopt that installs it.
_EXTRAS = {
    "sklearn": ("scikit-learn", "sklearn"),
    "matplotlib": ("matplotlib", "plot"),
    "torch": ("PyTorch", "torch"),
    "dask": ("Dask", "dask"),
    "distributed": ("Dask's distributed", "dask"),
}


def require(module: str) -> Any:
    """Import a module of an optional dependency.

    >>> require("sklearn.metrics").__name__
    'sklearn.metrics'
    """
    package, extra = _EXTRAS[module.partition(".")[0]]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f'this part of topkopt needs {package}: pip install "topkopt[{extra}]" ({error})'
        ) from error
