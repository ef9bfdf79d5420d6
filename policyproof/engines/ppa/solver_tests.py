"""The tests of Algorithm 1 (ICAPS22, section 6), one question at a time, by back ends of the oracle.

They all ask the same of different areas: is there a state in it, and is there one in which the policy
chooses the label?  The area of a selection test is [s_P]; that of an applicability test the part of it
in which the operator's guard holds; that of a transition test the part of this whose successors are in
[s'_P] (appendix C).  Where an area is a box and nothing else, it has states; otherwise Z3 says whether.

Labels about which the policy does not decide pass every test of the policy.

Invariant: a test that is made fails only where its back end has proved that there is no such state, in its
arithmetic, of which `arithmetic` keeps the weakest so far.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from policyproof.engines.ppa.concretization import Concretization, one_label
from policyproof.engines.ppa.configurations import Configuration
from policyproof.engines.ppa.regions import Areas
from policyproof.oracle.backends import make_solver
from policyproof.oracle.protocol import IMPOSSIBLE, POSSIBLE, UNKNOWN, Arithmetic
from policyproof.oracle.solver_backend import SolverBackend
from policyproof.run.budget import Budget
from policyproof.run.child import Worker


class SolverTests:
    """The tests of one configuration; an area is given as `Areas` of one row, an empty one as no row."""

    def __init__(
        self,
        concretization: Concretization,
        configuration: Configuration,
        *,
        seed: int = 0,
        worker: Worker | None = None,
    ) -> None:
        """`worker`: the child process of the solvers, if others use it, too."""
        self.concretization = concretization
        self.configuration = configuration
        self.counts = concretization.counts
        self.arithmetic: Arithmetic = "real"
        self.budget = Budget()
        self._worker = Worker(configuration.name) if worker is None else worker
        self._owns_worker = worker is None
        variables, box, policy = concretization.variables, concretization.box, concretization.policy
        shared: dict[str, Any] = {"box": box, "seed": seed, "worker": self._worker}
        self._any = make_solver("z3", one_label(), variables, cases="none", **shared)
        self._relaxed: SolverBackend | None = None
        self._exact: SolverBackend | None = None
        if policy is not None and configuration.relaxed is not None:
            self._relaxed = make_solver(configuration.relaxed, policy, variables, **shared)
        if policy is not None and configuration.exact is not None:
            options = {**configuration.exact_options, **shared}
            self._exact = make_solver(configuration.exact, policy, variables, **options)

    def close(self) -> None:
        if self._owns_worker:
            self._worker.close()

    # Selection: lines 2 and 3

    def is_select_relaxed(self, area: Areas, output: int) -> bool:
        if not self.configuration.relaxed_selection:
            return True
        return self._chosen("relaxed_selection_tests", self._relaxed, area, output) != IMPOSSIBLE

    def is_select(self, area: Areas, output: int) -> bool:
        if not self.configuration.selection:
            return True
        return self._chosen("selection_tests", self._exact, area, output) != IMPOSSIBLE

    # Applicability: lines 5 to 7

    def is_app(self, area: Areas) -> bool:
        return self._satisfiable("applicability_tests", area) != IMPOSSIBLE

    def is_app_policy_relaxed(self, area: Areas, output: int) -> bool:
        if not self.configuration.relaxed_applicability:
            return True
        return self._chosen("relaxed_policy_applicability_tests", self._relaxed, area, output) != IMPOSSIBLE

    def is_app_policy(self, area: Areas, output: int) -> bool:
        if not self.configuration.applicability:
            return True
        return self._chosen("policy_applicability_tests", self._exact, area, output) != IMPOSSIBLE

    # Entailment: line 8

    def is_satisfiable(self, area: Areas) -> bool:
        """One of the small tests that tell which predicates are entailed."""
        return self._satisfiable("entailment_tests", area) != IMPOSSIBLE

    # Transitions: lines 12 to 14.  The answer may be UNKNOWN.

    def transition(self, area: Areas) -> int:
        return self._satisfiable("transition_tests", area)

    def transition_policy_relaxed(self, area: Areas, output: int) -> int:
        """POSSIBLE, if its solution happens to be a state: then there is no need for the exact test (section 6.4)."""
        if self._relaxed is None:
            return UNKNOWN
        return self._chosen("relaxed_policy_transition_tests", self._relaxed, area, output)

    def transition_policy(self, area: Areas, output: int) -> int:
        if self._exact is None:
            return UNKNOWN
        return self._chosen("policy_transition_tests", self._exact, area, output)

    # Questions

    def _satisfiable(self, name: str, area: Areas) -> int:
        with self.counts.test(name):
            if not len(area):
                return IMPOSSIBLE
            return self._ask(self._any, area, 0) if area.has_pending[0] else POSSIBLE

    def _chosen(self, name: str, backend: SolverBackend | None, area: Areas, output: int) -> int:
        if output < 0 or backend is None:
            return POSSIBLE
        with self.counts.test(name):
            return self._ask(backend, area, output)

    def _ask(self, backend: SolverBackend, area: Areas, output: int) -> int:
        wanted = np.zeros((1, len(backend.policy.labels)), dtype=np.bool_)
        wanted[0, output] = True
        applicability = None if backend is self._any else self.concretization.applicability
        answers = backend.ask(area.regions(np.arange(1)), wanted, applicability=applicability, budget=self.budget)
        self.budget.check()
        if answers.arithmetic != "real":
            self.arithmetic = answers.arithmetic
        self.counts.add("solver_calls", int(answers.statistics["solver_calls"]))
        return int(answers.status[0, output])
