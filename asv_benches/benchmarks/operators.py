"""The projections and entropic operators: time, speed-up, distance to the machine's limit."""

import resource

import numpy as np

from topkopt.special import lambertw_exp

from .common import (
    CASES,
    DTYPES,
    FAMILIES,
    IMPLEMENTATIONS,
    PROJECTIONS,
    PROXES,
    ROWS,
    Problem,
    seconds,
)


class Time:
    """Every operator in every implementation."""

    params = (list(CASES), IMPLEMENTATIONS, list(ROWS), DTYPES)
    param_names = ("case", "implementation", "dimension", "dtype")

    def setup(self, case, implementation, dimension, dtype):
        self.problem = Problem(CASES[case], ROWS[dimension], dimension, dtype)

    def track_time(self, case, implementation, dimension, dtype):
        return 1e9 * self.problem.seconds_per_number(implementation)[0]

    track_time.unit = "ns/number"


class SpeedUp:
    """How many times faster than the reference, and than sorting with NumPy."""

    params = (list(CASES), IMPLEMENTATIONS[1:], list(ROWS), DTYPES)
    param_names = ("case", "opponent", "dimension", "dtype")

    def setup(self, case, opponent, dimension, dtype):
        self.problem = Problem(CASES[case], ROWS[dimension], dimension, dtype)

    def track_speed_up(self, case, opponent, dimension, dtype):
        theirs, ours = self.problem.seconds_per_number(opponent, "compiled")
        return theirs / ours

    track_speed_up.unit = "times faster"


class Limit:
    """Time over the machine's limit, one read and one write of the array."""

    def setup(self, *params):
        self.problem = Problem(*self.arguments(*params))

    def ratio(self):
        ours, limit = self.problem.seconds_per_number("compiled", "limit")
        return ours / limit


class Batch(Limit):
    """Many rows, from those that fit in the cache to those that do not."""

    params = (list(CASES), list(ROWS), DTYPES)
    param_names = ("case", "dimension", "dtype")

    def arguments(self, case, dimension, dtype):
        return CASES[case], ROWS[dimension], dimension, dtype

    def track_ratio_to_limit(self, case, dimension, dtype):
        return self.ratio()

    track_ratio_to_limit.unit = "times the limit"


class OneRow(Limit):
    """A single long row: a flat curve is a linear cost."""

    params = (list(PROJECTIONS), [10_000, 100_000, 1_000_000, 10_000_000])
    param_names = ("case", "dimension")

    def arguments(self, case, dimension):
        return CASES[case], 1, dimension

    def track_ratio_to_limit(self, case, dimension):
        return self.ratio()

    track_ratio_to_limit.unit = "times the limit"


class Adversarial(Limit):
    """Inputs on which pivoting algorithms are known to be slow."""

    params = (list(PROJECTIONS), [family for family in FAMILIES if family != "normal"])
    param_names = ("case", "family")
    dimension = 10_000

    def arguments(self, case, family):
        return CASES[case], ROWS[self.dimension], self.dimension, "float64", family

    def track_ratio_to_limit(self, case, family):
        return self.ratio()

    track_ratio_to_limit.unit = "times the limit"


class Evaluations:
    """The entropic operators in units of one `lambertw_exp` of the same array."""

    params = (list(PROXES), list(ROWS), DTYPES)
    param_names = ("case", "dimension", "dtype")

    def setup(self, case, dimension, dtype):
        self.problem = Problem(CASES[case], ROWS[dimension], dimension, dtype)

    def track_evaluations(self, case, dimension, dtype):
        problem = self.problem
        prox, once = seconds(problem.compiled, lambda: lambertw_exp(problem.x, out=problem.below))
        return prox / once

    track_evaluations.unit = "evaluations of lambertw_exp"


class Threads:
    """Two threads over one."""

    params = (list(CASES), DTYPES)
    param_names = ("case", "dtype")
    shape = 10_000, 1_000

    def setup(self, case, dtype):
        self.problem = Problem(CASES[case], *self.shape, dtype)

    def track_scaling(self, case, dtype):
        one, two = seconds(self.problem.compiled, lambda: self.problem.compiled(n_threads=2))
        return one / two

    track_scaling.unit = "times faster"


class Memory:
    """What an operator needs beyond its input and its output."""

    params = (list(CASES), DTYPES)
    param_names = ("case", "dtype")
    number = 4_000_000

    def setup(self, case, dtype):
        self.problem = Problem(CASES[case], 1, self.number, dtype)

    def track_work(self, case, dtype):
        filler = _fill_to_peak()
        before = _peak()
        self.problem.compiled()
        del filler
        return (_peak() - before) / self.number

    track_work.unit = "bytes/number"


def _peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _fill_to_peak():
    """Use up what the set-up has released, so that any more memory shows in the peak."""
    start, blocks = _peak(), []
    while _peak() == start and len(blocks) < 1000:
        blocks.append(np.ones(1 << 17))
    return blocks
