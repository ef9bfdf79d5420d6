"""Plain evaluation of expressions for the independent checks: rational numbers, one state, no tricks.

This is deliberately not the code that the engines use (`policyproof.model.exact` and the kernels):
whoever checks must not share the code that made the claim.  Irrational functions are computed with
Python's `decimal` at a stated number of digits and returned as an `Interval`; a comparison that the
digits do not settle raises `NotSettled`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, Overflow
from fractions import Fraction
from math import ceil, floor, trunc
from typing import Any

from policyproof.model.expressions import Expression

DIGITS = (40, 160, 640)


class Undefined(Exception):
    """The expression has no value in this state."""


class NotSettled(Exception):
    """More digits are needed, or none are enough."""


@dataclass(frozen=True)
class Interval:
    """An irrational number between two rationals."""

    low: Fraction
    high: Fraction


def value_of(root: Expression, state: Mapping[str, Any]) -> Any:
    """The value of an expression in a state; raises `Undefined` or `NotSettled`."""
    for digits in DIGITS:
        try:
            result = _walk(root, state, digits)
        except NotSettled:
            if digits == DIGITS[-1]:
                raise
            continue
        if isinstance(result, Undefined):
            raise result
        return result
    raise NotSettled


def _walk(root: Expression, state: Mapping[str, Any], digits: int) -> Any:
    """Evaluate bottom-up with a stack; an undefined part is a value until something needs it."""
    done: dict[int, Any] = {}
    stack: list[tuple[Expression, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if node.serial in done:
            continue
        if not ready and node.arguments:
            stack.append((node, True))
            stack.extend((argument, False) for argument in node.arguments)
            continue
        if node.is_variable:
            done[node.serial] = state[node.name]
        elif node.is_constant:
            done[node.serial] = node.exact
        else:
            done[node.serial] = _operate(node, [done[argument.serial] for argument in node.arguments], digits)
    return done[root.serial]


def _operate(node: Expression, inputs: list[Any], digits: int) -> Any:
    operator = node.operator
    if operator in ("∧", "∨", "⇒"):
        return _connect(operator, *inputs)
    if operator == "ite":
        condition, then, otherwise = inputs
        return condition if isinstance(condition, Undefined) else (then if condition else otherwise)
    if operator == "aa":
        index, *elements = inputs
        if isinstance(index, Undefined):
            return index
        return (
            elements[index] if 0 <= index < len(elements) else Undefined(f"index {index} of {len(elements)} elements")
        )
    for value in inputs:
        if isinstance(value, Undefined):
            return value
    if operator in _IRRATIONAL:
        return _irrational(operator, inputs, digits)
    if any(isinstance(value, Interval) for value in inputs):
        return with_intervals(operator, inputs)
    return _rational(operator, inputs)


def _connect(operator: str, left: Any, right: Any) -> Any:
    if operator == "⇒":
        left = left if isinstance(left, Undefined) else not left
    decisive = operator != "∧"
    if left is decisive or right is decisive:
        return decisive
    for value in (left, right):
        if isinstance(value, Undefined):
            return value
    return not decisive


def _rational(operator: str, inputs: list[Any]) -> Any:
    if operator in ("/", "%") and inputs[1] == 0:
        return Undefined("division by zero")
    return _RATIONAL[operator](*inputs)


_RATIONAL: dict[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: Fraction(a) / Fraction(b),
    "%": lambda a, b: a - b * floor(Fraction(a, b)),
    "min": lambda a, b: a if a <= b else b,
    "max": lambda a, b: a if a >= b else b,
    "abs": lambda a: a if a >= 0 else -a,
    "sgn": lambda a: 1 if a > 0 else -1 if a < 0 else 0,
    "floor": floor,
    "ceil": ceil,
    "trc": trunc,
    "¬": lambda a: not a,
    "=": lambda a, b: a == b,
    "≠": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "≤": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    "≥": lambda a, b: a >= b,
}


def as_interval(value: Any) -> Interval:
    return value if isinstance(value, Interval) else Interval(Fraction(value), Fraction(value))


def with_intervals(operator: str, inputs: list[Any]) -> Any:
    """Interval arithmetic; comparisons and roundings must be the same for the whole interval."""
    a, *rest = (as_interval(value) for value in inputs)
    b = rest[0] if rest else a
    if operator in ("+", "-", "*", "/"):
        if operator == "/" and b.low <= 0 <= b.high:
            raise NotSettled
        corners = [_RATIONAL[operator](x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        return Interval(min(corners), max(corners))
    if operator in ("min", "max"):
        function = _RATIONAL[operator]
        return Interval(function(a.low, b.low), function(a.high, b.high))
    if operator == "abs":
        ends = sorted((abs(a.low), abs(a.high)))
        return Interval(Fraction(0) if a.low <= 0 <= a.high else ends[0], ends[1])
    function = _RATIONAL[operator]
    outcomes = {function(x) for x in (a.low, a.high)} if len(inputs) == 1 else _comparison(operator, a, b)
    if len(outcomes) != 1:
        raise NotSettled
    return outcomes.pop()


def _comparison(operator: str, a: Interval, b: Interval) -> set[bool]:
    if operator in ("=", "≠"):
        if a.high < b.low or b.high < a.low:
            return {operator == "≠"}
        return {True, False}
    function = _RATIONAL[operator]
    return {function(x, y) for x in (a.low, a.high) for y in (b.low, b.high)}


# Irrational functions, in decimal arithmetic

_IRRATIONAL = frozenset(
    ["pow", "log", "exp", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "π", "e"]
)


def _irrational(operator: str, inputs: list[Any], digits: int) -> Any:
    if operator == "pow":
        return _power(inputs[0], inputs[1], digits)
    if operator == "log":
        value, base = (as_interval(x) for x in inputs)
        if value.high <= 0 or base.high <= 0 or inputs[1] == 1:
            return Undefined("a logarithm outside its domain")
        return _settle_log(inputs, with_intervals("/", [monotone("ln", value, digits), monotone("ln", base, digits)]))
    if operator in ("π", "e"):
        return _pi(digits) if operator == "π" else monotone("exp", as_interval(1), digits)
    argument = as_interval(inputs[0])
    if operator == "sqrt" and argument.high < 0:
        return Undefined("the square root of a negative number")
    if operator in ("asin", "acos") and (argument.low > 1 or argument.high < -1):
        return Undefined("an inverse sine or cosine outside [-1, 1]")
    if operator in ("exp", "sqrt"):
        return (
            _exact_root(inputs[0], monotone(operator, argument, digits))
            if operator == "sqrt"
            else (Fraction(1) if inputs[0] == 0 else monotone(operator, argument, digits))
        )
    if operator in ("sinh", "cosh", "tanh"):
        grows = monotone("exp", argument, digits)
        falls = with_intervals("/", [1, grows])
        total, difference = with_intervals("+", [grows, falls]), with_intervals("-", [grows, falls])
        if operator == "tanh":
            return Fraction(0) if inputs[0] == 0 else with_intervals("/", [difference, total])
        return with_intervals("/", [total if operator == "cosh" else difference, 2])
    return _circular(operator, inputs[0], argument, digits)


def _settle_log(inputs: list[Any], quotient: Any) -> Any:
    """A logarithm that is an integer is exact."""
    if any(isinstance(value, Interval) for value in inputs):
        return quotient
    nearest = round((quotient.low + quotient.high) / 2)
    exact = abs(nearest) < 10_000 and Fraction(inputs[1]) ** nearest == inputs[0]
    return Fraction(nearest) if exact else quotient


def _exact_root(value: Any, root: Interval) -> Any:
    if not isinstance(value, Interval):
        middle = (root.low + root.high) / 2
        guess = middle.limit_denominator(10**12)
        if guess * guess == value:
            return guess
    return root


def _power(base: Any, exponent: Any, digits: int) -> Any:
    if not isinstance(exponent, Interval) and exponent == floor(exponent):
        count = int(exponent)
        if isinstance(base, Interval):
            result: Any = Fraction(1)
            for _ in range(abs(count)):
                result = with_intervals("*", [result, base])
            return result if count >= 0 else with_intervals("/", [1, result])
        if base == 0 and count < 0:
            return Undefined("a negative power of zero")
        return base**count if count >= 0 and isinstance(base, int) else Fraction(base) ** count
    if not isinstance(base, Interval) and base <= 0:
        return (
            Fraction(0)
            if base == 0 and as_interval(exponent).low > 0
            else Undefined("a broken power of a negative number")
        )
    logarithm = monotone("ln", as_interval(base), digits)
    return monotone("exp", as_interval(with_intervals("*", [exponent, logarithm])), digits)


def monotone(function: str, argument: Interval, digits: int) -> Interval:
    """exp, ln and sqrt are correctly rounded in `decimal`; one unit is added on each side."""
    if function == "ln" and argument.low <= 0:
        raise NotSettled
    if function == "sqrt" and argument.low < 0:
        raise NotSettled
    low = _decimal(argument.low, digits, ROUND_FLOOR)
    high = _decimal(argument.high, digits, ROUND_CEILING)
    context = Context(prec=digits)
    try:
        results = [getattr(context, function)(end) for end in (low, high)]
    except Overflow:
        raise NotSettled from None
    unit = Fraction(1, 10 ** (digits - 2))
    lower, upper = (Fraction(result) for result in results)
    return Interval(lower - abs(lower) * unit, upper + abs(upper) * unit)


def _decimal(value: Fraction, digits: int, rounding: str) -> Decimal:
    context = Context(prec=digits + 5, rounding=rounding)
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


def _pi(digits: int) -> Interval:
    """4 atan(1), by the Gauss formula 48 atan(1/18) + 32 atan(1/57) - 20 atan(1/239)."""
    total = sum(weight * _arc_of_inverse(n, digits + 10) for weight, n in ((48, 18), (32, 57), (-20, 239)))
    unit = Fraction(1, 10**digits)
    return Interval(total - unit, total + unit)


def _arc_of_inverse(n: int, digits: int) -> Fraction:
    scale = 10 ** (digits + 10)
    power, total, k = scale // n, 0, 0
    while power:
        total += (-1) ** k * (power // (2 * k + 1))
        power //= n * n
        k += 1
    return Fraction(total, scale)


def _circular(operator: str, exact: Any, argument: Interval, digits: int) -> Any:
    zero_at = {"sin": 0, "tan": 0, "asin": 0, "atan": 0, "acos": 1}
    if not isinstance(exact, Interval):
        if operator in zero_at and exact == zero_at[operator]:
            return Fraction(0)
        if operator == "cos" and exact == 0:
            return Fraction(1)
    if operator in ("sin", "cos", "tan"):
        return _wave(operator, argument, digits)
    # atan by its derivative's bound: halve the argument until the series converges quickly.
    if operator == "atan":
        return Interval(_arc_tangent(argument.low, digits).low, _arc_tangent(argument.high, digits).high)
    if argument.low < -1 or argument.high > 1:
        raise NotSettled
    ends = []
    for end in (argument.low, argument.high):
        if abs(end) == 1:
            quarter = with_intervals("/", [_pi(digits), 2])
            ends.append(quarter if end > 0 else with_intervals("-", [0, quarter]))
            continue
        root = monotone("sqrt", as_interval(1 - end * end), digits)
        ratio = with_intervals("/", [end, root])
        ends.append(Interval(_arc_tangent(ratio.low, digits).low, _arc_tangent(ratio.high, digits).high))
    arc = Interval(ends[0].low, ends[1].high)
    return arc if operator == "asin" else with_intervals("-", [with_intervals("/", [_pi(digits), 2]), arc])


def _arc_tangent(value: Fraction, digits: int) -> Interval:
    if value < 0:
        positive = _arc_tangent(-value, digits)
        return Interval(-positive.high, -positive.low)
    if value > 1:
        inverse = _arc_tangent(1 / value, digits)
        return _minus(with_intervals("/", [_pi(digits), 2]), inverse)
    x, factor = as_interval(value), 1
    while x.high > Fraction(1, 8):
        root = monotone("sqrt", with_intervals("+", [1, with_intervals("*", [x, x])]), digits + 5)
        x = with_intervals("/", [x, with_intervals("+", [1, root])])
        factor *= 2
    scale = 10 ** (digits + 10)
    ends = []
    for end in (x.low, x.high):
        point = floor(end * scale)
        power, total, k = point, 0, 0
        while power:
            total += (-1) ** k * (power // (2 * k + 1))
            power = power * point // scale * point // scale
            k += 1
        ends.append((Fraction(total - 3 * k - 3, scale), Fraction(total + 3 * k + 3, scale)))
    return Interval(factor * ends[0][0], factor * ends[1][1])


def _minus(a: Interval, b: Interval) -> Interval:
    return Interval(a.low - b.high, a.high - b.low)


def _wave(operator: str, argument: Interval, digits: int) -> Any:
    """sin, cos and tan near the middle of a narrow interval, widened by the interval's width."""
    middle = (argument.low + argument.high) / 2
    width = (argument.high - argument.low) / 2
    if width > Fraction(1, 1000):
        raise NotSettled
    guard = digits + 15 + len(str(abs(floor(middle))))
    circle = _pi(guard)
    turns = round(middle / circle.low / 2)
    reduced = middle - 2 * turns * (circle.low + circle.high) / 2
    error = width + abs(turns) * (circle.high - circle.low) + Fraction(1, 10**digits)
    scale = 10**guard
    x = floor(reduced * scale)
    term, n, sine, cosine = scale, 0, 0, 0
    while term:
        if n % 2:
            sine += term if n % 4 == 1 else -term
        else:
            cosine += term if n % 4 == 0 else -term
        n += 1
        # Truncation towards zero, so that the terms die out.
        term = trunc(Fraction(term * x, n * scale))
    error += Fraction(n * 600 + 10, scale)
    sines = Interval(Fraction(sine, scale) - error, Fraction(sine, scale) + error)
    cosines = Interval(Fraction(cosine, scale) - error, Fraction(cosine, scale) + error)
    if operator == "tan":
        return with_intervals("/", [sines, cosines])
    return sines if operator == "sin" else cosines
