"""Feed-forward networks as functions over the reals, with their stored weights.

A network is a sequence of layers on vectors.  Its meaning is the real-valued function with exactly
the numbers that are stored, as float64 (a float32 file embeds exactly; the decimals of a text file
are rounded once, when they are read).

`Network.evaluate` computes in float64 and bounds the error of that very computation; `exact_outputs`
computes in rational arithmetic (enclosures where an activation is irrational).

The error bound.  Let u = 2**-53, let a layer's computed input x^ be within e of the true x, and let
m >= |x^|.  For y = W x + b with n inputs, in any order of summation and with or without fused
multiply-add (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1):

    |y^ - y| <= |W| e + g(n + 1) (|W| m + |b|) + (n + 1) 2**-1074,    g(k) = k u / (1 - k u)

Activations here are 1-Lipschitz, so they pass e on, plus their own rounding.  The bound itself is
computed in floats and widened by `BOUND_SLACK`, far more than its own rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from policyproof.model import enclosures
from policyproof.model.enclosures import Enclosure
from policyproof.run.errors import InvalidInput

Floats = NDArray[np.float64]

UNIT_ROUNDOFF = 2.0**-53
SMALLEST = 2.0**-1074
BOUND_SLACK = 1.0 + 2.0**-20
FUNCTION_ULPS = 8
"""How far NumPy's tanh and exp may be from the true value, in units in the last place (documented: at most 4)."""

ActivationKind = Literal["relu", "leaky_relu", "tanh", "sigmoid"]


@dataclass(frozen=True, eq=False)
class Affine:
    """x -> weights x + bias"""

    weights: Floats
    bias: Floats

    @property
    def sizes(self) -> tuple[int, int]:
        return self.weights.shape[1], self.weights.shape[0]


@dataclass(frozen=True, eq=False)
class Activation:
    """One function for every component; `slope` is that of a leaky ReLU below zero."""

    kind: ActivationKind
    slope: float = 0.0


@dataclass(frozen=True, eq=False)
class Clip:
    """x -> min(max(x, lower), upper), per component or for all alike."""

    lower: Floats
    upper: Floats


@dataclass(frozen=True, eq=False)
class Normalise:
    """x -> (x - subtract) / divide, per component."""

    subtract: Floats
    divide: Floats


Layer = Affine | Activation | Clip | Normalise


@dataclass(frozen=True, eq=False)
class Network:
    """Layers, the number of inputs, and the arithmetic in which the network is deployed."""

    layers: tuple[Layer, ...]
    input_size: int
    precision: Literal["float32", "float64"] = "float32"
    source: str = "network"

    def __post_init__(self) -> None:
        size = self.input_size
        for number, layer in enumerate(self.layers):
            where = f"{self.source}, layer {number}"
            if isinstance(layer, Affine):
                _finite(where, weights=layer.weights, bias=layer.bias)
                if layer.weights.ndim != 2 or layer.bias.shape != layer.weights.shape[:1]:
                    raise InvalidInput("the sizes of weights and bias do not fit each other", where=where)
                if layer.weights.shape[1] != size:
                    raise InvalidInput(
                        f"expected {size} inputs, found weights for {layer.weights.shape[1]}", where=where
                    )
                size = layer.weights.shape[0]
            elif isinstance(layer, Normalise):
                _finite(where, subtract=layer.subtract, divide=layer.divide)
                _fits(where, size, layer.subtract, layer.divide)
                if (layer.divide == 0).any():
                    raise InvalidInput("a normalisation divides by zero", where=where)
            elif isinstance(layer, Clip):
                if np.isnan(layer.lower).any() or np.isnan(layer.upper).any():
                    raise InvalidInput("a bound of a clip is not a number", where=where)
                _fits(where, size, layer.lower, layer.upper)
                if (layer.lower > layer.upper).any():
                    raise InvalidInput("a clip whose lower bound is above its upper bound", where=where)
            elif not (math.isfinite(layer.slope) and 0 <= layer.slope <= 1):
                raise InvalidInput(f"a leaky ReLU with slope {layer.slope} (allowed: 0 to 1)", where=where)
            elif layer.slope and layer.kind != "leaky_relu":
                raise InvalidInput(f"a {layer.kind} has no slope, found {layer.slope}", where=where)

    @property
    def output_size(self) -> int:
        sizes = [layer.weights.shape[0] for layer in self.layers if isinstance(layer, Affine)]
        return int(sizes[-1]) if sizes else self.input_size

    @property
    def hidden_sizes(self) -> list[int]:
        return [layer.weights.shape[0] for layer in self.layers if isinstance(layer, Affine)][:-1]

    @property
    def piecewise_linear(self) -> bool:
        return not any(isinstance(layer, Activation) and layer.kind in ("tanh", "sigmoid") for layer in self.layers)

    def evaluate(self, inputs: Floats, input_error: Floats | float = 0.0) -> tuple[Floats, Floats]:
        """`outputs[n, output]` of `inputs[n, input]` in float64, and a bound of the error per output."""
        values = np.asarray(inputs, dtype=np.float64)
        error = np.broadcast_to(np.asarray(input_error, dtype=np.float64), (self.input_size,)).copy()
        with np.errstate(over="ignore", invalid="ignore"):
            for layer in self.layers:
                values, error = _apply(layer, values, error)
        return values, error


def _finite(where: str, **arrays: Floats) -> None:
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            bad = np.argwhere(~np.isfinite(array))[0].tolist()
            raise InvalidInput(f"{name}{bad} is {array[tuple(bad)]}", where=where)


def _fits(where: str, size: int, *arrays: Floats) -> None:
    for array in arrays:
        if array.shape not in ((), (1,), (size,)):
            raise InvalidInput(f"expected {size} values, found {array.shape}", where=where)


def _apply(layer: Layer, values: Floats, error: Floats) -> tuple[Floats, Floats]:
    """One layer on a batch, and the bound of its error (see the module's text)."""
    magnitude = np.abs(values).max(axis=0, initial=0.0)
    if isinstance(layer, Affine):
        count = layer.weights.shape[1] + 1
        gamma = count * UNIT_ROUNDOFF / (1 - count * UNIT_ROUNDOFF)
        size = np.abs(layer.weights)
        rounding = gamma * (size @ magnitude + np.abs(layer.bias)) + count * SMALLEST
        return values @ layer.weights.T + layer.bias, (size @ error + rounding) * BOUND_SLACK
    if isinstance(layer, Normalise):
        result = (values - layer.subtract) / layer.divide
        scale = np.abs(layer.divide)
        rounding = 3 * UNIT_ROUNDOFF * (magnitude + np.abs(layer.subtract)) / scale
        return result, (error / scale + rounding + SMALLEST) * BOUND_SLACK
    if isinstance(layer, Clip):
        return np.minimum(np.maximum(values, layer.lower), layer.upper), error
    if layer.kind == "relu":
        return np.maximum(values, 0.0), error
    if layer.kind == "leaky_relu":
        below = (UNIT_ROUNDOFF * magnitude + SMALLEST) * layer.slope
        return np.where(values > 0, values, layer.slope * values), (error + below) * BOUND_SLACK
    rounding = 2 * FUNCTION_ULPS * UNIT_ROUNDOFF
    if layer.kind == "tanh":
        return np.tanh(values), (error + rounding) * BOUND_SLACK
    # exp, the sum and the division round; exp may overflow to infinity, which gives 0, its limit.
    return 1.0 / (1.0 + np.exp(-values)), (error / 4 + 2 * rounding) * BOUND_SLACK


# Exact evaluation

ExactVector = list[Fraction | Enclosure]


class ExactNetwork:
    """The same network in exact arithmetic: weights as integers with a common power of two."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._affine = {
            number: _integers(layer) for number, layer in enumerate(network.layers) if isinstance(layer, Affine)
        }

    def outputs(self, inputs: Sequence[Fraction | Enclosure | int], precision: int = 64) -> ExactVector:
        """The outputs on one input: rationals, or enclosures of this precision where they are irrational."""
        vector = _Vector.of(inputs)
        for number, layer in enumerate(self.network.layers):
            if isinstance(layer, Affine):
                rows, bias, shift = self._affine[number]
                vector = vector.affine(rows, bias, shift) if vector.exact else _affine(layer, vector, precision)
            else:
                vector = _Vector.of([_component(layer, i, x, precision) for i, x in enumerate(vector.components())])
        return vector.components()


@dataclass(frozen=True)
class _Vector:
    """Rationals with one positive denominator, or enclosures."""

    numerators: list[int]
    denominator: int
    enclosed: list[Fraction | Enclosure] | None = None

    @staticmethod
    def of(values: Sequence[Fraction | Enclosure | int]) -> _Vector:
        if any(isinstance(value, Enclosure) for value in values):
            return _Vector([], 1, [value if isinstance(value, Enclosure) else Fraction(value) for value in values])
        fractions = [Fraction(value) for value in values if not isinstance(value, Enclosure)]
        common = math.lcm(*(fraction.denominator for fraction in fractions)) if fractions else 1
        return _Vector([f.numerator * (common // f.denominator) for f in fractions], common)

    @property
    def exact(self) -> bool:
        return self.enclosed is None

    def components(self) -> list[Fraction | Enclosure]:
        if self.enclosed is not None:
            return self.enclosed
        return [Fraction(numerator, self.denominator) for numerator in self.numerators]

    def affine(self, rows: list[list[int]], bias: list[int], shift: int) -> _Vector:
        """(rows / 2**shift) x + bias / 2**shift, without reducing fractions on the way."""
        numerators = [
            sum(map(int.__mul__, row, self.numerators)) + constant * self.denominator
            for row, constant in zip(rows, bias, strict=True)
        ]
        return _Vector(numerators, self.denominator << shift)


def _integers(layer: Affine) -> tuple[list[list[int]], list[int], int]:
    """The weights and biases as integers over one power of two."""
    pairs = [value.as_integer_ratio() for value in [*layer.weights.ravel().tolist(), *layer.bias.tolist()]]
    shift = max((denominator.bit_length() - 1 for _, denominator in pairs), default=0)
    scaled = [numerator << (shift - denominator.bit_length() + 1) for numerator, denominator in pairs]
    rows, columns = layer.weights.shape
    weights = [scaled[row * columns : (row + 1) * columns] for row in range(rows)]
    return weights, scaled[rows * columns :], shift


def _affine(layer: Affine, vector: _Vector, precision: int) -> _Vector:
    pairs = [enclosures.ends(value) for value in vector.components()]
    result: list[Fraction | Enclosure] = []
    for row, bias in zip(layer.weights.tolist(), layer.bias.tolist(), strict=True):
        low = high = Fraction(bias)
        for weight, (lower, upper) in zip(row, pairs, strict=True):
            factor = Fraction(weight)
            low += factor * (lower if factor >= 0 else upper)
            high += factor * (upper if factor >= 0 else lower)
        result.append(enclosures.round_outward(low, high, precision + 16))
    return _Vector([], 1, result)


def _component(layer: Layer, index: int, value: Fraction | Enclosure, precision: int) -> Fraction | Enclosure:
    lower, upper = enclosures.ends(value)
    if isinstance(layer, Normalise):
        subtract, divide = (Fraction(_at(array, index)) for array in (layer.subtract, layer.divide))
        low, high = sorted(((lower - subtract) / divide, (upper - subtract) / divide))
    elif isinstance(layer, Clip):
        low, high = (_clip(x, _at(layer.lower, index), _at(layer.upper, index)) for x in (lower, upper))
    elif isinstance(layer, Activation) and layer.kind in ("relu", "leaky_relu"):
        slope = Fraction(layer.slope)
        low, high = (x if x > 0 else slope * x for x in (lower, upper))
    elif isinstance(layer, Activation):
        function = enclosures.hyperbolic_tangent if layer.kind == "tanh" else enclosures.logistic
        return function(value, precision + 16)
    else:
        raise TypeError("an affine layer has no components")
    return low if low == high else Enclosure(low, high)


def _at(array: Floats, index: int) -> float:
    return float(array.ravel()[0] if array.size == 1 else array[index])


def _clip(value: Fraction, lower: float, upper: float) -> Fraction:
    if value < lower:
        return Fraction(lower)
    return Fraction(upper) if value > upper else value
