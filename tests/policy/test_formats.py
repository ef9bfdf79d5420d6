"""Every format: what is written is read back; the suffix decides; and the plain formats' own errors."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policyproof.policy.formats import SUFFIXES, read_network, write_npz, write_onnx
from policyproof.policy.network import Activation, Affine, Clip, Network, Normalise
from policyproof.run.errors import InvalidInput, UnsupportedFeature
from tests.policy.lookalikes import linear_module, module, sequential, state_dict, torch_bytes, written
from tests.policy.networks import assert_same_layers, outputs, random_inputs, random_network

ACTIVATIONS = [
    Activation("relu"),
    Activation("tanh"),
    Activation("sigmoid"),
    Activation("leaky_relu", 0.25),
]


def nnet_text(network: Network, *, means: str = "", ranges: str = "", flag: str = "0,") -> str:
    """A network in the format `.nnet`, with as many digits as it takes."""
    linear = [layer for layer in network.layers if isinstance(layer, Affine)]
    sizes = [network.input_size, *(layer.weights.shape[0] for layer in linear)]
    lines = ["// a comment", f"{len(linear)},{sizes[0]},{sizes[-1]},{max(sizes)},", ",".join(map(str, sizes)) + ","]
    zeros, ones = "0.0," * sizes[0], "1.0," * sizes[0]
    lines += [flag, "-9," * sizes[0], "9," * sizes[0], means or zeros + "0.0", ranges or ones + "1.0,"]
    for layer in linear:
        lines += [",".join(map(repr, row)) + "," for row in layer.weights.tolist()]
        lines += [f"{value!r}," for value in layer.bias.tolist()]
    return "\n".join(lines) + "\n"


def naive_nnet(text: str, inputs: list[float]) -> list[float]:
    """The format's definition, line by line, as an independent evaluator in plain Python."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("//")]
    rows = [[float(entry) for entry in line.split(",") if entry.strip()] for line in lines]
    sizes = [int(value) for value in rows[1]]
    means, ranges = (rows[number] + [default] for number, default in ((5, 0.0), (6, 1.0)))
    values = [(x - mean) / scale for x, mean, scale in zip(inputs, means, ranges, strict=False)]
    place = 7
    for number, size in enumerate(sizes[1:]):
        weights, biases = rows[place : place + size], rows[place + size : place + 2 * size]
        place += 2 * size
        values = [
            sum(w * x for w, x in zip(row, values, strict=True)) + bias[0]
            for row, bias in zip(weights, biases, strict=True)
        ]
        if number < len(sizes) - 2:
            values = [max(value, 0.0) for value in values]
    return [value * ranges[sizes[0]] + means[sizes[0]] for value in values]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda layer: layer.kind)
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("before", [{}, {"normalised": True}, {"normalised": True, "clipped": True}])
@pytest.mark.parametrize("suffix", [".onnx", ".npz"])
def test_round_trip(
    tmp_path: Path, suffix: str, before: dict[str, bool], precision: str, activation: Activation
) -> None:
    network = random_network(3, activation=activation, precision=precision, **before)
    path = tmp_path / f"policy{suffix}"
    {".onnx": write_onnx, ".npz": write_npz}[suffix](network, path)
    assert_same_layers(read_network(path), network)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=5),
    activation=st.sampled_from(ACTIVATIONS),
    precision=st.sampled_from(["float32", "float64"]),
)
def test_round_trip_of_random_networks(
    tmp_path: Path, seed: int, sizes: list[int], activation: Activation, precision: str
) -> None:
    network = random_network(seed, tuple(sizes), activation, precision)
    write_npz(network, tmp_path / "a.npz")
    write_onnx(network, tmp_path / "a.onnx")
    dtype = np.dtype(precision)
    pytorch = written(tmp_path / "a.pt", torch_bytes(state_dict(network, dtype)))
    kinds = {"relu": "ReLU", "tanh": "Tanh", "sigmoid": "Sigmoid", "leaky_relu": "LeakyReLU"}
    settings_of_leaky = {"negative_slope": 0.25} if activation.kind == "leaky_relu" else {}
    whole = sequential(
        *(
            linear_module(layer, dtype)
            if isinstance(layer, Affine)
            else module(f"activation.{kinds[activation.kind]}", **settings_of_leaky)
            for layer in network.layers
        )
    )
    found = [read_network(tmp_path / "a.npz"), read_network(tmp_path / "a.onnx")]
    found.append(read_network(written(tmp_path / "whole.pt", torch_bytes(whole))))
    if activation.kind != "leaky_relu":
        found.append(read_network(pytorch, activation=activation.kind))
    for network_read in found:
        assert_same_layers(network_read, network)
    if activation.kind == "relu":
        text = written(tmp_path / "a.nnet", nnet_text(network).encode())
        inputs = random_inputs(network, 3)
        expected = [naive_nnet(nnet_text(network), row) for row in inputs.tolist()]
        np.testing.assert_allclose(outputs(read_network(text), inputs), expected, rtol=1e-12, atol=1e-12)


# The dispatcher


def test_unknown_suffix_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_network(written(tmp_path / "policy.txt", b""))
    assert all(suffix in str(caught.value) for suffix in SUFFIXES)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_missing_file_and_folder(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(InvalidInput, match="no such file"):
        read_network(tmp_path / f"missing{suffix}")
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_network(tmp_path / f"folder{suffix}")


def test_activation_is_refused_where_the_file_says_it(tmp_path: Path) -> None:
    network = random_network(1)
    write_onnx(network, tmp_path / "a.onnx")
    write_npz(network, tmp_path / "a.npz")
    with pytest.raises(InvalidInput, match="do not name one"):
        read_network(tmp_path / "a.onnx", activation="relu")
    with pytest.raises(InvalidInput, match="names the activation 'relu' itself"):
        read_network(tmp_path / "a.npz", activation="tanh")
    assert_same_layers(read_network(tmp_path / "a.npz", activation="relu"), network)
    with pytest.raises(InvalidInput, match=r"unknown activation 'gelu' \(allowed: relu, "):
        read_network(written(tmp_path / "a.pt", torch_bytes(state_dict(network))), activation="gelu")


# .nnet


def read_text(tmp_path: Path, text: str) -> Network:
    return read_network(written(tmp_path / "policy.nnet", text.encode()))


def test_nnet_means_and_ranges(tmp_path: Path) -> None:
    network = random_network(2, (2, 4, 3), precision="float64")
    text = nnet_text(network, means="0.5, -1.25,,0.75", ranges="2.0 ,4.0, 3.0,")
    found = read_text(tmp_path, text)
    first = found.layers[0]
    assert isinstance(first, Normalise)
    np.testing.assert_array_equal(first.subtract, [0.5, -1.25])
    np.testing.assert_array_equal(first.divide, [2.0, 4.0])
    assert found.hidden_sizes == [4]
    inputs = random_inputs(found, 20)
    expected = [naive_nnet(text, row) for row in inputs.tolist()]
    np.testing.assert_allclose(outputs(found, inputs), expected, rtol=1e-12, atol=1e-12)


def test_nnet_tolerates_layout_and_missing_output_entries(tmp_path: Path) -> None:
    network = random_network(2, (2, 4, 3), precision="float64")
    tidy = nnet_text(network, means="0.0,0.0", ranges="1.0,1.0")
    untidy = "\n// more\n" + tidy.replace(",", " , ").replace("\n", "\n\n")
    assert_same_layers(read_text(tmp_path, untidy), network)
    assert_same_layers(read_text(tmp_path, tidy.replace("\n", "\r\n")), network)


def test_nnet_does_not_clip(tmp_path: Path) -> None:
    network = random_network(2, (2, 3), precision="float64")
    far = np.array([[1000.0, -1000.0]])
    np.testing.assert_array_equal(outputs(read_text(tmp_path, nnet_text(network)), far), outputs(network, far))


def test_nnet_errors_name_the_line(tmp_path: Path) -> None:
    text = nnet_text(random_network(2, (2, 3, 2)))
    lines = text.splitlines()

    def replaced(number: int, line: str) -> str:
        return "\n".join([*lines[: number - 1], line, *lines[number:]])

    cases = [
        (replaced(2, "2,2,2,"), "line 2: expected 4 values"),
        (replaced(2, "0,2,2,3"), "line 2: a network without layers"),
        (replaced(2, "2.5,2,2,3"), "line 2: expected integers"),
        (replaced(3, "2,3,3"), "line 3: expected positive sizes"),
        (replaced(3, "2,0,2"), "line 3: expected positive sizes"),
        (replaced(7, "0,0,0,0"), "line 7: expected 2 or 3 values"),
        (replaced(8, "1,0,1"), "line 8: a range that is not positive"),
        (replaced(8, "1,1,-1"), "line 8: a range that is not positive"),
        (replaced(9, "1.0,nan"), "line 9: expected a number, found 'nan'"),
        (replaced(9, "1.0,inf"), "line 9: expected a number, found 'inf'"),
        (replaced(9, "1.0,1e999"), "line 9: expected a number, found '1e999'"),
        (replaced(9, "1.0,1_0"), "line 9: expected a number, found '1_0'"),
        (replaced(9, "1.0,2.0,3.0"), r"line 9: expected 2 values \(weights of layer 1\), found 3"),
        (replaced(12, "1.0,2.0"), r"line 12: expected 1 values \(bias of layer 1\), found 2"),
        ("\n".join(lines[:-1]), "ends too early"),
        (text + "1.0,\n", "line 19: the network is complete"),
        ("", "ends too early"),
    ]
    assert len(lines) == 18
    for broken, message in cases:
        with pytest.raises(InvalidInput, match=message) as caught:
            read_text(tmp_path, broken)
        assert "policy.nnet" in str(caught.value)
    with pytest.raises(InvalidInput, match="not a text file"):
        read_network(written(tmp_path / "a.nnet", b"\xff\xfe\x00"))
    with pytest.raises(UnsupportedFeature, match="line 4: a symmetric network"):
        read_text(tmp_path, nnet_text(random_network(2), flag="1,"))


# .npz


def save_npz(tmp_path: Path, **arrays: object) -> Path:
    np.savez(tmp_path / "policy.npz", **arrays)  # type: ignore[arg-type]
    return tmp_path / "policy.npz"


def test_npz_defaults(tmp_path: Path) -> None:
    weights = {"weights_0": np.eye(2), "bias_0": [0, 0], "weights_1": np.ones((1, 2)), "bias_1": [0.5]}
    network = read_network(save_npz(tmp_path, **weights))
    np.testing.assert_array_equal(outputs(network, np.array([[1.0, -2.0]])), [[1.5]])
    network = read_network(save_npz(tmp_path, **weights), activation="linear")
    np.testing.assert_array_equal(outputs(network, np.array([[1.0, -2.0]])), [[-0.5]])
    network = read_network(save_npz(tmp_path, **weights, subtract=np.ones(2), clip_upper=np.array(0.5)))
    np.testing.assert_array_equal(outputs(network, np.array([[3.0, 1.25]])), [[1.25]])


def test_npz_errors(tmp_path: Path) -> None:
    good = {"weights_0": np.eye(2), "bias_0": np.zeros(2)}
    cases: list[tuple[dict[str, object], str]] = [
        ({}, "missing: none"),
        ({"weights_0": np.eye(2)}, "missing: bias_0"),
        ({**good, "weights_2": np.eye(2)}, "missing: weights_1, bias_1"),
        ({**good, "extra": np.eye(2)}, "unknown: extra"),
        ({**good, "weights_0": np.zeros(2)}, "1 dimensions, expected 2"),
        ({**good, "bias_0": np.zeros(3)}, "do not fit each other"),
        ({**good, "bias_0": np.array([np.nan, 0])}, r"bias\[0\] is nan"),
        ({**good, "activation": "swish"}, "unknown activation 'swish'"),
        ({**good, "slope": np.zeros(2)}, "slope is not one number"),
        ({**good, "divide": np.zeros(2)}, "divides by zero"),
        ({**good, "subtract": np.zeros(3)}, "expected 2 values"),
        ({**good, "subtract": np.array("text")}, "not of numbers: subtract"),
        ({**good, "bias_0": np.array([None, {}])}, "not a NumPy array|type object"),
        ({**good, "bias_0": np.zeros(2, dtype=complex)}, "type complex128"),
    ]
    for arrays, message in cases:
        with pytest.raises(InvalidInput, match=message):
            read_network(save_npz(tmp_path, **arrays))
    with pytest.raises(InvalidInput, match="not a zip archive"):
        read_network(written(tmp_path / "text.npz", b"no archive"))


def test_npz_writer_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    network = random_network(1, (2, 2))
    two = Network((*random_network(1, (2, 3, 3)).layers, Activation("tanh"), *random_network(2, (3, 1)).layers), 2)
    clipped = Network((*network.layers, Clip(np.array(0.0), np.array(1.0))), 2)
    for unwritable in (two, clipped, Network((Activation("relu"),), 2)):
        with pytest.raises(InvalidInput, match="holds one normalisation"):
            write_npz(unwritable, tmp_path / "a.npz")


def test_no_number_changes_by_being_written(tmp_path: Path) -> None:
    """A float32 network with statistics that only float64 holds."""
    network = random_network(1, (2, 2))
    mixed = Network((Normalise(np.array([0.1, 0.2]), np.array([0.3, 0.7])), *network.layers), 2, "float32")
    write_onnx(mixed, tmp_path / "a.onnx")
    write_npz(mixed, tmp_path / "a.npz")
    as_double = Network(mixed.layers, 2, "float64")
    assert_same_layers(read_network(tmp_path / "a.onnx"), as_double)
    assert_same_layers(read_network(tmp_path / "a.npz"), mixed)
    inexact = Network((Affine(np.array([[0.1]]), np.array([1e300])),), 1, "float32")
    write_npz(inexact, tmp_path / "b.npz")
    assert_same_layers(read_network(tmp_path / "b.npz"), Network(inexact.layers, 1, "float64"))


def test_empty_state_dictionary_is_no_network(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="expected a state_dict"):
        read_network(written(tmp_path / "a.pt", torch_bytes(OrderedDict())))
