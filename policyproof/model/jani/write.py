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
    location_variable,
)
from policyproof.model.expressions import CONSTANT, TRUE, VARIABLE, Expression, conjunction, nodes, variables_of
from policyproof.model.jani.machine import BINARY
from policyproof.model.json_text import Json, format_real
from policyproof.model.properties import (
    Atom,
    Deadlock,
    Formula,
    FormulaProperty,
    Initial,
    Junction,
    Not,
    Path,
    Probability,
    Property,
    Quantified,
    RewardBound,
    SafetyProperty,
)
from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature

_REAL_CONSTANTS = ("e", "π")
_TRIGONOMETRIC = frozenset(["sin", "cos", "tan", "asin", "acos", "atan"])
_HYPERBOLIC = frozenset(["sinh", "cosh", "tanh"])


def write_model(model: Model, properties: Sequence[Property] = ()) -> Json:
    """The model as a JSON value (write it with `policyproof.model.json_text.dumps`)."""
    writer = _Writer(model)
    return writer.model([writer.property(item) for item in properties])


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

    # Properties

    def property(self, item: Property) -> Json:
        body = self._safety(item) if isinstance(item, SafetyProperty) else self._filter(item)
        return {"name": item.name, "expression": body}

    def _safety(self, item: SafetyProperty) -> Json:
        body: dict[str, Json] = {"op": "PA"}
        if item.policy_file is not None:
            body["file"] = item.policy_file.name
        if item.start is not None:
            body["start"] = self._condition(item.start)
            if not item.include_initial:
                body["initial-state"] = "exclude"
        if item.unsafe is not None:
            body["reach"] = self._condition(item.unsafe)
        objective: dict[str, Json] = {"op": "objective"}
        if item.goal is not None:
            objective["goal"] = self._condition(item.goal)
        for key, reward in (("goal-reward", item.goal_reward), ("step-reward", item.step_reward)):
            if reward is not None:
                objective[key] = self.expression(reward)
        if len(objective) > 1:
            body["objective"] = objective
        if item.predicates is not None:
            body["predicates"] = [self.expression(predicate) for predicate in item.predicates]
        return body

    def _condition(self, condition: Expression) -> Json:
        """A state condition; what it says about locations stands beside the expression."""
        parts, locations, stack = [], [], [condition]
        while stack:
            part = stack.pop()
            if part.operator == "∧":
                stack.extend(reversed(part.arguments))
                continue
            place = self._location(part)
            if place is None:
                parts.append(part)
            else:
                locations.append(place)
        rest = conjunction(parts) if locations else condition
        if any(name.startswith("@") for name in variables_of([rest])):
            what = "a condition on locations that is no part of a conjunction cannot be written as JANI"
            raise UnsupportedFeature([Feature(str(condition), what)])
        body: dict[str, Json] = {"op": "state-condition", "exp": self.expression(rest)}
        if locations:
            body["locations"] = locations
        return body

    def _location(self, part: Expression) -> Json:
        if part.operator != "=" or not part.arguments[0].is_variable or not part.arguments[1].is_constant:
            return None
        name = part.arguments[0].name
        for automaton in self.source.automata:
            if location_variable(automaton.name) == name:
                return {"automaton": automaton.name, "location": automaton.locations[int(part.arguments[1].exact)].name}
        return None

    def _filter(self, item: FormulaProperty) -> Json:
        values = self._formula(item.formula)
        return {"op": "filter", "fun": item.aggregate, "values": values, "states": {"op": "initial"}}

    def _formula(self, formula: Formula) -> Json:
        if isinstance(formula, Atom):
            if any(name.startswith("@") for name in variables_of([formula.expression])):
                raise UnsupportedFeature([Feature(str(formula.expression), "JANI formulas cannot ask for locations")])
            return self.expression(formula.expression)
        if isinstance(formula, (Deadlock, Initial)):
            return {"op": "deadlock" if isinstance(formula, Deadlock) else "initial"}
        if isinstance(formula, Not):
            return {"op": "¬", "exp": self._formula(formula.operand)}
        if isinstance(formula, Junction):
            return {"op": formula.operator, "left": self._formula(formula.left), "right": self._formula(formula.right)}
        if isinstance(formula, Quantified):
            return {"op": "∀" if formula.quantifier == "A" else "∃", "exp": self._path(formula.path)}
        if isinstance(formula, Probability):
            query: Json = {"op": f"P{formula.optimum or 'max'}", "exp": self._path(formula.path)}
            if formula.comparison is None or formula.bound is None:
                return query
            return {"op": formula.comparison, "left": query, "right": _number(formula.bound)}
        body: dict[str, Json] = {"op": f"E{formula.optimum}", "exp": self.expression(formula.reward)}
        body["accumulate"] = list(formula.accumulate)
        if formula.reach is not None:
            body["reach"] = self._formula(formula.reach)
        if formula.step_instant is not None:
            body["step-instant"] = formula.step_instant
        return body

    def _path(self, path: Path) -> Json:
        if path.operator == "X":
            raise UnsupportedFeature([Feature("X", "JANI has no next operator")])
        body: dict[str, Json] = {"op": path.operator}
        if path.left is None:
            body["exp"] = self._formula(path.right)
        else:
            body["left"], body["right"] = self._formula(path.left), self._formula(path.right)
        limits = {"lower": path.bounds.lower or None, "upper": path.bounds.upper}
        if any(limit is not None for limit in limits.values()):
            body["step-bounds"] = {key: limit for key, limit in limits.items() if limit is not None}
        if path.reward_bounds:
            body["reward-bounds"] = [self._reward_bound(bound) for bound in path.reward_bounds]
        return body

    def _reward_bound(self, bound: RewardBound) -> Json:
        limits: dict[str, Json] = {}
        for key, limit, strict in (
            ("lower", bound.lower, bound.lower_strict),
            ("upper", bound.upper, bound.upper_strict),
        ):
            if limit is not None:
                limits[key] = _number(limit)
                if strict:
                    limits[f"{key}-exclusive"] = True
        return {"exp": self.expression(bound.reward), "accumulate": list(bound.accumulate), "bounds": limits}

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
