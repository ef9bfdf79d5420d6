"""Where is an expression defined?  A Boolean expression that says so.

Idea: kernels compute *total* functions (division by zero gives 0, an array index is clamped, ...)
because a mask beside every value would double their work.  What those values are worth is said
separately by `definedness(e)`, which most expressions have as the constant `true`.

Invariant: wherever `definedness(e)` holds, the total reading of `e` equals its exact reading;
elsewhere the exact reading is undefined.  `definedness(e)` itself is defined everywhere when read
with total operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from policyproof.model.expressions import (
    ONE,
    TRUE,
    ZERO,
    Expression,
    apply,
    conjunction,
    constant,
    disjunction,
    negation,
    nodes,
)

_PARTIAL = frozenset(["/", "%", "pow", "log", "sqrt", "asin", "acos", "aa"])


def definedness(root: Expression) -> Expression:
    """The condition under which `root` has a value."""
    return definedness_of([root])


def definedness_of(roots: Iterable[Expression]) -> Expression:
    """The condition under which all roots have values."""
    roots = list(roots)
    ordered = nodes(roots)
    if not any(node.operator in _PARTIAL for node in ordered):
        return TRUE
    defined: dict[int, Expression] = {}
    for node in ordered:
        defined[node.serial] = _of_node(node, [defined[argument.serial] for argument in node.arguments])
    return conjunction(defined[root.serial] for root in roots)


def _of_node(node: Expression, parts: list[Expression]) -> Expression:
    operator, arguments = node.operator, node.arguments
    if all(part is TRUE for part in parts) and operator not in _PARTIAL:
        return TRUE
    if operator in ("∧", "∨", "⇒"):
        left, right = arguments
        left_decides = negation(left) if operator in ("∧", "⇒") else left
        right_decides = negation(right) if operator == "∧" else right
        return disjunction(
            [
                conjunction(parts),
                conjunction([parts[0], left_decides]),
                conjunction([parts[1], right_decides]),
            ]
        )
    if operator == "ite":
        return conjunction([parts[0], apply("ite", arguments[0], parts[1], parts[2])])
    if operator == "aa":
        return _of_access(arguments, parts)
    return conjunction([*parts, _own_condition(operator, arguments)])


def _of_access(arguments: tuple[Expression, ...], parts: list[Expression]) -> Expression:
    index, count = arguments[0], len(arguments) - 1
    within = conjunction([apply("≤", ZERO, index), apply("<", index, constant(count))])
    elements = parts[1:]
    chosen = TRUE if all(part is TRUE for part in elements) else apply("aa", index, *elements)
    return conjunction([parts[0], within, chosen])


def _own_condition(operator: str, arguments: tuple[Expression, ...]) -> Expression:
    if operator in ("/", "%"):
        return apply("≠", arguments[1], ZERO)
    if operator == "sqrt":
        return apply("≤", ZERO, arguments[0])
    if operator in ("asin", "acos"):
        return conjunction([apply("≤", constant(-1), arguments[0]), apply("≤", arguments[0], ONE)])
    if operator == "log":
        value, base = arguments
        return conjunction([apply("<", ZERO, value), apply("<", ZERO, base), apply("≠", base, ONE)])
    if operator == "pow":
        return _of_power(*arguments)
    return TRUE


def _of_power(base: Expression, exponent: Expression) -> Expression:
    nonzero = apply("≠", base, ZERO)
    whole = disjunction([nonzero, apply("≤", ZERO, exponent)])
    if exponent.kind == "int" or (exponent.is_constant and Fraction(exponent.exact).denominator == 1):
        return whole
    positive = apply("<", ZERO, base)
    zero = conjunction([apply("=", base, ZERO), apply("<", ZERO, exponent)])
    if exponent.is_constant:
        return disjunction([positive, zero])
    integral = apply("=", apply("floor", exponent), exponent)
    return disjunction([positive, zero, conjunction([integral, whole])])
