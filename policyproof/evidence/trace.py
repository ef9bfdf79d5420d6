"""Traces: the evidence for "violated", as JSON.

    {
      "schema": "policyproof-trace-1",
      "model": {"name": ..., "sha256": ...}, "policy": {...}, "property": "...", "constants": {...},
      "kind": "unsafe",
      "states": [{"locations": {"car": "road"}, "variables": {"x": 3, "h": "1/3"}}, ...],
      "steps": [{"label": "left", "edges": [{"automaton": "car", "edge": 4, "destination": 0}]}, ...]
    }

`steps[i]` leads from `states[i]` to `states[i + 1]`; an edge is named by its place in the model
file.  A step without edges is a stutter: the policy is stopped, and the state stays.  Numbers that are
no integers are written as fractions, so that nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from policyproof.model.json_text import Document, Json, dumps, read_file
from policyproof.run.errors import InvalidInput
from policyproof.run.files import write_atomically

SCHEMA = "policyproof-trace-1"

Exact = bool | int | Fraction


@dataclass(frozen=True)
class TraceState:
    """A state of the network of automata."""

    locations: Mapping[str, str]
    variables: Mapping[str, Exact]


@dataclass(frozen=True)
class TraceStep:
    """One step: its label (None: silent), and (automaton, edge, destination) of all that take part."""

    label: str | None
    edges: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Trace:
    """A finite path from a start state."""

    states: tuple[TraceState, ...]
    steps: tuple[TraceStep, ...]
    kind: str = "unsafe"
    context: Mapping[str, Json] = field(default_factory=dict)
    """What the trace belongs to: model, policy, property, constants."""

    def to_json(self) -> dict[str, Json]:
        return {
            "schema": SCHEMA,
            **self.context,
            "kind": self.kind,
            "states": [
                {
                    "locations": dict(state.locations),
                    "variables": {name: write_number(value) for name, value in state.variables.items()},
                }
                for state in self.states
            ],
            "steps": [
                {
                    "label": step.label,
                    "edges": [
                        {"automaton": automaton, "edge": edge, "destination": destination}
                        for automaton, edge, destination in step.edges
                    ],
                }
                for step in self.steps
            ],
        }

    def write(self, path: str | Path) -> None:
        write_atomically(Path(path), dumps(self.to_json(), indent=1) + "\n")


def write_number(value: Exact) -> Json:
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"
    return value


def read_trace(path: str | Path) -> Trace:
    """Read a trace file; anything that does not fit the format is invalid input."""
    return trace_from_json(read_file(path))


def trace_from_json(document: Document) -> Trace:
    root = document.root
    if not isinstance(root, dict):
        raise InvalidInput("expected an object", where=f"{document.name}: $")
    if root.get("schema") != SCHEMA:
        raise InvalidInput(f"not a trace: expected the schema {SCHEMA!r}", where=f"{document.name}: $.schema")
    states = [_state(document, item) for item in _list(document, root, "states")]
    steps = [_step(document, item) for item in _list(document, root, "steps")]
    if len(states) != len(steps) + 1:
        raise InvalidInput(f"{len(states)} states do not fit {len(steps)} steps", where=document.name)
    context = {key: root[key] for key in ("model", "policy", "property", "constants") if key in root}
    kind = root.get("kind")
    if not isinstance(kind, str):
        raise InvalidInput("the entry 'kind' is missing", where=f"{document.name}: $")
    return Trace(tuple(states), tuple(steps), kind, context)


def _list(document: Document, container: Any, key: str) -> list[Any]:
    value = container.get(key) if isinstance(container, dict) else None
    if not isinstance(value, list):
        raise InvalidInput(f"expected an array {key!r}", where=document.path_of(container))
    return value


def _state(document: Document, item: Any) -> TraceState:
    where = document.path_of(item)
    if not isinstance(item, dict) or not all(isinstance(item.get(key), dict) for key in ("locations", "variables")):
        raise InvalidInput("expected a state with 'locations' and 'variables'", where=where)
    if not all(isinstance(place, str) for place in item["locations"].values()):
        raise InvalidInput("expected names of locations", where=where)
    values = {name: _number(document, item, name, value) for name, value in item["variables"].items()}
    return TraceState(item["locations"], values)


def _number(document: Document, item: Any, name: str, value: Any) -> Exact:
    if isinstance(value, (bool, int, Fraction)):
        return value
    if isinstance(value, str) and len(value) < 10_000:
        numerator, slash, denominator = value.partition("/")
        if numerator.removeprefix("-").isdecimal() and slash and denominator.isdecimal() and int(denominator) != 0:
            return Fraction(int(numerator), int(denominator))
    raise InvalidInput(f"expected a number, found {value!r}", where=document.path_of(item["variables"], name))


def _step(document: Document, item: Any) -> TraceStep:
    where = document.path_of(item)
    if not isinstance(item, dict) or not isinstance(item.get("label"), (str, type(None))):
        raise InvalidInput("expected a step with 'label' and 'edges'", where=where)
    edges = []
    for edge in _list(document, item, "edges"):
        if not isinstance(edge, dict) or not isinstance(edge.get("automaton"), str):
            raise InvalidInput("expected an edge with 'automaton', 'edge' and 'destination'", where=where)
        numbers = [edge.get("edge"), edge.get("destination")]
        if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
            raise InvalidInput("'edge' and 'destination' are the places of an edge in the model", where=where)
        edges.append((edge["automaton"], *numbers))
    return TraceStep(item["label"], tuple(edges))
