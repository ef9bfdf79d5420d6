"""ONNX: graphs as exporters make them, against onnxruntime, and everything that is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from policyproof.policy.formats import read_network, write_onnx
from policyproof.policy.network import Activation, Affine, Clip, Network, Normalise
from policyproof.run.errors import InvalidInput, UnsupportedFeature
from tests.policy.lookalikes import written
from tests.policy.networks import outputs, random_network

GENERATOR = np.random.default_rng(11)
W = GENERATOR.standard_normal((3, 4)).astype(np.float32)
V = GENERATOR.standard_normal((4, 2)).astype(np.float32)
B = GENERATOR.standard_normal(4).astype(np.float32)
C = np.array([0.5, -1.5, 2.0], np.float32)
D = np.array([2.0, 0.5, 4.0], np.float32)


def model(
    nodes: list[Any],
    constants: dict[str, np.ndarray] | None = None,
    *,
    shape: list[Any] | None = None,
    opset: int = 13,
    element: int = TensorProto.FLOAT,
    outputs_named: list[str] | None = None,
    output_element: int | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", element, shape or ["batch", 3])],
        [
            helper.make_tensor_value_info(name, output_element or element, None)
            for name in outputs_named or [nodes[-1].output[0]]
        ],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def read(tmp_path: Path, made: onnx.ModelProto) -> Network:
    return read_network(written(tmp_path / "policy.onnx", made.SerializeToString()))


def run(made: onnx.ModelProto, inputs: np.ndarray) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: nothing to compare with")
    runtime.set_default_logger_severity(3)
    session = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": inputs})[0])


node = helper.make_node


def chain(*steps: tuple[str, list[str], dict[str, Any]]) -> list[Any]:
    """Nodes of which each takes the result of the one before it, where the inputs say `_`."""
    result, current = [], "x"
    for number, (kind, inputs, attributes) in enumerate(steps):
        names = [current if name == "_" else name for name in inputs]
        current = f"v{number}"
        result.append(node(kind, names, [current], **attributes))
    return result


GOOD: dict[str, tuple[list[Any], dict[str, np.ndarray], dict[str, Any]]] = {
    "gemm with factors": (
        chain(("Gemm", ["_", "w", "b"], {"alpha": 0.5, "beta": 2.0}), ("Tanh", ["_"], {})),
        {"w": W, "b": B},
        {},
    ),
    "transposed gemm without bias": (chain(("Gemm", ["_", "w"], {"transB": 1})), {"w": W.T.copy()}, {}),
    "gemm with a number as bias": (chain(("Gemm", ["_", "w", "b"], {})), {"w": W, "b": B[:1]}, {}),
    "matrix product and sums from both sides": (
        chain(("MatMul", ["_", "w"], {}), ("Add", ["b", "_"], {}), ("Add", ["_", "b"], {}), ("Relu", ["_"], {})),
        {"w": W, "b": B},
        {},
    ),
    "column vector": (
        chain(("MatMul", ["w", "_"], {}), ("Add", ["_", "b"], {})),
        {"w": W.T.copy(), "b": B},
        {"shape": [3]},
    ),
    "column matrix": (
        chain(("MatMul", ["w", "_"], {}), ("Add", ["_", "b"], {})),
        {"w": W.T.copy(), "b": B.reshape(4, 1)},
        {"shape": [3, 1]},
    ),
    "normalisation": (
        chain(("Sub", ["_", "c"], {}), ("Div", ["_", "d"], {}), ("MatMul", ["_", "w"], {})),
        {"c": C, "d": D, "w": W},
        {},
    ),
    "scaling by vectors and numbers": (
        chain(
            ("Mul", ["_", "c"], {}),
            ("Sub", ["d", "_"], {}),
            ("Div", ["_", "n"], {}),
            ("Add", ["_", "m"], {}),
            ("Mul", ["n", "_"], {}),
        ),
        {"c": C.reshape(1, 3), "d": D, "n": np.array(4, np.float32), "m": np.array([[0.25]], np.float32)},
        {},
    ),
    "images of one row": (
        chain(("Sub", ["_", "c"], {}), ("Flatten", ["_"], {}), ("Gemm", ["_", "w", "b"], {})),
        {"c": C.reshape(1, 1, 1, 3), "w": W, "b": B},
        {"shape": [1, 1, 1, 3]},
    ),
    "reshaping": (
        chain(
            ("Unsqueeze", ["_", "one"], {}),
            ("Squeeze", ["_", "one"], {}),
            ("Reshape", ["_", "to"], {}),
            ("Cast", ["_"], {"to": TensorProto.FLOAT}),
            ("Identity", ["_"], {}),
            ("Dropout", ["_"], {}),
            ("MatMul", ["_", "w"], {}),
        ),
        {"one": np.array([1]), "to": np.array([0, -1]), "w": W},
        {},
    ),
    "clip with attributes": (chain(("Clip", ["_"], {"min": -0.5, "max": 0.75})), {}, {"opset": 6}),
    "clip with one attribute": (chain(("Clip", ["_"], {"max": 0.75})), {}, {"opset": 6}),
    "clip with inputs": (
        chain(("Clip", ["_", "", "n"], {}), ("Clip", ["_", "m"], {})),
        {"n": np.array(0.5, np.float32), "m": np.array(-1, np.float32)},
        {},
    ),
    "maximum and minimum": (
        chain(("Max", ["_", "c"], {}), ("Min", ["d", "_"], {}), ("Min", ["_", "c"], {})),
        {"c": C - 3, "d": D},
        {},
    ),
    "leaky": (chain(("LeakyRelu", ["_"], {}), ("LeakyRelu", ["_"], {"alpha": 0.3}), ("Sigmoid", ["_"], {})), {}, {}),
    "parametric relu": (chain(("PRelu", ["_", "s"], {})), {"s": np.array([0.25], np.float32)}, {}),
    "batch normalisation": (
        chain(("MatMul", ["_", "w"], {}), ("BatchNormalization", ["_", "b", "b", "b", "v"], {"epsilon": 0.01})),
        {"w": W, "b": B, "v": np.abs(B)},
        {},
    ),
    "constant nodes": (
        [
            node("Constant", [], ["w"], value=numpy_helper.from_array(W.T.copy())),
            node("Transpose", ["w"], ["wt"], perm=[1, 0]),
            node("Identity", ["wt"], ["wi"]),
            node("Constant", [], ["b"], value_floats=[1.0, 2.0, 3.0, 4.0]),
            node("Constant", [], ["n"], value_float=0.5),
            node("MatMul", ["x", "wi"], ["y"]),
            node("Add", ["y", "b"], ["z"]),
            node("Mul", ["z", "n"], ["u"]),
        ],
        {},
        {},
    ),
}


# Graphs that name the type float, in a node or by their old operators.
FLOAT_ONLY = ("constant nodes", "reshaping", "clip with attributes", "clip with one attribute")


@pytest.mark.parametrize(
    ("name", "double"),
    [(name, double) for name in GOOD for double in (False, True) if not (double and name in FLOAT_ONLY)],
)
def test_graphs_against_onnxruntime(tmp_path: Path, name: str, double: bool) -> None:
    nodes, constants, options = GOOD[name]
    if double:
        constants = {
            key: value.astype(np.float64) if value.dtype.kind == "f" else value for key, value in constants.items()
        }
        # Before version 16, onnxruntime has some operators in single precision only.
        options = {**options, "element": TensorProto.DOUBLE, "opset": 16}
    made = model(nodes, constants, **options)
    found = read(tmp_path, made)
    assert found.precision == ("float64" if double and constants else "float32")
    shape = [1 if isinstance(size, str) else size for size in options.get("shape", [1, 3])]
    inputs = np.random.default_rng(3).standard_normal((30, 3)).astype(np.float64 if double else np.float32)
    expected = np.array([run(made, row.reshape(shape)).ravel() for row in inputs])
    np.testing.assert_allclose(outputs(found, inputs.astype(np.float64)), expected, rtol=1e-5, atol=1e-5)


def test_additions_join_products_and_divisions_join_subtractions(tmp_path: Path) -> None:
    nodes, constants, _ = GOOD["normalisation"]
    assert [type(layer) for layer in read(tmp_path, model(nodes, constants)).layers] == [Normalise, Affine]
    nodes, constants, _ = GOOD["maximum and minimum"]
    assert [type(layer) for layer in read(tmp_path, model(nodes, constants)).layers] == [Clip, Clip]
    nodes = chain(("MatMul", ["_", "w"], {}), ("Add", ["_", "b"], {}), ("Relu", ["_"], {}))
    assert [type(layer) for layer in read(tmp_path, model(nodes, {"w": W, "b": B})).layers] == [Affine, Activation]


@pytest.mark.parametrize(
    "tail",
    [
        [("Softmax", ["_"], {})],
        [("LogSoftmax", ["_"], {"axis": 1}), ("Identity", ["_"], {})],
        [("ArgMax", ["_"], {"axis": -1, "keepdims": 0}), ("Cast", ["_"], {"to": TensorProto.INT32})],
        [("Softmax", ["_"], {"axis": -1}), ("ArgMax", ["_"], {"axis": 1}), ("Squeeze", ["_"], {})],
    ],
)
def test_monotone_ends_are_left_out(tmp_path: Path, tail: list[Any]) -> None:
    made = model(chain(("MatMul", ["_", "w"], {}), *tail), {"w": W}, output_element=TensorProto.INT64)
    found = read(tmp_path, made)
    assert [type(layer) for layer in found.layers] == [Affine]
    np.testing.assert_array_equal(found.layers[0].weights, W.T)


product = ("MatMul", ["_", "w"], {})

BAD: dict[str, tuple[list[Any], dict[str, np.ndarray], str]] = {
    "softmax in the middle": (chain(("Softmax", ["_"], {}), product), {"w": W}, "MatMul after Softmax"),
    "softmax of a decision": (
        chain(product, ("ArgMax", ["_"], {"axis": 1}), ("Softmax", ["_"], {})),
        {"w": W},
        "Softmax after ArgMax",
    ),
    "softmax over the batch": (chain(product, ("Softmax", ["_"], {"axis": 0})), {"w": W}, "over another axis"),
    "argmax over the batch": (chain(product, ("ArgMax", ["_"], {})), {"w": W}, "over another axis"),
    "last of equals": (
        chain(product, ("ArgMax", ["_"], {"axis": 1, "select_last_index": 1})),
        {"w": W},
        "takes the last of equal outputs",
    ),
    "residual": ([*chain(product), node("Add", ["v0", "v0"], ["y"])], {"w": W}, "two computed tensors"),
    "branch": (
        [*chain(product), node("Relu", ["x"], ["r"]), node("Add", ["v0", "b"], ["y"])],
        {"w": W, "b": B},
        "Relu on another branch",
    ),
    "division by the input": (chain(("Div", ["c", "_"], {})), {"c": C}, "Div by a computed tensor"),
    "several vectors": (chain(("Add", ["_", "c"], {})), {"c": C.reshape(3, 1)}, "several vectors of one"),
    "several slopes": (chain(("PRelu", ["_", "c"], {})), {"c": C}, "several slopes"),
    "transposed input": (chain(("Transpose", ["_"], {}), product), {"w": W}, "Transpose of a computed tensor"),
    "cast to integers": (chain(("Cast", ["_"], {"to": TensorProto.INT64})), {}, "Cast to another type"),
    "training": (
        chain(("Dropout", ["_", "", "t"], {})),
        {"t": np.array(True)},
        "Dropout in training mode",
    ),
    "half precision": (chain(product), {"w": W.astype(np.float16)}, "a tensor of the type 10"),
    "integer weights": (chain(product), {"w": W.astype(np.int64)}, "weights of the type int64"),
    "transposed gemm": (chain(("Gemm", ["_", "w"], {"transA": 1})), {"w": W}, "transposed"),
    "vector product": (chain(product), {"w": W[:, 0].copy()}, "MatMul of the shapes"),
}


@pytest.mark.parametrize("name", BAD)
def test_unsupported_graphs(tmp_path: Path, name: str) -> None:
    nodes, constants, message = BAD[name]
    with pytest.raises(UnsupportedFeature, match=message):
        read(tmp_path, model(nodes, constants))


def test_all_unsupported_nodes_are_listed(tmp_path: Path) -> None:
    nodes = chain(
        ("Concat", ["_", "c"], {"axis": 1}),
        ("Slice", ["_", "i", "i"], {}),
        ("Relu", ["_"], {}),
        ("Elu", ["_"], {}),
        ("MatMul", ["_", "c"], {}),
    )
    with pytest.raises(UnsupportedFeature) as caught:
        read(tmp_path, model(nodes, {"c": C, "i": np.array([0])}))
    found = [feature.what for feature in caught.value.features]
    assert found == ["the operator Concat", "the operator Slice", "the operator Elu"]
    nodes = [node("Special", ["x"], ["y"], domain="com.example"), node("Other", ["y"], ["z"], domain="com.example")]
    made = model(nodes)
    made.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(UnsupportedFeature, match=r"com\.example\.Special") as caught:
        read(tmp_path, made)
    assert len(caught.value.features) == 2


def test_ends_of_the_graph(tmp_path: Path) -> None:
    two_outputs = model([*chain(product), node("Relu", ["v0"], ["y"])], {"w": W}, outputs_named=["v0", "y"])
    with pytest.raises(UnsupportedFeature, match="a graph with 2 outputs"):
        read(tmp_path, two_outputs)
    with pytest.raises(InvalidInput, match="'v0' is not the result of the last node"):
        read(tmp_path, model([*chain(product), node("Relu", ["v0"], ["y"])], {"w": W}, outputs_named=["v0"]))
    two_inputs = model(chain(product), {"w": W})
    two_inputs.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1]))
    with pytest.raises(UnsupportedFeature, match=r"2 inputs \('x', 'z'\), expected 1"):
        read(tmp_path, two_inputs)
    old_style = model(chain(product), {"w": W})
    old_style.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3, 4]))
    assert read(tmp_path, old_style).input_size == 3
    with pytest.raises(InvalidInput, match="no fixed size"):
        read(tmp_path, model(chain(product), {"w": W}, shape=["batch", "inputs"]))
    with pytest.raises(UnsupportedFeature, match="not of float or double"):
        read(tmp_path, model(chain(("Cast", ["_"], {"to": 1})), element=TensorProto.INT64))
    with pytest.raises(UnsupportedFeature, match=r"MatMul of the shapes \[5, 3\]"):
        read(tmp_path, model(chain(product), {"w": W}, shape=[5, 3]))


def test_damaged_models(tmp_path: Path) -> None:
    whole = model(chain(product), {"w": W}).SerializeToString()
    for content in (b"", b"text", whole[:-7], whole[: len(whole) // 2]):
        with pytest.raises(InvalidInput, match=r"not an ONNX file|not a valid ONNX model"):
            read_network(written(tmp_path / "a.onnx", content))
    with pytest.raises(InvalidInput, match="not a valid ONNX model"):
        read(tmp_path, model([node("Relu", ["nowhere"], ["y"])]))
    with pytest.raises(InvalidInput, match="expected 4 inputs, found weights for 3"):
        read(tmp_path, model(chain(product, product), {"w": W}))
    with pytest.raises(InvalidInput, match=r"weights\[0, 0\] is nan"):
        read(tmp_path, model(chain(product), {"w": np.full((3, 2), np.nan, np.float32)}))
    with pytest.raises(InvalidInput, match="divides by zero"):
        read(tmp_path, model(chain(("Div", ["_", "c"], {})), {"c": C * 0}))
    with pytest.raises(InvalidInput, match="Reshape of the shape"):
        read(tmp_path, model(chain(("Reshape", ["_", "to"], {})), {"to": np.array([2, 2])}))
    short = model(chain(product), {"w": W})
    short.graph.initializer[0].raw_data = short.graph.initializer[0].raw_data[:-4]
    with pytest.raises(InvalidInput):
        read(tmp_path, short)
    huge = model(chain(product), {"w": W})
    huge.graph.initializer[0].dims[:] = [2**40, 4]
    with pytest.raises(InvalidInput):
        read(tmp_path, huge)


def test_small_files_do_not_become_large_networks(tmp_path: Path) -> None:
    number = {"n": np.array(2, np.float32)}
    cases = [
        (chain(("Sub", ["_", "n"], {})), [1, 2**40], "more than 268435456 bytes"),
        (chain(*[("Sub", ["_", "n"], {})] * 20), [1, 2**21], "more than 268435456 bytes"),
        (chain(*[("Mul", ["_", "n"], {})] * 5), [1, 4000], "more than 268435456 bytes"),
        (chain(("Mul", ["_", "n"], {})), [1, 5000], "a scaling of 5000 values"),
    ]
    for nodes, shape, message in cases:
        with pytest.raises(InvalidInput, match=message) as caught:
            read(tmp_path, model(nodes, number, shape=shape))
        assert "policy.onnx" in str(caught.value)


def test_numbers_in_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(W.tobytes())
    made = model(chain(product), {"w": W})
    tensor = made.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, "weights")
    tensor.ClearField("raw_data")
    with pytest.raises(UnsupportedFeature, match="the constant 'w' in another file"):
        read(tmp_path, made)
    nodes = [node("Constant", [], ["w"], value=tensor), *chain(product)]
    with pytest.raises((UnsupportedFeature, InvalidInput)):
        read(tmp_path, model(nodes))


@pytest.mark.parametrize("kind", ["relu", "tanh", "sigmoid", "leaky_relu"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_written_files_run(tmp_path: Path, kind: Any, precision: str) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: nothing to compare with")
    activation = Activation(kind, 0.1 if kind == "leaky_relu" else 0.0)
    inner = random_network(3, activation=activation, precision=precision, normalised=True, clipped=True)
    bounds = Clip(np.array([-0.5, -np.inf]), np.array([0.25, 1.0]))
    network = Network((*inner.layers, bounds), inner.input_size, inner.precision)
    write_onnx(network, tmp_path / "a.onnx")
    session = runtime.InferenceSession(str(tmp_path / "a.onnx"), providers=["CPUExecutionProvider"])
    inputs = np.random.default_rng(3).standard_normal((100, network.input_size)).astype(precision)
    (found,) = session.run(["y"], {"x": inputs})
    assert found.dtype == np.dtype(precision)
    tolerance = 1e-12 if precision == "float64" else 1e-5
    np.testing.assert_allclose(found, outputs(network, inputs.astype(float)), rtol=tolerance, atol=tolerance)
