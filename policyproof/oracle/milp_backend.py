"""The MILP back end: HiGHS, or SCIP or Gurobi where they are installed, behind one encoding.

ReLUs are encoded with the big M that rigorous bounds give, and those that the bounds decide vanish; the
solver maximises by how much the output leads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from policyproof.encodings.piecewise import Program
from policyproof.model.automata import Variable
from policyproof.model.ranges import Range
from policyproof.oracle.milp_solvers import FloatSolution, solve_with_gurobi, solve_with_highs, solve_with_scip
from policyproof.oracle.piecewise_backend import PiecewiseBackend
from policyproof.oracle.protocol import Capabilities
from policyproof.oracle.solver_backend import ENUMERATED
from policyproof.policy.policy import Policy
from policyproof.run.child import Worker

Solver = Literal["HiGHS", "SCIP", "Gurobi"]

_SOLVERS: dict[str, Callable[[Program, int], FloatSolution]] = {
    "HiGHS": solve_with_highs,
    "SCIP": solve_with_scip,
    "Gurobi": solve_with_gurobi,
}


class MilpBackend(PiecewiseBackend):
    """A MILP solver behind the oracle's protocol."""

    def __init__(
        self,
        policy: Policy,
        variables: Sequence[Variable],
        *,
        solver: Solver = "HiGHS",
        box: Mapping[str, Range] | None = None,
        enumerated: int = ENUMERATED,
        question_seconds: float | None = None,
        seed: int = 0,
        worker: Worker | None = None,
    ) -> None:
        self.solver = solver
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
        return Capabilities(self.solver, exact=False, integer=True, conditions="linear")

    def _solve(self, program: Program) -> FloatSolution:
        return self._call(_SOLVERS[self.solver], program, self.seed)
