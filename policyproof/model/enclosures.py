"""Intervals of rational numbers that provably contain the values of real functions.

Idea: where a value is irrational (sin, exp, sqrt, ...) it is represented by an interval whose
ends are rationals with `precision` binary digits after the point; asking again with a higher
precision gives a narrower interval.  Everything is computed on integers scaled by
`2 ** precision`, so the only errors are truncations, and each is counted.

Invariant: the exact real value lies in [lower, upper], ends included.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

GUARD = 24
"""Extra binary digits carried inside a function, so that counted errors stay below the last digit."""

MAXIMAL_EXPONENT = 1 << 14
"""exp of anything larger is not computed; it is reported as undecided."""


class Undecided(ArithmeticError):
    """The precision at hand does not settle the question."""


@dataclass(frozen=True)
class Enclosure:
    """A real number known to lie in [lower, upper]."""

    lower: Fraction
    upper: Fraction

    def __post_init__(self) -> None:
        if self.lower > self.upper:
            raise ValueError(f"empty enclosure [{self.lower}, {self.upper}]")


Number = int | Fraction | Enclosure


def ends(value: Number) -> tuple[Fraction, Fraction]:
    return (value.lower, value.upper) if isinstance(value, Enclosure) else (Fraction(value), Fraction(value))


def round_outward(lower: Fraction, upper: Fraction, precision: int) -> Enclosure:
    """The enclosure with its ends moved outward to multiples of `2 ** -precision` (keeps numbers short)."""
    scale = 1 << precision
    return Enclosure(Fraction(math.floor(lower * scale), scale), Fraction(math.ceil(upper * scale), scale))


def add(a: Number, b: Number, precision: int) -> Enclosure:
    (la, ua), (lb, ub) = ends(a), ends(b)
    return round_outward(la + lb, ua + ub, precision)


def subtract(a: Number, b: Number, precision: int) -> Enclosure:
    (la, ua), (lb, ub) = ends(a), ends(b)
    return round_outward(la - ub, ua - lb, precision)


def multiply(a: Number, b: Number, precision: int) -> Enclosure:
    (la, ua), (lb, ub) = ends(a), ends(b)
    products = (la * lb, la * ub, ua * lb, ua * ub)
    return round_outward(min(products), max(products), precision)


def divide(a: Number, b: Number, precision: int) -> Enclosure | None:
    """None where the divisor is exactly zero; `Undecided` where it may be zero."""
    (la, ua), (lb, ub) = ends(a), ends(b)
    if lb <= 0 <= ub:
        if lb == ub:
            return None
        raise Undecided("a divisor that may be zero")
    quotients = (la / lb, la / ub, ua / lb, ua / ub)
    return round_outward(min(quotients), max(quotients), precision)


def integer_power(base: Number, exponent: int, precision: int) -> Enclosure | None:
    lower, upper = ends(base)
    if exponent < 0:
        power = integer_power(base, -exponent, precision)
        return None if power is None else divide(1, power, precision)
    candidates = [lower**exponent, upper**exponent]
    if exponent % 2 == 0 and exponent > 0 and lower < 0 < upper:
        candidates.append(Fraction(0))
    return round_outward(min(candidates), max(candidates), precision)


def increasing(
    function: Callable[[Fraction, int], tuple[Fraction, Fraction]], value: Number, precision: int
) -> Enclosure:
    """The image of an interval under an increasing function, from the function at its two ends."""
    lower, upper = ends(value)
    low = function(lower, precision)
    high = low if lower == upper else function(upper, precision)
    return Enclosure(low[0], high[1])


def _scaled(value: Fraction, bits: int) -> int:
    """floor(value * 2**bits); the truncation error is below one unit."""
    return (value.numerator << bits) // value.denominator


@lru_cache(maxsize=64)
def _pi_scaled(bits: int) -> int:
    """π * 2**bits, wrong by less than 2**6 units: Machin's formula 16 atan(1/5) - 4 atan(1/239)."""

    def inverse_tangent(divisor: int) -> int:
        term = (1 << bits) // divisor
        total, n, square = term, 1, divisor * divisor
        while term:
            term //= -square
            n += 2
            total += term // n
        return total

    extra_safe: int = 16 * inverse_tangent(5) - 4 * inverse_tangent(239)
    return extra_safe


def pi(precision: int) -> Enclosure:
    # Machin's sums have fewer than `bits` terms, each wrong by under two units, times 16 + 4.
    bits = precision + GUARD
    error = 40 * bits
    value = _pi_scaled(bits)
    return Enclosure(Fraction(value - error, 1 << bits), Fraction(value + error, 1 << bits))


def _sine_and_cosine(value: Fraction, precision: int) -> tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction]]:
    """Enclosures of sin and cos at a rational point, by reduction to [-π/4, π/4] and Taylor's series."""
    magnitude = max(0, abs(value).numerator.bit_length() - value.denominator.bit_length() + 1)
    bits = precision + GUARD + magnitude
    half_pi = _pi_scaled(bits) // 2
    point = _scaled(value, bits)
    quarter = (2 * point + half_pi) // (2 * half_pi)
    reduced = point - quarter * half_pi
    # |reduced - true| <= 1 (truncation of the point) + |quarter| * (error of π/2).
    error = 2 + (abs(quarter) + 1) * (20 * bits + 1)
    sine = cosine = 0
    term, n = 1 << bits, 0
    terms = 0
    while term:
        if n % 2 == 0:
            cosine += term if n % 4 == 0 else -term
        else:
            sine += term if n % 4 == 1 else -term
        n += 1
        terms += 1
        term = (term * reduced) // (n << bits)
        if term == -1:
            term = 0
    # Each term is wrong by at most `terms` units (|reduced| < 1, so errors do not grow); the tail by one more.
    error += terms * terms + 2
    unit = Fraction(1, 1 << bits)
    sine_ends = ((sine - error) * unit, (sine + error) * unit)
    cosine_ends = ((cosine - error) * unit, (cosine + error) * unit)
    rotations = {
        0: (sine_ends, cosine_ends),
        1: (cosine_ends, _negate(sine_ends)),
        2: (_negate(sine_ends), _negate(cosine_ends)),
        3: (_negate(cosine_ends), sine_ends),
    }
    return rotations[quarter % 4]


def _negate(pair: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    return -pair[1], -pair[0]


def _clamp(pair: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    return max(pair[0], Fraction(-1)), min(pair[1], Fraction(1))


def sine(value: Number, precision: int) -> Enclosure:
    lower, upper = ends(value)
    if lower == upper:
        return Enclosure(*_clamp(_sine_and_cosine(lower, precision)[0]))
    return _wave(lower, upper, precision, index=0)


def cosine(value: Number, precision: int) -> Enclosure:
    lower, upper = ends(value)
    if lower == upper:
        return Enclosure(*_clamp(_sine_and_cosine(lower, precision)[1]))
    return _wave(lower, upper, precision, index=1)


def _wave(lower: Fraction, upper: Fraction, precision: int, *, index: int) -> Enclosure:
    """sin (index 0) or cos (index 1) over an interval: its ends, and ±1 where a crest may lie inside."""
    circle = pi(precision)
    if upper - lower >= 2 * circle.lower:
        return Enclosure(Fraction(-1), Fraction(1))
    at_lower = _clamp(_sine_and_cosine(lower, precision)[index])
    at_upper = _clamp(_sine_and_cosine(upper, precision)[index])
    low, high = min(at_lower[0], at_upper[0]), max(at_lower[1], at_upper[1])
    # Crests of sin lie at π/2 + k π, crests of cos at k π; even k is a maximum.
    shift = Fraction(1, 2) if index == 0 else Fraction(0)
    first = math.floor(lower / circle.upper - shift) - 1
    last = math.ceil(upper / circle.lower - shift) + 1
    if lower < 0:
        first = math.floor(lower / circle.lower - shift) - 1
    for k in range(first, last + 1):
        crest = (shift + k) * circle.lower, (shift + k) * circle.upper
        if max(crest) >= lower and min(crest) <= upper:
            if k % 2 == 0:
                high = Fraction(1)
            else:
                low = Fraction(-1)
    return Enclosure(low, high)


def tangent(value: Number, precision: int) -> Enclosure:
    lower, upper = ends(value)
    if lower != upper:
        cosines = cosine(value, precision)
        if cosines.lower <= 0 <= cosines.upper:
            raise Undecided("tan near one of its poles")
        sines = sine(value, precision)
        quotient = divide(sines, cosines, precision)
    else:
        sine_ends, cosine_ends = _sine_and_cosine(lower, precision)
        quotient = divide(Enclosure(*sine_ends), Enclosure(*cosine_ends), precision)
    if quotient is None:
        raise Undecided("tan near one of its poles")
    return quotient


@lru_cache(maxsize=64)
def _log2_scaled(bits: int) -> int:
    """log(2) * 2**bits, wrong by less than `bits` units: 2 atanh(1/3)."""
    term = (2 << bits) // 3
    total, n = term, 1
    while term:
        term //= 9
        n += 2
        total += term // n
    return total


def _exponential(value: Fraction, precision: int) -> tuple[Fraction, Fraction]:
    if value > MAXIMAL_EXPONENT:
        raise Undecided("exp of a number above 16384")
    if value < -MAXIMAL_EXPONENT:
        return Fraction(0), Fraction(1, 1 << precision)
    bits = precision + GUARD + max(0, math.ceil(value * Fraction(3, 2))) + abs(value).__ceil__().bit_length()
    log2 = _log2_scaled(bits)
    point = _scaled(value, bits)
    k = (2 * point + log2) // (2 * log2)
    reduced = point - k * log2
    error = 2 + (abs(k) + 1) * (bits + 1)
    total, term, n = 0, 1 << bits, 0
    while term:
        total += term
        n += 1
        term = (term * reduced) // (n << bits)
        if term == -1:
            term = 0
    # exp is at most 2 on the reduced range, so an error of the argument at most doubles.
    error = 2 * error + 2 * n * n + 2
    scale = Fraction(2) ** k / (1 << bits)
    return max(Fraction(0), (total - error) * scale), (total + error) * scale


def exponential(value: Number, precision: int) -> Enclosure:
    return increasing(_exponential, value, precision)


def _logarithm(value: Fraction, precision: int) -> tuple[Fraction, Fraction]:
    k = value.numerator.bit_length() - value.denominator.bit_length()
    bits = precision + GUARD + abs(k).bit_length()
    mantissa = value / Fraction(2) ** k
    # atanh(z) with z = (m - 1) / (m + 1), |z| <= 1/3 as m is in [1/2, 2].
    z = _scaled((mantissa - 1) / (mantissa + 1), bits)
    square = (z * z) >> bits
    term, total, n = z, z, 1
    while term not in (0, -1):
        term = (term * square) >> bits
        n += 2
        total += term // n
    error = (abs(k) + 1) * bits + 4 * n + 8
    result = 2 * total + k * _log2_scaled(bits)
    unit = Fraction(1, 1 << bits)
    return (result - error) * unit, (result + error) * unit


def logarithm(value: Number, precision: int) -> Enclosure | None:
    """The natural logarithm; None where the argument is not positive."""
    lower, upper = ends(value)
    if upper <= 0:
        return None
    if lower <= 0:
        raise Undecided("a logarithm of a number that may be zero")
    return increasing(_logarithm, value, precision)


def _square_root(value: Fraction, precision: int) -> tuple[Fraction, Fraction]:
    bits = precision + GUARD
    scaled = (value.numerator << (2 * bits)) // value.denominator
    root = math.isqrt(scaled)
    exact = root * root * value.denominator == value.numerator << (2 * bits)
    return Fraction(root, 1 << bits), Fraction(root + (0 if exact else 1), 1 << bits)


def square_root(value: Number, precision: int) -> Enclosure | None:
    lower, upper = ends(value)
    if upper < 0:
        return None
    if lower < 0:
        raise Undecided("a square root of a number that may be negative")
    return increasing(_square_root, value, precision)


def _arc_tangent(value: Fraction, precision: int) -> tuple[Fraction, Fraction]:
    if value < 0:
        low, high = _arc_tangent(-value, precision)
        return -high, -low
    if value > 1:
        low, high = _arc_tangent(1 / value, precision)
        quarter = pi(precision)
        return quarter.lower / 2 - high, quarter.upper / 2 - low
    bits = precision + GUARD
    # Three halvings atan(x) = 2 atan(x / (1 + sqrt(1 + x^2))) bring x below 0.1.
    low = high = value
    for _ in range(3):
        low = low / (1 + _square_root(1 + low * low, bits)[1])
        high = high / (1 + _square_root(1 + high * high, bits)[0])
        box = round_outward(low, high, bits)
        low, high = max(Fraction(0), box.lower), box.upper

    def series(point: Fraction) -> tuple[int, int]:
        z = _scaled(point, bits)
        square = (z * z) >> bits
        term, total, n = z, z, 1
        sign = -1
        while term:
            term = (term * square) >> bits
            n += 2
            total += sign * (term // n)
            sign = -sign
        return total - 2 * n - 4, total + 2 * n + 4

    unit = Fraction(8, 1 << bits)
    return series(low)[0] * unit, series(high)[1] * unit


def arc_tangent(value: Number, precision: int) -> Enclosure:
    return increasing(_arc_tangent, value, precision)


def _arc_sine(value: Fraction, precision: int) -> tuple[Fraction, Fraction]:
    if abs(value) == 1:
        quarter = pi(precision)
        half = (quarter.lower / 2, quarter.upper / 2)
        return half if value == 1 else (-half[1], -half[0])
    # The root may be tiny near ±1: precision grows until it is bounded away from zero.
    bits = precision + GUARD
    root_low, root_high = _square_root(1 - value * value, bits)
    while root_low == 0:
        bits *= 2
        root_low, root_high = _square_root(1 - value * value, bits)
    quotients = (value / root_low, value / root_high)
    return _arc_tangent(min(quotients), precision)[0], _arc_tangent(max(quotients), precision)[1]


def arc_sine(value: Number, precision: int) -> Enclosure | None:
    lower, upper = ends(value)
    if lower > 1 or upper < -1:
        return None
    if lower < -1 or upper > 1:
        raise Undecided("asin of a number that may lie outside [-1, 1]")
    return increasing(_arc_sine, value, precision)


def arc_cosine(value: Number, precision: int) -> Enclosure | None:
    arc = arc_sine(value, precision)
    if arc is None:
        return None
    circle = pi(precision)
    return Enclosure(circle.lower / 2 - arc.upper, circle.upper / 2 - arc.lower)


def hyperbolic_sine(value: Number, precision: int) -> Enclosure:
    def at(point: Fraction, digits: int) -> tuple[Fraction, Fraction]:
        grows, falls = _exponential(point, digits), _exponential(-point, digits)
        return (grows[0] - falls[1]) / 2, (grows[1] - falls[0]) / 2

    return increasing(at, value, precision)


def hyperbolic_cosine(value: Number, precision: int) -> Enclosure:
    def at(point: Fraction, digits: int) -> tuple[Fraction, Fraction]:
        grows, falls = _exponential(point, digits), _exponential(-point, digits)
        return (grows[0] + falls[0]) / 2, (grows[1] + falls[1]) / 2

    lower, upper = ends(value)
    pieces = [at(lower, precision), at(upper, precision)]
    low = Fraction(1) if lower <= 0 <= upper else min(piece[0] for piece in pieces)
    return Enclosure(max(low, Fraction(1)), max(piece[1] for piece in pieces))


def _logistic(value: Fraction, precision: int) -> tuple[Fraction, Fraction]:
    """1 / (1 + exp(-x)), by the branch whose exponential is at most one."""
    if value >= 0:
        low, high = _exponential(-value, precision)
        return 1 / (1 + high), 1 / (1 + low)
    low, high = _exponential(value, precision)
    return low / (1 + low), high / (1 + high)


def logistic(value: Number, precision: int) -> Enclosure:
    return increasing(_logistic, value, precision)


def hyperbolic_tangent(value: Number, precision: int) -> Enclosure:
    def at(point: Fraction, digits: int) -> tuple[Fraction, Fraction]:
        low, high = _logistic(2 * point, digits + 1)
        return 2 * low - 1, 2 * high - 1

    return increasing(at, value, precision)
