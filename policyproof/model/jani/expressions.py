"""JANI expressions, read with an explicit stack, since published files nest thousands of levels.

The stack machine visits every JSON node twice: first it schedules the arguments, then it applies
the operator to their values.  Values are `Expression`, a tuple of expressions (an array), or
`None` for a part that is unsupported or whose constants are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from policyproof.model.expressions import (
    Expression,
    Kind,
    apply,
    constant,
    substitute,
    variable,
)
from policyproof.model.jani.reader import Reader
from policyproof.model.json_text import Json
from policyproof.run.errors import InvalidInput

Value = Expression | tuple[Expression, ...] | None

BINARY = frozenset(["∧", "∨", "⇒", "=", "≠", "<", "≤", ">", "≥", "+", "-", "*", "/", "%", "pow", "log", "min", "max"])
UNARY = frozenset(
    ["¬", "floor", "ceil", "abs", "sgn", "trc", "exp", "sqrt"]
    + ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"]
)
MAXIMAL_NESTING = 50
"""How deep values of let variables may contain let expressions themselves."""

_SPELLINGS = {"arcsin": "asin", "arccos": "acos", "arctan": "atan"}
_REAL_CONSTANTS = {"e": "e", "π": "π"}
_UNSUPPORTED_HINTS = {
    "der": "derivatives of continuous variables",
    "dv": "datatype values",
    "da": "access to members of datatypes",
    "oa": "option types",
    "ov": "option types",
    "empty": "option types",
    "nondet": "non-deterministic selection inside an expression",
}


@dataclass(frozen=True)
class Function:
    """A function whose body is an expression over its own parameter variables."""

    parameters: tuple[Expression, ...]
    body: Expression | None
    kind: Kind


@dataclass(frozen=True)
class Missing:
    """A constant that has no value yet (`name`), or something that could not be read (None)."""

    name: str | None = None


Scope = Mapping[str, "Expression | tuple[Expression, ...] | Missing"]


class ExpressionReader:
    """Reads expressions of one document in a given scope."""

    def __init__(self, reader: Reader, functions: Mapping[str, Function]) -> None:
        self._reader = reader
        self._functions = functions
        self._depth = 0

    def number_or_bool(self, container: Json, key: str | int, scope: Scope) -> Expression | None:
        """An expression that is no array."""
        value = self.read(container, key, scope)
        if isinstance(value, tuple):
            raise self._reader.invalid(container, key, "an array stands where a number or a truth value is needed")
        return value

    def boolean(self, container: Json, key: str | int, scope: Scope) -> Expression | None:
        """An expression of type bool."""
        value = self.number_or_bool(container, key, scope)
        if value is not None and value.kind != "bool":
            raise self._reader.invalid(
                container, key, f"expected a condition, found an expression of type {value.kind}"
            )
        return value

    def constant(self, container: Json, key: str | int, scope: Scope) -> bool | int | Fraction | None:
        """The value of an expression that must not depend on variables."""
        value = self.number_or_bool(container, key, scope)
        if value is None:
            return None
        if not value.is_constant:
            raise self._reader.invalid(container, key, f"expected a constant, found {value}")
        return value.exact

    def read(self, container: Json, key: str | int, scope: Scope) -> Value:
        """The expression at `container[key]`."""
        # Only values of let variables and lengths of arrays are read by a nested call.
        if self._depth > MAXIMAL_NESTING:
            raise self._reader.invalid(container, key, f"let nested more than {MAXIMAL_NESTING} deep")
        self._depth += 1
        try:
            return self._read(container, key, scope)
        finally:
            self._depth -= 1

    def _read(self, container: Json, key: str | int, scope: Scope) -> Value:
        values: list[Value] = []
        # An entry is a node to visit, or a function that combines the topmost values.
        stack: list[tuple[Json, str | int, Scope] | Callable[[], None]] = [(container, key, scope)]
        while stack:
            entry = stack.pop()
            if callable(entry):
                entry()
                continue
            owner, place, names = entry
            node = owner[place]
            if isinstance(node, (bool, int, Fraction)):
                values.append(constant(node))
            elif isinstance(node, str):
                values.append(self._identifier(owner, place, node, names))
            elif isinstance(node, dict):
                self._schedule(owner, place, node, names, stack, values)
            else:
                raise self._reader.invalid(owner, place, "expected an expression")
        (result,) = values
        return result

    def _identifier(self, owner: Json, place: str | int, name: str, scope: Scope) -> Value:
        found = scope.get(name)
        if found is None:
            raise self._reader.invalid(owner, place, f"unknown variable or constant {name!r}")
        if isinstance(found, Missing):
            if found.name is not None:
                self._reader.missing_constants[found.name] = None
            return None
        return found

    def _schedule(
        self,
        owner: Json,
        place: str | int,
        node: dict[str, Json],
        scope: Scope,
        stack: list[tuple[Json, str | int, Scope] | Callable[[], None]],
        values: list[Value],
    ) -> None:
        if "constant" in node and "op" not in node:
            values.append(self._real_constant(node))
            return
        operator = self._reader.get(node, "op", str)
        operator = _SPELLINGS.get(str(operator), str(operator))
        combine: Callable[[list[Value]], Value]
        entries: list[tuple[Json, str | int, Scope]]
        if operator in BINARY:
            entries = [(node, "left", scope), (node, "right", scope)]
            combine = lambda arguments: self._apply(node, operator, arguments)  # noqa: E731
        elif operator in UNARY:
            entries = [(node, "exp", scope)]
            combine = lambda arguments: self._apply(node, operator, arguments)  # noqa: E731
        elif operator == "ite":
            entries = [(node, "if", scope), (node, "then", scope), (node, "else", scope)]
            combine = lambda arguments: self._apply(node, operator, arguments)  # noqa: E731
        elif operator == "aa":
            entries = [(node, "index", scope), (node, "exp", scope)]
            combine = lambda arguments: self._access(node, arguments)  # noqa: E731
        elif operator == "av":
            elements = self._reader.get(node, "elements", list)
            entries = [(elements, position, scope) for position in range(len(elements))]
            combine = self._array
        elif operator == "ac":
            entries = self._array_constructor(node, scope)
            combine = self._array
        elif operator == "call":
            arguments = self._reader.get(node, "args", list)
            entries = [(arguments, position, scope) for position in range(len(arguments))]
            combine = lambda arguments: self._call(node, arguments)  # noqa: E731
        elif operator == "let":
            entries = [(node, "expression", self._let_scope(node, scope))]
            combine = lambda arguments: arguments[0]  # noqa: E731
        else:
            what = _UNSUPPORTED_HINTS.get(operator, "operator")
            self._reader.unsupported(node, "op", f"{what} {operator!r}" if what == "operator" else what)
            values.append(None)
            return
        for container, key, _ in entries:
            if isinstance(container, dict) and key not in container:
                raise self._reader.invalid(node, None, f"operator {operator!r} needs the entry {key!r}")
        count = len(entries)

        def finish() -> None:
            arguments = values[len(values) - count :]
            del values[len(values) - count :]
            values.append(combine(arguments))

        stack.append(finish)
        stack.extend(reversed(entries))

    def _real_constant(self, node: dict[str, Json]) -> Value:
        name = node["constant"]
        if name not in _REAL_CONSTANTS:
            raise self._reader.invalid(node, "constant", f"unknown constant {name!r} (there are: e, π)")
        return apply(_REAL_CONSTANTS[name])

    def _apply(self, node: Json, operator: str, arguments: list[Value]) -> Value:
        scalars = self._scalars(node, operator, arguments)
        if scalars is None:
            return None
        with self._reader.locating(node):
            return apply(operator, *scalars)

    def _scalars(self, node: Json, operator: str, arguments: list[Value]) -> list[Expression] | None:
        if any(isinstance(argument, tuple) for argument in arguments):
            self._reader.unsupported(node, None, f"operator {operator!r} on whole arrays")
            return None
        scalars = [argument for argument in arguments if isinstance(argument, Expression)]
        return scalars if len(scalars) == len(arguments) else None

    def _access(self, node: Json, arguments: list[Value]) -> Value:
        index, array = arguments
        if index is None or array is None:
            return None
        if not isinstance(array, tuple) or isinstance(index, tuple):
            raise self._reader.invalid(node, "exp", "expected an array")
        with self._reader.locating(node):
            if not array:
                raise InvalidInput("access to an array without elements")
            return apply("aa", index, *array)

    def _array(self, elements: list[Value]) -> Value:
        scalars = [element for element in elements if isinstance(element, Expression)]
        return tuple(scalars) if len(scalars) == len(elements) else None

    def _array_constructor(self, node: dict[str, Json], scope: Scope) -> list[tuple[Json, str | int, Scope]]:
        for key in ("var", "length", "exp"):
            if key not in node:
                raise self._reader.invalid(node, None, f"operator 'ac' needs the entry {key!r}")
        length = self.constant(node, "length", scope)
        if length is None:
            return []
        if isinstance(length, bool) or not isinstance(length, int) or not 0 <= length <= 100_000:
            raise self._reader.invalid(node, "length", f"expected an array length, found {length}")
        name = self._reader.get(node, "var", str)
        return [(node, "exp", {**scope, name: constant(position)}) for position in range(length)]

    def _let_scope(self, node: dict[str, Json], scope: Scope) -> Scope:
        names = dict(scope)
        declarations = self._reader.get(node, "variables", list)
        for position, declaration in enumerate(declarations):
            if not isinstance(declaration, dict):
                raise self._reader.invalid(declarations, position, "expected an object")
            name = self._reader.get(declaration, "name", str)
            if "value" not in declaration:
                self._reader.unsupported(declaration, None, f"the let variable {name!r} without a value")
                names[name] = Missing()
                continue
            value = self.read(declaration, "value", names)
            names[name] = Missing() if value is None else value
        return names

    def _call(self, node: Json, arguments: list[Value]) -> Value:
        name: str = self._reader.get(node, "function", str)
        function = self._functions.get(name)
        if function is None:
            raise self._reader.invalid(node, "function", f"unknown function {name!r}")
        if len(arguments) != len(function.parameters):
            count = len(function.parameters)
            raise self._reader.invalid(
                node, "args", f"function {name!r} takes {count} arguments, found {len(arguments)}"
            )
        scalars = self._scalars(node, "call", arguments)
        if scalars is None or function.body is None:
            return None
        for position, (parameter, argument) in enumerate(zip(function.parameters, scalars, strict=True)):
            if not assignable(parameter.kind, argument):
                message = f"function {name!r} expects {parameter.kind} here, found {argument.kind}"
                raise self._reader.invalid(node["args"], position, message)
        values = {parameter.name: argument for parameter, argument in zip(function.parameters, scalars, strict=True)}
        return substitute([function.body], values)[0]


def assignable(kind: Kind, value: Expression) -> bool:
    """Can a variable of this kind take the value?  An integer may stand for a real, not the other way round."""
    return value.kind == kind or (kind == "real" and value.kind == "int")


def parameter(function: str, name: str, kind: Kind) -> Expression:
    """The variable that stands for a parameter in a function's body; its name cannot occur in a file."""
    return variable(f"#{function}#{name}", kind)
