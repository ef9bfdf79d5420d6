"""The modelling API: environments written in Python.

    builder = ModelBuilder("corridor")
    x = builder.integer("x", 0, 9, initial=0)
    builder.edge("right", guard=x < 9, update={x: x + 1})
    builder.edge("left", guard="x > 0", outcomes=[
        outcome({x: x - 1}, probability=0.9),
        outcome({}, probability=0.1),
    ])
    corridor = builder.build(builder.safety("no-end", unsafe=x.equals(9)))

Conditions and values are expressions, numbers, or text in the notation of properties.  The result is
the same object that a JANI file gives: it can be verified, written as JANI, and trained on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from policyproof.model.automata import (
    ArrayAssignment,
    Assignment,
    Automaton,
    Choice,
    Destination,
    Domain,
    Edge,
    Exact,
    Location,
    Model,
    ModelType,
    Synchronisation,
    Update,
    Variable,
)
from policyproof.model.expressions import TRUE, Expression, apply, constant, decimal, lift, to_real
from policyproof.model.grammar import parse_condition, parse_expression
from policyproof.model.jani.scope import assignable
from policyproof.model.properties import Property, SafetyProperty
from policyproof.model.source import LoadedModel, from_model
from policyproof.run.errors import InvalidInput

Value = Expression | str | bool | int | float | Fraction


@dataclass(frozen=True)
class Between:
    """A value that the environment chooses: any one from `lower` to `upper`."""

    lower: Value
    upper: Value


UpdateMap = Mapping[Expression | str, Value | Between]


@dataclass(frozen=True)
class Outcome:
    """One possible outcome of an edge."""

    update: UpdateMap
    probability: Value | None = None
    to: str | None = None


def element(array: Sequence[Expression], index: Expression | int) -> Expression:
    """The element of an array at a position that may depend on the state; also as a target of updates."""
    return apply("aa", lift(index), *array)


def between(lower: Value, upper: Value) -> Between:
    """A value that the environment chooses from a range, for use in updates."""
    return Between(lower, upper)


def outcome(update: UpdateMap, *, probability: Value | None = None, to: str | None = None) -> Outcome:
    """An outcome with its probability (omitted: one) and the location that it leads to (omitted: the same)."""
    return Outcome(update, probability, to)


@dataclass
class _Automaton:
    name: str
    locations: list[str]
    initial: str
    edges: list[tuple[str | None, str, Value, list[Outcome]]] = field(default_factory=list)


class AutomatonBuilder:
    """Adds edges to one automaton."""

    def __init__(self, parts: _Automaton, actions: list[str]) -> None:
        self._parts = parts
        self._actions = actions

    def edge(
        self,
        action: str | None = None,
        *,
        guard: Value = True,
        update: UpdateMap | None = None,
        outcomes: Sequence[Outcome] | None = None,
        source: str | None = None,
        to: str | None = None,
    ) -> None:
        """An edge with one outcome (`update`, `to`) or several; without an action it is silent."""
        if outcomes is not None and (update is not None or to is not None):
            raise InvalidInput("give either outcomes, or an update and a target location")
        parts = self._parts
        start = parts.initial if source is None else source
        for name in [start, *([to] if to else []), *[item.to for item in outcomes or [] if item.to]]:
            if name not in parts.locations:
                raise InvalidInput(f"{parts.name!r} has no location {name!r} (there are: {', '.join(parts.locations)})")
        if action is not None and action not in self._actions:
            self._actions.append(action)
        chosen = list(outcomes) if outcomes is not None else [Outcome(update or {}, None, to)]
        parts.edges.append((action, start, guard, chosen))


class ModelBuilder(AutomatonBuilder):
    """Collects variables, automata and synchronisations; edges added to it belong to the first automaton."""

    def __init__(self, name: str, *, model_type: ModelType = "mdp", automaton: str = "environment") -> None:
        self.name = name
        self.type = model_type
        self._variables: list[Variable] = []
        self._arrays: dict[str, tuple[str, ...]] = {}
        self._constants: dict[str, Exact] = {}
        self._action_names: list[str] = []
        self._automata: list[_Automaton] = []
        self._synchronisations: list[dict[str, str | None]] = []
        self._restriction: Value = True
        super().__init__(_Automaton(automaton, ["ready"], "ready"), self._action_names)

    # Declarations

    def constant(self, name: str, value: Exact | float) -> Expression:
        exact = decimal(value) if isinstance(value, float) else value
        self._constants[name] = exact
        return constant(exact)

    def boolean(self, name: str, *, initial: bool | None = None, transient: bool = False) -> Expression:
        return self._declare(Variable(name, Domain("bool"), initial, transient))

    def integer(
        self,
        name: str,
        lower: int | None = None,
        upper: int | None = None,
        *,
        initial: int | None = None,
        transient: bool = False,
    ) -> Expression:
        return self._declare(Variable(name, Domain("int", lower, upper), initial, transient))

    def real(
        self,
        name: str,
        lower: int | float | Fraction | None = None,
        upper: int | float | Fraction | None = None,
        *,
        initial: int | float | Fraction | None = None,
        transient: bool = False,
    ) -> Expression:
        lowest, highest, value = (None if end is None else decimal(end) for end in (lower, upper, initial))
        return self._declare(Variable(name, Domain("real", lowest, highest), value, transient))

    def array(
        self, name: str, size: int, lower: int, upper: int, *, initial: Sequence[int] | None = None
    ) -> tuple[Expression, ...]:
        """An array of integers: its elements."""
        if initial is not None and len(initial) != size:
            raise InvalidInput(f"{name!r} has {size} elements, {len(initial)} initial values are given")
        elements = [
            self._declare(
                Variable(f"{name}[{i}]", Domain("int", lower, upper), None if initial is None else initial[i])
            )
            for i in range(size)
        ]
        self._arrays[name] = tuple(element.name for element in elements)
        return tuple(elements)

    def _declare(self, new: Variable) -> Expression:
        if any(item.name == new.name for item in self._variables) or new.name in self._constants:
            raise InvalidInput(f"{new.name!r} is declared twice")
        if new.initial is not None and new.initial not in new.domain:
            raise InvalidInput(f"{new.name!r}: the initial value {new.initial} is outside the domain {new.domain}")
        if new.transient and new.initial is None:
            raise InvalidInput(f"{new.name!r}: a transient variable needs an initial value")
        self._variables.append(new)
        return new.expression

    def initially(self, condition: Value) -> None:
        """A condition on the initial states, for variables that have no initial value."""
        self._restriction = condition

    def automaton(
        self, name: str, *, locations: Sequence[str] = ("ready",), initial: str | None = None
    ) -> AutomatonBuilder:
        """Another automaton."""
        parts = _Automaton(name, list(locations), initial or locations[0])
        if parts.initial not in parts.locations:
            raise InvalidInput(f"{name!r} has no location {parts.initial!r}")
        self._automata.append(parts)
        return AutomatonBuilder(parts, self._action_names)

    def synchronise(self, result: str | None, **actions: str) -> None:
        """`synchronise("go", robot="go", door="open")`: these actions happen together, under the label `go`."""
        if result is not None and result not in self._action_names:
            self._action_names.append(result)
        self._synchronisations.append({**actions, "\0result": result})

    # The result

    def safety(
        self,
        name: str,
        *,
        unsafe: Value,
        start: Value | None = None,
        goal: Value | None = None,
        include_initial: bool | None = None,
    ) -> SafetyProperty:
        """Can a state where `unsafe` holds be reached from one where `start` holds (default: the initial ones)?"""
        include = (start is None) if include_initial is None else include_initial
        return SafetyProperty(
            name,
            unsafe=self.condition(unsafe),
            start=None if start is None else self.condition(start),
            include_initial=include,
            goal=None if goal is None else self.condition(goal),
        )

    def build(self, *properties: Property) -> LoadedModel:
        """The finished model, with its properties."""
        return from_model(self.model(), properties)

    def model(self) -> Model:
        scope = self._scope()
        all_parts = self._all_automata()
        automata = tuple(self._automaton(parts, scope) for parts in all_parts)
        return Model(
            name=self.name,
            type=self.type,
            variables=tuple(self._variables),
            actions=tuple(self._action_names),
            automata=automata,
            synchronisations=tuple(self._joint_steps(all_parts)),
            restrict_initial=self._condition(self._restriction, scope),
            constants=dict(self._constants),
            arrays=dict(self._arrays),
        )

    def expression(self, value: Value) -> Expression:
        """A value as an expression; text is read in the notation of properties."""
        return self._expression(value, self._scope())

    def condition(self, value: Value) -> Expression:
        return self._condition(value, self._scope())

    def _all_automata(self) -> list[_Automaton]:
        own = [self._parts] if self._parts.edges or not self._automata else []
        return [*own, *self._automata]

    def _scope(self) -> Model:
        """A model that knows the names, for reading text."""
        automata = tuple(
            Automaton(parts.name, tuple(Location(name) for name in parts.locations), (parts.initial,), ())
            for parts in self._all_automata()
        )
        return Model(
            self.name, self.type, tuple(self._variables), tuple(self._action_names), automata, (),
            constants=dict(self._constants), arrays=dict(self._arrays),
        )  # fmt: skip

    def _expression(self, value: Value, scope: Model) -> Expression:
        if isinstance(value, str):
            return parse_expression(value, scope)
        return lift(value)

    def _condition(self, value: Value, scope: Model) -> Expression:
        condition = parse_condition(value, scope) if isinstance(value, str) else self._expression(value, scope)
        if condition.kind != "bool":
            raise InvalidInput(f"expected a condition, found {condition}")
        return condition

    def _joint_steps(self, all_parts: list[_Automaton]) -> list[Synchronisation]:
        names = [parts.name for parts in all_parts]
        if not self._synchronisations:
            # Without any synchronisation every automaton acts alone, under the names of its actions.
            return [
                Synchronisation(tuple(action if i == number else None for i in range(len(all_parts))), action)
                for number, parts in enumerate(all_parts)
                for action in dict.fromkeys(action for action, *_ in parts.edges if action is not None)
            ]
        found = []
        for entry in self._synchronisations:
            actions = {name: action for name, action in entry.items() if name != "\0result"}
            for name in actions:
                if name not in names:
                    raise InvalidInput(f"there is no automaton {name!r} to synchronise (there are: {', '.join(names)})")
            found.append(Synchronisation(tuple(actions.get(name) for name in names), entry["\0result"]))
        return found

    def _automaton(self, parts: _Automaton, scope: Model) -> Automaton:
        edges = []
        for action, source, guard, outcomes in parts.edges:
            destinations = tuple(self._destination(item, source, scope) for item in outcomes)
            edges.append(Edge(source, destinations, action, self._condition(guard, scope)))
        return Automaton(
            parts.name, tuple(Location(name) for name in parts.locations), (parts.initial,), tuple(edges), TRUE
        )

    def _destination(self, item: Outcome, source: str, scope: Model) -> Destination:
        updates: list[Update] = []
        for target, value in item.update.items():
            if isinstance(target, Expression) and target.operator == "aa":
                updates.append(self._array_update(target, value, scope))
                continue
            name = target if isinstance(target, str) else target.name
            if name not in scope.variable_by_name:
                raise InvalidInput(f"there is no variable {name!r} to assign to")
            kind = scope.variable_by_name[name].domain.kind
            if isinstance(value, Between):
                ends = [self._expression(end, scope) for end in (value.lower, value.upper)]
                updates.append(Choice(name, ends[0], ends[1]))
                continue
            new = self._expression(value, scope)
            if not assignable(kind, new):
                raise InvalidInput(f"{name!r} of type {kind} cannot take the value {new} of type {new.kind}")
            updates.append(Assignment(name, new))
        probability = None if item.probability is None else to_real(self._expression(item.probability, scope))
        return Destination(item.to or source, tuple(updates), probability)

    def _array_update(self, target: Expression, value: Value | Between, scope: Model) -> ArrayAssignment:
        index, *elements = target.arguments
        names = tuple(part.name if part.is_variable else "" for part in elements)
        if names not in scope.arrays.values() or isinstance(value, Between):
            raise InvalidInput(f"{target} is no element of an array that can be assigned to")
        new = self._expression(value, scope)
        if not assignable(elements[0].kind, new):
            raise InvalidInput(f"{target} of type {elements[0].kind} cannot take the value {new} of type {new.kind}")
        return ArrayAssignment(names, index, new)
