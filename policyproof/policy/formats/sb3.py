"""Policies that Stable-Baselines3 saved (`model.save`), without it and without Torch.

The archive holds `data`, a JSON object with the settings, and `policy.pth`, the weights as a state
dictionary.  Which class the policy has, and its spaces, stand in `data` as pickles, which are read
and not executed; the activation stands there as text, when it is not the default.

    DQN                    q_net.q_net.*                                            ReLU by default
    PPO, A2C, MaskablePPO, TRPO   mlp_extractor.policy_net.*, then action_net       Tanh by default

Discrete actions: the outputs are Q-values or logits, of which `predict(deterministic=True)` takes the
greatest.  Box actions: the outputs are the means, then clipped to the bounds of the action space; or,
with `squash_output`, passed through tanh and stretched to the bounds.

Discrete observations reach the network one-hot, in order; a box with several dimensions is flattened
row by row.  Statistics of VecNormalize are not in the archive: Stable-Baselines3 saves them in a file
of their own.

Invariant: what `predict` computes is read completely or refused by name.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from policyproof.policy.formats.container import Archive, parse_json, read_bytes
from policyproof.policy.formats.layers import activation_named, precision_of, scaling
from policyproof.policy.formats.restricted_pickle import class_named_by
from policyproof.policy.formats.spaces import Space, read_space
from policyproof.policy.formats.torch_file import interleave, linear_layers, read_state_dictionary
from policyproof.policy.network import Activation, Clip, Layer, Network
from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature

_VALUE_POLICIES = {"stable_baselines3.dqn.policies.DQNPolicy": "DQN"}
_ACTOR_POLICIES = {
    "stable_baselines3.common.policies.ActorCriticPolicy": "PPO",
    "sb3_contrib.common.maskable.policies.MaskableActorCriticPolicy": "MaskablePPO",
}
_REFUSED = {
    "sb3_contrib.qrdqn.policies.QRDQNPolicy": "QRDQN: its outputs are quantiles of each value",
    "sb3_contrib.common.recurrent.policies.RecurrentActorCriticPolicy": "RecurrentPPO: its policy has a memory",
}
_ACTIVATION = re.compile(r"<class 'torch\.nn\.modules\.activation\.(\w+)'>")
_ACTIVATION_NAMES = {"ReLU": "relu", "Tanh": "tanh", "LeakyReLU": "leaky_relu", "Sigmoid": "sigmoid"}

_FLATTENS = "<class 'stable_baselines3.common.torch_layers.FlattenExtractor'>"


_VALUE_LAYERS = ("q_net.q_net.",)
_ACTOR_LAYERS = ("mlp_extractor.shared_net.", "mlp_extractor.policy_net.", "action_net.")
# The critic, the target network and the noise take no part in a deterministic prediction.
_UNUSED_BY_VALUES = ("q_net_target.",)
_UNUSED_BY_ACTORS = ("mlp_extractor.value_net.", "value_net.", "vf_features_extractor.", "log_std")


@dataclass(frozen=True, eq=False)
class Sb3Policy:
    """A policy's network, and what the file says about connecting it to an environment."""

    network: Network
    algorithm: str
    kind: Literal["labels", "values"]
    """Whether the greatest output names the action, or the outputs are the action."""
    observation: str
    notes: tuple[str, ...] = ()


def read_sb3(path: str | Path) -> Sb3Policy:
    """The policy of a `.zip` file."""
    return _Reader(str(path), Archive(read_bytes(path), str(path))).policy()


def computing_tensors(names: Iterable[str]) -> list[str]:
    """Those that take part in a deterministic prediction, in the order of the computation."""
    given = list(names)
    return [name for beginning in _VALUE_LAYERS + _ACTOR_LAYERS for name in given if name.startswith(beginning)]


class _Reader:
    def __init__(self, where: str, archive: Archive) -> None:
        self.where = where
        if "data" not in archive or "policy.pth" not in archive:
            message = "not a model that Stable-Baselines3 saved: it has no members data and policy.pth"
            raise InvalidInput(message, where=where)
        data = parse_json(archive.read("data"), f"{where}, data")
        if not isinstance(data, dict):
            raise InvalidInput("data: expected an object", where=where)
        self.data: dict[str, Any] = data
        self.archive = archive
        self.unsupported: list[Feature] = []

    def policy(self) -> Sb3Policy:
        policy_class = self._policy_class()
        observation, action = self._space("observation_space"), self._space("action_space")
        self.unsupported += [Feature(self.where, what) for what in self._refused(policy_class, observation, action)]
        if self.unsupported or observation is None or action is None:
            raise UnsupportedFeature(self.unsupported)
        network = self._network(policy_class, action)
        if network.input_size != observation.vector_size:
            message = f"the network has {network.input_size} inputs, observations ({observation}) are "
            raise InvalidInput(message + f"{observation.vector_size} numbers", where=self.where)
        outputs = action.counts[0] if action.kind == "Discrete" else action.vector_size
        if network.output_size != outputs:
            message = f"the network has {network.output_size} outputs, the action space ({action}) needs {outputs}"
            raise InvalidInput(message, where=self.where)
        return Sb3Policy(
            network=network,
            algorithm=self._algorithm(policy_class),
            kind="labels" if action.kind == "Discrete" else "values",
            observation=str(observation) + (", one-hot" if observation.counts else ""),
            notes=tuple(self._notes(policy_class, observation, action)),
        )

    def _policy_class(self) -> str:
        entry = self._object("policy_class")
        name = class_named_by(self._pickle("policy_class"), f"{self.where}, policy_class")
        if name is None:
            # Classes that do not belong to an installed package are pickled as code.
            what = f"a policy class of its own, from the module {str(entry.get('__module__'))[:100]!r}"
            raise UnsupportedFeature([Feature(self.where, what)])
        return name

    def _object(self, key: str) -> dict[str, Any]:
        value = self.data.get(key)
        if not isinstance(value, dict):
            raise InvalidInput(f"data: expected an object under {key!r}", where=self.where)
        return value

    def _pickle(self, key: str) -> bytes:
        text = self._object(key).get(":serialized:")
        try:
            return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
        except ValueError:
            raise InvalidInput(f"data: the pickle under {key!r} is damaged", where=self.where) from None

    def _space(self, key: str) -> Space | None:
        try:
            return read_space(self._pickle(key), key, self.where)
        except UnsupportedFeature as error:
            self.unsupported.extend(error.features)
            return None

    @property
    def _settings(self) -> Mapping[str, Any]:
        return self._object("policy_kwargs")

    def _algorithm(self, policy_class: str) -> str:
        if policy_class in _VALUE_POLICIES:
            return _VALUE_POLICIES[policy_class]
        if _ACTOR_POLICIES[policy_class] != "PPO":
            return _ACTOR_POLICIES[policy_class]
        # PPO, A2C and TRPO share a policy class; their own settings tell them apart.
        if "cg_max_steps" in self.data:
            return "TRPO"
        return "PPO" if "clip_range" in self.data else "A2C"

    def _refused(self, policy_class: str, observation: Space | None, action: Space | None) -> list[str]:
        """Everything else in the file that this reader cannot express."""
        found = []
        if policy_class not in _VALUE_POLICIES and policy_class not in _ACTOR_POLICIES:
            found.append(_REFUSED.get(policy_class, f"the policy class {policy_class[:200]}"))
        extractor = self._settings.get("features_extractor_class", _FLATTENS)
        if extractor != _FLATTENS:
            found.append(f"the features extractor {str(extractor)[:200]}")
        if observation is not None and observation.image:
            found.append(f"image observations ({observation})")
        if observation is not None and any(observation.starts):
            found.append(f"observations ({observation}) that do not start at 0")
        if action is not None and action.kind not in ("Discrete", "Box"):
            found.append(f"actions of several components ({action})")
        if "activation_fn" in self._settings and self._activation() is None:
            found.append(f"the activation {str(self._settings['activation_fn'])[:200]}")
        return found

    def _activation(self) -> str | None:
        text = self._settings.get("activation_fn")
        match = _ACTIVATION.fullmatch(text) if isinstance(text, str) else None
        return _ACTIVATION_NAMES.get(match[1]) if match else None

    def _network(self, policy_class: str, action: Space) -> Network:
        where = f"{self.where}, policy.pth"
        tensors = read_state_dictionary(self.archive.read("policy.pth"), where)
        values = policy_class in _VALUE_POLICIES
        known = _VALUE_LAYERS + _UNUSED_BY_VALUES if values else _ACTOR_LAYERS + _UNUSED_BY_ACTORS
        unknown = [Feature(where, f"the layer {name}") for name in tensors if not name.startswith(known)]
        if unknown:
            raise UnsupportedFeature(unknown)
        names = computing_tensors(tensors)
        linear = linear_layers({name: tensors[name] for name in names}, where)
        between = activation_named(self._activation() or ("relu" if values else "tanh"), self.where)
        layers = [*interleave(linear, between), *self._after(action)]
        return Network(tuple(layers), linear[0].sizes[0], precision_of(tensors[name] for name in names), self.where)

    def _after(self, action: Space) -> list[Layer]:
        if action.lower is None or action.upper is None:
            return []
        if self._settings.get("squash_output") is True:
            return [Activation("tanh"), scaling((action.upper - action.lower) / 2, (action.upper + action.lower) / 2)]
        return [Clip(action.lower, action.upper)]

    def _notes(self, policy_class: str, observation: Space, action: Space) -> list[str]:
        notes = []
        if _ACTOR_POLICIES.get(policy_class) == "MaskablePPO":
            notes.append("a policy that is deployed with action masks chooses among applicable actions only (filter)")
        if observation.counts:
            notes.append(f"observations ({observation}) reach the network one-hot, component by component")
        elif len(observation.shape) > 1:
            notes.append(f"observations ({observation}) reach the network row by row")
        if any(action.starts):
            start = action.starts[0]
            notes.append(f"the action space starts at {start}, but predict returns the output's index, from 0")
        if action.lower is not None and action.upper is not None:
            how = "squashed by tanh" if self._settings.get("squash_output") is True else "clipped"
            bounded = bool(np.isfinite(action.lower).all() and np.isfinite(action.upper).all())
            notes.append(
                f"the outputs are mean actions, {how} to the bounds{'' if bounded else ' (some are infinite)'}"
            )
        return notes
