"""What the child process does for the Z3 back end: one question, solved exactly.

A real variable's value is reported as a float64, since states hold those: Z3's own value is rational or
algebraic, so the variables are pinned to floats near it one after the other while a solution is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from policyproof.encodings.question import Question
from policyproof.run.errors import BackendFailure

Outcome = Literal["sat", "unsat", "unknown"]
Value = bool | int | Fraction


@dataclass(frozen=True)
class Solution:
    """What a solver says; `values` by column of the question (fractions where integers are relaxed)."""

    outcome: Outcome
    values: tuple[Value, ...] = ()
    reason: str = ""


def solve_with_z3(question: Question, relaxed: bool, seed: int) -> Solution:
    """Solve one question; runs in the child."""
    import z3

    from policyproof.encodings.z3_encoding import Z3Encoding

    try:
        encoding = Z3Encoding(question, relaxed=relaxed)
        solver = z3.Solver()
        solver.set("random_seed", seed)
        solver.add(encoding.constraints())
        result = solver.check()
        if result == z3.unsat:
            return Solution("unsat")
        if result != z3.sat:
            return Solution("unknown", reason=f"Z3: {solver.reason_unknown()}")
        model = solver.model()
        for column in question.columns:
            if column.kind == "real":
                model = _pinned(z3, solver, encoding.variables[column.name], model)
                if model is None:
                    reason = f"the solutions that Z3 found have no float64 value of {column.name}"
                    return Solution("unknown", reason=reason)
        return Solution("sat", tuple(value_in(z3, model, encoding.variables[c.name]) for c in question.columns))
    except z3.Z3Exception as error:
        raise BackendFailure("Z3", str(error)) from None


def _pinned(z3: Any, solver: Any, variable: Any, model: Any) -> Any:
    """A model in which a real variable is a float64, and the solver committed to that; None if none was found."""
    nearest = _nearest(z3, model.eval(variable, model_completion=True))
    for candidate in (nearest, math.nextafter(nearest, math.inf), math.nextafter(nearest, -math.inf)):
        solver.push()
        solver.add(variable == _exactly(z3, candidate))
        if solver.check() == z3.sat:
            return solver.model()
        solver.pop()
    return None


def _nearest(z3: Any, value: Any) -> float:
    if z3.is_algebraic_value(value):
        value = value.approx(40)
    return float(value.as_fraction())


def _exactly(z3: Any, value: float) -> Any:
    numerator, denominator = value.as_integer_ratio()
    return z3.RealVal(f"{numerator}/{denominator}")


def value_in(z3: Any, model: Any, variable: Any) -> Value:
    """What a variable is in a model, a number without end cut off."""
    value = model.eval(variable, model_completion=True)
    if z3.is_bool(value):
        return bool(z3.is_true(value))
    if z3.is_int_value(value):
        return int(value.as_long())
    if z3.is_algebraic_value(value):
        value = value.approx(40)
    return Fraction(value.as_fraction())
