"""What a walk through an ONNX graph needs to know about single nodes and constant tensors.

Invariant: numbers are taken from within the file only, and never more of them than the limit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policyproof.policy.formats.container import LARGEST
from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature

Array = NDArray[Any]


class Unreadable(Exception):
    """Why a node is not one of a chain; becomes a feature of the list."""


class OnnxNode:
    """A node with its attributes as Python values."""

    def __init__(self, node: Any, number: int, opset: int) -> None:
        import onnx

        self.kind: str = node.op_type
        self.inputs: list[str] = list(node.input)
        self.outputs: list[str] = [name for name in node.output if name]
        self.place = f"node {number}" + (f" ({node.name!r})" if node.name else "")
        self.opset = opset
        self.attributes: dict[str, Any] = {}
        for attribute in node.attribute:
            self.attributes[attribute.name] = onnx.helper.get_attribute_value(attribute)

    def number(self, name: str, default: float) -> float:
        value = self.attributes.get(name, default)
        if not isinstance(value, (int, float)):
            raise Unreadable(f"{self.kind} whose {name} is not a number")
        return float(value)

    def integer(self, name: str, default: int) -> int:
        return int(self.number(name, default))


def reshaped(node: OnnxNode, shape: list[int], axes: Any) -> list[int] | None:
    """The shape after Flatten, Reshape, Squeeze or Unsqueeze; none when it cannot be."""
    size, rank = math.prod(shape), len(shape)
    if node.kind == "Flatten":
        axis = node.integer("axis", 1)
        axis += rank if axis < 0 else 0
        return [math.prod(shape[:axis]), math.prod(shape[axis:])] if 0 <= axis <= rank else None
    if node.kind == "Reshape":
        if axes is None or any(value == 0 and place >= rank for place, value in enumerate(axes)):
            return None
        result = [shape[place] if value == 0 else int(value) for place, value in enumerate(axes)]
        if result.count(-1) == 1:
            known = -math.prod(result)
            result[result.index(-1)] = size // known if known > 0 else 0
        return result if all(value > 0 for value in result) else None
    if node.kind == "Squeeze" and axes is None:
        return [value for value in shape if value != 1]
    if axes is None or len(axes) > 16:
        return None
    full = rank if node.kind == "Squeeze" else rank + len(axes)
    places = {int(axis) + (full if axis < 0 else 0) for axis in axes}
    if len(places) != len(axes) or not places <= set(range(full)):
        return None
    if node.kind == "Squeeze":
        return [value for place, value in enumerate(shape) if place not in places]
    rest = iter(shape)
    return [1 if place in places else next(rest) for place in range(full)]


def tensor_value(tensor: Any, where: str) -> Array:
    """The numbers of a tensor that lies within the file."""
    import onnx

    known = (
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.DOUBLE,
        onnx.TensorProto.INT64,
        onnx.TensorProto.INT32,
        onnx.TensorProto.BOOL,
    )
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
        raise UnsupportedFeature([Feature(where, "numbers in another file")])
    if tensor.data_type not in known:
        raise UnsupportedFeature([Feature(where, f"a tensor of the type {tensor.data_type}")])
    if any(size < 0 for size in tensor.dims) or math.prod(tensor.dims) > LARGEST // 8:
        raise InvalidInput(f"a tensor of the shape {list(tensor.dims)}", where=where)
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"a damaged tensor: {error}", where=where) from None


def constant_value(node: OnnxNode) -> Any:
    """The tensor of a Constant node, or its numbers."""
    if "value" in node.attributes:
        return node.attributes["value"]
    for name, dtype in (("value_float", "f4"), ("value_floats", "f4"), ("value_int", "i8"), ("value_ints", "i8")):
        if name in node.attributes:
            return np.array(node.attributes[name], dtype=dtype)
    raise Unreadable("Constant of another type than numbers")
