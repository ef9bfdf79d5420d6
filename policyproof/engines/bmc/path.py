"""A path that a solver proposes, followed in exact arithmetic, and the trace that it becomes.

Only the start state, the operators, and the values that the environment chooses are taken from the solver;
everything else is computed.  So a path that is confirmed happens, whatever the solver's arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from policyproof.engines.explicit.witness import step_of, trace_state
from policyproof.engines.question import SafetyQuestion
from policyproof.evidence.trace import Trace
from policyproof.model.enclosures import Enclosure
from policyproof.model.exact import ExactProgram
from policyproof.model.flat import Freedom, Operator
from policyproof.run.errors import InvalidInput

State = dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """What a solver says: the states with all variables by name, and the operators between them."""

    states: tuple[State, ...]
    operators: tuple[int, ...]


@dataclass(frozen=True)
class Mismatch:
    """Why a candidate is no path; `decided`: the policy chooses this output in `state`, and not the one taken."""

    reason: str
    step: int
    state: State
    decided: int | None = None


class Follower:
    """Follows candidates for one question."""

    def __init__(self, question: SafetyQuestion, operators: Sequence[Operator]) -> None:
        self.question = question
        self.operators = operators
        self._programs: dict[int, ExactProgram] = {}
        self._guards: ExactProgram | None = None

    def follow(self, candidate: Candidate) -> Trace | Mismatch:
        """The trace of a candidate, or the place where it is none; raises `InvalidInput` for errors of the input."""
        question, flat = self.question, self.question.flat
        state = {item.name: candidate.states[0][item.name] for item in flat.variables}
        if not all(state[item.name] in item.domain for item in flat.variables):
            return Mismatch("the first state is outside the domains", 0, state)
        if not any(value is True for value in ExactProgram(question.starts)(state)):
            return Mismatch("the first state is no start state", 0, state)
        states, steps = [state], []
        for step, number in enumerate(candidate.operators):
            operator = self.operators[number]
            following = self._successor(step, number, state, candidate.states[step + 1])
            if isinstance(following, Mismatch):
                return following
            decided = self._decided(state)
            if decided is not None and operator.label in decided[1] and decided[1][decided[0]] != operator.label:
                return Mismatch("the policy chooses another label", step, state, decided[0])
            state = following
            states.append(state)
            steps.append(step_of(flat, operator))
        (unsafe,) = ExactProgram([question.unsafe])(state)
        if unsafe is None:
            raise InvalidInput(f"the unsafe condition has no value in the reachable state {state}")
        if unsafe is not True:
            # A state in which the policy has no network is an error, which the decision reports.
            if self.question.policy is not None:
                self.question.policy.exact_inputs(state)
            return Mismatch("the last state is not unsafe", len(steps), state)
        return Trace(tuple(trace_state(flat, state) for state in states), tuple(steps))

    def _successor(self, step: int, number: int, state: State, wanted: Mapping[str, Any]) -> State | Mismatch:
        operator = self.operators[number]
        if number not in self._programs:
            roots = [operator.guard]
            for update in operator.update.values():
                roots += [update.lower, update.upper] if isinstance(update, Freedom) else [update]
            self._programs[number] = ExactProgram(roots)
        applicable, *values = self._programs[number](state)
        if applicable is not True:
            return Mismatch("an operator is not applicable", step, state)
        following = dict(state)
        ends = iter(values)
        for name, update in operator.update.items():
            value: Any = next(ends)
            if isinstance(update, Freedom):
                value = min(max(value, wanted[name]), next(ends))
            if isinstance(value, Enclosure):
                return Mismatch(f"the value of {name!r} becomes irrational", step, state)
            following[name] = value
        return following

    def _decided(self, state: State) -> tuple[int, tuple[str, ...]] | None:
        """The output that the policy chooses, and the labels of its outputs."""
        policy = self.question.policy
        if policy is None:
            return None
        allowed = None
        if policy.filter:
            if self._guards is None:
                self._guards = ExactProgram([operator.guard for operator in self.operators])
            values = self._guards(state)
            labels = {operator.label for operator, value in zip(self.operators, values, strict=True) if value is True}
            allowed = [number for number, label in enumerate(policy.labels) if label in labels] or None
        return policy.decide_exactly(state, allowed), policy.labels


def nearest(value: float, lower: int | Fraction | None, upper: int | Fraction | None, kind: str) -> Any:
    """The value of a variable that is nearest to a float."""
    found: int | Fraction = Fraction(value) if kind == "real" else round(value)
    if lower is not None:
        found = max(found, lower)
    if upper is not None:
        found = min(found, upper)
    return bool(found) if kind == "bool" else found
