"""Networks of automata: the model as it stands in a JANI file (ICAPS22, definition 8).

All objects are frozen.  Arrays are gone: an array `A` of three elements is the three variables
`A[0]`, `A[1]`, `A[2]`.  Constants and functions are gone too: their values and bodies stand where
they were used.  What is left is the fragment with which every engine works.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Literal

from policyproof.model.expressions import TRUE, Expression, Kind, apply, constant, variable
from policyproof.model.ranges import Range

ModelType = Literal["lts", "dtmc", "mdp"]

Exact = bool | int | Fraction


@dataclass(frozen=True)
class Domain:
    """The values of a variable: Booleans, integers or reals, between bounds that may be missing."""

    kind: Kind
    lower: int | Fraction | None = None
    upper: int | Fraction | None = None

    @property
    def range(self) -> Range:
        if self.kind == "bool":
            return (False, True)
        return (-math.inf if self.lower is None else self.lower, math.inf if self.upper is None else self.upper)

    @property
    def size(self) -> int | None:
        """The number of values, if that is finite."""
        if self.kind == "bool":
            return 2
        if self.kind == "real" or self.lower is None or self.upper is None:
            return 1 if self.lower is not None and self.lower == self.upper else None
        return int(self.upper) - int(self.lower) + 1

    def __contains__(self, value: object) -> bool:
        if self.kind == "bool":
            return isinstance(value, bool)
        if isinstance(value, bool) or not isinstance(value, (int, Fraction)):
            return False
        if self.kind == "int" and value != int(value):
            return False
        return (self.lower is None or self.lower <= value) and (self.upper is None or value <= self.upper)

    def __str__(self) -> str:
        if self.kind == "bool":
            return "bool"
        ends = ["-∞" if self.lower is None else str(self.lower), "∞" if self.upper is None else str(self.upper)]
        return f"{self.kind} [{ends[0]}, {ends[1]}]"


BOOLEAN = Domain("bool")


@dataclass(frozen=True)
class Variable:
    """A state variable, or a transient one, whose value lasts for a moment and is no part of the state."""

    name: str
    domain: Domain
    initial: Exact | None = None
    transient: bool = False

    @property
    def expression(self) -> Expression:
        return variable(self.name, self.domain.kind)


@dataclass(frozen=True)
class Assignment:
    """`variable := value`, at a place `index` in the sequence of assignments of a destination."""

    variable: str
    value: Expression
    index: int = 0


@dataclass(frozen=True)
class ArrayAssignment:
    """`array[position] := value` with a position that depends on the state; `elements` are variable names."""

    elements: tuple[str, ...]
    position: Expression
    value: Expression
    index: int = 0


@dataclass(frozen=True)
class Choice:
    """`variable := any value between lower and upper`, chosen by the environment (PlaJA's extension)."""

    variable: str
    lower: Expression
    upper: Expression
    index: int = 0


Update = Assignment | ArrayAssignment | Choice


@dataclass(frozen=True)
class Destination:
    """One possible outcome of an edge."""

    location: str
    assignments: tuple[Update, ...] = ()
    probability: Expression | None = None
    """None means probability one."""


@dataclass(frozen=True)
class Edge:
    """From `source`, if `guard` holds, with `action` (None: silent), to one of the destinations."""

    source: str
    destinations: tuple[Destination, ...]
    action: str | None = None
    guard: Expression = TRUE


@dataclass(frozen=True)
class Location:
    """A location, with the values that transient variables have while an automaton is there."""

    name: str
    transient_values: tuple[Assignment, ...] = ()


@dataclass(frozen=True)
class Automaton:
    """One component.  Its local variables stand in the model, under names that are unique there."""

    name: str
    locations: tuple[Location, ...]
    initial_locations: tuple[str, ...]
    edges: tuple[Edge, ...]
    restrict_initial: Expression = TRUE

    @cached_property
    def location_index(self) -> Mapping[str, int]:
        return {location.name: index for index, location in enumerate(self.locations)}


@dataclass(frozen=True)
class Synchronisation:
    """One action per automaton (None: does not take part), and the label of the joint step (None: silent)."""

    actions: tuple[str | None, ...]
    result: str | None


@dataclass(frozen=True)
class Model:
    """A network of automata with all constants fixed."""

    name: str
    type: ModelType
    variables: tuple[Variable, ...]
    actions: tuple[str, ...]
    automata: tuple[Automaton, ...]
    synchronisations: tuple[Synchronisation, ...]
    restrict_initial: Expression = TRUE
    constants: Mapping[str, Exact] = field(default_factory=dict)
    arrays: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The names of the element variables of each array."""
    aliases: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(automaton, local name) to the unique name of a local variable or array."""

    @cached_property
    def variable_by_name(self) -> Mapping[str, Variable]:
        return {item.name: item for item in self.variables}

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The labels that a step can carry, in the order in which the actions are declared."""
        used = {item.result for item in self.synchronisations if item.result is not None}
        return tuple(action for action in self.actions if action in used)


def location_variable(automaton: str) -> str:
    """The name of the variable that says where an automaton is; no other name starts like this."""
    return f"@{automaton}"


def at_location(automaton: str, index: int) -> Expression:
    """The condition that an automaton is at the location with this index."""
    return apply("=", variable(location_variable(automaton), "int"), constant(index))
