"""Networks that `torch.save` wrote: whole `Sequential` modules, and state dictionaries; without Torch.

A `torch.nn.Sequential` says which activations it uses.  A state dictionary holds only numbers: its
pairs X.weight, X.bias are taken in stored order as linear layers, and the activation between them
must be named by the user.  A module of the user's own class cannot be read, because what it computes
is code and not data.

A checkpoint, a dictionary with exactly one state dictionary among its values, is read as that one.

Invariant: dropout is off and batch normalisation uses its stored statistics, as after `eval()`.  The
square root in a batch normalisation is rounded to float64; everything else is as stored.  Weights of
half precision embed exactly, and count as float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policyproof.policy.formats.container import Allowance, read_bytes
from policyproof.policy.formats.layers import (
    Chain,
    activation_named,
    batch_normalisation,
    floats,
    precision_of,
)
from policyproof.policy.formats.restricted_pickle import Built
from policyproof.policy.formats.torch_archive import TorchArchive, mapping_of
from policyproof.policy.network import Activation, Affine, Clip, Layer, Network
from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature

Tensors = dict[str, NDArray[Any]]

MAXIMAL_MODULES = 10_000


def read_torch(path: str | Path, *, activation: str | None = None) -> Network:
    """The network of a `.pt` or `.pth` file; `activation` answers for a state dictionary."""
    archive = TorchArchive(read_bytes(path), str(path))
    root = archive.root
    if mapping_of(root) is not None:
        return _network_of_tensors(_state_dictionary(archive), activation, archive.where)
    if activation is not None:
        message = "this file says itself which activations it uses; do not name one"
        raise InvalidInput(message, where=archive.where)
    return _ModuleReader(archive).network()


def read_state_dictionary(content: bytes, where: str) -> Tensors:
    """The tensors of a state dictionary by name, in stored order."""
    return _state_dictionary(TorchArchive(content, where))


def linear_layers(tensors: Mapping[str, NDArray[Any]], where: str) -> list[Affine]:
    """The pairs X.weight, X.bias as linear layers, in stored order; all else is unsupported."""
    unsupported = []
    layers: list[Affine] = []
    previous: tuple[str, int] | None = None
    for name, tensor in tensors.items():
        prefix, _, kind = name.rpartition(".")
        if kind == "bias" and f"{prefix}.weight" in tensors:
            continue
        if kind != "weight" or tensor.ndim != 2:
            what = f"{name} of shape {list(tensor.shape)} is not the weight of a linear layer"
            unsupported.append(Feature(where, what))
            continue
        outputs, inputs = tensor.shape
        bias = tensors.get(f"{prefix}.bias", np.zeros(outputs))
        if bias.shape != (outputs,):
            message = f"{prefix}.bias has the shape {list(bias.shape)}, expected [{outputs}]"
            raise InvalidInput(message, where=where)
        if previous is not None and previous[1] != inputs and not unsupported:
            message = f"{name} takes {inputs} inputs, but {previous[0]} has {previous[1]} outputs"
            raise InvalidInput(message, where=where)
        layers.append(Affine(floats(tensor), floats(bias)))
        previous = (name, outputs)
    if unsupported:
        raise UnsupportedFeature(unsupported)
    if not layers:
        raise InvalidInput("no linear layer", where=where)
    return layers


def interleave(layers: list[Affine], between: Activation | None) -> list[Layer]:
    """The layers with an activation after each but the last."""
    result: list[Layer] = []
    for number, layer in enumerate(layers):
        result.append(layer)
        if between is not None and number < len(layers) - 1:
            result.append(between)
    return result


def _network_of_tensors(tensors: Tensors, activation: str | None, where: str) -> Network:
    layers = linear_layers(tensors, where)
    if activation is None and len(layers) > 1:
        raise InvalidInput(
            "this state_dict does not say which activation follows its linear layers; "
            'name it in the interface file ("activation": "relu")',
            where=where,
        )
    between = None if activation is None else activation_named(activation, where)
    return Network(tuple(interleave(layers, between)), layers[0].sizes[0], precision_of(tensors.values()), where)


def _state_dictionary(archive: TorchArchive) -> Tensors:
    root = mapping_of(archive.root)
    if root is None:
        raise InvalidInput("expected a state_dict", where=archive.where)
    if not _holds_tensors(archive, root):
        inner = {name: mapping_of(value) for name, value in root.items()}
        found = [name for name, value in inner.items() if value is not None and _holds_tensors(archive, value)]
        if len(found) != 1:
            names = ", ".join(repr(name) for name in found) or "none"
            message = f"expected a state_dict, or a dictionary with one of them, found {names}"
            raise InvalidInput(message, where=archive.where)
        root = inner[found[0]] or {}
    return {str(name): archive.tensor(value, str(name)) for name, value in root.items()}


def _holds_tensors(archive: TorchArchive, entries: Mapping[Any, Any]) -> bool:
    return bool(entries) and all(archive.is_tensor(value) for value in entries.values())


class _ModuleReader:
    """Walks through nested `Sequential` modules; what a class means is in `_LAYERS`."""

    def __init__(self, archive: TorchArchive) -> None:
        self.archive = archive
        self.where = archive.where
        self.chain = Chain()
        self.used: list[NDArray[Any]] = []
        self.allowance = Allowance(archive.where)

    def network(self) -> Network:
        stack: list[tuple[str, Any]] = [("", self.archive.root)]
        visited = 0
        while stack:
            path, module = stack.pop()
            # A module may contain itself, or others twice and again: the file then describes no end of layers.
            visited += 1
            if visited > MAXIMAL_MODULES:
                raise InvalidInput(f"more than {MAXIMAL_MODULES} modules", where=self.where)
            name = self._class(path, module)
            if self._hooks(module):
                self.chain.refuse(self._place(path), f"{name} with hooks")
            if name == "container.Sequential":
                children = self._part(module, "_modules", path)
                stack.extend((f"{path}.{key}".lstrip("."), child) for key, child in reversed(children.items()))
            elif name in _LAYERS:
                _LAYERS[name](self, path, module)
            else:
                self.chain.refuse(self._place(path), f"the module {name}")
        if self.chain.unsupported:
            raise UnsupportedFeature(self.chain.unsupported)
        first = next((layer for layer in self.chain.layers if isinstance(layer, Affine)), None)
        if first is None:
            raise InvalidInput("no linear layer", where=self.where)
        # What comes before the first linear layer works on each input alone.
        return Network(tuple(self.chain.layers), first.sizes[0], precision_of(self.used), self.where)

    def _class(self, path: str, module: Any) -> str:
        """The class as Torch's documentation files it, such as `linear.Linear`."""
        if not (isinstance(module, Built) and module.function.module.startswith("torch.nn.modules.")):
            raise InvalidInput("expected a Sequential module or a state_dict", where=self._place(path))
        if not isinstance(module.state, dict):
            raise InvalidInput("a module without its state", where=self._place(path))
        return module.function.path.removeprefix("torch.nn.modules.")

    def _place(self, path: str) -> str:
        return f"{self.where}, module {path}" if path else self.where

    def _hooks(self, module: Built) -> bool:
        return any(mapping_of(module.state.get(key)) for key in ("_forward_hooks", "_forward_pre_hooks"))

    def _part(self, module: Built, key: str, path: str) -> dict[Any, Any]:
        entries = mapping_of(module.state.get(key))
        if entries is None:
            raise InvalidInput(f"a module without {key}", where=self._place(path))
        return entries

    def number(self, path: str, module: Built, key: str) -> float:
        value = module.state.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidInput(f"{key} is not a number", where=self._place(path))
        return float(value)

    def tensor(self, path: str, module: Built, key: str, part: str = "_parameters") -> NDArray[np.float64] | None:
        value = self._part(module, part, path).get(key)
        if value is None:
            return None
        array = self.archive.tensor(value, f"{path}.{key}".lstrip("."))
        # Modules may share one tensor, and each of them gets its own copy.
        self.allowance.take(8 * array.size)
        self.used.append(array)
        return floats(array)

    def linear(self, path: str, module: Built) -> None:
        weights, bias = self.tensor(path, module, "weight"), self.tensor(path, module, "bias")
        if weights is None or weights.ndim != 2:
            raise InvalidInput("a linear layer without a matrix of weights", where=self._place(path))
        self.chain.add(Affine(weights, np.zeros(weights.shape[0]) if bias is None else bias))

    def leaky_relu(self, path: str, module: Built) -> None:
        self.chain.add(Activation("leaky_relu", self.number(path, module, "negative_slope")))

    def clip(self, path: str, module: Built) -> None:
        lower, upper = (np.array(self.number(path, module, key)) for key in ("min_val", "max_val"))
        self.chain.add(Clip(lower, upper))

    def batch_normalisation(self, path: str, module: Built) -> None:
        mean, variance = (self.tensor(path, module, f"running_{key}", "_buffers") for key in ("mean", "var"))
        if mean is None or variance is None:
            self.chain.refuse(self._place(path), "batch normalisation without stored statistics")
            return
        scale, offset = self.tensor(path, module, "weight"), self.tensor(path, module, "bias")
        shapes = {array.shape for array in (mean, variance, scale, offset) if array is not None}
        if len(shapes) != 1 or mean.ndim != 1:
            raise InvalidInput("a batch normalisation whose sizes differ", where=self._place(path))
        self.allowance.take(8 * mean.size**2)
        self.chain.add(*batch_normalisation(mean, variance, self.number(path, module, "eps"), scale, offset))

    def flatten(self, path: str, module: Built) -> None:
        if (module.state.get("start_dim"), module.state.get("end_dim")) != (1, -1):
            self.chain.refuse(self._place(path), "a Flatten of other dimensions than all but the first")

    def softmax(self, path: str, module: Built) -> None:
        if module.state.get("dim") not in (None, 1, -1):
            self.chain.refuse(self._place(path), "a softmax over the batch")
        self.chain.end_with_softmax(self._place(path))

    def same(self, path: str, module: Built) -> None:
        """A module that leaves its input as it is."""


def _activation(kind: str) -> Callable[[_ModuleReader, str, Built], None]:
    def add(reader: _ModuleReader, path: str, module: Built) -> None:
        layer = activation_named(kind, reader.where)
        if layer is not None:
            reader.chain.add(layer)

    return add


_LAYERS: dict[str, Callable[[_ModuleReader, str, Built], None]] = {
    "linear.Linear": _ModuleReader.linear,
    "linear.Identity": _ModuleReader.same,
    "dropout.Dropout": _ModuleReader.same,
    "flatten.Flatten": _ModuleReader.flatten,
    "activation.ReLU": _activation("relu"),
    "activation.Tanh": _activation("tanh"),
    "activation.Sigmoid": _activation("sigmoid"),
    "activation.LeakyReLU": _ModuleReader.leaky_relu,
    "activation.Hardtanh": _ModuleReader.clip,
    "activation.ReLU6": _ModuleReader.clip,
    "activation.Softmax": _ModuleReader.softmax,
    "activation.LogSoftmax": _ModuleReader.softmax,
    "batchnorm.BatchNorm1d": _ModuleReader.batch_normalisation,
}
