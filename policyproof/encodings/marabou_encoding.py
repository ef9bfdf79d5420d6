"""Piecewise linear programs as queries of Marabou: bounds, equations and ReLUs.

Marabou knows no whole numbers (the oracle branches around it, as ICAPS22 does) and no objective: any
solution with an admissible slack will do.  Clauses are left out, and branched on as well: Marabou 2.0 has
disjunctions, but did not come to an end on four of them over two equations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from policyproof.encodings.piecewise import Program, Row


def query_of(program: Program, core: Any, *, inputs: bool = True) -> Any:
    """An `InputQuery`; `core` is the module `maraboupy.MarabouCore`.

    `inputs`: mark the state variables as the network's inputs, from where Marabou propagates bounds.
    """
    query = core.InputQuery()
    query.setNumberOfVariables(len(program.lower))
    for column, (low, high) in enumerate(zip(program.lower, program.upper, strict=True)):
        if low > -np.inf:
            query.setLowerBound(column, low)
        if high < np.inf:
            query.setUpperBound(column, high)
    for column in range(program.state_size if inputs else 0):
        query.markInputVariable(column, column)
    for row in program.rows:
        query.addEquation(_equation(core, row))
    for relu in program.relus:
        core.addReluConstraint(query, relu.argument, relu.result)
    return query


def _equation(core: Any, row: Row) -> Any:
    equation = core.Equation(core.Equation.EQ if row.equal else core.Equation.LE)
    for column, coefficient in zip(row.columns, row.coefficients, strict=True):
        equation.addAddend(coefficient, column)
    equation.setScalar(row.limit)
    return equation
