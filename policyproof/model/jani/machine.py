"""A stack machine that reads one JANI expression, since published files nest thousands of levels.

It visits every JSON node twice: first it schedules the arguments, then it applies the operator to
their values.  Names bound inside the expression (by `let` and by array constructors) are set on
the way in and taken back on the way out, so that no scope is copied per level.

Invariant: the work is in proportion to the size of the file, except for what is charged to the
budget of the context.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from policyproof.model.expressions import Expression, apply, constant, substitute
from policyproof.model.jani.reader import shown
from policyproof.model.jani.scope import ELEMENTS_PER_NODE, Bound, Context, Missing, Scope, Value, assignable
from policyproof.model.json_text import Json
from policyproof.run.errors import InvalidInput

BINARY = frozenset(["∧", "∨", "⇒", "=", "≠", "<", "≤", ">", "≥", "+", "-", "*", "/", "%", "pow", "log", "min", "max"])
UNARY = frozenset(
    ["¬", "floor", "ceil", "abs", "sgn", "trc", "exp", "sqrt"]
    + ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"]
)
MAXIMAL_LENGTH = 100_000
"""How many elements an array constructor may make."""
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
_ENTRIES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(BINARY, ("left", "right")),
    **dict.fromkeys(UNARY, ("exp",)),
    "ite": ("if", "then", "else"),
    "aa": ("index", "exp"),
}
"""The entries of an operator that are expressions themselves, in the order of its arguments."""

_Step = tuple[Json, str | int] | tuple[dict[str, Json], str, int] | Callable[[], None]


class Machine:
    """One reading: the values so far, and a stack of what is still to be visited or done."""

    def __init__(self, context: Context, scope: Scope) -> None:
        self.context = context
        self.reader = context.reader
        self.names = scope
        self.own_names: dict[str, Bound] = {}
        """A copy of the scope, made when a name is bound for the first time."""
        self.values: list[Value] = []
        # An entry is the place of a node to visit; a node with its operator and the number of its
        # arguments, which are the topmost values by then; or a function that works on these values.
        self.stack: list[_Step] = []

    def run(self, container: Json, key: str | int) -> Value:
        stack, values = self.stack, self.values
        stack.append((container, key))
        while stack:
            entry = stack.pop()
            if not isinstance(entry, tuple):
                entry()
                continue
            if len(entry) == 3:
                node, operator, count = entry
                arguments = values[-count:]
                del values[-count:]
                values.append(self._apply(node, operator, arguments))
                continue
            owner, place = entry
            node = owner[place]
            if isinstance(node, dict):
                self._schedule(node)
            elif isinstance(node, str):
                values.append(self._identifier(owner, place, node))
            elif isinstance(node, (int, Fraction)):
                values.append(constant(node))
            elif isinstance(node, float):
                # Only a document that was made in Python holds floats, which may be no number at all.
                with self.reader.locating(owner, place):
                    values.append(constant(node))
            else:
                raise self.reader.invalid(owner, place, "expected an expression")
        (result,) = values
        return result

    def _identifier(self, owner: Json, place: str | int, name: str) -> Value:
        found = self.names.get(name)
        if found is None:
            raise self.reader.invalid(owner, place, f"unknown variable or constant {shown(name)}")
        if isinstance(found, Missing):
            if found.name is not None:
                self.reader.missing_constants[found.name] = None
            return None
        return found

    def _schedule(self, node: dict[str, Json]) -> None:
        if "constant" in node and "op" not in node:
            self.values.append(self._real_constant(node))
            return
        operator: str = self.reader.get(node, "op", str)
        operator = _SPELLINGS.get(operator, operator)
        entries = _ENTRIES.get(operator)
        if entries is not None:
            self._check_entries(node, operator, entries)
            self.stack.append((node, operator, len(entries)))
            self.stack.extend([(node, key) for key in reversed(entries)])
        elif operator == "av":
            self._list(node, "elements", ("elements",), lambda elements: self._array(node, elements))
        elif operator == "call":
            self._list(node, "args", ("function", "args"), lambda arguments: self._call(node, arguments))
        elif operator == "ac":
            self._check_entries(node, operator, ("var", "length", "exp"))
            self.stack.append(lambda: self._construct(node))
            self.stack.append((node, "length"))
        elif operator == "let":
            self._let(node)
        else:
            hint = _UNSUPPORTED_HINTS.get(operator, f"operator {shown(operator)}")
            self.reader.unsupported(node, "op", hint)
            self.values.append(None)

    def _check_entries(self, node: dict[str, Json], operator: str, entries: tuple[str, ...]) -> None:
        for key in entries:
            if key not in node:
                raise self.reader.invalid(node, None, f"operator {operator!r} needs the entry {key!r}")
        if len(node) > len(entries) + 1:
            self.reader.object(node, node, None, keys=frozenset([*entries, "op"]))

    def _combine(self, count: int, combine: Callable[[list[Value]], Value]) -> None:
        """When the `count` values that are scheduled next are there, replace them by the combined one."""
        values = self.values

        def finish() -> None:
            first = len(values) - count
            arguments = values[first:]
            del values[first:]
            values.append(combine(arguments))

        self.stack.append(finish)

    def _list(
        self, node: dict[str, Json], key: str, keys: tuple[str, ...], combine: Callable[[list[Value]], Value]
    ) -> None:
        items = self.reader.get(node, key, list)
        self.reader.object(node, node, None, keys=frozenset([*keys, "op"]))
        self._combine(len(items), combine)
        self.stack.extend([(items, position) for position in range(len(items) - 1, -1, -1)])

    # Names that are bound inside the expression

    def _bind(self, name: str, value: Value) -> Bound | None:
        """Let `name` stand for `value`; returns what it stood for before."""
        if self.names is not self.own_names:
            self.own_names = dict(self.names)
            self.names = self.own_names
        previous = self.own_names.get(name)
        self.own_names[name] = Missing() if value is None else value
        return previous

    def _restore(self, saved: list[tuple[str, Bound | None]]) -> None:
        for name, previous in reversed(saved):
            if previous is not None:
                self.own_names[name] = previous
            else:
                del self.own_names[name]

    def _let(self, node: dict[str, Json]) -> None:
        reader = self.reader
        declarations = reader.objects(node, "variables", keys=frozenset(["name", "type", "value"]), optional=False)
        self._check_entries(node, "let", ("variables", "expression"))
        saved: list[tuple[str, Bound | None]] = []

        def bind(name: str) -> None:
            saved.append((name, self._bind(name, self.values.pop())))

        steps: list[_Step] = []
        for declaration in declarations:
            name = reader.get(declaration, "name", str)
            if "value" in declaration:
                steps.append((declaration, "value"))
            else:
                reader.unsupported(declaration, None, f"the let variable {shown(name)} without a value")
                steps.append(lambda: self.values.append(None))
            steps.append(lambda name=name: bind(name))  # type: ignore[misc]
        steps.append((node, "expression"))
        steps.append(lambda: self._restore(saved))
        self.stack.extend(reversed(steps))

    def _construct(self, node: dict[str, Json]) -> None:
        """The length of an array constructor is known: visit its expression once for every position."""
        reader, values = self.reader, self.values
        name = reader.get(node, "var", str)
        value = values.pop()
        if value is None:
            values.append(None)
            return
        if isinstance(value, tuple):
            raise reader.invalid(node, "length", "expected an array length, found an array")
        length = self.context.exact(node, "length", value)
        if isinstance(length, bool) or not isinstance(length, int) or not 0 <= length <= MAXIMAL_LENGTH:
            raise reader.invalid(node, "length", f"expected an array length, found {shown(length)}")
        if length > 0:
            self.context.charge(node, length * _size(node["exp"]))
        saved: list[tuple[str, Bound | None]] = []
        positions = iter(range(length))

        def visit_next() -> None:
            position = next(positions, None)
            if position is None:
                self._restore(saved[:1])
                return
            saved.append((name, self._bind(name, constant(position))))
            self.stack.append(visit_next)
            self.stack.append((node, "exp"))

        self._combine(length, lambda elements: self._array(node, elements))
        self.stack.append(visit_next)

    # Operators on values

    def _real_constant(self, node: dict[str, Json]) -> Value:
        self.reader.object(node, node, None, keys=frozenset(["constant"]))
        self.reader.one_of(node, "constant", node["constant"], _REAL_CONSTANTS, "constant")
        return apply(_REAL_CONSTANTS[node["constant"]])

    def _apply(self, node: dict[str, Json], operator: str, arguments: list[Value]) -> Value:
        if operator == "aa":
            return self._access(node, arguments)
        scalars = self._scalars(node, operator, arguments)
        if scalars is None:
            return None
        try:
            return apply(operator, *scalars)
        except InvalidInput as error:
            raise self.reader.invalid(node, None, error.message) from None

    def _scalars(self, node: Json, operator: str, arguments: list[Value]) -> list[Expression] | None:
        scalars = [argument for argument in arguments if isinstance(argument, Expression)]
        if len(scalars) == len(arguments):
            return scalars
        if any(isinstance(argument, tuple) for argument in arguments):
            self.reader.unsupported(node, None, f"operator {operator!r} on whole arrays")
        return None

    def _access(self, node: dict[str, Json], arguments: list[Value]) -> Value:
        index, array = arguments
        if isinstance(index, tuple):
            raise self.reader.invalid(node, "index", "expected an integer, found an array")
        if index is None or array is None:
            return None
        if not isinstance(array, tuple):
            raise self.reader.invalid(node, "exp", "expected an array")
        self.context.charge(node, len(array) // ELEMENTS_PER_NODE)
        with self.reader.locating(node):
            return apply("aa", index, *array)

    def _array(self, node: Json, elements: list[Value]) -> Value:
        scalars = [element for element in elements if isinstance(element, Expression)]
        if len(scalars) == len(elements):
            return tuple(scalars)
        if any(isinstance(element, tuple) for element in elements):
            self.reader.unsupported(node, None, "arrays of arrays")
        return None

    def _call(self, node: dict[str, Json], arguments: list[Value]) -> Value:
        reader = self.reader
        name: str = reader.get(node, "function", str)
        if self.context.in_declarations:
            reader.unsupported(node, "function", f"a call of the function {shown(name)} in a declaration")
            return None
        function = self.context.functions.get(name)
        if function is None:
            raise reader.invalid(node, "function", f"unknown function {shown(name)}")
        if len(arguments) != len(function.parameters):
            count = len(function.parameters)
            raise reader.invalid(node, "args", f"function {name!r} takes {count} arguments, found {len(arguments)}")
        scalars = self._scalars(node, "call", arguments)
        if scalars is None:
            return None
        values: dict[str, Expression] = {}
        for position, (parameter, argument) in enumerate(zip(function.parameters, scalars, strict=True)):
            if parameter is None:
                continue
            if not assignable(parameter.kind, argument):
                message = f"function {name!r} expects {parameter.kind} here, found {argument.kind}"
                raise reader.invalid(node["args"], position, message)
            values[parameter.name] = argument
        if function.body is None:
            return None
        self.context.charge(node, function.size)
        with reader.locating(node):
            return substitute([function.body], values)[0]


def _size(value: Json) -> int:
    """The number of values inside a JSON value, itself included."""
    count, stack = 0, [value]
    while stack:
        current = stack.pop()
        count += 1
        if isinstance(current, (dict, list)):
            stack.extend(current.values() if isinstance(current, dict) else current)
    return count
