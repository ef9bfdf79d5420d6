"""What a model of the zoo does, as sets of plain tuples, to compare with enumerators that know only the papers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from policyproof.engines.explicit.search import GOAL, UNSAFE, ExplicitSearch
from policyproof.engines.question import safety_question
from policyproof.model.source import LoadedModel
from policyproof.run.budget import Budget

State = Hashable
Moves = Callable[[State], Iterable[tuple[str | None, State]]]


@dataclass(frozen=True)
class Behaviour:
    """Start states, all reachable states, (source, label, target), and the states that are unsafe or at the goal."""

    starts: set[State]
    states: set[State]
    transitions: set[tuple[State, str | None, State]]
    unsafe: set[State]
    goal: set[State]


def behaviour(loaded: LoadedModel, read: Callable[[dict[str, int]], State]) -> Behaviour:
    """Of a model, without a policy; `read` turns the values of the variables into a state of the enumerator."""
    search = ExplicitSearch(safety_question(loaded.model, loaded.property(), None), Budget(), slicing=False)
    for _ in search.run(until_unsafe=False):
        pass
    generator = search.successors.generator
    names = [item.name for item in generator.variables]

    def states(words):
        return [read(dict(zip(names, row, strict=True))) for row in generator.layout.unpack(words).tolist()]

    words = search.states.words[: search.states.count]
    reached = states(words)
    assert len(set(reached)) == len(reached), "two states of the model are one state of the enumerator"
    found = generator.expand(words)
    labels = [None if label < 0 else loaded.model.labels[label] for label in found.label.tolist()]
    sources = [reached[source] for source in found.source.tolist()]
    flags = search.flags.view
    return Behaviour(
        starts=set(reached[: search.start_count]),
        states=set(reached),
        transitions=set(zip(sources, labels, states(found.words), strict=True)),
        unsafe={state for state, flag in zip(reached, flags, strict=True) if flag & (1 << UNSAFE)},
        goal={state for state, flag in zip(reached, flags, strict=True) if flag & (1 << GOAL)},
    )


def enumerated(
    starts: Iterable[State], moves: Moves, is_unsafe: Callable[[State], bool], is_goal: Callable[[State], bool]
) -> Behaviour:
    """Of plain Python functions."""
    queue = list(dict.fromkeys(starts))
    first, reached, transitions = set(queue), set(queue), set()
    for state in queue:
        for label, target in moves(state):
            transitions.add((state, label, target))
            if target not in reached:
                reached.add(target)
                queue.append(target)
    unsafe, goal = ({state for state in reached if holds(state)} for holds in (is_unsafe, is_goal))
    return Behaviour(first, reached, transitions, unsafe, goal)
