"""Loading a policy for a model: from an interface file, or from what lies beside a network."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

from policyproof.model.automata import Model
from policyproof.model.source import LoadedModel
from policyproof.policy.interface import read_interface
from policyproof.policy.network import Network
from policyproof.policy.policy import Policy
from policyproof.run.errors import InvalidInput

INTERFACES = (".json", ".jani2nnet")


def load_policy(
    path: str | Path,
    model: LoadedModel | Model,
    *,
    filter: bool | None = None,  # noqa: A002 - the word of the papers and of the command line
    vecnormalize: str | Path | None = None,
) -> Policy:
    """The policy of an interface file (`policy.json`, `.jani2nnet`), or of a network with one beside it.

    `filter` overrides what the interface says; `vecnormalize` names a file of SB3 statistics.
    """
    path = Path(path)
    if not path.is_file():
        raise InvalidInput("no such file", where=str(path))
    interface = path if path.suffix in INTERFACES else _interface_beside(path)

    def read(file: Path, **options: Any) -> Network:
        from policyproof.policy.formats import read_network

        if vecnormalize is not None:
            options["vecnormalize"] = Path(vecnormalize)
        return read_network(file, **options)

    network_of_automata = model.model if isinstance(model, LoadedModel) else model
    policy = read_interface(interface, network_of_automata, read)
    return policy if filter is None else dataclasses.replace(policy, filter=filter)


def _interface_beside(path: Path) -> Path:
    """`policy.onnx` is described by `policy.json`, `policy.jani2nnet`, or a `policy.json` in its folder."""
    candidates = [path.with_suffix(suffix) for suffix in INTERFACES]
    candidates.append(path.with_name("policy.json"))
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    shown = ", ".join(candidate.name for candidate in dict.fromkeys(candidates))
    raise InvalidInput(
        f"a network needs an interface file that connects it to the model; none of {shown} is there "
        "(write a first one with: policyproof policy init MODEL NETWORK)",
        where=str(path),
    )


def fingerprint(policy: Policy) -> str:
    """A hash of all files of a policy."""
    digest = hashlib.sha256()
    for name in policy.files:
        digest.update(Path(name).read_bytes())
    return digest.hexdigest()
