"""The memory of L-BFGS: what the last steps say of the inverse Hessian.

With steps S, changes Y of the gradient, an initial inverse Hessian B (the preconditioner) and
L = B Y, the direction for a gradient g is, in the compact form,

    -(c B g + S a + L b),   R u = S'g,   b = -c u,   R'a = (D + c Y'L) u - c L'g,

where R is the upper triangle of S'Y, D its diagonal, and c scales B to the last step. Only inner
products with gradients occur: those with Y are differences of them, and with a kernel all of them
are taken with the image K g. So one look at S and L gives all that is needed, and one more the
direction.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

__all__ = ["Memory"]


class Memory:
    """The last steps and changes of the gradient.

    Parameters
    ----------
    size : int
        How many are remembered.
    length : int
        The number of parameters.
    """

    def __init__(self, size: int, length: int):
        self.size, self.length = size, length
        self.steps = np.empty((size, length))
        self.changes: NDArray | None = None  # Y, where it is not L
        self.lifted = np.empty((size, length))
        self.step_change = np.zeros((size, size))  # S'Y
        self.change_lifted = np.zeros((size, size))  # Y'L
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.order: list[int] = []  # the places, the oldest first
        self.step_gradient = np.zeros(0)
        self.lifted_gradient = np.zeros(0)

    def __len__(self) -> int:
        return len(self.order)

    def add(self, step: NDArray, change: NDArray, lifted: NDArray, image: NDArray) -> None:
        """Remember a step, the change of the gradient, that lifted by B, and the old image."""
        if len(self) == self.size:
            place = self.order.pop(0)
        else:
            place = len(self)
            self.step_gradient = np.append(self.step_gradient, 0.0)
            self.lifted_gradient = np.append(self.lifted_gradient, 0.0)
        self.order.append(place)
        self.steps[place], self.lifted[place] = step, lifted
        if lifted is not change:
            if self.changes is None:
                self.changes = np.empty((self.size, self.length))
            self.changes[place] = change
        # With the gradient before the step; `direction` needs it to find those with its change.
        self.step_gradient[place] = step @ image
        self.lifted_gradient[place] = lifted @ image

    def lift(self, solve: Callable[[NDArray], NDArray]) -> None:
        """Change B."""
        if self.changes is None:
            self.forget()
            return
        used = len(self)
        for place in self.order:
            self.lifted[place] = solve(self.changes[place])
        self.change_lifted[:used, :used] = self.changes[:used] @ self.lifted[:used].T

    def direction(self, image: NDArray, lifted: NDArray) -> NDArray:
        """Return minus the inverse Hessian times the gradient of an image, which is lifted by B."""
        used = len(self)
        if not used:
            return -lifted
        step_gradient, lifted_gradient = self.steps[:used] @ image, self.lifted[:used] @ image
        newest = self.order[-1]
        self.step_change[:used, newest] = step_gradient - self.step_gradient
        column = lifted_gradient - self.lifted_gradient
        self.change_lifted[:used, newest] = self.change_lifted[newest, :used] = column
        self.step_gradient, self.lifted_gradient = step_gradient, lifted_gradient

        ordered = np.ix_(self.order, self.order)
        inner = self.step_change[ordered]
        triangle, diagonal = np.triu(inner), np.diagonal(inner)
        squares = self.change_lifted[ordered]
        scale = diagonal[-1] / squares[-1, -1]
        onto = _solve_upper(triangle, step_gradient[self.order])
        pulled = diagonal * onto + scale * (squares @ onto - lifted_gradient[self.order])
        of_steps, of_lifted = np.empty(used), np.empty(used)
        of_steps[self.order] = _solve_upper(triangle, pulled, transposed=True)
        of_lifted[self.order] = -scale * onto
        result = -scale * lifted
        result -= of_steps @ self.steps[:used]
        result -= of_lifted @ self.lifted[:used]
        return result


def _solve_upper(triangle: NDArray, right: NDArray, *, transposed: bool = False) -> NDArray:
    solution, info = scipy.linalg.lapack.dtrtrs(triangle, right, trans=int(transposed))
    return solution if info == 0 else np.full_like(right, np.nan)
