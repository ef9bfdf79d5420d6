"""PolicyProof proves or refutes what a neural policy can do in its environment.

Everything is imported when it is first used, so that `import policyproof` stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from policyproof.version import __version__

if TYPE_CHECKING:
    from policyproof.api import Answer, verify
    from policyproof.evidence.replay import Replay, replay
    from policyproof.evidence.trace import Trace, read_trace
    from policyproof.model.building import ModelBuilder, between, element, outcome
    from policyproof.model.grammar import parse_condition, parse_expression, parse_property
    from policyproof.model.source import LoadedModel, load_model
    from policyproof.policy.load import load_policy
    from policyproof.policy.policy import Policy
    from policyproof.run.budget import Budget
    from policyproof.run.errors import BackendFailure, InvalidInput, PolicyProofError, UnsupportedFeature
    from policyproof.training.gym_environment import to_gym

_HOMES = {
    "policyproof.api": ["Answer", "verify"],
    "policyproof.evidence.replay": ["Replay", "replay"],
    "policyproof.evidence.trace": ["Trace", "read_trace"],
    "policyproof.model.building": ["ModelBuilder", "between", "element", "outcome"],
    "policyproof.model.grammar": ["parse_condition", "parse_expression", "parse_property"],
    "policyproof.model.source": ["LoadedModel", "load_model"],
    "policyproof.policy.load": ["load_policy"],
    "policyproof.policy.policy": ["Policy"],
    "policyproof.run.budget": ["Budget"],
    "policyproof.training.gym_environment": ["to_gym"],
    "policyproof.run.errors": ["BackendFailure", "InvalidInput", "PolicyProofError", "UnsupportedFeature"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Answer",
    "BackendFailure",
    "Budget",
    "InvalidInput",
    "LoadedModel",
    "ModelBuilder",
    "Policy",
    "PolicyProofError",
    "Replay",
    "Trace",
    "UnsupportedFeature",
    "__version__",
    "between",
    "element",
    "load_model",
    "load_policy",
    "outcome",
    "parse_condition",
    "parse_expression",
    "parse_property",
    "read_trace",
    "replay",
    "to_gym",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        # `replay` is a module and a function; the function is what users mean.
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'policyproof' has no attribute {name!r}")
