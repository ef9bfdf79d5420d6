"""Machine code of the successor generator: run a tape on a block of states, then join enabled branches.

The tape of a plan computes, for every branch, whether its guard holds and what it writes.  For each
state and each step the kernel lists the enabled branches of every participant and walks through
their product (the last participant fastest), and through the choices that a branch leaves to the
environment.  A successor is the source's packed words with the written fields replaced.

The kernel stops when its output is full; the caller asks again for what is left, so a state's
successors always stand together, in order.
"""

from __future__ import annotations

import numpy as np

from policyproof.model.batch_kernel import BLOCK, prepare, run_block
from policyproof.run.machine_code import njit

# Columns of `steps`, `participants`, `branches` and `writes`.
STEP_LABEL, STEP_OFFSET, STEP_FIRST, STEP_LAST = 0, 1, 2, 3
PARTICIPANT_FIRST, PARTICIPANT_LAST = 0, 1
BRANCH_GUARD, BRANCH_FIRST, BRANCH_LAST = 0, 1, 2
WRITE_VARIABLE, WRITE_KIND, WRITE_VALUE, WRITE_UPPER = 0, 1, 2, 3
VALUE, INTEGER_CHOICE, REAL_CHOICE = 0, 1, 2
MAXIMAL_CHOICES = 32


@njit(cache=True, nogil=True, error_model="numpy")
def load_block(packed, fields, start, size, integers):
    """Unpack a block of states into the registers of the variables."""
    for v in range(fields.shape[0]):
        word, shift, mask, lower = fields[v, 0], fields[v, 1], fields[v, 2], fields[v, 3]
        for j in range(size):
            integers[v, j] = ((packed[start + j, word] >> shift) & mask) + lower


@njit(cache=True, nogil=True)
def _mix(x):
    """A number in [0, 1) from a seed: the finaliser of splitmix64, on signed words."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    x = x ^ ((x >> 31) & 0x1FFFFFFFF)
    return float((x >> 11) & 0x1FFFFFFFFFFFFF) / 9007199254740992.0


@njit(cache=True, nogil=True, error_model="numpy")
def _set_field(words, fields, variable, value):
    word, shift, mask, lower = fields[variable, 0], fields[variable, 1], fields[variable, 2], fields[variable, 3]
    words[word] = (words[word] & ~(mask << shift)) | (((value - lower) & mask) << shift)


@njit(cache=True, nogil=True, error_model="numpy")
def expand_kernel(
    packed, fields, code, register_count, constants, roots,
    steps, participants, branches, writes, widest, seed,
    out_words, out_source, out_operator, out_step, flags,
):  # fmt: skip
    """Successors of the packed states into `out_*`: (how many, of how many of the states).

    `flags[0]` reports an integer overflow.
    """
    variable_count = fields.shape[0]
    most_participants = max(1, widest[0])
    integers = _registers(register_count, variable_count, constants)
    floats = integers.view(np.float64)
    enabled = _table(most_participants, max(1, widest[1]))
    count = _table(1, most_participants)[0]
    odometer = _table(1, most_participants)[0]
    base = _table(1, out_words.shape[1])[0]
    choices = _table(MAXIMAL_CHOICES, 4)
    used = 0
    full = False
    position, done = 0, 0
    while position < packed.shape[0] and not full:
        size = min(BLOCK, packed.shape[0] - position)
        load_block(packed, fields, position, size, integers)
        run_block(code, integers, floats, flags)
        for j in range(size):
            start_of_state = used
            for s in range(steps.shape[0]):
                first, last = steps[s, STEP_FIRST], steps[s, STEP_LAST]
                possible = True
                for p in range(first, last):
                    k = 0
                    for b in range(participants[p, PARTICIPANT_FIRST], participants[p, PARTICIPANT_LAST]):
                        if integers[roots[branches[b, BRANCH_GUARD]], j] != 0:
                            enabled[p - first, k] = b
                            k += 1
                    count[p - first] = k
                    odometer[p - first] = 0
                    if k == 0:
                        possible = False
                        break
                while possible:
                    operator = 0
                    choice_count = 0
                    for w in range(base.shape[0]):
                        base[w] = packed[position + j, w]
                    for p in range(first, last):
                        b = enabled[p - first, odometer[p - first]]
                        size_of_p = participants[p, PARTICIPANT_LAST] - participants[p, PARTICIPANT_FIRST]
                        operator = operator * size_of_p + b - participants[p, PARTICIPANT_FIRST]
                        for w in range(branches[b, BRANCH_FIRST], branches[b, BRANCH_LAST]):
                            variable = writes[w, WRITE_VARIABLE]
                            value = integers[roots[writes[w, WRITE_VALUE]], j]
                            if writes[w, WRITE_KIND] == VALUE:
                                _set_field(base, fields, variable, value)
                            elif writes[w, WRITE_KIND] == INTEGER_CHOICE:
                                choices[choice_count, 0] = variable
                                choices[choice_count, 1] = value
                                choices[choice_count, 2] = integers[roots[writes[w, WRITE_UPPER]], j]
                                choices[choice_count, 3] = value
                                choice_count += 1
                            else:
                                low = floats[roots[writes[w, WRITE_VALUE]], j]
                                high = floats[roots[writes[w, WRITE_UPPER]], j]
                                share = _mix(seed + 7919 * (position + j) + 104729 * w)
                                floats[register_count, 0] = low + share * (high - low)
                                _set_field(base, fields, variable, integers[register_count, 0])
                    for k in range(choice_count):
                        _set_field(base, fields, choices[k, 0], choices[k, 1])
                    more = True
                    while more:
                        if used >= out_words.shape[0]:
                            full = True
                            break
                        for w in range(base.shape[0]):
                            out_words[used, w] = base[w]
                        out_source[used] = position + j
                        out_operator[used] = steps[s, STEP_OFFSET] + operator
                        out_step[used] = s
                        used += 1
                        more = False
                        for k in range(choice_count - 1, -1, -1):
                            if choices[k, 3] < choices[k, 2]:
                                choices[k, 3] += 1
                                more = True
                            else:
                                choices[k, 3] = choices[k, 1]
                            _set_field(base, fields, choices[k, 0], choices[k, 3])
                            if more:
                                break
                    if full:
                        break
                    possible = False
                    for p in range(last - 1, first - 1, -1):
                        odometer[p - first] += 1
                        if odometer[p - first] < count[p - first]:
                            possible = True
                            break
                        odometer[p - first] = 0
                if full:
                    break
            if full:
                used = start_of_state
                break
            done += 1
        position += size
    return used, done


@njit(cache=True, nogil=True)
def _table(rows, columns):
    return np.zeros((rows, columns), dtype=np.int64)


@njit(cache=True, nogil=True)
def _registers(register_count, variable_count, constants):
    """Registers with one spare row, in which a chosen real is turned into its bits."""
    integers = _table(register_count + 1, BLOCK)
    prepare(constants, variable_count, integers)
    return integers


@njit(cache=True, nogil=True, error_model="numpy")
def applicable_kernel(
    packed, fields, code, register_count, constants, roots, steps, participants, branches, applicable, flags
):  # fmt: skip
    """`applicable[state, label]`: does some operator with this label apply?  Silent steps have the last column."""
    count = packed.shape[0]
    silent = applicable.shape[1] - 1
    integers = _registers(register_count, fields.shape[0], constants)
    floats = integers.view(np.float64)
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        load_block(packed, fields, start, size, integers)
        run_block(code, integers, floats, flags)
        for j in range(size):
            for s in range(steps.shape[0]):
                label = steps[s, STEP_LABEL] if steps[s, STEP_LABEL] >= 0 else silent
                if applicable[start + j, label]:
                    continue
                possible = True
                for p in range(steps[s, STEP_FIRST], steps[s, STEP_LAST]):
                    some = False
                    for b in range(participants[p, PARTICIPANT_FIRST], participants[p, PARTICIPANT_LAST]):
                        if integers[roots[branches[b, BRANCH_GUARD]], j] != 0:
                            some = True
                            break
                    if not some:
                        possible = False
                        break
                if possible:
                    applicable[start + j, label] = True
