"""Queries about a network's outputs: "is there an input in a box such that its outputs satisfy this?"

A query is a list of *cases*, each a box of inputs and a disjunction of *clauses*, each clause a
conjunction of linear constraints on outputs.  It is satisfied by (x, y) when in some case x lies in the
box and some clause holds of y.  Everything is rational; strict and non-strict comparisons are kept
apart.  `vnnlib` reads such queries from files, `write_vnnlib` writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, order=True)
class Constraint:
    """`Σ factor · Y_output <= bound`, or `<` when strict; factors are not zero, outputs ascend."""

    terms: tuple[tuple[int, Fraction], ...]
    bound: Fraction
    strict: bool = False

    def holds(self, outputs: Sequence[Fraction]) -> bool:
        value = sum((factor * outputs[index] for index, factor in self.terms), Fraction(0))
        return value < self.bound if self.strict else value <= self.bound


@dataclass(frozen=True, order=True)
class Interval:
    """The values of one input; an open end does not belong to it."""

    lower: Fraction
    upper: Fraction
    lower_open: bool = False
    upper_open: bool = False

    def contains(self, value: Fraction) -> bool:
        above = value > self.lower if self.lower_open else value >= self.lower
        return above and (value < self.upper if self.upper_open else value <= self.upper)


Clause = tuple[Constraint, ...]


@dataclass(frozen=True)
class Case:
    """A box of inputs, and clauses of which one must hold (the empty clause always does)."""

    box: tuple[Interval, ...]
    clauses: tuple[Clause, ...]

    def holds(self, inputs: Sequence[Fraction], outputs: Sequence[Fraction]) -> bool:
        if not all(interval.contains(value) for interval, value in zip(self.box, inputs, strict=True)):
            return False
        return any(all(constraint.holds(outputs) for constraint in clause) for clause in self.clauses)


@dataclass(frozen=True)
class Query:
    """Is there an input such that one of the cases holds?  Without cases there is none."""

    input_size: int
    output_size: int
    cases: tuple[Case, ...]

    def holds(self, inputs: Sequence[Fraction], outputs: Sequence[Fraction]) -> bool:
        return any(case.holds(inputs, outputs) for case in self.cases)


# Writing


def write_vnnlib(query: Query, *, comment: str = "") -> str:
    """The text of a query; reading it gives the same cases."""
    lines = [f"; {line}" for line in comment.splitlines()]
    lines += [f"(declare-const X_{index} Real)" for index in range(query.input_size)]
    lines += [f"(declare-const Y_{index} Real)" for index in range(query.output_size)]
    if len(query.cases) == 1:
        case = query.cases[0]
        lines += [f"(assert {part})" for part in _box_parts(case)]
        if len(case.clauses) == 1:
            lines += [f"(assert {_constraint(constraint)})" for constraint in case.clauses[0]]
        else:
            lines.append(f"(assert (or {' '.join(_conjoined(map(_constraint, clause)) for clause in case.clauses)}))")
    else:
        parts = [
            _conjoined([*_box_parts(case), *map(_constraint, clause)])
            for case in query.cases
            for clause in case.clauses
        ]
        lines.append(f"(assert (or {' '.join(parts)}))" if parts else "(assert (or))")
    return "\n".join(lines) + "\n"


def _conjoined(parts: Iterable[str]) -> str:
    return f"(and {' '.join(parts)})"


def _box_parts(case: Case) -> list[str]:
    parts = []
    for index, interval in enumerate(case.box):
        parts.append(f"({'>' if interval.lower_open else '>='} X_{index} {_number(interval.lower)})")
        parts.append(f"({'<' if interval.upper_open else '<='} X_{index} {_number(interval.upper)})")
    return parts


def _constraint(constraint: Constraint) -> str:
    terms = [f"Y_{index}" if factor == 1 else f"(* {_number(factor)} Y_{index})" for index, factor in constraint.terms]
    left = terms[0] if len(terms) == 1 else f"(+ {' '.join(terms)})"
    return f"({'<' if constraint.strict else '<='} {left} {_number(constraint.bound)})"


def _number(value: Fraction) -> str:
    """A decimal where the value has one, otherwise a quotient."""
    rest, digits = value.denominator, 0
    for factor in (2, 5):
        count = 0
        while rest % factor == 0:
            rest //= factor
            count += 1
        digits = max(digits, count)
    if rest != 1:
        return f"(/ {value.numerator}.0 {value.denominator}.0)"
    scaled = abs(value.numerator) * 10**digits // value.denominator
    text = str(scaled).rjust(digits + 1, "0")
    whole, part = (text[: len(text) - digits], text[len(text) - digits :]) if digits else (text, "0")
    return f"{'-' if value < 0 else ''}{whole}.{part}"
