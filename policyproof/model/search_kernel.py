"""Machine code that splits a box into parts where a condition holds (see `start_states`).

A depth-first search over boxes.  At every node: evaluate the condition (`forward`), narrow the box
to what the condition needs (`backward`), and split what is still undecided.

What keeps it fast on formulas of megabytes: a node passes to its children the *list* of those
instructions that are still undecided and can still matter for the result.  Whatever is decided in a
box is decided in its parts, so lists only shrink, and deep nodes cost next to nothing.

All of the search's state lives in arrays, so that it can stop for the caller (its output is full, or
its share of time is used) and go on.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from policyproof.model.box_kernel import backward, forward

# Entries of `control`.
DEPTH, FOUND, VISITED = 0, 1, 2

MAXIMAL_ROUNDS = 8


@njit(cache=True, nogil=True, error_model="numpy")
def search(
    code, producer, arity, root, is_float, variables, constants,
    lo, hi, required_lo, required_hi, wanted,
    stack_lower, stack_upper, stack_list, pool, control,
    out_lower, out_upper, out_certain, steps,
):  # fmt: skip
    """Go on with the search for at most `steps` nodes.

    `control`: the depth of the stack, how many boxes were found, how many nodes were visited.
    `stack_list[depth]`: where the list of instructions of this node stands in the pool (start, length).
    """
    flo, fhi = lo.view(np.float64), hi.view(np.float64)
    required_flo, required_fhi = required_lo.view(np.float64), required_hi.view(np.float64)
    for k in range(constants.shape[0]):
        lo[variables + k], hi[variables + k] = constants[k, 0], constants[k, 1]
    while control[DEPTH] > 0 and control[FOUND] < out_lower.shape[0] and steps > 0:
        steps -= 1
        control[VISITED] += 1
        control[DEPTH] -= 1
        top = control[DEPTH]
        start, length = stack_list[top, 0], stack_list[top, 1]
        for v in range(variables):
            lo[v], hi[v] = stack_lower[top, v], stack_upper[top, v]
        kept = 0
        verdict = -1
        for _ in range(MAXIMAL_ROUNDS):
            for i in range(start, start + length):
                k = pool[i]
                forward(code[k, 0], code[k, 1], code[k, 2], code[k, 3], code[k, 4], lo, hi, flo, fhi)
            if hi[root] == 0:
                verdict = 0
                break
            if lo[root] == 1:
                verdict = 1
                break
            kept, feasible = _require(
                code, producer, arity, root, is_float, start, length, pool, wanted,
                lo, hi, required_lo, required_hi, required_flo, required_fhi,
            )  # fmt: skip
            if not feasible:
                verdict = 0
                break
            changed = False
            for v in range(variables):
                if wanted[v]:
                    if is_float[v]:
                        if required_flo[v] > required_fhi[v]:
                            verdict = 0
                        # Reals are narrowed, but only a good step counts as a change.
                        width, new = fhi[v] - flo[v], required_fhi[v] - required_flo[v]
                        changed = changed or new < 0.7 * width
                        flo[v], fhi[v] = required_flo[v], required_fhi[v]
                    else:
                        if required_lo[v] > required_hi[v]:
                            verdict = 0
                        changed = changed or required_lo[v] > lo[v] or required_hi[v] < hi[v]
                        lo[v], hi[v] = required_lo[v], required_hi[v]
            if verdict == 0 or not changed:
                break
        if verdict == 0:
            continue
        split = -1
        if verdict == -1:
            split = _choose(code, arity, is_float, variables, lo, hi, start + length, kept, pool, wanted)
        if split < 0 and verdict == -1:
            # The last round narrowed the box to single values: what holds there is not known yet.
            for i in range(start, start + length):
                k = pool[i]
                forward(code[k, 0], code[k, 1], code[k, 2], code[k, 3], code[k, 4], lo, hi, flo, fhi)
            if hi[root] == 0:
                continue
            verdict = 1 if lo[root] == 1 else -1
        if split < 0:
            found = control[FOUND]
            for v in range(variables):
                out_lower[found, v], out_upper[found, v] = lo[v], hi[v]
            out_certain[found] = verdict == 1
            control[FOUND] += 1
            continue
        middle = (lo[split] >> 1) + (hi[split] >> 1) + (lo[split] & hi[split] & 1)
        # The upper half is pushed first, so that the lower half is searched first.
        for half in range(2):
            slot = control[DEPTH]
            for v in range(variables):
                stack_lower[slot, v], stack_upper[slot, v] = lo[v], hi[v]
            if half == 0:
                stack_lower[slot, split] = middle + 1
            else:
                stack_upper[slot, split] = middle
            if kept >= 0:
                stack_list[slot, 0], stack_list[slot, 1] = start + length, kept
            else:
                stack_list[slot, 0], stack_list[slot, 1] = start, length
            control[DEPTH] += 1


@njit(cache=True, nogil=True, error_model="numpy")
def _require(
    code, producer, arity, root, is_float, start, length, pool, wanted,
    lo, hi, required_lo, required_hi, required_flo, required_fhi,
):  # fmt: skip
    """Require the root to be true; narrow backwards; list the instructions that still matter.

    The list goes behind the node's own list in the pool, arguments first.  Its length is -1 when the
    pool is full: the children then use the node's own list, which is merely longer.
    """
    for r in range(producer.shape[0]):
        if producer[r] >= 0:
            break
        required_lo[r], required_hi[r] = lo[r], hi[r]
        wanted[r] = False
    for i in range(start, start + length):
        t = code[pool[i], 1]
        required_lo[t], required_hi[t] = lo[t], hi[t]
        wanted[t] = False
    required_lo[root] = 1
    wanted[root] = True
    end = start + length
    for i in range(start + length - 1, start - 1, -1):
        k = pool[i]
        t = code[k, 1]
        if not wanted[t]:
            continue
        a, b, c = code[k, 2], code[k, 3], code[k, 4]
        # Decided values that were not visited above still need their required ends.
        for m in range(arity[k]):
            r = code[k, 2 + m]
            if producer[r] >= 0 and lo[r] == hi[r]:
                required_lo[r], required_hi[r] = lo[r], hi[r]
        backward(code[k, 0], t, a, b, c, required_lo, required_hi, required_flo, required_fhi)
        for m in range(arity[k]):
            r = code[k, 2 + m]
            if lo[r] != hi[r]:
                wanted[r] = True
            if is_float[r]:
                if required_flo[r] > required_fhi[r]:
                    return 0, False
            elif required_lo[r] > required_hi[r]:
                return 0, False
        pool_end = pool.shape[0]
        if end >= 0:
            if end < pool_end:
                pool[end] = k
                end += 1
            else:
                end = -1
    if end < 0:
        return -1, True
    # Collected from the end to the beginning: turn the list round.
    first, last = start + length, end - 1
    while first < last:
        pool[first], pool[last] = pool[last], pool[first]
        first += 1
        last -= 1
    return end - start - length, True


@njit(cache=True, nogil=True, error_model="numpy")
def _choose(code, arity, is_float, variables, lo, hi, start, kept, pool, wanted):
    """The integer variable to split: the one used most often for its size among undecided instructions."""
    best, best_score = -1, -1.0
    uses = np.zeros(variables, dtype=np.int64)
    for i in range(start, start + max(kept, 0)):
        k = pool[i]
        for m in range(arity[k]):
            r = code[k, 2 + m]
            if r < variables:
                uses[r] += 1
    for v in range(variables):
        if wanted[v] and not is_float[v] and lo[v] < hi[v]:
            score = (uses[v] + 1.0) / (float(hi[v]) - float(lo[v]))
            if score > best_score:
                best, best_score = v, score
    return best
