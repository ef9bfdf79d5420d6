"""Which outputs are beaten throughout a box of states?

An output is beaten where another one is greater, or as great with a lower index.  Only the outputs
that lead at a point of the box can beat anything throughout it, so only their differences to the
open outputs are bounded.

With applicability filtering the best applicable output is chosen, or the plain best one where none
is applicable.  So an output j is not chosen anywhere in a box if both of these are impossible:

- *j is applicable and the best of those*: j is applicable nowhere, or is beaten by an output that is
  applicable everywhere;
- *nothing is applicable and j is the plain best*: some output is applicable everywhere, or j is
  beaten by any output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from policyproof.bounds.api import bound_rows
from policyproof.bounds.chain import difference_rows, make_chain
from policyproof.bounds.gradient import gradients, outputs_at
from policyproof.model.ranges import Range
from policyproof.oracle.inputs import InputMap
from policyproof.oracle.space import Integers, Space, Truths
from policyproof.policy.network import Floats
from policyproof.policy.policy import Policy

LEADERS = 3
"""How many of the outputs that lead at the middle of a box are tried against the others."""
NO_NETWORK, SEVERAL_NETWORKS = -1, -2


@dataclass(frozen=True, eq=False)
class Applicability:
    """Per box and output: applicable everywhere (`certain`), anywhere (`possible`)?"""

    certain: Truths
    possible: Truths


class Duels:
    """The networks of a policy, ready to compare their outputs over boxes."""

    def __init__(
        self,
        policy: Policy,
        space: Space,
        box: Mapping[str, Range],
        *,
        slope_iterations: int = 0,
        device: str = "cpu",
    ) -> None:
        self.policy = policy
        self.space = space
        self.inputs = InputMap(policy, space, box)
        self.slope_iterations = slope_iterations
        self.device = device
        self.chains = [make_chain(network) for network in policy.networks]
        count = len(policy.labels)
        self.outputs = count
        pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
        self.rows = [difference_rows(chain, pairs) for chain in self.chains]
        self.pair = np.full((count, count), -1, dtype=np.int64)
        """pair[a, b]: the row `output[a] - output[b]`; -1 for a = b"""
        for number, (a, b) in enumerate(pairs):
            self.pair[a, b] = number
        self._lower_index: Truths = np.arange(count)[:, None] < np.arange(count)[None, :]

    def networks(self, lower: Integers, upper: Integers) -> Integers:
        """The network that decides in each box; NO_NETWORK, or SEVERAL_NETWORKS where the switch is not fixed."""
        ends = self.inputs.switch_ends(lower, upper)
        if ends is None:
            return np.zeros(len(lower), dtype=np.int64)
        low, high = ends
        found = np.full(len(lower), NO_NETWORK, dtype=np.int64)
        for number, value in enumerate(self.policy.switch_values):
            found[low == value] = number
        found[low != high] = SEVERAL_NETWORKS
        return found

    def outputs_at(self, states: Integers, network: Integers) -> Floats:
        """The outputs in float64 (unproved); zeros where there is not exactly one network."""
        result = np.zeros((len(states), self.outputs))
        points = self.inputs.points(states)
        for number in np.unique(network[network >= 0]):
            rows = network == number
            result[rows] = outputs_at(self.chains[number], points[rows])
        return result

    def leaders(self, values: Floats, applicable: Applicability | None) -> Integers:
        """`leaders[n, k]`: the outputs that are worth trying against the others (-1: none)."""
        count = min(LEADERS, self.outputs)
        if applicable is None:
            return np.argsort(-values, axis=1, kind="stable")[:, :count]
        best = np.argsort(-values, axis=1, kind="stable")[:, :1]
        among = np.where(applicable.certain, values, -np.inf)
        others = np.argsort(-among, axis=1, kind="stable")[:, :count]
        usable = np.take_along_axis(applicable.certain, others, axis=1)
        return np.concatenate([best, np.where(usable, others, -1)], axis=1)

    def wins(
        self, lower: Integers, upper: Integers, network: Integers, leaders: Integers, wanted: Truths
    ) -> tuple[Truths, Floats]:
        """`wins[n, k, output]`: does leader k beat the wanted output in the whole box?

        And `effect[n, variable]`: how much each variable matters for what is not won.
        """
        count, kinds = leaders.shape
        low, high = self.inputs.boxes(lower, upper)
        wins = np.zeros((count, kinds, self.outputs), dtype=np.bool_)
        effect = np.zeros(low.shape)
        for number in np.unique(network[network >= 0]):
            boxes = np.flatnonzero(network == number)
            tried = leaders[boxes]
            rows = np.where(wanted[boxes, None, :] & (tried >= 0)[:, :, None], self.pair[tried], -1)
            bounds = bound_rows(
                self.chains[number], self.rows[number], low[boxes], high[boxes], rows.reshape(len(boxes), -1),
                iterations=self.slope_iterations, device=self.device,
            )  # fmt: skip
            found = bounds.lower.reshape(rows.shape)
            # NaN compares false: what is not known beats nothing.
            ahead = np.where(self._lower_index[tried], found >= 0.0, found > 0.0)
            wins[boxes] = np.logical_and(ahead, rows >= 0)
            effect[boxes] = bounds.effect
        return wins, np.nan_to_num(effect, nan=0.0, posinf=1e300) @ self.inputs.reads.T.astype(np.float64)

    @staticmethod
    def beaten(wins: Truths, leaders: Integers, applicable: Applicability | None) -> Truths:
        """`beaten[n, output]`: is the output chosen nowhere in the box?"""
        if applicable is None:
            return np.asarray(wins.any(axis=1))
        certain = certainly_applicable(leaders, applicable)
        as_applicable = ~applicable.possible | (wins & certain[:, :, None]).any(axis=1)
        as_plain = applicable.certain.any(axis=1, keepdims=True) | wins.any(axis=1)
        return np.asarray(as_applicable & as_plain)

    def corners(
        self, lower: Integers, upper: Integers, middle: Integers, network: Integers, leader: Integers, output: Integers
    ) -> Integers:
        """For every row: the corner of the box towards which `output` gains on `leader`, as seen from the middle.

        Where the gradient vanishes, or an input is no plain variable, the middle stays.
        """
        states = middle.copy()
        if self.inputs.columns is None:
            return states
        points = self.inputs.points(middle)
        gains = np.zeros(points.shape)
        pair = self.pair[output, leader]
        for number in np.unique(network[network >= 0]):
            rows = np.flatnonzero((network == number) & (pair >= 0))
            if len(rows):
                gains[rows] = gradients(self.chains[number], self.rows[number], points[rows], pair[rows])[1]
        by_variable = np.nan_to_num(gains) @ self.inputs.reads.T.astype(np.float64)
        states = np.where(by_variable > 0, upper, np.where(by_variable < 0, lower, states))
        return np.asarray(states)


def certainly_applicable(leaders: Integers, applicable: Applicability) -> Truths:
    """`[n, k]`: is leader k applicable in the whole box?"""
    return np.take_along_axis(applicable.certain, np.maximum(leaders, 0), axis=1) & (leaders >= 0)
