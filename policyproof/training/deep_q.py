"""Deep Q-learning (Mnih and others, 2015) for policies, in many environments at once.

The loop: take a label in every environment, mostly the one with the greatest output (epsilon-greedily),
remember what happened, and learn from batches that are drawn by priority.  What is learnt (double
Q-learning; van Hasselt and others, 2016) is the n-step target

    r_1 + g r_2 + ... + g^(n-1) r_n + g^n Q'(s_n, argmax over possible labels of Q(s_n, .)),

with Q' a copy of the network that follows it slowly; it ends where the episode ends.

In this project a label that is not applicable stops the policy.  No episode has to end so in order to
learn that: which labels are applicable is known in every state, so episodes choose among these, and
every remembered state also pushes the outputs of the others below the best applicable one by a
margin.  With `filter` (the policy will be deployed with applicability filtering) that is left out.

Now and then the policy is rolled out as `policyproof simulate` would, and the best one is kept.

Invariant: with equal arguments the result is the same, number for number (budgets in seconds aside).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policyproof.engines.result import Progress
from policyproof.model.expressions import Expression
from policyproof.model.flat import FlatModel
from policyproof.model.properties import SafetyProperty
from policyproof.policy.network import Network
from policyproof.run.budget import Budget
from policyproof.training.environments import Environments, Happened, Rewards
from policyproof.training.q_network import Adam, Floats32, QNetwork
from policyproof.training.replay import Replay
from policyproof.training.rollouts import Rates, policy_of, roll_out

MARGIN = 0.05
"""By how much an inapplicable label should be worse, in units of the greatest reward."""

MARGIN_SHARE = 2.0
"""How much that counts beside the error of the label that was taken: more, since it is known and not estimated."""


@dataclass(frozen=True)
class Settings:
    """What training is like.  The defaults are good for discrete models with episodes of up to 100 steps."""

    hidden: tuple[int, ...] = (64, 64)
    updates: int = 40_000
    """How many batches are learnt from."""
    seed: int = 0
    filter: bool = False
    dueling: bool = False
    discount: float = 0.98
    n_steps: int = 3
    rate: float = 1e-3
    """The first learning rate; it falls linearly to a tenth."""
    environments: int = 256
    updates_per_step: int = 4
    batch: int = 256
    capacity: int = 1 << 17
    alpha: float = 0.6
    """How far priorities are followed (0: not at all)."""
    exploring: float = 0.2
    """The share of the training in which epsilon falls from 1 to `epsilon`."""
    epsilon: float = 0.02
    follow: float = 0.005
    """How far the target network moves towards the network with every update."""
    maximal_steps: int = 100
    evaluations: int = 20
    evaluation_rollouts: int = 1000
    rewards: Rewards = field(default_factory=Rewards)


@dataclass(frozen=True)
class Point:
    """The rates of the policy after some updates: the learning curve is made of these."""

    updates: int
    steps: int
    """Steps of all environments together."""
    rates: Rates


@dataclass(frozen=True)
class Trained:
    """The best network that was seen, and the learning curve."""

    network: Network
    inputs: tuple[str, ...]
    curve: tuple[Point, ...]
    stopped: str | None = None
    """Why training ended before its time, if it did."""


Training = Generator[Progress, None, Trained]
Rows = Mapping[str, NDArray[Any]]


def train(
    flat: FlatModel,
    prop: SafetyProperty,
    *,
    reads: tuple[str, ...],
    settings: Settings = Settings(),
    potential: Expression | None = None,
    progress: Expression | None = None,
    budget: Budget | None = None,
) -> Training:
    """Learn a policy that reads the variables `reads`; yields progress, returns the best policy it saw."""
    budget = budget or Budget()
    learner = _Learner(flat, prop, reads, settings, potential, progress)
    every = max(1, settings.updates // max(1, settings.evaluations))
    curve: list[Point] = []
    best: tuple[float, Network] | None = None
    stopped = None
    yield Progress("learning", {"updates": 0, "of": settings.updates})
    for update in range(1, settings.updates + 1):
        if (update - 1) % settings.updates_per_step == 0:
            learner.act(update / settings.updates)
        learner.learn(update / settings.updates)
        over = budget.cancelled.is_set() or budget.remaining <= 0
        if update % every == 0 or update == settings.updates or over:
            network = learner.network()
            policy = policy_of(flat, reads, network, filter=settings.filter)
            rates = roll_out(
                flat, prop, policy,
                rollouts=settings.evaluation_rollouts, maximal_steps=settings.maximal_steps, seed=settings.seed + 1,
                boxes=learner.environments.start_boxes,
            ).rates  # fmt: skip
            curve.append(Point(update, learner.steps, rates))
            # Later is better where the rates are equal.
            if best is None or rates.score >= best[0]:
                best = (rates.score, network)
            numbers = {"updates": update, "of": settings.updates, "steps": learner.steps}
            yield Progress("learning", {**numbers, "success": rates.success, "failure": rates.failure})
        if over:
            stopped = budget.interrupted if budget.cancelled.is_set() else budget.out_of_time
            break
    assert best is not None
    return Trained(best[1], reads, tuple(curve), stopped)


class _Learner:
    """The network, its target, the memory, and the environments."""

    def __init__(
        self,
        flat: FlatModel,
        prop: SafetyProperty,
        reads: tuple[str, ...],
        settings: Settings,
        potential: Expression | None,
        progress: Expression | None,
    ) -> None:
        self.settings = settings
        seeds = np.random.SeedSequence(settings.seed).spawn(4)
        network_random, world_random, replay_random, self._random = map(np.random.default_rng, seeds)
        self.environments = Environments(
            flat, prop,
            reads=reads, count=settings.environments, maximal_steps=settings.maximal_steps,
            discount=settings.discount, rewards=settings.rewards, potential=potential, progress=progress,
            random=world_random,
        )  # fmt: skip
        sizes = (len(reads), *settings.hidden, len(flat.labels))
        self._online = QNetwork(sizes, network_random, dueling=settings.dueling)
        self._target = QNetwork(sizes, network_random, dueling=settings.dueling)
        self._target.parameters[:] = self._online.parameters
        self._adam = Adam(len(self._online.parameters))
        number = np.float32
        shapes = {
            "inputs": ((len(reads),), number), "label": ((), np.int64), "possible": ((len(flat.labels),), np.bool_),
            "return": ((), number), "following": ((len(reads),), number),
            "following_possible": ((len(flat.labels),), np.bool_), "discount": ((), number),
        }  # fmt: skip
        self._replay = Replay(settings.capacity, shapes, replay_random, alpha=settings.alpha)
        self._window = _Window(settings.n_steps, settings.discount)
        rewards = settings.rewards
        self._margin = np.float32(MARGIN * max(abs(rewards.goal), abs(rewards.unsafe), abs(rewards.stuck)))
        self.steps = 0

    def network(self) -> Network:
        reading = self.environments.reading
        return self._online.export(reading.subtract, reading.divide)

    def act(self, done: float) -> None:
        """One step in every environment; `done`: the share of the training that is over."""
        world, settings = self.environments, self.settings
        inputs, possible = world.inputs, world.possible
        epsilon = max(settings.epsilon, 1.0 - (1.0 - settings.epsilon) * done / max(settings.exploring, 1e-9))
        outputs = np.where(possible, self._online.outputs(inputs), -np.inf)
        guesses = np.where(possible, self._random.random(possible.shape), -1.0)
        explores = self._random.random(world.count) < epsilon
        labels = np.where(explores, guesses.argmax(axis=1), outputs.argmax(axis=1))
        happened = world.step(labels)
        self.steps += world.count
        learnt = self._window.add({"inputs": inputs, "label": labels, "possible": possible}, happened)
        if learnt is not None:
            self._replay.add(learnt)

    def learn(self, done: float) -> None:
        """One update from one batch."""
        settings, replay = self.settings, self._replay
        if replay.count < settings.batch:
            return
        indices, weights = replay.draw(settings.batch, beta=0.4 + 0.6 * done)
        rows = np.arange(settings.batch)
        of = {name: values[indices] for name, values in replay.arrays.items()}
        value = self._value(of["following"], of["following_possible"])
        wanted = of["return"] + of["discount"] * value
        values = self._online.forward(of["inputs"])
        outputs = values[-1]
        surprise = outputs[rows, of["label"]] - wanted
        error = np.zeros_like(outputs) if settings.filter else self._above_margin(outputs, of["possible"])
        # Huber's loss: beyond 1 the gradient grows no more.
        error[rows, of["label"]] += np.clip(surprise, -1.0, 1.0)
        error *= (weights / np.float32(settings.batch))[:, None]
        gradient = self._online.gradient(values, error)
        self._adam.step(self._online.parameters, gradient, settings.rate * (1.0 - 0.9 * done))
        replay.judge(indices, surprise)
        step = np.float32(settings.follow)
        self._target.parameters += step * (self._online.parameters - self._target.parameters)

    def _value(self, inputs: Floats32, possible: NDArray[np.bool_]) -> Floats32:
        """What a state is worth: the target's output of the label that the network itself would take."""
        choice = np.where(possible, self._online.outputs(inputs), -np.inf).argmax(axis=1)
        value = self._target.outputs(inputs)[np.arange(len(inputs)), choice]
        return np.where(possible.any(axis=1), value, np.float32(self.settings.rewards.stuck))

    def _above_margin(self, outputs: Floats32, possible: NDArray[np.bool_]) -> Floats32:
        """How far the labels that are not applicable come too close to the best one that is."""
        best = np.where(possible, outputs, -np.inf).max(axis=1, keepdims=True)
        above = np.clip(outputs - (best - self._margin), 0.0, 1.0)
        wrong = ~possible & possible.any(axis=1, keepdims=True)
        return np.where(wrong, above * np.float32(MARGIN_SHARE), np.float32(0))


class _Window:
    """The last n steps of every environment, from which the first one is learnt as an n-step transition."""

    def __init__(self, length: int, discount: float) -> None:
        self.length, self.discount = length, discount
        self._steps: list[tuple[Rows, Happened]] = []

    def add(self, taken: Rows, happened: Happened) -> Rows | None:
        """Remember a step; the transition that begins n - 1 steps earlier, as soon as there is one.

        Its sum stops at the first end of an episode: later steps belong to another one.
        """
        self._steps.append((taken, happened))
        if len(self._steps) < self.length:
            return None
        first, _ = self._steps[0]
        count = len(happened.reward)
        total, factor = np.zeros(count, dtype=np.float32), np.ones(count, dtype=np.float32)
        following, possible = happened.inputs.copy(), happened.possible.copy()
        running = np.ones(count, dtype=np.bool_)
        for _, step in self._steps:
            total[running] += factor[running] * step.reward[running]
            factor[running] *= np.float32(self.discount)
            following[running], possible[running] = step.inputs[running], step.possible[running]
            factor[running & step.ended] = 0.0
            running &= ~(step.ended | step.cut_off)
        del self._steps[0]
        rest = {"return": total, "following": following, "following_possible": possible, "discount": factor}
        return {**first, **rest}
