"""Many environments of one model at once, as arrays: what training acts in.

All environments move in one call of the batched successor generator, so that a step of a thousand of
them costs a few milliseconds.  An episode ends as in `to_gym`: in an unsafe state, in a goal state,
or when the chosen label is not applicable and nothing else is possible (stuck); it is cut off after
`maximal_steps`.  A new episode begins at once.

Rewards are those of `Rewards`, with potential-based shaping (Ng, Harada and Russell, 1999): a step
from s to s' also earns discount * potential(s') - potential(s), with potential 0 at the end of an
episode.  That changes no optimal policy, only how fast one is found.  Where the goal is so many steps
away that its discounted worth vanishes, `progress` rewards on the way: a step earns progress(s') -
progress(s), to the end, and that is a goal of its own.

Which variables the policy reads is chosen by name; the inputs are scaled to about [-1, 1], by domains
where these are bounded, else by what random episodes show.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policyproof.engines.simulation import Simulator
from policyproof.model.batch_kernel import evaluate_batch
from policyproof.model.expressions import FALSE, ZERO, Expression
from policyproof.model.flat import FlatModel
from policyproof.model.properties import SafetyProperty
from policyproof.run.budget import Budget
from policyproof.run.errors import InvalidInput

START_POOL = 1 << 14
"""How many start states are drawn at a time."""

PROBE_STATES, PROBE_STEPS = 1000, 50
"""The random episodes that show how large unbounded variables become."""


@dataclass(frozen=True)
class Rewards:
    """What is earned by what happens."""

    goal: float = 1.0
    unsafe: float = -1.0
    stuck: float = -1.0
    step: float = 0.0
    model: float = 1.0
    """How much the rewards of the property's own objective count."""


@dataclass(frozen=True)
class Inputs:
    """What the policy reads: columns of states, and their scaling (x - subtract) / divide."""

    names: tuple[str, ...]
    columns: NDArray[np.int64]
    is_real: NDArray[np.bool_]
    subtract: NDArray[np.float64]
    divide: NDArray[np.float64]

    def read(self, states: NDArray[np.int64]) -> NDArray[np.float32]:
        """The scaled inputs of `states[n, variable]`."""
        chosen = states[:, self.columns]
        values = np.where(self.is_real, chosen.view(np.float64), chosen.astype(np.float64))
        return ((values - self.subtract) / self.divide).astype(np.float32)


@dataclass(frozen=True)
class Happened:
    """What one step did, to each of the environments."""

    inputs: NDArray[np.float32]
    """What the policy reads after the step, before a new episode begins."""
    possible: NDArray[np.bool_]
    """`possible[n, label]` after the step."""
    reward: NDArray[np.float32]
    ended: NDArray[np.bool_]
    """By a goal, an unsafe state, or because nothing was possible."""
    cut_off: NDArray[np.bool_]


def readable(flat: FlatModel) -> tuple[str, ...]:
    """What a policy may read: the variables, and the locations of automata that move (`@name`)."""
    return tuple(item.name for item in flat.variables if not (item.name.startswith("@") and item.domain.size == 1))


def choose_inputs(flat: FlatModel, reads: Sequence[str], ignores: Sequence[str]) -> tuple[str, ...]:
    """The variables that match a pattern of `reads` (none: all) and none of `ignores`, in the model's order."""
    names = readable(flat)
    for pattern in [*reads, *ignores]:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            message = f"no variable matches {pattern!r} (there are: {', '.join(names)})"
            raise InvalidInput(message)
    chosen = tuple(
        name
        for name in names
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in reads or ["*"])
        and not any(fnmatch.fnmatchcase(name, pattern) for pattern in ignores)
    )
    if not chosen:
        raise InvalidInput("the policy would read no variable at all")
    return chosen


def start_condition(flat: FlatModel, prop: SafetyProperty) -> Expression:
    """Where episodes begin."""
    if prop.start is None:
        return flat.initial
    start = flat.state_condition(prop.start)
    return start | flat.initial if prop.include_initial else start


class Environments:
    """`count` environments that step together; `inputs` and `possible` are those of the present states."""

    def __init__(
        self,
        flat: FlatModel,
        prop: SafetyProperty,
        *,
        reads: Sequence[str],
        count: int,
        maximal_steps: int,
        discount: float,
        rewards: Rewards = Rewards(),
        potential: Expression | None = None,
        progress: Expression | None = None,
        random: np.random.Generator,
    ) -> None:
        if not flat.labels:
            raise InvalidInput("the model has no labels that a policy could choose")
        self.flat, self.rewards, self.discount = flat, rewards, discount
        self.count, self.maximal_steps = count, maximal_steps
        self._random = random
        self.simulator = Simulator(flat)
        # A label is chosen in every step; only silent steps are left to the environment.
        self.simulator.successors.environment = frozenset()
        self._start = start_condition(flat, prop)
        self.start_boxes = self.simulator.start_boxes(self._start, Budget())
        conditions = [FALSE if condition is None else condition for condition in (prop.unsafe, prop.goal)]
        self._conditions = self.simulator.compile(conditions)
        given = (prop.step_reward, potential, progress)
        values = [ZERO if item is None else flat.state_condition(item) for item in given]
        self._values = self.simulator.generator.compile(values)
        self._value_is_real = np.array([item.kind == "real" for item in values])
        self._pool = np.empty((0, self.simulator.layout.words), dtype=np.int64)
        self.words = self._starts(count)
        self.reading = self._scaled(reads)
        self._steps = np.zeros(count, dtype=np.int64)
        states = self.simulator.layout.unpack(self.words)
        self.inputs = self.reading.read(states)
        self.possible = self._possible(self.words)
        self._reached = self._state_values(states)[:, 1:]

    def step(self, labels: NDArray[np.int64]) -> Happened:
        """Take a label in every environment; the environment does the rest at random."""
        following, _, moved = self.simulator.step(self.words, labels, self._random)
        states = self.simulator.layout.unpack(following)
        flags = evaluate_batch(self._conditions, states)[0] != 0
        unsafe, goal = flags[:, 0] & moved, flags[:, 1] & moved & ~flags[:, 0]
        ended = unsafe | goal | ~moved
        self._steps += 1
        cut_off = ~ended & (self._steps >= self.maximal_steps)
        values = self._state_values(states)
        reached = values[:, 1:]
        new_potential = np.where(ended, 0.0, reached[:, 0])
        reward = self.rewards.step + self.rewards.model * values[:, 0]
        reward += self.discount * new_potential - self._reached[:, 0] + reached[:, 1] - self._reached[:, 1]
        reward += unsafe * self.rewards.unsafe + goal * self.rewards.goal + ~moved * self.rewards.stuck
        inputs, possible = self.reading.read(states), self._possible(following)
        happened = Happened(inputs, possible, reward.astype(np.float32), ended, cut_off)
        self._begin_again(following, inputs, possible, reached, np.flatnonzero(ended | cut_off))
        return happened

    def _begin_again(
        self,
        words: NDArray[np.int64],
        inputs: NDArray[np.float32],
        possible: NDArray[np.bool_],
        reached: NDArray[np.float64],
        over: NDArray[np.int64],
    ) -> None:
        self.words, self.inputs, self.possible, self._reached = words, inputs, possible, reached
        if len(over) == 0:
            return
        fresh = self._starts(len(over))
        states = self.simulator.layout.unpack(fresh)
        # What happened keeps the old arrays, so the new ones are copies.
        self.inputs, self.possible = inputs.copy(), possible.copy()
        self.words[over], self.inputs[over] = fresh, self.reading.read(states)
        self.possible[over], self._reached[over] = self._possible(fresh), self._state_values(states)[:, 1:]
        self._steps[over] = 0

    def _starts(self, count: int) -> NDArray[np.int64]:
        """Start states in which something is still to be done."""
        while len(self._pool) < count:
            states = self.simulator.draw(self.start_boxes, self._start, max(count, START_POOL), self._random)
            over = (evaluate_batch(self._conditions, states)[0] != 0).any(axis=1)
            if over.all():
                raise InvalidInput("every start state that was drawn is unsafe or at the goal already")
            self._pool = np.concatenate([self._pool, self.simulator.layout.pack(states[~over])])
        taken, self._pool = self._pool[:count], self._pool[count:]
        return taken.copy()

    def _possible(self, words: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which labels do not leave the environment stuck: the applicable ones, or all where it moves by itself."""
        applicable = self.simulator.generator.applicable(words)
        return np.asarray(applicable[:, :-1] | applicable[:, -1:])

    def _state_values(self, states: NDArray[np.int64]) -> NDArray[np.float64]:
        """`[n, 3]`: the model's own reward for being here, the potential, and the progress."""
        raw = evaluate_batch(self._values, states)[0]
        return np.where(self._value_is_real, raw.view(np.float64), raw.astype(np.float64))

    # Scaling

    def _scaled(self, reads: Sequence[str]) -> Inputs:
        position = {name: index for index, name in enumerate(self.flat.names)}
        columns = np.array([position[name] for name in reads], dtype=np.int64)
        is_real = np.array([self.flat.variables[column].domain.kind == "real" for column in columns])
        count = len(columns)
        raw = Inputs(tuple(reads), columns, is_real, np.zeros(count), np.ones(count))
        ranges = [self.flat.variables[column].domain.range for column in columns]
        low, high = np.array([[float(bottom), float(top)] for bottom, top in ranges]).T
        free = ~(np.isfinite(low) & np.isfinite(high))
        if free.any():
            seen = self._probe(raw)
            low[free], high[free] = -seen[free], seen[free]
        middle, half = (low + high) / 2, (high - low) / 2
        return Inputs(raw.names, columns, is_real, middle, np.where(half > 0, half, 1.0))

    def _probe(self, raw: Inputs) -> NDArray[np.float64]:
        """The size that each input reaches in random episodes."""
        words = self._starts(PROBE_STATES)
        largest = np.full(len(raw.names), 1e-6)
        for _ in range(PROBE_STEPS):
            states = self.simulator.layout.unpack(words)
            over = (evaluate_batch(self._conditions, states)[0] != 0).any(axis=1)
            words = words[~over]
            if len(words) == 0:
                break
            largest = np.maximum(largest, np.abs(raw.read(states[~over])).max(axis=0))
            words, _, _ = self.simulator.step(words, None, self._random)
        return largest
