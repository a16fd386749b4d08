"""The special functions, in units of the elementary function they replace."""

import numpy as np
from scipy.special import wrightomega

from topkopt import reference, special

from .common import DTYPES, seconds

IMPLEMENTATIONS = {
    "compiled": special.lambertw_exp,
    "reference": lambda t, out: reference.lambertw_exp(t),
    "scipy": lambda t, out: wrightomega(t, out=out),
}
RANGES = {"left": (-30.0, 0.0), "middle": (-3.0, 3.0), "right": (0.0, 80.0), "all": (-30.0, 80.0)}
SIZE = 100_000


class LambertWExp:
    """`lambertw_exp`, the same by SciPy and by the reference."""

    params = (list(IMPLEMENTATIONS), list(RANGES), DTYPES)
    param_names = ("implementation", "range", "dtype")

    def setup(self, implementation, interval, dtype):
        t = np.random.default_rng(0).uniform(*RANGES[interval], SIZE)
        self.t = {name: t.astype(name) for name in DTYPES}
        self.out = {name: np.empty_like(t) for name, t in self.t.items()}

    def call(self, function, dtype):
        return lambda: function(self.t[dtype], out=self.out[dtype])

    def track_ratio_to_exp(self, implementation, interval, dtype):
        ours, exp = seconds(
            self.call(IMPLEMENTATIONS[implementation], dtype), self.call(np.exp, dtype)
        )
        return ours / exp

    track_ratio_to_exp.unit = "times np.exp"

    def track_ratio_to_float64(self, implementation, interval, dtype):
        function = IMPLEMENTATIONS[implementation]
        this, double = seconds(self.call(function, dtype), self.call(function, "float64"))
        return this / double

    track_ratio_to_float64.unit = "times float64"
