"""Writing a model as JANI, so that the reader makes an equal model of the text.

Arrays come back as arrays and named constants as constants; functions, derived spellings and the
names of local variables do not, since the model no longer has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from policyproof.model.automata import (
    ArrayAssignment,
    Assignment,
    Automaton,
    Choice,
    Domain,
    Edge,
    Exact,
    Model,
    Update,
    Variable,
)
from policyproof.model.expressions import CONSTANT, TRUE, VARIABLE, Expression, nodes
from policyproof.model.jani.expressions import BINARY
from policyproof.model.json_text import Json, format_real
from policyproof.run.errors import InvalidInput

_REAL_CONSTANTS = ("e", "π")
_TRIGONOMETRIC = frozenset(["sin", "cos", "tan", "asin", "acos", "atan"])
_HYPERBOLIC = frozenset(["sinh", "cosh", "tanh"])


def write_model(model: Model, properties: Sequence[Json] = ()) -> Json:
    """The model as a JSON value (write it with `policyproof.model.json_text.dumps`)."""
    return _Writer(model).model(list(properties))


class _Writer:
    def __init__(self, model: Model) -> None:
        self.source = model
        self.places: dict[str, Json] = {}
        for name, elements in model.arrays.items():
            for index, element in enumerate(elements):
                self.places[element] = {"op": "aa", "exp": name, "index": index}
        self.arrays_by_elements = {elements: name for name, elements in model.arrays.items()}
        self.operators: set[str] = set()

    def model(self, properties: list[Json]) -> Json:
        source = self.source
        body: dict[str, Json] = {"jani-version": 1, "name": source.name, "type": source.type}
        rest: dict[str, Json] = {
            "actions": [{"name": name} for name in source.actions],
            "constants": [self._constant(name, value) for name, value in source.constants.items()],
            "variables": self._variables(),
        }
        if source.restrict_initial is not TRUE:
            rest["restrict-initial"] = {"exp": self.expression(source.restrict_initial)}
        rest["properties"] = properties
        rest["automata"] = [self._automaton(automaton) for automaton in source.automata]
        rest["system"] = {
            "elements": [{"automaton": automaton.name} for automaton in source.automata],
            "syncs": [
                {"synchronise": list(item.actions), **({} if item.result is None else {"result": item.result})}
                for item in source.synchronisations
            ],
        }
        return {**body, "features": self._features(), **rest}

    def _features(self) -> list[str]:
        features = ["derived-operators"]
        if self.source.arrays or "aa" in self.operators:
            features.append("arrays")
        if self.operators & _TRIGONOMETRIC:
            features.append("trigonometric-functions")
        if self.operators & _HYPERBOLIC:
            features.append("hyperbolic-functions")
        if any(location.transient_values for item in self.source.automata for location in item.locations):
            features.append("state-exit-rewards")
        return features

    def _constant(self, name: str, value: Exact) -> Json:
        kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "real"
        return {"name": name, "type": kind, "value": _number(value)}

    def _variables(self) -> list[Json]:
        written: list[Json] = []
        done: set[str] = set()
        for item in self.source.variables:
            if item.name in done:
                continue
            array = next((name for name, elements in self.source.arrays.items() if item.name in elements), None)
            if array is None:
                written.append(self._variable(item.name, _type(item.domain), item, item.initial))
                continue
            elements = [self.source.variable_by_name[name] for name in self.source.arrays[array]]
            done |= {element.name for element in elements}
            kind = {"kind": "array", "base": _type(item.domain)}
            entry = self._variable(array, kind, item, None)
            entry["initial-value"] = {"op": "av", "elements": [_number(element.initial) for element in elements]}
            written.append(entry)
        return written

    def _variable(self, name: str, kind: Json, item: Variable, initial: Exact | None) -> dict[str, Json]:
        entry: dict[str, Json] = {"name": name, "type": kind}
        if item.transient:
            entry["transient"] = True
        if initial is not None:
            entry["initial-value"] = _number(initial)
        return entry

    def _automaton(self, automaton: Automaton) -> Json:
        locations = []
        for location in automaton.locations:
            entry: dict[str, Json] = {"name": location.name}
            if location.transient_values:
                entry["transient-values"] = [
                    {"ref": self._place(value.variable), "value": self.expression(value.value)}
                    for value in location.transient_values
                ]
            locations.append(entry)
        body: dict[str, Json] = {
            "name": automaton.name,
            "locations": locations,
            "initial-locations": list(automaton.initial_locations),
            "edges": [self._edge(edge) for edge in automaton.edges],
        }
        if automaton.restrict_initial is not TRUE:
            body["restrict-initial"] = {"exp": self.expression(automaton.restrict_initial)}
        return body

    def _edge(self, edge: Edge) -> Json:
        entry: dict[str, Json] = {"location": edge.source}
        if edge.action is not None:
            entry["action"] = edge.action
        if edge.guard is not TRUE:
            entry["guard"] = {"exp": self.expression(edge.guard)}
        destinations = []
        for destination in edge.destinations:
            item: dict[str, Json] = {"location": destination.location}
            if destination.probability is not None:
                item["probability"] = {"exp": self.expression(destination.probability)}
            if destination.assignments:
                item["assignments"] = [self._update(update) for update in destination.assignments]
            destinations.append(item)
        entry["destinations"] = destinations
        return entry

    def _update(self, update: Update) -> Json:
        entry: dict[str, Json]
        if isinstance(update, ArrayAssignment):
            name = self.arrays_by_elements[update.elements]
            place = {"op": "aa", "exp": name, "index": self.expression(update.position)}
            entry = {"ref": place, "value": self.expression(update.value)}
        elif isinstance(update, Choice):
            bounds = {"lower-bound": self.expression(update.lower), "upper-bound": self.expression(update.upper)}
            entry = {"ref": self._place(update.variable), **bounds}
        else:
            assert isinstance(update, Assignment)
            entry = {"ref": self._place(update.variable), "value": self.expression(update.value)}
        if update.index != 0:
            entry["index"] = update.index
        return entry

    def _place(self, name: str) -> Json:
        return self.places.get(name, name)

    def expression(self, root: Expression) -> Json:
        """An expression as JSON; shared parts are shared objects, so that writing them here costs nothing."""
        done: dict[int, Json] = {}
        for node in nodes([root]):
            self.operators.add(node.operator)
            done[node.serial] = self._node(node, [done[argument.serial] for argument in node.arguments])
        return done[root.serial]

    def _node(self, node: Expression, arguments: list[Json]) -> Json:
        operator = node.operator
        if operator == CONSTANT:
            value = node.exact
            if isinstance(value, Fraction) and not _has_decimals(value):
                return {"op": "/", "left": value.numerator, "right": value.denominator}
            return _number(value)
        if operator == VARIABLE:
            return self._place(node.name)
        if operator in _REAL_CONSTANTS:
            return {"constant": operator}
        if operator == "aa":
            elements = tuple(argument.name if argument.is_variable else "" for argument in node.arguments[1:])
            array = self.arrays_by_elements.get(elements)
            source: Json = array if array is not None else {"op": "av", "elements": arguments[1:]}
            return {"op": "aa", "exp": source, "index": arguments[0]}
        if operator == "ite":
            return {"op": "ite", "if": arguments[0], "then": arguments[1], "else": arguments[2]}
        if operator in BINARY:
            return {"op": operator, "left": arguments[0], "right": arguments[1]}
        return {"op": operator, "exp": arguments[0]}


def _type(domain: Domain) -> Json:
    if domain.kind == "bool" or (domain.lower is None and domain.upper is None):
        return domain.kind
    bounds = {"lower-bound": domain.lower, "upper-bound": domain.upper}
    return {
        "kind": "bounded",
        "base": domain.kind,
        **{key: _number(value) for key, value in bounds.items() if value is not None},
    }


def _has_decimals(value: Fraction) -> bool:
    try:
        format_real(value)
    except InvalidInput:
        return False
    return True


def _number(value: Exact | None) -> Json:
    """A constant as JSON; a real without decimal notation becomes a division."""
    if isinstance(value, Fraction) and not _has_decimals(value):
        return {"op": "/", "left": value.numerator, "right": value.denominator}
    return value
