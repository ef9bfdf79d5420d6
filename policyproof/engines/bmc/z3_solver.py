"""Bounded model checking with Z3: exact, so that its "unsatisfiable" is a proof."""

from __future__ import annotations

from policyproof.encodings.paths import Requirement, Stage
from policyproof.engines.bmc.path import Follower, Mismatch
from policyproof.engines.bmc.solvers import Open, Outcome, PathSolver, Refuted
from policyproof.engines.bmc.unrolling import Unrolling
from policyproof.engines.bmc.z3_session import begin, check_length
from policyproof.run.budget import Budget
from policyproof.run.child import Worker
from policyproof.run.errors import BackendFailure


class Z3Solver(PathSolver):
    """One child process that holds the stages."""

    name = "Z3"

    def __init__(self, unrolling: Unrolling, follower: Follower, worker: Worker, *, seed: int = 0) -> None:
        super().__init__(unrolling, follower, worker, seed=seed)
        self._begun = False
        self._new: list[Stage] = []

    def add(self, stage: Stage) -> None:
        self._new.append(stage)

    def check(self, target: tuple[Requirement, ...], budget: Budget) -> Outcome:
        if not self._begun:
            self.worker.call(begin, self.seed, budget=budget)
            self._begun = True
        new, self._new = tuple(self._new), []
        self.calls += 1
        solution = self.worker.call(check_length, new, target, budget=budget)
        if solution.outcome == "unsat":
            return Refuted()
        if solution.outcome == "unknown":
            return Open(solution.reason)
        found = self.follower.follow(self._candidate(solution.values, solution.options[1:]))
        if not isinstance(found, Mismatch):
            return found
        reals = any(item.domain.kind == "real" for item in self.unrolling.flat.variables)
        if reals:
            # Roots of polynomials are reported rounded.
            return Open(f"a path that Z3 found is not confirmed in rational arithmetic: {found.reason}")
        raise BackendFailure("Z3", f"its path is not confirmed by exact evaluation: {found}")
