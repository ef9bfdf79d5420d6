"""A query about outputs as arrays: all its constraints as rows, its clauses as sets of rows, its boxes in floats.

A constraint `Σ factor · Y <= bound` becomes the row `Σ factor · Y - bound`, which must not be positive.
Rows are the bounds' language: floats.  The factors are scaled to integers, which floats hold exactly
(refused where they do not); the offset is rounded down, so that the row is never above the true value:
a row that is positive refutes its constraint.  A strict constraint is refuted by a row that is not
negative.

Boxes are rounded outward, so they contain every input of the query; points are put back inside exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from policyproof.bounds.chain import Chain, Rows, make_rows
from policyproof.encodings.output_query import Case, Constraint, Interval, Query
from policyproof.model.tape import float_above, float_below
from policyproof.policy.network import Floats, Network
from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature

Truths = NDArray[np.bool_]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Clauses:
    """All cases of a query; clauses and rows are numbered through all of them."""

    cases: tuple[Case, ...]
    rows: Rows
    strict: Truths
    """`strict[row]`"""
    members: Truths
    """`members[clause, row]`: does the row belong to the clause?"""
    case_of: Integers
    """`case_of[clause]`"""
    lower: Floats
    """`lower[case, input]` and `upper[case, input]`: the boxes, rounded outward."""
    upper: Floats

    @property
    def alive(self) -> Truths:
        """`alive[case, clause]`: the clauses of every case."""
        return np.asarray(self.case_of[None, :] == np.arange(len(self.cases))[:, None])

    def refuted_rows(self, lower: Floats) -> Truths:
        """`refuted[n, row]` from lower bounds of the rows; NaN refutes nothing."""
        return np.asarray((lower > 0) | (self.strict & (lower >= 0)))

    def refuted(self, rows: Truths) -> Truths:
        """`refuted[n, clause]`: has the clause a refuted row?"""
        return np.asarray((rows.astype(np.float64) @ self.members.T.astype(np.float64)) > 0)

    def excess(self, values: Floats) -> Floats:
        """`excess[n, clause]` from values of the rows: how far the clause is from holding, at most 0 where it does."""
        if not len(self.rows):
            return np.full((len(values), len(self.members)), -np.inf)
        found = np.full((len(values), len(self.members)), -np.inf)
        for clause, rows in enumerate(self.members):
            if rows.any():
                found[:, clause] = values[:, rows].max(axis=1)
        return found

    def values(self, outputs: Floats) -> Floats:
        """The rows, in plain floating-point arithmetic."""
        return np.asarray(outputs @ self.rows.coefficients.T + self.rows.offsets)

    def point_inside(self, case: int, point: Sequence[float]) -> list[Fraction]:
        """The exact input in the box of a case that is nearest to a point."""
        box = self.cases[case].box
        return [_inside(interval, Fraction(value)) for interval, value in zip(box, point, strict=True)]


def compile_clauses(network: Network, chain: Chain, query: Query) -> Clauses:
    """The query as arrays, if it fits the network."""
    for what, asked, given in (
        ("inputs", query.input_size, network.input_size),
        ("outputs", query.output_size, network.output_size),
    ):
        if asked != given:
            raise InvalidInput(f"the property declares {asked} {what}, the network has {given}", where=network.source)
    constraints = sorted({c for case in query.cases for clause in case.clauses for c in clause})
    number = {constraint: row for row, constraint in enumerate(constraints)}
    coefficients = np.zeros((len(constraints), network.output_size))
    offsets = np.zeros(len(constraints))
    unsupported = []
    for row, constraint in enumerate(constraints):
        scale = math.lcm(*(factor.denominator for _, factor in constraint.terms))
        for index, factor in constraint.terms:
            whole = int(factor * scale)
            if not _is_float(whole):
                unsupported.append(Feature(f"a constraint on Y_{index}", f"the factor {factor}, which is no float"))
                continue
            coefficients[row, index] = whole
        offsets[row] = float_below(-constraint.bound * scale)
    if unsupported:
        raise UnsupportedFeature(unsupported)
    clauses = [(case, clause) for case, one in enumerate(query.cases) for clause in one.clauses]
    members = np.zeros((len(clauses), len(constraints)), dtype=np.bool_)
    for position, (_, clause) in enumerate(clauses):
        members[position, [number[constraint] for constraint in clause]] = True
    shape = (len(query.cases), network.input_size)
    return Clauses(
        cases=query.cases,
        rows=make_rows(chain, coefficients, offsets),
        strict=np.array([constraint.strict for constraint in constraints], dtype=np.bool_),
        members=members,
        case_of=np.array([case for case, _ in clauses], dtype=np.int64),
        lower=np.array([float_below(i.lower) for case in query.cases for i in case.box]).reshape(shape),
        upper=np.array([float_above(i.upper) for case in query.cases for i in case.box]).reshape(shape),
    )


def _is_float(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _inside(interval: Interval, value: Fraction) -> Fraction:
    value = min(max(value, interval.lower), interval.upper)
    # From an open end a little inwards: the interval is not empty.
    step = (interval.upper - interval.lower) / (1 << 40)
    if value == interval.lower and interval.lower_open:
        return interval.lower + step
    return interval.upper - step if value == interval.upper and interval.upper_open else value


def fails_surely(constraint: Constraint, ends: Sequence[tuple[Fraction, Fraction]]) -> bool:
    """Does the constraint hold for no outputs between these ends?"""
    least = sum((factor * ends[index][factor < 0] for index, factor in constraint.terms), Fraction(0))
    return least >= constraint.bound if constraint.strict else least > constraint.bound


def holds_surely(constraint: Constraint, ends: Sequence[tuple[Fraction, Fraction]]) -> bool:
    """Does the constraint hold for all outputs between these ends?"""
    greatest = sum((factor * ends[index][factor > 0] for index, factor in constraint.terms), Fraction(0))
    return greatest < constraint.bound if constraint.strict else greatest <= constraint.bound
