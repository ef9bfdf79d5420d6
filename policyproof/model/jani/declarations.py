"""The declarations of a JANI model: constants, variables and arrays, and the types they have.

An array of fixed length becomes one variable per element.  Local variables of an automaton get
names that are unique in the model.

Invariant: no two variables, arrays, elements or constants have the same name, and what a scope
says of a name is `Missing` if its declaration could not be read in full.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from policyproof.model.automata import Domain, Exact, Variable
from policyproof.model.expressions import Expression, constant
from policyproof.model.jani.expressions import ExpressionReader
from policyproof.model.jani.given import parse_constant
from policyproof.model.jani.reader import Reader, shown
from policyproof.model.jani.scope import Bound, Missing, Scope, assignable
from policyproof.model.json_text import Json
from policyproof.run.errors import InvalidInput

_SIMPLE = {"bool": Domain("bool"), "int": Domain("int"), "real": Domain("real")}
_CONTINUOUS = ("clock", "continuous")
_TYPE_KEYS = frozenset(["kind", "base", "lower-bound", "upper-bound", "ref"])


class DeclarationReader:
    """Reads declarations, and keeps what was declared."""

    def __init__(self, reader: Reader, expressions: ExpressionReader) -> None:
        self.reader = reader
        self.expressions = expressions
        self.scope: dict[str, Bound] = {}
        self.constants: dict[str, Exact] = {}
        self.variables: dict[str, Variable] = {}
        self.arrays: dict[str, tuple[str, ...]] = {}
        self.aliases: dict[tuple[str, str], str] = {}

    # Constants

    def read_constants(self, root: dict[str, Json], given: Mapping[str, Exact | float | str]) -> None:
        reader = self.reader
        declared = reader.objects(root, "constants", keys=frozenset(["name", "type", "value"]))
        known = [reader.get(item, "name", str) for item in declared]
        for name in given:
            if name not in known:
                listed = ", ".join(known) or "none"
                message = f"there is no constant {name!r} to give a value to (there are: {listed})"
                raise InvalidInput(message, where=self.reader.document.name)
        for item, name in zip(declared, known, strict=True):
            if name in self.scope:
                raise self._twice(item, name)
            domain = self.domain(item, "type", self.scope)
            value: Exact | None = None
            if name in given:
                value = None if domain is None else parse_constant(name, given[name], domain)
            elif "value" in item:
                value = self._value(item, "value", domain, self.scope)
            if value is None or domain is None:
                # A constant that has a value in the file lacks none: what is missing is in that value.
                is_open = name not in given and "value" not in item
                self.scope[name] = Missing(name if is_open else None)
            else:
                self.constants[name] = value
                self.scope[name] = constant(Fraction(value) if domain.kind == "real" else value)

    def _twice(self, item: Json, name: str) -> InvalidInput:
        return self.reader.invalid(item, "name", f"{shown(name)} is declared twice")

    # Types and values

    def domain(self, item: dict[str, Json], key: str, scope: Scope) -> Domain | None:
        """The type at `item[key]` if it is no array; None if it is unsupported or has missing constants."""
        reader = self.reader
        if key not in item:
            raise reader.missing(item, key)
        declared = item[key]
        if isinstance(declared, str):
            if declared in _CONTINUOUS:
                reader.unsupported(item, key, f"variables of type {declared!r}")
                return None
            reader.one_of(item, key, declared, _SIMPLE, "type")
            return _SIMPLE[declared]
        reader.object(declared, item, key, keys=_TYPE_KEYS)
        kind = reader.get(declared, "kind", str)
        if kind != "bounded":
            reader.unsupported(item, key, f"types of kind {shown(kind)} here")
            return None
        is_integer = reader.choice(declared, "base", ("int", "real"), "base type") == "int"
        bounds: list[int | Fraction | None] = []
        complete = True
        for bound in ("lower-bound", "upper-bound"):
            value = self.expressions.constant(declared, bound, scope) if bound in declared else None
            complete = complete and (value is not None or bound not in declared)
            if value is not None and (isinstance(value, bool) or (is_integer and value.denominator != 1)):
                base = "int" if is_integer else "real"
                raise reader.invalid(declared, bound, f"the bound of a bounded {base} cannot be {value}")
            bounds.append(int(value) if is_integer and value is not None else value)
        lower, upper = bounds
        if not complete:
            return None
        if lower is not None and upper is not None and lower > upper:
            raise reader.invalid(item, key, f"the lower bound {lower} is above the upper bound {upper}")
        return Domain("int" if is_integer else "real", lower, upper)

    def _value(self, item: Json, key: str, domain: Domain | None, scope: Scope) -> Exact | None:
        """The constant at `item[key]`, which must lie in the domain."""
        value = self.expressions.number_or_bool(item, key, scope)
        return None if value is None or domain is None else self._in_domain(item, key, value, domain)

    def _in_domain(self, item: Json, key: str, value: Expression, domain: Domain) -> Exact:
        if value.is_constant and not assignable(domain.kind, value):
            raise self.reader.invalid(item, key, f"expected a value of type {domain.kind}, found {value.kind}")
        exact = self.expressions.context.exact(item, key, value)
        if exact not in domain:
            raise self.reader.invalid(item, key, f"the value {exact} is outside the domain {domain}")
        return exact

    # Variables

    def read_variables(self, owner: dict[str, Json], scope: dict[str, Bound], instance: str | None) -> None:
        """The variables of the model, or (into a scope of its own) those of an automaton."""
        reader = self.reader
        keys = frozenset(["name", "type", "initial-value", "transient"])
        own: set[str] = set()
        for item in reader.objects(owner, "variables", keys=keys):
            name = reader.get(item, "name", str)
            if name in own or (instance is None and (name in scope or name in self.variables)):
                raise self._twice(item, name)
            own.add(name)
            if name.startswith(("@", "#")):
                what = "(names that start with @ or # stand for locations and parameters)"
                reader.unsupported(item, "name", f"the name {shown(name)} {what}")
            transient = reader.get(item, "transient", bool, default=False)
            if transient and "initial-value" not in item:
                raise reader.invalid(item, None, f"the transient variable {shown(name)} needs an initial-value")
            declared = item.get("type")
            if isinstance(declared, dict) and declared.get("kind") == "array":
                scope[name] = self._read_array(item, declared, name, scope, instance, transient=transient)
            else:
                scope[name] = self._read_variable(item, name, scope, instance, transient=transient)

    def _read_variable(
        self, item: dict[str, Json], name: str, scope: Scope, instance: str | None, *, transient: bool
    ) -> Bound:
        domain = self.domain(item, "type", scope)
        initial = self._value(item, "initial-value", domain, scope) if "initial-value" in item else None
        if domain is None:
            return Missing()
        unique = self._unique_name(name, instance, 0)
        new = Variable(unique, domain, initial, transient)
        self.variables[unique] = new
        return new.expression

    def _read_array(
        self,
        item: dict[str, Json],
        declared: dict[str, Json],
        name: str,
        scope: Scope,
        instance: str | None,
        *,
        transient: bool,
    ) -> Bound:
        reader = self.reader
        reader.object(declared, item, "type", keys=frozenset(["kind", "base"]))
        base = declared.get("base")
        if isinstance(base, dict) and base.get("kind") == "array":
            reader.unsupported(item, "type", "arrays of arrays")
            return Missing()
        domain = self.domain(declared, "base", scope)
        if "initial-value" not in item:
            what = f"the array {shown(name)} without an initial value (its length is not known)"
            reader.unsupported(item, None, what)
            return Missing()
        value = self.expressions.read(item, "initial-value", scope)
        if value is None or domain is None:
            return Missing()
        if not isinstance(value, tuple):
            raise reader.invalid(item, "initial-value", "expected an array")
        unique = self._unique_name(name, instance, len(value))
        self.expressions.context.charge(item, len(value))
        elements = []
        for index, element in enumerate(value):
            initial = self._in_domain(item, "initial-value", element, domain)
            new = Variable(f"{unique}[{index}]", domain, initial, transient)
            if new.name in self.variables or new.name in self.scope:
                raise self._twice(item, new.name)
            elements.append(new)
        self.variables.update({element.name: element for element in elements})
        self.arrays[unique] = tuple(element.name for element in elements)
        return tuple(element.expression for element in elements)

    def _unique_name(self, name: str, instance: str | None, length: int) -> str:
        """The name of a variable in the model; for arrays, the names of the elements are unique too."""
        if instance is None:
            return name
        unique = name
        if self._is_taken(unique, length):
            unique = f"{instance}.{name}"
        while self._is_taken(unique, length):
            unique += "'"
        self.aliases[(instance, name)] = unique
        return unique

    def _is_taken(self, name: str, length: int) -> bool:
        names = [name, *(f"{name}[{index}]" for index in range(length))]
        return any(item in taken for item in names for taken in (self.variables, self.arrays, self.constants))
