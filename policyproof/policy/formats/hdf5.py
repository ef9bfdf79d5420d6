"""HDF5 files, by the optional package `h5py`: arrays and attributes of this file only.

HDF5 can point into other files in three ways (external links, external storage, virtual arrays) and
can declare arrays far larger than the file.

Invariant: only hard links are followed, no array comes from elsewhere, and the arrays read together
stay below the limit.  What cannot be promised for this format: the HDF5 library is C code that some
damaged files send into an endless loop, before any of ours runs.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policyproof.policy.formats.container import Allowance
from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature

MAXIMAL_ENTRIES = 100_000
"""Of an attribute that lists names."""

# What h5py raises on damaged files, depending on where the damage is.
_ERRORS = (OSError, KeyError, ValueError, RuntimeError, TypeError, AttributeError, OverflowError, MemoryError)


class Hdf5:
    """An open file; a context that closes it."""

    def __init__(self, content: BytesIO, where: str) -> None:
        self.where = where
        try:
            self._h5py: Any = importlib.import_module("h5py")
        except ImportError:
            message = "reading Keras files needs h5py: pip install 'policyproof[keras]'"
            raise InvalidInput(message, where=where) from None
        self._allowance = Allowance(where)
        try:
            self._file: Any = self._h5py.File(content, "r")
        except _ERRORS as error:
            raise InvalidInput(f"not an HDF5 file, or a damaged one: {error}", where=where) from None

    def __enter__(self) -> Hdf5:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def has(self, path: str) -> bool:
        return self._find(path) is not None

    def members(self, path: str) -> list[str]:
        """The names in a group."""
        with self._reading(path):
            group = self._get(path)
            if not isinstance(group, self._h5py.Group):
                raise InvalidInput(f"{path} is not a group", where=self.where)
            return list(group)

    def attribute(self, path: str, name: str) -> Any:
        """An attribute of a group; none when it is missing."""
        with self._reading(f"the attribute {name!r} of {path}"):
            attributes = self._get(path).attrs
            if name not in attributes:
                return None
            found = attributes.get_id(name)
            # A damaged attribute may claim any size, and texts are converted one by one.
            if math.prod(found.shape) > MAXIMAL_ENTRIES:
                raise InvalidInput(f"the attribute {name!r} of {path} is too long", where=self.where)
            self._allowance.take(math.prod(found.shape) * found.dtype.itemsize)
            return attributes[name]

    def texts(self, value: Any) -> list[str]:
        """The texts in an attribute that lists names."""
        entries = [] if value is None else np.asarray(value).ravel().tolist()
        result = [entry.decode("utf-8", "replace") if isinstance(entry, bytes) else entry for entry in entries]
        if not all(isinstance(entry, str) for entry in result):
            raise InvalidInput("an attribute that does not list names", where=self.where)
        return result

    def array(self, path: str) -> NDArray[Any]:
        """The numbers of an array."""
        with self._reading(f"the array {path}"):
            found = self._get(path)
            if not isinstance(found, self._h5py.Dataset):
                raise InvalidInput(f"{path} is not an array", where=self.where)
            if found.is_virtual or found.external:
                raise UnsupportedFeature([Feature(self.where, f"the array {path} in another file")])
            if found.dtype.kind not in "fiu":
                raise InvalidInput(f"the array {path} is not of numbers", where=self.where)
            self._allowance.take(found.size * found.dtype.itemsize)
            return np.asarray(found[()])

    def _get(self, path: str) -> Any:
        found = self._find(path)
        if found is None:
            raise InvalidInput(f"there is no {path} in the file", where=self.where)
        return found

    def _find(self, path: str) -> Any:
        """The object at a path, following hard links only."""
        found = self._file
        with self._reading(path):
            for step in path.split("/"):
                if not step:
                    continue
                if not isinstance(found, self._h5py.Group) or step not in found:
                    return None
                if not isinstance(found.get(step, getlink=True), self._h5py.HardLink):
                    raise UnsupportedFeature([Feature(self.where, f"a link to elsewhere ({path})")])
                found = found[step]
        return found

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        try:
            yield
        except _ERRORS as error:
            raise InvalidInput(f"{what} is damaged: {error}", where=self.where) from None
