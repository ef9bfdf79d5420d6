"""The Marabou back ends: the continuous relaxation, branch & bound around it, and Marabou before Z3.

- `MarabouBackend(relaxed=True)`: one query; integers range over the reals (ICAPS22, section 6.2).
- `MarabouBackend()`: where a solution gives an integer variable v a broken value α, the search goes on
  with v <= floor(α) and with v >= ceil(α) (section 6.4).
- `MarabouZ3Backend`: the relaxation first; where it has a solution that is no state, Z3 decides, with the
  activations fixed on which side of their bend Marabou's bounds put them (section 6.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from policyproof.encodings.piecewise import TOLERANCE, Program, Row
from policyproof.encodings.question import ActivationBounds
from policyproof.model.automata import Variable
from policyproof.model.ranges import Range
from policyproof.oracle.marabou_solver import bounds_by_marabou, solve_with_marabou
from policyproof.oracle.milp_solvers import FloatSolution
from policyproof.oracle.piecewise_backend import PiecewiseBackend
from policyproof.oracle.protocol import IMPOSSIBLE, POSSIBLE, UNKNOWN, Capabilities
from policyproof.oracle.solver_backend import ENUMERATED, Decision, Leaf
from policyproof.oracle.z3_backend import RELAXED
from policyproof.oracle.z3_solver import solve_with_z3
from policyproof.policy.policy import Policy
from policyproof.run.child import Worker
from policyproof.run.errors import BackendFailure

WHOLE = 1e-6
"""How far from a whole number Marabou's value of an integer may be."""

Cases = Literal["none", "bounds", "marabou"]


class MarabouBackend(PiecewiseBackend):
    """Marabou behind the oracle's protocol."""

    def __init__(
        self,
        policy: Policy,
        variables: Sequence[Variable],
        *,
        relaxed: bool = False,
        box: Mapping[str, Range] | None = None,
        enumerated: int = ENUMERATED,
        question_seconds: float | None = None,
        seed: int = 0,
        worker: Worker | None = None,
    ) -> None:
        self.relaxed = relaxed
        super().__init__(
            policy,
            variables,
            box=box,
            enumerated=enumerated,
            question_seconds=question_seconds,
            seed=seed,
            worker=worker,
        )

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities("Marabou", exact=False, integer=not self.relaxed, conditions="linear")

    def _solve(self, program: Program) -> FloatSolution:
        """Clauses that a solution does not satisfy are branched on, one alternative after the other."""
        stack = [program]
        unknown: FloatSolution | None = None
        while stack:
            program = stack.pop()
            remaining = self._budget.remaining
            solution = self._call(solve_with_marabou, program, None if np.isinf(remaining) else remaining)
            if solution.outcome == "unknown":
                unknown = solution
            if solution.outcome != "sat":
                continue
            broken = [number for number, clause in enumerate(program.clauses) if not _holds(clause, solution.values)]
            if not broken:
                return solution
            others = [clause for number, clause in enumerate(program.clauses) if number != broken[0]]
            alternatives = program.clauses[broken[0]]
            stack += [replace(program, rows=[*program.rows, *rows], clauses=others) for rows in reversed(alternatives)]
        return FloatSolution("unsat") if unknown is None else unknown

    def _go_on(self, leaf: Leaf, program: Program, solution: FloatSolution) -> Decision | list[Leaf]:
        if solution.outcome != "sat":
            return super()._go_on(leaf, program, solution)
        if self.relaxed:
            return self._relaxed(program, solution)
        values = program.state_of(solution.values)
        distance = np.where(self.space.real, 0.0, np.abs(values - np.rint(values)))
        branching = int(distance.argmax())
        if distance[branching] <= WHOLE:
            return super()._go_on(leaf, program, solution)
        return _branches(leaf, branching, int(np.floor(values[branching])))

    def _relaxed(self, program: Program, solution: FloatSolution) -> Decision:
        """A solution of the relaxation that is no witness; only within the tolerance, it may be none at all."""
        if program.slack >= 0 and solution.values[program.slack] < 0:
            firm = replace(program, lower=list(program.lower))
            firm.lower[program.slack] = 0.0
            if self._solve(firm).outcome == "unsat":
                return Decision(IMPOSSIBLE, confirmed=False)
        return Decision(UNKNOWN, reason=RELAXED)


def _holds(clause: list[list[Row]], values: tuple[float, ...]) -> bool:
    """Does a solution satisfy an alternative of the clause?  (What it misses by little costs a branch, no more.)"""
    return any(
        all(
            sum(factor * values[column] for column, factor in zip(row.columns, row.coefficients, strict=True))
            <= row.limit
            for row in rows
        )
        for rows in clause
    )


def _branches(leaf: Leaf, variable: int, below: int) -> list[Leaf]:
    """The parts of a leaf in which a variable is at most, and more than, a value."""
    upper, lower = leaf.upper.copy(), leaf.lower.copy()
    upper[0, variable], lower[0, variable] = below, below + 1
    parts = [replace(leaf, upper=upper), replace(leaf, lower=lower)]
    return [part for part in parts if part.lower[0, variable] <= part.upper[0, variable]]


class MarabouZ3Backend(MarabouBackend):
    """Marabou's relaxation first, then Z3."""

    def __init__(
        self,
        policy: Policy,
        variables: Sequence[Variable],
        *,
        cases: Cases = "marabou",
        box: Mapping[str, Range] | None = None,
        question_seconds: float | None = None,
        seed: int = 0,
        worker: Worker | None = None,
    ) -> None:
        self.cases = cases
        super().__init__(
            policy, variables, relaxed=True, box=box, question_seconds=question_seconds, seed=seed, worker=worker
        )

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities("Marabou and Z3", exact=False, integer=True, conditions="linear")

    def _decide(self, leaf: Leaf) -> Decision:
        relaxed = super()._decide(leaf)
        if relaxed.status == POSSIBLE or (relaxed.status == IMPOSSIBLE and relaxed.confirmed):
            return relaxed
        bounds = None if self.cases == "none" else self._bounds(leaf)
        if self.cases == "marabou" and bounds is not None:
            bounds = self._bounds_by_marabou(leaf, bounds)
            if bounds is None:
                return Decision(IMPOSSIBLE)
        solution = self._call(solve_with_z3, self._question(leaf, bounds), False, self.seed)
        if solution.outcome == "unsat":
            return Decision(IMPOSSIBLE)
        if solution.outcome == "unknown":
            return Decision(UNKNOWN, reason=solution.reason)
        values = np.array([float(value) for value in solution.values])
        witness = self._confirm(leaf, self._nearest(leaf, values))
        if witness is None:
            raise BackendFailure("Z3", f"its solution {solution.values} is not confirmed by exact evaluation")
        return Decision(POSSIBLE, witness)

    def _bounds_by_marabou(self, leaf: Leaf, bounds: ActivationBounds) -> ActivationBounds | None:
        """Rigorous bounds, tightened by what Marabou derives from the whole question, loosened by a margin."""
        program = self._program(leaf)
        found = self._call(bounds_by_marabou, program)
        if found is None:
            return None
        tightened = [(low.copy(), high.copy()) for low, high in bounds]
        for relu in program.relus:
            low, high = (end * relu.scale for end in found[relu.argument])
            room = relu.error + TOLERANCE * relu.scale
            lower, upper = tightened[relu.layer]
            lower[relu.component] = max(lower[relu.component], low - relu.offset - room)
            upper[relu.component] = min(upper[relu.component], high - relu.offset + room)
        return tightened
