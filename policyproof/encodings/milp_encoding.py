"""Piecewise linear programs as mixed-integer linear programs, for any solver of those.

A ReLU whose argument lies in [l, u], l < 0 < u, gets a binary δ:

    result >= argument,   result >= 0,   result <= argument - l (1 - δ),   result <= u δ

A clause gets a binary for each alternative, one of which is 1; a row of an alternative holds where
its binary is 1 and is loosened by the most that it can be violated elsewhere ("big M", here the
smallest one that intervals give).  The slack is maximised.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from policyproof.encodings.piecewise import Program, Row


@dataclass(eq=False)
class Milp:
    """Maximise column `objective` (-1: any solution) over `low <= Σ coefficient · column <= high`."""

    lower: list[float]
    upper: list[float]
    integer: list[bool]
    objective: int
    columns: list[tuple[int, ...]] = field(default_factory=list)
    coefficients: list[tuple[float, ...]] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)

    def add_column(self, lower: float, upper: float, *, integer: bool = False) -> int:
        self.lower.append(lower)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.lower) - 1

    def add_row(self, columns: tuple[int, ...], coefficients: tuple[float, ...], low: float, high: float) -> None:
        self.columns.append(columns)
        self.coefficients.append(coefficients)
        self.row_lower.append(low)
        self.row_upper.append(high)


def milp_of(program: Program) -> Milp:
    """The program with its ReLUs and clauses spelled out."""
    milp = Milp(list(program.lower), list(program.upper), list(program.integer), program.slack)
    for row in program.rows:
        milp.add_row(row.columns, row.coefficients, row.limit if row.equal else -np.inf, row.limit)
    for relu in program.relus:
        low, high = program.lower[relu.argument], program.upper[relu.argument]
        active = milp.add_column(0.0, 1.0, integer=True)
        milp.add_row((relu.result, relu.argument), (1.0, -1.0), 0.0, np.inf)
        milp.add_row((relu.result, relu.argument, active), (1.0, -1.0, -low), -np.inf, -low)
        milp.add_row((relu.result, active), (1.0, -high), -np.inf, 0.0)
    for clause in program.clauses:
        chosen = [milp.add_column(0.0, 1.0, integer=True) for _ in clause]
        milp.add_row(tuple(chosen), (1.0,) * len(chosen), 1.0, np.inf)
        for binary, alternative in zip(chosen, clause, strict=True):
            for row in alternative:
                _add_conditional(milp, program, row, binary)
    return milp


def _add_conditional(milp: Milp, program: Program, row: Row, binary: int) -> None:
    """The row, where the binary is 1."""
    violation = program.range_of(row.columns, row.coefficients)[1] - row.limit
    if violation > 0:
        milp.add_row((*row.columns, binary), (*row.coefficients, violation), -np.inf, row.limit + violation)
