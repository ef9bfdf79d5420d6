"""A network as the bounds read it: affine stages, each followed by one function for every component.

    a_0 = the inputs,    z_s = W_s a_(s-1) + b_s,    a_s = f_s(z_s),    outputs = W a_last + b

Normalisations become affine stages, and neighbouring layers that do not alternate get an identity
between them, so that one loop serves every network.  A normalisation (x - c) / d has no exact float
weights: 1/d and c/d are off by one rounding each, which the margin counts (`margins`).

*Rows* are what is bounded: linear functions of the outputs, `coefficients · outputs + constant`.
They are put behind the last affine stage exactly, with one rounding per entry, so that the
difference of two equal outputs is exactly zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from policyproof.policy.network import Activation, Affine, Clip, Floats, Network, Normalise

IDENTITY, LEAKY, TANH, SIGMOID, CLIP = 0, 1, 2, 3, 4
"""Functions of a stage; a ReLU is a leaky one with slope 0."""

_KINDS = {"relu": LEAKY, "leaky_relu": LEAKY, "tanh": TANH, "sigmoid": SIGMOID}


@dataclass(frozen=True, eq=False)
class Stage:
    """`function(weights a + bias)`; `first` and `second` are the function's parameters, per component."""

    weights: Floats
    bias: Floats
    function: int
    first: Floats
    """The slope below zero of a leaky ReLU; the lower end of a clip."""
    second: Floats
    """The upper end of a clip."""

    @property
    def size(self) -> int:
        return len(self.bias)


@dataclass(frozen=True, eq=False)
class Chain:
    """A network as stages, and the affine function behind the last one."""

    stages: tuple[Stage, ...]
    weights: Floats
    bias: Floats
    input_size: int

    @property
    def output_size(self) -> int:
        return len(self.bias)

    @property
    def last_size(self) -> int:
        """How many components the rows see."""
        return int(self.weights.shape[1])

    @cached_property
    def widest(self) -> int:
        return max([self.input_size, *(stage.size for stage in self.stages)])

    @cached_property
    def packed(self) -> Packed:
        return _pack(self)

    @property
    def piecewise_linear(self) -> bool:
        return all(stage.function not in (TANH, SIGMOID) for stage in self.stages)


@dataclass(frozen=True, eq=False)
class Rows:
    """Linear functions of the last stage, `weights[row] · a + constant[row]`, each entry rounded once."""

    weights: Floats
    constant: Floats
    coefficients: Floats
    """What they are as functions of the outputs: `coefficients[row] · outputs + offsets[row]`."""
    offsets: Floats

    def __len__(self) -> int:
        return len(self.constant)


@dataclass(frozen=True, eq=False)
class Packed:
    """The stages of a chain in flat arrays, for machine code."""

    matrices: Floats
    """All weights, row by row, one stage after the other."""
    vectors: Floats
    """vectors[(bias, first, second), component], all stages after each other."""
    table: NDArray[np.int64]
    """table[stage, (size, input size, start of its weights, start of its components, function)]"""


def make_chain(network: Network) -> Chain:
    """The chain that computes the same real-valued function as the network."""
    stages: list[Stage] = []
    pending: tuple[Floats, Floats] | None = None
    size = network.input_size

    def close(function: int, first: Floats | float = 0.0, second: Floats | float = 0.0) -> None:
        """End a stage with this function."""
        nonlocal pending
        weights, bias = pending if pending is not None else (np.eye(size), np.zeros(size))
        shape = (len(bias),)
        ends = [
            np.ascontiguousarray(np.broadcast_to(np.asarray(end, dtype=np.float64), shape)) for end in (first, second)
        ]
        stages.append(Stage(np.ascontiguousarray(weights), np.ascontiguousarray(bias), function, *ends))
        pending = None

    for layer in network.layers:
        if isinstance(layer, (Affine, Normalise)):
            if pending is not None:
                close(IDENTITY)
            if isinstance(layer, Affine):
                pending, size = (layer.weights, layer.bias), layer.weights.shape[0]
            else:
                divide = np.broadcast_to(layer.divide, (size,))
                pending = (np.diag(1.0 / divide), -(layer.subtract / divide) + np.zeros(size))
        elif isinstance(layer, Clip):
            close(CLIP, layer.lower, layer.upper)
        elif isinstance(layer, Activation):
            close(_KINDS[layer.kind], layer.slope)
    if isinstance(network.layers[-1] if network.layers else None, Normalise):
        # Its weights are rounded, and rows take differences of the last weights as exact.
        close(IDENTITY)
    weights, bias = pending if pending is not None else (np.eye(size), np.zeros(size))
    return Chain(tuple(stages), np.ascontiguousarray(weights), np.ascontiguousarray(bias), network.input_size)


def make_rows(chain: Chain, coefficients: Floats, offsets: Floats | None = None) -> Rows:
    """Rows from functions of the outputs, `coefficients[row, output] · outputs + offsets[row]`."""
    coefficients = np.ascontiguousarray(coefficients, dtype=np.float64)
    offsets = np.zeros(len(coefficients)) if offsets is None else np.asarray(offsets, dtype=np.float64)
    weights = np.empty((len(coefficients), chain.last_size))
    constant = np.empty(len(coefficients))
    for number, (row, offset) in enumerate(zip(coefficients, offsets, strict=True)):
        plus, minus = np.flatnonzero(row == 1.0), np.flatnonzero(row == -1.0)
        if offset == 0.0 and len(plus) == 1 and len(plus) + len(minus) == np.count_nonzero(row) and len(minus) <= 1:
            # A difference of two floats is rounded once by itself.
            other = minus[0] if len(minus) else None
            weights[number] = chain.weights[plus[0]] - (0.0 if other is None else chain.weights[other])
            constant[number] = chain.bias[plus[0]] - (0.0 if other is None else chain.bias[other])
        else:
            weights[number], constant[number] = _exact_row(chain, row, offset)
    return Rows(weights, constant, coefficients, offsets)


def difference_rows(chain: Chain, pairs: Sequence[tuple[int, int]]) -> Rows:
    """The rows `output[a] - output[b]` for the pairs (a, b)."""
    coefficients = np.zeros((len(pairs), chain.output_size))
    for number, (a, b) in enumerate(pairs):
        coefficients[number, a] += 1.0
        coefficients[number, b] -= 1.0
    return make_rows(chain, coefficients)


def _exact_row(chain: Chain, row: Floats, offset: float) -> tuple[Floats, float]:
    factors = [(index, Fraction(float(row[index]))) for index in np.flatnonzero(row)]
    weights = np.array(
        [
            float(
                sum((factor * Fraction(value) for (_, factor), value in zip(factors, column, strict=True)), Fraction(0))
            )
            for column in chain.weights[[index for index, _ in factors]].T.tolist()
        ]
        if factors
        else [0.0] * chain.last_size
    )
    constant = Fraction(float(offset)) + sum(
        (factor * Fraction(float(chain.bias[index])) for index, factor in factors), Fraction(0)
    )
    return weights, float(constant)


def _pack(chain: Chain) -> Packed:
    table = np.zeros((len(chain.stages), 5), dtype=np.int64)
    start_of_weights = start = 0
    size = chain.input_size
    for number, stage in enumerate(chain.stages):
        table[number] = (stage.size, size, start_of_weights, start, stage.function)
        start_of_weights += stage.weights.size
        start += stage.size
        size = stage.size
    empty = [np.zeros(0)]
    return Packed(
        matrices=np.concatenate([*empty, *(stage.weights.ravel() for stage in chain.stages)]),
        vectors=np.stack(
            [
                np.concatenate([*empty, *(getattr(stage, name) for stage in chain.stages)])
                for name in ("bias", "first", "second")
            ]
        ),
        table=table,
    )
