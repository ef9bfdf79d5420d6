"""The Z3 back end: every question as one exact query (ICAPS22, section 5 and appendix C, with ties corrected).

Its impossibilities are proofs.  With `cases="bounds"`, activations whose sign rigorous bounds settle are
encoded without a case distinction.  With `relaxed`, integers range over the reals: then an
impossibility is still a proof, a solution at a state is a witness, and any other solution says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal

import numpy as np

from policyproof.model.automata import Variable
from policyproof.model.expressions import Expression
from policyproof.model.ranges import Range
from policyproof.oracle.protocol import IMPOSSIBLE, POSSIBLE, UNKNOWN, Capabilities
from policyproof.oracle.solver_backend import Decision, Leaf, SolverBackend
from policyproof.oracle.space import Integers
from policyproof.oracle.z3_solver import Solution, solve_with_z3
from policyproof.policy.policy import Policy
from policyproof.run.child import Worker
from policyproof.run.errors import BackendFailure, Feature

RELAXED = "the continuous relaxation has a solution, which is no state"

ActivationCases = Literal["none", "bounds"]


class Z3Backend(SolverBackend):
    """Z3 behind the oracle's protocol."""

    def __init__(
        self,
        policy: Policy,
        variables: Sequence[Variable],
        *,
        box: Mapping[str, Range] | None = None,
        relaxed: bool = False,
        cases: ActivationCases = "bounds",
        question_seconds: float | None = None,
        seed: int = 0,
        worker: Worker | None = None,
    ) -> None:
        self.relaxed = relaxed
        self.cases = cases
        super().__init__(policy, variables, box=box, question_seconds=question_seconds, seed=seed, worker=worker)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities("Z3", exact=True, integer=not self.relaxed)

    def _outside(self, named: Sequence[tuple[str, Expression]]) -> list[Feature]:
        from policyproof.encodings.z3_encoding import unsupported_operators

        return [
            Feature(where, f"{operator} in {self.capabilities.name}")
            for where, expression in named
            for operator in unsupported_operators([expression])
        ]

    def _decide(self, leaf: Leaf) -> Decision:
        bounds = self._bounds(leaf) if self.cases == "bounds" else None
        solution = self._call(solve_with_z3, self._question(leaf, bounds), self.relaxed, self.seed)
        if solution.outcome == "unsat":
            return Decision(IMPOSSIBLE)
        if solution.outcome == "unknown":
            return Decision(UNKNOWN, reason=solution.reason)
        witness = self._confirm(leaf, self._state(solution))
        if witness is not None:
            return Decision(POSSIBLE, witness)
        if self.relaxed:
            return Decision(UNKNOWN, reason=RELAXED)
        raise BackendFailure("Z3", f"its solution {solution.values} is not confirmed by exact evaluation")

    def _state(self, solution: Solution) -> Integers:
        """A solution as a state `[1, variable]`, rounded where integers are relaxed."""
        state = np.zeros((1, len(self.variables)), dtype=np.int64)
        for position, value in enumerate(solution.values):
            if self.space.real[position]:
                state[0, position : position + 1] = np.array([float(Fraction(value))]).view(np.int64)
            else:
                state[0, position] = round(value)
        return state
