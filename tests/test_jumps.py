"""The compiled jumps against their twin, by themselves: behind them, the path hides all mistakes.

A jump that goes astray costs time and no digit, because a row that does not come to rest is solved
along the path. So the loops are compiled here into a library of their own.
"""

import ctypes
import shutil
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from topkopt.reference.jumps import jump_to_topk_cone

KERNELS = Path(__file__).parents[1] / "topkopt" / "_kernels"

SOURCE = """
#include "topk.h"

#define JUMPS(name, jumps)                                                              \\
    int name(const double *b, ptrdiff_t n, const double *cone, double *point)           \\
    {                                                                                   \\
        const Cone_one on = {cone[0], cone[1], cone[2], cone[3]};                       \\
        Point_one at = {point[0], point[1]};                                            \\
        const int rests = jumps(b, n, &on, &at);                                        \\
        point[0] = at.offset;                                                           \\
        point[1] = at.cap;                                                              \\
        return rests;                                                                   \\
    }

JUMPS(plain, jump_base)
JUMPS(chosen, jump_along_path)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = (sysconfig.get_config_var("CC") or "none").split()
    if shutil.which(compiler[0]) is None or not KERNELS.is_dir():
        pytest.skip("the compiler of this Python, or the source, is not there")
    folder = tmp_path_factory.mktemp("jumps")
    (folder / "jumps.c").write_text(SOURCE, "utf-8")
    flags = ["-shared", "-fPIC", "-O1", "-w", "-std=gnu11", "-fopenmp-simd", f"-I{KERNELS}"]
    target = folder / "jumps.so"
    subprocess.run(
        [*compiler, *flags, str(folder / "jumps.c"), "-o", str(target), "-lm"], check=True
    )
    return ctypes.CDLL(str(target))


def compiled(jumps, row, k, t, u, radius, bias):
    """Call the library as the twin is called."""
    shift = row.max()
    padded = np.full(-(-row.size // 4) * 4, -np.inf)
    padded[: row.size] = row - shift
    cone, point = np.array([k, bias, radius / k, shift]), np.array([t - shift, u])
    address = ctypes.c_void_p
    rests = jumps(
        address(padded.ctypes.data),
        ctypes.c_ssize_t(padded.size),
        address(cone.ctypes.data),
        address(point.ctypes.data),
    )
    return (shift + point[0], point[1]) if rests else None


@pytest.mark.parametrize("name", ["plain", "chosen"])
@pytest.mark.parametrize("radius", [0.3, 1.0, 5.0, np.inf])
@pytest.mark.parametrize("bias", [0.0, 0.5, 3.0])
def test_jumps_come_to_rest_where_those_of_the_twin_do(library, name, radius, bias):
    """But for a few, whose entries lie so near to an edge that rounding decides the way."""
    rng = np.random.default_rng(15)
    n_starts = n_found = n_expected = 0
    for p in (2, 3, 5, 9, 10, 30, 60):
        for k in sorted({1, 2, p // 2, p - 1, p} & set(range(1, p + 1))):
            for row in rng.standard_normal((6, p)):
                u = min(radius / k, abs(row.max()))
                start = row.max() - rng.choice([0.5, 2.0]) * u, u
                expected = jump_to_topk_cone(row, k, *start, radius=radius, bias=bias)
                found = compiled(getattr(library, name), row, k, *start, radius, bias)
                n_starts += 1
                n_expected += expected is not None
                n_found += found is not None
                if found is not None and expected is not None:
                    x, twin = (np.clip(row - t, 0.0, cap) for t, cap in (found, expected))
                    np.testing.assert_allclose(x, twin, atol=1e-13)
    assert n_expected > 0.8 * n_starts
    assert n_found >= n_expected - 0.02 * n_starts
