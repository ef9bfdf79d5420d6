"""Files that hold networks, read into `Network` without executing anything of them.

One reader per format; the suffix of the file decides.  Whatever the file holds, a reader returns a
network or raises `InvalidInput` or `UnsupportedFeature`, the latter with all that is unsupported.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from policyproof.policy.formats.against_runtime import RuntimeComparison, compare_with_runtime
from policyproof.policy.formats.keras_file import read_keras
from policyproof.policy.formats.nnet import read_nnet
from policyproof.policy.formats.npz import read_npz, write_npz
from policyproof.policy.formats.onnx_file import read_onnx, write_onnx
from policyproof.policy.formats.sb3 import Sb3Policy, read_sb3
from policyproof.policy.formats.torch_file import read_torch
from policyproof.policy.formats.vecnormalize import with_vecnormalize
from policyproof.policy.network import Network
from policyproof.run.errors import InvalidInput

__all__ = [
    "SUFFIXES",
    "RuntimeComparison",
    "Sb3Policy",
    "compare_with_runtime",
    "read_network",
    "read_sb3",
    "with_vecnormalize",
    "write_npz",
    "write_onnx",
]


def _read_sb3_network(path: str | Path) -> Network:
    return read_sb3(path).network


# Formats that may leave open which activation they mean, and formats that say it.
_ASKING: dict[str, Callable[..., Network]] = {".pt": read_torch, ".pth": read_torch, ".npz": read_npz}
_SAYING: dict[str, Callable[[str | Path], Network]] = {
    ".nnet": read_nnet,
    ".onnx": read_onnx,
    ".zip": _read_sb3_network,
    ".h5": read_keras,
    ".keras": read_keras,
}

SUFFIXES = (*_SAYING, *_ASKING)


def read_network(path: str | Path, *, activation: str | None = None, vecnormalize: str | Path | None = None) -> Network:
    """The network in a file.

    `activation` answers for formats that do not say which activation follows their linear layers;
    `vecnormalize` is a file of statistics by which inputs are normalised first.
    """
    try:
        network = _read(path, activation)
    except InvalidInput as error:
        raise error.located(str(path)) from None
    return network if vecnormalize is None else with_vecnormalize(network, vecnormalize)


def _read(path: str | Path, activation: str | None) -> Network:
    suffix = Path(path).suffix.lower()
    if suffix in _ASKING:
        return _ASKING[suffix](path, activation=activation)
    if suffix in _SAYING:
        if activation is not None:
            message = f"{suffix} files say themselves which activations they use; do not name one"
            raise InvalidInput(message, where=str(path))
        return _SAYING[suffix](path)
    message = f"unknown suffix {suffix!r} of a network file (allowed: {', '.join(SUFFIXES)})"
    raise InvalidInput(message, where=str(path))
