"""Plain evaluation of a policy for the independent checks: exact outputs, and the deployed arithmetic.

Only the weights and the interface are shared with the rest of the project.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from policyproof.evidence.plain_values import (
    DIGITS,
    Interval,
    NotSettled,
    as_interval,
    monotone,
    value_of,
    with_intervals,
)
from policyproof.policy.network import Activation, Affine, Clip, Network, Normalise
from policyproof.policy.policy import Policy


@dataclass(frozen=True)
class Decision:
    """What the policy chooses in a state."""

    label: str
    tie: bool
    """Several outputs are exactly the greatest; the first of them was taken."""
    deployed: str
    """What the deployed floating-point arithmetic chooses."""


def decide(policy: Policy, state: Mapping[str, Any], allowed: Sequence[str] | None = None) -> Decision:
    """The label that wins among the allowed ones (default: all)."""
    number = 0
    if policy.switch is not None:
        number = policy.switch_values.index(value_of(policy.switch, state))
    network = policy.networks[number]
    inputs = [value_of(expression, state) for expression in policy.inputs]
    permitted = [i for i, label in enumerate(policy.labels) if allowed is None or label in allowed]
    for digits in DIGITS:
        outputs = exact_outputs(network, inputs, digits)
        winners = _greatest([(i, as_interval(outputs[i])) for i in permitted])
        if winners is not None:
            break
    else:
        raise NotSettled
    deployed = deployed_outputs(network, inputs)
    best = max(permitted, key=lambda i: (deployed[i], -i))
    return Decision(policy.labels[winners[0]], len(winners) > 1, policy.labels[best])


def _greatest(outputs: list[tuple[int, Interval]]) -> list[int] | None:
    """All outputs that are exactly the greatest; None if the digits do not settle it."""
    top = max(interval.high for _, interval in outputs)
    contenders = [(i, interval) for i, interval in outputs if interval.high >= max(x.low for _, x in outputs)]
    if len(contenders) == 1:
        return [contenders[0][0]]
    if all(interval.low == interval.high == top for _, interval in contenders):
        return [i for i, _ in contenders]
    return None


def exact_outputs(network: Network, inputs: Sequence[Any], digits: int) -> list[Any]:
    """The outputs as fractions, or intervals where an activation is irrational."""
    vector: list[Any] = [value if isinstance(value, Interval) else Fraction(value) for value in inputs]
    for layer in network.layers:
        if isinstance(layer, Affine):
            vector = [
                _sum([_times(Fraction(weight), x) for weight, x in zip(row, vector, strict=True)], Fraction(bias))
                for row, bias in zip(layer.weights.tolist(), layer.bias.tolist(), strict=True)
            ]
        else:
            vector = [_component(layer, i, x, digits) for i, x in enumerate(vector)]
    return vector


def _times(weight: Fraction, x: Any) -> Any:
    return with_intervals("*", [weight, x]) if isinstance(x, Interval) else weight * x


def _sum(terms: list[Any], start: Fraction) -> Any:
    total: Any = start
    for term in terms:
        both_exact = not isinstance(total, Interval) and not isinstance(term, Interval)
        total = total + term if both_exact else with_intervals("+", [total, term])
    return total


def _component(layer: Any, i: int, x: Any, digits: int) -> Any:
    low, high = as_interval(x).low, as_interval(x).high
    if isinstance(layer, Normalise):
        subtract, divide = (Fraction(_at(array, i)) for array in (layer.subtract, layer.divide))
        low, high = sorted([(low - subtract) / divide, (high - subtract) / divide])
    elif isinstance(layer, Clip):
        bounds = [_at(array, i) for array in (layer.lower, layer.upper)]
        if low < bounds[0]:
            low = Fraction(bounds[0])
        if high < bounds[0]:
            high = Fraction(bounds[0])
        if low > bounds[1]:
            low = Fraction(bounds[1])
        if high > bounds[1]:
            high = Fraction(bounds[1])
    elif isinstance(layer, Activation) and layer.kind in ("relu", "leaky_relu"):
        slope = Fraction(layer.slope) if layer.kind == "leaky_relu" else Fraction(0)
        low, high = (end if end > 0 else slope * end for end in (low, high))
    elif isinstance(layer, Activation):
        # sigmoid(x) = 1 / (1 + exp(-x)), tanh(x) = 2 sigmoid(2 x) - 1
        factor = 2 if layer.kind == "tanh" else 1
        falls = monotone("exp", Interval(-factor * high, -factor * low), digits)
        result = with_intervals("/", [1, with_intervals("+", [1, falls])])
        if layer.kind == "tanh":
            result = with_intervals("-", [with_intervals("*", [2, result]), 1])
        return result
    return low if low == high else Interval(low, high)


def _at(array: Any, i: int) -> float:
    """The entry for component i; a single number stands for all."""
    return float(array.reshape(-1)[0] if array.size == 1 else array[i])


def deployed_outputs(network: Network, inputs: Sequence[Any]) -> list[float]:
    """The outputs in the floating-point format in which the network is deployed, layer by layer."""
    kind: Any = np.float32 if network.precision == "float32" else np.float64
    middle = [(as_interval(value).low + as_interval(value).high) / 2 for value in inputs]
    vector: Any = np.array([float(value) for value in middle], dtype=kind)
    with np.errstate(over="ignore"):
        for layer in network.layers:
            if isinstance(layer, Affine):
                vector = layer.weights.astype(kind) @ vector + layer.bias.astype(kind)
            elif isinstance(layer, Normalise):
                vector = (vector - layer.subtract.astype(kind)) / layer.divide.astype(kind)
            elif isinstance(layer, Clip):
                vector = np.clip(vector, layer.lower.astype(kind), layer.upper.astype(kind))
            elif layer.kind == "relu":
                vector = np.maximum(vector, kind(0))
            elif layer.kind == "leaky_relu":
                vector = np.where(vector > 0, vector, kind(layer.slope) * vector)
            elif layer.kind == "tanh":
                vector = np.tanh(vector)
            else:
                vector = kind(1) / (kind(1) + np.exp(-vector))
    return [float(value) for value in vector]
