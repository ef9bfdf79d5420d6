"""Where a policy can be after t steps, as one box: the interval image of the operators, step by step.

Idea: each operator's guard narrows the box of the last step; where the policy's outputs, bounded on what is left,
never choose the operator's label, the operator is out of the question; the others' updates are evaluated there,
and the next box is the hull of the results.  What is decided in such a box, activations of the network above all,
needs no case distinction in the program of that step.

Invariant: a state that can be reached in exactly t steps lies in the box of step t, and the operator that reached
it is among those of its stage.  All arithmetic on boxes is rounded outward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from policyproof.model.box_kernel import evaluate_boxes
from policyproof.model.expressions import TRUE, Expression, apply, conjunction, constant, to_real
from policyproof.model.flat import FlatModel, Freedom, Operator
from policyproof.model.ranges import Range
from policyproof.model.start_states import domain_ends
from policyproof.model.tape import INTEGER_LIMIT, Compiler, Tape
from policyproof.oracle.conditions import FALSE, Conditions
from policyproof.oracle.duels import Duels
from policyproof.oracle.space import Integers, Space
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget
from policyproof.run.errors import Feature, UnsupportedFeature

MOST_OPERATORS = 20_000


@dataclass(frozen=True, eq=False)
class Box:
    """`lower[1, variable]` .. `upper[1, variable]`, reals as the bits of float64."""

    lower: Integers
    upper: Integers


@dataclass(frozen=True, eq=False)
class _Compiled:
    """An operator on boxes: its guard, and the ends of what it writes."""

    guard: Conditions
    written: tuple[int, ...]
    values: Tape


class Images:
    """A model and a policy, ready to say where a step leads."""

    def __init__(self, flat: FlatModel, policy: Policy | None) -> None:
        if len(flat.operators) > MOST_OPERATORS:
            raise UnsupportedFeature(
                [Feature("the synchronisations", f"more than {MOST_OPERATORS:,} operators in bmc")]
            )
        self.flat = flat
        self.policy = policy
        self.space = Space(flat.variables)
        self.operators: list[Operator] = list(flat.operators)
        self.duels = None if policy is None else Duels(policy, self.space, flat.box)
        self._guards = Conditions([operator.guard for operator in self.operators], self.space, flat.box)
        self._compiled: dict[int, _Compiled] = {}
        ends = [domain_ends(item) for item in flat.variables]
        self.domain = Box(*(np.array([[pair[side] for pair in ends]], dtype=np.int64) for side in (0, 1)))
        outputs = () if policy is None else policy.labels
        self.output = [
            outputs.index(item.label) if item.label is not None and item.label in outputs else -1
            for item in self.operators
        ]
        """The output that must be chosen for an operator; -1 for those of the environment."""

    def narrowed(self, box: Box, condition: Expression) -> Box | None:
        """What is left of a box where a condition may hold; None: nothing."""
        lower, upper = box.lower.copy(), box.upper.copy()
        status, _ = Conditions([condition], self.space, self.flat.box).narrow(lower, upper)
        return None if status[0] == FALSE or self.space.empty(lower, upper)[0] else Box(lower, upper)

    def hull(self, boxes: list[Box]) -> Box:
        """The smallest box around several ones."""
        lower, upper = boxes[0].lower.copy(), boxes[0].upper.copy()
        for box in boxes[1:]:
            lower = np.where(self._less(box.lower, lower), box.lower, lower)
            upper = np.where(self._less(upper, box.upper), box.upper, upper)
        return Box(lower, upper)

    def step(self, box: Box, budget: Budget) -> tuple[list[int], Box | None]:
        """The operators that can be taken in a box, and the box that they lead to (None: there are none)."""
        _, possible = self._guards.on_boxes(box.lower, box.upper)
        numbers, sources = [], []
        for number in np.flatnonzero(possible[0]).tolist():
            budget.check()
            lower, upper = box.lower.copy(), box.upper.copy()
            status, _ = self._operator(number).guard.narrow(lower, upper)
            if status[0] != FALSE and not self.space.empty(lower, upper)[0]:
                numbers.append(number)
                sources.append(Box(lower, upper))
        chosen = self._may_be_chosen(box, numbers, sources)
        kept, targets = [], []
        for number, source, here in zip(numbers, sources, chosen.tolist(), strict=True):
            target = self._image(number, source) if here else None
            if target is not None:
                kept.append(number)
                targets.append(target)
        return kept, self.hull(targets) if targets else None

    def applicable_everywhere(self, box: Box) -> NDArray[np.bool_]:
        """By output: is some operator of its label applicable in the whole box?"""
        policy = self.policy
        found = np.zeros(0 if policy is None else len(policy.labels), dtype=np.bool_)
        certain, _ = self._guards.on_boxes(box.lower, box.upper)
        for number in np.flatnonzero(certain[0]).tolist():
            if self.output[number] >= 0:
                found[self.output[number]] = True
        return found

    def beats(self, box: Box, network: int) -> NDArray[np.bool_]:
        """`beats[output, rival]`: does a network's output win against the rival in the whole box?"""
        if self.duels is None:
            raise TypeError("without a policy nothing is chosen")
        count = self.duels.outputs
        leaders = np.arange(count)[None, :]
        wanted = np.ones((1, count), dtype=np.bool_)
        wins, _ = self.duels.wins(box.lower, box.upper, np.array([network]), leaders, wanted)
        return np.asarray(wins[0])

    def ranges(self, box: Box) -> dict[str, Range]:
        """The box as exact ranges by name, within the domains."""
        return {item.name: self._range(box, position) for position, item in enumerate(self.flat.variables)}

    def switched(self, box: Box) -> list[tuple[int, Expression, Box]]:
        """The networks that may decide in a box, each with its condition and the part of the box."""
        policy = self.policy
        if policy is None:
            return []
        if policy.switch is None:
            return [(0, TRUE, box)]
        found = []
        for number, value in enumerate(policy.switch_values):
            condition = apply("=", policy.switch, constant(value))
            part = self.narrowed(box, condition)
            if part is not None:
                found.append((number, condition, part))
        return found

    def without_network(self) -> Expression | None:
        """Where a switched policy has no network."""
        policy = self.policy
        if policy is None or policy.switch is None:
            return None
        return conjunction(apply("≠", policy.switch, constant(value)) for value in policy.switch_values)

    def _operator(self, number: int) -> _Compiled:
        if number not in self._compiled:
            operator, names = self.operators[number], self.flat.names
            variables = [(item.name, item.domain.kind) for item in self.flat.variables]
            values: list[Expression] = []
            for name, value in operator.update.items():
                ends = (value.lower, value.upper) if isinstance(value, Freedom) else (value, value)
                real = self.space.real[names.index(name)]
                values += [to_real(end) if real else end for end in ends]
            self._compiled[number] = _Compiled(
                Conditions([operator.guard], self.space, self.flat.box),
                tuple(names.index(name) for name in operator.update),
                Compiler(variables, self.flat.box).compile(values, reuse_registers=False),
            )
        return self._compiled[number]

    def _may_be_chosen(self, box: Box, numbers: list[int], sources: list[Box]) -> NDArray[np.bool_]:
        """Which operators' labels can the policy choose where their guards can hold?"""
        chosen = np.ones(len(numbers), dtype=np.bool_)
        duels, policy = self.duels, self.policy
        asked = [place for place, number in enumerate(numbers) if self.output[number] >= 0]
        if duels is None or policy is None or not asked:
            return chosen
        lower = np.concatenate([sources[place].lower for place in asked])
        upper = np.concatenate([sources[place].upper for place in asked])
        outputs = np.array([self.output[numbers[place]] for place in asked])
        leaders = np.tile(np.arange(duels.outputs), (len(asked), 1))
        if policy.filter:
            # Only what is applicable everywhere is sure to be a rival.
            leaders[:, ~self.applicable_everywhere(box)] = -1
        wanted = outputs[:, None] == np.arange(duels.outputs)[None, :]
        wins, _ = duels.wins(lower, upper, duels.networks(lower, upper), leaders, wanted)
        beaten = wins[np.arange(len(asked)), :, outputs].any(axis=1)
        chosen[asked] = ~beaten
        return chosen

    def _image(self, number: int, source: Box) -> Box | None:
        """Where an operator leads from a box in which its guard may hold."""
        compiled = self._operator(number)
        lower, upper = source.lower.copy(), source.upper.copy()
        if compiled.written:
            low, high = evaluate_boxes(compiled.values, source.lower, source.upper)
            for place, position in enumerate(compiled.written):
                lower[0, position], upper[0, position] = low[0, 2 * place], high[0, 2 * place + 1]
            undefined = np.isnan(self.space.as_floats(lower)) | np.isnan(self.space.as_floats(upper))
            outside = self._less(lower, self.domain.lower) | undefined
            lower = np.where(outside, self.domain.lower, lower)
            outside = self._less(self.domain.upper, upper) | undefined
            upper = np.where(outside, self.domain.upper, upper)
        return None if self.space.empty(lower, upper)[0] else Box(lower, upper)

    def _less(self, left: Integers, right: Integers) -> NDArray[np.bool_]:
        found = left < right
        reals = self.space.reals
        if len(reals):
            low, high = (np.ascontiguousarray(end[:, reals]).view(np.float64) for end in (left, right))
            found[:, reals] = low < high
        return np.asarray(found)

    def _range(self, box: Box, position: int) -> Range:
        domain = self.flat.variables[position].domain
        low, high = box.lower[0, position], box.upper[0, position]
        if domain.kind == "bool":
            return bool(low), bool(high)
        first, last = domain.range
        if domain.kind == "int":
            # The kernels' mark of an integer that may be larger than any they can hold.
            return max(first, int(low)) if low > -INTEGER_LIMIT else first, (
                min(last, int(high)) if high < INTEGER_LIMIT else last
            )
        ends = np.array([low, high], dtype=np.int64).view(np.float64).tolist()
        lower = max(first, Fraction(ends[0])) if np.isfinite(ends[0]) else first
        return lower, min(last, Fraction(ends[1])) if np.isfinite(ends[1]) else last


def within(kind: str, ends: Range) -> Mapping[str, int | Fraction | None]:
    """The ends of a column."""
    low, high = ends
    return {
        "lower": None if isinstance(low, float) else Fraction(low) if kind == "real" else int(low),
        "upper": None if isinstance(high, float) else Fraction(high) if kind == "real" else int(high),
    }
