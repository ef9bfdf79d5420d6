"""One question as the encodings read it: a box, a condition, a network, and the output that must win.

The oracle asks about batches of regions and switched policies; this is what is left of that for one
solver call.  It is plain data, so that it can travel to a child process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from policyproof.model.expressions import TRUE, Expression, Kind
from policyproof.policy.network import Activation, Clip, Layer, Network

Floats = NDArray[np.float64]
ActivationBounds = Sequence[tuple[Floats, Floats]]
"""Sound bounds of the arguments of every activation and clip of a network, layer by layer."""


@dataclass(frozen=True)
class Column:
    """A state variable and its interval; None: unbounded there."""

    name: str
    kind: Kind
    lower: int | Fraction | None
    upper: int | Fraction | None


@dataclass(frozen=True, eq=False)
class Question:
    """Is there a state in the box that satisfies the condition and in which `network` chooses `output`?"""

    columns: tuple[Column, ...]
    condition: Expression = TRUE
    network: Network | None = None
    """None: the question is about the condition alone."""
    inputs: tuple[Expression, ...] = ()
    output: int = 0
    applicability: tuple[Expression, ...] | None = None
    bounds: ActivationBounds | None = None

    @property
    def rivals(self) -> list[int]:
        """The outputs that `output` must beat if they are applicable."""
        count = 0 if self.network is None else self.network.output_size
        return [index for index in range(count) if index != self.output]

    def must_exceed(self, rival: int) -> bool:
        """The lowest output wins a tie, so an earlier rival must be exceeded, a later one only reached."""
        return rival < self.output


def bends(layer: Layer) -> bool:
    """Is this a layer whose arguments `ActivationBounds` bound?"""
    return isinstance(layer, (Activation, Clip))
