"""JANI expressions where something particular is expected: a condition, a number, a constant.

`machine` reads the expressions; what they share is in `scope`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from policyproof.model.expressions import Expression
from policyproof.model.jani.machine import Machine
from policyproof.model.jani.reader import Reader
from policyproof.model.jani.scope import Context, Function, Scope, Value
from policyproof.model.json_text import Json


class ExpressionReader:
    """Reads expressions of one document in a given scope."""

    def __init__(self, reader: Reader, functions: Mapping[str, Function]) -> None:
        self.reader = reader
        self.context = Context(reader, functions)

    def number_or_bool(self, container: Json, key: str | int, scope: Scope) -> Expression | None:
        """An expression that is no array."""
        value = self.read(container, key, scope)
        if isinstance(value, tuple):
            raise self.reader.invalid(container, key, "an array stands where a number or a truth value is needed")
        return value

    def boolean(self, container: Json, key: str | int, scope: Scope) -> Expression | None:
        """An expression of type bool."""
        value = self.number_or_bool(container, key, scope)
        if value is not None and value.kind != "bool":
            raise self.reader.invalid(container, key, f"expected a condition, found an expression of type {value.kind}")
        return value

    def number(self, container: Json, key: str | int, scope: Scope, what: str) -> Expression | None:
        """An expression of a numeric type; `what` it is stands in the message."""
        value = self.number_or_bool(container, key, scope)
        if value is not None and value.kind == "bool":
            raise self.reader.invalid(container, key, f"{what} is a number")
        return value

    def constant(self, container: Json, key: str | int, scope: Scope) -> bool | int | Fraction | None:
        """The value of an expression that must not depend on variables."""
        value = self.number_or_bool(container, key, scope)
        return None if value is None else self.context.exact(container, key, value)

    def limit(self, container: Json, key: str | int, scope: Scope, what: str) -> Fraction | None:
        """The value of a constant number."""
        value = self.constant(container, key, scope)
        if isinstance(value, bool):
            raise self.reader.invalid(container, key, f"expected {what}, found {value}")
        return None if value is None else Fraction(value)

    def read(self, container: Json, key: str | int, scope: Scope) -> Value:
        """The expression at `container[key]`."""
        if isinstance(container, dict) and key not in container:
            raise self.reader.missing(container, str(key))
        return Machine(self.context, scope).run(container, key)
