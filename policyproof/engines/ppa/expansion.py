"""Expansion of a whole frontier of abstract states at once (ICAPS22, Algorithm 1, in batches).

The steps are those of the algorithm, each for all abstract states of the frontier together:

1. *selection*: the decision oracle says which labels the policy can choose in each abstract state;
2. *applicability*: the boxes of the states in which a label is possible are narrowed by the guards of its
   operators;
3. *entailment*: every predicate is evaluated after the update, on boxes: true, false, or open;
4. *enumeration*: an open predicate is tried both ways; narrowing by the choice settles others;
5. *transition test*: an assignment of all predicates is a transition if there is a state in what is left
   in which the policy chooses the label.  Where no other label is possible and nothing is pending, there
   is one; else the oracle decides, many candidates in one question.

Invariant: every concrete transition under the policy from a state of a source is in the areas that go on
from step to step, until its target is recorded.  So nothing is lost; and what is recorded has a witness,
unless the oracle could not tell (`undecided`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from policyproof.engines.ppa.concretization import Candidates, Concretization, join_candidates
from policyproof.engines.ppa.literals import OPEN, Values
from policyproof.engines.ppa.predicates import Truths
from policyproof.engines.ppa.regions import Areas
from policyproof.engines.result import Arithmetic
from policyproof.oracle.native import NativeOracle
from policyproof.oracle.space import Integers
from policyproof.run.budget import Budget

FRONTIER = 1024
"""How many abstract states are expanded at once."""
PAIRS = 1 << 18
"""How many pairs of an abstract state and an operator are looked at together."""


@dataclass(eq=False)
class Found:
    """Transitions from the abstract states of a frontier: `source[n]` counts in the frontier."""

    source: Integers
    operator: Integers
    label: Integers
    """The index of the label in `FlatModel.labels`, or SILENT."""
    target: Truths
    """target[n, atom]"""
    undecided: Truths
    """Could the oracle not tell whether there is such a transition?"""


class Expander(Protocol):
    """What the search needs: all transitions from some abstract states."""

    concretization: Concretization
    at_once: int
    """How many abstract states it is to be given at a time."""

    @property
    def arithmetic(self) -> Arithmetic:
        """What the claims so far rest on that there is no transition."""
        ...

    def expand(self, truths: Truths, areas: Areas, budget: Budget) -> Found:
        """All transitions from the abstract states `truths[n, atom]` with their areas."""
        ...

    def close(self) -> None:
        """End what it started."""
        ...


class NativeExpansion:
    """Whole frontiers, by the native decision oracle."""

    at_once = FRONTIER
    arithmetic: Arithmetic = "real"

    def __init__(self, concretization: Concretization, *, seed: int = 0) -> None:
        self.concretization = concretization
        policy = concretization.policy
        self._oracle = None
        if policy is not None:
            self._oracle = NativeOracle(policy, concretization.variables, concretization.box, seed=seed)
        self._output = concretization.output[concretization.preimages.label]

    def close(self) -> None:
        """Nothing was started."""

    def expand(self, truths: Truths, areas: Areas, budget: Budget) -> Found:
        """See `Expander.expand`."""
        counts = self.concretization.counts
        possible, only = self._select(areas, budget)
        with counts.test("applicability_tests", 0):
            candidates = self._apply(truths, areas, possible, budget)
        with counts.test("enumerations", len(candidates)):
            complete = self.concretization.enumerate_states(candidates, budget)
        return self._test(complete, only, budget)

    def _select(self, areas: Areas, budget: Budget) -> tuple[Truths, Truths]:
        """IsSelect^π: `possible[n, output]`; `only[n, output]`: nothing else is possible there.

        The last column stands for all labels about which the policy does not decide.
        """
        free = np.ones((len(areas), 1), dtype=np.bool_)
        if self._oracle is None:
            return free, free
        pairs = len(areas) * len(self._oracle.policy.labels)
        with self.concretization.counts.test("selection_tests", pairs):
            answers = self._oracle.ask(
                areas.regions(np.arange(len(areas))), applicability=self.concretization.applicability, budget=budget
            )
        budget.check()
        possible = ~answers.impossible
        only = possible & (possible.sum(axis=1, keepdims=True) == 1)
        return np.hstack([possible, free]), np.hstack([only, free])

    def _apply(self, truths: Truths, areas: Areas, possible: Truths, budget: Budget) -> Candidates:
        """isApp: the areas where operators apply, with what is known of the predicates afterwards."""
        operators = len(self._output)
        step = max(1, PAIRS // max(1, len(areas)))
        found = [self._applied(truths, areas, np.zeros((2, 0), dtype=np.int64))]
        for first in range(0, operators, step):
            budget.check()
            rows, numbers = np.nonzero(possible[:, self._output[first : first + step]])
            self.concretization.counts.add("applicability_tests", len(rows))
            found.append(self._applied(truths, areas, np.stack([rows, numbers + first])))
        return join_candidates(found)

    def _applied(self, truths: Truths, areas: Areas, pairs: Integers) -> Candidates:
        """The areas of pairs (row, operator), as far as the operator applies there."""
        preimages, literals = self.concretization.preimages, self.concretization.literals
        parts = preimages.guard.shape[1]
        for part in range(parts):
            # Most pairs are ruled out by a look at the boxes, without a copy of them.
            rows, numbers = pairs
            numbers = preimages.guard[numbers, part]
            pairs = pairs[:, literals.values(areas, rows, numbers) != 0]
        rows, operators = pairs
        there = areas.select(rows)
        alive = np.arange(len(rows))
        for part in range(parts):
            numbers = preimages.guard[operators[alive], part]
            alive = alive[literals.narrow(there, alive, numbers, np.ones(len(alive), dtype=np.int64))]
        rows, operators = rows[alive], operators[alive]
        values: Values = np.where(preimages.kept[operators], truths[rows], OPEN).astype(np.int8)
        return Candidates(there.select(alive), rows, operators, values)

    def _test(self, candidates: Candidates, only: Truths, budget: Budget) -> Found:
        """TSat and TSat^π for all candidates together."""
        areas, counts = candidates.areas, self.concretization.counts
        outputs = self._output[candidates.operator]
        certain = only[candidates.row, outputs]
        holds, undecided = np.zeros(len(certain), dtype=np.bool_), np.zeros(len(certain), dtype=np.bool_)
        # No other label is possible here: any state will do.
        rows = np.flatnonzero(certain)
        with counts.test("transition_tests", len(rows)):
            holds[rows], undecided[rows] = self.concretization.exists(areas.select(rows), budget)
        rows = np.flatnonzero(~certain)
        if len(rows) and self._oracle is not None:
            wanted = np.zeros((len(rows), len(self._oracle.policy.labels)), dtype=np.bool_)
            here = np.arange(len(rows)), outputs[rows]
            wanted[here] = True
            with counts.test("policy_transition_tests", len(rows)):
                answers = self._oracle.ask(
                    areas.regions(rows), wanted, applicability=self.concretization.applicability, budget=budget
                )
            budget.check()
            holds[rows] = ~answers.impossible[here]
            undecided[rows] = ~answers.impossible[here] & ~answers.possible[here]
        kept = np.flatnonzero(holds)
        operator = candidates.operator[kept]
        label = self.concretization.preimages.label[operator]
        return Found(candidates.row[kept], operator, label, candidates.values[kept] == 1, undecided[kept])
