"""Exact decisions of a policy for batches of states.

The outputs of a batch are computed in float64 together with a bound of the error.  Where one
allowed output leads every other by more than both errors, it wins; every other state is decided in
exact arithmetic, once per distinct network input.  `Statistics` counts how often that happened, and
how often it found a tie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from policyproof.model.automata import Variable
from policyproof.model.batch_kernel import evaluate_batch
from policyproof.model.definedness import definedness_of
from policyproof.model.enclosures import Undecided
from policyproof.model.expressions import TRUE
from policyproof.model.integral import is_integral
from policyproof.model.ranges import Range, specialise
from policyproof.model.tape import Compiler, Tape
from policyproof.policy.network import Floats
from policyproof.policy.policy import Policy, best_output
from policyproof.run.errors import InvalidInput, ResourceExhausted

BATCH = 1 << 14


@dataclass
class Statistics:
    """How decisions were reached."""

    decisions: int = 0
    exact: int = 0
    """Decisions that float64 with its error bound did not settle."""
    ties: int = 0
    """Decisions where several allowed outputs were exactly the greatest."""


class Decider:
    """Decides for states given as arrays `[n, variable]` (reals as the bits of float64)."""

    def __init__(self, policy: Policy, variables: Sequence[Variable], box: dict[str, Range]) -> None:
        self.policy = policy
        self.variables = tuple(variables)
        compiler = Compiler([(item.name, item.domain.kind) for item in variables], box)
        self._inputs: Tape = compiler.compile(list(policy.inputs))
        self._float_inputs = np.array([expression.kind == "real" for expression in policy.inputs])
        switches = [] if policy.switch is None else [policy.switch]
        self._switch = compiler.compile(switches) if switches else None
        # Tapes are total: a division by zero gives some number, which no network was asked about.
        (defined,) = specialise([definedness_of([*policy.inputs, *switches])], box)
        self._defined = None if defined is TRUE else compiler.compile([defined])
        self._settled: dict[tuple[object, ...], tuple[int, bool]] = {}
        self.statistics = Statistics()
        read = [expression for expression in policy.inputs if not expression.is_variable] + switches
        if not all(map(is_integral, read)):
            raise InvalidInput(
                "decisions in batches need network inputs (and a switch) that are plain variables, or computed from "
                "integers and truth values alone",
                where=policy.source,
            )

    def decide(self, states: NDArray[np.int64], applicable: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """The winning output of every state; with `applicable[n, output]` the best applicable one, if any."""
        result = np.empty(len(states), dtype=np.int64)
        for first in range(0, len(states), BATCH):
            part = slice(first, first + BATCH)
            allowed = None if applicable is None else self._allowed(applicable[part])
            result[part] = self._decide(states[part], allowed)
        return result

    def outputs(self, states: NDArray[np.int64]) -> Floats:
        """The outputs in float64 (the values of the action variables, for continuous actions)."""
        values, selected = self._network_inputs(states)
        outputs = np.empty((len(states), self.policy.networks[0].output_size))
        for number, network in enumerate(self.policy.networks):
            chosen = selected == number
            outputs[chosen] = network.evaluate(values[chosen])[0]
        return outputs

    @staticmethod
    def _allowed(applicable: NDArray[np.bool_]) -> NDArray[np.bool_]:
        # Where nothing is applicable the plain best label is chosen, which then stops the policy.
        return applicable | ~applicable.any(axis=1, keepdims=True)

    def _network_inputs(self, states: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]]:
        self._require_defined(states)
        raw, overflow = evaluate_batch(self._inputs, states)
        if overflow:
            raise ResourceExhausted("an input of the policy left the 62 bits of batched arithmetic")
        values = np.where(self._float_inputs, raw.view(np.float64), raw.astype(np.float64))
        selected = np.zeros(len(states), dtype=np.int64)
        if self._switch is not None:
            switched, overflow = evaluate_batch(self._switch, states)
            if overflow:
                raise ResourceExhausted("the switch of the policy left the 62 bits of batched arithmetic")
            switch_values = switched[:, 0]
            selected[:] = -1
            for number, value in enumerate(self.policy.switch_values):
                selected[switch_values == value] = number
            if (selected < 0).any():
                self.policy.network_index(int(switch_values[selected < 0][0]))
        return values, selected

    def _require_defined(self, states: NDArray[np.int64]) -> None:
        if self._defined is None:
            return
        defined, overflow = evaluate_batch(self._defined, states)
        if overflow:
            raise ResourceExhausted("whether the policy's inputs have values left the 62 bits of batched arithmetic")
        undefined = np.flatnonzero(defined[:, 0] == 0)
        if len(undefined):
            state = self._named(states[undefined[0]])
            raise InvalidInput(f"an input of the policy has no value in {state}", where=self.policy.source)

    def _named(self, state: NDArray[np.int64]) -> str:
        values = state.tolist()
        for number, item in enumerate(self.variables):
            if item.domain.kind == "real":
                values[number] = float(state[number : number + 1].view(np.float64)[0])
        named = ", ".join(f"{item.name} = {value}" for item, value in zip(self.variables, values, strict=True))
        return f"the state {named}"

    def _decide(self, states: NDArray[np.int64], allowed: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        values, selected = self._network_inputs(states)
        winners = np.empty(len(states), dtype=np.int64)
        self.statistics.decisions += len(states)
        # Integers beyond 2**53 are rounded when they become floats.
        largest = np.abs(values).max(axis=0, initial=0.0)
        input_error = np.where(largest > 2.0**53, largest * 2.0**-52, 0.0)
        for number in np.unique(selected):
            rows = np.flatnonzero(selected == number)
            outputs, error = self.policy.networks[number].evaluate(values[rows], input_error)
            mask = None if allowed is None else allowed[rows]
            best, settled = _leaders(outputs, error, mask)
            for row in np.flatnonzero(~settled):
                permitted = None if mask is None else tuple(np.flatnonzero(mask[row]).tolist())
                best[row] = self._exactly(int(number), states[rows[row]], values[rows[row]], permitted)
            winners[rows] = best
        return winners

    def _exactly(self, number: int, state: NDArray[np.int64], values: Floats, permitted: tuple[int, ...] | None) -> int:
        self.statistics.exact += 1
        vector = self._exact_inputs(state, values)
        key = (number, tuple(vector), permitted)
        if key not in self._settled:
            network = self.policy.exact_networks[number]
            try:
                winner = best_output(network, vector, permitted)
            except Undecided as reason:
                # No limit of the user's, but the same kind of end: nobody knows what happens from here on.
                raise ResourceExhausted(f"{reason}, in {self._named(state)}") from None
            outputs = network.outputs(vector)
            candidates = range(len(outputs)) if permitted is None else permitted
            tie = sum(outputs[index] == outputs[winner] for index in candidates) > 1
            self._settled[key] = (winner, tie)
        winner, tie = self._settled[key]
        self.statistics.ties += tie
        return winner

    def _exact_inputs(self, state: NDArray[np.int64], values: Floats) -> list[Fraction]:
        raw = evaluate_batch(self._inputs, state[None, :])[0][0]
        return [
            Fraction(float(value)) if is_float else Fraction(int(bits))
            for bits, value, is_float in zip(raw, values, self._float_inputs, strict=True)
        ]


def _leaders(
    outputs: Floats, error: Floats, allowed: NDArray[np.bool_] | None
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The greatest allowed output of every row, and whether it leads by more than the errors."""
    if allowed is not None:
        outputs = np.where(allowed, outputs, -np.inf)
    best = np.argmax(outputs, axis=1)
    rows = np.arange(len(outputs))
    lead = outputs[rows, best]
    # Both errors, and the rounding of this very comparison.
    threshold = (error[best][:, None] + error[None, :]) * (1 + 2.0**-40) + np.abs(lead)[:, None] * 2.0**-51
    with np.errstate(invalid="ignore"):
        ahead = lead[:, None] - outputs > threshold
    ahead[rows, best] = True
    # NaN and infinity settle nothing.
    return best, ahead.all(axis=1) & np.isfinite(lead)
