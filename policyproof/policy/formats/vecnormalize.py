"""Statistics of Stable-Baselines3's VecNormalize (`vecnormalize.pkl`), put before a network.

    observation -> clip((observation - mean) / sqrt(variance + epsilon), -clip_obs, clip_obs)

Invariant: the pickle is read and not executed.  The square root is rounded to float64, as
VecNormalize itself does; VecNormalize also rounds the result to float32, which counts as part of the
deployed arithmetic and not of the function.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from policyproof.policy.formats.container import read_bytes
from policyproof.policy.formats.layers import floats, root
from policyproof.policy.formats.numpy_pickle import array_of
from policyproof.policy.formats.restricted_pickle import Built, Names, read_pickle
from policyproof.policy.formats.spaces import SPACE_NAMES
from policyproof.policy.network import Clip, Layer, Network, Normalise
from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature

_NORMALISER = "stable_baselines3.common.vec_env.vec_normalize.VecNormalize"
_STATISTICS = "stable_baselines3.common.running_mean_std.RunningMeanStd"
_NAMES = SPACE_NAMES | Names(_NORMALISER, _STATISTICS, "builtins.set", "collections.deque", "collections.defaultdict")


def with_vecnormalize(network: Network, path: str | Path) -> Network:
    """The network behind the normalisation of its observations that the file describes."""
    layers = read_vecnormalize(path, network.input_size)
    return Network((*layers, *network.layers), network.input_size, network.precision, network.source)


def read_vecnormalize(path: str | Path, input_size: int) -> list[Layer]:
    """The layers that normalise observations; none when the file says that observations are left alone."""
    where = str(path)
    normaliser = read_pickle(read_bytes(path), _NAMES, where)
    if not (isinstance(normaliser, Built) and normaliser.function.path == _NORMALISER):
        raise InvalidInput("not a pickle of VecNormalize", where=where)
    state = normaliser.state
    if not isinstance(state, dict):
        raise InvalidInput("a VecNormalize without its state", where=where)
    # Old versions have no such switch.
    if state.get("norm_obs", True) is False:
        return []
    statistics = state.get("obs_rms")
    if isinstance(statistics, dict):
        raise UnsupportedFeature([Feature(where, "statistics of dictionary observations")])
    if not (isinstance(statistics, Built) and statistics.function.path == _STATISTICS):
        raise InvalidInput("a VecNormalize without statistics of observations", where=where)
    if not isinstance(statistics.state, dict):
        raise InvalidInput("statistics without their state", where=where)
    mean, variance = (floats(array_of(statistics.state.get(key), key, where)).ravel() for key in ("mean", "var"))
    epsilon, bound = (floats(array_of(state.get(key), key, where)) for key in ("epsilon", "clip_obs"))
    if mean.size != input_size or variance.size != input_size:
        message = f"statistics of {mean.size} observed values, but the network has {input_size} inputs"
        raise InvalidInput(message, where=where)
    if epsilon.ndim or bound.ndim or not bound >= 0 or not (variance + epsilon > 0).all():
        raise InvalidInput("expected positive variances, and a clip_obs that is not negative", where=where)
    return [Normalise(mean, root(variance + epsilon)), Clip(np.array(-bound), np.array(bound))]
