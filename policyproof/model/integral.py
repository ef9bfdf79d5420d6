"""Rewriting conditions over rational arithmetic into pure integer arithmetic.

Idea: in a discrete model every real-valued part is a rational function of integers, so it equals
numerator / denominator with two integer expressions.  Comparing two such fractions, or rounding
one, is a question about integers, which kernels answer exactly.  `1 - 0.1 * x > 0` becomes
`10 - x > 0`.

Invariant: the result has the value of the original wherever the original is defined.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from policyproof.model.expressions import (
    ONE,
    VARIABLE,
    ZERO,
    Expression,
    apply,
    constant,
    nodes,
    rebuild,
)


@dataclass(frozen=True)
class _Fraction:
    """numerator / denominator, both integer-valued; the denominator is not zero where it matters."""

    numerator: Expression
    denominator: Expression

    @property
    def positive(self) -> bool:
        """Is the denominator known to be positive?"""
        return self.denominator.is_constant and int(self.denominator.exact) > 0


class NotIntegral(Exception):
    """An expression that depends on a real variable or an irrational function."""

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        super().__init__(str(expression))


def integral(roots: Iterable[Expression]) -> list[Expression]:
    """The roots without any real-valued part; a real-valued root becomes `integral_fraction`'s business.

    Raises `NotIntegral` where that is impossible.
    """
    roots = list(roots)
    if not any(node.kind == "real" for node in nodes(roots)):
        return roots
    done: dict[int, Expression | _Fraction] = {}
    for node in nodes(roots):
        done[node.serial] = _rewrite(node, [done[argument.serial] for argument in node.arguments])
    results = [done[root.serial] for root in roots]
    for root, result in zip(roots, results, strict=True):
        if isinstance(result, _Fraction):
            raise NotIntegral(root)
    return [result for result in results if isinstance(result, Expression)]


def _rewrite(node: Expression, arguments: list[Expression | _Fraction]) -> Expression | _Fraction:
    if node.kind == "real":
        return _real(node, arguments)
    if not any(isinstance(argument, _Fraction) for argument in arguments):
        return rebuild(node, tuple(a for a in arguments if isinstance(a, Expression)))
    fractions = [_as_fraction(argument) for argument in arguments]
    if node.kind == "bool":
        return _compare(node.operator, *fractions)
    (argument,) = fractions
    return _round(node.operator, argument)


def _as_fraction(argument: Expression | _Fraction) -> _Fraction:
    return argument if isinstance(argument, _Fraction) else _Fraction(argument, ONE)


def _real(node: Expression, arguments: list[Expression | _Fraction]) -> _Fraction:
    operator = node.operator
    if node.is_constant:
        value = Fraction(node.exact)
        return _Fraction(constant(value.numerator), constant(value.denominator))
    if operator == VARIABLE:
        raise NotIntegral(node)
    if operator in ("ite", "aa"):
        return _choose(operator, arguments)
    fractions = [_as_fraction(argument) for argument in arguments]
    if operator in ("+", "-"):
        a, b = fractions
        if a.denominator is b.denominator:
            return _Fraction(apply(operator, a.numerator, b.numerator), a.denominator)
        left, right = apply("*", a.numerator, b.denominator), apply("*", b.numerator, a.denominator)
        return _Fraction(apply(operator, left, right), apply("*", a.denominator, b.denominator))
    if operator == "*":
        a, b = fractions
        return _Fraction(apply("*", a.numerator, b.numerator), apply("*", a.denominator, b.denominator))
    if operator == "/":
        a, b = fractions
        numerator = apply("*", a.numerator, b.denominator)
        denominator = apply("*", a.denominator, b.numerator)
        if denominator.is_constant and int(denominator.exact) < 0:
            return _Fraction(apply("-", ZERO, numerator), constant(-int(denominator.exact)))
        return _Fraction(numerator, denominator)
    if operator == "abs":
        (a,) = fractions
        return _Fraction(apply("abs", a.numerator), apply("abs", a.denominator))
    if operator in ("min", "max"):
        a, b = fractions
        first = _compare("≤" if operator == "min" else "≥", a, b)
        return _Fraction(
            apply("ite", first, a.numerator, b.numerator), apply("ite", first, a.denominator, b.denominator)
        )
    if operator == "pow":
        return _power(node, fractions[0])
    raise NotIntegral(node)


def _choose(operator: str, arguments: list[Expression | _Fraction]) -> _Fraction:
    selector = arguments[0]
    if isinstance(selector, _Fraction):
        raise TypeError("a condition or an index is never real-valued")
    fractions = [_as_fraction(argument) for argument in arguments[1:]]
    denominators = {fraction.denominator for fraction in fractions}
    if all(fraction.positive for fraction in fractions) and len(denominators) > 1:
        common = 1
        for fraction in fractions:
            common *= int(fraction.denominator.exact)
        fractions = [
            _Fraction(apply("*", f.numerator, constant(common // int(f.denominator.exact))), constant(common))
            for f in fractions
        ]
        denominators = {constant(common)}
    numerator = apply(operator, selector, *(fraction.numerator for fraction in fractions))
    if len(denominators) == 1:
        return _Fraction(numerator, fractions[0].denominator)
    return _Fraction(numerator, apply(operator, selector, *(fraction.denominator for fraction in fractions)))


def _power(node: Expression, base: _Fraction) -> _Fraction:
    exponent = node.arguments[1]
    if not exponent.is_constant or Fraction(exponent.exact).denominator != 1:
        raise NotIntegral(node)
    n = int(exponent.exact)
    if n < 0:
        base, n = _Fraction(base.denominator, base.numerator), -n
    return _Fraction(apply("pow", base.numerator, constant(n)), apply("pow", base.denominator, constant(n)))


def _compare(operator: str, a: _Fraction, b: _Fraction) -> Expression:
    if a.denominator is b.denominator and a.positive:
        return apply(operator, a.numerator, b.numerator)
    left, right = apply("*", a.numerator, b.denominator), apply("*", b.numerator, a.denominator)
    if operator in ("=", "≠") or (a.positive and b.positive):
        return apply(operator, left, right)
    # Multiplying by a negative product of denominators turns the comparison round.
    product = apply("*", a.denominator, b.denominator)
    return apply(operator, apply("*", apply("-", left, right), apply("sgn", product)), ZERO)


def _round(operator: str, a: _Fraction) -> Expression:
    floor = apply("floor", apply("/", a.numerator, a.denominator))
    if operator == "floor":
        return floor
    ceiling = apply("-", ZERO, apply("floor", apply("/", apply("-", ZERO, a.numerator), a.denominator)))
    if operator == "ceil":
        return ceiling
    signs = apply("*", apply("sgn", a.numerator), apply("sgn", a.denominator))
    if operator == "sgn":
        return signs
    return apply("ite", apply("≤", ZERO, signs), floor, ceiling)


def is_integral(root: Expression) -> bool:
    """Can this be computed in integers, exactly?"""
    if root.kind == "real":
        return False
    try:
        integral([root])
    except NotIntegral:
        return False
    return True
