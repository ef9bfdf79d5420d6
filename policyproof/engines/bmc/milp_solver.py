"""Bounded model checking with a solver of mixed-integer programs (HiGHS), in floating point.

A program is loosened by its margin (`encodings.milp_paths`): where even that is infeasible, the length is refuted.
A solution is rounded to a path and followed exactly.  Where the policy decides otherwise than the program
thought, which happens within the tolerance only (at ties, above all), the true decision in that state becomes a
lemma for all steps, and the question is put again.  With real variables, where a lemma would exclude a single
point, the program is asked for a lead with room to spare instead, and at last for one that is not negative: if
there is none, the refutation is the solver's word ("solver-tolerance").
"""

from __future__ import annotations

from dataclasses import replace

from policyproof.encodings.milp_paths import PathProgram
from policyproof.encodings.paths import Lemma, Requirement, Stage
from policyproof.encodings.piecewise import Program
from policyproof.encodings.question import Column
from policyproof.engines.bmc.path import Candidate, Follower, Mismatch, nearest
from policyproof.engines.bmc.solvers import Open, Outcome, PathSolver, Refuted
from policyproof.engines.bmc.unrolling import Unrolling
from policyproof.evidence.trace import Trace
from policyproof.model.expressions import variables_of
from policyproof.oracle.milp_solvers import FloatSolution, solve_with_highs
from policyproof.run.budget import Budget
from policyproof.run.child import Worker

MOST_LEMMAS = 1000
WITHIN_TOLERANCE = "a path is left that exists only within the solver's tolerance"


class MilpSolver(PathSolver):
    """HiGHS on one program that grows."""

    name = "HiGHS"

    def __init__(self, unrolling: Unrolling, follower: Follower, worker: Worker, *, seed: int = 0) -> None:
        super().__init__(unrolling, follower, worker, seed=seed)
        self.program = PathProgram()
        self.stages: list[Stage] = []
        self.lemmas: list[Lemma] = []
        variables = unrolling.flat.variables
        self._real = any(item.domain.kind == "real" for item in variables)
        self._columns: dict[str, Column] = {}

    def add(self, stage: Stage) -> None:
        self.program.stage(stage)
        self.stages.append(stage)
        self._columns.update((column.name, column) for column in stage.columns)
        for lemma in self.lemmas:
            self._say(lemma, len(self.stages) - 2)

    def check(self, target: tuple[Requirement, ...], budget: Budget) -> Outcome:
        while True:
            program = self.program.with_target(target)
            if program.infeasible:
                return Refuted()
            # Any path will do where there are no real variables: then leads are large or within a margin.
            solution = self._solve(program if self._real else replace(program, slack=-1), budget)
            if solution.outcome == "unsat":
                return Refuted()
            if solution.outcome == "unknown":
                return Open(solution.reason)
            found = self.follower.follow(self._path(solution))
            if isinstance(found, Trace):
                return found
            if not self._learn(found):
                return self._without_lemma(program, budget)
            if len(self.lemmas) > MOST_LEMMAS:
                return Open(WITHIN_TOLERANCE)

    def _solve(self, program: Program, budget: Budget) -> FloatSolution:
        self.calls += 1
        return self.worker.call(solve_with_highs, program, self.seed, budget=budget)

    def _path(self, solution: FloatSolution) -> Candidate:
        values: dict[str, object] = {}
        for name, column in self._columns.items():
            unit, middle = self.program.scale[name]
            value = solution.values[self.program.position[name]] * unit + middle
            values[name] = nearest(value, column.lower, column.upper, column.kind)
        options = [
            max(selected, key=lambda option: solution.values[selected[option]]) for selected in self.program.selected
        ]
        return self._candidate(values, tuple(options[1:]))

    def _learn(self, mismatch: Mismatch) -> bool:
        """Remember a decision of the policy; not where that would exclude one point of infinitely many."""
        policy = self.unrolling.question.policy
        if mismatch.decided is None or policy is None:
            return False
        names = set(policy.reads)
        if policy.filter:
            # What is applicable matters too.
            names |= variables_of(operator.guard for operator in self.unrolling.images.operators)
        if any(self.unrolling.kinds[name] == "real" for name in names):
            return False
        lemma = Lemma({name: int(mismatch.state[name]) for name in sorted(names)}, mismatch.decided)
        self.lemmas.append(lemma)
        for step in range(len(self.stages) - 1):
            self._say(lemma, step)
        return True

    def _say(self, lemma: Lemma, step: int) -> None:
        if step >= 0:
            self.program.learn(lemma, step, self.unrolling.names[step], self.stages[step + 1].choices)

    def _without_lemma(self, program: Program, budget: Budget) -> Outcome:
        firm = self._solve(program.firm(), budget)
        if firm.outcome == "sat":
            found = self.follower.follow(self._path(firm))
            if isinstance(found, Trace):
                return found
        lower = list(program.lower)
        lower[program.slack] = 0.0
        if self._solve(replace(program, lower=lower), budget).outcome == "unsat":
            return Refuted(confirmed=False)
        return Open(WITHIN_TOLERANCE)
