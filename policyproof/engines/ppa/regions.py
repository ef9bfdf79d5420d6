"""Sets of states as boxes with a few conditions that the box does not express.

Most predicates and guards say something about one variable, and narrowing a box by them says it all.
What is not certain in the narrowed box is *pending*: it goes with the box as a condition until somebody
has to know whether a state is really there.  Sets of pending conditions are kept once and have numbers,
so that areas are nothing but arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policyproof.model.expressions import Expression, conjunction
from policyproof.oracle.conditions import FALSE, UNDECIDED, Conditions
from policyproof.oracle.protocol import Regions
from policyproof.oracle.space import Integers, Truths

NOTHING = 0
"""The number of the empty set of pending conditions."""


class PendingSets:
    """Sets of conditions by number."""

    def __init__(self) -> None:
        self._sets: list[frozenset[Expression]] = [frozenset()]
        self._numbers: dict[frozenset[Expression], int] = {self._sets[0]: NOTHING}

    def with_more(self, number: int, condition: Expression) -> int:
        """The number of a set with one more condition."""
        larger = self._sets[number] | {condition}
        if larger not in self._numbers:
            self._numbers[larger] = len(self._sets)
            self._sets.append(larger)
        return self._numbers[larger]

    def condition(self, number: int) -> Expression:
        """All conditions of a set."""
        return conjunction(sorted(self._sets[number], key=lambda part: part.serial))


@dataclass(eq=False)
class Areas:
    """Boxes `lower[n, variable]` .. `upper[n, variable]`, each with the number of its pending conditions."""

    lower: Integers
    upper: Integers
    pending: Integers
    sets: PendingSets

    def __len__(self) -> int:
        return len(self.pending)

    def select(self, rows: Integers | Sequence[int]) -> Areas:
        """Copies of some rows."""
        chosen = np.asarray(rows, dtype=np.int64)
        return Areas(self.lower[chosen], self.upper[chosen], self.pending[chosen], self.sets)

    def narrow(self, condition: Conditions, expression: Expression, rows: Integers) -> Integers:
        """Narrow some rows to where a condition holds; which of them still hold a state, as far as is known."""
        if not len(rows):
            return rows
        lower, upper = self.lower[rows], self.upper[rows]
        status, _ = condition.narrow(lower, upper)
        self.lower[rows], self.upper[rows] = lower, upper
        self.await_(rows[status == UNDECIDED], expression)
        return np.asarray(rows[status != FALSE])

    def await_(self, rows: Integers, condition: Expression) -> None:
        """The condition is pending in some rows."""
        old = self.pending[rows]
        for number in np.unique(old).tolist():
            self.pending[rows[old == number]] = self.sets.with_more(number, condition)

    def regions(self, rows: Integers) -> Regions:
        """Some rows as the oracle's regions."""
        numbers, position = np.unique(self.pending[rows], return_inverse=True)
        waiting = [number for number in numbers.tolist() if number != NOTHING]
        # The empty set has the least number, so it comes first if it is there at all.
        index = position.reshape(-1) - (len(numbers) - len(waiting))
        conditions = tuple(self.sets.condition(number) for number in waiting)
        return Regions(self.lower[rows], self.upper[rows], conditions, index.astype(np.int64))

    @property
    def has_pending(self) -> Truths:
        return np.asarray(self.pending != NOTHING)


def join(areas: Sequence[Areas]) -> Areas:
    """Several lists of areas, at least one, as one."""
    return Areas(
        np.concatenate([part.lower for part in areas]),
        np.concatenate([part.upper for part in areas]),
        np.concatenate([part.pending for part in areas]),
        areas[0].sets,
    )
