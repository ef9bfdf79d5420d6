"""Random rollouts in batches: how does the policy usually behave?

Simulation proves nothing; it shows success, failure and stuck rates, and finds shallow bugs quickly.
Among the steps that are possible under the policy one is drawn uniformly, then one of its
destinations by probability, then uniformly what the environment may choose (`pick_kernel`).  Real
variables are float64 here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policyproof.engines.pick_kernel import pick
from policyproof.engines.policy_successors import NO_LABEL, PolicySuccessors
from policyproof.engines.start_boxes import StartBoxes, collect_start_boxes
from policyproof.model.batch_kernel import evaluate_batch
from policyproof.model.definedness import definedness
from policyproof.model.exact import ExactProgram
from policyproof.model.expressions import FALSE, Expression, conjunction
from policyproof.model.flat import FlatModel
from policyproof.model.ranges import specialise
from policyproof.model.successors import Successors
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget
from policyproof.run.errors import InvalidInput, ResourceExhausted

REJECTIONS = 1000
COUNTED = ("rollouts", "success", "failure", "stuck", "unfinished")
TABULATED_OPERATORS = 1 << 20
NO_GROUP = -1
RUNNING, SUCCESS, FAILURE, STUCK = 0, 1, 2, 3


@dataclass(frozen=True)
class Simulation:
    """What happened in a number of rollouts."""

    rollouts: int
    success: int
    failure: int
    stuck: int
    unfinished: int
    steps: NDArray[np.int64]
    """The length of every rollout."""
    example: tuple[Mapping[str, Any], ...]
    """The states of one rollout: the first that failed, else the first of all."""
    example_labels: tuple[str | None, ...]
    example_outcome: str
    stopped: str | None = None
    """Why the rollouts ended before they were all as long as they should be, if they did."""

    def statistics(self) -> dict[str, int | float]:
        count = self.rollouts
        return {
            "rollouts": count,
            "success_rate": self.success / count,
            "failure_rate": self.failure / count,
            "stuck_rate": self.stuck / count,
            "unfinished_rate": self.unfinished / count,
            "mean_steps": float(self.steps.mean()),
            "longest": int(self.steps.max()),
        }


class Simulator:
    """The dynamics of a model under a policy, for batches of states (or under labels given from outside)."""

    def __init__(self, flat: FlatModel, policy: Policy | None = None) -> None:
        self.flat = flat
        self.policy = policy
        self.successors = PolicySuccessors(flat, policy)
        self.generator = self.successors.generator
        self.layout = self.successors.layout
        self._weights: dict[int, tuple[int, float | Expression]] = {}
        self._groups: dict[tuple[Any, ...], int] = {}
        count = len(flat.operators)
        self._tables = (np.full(count, NO_GROUP), np.empty(count)) if count <= TABULATED_OPERATORS else None

    # States

    def start_boxes(self, condition: Expression, budget: Budget) -> StartBoxes:
        """The boxes of a start condition, from which start states are drawn."""
        return collect_start_boxes(self.flat, condition, budget)

    def sample_starts(
        self, condition: Expression, count: int, random: np.random.Generator, budget: Budget
    ) -> NDArray[np.int64]:
        """`states[count, variable]`, uniform over the states in which the condition holds."""
        return self.draw(self.start_boxes(condition, budget), condition, count, random)

    def draw(
        self,
        boxes: StartBoxes,
        condition: Expression,
        count: int,
        random: np.random.Generator,
    ) -> NDArray[np.int64]:
        """States drawn from the boxes of a condition; where reals are left to decide, by rejection."""
        lower, upper = boxes.lower, boxes.upper
        real = np.array([item.domain.kind == "real" for item in self.flat.variables])
        tape = None if boxes.certain else self.compile([condition])
        found = np.empty((count, lower.shape[1]), dtype=np.int64)
        filled = 0
        for _ in range(REJECTIONS):
            chosen = random.choice(len(lower), size=count - filled, p=boxes.share)
            states = np.empty((len(chosen), lower.shape[1]), dtype=np.int64)
            for column, is_real in enumerate(real):
                low, high = lower[chosen, column], upper[chosen, column]
                if is_real:
                    low_ends, high_ends = low.view(np.float64), high.view(np.float64)
                    if not (np.isfinite(low_ends).all() and np.isfinite(high_ends).all()):
                        name = self.flat.variables[column].name
                        raise InvalidInput(f"the start condition does not bound the real variable {name!r}")
                    drawn = low_ends + random.random(len(chosen)) * (high_ends - low_ends)
                    states[:, column] = drawn.view(np.int64)
                else:
                    states[:, column] = random.integers(low, high, endpoint=True)
            if tape is not None:
                states = states[evaluate_batch(tape, states)[0][:, 0] != 0]
            found[filled : filled + len(states)] = states
            filled += len(states)
            if filled == count:
                return found
        raise InvalidInput("the start condition is too narrow to sample: no state was found in many draws")

    def compile(self, conditions: list[Expression]) -> Any:
        """A tape of conditions on states; a condition without a value is false."""
        prepared = [self.flat.state_condition(condition) for condition in conditions]
        total = [conjunction([condition, definedness(condition)]) for condition in prepared]
        return self.generator.compile(specialise(total, self.flat.box))

    def named(self, state: NDArray[np.int64]) -> dict[str, Any]:
        """A state as name -> value; locations by their names."""
        values: dict[str, Any] = {}
        for item, value in zip(self.flat.variables, state.tolist(), strict=True):
            if item.domain.kind == "real":
                values[item.name] = float(np.int64(value).view(np.float64))
            else:
                values[item.name] = bool(value) if item.domain.kind == "bool" else value
        for automaton in self.flat.model.automata:
            values[f"@{automaton.name}"] = automaton.locations[values[f"@{automaton.name}"]].name
        return values

    # Steps

    def step(
        self, words: NDArray[np.int64], labels: NDArray[np.int64] | None, random: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """One random step: (next words, the label taken, did anything happen?).

        `labels`: the chosen label of every state; None: any label may be taken.
        """
        seed = int(random.integers(1 << 40))
        following, taken, moved = words.copy(), np.full(len(words), NO_LABEL), np.zeros(len(words), dtype=np.bool_)
        groups = [None] if labels is None else np.unique(labels).tolist()
        for label in groups:
            rows = np.arange(len(words)) if label is None else np.flatnonzero(labels == label)
            allowed = None if label is None else self.successors.labels_with(label)
            found = self.generator.expand(words[rows], allowed, seed=seed)
            picked = self._pick(found, words[rows], random)
            target = rows[found.source[picked]]
            following[target] = found.words[picked]
            taken[target] = found.label[picked]
            moved[target] = True
        return following, taken, moved

    def _pick(self, found: Successors, words: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
        """One successor per source: a step uniformly, then a destination by probability, then a choice uniformly."""
        if len(found) == 0:
            return np.empty(0, dtype=np.int64)
        group, weight = self._groups_and_weights(found.operator)
        for row in np.flatnonzero(np.isnan(weight)):
            probability = self._weight(int(found.operator[row]))[1]
            state = self.layout.unpack(words[found.source[row]][None, :])[0]
            weight[row] = self._probability(probability, state)
        picked = np.empty(len(words), dtype=np.int64)
        count = pick(found.source, found.operator, group, weight, int(random.integers(1 << 62)), picked)
        return picked[:count]

    def _groups_and_weights(self, operators: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The group of every operator and its weight there; NaN where that depends on the state."""
        place: NDArray[np.int64] = operators
        if self._tables is None:
            # Too many operators for a table.
            known, place = np.unique(operators, return_inverse=True)
            tables = np.full(len(known), NO_GROUP), np.empty(len(known))
        else:
            known, tables = np.arange(len(self._tables[0])), self._tables
        for index in np.unique(place[tables[0][place] == NO_GROUP]).tolist():
            group, probability = self._weight(int(known[index]))
            tables[0][index] = group
            tables[1][index] = probability if isinstance(probability, float) else np.nan
        return tables[0][place], tables[1][place]

    def _weight(self, operator: int) -> tuple[int, float | Expression]:
        """The group of an operator (its edges), and its probability within the group."""
        if operator not in self._weights:
            item = self.flat.operators[operator]
            key = tuple((automaton, edge) for automaton, edge, _ in item.origin)
            group = self._groups.setdefault(key, len(self._groups))
            probability: float | Expression = 1.0
            if item.probability is not None:
                known = item.probability.is_constant
                probability = float(item.probability.exact) if known else item.probability
            self._weights[operator] = (group, probability)
        return self._weights[operator]

    def _probability(self, probability: float | Expression, state: NDArray[np.int64]) -> float:
        assert isinstance(probability, Expression)
        names = {item.name: value for item, value in zip(self.flat.variables, state.tolist(), strict=True)}
        for item in self.flat.variables:
            if item.domain.kind == "bool":
                names[item.name] = bool(names[item.name])
            elif item.domain.kind == "real":
                names[item.name] = float(np.int64(names[item.name]).view(np.float64))
        value: Any = ExactProgram([probability])(names)[0]
        return float(value)


def simulate(
    simulator: Simulator,
    start: Expression,
    *,
    unsafe: Expression = FALSE,
    goal: Expression = FALSE,
    rollouts: int = 1000,
    maximal_steps: int = 1000,
    seed: int = 0,
    budget: Budget | None = None,
    boxes: StartBoxes | None = None,
) -> Iterator[Simulation | tuple[int, int]]:
    """Roll out; yields (step, still running) on the way, and the `Simulation` at the end.

    `boxes` are those of the start condition, for whoever rolls out from it again and again.
    """
    budget = budget or Budget()
    random = np.random.default_rng(seed)
    states = simulator.draw(boxes or simulator.start_boxes(start, budget), start, rollouts, random)
    tape = simulator.compile([unsafe, goal])
    outcome = np.full(rollouts, RUNNING)
    steps = np.zeros(rollouts, dtype=np.int64)
    words = simulator.layout.pack(states)
    history = [words.copy()]
    stopped = None
    taken_history: list[NDArray[np.int64]] = []
    for step in range(maximal_steps + 1):
        running = np.flatnonzero(outcome == RUNNING)
        values = evaluate_batch(tape, simulator.layout.unpack(words[running]))[0]
        outcome[running[values[:, 1] != 0]] = SUCCESS
        outcome[running[values[:, 0] != 0]] = FAILURE
        running = np.flatnonzero(outcome == RUNNING)
        if len(running) == 0 or step == maximal_steps:
            break
        try:
            budget.check()
        except ResourceExhausted as exhausted:
            stopped = exhausted.reason
            break
        yield step, len(running)
        words[running], taken, moved = _advance(simulator, words[running], random)
        outcome[running[~moved]] = STUCK
        steps[running[moved]] += 1
        all_taken = np.full(rollouts, NO_LABEL)
        all_taken[running] = taken
        taken_history.append(all_taken)
        history.append(words.copy())
    yield dataclasses.replace(_summary(simulator, outcome, steps, history, taken_history), stopped=stopped)


def merged(parts: Sequence[Simulation]) -> Simulation:
    """Several simulations as one; the example is that of the first with a failure."""
    shown = next((part for part in parts if part.failure), parts[0])
    return dataclasses.replace(
        shown,
        **{name: sum(getattr(part, name) for part in parts) for name in COUNTED},
        steps=np.concatenate([part.steps for part in parts]),
        stopped=parts[-1].stopped,
    )


def _advance(
    simulator: Simulator, words: NDArray[np.int64], random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    policy = simulator.policy
    if policy is None:
        return simulator.step(words, None, random)
    if not policy.action_variables:
        return simulator.step(words, simulator.successors.chosen_labels(words), random)
    states = simulator.layout.unpack(words)
    # The outputs are the values of action variables, set before the environment moves.
    decider = simulator.successors.decider
    assert decider is not None
    outputs = decider.outputs(states)
    for number, name in enumerate(policy.action_variables):
        states[:, simulator.layout.position[name]] = np.ascontiguousarray(outputs[:, number]).view(np.int64)
    return simulator.step(simulator.layout.pack(states), None, random)


def _summary(
    simulator: Simulator,
    outcome: NDArray[np.int64],
    steps: NDArray[np.int64],
    history: list[NDArray[np.int64]],
    taken: list[NDArray[np.int64]],
) -> Simulation:
    failed = np.flatnonzero(outcome == FAILURE)
    shown = int(failed[0]) if len(failed) else 0
    length = int(steps[shown])
    states = [simulator.layout.unpack(words[shown][None, :])[0] for words in history[: length + 1]]
    labels = [int(row[shown]) for row in taken[:length]]
    names = {RUNNING: "unfinished", SUCCESS: "success", FAILURE: "failure", STUCK: "stuck"}
    return Simulation(
        rollouts=len(outcome),
        success=int((outcome == SUCCESS).sum()),
        failure=int((outcome == FAILURE).sum()),
        stuck=int((outcome == STUCK).sum()),
        unfinished=int((outcome == RUNNING).sum()),
        steps=steps,
        example=tuple(simulator.named(state) for state in states),
        example_labels=tuple(None if label < 0 else simulator.flat.labels[label] for label in labels),
        example_outcome=names[int(outcome[shown])],
    )
