"""Packing states into 64-bit words.

A bounded variable with d values takes ceil(log2 d) bits; fields never cross a word.  An integer
without bounds, and a real (as the bits of a float64), takes a whole word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from policyproof.model.automata import Variable
from policyproof.model.packing_kernel import pack, unpack

WORD = 64


@dataclass(frozen=True)
class Layout:
    """Where each variable stands in a packed state; columns of unpacked states follow `variables`."""

    variables: tuple[Variable, ...]
    fields: NDArray[np.int64]
    """fields[variable, (word, shift, mask, lower)]"""
    words: int

    @property
    def bytes_per_state(self) -> int:
        return 8 * self.words

    @cached_property
    def position(self) -> dict[str, int]:
        return {item.name: index for index, item in enumerate(self.variables)}

    def pack(self, states: NDArray[np.int64]) -> NDArray[np.int64]:
        """`states[n, variable]` (reals as the bits of a float64) to `packed[n, word]`."""
        packed = np.zeros((len(states), self.words), dtype=np.int64)
        pack(np.ascontiguousarray(states, dtype=np.int64), self.fields, packed)
        return packed

    def unpack(self, packed: NDArray[np.int64]) -> NDArray[np.int64]:
        states = np.empty((len(packed), len(self.variables)), dtype=np.int64)
        unpack(np.ascontiguousarray(packed), self.fields, states)
        return states


def make_layout(variables: Sequence[Variable]) -> Layout:
    widths = [_width(item) for item in variables]
    free: list[int] = []
    fields = np.zeros((len(variables), 4), dtype=np.int64)
    # The widest first; each goes into the first word that has room.
    for index in sorted(range(len(variables)), key=lambda i: (-widths[i], i)):
        width = widths[index]
        word = next((w for w, room in enumerate(free) if room >= width), len(free))
        if word == len(free):
            free.append(WORD)
        shift = WORD - free[word]
        free[word] -= width
        mask = -1 if width == WORD else (1 << width) - 1
        lower = 0 if width == WORD else int(variables[index].domain.range[0])
        fields[index] = (word, shift if width else 0, mask, lower)
    return Layout(tuple(variables), fields, max(1, len(free)))


def _width(item: Variable) -> int:
    size = item.domain.size
    if size is None or size > 1 << 62 or item.domain.kind == "real":
        return WORD
    return (size - 1).bit_length()
