"""Bounds by linear relaxation with back-substitution (CROWN, DeepPoly): the text on arrays.

Idea: every component of every stage lies between two lines of its argument (`lines`).  A row is pushed
backwards through the stages: where its coefficient on a component is positive, the component is
replaced by its lower line, where it is negative by its upper line, so the row stays a lower bound, and
in the end it is a linear function of the inputs, whose least value on a box is at a corner.

The lines need bounds of every stage's argument; they come from interval propagation and, for
components whose function is undecided on them, from back-substitution of those components as rows.

Invariant: all bounds are sound in exact arithmetic (`margins`), whatever float64 rounds.

This is the naive twin of the fused kernel (`kernel`), and, with PyTorch as `xp`, what runs on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policyproof.bounds.chain import IDENTITY, Chain, Rows
from policyproof.bounds.lines import image, lines, undecided
from policyproof.bounds.margins import FLOOR, SLACK, rounding_factor
from policyproof.policy.network import Floats

Array = Any


@dataclass
class StageBounds:
    """What is known of one stage on every box: `lower[n, component] <= z <= upper`, |z| <= magnitude, lines."""

    weights: Array
    bias: Array
    lower: Array
    upper: Array
    magnitude: Array
    lower_slope: Array
    lower_intercept: Array
    upper_slope: Array
    upper_intercept: Array


class Relaxation:
    """The relaxation of a chain on a batch of boxes."""

    def __init__(
        self, chain: Chain, lower: Floats, upper: Floats, *, tighten: bool = True, xp: Any = np, place: Any = None
    ) -> None:
        """`lower[n, input]`, `upper[n, input]`; without `tighten` stages are bounded by intervals alone."""
        self.chain = chain
        self.xp = xp
        self._place = place
        self.lower, self.upper = self._array(lower), self._array(upper)
        self.input_magnitude = xp.maximum(xp.abs(self.lower), xp.abs(self.upper))
        self.factor = rounding_factor(chain.widest, len(chain.stages))
        self.floor = FLOOR * (1 + self.input_magnitude.sum(-1))
        self.stages: list[StageBounds] = []
        self.tighten = tighten
        # Overflow, and what follows from it, ends in NaN, which proves nothing.
        with np.errstate(all="ignore"):
            self._propagate()

    def _array(self, values: Floats) -> Array:
        if self.xp is np:
            return np.ascontiguousarray(values, dtype=np.float64)
        # A copy: what is given may be shared, or not writable.
        return self.xp.as_tensor(np.array(values, dtype=np.float64, order="C"), device=self._place)

    def _propagate(self) -> None:
        xp = self.xp
        low, high, magnitude = self.lower, self.upper, self.input_magnitude
        for stage in self.chain.stages:
            weights, bias, first, second = map(self._array, (stage.weights, stage.bias, stage.first, stage.second))
            size = xp.abs(weights)
            nothing = xp.zeros_like(weights)
            positive, negative = xp.maximum(weights, nothing), xp.minimum(weights, nothing)
            reach = magnitude @ size.T + xp.abs(bias)
            self.floor = self.floor + FLOOR * (reach.sum(-1) + magnitude.sum(-1))
            error = reach * self.factor + self.floor[:, None]
            lower = _known(xp, low @ positive.T + high @ negative.T + bias - error, -xp.inf)
            upper = _known(xp, high @ positive.T + low @ negative.T + bias + error, xp.inf)
            if self.tighten and self.stages:
                below = self._row_bounds(weights, bias)[0]
                above = -self._row_bounds(-weights, -bias)[0]
                wanted = undecided(xp, stage.function, lower, upper, first, second)
                # A comparison with NaN is false, so an undefined bound tightens nothing.
                lower = xp.where(wanted & (below > lower), below, lower)
                upper = xp.where(wanted & (above < upper), above, upper)
            bounds = lines(xp, stage.function, lower, upper, first, second)
            self.stages.append(StageBounds(weights, bias, lower, upper, reach, *bounds))
            low, high = image(xp, stage.function, lower, upper, first, second)
            magnitude = xp.maximum(xp.abs(low), xp.abs(high))

    def lower_bounds(self, rows: Rows) -> Floats:
        """`bounds[n, row]`: lower bounds of the rows on every box; NaN where nothing is known."""
        with np.errstate(all="ignore"):
            return self._numpy(self._row_bounds(self._array(rows.weights), self._array(rows.constant))[0])

    def bounds_and_effect(self, rows: Rows, wanted: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """The same, and `effect[n, input]`: |coefficient| times width, over the wanted rows that are not positive."""
        with np.errstate(all="ignore"):
            bounds, coefficients = self._row_bounds(self._array(rows.weights), self._array(rows.constant))
            asked = self.xp.as_tensor(wanted, device=self._place) if self.xp is not np else wanted
            unsettled = asked & ~(bounds > 0)
            weight = self.xp.where(unsettled[:, :, None], self.xp.abs(coefficients), self.xp.zeros_like(coefficients))
            return self._numpy(bounds), self._numpy(weight.sum(1) * (self.upper - self.lower))

    def _numpy(self, values: Array) -> Floats:
        return np.asarray(values if self.xp is np else values.cpu().numpy())

    def _row_bounds(self, weights: Array, constant: Array) -> tuple[Array, Array]:
        """Lower bounds of `weights[row] · a + constant[row]`, a being the last stage so far.

        And the coefficients of the inputs with which they were reached.
        """
        xp = self.xp
        coefficients = weights[None, :, :] + xp.zeros_like(self.lower)[:, :1, None]
        total = constant[None, :] + xp.zeros_like(self.lower)[:, :1]
        error = xp.abs(total)
        # A row whose every product is with an exact zero is its constant: a tie stays a tie.
        rounded = error > xp.inf
        for stage in reversed(self.stages):
            positive = coefficients > 0
            slope = xp.where(positive, stage.lower_slope[:, None, :], stage.upper_slope[:, None, :])
            intercept = xp.where(positive, stage.lower_intercept[:, None, :], stage.upper_intercept[:, None, :])
            used = coefficients != 0
            rounded = rounded | (used & ((slope != 0) | (intercept != 0))).any(-1)
            offset = xp.where(used, coefficients * intercept, xp.zeros_like(coefficients))
            coefficients = xp.where(used, coefficients * slope, xp.zeros_like(coefficients))
            total = total + offset.sum(-1) + coefficients @ stage.bias
            error = error + xp.abs(offset).sum(-1) + (xp.abs(coefficients) * stage.magnitude[:, None, :]).sum(-1)
            coefficients = coefficients @ stage.weights
        rounded = rounded | (coefficients != 0).any(-1)
        ends = xp.where(coefficients > 0, self.lower[:, None, :], self.upper[:, None, :])
        error = error + (xp.abs(coefficients) * self.input_magnitude[:, None, :]).sum(-1)
        bound = (coefficients * ends).sum(-1) + total
        bound = bound - error * self.factor - xp.where(rounded, self.floor[:, None] * SLACK, xp.zeros_like(error))
        return bound, coefficients


def activation_bounds(chain: Chain, lower: Floats, upper: Floats) -> list[tuple[Floats, Floats]]:
    """Bounds of the arguments of all activations and clips on one box `lower[1, input]` .. `upper[1, input]`."""
    relaxation = Relaxation(chain, lower, upper)
    return [
        (
            np.where(np.isnan(found.lower[0]), -np.inf, found.lower[0]),
            np.where(np.isnan(found.upper[0]), np.inf, found.upper[0]),
        )
        for stage, found in zip(chain.stages, relaxation.stages, strict=True)
        if stage.function != IDENTITY
    ]


def _known(xp: Any, values: Array, otherwise: float) -> Array:
    """NaN replaced by the end that says nothing."""
    return xp.where(values == values, values, xp.full_like(values, otherwise))  # noqa: PLR0124 - NaN differs from itself
