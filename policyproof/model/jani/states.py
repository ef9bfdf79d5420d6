"""Conditions on states as PlaJA's properties give them: a condition with locations, or a list of states."""

from __future__ import annotations

from policyproof.model.automata import Model, at_location
from policyproof.model.expressions import Expression, apply, conjunction, disjunction
from policyproof.model.jani.expressions import ExpressionReader
from policyproof.model.jani.reader import Reader
from policyproof.model.jani.scope import Scope
from policyproof.model.json_text import Json


class StateReader:
    """Reads conditions on the states of a model."""

    def __init__(self, reader: Reader, expressions: ExpressionReader, model: Model, scope: Scope) -> None:
        self.reader = reader
        self.expressions = expressions
        self.model = model
        self.scope = scope
        self.automata = {automaton.name: automaton for automaton in model.automata}

    def condition(self, owner: Json, place: str | int) -> Expression | None:
        """The condition at `owner[place]`, which may also be a plain expression."""
        value = owner[place]
        operator = value.get("op") if isinstance(value, dict) else None
        if operator == "states-values":
            return self._listed(self.reader.object(value, owner, place, keys=frozenset(["op", "values"])))
        if operator != "state-condition":
            return self.expressions.boolean(owner, place, self.scope)
        self.reader.object(value, owner, place, keys=frozenset(["op", "exp", "locations"]))
        parts: list[Expression | None] = []
        if "exp" in value:
            parts.append(self.expressions.boolean(value, "exp", self.scope))
        parts.extend(self._locations(value))
        complete = [part for part in parts if part is not None]
        return conjunction(complete) if len(complete) == len(parts) else None

    def _locations(self, value: dict[str, Json]) -> list[Expression]:
        found: list[Expression] = []
        for item in self.reader.objects(value, "locations", keys=frozenset(["automaton", "location", "index"])):
            name = self.reader.choice(item, "automaton", self.automata, "automaton")
            index = self.automata[name].location_index
            location = self.reader.choice(item, "location", index, "location")
            found.append(at_location(name, index[location]))
        return found

    def _listed(self, value: dict[str, Json]) -> Expression | None:
        """Any of the listed states, each of which gives every variable a value."""
        states = self.reader.objects(value, "values", keys=frozenset(["variables", "locations"]), optional=False)
        needed = {item.name for item in self.model.variables if not item.transient and item.domain.size != 1}
        conditions = [self._state(state, needed) for state in states]
        complete = [condition for condition in conditions if condition is not None]
        return disjunction(complete) if len(complete) == len(conditions) else None

    def _state(self, state: dict[str, Json], needed: set[str]) -> Expression | None:
        reader = self.reader
        parts: list[Expression] = [*self._locations(state)]
        given: set[str] = set()
        complete = True
        for item in reader.objects(state, "variables", keys=frozenset(["var", "value"]), optional=False):
            target = self.expressions.read(item, "var", self.scope)
            content = self.expressions.read(item, "value", self.scope)
            if target is None or content is None:
                complete = False
                continue
            targets = target if isinstance(target, tuple) else (target,)
            contents = content if isinstance(content, tuple) else (content,)
            if len(targets) != len(contents):
                raise reader.invalid(item, "value", f"expected {len(targets)} values, found {len(contents)}")
            for one, what in zip(targets, contents, strict=True):
                parts.append(self._equation(item, one, what))
                if one.name in given:
                    raise reader.invalid(item, "var", f"{one.name} is given twice")
                given.add(one.name)
        if not complete:
            return None
        absent = sorted(needed - given)
        if absent:
            raise reader.invalid(state, None, f"the state gives no value to {', '.join(absent[:5])}")
        return conjunction(parts)

    def _equation(self, item: dict[str, Json], target: Expression, value: Expression) -> Expression:
        found = self.model.variable_by_name.get(target.name) if target.is_variable else None
        if found is None or not value.is_constant:
            raise self.reader.invalid(item, "value", f"{value} is no value of {target}")
        exact = self.expressions.context.exact(item, "value", value)
        if exact not in found.domain or (found.domain.kind == "int" and value.kind == "real"):
            raise self.reader.invalid(item, "value", f"{value} is no value of {target}")
        return apply("=", target, value)
