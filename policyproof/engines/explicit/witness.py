"""From a path of packed states to a trace of the network of automata.

The path knows only the variables that matter.  The trace begins in a full start state that agrees
with the path's first one, and follows operators whose effect on the known variables is the path's;
their effect on all the others is computed exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policyproof.engines.policy_successors import PolicySuccessors
from policyproof.evidence.trace import Trace, TraceState, TraceStep
from policyproof.model.automata import Variable, location_variable
from policyproof.model.exact import ExactProgram
from policyproof.model.expressions import Expression, conjunction, constant
from policyproof.model.flat import FlatModel, Freedom, Operator
from policyproof.model.start_states import boxes_where

State = dict[str, Any]


def concrete_trace(
    successors: PolicySuccessors, words: NDArray[np.int64], starts: tuple[Expression, ...], *, kind: str = "unsafe"
) -> Trace:
    """The trace of a path of packed states; raises `AssertionError` if the path is none (a bug)."""
    flat = successors.flat
    state = _full_start(successors, words[0], starts)
    states, steps = [state], []
    for current, following in pairwise(words):
        found = successors.expand(current[None, :])
        same = np.flatnonzero((found.words == following).all(axis=1))
        if len(same) == 0:
            # A stopped state stays where it is.
            if len(found) or (current != following).any():
                raise AssertionError("the path has a step that is no transition")
            states.append(state)
            steps.append(TraceStep(None, ()))
            continue
        operator = flat.operators[int(found.operator[same[0]])]
        wanted = known_values(successors, following)
        state = apply_operator(operator, state, wanted)
        states.append(state)
        steps.append(step_of(flat, operator))
    return Trace(tuple(trace_state(flat, state) for state in states), tuple(steps), kind)


def known_values(successors: PolicySuccessors, words: NDArray[np.int64]) -> State:
    variables = successors.generator.variables
    values = successors.layout.unpack(words[None, :])[0]
    return {
        item.name: bool(value) if item.domain.kind == "bool" else int(value)
        for item, value in zip(variables, values, strict=True)
    }


def _full_start(successors: PolicySuccessors, words: NDArray[np.int64], starts: tuple[Expression, ...]) -> State:
    flat = successors.flat
    known = known_values(successors, words)
    fixed = [item.expression.equals(constant(known[item.name])) for item in successors.generator.variables]
    for condition in starts:
        for boxes in boxes_where(flat, conjunction([*fixed, condition])):
            for lower, upper in zip(boxes.lower[boxes.certain], boxes.upper[boxes.certain], strict=True):
                return {
                    item.name: _value_within(item, int(low), int(high))
                    for item, low, high in zip(flat.variables, lower, upper, strict=True)
                }
    raise AssertionError("the path begins in no start state")


def _value_within(item: Variable, lower: int, upper: int) -> Any:
    """A value of a variable in the box of a start condition that holds throughout."""
    if item.domain.kind == "bool":
        return bool(lower)
    if item.domain.kind == "int":
        return min(max(0, lower), upper)
    ends = np.array([lower, upper], dtype=np.int64).view(np.float64)
    finite = [Fraction(float(end)) for end in ends if np.isfinite(end)]
    # Rounded ends may lie just outside the domain.
    inside = [value for value in finite if value in item.domain]
    return inside[0] if inside else item.initial if item.initial is not None else Fraction(0)


def apply_operator(operator: Operator, state: State, wanted: Mapping[str, Any]) -> State:
    """The successor by an operator, exactly; what the environment chooses is taken from `wanted`."""
    updates = list(operator.update.items())
    roots = [value.lower if isinstance(value, Freedom) else value for _, value in updates]
    applicable, *values = ExactProgram([operator.guard, *roots])(state)
    if applicable is not True:
        raise AssertionError("the path uses an operator that is not applicable")
    following = dict(state)
    for (name, update), value in zip(updates, values, strict=True):
        following[name] = wanted.get(name, value) if isinstance(update, Freedom) else value
    if any(following[name] != value for name, value in wanted.items()):
        raise AssertionError("an operator does not lead to the next state of the path")
    return following


def step_of(flat: FlatModel, operator: Operator) -> TraceStep:
    automata = flat.model.automata
    return TraceStep(
        operator.label,
        tuple((automata[number].name, edge, destination) for number, edge, destination in operator.origin),
    )


def trace_state(flat: FlatModel, state: Mapping[str, Any]) -> TraceState:
    locations = {
        automaton.name: automaton.locations[state[location_variable(automaton.name)]].name
        for automaton in flat.model.automata
    }
    values = {item.name: state[item.name] for item in flat.model.variables if not item.transient}
    return TraceState(locations, values)
