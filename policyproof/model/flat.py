"""Flattening a network of automata to ⟨V, L, O⟩ (ICAPS22, section 2 and appendix A).

Idea: an operator belongs to a synchronisation and one *branch* (an edge with one of its
destinations) of every automaton that takes part.  A large network has astronomically many such
combinations, so operators are never listed: `Operators` is a sequence that composes the one that
is asked for, and the successor generator joins branches only where they are enabled.

What a branch's guard holds: the automaton is at the source location; the edge's guard is true; the
destination's probability is positive; everything that is read has a value; every variable that is
written stays in its domain.  "Applicable" means all of this, everywhere.

Assignments with different indices happen one after the other.  Inside one branch they are composed
here.  Where branches that synchronise write to the same variable, or read what another one wrote
earlier, the combinations are composed one by one (`joint_branches`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from policyproof.model.automata import (
    ArrayAssignment,
    Assignment,
    Automaton,
    Choice,
    Destination,
    Domain,
    Edge,
    Model,
    Update,
    Variable,
    at_location,
    location_variable,
)
from policyproof.model.definedness import definedness, definedness_of
from policyproof.model.expressions import (
    TRUE,
    ZERO,
    Expression,
    apply,
    conjunction,
    constant,
    disjunction,
    negation,
    substitute,
    variables_of,
)
from policyproof.model.ranges import Bound, Range, range_in, specialise
from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature

_TWO_CHOICES = "a non-deterministic assignment beside another one to the same variable"

MAXIMAL_COMPOSITIONS = 100_000
"""How many combinations of dependent branches are composed before the model is refused."""


@dataclass(frozen=True)
class Freedom:
    """A value that the environment chooses between two bounds (a non-deterministic assignment)."""

    lower: Expression
    upper: Expression


@dataclass(frozen=True)
class Branch:
    """One edge with one destination, or a composition of several such pairs."""

    guard: Expression
    writes: Mapping[str, Expression | Freedom]
    probability: Expression | None
    origin: tuple[tuple[int, int, int], ...]
    """(automaton, edge, destination) of every part."""


@dataclass(frozen=True)
class Step:
    """A synchronisation: a label (None: silent) and, for every automaton that takes part, its branches."""

    label: str | None
    participants: tuple[tuple[Branch, ...], ...]

    @property
    def combinations(self) -> int:
        return math.prod(len(branches) for branches in self.participants)


@dataclass(frozen=True)
class Operator:
    """The papers' operator (guard, label, update); a label of None is silent."""

    guard: Expression
    label: str | None
    update: Mapping[str, Expression | Freedom]
    probability: Expression | None
    origin: tuple[tuple[int, int, int], ...]


class Operators(Sequence[Operator]):
    """All operators, numbered by step, then by the branches of its participants; composed when asked for."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self.steps = steps
        self.offsets = list(itertools.accumulate((step.combinations for step in steps), initial=0))

    def __len__(self) -> int:
        return self.offsets[-1]

    def branches(self, index: int) -> tuple[Step, tuple[Branch, ...]]:
        """The step of an operator and the branch of each participant; the last participant varies fastest."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = next(i for i, end in enumerate(self.offsets[1:]) if index < end)
        step, rest = self.steps[number], index - self.offsets[number]
        chosen = []
        for branches in reversed(step.participants):
            rest, position = divmod(rest, len(branches))
            chosen.append(branches[position])
        return step, tuple(reversed(chosen))

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        step, branches = self.branches(int(index))
        probabilities = [branch.probability for branch in branches if branch.probability is not None]
        probability = None
        for factor in probabilities:
            probability = factor if probability is None else apply("*", probability, factor)
        return Operator(
            guard=conjunction(branch.guard for branch in branches),
            label=step.label,
            update={name: value for branch in branches for name, value in branch.writes.items()},
            probability=probability,
            origin=tuple(part for branch in branches for part in branch.origin),
        )

    def __iter__(self) -> Iterator[Operator]:
        return (self[index] for index in range(len(self)))


@dataclass(frozen=True)
class FlatModel:
    """⟨V, L, O⟩: the variables (locations included, transient ones not), the labels, the operators."""

    model: Model
    variables: tuple[Variable, ...]
    labels: tuple[str, ...]
    steps: tuple[Step, ...]
    initial: Expression
    """The condition on initial states, over all variables."""
    transient: Mapping[str, Expression] = field(default_factory=dict)
    """What a transient variable is worth in a state."""

    @cached_property
    def operators(self) -> Operators:
        return Operators(self.steps)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.variables)

    @cached_property
    def box(self) -> Mapping[str, Range]:
        """The domains of all variables, as ranges."""
        return {item.name: item.domain.range for item in self.variables}

    def state_condition(self, condition: Expression) -> Expression:
        """A condition as it is in a state: transient variables replaced by what they are worth."""
        return substitute([condition], self.transient)[0]


def flatten(model: Model) -> FlatModel:
    """Flatten a network; raises `UnsupportedFeature` where branches depend on each other in too many ways."""
    return _Flattener(model).flatten()


class _Flattener:
    def __init__(self, model: Model) -> None:
        self.model = model
        places = [_location_as_variable(automaton) for automaton in model.automata]
        self.variables = tuple(item for item in model.variables if not item.transient) + tuple(places)
        self.domains = {item.name: item.domain for item in self.variables}
        self.box = {item.name: item.domain.range for item in self.variables}
        self.transient = self._transient_values()

    def flatten(self) -> FlatModel:
        model = self.model
        by_action: list[dict[str | None, list[tuple[int, int, int]]]] = []
        for number, automaton in enumerate(model.automata):
            found: dict[str | None, list[tuple[int, int, int]]] = {}
            for index, edge in enumerate(automaton.edges):
                parts = [(number, index, destination) for destination in range(len(edge.destinations))]
                found.setdefault(edge.action, []).extend(parts)
            by_action.append(found)
        steps = [Step(None, (self._branches(found.get(None, [])),)) for found in by_action]
        for synchronisation in model.synchronisations:
            taking_part = [
                by_action[number].get(action, [])
                for number, action in enumerate(synchronisation.actions)
                if action is not None
            ]
            steps.append(self._step(synchronisation.result, taking_part))
        kept = tuple(step for step in steps if step.combinations > 0)
        return FlatModel(
            model=model,
            variables=self.variables,
            labels=model.labels,
            steps=kept,
            initial=self._initial(),
            transient=self.transient,
        )

    # States

    def _transient_values(self) -> dict[str, Expression]:
        """A transient variable is worth what a location that is occupied says, else its initial value."""
        values = {
            item.name: constant(item.initial)
            for item in self.model.variables
            if item.transient and item.initial is not None
        }
        for automaton in self.model.automata:
            for index, location in enumerate(automaton.locations):
                for assignment in location.transient_values:
                    here = at_location(automaton.name, index)
                    name = assignment.variable
                    (value,) = substitute([assignment.value], values)
                    values[name] = apply("ite", here, value, values[name])
        return values

    def _initial(self) -> Expression:
        model = self.model
        parts = [self._state(model.restrict_initial)]
        for item in model.variables:
            if not item.transient and item.initial is not None:
                parts.append(apply("=", item.expression, constant(item.initial)))
        for automaton in model.automata:
            indices = [automaton.location_index[name] for name in automaton.initial_locations]
            parts.append(disjunction(at_location(automaton.name, index) for index in indices))
            parts.append(self._state(automaton.restrict_initial))
        return conjunction(parts)

    def _state(self, condition: Expression) -> Expression:
        return substitute([condition], self.transient)[0]

    # Branches

    def _step(self, label: str | None, taking_part: list[list[tuple[int, int, int]]]) -> Step:
        if len(taking_part) == 1 or self._independent(taking_part):
            return Step(label, tuple(self._branches(parts) for parts in taking_part))
        count = math.prod(len(parts) for parts in taking_part)
        if count > MAXIMAL_COMPOSITIONS:
            what = (
                f"{count} combinations of edges whose assignments depend on each other (at most {MAXIMAL_COMPOSITIONS})"
            )
            raise UnsupportedFeature([Feature(f"synchronisation to {label!r}", what)])
        composed = (self._branch(combination) for combination in itertools.product(*taking_part))
        return Step(label, (tuple(branch for branch in composed if branch is not None),))

    def _branches(self, parts: Iterable[tuple[int, int, int]]) -> tuple[Branch, ...]:
        branches = (self._branch((part,)) for part in parts)
        return tuple(branch for branch in branches if branch is not None)

    def _edge(self, part: tuple[int, int, int]) -> tuple[Automaton, Edge, Destination]:
        automaton = self.model.automata[part[0]]
        edge = automaton.edges[part[1]]
        return automaton, edge, edge.destinations[part[2]]

    def _independent(self, taking_part: list[list[tuple[int, int, int]]]) -> bool:
        """Can the updates of the participants be computed apart and put together?"""
        updates = [[update for part in parts for update in self._edge(part)[2].assignments] for parts in taking_part]
        # Assignments at the lowest index of all read the state before the step.
        first = min((update.index for own in updates for update in own), default=0)
        written = [set().union(*map(_targets, own)) for own in updates]
        read_later = [
            variables_of(source for update in own if update.index > first for source in _sources(update))
            for own in updates
        ]
        pairs = itertools.permutations(range(len(written)), 2)
        return all(not (written[a] & written[b]) and not (written[a] & read_later[b]) for a, b in pairs)

    def _branch(self, parts: tuple[tuple[int, int, int], ...]) -> Branch | None:
        """The composition of the parts; None if it can never be taken."""
        guards: list[Expression] = []
        updates: list[Update] = []
        probability: Expression | None = None
        moves: dict[str, Expression | Freedom] = {}
        for part in parts:
            automaton, edge, destination = self._edge(part)
            source = automaton.location_index[edge.source]
            target = automaton.location_index[destination.location]
            guards.append(at_location(automaton.name, source))
            guard = self._state(edge.guard)
            guards.extend([guard, definedness(guard)])
            if source != target:
                moves[location_variable(automaton.name)] = constant(target)
            _check_single(destination, self._place(part))
            updates.extend(destination.assignments)
            if destination.probability is not None:
                factor = self._state(destination.probability)
                guards.extend([definedness(factor), apply("<", ZERO, factor)])
                probability = factor if probability is None else apply("*", probability, factor)
        writes, conditions = self._compose(updates, self._place(parts[0]))
        # What the guard says already need not be said again of the domains.
        box = _where(guards, self.box)
        for name, value in writes.items():
            conditions.append(self._within(name, value, box))
        (guard,) = specialise([conjunction([*guards, *conditions])], self.box)
        if guard.is_constant and not guard.exact:
            return None
        return Branch(guard, {**moves, **writes}, probability, parts)

    def _place(self, part: tuple[int, int, int]) -> str:
        return f"automaton {self.model.automata[part[0]].name!r}, edge {part[1]}, destination {part[2]}"

    def _compose(self, updates: list[Update], place: str) -> tuple[dict[str, Expression | Freedom], list[Expression]]:
        """The final values of a sequence of assignments, and the conditions under which they exist."""
        values: dict[str, Expression] = dict(self.transient)
        free: dict[str, Freedom] = {}
        conditions: list[Expression] = []
        for index in sorted({update.index for update in updates}):
            now = _Writes()
            now_free: dict[str, Freedom] = {}
            for update in updates:
                if update.index != index:
                    continue
                if variables_of(_sources(update)) & set(free):
                    what = "an assignment that reads a value which was chosen non-deterministically before it"
                    raise UnsupportedFeature([Feature(place, what)])
                if isinstance(update, Choice):
                    lower, upper = substitute([update.lower, update.upper], values)
                    conditions.append(definedness_of([lower, upper]))
                    if update.variable in now_free:
                        raise UnsupportedFeature([Feature(place, _TWO_CHOICES)])
                    now_free[update.variable] = Freedom(lower, upper)
                elif isinstance(update, ArrayAssignment):
                    position, value = substitute([update.position, update.value], values)
                    conditions.append(definedness_of([position, value]))
                    count = constant(len(update.elements))
                    conditions.extend([apply("≤", ZERO, position), apply("<", position, count)])
                    for number, element in enumerate(update.elements):
                        old = values.get(element, self.model.variable_by_name[element].expression)
                        now.write(element, value, apply("=", position, constant(number)), old)
                else:
                    (value,) = substitute([update.value], values)
                    conditions.append(definedness(value))
                    now.write(update.variable, value, TRUE, value)
            if set(now.values) & set(now_free):
                raise UnsupportedFeature([Feature(place, _TWO_CHOICES)])
            conditions.extend(now.agreements)
            for name in now.values:
                free.pop(name, None)
            values.update(now.values)
            free.update(now_free)
        written = {target for update in updates for target in _targets(update)}
        # A variable that keeps its value is not written.
        writes: dict[str, Expression | Freedom] = {}
        for name in sorted(written & set(self.domains)):
            new = free[name] if name in free else values[name]
            if not (isinstance(new, Expression) and new.is_variable and new.name == name):
                writes[name] = new
        return writes, conditions

    def _within(self, name: str, value: Expression | Freedom, box: Mapping[str, Range]) -> Expression:
        """The condition that a new value stays in the domain of its variable."""
        domain = self.domains[name]
        if isinstance(value, Freedom):
            inside = [self._inside(domain, value.lower, box), self._inside(domain, value.upper, box)]
            return conjunction([*inside, apply("≤", value.lower, value.upper)])
        return self._inside(domain, value, box)

    @staticmethod
    def _inside(domain: Domain, value: Expression, box: Mapping[str, Range]) -> Expression:
        if domain.kind == "bool":
            return TRUE
        low, high = range_in(value, box)
        parts = []
        if domain.lower is not None and not low >= domain.lower:
            parts.append(apply("≤", constant(domain.lower), value))
        if domain.upper is not None and not high <= domain.upper:
            parts.append(apply("≤", value, constant(domain.upper)))
        return conjunction(parts)


def _where(conditions: Iterable[Expression], box: Mapping[str, Range]) -> Mapping[str, Range]:
    """The box narrowed by those of the conditions that compare a variable with a constant."""
    ends = dict(box)
    stack = list(conditions)
    while stack:
        condition = stack.pop()
        operator, arguments = condition.operator, condition.arguments
        if operator == "∧":
            stack.extend(arguments)
        elif operator in _MIRRORED:
            left, right = arguments
            if left.is_constant:
                left, right, operator = right, left, _MIRRORED[operator]
            if left.is_variable and right.is_constant and left.kind != "bool":
                ends[left.name] = _narrowed(ends[left.name], operator, right.exact, whole=left.kind == "int")
    # An empty interval means that the guard never holds, which is found out elsewhere.
    return {name: ends[name] if ends[name][0] <= ends[name][1] else whole for name, whole in box.items()}


_MIRRORED = {"=": "=", "<": ">", "≤": "≥", ">": "<", "≥": "≤"}


def _narrowed(ends: Range, operator: str, value: Bound, *, whole: bool) -> Range:
    """The part of an interval where `variable operator value` may hold."""
    low, high = ends
    if operator in ("<", "≤", "="):
        high = min(high, math.ceil(value) - 1 if whole and operator == "<" else math.floor(value) if whole else value)
    if operator in (">", "≥", "="):
        low = max(low, math.floor(value) + 1 if whole and operator == ">" else math.ceil(value) if whole else value)
    return low, high


class _Writes:
    """The assignments of one index, which all happen at once: two that write the same cell must agree."""

    def __init__(self) -> None:
        self.values: dict[str, Expression] = {}
        self.agreements: list[Expression] = []
        self._when: dict[str, Expression] = {}

    def write(self, name: str, value: Expression, when: Expression, otherwise: Expression) -> None:
        """`name := value` where the condition `when` holds."""
        if name in self.values:
            both = conjunction([when, self._when[name]])
            self.agreements.append(disjunction([negation(both), apply("=", self.values[name], value)]))
            otherwise = self.values[name]
            self._when[name] = disjunction([when, self._when[name]])
        else:
            self._when[name] = when
        self.values[name] = apply("ite", when, value, otherwise)


def _check_single(destination: Destination, place: str) -> None:
    """One destination may assign a variable only once with the same index."""
    seen: set[tuple[str, int]] = set()
    for update in destination.assignments:
        if isinstance(update, ArrayAssignment):
            continue
        if (update.variable, update.index) in seen:
            raise InvalidInput(f"{update.variable!r} is assigned twice at once", where=place)
        seen.add((update.variable, update.index))


def _location_as_variable(automaton: Automaton) -> Variable:
    return Variable(location_variable(automaton.name), Domain("int", 0, len(automaton.locations) - 1))


def _targets(update: Update) -> set[str]:
    return set(update.elements) if isinstance(update, ArrayAssignment) else {update.variable}


def _sources(update: Update) -> list[Expression]:
    if isinstance(update, Assignment):
        return [update.value]
    if isinstance(update, Choice):
        return [update.lower, update.upper]
    return [update.position, update.value]
