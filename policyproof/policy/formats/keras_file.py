"""Networks that Keras saved, as `.h5` or `.keras`, without Keras.

Both formats hold a JSON description of the layers and their arrays in HDF5:

    .h5      the description is the attribute `model_config`; the arrays are in model_weights/LAYER/...,
             in the order of that group's attribute `weight_names`
    .keras   a zip archive with config.json and model.weights.h5, where the arrays are
             layers/KIND/vars/0, 1, ...; KIND is the class in lower case with underscores, numbered when
             it occurs again; newer versions also store the layer's name there

Read are `Sequential` models and functional ones that are a chain, of the layers in `_LAYERS`.  A
softmax at the end does not change which output is the greatest, and is left out.

Invariant: the description is data, and nothing of it is evaluated.  Arrays are read from this file
only (HDF5 can point into others) and not beyond the limit.  `Normalization` divides by the square
root of its variance as rounded to float64; everything else is as stored.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policyproof.policy.formats.container import Archive, parse_json, read_bytes
from policyproof.policy.formats.hdf5 import Hdf5
from policyproof.policy.formats.keras_config import KerasLayer, layer_chain
from policyproof.policy.formats.layers import Chain, activation_named, floats, precision_of, root
from policyproof.policy.network import Activation, Affine, Clip, Network, Normalise
from policyproof.run.errors import InvalidInput, UnsupportedFeature

LEAST_DEVIATION = 1e-7
"""`Normalization` divides by at least this much: Keras's default epsilon."""


def read_keras(path: str | Path) -> Network:
    """The network of an `.h5` or `.keras` file."""
    content, where = read_bytes(path), str(path)
    if Path(path).suffix == ".keras":
        archive = Archive(content, where)
        config = parse_json(archive.read("config.json"), f"{where}, config.json")
        arrays = _arrays_of_archive
        file = Hdf5(io.BytesIO(archive.read("model.weights.h5")), f"{where}, model.weights.h5")
    else:
        file = Hdf5(io.BytesIO(content), where)
        arrays = _arrays_of_file
        with file:
            text = file.attribute("/", "model_config")
        if not isinstance(text, (str, bytes)):
            raise InvalidInput("no model_config: only a whole model says what it computes (model.save)", where=where)
        config = parse_json(text, f"{where}, model_config")
        file = Hdf5(io.BytesIO(content), where)
    with file:
        return _Reader(where, config, lambda layers: arrays(file, layers)).network()


Arrays = dict[str, list[NDArray[Any]]]


def _arrays_of_file(file: Hdf5, layers: list[KerasLayer]) -> Arrays:
    """The arrays of each layer in a `.h5` file."""
    result: Arrays = {}
    for layer in layers:
        group = f"/model_weights/{layer.name}"
        names = file.attribute(group, "weight_names") if layer.kind in _WITH_ARRAYS else None
        result[layer.name] = [file.array(f"{group}/{name}") for name in file.texts(names)]
    return result


def _arrays_of_archive(file: Hdf5, layers: list[KerasLayer]) -> Arrays:
    """The arrays of each layer in the HDF5 file of a `.keras` archive."""
    result: Arrays = {}
    count: Counter[str] = Counter()
    for layer in layers:
        kind = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", layer.kind))
        kind = re.sub(r"([a-z])([A-Z])", r"\1_\2", kind).lower()
        place = f"{kind}_{count[kind]}" if count[kind] else kind
        count[kind] += 1
        if layer.kind not in _WITH_ARRAYS:
            result[layer.name] = []
            continue
        # The folder's name has changed between versions.
        roots = [name for name in ("layers", "_layer_checkpoint_dependencies") if file.has(f"/{name}/{place}/vars")]
        if not roots:
            raise InvalidInput(f"no arrays of the layer {layer.name!r} ({place})", where=file.where)
        group = f"/{roots[0]}/{place}/vars"
        name = file.attribute(group, "name")
        if isinstance(name, str) and name != layer.name:
            message = f"the arrays under {group} are of the layer {name!r}, expected {layer.name!r}"
            raise InvalidInput(message, where=file.where)
        places = [str(number) for number in range(len(file.members(group)))]
        result[layer.name] = [file.array(f"{group}/{number}") for number in places]
    return result


class _Reader:
    def __init__(self, where: str, config: Any, arrays: Callable[[list[KerasLayer]], Arrays]) -> None:
        self.where = where
        self.chain = Chain()
        self.layers = layer_chain(config, where, self.chain.refuse)
        self.used: list[NDArray[Any]] = []
        self.vector = True
        for layer in self.layers:
            if layer.kind not in _LAYERS:
                self.chain.refuse(layer.where, f"the layer {layer.kind}")
        if self.chain.unsupported:
            raise UnsupportedFeature(self.chain.unsupported)
        self.arrays = arrays(self.layers)

    def network(self) -> Network:
        for layer in self.layers:
            _LAYERS[layer.kind](self, layer)
        if self.chain.unsupported:
            raise UnsupportedFeature(self.chain.unsupported)
        first = next((item for item in self.chain.layers if isinstance(item, Affine)), None)
        if first is None:
            raise InvalidInput("no layer with weights", where=self.where)
        return Network(tuple(self.chain.layers), first.sizes[0], precision_of(self.used), self.where)

    def _take(self, layer: KerasLayer, count: int) -> list[NDArray[Any]]:
        found = self.arrays[layer.name]
        if len(found) != count:
            raise InvalidInput(f"expected {count} arrays, found {len(found)}", where=layer.where)
        if any(array.dtype.kind not in "fiu" for array in found):
            raise InvalidInput("an array that is not of numbers", where=layer.where)
        return found

    def input(self, layer: KerasLayer) -> None:
        self.vector = layer.takes_vectors is True

    def flatten(self, layer: KerasLayer) -> None:
        self.vector = True

    def dense(self, layer: KerasLayer) -> None:
        if not self.vector or layer.takes_vectors is False:
            # A dense layer works on the last dimension alone.
            self.chain.refuse(layer.where, "a dense layer on inputs of several dimensions, without Flatten before it")
        arrays = self._take(layer, 2 if layer.config.get("use_bias", True) else 1)
        kernel = arrays[0]
        if kernel.ndim != 2:
            raise InvalidInput(f"weights of the shape {list(kernel.shape)}", where=layer.where)
        self.used.extend(arrays)
        bias = arrays[1] if len(arrays) == 2 else np.zeros(kernel.shape[1])
        self.chain.add(Affine(floats(kernel.T), floats(bias)))
        self.activation(layer)

    def activation(self, layer: KerasLayer) -> None:
        name = layer.config.get("activation") or "linear"
        if isinstance(name, dict):
            # Some versions write {"class_name": "function", "config": "relu", ...}.
            name = name.get("config")
        if name in ("softmax", "log_softmax"):
            self.chain.end_with_softmax(layer.where)
        elif name == "leaky_relu":
            self.chain.add(Activation("leaky_relu", 0.2))
        elif name == "relu6":
            self.chain.add(Clip(np.array(0.0), np.array(6.0)))
        elif name in ("relu", "tanh", "sigmoid", "linear"):
            found = activation_named(name, layer.where)
            self.chain.add(*([] if found is None else [found]))
        else:
            self.chain.refuse(layer.where, f"the activation {str(name)[:100]}")

    def relu(self, layer: KerasLayer) -> None:
        bound, slope = layer.number("max_value", None), layer.number("negative_slope", 0.0) or 0.0
        if layer.number("threshold", 0.0):
            self.chain.refuse(layer.where, "a ReLU with a threshold")
            return
        self.chain.add(Activation("leaky_relu", slope) if slope else Activation("relu"))
        if bound is not None:
            self.chain.add(Clip(np.array(-np.inf), np.array(bound)))

    def leaky_relu(self, layer: KerasLayer) -> None:
        # Keras 2 calls the slope alpha.
        slope = layer.number("negative_slope", layer.number("alpha", 0.3))
        self.chain.add(Activation("leaky_relu", 0.3 if slope is None else slope))

    def softmax(self, layer: KerasLayer) -> None:
        if layer.config.get("axis", -1) not in (-1, [-1], 1, [1]):
            self.chain.refuse(layer.where, "a softmax over another axis than the last")
        self.chain.end_with_softmax(layer.where)

    def normalisation(self, layer: KerasLayer) -> None:
        if not self.vector:
            self.chain.refuse(layer.where, "a Normalization of inputs of several dimensions")
            return
        if layer.config.get("invert") or layer.config.get("axis", [-1]) not in ([-1], -1, [1], 1):
            self.chain.refuse(layer.where, "a Normalization that is inverted, or over another axis than the last")
            return
        if layer.config.get("mean") is not None:
            self.chain.refuse(layer.where, "a Normalization with given statistics")
            return
        mean, variance, _ = self._take(layer, 3)
        self.used += [mean, variance]
        deviation = np.maximum(root(floats(variance)), LEAST_DEVIATION)
        self.chain.add(Normalise(floats(mean).ravel(), deviation.ravel()))

    def same(self, layer: KerasLayer) -> None:
        """A layer that leaves the vector as it is."""


_LAYERS: dict[str, Callable[[_Reader, KerasLayer], None]] = {
    "InputLayer": _Reader.input,
    "Dense": _Reader.dense,
    "Activation": _Reader.activation,
    "ReLU": _Reader.relu,
    "LeakyReLU": _Reader.leaky_relu,
    "Softmax": _Reader.softmax,
    "Normalization": _Reader.normalisation,
    "Flatten": _Reader.flatten,
    "Dropout": _Reader.same,
}
_WITH_ARRAYS = frozenset(["Dense", "Normalization"])
