"""Replay: does a trace really happen?  An independent program that imports only `run`, `model` and `policy`.

For every step it checks that the edges belong together, that they are enabled, that the next state
is what they lead to, and that the policy really chooses the label; for the whole trace, that it
begins in a start state and ends as it claims.  All in exact arithmetic.  Beside the verdict it
reports ties, and every state in which the deployed floating-point arithmetic would decide otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from policyproof.evidence.interpreter import Blocked, Configuration, Interpreter, Part
from policyproof.evidence.plain_policy import Decision, decide
from policyproof.evidence.plain_values import NotSettled, Undefined, value_of
from policyproof.evidence.trace import Trace, TraceState, TraceStep
from policyproof.model.automata import Model
from policyproof.model.expressions import Expression
from policyproof.model.properties import Atom, FormulaProperty, Property, Quantified, SafetyProperty
from policyproof.model.source import LoadedModel
from policyproof.policy.policy import Policy


@dataclass(frozen=True)
class Replay:
    """The outcome: accepted or not, why, and what was noticed on the way."""

    accepted: bool
    reason: str
    steps: int
    ties: tuple[int, ...] = ()
    """The states (by number) where several outputs are exactly the greatest."""
    disagreements: tuple[str, ...] = ()
    """Where the deployed arithmetic decides otherwise."""


class _Rejected(Exception):
    """The trace does not happen; the message says where and why."""


@dataclass
class _Notes:
    ties: list[int] = field(default_factory=list)
    disagreements: list[str] = field(default_factory=list)


def replay(
    model: LoadedModel | Model,
    trace: Trace,
    question: Property | None = None,
    policy: Policy | None = None,
    *,
    include_initial: bool | None = None,
) -> Replay:
    """Check a trace; without a property only its steps are checked, not where it begins and ends."""
    notes = _Notes()
    try:
        network = model.model if isinstance(model, LoadedModel) else model
        _Checker(network, policy, notes).check(trace, question, include_initial)
    except _Rejected as rejection:
        return Replay(False, str(rejection), len(trace.steps), tuple(notes.ties), tuple(notes.disagreements))
    except NotSettled:
        reason = "a comparison of irrational numbers is not settled by 640 digits"
        return Replay(False, reason, len(trace.steps), tuple(notes.ties), tuple(notes.disagreements))
    what = "every step happens" if question is None else _claim(trace)
    return Replay(True, what, len(trace.steps), tuple(notes.ties), tuple(notes.disagreements))


def _claim(trace: Trace) -> str:
    return f"the trace begins in a start state and violates the property after {len(trace.steps)} steps"


class _Checker:
    def __init__(self, model: Model, policy: Policy | None, notes: _Notes) -> None:
        self.model = model
        self.policy = policy
        self.notes = notes
        self.interpreter = Interpreter(model)
        self.numbers = {automaton.name: number for number, automaton in enumerate(model.automata)}

    def check(self, trace: Trace, question: Property | None, include_initial: bool | None) -> None:
        states = [self._configuration(number, state) for number, state in enumerate(trace.states)]
        if question is not None:
            self._check_start(states[0], question, include_initial)
        for number, step in enumerate(trace.steps):
            try:
                self._check_step(number, states[number], step, states[number + 1])
            except Undefined as undefined:
                raise _Rejected(f"step {number}: something has no value ({undefined})") from None
        if question is not None:
            self._check_end(states, question)

    # States

    def _configuration(self, number: int, state: TraceState) -> Configuration:
        place = f"state {number}"
        if set(state.locations) != set(self.numbers):
            raise _Rejected(f"{place}: expected the locations of {', '.join(self.numbers)}")
        for automaton in self.model.automata:
            if state.locations[automaton.name] not in automaton.location_index:
                raise _Rejected(f"{place}: {automaton.name!r} has no location {state.locations[automaton.name]!r}")
        expected = {item.name: item for item in self.model.variables if not item.transient}
        if set(state.variables) != set(expected):
            absent = sorted(set(expected) ^ set(state.variables))
            raise _Rejected(f"{place}: these variables are missing or unknown: {', '.join(absent[:5])}")
        for name, value in state.variables.items():
            if value not in expected[name].domain:
                raise _Rejected(f"{place}: {name} = {value} is outside its domain {expected[name].domain}")
        locations = tuple(state.locations[automaton.name] for automaton in self.model.automata)
        return Configuration(locations, dict(state.variables))

    def _holds(self, condition: Expression, state: Configuration) -> bool:
        try:
            return value_of(condition, self.interpreter.valuation(state)) is True
        except Undefined:
            return False

    def _is_initial(self, state: Configuration) -> bool:
        for automaton, location in zip(self.model.automata, state.locations, strict=True):
            if location not in automaton.initial_locations or not self._holds(automaton.restrict_initial, state):
                return False
        fixed = (item for item in self.model.variables if item.initial is not None and not item.transient)
        return self._holds(self.model.restrict_initial, state) and all(
            state.variables[item.name] == item.initial for item in fixed
        )

    def _check_start(self, state: Configuration, question: Property, include_initial: bool | None) -> None:
        if isinstance(question, SafetyProperty) and question.start is not None:
            include = question.include_initial if include_initial is None else include_initial
            if self._holds(question.start, state) or (include and self._is_initial(state)):
                return
            raise _Rejected("state 0 does not satisfy the start condition")
        if not self._is_initial(state):
            raise _Rejected("state 0 is no initial state of the model")

    def _check_end(self, states: list[Configuration], question: Property) -> None:
        if isinstance(question, SafetyProperty):
            if question.unsafe is None or not self._holds(question.unsafe, states[-1]):
                raise _Rejected("the last state is not unsafe")
            return
        first, last, condition = _violation_of(question)
        number = len(states) - 1
        if number < first or (last is not None and number > last):
            raise _Rejected(f"the property does not speak of step {number}")
        if self._holds(condition, states[-1]):
            raise _Rejected("the last state satisfies the condition of the property")

    # Steps

    def _check_step(self, number: int, state: Configuration, step: TraceStep, following: Configuration) -> None:
        if not step.edges:
            self._check_stutter(number, state, following)
            return
        parts = self._parts(number, step)
        if not self.interpreter.fits(step.label, parts):
            raise _Rejected(f"step {number}: these edges do not synchronise to {step.label!r}")
        outcome = self.interpreter.execute(state, parts)
        if isinstance(outcome, Blocked):
            raise _Rejected(f"step {number}: {outcome.reason}")
        expected, choices = outcome
        if expected.locations != following.locations:
            raise _Rejected(f"step {number} leads to {expected.locations}, not to {following.locations}")
        for name, value in following.variables.items():
            low, high = choices.get(name, (expected.variables[name], expected.variables[name]))
            if not low <= value <= high:
                wanted = f"{low}" if low == high else f"{low}..{high}"
                raise _Rejected(f"step {number}: {name} becomes {wanted}, the trace says {value}")
        self._check_choice(number, state, step.label)

    def _parts(self, number: int, step: TraceStep) -> tuple[Part, ...]:
        parts = []
        for name, edge, destination in step.edges:
            if name not in self.numbers:
                raise _Rejected(f"step {number}: there is no automaton {name!r}")
            automaton = self.model.automata[self.numbers[name]]
            if not 0 <= edge < len(automaton.edges):
                raise _Rejected(f"step {number}: {name!r} has no edge {edge}")
            if not 0 <= destination < len(automaton.edges[edge].destinations):
                raise _Rejected(f"step {number}: edge {edge} of {name!r} has no destination {destination}")
            parts.append((self.numbers[name], edge, destination))
        return tuple(parts)

    def _decision(self, number: int, state: Configuration) -> Decision:
        assert self.policy is not None
        allowed = None
        if self.policy.filter:
            applicable = self.interpreter.applicable_labels(state)
            allowed = [label for label in self.policy.labels if label in applicable] or None
        decision = decide(self.policy, self.interpreter.valuation(state), allowed)
        if decision.tie:
            self.notes.ties.append(number)
        if decision.deployed != decision.label:
            said = f"state {number}: exactly {decision.label!r}, deployed arithmetic {decision.deployed!r}"
            self.notes.disagreements.append(said)
        return decision

    def _check_choice(self, number: int, state: Configuration, label: str | None) -> None:
        if self.policy is None or label is None or label not in self.policy.labels:
            return
        chosen = self._decision(number, state).label
        if chosen != label:
            raise _Rejected(f"step {number}: the policy chooses {chosen!r} here, not {label!r}")

    def _check_stutter(self, number: int, state: Configuration, following: Configuration) -> None:
        if state != following:
            raise _Rejected(f"step {number} has no edges, but the state changes")
        possible = self.interpreter.applicable_labels(state)
        if self.policy is not None:
            controlled = set(self.policy.labels)
            chosen = self._decision(number, state).label
            possible = {label for label in possible if label is None or label not in controlled or label == chosen}
        if possible:
            raise _Rejected(f"step {number} stays, although a step by {sorted(map(str, possible))} is possible")


def _violation_of(question: FormulaProperty) -> tuple[int, int | None, Expression]:
    """Of which steps a property on paths speaks, and the condition that it demands there."""
    formula: Any = question.formula
    if isinstance(formula, Atom):
        return 0, 0, formula.expression
    is_simple = isinstance(formula, Quantified) and formula.quantifier == "A" and formula.path.operator in ("G", "X")
    if is_simple and isinstance(formula.path.right, Atom):
        return formula.path.bounds.lower, formula.path.bounds.upper, formula.path.right.expression
    raise _Rejected("a trace cannot show the violation of a property of this form")
