"""Machine code that narrows boxes to what a condition needs.

Narrowing goes round: evaluate the condition on the box (`forward`), require it to be true, push the
requirement down to the variables (`backward`), and begin again while that shrinks the box.

Invariant: no state of the box at which the condition holds is ever lost.
"""

from __future__ import annotations

import numpy as np

from policyproof.model.box_kernel import backward, forward
from policyproof.run.machine_code import njit

MAXIMAL_ROUNDS = 8
FALSE, TRUE, UNDECIDED = 0, 1, -1


@njit(cache=True, nogil=True, error_model="numpy")
def narrow_box(
    code, producer, arity, root, is_float, variables, start, length, pool, wanted,
    lo, hi, required_lo, required_hi,
):  # fmt: skip
    """Narrow the box in the first registers; the condition is then (TRUE, FALSE or UNDECIDED) throughout.

    Only the instructions `pool[start : start + length]` are looked at.  Also returns how many of them
    still matter: they stand behind the list (see `require`).
    """
    flo, fhi = lo.view(np.float64), hi.view(np.float64)
    required_flo, required_fhi = required_lo.view(np.float64), required_hi.view(np.float64)
    kept = 0
    for _ in range(MAXIMAL_ROUNDS):
        for i in range(start, start + length):
            k = pool[i]
            forward(code[k, 0], code[k, 1], code[k, 2], code[k, 3], code[k, 4], lo, hi, flo, fhi)
        if hi[root] == 0:
            return FALSE, kept
        if lo[root] == 1:
            return TRUE, kept
        kept, feasible = require(
            code, producer, arity, root, is_float, start, length, pool, wanted,
            lo, hi, required_lo, required_hi, required_flo, required_fhi,
        )  # fmt: skip
        if not feasible:
            return FALSE, kept
        changed = False
        for v in range(variables):
            if wanted[v]:
                if is_float[v]:
                    if required_flo[v] > required_fhi[v]:
                        return FALSE, kept
                    # Reals are narrowed, but only a good step counts as a change.
                    width, new = fhi[v] - flo[v], required_fhi[v] - required_flo[v]
                    changed = changed or new < 0.7 * width
                    flo[v], fhi[v] = required_flo[v], required_fhi[v]
                else:
                    if required_lo[v] > required_hi[v]:
                        return FALSE, kept
                    changed = changed or required_lo[v] > lo[v] or required_hi[v] < hi[v]
                    lo[v], hi[v] = required_lo[v], required_hi[v]
        if not changed:
            break
    return UNDECIDED, kept


@njit(cache=True, nogil=True, error_model="numpy")
def require(
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
def narrow_boxes(
    code, producer, arity, root, is_float, variables, constants, registers, lower, upper, status, uses,
):  # fmt: skip
    """Narrow the boxes `lower[n, variable]` .. `upper[n, variable]` in place.

    `status[n]`: what the condition is there; `uses[n, variable]`: can it still matter for that?
    """
    lo, hi = np.zeros(registers, dtype=np.int64), np.zeros(registers, dtype=np.int64)
    required_lo, required_hi = np.zeros(registers, dtype=np.int64), np.zeros(registers, dtype=np.int64)
    wanted = np.zeros(registers, dtype=np.bool_)
    pool = np.arange(code.shape[0])
    for k in range(constants.shape[0]):
        lo[variables + k], hi[variables + k] = constants[k, 0], constants[k, 1]
    for n in range(lower.shape[0]):
        for v in range(variables):
            lo[v], hi[v] = lower[n, v], upper[n, v]
            wanted[v] = False
        status[n], _ = narrow_box(
            code, producer, arity, root, is_float, variables, 0, len(pool), pool, wanted,
            lo, hi, required_lo, required_hi,
        )  # fmt: skip
        for v in range(variables):
            lower[n, v], upper[n, v] = lo[v], hi[v]
            uses[n, v] = status[n] == UNDECIDED and wanted[v]
