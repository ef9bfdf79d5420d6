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

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from policyproof.engines.ppa.predicates import Predicates, Truths, literals
from policyproof.engines.ppa.preimages import Preimage, Preimages, extended_variables
from policyproof.engines.ppa.regions import NOTHING, Areas, join
from policyproof.model.expressions import Expression, disjunction
from policyproof.model.flat import FlatModel
from policyproof.model.start_states import domain_ends
from policyproof.oracle.native import NativeOracle
from policyproof.oracle.space import Integers, Space
from policyproof.policy.network import Affine, Network
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget

SILENT = -1


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


@dataclass(eq=False)
class _Candidates:
    """Assignments that may be transitions: `row` is the source; `values[n, atom]` is 0, 1, or -1 where it is open."""

    areas: Areas
    row: Integers
    values: np.ndarray
    operator: int = -1

    def select(self, rows: Integers | Truths) -> _Candidates:
        chosen: Integers = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.int64)
        return _Candidates(self.areas.select(chosen), self.row[chosen], self.values[chosen], self.operator)


@dataclass
class Counts:
    """How often each test was made."""

    tests: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, count: int) -> None:
        self.tests[name] = self.tests.get(name, 0) + int(count)


class Expansion:
    """A model, a policy and predicates, ready to expand abstract states."""

    def __init__(self, flat: FlatModel, policy: Policy | None, predicates: Predicates, *, seed: int = 0) -> None:
        self.flat = flat
        self.predicates = predicates
        self.variables = extended_variables(flat)
        self.space = Space(self.variables)
        self.preimages = Preimages(flat, predicates, self.space)
        self.literals = literals(predicates.atoms)
        self.counts = Counts()
        ends = [domain_ends(item) for item in self.variables]
        self._lower, self._upper = (np.array([pair[side] for pair in ends], dtype=np.int64) for side in (0, 1))
        self._anything = NativeOracle(_one_label(), self.variables, self.preimages.box, seed=seed)
        """Is there a state at all?  For a policy with one label that is what is asked."""
        self._oracle = None
        self._applicability: tuple[Expression, ...] | None = None
        outputs = () if policy is None else policy.labels
        self._output = [outputs.index(label) if label in outputs else -1 for label in flat.labels]
        if policy is not None:
            self._oracle = NativeOracle(policy, self.variables, self.preimages.box, seed=seed)
            if policy.filter:
                self._applicability = tuple(self._applicable(label) for label in outputs)

    def _applicable(self, label: str) -> Expression:
        guards = (item.guard for item in self.preimages.of if item.label == label)
        return disjunction(guards)

    # Abstract states as areas

    def areas_of(self, truths: Truths) -> Areas:
        """The states that abstract states stand for."""
        count = len(truths)
        areas = Areas(np.tile(self._lower, (count, 1)), np.tile(self._upper, (count, 1)), [NOTHING] * count)
        for atom, pair in enumerate(self.literals):
            for value, expression in enumerate(pair):
                areas.narrow(self.preimages.compiled(expression), expression, np.flatnonzero(truths[:, atom] == value))
        return areas

    def abstractions_where(self, lower: Integers, upper: Integers, condition: Expression, budget: Budget) -> Truths:
        """The abstract states of the states in some boxes where a condition holds."""
        width = len(self.flat.variables)
        count = len(lower)
        areas = Areas(np.tile(self._lower, (count, 1)), np.tile(self._upper, (count, 1)), [NOTHING] * count)
        areas.lower[:, :width], areas.upper[:, :width] = lower, upper
        rows = areas.narrow(self.preimages.compiled(condition), condition, np.arange(count))
        start = _Candidates(areas.select(rows), rows, np.full((len(rows), len(self.predicates)), -1, dtype=np.int8))
        complete = self._enumerate(start, self.literals, budget)
        exists, _ = self._exists(complete.areas, budget)
        return (
            np.unique(complete.values[exists] == 1, axis=0)
            if exists.any()
            else np.zeros((0, len(self.predicates)), bool)
        )

    def holding(self, areas: Areas, condition: Expression, budget: Budget) -> tuple[Truths, Truths]:
        """In which areas does a condition hold somewhere; and where could the oracle not tell?"""
        copy = areas.select(np.arange(len(areas)))
        rows = copy.narrow(self.preimages.compiled(condition), condition, np.arange(len(copy)))
        found, undecided = np.zeros(len(areas), dtype=np.bool_), np.zeros(len(areas), dtype=np.bool_)
        found[rows], undecided[rows] = self._exists(copy.select(rows), budget)
        return found, undecided

    # The algorithm

    def expand(self, truths: Truths, areas: Areas, budget: Budget) -> Found:
        """All transitions from the abstract states `truths[n, atom]` with their areas."""
        possible, only = self._select(areas, budget)
        found: list[tuple[_Candidates, Truths, Truths]] = []
        for operator in self.preimages.of:
            budget.check()
            label = SILENT if operator.label is None else self.flat.labels.index(operator.label)
            output = -1 if label == SILENT else self._output[label]
            rows = np.arange(len(areas)) if output < 0 else np.flatnonzero(possible[:, output])
            candidates = self._apply(operator, truths, areas, rows)
            if not len(candidates.row):
                continue
            complete = self._enumerate(candidates, operator.after, budget)
            certain = np.full(len(complete.row), output < 0) if output < 0 else only[complete.row, output]
            found.append((complete, certain, np.full(len(complete.row), label)))
        return self._test(found, budget)

    def _select(self, areas: Areas, budget: Budget) -> tuple[Truths, Truths]:
        """IsSelect^π: `possible[n, output]`; `only[n, output]`: nothing else is possible there."""
        if self._oracle is None:
            none = np.ones((len(areas), 0), dtype=np.bool_)
            return none, none
        answers = self._oracle.ask(
            areas.regions(np.arange(len(areas))), applicability=self._applicability, budget=budget
        )
        budget.check()
        self.counts.add("selection_tests", answers.status.size)
        possible = ~answers.impossible
        return possible, possible & (possible.sum(axis=1, keepdims=True) == 1)

    def _apply(self, operator: Preimage, truths: Truths, areas: Areas, rows: Integers) -> _Candidates:
        """isApp: the areas where the operator applies, with what is known of the predicates afterwards."""
        self.counts.add("applicability_tests", len(rows))
        there = areas.select(rows)
        alive = there.narrow(self.preimages.compiled(operator.guard), operator.guard, np.arange(len(rows)))
        sources = rows[alive]
        values = np.where(operator.kept, truths[sources], -1).astype(np.int8)
        return _Candidates(there.select(alive), sources, values, operator.number)

    def _enumerate(
        self, start: _Candidates, after: Sequence[tuple[Expression, Expression]], budget: Budget
    ) -> _Candidates:
        """enumerate_states: all assignments of the open predicates that narrowing does not refute."""
        everything = self.preimages.compiled(*(holds for _, holds in after))
        stack, complete = [start], list[_Candidates]()
        while stack:
            budget.check()
            current = stack.pop()
            if len(after):
                certain, maybe = everything.on_boxes(current.areas.lower, current.areas.upper)
                settled = np.where(certain, 1, np.where(maybe, -1, 0))
                current.values = np.where(current.values < 0, settled, current.values).astype(np.int8)
            open_ = current.values < 0
            done = np.asarray(~open_.any(axis=1))
            complete.append(current.select(done))
            current = current.select(~done)
            if not len(current.row):
                continue
            first = np.argmax(current.values < 0, axis=1)
            for value in (0, 1):
                half = current.select(np.arange(len(current.row)))
                half.values[np.arange(len(first)), first] = value
                alive = [
                    half.areas.narrow(
                        self.preimages.compiled(after[atom][value]), after[atom][value], np.flatnonzero(first == atom)
                    )
                    for atom in np.unique(first).tolist()
                ]
                half = half.select(np.sort(np.concatenate(alive)))
                if len(half.row):
                    stack.append(half)
        rows = np.concatenate([part.row for part in complete])
        values = np.concatenate([part.values for part in complete])
        return _Candidates(join([part.areas for part in complete], len(self.variables)), rows, values, start.operator)

    def _test(self, found: list[tuple[_Candidates, Truths, Truths]], budget: Budget) -> Found:
        """TSat and TSat^π for all candidates together."""
        atoms = len(self.predicates)
        if not found:
            empty = np.zeros(0, dtype=np.int64)
            return Found(empty, empty, empty, np.zeros((0, atoms), dtype=np.bool_), np.zeros(0, dtype=np.bool_))
        areas = join([part.areas for part, _, _ in found], len(self.variables))
        source = np.concatenate([part.row for part, _, _ in found])
        operator = np.concatenate([np.full(len(part.row), part.operator) for part, _, _ in found])
        values = np.concatenate([part.values for part, _, _ in found])
        free = np.concatenate([certain for _, certain, _ in found])
        label = np.concatenate([labels for _, _, labels in found])
        holds, undecided = np.zeros(len(source), dtype=np.bool_), np.zeros(len(source), dtype=np.bool_)
        # No other label is possible here: any state will do.
        rows = np.flatnonzero(free)
        holds[rows], undecided[rows] = self._exists(areas.select(rows), budget)
        rows = np.flatnonzero(~free)
        if len(rows) and self._oracle is not None:
            outputs = np.array(self._output)[label[rows]]
            wanted = np.zeros((len(rows), len(self._oracle.policy.labels)), dtype=np.bool_)
            wanted[np.arange(len(rows)), outputs] = True
            answers = self._oracle.ask(areas.regions(rows), wanted, applicability=self._applicability, budget=budget)
            budget.check()
            self.counts.add("policy_transition_tests", len(rows))
            here = np.arange(len(rows)), outputs
            holds[rows] = ~answers.impossible[here]
            undecided[rows] = ~answers.impossible[here] & ~answers.possible[here]
        kept = np.flatnonzero(holds)
        return Found(source[kept], operator[kept], label[kept], values[kept] == 1, undecided[kept])

    def _exists(self, areas: Areas, budget: Budget) -> tuple[Truths, Truths]:
        """TSat: is there a state in each area?  And where could the oracle not tell?"""
        self.counts.add("transition_tests", len(areas))
        exists, undecided = ~areas.has_pending, np.zeros(len(areas), dtype=np.bool_)
        rows = np.flatnonzero(~exists)
        if len(rows):
            answers = self._anything.ask(areas.regions(rows), budget=budget)
            budget.check()
            exists[rows] = ~answers.impossible[:, 0]
            undecided[rows] = ~answers.impossible[:, 0] & ~answers.possible[:, 0]
        return exists, undecided


def _one_label() -> Policy:
    """The policy that always chooses the same: for it, "possible" means that the region has a state."""
    return Policy((Network((Affine(np.zeros((1, 0)), np.zeros(1)),), 0),), (), ("any",), source="any state")
