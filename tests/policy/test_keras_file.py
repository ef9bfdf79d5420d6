"""Keras files: made here in the layouts of several versions, and real ones where Keras is installed."""

from __future__ import annotations

import importlib.util
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policyproof.policy.formats import read_network
from policyproof.policy.network import Activation, Affine, Clip, Network, Normalise
from policyproof.run.errors import InvalidInput, UnsupportedFeature
from tests.policy.lookalikes import written, zip_bytes
from tests.policy.networks import assert_same_layers, outputs, random_affine, random_inputs, random_network

h5py = pytest.importorskip("h5py", reason="h5py is not installed: Keras files cannot be made")

Weights = dict[str, list[np.ndarray]]


def entry(kind: str, name: str, **config: Any) -> dict[str, Any]:
    return {"module": "keras.layers", "class_name": kind, "config": {"name": name, **config}, "registered_name": None}


def dense(name: str, activation: Any = "linear", **config: Any) -> dict[str, Any]:
    return entry("Dense", name, units=1, activation=activation, use_bias=True, **config)


def given(size: int = 3) -> dict[str, Any]:
    return entry("InputLayer", "input", batch_shape=[None, size])


def sequential(*layers: dict[str, Any]) -> dict[str, Any]:
    return {"module": "keras", "class_name": "Sequential", "config": {"name": "sequential", "layers": list(layers)}}


def functional(*layers: dict[str, Any], version: int = 3) -> dict[str, Any]:
    """A chain; Keras 2 and 3 write calls differently."""
    previous: str | None = None
    for layer in layers:
        name = layer["name"] = layer["config"]["name"]
        if previous is None:
            layer["inbound_nodes"] = []
        elif version == 2:
            layer["inbound_nodes"] = [[[previous, 0, 0, {}]]]
        else:
            tensor = {
                "class_name": "__keras_tensor__",
                "config": {"shape": [None, 3], "keras_history": [previous, 0, 0]},
            }
            layer["inbound_nodes"] = [{"args": [tensor], "kwargs": {}}]
        previous = name
    ends: list[list[Any]] = [[layer["config"]["name"], 0, 0] for layer in (layers[0], layers[-1])]
    if version == 2:
        ends = [[end] for end in ends]
    config = {"name": "model", "layers": list(layers), "input_layers": ends[0], "output_layers": ends[1]}
    return {"class_name": "Functional", "config": config}


def h5_bytes(config: Any, weights: Weights, edit: Callable[[Any], None] | None = None) -> bytes:
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        file.attrs["model_config"] = json.dumps(config)
        for layer, arrays in weights.items():
            group = file.create_group(f"model_weights/{layer}")
            names = [f"{layer}/array:{number}" for number in range(len(arrays))]
            # Keras 2 wrote bytes.
            group.attrs["weight_names"] = [name.encode() for name in names]
            for name, array in zip(names, arrays, strict=True):
                group[name] = array
        if edit is not None:
            edit(file)
    return content.getvalue()


def keras_bytes(
    config: Any, weights: Weights, places: dict[str, str], *, root: str = "layers", named: bool = True
) -> bytes:
    """`places` says under which name each layer's arrays lie."""
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        for layer, arrays in weights.items():
            group = file.create_group(f"{root}/{places[layer]}/vars")
            if named:
                group.attrs["name"] = layer
            for number, array in enumerate(arrays):
                group[str(number)] = array
    members = {"metadata.json": b"{}", "config.json": json.dumps(config).encode()}
    return zip_bytes({**members, "model.weights.h5": content.getvalue()})


def arrays_of(layer: Affine, dtype: Any = np.float32) -> list[np.ndarray]:
    return [layer.weights.T.astype(dtype), layer.bias.astype(dtype)]


def example(activation: Any = "relu") -> tuple[list[dict[str, Any]], Weights, Network]:
    network = random_network(4, (3, 4, 2))
    layers = [given(), dense("first", activation), dense("second")]
    return layers, {"first": arrays_of(network.layers[0]), "second": arrays_of(network.layers[2])}, network


@pytest.mark.parametrize("form", ["sequential", "functional 2", "functional 3"])
def test_layouts(tmp_path: Path, form: str) -> None:
    layers, weights, network = example()
    config = sequential(*layers) if form == "sequential" else functional(*layers, version=int(form[-1]))
    places = {"first": "dense", "second": "dense_1"}
    found = [read_network(written(tmp_path / "a.h5", h5_bytes(config, weights)))]
    for root, named in (("layers", True), ("layers", False), ("_layer_checkpoint_dependencies", False)):
        content = keras_bytes(config, weights, places, root=root, named=named)
        found.append(read_network(written(tmp_path / "a.keras", content)))
    for read in found:
        assert_same_layers(read, network)


def test_arrays_of_another_layer_are_noticed(tmp_path: Path) -> None:
    layers, weights, _ = example()
    content = keras_bytes(sequential(*layers), weights, {"first": "dense_1", "second": "dense"})
    with pytest.raises(InvalidInput, match="are of the layer 'second', expected 'first'"):
        read_network(written(tmp_path / "a.keras", content))
    content = keras_bytes(sequential(*layers), weights, {"first": "dense", "second": "dense_7"})
    with pytest.raises(InvalidInput, match=r"no arrays of the layer 'second' \(dense_1\)"):
        read_network(written(tmp_path / "a.keras", content))


def test_every_layer_that_is_read(tmp_path: Path) -> None:
    generator = np.random.default_rng(5)
    sizes = [(3, 4), (4, 4), (4, 3), (3, 2)]
    affine = [random_affine(generator, inputs, size) for inputs, size in sizes]
    weights = {f"dense_{number}": arrays_of(layer) for number, layer in enumerate(affine)}
    weights["dense_3"] = weights["dense_3"][:1]
    mean, variance = np.array([[0.5, -1, 2]], np.float32), np.array([[0.25, 2, 0]], np.float32)
    weights["normal"] = [mean, variance, np.array(7)]
    config = sequential(
        entry("InputLayer", "input", batch_shape=[None, 1, 3]),
        entry("Flatten", "flatten"),
        entry("Normalization", "normal", axis=[-1], invert=False, mean=None, variance=None),
        dense("dense_0", "leaky_relu"),
        entry("Activation", "activation", activation={"class_name": "function", "config": "sigmoid"}),
        dense("dense_1", None),
        entry("LeakyReLU", "leaky", alpha={"class_name": "__numpy__", "config": {"value": 0.25, "dtype": "float32"}}),
        dense("dense_2", "relu6"),
        entry("ReLU", "relu", max_value=2.0, negative_slope=0.0, threshold=0.0),
        entry("LeakyReLU", "leaky_too"),
        entry("Dropout", "dropout", rate=0.5),
        {**dense("dense_3", "softmax"), "config": {**dense("dense_3", "softmax")["config"], "use_bias": False}},
    )
    found = read_network(written(tmp_path / "a.h5", h5_bytes(config, weights)))
    inputs = random_inputs(found)
    values = (inputs - mean) / np.maximum(np.sqrt(variance.astype(float)), 1e-7)
    values = values @ affine[0].weights.T + affine[0].bias
    with np.errstate(over="ignore"):
        values = 1 / (1 + np.exp(-np.where(values > 0, values, 0.2 * values)))
    values = values @ affine[1].weights.T + affine[1].bias
    values = np.where(values > 0, values, 0.25 * values) @ affine[2].weights.T + affine[2].bias
    values = np.clip(values, 0, 2) @ affine[3].weights.T
    np.testing.assert_allclose(outputs(found, inputs), values, rtol=1e-12, atol=1e-12)
    assert [type(layer) for layer in found.layers][:3] == [Normalise, Affine, Activation]
    assert sum(isinstance(layer, Clip) for layer in found.layers) == 2


def test_double_precision(tmp_path: Path) -> None:
    network = random_network(4, (3, 2), precision="float64")
    weights = {"first": arrays_of(network.layers[0], np.float64)}
    content = h5_bytes(sequential(given(), dense("first")), weights)
    assert_same_layers(read_network(written(tmp_path / "a.h5", content)), network)


def refused(tmp_path: Path, config: Any, weights: Weights | None = None) -> str:
    with pytest.raises(UnsupportedFeature) as caught:
        read_network(written(tmp_path / "a.h5", h5_bytes(config, weights or {})))
    return str(caught.value)


def test_everything_unsupported_is_listed(tmp_path: Path) -> None:
    text = refused(tmp_path, sequential(given(), entry("Conv2D", "c"), entry("LSTM", "l"), entry("Lambda", "f")))
    assert text.startswith("3 unsupported features")
    assert all(f"the layer {kind}" in text for kind in ("Conv2D", "LSTM", "Lambda"))
    _, weights, _ = example()
    weights["n"] = [np.ones(3)] * 3
    cases: list[tuple[dict[str, Any], str]] = [
        (dense("first", "swish"), "the activation swish"),
        (dense("first", "softmax"), "a softmax that is not the last layer"),
        (entry("ReLU", "r", threshold=0.5), "a ReLU with a threshold"),
        (entry("Softmax", "s", axis=0), "a softmax over another axis"),
        (entry("Normalization", "n", axis=[-1], invert=True), "a Normalization that is inverted"),
        (entry("Normalization", "n", axis=[-1], mean=[1, 2, 3], variance=[1, 1, 1]), "with given statistics"),
        ({**dense("first"), "build_config": {"input_shape": [None, 5, 3]}}, "without Flatten before it"),
    ]
    for layer, message in cases:
        assert message in refused(tmp_path, sequential(given(), layer, dense("second")), weights)
    images = entry("InputLayer", "input", batch_shape=[None, 2, 3])
    assert "without Flatten" in refused(tmp_path, sequential(images, dense("first")), weights)
    assert "model of the class Special" in refused(tmp_path, {"class_name": "Special", "config": {"layers": []}})


def test_functional_models_that_are_no_chain(tmp_path: Path) -> None:
    def layers() -> list[dict[str, Any]]:
        return [given(), dense("first"), dense("second")]

    for version in (2, 3):
        skipping = functional(*layers(), version=version)
        skipping["config"]["layers"][2]["inbound_nodes"] = skipping["config"]["layers"][1]["inbound_nodes"]
        assert "not called once, on the layer before it" in refused(tmp_path, skipping)
        twice = functional(*layers(), version=version)
        twice["config"]["layers"][1]["inbound_nodes"] *= 2
        assert "not called once, on the layer before it" in refused(tmp_path, twice)
        inner = functional(*layers(), version=version)
        inner["config"]["output_layers"] = ["first", 0, 0]
        assert "output_layers are not one, the last" in refused(tmp_path, inner)
    training = functional(*layers(), version=2)
    training["config"]["layers"][1]["inbound_nodes"] = [[["input", 0, 0, {"training": True}]]]
    assert "not called once" in refused(tmp_path, training)


def test_damaged_files(tmp_path: Path) -> None:
    layers, weights, _ = example()
    config = sequential(*layers)
    good = h5_bytes(config, weights)

    def unreadable(content: bytes, message: str, suffix: str = ".h5") -> None:
        with pytest.raises(InvalidInput, match=message):
            read_network(written(tmp_path / f"a{suffix}", content))

    for content in (b"", b"text", good[:100], good[: len(good) // 2]):
        unreadable(content, "HDF5|damaged")
    unreadable(zip_bytes({"config.json": b"{}"}), r"no member 'model\.weights\.h5'", ".keras")
    unreadable(zip_bytes({"config.json": b"{", "model.weights.h5": good}), "not valid JSON", ".keras")
    unreadable(good, "not a zip archive", ".keras")
    unreadable(h5_bytes(config, {"first": weights["first"]}), "there is no /model_weights/second")
    unreadable(h5_bytes(config, {**weights, "second": weights["second"][:1]}), "expected 2 arrays, found 1")
    unreadable(h5_bytes(config, {**weights, "second": weights["first"]}), "expected 4 inputs, found weights for 3")
    unreadable(h5_bytes(config, {**weights, "first": [np.ones(3), np.ones(4)]}), r"weights of the shape \[3\]")
    unreadable(h5_bytes(config, {**weights, "first": [np.full((3, 4), np.nan), np.ones(4)]}), "is nan")
    texts = np.array([b"text"] * 4)
    unreadable(h5_bytes(config, {**weights, "first": [np.ones((3, 4)), texts]}), "is not of numbers")
    for broken in ([], {}, {"class_name": "Sequential", "config": {}}, sequential(), sequential({"config": {}})):
        unreadable(h5_bytes(broken, weights), "description of the model is damaged|without layers")
    unreadable(h5_bytes(sequential(*layers, dense("first")), weights), "two layers have the same name")
    unreadable(h5_bytes(sequential(given(), entry("LeakyReLU", "x", alpha="steep")), {}), "alpha is not a number")
    unreadable(h5_bytes(sequential(given()), {}), "no layer with weights")

    def only_weights(file: Any) -> None:
        del file.attrs["model_config"]

    unreadable(h5_bytes(config, weights, only_weights), "no model_config")

    def wrong_names(file: Any) -> None:
        file["model_weights/first"].attrs["weight_names"] = [1, 2]

    unreadable(h5_bytes(config, weights, wrong_names), "does not list names")


def test_arrays_from_elsewhere_and_huge_ones(tmp_path: Path) -> None:
    layers, weights, _ = example()
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = np.ones((3, 4))
    place = "model_weights/first/first/array:0"

    def edited(change: Callable[[Any], None]) -> Path:
        def edit(file: Any) -> None:
            del file[place]
            change(file)

        return written(tmp_path / "a.h5", h5_bytes(sequential(*layers), weights, edit))

    def external_link(file: Any) -> None:
        file[place] = h5py.ExternalLink(str(tmp_path / "other.h5"), "secret")

    def external_storage(file: Any) -> None:
        file.create_dataset(place, (3, 4), "f4", external=[(str(tmp_path / "other.h5"), 0, 48)])

    def virtual(file: Any) -> None:
        layout = h5py.VirtualLayout((3, 4), "f8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "secret", (3, 4))
        file.create_virtual_dataset(place, layout)

    def huge(file: Any) -> None:
        file.create_dataset(place, (2**20, 2**20), "f8", chunks=(2**10, 2**10))

    for change, kind, message in (
        (external_link, UnsupportedFeature, "a link to elsewhere"),
        (external_storage, UnsupportedFeature, "in another file"),
        (virtual, UnsupportedFeature, "in another file"),
        (huge, InvalidInput, "more than 268435456 bytes"),
    ):
        with pytest.raises(kind, match=message):
            read_network(edited(change))


def test_missing_h5py_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layers, weights, _ = example()
    path = written(tmp_path / "a.h5", h5_bytes(sequential(*layers), weights))
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(InvalidInput, match=r"pip install 'policyproof\[keras\]'"):
        read_network(path)


# Against Keras itself


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("form", ["sequential", "functional"])
def test_real_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, form: str) -> None:
    if importlib.util.find_spec("torch") is not None:
        monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras", reason="Keras is not installed: no real models")
    kinds = keras.layers
    keras.utils.set_random_seed(3)
    normal = kinds.Normalization()
    normal.adapt(np.random.default_rng(1).normal(2, 3, (20, 4)).astype(np.float32))
    steps = [
        normal,
        kinds.Dense(5, activation="relu", bias_initializer="random_normal"),
        kinds.Dense(6, use_bias=False),
        kinds.LeakyReLU(negative_slope=0.1),
        kinds.Dense(4, activation="leaky_relu", name="named"),
        kinds.ReLU(max_value=0.5),
        kinds.Dropout(0.1),
        kinds.Dense(4, activation="tanh"),
        kinds.Activation("sigmoid"),
        kinds.Flatten(),
        kinds.Dense(3, bias_initializer="random_normal"),
    ]
    given_input = keras.Input((4,))
    if form == "sequential":
        model = keras.Sequential([given_input, *steps])
    else:
        value = given_input
        for step in steps:
            value = step(value)
        model = keras.Model(given_input, value)
    path = tmp_path / f"model{suffix}"
    model.save(path)
    found = read_network(path)
    inputs = random_inputs(found)
    np.testing.assert_allclose(outputs(found, inputs), model.predict(inputs, verbose=0), rtol=1e-5, atol=1e-5)
