"""Abstract state expansion as in the paper: Algorithm 1 of ICAPS22, one abstract state and one test at a time.

For every label that the policy may choose, and every operator of it that may apply, the predicates that the
source and the operator entail get their values; the others are enumerated by backtracking, where a choice
for one predicate entails values of others.  A complete assignment is a successor if it passes the
transition tests.  Which of the optional tests are made, and by whom, is the `Configuration`'s choice.

The numbers at the lines are those of the paper's listing.  Its recursion is a stack here.

Invariant: an assignment is given up only where there is no concrete transition to its states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from policyproof.engines.ppa.concretization import Concretization
from policyproof.engines.ppa.configurations import Configuration
from policyproof.engines.ppa.expansion import Found
from policyproof.engines.ppa.literals import OPEN, Values
from policyproof.engines.ppa.predicates import Truths
from policyproof.engines.ppa.regions import Areas
from policyproof.engines.ppa.solver_tests import SolverTests
from policyproof.oracle.protocol import IMPOSSIBLE, UNKNOWN, Arithmetic
from policyproof.oracle.space import Integers
from policyproof.run.budget import Budget
from policyproof.run.child import Worker


@dataclass(frozen=True, eq=False)
class Transition:
    """One that Algorithm 1 adds to the abstraction."""

    operator: int
    label: int
    target: Values
    undecided: bool
    """Is it there only because no test could refute it?"""


class AlgorithmExpansion:
    """An `Expander` that does what the paper does."""

    at_once = 1

    def __init__(
        self,
        concretization: Concretization,
        configuration: Configuration,
        *,
        seed: int = 0,
        worker: Worker | None = None,
    ) -> None:
        self.concretization = concretization
        self.tests = SolverTests(concretization, configuration, seed=seed, worker=worker)
        labels = concretization.preimages.label
        self.operators_of = {label: np.flatnonzero(labels == label).tolist() for label in np.unique(labels).tolist()}
        self.entailment = _entailment_between_predicates(concretization)

    @property
    def arithmetic(self) -> Arithmetic:
        return self.tests.arithmetic

    def close(self) -> None:
        self.tests.close()

    def expand(self, truths: Truths, areas: Areas, budget: Budget) -> Found:
        """See `Expander.expand`."""
        self.tests.budget = budget
        found = [
            (row, transition)
            for row in range(len(areas))
            for transition in self.expand_state(truths[row], areas.select([row]))
        ]
        return Found(
            np.array([row for row, _ in found], dtype=np.int64),
            np.array([transition.operator for _, transition in found], dtype=np.int64),
            np.array([transition.label for _, transition in found], dtype=np.int64),
            np.array([transition.target == 1 for _, transition in found]).reshape(len(found), truths.shape[1]),
            np.array([transition.undecided for _, transition in found], dtype=np.bool_),
        )

    # Algorithm 1

    def expand_state(self, source: Truths, states: Areas) -> Iterator[Transition]:
        """Expand s_P = `source`, of which `states` = [s_P] is the area."""
        tests = self.tests
        for label, operators in self.operators_of.items():  # 1
            output = int(self.concretization.output[label])
            if not tests.is_select_relaxed(states, output):  # 2
                continue
            if not tests.is_select(states, output):  # 3
                continue
            for operator in operators:  # 4
                applied = self._where_it_applies(states, operator)
                if not tests.is_app(applied):  # 5
                    continue
                if not tests.is_app_policy_relaxed(applied, output):  # 6
                    continue
                if not tests.is_app_policy(applied, output):  # 7
                    continue
                target = self.entailment_by(source, operator, applied)  # 8
                for complete, answer in self.enumerate_states(target, operator, applied, output):  # 9
                    yield Transition(operator, label, complete, answer == UNKNOWN)  # 15

    def enumerate_states(
        self, entailed: Values, operator: int, applied: Areas, output: int
    ) -> Iterator[tuple[Values, int]]:
        """All s'_P that extend the entailed values and pass the transition tests."""  # 10
        chosen = np.flatnonzero(entailed == OPEN)
        stack = [entailed]
        while stack:
            self.tests.budget.check()
            target = stack.pop()
            undecided = np.flatnonzero(target == OPEN)
            if not len(undecided):  # 11
                successors = self._with_values(applied, operator, chosen, target[chosen])
                answer = self.transition_tests(successors, output)  # 12 to 14
                if answer != IMPOSSIBLE:
                    yield target, answer
                continue
            for value in (0, 1):  # 17 to 23
                extended = self.extended(target, int(undecided[0]), value)
                if extended is not None:
                    stack.append(extended)

    def transition_tests(self, successors: Areas, output: int) -> int:
        """Lines 12 to 14: TSat, the relaxed TSat^π, and TSat^π."""
        tests = self.tests
        answer = tests.transition(successors)
        if answer == IMPOSSIBLE or output < 0:
            return answer
        answer = tests.transition_policy_relaxed(successors, output)
        # An integer solution of the relaxed test is one of the exact test.
        return tests.transition_policy(successors, output) if answer == UNKNOWN else answer

    # Entailment

    def entailment_by(self, source: Truths, operator: int, applied: Areas) -> Values:
        """Line 8: the values that the source and the operator entail, each predicate by itself.

        Boxes settle most of them, small tests the rest.
        """
        concretization = self.concretization
        preimages = concretization.preimages
        target: Values = np.where(preimages.kept[operator], source, OPEN).astype(np.int8)
        atoms = np.flatnonzero(target == OPEN)
        rows = np.zeros(len(atoms), dtype=np.int64)
        target[atoms] = concretization.literals.values(applied, rows, preimages.after[operator, atoms])
        for atom in np.flatnonzero(target == OPEN):
            for value in (0, 1):
                one, chosen = np.array([atom]), np.array([value])
                if not self.tests.is_satisfiable(self._with_values(applied, operator, one, chosen)):
                    target[atom] = 1 - value
                    break
        return target

    def extended(self, target: Values, atom: int, value: int) -> Values | None:
        """Lines 18 to 22: one more value, with all that it entails (akin to unit propagation); None: a conflict."""
        extended = target.copy()
        extended[atom] = value
        stack = [(atom, value)]
        while stack:
            entailed = self.entailment[stack.pop()]
            decided = entailed != OPEN
            if (decided & (extended != OPEN) & (extended != entailed)).any():
                return None
            new = np.flatnonzero(decided & (extended == OPEN))
            extended[new] = entailed[new]
            stack.extend((other, int(entailed[other])) for other in new.tolist())
        return extended

    # Areas

    def _where_it_applies(self, states: Areas, operator: int) -> Areas:
        """[s_P] where the guard holds."""
        guard = self.concretization.preimages.guard[operator]
        # Most operators are ruled out by a look at the box.
        if (self.concretization.literals.values(states, np.zeros(len(guard), dtype=np.int64), guard) == 0).any():
            return states.select([])
        return self._narrowed(states, guard, None)

    def _with_values(self, applied: Areas, operator: int, atoms: Integers, values: Integers | Values) -> Areas:
        """The part of an area in which some predicates have these values after the update."""
        return self._narrowed(applied, self.concretization.preimages.after[operator, atoms], values)

    def _narrowed(self, area: Areas, numbers: Integers, values: Integers | Values | None) -> Areas:
        result, only = area.select(np.arange(len(area))), np.zeros(1, dtype=np.int64)
        for position in range(len(numbers)):
            wanted = np.ones(1, dtype=np.int64) if values is None else values[position : position + 1]
            number = numbers[position : position + 1]
            if not self.concretization.literals.narrow(result, only, number, wanted.astype(np.int64))[0]:
                return result.select([])
        return result


def _entailment_between_predicates(concretization: Concretization) -> Values:
    """`entailed[atom, value, other]`: what a value of a predicate says of the others, in any state; computed once."""
    atoms = np.repeat(np.arange(len(concretization.predicates)), 2)
    values = np.tile([0, 1], len(concretization.predicates))
    areas = concretization.anywhere(len(atoms))
    numbers = concretization.preimages.after[-1]
    alive = concretization.literals.narrow(areas, np.arange(len(atoms)), numbers[atoms], values)
    candidates = concretization.unsettled(areas, np.arange(len(atoms)))
    concretization.settle(candidates)
    entailed = candidates.values
    # A value that no state has is in conflict with itself.
    entailed[~alive, atoms[~alive]] = 1 - values[~alive]
    entailed[alive, atoms[alive]] = values[alive]
    return entailed.reshape(len(concretization.predicates), 2, len(concretization.predicates))
