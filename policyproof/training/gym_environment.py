"""The model as a Gymnasium environment: one definition to train on and to verify.

Observations are the model's variables in order, then the locations of automata that move, as
float32; actions are the labels.  A step draws among what is possible by the chosen label, by silent
steps and by labels that `labels` leaves to the environment.  An episode ends in an unsafe state
(`unsafe_reward`), in a goal state (`goal_reward`), or when nothing is possible (`stuck_reward`).
`action_masks()` tells which labels are applicable, as sb3-contrib's MaskablePPO asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from policyproof.engines.simulation import Simulator
from policyproof.model.batch_kernel import evaluate_batch
from policyproof.model.expressions import FALSE, ZERO, Expression
from policyproof.model.flat import FlatModel, flatten
from policyproof.model.properties import Property, SafetyProperty
from policyproof.model.source import LoadedModel
from policyproof.run.budget import Budget
from policyproof.run.errors import InvalidInput

NO_LABEL = -1


class ModelEnvironment(gymnasium.Env[NDArray[np.float32], np.int64]):
    """A Gymnasium environment made from a model and a safety property."""

    metadata: dict[str, Any] = {"render_modes": ["ansi"]}  # noqa: RUF012 - Gymnasium declares it so

    def __init__(
        self,
        model: LoadedModel,
        question: Property | str | None = None,
        *,
        labels: Sequence[str] | None = None,
        step_reward: float = 0.0,
        goal_reward: float = 1.0,
        unsafe_reward: float = -1.0,
        stuck_reward: float = -1.0,
        maximal_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        prop = model.property(question) if isinstance(question, str) or question is None else question
        if not isinstance(prop, SafetyProperty):
            raise InvalidInput("a safety property is needed: it says where episodes start and what is unsafe")
        self.flat: FlatModel = flatten(model.model)
        self.labels = tuple(labels if labels is not None else self.flat.labels)
        if not self.labels:
            raise InvalidInput("the model has no labels that a policy could choose")
        self.render_mode = render_mode
        self.step_reward, self.goal_reward = step_reward, goal_reward
        self.unsafe_reward, self.stuck_reward = unsafe_reward, stuck_reward
        self.maximal_steps = maximal_steps
        self._simulator = _LabelledSimulator(self.flat, self.labels)
        self._start = self._start_condition(prop)
        self._boxes = self._simulator.start_boxes(self._start, Budget())
        reward = ZERO if prop.step_reward is None else self.flat.state_condition(prop.step_reward)
        conditions = [FALSE if condition is None else condition for condition in (prop.unsafe, prop.goal)]
        self._conditions = self._simulator.compile(conditions)
        self._reward = self._simulator.generator.compile([reward])
        self._reward_is_real = reward.kind == "real"
        self._columns = self._observed_columns()
        low, high = self._observation_bounds()
        self.observation_space = spaces.Box(low, high, dtype=np.float32)
        self.action_space = spaces.Discrete(len(self.labels))
        self._words = np.zeros((1, self._simulator.layout.words), dtype=np.int64)
        self._steps = 0

    def _start_condition(self, prop: SafetyProperty) -> Expression:
        if prop.start is None:
            return self.flat.initial
        start = self.flat.state_condition(prop.start)
        return start | self.flat.initial if prop.include_initial else start

    def _observed_columns(self) -> list[int]:
        return [
            index
            for index, item in enumerate(self.flat.variables)
            if not _is_idle_location(item.name, item.domain.size)
        ]

    def _observation_bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        low, high = [], []
        for index in self._columns:
            bottom, top = self.flat.variables[index].domain.range
            low.append(float(bottom))
            high.append(float(top))
        # Bounds are rounded outward, so that observations stay inside them.
        lower, upper = np.array(low, dtype=np.float32), np.array(high, dtype=np.float32)
        lower = np.where(lower.astype(np.float64) > low, np.nextafter(lower, np.float32(-np.inf)), lower)
        upper = np.where(upper.astype(np.float64) < high, np.nextafter(upper, np.float32(np.inf)), upper)
        return lower.astype(np.float32), upper.astype(np.float32)

    @property
    def observed(self) -> tuple[str, ...]:
        """The names behind the observation's components (`@name`: the location of an automaton)."""
        return tuple(self.flat.variables[index].name for index in self._columns)

    # Gymnasium's interface

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """A new episode from a random start state, or from `options={"state": {name: value}}`."""
        super().reset(seed=seed)
        if options and "state" in options:
            states = self._state_from(options["state"])
        else:
            states = self._simulator.draw(self._boxes, self._start, 1, self.np_random)
        self._words = self._simulator.layout.pack(states)
        self._steps = 0
        return self._observation(states), self._info(states)

    def step(self, action: np.int64 | int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        label = self._simulator.label_of(int(action))
        following, _, moved = self._simulator.step(self._words, np.array([label]), self.np_random)
        self._words = following
        self._steps += 1
        states = self._simulator.layout.unpack(following)
        info = self._info(states)
        info["stuck"] = not bool(moved[0])
        reward = self.step_reward + self._model_reward(states)
        if info["stuck"]:
            reward += self.stuck_reward
        if info["unsafe"]:
            reward += self.unsafe_reward
        if info["goal"]:
            reward += self.goal_reward
        terminated = info["stuck"] or info["unsafe"] or info["goal"]
        truncated = self.maximal_steps is not None and self._steps >= self.maximal_steps
        return self._observation(states), float(reward), terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Which labels have an applicable operator now."""
        applicable = self._simulator.generator.applicable(self._words)[0]
        indices = [self._simulator.label_of(action) for action in range(len(self.labels))]
        return np.array([index != NO_LABEL and bool(applicable[index]) for index in indices])

    def render(self) -> str:
        values = self._simulator.named(self._simulator.layout.unpack(self._words)[0])
        return ", ".join(f"{name} = {value}" for name, value in values.items())

    # Parts

    def _observation(self, states: NDArray[np.int64]) -> NDArray[np.float32]:
        row = states[0]
        values = [
            float(row[index : index + 1].view(np.float64)[0])
            if self.flat.variables[index].domain.kind == "real"
            else float(row[index])
            for index in self._columns
        ]
        return np.array(values, dtype=np.float32)

    def _info(self, states: NDArray[np.int64]) -> dict[str, Any]:
        unsafe, goal = evaluate_batch(self._conditions, states)[0][0]
        return {"unsafe": bool(unsafe), "goal": bool(goal), "state": self._simulator.named(states[0])}

    def _model_reward(self, states: NDArray[np.int64]) -> float:
        value = evaluate_batch(self._reward, states)[0][0]
        return float(value.view(np.float64)[0]) if self._reward_is_real else float(value[0])

    def _state_from(self, given: Mapping[str, Any]) -> NDArray[np.int64]:
        row = []
        for item in self.flat.variables:
            value = given.get(item.name, item.initial if item.initial is not None else 0)
            if isinstance(value, str):
                automaton = next(part for part in self.flat.model.automata if f"@{part.name}" == item.name)
                value = automaton.location_index[value]
            row.append(np.float64(value).view(np.int64) if item.domain.kind == "real" else np.int64(value))
        return np.array([row], dtype=np.int64)


def _is_idle_location(name: str, size: int | None) -> bool:
    return name.startswith("@") and size == 1


class _LabelledSimulator(Simulator):
    """A simulator in which somebody outside chooses among the given labels."""

    def __init__(self, flat: FlatModel, labels: Sequence[str]) -> None:
        super().__init__(flat, None)
        index = {label: number for number, label in enumerate(flat.labels)}
        self._indices = [index.get(label, NO_LABEL) for label in labels]
        self.successors.environment = frozenset(i for i, label in enumerate(flat.labels) if label not in labels)

    def label_of(self, action: int) -> int:
        return self._indices[action]


def to_gym(model: LoadedModel, question: Property | str | None = None, **options: Any) -> ModelEnvironment:
    """The model as a Gymnasium environment."""
    return ModelEnvironment(model, question, **options)
