"""The zip archives that `torch.save` writes, without Torch.

    NAME/data.pkl      a pickle; tensors are calls of torch._utils._rebuild_tensor_v2(storage, offset,
                       size, stride, ...), where the storage is a persistent identity
                       ("storage", torch.FloatStorage, KEY, location, number of elements)
    NAME/data/KEY      the elements of one storage
    NAME/byteorder     "little" or "big"; absent in old files, which are little

Several tensors may share a storage, transposed or strided, so offset and strides are honoured.

Invariant: no element outside its storage is read, and all tensors together stay below a limit, since
a stride of zero makes a large tensor from one element.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policyproof.policy.formats.container import Allowance, Archive, is_zip
from policyproof.policy.formats.numpy_pickle import NUMPY_NAMES
from policyproof.policy.formats.restricted_pickle import Built, Global, Names, Persistent, read_pickle
from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature

_STORAGES = {
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
    "HalfStorage": "f2",
    "BFloat16Storage": "u2",
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "b1",
}
_SETS = ("builtins.set", "__builtin__.set")

TORCH_NAMES = NUMPY_NAMES | Names(
    "collections.OrderedDict",
    "torch.Size",
    "torch.device",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_parameter",
    "torch.nn.modules.",
    *_SETS,
    *(f"torch.{storage}" for storage in _STORAGES),
)

# How files of torch.save began before version 1.6: the pickle of a magic number.
_OLD_BEGINNING = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"


class TorchArchive:
    """The object that was saved (`root`), and the tensors that it refers to."""

    def __init__(self, content: bytes, where: str) -> None:
        self.where = where
        if content.startswith(_OLD_BEGINNING):
            hint = "a file in the format of Torch before 1.6: load it and save it again with torch.save"
            raise UnsupportedFeature([Feature(where, hint)])
        if not is_zip(content):
            raise InvalidInput("not a file that torch.save wrote (those are zip archives)", where=where)
        self._archive = Archive(content, where)
        pickles = [name for name in self._archive.names if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise InvalidInput("not a file that torch.save wrote: it has no single data.pkl", where=where)
        self._folder = pickles[0].removesuffix("data.pkl")
        if f"{self._folder}constants.pkl" in self._archive:
            hint = "a TorchScript program: save the module itself with torch.save, or export it to ONNX"
            raise UnsupportedFeature([Feature(where, hint)])
        self._order = self._byte_order()
        self._storages: dict[str, NDArray[Any]] = {}
        self._tensors: dict[int, NDArray[Any]] = {}
        self._allowance = Allowance(where)
        self.root = read_pickle(self._archive.read(pickles[0]), TORCH_NAMES, f"{where}, {pickles[0]}")

    def _byte_order(self) -> str:
        name = f"{self._folder}byteorder"
        order = self._archive.read(name) if name in self._archive else b"little"
        if order not in (b"little", b"big"):
            raise InvalidInput(f"an unknown byte order {order[:20]!r}", where=self.where)
        return "<" if order == b"little" else ">"

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, Built) and value.function.module == "torch._utils"

    def tensor(self, value: Any, what: str) -> NDArray[Any]:
        """The numbers of a tensor or parameter; half precision comes as float32, which holds it exactly."""
        # Shared tensors are one object in the pickle, and stay one array.
        if id(value) not in self._tensors:
            self._tensors[id(value)] = self._read_tensor(value, what)
        return self._tensors[id(value)]

    def _read_tensor(self, value: Any, what: str) -> NDArray[Any]:
        invalid = InvalidInput(f"{what}: expected a tensor", where=self.where)
        if isinstance(value, Built) and value.function.name == "_rebuild_parameter" and value.arguments:
            value = value.arguments[0]
        if not (isinstance(value, Built) and value.function.name == "_rebuild_tensor_v2" and len(value.arguments) >= 4):
            raise invalid
        identity, offset, size, stride = value.arguments[:4]
        numbers = [offset, *size, *stride] if isinstance(size, tuple) and isinstance(stride, tuple) else [None]
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise invalid
        if len(size) != len(stride) or len(size) > 8:
            raise invalid
        storage = self._storage(identity, what)
        last = offset + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
        self._allowance.take(math.prod(size) * storage.itemsize)
        if 0 in size:
            raise InvalidInput(f"{what}: an empty tensor", where=self.where)
        if last >= storage.size:
            message = f"{what}: the tensor reaches to element {last}, its storage has {storage.size}"
            raise InvalidInput(message, where=self.where)
        steps = [step * storage.itemsize for step in stride]
        return np.lib.stride_tricks.as_strided(storage[offset:], shape=size, strides=steps).copy()

    def _storage(self, value: Any, what: str) -> NDArray[Any]:
        identity = value.identity if isinstance(value, Persistent) else None
        if not (isinstance(identity, tuple) and len(identity) == 5 and identity[0] == "storage"):
            raise InvalidInput(f"{what}: expected a tensor", where=self.where)
        _, kind, key, _, count = identity
        if not (isinstance(kind, Global) and kind.name in _STORAGES and isinstance(key, str)):
            raise InvalidInput(f"{what}: expected a tensor of plain numbers", where=self.where)
        code = _STORAGES[kind.name]
        if key not in self._storages:
            content = self._archive.read(f"{self._folder}data/{key}")
            if len(content) % np.dtype(code).itemsize:
                raise InvalidInput(f"{what}: the storage {key!r} is cut off", where=self.where)
            self._storages[key] = np.frombuffer(content, dtype=np.uint8)
        raw = self._storages[key]
        if not isinstance(count, int) or count * np.dtype(code).itemsize != raw.size:
            message = f"{what}: the storage {key!r} has {raw.size} bytes, which are not as many as the file says"
            raise InvalidInput(message, where=self.where)
        elements = raw.view(np.dtype(self._order + code) if code[1] != "1" else np.dtype(code))
        if kind.name == "BFloat16Storage":
            return (elements.astype(np.uint32) << 16).view(np.float32)
        native = elements.astype(elements.dtype.newbyteorder("="))
        return native.astype(np.float32) if code == "f2" else native


def mapping_of(value: Any) -> dict[Any, Any] | None:
    """The entries of a dictionary or an OrderedDict."""
    if isinstance(value, dict):
        return value
    if isinstance(value, Built) and value.function == Global("collections", "OrderedDict"):
        return value.entries
    return None
