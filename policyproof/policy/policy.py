"""Policies: which label does a network choose in a state (ICAPS22, definition 9)?

A policy reads its network inputs from the state (any expressions over the state variables), and its
outputs either name labels, of which the greatest wins, or are the values of action variables.  A
*switched* policy picks one of several networks by an integer expression over the state.

Ties: among equal outputs the lowest index wins, as in `argmax`.  With applicability filtering the
best label that has an applicable operator wins; where there is none, the plain best one, which then
stops the policy.

Every decision is exact.  The outputs are computed in float64 with a bound of the error, and where
the bound does not settle the order, in rational arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from policyproof.model import enclosures
from policyproof.model.enclosures import Enclosure, Undecided
from policyproof.model.exact import PRECISIONS, ExactProgram
from policyproof.model.expressions import Expression, variables_of
from policyproof.policy.network import ExactNetwork, Network
from policyproof.run.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class Policy:
    """Networks, and how they are connected to a model."""

    networks: tuple[Network, ...]
    inputs: tuple[Expression, ...]
    labels: tuple[str, ...] = ()
    action_variables: tuple[str, ...] = ()
    filter: bool = False
    switch: Expression | None = None
    switch_values: tuple[int, ...] = ()
    """switch_values[i] selects networks[i]."""
    source: str = "policy"
    files: tuple[str, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        outputs = len(self.labels) or len(self.action_variables)
        for network in self.networks:
            if network.input_size != len(self.inputs):
                message = f"the network has {network.input_size} inputs, the interface names {len(self.inputs)}"
                raise InvalidInput(message, where=f"{self.source} ({network.source})")
            if network.output_size != outputs:
                message = f"the network has {network.output_size} outputs, the interface names {outputs}"
                raise InvalidInput(message, where=f"{self.source} ({network.source})")
        if len(set(self.labels)) < len(self.labels):
            raise InvalidInput("a label is named by two outputs", where=self.source)
        if self.switch is None and len(self.networks) != 1:
            raise InvalidInput("several networks, but nothing to choose one by", where=self.source)
        if self.switch is not None and len(self.switch_values) != len(self.networks):
            raise InvalidInput("every network of a switched policy needs its value", where=self.source)

    @property
    def reads(self) -> set[str]:
        """The variables that the policy sees."""
        return variables_of([*self.inputs, *([] if self.switch is None else [self.switch])])

    @cached_property
    def exact_networks(self) -> tuple[ExactNetwork, ...]:
        return tuple(ExactNetwork(network) for network in self.networks)

    @cached_property
    def _program(self) -> ExactProgram:
        return ExactProgram([*self.inputs, *([] if self.switch is None else [self.switch])])

    def network_index(self, value: int) -> int:
        """Which network a switch value selects."""
        if value not in self.switch_values:
            known = ", ".join(map(str, self.switch_values))
            raise InvalidInput(f"no network for the value {value} (there are: {known})", where=self.source)
        return self.switch_values.index(value)

    def exact_inputs(self, state: Mapping[str, Any]) -> tuple[int, list[Fraction | Enclosure]]:
        """The network that decides in a state, and its inputs."""
        values = self._program(state)
        number = 0
        if self.switch is not None:
            selected = values.pop()
            if not isinstance(selected, int):
                raise InvalidInput("the switch has no integer value here", where=self.source)
            number = self.network_index(selected)
        vector: list[Fraction | Enclosure] = []
        for expression, value in zip(self.inputs, values, strict=True):
            if value is None:
                raise InvalidInput(f"the input {expression} is undefined in a state", where=self.source)
            vector.append(value if isinstance(value, Enclosure) else Fraction(value))
        return number, vector

    def exact_outputs(self, state: Mapping[str, Any], precision: int = PRECISIONS[0]) -> list[Fraction | Enclosure]:
        number, vector = self.exact_inputs(state)
        return self.exact_networks[number].outputs(vector, precision)

    def decide_exactly(self, state: Mapping[str, Any], allowed: Sequence[int] | None = None) -> int:
        """The output that wins in a state, among the allowed ones; raises `Undecided` when no precision settles it."""
        number, vector = self.exact_inputs(state)
        return best_output(self.exact_networks[number], vector, allowed)


def best_output(
    network: ExactNetwork, vector: Sequence[Fraction | Enclosure], allowed: Sequence[int] | None = None
) -> int:
    """The index of the greatest output among the allowed ones; the lowest one among equals."""
    for precision in PRECISIONS:
        outputs = network.outputs(vector, precision)
        candidates = range(len(outputs)) if allowed is None else sorted(allowed)
        winner = _winner([(index, *enclosures.ends(outputs[index])) for index in candidates])
        if winner is not None:
            return winner
    raise Undecided(f"which output is the greatest is not settled by {PRECISIONS[-1]} binary digits")


def _winner(ends: list[tuple[int, Fraction, Fraction]]) -> int | None:
    best = max(lower for _, lower, _ in ends)
    contenders = [(index, lower, upper) for index, lower, upper in ends if upper >= best]
    index, lower, _ = contenders[0]
    # The first contender wins if none of the later ones can be strictly greater.
    return index if all(upper <= lower for _, _, upper in contenders[1:]) else None
