"""The exact reading of expressions: one state, rational arithmetic, enclosures where values are irrational.

Semantics: an operator is undefined (None) when an argument is, except that `false ∧ x`,
`true ∨ x` and the branch of an `ite` or the element of an array that is not chosen do not matter.
A comparison of enclosures that overlap is `UNDECIDED`; the whole program is then evaluated
again with more digits, up to `MAXIMAL_PRECISION`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from policyproof.model import arithmetic, enclosures
from policyproof.model.enclosures import Enclosure, Undecided
from policyproof.model.expressions import CONSTANT, TRANSCENDENTAL, VARIABLE, Expression, nodes

Value = bool | int | Fraction | Enclosure | None

PRECISIONS = (64, 128, 256, 512, 1024, 4096)
MAXIMAL_PRECISION = PRECISIONS[-1]


class _Undecided:
    def __repr__(self) -> str:
        return "UNDECIDED"


UNDECIDED = _Undecided()

_ENCLOSED: dict[str, Callable[..., Enclosure | None]] = {
    "exp": enclosures.exponential,
    "sqrt": enclosures.square_root,
    "sin": enclosures.sine,
    "cos": enclosures.cosine,
    "tan": enclosures.tangent,
    "asin": enclosures.arc_sine,
    "acos": enclosures.arc_cosine,
    "atan": enclosures.arc_tangent,
    "sinh": enclosures.hyperbolic_sine,
    "cosh": enclosures.hyperbolic_cosine,
    "tanh": enclosures.hyperbolic_tangent,
}


class ExactProgram:
    """Expressions compiled into a list of steps that evaluates them on one state at a time."""

    def __init__(self, roots: Sequence[Expression]) -> None:
        ordered = nodes(roots)
        position = {node.serial: index for index, node in enumerate(ordered)}
        self._steps = [(node, tuple(position[a.serial] for a in node.arguments)) for node in ordered]
        self._roots = [position[root.serial] for root in roots]
        self._rational = not any(node.operator in TRANSCENDENTAL or node.operator == "pow" for node in ordered)
        self._transcendental = not self._rational

    def __call__(self, valuation: Mapping[str, Any]) -> list[Value]:
        """The values of the roots; None where undefined; raises `Undecided` when no precision settles one."""
        enclosed = self._transcendental or any(isinstance(value, Enclosure) for value in valuation.values())
        for precision in PRECISIONS if enclosed else (0,):
            values = self._run(valuation, precision)
            if not any(value is UNDECIDED for value in values):
                return values
        raise Undecided(f"a comparison is not settled by {MAXIMAL_PRECISION} binary digits")

    def _run(self, valuation: Mapping[str, Any], precision: int) -> list[Any]:
        values: list[Any] = []
        for node, arguments in self._steps:
            operator = node.operator
            if operator == CONSTANT:
                values.append(node.value)
            elif operator == VARIABLE:
                values.append(valuation[node.name])
            else:
                inputs = [values[i] for i in arguments]
                value = apply_exactly(operator, inputs, precision)
                if node.kind == "real" and type(value) is int:
                    value = Fraction(value)
                values.append(value)
        return [values[i] for i in self._roots]


def evaluate(root: Expression, valuation: Mapping[str, Any]) -> Value:
    """The value of one expression on one state."""
    return ExactProgram([root])(valuation)[0]


def apply_exactly(operator: str, inputs: list[Any], precision: int) -> Any:
    """One operator on exact values, `Enclosure`, None (undefined) and `UNDECIDED`."""
    if operator in ("∧", "∨", "⇒"):
        return _connective(operator, *inputs)
    if operator == "ite":
        return _choose(*inputs)
    if operator == "aa":
        return _access(inputs[0], inputs[1:])
    if any(value is None for value in inputs):
        return None
    if any(value is UNDECIDED for value in inputs):
        return UNDECIDED
    try:
        if operator in ("log", "pow") or operator in TRANSCENDENTAL:
            return _transcendental(operator, inputs, precision)
        if any(type(value) is Enclosure for value in inputs):
            return _on_enclosures(operator, inputs, precision)
    except Undecided:
        return UNDECIDED
    return arithmetic.STRICT[operator](*inputs)


def _connective(operator: str, left: Any, right: Any) -> Any:
    if operator == "⇒":
        left = left if left is None or left is UNDECIDED else not left
    absorbing = operator != "∧"
    if left is absorbing or right is absorbing:
        return absorbing
    if left is UNDECIDED or right is UNDECIDED:
        return UNDECIDED
    if left is None or right is None:
        return None
    return not absorbing


def _choose(condition: Any, then: Any, otherwise: Any) -> Any:
    if condition is None:
        return None
    if condition is UNDECIDED:
        return then if _same(then, otherwise) else UNDECIDED
    return then if condition else otherwise


def _access(index: Any, elements: list[Any]) -> Any:
    if index is None or index is UNDECIDED:
        return index
    return elements[index] if 0 <= index < len(elements) else None


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and not isinstance(left, Enclosure) and bool(left == right)


def _on_enclosures(operator: str, inputs: list[Any], precision: int) -> Any:
    pairs = [enclosures.ends(value) for value in inputs]
    if operator == "+":
        return enclosures.add(inputs[0], inputs[1], precision)
    if operator == "-":
        return enclosures.subtract(inputs[0], inputs[1], precision)
    if operator == "*":
        return enclosures.multiply(inputs[0], inputs[1], precision)
    if operator == "/":
        return enclosures.divide(inputs[0], inputs[1], precision)
    if operator in ("min", "max"):
        choose = min if operator == "min" else max
        return Enclosure(choose(pair[0] for pair in pairs), choose(pair[1] for pair in pairs))
    lower, upper = pairs[0]
    if operator == "abs":
        if lower >= 0:
            return inputs[0]
        return Enclosure(-upper, -lower) if upper <= 0 else Enclosure(Fraction(0), max(-lower, upper))
    if operator in ("floor", "ceil", "trc", "sgn"):
        low, high = arithmetic.STRICT[operator](lower), arithmetic.STRICT[operator](upper)
        return low if low == high else UNDECIDED
    return _compare(operator, pairs)


def _compare(operator: str, pairs: list[tuple[Fraction, Fraction]]) -> Any:
    (left_low, left_high), (right_low, right_high) = pairs
    if operator in ("=", "≠"):
        if left_high < right_low or right_high < left_low:
            return operator == "≠"
        return (operator == "=") if left_low == left_high == right_low == right_high else UNDECIDED
    if operator in (">", "≥"):
        left_low, left_high, right_low, right_high = right_low, right_high, left_low, left_high
        operator = "<" if operator == ">" else "≤"
    strict = operator == "<"
    if left_high < right_low or (not strict and left_high == right_low):
        return True
    if left_low > right_high or (strict and left_low == right_high):
        return False
    return UNDECIDED


def _transcendental(operator: str, inputs: list[Any], precision: int) -> Any:
    if operator == "π":
        return enclosures.pi(precision)
    if operator == "e":
        return enclosures.exponential(1, precision)
    if operator == "log":
        return _logarithm(inputs[0], inputs[1], precision)
    if operator == "pow":
        return _power(inputs[0], inputs[1], precision)
    (value,) = inputs
    exact = _exact_case(operator, value)
    return exact if exact is not None else _ENCLOSED[operator](value, precision)


def _exact_case(operator: str, value: Any) -> Fraction | None:
    """The arguments at which these functions are rational and people compare them exactly."""
    if isinstance(value, Enclosure):
        return None
    if value == 0 and operator in ("sin", "tan", "asin", "atan", "sinh", "tanh"):
        return Fraction(0)
    if (value == 0 and operator in ("cos", "exp", "cosh")) or (value == 1 and operator == "sqrt"):
        return Fraction(1)
    if value == 1 and operator == "acos":
        return Fraction(0)
    if operator == "sqrt" and value >= 0:
        value = Fraction(value)
        root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
        return root if root * root == value else None
    return None


def _logarithm(value: Any, base: Any, precision: int) -> Any:
    if not isinstance(value, Enclosure) and not isinstance(base, Enclosure):
        if value <= 0 or base <= 0 or base == 1:
            return None
        exact = arithmetic.exact_logarithm(value, base)
        if exact is not None:
            return Fraction(exact)
    numerator, denominator = (enclosures.logarithm(x, precision) for x in (value, base))
    return None if numerator is None or denominator is None else enclosures.divide(numerator, denominator, precision)


def _power(base: Any, exponent: Any, precision: int) -> Any:
    if not isinstance(exponent, Enclosure) and exponent == int(exponent):
        if isinstance(base, Enclosure):
            return enclosures.integer_power(base, int(exponent), precision)
        return arithmetic.power(base, int(exponent))
    if not isinstance(base, Enclosure) and base == 0:
        return Fraction(0) if enclosures.ends(exponent)[0] > 0 else None
    log = enclosures.logarithm(base, precision)
    return None if log is None else enclosures.exponential(enclosures.multiply(exponent, log, precision), precision)
