"""Literals: predicates, before and after updates, and parts of guards, each wanted true or false on boxes.

Every condition that a search meets has a number.  Where it is an interval of one variable (`intervals`)
it is an entry in arrays, and any number of (area, condition) cells are settled at once; the others are
compiled when somebody asks for them.

Invariant: narrowing loses no state in which the literal has the wanted value; and what the narrowed box
does not say for certain is pending there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from policyproof.engines.ppa.intervals import FAR, Interval, interval_of
from policyproof.engines.ppa.predicates import literals
from policyproof.engines.ppa.regions import Areas
from policyproof.model.expressions import Expression
from policyproof.model.ranges import Range
from policyproof.oracle.conditions import Conditions
from policyproof.oracle.space import Integers, Space, Truths

OPEN = -1
"""Neither true nor false in all states of a box; the other values are 0 and 1."""

Values = NDArray[np.int8]


class Literals:
    """All conditions of a search by number."""

    def __init__(self, space: Space, box: Mapping[str, Range]) -> None:
        self.space = space
        self.box = box
        self._column = {item.name: position for position, item in enumerate(space.variables)}
        self._conditions: list[Expression] = []
        self._numbers: dict[Expression, int] = {}
        self._rows: list[tuple[int, int, int, bool, bool]] = []
        self._compiled: dict[Expression, Conditions] = {}
        self._entries: Integers | None = None

    def number(self, condition: Expression) -> int:
        """The number of a condition; it holds where it is defined and true."""
        if condition not in self._numbers:
            interval = interval_of(condition)
            entry = None if interval is None else self._entry(interval)
            self._numbers[condition] = len(self._conditions)
            self._conditions.append(condition)
            self._rows.append(entry if entry is not None else (0, -FAR, FAR, True, False))
            self._entries = None
        return self._numbers[condition]

    def is_interval(self, number: int) -> bool:
        return self._rows[number][4]

    def expression(self, number: int, value: int) -> Expression:
        """The condition under which a literal has this value; defined everywhere."""
        return literals([self._conditions[number]])[0][value]

    def compiled(self, condition: Expression) -> Conditions:
        if condition not in self._compiled:
            self._compiled[condition] = Conditions([condition], self.space, self.box)
        return self._compiled[condition]

    def values(self, areas: Areas, rows: Integers, numbers: Integers) -> Values:
        """`values[cell]`: what condition `numbers[cell]` is on area `rows[cell]`: 0, 1, or OPEN."""
        column, lower, upper, inside, simple = self._arrays(numbers)
        low, high = areas.lower[rows, column], areas.upper[rows, column]
        within, apart = (low >= lower) & (high <= upper), (high < lower) | (low > upper)
        found = np.where(within, inside, np.where(apart, 1 - inside, OPEN)).astype(np.int8)
        for number, cells in _groups(numbers, np.flatnonzero(simple == 0)):
            condition = self.compiled(self.expression(number, 1))
            certain, maybe = condition.on_boxes(areas.lower[rows[cells]], areas.upper[rows[cells]])
            found[cells] = np.where(certain[:, 0], 1, np.where(maybe[:, 0], OPEN, 0))
        return found

    def narrow(self, areas: Areas, rows: Integers, numbers: Integers, wanted: Integers) -> Truths:
        """Narrow each of some different areas by a literal of its own; `alive[cell]`: may there be a state left?"""
        column, lower, upper, inside, simple = self._arrays(numbers)
        low, high = areas.lower[rows, column], areas.upper[rows, column]
        within = inside == wanted
        # Outside the interval: what lies in it is cut off at either end of the box.
        beyond = np.where((lower <= low) & (low <= upper), upper + 1, low)
        before = np.where((lower <= high) & (high <= upper), lower - 1, high)
        low = np.where(within, np.maximum(low, lower), beyond)
        high = np.where(within, np.minimum(high, upper), before)
        alive = low <= high
        narrowed = np.flatnonzero(alive & (simple == 1))
        areas.lower[rows[narrowed], column[narrowed]] = low[narrowed]
        areas.upper[rows[narrowed], column[narrowed]] = high[narrowed]
        around = ~within & alive & (low < lower) & (high > upper) & (simple == 1)
        for value in (0, 1):
            for number, cells in _groups(numbers, np.flatnonzero(around & (wanted == value))):
                areas.await_(rows[cells], self.expression(number, value))
            for number, cells in _groups(numbers, np.flatnonzero((simple == 0) & (wanted == value))):
                expression = self.expression(number, value)
                left = areas.narrow(self.compiled(expression), expression, rows[cells])
                alive[cells] = np.isin(rows[cells], left)
        return np.asarray(alive)

    def _entry(self, interval: Interval) -> tuple[int, int, int, bool, bool] | None:
        if interval.variable is not None:
            column = self._column[interval.variable]
        elif len(self.space.integers):
            column = int(self.space.integers[0])
        else:
            return None
        return column, interval.lower, interval.upper, interval.inside, True

    def _arrays(self, numbers: Integers) -> Integers:
        """For each cell: column, lower, upper, inside, and whether it is an interval at all."""
        if self._entries is None:
            self._entries = np.array(self._rows, dtype=np.int64).reshape(-1, 5).T.copy()
        return np.asarray(self._entries[:, numbers])


def _groups(numbers: Integers, cells: Integers) -> Iterator[tuple[int, Integers]]:
    """The cells by number."""
    if not len(cells):
        return
    order = cells[np.argsort(numbers[cells], kind="stable")]
    ends = np.flatnonzero(np.diff(numbers[order])) + 1
    for part in np.split(order, ends):
        yield int(numbers[part[0]]), part
