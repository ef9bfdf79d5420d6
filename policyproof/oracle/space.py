"""Boxes of states as arrays, and what branch and bound does with them: measure, halve, pick points.

Columns follow the variables of a question: integers (truth values among them) as they are, reals as
the bits of float64.  Halves of an integer interval are disjoint; halves of a real one share the
point where they are cut, so nothing is lost and volumes add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from policyproof.model.automata import Variable
from policyproof.model.tape import INTEGER_LIMIT, float_above, float_below
from policyproof.policy.network import Floats

Integers = NDArray[np.int64]
Truths = NDArray[np.bool_]

FAR = 2.0**40
"""Where random points of unbounded intervals end."""


def _inner_ends(item: Variable) -> tuple[float, float]:
    """The least and the greatest float in a real domain."""
    domain = item.domain
    least = -np.inf if domain.lower is None or domain.kind == "bool" else float_above(Fraction(domain.lower))
    greatest = np.inf if domain.upper is None or domain.kind == "bool" else float_below(Fraction(domain.upper))
    return least, greatest


class Space:
    """The columns of a batch of boxes `lower[n, variable]` .. `upper[n, variable]`."""

    def __init__(self, variables: Sequence[Variable]) -> None:
        self.variables = tuple(variables)
        self.real = np.array([item.domain.kind == "real" for item in variables], dtype=np.bool_)
        self.reals = np.flatnonzero(self.real)
        self.integers = np.flatnonzero(~self.real)
        ends = [_inner_ends(item) for item in self.variables]
        self._least, self._greatest = (np.array([pair[side] for pair in ends], dtype=np.float64) for side in (0, 1))

    def valuation(self, state: Integers) -> dict[str, bool | int | Fraction]:
        """One state as exact values, by name."""
        values: dict[str, bool | int | Fraction] = {}
        for item, column in zip(self.variables, state.tolist(), strict=True):
            if item.domain.kind == "real":
                values[item.name] = Fraction(float(np.int64(column).view(np.float64)))
            else:
                values[item.name] = bool(column) if item.domain.kind == "bool" else column
        return values

    def as_floats(self, values: Integers) -> Floats:
        """The values as floats (integers beyond 2**53 are rounded: for measuring and choosing only)."""
        result = values.astype(np.float64)
        if len(self.reals):
            result[:, self.reals] = np.ascontiguousarray(values[:, self.reals]).view(np.float64)
        return result

    def from_floats(self, values: Floats, lower: Integers, upper: Integers) -> Integers:
        """The points of the boxes nearest to the given values."""
        result = np.empty(values.shape, dtype=np.int64)
        whole = np.clip(np.rint(values[:, self.integers]), -(2.0**62), 2.0**62).astype(np.int64)
        result[:, self.integers] = np.clip(whole, lower[:, self.integers], upper[:, self.integers])
        if len(self.reals):
            ends = [np.ascontiguousarray(end[:, self.reals]).view(np.float64) for end in (lower, upper)]
            result[:, self.reals] = np.ascontiguousarray(np.clip(values[:, self.reals], *ends)).view(np.int64)
        return result

    def widths(self, lower: Integers, upper: Integers) -> Floats:
        """How wide the boxes are; zero exactly where an interval is a single value (infinite ends: infinite)."""
        # Differences of integers in unsigned arithmetic: those of floats would vanish beyond 2**53.
        widths = (upper.view(np.uint64) - lower.view(np.uint64)).astype(np.float64)
        widths[(lower <= -INTEGER_LIMIT) | (upper >= INTEGER_LIMIT)] = np.inf
        if len(self.reals):
            low, high = (np.ascontiguousarray(end[:, self.reals]).view(np.float64) for end in (lower, upper))
            with np.errstate(invalid="ignore"):
                widths[:, self.reals] = np.where(np.isfinite(low) & np.isfinite(high), high - low, np.inf)
        return widths

    def are_states(self, states: Integers) -> Truths:
        """Which points are states: infinite ends are none, nor is what rounding outward put beside a domain."""
        found = ((states > -INTEGER_LIMIT) & (states < INTEGER_LIMIT)) | self.real
        if len(self.reals):
            values = np.ascontiguousarray(states[:, self.reals]).view(np.float64)
            least, greatest = self._least[self.reals], self._greatest[self.reals]
            found[:, self.reals] = np.isfinite(values) & (least <= values) & (values <= greatest)
        return np.asarray(found.all(axis=1))

    def empty(self, lower: Integers, upper: Integers) -> Truths:
        """Which boxes hold no state at all?"""
        crossed = lower > upper
        if len(self.reals):
            low, high = (np.ascontiguousarray(end[:, self.reals]).view(np.float64) for end in (lower, upper))
            crossed[:, self.reals] = ~(low <= high)
        return np.asarray(crossed.any(axis=1))

    def middles(self, lower: Integers, upper: Integers) -> Integers:
        """The middle of every interval, a value in it (the lower one of two)."""
        result = (lower >> 1) + (upper >> 1) + (lower & upper & 1)
        if len(self.reals):
            low, high = (np.ascontiguousarray(end[:, self.reals]).view(np.float64) for end in (lower, upper))
            middle = 0.5 * low + 0.5 * high
            # Unbounded intervals are cut at zero first, then further and further out.
            away = np.where(np.isfinite(low), 2 * np.abs(low) + 1, -2 * np.abs(high) - 1)
            across = (low < 0) & (high > 0)
            middle = np.where(np.isfinite(middle), middle, np.where(across, 0.0, away))
            result[:, self.reals] = np.clip(middle, low, high).view(np.int64)
        return np.asarray(result)

    def representatives(self, lower: Integers, upper: Integers) -> Integers:
        """A state of every box, about its middle; if this is none (`are_states`), the box has none, or is `far_out`."""
        result = self.middles(lower, upper)
        if len(self.reals):
            low, high, middle = (
                np.ascontiguousarray(ends[:, self.reals]).view(np.float64) for ends in (lower, upper, result)
            )
            low, high = np.maximum(low, self._least[self.reals]), np.minimum(high, self._greatest[self.reals])
            inside = np.where(low <= high, np.minimum(np.maximum(middle, low), high), middle)
            result[:, self.reals] = np.ascontiguousarray(inside).view(np.int64)
        return result

    def far_out(self, lower: Integers, upper: Integers) -> Truths:
        """Boxes that an interval at infinity makes nothing but infinite: they hold states that no point stands for."""
        middle = self.middles(lower, upper)
        far = (np.abs(middle) >= INTEGER_LIMIT) & ~self.real
        if len(self.reals):
            far[:, self.reals] = ~np.isfinite(np.ascontiguousarray(middle[:, self.reals]).view(np.float64))
        return np.asarray(far.any(axis=1))

    def random_points(self, generator: np.random.Generator, lower: Integers, upper: Integers) -> Integers:
        """One random point of every box."""
        low, high = (np.clip(self.as_floats(end), -FAR, FAR) for end in (lower, upper))
        share = generator.random(lower.shape)
        # Integers: every value with about the same probability.
        values = np.where(self.real, low + share * (high - low), np.floor(low + share * (high - low + 1)))
        return self.from_floats(values, lower, upper)

    def halves(self, lower: Integers, upper: Integers, axis: Integers) -> tuple[Integers, Integers]:
        """Both halves of every box along its axis: the lower halves, then the upper ones."""
        rows = np.arange(len(lower))
        middle = self.middles(lower, upper)[rows, axis]
        above = np.where(self.real[axis], middle, middle + 1)
        low, high = np.concatenate([lower, lower]), np.concatenate([upper, upper])
        high[rows, axis] = middle
        low[rows + len(rows), axis] = above
        return low, high

    def sizes(self, lower: Integers, upper: Integers, relevant: Truths) -> Floats:
        """How many points a box has in the relevant variables (infinitely many where a real one is left)."""
        widths = np.where(relevant, self.widths(lower, upper), 0.0)
        counts = np.where(self.real & (widths > 0), np.inf, widths + 1)
        return np.asarray(counts.prod(axis=1))

    def points(self, lower: Integers, upper: Integers, relevant: Truths) -> tuple[Integers, Integers]:
        """All points of small integer boxes in the relevant variables: `points[m, variable]`, `box[m]`.

        In the other variables they have some value that a state has.
        """
        counts = np.where(relevant & ~self.real, upper - lower + 1, 1)
        total = counts.prod(axis=1)
        box = np.repeat(np.arange(len(lower)), total)
        number = np.arange(len(box)) - np.repeat(np.cumsum(total) - total, total)
        points = self.representatives(lower, upper)[box]
        for column in np.flatnonzero((counts > 1).any(axis=0)):
            several = counts[box, column] > 1
            values = lower[box, column] + number % counts[box, column]
            points[:, column] = np.where(several, values, points[:, column])
            number = number // counts[box, column]
        return points, box
