"""Observation and action spaces of Gym and Gymnasium, as pickled by Stable-Baselines3.

The readable texts beside the pickles round the bounds of a box, so the pickles are read, by the
restricted reader.

Invariant: a `Space` tells everything that decides how its values become network inputs or come from
network outputs; spaces of other kinds are unsupported, by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from policyproof.policy.formats.layers import floats
from policyproof.policy.formats.numpy_pickle import NUMPY_NAMES, array_of, dtype_of
from policyproof.policy.formats.restricted_pickle import Built, Names, read_pickle
from policyproof.policy.network import Floats
from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature

# Random number generators travel with a space; nothing of them is used.
SPACE_NAMES = NUMPY_NAMES | Names(
    "gymnasium.spaces.",
    "gym.spaces.",
    "gymnasium.utils.seeding.",
    "gym.utils.seeding.",
    "numpy.random.",
    "collections.OrderedDict",
)


@dataclass(frozen=True, eq=False)
class Space:
    """`kind` is Box, Discrete, MultiDiscrete or MultiBinary."""

    kind: str
    shape: tuple[int, ...]
    counts: tuple[int, ...] = ()
    """How many values each discrete component has."""
    starts: tuple[int, ...] = ()
    """The least value of each discrete component."""
    lower: Floats | None = None
    upper: Floats | None = None
    image: bool = False
    """Three-dimensional bytes, which Stable-Baselines3 divides by 255."""

    @property
    def vector_size(self) -> int:
        """How many network inputs an observation of this space becomes."""
        return sum(self.counts) if self.kind in ("Discrete", "MultiDiscrete") else math.prod(self.shape)

    def __str__(self) -> str:
        if self.kind == "Discrete":
            return f"Discrete({self.counts[0]})"
        if self.kind == "MultiDiscrete":
            return f"MultiDiscrete({list(self.counts)})"
        return f"{self.kind} of shape {list(self.shape)}"


def read_space(pickle: bytes, what: str, where: str) -> Space:
    """The space that a pickle describes."""
    built = read_pickle(pickle, SPACE_NAMES, f"{where}, {what}")
    if not (isinstance(built, Built) and isinstance(built.state, dict) and ".spaces." in built.function.path):
        raise InvalidInput(f"{what}: expected a space", where=where)
    kind, state = built.function.name, built.state
    if kind == "Discrete":
        (count,), start = _integers(state, "n", what, where), state.get("start", 0)
        return Space(kind, (), (count,), _integers({"start": start}, "start", what, where))
    if kind == "MultiDiscrete":
        counts = _integers(state, "nvec", what, where)
        # Absent in old versions, where every component begins at zero.
        starts = _integers(state, "start", what, where) if "start" in state else (0,) * len(counts)
        return Space(kind, (len(counts),), counts, starts)
    if kind in ("Box", "MultiBinary"):
        shape = state.get("_shape", state.get("shape"))
        if not (isinstance(shape, tuple) and all(isinstance(size, int) and 0 <= size < 2**31 for size in shape)):
            raise InvalidInput(f"{what}: a {kind} without a shape", where=where)
        if kind == "MultiBinary":
            return Space(kind, shape)
        lower, upper = (floats(array_of(state.get(key), f"{what}, {key}", where)) for key in ("low", "high"))
        if lower.shape != shape or upper.shape != shape:
            raise InvalidInput(f"{what}: bounds whose shape is not {list(shape)}", where=where)
        image = len(shape) == 3 and dtype_of(state.get("dtype"), f"{what}, dtype", where) == np.uint8
        return Space(kind, shape, lower=lower.ravel(), upper=upper.ravel(), image=image)
    raise UnsupportedFeature([Feature(where, f"{what} of the kind {kind}")])


def _integers(state: dict[Any, Any], key: str, what: str, where: str) -> tuple[int, ...]:
    array = array_of(state.get(key), f"{what}, {key}", where)
    if array.dtype.kind not in "iu" or array.ndim > 1 or array.size == 0:
        raise InvalidInput(f"{what}: {key} is not a list of integers", where=where)
    return tuple(int(value) for value in array.ravel())
