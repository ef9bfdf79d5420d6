"""Files as Torch and Stable-Baselines3 write them, made without either.

Idea: `pickle` writes names and states of objects, and does not care what stands behind a name.  While
a file is written, modules of the right names are pretended, with empty classes in them; the pickler
itself is the one that the real packages use.  Tests compare the bytes with those of real Torch where
it is installed.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import sys
import types
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from policyproof.policy.network import Affine, Network

STORAGES = {"f4": "FloatStorage", "f8": "DoubleStorage", "f2": "HalfStorage", "i8": "LongStorage"}


@contextmanager
def pretended(names: list[str]) -> Iterator[dict[str, type]]:
    """Classes of these full names, importable as long as the context lasts."""
    modules: dict[str, types.ModuleType] = {}
    classes: dict[str, type] = {}
    for full in names:
        path, _, name = full.rpartition(".")
        parts = path.split(".")
        for end in range(1, len(parts) + 1):
            modules.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
        classes[full] = type(name, (), {"__module__": path})
        setattr(modules[path], name, classes[full])
    with patch.dict(sys.modules, modules):
        yield classes


@dataclass
class Instance:
    """An object of a pretended class, with its state."""

    class_name: str
    state: dict[str, Any]


@dataclass
class Tensor:
    """A tensor; `view` is (offset, size, stride) when it is not the whole of its storage."""

    array: np.ndarray
    parameter: bool = False
    view: tuple[int, tuple[int, ...], tuple[int, ...]] | None = None
    storage: str | None = None
    """The class of the storage, when the type of the array does not say it."""


class _Storage:
    def __init__(self, kind: type, key: str, count: int) -> None:
        self.identity = ("storage", kind, key, "cpu", count)


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        return value.identity if isinstance(value, _Storage) else None


class _Call:
    """Pickled as the call of a pretended function."""

    def __init__(self, function: type, arguments: tuple[Any, ...]) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


def _class_names(value: Any) -> set[str]:
    if isinstance(value, Instance):
        return {value.class_name} | _class_names(value.state)
    if isinstance(value, dict):
        return set().union(*map(_class_names, value.values()))
    return set()


def _real(value: Any, classes: dict[str, type]) -> Any:
    """The value with instances of the pretended classes in it."""
    if isinstance(value, Instance):
        result = classes[value.class_name].__new__(classes[value.class_name])
        result.__dict__.update(_real(value.state, classes))
        return result
    if isinstance(value, OrderedDict):
        ordered = OrderedDict((key, _real(entry, classes)) for key, entry in value.items())
        ordered.__dict__.update(value.__dict__)
        return ordered
    if isinstance(value, dict):
        return {key: _real(entry, classes) for key, entry in value.items()}
    return value


def pickled(value: Any, protocol: int = 4) -> bytes:
    """A pickle of plain values, NumPy arrays and instances of classes that need not exist."""
    with pretended(sorted(_class_names(value))) as classes:
        return pickle.dumps(_real(value, classes), protocol)


def class_pickle(full_name: str, protocol: int = 4) -> bytes:
    """A pickle that is the name of a class."""
    with pretended([full_name]) as classes:
        return pickle.dumps(classes[full_name], protocol)


def torch_bytes(value: Any, *, folder: str = "archive", byteorder: str = "little") -> bytes:
    """What `torch.save` writes for this value, in which tensors are `Tensor`s."""
    functions = [f"torch._utils._rebuild_{name}" for name in ("tensor_v2", "parameter")]
    kinds = [f"torch.{name}" for name in (*STORAGES.values(), "BFloat16Storage")]
    stored: list[bytes] = []
    with pretended([*functions, *kinds, *sorted(_class_names(value))]) as classes:
        content = io.BytesIO()
        pickler = _Pickler(content, protocol=2)
        pickler.dump(_with_tensors(_real(value, classes), classes, stored, byteorder))
    members = {"data.pkl": content.getvalue(), ".format_version": b"1", ".storage_alignment": b"64"}
    members["byteorder"] = byteorder.encode()
    members |= {f"data/{key}": raw for key, raw in enumerate(stored)}
    members |= {"version": b"3\n", ".data/serialization_id": b"0" * 40}
    return zip_bytes({f"{folder}/{name}": raw for name, raw in members.items()})


def _with_tensors(value: Any, classes: dict[str, type], stored: list[bytes], byteorder: str) -> Any:
    if isinstance(value, Tensor):
        order = "<" if byteorder == "little" else ">"
        code = value.array.dtype.str[1:]
        kind = classes[f"torch.{value.storage or STORAGES[code]}"]
        storage = _Storage(kind, str(len(stored)), value.array.size)
        stored.append(value.array.astype(value.array.dtype.newbyteorder(order)).tobytes())
        strides = tuple(step // value.array.itemsize for step in value.array.strides)
        offset, size, stride = value.view or (0, value.array.shape, strides)
        arguments = (storage, offset, size, stride, False, OrderedDict())
        tensor = _Call(classes["torch._utils._rebuild_tensor_v2"], arguments)
        if value.parameter:
            return _Call(classes["torch._utils._rebuild_parameter"], (tensor, True, OrderedDict()))
        return tensor
    if isinstance(value, OrderedDict):
        ordered = OrderedDict((key, _with_tensors(entry, classes, stored, byteorder)) for key, entry in value.items())
        ordered.__dict__.update(value.__dict__)
        return ordered
    if isinstance(value, dict):
        return {key: _with_tensors(entry, classes, stored, byteorder) for key, entry in value.items()}
    if type(value) in classes.values():
        value.__dict__.update(_with_tensors(value.__dict__, classes, stored, byteorder))
    return value


def zip_bytes(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, raw in members.items():
            archive.writestr(name, raw)
    return content.getvalue()


def state_dict(network: Network, dtype: Any = np.float32, prefix: str = "", step: int = 2) -> OrderedDict[str, Tensor]:
    """The linear layers as in a `Sequential` with activations between them."""
    entries: OrderedDict[str, Tensor] = OrderedDict()
    linear = [layer for layer in network.layers if isinstance(layer, Affine)]
    for number, layer in enumerate(linear):
        entries[f"{prefix}{step * number}.weight"] = Tensor(layer.weights.astype(dtype))
        entries[f"{prefix}{step * number}.bias"] = Tensor(layer.bias.astype(dtype))
    return entries


_HOOKS = (
    "_backward_pre_hooks",
    "_backward_hooks",
    "_is_full_backward_hook",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


def module(kind: str, parameters: dict[str, Any] | None = None, **more: Any) -> Instance:
    """A Torch module, such as `module("linear.Linear", {"weight": ..., "bias": ...})`."""
    state: dict[str, Any] = {"training": True, "_parameters": parameters or {}, "_buffers": more.pop("buffers", {})}
    state["_non_persistent_buffers_set"] = set()
    state |= {hook: None if hook == "_is_full_backward_hook" else OrderedDict() for hook in _HOOKS}
    state["_modules"] = more.pop("modules", {})
    return Instance(f"torch.nn.modules.{kind}", {**state, **more})


def linear_module(layer: Affine, dtype: Any = np.float32) -> Instance:
    parameters = {
        "weight": Tensor(layer.weights.astype(dtype), parameter=True),
        "bias": Tensor(layer.bias.astype(dtype), parameter=True),
    }
    outputs, inputs = layer.weights.shape
    return module("linear.Linear", parameters, in_features=inputs, out_features=outputs)


def sequential(*modules: Instance) -> Instance:
    return module("container.Sequential", modules={str(number): item for number, item in enumerate(modules)})


# Stable-Baselines3


def box(low: np.ndarray, high: np.ndarray) -> Instance:
    state = {"dtype": low.dtype, "_shape": low.shape, "low": low, "high": high, "_np_random": None}
    return Instance("gymnasium.spaces.box.Box", state)


def discrete(count: int, start: int = 0) -> Instance:
    state = {"dtype": np.dtype("i8"), "n": np.int64(count), "start": np.int64(start), "_shape": ()}
    return Instance("gymnasium.spaces.discrete.Discrete", state)


def multi_discrete(counts: list[int]) -> Instance:
    state = {"dtype": np.dtype("i8"), "nvec": np.array(counts), "_shape": (len(counts),)}
    return Instance("gymnasium.spaces.multi_discrete.MultiDiscrete", state)


def multi_binary(count: int) -> Instance:
    return Instance("gymnasium.spaces.multi_binary.MultiBinary", {"n": count, "_shape": (count,)})


def serialized(pickle_bytes: bytes, **readable: Any) -> dict[str, Any]:
    return {":type:": "<class>", ":serialized:": base64.b64encode(pickle_bytes).decode(), **readable}


def sb3_bytes(
    policy_class: str,
    tensors: OrderedDict[str, Tensor],
    observation: Instance,
    action: Instance,
    settings: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
) -> bytes:
    """What `model.save` of Stable-Baselines3 writes."""
    content = {
        "policy_class": serialized(class_pickle(policy_class), __module__=policy_class.rpartition(".")[0]),
        "policy_kwargs": settings or {},
        "observation_space": serialized(pickled(observation, 5)),
        "action_space": serialized(pickled(action, 5)),
        # Python's writer of JSON makes such numbers, which the standard does not know.
        "max_grad_norm": float("inf"),
        **(data or {}),
    }
    weights = torch_bytes(tensors)
    return zip_bytes({"data": json.dumps(content).encode(), "policy.pth": weights, "system_info.txt": b"-"})


def vecnormalize_bytes(mean: np.ndarray, variance: np.ndarray, **more: Any) -> bytes:
    """What `VecNormalize.save` writes."""
    statistics = {"mean": mean, "var": variance, "count": 51.0001}
    space = box(np.full(mean.shape, -1, np.float32), np.full(mean.shape, 1, np.float32))
    state = {
        "num_envs": 1,
        "observation_space": space,
        "norm_obs": True,
        "obs_rms": Instance("stable_baselines3.common.running_mean_std.RunningMeanStd", statistics),
        "clip_obs": 10.0,
        "epsilon": 1e-8,
        "old_reward": np.zeros(1),
        **more,
    }
    return pickled(Instance("stable_baselines3.common.vec_env.vec_normalize.VecNormalize", state))


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
