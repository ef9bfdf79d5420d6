"""An oracle that remembers its answers, in front of any other.

Two kinds of knowledge carry over from one question to the next, for the same policy:

- *a proof covers its parts*: what is impossible in a region is impossible in every region inside it
  (in the same box or a smaller one, under the same condition or where that one had none);
- *a witness serves wherever it lies*: a state in which the policy chooses an output answers every
  question about a region that contains it.

Invariant: an answer from memory follows from an answer of the oracle behind, by one of these two.
What the oracle behind could not settle is never remembered.  Memory is bounded: the oldest go first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from policyproof.model.automata import Variable
from policyproof.model.expressions import Expression
from policyproof.oracle.conditions import Conditions
from policyproof.oracle.protocol import (
    IMPOSSIBLE,
    POSSIBLE,
    Answers,
    Capabilities,
    DecisionOracle,
    Integers,
    Regions,
    Truths,
)
from policyproof.oracle.space import Space
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget

REMEMBERED = 4096
COMPARED_AT_ONCE = 1 << 22
"""Comparisons of one value; bounds the memory of one look-up."""


@dataclass(eq=False)
class _Memory:
    """What is known of one output under one applicability: impossible boxes by condition, and witnesses."""

    lower: dict[Expression | None, Integers] = field(default_factory=dict)
    upper: dict[Expression | None, Integers] = field(default_factory=dict)
    witnesses: Integers | None = None


class CachedOracle:
    """Answers from memory where it can, and asks the oracle behind it for the rest."""

    def __init__(self, behind: DecisionOracle, *, remembered: int = REMEMBERED) -> None:
        """`remembered`: so many boxes and witnesses for each output."""
        self.behind = behind
        self.remembered = remembered
        self.policy: Policy = behind.policy
        self.variables: tuple[Variable, ...] = behind.variables
        self._space = Space(behind.variables)
        self._box = {item.name: item.domain.range for item in behind.variables}
        self._memory: dict[tuple[tuple[Expression, ...] | None, int], _Memory] = {}

    @property
    def capabilities(self) -> Capabilities:
        return self.behind.capabilities

    def ask(
        self,
        regions: Regions,
        outputs: Truths | None = None,
        *,
        applicability: Sequence[Expression] | None = None,
        budget: Budget | None = None,
    ) -> Answers:
        """See `DecisionOracle.ask`; the statistics `remembered_impossible` and `remembered_possible` are added."""
        count = len(self.policy.labels)
        wanted = np.ones((len(regions), count), dtype=np.bool_) if outputs is None else outputs.copy()
        key = None if applicability is None else tuple(applicability)
        impossible, possible = np.zeros_like(wanted), np.zeros_like(wanted)
        witness = np.zeros((*wanted.shape, regions.lower.shape[1]), dtype=np.int64)
        for output in range(count):
            memory = self._memory.get((key, output))
            if memory is not None:
                rows = np.flatnonzero(wanted[:, output])
                impossible[rows, output] = self._inside_proved(memory, regions, rows)
                rows = rows[~impossible[rows, output]]
                found, states = self._with_witness(memory, regions, rows)
                possible[rows[found], output] = True
                witness[rows[found], output] = states
        left = wanted & ~impossible & ~possible
        answers = self._ask_behind(regions, left, applicability, budget)
        self._remember(key, regions, answers, left)
        answers.status[impossible] = IMPOSSIBLE
        answers.status[possible] = POSSIBLE
        answers.witness[possible] = witness[possible]
        answers.statistics["remembered_impossible"] = int(impossible.sum())
        answers.statistics["remembered_possible"] = int(possible.sum())
        return answers

    def _ask_behind(
        self, regions: Regions, left: Truths, applicability: Sequence[Expression] | None, budget: Budget | None
    ) -> Answers:
        """Ask only about the regions of which something is open; the answers for all."""
        rows = np.flatnonzero(left.any(axis=1))
        condition = None if regions.condition is None else regions.condition[rows]
        some = Regions(regions.lower[rows], regions.upper[rows], regions.conditions, condition)
        answers = self.behind.ask(some, left[rows], applicability=applicability, budget=budget)
        status = np.full(left.shape, 2, dtype=np.int8)
        status[rows] = answers.status
        witness = np.zeros((*left.shape, regions.lower.shape[1]), dtype=np.int64)
        witness[rows] = answers.witness
        reasons = {int(rows[number]): reason for number, reason in answers.reasons.items()}
        return Answers(status, witness, reasons, answers.arithmetic, dict(answers.statistics))

    # Looking up

    def _inside_proved(self, memory: _Memory, regions: Regions, rows: Integers) -> Truths:
        """Which regions lie inside a box that is known to be impossible?"""
        found = np.zeros(len(rows), dtype=np.bool_)
        for condition in memory.lower:
            same = np.array([condition is None or regions.condition_of(int(row)) is condition for row in rows])
            mine = rows[same] if len(rows) else rows
            if len(mine):
                low, high = memory.lower[condition], memory.upper[condition]
                found[same] |= self._inside(regions.lower[mine], regions.upper[mine], low, high).any(axis=1)
        return found

    def _with_witness(self, memory: _Memory, regions: Regions, rows: Integers) -> tuple[Integers, Integers]:
        """The positions in `rows` of regions in which a known witness lies, and that witness."""
        states = memory.witnesses
        if states is None or not len(rows):
            return np.zeros(0, dtype=np.int64), np.zeros((0, regions.lower.shape[1]), dtype=np.int64)
        lies = self._inside(states, states, regions.lower[rows], regions.upper[rows]).T
        conditions = [regions.condition_of(int(row)) for row in rows]
        for condition in {item for item in conditions if item is not None}:
            mine = np.array([item is condition for item in conditions])
            used = lies[mine].any(axis=0)
            holds = np.zeros(len(states), dtype=np.bool_)
            if used.any():
                holds[used] = Conditions([condition], self._space, self._box).at(states[used])[:, 0]
            lies[mine] &= holds
        found = np.flatnonzero(lies.any(axis=1))
        return found, states[np.argmax(lies[found], axis=1)]

    def _inside(self, lower: Integers, upper: Integers, outer_lower: Integers, outer_upper: Integers) -> Truths:
        """`[n, m]`: does box n lie inside outer box m?"""
        result = np.empty((len(lower), len(outer_lower)), dtype=np.bool_)
        step = max(1, COMPARED_AT_ONCE // max(1, outer_lower.size))
        for first in range(0, len(lower), step):
            part = slice(first, first + step)
            above = self._compare(outer_lower[None], lower[part, None])
            result[part] = (above & self._compare(upper[part, None], outer_upper[None])).all(axis=2)
        return result

    def _compare(self, small: Integers, large: Integers) -> Truths:
        """small <= large, by variable; reals are compared as reals."""
        result = small <= large
        reals = self._space.reals
        if len(reals):
            a, b = (np.ascontiguousarray(ends[..., reals]).view(np.float64) for ends in (small, large))
            result[..., reals] = a <= b
        return np.asarray(result)

    # Remembering

    def _remember(self, key: tuple[Expression, ...] | None, regions: Regions, answers: Answers, asked: Truths) -> None:
        for output in range(asked.shape[1]):
            proved = np.flatnonzero(asked[:, output] & answers.impossible[:, output])
            seen = np.flatnonzero(asked[:, output] & answers.possible[:, output])
            # A floating-point solver's "impossible" is asked again: its tolerance must not spread.
            proved = proved if answers.arithmetic == "real" else proved[:0]
            if not len(proved) and not len(seen):
                continue
            memory = self._memory.setdefault((key, output), _Memory())
            conditions = [regions.condition_of(row) for row in proved.tolist()]
            for condition in set(conditions):
                rows = proved[[item is condition for item in conditions]]
                for kept, ends in ((memory.lower, regions.lower), (memory.upper, regions.upper)):
                    kept[condition] = self._latest(kept.get(condition), ends[rows])
            if len(seen):
                memory.witnesses = self._latest(memory.witnesses, answers.witness[seen, output])

    def _latest(self, known: Integers | None, new: Integers) -> Integers:
        return (new if known is None else np.concatenate([known, new]))[-self.remembered :]
