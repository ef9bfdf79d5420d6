"""Open boxes in batches, and the stack on which branch and bound keeps them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields

import numpy as np

from policyproof.oracle.space import Integers, Truths


@dataclass(eq=False)
class Batch:
    """Boxes of states `lower[n, variable]` .. `upper[n, variable]` at work."""

    region: Integers
    """Of which region each box is a part."""
    lower: Integers
    upper: Integers
    open: Truths
    """open[n, output]: may this output still be chosen in the box, as far as is known?"""
    certain: Truths
    """Does the region's condition hold in the whole box?"""
    depth: Integers
    """How often the region was halved to get here."""

    def __len__(self) -> int:
        return len(self.region)

    def select(self, rows: Integers | Truths | slice) -> Batch:
        return Batch(*(getattr(self, item.name)[rows] for item in fields(self)))


def join(batches: Sequence[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    return Batch(*(np.concatenate([getattr(batch, item.name) for batch in batches]) for item in fields(Batch)))


class Stack:
    """Batches of boxes, the youngest on top, so that memory grows with the depth only.

    With `oldest_first` it is a queue: the largest boxes come next, which settles more of the volume
    before a budget ends.
    """

    def __init__(self, *, oldest_first: bool = False) -> None:
        self._pieces: deque[Batch] = deque()
        self._oldest_first = oldest_first

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def push(self, batch: Batch) -> None:
        if len(batch):
            self._pieces.append(batch)

    def pop(self, count: int) -> Batch:
        """Up to `count` boxes from the top of a stack that is not empty."""
        taken: list[Batch] = []
        while self._pieces and count > 0:
            piece = self._pieces.popleft() if self._oldest_first else self._pieces.pop()
            rest = len(piece) - count
            if rest > 0 and self._oldest_first:
                self._pieces.appendleft(piece.select(slice(count, None)))
                piece = piece.select(slice(0, count))
            elif rest > 0:
                self._pieces.append(piece.select(slice(0, rest)))
                piece = piece.select(slice(rest, None))
            taken.append(piece)
            count -= len(piece)
        return join(taken)

    @contextmanager
    def working_on(self, count: int) -> Iterator[Batch]:
        """Up to `count` boxes from the top; they come back if the work on them fails."""
        batch = self.pop(count)
        try:
            yield batch
        except BaseException:
            self.push(batch)
            raise

    def pop_all(self) -> list[Batch]:
        pieces = list(self._pieces)
        self._pieces.clear()
        return pieces
