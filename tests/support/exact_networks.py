"""Exact decisions of ReLU networks on many inputs: Python's integers in object arrays, nothing shared.

Idea: the weights are fractions, so a layer is an integer matrix over one common denominator.  The
values of a layer are kept as integers over a denominator that all of them share; it is positive, and
so changes neither ReLU nor which output is the greatest.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from policyproof.policy.network import Activation, Affine, Network, Normalise


def exact_winners(network: Network, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For integer inputs `[n, input]`: the first greatest output, and whether several are the greatest."""
    values: Any = inputs.astype(object)
    denominator = 1
    for layer in network.layers:
        if isinstance(layer, Activation):
            assert layer.kind == "relu"
            values = np.where(values > 0, values, 0)
            continue
        matrix, offset = _fractions(layer)
        common = math.lcm(*(entry.denominator for entry in [*matrix.flat, *offset]))
        # These products are whole numbers, so int() cuts nothing off.
        values = values @ _whole(matrix.T * common) + _whole(offset * (common * denominator))
        denominator *= common
    greatest = values.max(axis=1)
    winners = np.array([row.index(value) for row, value in zip(values.tolist(), greatest.tolist(), strict=True)])
    return winners, (values == greatest[:, None]).sum(axis=1) > 1


_whole = np.vectorize(int, otypes=[object])


def _fractions(layer: Any) -> tuple[np.ndarray, np.ndarray]:
    """The matrix `[output, input]` and the offset of an affine layer."""
    exact = np.vectorize(lambda value: Fraction(float(value)), otypes=[object])
    if isinstance(layer, Affine):
        return exact(layer.weights), exact(layer.bias)
    assert isinstance(layer, Normalise)
    subtract, divide = exact(layer.subtract), exact(layer.divide)
    matrix = np.full((len(divide), len(divide)), Fraction(0), dtype=object)
    np.fill_diagonal(matrix, 1 / divide)
    return matrix, -subtract / divide
