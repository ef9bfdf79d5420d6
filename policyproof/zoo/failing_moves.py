"""Moves that may fail, and what failing costs: shared by the puzzles of ICAPS22.

A move of a thing either happens or fails, by chance.  Where there are costs, the thing that failed to move
costs one more from then on, up to a bound; at the bound it cannot be moved any more, or never fails again.
`step_cost` is what the last step cost: the cost of the thing before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from policyproof.model.building import ModelBuilder, UpdateMap, outcome
from policyproof.model.expressions import Expression, conjunction


@dataclass(frozen=True)
class FailingMoves:
    """Adds moves to a model."""

    builder: ModelBuilder
    failing: Fraction
    """How probable it is that a move fails."""
    cost_bound: int
    stop_at_bound: bool
    step_cost: Expression | None
    """None: there are no costs, and a move that fails changes nothing."""

    def add(self, label: str, guard: list[Expression], update: UpdateMap, cost: Expression | None) -> None:
        """A move of one thing, with its cost."""
        if self.step_cost is None or cost is None:
            self._edge(label, guard, [(update, 1 - self.failing), ({}, self.failing)])
            return
        moves: UpdateMap = {**update, self.step_cost: cost}
        fails: UpdateMap = {cost: cost + 1, self.step_cost: cost}
        self._edge(label, [*guard, cost < self.cost_bound], [(moves, 1 - self.failing), (fails, self.failing)])
        if not self.stop_at_bound:
            self._edge(label, [*guard, cost.equals(self.cost_bound)], [(moves, Fraction(1))])

    def _edge(self, label: str, guard: list[Expression], outcomes: list[tuple[UpdateMap, Fraction]]) -> None:
        possible = [outcome(update, probability=chance) for update, chance in outcomes if chance > 0]
        if len(possible) == 1:
            possible = [outcome(possible[0].update)]
        self.builder.edge(label, guard=conjunction(guard), outcomes=possible)
