"""Policies by imitation: solve the model by value iteration, then fit a network to the best labels.

For models whose states can be listed.  The cost of a label is the number of steps to the goal, on
average over what the environment may do, with a penalty for unsafe and stuck states that no detour
outweighs.  Every label that is nearly best is a correct answer for the network, which is trained by
Adam on the probability that it gives to the correct ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policyproof.model.batch_kernel import evaluate_batch
from policyproof.model.expressions import FALSE
from policyproof.model.flat import FlatModel, flatten
from policyproof.model.properties import SafetyProperty
from policyproof.model.source import LoadedModel
from policyproof.model.start_states import enumerate_states
from policyproof.model.state_set import StateSet
from policyproof.model.successors import SuccessorGenerator
from policyproof.policy.network import Activation, Affine, Layer, Network
from policyproof.run.budget import Budget

Floats = NDArray[np.float64]

PENALTY = 10_000.0
"""The cost of an unsafe state, far above that of any detour."""


@dataclass(frozen=True)
class Solution:
    """The states of a model (all that some label can reach), and the value of every label in them."""

    flat: FlatModel
    states: NDArray[np.int64]
    costs: Floats
    """costs[state, label]: steps to the goal on average; PENALTY and more where it may go wrong."""

    def correct(self, slack: float = 0.5) -> NDArray[np.bool_]:
        """The labels that are within `slack` of the best one."""
        return np.asarray(self.costs <= self.costs.min(axis=1, keepdims=True) + slack)


def solve(model: LoadedModel, prop: SafetyProperty, *, avoid_unsafe: bool = True, rounds: int = 1000) -> Solution:
    """Value iteration over all states that any labels can reach from the start states."""
    flat = flatten(model.model)
    generator = SuccessorGenerator(flat)
    states = StateSet(generator.layout.words, Budget())
    start = flat.initial if prop.start is None else flat.state_condition(prop.start) | flat.initial
    for batch in enumerate_states(flat, start):
        states.add(generator.layout.pack(batch))
    transitions: list[list[tuple[NDArray[np.int64], NDArray[np.int64]]]] = [[] for _ in flat.labels]
    expanded = 0
    while expanded < states.count:
        end = min(states.count, expanded + 4096)
        for label in range(len(flat.labels)):
            found = generator.expand(states.words[expanded:end], [label])
            transitions[label].append((found.source + expanded, states.add(found.words)))
        expanded = end
    table = generator.layout.unpack(states.words)
    conditions = [FALSE if part is None else flat.state_condition(part) for part in (prop.unsafe, prop.goal)]
    flags = evaluate_batch(generator.compile(conditions), table)[0] != 0
    unsafe, goal = flags[:, 0] & avoid_unsafe, flags[:, 1]
    joined = [
        (np.concatenate([source for source, _ in parts]), np.concatenate([target for _, target in parts]))
        for parts in transitions
    ]
    return Solution(flat, table, _value_iteration(states.count, joined, unsafe, goal, rounds))


def _value_iteration(
    count: int,
    transitions: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
    unsafe: NDArray[np.bool_],
    goal: NDArray[np.bool_],
    rounds: int,
) -> Floats:
    # From below: a state is at first thought to be at the goal, so that waiting costs what it costs.
    value = np.where(unsafe, PENALTY, 0.0)
    costs = np.zeros((count, len(transitions)))
    for _ in range(rounds):
        for label, (source, target) in enumerate(transitions):
            successors = np.bincount(source, minlength=count)
            average = np.bincount(source, value[target], minlength=count) / np.maximum(successors, 1)
            costs[:, label] = np.where(successors == 0, PENALTY, 1.0 + average)
        new = np.minimum(np.where(goal, 0.0, costs.min(axis=1)), PENALTY)
        new = np.where(unsafe, PENALTY, new)
        if np.abs(new - value).max() < 1e-6:
            break
        value = new
    return costs


def fit(
    inputs: Floats,
    correct: NDArray[np.bool_],
    *,
    hidden: tuple[int, ...] = (16, 16),
    epochs: int = 300,
    batch: int = 256,
    rate: float = 3e-3,
    seed: int = 0,
) -> Network:
    """A ReLU network whose greatest output is, as often as possible, a correct one."""
    random = np.random.default_rng(seed)
    sizes = [inputs.shape[1], *hidden, correct.shape[1]]
    scale = np.abs(inputs).max(axis=0) + 1e-9
    parameters: list[Floats] = []
    for columns, rows in pairwise(sizes):
        parameters.append(random.normal(size=(rows, columns)) * np.sqrt(2.0 / columns))
        parameters.append(np.zeros(rows))
    moments: list[Any] = [[np.zeros_like(p), np.zeros_like(p)] for p in parameters]
    step = 0
    for epoch in range(epochs):
        order = random.permutation(len(inputs))
        current = rate * (1.0 - epoch / epochs)
        for first in range(0, len(order), batch):
            rows_of_batch = order[first : first + batch]
            step += 1
            gradients = _gradients(parameters, inputs[rows_of_batch] / scale, correct[rows_of_batch])
            for parameter, gradient, moment in zip(parameters, gradients, moments, strict=True):
                moment[0] = 0.9 * moment[0] + 0.1 * gradient
                moment[1] = 0.999 * moment[1] + 0.001 * gradient**2
                first_moment, second_moment = moment[0] / (1 - 0.9**step), moment[1] / (1 - 0.999**step)
                parameter -= current * first_moment / (np.sqrt(second_moment) + 1e-8)
    layers: list[Layer] = []
    for number in range(0, len(parameters), 2):
        weights = parameters[number] / scale if number == 0 else parameters[number]
        # The network is deployed in float32, so that is what it is.
        layers.append(Affine(_as_float32(weights), _as_float32(parameters[number + 1])))
        if number < len(parameters) - 2:
            layers.append(Activation("relu"))
    return Network(tuple(layers), inputs.shape[1], "float32", "imitation")


def _as_float32(values: Floats) -> Floats:
    return values.astype(np.float32).astype(np.float64)


def _gradients(parameters: list[Floats], inputs: Floats, correct: NDArray[np.bool_]) -> list[Floats]:
    """The gradient of - log(probability of the correct labels), by back-propagation."""
    activations = [inputs]
    for number in range(0, len(parameters), 2):
        values = activations[-1] @ parameters[number].T + parameters[number + 1]
        activations.append(np.maximum(values, 0.0) if number < len(parameters) - 2 else values)
    logits = activations[-1] - activations[-1].max(axis=1, keepdims=True)
    weights = np.exp(logits)
    probabilities = weights / weights.sum(axis=1, keepdims=True)
    among_correct = weights * correct
    target = among_correct / (among_correct.sum(axis=1, keepdims=True) + 1e-30)
    error = (probabilities - target) / len(inputs)
    gradients: list[Floats] = []
    for number in range(len(parameters) - 2, -1, -2):
        gradients[:0] = [error.T @ activations[number // 2], error.sum(axis=0)]
        if number:
            error = (error @ parameters[number]) * (activations[number // 2] > 0)
    return gradients
