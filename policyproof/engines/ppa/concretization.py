"""What abstract states stand for: areas of concrete states, and back (ICAPS22, section 4).

The concretization [s_P] of an abstract state is narrowed out of the domains, predicate by predicate.
The other way, from areas to the abstract states that they meet, is `enumerate_states` of Algorithm 1:
a predicate that an area leaves open is tried both ways, and narrowing by one choice settles others.

Invariant: every state of an area stays in one of the areas that come of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policyproof.engines.ppa.counts import Counts
from policyproof.engines.ppa.literals import OPEN, Literals, Values
from policyproof.engines.ppa.predicates import Predicates, Truths
from policyproof.engines.ppa.preimages import Preimages, extended_variables
from policyproof.engines.ppa.regions import NOTHING, Areas, PendingSets, join
from policyproof.model.automata import Variable
from policyproof.model.expressions import Expression
from policyproof.model.flat import FlatModel
from policyproof.model.start_states import domain_ends
from policyproof.model.tape import INTEGER_LIMIT
from policyproof.oracle.native import NativeOracle
from policyproof.oracle.space import Integers, Space
from policyproof.policy.network import Affine, Network
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget
from policyproof.run.errors import Feature, UnsupportedFeature


@dataclass(eq=False)
class Candidates:
    """Abstract states that may be reached from areas: `values[n, atom]` is 0, 1, or OPEN, after `operator[n]`.

    `row` is the source from which the area was taken; the operator -1 is none, so that nothing is updated.
    """

    areas: Areas
    row: Integers
    operator: Integers
    values: Values

    def __len__(self) -> int:
        return len(self.row)

    def select(self, rows: Integers) -> Candidates:
        return Candidates(self.areas.select(rows), self.row[rows], self.operator[rows], self.values[rows])


def join_candidates(parts: list[Candidates]) -> Candidates:
    """Several lists of candidates, at least one, as one."""
    rows, operators, values = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("row", "operator", "values")
    )
    return Candidates(join([part.areas for part in parts]), rows, operators, values)


class Concretization:
    """A model and predicates, with everything that turns abstract states into areas and areas into abstract states."""

    def __init__(self, flat: FlatModel, policy: Policy | None, predicates: Predicates, *, seed: int = 0) -> None:
        self.flat = flat
        self.policy = policy
        self.predicates = predicates
        self.variables = extended_variables(flat)
        _refuse_unbounded(self.variables)
        self.space = Space(self.variables)
        self.box = {item.name: item.domain.range for item in self.variables}
        self.literals = Literals(self.space, self.box)
        self.preimages = Preimages(flat, predicates, self.literals)
        self.counts = Counts()
        outputs = () if policy is None else policy.labels
        self.output: Integers = np.array(
            [outputs.index(label) if label in outputs else -1 for label in (*flat.labels, None)], dtype=np.int64
        )
        """The policy's output for each label, -1 where it does not decide about it; the last one is for SILENT."""
        self.applicability: tuple[Expression, ...] | None = None
        """With applicability filtering: for every output, where it is applicable."""
        if policy is not None and policy.filter:
            self.applicability = tuple(self.preimages.applicable(label) for label in outputs)
        ends = [domain_ends(item) for item in self.variables]
        self._lower, self._upper = (np.array([pair[side] for pair in ends], dtype=np.int64) for side in (0, 1))
        self._sets = PendingSets()
        self._anything = NativeOracle(one_label(), self.variables, self.box, seed=seed)
        """Is there a state at all?  For a policy with one label that is what is asked."""

    def anywhere(self, count: int) -> Areas:
        """All states, so many times."""
        pending = np.full(count, NOTHING, dtype=np.int64)
        return Areas(np.tile(self._lower, (count, 1)), np.tile(self._upper, (count, 1)), pending, self._sets)

    def areas_of(self, truths: Truths) -> Areas:
        """The states that abstract states stand for."""
        areas = self.anywhere(len(truths))
        rows = np.arange(len(truths))
        for atom in range(len(self.predicates)):
            numbers = np.full(len(rows), self.preimages.after[-1, atom])
            self.literals.narrow(areas, rows, numbers, truths[:, atom].astype(np.int64))
        return areas

    def abstractions_where(self, lower: Integers, upper: Integers, condition: Expression, budget: Budget) -> Truths:
        """The abstract states of the states in some boxes where a condition holds."""
        width = len(self.flat.variables)
        areas = self.anywhere(len(lower))
        areas.lower[:, :width], areas.upper[:, :width] = lower, upper
        rows = areas.narrow(self.literals.compiled(condition), condition, np.arange(len(lower)))
        start = self.unsettled(areas.select(rows), rows)
        complete = self.enumerate_states(start, budget)
        exists, _ = self.exists(complete.areas, budget)
        return np.unique(complete.values[exists] == 1, axis=0)

    def holding(self, areas: Areas, condition: Expression, budget: Budget) -> tuple[Truths, Truths]:
        """In which areas does a condition hold somewhere; and where could the oracle not tell?"""
        copy = areas.select(np.arange(len(areas)))
        rows = copy.narrow(self.literals.compiled(condition), condition, np.arange(len(copy)))
        found, undecided = np.zeros(len(areas), dtype=np.bool_), np.zeros(len(areas), dtype=np.bool_)
        found[rows], undecided[rows] = self.exists(copy.select(rows), budget)
        return found, undecided

    def unsettled(self, areas: Areas, rows: Integers) -> Candidates:
        """Areas of which nothing is known, no operator applied."""
        nothing = np.full((len(areas), len(self.predicates)), OPEN, dtype=np.int8)
        return Candidates(areas, rows, np.full(len(areas), -1, dtype=np.int64), nothing)

    def settle(self, candidates: Candidates) -> None:
        """entailment_by: what is certain of the open predicates, after the update, on the boxes."""
        rows, atoms = np.nonzero(candidates.values == OPEN)
        numbers = self.preimages.after[candidates.operator[rows], atoms]
        candidates.values[rows, atoms] = self.literals.values(candidates.areas, rows, numbers)

    def enumerate_states(self, start: Candidates, budget: Budget) -> Candidates:
        """All assignments of the open predicates that narrowing does not refute."""
        stack, complete = [start], list[Candidates]()
        while stack:
            budget.check()
            current = stack.pop()
            self.settle(current)
            is_open = current.values == OPEN
            unfinished = is_open.any(axis=1)
            complete.append(current.select(np.flatnonzero(~unfinished)))
            if not unfinished.any():
                continue
            first = is_open.argmax(axis=1)[unfinished]
            current = current.select(np.flatnonzero(unfinished))
            rows = np.arange(len(current))
            numbers = self.preimages.after[current.operator, first]
            for value in (0, 1):
                half = current.select(rows)
                half.values[rows, first] = value
                alive = self.literals.narrow(half.areas, rows, numbers, np.full(len(rows), value))
                if alive.any():
                    stack.append(half.select(np.flatnonzero(alive)))
        return join_candidates(complete)

    def exists(self, areas: Areas, budget: Budget) -> tuple[Truths, Truths]:
        """TSat: is there a state in each area?  And where could the oracle not tell?"""
        exists, undecided = ~areas.has_pending, np.zeros(len(areas), dtype=np.bool_)
        rows = np.flatnonzero(~exists)
        if len(rows):
            answers = self._anything.ask(areas.regions(rows), budget=budget)
            budget.check()
            exists[rows] = ~answers.impossible[:, 0]
            undecided[rows] = ~answers.impossible[:, 0] & ~answers.possible[:, 0]
        return exists, undecided


def _refuse_unbounded(variables: Sequence[Variable]) -> None:
    """Boxes hold integers below 2**62 only; what lies beyond would be lost."""
    far = [
        Feature(f"variable {item.name!r}", "an integer without bounds (or with bounds beyond 62 bits) in abstractions")
        for item in variables
        if item.domain.kind == "int" and max(map(abs, domain_ends(item))) >= INTEGER_LIMIT
    ]
    if far:
        raise UnsupportedFeature(far)


def one_label() -> Policy:
    """The policy that always chooses the same: for it, "possible" means that the region has a state."""
    return Policy((Network((Affine(np.zeros((1, 0)), np.zeros(1)),), 0),), (), ("any",), source="any state")
