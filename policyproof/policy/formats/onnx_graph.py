"""An ONNX graph as a chain of layers on one vector.

Idea: walk through the nodes in their (topological) order with the name and the shape of the tensor
that carries the vector; everything else must be constant.  Shapes are real shapes, with a dynamic
first dimension taken as 1, so that a matrix product that would mix rows, or a broadcast that would
make several vectors of one, is noticed.  Values always keep their row-major order.

Additions of constants join a matrix product before them; a division joins a subtraction; a minimum
joins a maximum.  Each of these is exact over the reals.  Multiplied constants (alpha of Gemm, beta)
are products in float64, which is exact for float32 tensors.

A softmax or an ArgMax at the end does not change which output is the greatest, and is left out:
`output` is then the tensor before it.  Only the ArgMax that takes the first of equal outputs is.

Invariant: a network comes out only when no node was left unexplained; all that are, are listed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from policyproof.policy.formats.container import Allowance
from policyproof.policy.formats.layers import Precision, activation_named, batch_normalisation, floats, scaling
from policyproof.policy.formats.onnx_tensors import (
    Array,
    OnnxNode,
    Unreadable,
    constant_value,
    reshaped,
    tensor_value,
)
from policyproof.policy.network import Activation, Affine, Clip, Floats, Layer, Normalise
from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature


class ChainReader:
    """The state of the walk."""

    def __init__(self, where: str, name: str, shape: list[int], constants: dict[str, Any]) -> None:
        self.where = where
        self.output = name
        self.shape = shape
        self.input_size = math.prod(shape)
        self.layers: list[Layer] = []
        self.uses_double = False
        self.unsupported: list[Feature] = []
        self._current = name
        self._constants = constants
        self._ended_by: str | None = None
        self._lost = False
        self._allowance = Allowance(where)

    def read(self, node: OnnxNode) -> None:
        """Take one node; what cannot be read is put on the list."""
        try:
            self._read(node)
        except Unreadable as reason:
            self.unsupported.append(Feature(f"{self.where}: {node.place}", str(reason)))
            # From here on shapes are unknown: only the kinds of the other nodes are still judged.
            self._lost = True

    def _read(self, node: OnnxNode) -> None:
        if node.kind not in _NODES and node.kind != "Constant":
            raise Unreadable(f"the operator {node.kind}")
        if self._lost:
            return
        if node.kind == "Constant":
            self._constants[node.outputs[0]] = constant_value(node)
            return
        if self._current not in node.inputs:
            if node.kind in ("Identity", "Transpose") and node.inputs and node.inputs[0] in self._constants:
                self._constants[node.outputs[0]] = self._folded(node)
                return
            raise Unreadable(f"{node.kind} on another branch of the graph")
        if not node.outputs:
            raise Unreadable(f"{node.kind} without a result")
        chosen_from_softmax = node.kind == "ArgMax" and self._ended_by != "ArgMax"
        if self._ended_by is not None and node.kind not in _KEEPING and not chosen_from_softmax:
            raise Unreadable(f"{node.kind} after {self._ended_by}")
        _NODES[node.kind](self, node)
        self._current = node.outputs[0]
        if self._ended_by is None:
            self.output = self._current

    def finish(self, outputs: list[str]) -> None:
        if len(outputs) != 1:
            self.unsupported.append(Feature(self.where, f"a graph with {len(outputs)} outputs"))
        if self.unsupported:
            raise UnsupportedFeature(self.unsupported)
        if outputs[0] != self._current:
            message = f"the output {outputs[0]!r} is not the result of the last node"
            raise InvalidInput(message, where=self.where)

    @property
    def precision(self) -> Precision:
        return "float64" if self.uses_double else "float32"

    # Constants

    def constant(self, name: str) -> Array:
        """The value of a constant tensor of plain numbers."""
        if name not in self._constants:
            raise Unreadable("an operator on two computed tensors")
        if not isinstance(self._constants[name], np.ndarray):
            self._constants[name] = tensor_value(self._constants[name], f"{self.where}: {name}")
        value: Array = self._constants[name]
        return value

    def weights(self, name: str) -> Floats:
        """A constant that the network computes with."""
        value = self.constant(name)
        if value.dtype not in (np.float32, np.float64):
            raise Unreadable(f"weights of the type {value.dtype}")
        self._allowance.take(8 * value.size)
        self.uses_double |= value.dtype == np.float64
        return floats(value)

    def optional(self, node: OnnxNode, position: int) -> str | None:
        """The name of an optional input, when it is given."""
        return node.inputs[position] if position < len(node.inputs) and node.inputs[position] else None

    def operands(self, node: OnnxNode) -> tuple[Floats, bool]:
        """The constant of a binary operator, stretched to the vector, and whether it is the first operand."""
        if len(node.inputs) != 2:
            raise Unreadable(f"{node.kind} of {len(node.inputs)} tensors")
        first = node.inputs[1] == self._current
        value = self.weights(node.inputs[0 if first else 1])
        try:
            shape = np.broadcast_shapes(tuple(self.shape), value.shape)
        except ValueError:
            raise InvalidInput(
                f"{node.kind} of the shapes {self.shape} and {list(value.shape)}", where=f"{self.where}: {node.place}"
            ) from None
        if math.prod(shape) != math.prod(self.shape):
            raise Unreadable(f"{node.kind} that makes several vectors of one")
        self._allowance.take(8 * math.prod(shape))
        self.shape = list(shape)
        return np.broadcast_to(value, shape).ravel(), first

    def _folded(self, node: OnnxNode) -> Array:
        value = self.constant(node.inputs[0])
        if node.kind == "Identity":
            return value
        order = node.attributes.get("perm", list(range(value.ndim))[::-1])
        if sorted(order) != list(range(value.ndim)):
            raise Unreadable("Transpose with a wrong permutation")
        return value.transpose(order)

    # Layers

    def affine(self, weights: Floats, bias: Floats, shape: list[int]) -> None:
        self.layers.append(Affine(weights, bias))
        self.shape = shape

    def matmul(self, node: OnnxNode) -> None:
        left, right = node.inputs
        if left == self._current:
            weights = self.weights(right)
            if weights.ndim != 2 or not self.shape or math.prod(self.shape) != self.shape[-1]:
                raise Unreadable(f"MatMul of the shapes {self.shape} and {list(weights.shape)}")
            shape = [*self.shape[:-1], weights.shape[1]]
            weights = weights.T
        else:
            weights = self.weights(left)
            if weights.ndim != 2 or len(self.shape) not in (1, 2) or self.shape[1:] not in ([], [1]):
                raise Unreadable(f"MatMul of the shapes {list(weights.shape)} and {self.shape}")
            shape = [weights.shape[0], *self.shape[1:]]
        self.affine(weights, np.zeros(weights.shape[0]), shape)

    def gemm(self, node: OnnxNode) -> None:
        if node.inputs[0] != self._current or node.integer("transA", 0) != 0:
            raise Unreadable("Gemm whose first matrix is constant or transposed")
        weights = self.weights(node.inputs[1])
        if weights.ndim != 2 or len(self.shape) != 2 or self.shape[0] != 1:
            raise Unreadable(f"Gemm of the shapes {self.shape} and {list(weights.shape)}")
        if not node.integer("transB", 0):
            weights = weights.T
        bias = np.zeros(weights.shape[0])
        name = self.optional(node, 2)
        if name is not None:
            given = self.weights(name)
            if given.shape not in ((), (1,), (1, 1), bias.shape, (1, *bias.shape)):
                raise InvalidInput(f"Gemm with a bias of the shape {list(given.shape)}", where=self.where)
            bias = bias + given.ravel() * node.number("beta", 1.0)
        self.affine(weights * node.number("alpha", 1.0), bias, [1, weights.shape[0]])

    def add(self, node: OnnxNode) -> None:
        value, _ = self.operands(node)
        last = self.layers[-1] if self.layers else None
        if isinstance(last, Affine) and not last.bias.any() and last.bias.shape == value.shape:
            self.layers[-1] = Affine(last.weights, value)
        else:
            self.layers.append(Normalise(-value, np.ones_like(value)))

    def subtract(self, node: OnnxNode) -> None:
        value, first = self.operands(node)
        if first:
            self._scale(-np.ones_like(value), value)
        else:
            self.layers.append(Normalise(value, np.ones_like(value)))

    def divide(self, node: OnnxNode) -> None:
        value, first = self.operands(node)
        if first:
            raise Unreadable("Div by a computed tensor")
        last = self.layers[-1] if self.layers else None
        if isinstance(last, Normalise) and (last.divide == 1).all() and last.subtract.shape == value.shape:
            self.layers[-1] = Normalise(last.subtract, value)
        else:
            self.layers.append(Normalise(np.zeros_like(value), value))

    def multiply(self, node: OnnxNode) -> None:
        value, _ = self.operands(node)
        self._scale(value, np.zeros_like(value))

    def _scale(self, factor: Floats, offset: Floats) -> None:
        self._allowance.take(8 * factor.size**2)
        self.layers.append(scaling(factor, offset))

    def maximum(self, node: OnnxNode) -> None:
        value, _ = self.operands(node)
        self.layers.append(Clip(value, np.full_like(value, np.inf)))

    def minimum(self, node: OnnxNode) -> None:
        value, _ = self.operands(node)
        last = self.layers[-1] if self.layers else None
        if isinstance(last, Clip) and (last.upper == np.inf).all() and (last.lower <= value).all():
            self.layers[-1] = Clip(last.lower, value)
        else:
            self.layers.append(Clip(np.full_like(value, -np.inf), value))

    def clip(self, node: OnnxNode) -> None:
        self.same(node)
        if node.opset < 11:
            # The attributes' defaults are the greatest float32 numbers, which stand for no bound.
            bounds = [node.number("min", -np.inf), node.number("max", np.inf)]
        else:
            bounds = [-np.inf, np.inf]
            for position in (1, 2):
                name = self.optional(node, position)
                if name is not None:
                    value = self.weights(name)
                    if value.size != 1:
                        raise InvalidInput("Clip with a bound that is not one number", where=self.where)
                    bounds[position - 1] = float(value.ravel()[0])
        self.layers.append(Clip(np.array(bounds[0]), np.array(bounds[1])))

    def leaky_relu(self, node: OnnxNode) -> None:
        self.layers.append(Activation("leaky_relu", node.number("alpha", 0.01)))

    def parametric_relu(self, node: OnnxNode) -> None:
        self.same(node)
        slope, _ = self.operands(node)
        if (slope != slope[0]).any():
            raise Unreadable("PRelu with several slopes")
        self.layers.append(Activation("leaky_relu", float(slope[0])))

    def batch_normalisation(self, node: OnnxNode) -> None:
        if node.inputs[0] != self._current or len(node.inputs) != 5:
            raise Unreadable("BatchNormalization of constants")
        if node.integer("training_mode", 0) or len(node.outputs) > 1:
            raise Unreadable("BatchNormalization in training mode")
        size = math.prod(self.shape)
        scale, offset, mean, variance = (self.weights(name) for name in node.inputs[1:])
        if {scale.shape, offset.shape, mean.shape, variance.shape} != {(size,)} or self.shape[1:2] != [size]:
            raise Unreadable(f"BatchNormalization of the shape {self.shape}")
        self._allowance.take(8 * size**2)
        self.layers += batch_normalisation(mean, variance, node.number("epsilon", 1e-5), scale, offset)

    # Nodes that leave the vector as it is

    def same(self, node: OnnxNode) -> None:
        if node.inputs[0] != self._current:
            raise Unreadable(f"{node.kind} of a constant, by a computed tensor")

    def dropout(self, node: OnnxNode) -> None:
        self.same(node)
        training = self.optional(node, 2)
        if training is not None and self.constant(training).any():
            raise Unreadable("Dropout in training mode")
        # The second output is the mask.
        del node.outputs[1:]

    def cast(self, node: OnnxNode) -> None:
        self.same(node)
        import onnx

        if self._ended_by is None and node.attributes.get("to") not in (
            onnx.TensorProto.FLOAT,
            onnx.TensorProto.DOUBLE,
        ):
            raise Unreadable("Cast to another type than float and double")

    def transpose(self, node: OnnxNode) -> None:
        raise Unreadable(f"{node.kind} of a computed tensor")

    def reshape(self, node: OnnxNode) -> None:
        """Flatten, Reshape, Squeeze and Unsqueeze: the new shape, which holds as many values as before."""
        self.same(node)
        given = self.optional(node, 1)
        axes = node.attributes.get("axes" if node.kind != "Reshape" else "shape")
        if given is not None:
            value = self.constant(given)
            if value.dtype.kind != "i":
                raise Unreadable(f"{node.kind} whose axes are not integers")
            axes = value.ravel().tolist()
        shape = reshaped(node, self.shape, axes)
        if shape is None or math.prod(shape) != math.prod(self.shape):
            place = f"{self.where}: {node.place}"
            raise InvalidInput(f"{node.kind} of the shape {self.shape} by {axes}", where=place)
        self.shape = shape

    # Nodes that may only stand at the end

    def softmax(self, node: OnnxNode) -> None:
        axis = node.integer("axis", -1 if node.opset >= 13 else 1)
        if not -len(self.shape) <= axis < len(self.shape):
            raise InvalidInput(f"{node.kind} over the axis {axis}", where=f"{self.where}: {node.place}")
        over = self.shape[axis] if node.opset >= 13 else math.prod(self.shape[axis:])
        self._end(node, over)

    def arg_max(self, node: OnnxNode) -> None:
        axis = node.integer("axis", 0)
        if not -len(self.shape) <= axis < len(self.shape):
            raise InvalidInput(f"ArgMax over the axis {axis}", where=f"{self.where}: {node.place}")
        if node.integer("select_last_index", 0):
            raise Unreadable("ArgMax that takes the last of equal outputs")
        self._end(node, self.shape[axis])
        self.shape[axis] = 1
        if not node.integer("keepdims", 1):
            del self.shape[axis]

    def _end(self, node: OnnxNode, over: int) -> None:
        self.same(node)
        if over != math.prod(self.shape):
            raise Unreadable(f"{node.kind} over another axis than that of the outputs")
        self._ended_by = node.kind


def _activation(kind: str) -> Callable[[ChainReader, OnnxNode], None]:
    def add(reader: ChainReader, node: OnnxNode) -> None:
        layer = activation_named(kind, reader.where)
        if layer is not None:
            reader.layers.append(layer)

    return add


_NODES: dict[str, Callable[[ChainReader, OnnxNode], None]] = {
    "Gemm": ChainReader.gemm,
    "MatMul": ChainReader.matmul,
    "Add": ChainReader.add,
    "Sub": ChainReader.subtract,
    "Mul": ChainReader.multiply,
    "Div": ChainReader.divide,
    "Max": ChainReader.maximum,
    "Min": ChainReader.minimum,
    "Clip": ChainReader.clip,
    "Relu": _activation("relu"),
    "Tanh": _activation("tanh"),
    "Sigmoid": _activation("sigmoid"),
    "LeakyRelu": ChainReader.leaky_relu,
    "PRelu": ChainReader.parametric_relu,
    "BatchNormalization": ChainReader.batch_normalisation,
    "Identity": ChainReader.same,
    "Dropout": ChainReader.dropout,
    "Cast": ChainReader.cast,
    "Flatten": ChainReader.reshape,
    "Reshape": ChainReader.reshape,
    "Squeeze": ChainReader.reshape,
    "Unsqueeze": ChainReader.reshape,
    "Transpose": ChainReader.transpose,
    "Softmax": ChainReader.softmax,
    "LogSoftmax": ChainReader.softmax,
    "ArgMax": ChainReader.arg_max,
}
_KEEPING = frozenset(["Identity", "Dropout", "Cast", "Flatten", "Reshape", "Squeeze", "Unsqueeze"])
