"""Arrays in a file that is there as a whole or not at all, and that holds nothing but arrays."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_arrays", "write_arrays"]

_DAMAGE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def write_arrays(path: str, arrays: dict[str, Any]) -> None:
    """Write a .npz whose old version is there until the new one is on the disk.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_arrays(f"{folder}/a.npz", {"a": np.arange(3)})
    ...     read_arrays(f"{folder}/a.npz")["a"]
    array([0, 1, 2])
    """
    part = f"{path}.part"
    with open(part, "wb") as file:
        np.savez(file, **arrays)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    if hasattr(os, "O_DIRECTORY"):  # the new name is safe only when the folder is on the disk too
        folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_arrays(path: str) -> dict[str, NDArray]:
    """Return the arrays of a .npz; ValueError if it is not whole. Nothing is unpickled."""
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("it is no .npz, or was cut off")
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except _DAMAGE as error:
        raise ValueError(
            f"checkpoint must be a .npz that was written as a whole, but {path!r} cannot be read: "
            f"{error}. Take a copy of it, or delete it to begin anew."
        ) from None
