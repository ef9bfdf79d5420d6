"""Small random networks for tests, and what it means that two are the same."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from policyproof.policy.network import Activation, Affine, Clip, Layer, Network, Normalise


def random_affine(generator: np.random.Generator, inputs: int, outputs: int, dtype: Any = np.float32) -> Affine:
    """Weights that are exact in `dtype`."""
    weights = generator.standard_normal((outputs, inputs)).astype(dtype)
    bias = generator.standard_normal(outputs).astype(dtype)
    return Affine(weights.astype(np.float64), bias.astype(np.float64))


def random_network(
    seed: int,
    sizes: tuple[int, ...] = (3, 5, 4, 2),
    activation: Activation | None = None,
    precision: str = "float32",
    *,
    normalised: bool = False,
    clipped: bool = False,
) -> Network:
    generator = np.random.default_rng(seed)
    layers: list[Layer] = []
    if normalised:
        # Multiples of 1/8 are exact in every format.
        layers.append(Normalise(generator.integers(-8, 8, sizes[0]) / 8, generator.integers(1, 8, sizes[0]) / 8))
    if clipped:
        layers.append(Clip(np.array(-2.0), np.array(2.5)))
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [random_affine(generator, inputs, outputs, precision), activation or Activation("relu")]
    return Network(tuple(layers[:-1]), sizes[0], precision)  # type: ignore[arg-type]


def assert_same_layers(found: Network, expected: Network) -> None:
    """The same numbers, bit for bit, in the same layers."""
    assert found.input_size == expected.input_size
    assert found.precision == expected.precision
    assert [type(layer) for layer in found.layers] == [type(layer) for layer in expected.layers]
    for mine, theirs in zip(found.layers, expected.layers, strict=True):
        for name, value in vars(theirs).items():
            other = getattr(mine, name)
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(other, value)
            else:
                assert other == value


def outputs(network: Network, inputs: np.ndarray) -> np.ndarray:
    return network.evaluate(inputs)[0]


def random_inputs(network: Network, count: int = 50) -> np.ndarray:
    """Inputs that are exact in float32."""
    values = np.random.default_rng(7).standard_normal((count, network.input_size)) * 3
    return values.astype(np.float32).astype(np.float64)
