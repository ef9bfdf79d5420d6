"""`convert` and `policy init`: writing models, networks and interface files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from policyproof.model.convert import flat_network
from policyproof.model.flat import flatten
from policyproof.model.jani.write import write_model
from policyproof.model.json_text import dumps
from policyproof.model.source import LoadedModel, load_model
from policyproof.policy.formats import read_network, write_npz, write_onnx
from policyproof.policy.interface import initial_interface
from policyproof.run.errors import InvalidInput
from policyproof.run.files import write_atomically


def convert_model(
    source: Path, target: Path, constants: Mapping[str, str], *, flattened: bool, nondeterministic: bool
) -> None:
    """Write a model as JANI: its constants fixed, its functions expanded, flattened if asked for."""
    if target.suffix != ".jani":
        raise InvalidInput(
            f"a model is written as .jani, not as {target.suffix or 'a file without suffix'}", where=str(target)
        )
    if nondeterministic and not flattened:
        raise InvalidInput("--nondeterministic needs --flatten")
    loaded = load_model(source, constants=constants)
    model = loaded.model
    properties = [entry.read() for entry in loaded.entries]
    if flattened:
        # Properties speak of the network's variables and locations, which have other names now.
        model, properties = flat_network(flatten(model), nondeterministic=nondeterministic), []
    write_atomically(target, dumps(write_model(model, properties), indent=1) + "\n")


def convert_network(source: Path, target: Path, *, activation: str | None, vecnormalize: Path | None) -> None:
    """Write a network as ONNX or npz."""
    options: dict[str, Any] = {"activation": activation}
    if vecnormalize is not None:
        options["vecnormalize"] = vecnormalize
    writers = {".onnx": write_onnx, ".npz": write_npz}
    if target.suffix not in writers:
        raise InvalidInput(
            f"a network is written as {' or '.join(writers)}, not as {target.suffix!r}", where=str(target)
        )
    network = read_network(source, **options)
    writers[target.suffix](network, target)


def write_interface(model: LoadedModel, network: Path, out: Path | None, *, activation: str | None) -> Path:
    """A first interface file beside the network; an existing file is never overwritten."""
    target = out or network.with_suffix(".json")
    if target.exists():
        raise InvalidInput("this file exists already; name another one with --out", where=str(target))
    try:
        name = network.resolve().relative_to(target.resolve().parent)
    except ValueError:
        raise InvalidInput(
            "the interface file must lie in the folder of the network, or above it", where=str(target)
        ) from None
    text = initial_interface(
        model.model, read_network(network, activation=activation), str(name), activation=activation
    )
    write_atomically(target, text)
    return target
