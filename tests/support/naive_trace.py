"""A second opinion on traces: enumerate what can happen and look whether the trace is among it."""

from __future__ import annotations

import itertools

from policyproof.evidence.interpreter import Blocked, Configuration, Interpreter
from policyproof.evidence.plain_policy import decide
from policyproof.evidence.plain_values import Undefined, value_of
from policyproof.evidence.trace import Trace, TraceState
from tests.support.naive import is_initial
from tests.support.random_models import RandomSystem


def happens(system: RandomSystem, trace: Trace) -> bool:
    """Is the trace one that the naive semantics generates, from a start state to an unsafe one?"""
    model = system.model.model
    interpreter = Interpreter(model)
    try:
        states = [_configuration(interpreter, state) for state in trace.states]
    except KeyError:
        return False
    if not _is_start(system, interpreter, states[0]):
        return False
    if not value_of(system.question.unsafe, interpreter.valuation(states[-1])):
        return False
    return all(
        _is_step(system, interpreter, source, step, target)
        for source, step, target in zip(states, trace.steps, states[1:], strict=False)
    )


def _configuration(interpreter: Interpreter, state: TraceState) -> Configuration:
    model = interpreter.model
    expected = {item.name: item for item in model.variables if not item.transient}
    if set(expected) != set(state.variables) or any(
        value not in expected[name].domain for name, value in state.variables.items()
    ):
        raise KeyError
    return Configuration(tuple(state.locations[part.name] for part in model.automata), dict(state.variables))


def _is_start(system: RandomSystem, interpreter: Interpreter, state: Configuration) -> bool:
    question = system.question
    if question.start is not None:
        try:
            if value_of(question.start, interpreter.valuation(state)):
                return True
        except Undefined:
            pass
        if not question.include_initial:
            return False
    return is_initial(interpreter, state)


def _is_step(system, interpreter, source, step, target) -> bool:  # type: ignore[no-untyped-def]
    names = [part.name for part in interpreter.model.automata]
    combinations = list(interpreter.enabled_combinations(source))
    labels = {label for label, _ in combinations}
    policy = system.policy
    permitted = [label for label in policy.labels if label in labels] or None if policy.filter else None
    chosen = decide(policy, interpreter.valuation(source), permitted).label
    possible = [item for item in combinations if item[0] is None or item[0] not in policy.labels or item[0] == chosen]
    if not step.edges:
        return not possible and source == target
    for label, parts in possible:
        edges = {(names[number], edge, destination) for number, edge, destination in parts}
        if label != step.label or edges != set(step.edges):
            continue
        outcome = interpreter.execute(source, parts)
        if isinstance(outcome, Blocked):
            continue
        base, ranges = outcome
        for values in itertools.product(*(range(low, high + 1) for low, high in ranges.values())):
            variables = {**base.variables, **dict(zip(ranges, values, strict=True))}
            if Configuration(base.locations, variables) == target:
                return True
    return False
