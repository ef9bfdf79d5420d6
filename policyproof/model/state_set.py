"""A growing set of packed states: each gets a number, in the order of arrival.

Open addressing with linear probing over 32-bit numbers of states (64-bit ones beyond two thousand
million).  The table is kept at most two thirds full.  Memory is asked for in one place
(`bytes_needed`), so that an engine can refuse to grow beyond its budget.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from policyproof.model.packing_kernel import find, insert, rebuild
from policyproof.run.budget import Budget

FIRST_CAPACITY = 1 << 12


class StateSet:
    """The packed states `words[0:count]`, and a hash table over them."""

    def __init__(self, words_per_state: int, budget: Budget, *, extra_bytes_per_state: int = 0) -> None:
        """`extra_bytes_per_state`: what the owner keeps beside each state, counted in the budget."""
        self.count = 0
        self._words = np.empty((FIRST_CAPACITY, words_per_state), dtype=np.int64)
        self._table = np.full(FIRST_CAPACITY * 2, -1, dtype=np.int32)
        self._budget = budget
        self._extra = extra_bytes_per_state

    @property
    def words(self) -> NDArray[np.int64]:
        return self._words[: self.count]

    @property
    def bytes(self) -> int:
        """What the states and the table take now."""
        return self._words.nbytes + self._table.nbytes

    def add(self, words: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of the states; those that are new get the next numbers, in order."""
        self._reserve(self.count + len(words))
        numbers = np.empty(len(words), dtype=np.int64)
        self.count = int(insert(self._table, self._words, self.count, np.ascontiguousarray(words), numbers))
        return numbers

    def find(self, words: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of the states, -1 for those that are not in the set."""
        numbers = np.empty(len(words), dtype=np.int64)
        find(self._table, self._words, np.ascontiguousarray(words), numbers)
        return numbers

    def _reserve(self, count: int) -> None:
        """Room for `count` states, if all that are added are new."""
        capacity, table_size = len(self._words), len(self._table)
        if count > capacity:
            capacity = max(count, capacity + capacity // 2)
        while 3 * capacity > 2 * table_size:
            table_size *= 2
        if capacity == len(self._words) and table_size == len(self._table):
            return
        width = self._words.shape[1]
        entry = 4 if capacity < 1 << 31 else 8
        needed = capacity * (8 * width + self._extra) + table_size * entry + self._words.nbytes
        self._budget.check_memory(needed, f"{capacity} states")
        if capacity > len(self._words):
            grown = np.empty((capacity, width), dtype=np.int64)
            grown[: self.count] = self.words
            self._words = grown
        if table_size > len(self._table):
            self._table = np.full(table_size, -1, dtype=np.int32 if entry == 4 else np.int64)
            rebuild(self._table, self.words)
