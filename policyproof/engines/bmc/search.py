"""Engine `bmc`: is there an unsafe path of length 0, 1, 2, ... under the policy (ICAPS22, sections 8.2 and 9.4)?

Idea: paths of length k are encoded with one copy of the network for each step, and a solver looks for one that
starts in a start state and ends in an unsafe one.  If there is none, one more step is unrolled.

Invariant: before length k is asked about, all smaller lengths are refuted.  So the first path that is found is a
shortest one; it counts only when exact evaluation confirms it.  Refuted lengths prove nothing beyond them, except
where the question itself ends there (`AG<=k f`), or where no operator can be taken any more.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from policyproof.encodings.linear import NotLinear
from policyproof.encodings.paths import Requirement
from policyproof.engines.bmc.images import Images
from policyproof.engines.bmc.milp_solver import MilpSolver
from policyproof.engines.bmc.path import Follower
from policyproof.engines.bmc.solvers import Open, Outcome, PathSolver, Refuted
from policyproof.engines.bmc.unrolling import Unrolling
from policyproof.engines.bmc.z3_solver import Z3Solver
from policyproof.engines.question import SafetyQuestion
from policyproof.engines.result import Progress, Result, Run
from policyproof.evidence.trace import Trace
from policyproof.model.enclosures import Undecided
from policyproof.model.flat import Freedom
from policyproof.model.start_states import boxes_where
from policyproof.run.budget import Budget
from policyproof.run.child import Worker
from policyproof.run.errors import Feature, InvalidInput, ResourceExhausted, UnsupportedFeature

ENGINE = "bmc"
LENGTH = 100
"""Up to which length paths are looked for, unless the question or the user says."""
SOLVERS: dict[str, type[PathSolver]] = {"z3": Z3Solver, "milp": MilpSolver}


def check_paths(
    question: SafetyQuestion,
    budget: Budget | None = None,
    *,
    solver: str = "milp",
    length: int | None = None,
    go_on: bool = False,
    seed: int = 0,
    worker: Worker | None = None,
) -> Run:
    """Look for unsafe paths of up to `length` steps; `go_on`: also after one is found, as for ICAPS22's Table 2.

    `worker`: a child process for the solver that is used for several questions.
    """
    if solver not in SOLVERS:
        raise InvalidInput(f"bmc has no solver {solver!r} (there are: {', '.join(SOLVERS)})")
    search = PathSearch(
        question, budget or Budget(), solver=solver, length=length, go_on=go_on, seed=seed, worker=worker
    )
    try:
        yield from search.run()
    except ResourceExhausted as exhausted:
        search.stopped = exhausted.reason
    except Undecided as undecided:
        search.stopped = str(undecided)
    except NotLinear as reason:
        if search.checked < 1:
            features = [Feature("the model", f"{part} in {search.solver.name}") for part in reason.reasons]
            raise UnsupportedFeature(features) from None
        search.stopped = f"{reason} in {search.solver.name} after {search.checked + 1} steps"
    finally:
        if worker is None:
            search.worker.close()
    return search.result()


class PathSearch:
    """One search; its fields can be read after any step of `run`."""

    def __init__(
        self,
        question: SafetyQuestion,
        budget: Budget,
        *,
        solver: str,
        length: int | None,
        go_on: bool,
        seed: int,
        worker: Worker | None,
    ) -> None:
        self.question = question
        self.budget = budget
        self.go_on = go_on
        bounds = [bound for bound in (length, question.last_step) if bound is not None]
        self.limit = min(bounds, default=LENGTH)
        self.images = Images(question.flat, question.policy)
        _refuse_what_has_no_encoding(question, self.images, solver)
        self.unrolling = Unrolling(question, self.images)
        self.worker = Worker(SOLVERS[solver].name) if worker is None else worker
        follower = Follower(question, self.images.operators)
        self.solver = SOLVERS[solver](self.unrolling, follower, self.worker, seed=seed)
        self.checked = -1
        """The greatest length that was answered, all smaller ones being answered too."""
        self.trace: Trace | None = None
        self.trace_seconds = 0.0
        self.ended = False
        """No path is longer than the lengths that were answered."""
        self.confirmed = True
        self.stopped = ""
        self.solver_seconds = 0.0
        self.log: list[dict[str, Any]] = []

    def run(self) -> Generator[Progress, None, None]:
        self._require_start_states()
        stage = self.unrolling.start()
        for length in range(self.limit + 1):
            yield Progress("looking for an unsafe path", {"length": length, "checked_length": self.checked})
            self.budget.check()
            if stage is None:
                self.ended = True
                return
            started = time.monotonic()
            self.solver.add(stage)
            target = self.unrolling.target(last=length == self.question.last_step)
            outcome = self._ask(target)
            if isinstance(outcome, Open):
                self.stopped = outcome.reason
                return
            self._note(length, outcome, len(stage.options), time.monotonic() - started)
            if self.trace is not None and not self.go_on:
                return
            if length < self.limit:
                stage = self.unrolling.step(self.budget)

    def _ask(self, target: tuple[Requirement, ...] | None) -> Outcome:
        if target is None:
            return Refuted()
        started = time.monotonic()
        try:
            return self.solver.check(target, self.budget)
        finally:
            self.solver_seconds += time.monotonic() - started

    def _note(self, length: int, outcome: Refuted | Trace, options: int, seconds: float) -> None:
        self.checked = length
        found = isinstance(outcome, Trace)
        if isinstance(outcome, Trace) and self.trace is None:
            self.trace = outcome
            self.trace_seconds = self.budget.elapsed
        if isinstance(outcome, Refuted) and self.trace is None:
            self.confirmed = self.confirmed and outcome.confirmed
        self.log.append({"length": length, "unsafe_path": found, "options": options, "seconds": round(seconds, 6)})

    def _require_start_states(self) -> None:
        for condition in self.question.starts:
            for boxes in boxes_where(self.question.flat, condition, budget=self.budget):
                if len(boxes.lower):
                    return
        raise InvalidInput(f"the start condition of {self.question.name or 'the property'} holds in no state")

    # What was found

    def result(self) -> Result:
        arithmetic = "real" if self.confirmed else "solver-tolerance"
        if self.trace is not None:
            verdict, reason = "violated", f"an unsafe state is reached after {len(self.trace.steps)} steps"
        elif self.ended:
            verdict, reason = "holds", f"no unsafe state is reachable: no path is longer than {self.checked} steps"
        elif not self.stopped and self.checked == self.question.last_step:
            verdict, reason = "holds", f"no unsafe state within {self.checked} steps"
        else:
            covered = f"no unsafe path of up to {self.checked} steps" if self.checked >= 0 else "no length was checked"
            verdict, reason = "unknown", f"{self.stopped}; {covered}" if self.stopped else covered
        return Result(
            verdict,  # type: ignore[arg-type]
            reason,
            ENGINE,
            self.statistics(),
            arithmetic=arithmetic,  # type: ignore[arg-type]
            trace=self.trace,
            log=tuple(self.log),
        )

    def statistics(self) -> dict[str, int | float]:
        found: dict[str, int | float] = {
            "operators": len(self.images.operators),
            "solver_calls": self.solver.calls,
            "solver_seconds": self.solver_seconds,
        }
        if self.checked >= 0:
            found["checked_length"] = self.checked
        if self.trace is not None:
            found["unsafe_path_length"] = len(self.trace.steps)
            found["unsafe_path_seconds"] = self.trace_seconds
        return found


def _refuse_what_has_no_encoding(question: SafetyQuestion, images: Images, solver: str) -> None:
    """Everything that the solver cannot be told, at once; what is not linear is found out stage by stage."""
    features = []
    policy = question.policy
    for network in () if policy is None else policy.networks:
        for number, layer in enumerate(network.layers):
            kind = getattr(layer, "kind", "relu")
            if kind not in ("relu", "leaky_relu"):
                features.append(Feature(f"{network.source}, layer {number}", f"{kind} in {SOLVERS[solver].name}"))
    if solver == "z3":
        from policyproof.encodings.z3_encoding import unsupported_operators

        expressions = [*question.starts, question.unsafe]
        for operator in images.operators:
            expressions.append(operator.guard)
            for value in operator.update.values():
                expressions += [value.lower, value.upper] if isinstance(value, Freedom) else [value]
        if policy is not None:
            expressions += [*policy.inputs, *([] if policy.switch is None else [policy.switch])]
        features += [Feature("the model", f"{name} in Z3") for name in unsupported_operators(expressions)]
    if features:
        raise UnsupportedFeature(features)
