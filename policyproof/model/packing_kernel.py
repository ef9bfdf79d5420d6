"""Machine code for packed states: packing, unpacking, and the hash table over them."""

from __future__ import annotations

from policyproof.run.machine_code import njit


@njit(cache=True, nogil=True)
def pack(states, fields, packed):
    for n in range(states.shape[0]):
        for v in range(states.shape[1]):
            packed[n, fields[v, 0]] |= (states[n, v] - fields[v, 3]) << fields[v, 1]


@njit(cache=True, nogil=True)
def unpack(packed, fields, states):
    for n in range(states.shape[0]):
        for v in range(states.shape[1]):
            states[n, v] = ((packed[n, fields[v, 0]] >> fields[v, 1]) & fields[v, 2]) + fields[v, 3]


@njit(cache=True, nogil=True)
def _slot(words, n, size):
    """Where the search for state `n` begins: multiplication and shifts mix every bit of every word."""
    h = 0
    for w in range(words.shape[1]):
        h = (h ^ words[n, w]) * -7046029254386353131
        h ^= (h >> 29) & 0x7FFFFFFFF
    h *= -4417276706812531889
    return ((h >> 20) & 0xFFFFFFFFFFF) & (size - 1)


@njit(cache=True, nogil=True)
def _equal(left, i, right, j):
    for w in range(left.shape[1]):
        if left[i, w] != right[j, w]:
            return False
    return True


@njit(cache=True, nogil=True)
def insert(table, words, count, new, numbers):
    size = table.shape[0]
    for n in range(new.shape[0]):
        slot = _slot(new, n, size)
        while True:
            number = table[slot]
            if number < 0:
                for w in range(new.shape[1]):
                    words[count, w] = new[n, w]
                table[slot] = count
                numbers[n] = count
                count += 1
                break
            if _equal(words, number, new, n):
                numbers[n] = number
                break
            slot = (slot + 1) & (size - 1)
    return count


@njit(cache=True, nogil=True)
def find(table, words, wanted, numbers):
    size = table.shape[0]
    for n in range(wanted.shape[0]):
        slot = _slot(wanted, n, size)
        numbers[n] = -1
        while table[slot] >= 0:
            if _equal(words, table[slot], wanted, n):
                numbers[n] = table[slot]
                break
            slot = (slot + 1) & (size - 1)


@njit(cache=True, nogil=True)
def rebuild(table, words):
    size = table.shape[0]
    for n in range(words.shape[0]):
        slot = _slot(words, n, size)
        while table[slot] >= 0:
            slot = (slot + 1) & (size - 1)
        table[slot] = n
