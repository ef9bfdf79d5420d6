"""What several readers say in the same way: activations by name, and layers that scale.

Invariant: the stored numbers embed exactly in float64; where a format forces a computation before a
layer can be written down (a square root, a product), the reader's docstring says which.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from policyproof.policy.network import Activation, Affine, Floats, Layer, Network, Normalise
from policyproof.run.errors import Feature, InvalidInput

Precision = Literal["float32", "float64"]

DEFAULT_SLOPE = 0.01
"""The slope of Torch's LeakyReLU below zero, unless a file says otherwise."""

WIDEST_SCALING = 4096
"""A scaling becomes a square matrix, so a small file could ask for a very large one."""

_ACTIVATIONS: dict[str, Activation | None] = {
    "relu": Activation("relu"),
    "leaky_relu": Activation("leaky_relu", DEFAULT_SLOPE),
    "tanh": Activation("tanh"),
    "sigmoid": Activation("sigmoid"),
    "linear": None,
}


def activation_named(name: str, where: str) -> Activation | None:
    """The activation of this name; none for `linear`."""
    if name not in _ACTIVATIONS:
        raise InvalidInput(f"unknown activation {name!r} (allowed: {', '.join(_ACTIVATIONS)})", where=where)
    return _ACTIVATIONS[name]


def floats(values: ArrayLike) -> Floats:
    """The same numbers as float64."""
    return np.asarray(values, dtype=np.float64)


def scaling(factor: Floats, offset: Floats) -> Affine:
    """x -> factor x + offset, per component."""
    if factor.size > WIDEST_SCALING:
        raise InvalidInput(f"a scaling of {factor.size} values, more than the {WIDEST_SCALING} that are read")
    return Affine(np.diag(factor), offset)


def batch_normalisation(
    mean: Floats, variance: Floats, epsilon: float, scale: Floats | None, offset: Floats | None
) -> list[Layer]:
    """scale (x - mean) / sqrt(variance + epsilon) + offset; the divisor is the square root as rounded to float64."""
    layers: list[Layer] = [Normalise(mean, root(variance + epsilon))]
    if scale is not None or offset is not None:
        ones, zeros = np.ones_like(mean), np.zeros_like(mean)
        layers.append(scaling(ones if scale is None else scale, zeros if offset is None else offset))
    return layers


def root(values: Floats) -> Floats:
    """Square roots; NaN for negative numbers, which `Network` then refuses by position."""
    with np.errstate(invalid="ignore"):
        return floats(np.sqrt(values))


def precision_of(arrays: Iterable[NDArray[Any]]) -> Precision:
    """float64 when any stored array is; float32 also for half precision, whose numbers embed in it."""
    return "float64" if any(array.dtype == np.float64 for array in arrays) else "float32"


def exact_in_float32(network: Network) -> bool:
    """Whether every stored number of a network is a float32 number."""
    arrays = [array for layer in network.layers for array in vars(layer).values() if isinstance(array, np.ndarray)]
    with np.errstate(over="ignore"):
        return all(bool((array == array.astype(np.float32)).all()) for array in arrays)


class Chain:
    """Collects layers, and what is unsupported among them; a softmax may stand at the end.

    A softmax does not change which output is the greatest, so it is left out; anything that computes
    after it makes it unsupported.
    """

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self.unsupported: list[Feature] = []
        self._softmax: str | None = None

    def add(self, *layers: Layer) -> None:
        if self._softmax is not None and layers:
            self.unsupported.append(Feature(self._softmax, "a softmax that is not the last layer"))
            self._softmax = None
        self.layers.extend(layers)

    def end_with_softmax(self, where: str) -> None:
        if self._softmax is None:
            self._softmax = where

    def refuse(self, where: str, what: str) -> None:
        self.unsupported.append(Feature(where, what))
