"""What names stand for while a JANI document is read, and what all expressions of the document share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from policyproof.model.expressions import Expression, Kind, variable
from policyproof.model.jani.reader import Reader
from policyproof.model.json_text import MAXIMAL_DIGITS, Json

Value = Expression | tuple[Expression, ...] | None
"""An expression, an array of them, or None for what is unsupported or has constants without a value."""

MAXIMAL_COPIES = 1_000_000
"""How many nodes of expressions a file may use beyond those that stand in it."""
ELEMENTS_PER_NODE = 16
"""Listing the elements of an array costs so much less than copying nodes."""

_BOUND = 10**MAXIMAL_DIGITS


@dataclass(frozen=True)
class Function:
    """A function whose body is an expression over its own parameter variables.

    A parameter is None, and so are body and kind, where it is unsupported or its constants are missing.
    """

    parameters: tuple[Expression | None, ...]
    body: Expression | None
    kind: Kind | None
    size: int = 0
    """The number of nodes of the body."""


@dataclass(frozen=True)
class Missing:
    """A constant that has no value yet (`name`), or something that could not be read (None)."""

    name: str | None = None


Bound = Expression | tuple[Expression, ...] | Missing
"""What a name stands for."""
Scope = Mapping[str, Bound]


class Context:
    """What the expressions of one document share: its reader, its functions, and a budget.

    A function is copied where it is called, an array constructor copies its expression, and an
    access to an array has all elements as arguments.  One line may ask for millions of copies, and
    a few functions that call each other for more than any memory holds; the budget bounds that.
    """

    def __init__(self, reader: Reader, functions: Mapping[str, Function]) -> None:
        self.reader = reader
        self.functions = functions
        self.in_declarations = False
        """Is this the part of a file that is read before the functions are known?"""
        self._copies = 0

    def charge(self, container: Json, count: int) -> None:
        """Pay for copies."""
        self._copies += count
        if self._copies > MAXIMAL_COPIES:
            message = f"the functions and arrays of this file need more than {MAXIMAL_COPIES} copies of expressions"
            raise self.reader.invalid(container, None, message)

    def exact(self, container: Json, key: str | int, value: Expression) -> bool | int | Fraction:
        """The value of a constant, which may be no longer than the numbers in files."""
        if not value.is_constant:
            raise self.reader.invalid(container, key, f"expected a constant, found {value}")
        exact = value.exact
        if abs(exact.numerator) > _BOUND or exact.denominator > _BOUND:
            raise self.reader.invalid(container, key, f"a number of more than {MAXIMAL_DIGITS} digits")
        return exact


def assignable(kind: Kind, value: Expression) -> bool:
    """Can a variable of this kind take the value?  An integer may stand for a real, not the other way round."""
    return value.kind == kind or (kind == "real" and value.kind == "int")


def parameter(function: str, name: str, kind: Kind) -> Expression:
    """The variable that stands for a parameter in a function's body; its name cannot occur in a file."""
    return variable(f"#{function}#{name}", kind)
