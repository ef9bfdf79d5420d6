"""What each operator means on exact values: `bool`, `int` and `Fraction`.

Every function returns None where the operator is undefined (division by zero, a remainder by
zero, a negative power of zero, ...).  The transcendental functions have no exact values at most
arguments; they are evaluated as enclosures (`policyproof.model.enclosures`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from policyproof.run.errors import InvalidInput

Exact = bool | int | Fraction

MAXIMAL_BITS = 1 << 16
"""Powers with more bits than this are refused, since a hostile file could ask for any size."""


def power(base: int | Fraction, exponent: int | Fraction) -> int | Fraction | None:
    """`base ** exponent` for an integral exponent; None where undefined."""
    integral = int(exponent)
    if integral != exponent:
        raise ValueError("power needs an integral exponent")
    if base == 0 and integral < 0:
        return None
    size = max(abs(base.numerator), base.denominator).bit_length() * abs(integral)
    if base not in (0, 1, -1) and size > MAXIMAL_BITS:
        raise InvalidInput(f"the power ({_short(base)}) ^ ({_short(exponent)}) has more than {MAXIMAL_BITS} bits")
    result = Fraction(base) ** integral
    return int(result) if isinstance(base, int) and integral >= 0 else result


def bit_length(value: int | Fraction) -> int:
    """How many bits numerator and denominator need, whichever needs more."""
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _short(value: int | Fraction) -> str:
    """A number for a message; Python refuses to write numbers of thousands of digits."""
    return str(value) if bit_length(value) <= 256 else f"a number of {bit_length(value)} bits"


def divide(left: int | Fraction, right: int | Fraction) -> Fraction | None:
    return None if right == 0 else Fraction(left) / Fraction(right)


def remainder(left: int, right: int) -> int | None:
    """`left - right * floor(left / right)`: the sign follows the divisor, as in JANI and Python."""
    return None if right == 0 else left % right


def sign(value: int | Fraction) -> int:
    return (value > 0) - (value < 0)


def exact_logarithm(value: int | Fraction, base: int | Fraction) -> int | None:
    """The integer k with `base ** k == value`, if there is one (value > 0, 0 < base != 1)."""
    if value == 1:
        return 0
    if base < 1:
        inverse = exact_logarithm(value, 1 / Fraction(base))
        return None if inverse is None else -inverse
    if value < 1:
        inverse = exact_logarithm(1 / Fraction(value), base)
        return None if inverse is None else -inverse
    guess = round((math.log(value.numerator) - math.log(value.denominator)) / _log(base))
    for exponent in (guess - 1, guess, guess + 1):
        if 0 <= exponent <= MAXIMAL_BITS and power(base, exponent) == value:
            return exponent
    return None


def _log(value: int | Fraction) -> float:
    # log1p keeps bases very near 1 from becoming 0.
    return math.log1p(float(value - 1)) if value < 2 else math.log(value.numerator) - math.log(value.denominator)


STRICT: dict[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": divide,
    "%": remainder,
    "min": min,
    "max": max,
    "abs": abs,
    "sgn": sign,
    "floor": math.floor,
    "ceil": math.ceil,
    "trc": math.trunc,
    "=": lambda a, b: a == b,
    "≠": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "≤": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    "≥": lambda a, b: a >= b,
    "¬": lambda a: not a,
}
"""Operators that are undefined as soon as one argument is; ∧, ∨, ⇒, ite and aa are not among them."""
