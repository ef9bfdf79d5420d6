"""What the child process does for the MILP back end: HiGHS, SCIP or Gurobi on the same program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from policyproof.encodings.milp_encoding import Milp, milp_of
from policyproof.encodings.piecewise import Program
from policyproof.oracle.z3_solver import Outcome
from policyproof.run.errors import BackendFailure

FEASIBILITY = 1e-9
INTEGRALITY = 1e-9
"""Tighter than `piecewise.TOLERANCE`, on which the margin rests."""


@dataclass(frozen=True)
class FloatSolution:
    """What a floating-point solver says; `values` by column of the program."""

    outcome: Outcome
    values: tuple[float, ...] = ()
    reason: str = ""


def solve_with_highs(program: Program, seed: int) -> FloatSolution:
    """Runs in the child."""
    import highspy

    milp = milp_of(program)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("random_seed", seed)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("primal_feasibility_tolerance", FEASIBILITY)
    solver.setOptionValue("mip_feasibility_tolerance", INTEGRALITY)
    solver.passModel(_highs_model(highspy, milp))
    if solver.run() == highspy.HighsStatus.kError:
        raise BackendFailure("HiGHS", "it could not solve the program")
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return FloatSolution("unsat")
    if status in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kUnbounded):
        return FloatSolution("sat", tuple(solver.getSolution().col_value))
    return FloatSolution("unknown", reason=f"HiGHS: {solver.modelStatusToString(status)}")


def _highs_model(highspy: Any, milp: Milp) -> Any:
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(milp.lower), len(milp.columns)
    model.col_cost_ = _objective(milp)
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_lower_, model.col_upper_ = np.array(milp.lower), np.array(milp.upper)
    model.row_lower_, model.row_upper_ = np.array(milp.row_lower), np.array(milp.row_upper)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.cumsum([0, *map(len, milp.columns)])
    model.a_matrix_.index_ = np.array([column for row in milp.columns for column in row], dtype=np.int32)
    model.a_matrix_.value_ = np.array([value for row in milp.coefficients for value in row], dtype=np.float64)
    kinds = highspy.HighsVarType
    model.integrality_ = [kinds.kInteger if whole else kinds.kContinuous for whole in milp.integer]
    return model


def _objective(milp: Milp) -> Any:
    cost = np.zeros(len(milp.lower))
    if milp.objective >= 0:
        cost[milp.objective] = 1.0
    return cost


def solve_with_scip(program: Program, seed: int) -> FloatSolution:
    """Runs in the child."""
    from pyscipopt import Model, quicksum

    milp = milp_of(program)
    model = Model()
    model.hideOutput()
    model.setParam("randomization/randomseedshift", seed)
    model.setParam("numerics/feastol", FEASIBILITY)
    columns = [
        model.addVar(lb=_finite(low), ub=_finite(high), vtype="I" if whole else "C")
        for low, high, whole in zip(milp.lower, milp.upper, milp.integer, strict=True)
    ]
    for indices, coefficients, low, high in zip(
        milp.columns, milp.coefficients, milp.row_lower, milp.row_upper, strict=True
    ):
        total = quicksum(factor * columns[index] for index, factor in zip(indices, coefficients, strict=True))
        if low == high:
            model.addCons(total == low)
            continue
        if low > -np.inf:
            model.addCons(total >= low)
        if high < np.inf:
            model.addCons(total <= high)
    if milp.objective >= 0:
        model.setObjective(columns[milp.objective], "maximize")
    model.optimize()
    if model.getStatus() == "infeasible":
        return FloatSolution("unsat")
    if model.getNSols() and model.getStatus() in ("optimal", "unbounded"):
        best = model.getBestSol()
        return FloatSolution("sat", tuple(best[column] for column in columns))
    return FloatSolution("unknown", reason=f"SCIP: {model.getStatus()}")


def _finite(end: float) -> float | None:
    return end if np.isfinite(end) else None


def solve_with_gurobi(program: Program, seed: int) -> FloatSolution:
    """Runs in the child."""
    import gurobipy

    milp = milp_of(program)
    try:
        environment = gurobipy.Env(params={"OutputFlag": 0})
        model = gurobipy.Model(env=environment)
        model.Params.Seed, model.Params.Threads = seed, 1
        model.Params.FeasibilityTol, model.Params.IntFeasTol, model.Params.DualReductions = FEASIBILITY, INTEGRALITY, 0
        columns = model.addVars(
            len(milp.lower),
            lb=milp.lower,
            ub=milp.upper,
            vtype=["I" if whole else "C" for whole in milp.integer],
        )
        for indices, coefficients, low, high in zip(
            milp.columns, milp.coefficients, milp.row_lower, milp.row_upper, strict=True
        ):
            total = gurobipy.LinExpr(list(coefficients), [columns[index] for index in indices])
            if low > -np.inf:
                model.addLConstr(total, ">", low)
            if high < np.inf:
                model.addLConstr(total, "<", high)
        if milp.objective >= 0:
            model.setObjective(columns[milp.objective], gurobipy.GRB.MAXIMIZE)
        model.optimize()
    except gurobipy.GurobiError as error:
        raise BackendFailure("Gurobi", str(error)) from None
    if model.Status == gurobipy.GRB.INFEASIBLE:
        return FloatSolution("unsat")
    if model.SolCount and model.Status in (gurobipy.GRB.OPTIMAL, gurobipy.GRB.UNBOUNDED):
        return FloatSolution("sat", tuple(columns[index].X for index in range(len(milp.lower))))
    return FloatSolution("unknown", reason=f"Gurobi: status {model.Status}")
