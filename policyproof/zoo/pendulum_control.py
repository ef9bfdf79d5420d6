"""From where can the pendulum be kept up at all?  The measure of what a policy can be expected to do.

The torque is too weak to lift the pole, so from part of the initial set every policy fails.  Dynamic
programming on a grid of states tells which part that is: a state is controllable for k more steps if
some torque leads to one that is so for k - 1.  The successor is taken at the nearest point of the grid,
so the answer is one of numerics and no proof; it is fine enough for a rate in per cent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policyproof.zoo.pendulum import FASTEST, GRAVITY, LEVER, TIME_STEP, TORQUES

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Controllable:
    """`lasting[angle, velocity]`: can the pole be kept up for the given number of steps from this point?"""

    angles: Floats
    velocities: Floats
    lasting: NDArray[np.bool_]

    def __call__(self, angles: Floats, velocities: Floats) -> NDArray[np.bool_]:
        """The answers for many states, each at the nearest point; none outside the limits."""
        inside = np.abs(angles) < np.pi / 4
        rows, columns = _nearest(self.angles, angles), _nearest(self.velocities, velocities)
        return np.asarray(inside & self.lasting[rows, columns])


def controllable(steps: int = 200, *, points: int = 801) -> Controllable:
    """The states within the limits from which some choice of torques keeps the pole up for `steps` steps."""
    angles = np.linspace(-np.pi / 4, np.pi / 4, points)
    # A pole that moves faster than this has left the limits before any torque could stop it.
    velocities = np.linspace(-4.0, 4.0, points)
    angle, velocity = np.meshgrid(angles, velocities, indexing="ij")
    lasting = np.abs(angle) < np.pi / 4
    following = []
    for torque in TORQUES.values():
        faster = velocity + (float(GRAVITY) * np.sin(angle) + float(LEVER) * torque) * float(TIME_STEP)
        moved = angle + faster * float(TIME_STEP)
        clipped = np.clip(faster, -FASTEST, FASTEST)
        stays = (np.abs(moved) < np.pi / 4) & (np.abs(clipped) <= velocities[-1])
        following.append((stays, _nearest(angles, moved), _nearest(velocities, clipped)))
    for _ in range(steps):
        new = lasting & np.logical_or.reduce([stays & lasting[row, column] for stays, row, column in following])
        if (new == lasting).all():
            break
        lasting = new
    return Controllable(angles, velocities, lasting)


def controllable_share(found: Controllable, *, samples: int = 200_000, seed: int = 0) -> float:
    """The share of the initial set from which the pole can be kept up."""
    random = np.random.default_rng(seed)
    angles, velocities = random.uniform(-np.pi / 4, np.pi / 4, samples), random.uniform(-1, 1, samples)
    return float(found(angles, velocities).mean())


def _nearest(grid: Floats, values: Floats) -> NDArray[np.int64]:
    place = np.rint((values - grid[0]) / (grid[1] - grid[0])).astype(np.int64)
    return np.asarray(np.clip(place, 0, len(grid) - 1))
