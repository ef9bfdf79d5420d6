"""The automata of a JANI model: locations, edges, destinations, assignments.

Each use of an automaton in the composition is read as an automaton of its own, with its own local
variables.
"""

from __future__ import annotations

from fractions import Fraction

from policyproof.model.automata import (
    ArrayAssignment,
    Assignment,
    Automaton,
    Choice,
    Destination,
    Edge,
    Location,
    Update,
)
from policyproof.model.expressions import TRUE, Expression, Kind, disjunction, negation, to_real
from policyproof.model.jani.declarations import DeclarationReader
from policyproof.model.jani.reader import shown
from policyproof.model.jani.scope import ELEMENTS_PER_NODE, Bound, Scope, assignable
from policyproof.model.json_text import Json

PROBABILITY_TOLERANCE = Fraction(1, 10**6)

_EXPRESSION_KEYS = frozenset(["exp"])
_LOCATION_KEYS = frozenset(["name", "transient-values", "time-progress"])
_EDGE_KEYS = frozenset(["location", "action", "guard", "destinations", "rate"])
_DESTINATION_KEYS = frozenset(["location", "probability", "assignments"])
_ASSIGNMENT_KEYS = frozenset(["ref", "value", "index", "lower-bound", "upper-bound"])


class AutomatonReader:
    """Reads automata, with the model's declarations at hand."""

    def __init__(self, declarations: DeclarationReader, actions: dict[str, None]) -> None:
        self.declarations = declarations
        self.reader = declarations.reader
        self.expressions = declarations.expressions
        self.actions = actions

    def read(self, item: dict[str, Json], instance: str, element: dict[str, Json]) -> Automaton:
        """The automaton `item`, used under the name `instance` by an element of the composition."""
        reader = self.reader
        scope: dict[str, Bound] = dict(self.declarations.scope)
        self.declarations.read_variables(item, scope, instance)
        if item.get("functions"):
            reader.unsupported(item, "functions", "functions that are local to an automaton")
        locations: dict[str, Location] = {}
        for entry in reader.objects(item, "locations", keys=_LOCATION_KEYS, optional=False):
            if "time-progress" in entry:
                reader.unsupported(entry, "time-progress", "invariants on the progress of time")
            name = reader.get(entry, "name", str)
            if name in locations:
                raise reader.invalid(entry, "name", f"the location {shown(name)} is declared twice")
            locations[name] = Location(name, self._transient_values(entry, scope))
        initial = reader.strings(item, "initial-locations", locations, "location", optional=False)
        if not initial:
            raise reader.invalid(item, "initial-locations", "an automaton needs an initial location")
        declared = reader.objects(item, "edges", keys=_EDGE_KEYS, optional=False)
        edges = [self._edge(entry, scope, locations) for entry in declared]
        edges.extend(self._input_edges(element, edges, locations))
        restriction = self.restriction(item, scope)
        return Automaton(instance, tuple(locations.values()), tuple(initial), tuple(edges), restriction)

    def restriction(self, item: dict[str, Json], scope: Scope) -> Expression:
        """The condition on initial values (`restrict-initial`) of a model or an automaton."""
        return self._condition(item, "restrict-initial", scope)

    def _condition(self, item: dict[str, Json], key: str, scope: Scope) -> Expression:
        """A condition in an object of its own; true if it is absent.

        It is also true if it could not be read: then the reading fails at its end, so any value will do.
        """
        if key not in item:
            return TRUE
        holder = self.reader.object(item[key], item, key, keys=_EXPRESSION_KEYS)
        condition = self.expressions.boolean(holder, "exp", scope)
        return TRUE if condition is None else condition

    def _transient_values(self, entry: dict[str, Json], scope: Scope) -> tuple[Assignment, ...]:
        values = []
        for item in self.reader.objects(entry, "transient-values", keys=frozenset(["ref", "value"])):
            target = self._target(item, scope)
            value = self.expressions.number_or_bool(item, "value", scope)
            if target is None or value is None:
                continue
            if not isinstance(target, Expression) or not self.declarations.variables[target.name].transient:
                raise self.reader.invalid(item, "ref", "expected a transient variable")
            self._check_assignable(item, "value", target.kind, value)
            values.append(Assignment(target.name, value))
        return tuple(values)

    # Edges

    def _edge(self, entry: dict[str, Json], scope: Scope, locations: dict[str, Location]) -> Edge:
        reader = self.reader
        source = reader.choice(entry, "location", locations, "location")
        if "rate" in entry:
            reader.unsupported(entry, "rate", "rates (continuous-time models)")
        action = entry.get("action")
        if action is not None:
            reader.one_of(entry, "action", action, self.actions, "action")
        guard = self._condition(entry, "guard", scope)
        declared = reader.objects(entry, "destinations", keys=_DESTINATION_KEYS, optional=False)
        if not declared:
            raise reader.invalid(entry, "destinations", "an edge needs at least one destination")
        destinations = [self._destination(item, scope, locations) for item in declared]
        given = sum("probability" in item for item in declared)
        if given == sum(destination.probability is not None for destination in destinations):
            self._check_probabilities(entry, destinations)
        return Edge(source, tuple(destinations), action, guard)

    def _destination(self, item: dict[str, Json], scope: Scope, locations: dict[str, Location]) -> Destination:
        reader = self.reader
        location = reader.choice(item, "location", locations, "location")
        probability = None
        if "probability" in item:
            holder = reader.object(item["probability"], item, "probability", keys=_EXPRESSION_KEYS)
            probability = self.expressions.number(holder, "exp", scope, "a probability")
            probability = None if probability is None else to_real(probability)
        declared = reader.objects(item, "assignments", keys=_ASSIGNMENT_KEYS)
        updates = [self._assignment(entry, scope) for entry in declared]
        return Destination(location, tuple(update for update in updates if update is not None), probability)

    def _check_probabilities(self, entry: dict[str, Json], destinations: list[Destination]) -> None:
        """Constant probabilities must be probabilities; a sum that is off by rounding is tolerated."""
        total = Fraction(0)
        for destination in destinations:
            probability = destination.probability
            if probability is None:
                total += 1
            elif probability.is_constant:
                value = Fraction(self.expressions.context.exact(entry, "destinations", probability))
                if not 0 <= value <= 1:
                    raise self.reader.invalid(entry, "destinations", f"{shown(value)} is no probability")
                total += value
            else:
                return
        if abs(total - 1) > PROBABILITY_TOLERANCE:
            raise self.reader.invalid(entry, "destinations", f"the probabilities add up to {float(total):g}, not to 1")

    def _input_edges(self, element: dict[str, Json], edges: list[Edge], locations: dict[str, Location]) -> list[Edge]:
        """An input-enabled action is always possible: where no edge is, the automaton stays as it is."""
        guards: dict[tuple[str, str | None], list[Expression]] = {}
        for edge in edges:
            guards.setdefault((edge.source, edge.action), []).append(edge.guard)
        added = []
        for action in self.reader.strings(element, "input-enable", self.actions, "action"):
            for location in locations:
                guard = negation(disjunction(guards.get((location, action), [])))
                added.append(Edge(location, (Destination(location),), action, guard))
        return added

    # Assignments

    def _assignment(self, entry: dict[str, Json], scope: Scope) -> Update | None:
        reader = self.reader
        index = reader.get(entry, "index", int, default=0)
        target = self._target(entry, scope)
        if "lower-bound" in entry or "upper-bound" in entry:
            return self._choice(entry, target, index, scope)
        value = self.expressions.read(entry, "value", scope)
        if isinstance(value, tuple):
            reader.unsupported(entry, "value", "assignments of whole arrays")
            return None
        if target is None or value is None:
            return None
        if isinstance(target, Expression):
            self._check_assignable(entry, "value", target.kind, value)
            return Assignment(target.name, value, index)
        elements, position = target
        self._check_assignable(entry, "value", self.declarations.variables[elements[0]].domain.kind, value)
        return ArrayAssignment(elements, position, value, index)

    def _choice(
        self,
        entry: dict[str, Json],
        target: Expression | tuple[tuple[str, ...], Expression] | None,
        index: int,
        scope: Scope,
    ) -> Choice | None:
        """PlaJA's extension: the environment chooses a value between two bounds."""
        reader = self.reader
        if "value" in entry:
            raise reader.invalid(entry, None, "a value and bounds exclude each other")
        lower, upper = (self.expressions.number_or_bool(entry, key, scope) for key in ("lower-bound", "upper-bound"))
        if target is None or lower is None or upper is None:
            return None
        if not isinstance(target, Expression):
            what = "a non-deterministic assignment to an array element at a variable index"
            reader.unsupported(entry, "ref", what)
            return None
        self._check_assignable(entry, "lower-bound", target.kind, lower)
        self._check_assignable(entry, "upper-bound", target.kind, upper)
        return Choice(target.name, lower, upper, index)

    def _target(self, entry: dict[str, Json], scope: Scope) -> Expression | tuple[tuple[str, ...], Expression] | None:
        """What is assigned to: a variable, or (the elements of an array, the position in it)."""
        reader = self.reader
        if "ref" not in entry:
            raise reader.missing(entry, "ref")
        ref = entry["ref"]
        if isinstance(ref, dict) and ref.get("op") == "aa":
            return self._element(reader.object(ref, entry, "ref", keys=frozenset(["op", "exp", "index"])), scope)
        target = self.expressions.read(entry, "ref", scope)
        if isinstance(target, tuple):
            reader.unsupported(entry, "ref", "assignments to whole arrays")
            return None
        if target is not None and (not target.is_variable or target.name not in self.declarations.variables):
            raise reader.invalid(entry, "ref", f"{shown(ref)} is no variable")
        return target

    def _element(self, ref: dict[str, Json], scope: Scope) -> Expression | tuple[tuple[str, ...], Expression] | None:
        reader = self.reader
        array = self.expressions.read(ref, "exp", scope)
        index = self.expressions.number_or_bool(ref, "index", scope)
        if array is None or index is None:
            return None
        if not isinstance(array, tuple) or not array or not all(element.is_variable for element in array):
            raise reader.invalid(ref, "exp", "expected an array variable")
        if index.kind != "int":
            raise reader.invalid(ref, "index", f"expected an integer, found {index.kind}")
        if index.is_constant:
            position = int(self.expressions.context.exact(ref, "index", index))
            if not 0 <= position < len(array):
                message = f"index {shown(position)} is outside the array of {len(array)} elements"
                raise reader.invalid(ref, "index", message)
            return array[position]
        self.expressions.context.charge(ref, len(array) // ELEMENTS_PER_NODE)
        return tuple(element.name for element in array), index

    def _check_assignable(self, entry: Json, key: str, kind: Kind, value: Expression) -> None:
        if not assignable(kind, value):
            raise self.reader.invalid(entry, key, f"a variable of type {kind} cannot take a value of type {value.kind}")
