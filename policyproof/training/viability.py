"""From where can anybody stay safe?  Dynamic programming on a grid over real-valued states.

Some start states are lost whatever a policy does, so it is fair to measure it on the others.  A grid
point is *viable* for k steps if it is safe and, for k > 0, some label leads from it to a place that is
viable for k - 1 steps.  A place between grid points is taken as viable if all grid points around it are
(`cautious`), or if any of them is; the truth lies between the two, as far as the grid is fine.

For deterministic models with a few real variables: the grid has the product of `points` many states.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from policyproof.engines.simulation import Simulator
from policyproof.model.batch_kernel import evaluate_batch
from policyproof.model.expressions import FALSE
from policyproof.model.flat import FlatModel
from policyproof.model.properties import SafetyProperty
from policyproof.run.errors import InvalidInput

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Grid:
    """Real variables, and for each the ends and the number of the points; beyond the ends nothing is viable."""

    variables: tuple[str, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    points: tuple[int, ...]

    def axes(self) -> list[Floats]:
        return [np.linspace(*ends) for ends in zip(self.lower, self.upper, self.points, strict=True)]

    def around(self, values: Floats) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The indices of the grid points around each of `values[n, variable]`, and whether it is inside the grid."""
        lower, upper = np.array(self.lower), np.array(self.upper)
        inside = np.asarray(((values >= lower) & (values <= upper)).all(axis=1))
        last = np.array(self.points) - 1
        place = (np.where(inside[:, None], values, lower) - lower) / (upper - lower) * last
        below = np.clip(np.floor(place).astype(np.int64), 0, last - 1)
        corners = []
        for offset in itertools.product((0, 1), repeat=len(self.points)):
            corner = below + np.array(offset)
            # A point on a grid line has no neighbour on the other side.
            corner = np.where((place == below) & (np.array(offset) == 1), below, corner)
            corners.append(np.ravel_multi_index(tuple(corner.T), self.points))
        return np.stack(corners, axis=1), inside


def viable(flat: FlatModel, prop: SafetyProperty, grid: Grid, *, steps: int, cautious: bool) -> NDArray[np.bool_]:
    """Which grid points are viable for so many steps, flattened."""
    simulator = Simulator(flat)
    columns = [flat.names.index(name) for name in grid.variables]
    others = [item for index, item in enumerate(flat.variables) if index not in columns and item.domain.size != 1]
    if others:
        raise InvalidInput(f"the grid must have all variables; it has no {others[0].name!r}")
    points = np.stack([part.ravel() for part in np.meshgrid(*grid.axes(), indexing="ij")], axis=1)
    states = np.zeros((len(points), len(flat.variables)), dtype=np.int64)
    states[:, columns] = points.view(np.int64)
    unsafe = FALSE if prop.unsafe is None else prop.unsafe
    safe = evaluate_batch(simulator.compile([unsafe]), states)[0][:, 0] == 0
    moves = [_move(simulator, grid, columns, states, label) for label in range(len(flat.labels))]
    result = np.asarray(safe)
    for _ in range(steps):
        reached = []
        for around, inside in moves:
            at = result[around]
            reached.append(inside & (at.all(axis=1) if cautious else at.any(axis=1)))
        following = safe & reduce(np.logical_or, reached)
        if (following == result).all():
            break
        result = following
    return result


def _move(
    simulator: Simulator, grid: Grid, columns: Sequence[int], states: NDArray[np.int64], label: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where a label leads from every grid point: the points around, and whether there is such a place."""
    found = simulator.generator.expand(simulator.layout.pack(states), [label])
    if len(np.unique(found.source)) < len(found):
        raise InvalidInput("some label has several outcomes; this is for deterministic models")
    values = np.full((len(states), len(columns)), np.nan)
    after = simulator.layout.unpack(found.words)
    values[found.source] = np.ascontiguousarray(after[:, columns]).view(np.float64)
    return grid.around(values)


def among_viable(grid: Grid, known: NDArray[np.bool_], states: Floats, *, cautious: bool) -> NDArray[np.bool_]:
    """Which of `states[n, variable]` are viable, by the grid points around them."""
    around, inside = grid.around(states)
    at = known[around]
    return np.asarray(inside & (at.all(axis=1) if cautious else at.any(axis=1)))
