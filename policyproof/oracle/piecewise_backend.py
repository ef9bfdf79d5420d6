"""What the floating-point back ends share: piecewise linear programs, and what becomes of their solutions.

A program is loosened (see `policyproof.encodings.piecewise`): where a solver finds even that infeasible,
the margin confirms the impossibility.  A solution is rounded to a state and confirmed exactly.  What is
neither, a solution only within the solver's tolerance, is decided by enumeration where the leaf is small,
by halving it where it is finite, and otherwise by asking for a lead that is not negative: where there is
none, the impossibility is the solver's word ("solver-tolerance").
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from policyproof.encodings.linear import Linearisation, NotLinear
from policyproof.encodings.piecewise import Program, program_of
from policyproof.model.automata import Variable
from policyproof.model.expressions import Expression
from policyproof.model.ranges import Range
from policyproof.oracle.milp_solvers import FloatSolution
from policyproof.oracle.protocol import IMPOSSIBLE, POSSIBLE, UNKNOWN, Regions
from policyproof.oracle.solver_backend import ENUMERATED, Decision, Leaf, SolverBackend
from policyproof.oracle.space import Integers
from policyproof.policy.network import Floats
from policyproof.policy.policy import Policy
from policyproof.run.child import Worker
from policyproof.run.errors import Feature, UnsupportedFeature

WITHIN_TOLERANCE = "a solution that holds only within the solver's tolerance is left"


class PiecewiseBackend(SolverBackend):
    """Back ends whose solver gets a piecewise linear program."""

    def __init__(
        self,
        policy: Policy,
        variables: Sequence[Variable],
        *,
        box: Mapping[str, Range] | None = None,
        enumerated: int = ENUMERATED,
        question_seconds: float | None = None,
        seed: int = 0,
        worker: Worker | None = None,
    ) -> None:
        """`enumerated`: leaves with at most so many states are enumerated when a solver leaves them open."""
        self.enumerated = enumerated
        super().__init__(policy, variables, box=box, question_seconds=question_seconds, seed=seed, worker=worker)
        self._linearisation = Linearisation(item.name for item in self.variables if item.domain.kind != "real")

    @abstractmethod
    def _solve(self, program: Program) -> FloatSolution:
        """One solver call."""

    def _outside(self, named: Sequence[tuple[str, Expression]]) -> list[Feature]:
        features = []
        for where, expression in named:
            try:
                if expression.kind == "bool":
                    self._linearisation.clauses(expression)
                    if where.startswith("applicability"):
                        self._linearisation.negated(expression)
                else:
                    self._linearisation.form(expression)
            except NotLinear as reason:
                features += [Feature(where, f"{part} in {self.capabilities.name}") for part in reason.reasons]
        return features

    def _boundless(self, regions: Regions) -> list[Feature]:
        read = self.inputs.reads.any(axis=1) | self.inputs.switch_reads
        for part in (*regions.conditions, *(self._applicability or ())):
            read = read | self._condition(part).reads[0]
        ends = [self.space.as_floats(end) for end in (regions.lower, regions.upper)]
        endless = np.flatnonzero((read & ~np.isfinite(ends[0] + ends[1])).any(axis=0))
        return [
            Feature(f"the variable {self.variables[position].name}", f"no bounds in {self.capabilities.name}")
            for position in endless.tolist()
        ]

    def _program(self, leaf: Leaf) -> Program:
        try:
            return program_of(self._question(leaf, self._bounds(leaf)))
        except NotLinear as reason:
            features = [Feature("a condition", f"{part} in {self.capabilities.name}") for part in reason.reasons]
            raise UnsupportedFeature(features) from None

    def _nearest(self, leaf: Leaf, values: Floats) -> Integers:
        """The state of the leaf's box that is nearest to some values, as `[1, variable]`."""
        return self.space.from_floats(values[None, :], leaf.lower, leaf.upper)

    def _left_open(self, leaf: Leaf, program: Program, solution: FloatSolution) -> Decision | list[Leaf]:
        """What becomes of a leaf whose solutions are not confirmed: a decision, or the halves to go on with."""
        states = self._states(leaf)
        if states <= self.enumerated:
            return self._enumerate(leaf)
        if np.isfinite(states):
            widths = np.where(self._matters(leaf), self.space.widths(leaf.lower, leaf.upper), 0.0)
            lower, upper = self.space.halves(leaf.lower, leaf.upper, widths.argmax(axis=1))
            return [replace(leaf, lower=lower[part], upper=upper[part]) for part in (slice(0, 1), slice(1, 2))]
        witness = self._firm_witness(leaf, program, solution)
        if witness is not None:
            return Decision(POSSIBLE, witness)
        if program.slack >= 0:
            firm = replace(program, lower=list(program.lower))
            firm.lower[program.slack] = 0.0
            if self._solve(firm).outcome == "unsat":
                return Decision(IMPOSSIBLE, confirmed=False)
        return Decision(UNKNOWN, reason=WITHIN_TOLERANCE)

    def _firm_witness(self, leaf: Leaf, program: Program, solution: FloatSolution) -> Integers | None:
        """A witness with room to spare: anywhere, or with the integers of a solution."""
        firm = program.firm()
        attempts = [firm]
        if solution.outcome == "sat":
            ends = [list(firm.lower), list(firm.upper)]
            for position in self.space.integers.tolist():
                for end in ends:
                    end[position] = float(round(solution.values[position]))
            attempts.append(replace(firm, lower=ends[0], upper=ends[1]))
        for attempt in attempts:
            found = self._solve(attempt)
            if found.outcome == "sat":
                witness = self._confirm(leaf, self._nearest(leaf, program.state_of(found.values)))
                if witness is not None:
                    return witness
        return None

    def _decide(self, leaf: Leaf) -> Decision:
        stack = [leaf]
        confirmed = True
        while stack:
            self._budget.check()
            leaf = stack.pop()
            program = self._program(leaf)
            if program.infeasible:
                continue
            solution = self._solve(program)
            if solution.outcome == "unsat":
                continue
            if solution.outcome == "sat":
                witness = self._confirm(leaf, self._nearest(leaf, program.state_of(solution.values)))
                if witness is not None:
                    return Decision(POSSIBLE, witness)
            further = self._go_on(leaf, program, solution)
            if isinstance(further, list):
                self._statistics["branches"] += len(further)
                stack += further
            elif further.status != IMPOSSIBLE:
                return further
            else:
                confirmed = confirmed and further.confirmed
        return Decision(IMPOSSIBLE, confirmed=confirmed)

    def _go_on(self, leaf: Leaf, program: Program, solution: FloatSolution) -> Decision | list[Leaf]:
        """A leaf whose solution was not confirmed, or that the solver could not decide."""
        further = self._left_open(leaf, program, solution)
        if solution.outcome == "unknown" and isinstance(further, Decision) and further.status == UNKNOWN:
            return Decision(UNKNOWN, reason=solution.reason)
        return further
