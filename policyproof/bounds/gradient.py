"""Values and gradients of rows at points: for finding witnesses, so nothing here needs to be sound."""

from __future__ import annotations

import numpy as np

from policyproof.bounds.chain import CLIP, LEAKY, SIGMOID, TANH, Chain, Rows, Stage
from policyproof.policy.network import Floats


def outputs_at(chain: Chain, points: Floats) -> Floats:
    """`outputs[n, output]` at `points[n, input]`, in float64."""
    with np.errstate(all="ignore"):
        values = points
        for stage in chain.stages:
            values = _apply(stage, values @ stage.weights.T + stage.bias)[0]
        return np.asarray(values @ chain.weights.T + chain.bias)


def gradients(chain: Chain, rows: Rows, points: Floats, wanted: np.ndarray) -> tuple[Floats, Floats]:
    """`values[n]` and `gradient[n, input]` of the row `wanted[n]` at `points[n, input]`."""
    with np.errstate(all="ignore"):
        values, slopes = points, list[Floats]()
        for stage in chain.stages:
            values, slope = _apply(stage, values @ stage.weights.T + stage.bias)
            slopes.append(slope)
        weights = rows.weights[wanted]
        result = (values * weights).sum(axis=1) + rows.constant[wanted]
        for stage, slope in zip(reversed(chain.stages), reversed(slopes), strict=True):
            weights = (weights * slope) @ stage.weights
        return result, weights


def _apply(stage: Stage, z: Floats) -> tuple[Floats, Floats]:
    """The function of a stage and its slope."""
    if stage.function == LEAKY:
        slope = np.where(z > 0, 1.0, stage.first)
        return z * slope, slope
    if stage.function == CLIP:
        return np.clip(z, stage.first, stage.second), ((z > stage.first) & (z < stage.second)).astype(np.float64)
    if stage.function == TANH:
        value = np.tanh(z)
        return value, 1 - value * value
    if stage.function == SIGMOID:
        value = 0.5 + 0.5 * np.tanh(0.5 * z)
        return value, value * (1 - value)
    return z, np.ones_like(z)
