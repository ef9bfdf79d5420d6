"""Conditions that are unions of boxes: `x = 1 & y = 2 | x = 3 & y <= 5 | ...`, as start conditions often are.

A mixed-integer program says "x is in the union of the boxes [l_i, u_i]" best with one binary b_i for each box:

    b_1 + ... + b_n = 1,    Σ l_i b_i <= x <= Σ u_i b_i    for each variable,

whose relaxation is the convex hull of the union; alternatives with a "big M" are far looser.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from policyproof.model.expressions import Expression, operands

Ends = tuple[Fraction | None, Fraction | None]
_MIRRORED = {"=": "=", "<": ">", "≤": "≥", ">": "<", "≥": "≤"}


def boxes_of(condition: Expression) -> list[Mapping[str, Ends]] | None:
    """The boxes of which a condition is the union, by variable; None if it is not written as one.

    Strict comparisons of reals are relaxed.
    """
    found: list[Mapping[str, Ends]] = []
    for part in operands(condition, "∨"):
        box: dict[str, Ends] = {}
        for comparison in operands(part, "∧"):
            read = _interval(comparison)
            if read is None:
                return None
            name, ends = read
            box[name] = _intersection(box.get(name, (None, None)), ends)
        if not any(low is not None and high is not None and low > high for low, high in box.values()):
            found.append(box)
    return found


def _interval(part: Expression) -> tuple[str, Ends] | None:
    """The variable and its values, if this compares one with a constant."""
    one, zero = Fraction(1), Fraction(0)
    if part.is_variable:
        return part.name, (one, one)
    if part.operator == "¬" and part.arguments[0].is_variable:
        return part.arguments[0].name, (zero, zero)
    operator = part.operator
    if operator not in _MIRRORED:
        return None
    left, right = part.arguments
    if left.is_constant:
        left, right, operator = right, left, _MIRRORED[operator]
    if not left.is_variable or not right.is_constant:
        return None
    value = Fraction(right.exact)
    whole = left.kind != "real"
    if operator == "=":
        return left.name, (value, value)
    if operator in ("<", "≤"):
        end = Fraction(math.ceil(value) - 1 if operator == "<" else math.floor(value)) if whole else value
        return left.name, (None, end)
    end = Fraction(math.floor(value) + 1 if operator == ">" else math.ceil(value)) if whole else value
    return left.name, (end, None)


def _intersection(first: Ends, second: Ends) -> Ends:
    lows = [end for end in (first[0], second[0]) if end is not None]
    highs = [end for end in (first[1], second[1]) if end is not None]
    return max(lows, default=None), min(highs, default=None)
