"""NumPy arrays and numbers as pickles describe them.

NumPy writes an array as `_reconstruct` with a state (version, shape, type, Fortran order, bytes), or
in newer protocols as `_frombuffer(bytes, type, shape, order)`; a number of a NumPy type as
`scalar(type, bytes)`.  A type is `dtype(code, ...)` with a state whose second entry is the byte order.

Invariant: the bytes are exactly as many as type and shape need, so that nothing is allocated beyond
what the file holds.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policyproof.policy.formats.restricted_pickle import Built, Global, Names
from policyproof.run.errors import InvalidInput

_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric", "numpy._core.numeric")
_FUNCTIONS = ("_reconstruct", "scalar", "_frombuffer")

NUMPY_NAMES = Names(
    "numpy.ndarray",
    "numpy.dtype",
    "_codecs.encode",
    *(f"{module}.{function}" for module in _MODULES for function in _FUNCTIONS),
)

_CODE = re.compile(r"[fiu][1248]|b1")


def array_of(value: Any, what: str, where: str) -> NDArray[Any]:
    """The array or number that `value`, taken from a pickle, describes."""
    if isinstance(value, (int, float)):
        return np.array(value)
    if isinstance(value, Built) and value.function.path in NUMPY_NAMES:
        name, arguments, state = value.function.name, value.arguments, value.state
        if name == "_reconstruct" and isinstance(state, tuple) and len(state) == 5:
            _, shape, kind, fortran, content = state
            return _array(content, kind, shape, "F" if fortran is True else "C", what, where)
        if name == "scalar" and len(arguments) == 2:
            return _array(arguments[1], arguments[0], (), "C", what, where)
        if name == "_frombuffer" and len(arguments) == 4:
            content, kind, shape, order = arguments
            return _array(content, kind, shape, "F" if order == "F" else "C", what, where)
    raise InvalidInput(f"{what}: expected an array of numbers", where=where)


def dtype_of(value: Any, what: str, where: str) -> np.dtype[Any]:
    """The NumPy type that `value` describes, when it is one of plain numbers."""
    if isinstance(value, Built) and value.function == Global("numpy", "dtype") and value.arguments:
        code, state = value.arguments[0], value.state
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else "="
        if isinstance(code, str) and _CODE.fullmatch(code) and code != "f1" and order in ("<", ">", "=", "|"):
            return np.dtype(order + code)
    raise InvalidInput(f"{what}: expected a type of plain numbers", where=where)


def _array(content: Any, kind: Any, shape: Any, order: str, what: str, where: str) -> NDArray[Any]:
    dtype = dtype_of(kind, what, where)
    if isinstance(content, Built) and content.function == Global("_codecs", "encode") and content.arguments:
        # Protocol 2 has no bytes: it writes them as text in Latin-1.
        content = _latin(content.arguments[0])
    shape = (shape,) if isinstance(shape, int) else shape
    fits = (
        isinstance(content, (bytes, bytearray))
        and isinstance(shape, tuple)
        and all(isinstance(size, int) and size >= 0 for size in shape)
        and len(shape) <= 8
        and math.prod(shape) * dtype.itemsize == len(content)
    )
    if not fits:
        raise InvalidInput(f"{what}: an array whose bytes do not fit its shape", where=where)
    flat = np.frombuffer(content, dtype=dtype).astype(dtype.newbyteorder("="))
    return flat.reshape(shape, order="F" if order == "F" else "C")


def _latin(text: Any) -> bytes | None:
    try:
        return text.encode("latin-1") if isinstance(text, str) else None
    except UnicodeEncodeError:
        return None
