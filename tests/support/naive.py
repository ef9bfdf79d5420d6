"""The naive twin of the explicit engine: dictionaries and loops, one state at a time, exact arithmetic."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from policyproof.evidence.interpreter import Blocked, Configuration, Interpreter
from policyproof.evidence.plain_policy import decide
from policyproof.evidence.plain_values import Undefined, value_of
from policyproof.model.automata import Model
from policyproof.model.properties import SafetyProperty
from policyproof.policy.policy import Policy

Key = tuple[tuple[str, ...], tuple[Any, ...]]


@dataclass
class NaiveResult:
    """What the naive search found."""

    states: int = 0
    start_states: int = 0
    triples: set[tuple[Key, str | None, Key]] = field(default_factory=set)
    pairs: set[tuple[Key, Key]] = field(default_factory=set)
    unsafe_states: int = 0
    shortest: int | None = None
    safe_starts: int = 0
    unsafe_starts: int = 0
    stuck: int = 0
    dead: int = 0
    ties: int = 0
    domain_blocked: int = 0
    undefined_unsafe: bool = False
    configurations: dict[Key, Configuration] = field(default_factory=dict)
    edges: dict[Key, set[Key]] = field(default_factory=dict)
    start_keys: list[Key] = field(default_factory=list)


def key_of(state: Configuration) -> Key:
    return state.locations, tuple(state.variables.values())


def naive_search(model: Model, question: SafetyProperty, policy: Policy | None) -> NaiveResult:
    interpreter = _Counting(model)
    result = NaiveResult()
    starts = list(start_states(interpreter, question))
    depth: dict[Key, int] = {key_of(state): 0 for state in starts}
    edges = result.edges
    unsafe: set[Key] = set()
    queue = deque({key_of(state): state for state in starts}.values())
    result.start_states = len(depth)
    start_keys = result.start_keys = list(depth)
    while queue:
        state = queue.popleft()
        key = key_of(state)
        result.configurations[key] = state
        try:
            is_unsafe = value_of(question.unsafe, interpreter.valuation(state))
        except Undefined:
            result.undefined_unsafe = True
            return result
        if is_unsafe:
            unsafe.add(key)
            if result.shortest is None or depth[key] < result.shortest:
                result.shortest = depth[key]
        combinations = list(interpreter.enabled_combinations(state))
        labels = {label for label, _ in combinations}
        allowed = _allowed(model, policy, interpreter, state, labels, result)
        edges[key] = set()
        for label, parts in combinations:
            if allowed is not None and label not in allowed:
                continue
            outcome = interpreter.execute(state, parts)
            assert not isinstance(outcome, Blocked)
            base, ranges = outcome
            names = list(ranges)
            options = [range(low, high + 1) for low, high in ranges.values()]
            for values in itertools.product(*options):
                variables = {**base.variables, **dict(zip(names, values, strict=True))}
                following = Configuration(base.locations, variables)
                target = key_of(following)
                result.triples.add((key, label, target))
                result.pairs.add((key, target))
                edges[key].add(target)
                if target not in depth:
                    depth[target] = depth[key] + 1
                    queue.append(following)
        if not edges[key]:
            result.stuck += bool(combinations)
            result.dead += not combinations
    result.states = len(depth)
    result.unsafe_states = len(unsafe)
    result.domain_blocked = interpreter.domain_blocked
    bad = set(unsafe)
    changed = True
    while changed:
        new = {key for key, targets in edges.items() if key not in bad and targets & bad}
        bad |= new
        changed = bool(new)
    result.unsafe_starts = sum(key in bad for key in start_keys)
    result.safe_starts = len(start_keys) - result.unsafe_starts
    return result


class _Counting(Interpreter):
    """Counts how often a step was blocked because a variable would leave its domain."""

    domain_blocked = 0

    def execute(self, state, parts):  # type: ignore[no-untyped-def]
        outcome = super().execute(state, parts)
        if isinstance(outcome, Blocked) and "outside its domain" in outcome.reason:
            self.domain_blocked += 1
        return outcome


def _allowed(
    model: Model,
    policy: Policy | None,
    interpreter: Interpreter,
    state: Configuration,
    labels: set[str | None],
    result: NaiveResult,
) -> set[str | None] | None:
    if policy is None:
        return None
    permitted = None
    if policy.filter:
        permitted = [label for label in policy.labels if label in labels] or None
    decision = decide(policy, interpreter.valuation(state), permitted)
    result.ties += decision.tie
    environment = {label for label in model.labels if label not in policy.labels}
    return {None, decision.label, *environment}


def start_states(interpreter: Interpreter, question: SafetyProperty):  # type: ignore[no-untyped-def]
    """All assignments, one after the other."""
    model = interpreter.model
    variables = [item for item in model.variables if not item.transient]
    domains = [
        [False, True] if item.domain.kind == "bool" else range(int(item.domain.lower), int(item.domain.upper) + 1)
        for item in variables
    ]
    places = [[location.name for location in automaton.locations] for automaton in model.automata]
    for locations in itertools.product(*places):
        for values in itertools.product(*domains):
            state = Configuration(locations, {item.name: v for item, v in zip(variables, values, strict=True)})
            initial = is_initial(interpreter, state)
            if question.start is None:
                if initial:
                    yield state
            elif _holds(question.start, interpreter.valuation(state)) or (question.include_initial and initial):
                yield state


def is_initial(interpreter: Interpreter, state: Configuration) -> bool:
    model = interpreter.model
    if any(
        location not in automaton.initial_locations
        for automaton, location in zip(model.automata, state.locations, strict=True)
    ):
        return False
    if any(
        item.initial is not None and not item.transient and state.variables[item.name] != item.initial
        for item in model.variables
    ):
        return False
    values = interpreter.valuation(state)
    return _holds(model.restrict_initial, values) and all(
        _holds(automaton.restrict_initial, values) for automaton in model.automata
    )


def _holds(condition, values) -> bool:  # type: ignore[no-untyped-def]
    try:
        return value_of(condition, values) is True
    except Undefined:
        return False
