"""Small random questions for the decision oracle, and their answers by looking at every state.

`random_question(seed)` makes policy, variables, regions and applicability; `KINDS[seed % len(KINDS)]`
is the boundary case that the seed is about.  Every region holds few enough states to decide each of
them exactly: `brute_force` is the naive twin of every back end.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from policyproof.model.automata import BOOLEAN, Domain, Variable
from policyproof.model.batch_kernel import evaluate_batch
from policyproof.model.definedness import definedness
from policyproof.model.exact import ExactProgram
from policyproof.model.expressions import FALSE, ONE, TRUE, ZERO, Expression, apply, conjunction, constant
from policyproof.model.tape import Compiler, bits
from policyproof.oracle.protocol import Regions
from policyproof.policy.decisions import Decider
from policyproof.policy.network import Activation, Affine, Clip, Layer, Network, Normalise
from policyproof.policy.policy import Policy

KINDS = (
    "plain",
    "ties",
    "duplicated outputs",
    "zero width",
    "dead network",
    "equal rows",
    "constant outputs",
    "outside the training range",
    "linear condition",
    "any condition",
    "empty condition",
    "filtering",
    "switched",
    "truth values",
    "leaky",
    "scales apart",
    "near ties",
    "fixed reals",
)
STATES = 3000
REGIONS = 3


class Question(NamedTuple):
    """What `DecisionOracle.ask` is asked."""

    policy: Policy
    variables: tuple[Variable, ...]
    regions: Regions
    applicability: tuple[Expression, ...] | None


@dataclass(frozen=True)
class Found:
    """What looking at every state found."""

    chosen: NDArray[np.bool_]
    """chosen[n, output]: is there a state in region n where the policy chooses this output?"""
    states: int
    """How many states satisfy their region's condition."""
    ties: int
    """In how many of them the best outputs were equal."""
    nothing_applicable: int
    """In how many of them no output was applicable."""

    def outputs(self, region: int) -> set[int]:
        return set(np.flatnonzero(self.chosen[region]).tolist())


# Looking at every state


def states_of(regions: Regions, region: int, variables: Sequence[Variable]) -> NDArray[np.int64]:
    """All states of a region's box, `[n, variable]`; a real variable must have one value there."""
    columns = []
    for position, item in enumerate(variables):
        low, high = int(regions.lower[region, position]), int(regions.upper[region, position])
        if item.domain.kind == "real" and low != high:
            raise ValueError(f"the real variable {item.name} has more than one value")
        columns.append(np.arange(low, high + 1) if low < high else np.array([low] if low == high else []))
    grid = np.meshgrid(*columns, indexing="ij")
    return np.stack([axis.ravel() for axis in grid], axis=1).astype(np.int64)


def valuation(state: Sequence[int], variables: Sequence[Variable]) -> dict[str, bool | int | Fraction]:
    """A row of an array of states as exact values."""
    values: dict[str, bool | int | Fraction] = {}
    for item, column in zip(variables, state, strict=True):
        if item.domain.kind == "real":
            values[item.name] = Fraction(float(np.int64(column).view(np.float64)))
        else:
            values[item.name] = bool(column) if item.domain.kind == "bool" else int(column)
    return values


def holds(conditions: Sequence[Expression], states: NDArray[np.int64], variables: Sequence[Variable]) -> np.ndarray:
    """`truth[state, condition]`: is the condition defined and true there?"""
    box = {item.name: item.domain.range for item in variables}
    tape = Compiler([(item.name, item.domain.kind) for item in variables], box).compile(
        [part for condition in conditions for part in (condition, definedness(condition))]
    )
    if tape.exact:
        values, overflow = evaluate_batch(tape, states)
        if not overflow:
            return (values[:, 0::2] & values[:, 1::2]).astype(np.bool_)
    program = ExactProgram(conditions)
    truths = [[value is True for value in program(valuation(state, variables))] for state in states.tolist()]
    return np.array(truths, dtype=np.bool_).reshape(len(states), len(conditions))


def members(regions: Regions, region: int, variables: Sequence[Variable]) -> NDArray[np.int64]:
    """The states of a region, `[n, variable]`: those of its box that satisfy its condition."""
    states = states_of(regions, region, variables)
    condition = regions.condition_of(region)
    if condition is None or not len(states):
        return states
    return states[holds([condition], states, variables)[:, 0]]


def brute_force(question: Question) -> Found:
    """Decide every state of every region."""
    policy, variables, regions, applicability = question
    decider = Decider(policy, variables, {item.name: item.domain.range for item in variables})
    chosen = np.zeros((len(regions), policy.networks[0].output_size), dtype=np.bool_)
    count = nothing = 0
    for region in range(len(regions)):
        states = members(regions, region, variables)
        if not len(states):
            continue
        applicable = None if applicability is None else holds(applicability, states, variables)
        chosen[region, decider.decide(states, applicable)] = True
        count += len(states)
        nothing += 0 if applicable is None else int((~applicable.any(axis=1)).sum())
    return Found(chosen, count, decider.statistics.ties, nothing)


# Making questions


def random_question(seed: int) -> Question:
    """A question about the boundary case `KINDS[seed % len(KINDS)]`, with a share of the others."""
    return _Maker(random.Random(seed), KINDS[seed % len(KINDS)]).question()


class _Maker:
    def __init__(self, rng: random.Random, kind: str) -> None:
        self.rng = rng
        self.numbers = np.random.default_rng(rng.getrandbits(32))
        self.kind = kind
        # Features beside the boundary case itself: conditions, filters and switches go with everything.
        self.with_condition = "condition" in kind or rng.random() < 0.3
        self.with_filter = kind == "filtering" or rng.random() < 0.25
        self.with_switch = kind == "switched"

    def question(self) -> Question:
        variables = self.variables()
        inputs = self.inputs(variables)
        outputs = self.rng.randint(2, 5)
        networks = tuple(self.network(len(inputs), outputs) for _ in range(3 if self.with_switch else 1))
        policy = Policy(
            networks=networks,
            inputs=inputs,
            labels=tuple(f"label{number}" for number in range(outputs)),
            filter=self.with_filter,
            switch=variables[-1].expression if self.with_switch else None,
            switch_values=(1, 2, 4)[: len(networks)] if self.with_switch else (),
        )
        applicability = None
        if self.with_filter:
            applicability = tuple(self.applicability(variables) for _ in range(outputs))
        return Question(policy, variables, self.regions(variables), applicability)

    # The parts

    def variables(self) -> tuple[Variable, ...]:
        found = []
        for number in range(self.rng.randint(1, 4)):
            low = self.rng.randint(-9, 3)
            domain = Domain("int", low, low + self.rng.choice([3, 6, 12, 20]))
            if self.kind == "truth values" and number % 2 == 0:
                domain = BOOLEAN
            if self.kind == "outside the training range":
                domain = Domain("int", -1000, 1000)
            found.append(Variable(f"x{number}", domain))
        if self.kind == "fixed reals":
            found.append(Variable("u", Domain("real", Fraction(-2), Fraction(2))))
        if self.with_switch:
            found.append(Variable("switch", Domain("int", 0, 4)))
        return tuple(found)

    def inputs(self, variables: tuple[Variable, ...]) -> tuple[Expression, ...]:
        """Mostly every variable but the switch; sometimes one is not read, sometimes a difference is."""
        read = [
            apply("ite", item.expression, ONE, ZERO) if item.domain.kind == "bool" else item.expression
            for item in variables
            if item.name != "switch"
        ]
        if len(read) > 1 and self.rng.random() < 0.2:
            read.pop(self.rng.randrange(len(read)))
        if self.rng.random() < 0.2:
            read.append(self.integer(variables) - self.integer(variables) * 2)
        return tuple(read)

    def network(self, inputs: int, outputs: int) -> Network:
        rng, layers = self.rng, list[Layer]()
        if self.kind == "outside the training range":
            layers.append(Normalise(self.numbers.normal(size=inputs), self.numbers.uniform(0.5, 7, inputs)))
            layers.append(Clip(np.full(inputs, -3.0), np.full(inputs, 2.5)))
        elif rng.random() < 0.2:
            layers.append(Normalise(np.full(inputs, 0.1), np.full(inputs, 3.0)))
        coarse = self.kind in ("ties", "near ties", "duplicated outputs") or rng.random() < 0.2
        leaky = self.kind == "leaky" or rng.random() < 0.1
        sizes = [inputs, *(rng.randint(2, 8) for _ in range(rng.choice([0, 1, 2, 2]))), outputs]
        for number, (columns, rows) in enumerate(itertools.pairwise(sizes)):
            weights, bias = self.affine(rows, columns, coarse=coarse)
            if self.kind == "dead network" and number < len(sizes) - 2:
                bias = bias - 1000.0
            layers.append(Affine(weights, bias))
            layers.append(Activation("leaky_relu", 0.1) if leaky else Activation("relu"))
        layers.pop()
        layers[-1] = self.last(layers[-1])
        return Network(tuple(layers), inputs)

    def affine(self, rows: int, columns: int, *, coarse: bool) -> tuple[np.ndarray, np.ndarray]:
        if coarse:
            weights = self.numbers.integers(-2, 3, (rows, columns)).astype(np.float64)
            return weights, self.numbers.integers(-3, 4, rows).astype(np.float64)
        weights = self.numbers.normal(size=(rows, columns)).astype(np.float32).astype(np.float64)
        bias = 2 * self.numbers.normal(size=rows).astype(np.float32).astype(np.float64)
        if self.kind == "scales apart":
            weights = weights * 10.0 ** self.numbers.integers(-4, 5, (rows, 1))
        if self.kind == "equal rows" and rows > 1:
            weights[1:] = weights[0]
            bias[1::2] = bias[0]
        return weights, bias

    def last(self, layer: Layer) -> Affine:
        """The last layer as the boundary case wants it."""
        assert isinstance(layer, Affine)
        weights, bias = layer.weights.copy(), layer.bias.copy()
        rows = len(bias)
        if self.kind == "duplicated outputs":
            first, second = self.rng.sample(range(rows), 2)
            weights[first], bias[first] = weights[second], bias[second]
        elif self.kind == "constant outputs":
            weights[:] = 0.0
            bias[:] = self.numbers.integers(-1, 2, rows)
        elif self.kind == "near ties":
            # Two outputs that differ in the last place of one weight, or not at all.
            first, second = self.rng.sample(range(rows), 2)
            weights[first], bias[first] = weights[second], bias[second]
            place = self.rng.randrange(weights.shape[1])
            weights[first, place] = np.nextafter(weights[second, place], self.rng.choice([-np.inf, np.inf]))
        return Affine(weights, bias)

    # Regions and conditions

    def regions(self, variables: tuple[Variable, ...]) -> Regions:
        lower, upper = (np.zeros((REGIONS, len(variables)), dtype=np.int64) for _ in range(2))
        for region in range(REGIONS):
            budget = self.rng.choice([1, 30, STATES]) if self.kind != "zero width" else self.rng.choice([1, 5])
            for position in self.rng.sample(range(len(variables)), len(variables)):
                item = variables[position]
                if item.domain.kind == "real":
                    value = self.rng.choice([0.0, 0.1, -1.5, self.rng.uniform(-2, 2)])
                    lower[region, position] = upper[region, position] = bits(value)
                    continue
                if item.name == "switch":
                    low, high = self.rng.choice([(1, 1), (1, 2), (2, 2), (4, 4)])
                else:
                    least, greatest = (int(end) for end in item.domain.range)
                    low = self.rng.randint(least, greatest)
                    high = min(greatest, low + self.rng.randint(0, budget - 1))
                budget = max(1, budget // (high - low + 1))
                lower[region, position], upper[region, position] = low, high
        if not self.with_condition:
            return Regions(lower, upper)
        conditions = tuple(self.condition(variables) for _ in range(2))
        return Regions(lower, upper, conditions, np.array([self.rng.choice([-1, 0, 1]) for _ in range(REGIONS)]))

    def condition(self, variables: tuple[Variable, ...]) -> Expression:
        if self.kind == "empty condition":
            number = self.integer(variables)
            never = [FALSE, apply("<", number, number), apply("=", apply("/", ONE, apply("-", number, number)), ONE)]
            return self.rng.choice(never)
        if self.kind == "any condition":
            return self.any_condition(variables)
        return conjunction(self.linear_condition(variables) for _ in range(self.rng.randint(1, 2)))

    def applicability(self, variables: tuple[Variable, ...]) -> Expression:
        return self.rng.choice([FALSE, FALSE, TRUE, *(self.linear_condition(variables) for _ in range(4))])

    def linear_condition(self, variables: tuple[Variable, ...]) -> Expression:
        total = constant(self.rng.randint(-4, 4))
        for item in self.rng.sample(variables, min(2, len(variables))):
            if item.domain.kind == "bool":
                return self.rng.choice([item.expression, apply("¬", item.expression)])
            total = total + self.rng.choice([-2, -1, 1, 3]) * item.expression
        operator = self.rng.choice(["<", "≤", ">", "≥", "≥", "≤", "=", "≠"])
        return apply(operator, total, constant(self.rng.choice([0, 0, 1, Fraction(1, 2)])))

    def any_condition(self, variables: tuple[Variable, ...]) -> Expression:
        """Beyond conjunctions of linear comparisons: products, remainders, rounding, choices, partial operators."""
        first, second = self.integer(variables), self.integer(variables)
        parts = [
            apply("≤", first * second, constant(self.rng.randint(-5, 20))),
            apply("=", first % constant(self.rng.choice([2, 3, -2])), ONE),
            apply("<", apply("abs", first), apply("max", second, constant(2))),
            apply("≥", apply("ite", apply("<", first, second), first, second), constant(-2)),
            apply("<", apply("/", first, second), constant(Fraction(1, 3))),
            apply("=", apply("floor", apply("/", first, constant(2))), apply("min", second, constant(1))),
            apply("=", apply("%", first, second), ONE),
            apply("≤", apply("aa", first, constant(3), second, ZERO), constant(1)),
            apply("≤", apply("pow", first, constant(2)), constant(17)),
            apply("=", apply("sgn", first), apply("sgn", second)),
            apply("=", apply("ceil", first * Fraction(1, 3)), apply("trc", second * Fraction(1, 2))),
        ]
        left, right = self.rng.sample(parts, 2)
        operator = self.rng.choice(["∧", "∨", "∨", "⇒", "=", "≠"])
        return apply(operator, left, apply("¬", right) if self.rng.random() < 0.3 else right)

    def integer(self, variables: tuple[Variable, ...]) -> Expression:
        integers = [item.expression for item in variables if item.domain.kind == "int"]
        return self.rng.choice(integers) if integers else apply("ite", variables[0].expression, ONE, constant(2))
