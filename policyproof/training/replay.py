"""Prioritised experience replay (Schaul and others, 2016): what surprised is learnt from more often.

A transition is drawn with probability p_i^alpha / sum_j p_j^alpha, where p_i is the size of its last
error; a new one gets the greatest priority that there is.  To make up for the bias, it counts with
weight (n P(i))^-beta, divided by the greatest weight of the batch.

Idea: the powers stand in the leaves of a binary tree whose inner nodes are sums, one array per level.
A whole batch is drawn, and a whole batch changed, level by level; the draw is stratified, one from
each of as many equal shares as the batch is long.

Invariant: every inner node is the sum of its two children, computed from them, so that no rounding
adds up over time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

SMALLEST_PRIORITY = 1e-3
"""Nothing is forgotten altogether, however well it is known."""


class SumTree:
    """Non-negative weights of which one is drawn in proportion."""

    def __init__(self, size: int) -> None:
        depth = max(1, (size - 1).bit_length())
        self.levels = [np.zeros(1 << level) for level in range(depth + 1)]

    @property
    def total(self) -> float:
        return float(self.levels[0][0])

    @property
    def leaves(self) -> Floats:
        return self.levels[-1]

    def change(self, indices: Indices, weights: Floats) -> None:
        """Set some weights; of an index that comes twice, the last one counts."""
        self.leaves[indices] = weights
        nodes = indices
        for level in range(len(self.levels) - 1, 0, -1):
            nodes = nodes >> 1
            below = self.levels[level]
            self.levels[level - 1][nodes] = below[2 * nodes] + below[2 * nodes + 1]

    def find(self, amounts: Floats) -> Indices:
        """For each amount in [0, total): the leaf in which the running sum of the weights passes it."""
        nodes = np.zeros(len(amounts), dtype=np.int64)
        rest = amounts.copy()
        for below in self.levels[1:]:
            nodes *= 2
            left = below[nodes]
            # Rounding must not lead into a part without weight.
            right = (rest >= left) & (below[nodes + 1] > 0)
            rest -= np.where(right, left, 0.0)
            nodes += right
        return nodes


class Replay:
    """The last `capacity` transitions: arrays by name, one row per transition."""

    def __init__(
        self,
        capacity: int,
        shapes: Mapping[str, tuple[tuple[int, ...], Any]],
        random: np.random.Generator,
        *,
        alpha: float = 0.6,
    ) -> None:
        """`shapes`: name -> (shape of one row, type); `alpha = 0` draws all alike."""
        self.capacity = capacity
        self.arrays = {name: np.zeros((capacity, *shape), dtype=kind) for name, (shape, kind) in shapes.items()}
        self.alpha = alpha
        self.count = 0
        self._next = 0
        self._random = random
        self._tree = SumTree(capacity)
        self._greatest = 1.0

    def add(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Append transitions; the oldest ones make room."""
        number = len(next(iter(rows.values())))
        places = (self._next + np.arange(number)) % self.capacity
        for name, values in rows.items():
            self.arrays[name][places] = values
        self._tree.change(places, np.full(number, self._greatest**self.alpha))
        self._next = (self._next + number) % self.capacity
        self.count = min(self.count + number, self.capacity)

    def draw(self, size: int, *, beta: float) -> tuple[Indices, NDArray[np.float32]]:
        """Indices of transitions, and the weights with which they count."""
        shares = (np.arange(size) + self._random.random(size)) / size
        indices = self._tree.find(shares * self._tree.total)
        if self.alpha == 0:
            return indices, np.ones(size, dtype=np.float32)
        likely = self._tree.leaves[indices] * (self.count / self._tree.total)
        weights = likely**-beta
        return indices, (weights / weights.max()).astype(np.float32)

    def judge(self, indices: Indices, errors: NDArray[Any]) -> None:
        """Give transitions the priorities of their errors."""
        priorities = np.abs(errors.astype(np.float64)) + SMALLEST_PRIORITY
        self._greatest = max(self._greatest, float(priorities.max(initial=0.0)))
        self._tree.change(indices, priorities**self.alpha)
