"""A plain interpreter of networks of automata: one state, dictionaries and loops, exact arithmetic.

It works on the model as it stands in the file, not on the flattened operators, and shares no code
with the engines.  A state maps every variable to its value and every automaton to its location.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from policyproof.evidence.plain_values import Interval, Undefined, value_of
from policyproof.model.automata import ArrayAssignment, Assignment, Choice, Edge, Model, location_variable
from policyproof.run.errors import Feature, UnsupportedFeature

MAXIMAL_COMBINATIONS = 200_000

Part = tuple[int, int, int]
"""(automaton, edge, destination)"""


@dataclass(frozen=True)
class Configuration:
    """A state of the network."""

    locations: tuple[str, ...]
    variables: Mapping[str, Any]


@dataclass(frozen=True)
class Blocked:
    """Why a combination of edges cannot be taken."""

    reason: str


class Interpreter:
    """The semantics of one model."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def valuation(self, state: Configuration) -> dict[str, Any]:
        """Everything that an expression can ask: variables, locations, transient variables."""
        values = dict(state.variables)
        for automaton, location in zip(self.model.automata, state.locations, strict=True):
            values[location_variable(automaton.name)] = automaton.location_index[location]
        for item in self.model.variables:
            if item.transient:
                values[item.name] = item.initial
        for automaton, location in zip(self.model.automata, state.locations, strict=True):
            place = automaton.locations[automaton.location_index[location]]
            for assignment in place.transient_values:
                try:
                    values[assignment.variable] = value_of(assignment.value, values)
                except Undefined as undefined:
                    # It has no value here; that matters only to whoever reads it.
                    values[assignment.variable] = undefined
        return values

    def edge(self, part: Part) -> Edge:
        return self.model.automata[part[0]].edges[part[1]]

    # Steps

    def steps(self) -> Iterator[tuple[str | None, list[tuple[int, str | None]]]]:
        """(label, the automata that take part with their actions), silent steps of single automata first."""
        for number in range(len(self.model.automata)):
            yield None, [(number, None)]
        for synchronisation in self.model.synchronisations:
            taking_part = [(i, action) for i, action in enumerate(synchronisation.actions) if action is not None]
            yield synchronisation.result, [(i, action) for i, action in taking_part]

    def fits(self, label: str | None, parts: tuple[Part, ...]) -> bool:
        """Is this combination of edges a step with this label?"""
        taking_part = sorted((part[0], self.edge(part).action) for part in parts)
        return any(
            step_label == label and sorted(wanted, key=str) == sorted(taking_part, key=str)
            for step_label, wanted in self.steps()
        )

    def enabled_combinations(self, state: Configuration) -> Iterator[tuple[str | None, tuple[Part, ...]]]:
        """All steps that can be taken in a state, with the combinations of edges that make them."""
        values = self.valuation(state)
        for label, taking_part in self.steps():
            choices = [list(self._enabled(state, values, number, action)) for number, action in taking_part]
            count = 1
            for options in choices:
                count *= len(options)
            if count > MAXIMAL_COMBINATIONS:
                raise UnsupportedFeature([Feature(f"label {label!r}", f"{count} combinations of edges in one state")])
            for parts in itertools.product(*choices):
                if not isinstance(self.execute(state, parts), Blocked):
                    yield label, parts

    def _enabled(
        self, state: Configuration, values: Mapping[str, Any], number: int, action: str | None
    ) -> Iterator[Part]:
        automaton = self.model.automata[number]
        for index, edge in enumerate(automaton.edges):
            if edge.action == action and edge.source == state.locations[number] and _true(edge.guard, values):
                for destination in range(len(edge.destinations)):
                    yield (number, index, destination)

    def applicable_labels(self, state: Configuration) -> set[str | None]:
        return {label for label, _ in self.enabled_combinations(state)}

    # Execution

    def execute(
        self, state: Configuration, parts: tuple[Part, ...]
    ) -> Blocked | tuple[Configuration, dict[str, tuple[Any, Any]]]:
        """The successor, and the ranges of the values that the environment chooses (their lower ends are in it)."""
        values = self.valuation(state)
        locations = list(state.locations)
        for part in parts:
            edge = self.edge(part)
            name = self.model.automata[part[0]].name
            if edge.source != state.locations[part[0]]:
                return Blocked(f"{name!r} is at {state.locations[part[0]]!r}, the edge leaves {edge.source!r}")
            if not _true(edge.guard, values):
                return Blocked(f"the guard of edge {part[1]} of {name!r} is not true: {edge.guard}")
            destination = edge.destinations[part[2]]
            if destination.probability is not None:
                probability = _defined(destination.probability, values)
                if probability is None or not probability > 0:
                    return Blocked(f"destination {part[2]} of edge {part[1]} of {name!r} has probability {probability}")
            locations[part[0]] = destination.location
        outcome = self._assign(values, parts)
        if isinstance(outcome, Blocked):
            return outcome
        changed, ranges = outcome
        variables = {name: changed.get(name, value) for name, value in state.variables.items()}
        for name, value in variables.items():
            domain = self.model.variable_by_name[name].domain
            ends = ranges.get(name, (value, value))
            if any(isinstance(end, Interval) for end in ends):
                return Blocked(f"{name!r} would become an irrational number, which no trace can hold")
            if not all(end in domain for end in ends):
                return Blocked(f"{name!r} would become {ends[0]}, outside its domain {domain}")
        return Configuration(tuple(locations), variables), ranges

    def _assign(
        self, values: dict[str, Any], parts: tuple[Part, ...]
    ) -> Blocked | tuple[dict[str, Any], dict[str, tuple[Any, Any]]]:
        """Assignments in the order of their indices; those of one index happen at once."""
        updates = [update for part in parts for update in self.edge(part).destinations[part[2]].assignments]
        current = dict(values)
        ranges: dict[str, tuple[Any, Any]] = {}
        for index in sorted({update.index for update in updates}):
            written: dict[str, Any] = {}
            chosen: dict[str, tuple[Any, Any]] = {}
            for update in updates:
                if update.index != index:
                    continue
                if isinstance(update, Choice):
                    ends = (_defined(update.lower, current), _defined(update.upper, current))
                    if ends[0] is None or ends[1] is None or ends[0] > ends[1]:
                        return Blocked(f"there is no value to choose for {update.variable!r}")
                    chosen[update.variable] = ends
                    written[update.variable] = ends[0]
                    continue
                value = _defined(update.value, current)
                target = self._target(update, current)
                if value is None or target is None:
                    return Blocked("an assignment has no value (division by zero, or an index outside an array)")
                if target in written and written[target] != value:
                    return Blocked(f"{target!r} is assigned two different values at once")
                written[target] = value
            for name in written:
                ranges.pop(name, None)
            current.update(written)
            ranges.update(chosen)
        return current, ranges

    @staticmethod
    def _target(update: Assignment | ArrayAssignment, values: Mapping[str, Any]) -> str | None:
        if isinstance(update, Assignment):
            return update.variable
        position = _defined(update.position, values)
        if position is None or not 0 <= position < len(update.elements):
            return None
        element: str = update.elements[position]
        return element


def _defined(expression: Any, values: Mapping[str, Any]) -> Any:
    """The value of an expression; None where it has none."""
    try:
        value = value_of(expression, values)
    except Undefined:
        return None
    if expression.kind == "real" and isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    return value


def _true(condition: Any, values: Mapping[str, Any]) -> bool:
    """A guard without a value is not true."""
    return _defined(condition, values) is True
