"""Sets of states as boxes with a few conditions that the box does not express.

Most predicates and guards say something about one variable, and narrowing a box by them says it all.
What is not certain in the narrowed box is *pending*: it goes with the box as a condition until somebody
has to know whether a state is really there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policyproof.model.expressions import Expression, conjunction
from policyproof.oracle.conditions import FALSE, UNDECIDED, Conditions
from policyproof.oracle.protocol import Regions
from policyproof.oracle.space import Integers

Pending = frozenset[Expression]
NOTHING: Pending = frozenset()


@dataclass(eq=False)
class Areas:
    """Boxes `lower[n, variable]` .. `upper[n, variable]`, each with its pending conditions."""

    lower: Integers
    upper: Integers
    pending: list[Pending]

    def __len__(self) -> int:
        return len(self.pending)

    def select(self, rows: Integers | Sequence[int]) -> Areas:
        """Copies of some rows."""
        chosen = np.asarray(rows, dtype=np.int64)
        return Areas(self.lower[chosen], self.upper[chosen], [self.pending[row] for row in chosen.tolist()])

    def narrow(self, condition: Conditions, expression: Expression, rows: Integers) -> Integers:
        """Narrow some rows to where a condition holds; which of them still hold a state, as far as is known."""
        if not len(rows):
            return rows
        lower, upper = self.lower[rows], self.upper[rows]
        status, _ = condition.narrow(lower, upper)
        self.lower[rows], self.upper[rows] = lower, upper
        for row in rows[status == UNDECIDED].tolist():
            self.pending[row] = self.pending[row] | {expression}
        return np.asarray(rows[status != FALSE])

    def regions(self, rows: Integers) -> Regions:
        """Some rows as the oracle's regions."""
        numbers: dict[Pending, int] = {}
        index = np.full(len(rows), -1, dtype=np.int64)
        for position, row in enumerate(rows.tolist()):
            if self.pending[row]:
                index[position] = numbers.setdefault(self.pending[row], len(numbers))
        conditions = tuple(conjunction(sorted(parts, key=lambda part: part.serial)) for parts in numbers)
        return Regions(self.lower[rows], self.upper[rows], conditions, index)

    @property
    def has_pending(self) -> np.ndarray:
        return np.array([bool(parts) for parts in self.pending], dtype=np.bool_)


def join(areas: Sequence[Areas], width: int) -> Areas:
    """Several lists of areas as one."""
    empty = np.zeros((0, width), dtype=np.int64)
    return Areas(
        np.concatenate([empty, *(part.lower for part in areas)]),
        np.concatenate([empty, *(part.upper for part in areas)]),
        [pending for part in areas for pending in part.pending],
    )
