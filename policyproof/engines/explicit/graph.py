"""Arrays that grow, and the transitions of an explored graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from policyproof.run.budget import Budget


class GrowingArray:
    """A one-dimensional array to which pieces are appended."""

    def __init__(self, dtype: Any) -> None:
        self._data = np.empty(1 << 12, dtype=dtype)
        self._count = 0

    @property
    def view(self) -> NDArray[Any]:
        return self._data[: self._count]

    @property
    def bytes(self) -> int:
        return int(self._data.nbytes)

    def append(self, piece: NDArray[Any]) -> None:
        needed = self._count + len(piece)
        if needed > len(self._data):
            grown = np.empty(max(needed, len(self._data) + len(self._data) // 2), dtype=self._data.dtype)
            grown[: self._count] = self.view
            self._data = grown
        self._data[self._count : needed] = piece
        self._count = needed

    def __len__(self) -> int:
        return self._count


class TransitionStore:
    """The successors of every expanded state.  Given up when they would take half of the memory."""

    def __init__(self, budget: Budget) -> None:
        self.kept = True
        self._limit = budget.memory_bytes // 2
        self._counts = GrowingArray(np.int32)
        self._targets = GrowingArray(np.int32)

    @property
    def bytes(self) -> int:
        return self._counts.bytes + self._targets.bytes

    def __len__(self) -> int:
        return len(self._targets)

    def append(self, counts: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """The successors of the next states: how many each has, and their numbers."""
        if not self.kept:
            return
        too_many = len(targets) > 0 and int(targets.max()) >= 1 << 31
        if too_many or self.bytes + 6 * len(targets) > self._limit:
            self.kept = False
            self._counts, self._targets = GrowingArray(np.int32), GrowingArray(np.int32)
            return
        self._counts.append(counts)
        self._targets.append(targets)

    def compressed(self, expanded: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """(offsets, targets): the successors of state s are targets[offsets[s]:offsets[s + 1]]."""
        offsets = np.zeros(expanded + 1, dtype=np.int64)
        np.cumsum(self._counts.view[:expanded], out=offsets[1:])
        return offsets, self._targets.view[: offsets[-1]]
