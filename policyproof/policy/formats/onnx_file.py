"""ONNX files, by the package `onnx`: reading them into networks, and writing networks as ONNX.

What may stand in a graph is in `onnx_graph`.  The one input that is not a constant is the vector; its
first dimension may be the batch, dynamic or 1.

Written files have double precision when the network has, and also when a stored number is not a
float32 number (as with statistics of VecNormalize): no number changes by being written.

Invariant: reading what was written gives the same layers, except that the slope of a leaky ReLU in
single precision is rounded to float32, the type of that attribute.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from policyproof.policy.formats.container import read_bytes
from policyproof.policy.formats.layers import exact_in_float32
from policyproof.policy.formats.onnx_graph import ChainReader
from policyproof.policy.formats.onnx_tensors import OnnxNode
from policyproof.policy.network import Affine, Clip, Floats, Layer, Network, Normalise
from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature

WRITTEN_OPSET = 16
WRITTEN_IR = 8
"""Of 2022: the first with which onnxruntime runs PRelu in double precision."""


def read_onnx(path: str | Path) -> Network:
    """The network of an `.onnx` file."""
    reader, _ = read_chain(path)
    return Network(tuple(reader.layers), reader.input_size, reader.precision, reader.where)


def read_chain(path: str | Path) -> tuple[ChainReader, Any]:
    """The walk through the graph of a file, at its end, and the model."""
    try:
        return _walk(read_bytes(path), str(path))
    except UnicodeDecodeError as error:
        # Names are decoded where they are first looked at, also inside the checker.
        raise InvalidInput(f"not a valid ONNX model: a name that is not text ({error})", where=str(path)) from None


def _walk(content: bytes, where: str) -> tuple[ChainReader, Any]:
    model = _load(content, where)
    graph = model.graph
    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1)
    nodes = [OnnxNode(node, number, opset) for number, node in enumerate(graph.node)]
    constants: dict[str, Any] = {tensor.name: tensor for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    if len(inputs) != 1:
        names = ", ".join(repr(value.name) for value in inputs)
        raise UnsupportedFeature([Feature(where, f"{len(inputs)} inputs ({names}), expected 1")])
    reader = ChainReader(where, inputs[0].name, _input_shape(inputs[0], where), constants)
    try:
        for node in nodes:
            reader.read(node)
        reader.finish([value.name for value in graph.output])
    except InvalidInput as error:
        raise error.located(where) from None
    return reader, model


def _load(content: bytes, where: str) -> Any:
    import onnx

    # By name, because protobuf ships no types.
    decode_error: type[Exception] = importlib.import_module("google.protobuf.message").DecodeError
    try:
        model = onnx.load_model_from_string(content)
    except decode_error as error:
        raise InvalidInput(f"not an ONNX file, or a damaged one: {error}", where=where) from None
    graph = model.graph
    unsupported = [
        Feature(where, f"the constant {tensor.name!r} in another file")
        for tensor in graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data
    ]
    unsupported += [
        Feature(where, f"the sparse constant {tensor.values.name!r}") for tensor in graph.sparse_initializer
    ]
    unsupported += [
        Feature(f"{where}: node {number}", f"the operator {node.domain}.{node.op_type}")
        for number, node in enumerate(graph.node)
        if node.domain not in ("", "ai.onnx")
    ]
    if unsupported:
        raise UnsupportedFeature(unsupported)
    for value in graph.output:
        # Some exporters leave the shape of outputs open, which the checker does not accept.
        value.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        reason = str(error).strip().splitlines()[0]
        raise InvalidInput(f"not a valid ONNX model: {reason}", where=where) from None
    return model


def _input_shape(value: Any, where: str) -> list[int]:
    """The shape of the input, with 1 for a dynamic first dimension."""
    import onnx

    kind = value.type.tensor_type
    if kind.elem_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
        raise UnsupportedFeature([Feature(where, f"an input {value.name!r} that is not of float or double numbers")])
    shape = [dimension.dim_value if dimension.HasField("dim_value") else 0 for dimension in kind.shape.dim]
    if len(shape) > 1 and shape[0] == 0:
        shape[0] = 1
    if not shape or min(shape) < 1:
        message = f"the input {value.name!r} has no fixed size (only its first dimension may be open)"
        raise InvalidInput(message, where=where)
    return shape


def write_onnx(network: Network, path: str | Path) -> None:
    """Write a network as an ONNX file with the input `x[batch, input]` and the output `y[batch, output]`."""
    import onnx

    single = network.precision == "float32" and exact_in_float32(network)
    writer = _Writer(np.dtype(np.float32 if single else np.float64))
    for layer in network.layers:
        writer.write(layer)
    element = onnx.TensorProto.FLOAT if single else onnx.TensorProto.DOUBLE
    writer.nodes.append(onnx.helper.make_node("Identity", [writer.current], ["y"], name="output"))
    graph = onnx.helper.make_graph(
        writer.nodes,
        "network",
        [onnx.helper.make_tensor_value_info("x", element, ["batch", network.input_size])],
        [onnx.helper.make_tensor_value_info("y", element, ["batch", network.output_size])],
        writer.constants,
    )
    opset = onnx.helper.make_opsetid("", WRITTEN_OPSET)
    model = onnx.helper.make_model(graph, opset_imports=[opset], producer_name="policyproof", ir_version=WRITTEN_IR)
    onnx.checker.check_model(model)
    Path(path).write_bytes(model.SerializeToString())


class _Writer:
    """Nodes and constants, and the name of the tensor that was computed last."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.current = "x"

    def write(self, layer: Layer) -> None:
        if isinstance(layer, Affine):
            self._node("Gemm", [layer.weights, layer.bias], transB=1)
        elif isinstance(layer, Normalise):
            self._node("Sub", [layer.subtract])
            self._node("Div", [layer.divide])
        elif isinstance(layer, Clip):
            if layer.lower.size == layer.upper.size == 1:
                self._node("Clip", [layer.lower.reshape(()), layer.upper.reshape(())])
            else:
                self._node("Max", [layer.lower])
                self._node("Min", [layer.upper])
        elif layer.kind == "leaky_relu" and self.dtype == np.float64:
            # The attribute of LeakyRelu is a float32 number, the constant of PRelu is not.
            self._node("PRelu", [np.array([layer.slope])])
        elif layer.kind == "leaky_relu":
            self._node("LeakyRelu", [], alpha=layer.slope)
        else:
            self._node({"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid"}[layer.kind], [])

    def _node(self, kind: str, constants: Sequence[Floats], **attributes: Any) -> None:
        import onnx

        number = len(self.nodes)
        names = []
        for position, value in enumerate(constants):
            names.append(f"constant_{number}_{position}")
            array = np.ascontiguousarray(value, dtype=self.dtype).reshape(value.shape)
            self.constants.append(onnx.numpy_helper.from_array(array, names[-1]))
        result = f"value_{number}"
        self.nodes.append(
            onnx.helper.make_node(kind, [self.current, *names], [result], name=f"node_{number}", **attributes)
        )
        self.current = result
