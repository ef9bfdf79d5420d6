"""The best advisories: a decision process for vertical collision avoidance, solved backwards in time.

The published way to obtain such a system is to write the advisories as a Markov decision process, to
solve it on a grid, and to fit networks to the table.  This is that idea with costs of our own:

    a near collision when they meet     1 within 100 ft, falling to 0 at 250 ft
    an advisory, each second            by how much it asks of the pilot
    its beginning                       where there was none
    asking for more                     a faster climb or descent in the same sense
    turning round                       from a climb to a descent, or the other way

A stronger advisory (S...) needs an advisory in the same sense before it, the strongest need one of
1500 ft/min.  The pilot draws one of three accelerations, the middle one half of the time; who
complies keeps the climb rate.

Seconds only decrease, so one sweep from the meeting back to the longest encounter solves it.  What an
advisory costs depends on the one before; where it leads does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policyproof.zoo.verticalcas import ADVISORIES, LONGEST, NEAR, Advisory

Floats = NDArray[np.float64]

COMFORTABLE = 250
"""Feet: from here on a meeting costs nothing."""
EACH_SECOND = (0.0, 0.0004, 0.0004, 0.0008, 0.0008, 0.0016, 0.0016, 0.0024, 0.0024)
BEGINNING, STRENGTHENING, REVERSAL = 0.01, 0.004, 0.02
FORBIDDEN = 10.0
"""More than any encounter can cost."""
SHARES = (0.25, 0.5, 0.25)
"""How often the pilot draws the weakest, the middle and the strongest acceleration."""

FAR = np.concatenate([np.arange(0, 600, 20), np.arange(600, 1500, 50), np.arange(1500, 4001, 250)]).astype(np.float64)
HEIGHTS: Floats = np.concatenate([-FAR[:0:-1], FAR])
CLIMB_RATES: Floats = np.linspace(-100.0, 100.0, 81)


@dataclass(frozen=True)
class Table:
    """The costs still to come on a grid: `costs[seconds left, last advisory, height, climb rate]`."""

    costs: Floats

    def following(self, number: int, heights: Floats, climb_rates: Floats, seconds: NDArray[np.int64]) -> Floats:
        """What is still to come, on average, after an advisory in states with at least one second left."""
        advisory = ADVISORIES[number]
        complies = _complies(advisory, climb_rates)
        total = np.zeros(len(heights))
        for share, acceleration in zip(SHARES, _three(advisory), strict=True):
            chosen = np.where(complies, 0.0, acceleration)
            moved = heights - climb_rates - chosen / 2
            total += share * self._at(seconds - 1, number, moved, climb_rates + chosen)
        return total

    def advisory_costs(self, last: int, heights: Floats, climb_rates: Floats, seconds: NDArray[np.int64]) -> Floats:
        """`[state, advisory]`: what every advisory costs, all in all."""
        columns = [
            SWITCHING[last, number] + self.following(number, heights, climb_rates, seconds)
            for number in range(len(ADVISORIES))
        ]
        return np.stack(columns, axis=1)

    def _at(self, seconds: NDArray[np.int64], last: int, heights: Floats, climb_rates: Floats) -> Floats:
        """Between the points of the grid: bilinear; beyond its ends: as at the end."""
        row, above = _place(HEIGHTS, heights)
        column, right = _place(CLIMB_RATES, climb_rates)
        table = self.costs[:, last]
        low = table[seconds, row, column] * (1 - right) + table[seconds, row, column + 1] * right
        high = table[seconds, row + 1, column] * (1 - right) + table[seconds, row + 1, column + 1] * right
        return np.asarray(low * (1 - above) + high * above)


def solve_advisories() -> Table:
    """Sweep from the meeting back in time."""
    heights, climb_rates = (part.ravel() for part in np.meshgrid(HEIGHTS, CLIMB_RATES, indexing="ij"))
    shape = (len(HEIGHTS), len(CLIMB_RATES))
    table = Table(np.zeros((LONGEST + 1, len(ADVISORIES), *shape)))
    meeting = np.clip((COMFORTABLE - np.abs(heights)) / (COMFORTABLE - NEAR), 0.0, 1.0)
    table.costs[0] = meeting.reshape(shape)
    for left in range(1, LONGEST + 1):
        seconds = np.full(len(heights), left)
        following = [table.following(number, heights, climb_rates, seconds) for number in range(len(ADVISORIES))]
        for last in range(len(ADVISORIES)):
            table.costs[left, last] = (SWITCHING[last] + np.stack(following, axis=1)).min(axis=1).reshape(shape)
    return table


def _switching_cost(last: Advisory, new: Advisory) -> float:
    """What an advisory costs after another one, whatever the state."""
    cost = EACH_SECOND[ADVISORIES.index(new)]
    if new.sense == "":
        return cost
    same_sense = last.sense == new.sense
    if new.name.startswith("S") and (not same_sense or (new.rate == 2500 and last.rate < 1500)):
        return FORBIDDEN
    if last.sense == "":
        return cost + BEGINNING
    if not same_sense:
        return cost + REVERSAL
    return cost + (STRENGTHENING if _demand(new) > _demand(last) else 0.0)


def _demand(advisory: Advisory) -> tuple[int, bool]:
    return advisory.rate, advisory.name.startswith("S")


SWITCHING: Floats = np.array([[_switching_cost(last, new) for new in ADVISORIES] for last in ADVISORIES])


def _three(advisory: Advisory) -> tuple[float, ...]:
    given = [float(value) for value in advisory.accelerations(3)]
    return tuple(given if len(given) == 3 else given * 3)


def _complies(advisory: Advisory, climb_rates: Floats) -> NDArray[np.bool_]:
    if advisory.sense == "":
        return np.zeros(len(climb_rates), dtype=np.bool_)
    limit = advisory.rate / 60
    return climb_rates <= -limit if advisory.sense == "down" else climb_rates >= limit


def _place(grid: Floats, values: Floats) -> tuple[NDArray[np.int64], Floats]:
    """The point of the grid below each value, and how far the value is on the way to the next one."""
    inside = np.clip(values, grid[0], grid[-1])
    below = np.clip(np.searchsorted(grid, inside, side="right") - 1, 0, len(grid) - 2)
    return below, (inside - grid[below]) / (grid[below + 1] - grid[below])
