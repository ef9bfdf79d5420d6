"""What the child process does for the Marabou back ends: one query, or the bounds that Marabou derives."""

from __future__ import annotations

import math
from typing import Any

from policyproof.encodings.marabou_encoding import query_of
from policyproof.encodings.piecewise import Program
from policyproof.oracle.milp_solvers import FloatSolution


def solve_with_marabou(program: Program, seconds: float | None) -> FloatSolution:
    """Any solution of the program's rows and ReLUs with whole numbers relaxed; runs in the child."""
    from maraboupy import MarabouCore

    outcome, values, _ = _run(MarabouCore.solve, MarabouCore, program, seconds)
    if outcome == "unsat":
        return FloatSolution("unsat")
    if outcome == "sat":
        return FloatSolution("sat", tuple(values[column] for column in range(len(program.lower))))
    return FloatSolution("unknown", reason=f"Marabou: {outcome}")


def bounds_by_marabou(program: Program) -> list[tuple[float, float]] | None:
    """What Marabou's bound propagation leaves of every column; None: nothing at all is feasible."""
    from maraboupy import MarabouCore

    outcome, bounds, _ = _run(MarabouCore.calculateBounds, MarabouCore, program, None)
    if outcome == "unsat":
        return None
    if not bounds:
        return list(zip(program.lower, program.upper, strict=True))
    return [bounds[column] for column in range(len(program.lower))]


def _run(function: Any, core: Any, program: Program, seconds: float | None) -> Any:
    try:
        return function(query_of(program, core), _options(core, seconds))
    except IndexError:
        # Marabou 2.0 does this when its preprocessing removes all inputs of the network.
        return function(query_of(program, core, inputs=False), _options(core, seconds))


def _options(core: Any, seconds: float | None) -> Any:
    options = core.Options()
    options._verbosity = 0
    options._numWorkers = 1
    options._numBlasThreads = 1
    # The parent ends this process at its deadline; this is for a parent that is gone.
    options._timeoutInSeconds = 0 if seconds is None else math.ceil(seconds) + 1
    return options
