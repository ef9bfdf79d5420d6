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

from policyproof.model.box_kernel import forward
from policyproof.model.narrowing_kernel import FALSE, TRUE, UNDECIDED, narrow_box
from policyproof.run.machine_code import njit

# Entries of `control`.
DEPTH, FOUND, VISITED = 0, 1, 2


@njit(cache=True, nogil=True, error_model="numpy")
def search(
    code, producer, arity, root, is_float, variables, constants,
    lo, hi, required_lo, required_hi, wanted,
    stack_lower, stack_upper, stack_list, pool, control,
    out_lower, out_upper, out_certain, work,
):  # fmt: skip
    """Go on with the search for about `work` instructions (those in the lists of the nodes that it visits).

    `control`: the depth of the stack, how many boxes were found, how many nodes were visited.
    `stack_list[depth]`: where the list of instructions of this node stands in the pool (start, length).
    """
    flo, fhi = lo.view(np.float64), hi.view(np.float64)
    for k in range(constants.shape[0]):
        lo[variables + k], hi[variables + k] = constants[k, 0], constants[k, 1]
    while control[DEPTH] > 0 and control[FOUND] < out_lower.shape[0] and work > 0:
        control[VISITED] += 1
        control[DEPTH] -= 1
        top = control[DEPTH]
        start, length = stack_list[top, 0], stack_list[top, 1]
        work -= 1 + length
        for v in range(variables):
            lo[v], hi[v] = stack_lower[top, v], stack_upper[top, v]
        verdict, kept = narrow_box(
            code, producer, arity, root, is_float, variables, start, length, pool, wanted,
            lo, hi, required_lo, required_hi,
        )  # fmt: skip
        if verdict == FALSE:
            continue
        split = -1
        if verdict == UNDECIDED:
            split = _choose(code, arity, is_float, variables, lo, hi, start + length, kept, pool, wanted)
        if split < 0 and verdict == UNDECIDED:
            # The last round narrowed the box to single values: what holds there is not known yet.
            for i in range(start, start + length):
                k = pool[i]
                forward(code[k, 0], code[k, 1], code[k, 2], code[k, 3], code[k, 4], lo, hi, flo, fhi)
            if hi[root] == 0:
                continue
            verdict = TRUE if lo[root] == 1 else UNDECIDED
        if split < 0:
            found = control[FOUND]
            for v in range(variables):
                out_lower[found, v], out_upper[found, v] = lo[v], hi[v]
            out_certain[found] = verdict == TRUE
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
