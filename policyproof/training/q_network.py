"""The network that learns: forward, backward and Adam in float32, by hand.

For the small networks of policies a step of training costs about as much as the calls that it is
made of, and NumPy's calls are cheaper than those of a framework.  All parameters are views of one
vector, so that Adam and the copy of the target network are a handful of operations on that vector.

A *dueling* network ends in a value and one advantage per label, Q = V + A - mean(A).  That is linear
in (V, A), so the exported network has one ordinary affine layer in their place, and the same outputs.

Invariant: `gradient` is the derivative of sum(outputs * output_error) with respect to the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from policyproof.policy.network import Activation, Affine, Layer, Network

Floats32 = NDArray[np.float32]


class QNetwork:
    """Affine layers with ReLU between them; one output per label."""

    def __init__(self, sizes: Sequence[int], random: np.random.Generator, *, dueling: bool = False) -> None:
        """`sizes`: inputs, hidden layers, labels."""
        self.sizes = tuple(sizes)
        self.dueling = dueling
        widths = [*sizes[:-1], sizes[-1] + dueling]
        shapes = [(rows, columns) for columns, rows in pairwise(widths)]
        self.parameters = np.zeros(sum(rows * columns + rows for rows, columns in shapes), dtype=np.float32)
        self.weights: list[Floats32] = []
        self.biases: list[Floats32] = []
        first = 0
        for rows, columns in shapes:
            middle, last = first + rows * columns, first + rows * columns + rows
            self.weights.append(self.parameters[first:middle].reshape(rows, columns))
            self.biases.append(self.parameters[middle:last])
            self.weights[-1][:] = random.normal(size=(rows, columns)) * np.sqrt(2.0 / columns)
            first = last
        # All labels begin as nearly equal, so that none is preferred before anything is known.
        self.weights[-1] *= np.float32(0.1)

    def outputs(self, inputs: Floats32) -> Floats32:
        """`outputs[n, label]` of `inputs[n, input]`."""
        return self.forward(inputs)[-1]

    def forward(self, inputs: Floats32) -> list[Floats32]:
        """The values after every layer: the inputs first, the outputs last."""
        values = [inputs]
        for weights, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = values[-1] @ weights.T
            hidden += bias
            values.append(np.maximum(hidden, np.float32(0), out=hidden))
        last = values[-1] @ self.weights[-1].T + self.biases[-1]
        if self.dueling:
            advantages = last[:, 1:]
            last = last[:, :1] + advantages - advantages.mean(axis=1, keepdims=True)
        values.append(last)
        return values

    def gradient(self, values: Sequence[Floats32], output_error: Floats32) -> Floats32:
        """The gradient of all parameters, from what `forward` gave."""
        result = np.empty_like(self.parameters)
        error = output_error
        if self.dueling:
            total = error.sum(axis=1, keepdims=True)
            error = np.concatenate([total, error - total / np.float32(error.shape[1])], axis=1)
        last = len(result)
        for number in range(len(self.weights) - 1, -1, -1):
            rows, columns = self.weights[number].shape
            middle, first = last - rows, last - rows - rows * columns
            result[middle:last] = error.sum(axis=0)
            np.matmul(error.T, values[number], out=result[first:middle].reshape(rows, columns))
            if number:
                error = error @ self.weights[number]
                error *= values[number] > 0
            last = first
        return result

    def export(self, subtract: NDArray[np.float64], divide: NDArray[np.float64]) -> Network:
        """The network on unscaled inputs: the scaling (x - subtract) / divide becomes part of the first layer.

        Weights are rounded to float32, in which the network is deployed: from then on they are what they are.
        """
        layers: list[Layer] = []
        for number, (weights, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            matrix, constant = weights.astype(np.float64), bias.astype(np.float64)
            if number == 0:
                matrix = matrix / divide
                constant = constant - matrix @ subtract
            if number == len(self.weights) - 1 and self.dueling:
                labels = len(constant) - 1
                joined = np.concatenate([np.ones((labels, 1)), np.eye(labels) - 1.0 / labels], axis=1)
                matrix, constant = joined @ matrix, joined @ constant
            layers.append(Affine(_as_float32(matrix), _as_float32(constant)))
            if number < len(self.weights) - 1:
                layers.append(Activation("relu"))
        return Network(tuple(layers), self.sizes[0], "float32", "deep q-learning")


def _as_float32(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values.astype(np.float32).astype(np.float64)


class Adam:
    """Adam on one vector of parameters, with a limit on the length of the gradient."""

    def __init__(self, size: int, *, longest: float = 10.0) -> None:
        self.first = np.zeros(size, dtype=np.float32)
        self.second = np.zeros(size, dtype=np.float32)
        self.longest = longest
        self.steps = 0

    def step(self, parameters: Floats32, gradient: Floats32, rate: float) -> None:
        """Change the parameters against the gradient."""
        self.steps += 1
        length = float(np.sqrt(gradient @ gradient))
        if length > self.longest:
            gradient = gradient * np.float32(self.longest / length)
        self.first += np.float32(0.1) * (gradient - self.first)
        self.second += np.float32(0.001) * (gradient * gradient - self.second)
        # The moments began at zero; dividing by these corrects for it.
        scale = rate * np.sqrt(1.0 - 0.999**self.steps) / (1.0 - 0.9**self.steps)
        parameters -= np.float32(scale) * self.first / (np.sqrt(self.second) + np.float32(1e-8))
