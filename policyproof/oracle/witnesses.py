"""Inputs that satisfy a query: looked for in floats, confirmed in exact arithmetic.

Search: random points of the boxes, then projected gradient descent of the most violated row of a clause,
with steps in proportion to the box.  Nothing here needs to be sound, because a point counts only when
its exact outputs satisfy the exact constraints.

A point whose coordinates are float32 numbers, and whose outputs as deployed satisfy the query too, is
preferred: tools that replay it in the deployed arithmetic then see the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policyproof.bounds.chain import Chain
from policyproof.bounds.gradient import gradients, outputs_at
from policyproof.model.enclosures import Enclosure, ends
from policyproof.oracle.clauses import Clauses, Integers, fails_surely, holds_surely
from policyproof.policy.network import Activation, Affine, Clip, ExactNetwork, Floats, Network
from policyproof.run.budget import Budget

PRECISIONS = (64, 256)
"""Binary digits with which irrational outputs are enclosed, one after the other."""
MOST_CONFIRMATIONS = 4
"""How many points of one batch are evaluated exactly: that costs milliseconds each."""
LONGEST_PAUSE = 100
"""How many batches at most go by without exact evaluation after many that were in vain."""
FAR = 2.0**60


@dataclass(frozen=True)
class Witness:
    """An input in the box of a case, and its outputs: exact, or enclosed where they are irrational."""

    inputs: tuple[Fraction, ...]
    outputs: tuple[Fraction | Enclosure, ...]
    deployed_outputs: tuple[float, ...]
    """As computed in the arithmetic of deployment, layer by layer."""
    deployed_agrees: bool
    """Is the query satisfied by the deployed outputs of the input, rounded to that arithmetic, too?"""


class WitnessSearch:
    """Looks for witnesses of one query."""

    def __init__(self, network: Network, chain: Chain, clauses: Clauses, seed: int) -> None:
        self.network = network
        self.chain = chain
        self.clauses = clauses
        self.exact = ExactNetwork(network)
        self.generator = np.random.default_rng(seed)
        self.confirmations = 0
        self._pause = self._failures = 0

    def look(self, case: Integers, points: Floats) -> Witness | None:
        """A witness among the points, one for each entry of `case`."""
        outputs = outputs_at(self.chain, points)
        excess = self.clauses.excess(self.clauses.values(outputs))
        excess[~self.clauses.alive[case]] = np.inf
        least = excess.min(axis=1, initial=np.inf)
        size = np.abs(outputs).max(initial=1.0) * 1e-9
        candidates = np.flatnonzero(least <= size)
        order = candidates[np.argsort(least[candidates], kind="stable")][:MOST_CONFIRMATIONS]
        if self._pause > 0:
            self._pause -= 1
            return None
        kept = None
        for index in order.tolist():
            witness = self.confirm(int(case[index]), points[index])
            if witness is not None and witness.deployed_agrees:
                return witness
            kept = kept or witness
        if len(order) and kept is None:
            # Where floats cannot tell, exact evaluation at every step would take all the time.
            self._failures += 1
            self._pause = min(self._failures, LONGEST_PAUSE)
        return kept

    def confirm(self, case: int, point: Floats) -> Witness | None:
        """The point, put into the box, if it satisfies the query exactly; one that float32 confirms if possible."""
        dtype = np.float32 if self.network.precision == "float32" else np.float64
        kept = None
        attempts = [np.clip(point, -FAR, FAR).astype(dtype).astype(np.float64), point]
        for attempt in attempts if dtype is np.float32 else attempts[:1]:
            witness = self._confirm(case, self.clauses.point_inside(case, attempt.tolist()))
            if witness is not None and witness.deployed_agrees:
                return witness
            kept = kept or witness
        return kept

    def _confirm(self, case: int, inputs: Sequence[Fraction]) -> Witness | None:
        self.confirmations += 1
        for precision in PRECISIONS:
            outputs = self.exact.outputs(list(inputs), precision)
            enclosed = [ends(value) for value in outputs]
            for clause in self.clauses.cases[case].clauses:
                if all(holds_surely(constraint, enclosed) for constraint in clause):
                    deployed = deployed_outputs(self.network, inputs)
                    exactly = [Fraction(value) for value in deployed] if np.isfinite(deployed).all() else None
                    agrees = exactly is not None and any(
                        all(constraint.holds(exactly) for constraint in other)
                        for other in self.clauses.cases[case].clauses
                    )
                    return Witness(tuple(inputs), tuple(outputs), tuple(deployed), agrees)
            if self.network.piecewise_linear:
                return None
        return None

    def refuted_point(self, case: int) -> bool:
        """Is the box of a case a single input, whose exact outputs satisfy no clause?"""
        box = self.clauses.cases[case].box
        if any(interval.lower != interval.upper for interval in box):
            return False
        self.confirmations += 1
        outputs = self.exact.outputs([interval.lower for interval in box], PRECISIONS[-1])
        enclosed = [ends(value) for value in outputs]
        return all(
            any(fails_surely(constraint, enclosed) for constraint in clause)
            for clause in self.clauses.cases[case].clauses
        )

    def descend(self, budget: Budget, *, points: int, steps: int) -> Witness | None:
        """Random points of all boxes, and descent from each towards one clause of its case."""
        clauses = self.clauses
        if not len(clauses.members):
            return None
        clause = np.arange(max(points, len(clauses.members))) % len(clauses.members)
        case = clauses.case_of[clause]
        lower, upper = (np.clip(end[case], -FAR, FAR) for end in (clauses.lower, clauses.upper))
        place = lower + self.generator.random(lower.shape) * (upper - lower)
        return self.follow(budget, place, clause, lower, upper, steps=steps)

    def follow(
        self, budget: Budget, place: Floats, clause: Integers, lower: Floats, upper: Floats, *, steps: int
    ) -> Witness | None:
        """Descent from `place[n, input]` within boxes towards `clause[n]`."""
        clauses = self.clauses
        case = clauses.case_of[clause]
        width = upper - lower
        step = 0.25
        for _ in range(steps):
            witness = self.look(case, place)
            if witness is not None or not len(clauses.rows) or budget.remaining <= 0:
                return witness
            values = clauses.values(outputs_at(self.chain, place))
            worst = np.where(clauses.members[clause], values, -np.inf).argmax(axis=1)
            _, slope = gradients(self.chain, clauses.rows, place, worst)
            # Relative to the box: the greatest component of a step is `step` of its width.
            scaled = slope * width
            greatest = np.abs(scaled).max(axis=1, keepdims=True)
            scaled = np.where(greatest > 0, scaled / np.where(greatest > 0, greatest, 1.0), 0.0)
            place = np.clip(place - step * np.sign(scaled) * np.sqrt(np.abs(scaled)) * width, lower, upper)
            step *= 0.85
        return self.look(case, place)


def deployed_outputs(network: Network, inputs: Sequence[Fraction]) -> list[float]:
    """The outputs in the floating-point arithmetic in which the network is deployed, layer by layer."""
    kind: Any = np.float32 if network.precision == "float32" else np.float64
    with np.errstate(all="ignore"):
        values: NDArray[Any] = np.array([float(value) for value in inputs], dtype=np.float64).astype(kind)
        for layer in network.layers:
            if isinstance(layer, Affine):
                values = np.matmul(layer.weights.astype(kind), values) + layer.bias.astype(kind)
            elif isinstance(layer, Clip):
                values = np.minimum(np.maximum(values, layer.lower.astype(kind)), layer.upper.astype(kind))
            elif isinstance(layer, Activation):
                values = _activate(layer, values, kind)
            else:
                values = (values - layer.subtract.astype(kind)) / layer.divide.astype(kind)
    return [float(value) for value in values]


def _activate(layer: Activation, values: NDArray[Any], kind: Any) -> NDArray[Any]:
    if layer.kind == "tanh":
        return np.asarray(np.tanh(values))
    if layer.kind == "sigmoid":
        return np.asarray(kind(1) / (kind(1) + np.exp(-values)))
    slope = kind(layer.slope if layer.kind == "leaky_relu" else 0.0)
    return np.asarray(np.where(values > 0, values, slope * values))
