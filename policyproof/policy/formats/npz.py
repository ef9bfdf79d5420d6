"""PolicyProof's own plain format: the arrays of a network in a NumPy archive `.npz`.

    weights_0, bias_0, weights_1, bias_1, ...   weights[output, input], float32 or float64
    activation      a text: relu (the default), leaky_relu, tanh, sigmoid or linear, between the layers
    slope           of leaky_relu, 0.01 by default
    subtract, divide          before the first layer: (x - subtract) / divide
    clip_lower, clip_upper    after that, still before the first layer

All but the weights and biases may be missing.  `numpy.savez(file, weights_0=..., bias_0=...)` makes
such a file.

Invariant: nothing is pickled, and every array is exactly as large as the bytes it has in the file.
"""

from __future__ import annotations

import io
import math
import tokenize
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policyproof.policy.formats.container import Archive, read_bytes
from policyproof.policy.formats.layers import DEFAULT_SLOPE, activation_named, floats, precision_of
from policyproof.policy.formats.torch_file import interleave
from policyproof.policy.network import Activation, Affine, Clip, Layer, Network, Normalise
from policyproof.run.errors import InvalidInput

# The header is a Python literal, which NumPy takes apart by the tokenizer and the parser of Python.
_HEADER_ERRORS = (
    ValueError,
    TypeError,
    EOFError,
    OSError,
    SyntaxError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,
)

_BEFORE = ("subtract", "divide", "clip_lower", "clip_upper")


def read_npz(path: str | Path, *, activation: str | None = None) -> Network:
    """The network of an `.npz` file; `activation` answers when the file names none."""
    where = str(path)
    archive = Archive(read_bytes(path), where)
    arrays = {name.removesuffix(".npy"): _array(archive.read(name), f"{where}: {name}") for name in archive.names}
    count = sum(name.startswith("weights_") for name in arrays)
    paired = [f"{part}_{number}" for number in range(count) for part in ("weights", "bias")]
    missing = [name for name in paired if name not in arrays]
    unknown = sorted(set(arrays) - {*paired, *_BEFORE, "activation", "slope"})
    if not count or missing or unknown:
        raise InvalidInput(
            f"expected weights_0, bias_0, weights_1, ... and perhaps activation, slope, {', '.join(_BEFORE)}; "
            f"missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}",
            where=where,
        )
    wrong = [name for name, array in arrays.items() if name != "activation" and array.dtype.kind not in "fiu"]
    if wrong:
        raise InvalidInput(f"not of numbers: {', '.join(wrong)}", where=where)
    linear = []
    for number in range(count):
        weights, bias = arrays[f"weights_{number}"], arrays[f"bias_{number}"]
        if weights.ndim != 2:
            raise InvalidInput(f"weights_{number} has {weights.ndim} dimensions, expected 2", where=where)
        linear.append(Affine(floats(weights), floats(bias)))
    between = _activation(arrays, activation, where)
    layers = [*_before(arrays), *interleave(linear, between)]
    return Network(tuple(layers), linear[0].sizes[0], precision_of(arrays[name] for name in paired), where)


def _before(arrays: dict[str, NDArray[Any]]) -> list[Layer]:
    layers: list[Layer] = []
    if "subtract" in arrays or "divide" in arrays:
        layers.append(Normalise(floats(arrays.get("subtract", 0.0)), floats(arrays.get("divide", 1.0))))
    if "clip_lower" in arrays or "clip_upper" in arrays:
        layers.append(Clip(floats(arrays.get("clip_lower", -np.inf)), floats(arrays.get("clip_upper", np.inf))))
    return layers


def _activation(arrays: dict[str, NDArray[Any]], given: str | None, where: str) -> Activation | None:
    if "activation" in arrays:
        named = str(arrays["activation"]) if arrays["activation"].shape == () else "(an array)"
        if given is not None and given != named:
            raise InvalidInput(f"this file names the activation {named!r} itself, not {given!r}", where=where)
    else:
        named = given or "relu"
    result = activation_named(named, where)
    slope = arrays.get("slope", np.array(DEFAULT_SLOPE))
    if slope.size != 1:
        raise InvalidInput("slope is not one number", where=where)
    return Activation("leaky_relu", float(slope.ravel()[0])) if result and result.kind == "leaky_relu" else result


def _array(content: bytes, where: str) -> NDArray[Any]:
    """One array in NumPy's format: numbers, or a text."""
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise InvalidInput(f"an array of the unknown version {version}", where=where)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read_header(stream)
    except _HEADER_ERRORS as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInput(f"not a NumPy array: {reason}", where=where) from None
    if dtype.kind not in "fiuU" or dtype.itemsize == 0:
        raise InvalidInput(f"an array of the type {dtype}, expected numbers", where=where)
    data = content[stream.tell() :]
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize != len(data):
        raise InvalidInput(f"{len(data)} bytes are not an array of the shape {list(shape)}", where=where)
    try:
        return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if fortran else "C")
    except ValueError as error:
        raise InvalidInput(f"not a NumPy array: {error}", where=where) from None


def write_npz(network: Network, path: str | Path) -> None:
    """Write a network of this format's kind; reading it gives the same layers.

    Weights are stored in single precision when the network has it and none of them changes by that.
    """
    layers = list(network.layers)
    stored: dict[str, NDArray[Any]] = {}
    if layers and isinstance(layers[0], Normalise):
        stored.update(subtract=layers[0].subtract, divide=layers[0].divide)
        del layers[0]
    if layers and isinstance(layers[0], Clip):
        stored.update(clip_lower=layers[0].lower, clip_upper=layers[0].upper)
        del layers[0]
    linear = [layer for layer in layers if isinstance(layer, Affine)]
    activations = [layer for layer in layers if isinstance(layer, Activation)]
    activation = activations[0] if activations else None
    same = len({(layer.kind, layer.slope) for layer in activations}) <= 1
    expected = interleave(linear, activation)
    if not same or [type(layer) for layer in expected] != [type(layer) for layer in layers] or not linear:
        message = "a .npz file holds one normalisation, one clip, and linear layers with one activation between them"
        raise InvalidInput(message, where=network.source)
    for number, layer in enumerate(linear):
        stored.update({f"weights_{number}": layer.weights, f"bias_{number}": layer.bias})
    if network.precision == "float32":
        numbers = {name: array for name, array in stored.items() if name.startswith(("weights_", "bias_"))}
        single = {name: _in_float32(array) for name, array in numbers.items()}
        if all((single[name] == numbers[name]).all() for name in numbers):
            stored.update(single)
    stored["activation"] = np.array(activation.kind if activation else "linear")
    if activation and activation.kind == "leaky_relu":
        stored["slope"] = np.array(activation.slope)
    with Path(path).open("wb") as file:
        np.savez(file, **stored)  # type: ignore[arg-type]


def _in_float32(array: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        return array.astype(np.float32)
