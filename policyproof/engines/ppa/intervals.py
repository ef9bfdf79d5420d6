"""Conditions that say of one integer variable that it lies in an interval, or outside it.

Nearly all predicates and guards are of this kind (`v >= c`, `v = c`, a truth value), and they stay of it
when an update sets the variable or adds a constant to it.  They are read off the expression, and whole
arrays of them are then compared with whole arrays of boxes, without anything being compiled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from policyproof.model.expressions import CONSTANT, VARIABLE, Expression

FAR = 1 << 62
"""Beyond every integer of a domain."""
DEPTH = 16
"""How deep an expression is looked into."""


@dataclass(frozen=True)
class Interval:
    """`lower <= variable <= upper`, or (`inside` is false) the contrary; no variable: true, or false."""

    variable: str | None
    lower: int
    upper: int
    inside: bool = True


@dataclass(frozen=True)
class _Line:
    """slope · variable + constant"""

    variable: str | None
    slope: Fraction
    constant: Fraction


def interval_of(condition: Expression) -> Interval | None:
    """The interval that a condition stands for, if it is of this kind; such a condition is defined everywhere."""
    inside = True
    while condition.operator == "¬":
        condition, inside = condition.arguments[0], not inside
    if condition.operator == CONSTANT:
        return Interval(None, -FAR, FAR, inside == bool(condition.exact))
    if condition.operator == VARIABLE:
        return Interval(condition.name, 1, 1, inside)
    if condition.operator not in ("<", "≤", ">", "≥", "=", "≠") or condition.arguments[0].kind == "bool":
        return None
    left, right = (_line(side, DEPTH) for side in condition.arguments)
    line = None if left is None or right is None else _sum(left, right, Fraction(-1))
    found = None if line is None else _compared(condition.operator, line)
    if found is None or inside:
        return found
    return Interval(found.variable, found.lower, found.upper, not found.inside)


def _compared(relation: str, line: _Line) -> Interval | None:
    """`line relation 0`"""
    if relation in (">", "≥"):
        line = _Line(line.variable, -line.slope, -line.constant)
        relation = {">": "<", "≥": "≤"}[relation]
    if line.variable is None:
        # Constants are folded before; what is left here is not worth a rule.
        return None
    end = -line.constant / line.slope
    if relation in ("=", "≠"):
        if end.denominator != 1:
            return Interval(None, -FAR, FAR, relation == "≠")
        return _clipped(line.variable, int(end), int(end), inside=relation == "=")
    if line.slope > 0:
        return _clipped(line.variable, -FAR, math.floor(end) if relation == "≤" else math.ceil(end) - 1)
    return _clipped(line.variable, math.ceil(end) if relation == "≤" else math.floor(end) + 1, FAR)


def _clipped(name: str, lower: int, upper: int, *, inside: bool = True) -> Interval:
    return Interval(name, max(-FAR, min(lower, FAR)), max(-FAR, min(upper, FAR)), inside)


def _line(expression: Expression, depth: int) -> _Line | None:
    if expression.operator == CONSTANT:
        return _Line(None, Fraction(0), Fraction(expression.exact))
    if expression.operator == VARIABLE:
        return _Line(expression.name, Fraction(1), Fraction(0)) if expression.kind == "int" else None
    if expression.operator not in ("+", "-", "*") or depth == 0:
        return None
    left, right = (_line(part, depth - 1) for part in expression.arguments)
    if left is None or right is None:
        return None
    if expression.operator == "*":
        if left.variable is not None:
            left, right = right, left
        return None if left.variable is not None else _sum(_NOTHING, right, left.constant)
    return _sum(left, right, Fraction(1 if expression.operator == "+" else -1))


_NOTHING = _Line(None, Fraction(0), Fraction(0))


def _sum(first: _Line, second: _Line, factor: Fraction) -> _Line | None:
    """first + factor · second, if that has one variable at most."""
    names = {line.variable for line in (first, second) if line.variable is not None}
    if len(names) > 1:
        return None
    slope = first.slope + factor * second.slope
    return _Line(next(iter(names)) if names and slope else None, slope, first.constant + factor * second.constant)
