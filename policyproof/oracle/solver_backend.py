"""What the solver back ends share: one solver call per region, output and network, and exact confirmation.

Idea: a region with an output to be chosen is a *leaf*: a box, a condition, one network.  A back end
decides leaves in its own way; this class walks through them, keeps the child process, and turns what
solvers say into answers.

Invariant: POSSIBLE is said only of a state that the exact arithmetic of `Decider` and `Conditions`
confirms, and IMPOSSIBLE only where every part of the region is closed; a leaf that a solver leaves open
within its tolerance is enumerated exactly where it is small enough.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import TracebackType
from typing import Self, TypeVar

import numpy as np

from policyproof.bounds.chain import Chain, make_chain
from policyproof.bounds.linear import activation_bounds
from policyproof.encodings.question import ActivationBounds, Column, Question
from policyproof.model.automata import Variable
from policyproof.model.expressions import TRUE, Expression, apply, conjunction, constant
from policyproof.model.ranges import Range
from policyproof.oracle.conditions import Conditions
from policyproof.oracle.inputs import InputMap
from policyproof.oracle.protocol import IMPOSSIBLE, POSSIBLE, UNKNOWN, Answers, Capabilities, Regions
from policyproof.oracle.space import Integers, Space, Truths
from policyproof.policy.decisions import Decider
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget
from policyproof.run.child import OutOfTime, Worker
from policyproof.run.errors import Feature, InvalidInput, ResourceExhausted, UnsupportedFeature

T = TypeVar("T")

ENUMERATED = 1 << 14
"""Leaves with at most so many states are decided by looking at all of them, when a solver cannot."""
CHUNK = 1 << 10
REMEMBERED = 512
"""How many compiled conditions are kept."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """A part of a region, `lower[1, variable]` .. `upper[1, variable]`, and the network that decides in it."""

    lower: Integers
    upper: Integers
    condition: Expression
    network: int
    output: int


@dataclass(frozen=True, eq=False)
class Decision:
    """What is known of a leaf: a status, with its witness or its reason."""

    status: int
    witness: Integers | None = None
    reason: str = ""
    confirmed: bool = True
    """Is an impossibility more than a floating-point solver's word?"""


class SolverBackend(ABC):
    """A `DecisionOracle` around a solver; close it, or use it in a `with` block, to end its process."""

    def __init__(
        self,
        policy: Policy,
        variables: Sequence[Variable],
        *,
        box: Mapping[str, Range] | None = None,
        question_seconds: float | None = None,
        seed: int = 0,
        worker: Worker | None = None,
    ) -> None:
        """`question_seconds` limits one solver call; `worker`: a child process that several oracles share."""
        if policy.action_variables:
            raise InvalidInput("the policy chooses no labels: its outputs are values", where=policy.source)
        self.policy = policy
        self.variables = tuple(variables)
        self.box = dict(box) if box is not None else {item.name: item.domain.range for item in variables}
        self.question_seconds = question_seconds
        self.seed = seed
        self.space = Space(self.variables)
        self.inputs = InputMap(policy, self.space, self.box)
        self.decider = Decider(policy, self.variables, self.box)
        self.chains: tuple[Chain, ...] = tuple(make_chain(network) for network in policy.networks)
        self.worker = Worker(self.capabilities.name) if worker is None else worker
        self._owns_worker = worker is None
        self._conditions: dict[Expression, Conditions] = {}
        self._applicability: tuple[Expression, ...] | None = None
        self._budget = Budget()
        self._statistics: dict[str, int | float] = {}

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities: ...

    @abstractmethod
    def _outside(self, named: Sequence[tuple[str, Expression]]) -> list[Feature]:
        """What of these named expressions is outside the capabilities."""

    def _boundless(self, regions: Regions) -> list[Feature]:
        """Variables whose intervals are too wide for the back end."""
        return []

    @abstractmethod
    def _decide(self, leaf: Leaf) -> Decision: ...

    def ask(
        self,
        regions: Regions,
        outputs: Truths | None = None,
        *,
        applicability: Sequence[Expression] | None = None,
        budget: Budget | None = None,
    ) -> Answers:
        """See `DecisionOracle.ask`."""
        self._budget = Budget() if budget is None else budget
        self._applicability = None if applicability is None else tuple(applicability)
        self._statistics = {"solver_calls": 0, "solver_seconds": 0.0, "branches": 0, "enumerated_states": 0}
        self._check(regions)
        shape = (len(regions), self.policy.networks[0].output_size)
        wanted = np.ones(shape, dtype=np.bool_) if outputs is None else outputs
        answers = Answers(np.full(shape, UNKNOWN, dtype=np.int8), np.zeros((*shape, len(self.variables)), np.int64))
        for region in np.flatnonzero(wanted.any(axis=1)).tolist():
            try:
                self._answer(regions, region, np.flatnonzero(wanted[region]).tolist(), answers)
            except ResourceExhausted as exhausted:
                answers.reasons[region] = exhausted.reason
        answers.statistics = dict(self._statistics)
        return answers

    def close(self) -> None:
        if self._owns_worker:
            self.worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # From regions to leaves

    def _check(self, regions: Regions) -> None:
        """Refuse what is outside the capabilities, all of it at once."""
        if self.policy.filter != (self._applicability is not None):
            raise InvalidInput("applicability is to be given exactly when the policy filters")
        named = [
            *((f"condition {number}", part) for number, part in enumerate(regions.conditions)),
            *((f"applicability of output {number}", part) for number, part in enumerate(self._applicability or ())),
            *((f"input {number} of the policy", part) for number, part in enumerate(self.policy.inputs)),
            *([("the switch of the policy", self.policy.switch)] if self.policy.switch is not None else []),
        ]
        features = [*self._outside(named), *self._boundless(regions)]
        for network in self.policy.networks:
            for number, layer in enumerate(network.layers):
                kind = getattr(layer, "kind", "relu")
                if kind not in self.capabilities.activations:
                    features.append(Feature(f"{network.source}, layer {number}", f"{kind} in {self.capabilities.name}"))
        if features:
            raise UnsupportedFeature(features)

    def _answer(self, regions: Regions, region: int, outputs: list[int], answers: Answers) -> None:
        lower, upper = regions.lower[region : region + 1], regions.upper[region : region + 1]
        if self.space.empty(lower, upper)[0]:
            answers.status[region, outputs] = IMPOSSIBLE
            return
        condition = regions.condition_of(region)
        whole = Leaf(lower, upper, TRUE if condition is None else condition, -1, 0)
        parts = self._by_network(whole)
        for output in outputs:
            self._budget.check()
            decisions = []
            for part in parts:
                decisions.append(self._decided(replace(part, output=output)))
                if decisions[-1].status == POSSIBLE:
                    break
            self._record(answers, region, output, decisions)

    def _record(self, answers: Answers, region: int, output: int, decisions: list[Decision]) -> None:
        for decision in decisions:
            if decision.status == POSSIBLE and decision.witness is not None:
                answers.status[region, output] = POSSIBLE
                answers.witness[region, output] = decision.witness
                return
        unknown = [decision for decision in decisions if decision.status == UNKNOWN]
        if unknown:
            answers.reasons.setdefault(region, unknown[0].reason)
            return
        answers.status[region, output] = IMPOSSIBLE
        if not all(decision.confirmed for decision in decisions):
            answers.arithmetic = "solver-tolerance"

    def _by_network(self, leaf: Leaf) -> list[Leaf]:
        """One leaf for every network that may decide; a state in which none does is an error of the policy."""
        switch = self.policy.switch
        ends = self.inputs.switch_ends(leaf.lower, leaf.upper)
        if switch is None or ends is None:
            return [replace(leaf, network=0)]
        low, high = int(ends[0][0]), int(ends[1][0])
        values = [value for value in self.policy.switch_values if low <= value <= high]
        if len(values) < high - low + 1:
            elsewhere = conjunction(apply("≠", switch, constant(value)) for value in values)
            nowhere = self._decided(replace(leaf, condition=conjunction([leaf.condition, elsewhere])))
            if nowhere.status == POSSIBLE and nowhere.witness is not None:
                self.decider.decide(nowhere.witness[None, :])
            if nowhere.status != IMPOSSIBLE:
                raise ResourceExhausted(f"whether every state has a network is open: {nowhere.reason}")
        return [
            replace(
                leaf,
                condition=conjunction([leaf.condition, apply("=", switch, constant(value))]),
                network=self.policy.network_index(value),
            )
            for value in values
        ]

    def _decided(self, leaf: Leaf) -> Decision:
        try:
            return self._decide(leaf)
        except OutOfTime as late:
            return Decision(UNKNOWN, reason=late.reason)

    # What back ends use

    def _call(self, function: Callable[..., T], *arguments: object) -> T:
        """One solver call in the child."""
        started = time.monotonic()
        self._statistics["solver_calls"] += 1
        try:
            return self.worker.call(function, *arguments, budget=self._budget, seconds=self.question_seconds)
        finally:
            self._statistics["solver_seconds"] += time.monotonic() - started

    def _question(self, leaf: Leaf, bounds: ActivationBounds | None) -> Question:
        columns = []
        for position, item in enumerate(self.variables):
            low, high = self._end(leaf.lower, position), self._end(leaf.upper, position)
            columns.append(Column(item.name, item.domain.kind, low, high))
        network = None if leaf.network < 0 else self.policy.networks[leaf.network]
        return Question(
            tuple(columns), leaf.condition, network, self.policy.inputs, leaf.output, self._applicability, bounds
        )

    def _end(self, ends: Integers, position: int) -> int | Fraction | None:
        if not self.space.real[position]:
            return int(ends[0, position])
        value = float(ends[0, position : position + 1].view(np.float64)[0])
        return Fraction(value) if np.isfinite(value) else None

    def _bounds(self, leaf: Leaf) -> ActivationBounds | None:
        """Rigorous bounds of the arguments of all activations on the leaf's box."""
        if leaf.network < 0:
            return None
        return activation_bounds(self.chains[leaf.network], *self.inputs.boxes(leaf.lower, leaf.upper))

    def _confirm(self, leaf: Leaf, states: Integers) -> Integers | None:
        """The first of these states that satisfies the condition and in which the policy chooses the output."""
        inside = self._in_box(leaf, states)
        states = states[inside]
        states = states[self._condition(leaf.condition).at(states)[:, 0]]
        if not len(states):
            return None
        if leaf.network < 0:
            return np.asarray(states[0])
        applicable = None
        if self._applicability is not None:
            applicable = np.stack([self._condition(part).at(states)[:, 0] for part in self._applicability], axis=1)
        chosen = np.flatnonzero(self.decider.decide(states, applicable) == leaf.output)
        return np.asarray(states[chosen[0]]) if len(chosen) else None

    def _in_box(self, leaf: Leaf, states: Integers) -> Truths:
        values, low, high = (self.space.as_floats(ends) for ends in (states, leaf.lower, leaf.upper))
        return np.asarray(((low <= values) & (values <= high)).all(axis=1))

    def _condition(self, condition: Expression) -> Conditions:
        if condition not in self._conditions:
            if len(self._conditions) >= REMEMBERED:
                self._conditions.clear()
            self._conditions[condition] = Conditions([condition], self.space, self.box)
        return self._conditions[condition]

    def _matters(self, leaf: Leaf) -> Truths:
        """The variables on which the answer can depend."""
        parts = [leaf.condition, *(self._applicability or ())]
        found = self.inputs.reads.any(axis=1) | self.inputs.switch_reads
        for part in parts:
            found = found | self._condition(part).reads[0]
        return np.asarray(found)

    def _states(self, leaf: Leaf) -> float:
        """How many states of the leaf differ in what matters."""
        return float(self.space.sizes(leaf.lower, leaf.upper, self._matters(leaf))[0])

    def _enumerate(self, leaf: Leaf) -> Decision:
        """Decide a small leaf by looking at all of its states."""
        states, _ = self.space.points(leaf.lower, leaf.upper, self._matters(leaf))
        for first in range(0, len(states), CHUNK):
            self._budget.check()
            part = states[first : first + CHUNK]
            self._statistics["enumerated_states"] += len(part)
            witness = self._confirm(leaf, part)
            if witness is not None:
                return Decision(POSSIBLE, witness)
        return Decision(IMPOSSIBLE)
