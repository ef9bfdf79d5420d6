"""Imitation in float32: fit a small network to the best labels of a solved model, where it matters.

`imitation.fit` treats all states alike.  A network that is too small to be right everywhere should be
right where it gets itself into: so this one rolls its own policy out in the solved model now and then,
and half of each batch are states that the policy visited (DAgger; Ross, Gordon and Bagnell, 2011).

The loss is the negative logarithm of the probability given to the correct labels together, as there;
and `caution` times that of the labels that do no harm, so that a mistake is rather a detour than a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policyproof.model.batch_kernel import evaluate_batch
from policyproof.model.expressions import FALSE
from policyproof.model.properties import SafetyProperty
from policyproof.model.source import LoadedModel
from policyproof.model.start_states import enumerate_states
from policyproof.model.state_set import StateSet
from policyproof.model.successors import SuccessorGenerator
from policyproof.policy.network import Network
from policyproof.run.budget import Budget
from policyproof.training.environments import start_condition
from policyproof.training.imitation import PENALTY, solve
from policyproof.training.q_network import Adam, Floats32, QNetwork

VISITED = 1 << 17
"""How many visited states are kept."""

UNREACHABLE = -1

PATIENCE = 200
"""What takes more steps than this is taken to be hopeless."""


@dataclass(frozen=True)
class Lesson:
    """States as inputs, which labels are correct or harmless, and where labels lead."""

    inputs: NDArray[np.float64]
    correct: NDArray[np.bool_]
    harmless: NDArray[np.bool_]
    following: NDArray[np.int64]
    """`following[state, label]`: the number of one successor; UNREACHABLE where the label is not applicable."""
    starts: NDArray[np.int64]
    over: NDArray[np.bool_]
    """Where an episode ends."""


@dataclass(frozen=True)
class Effort:
    """How long the network learns, and how it is made."""

    hidden: tuple[int, ...] = (64, 64)
    updates: int = 20_000
    batch: int = 512
    rate: float = 3e-3
    seed: int = 0
    rollouts: int = 512
    longest: int = 60
    caution: float = 1.0
    astray: float = 0.1
    every: int = 200
    """After how many updates the policy is rolled out again."""


def lesson_of(model: LoadedModel, prop: SafetyProperty, reads: Sequence[str]) -> Lesson:
    """Solve a model with few states, and say what a policy that reads these variables can learn from that."""
    solution = solve(model, prop, rounds=PATIENCE)
    flat, costs = solution.flat, solution.costs
    generator = SuccessorGenerator(flat)
    numbers = StateSet(generator.layout.words, Budget())
    words = generator.layout.pack(solution.states)
    numbers.add(words)
    following = np.full(costs.shape, UNREACHABLE, dtype=np.int64)
    for label in range(len(flat.labels)):
        # Where there are several successors, the last one stands for all.
        found = generator.expand(words, [label])
        following[found.source, label] = numbers.add(found.words)
    conditions = [FALSE if part is None else flat.state_condition(part) for part in (prop.unsafe, prop.goal)]
    over = (evaluate_batch(generator.compile(conditions), solution.states)[0] != 0).any(axis=1)
    start = np.concatenate(list(enumerate_states(flat, start_condition(flat, prop))))
    starts = numbers.add(generator.layout.pack(start))
    # From where the goal cannot be reached there is nothing to practise; all states are learnt from anyway.
    hopeful = starts[costs[starts].min(axis=1) < PATIENCE]
    return Lesson(
        inputs=solution.states[:, [flat.names.index(name) for name in reads]].astype(np.float64),
        correct=solution.correct(),
        harmless=solution.costs < PENALTY,
        following=following,
        starts=hopeful if len(hopeful) else starts,
        over=over,
    )


def distil(lesson: Lesson, effort: Effort) -> Network:
    """The network that has learnt the lesson."""
    random = np.random.default_rng(effort.seed)
    low, high = lesson.inputs.min(axis=0), lesson.inputs.max(axis=0)
    middle, half = (low + high) / 2, np.where(high > low, (high - low) / 2, 1.0)
    inputs = ((lesson.inputs - middle) / half).astype(np.float32)
    network = QNetwork((inputs.shape[1], *effort.hidden, lesson.correct.shape[1]), random)
    adam = Adam(len(network.parameters))
    lessons = np.flatnonzero(~lesson.over)
    visited = random.choice(lesson.starts, size=effort.batch)
    for update in range(effort.updates):
        if update % effort.every == 0:
            visited = np.concatenate([visit(lesson, network, inputs, effort, random), visited])[:VISITED]
        half_batch = effort.batch // 2
        chosen = np.concatenate([random.choice(lessons, half_batch), random.choice(visited, half_batch)])
        values = network.forward(inputs[chosen])
        error = _error(values[-1], lesson.correct[chosen])
        error += np.float32(effort.caution) * _error(values[-1], lesson.harmless[chosen])
        rate = effort.rate * (1.0 - 0.98 * update / effort.updates)
        adam.step(network.parameters, network.gradient(values, error), rate)
    return network.export(middle, half)


def visit(
    lesson: Lesson, network: QNetwork, inputs: Floats32, effort: Effort, random: np.random.Generator
) -> NDArray[np.int64]:
    """The states of episodes of the policy, which goes astray now and then."""
    states = random.choice(lesson.starts, size=effort.rollouts)
    found = []
    for _ in range(effort.longest):
        states = states[~lesson.over[states]]
        if len(states) == 0:
            break
        found.append(states)
        labels = network.outputs(inputs[states]).argmax(axis=1)
        strays = random.random(len(states)) < effort.astray
        labels = np.where(strays, random.integers(lesson.correct.shape[1], size=len(states)), labels)
        following = lesson.following[states, labels]
        states = following[following != UNREACHABLE]
    return np.concatenate(found)


def _error(outputs: Floats32, correct: NDArray[np.bool_]) -> Floats32:
    """The derivative of the loss, averaged over the batch."""
    weights = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    among_correct = weights * correct
    probabilities = weights / weights.sum(axis=1, keepdims=True)
    wanted = among_correct / (among_correct.sum(axis=1, keepdims=True) + np.float32(1e-30))
    return np.asarray((probabilities - wanted) / np.float32(len(outputs)), dtype=np.float32)
