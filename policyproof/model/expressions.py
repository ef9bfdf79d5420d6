"""The one expression type of PolicyProof.

Idea: an expression is a node of a directed acyclic graph, and equal expressions are the same
object (they are interned in a table that holds them weakly).  Equality, hashing and sharing cost
nothing; every pass walks the graph with a loop, since published formulas nest thousands of levels.

Invariant: the arguments of a node were created before it, so sorting nodes by `serial` puts
arguments first.  Constants are exact: `bool`, `int`, or `Fraction` for reals.

The operators are those of JANI, under their JANI symbols.  `aa` is the access to an array whose
elements are its arguments after the index; arrays exist nowhere else.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Literal

from policyproof.model import arithmetic
from policyproof.run.errors import InvalidInput

Kind = Literal["bool", "int", "real"]

CONSTANT, VARIABLE = "constant", "variable"

COMPARISONS = frozenset("<≤>≥")
TRANSCENDENTAL = frozenset(
    ["log", "exp", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "π", "e"]
)
"""Functions whose values are irrational almost everywhere (`pow` with a broken exponent is one too)."""


class Expression:
    """A node: `operator` applied to `arguments`, or a constant (`value`) or a variable (`value` is its name)."""

    __slots__ = ("__weakref__", "arguments", "kind", "operator", "serial", "value")

    operator: str
    arguments: tuple[Expression, ...]
    value: bool | int | Fraction | str | None
    kind: Kind
    serial: int

    def __init__(self) -> None:
        raise TypeError("use constant(), variable() or apply()")

    @property
    def is_constant(self) -> bool:
        return self.operator == CONSTANT

    @property
    def is_variable(self) -> bool:
        return self.operator == VARIABLE

    @property
    def exact(self) -> bool | int | Fraction:
        """The value of a constant."""
        if self.operator != CONSTANT or isinstance(self.value, str) or self.value is None:
            raise TypeError(f"{self} is not a constant")
        return self.value

    @property
    def name(self) -> str:
        """The name of a variable."""
        if self.operator != VARIABLE or not isinstance(self.value, str):
            raise TypeError(f"{self} is not a variable")
        return self.value

    def __repr__(self) -> str:
        from policyproof.model.text import format_expression

        return format_expression(self)

    def __reduce__(self) -> tuple[Callable[[list[tuple[str, object, object]]], Expression], tuple[object]]:
        return _rebuild, (_dismantle(self),)

    def __bool__(self) -> bool:
        raise TypeError(f"the expression {self} has no truth value; use .equals() to build comparisons")

    # Arithmetic on expressions, for the modelling API.
    def __add__(self, other: Operand) -> Expression:
        return apply("+", self, lift(other))

    def __radd__(self, other: Operand) -> Expression:
        return apply("+", lift(other), self)

    def __sub__(self, other: Operand) -> Expression:
        return apply("-", self, lift(other))

    def __rsub__(self, other: Operand) -> Expression:
        return apply("-", lift(other), self)

    def __mul__(self, other: Operand) -> Expression:
        return apply("*", self, lift(other))

    def __rmul__(self, other: Operand) -> Expression:
        return apply("*", lift(other), self)

    def __truediv__(self, other: Operand) -> Expression:
        return apply("/", self, lift(other))

    def __rtruediv__(self, other: Operand) -> Expression:
        return apply("/", lift(other), self)

    def __mod__(self, other: Operand) -> Expression:
        return apply("%", self, lift(other))

    def __neg__(self) -> Expression:
        return apply("-", constant(0), self)

    def __lt__(self, other: Operand) -> Expression:
        return apply("<", self, lift(other))

    def __le__(self, other: Operand) -> Expression:
        return apply("≤", self, lift(other))

    def __gt__(self, other: Operand) -> Expression:
        return apply(">", self, lift(other))

    def __ge__(self, other: Operand) -> Expression:
        return apply("≥", self, lift(other))

    def __and__(self, other: Operand) -> Expression:
        return apply("∧", self, lift(other))

    def __or__(self, other: Operand) -> Expression:
        return apply("∨", self, lift(other))

    def __invert__(self) -> Expression:
        return apply("¬", self)

    def equals(self, other: Operand) -> Expression:
        """The comparison `self = other` (the operator `==` compares the expressions themselves)."""
        return apply("=", self, lift(other))

    def differs(self, other: Operand) -> Expression:
        """The comparison `self ≠ other`."""
        return apply("≠", self, lift(other))


Operand = Expression | bool | int | float | Fraction

_Key = tuple[str, Kind, object, tuple[Expression, ...]]
_table: weakref.WeakValueDictionary[_Key, Expression] = weakref.WeakValueDictionary()
_serials = itertools.count()


def _intern(
    operator: str, kind: Kind, value: bool | int | Fraction | str | None, arguments: tuple[Expression, ...]
) -> Expression:
    key = (operator, kind, value, arguments)
    found = _table.get(key)
    if found is not None:
        return found
    node = object.__new__(Expression)
    node.operator, node.arguments, node.value, node.kind = operator, arguments, value, kind
    node.serial = next(_serials)
    _table[key] = node
    return node


def constant(value: bool | int | float | Fraction) -> Expression:
    """A constant; a float means the decimal number as which Python shows it (0.1 is one tenth)."""
    if isinstance(value, bool):
        return _intern(CONSTANT, "bool", value, ())
    if isinstance(value, int):
        return _intern(CONSTANT, "int", value, ())
    return _intern(CONSTANT, "real", decimal(value), ())


def decimal(value: int | float | Fraction) -> Fraction:
    """A number as it is written: the float 0.9 means nine tenths, not the nearest binary fraction."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(f"{value} is no number")
        return Fraction(repr(value))
    return Fraction(value)


TRUE, FALSE = constant(True), constant(False)
ZERO, ONE = constant(0), constant(1)


def variable(name: str, kind: Kind) -> Expression:
    return _intern(VARIABLE, kind, name, ())


def lift(value: Operand) -> Expression:
    """An expression for a Python value, unchanged if it is one already."""
    return value if isinstance(value, Expression) else constant(value)


def apply(operator: str, *arguments: Expression) -> Expression:
    """`operator` applied to `arguments`: checked, with constants folded and trivial cases simplified.

    Simplification never changes where an expression is defined, except that `false ∧ x`,
    `true ∨ x` and a decided `ite` forget the part that cannot matter.
    """
    rule = _RULES.get(operator)
    if rule is None:
        raise InvalidInput(f"unknown operator {operator!r}")
    kind = rule(operator, arguments)
    simpler = _simplify(operator, arguments)
    if simpler is not None:
        return simpler
    function = arithmetic.STRICT.get(operator)
    if function is not None and all(argument.operator == CONSTANT for argument in arguments):
        value = function(*(argument.value for argument in arguments))
        if value is not None:
            # A chain of products doubles the length of numbers with every step.
            if kind != "bool" and arithmetic.bit_length(value) > arithmetic.MAXIMAL_BITS:
                message = f"the value of {operator!r} on constants has more than {arithmetic.MAXIMAL_BITS} bits"
                raise InvalidInput(message)
            return constant(Fraction(value) if kind == "real" else value)
    if operator == "pow" and all(argument.operator == CONSTANT for argument in arguments):
        base, exponent = (argument.value for argument in arguments)
        if isinstance(base, (int, Fraction)) and isinstance(exponent, (int, Fraction)) and exponent == int(exponent):
            result = arithmetic.power(base, exponent)
            if result is not None:
                return constant(Fraction(result) if kind == "real" else result)
    return _intern(operator, kind, None, arguments)


def _simplify(operator: str, arguments: tuple[Expression, ...]) -> Expression | None:
    if operator in ("∧", "∨"):
        neutral, absorbing = (TRUE, FALSE) if operator == "∧" else (FALSE, TRUE)
        left, right = arguments
        if left is absorbing or right is absorbing:
            return absorbing
        if left is neutral or left is right:
            return right
        if right is neutral:
            return left
    elif operator == "¬":
        (argument,) = arguments
        if argument.operator == "¬":
            return argument.arguments[0]
    elif operator == "⇒":
        left, right = arguments
        if left is FALSE or right is TRUE:
            return TRUE
        if left is TRUE:
            return right
        if right is FALSE:
            return apply("¬", left)
    elif operator == "ite":
        condition, then, otherwise = arguments
        if condition.operator == CONSTANT:
            chosen = then if condition.value else otherwise
            mixed = {then.kind, otherwise.kind} == {"int", "real"}
            return to_real(chosen) if mixed and chosen.kind == "int" else chosen
    elif operator == "aa":
        index, *elements = arguments
        if index.operator == CONSTANT and isinstance(index.value, int) and 0 <= index.value < len(elements):
            return elements[index.value]
    return None


def to_real(expression: Expression) -> Expression:
    """The same number as a real-valued expression."""
    if expression.kind != "int":
        return expression
    if expression.operator == CONSTANT and isinstance(expression.value, int):
        return constant(Fraction(expression.value))
    return apply("+", expression, constant(Fraction(0)))


# Typing rules: each checks number and kinds of the arguments and gives the kind of the result.
_Rule = Callable[[str, tuple[Expression, ...]], Kind]


def _expect(operator: str, arguments: tuple[Expression, ...], count: int) -> None:
    if len(arguments) != count:
        raise InvalidInput(f"operator {operator!r} takes {count} arguments, found {len(arguments)}")


def _expect_kinds(operator: str, arguments: Iterable[Expression], allowed: tuple[Kind, ...]) -> None:
    for argument in arguments:
        if argument.kind not in allowed:
            raise InvalidInput(f"operator {operator!r} takes {' or '.join(allowed)} arguments, found {argument.kind}")


def _boolean(count: int) -> _Rule:
    def rule(operator: str, arguments: tuple[Expression, ...]) -> Kind:
        _expect(operator, arguments, count)
        _expect_kinds(operator, arguments, ("bool",))
        return "bool"

    return rule


def _comparison(operator: str, arguments: tuple[Expression, ...]) -> Kind:
    _expect(operator, arguments, 2)
    _expect_kinds(operator, arguments, ("int", "real"))
    return "bool"


def _equality(operator: str, arguments: tuple[Expression, ...]) -> Kind:
    _expect(operator, arguments, 2)
    if (arguments[0].kind == "bool") != (arguments[1].kind == "bool"):
        raise InvalidInput(f"operator {operator!r} cannot compare {arguments[0].kind} with {arguments[1].kind}")
    return "bool"


def _arithmetic(operator: str, arguments: tuple[Expression, ...]) -> Kind:
    _expect(operator, arguments, 1 if operator == "abs" else 2)
    _expect_kinds(operator, arguments, ("int", "real"))
    return "int" if all(argument.kind == "int" for argument in arguments) else "real"


def _real(count: int) -> _Rule:
    def rule(operator: str, arguments: tuple[Expression, ...]) -> Kind:
        _expect(operator, arguments, count)
        _expect_kinds(operator, arguments, ("int", "real"))
        return "real"

    return rule


def _remainder(operator: str, arguments: tuple[Expression, ...]) -> Kind:
    _expect(operator, arguments, 2)
    _expect_kinds(operator, arguments, ("int",))
    return "int"


def _power(operator: str, arguments: tuple[Expression, ...]) -> Kind:
    _expect(operator, arguments, 2)
    _expect_kinds(operator, arguments, ("int", "real"))
    base, exponent = arguments
    is_natural = exponent.operator == CONSTANT and exponent.kind == "int" and int(exponent.exact) >= 0
    return "int" if base.kind == "int" and is_natural else "real"


def _rounding(operator: str, arguments: tuple[Expression, ...]) -> Kind:
    _expect(operator, arguments, 1)
    _expect_kinds(operator, arguments, ("int", "real"))
    return "int"


def _choice(operator: str, arguments: tuple[Expression, ...]) -> Kind:
    _expect(operator, arguments, 3)
    _expect_kinds(operator, arguments[:1], ("bool",))
    return _common_kind(operator, arguments[1:])


def _access(operator: str, arguments: tuple[Expression, ...]) -> Kind:
    if len(arguments) < 2:
        raise InvalidInput("access to an array without elements")
    _expect_kinds(operator, arguments[:1], ("int",))
    return _common_kind(operator, arguments[1:])


def _common_kind(operator: str, arguments: tuple[Expression, ...]) -> Kind:
    kinds = {argument.kind for argument in arguments}
    if len(kinds) == 1:
        return arguments[0].kind
    if "bool" in kinds:
        raise InvalidInput(f"operator {operator!r} cannot choose between {' and '.join(sorted(kinds))}")
    return "real"


_RULES: dict[str, _Rule] = {
    **dict.fromkeys("∧∨⇒", _boolean(2)),
    "¬": _boolean(1),
    **dict.fromkeys("<≤>≥", _comparison),
    **dict.fromkeys("=≠", _equality),
    **dict.fromkeys(["+", "-", "*", "min", "max", "abs"], _arithmetic),
    "/": _real(2),
    "%": _remainder,
    "pow": _power,
    "log": _real(2),
    **dict.fromkeys(["floor", "ceil", "trc", "sgn"], _rounding),
    **dict.fromkeys(sorted(TRANSCENDENTAL - {"log", "π", "e"}), _real(1)),
    **dict.fromkeys(["π", "e"], _real(0)),
    "ite": _choice,
    "aa": _access,
}
OPERATORS = frozenset(_RULES)


def conjunction(parts: Iterable[Expression]) -> Expression:
    return _balanced("∧", list(parts), TRUE)


def disjunction(parts: Iterable[Expression]) -> Expression:
    return _balanced("∨", list(parts), FALSE)


def _balanced(operator: str, parts: list[Expression], neutral: Expression) -> Expression:
    while len(parts) > 1:
        paired = [apply(operator, *parts[i : i + 2]) for i in range(0, len(parts) - 1, 2)]
        parts = paired + parts[len(parts) - len(parts) % 2 :]
    return parts[0] if parts else neutral


def negation(part: Expression) -> Expression:
    return apply("¬", part)


def operands(condition: Expression, operator: str) -> list[Expression]:
    """What an operator joins, through all its nested uses, from left to right."""
    found, stack = [], [condition]
    while stack:
        part = stack.pop()
        if part.operator == operator:
            stack.extend(reversed(part.arguments))
        else:
            found.append(part)
    return found


def nodes(roots: Iterable[Expression]) -> list[Expression]:
    """All nodes below the roots, each once, arguments before the nodes that use them."""
    seen: dict[int, Expression] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.serial not in seen:
            seen[node.serial] = node
            stack.extend(node.arguments)
    return [seen[serial] for serial in sorted(seen)]


def variables_of(roots: Iterable[Expression]) -> set[str]:
    """The names of the variables that occur in the roots."""
    return {node.name for node in nodes(roots) if node.operator == VARIABLE}


def rewrite(
    roots: Iterable[Expression], replace: Callable[[Expression, tuple[Expression, ...]], Expression]
) -> list[Expression]:
    """Rebuild the roots bottom-up: `replace(node, rewritten arguments)` gives each new node."""
    roots = list(roots)
    done: dict[int, Expression] = {}
    for node in nodes(roots):
        done[node.serial] = replace(node, tuple(done[argument.serial] for argument in node.arguments))
    return [done[root.serial] for root in roots]


def rebuild(node: Expression, arguments: tuple[Expression, ...]) -> Expression:
    """`node` with other arguments; leaves stay what they are."""
    return apply(node.operator, *arguments) if arguments != node.arguments else node


def substitute(roots: Iterable[Expression], values: Mapping[str, Expression]) -> list[Expression]:
    """Replace variables by expressions, all at once."""

    def replace(node: Expression, arguments: tuple[Expression, ...]) -> Expression:
        if node.operator == VARIABLE:
            return values.get(node.name, node)
        return rebuild(node, arguments)

    return rewrite(roots, replace)


def _dismantle(root: Expression) -> list[tuple[str, object, object]]:
    ordered = nodes([root])
    position = {node.serial: index for index, node in enumerate(ordered)}
    return [
        (
            node.operator,
            node.value if not node.arguments else tuple(position[a.serial] for a in node.arguments),
            node.kind,
        )
        for node in ordered
    ]


def _rebuild(parts: list[tuple[str, object, object]]) -> Expression:
    built: list[Expression] = []
    for operator, payload, kind in parts:
        if operator in (CONSTANT, VARIABLE):
            built.append(_intern(operator, kind, payload, ()))  # type: ignore[arg-type]
        else:
            indices: tuple[int, ...] = payload if isinstance(payload, tuple) else ()
            built.append(_intern(operator, kind, None, tuple(built[i] for i in indices)))  # type: ignore[arg-type]
    return built[-1]
