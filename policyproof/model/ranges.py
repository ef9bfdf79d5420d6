"""The box reading of expressions in exact arithmetic: what values can an expression take in a box?

This is the plain twin of the box kernel (`policyproof.model.box_kernel`), and the analysis that
simplifies conditions at load time ("can this update leave its domain at all?").  Operators are
read as total functions (see `definedness`); Boolean expressions have the range (False, False),
(False, True) or (True, True).

Invariant: for every state in the box, the total value of the expression lies in its range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from policyproof.model import arithmetic, enclosures
from policyproof.model.enclosures import Enclosure, Undecided
from policyproof.model.expressions import CONSTANT, FALSE, TRUE, VARIABLE, Expression, nodes, rebuild

Bound = Any
"""bool, int, Fraction, or the floats -inf and inf."""

Range = tuple[Bound, Bound]

INFINITY = math.inf
EVERYTHING: Range = (-INFINITY, INFINITY)
UNKNOWN: Range = (False, True)

_PRECISION = 64


def ranges(roots: Iterable[Expression], box: Mapping[str, Range]) -> dict[int, Range]:
    """The ranges of all nodes below the roots, by serial number."""
    found: dict[int, Range] = {}
    for node in nodes(roots):
        if node.operator == CONSTANT:
            found[node.serial] = (node.value, node.value)
        elif node.operator == VARIABLE:
            found[node.serial] = box[node.name]
        else:
            found[node.serial] = range_of(node.operator, [found[a.serial] for a in node.arguments])
    return found


def range_in(root: Expression, box: Mapping[str, Range]) -> Range:
    return ranges([root], box)[root.serial]


def specialise(roots: Iterable[Expression], box: Mapping[str, Range]) -> list[Expression]:
    """The roots with every Boolean part replaced by `true` or `false` that is decided in the box."""
    roots = list(roots)
    found = ranges(roots, box)
    done: dict[int, Expression] = {}
    for node in nodes(roots):
        if node.kind == "bool" and found[node.serial][0] == found[node.serial][1]:
            done[node.serial] = TRUE if found[node.serial][0] else FALSE
        else:
            done[node.serial] = rebuild(node, tuple(done[a.serial] for a in node.arguments))
    return [done[root.serial] for root in roots]


def range_of(operator: str, inputs: list[Range]) -> Range:
    """The range of one operator, from the ranges of its arguments."""
    return _RANGES[operator](operator, *inputs)


def _both(operator: str, a: Range, b: Range) -> Range:
    if operator == "⇒":
        a, operator = _not("¬", a), "∨"
    return (a[0] and b[0], a[1] and b[1]) if operator == "∧" else (a[0] or b[0], a[1] or b[1])


def _not(operator: str, a: Range) -> Range:
    return (not a[1], not a[0])


def _compare(operator: str, a: Range, b: Range) -> Range:
    if operator in (">", "≥"):
        a, b, operator = b, a, "<" if operator == ">" else "≤"
    if operator == "<":
        return (a[1] < b[0], a[0] < b[1])
    return (a[1] <= b[0], a[0] <= b[1])


def _equal(operator: str, a: Range, b: Range) -> Range:
    possible = a[0] <= b[1] and b[0] <= a[1]
    certain = a[0] == a[1] == b[0] == b[1]
    return (certain, possible) if operator == "=" else (not possible, not certain)


def _add(operator: str, a: Range, b: Range) -> Range:
    return (_sum(a[0], b[0]), _sum(a[1], b[1]))


def _subtract(operator: str, a: Range, b: Range) -> Range:
    return (_sum(a[0], _negative(b[1])), _sum(a[1], _negative(b[0])))


def _sum(a: Bound, b: Bound) -> Bound:
    # Fractions must not be turned into floats by adding an infinity.
    if isinstance(a, float):
        return a
    return b if isinstance(b, float) else a + b


def _negative(a: Bound) -> Bound:
    return -a


def _product(a: Bound, b: Bound) -> Bound:
    if a == 0 or b == 0:
        return 0
    if isinstance(a, float) or isinstance(b, float):
        return INFINITY if (a > 0) == (b > 0) else -INFINITY
    return a * b


def _multiply(operator: str, a: Range, b: Range) -> Range:
    products = [_product(x, y) for x in a for y in b]
    return (min(products), max(products))


def _divide(operator: str, a: Range, b: Range) -> Range:
    if b[0] <= 0 <= b[1]:
        # The total reading of a division by zero is zero.
        return (Fraction(0), Fraction(0)) if b[0] == b[1] else EVERYTHING
    reciprocals = tuple(Fraction(0) if isinstance(x, float) else 1 / Fraction(x) for x in b)
    return _multiply("*", a, (min(reciprocals), max(reciprocals)))


def _remainder(operator: str, a: Range, b: Range) -> Range:
    if a[0] == a[1] and b[0] == b[1] and not isinstance(a[0], float):
        value = arithmetic.remainder(a[0], b[0])
        return (0, 0) if value is None else (value, value)
    if b[0] > 0 and a[0] >= 0 and a[1] < b[0]:
        return a
    lowest = 0 if b[0] >= 0 else _sum(b[0], 1)
    highest = 0 if b[1] <= 0 else _sum(b[1], -1)
    return (lowest, highest)


def _extreme(operator: str, a: Range, b: Range) -> Range:
    choose = min if operator == "min" else max
    return (choose(a[0], b[0]), choose(a[1], b[1]))


def _absolute(operator: str, a: Range) -> Range:
    if a[0] >= 0:
        return a
    return (_negative(a[1]), _negative(a[0])) if a[1] <= 0 else (0, max(_negative(a[0]), a[1]))


def _rounding(operator: str, a: Range) -> Range:
    function = arithmetic.STRICT[operator]
    low, high = (x if isinstance(x, float) and operator != "sgn" else function(x) for x in a)
    return (low, high)


def _choice(operator: str, condition: Range, then: Range, otherwise: Range) -> Range:
    if condition[0]:
        return then
    if not condition[1]:
        return otherwise
    return (min(then[0], otherwise[0]), max(then[1], otherwise[1]))


def _access(operator: str, index: Range, *elements: Range) -> Range:
    last = len(elements) - 1
    # The total reading clamps the index.
    first = int(min(max(index[0], 0), last))
    final = int(min(max(index[1], 0), last))
    chosen = elements[first : final + 1]
    return (min(element[0] for element in chosen), max(element[1] for element in chosen))


def _power(operator: str, base: Range, exponent: Range) -> Range:
    if exponent[0] != exponent[1] or isinstance(exponent[0], float) or exponent[0] != int(exponent[0]):
        return EVERYTHING
    n = int(exponent[0])
    if n < 0:
        return _divide("/", (1, 1), _power(operator, base, (-n, -n)))
    ends = [x if isinstance(x, float) and n == 1 else _float_power(x, n) for x in base]
    if n % 2 == 0 and n > 0 and base[0] < 0 < base[1]:
        ends.append(0)
    return (min(ends), max(ends))


def _float_power(value: Bound, exponent: int) -> Bound:
    if isinstance(value, float):
        return 1 if exponent == 0 else (-INFINITY if value < 0 and exponent % 2 else INFINITY)
    return arithmetic.power(value, exponent)


def _enclosed(function: Callable[[Any, int], Enclosure | None], whole: Range) -> Callable[..., Range]:
    def range_of_function(operator: str, a: Range) -> Range:
        if any(isinstance(x, float) for x in a):
            return whole
        try:
            image = function(Enclosure(Fraction(a[0]), Fraction(a[1])), _PRECISION)
        except Undecided:
            return whole
        # Where the function is undefined its total reading is zero.
        return (Fraction(0), Fraction(0)) if image is None else (image.lower, image.upper)

    return range_of_function


def _logarithm(operator: str, value: Range, base: Range) -> Range:
    if any(isinstance(x, float) for x in (*value, *base)) or base[0] <= 1 or value[0] <= 0:
        return EVERYTHING
    upper = enclosures.logarithm(Enclosure(Fraction(value[0]), Fraction(value[1])), _PRECISION)
    lower = enclosures.logarithm(Enclosure(Fraction(base[0]), Fraction(base[1])), _PRECISION)
    if upper is None or lower is None or lower.lower <= 0:
        return EVERYTHING
    return _divide("/", (upper.lower, upper.upper), (lower.lower, lower.upper))


def _irrational(operator: str) -> Range:
    value = enclosures.pi(_PRECISION) if operator == "π" else enclosures.exponential(1, _PRECISION)
    return (value.lower, value.upper)


_UNIT: Range = (Fraction(-1), Fraction(1))
_RANGES: dict[str, Callable[..., Range]] = {
    **dict.fromkeys("∧∨⇒", _both),
    "¬": _not,
    **dict.fromkeys("<≤>≥", _compare),
    **dict.fromkeys("=≠", _equal),
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "%": _remainder,
    **dict.fromkeys(["min", "max"], _extreme),
    "abs": _absolute,
    **dict.fromkeys(["floor", "ceil", "trc", "sgn"], _rounding),
    "ite": _choice,
    "aa": _access,
    "pow": _power,
    "log": _logarithm,
    "exp": _enclosed(enclosures.exponential, (Fraction(0), INFINITY)),
    "sqrt": _enclosed(enclosures.square_root, (Fraction(0), INFINITY)),
    "sin": _enclosed(enclosures.sine, _UNIT),
    "cos": _enclosed(enclosures.cosine, _UNIT),
    "tan": _enclosed(enclosures.tangent, EVERYTHING),
    "asin": _enclosed(enclosures.arc_sine, (Fraction(-2), Fraction(2))),
    "acos": _enclosed(enclosures.arc_cosine, (Fraction(0), Fraction(4))),
    "atan": _enclosed(enclosures.arc_tangent, (Fraction(-2), Fraction(2))),
    "sinh": _enclosed(enclosures.hyperbolic_sine, EVERYTHING),
    "cosh": _enclosed(enclosures.hyperbolic_cosine, (Fraction(0), INFINITY)),
    "tanh": _enclosed(enclosures.hyperbolic_tangent, _UNIT),
    **dict.fromkeys(["π", "e"], _irrational),
}
