"""The abstraction by its definition (ICAPS22, definition 5): enumerate all concrete transitions, and abstract them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policyproof.engines.ppa.search import PpaSearch
from policyproof.evidence.interpreter import Interpreter
from policyproof.evidence.plain_values import Undefined, value_of
from policyproof.model.automata import Model
from policyproof.model.expressions import TRUE, Expression, apply, constant
from policyproof.model.properties import SafetyProperty
from tests.support.naive import Key, key_of, naive_search, start_states
from tests.support.random_models import RandomSystem

AbstractState = tuple[tuple[bool, ...], tuple[str, ...]]
"""What holds of the predicates, and where the automata are."""


@dataclass
class NaiveAbstraction:
    """The fragment that is reachable from the abstract start states."""

    start: set[AbstractState]
    states: set[AbstractState]
    transitions: set[tuple[AbstractState, str | None, AbstractState]]
    unsafe: set[AbstractState]
    safe_starts: set[AbstractState]
    undefined_unsafe: bool = False


def holds(condition: Expression, valuation: dict) -> bool:  # type: ignore[type-arg]
    try:
        return value_of(condition, valuation) is True
    except Undefined:
        return False


def naive_abstraction(system: RandomSystem, atoms: Sequence[Expression]) -> NaiveAbstraction:
    model = system.model.model
    interpreter = Interpreter(model)
    question = system.question
    # From everywhere: an abstract state stands for states that nothing reaches, too.
    anywhere: SafetyProperty = dataclasses.replace(question, start=TRUE)
    every = naive_search(model, anywhere, system.policy)
    if every.undefined_unsafe:
        return NaiveAbstraction(set(), set(), set(), set(), set(), undefined_unsafe=True)

    def abstract(key: Key) -> AbstractState:
        valuation = interpreter.valuation(every.configurations[key])
        return tuple(holds(atom, valuation) for atom in atoms), key[0]

    of = {key: abstract(key) for key in every.configurations}
    all_transitions = {(of[source], label, of[target]) for source, label, target in every.triples}
    all_unsafe = {
        of[key]
        for key, state in every.configurations.items()
        if holds(question.unsafe, interpreter.valuation(state))  # type: ignore[arg-type]
    }
    start = {of[key_of(state)] for state in start_states(interpreter, question)}
    successors: dict[AbstractState, set[tuple[str | None, AbstractState]]] = {}
    for source, label, target in all_transitions:
        successors.setdefault(source, set()).add((label, target))
    states, stack = set(start), list(start)
    while stack:
        for _, target in successors.get(stack.pop(), ()):
            if target not in states:
                states.add(target)
                stack.append(target)
    transitions = {item for item in all_transitions if item[0] in states}
    unsafe = states & all_unsafe
    bad = set(unsafe)
    while True:
        more = {source for source, _, target in transitions if target in bad} - bad
        if not more:
            break
        bad |= more
    return NaiveAbstraction(start, states, transitions, unsafe, start - bad)


@dataclass(frozen=True)
class FoundAbstraction:
    """What an engine found, in the words of the naive twin."""

    start: set[AbstractState]
    states: set[AbstractState]
    transitions: set[tuple[AbstractState, str | None, AbstractState]]
    unsafe: set[AbstractState]


def found_by(search: PpaSearch, model: Model) -> FoundAbstraction:
    """The abstraction that a search has built."""
    graph, labels = search.graph, search.question.flat.labels
    locations = [[location.name for location in part.locations] for part in model.automata]
    given = graph.predicates.given
    states: list[AbstractState] = []
    for row in graph.truths(np.arange(graph.states.count)).tolist():
        places, position = [], given
        for names in locations:
            # The atoms `location <= k`: the first that holds says where.
            flags = row[position : position + len(names) - 1]
            places.append(names[flags.index(True) if True in flags else len(names) - 1])
            position += len(names) - 1
        states.append((tuple(row[:given]), tuple(places)))
    return FoundAbstraction(
        {states[number] for number in graph.start.tolist()},
        set(states),
        {
            (states[source], None if label < 0 else labels[label], states[target])
            for source, label, target in graph.transitions
        },
        {states[number] for number in graph.unsafe},
    )


def random_predicates(system: RandomSystem, rng: random.Random) -> list[Expression]:
    """Comparisons with constants and between variables, sums, truth values, quotients, the unsafe condition itself."""
    variables = [item for item in system.model.model.variables if not item.transient]
    integers = [item for item in variables if item.domain.kind == "int"]
    truths = [item.expression for item in variables if item.domain.kind == "bool"]
    found: list[Expression] = []
    for _ in range(rng.randint(0, 5)):
        kind = rng.choice(["box", "box", "relation", "sum", "truth", "partial", "unsafe"])
        if kind == "truth" and truths:
            found.append(rng.choice(truths))
        elif kind == "unsafe" and system.question.unsafe is not None:
            found.append(system.question.unsafe)
        elif integers:
            first, second = rng.choice(integers), rng.choice(integers)
            bound = constant(rng.randint(int(first.domain.range[0]) - 1, int(first.domain.range[1]) + 1))
            if kind == "relation":
                found.append(apply(rng.choice(["<", "≤", "=", "≠"]), first.expression, second.expression))
            elif kind == "sum":
                total = first.expression + rng.choice([-2, -1, 1, 2]) * second.expression
                found.append(apply(rng.choice(["<", "≥", "="]), total, bound))
            elif kind == "partial":
                found.append(apply("≤", apply("/", first.expression, second.expression), bound))
            else:
                found.append(apply(rng.choice(["≥", "≤", "=", "<"]), first.expression, bound))
    return found
