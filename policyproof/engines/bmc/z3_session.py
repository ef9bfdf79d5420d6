"""What the child process does for bounded model checking with Z3: stages are added, lengths are checked.

The child keeps the stages between calls, as one conversation with a solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from policyproof.encodings.paths import Requirement, Stage
from policyproof.oracle.z3_solver import value_in
from policyproof.run.errors import BackendFailure

_sessions: list[_Session] = []
"""The conversation that is going on; at most one."""


@dataclass(frozen=True)
class PathSolution:
    """What Z3 says; `values` by column, and the option that is selected in each stage."""

    outcome: str
    values: dict[str, Any]
    options: tuple[int, ...] = ()
    reason: str = ""


class _Session:
    def __init__(self, seed: int) -> None:
        from policyproof.encodings.z3_paths import Z3Paths

        self.seed = seed
        self.paths = Z3Paths()
        self.terms: list[Any] = []


def begin(seed: int) -> None:
    """Forget everything."""
    _sessions[:] = [_Session(seed)]


def check_length(stages: tuple[Stage, ...], target: tuple[Requirement, ...]) -> PathSolution:
    """Add stages, and look for a path that ends in the target."""
    import z3

    (session,) = _sessions
    paths = session.paths
    try:
        for stage in stages:
            session.terms += paths.stage(stage)
        # A fresh solver for each length: Z3's preprocessing, which it omits for solvers that are
        # extended, is worth more here than what such a solver remembers.
        solver = z3.Solver()
        solver.set("random_seed", session.seed)
        solver.add(session.terms)
        solver.add(paths.target(target))
        result = solver.check()
        if result == z3.unsat:
            return PathSolution("unsat", {})
        if result != z3.sat:
            return PathSolution("unknown", {}, reason=f"Z3: {solver.reason_unknown()}")
        model = solver.model()
        values = {name: value_in(z3, model, variable) for name, variable in paths.encoding.variables.items()}
        options = []
        for selected in paths.selected:
            options.append(next(o for o, term in selected.items() if z3.is_true(model.eval(term, True))))
        return PathSolution("sat", values, tuple(options))
    except z3.Z3Exception as error:
        raise BackendFailure("Z3", str(error)) from None
