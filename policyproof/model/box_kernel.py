"""The box reading of tapes: what can each value be while the variables range over a box?

`forward` computes, for one instruction, an interval that contains its value on every state of the
box; truth values are the intervals [0, 0], [0, 1] and [1, 1].  `backward` goes the other way: given
what a result is required to be, it narrows what the arguments can be (HC4, Benhamou et al. 1999).

Integer ends are exact; an end beyond 2**62 stands for infinity.  Real ends are rounded outward: a
sum, difference, product or quotient that is rounded to nearest is off by less than the distance to
the next float, so one step of `nextafter` is enough; square roots are correctly rounded too.  The
other functions of the C library are assumed to be within `LIBRARY_ULPS` of the true value (glibc
documents at most 2), which tests check against exact enclosures.

Invariant of both: no state of the box for which the required values hold is ever lost.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from policyproof.model.batch_kernel import (
    AND,
    FABS,
    FACOS,
    FADD,
    FASIN,
    FATAN,
    FCEIL,
    FCOS,
    FCOSH,
    FDIV,
    FEQ,
    FEXP,
    FFLOOR,
    FITE,
    FLE,
    FLOG,
    FLT,
    FMAX,
    FMIN,
    FMUL,
    FNE,
    FPOW,
    FSGN,
    FSIN,
    FSINH,
    FSQRT,
    FSUB,
    FTAN,
    FTANH,
    FTRC,
    IABS,
    IADD,
    IADD_CHECKED,
    IEQ,
    IFLOORDIV,
    IITE,
    ILE,
    ILT,
    IMAX,
    IMIN,
    IMUL,
    IMUL_CHECKED,
    INE,
    INT_TO_FLOAT,
    ISGN,
    ISUB,
    ISUB_CHECKED,
    NOT,
    OR,
    real_function,
)  # fmt: skip
from policyproof.model.tape import INTEGER_LIMIT, Tape
from policyproof.run.machine_code import njit
from policyproof.run.threads import over_ranges

INFINITE = INTEGER_LIMIT
LIBRARY_ULPS = 4

_jit = njit(cache=True, nogil=True, error_model="numpy")


@_jit
def down(x):
    return np.nextafter(x, -np.inf)


@_jit
def up(x):
    return np.nextafter(x, np.inf)


@_jit
def _add_lower(x, y):
    if x <= -INFINITE or y <= -INFINITE:
        return -INFINITE
    return min(x + y, INFINITE)


@_jit
def _add_upper(x, y):
    if x >= INFINITE or y >= INFINITE:
        return INFINITE
    return max(x + y, -INFINITE)


@_jit
def _multiply(x, y):
    """A product of two ends; anything beyond the limit is infinite."""
    if x == 0 or y == 0:
        return 0
    if abs(float(x) * float(y)) >= 0.99 * INFINITE:
        return INFINITE if (x > 0) == (y > 0) else -INFINITE
    return x * y


@_jit
def _to_float_down(x):
    if x <= -INFINITE:
        return -np.inf
    value = float(x)
    return value if abs(x) <= 9007199254740992 else down(value)


@_jit
def _to_float_up(x):
    if x >= INFINITE:
        return np.inf
    value = float(x)
    return value if abs(x) <= 9007199254740992 else up(value)


@_jit
def _to_int(x):
    """A rounded float as an integer end."""
    if x >= 4.0e18:
        return INFINITE
    if x <= -4.0e18:
        return -INFINITE
    return int(x)


@_jit
def _real_product(x, y):
    # 0 times an infinite end is 0: the end is never reached.
    return 0.0 if x == 0.0 or y == 0.0 else x * y


@_jit
def _quotients(la, ha, lb, hb):
    """What a / b can be, for b bounded away from zero."""
    p, q, r, s = la / lb, la / hb, ha / lb, ha / hb
    # Infinity over infinity is anything; a minimum with NaN may be either of its arguments.
    if math.isnan(p) or math.isnan(q) or math.isnan(r) or math.isnan(s):
        return -np.inf, np.inf
    return down(min(min(p, q), min(r, s))), up(max(max(p, q), max(r, s)))


@_jit
def forward(op, t, a, b, c, lo, hi, flo, fhi):
    """Compute the interval of one instruction's result from those of its arguments."""
    if op < FADD:
        forward_integer(op, t, a, b, c, lo, hi)
    else:
        forward_real(op, t, a, b, c, lo, hi, flo, fhi)


@_jit
def forward_integer(op, t, a, b, c, lo, hi):
    la, ha, lb, hb = lo[a], hi[a], lo[b], hi[b]
    if op == AND:
        lo[t], hi[t] = la & lb, ha & hb
    elif op == OR:
        lo[t], hi[t] = la | lb, ha | hb
    elif op == NOT:
        lo[t], hi[t] = 1 - ha, 1 - la
    elif op == IEQ or op == INE:
        possible = la <= hb and lb <= ha
        certain = la == ha and lb == hb and la == lb and abs(la) < INFINITE
        if op == IEQ:
            lo[t], hi[t] = certain, possible
        else:
            lo[t], hi[t] = not possible, not certain
    elif op == ILT:
        lo[t] = ha < lb and ha < INFINITE
        hi[t] = la < hb or hb >= INFINITE or la <= -INFINITE
    elif op == ILE:
        lo[t] = ha <= lb and ha < INFINITE and lb > -INFINITE
        hi[t] = la <= hb or hb >= INFINITE or la <= -INFINITE
    elif op == IADD or op == IADD_CHECKED:
        lo[t], hi[t] = _add_lower(la, lb), _add_upper(ha, hb)
    elif op == ISUB or op == ISUB_CHECKED:
        lo[t], hi[t] = _add_lower(la, -hb), _add_upper(ha, -lb)
    elif op == IMUL or op == IMUL_CHECKED:
        p, q, r, s = _multiply(la, lb), _multiply(la, hb), _multiply(ha, lb), _multiply(ha, hb)
        lo[t], hi[t] = min(min(p, q), min(r, s)), max(max(p, q), max(r, s))
    elif op == IITE:
        if la == 1:
            lo[t], hi[t] = lb, hb
        elif ha == 0:
            lo[t], hi[t] = lo[c], hi[c]
        else:
            lo[t], hi[t] = min(lb, lo[c]), max(hb, hi[c])
    elif op == IMIN:
        lo[t], hi[t] = min(la, lb), min(ha, hb)
    elif op == IMAX:
        lo[t], hi[t] = max(la, lb), max(ha, hb)
    elif op == IABS:
        if la >= 0:
            lo[t], hi[t] = la, ha
        elif ha <= 0:
            lo[t], hi[t] = -ha, -la
        else:
            lo[t], hi[t] = 0, max(-la, ha)
    elif op == ISGN:
        lo[t], hi[t] = (la > 0) - (la < 0), (ha > 0) - (ha < 0)
    elif op == IFLOORDIV:
        _floor_division(t, la, ha, lb, hb, lo, hi)
    else:
        _remainder(t, la, ha, lb, hb, lo, hi)


@_jit
def _floor_division(t, la, ha, lb, hb, lo, hi):
    if lb == hb and lb != 0 and la > -INFINITE and ha < INFINITE:
        p, q = la // lb, ha // lb
        lo[t], hi[t] = min(p, q), max(p, q)
    elif lb == 0 and hb == 0:
        lo[t], hi[t] = 0, 0
    else:
        # Quotients of integers are no larger than the dividend.
        largest = max(abs(la), abs(ha))
        lo[t], hi[t] = -min(largest, INFINITE), min(largest, INFINITE)


@_jit
def _remainder(t, la, ha, lb, hb, lo, hi):
    if lb == hb and la == ha and lb != 0 and abs(la) < INFINITE:
        lo[t] = la % lb
        hi[t] = lo[t]
    elif lb > 0 and la >= 0 and ha < lb:
        lo[t], hi[t] = la, ha
    else:
        lo[t] = 0 if lb >= 0 else _add_lower(lb, 1)
        hi[t] = 0 if hb <= 0 else _add_upper(hb, -1)


@_jit
def forward_real(op, t, a, b, c, lo, hi, flo, fhi):
    la, ha, lb, hb = flo[a], fhi[a], flo[b], fhi[b]
    if op == INT_TO_FLOAT:
        flo[t], fhi[t] = _to_float_down(lo[a]), _to_float_up(hi[a])
    elif op == FADD:
        flo[t], fhi[t] = down(la + lb), up(ha + hb)
    elif op == FSUB:
        flo[t], fhi[t] = down(la - hb), up(ha - lb)
    elif op == FMUL:
        p, q, r, s = _real_product(la, lb), _real_product(la, hb), _real_product(ha, lb), _real_product(ha, hb)
        flo[t], fhi[t] = down(min(min(p, q), min(r, s))), up(max(max(p, q), max(r, s)))
    elif op == FDIV:
        if lb > 0.0 or hb < 0.0:
            flo[t], fhi[t] = _quotients(la, ha, lb, hb)
        else:
            flo[t], fhi[t] = -np.inf, np.inf
    elif op == FMIN:
        flo[t], fhi[t] = min(la, lb), min(ha, hb)
    elif op == FMAX:
        flo[t], fhi[t] = max(la, lb), max(ha, hb)
    elif op == FABS:
        if la >= 0.0:
            flo[t], fhi[t] = la, ha
        elif ha <= 0.0:
            flo[t], fhi[t] = -ha, -la
        else:
            flo[t], fhi[t] = 0.0, max(-la, ha)
    elif op == FEQ or op == FNE:
        possible = la <= hb and lb <= ha
        certain = la == ha and lb == hb and la == lb
        if op == FEQ:
            lo[t], hi[t] = certain, possible
        else:
            lo[t], hi[t] = not possible, not certain
    elif op == FLT:
        lo[t], hi[t] = ha < lb, la < hb
    elif op == FLE:
        lo[t], hi[t] = ha <= lb, la <= hb
    elif op == FITE:
        if lo[a] == 1:
            flo[t], fhi[t] = lb, hb
        elif hi[a] == 0:
            flo[t], fhi[t] = flo[c], fhi[c]
        else:
            flo[t], fhi[t] = min(lb, flo[c]), max(hb, fhi[c])
    elif op == FFLOOR:
        lo[t], hi[t] = _to_int(math.floor(la)), _to_int(math.floor(ha))
    elif op == FCEIL:
        lo[t], hi[t] = _to_int(math.ceil(la)), _to_int(math.ceil(ha))
    elif op == FTRC:
        lo[t], hi[t] = _to_int(np.trunc(la)), _to_int(np.trunc(ha))
    elif op == FSGN:
        lo[t], hi[t] = (la > 0.0) - (la < 0.0), (ha > 0.0) - (ha < 0.0)
    else:
        low, high = function_image(op, la, ha, lb, hb)
        flo[t], fhi[t] = low, high
    # Not a number (infinity minus infinity, say) means that nothing is known.
    if op < FEQ or op == FITE or op == INT_TO_FLOAT or op >= FSQRT:
        if math.isnan(flo[t]):
            flo[t] = -np.inf
        if math.isnan(fhi[t]):
            fhi[t] = np.inf


@_jit
def _widen(low, high):
    """The assumed accuracy of the C library, outward; tiny results get an absolute margin."""
    return low - LIBRARY_ULPS * 2.3e-16 * abs(low) - 1e-300, high + LIBRARY_ULPS * 2.3e-16 * abs(high) + 1e-300


@_jit
def function_image(op, la, ha, lb, hb):
    """The image of [la, ha] (and the second argument [lb, hb]) under a real function."""
    if op == FSIN or op == FCOS:
        return _wave(op, la, ha)
    if op == FSQRT:
        if ha < 0.0:
            return 0.0, 0.0
        low = down(math.sqrt(max(la, 0.0))) if la > 0.0 else 0.0
        return max(low, 0.0), up(math.sqrt(ha))
    if op == FTAN:
        first, last = math.floor(la / math.pi - 0.5 - 1e-9), math.floor(ha / math.pi - 0.5 + 1e-9)
        if not (abs(la) < 1e8 and abs(ha) < 1e8) or first != last:
            return -np.inf, np.inf
        return _widen(math.tan(la), math.tan(ha))
    if op == FASIN or op == FACOS:
        if ha < -1.0 or la > 1.0:
            return 0.0, 0.0
        low, high = real_function(op, max(la, -1.0), 0.0), real_function(op, min(ha, 1.0), 0.0)
        low, high = _widen(min(low, high), max(low, high))
        # Outside [-1, 1] the total reading is zero.
        return (min(low, 0.0), max(high, 0.0)) if la < -1.0 or ha > 1.0 else (low, high)
    if op == FCOSH:
        low, high = math.cosh(la), math.cosh(ha)
        least = 1.0 if la <= 0.0 <= ha else min(low, high)
        return _widen(least, max(low, high))
    if op == FLOG:
        if la <= 0.0 or lb <= 1.0:
            return -np.inf, np.inf
        numerator, denominator = _widen(math.log(la), math.log(ha)), _widen(math.log(lb), math.log(hb))
        if denominator[0] <= 0.0:
            return -np.inf, np.inf
        p, q = numerator[0] / denominator[0], numerator[0] / denominator[1]
        r, s = numerator[1] / denominator[0], numerator[1] / denominator[1]
        return _widen(min(p, q), max(r, s))
    if op == FPOW:
        return _power(la, ha, lb, hb)
    if op == FEXP or op == FATAN or op == FSINH or op == FTANH:
        low, high = _widen(real_function(op, la, 0.0), real_function(op, ha, 0.0))
        return (max(low, 0.0), high) if op == FEXP else (low, high)
    return -np.inf, np.inf


@_jit
def _wave(op, la, ha):
    """sin or cos over an interval: its values at the ends, and ±1 where a crest may lie inside."""
    if not (ha - la < 6.28 and abs(la) < 1e8 and abs(ha) < 1e8):
        return -1.0, 1.0
    shift = 0.5 if op == FSIN else 0.0
    p, q = real_function(op, la, 0.0), real_function(op, ha, 0.0)
    low, high = _widen(min(p, q), max(p, q))
    # Crests lie at (shift + k) pi; the division is off by far less than the margin.
    first, last = math.ceil(la / math.pi - shift - 1e-7), math.floor(ha / math.pi - shift + 1e-7)
    k = first
    while k <= last:
        if k % 2 == 0:
            high = 1.0
        else:
            low = -1.0
        k += 1
    return max(low, -1.0), min(high, 1.0)


@_jit
def _power(la, ha, lb, hb):
    if lb != hb:
        return -np.inf, np.inf
    whole = lb == math.floor(lb)
    if (la < 0.0 and not whole) or (la <= 0.0 and lb < 0.0) or (la < 0.0 and lb < 0.0):
        return -np.inf, np.inf
    p, q = real_function(FPOW, la, lb), real_function(FPOW, ha, lb)
    low, high = min(p, q), max(p, q)
    if whole and lb % 2 == 0.0 and la < 0.0 < ha:
        low = 0.0
    return _widen(low, high)


@_jit
def backward(op, t, a, b, c, lo, hi, flo, fhi):
    """Narrow the arguments of one instruction to what its result, as required, allows."""
    if op == AND:
        if lo[t] == 1:
            lo[a], lo[b] = 1, 1
        elif hi[t] == 0:
            if lo[a] == 1:
                hi[b] = 0
            if lo[b] == 1:
                hi[a] = 0
    elif op == OR:
        if hi[t] == 0:
            hi[a], hi[b] = 0, 0
        elif lo[t] == 1:
            if hi[a] == 0:
                lo[b] = 1
            if hi[b] == 0:
                lo[a] = 1
    elif op == NOT:
        lo[a], hi[a] = max(lo[a], 1 - hi[t]), min(hi[a], 1 - lo[t])
    elif op == ILE or op == ILT:
        gap = 1 if op == ILT else 0
        if lo[t] == 1:
            _require_order(a, b, gap, lo, hi)
        elif hi[t] == 0:
            _require_order(b, a, 1 - gap, lo, hi)
    elif op == IEQ or op == INE:
        if (op == IEQ and lo[t] == 1) or (op == INE and hi[t] == 0):
            lo[a] = max(lo[a], lo[b])
            lo[b] = lo[a]
            hi[a] = min(hi[a], hi[b])
            hi[b] = hi[a]
        elif lo[t] == hi[t]:
            _require_different(a, b, lo, hi)
            _require_different(b, a, lo, hi)
    elif op == IADD or op == IADD_CHECKED:
        _narrow(a, _add_lower(lo[t], -hi[b]), _add_upper(hi[t], -lo[b]), lo, hi)
        _narrow(b, _add_lower(lo[t], -hi[a]), _add_upper(hi[t], -lo[a]), lo, hi)
    elif op == ISUB or op == ISUB_CHECKED:
        _narrow(a, _add_lower(lo[t], lo[b]), _add_upper(hi[t], hi[b]), lo, hi)
        _narrow(b, _add_lower(lo[a], -hi[t]), _add_upper(hi[a], -lo[t]), lo, hi)
    elif op == IMUL or op == IMUL_CHECKED:
        _divide(a, b, t, lo, hi)
        _divide(b, a, t, lo, hi)
    elif op == IITE:
        if hi[t] < lo[b] or lo[t] > hi[b]:
            hi[a] = 0
        if hi[t] < lo[c] or lo[t] > hi[c]:
            lo[a] = 1
        if lo[a] == 1:
            _narrow(b, lo[t], hi[t], lo, hi)
        elif hi[a] == 0:
            _narrow(c, lo[t], hi[t], lo, hi)
    elif op == IMIN:
        lo[a], lo[b] = max(lo[a], lo[t]), max(lo[b], lo[t])
    elif op == IMAX:
        hi[a], hi[b] = min(hi[a], hi[t]), min(hi[b], hi[t])
    elif op == IABS:
        _narrow(a, -hi[t], hi[t], lo, hi)
    elif op >= FADD:
        _backward_real(op, t, a, b, c, lo, hi, flo, fhi)


@_jit
def _narrow(register, low, high, lo, hi):
    lo[register], hi[register] = max(lo[register], low), min(hi[register], high)


@_jit
def _require_order(a, b, gap, lo, hi):
    """a + gap <= b"""
    hi[a] = min(hi[a], _add_upper(hi[b], -gap))
    lo[b] = max(lo[b], _add_lower(lo[a], gap))


@_jit
def _require_different(a, b, lo, hi):
    """a != b, where b is a single value at an end of a."""
    if lo[b] == hi[b] and abs(lo[b]) < INFINITE:
        if lo[a] == lo[b]:
            lo[a] += 1
        if hi[a] == lo[b]:
            hi[a] -= 1


@_jit
def _divide(x, y, t, lo, hi):
    """x * y = t with a single nonzero value of y."""
    factor = lo[y]
    if factor != hi[y] or factor == 0 or abs(factor) >= INFINITE:
        return
    low, high = (lo[t], hi[t]) if factor > 0 else (-hi[t], -lo[t])
    factor = abs(factor)
    if low > -INFINITE:
        lo[x] = max(lo[x], -((-low) // factor))
    if high < INFINITE:
        hi[x] = min(hi[x], high // factor)


@_jit
def _narrow_real(register, low, high, flo, fhi):
    # Comparisons with NaN are false, so an undefined bound narrows nothing.
    flo[register] = max(flo[register], low)
    fhi[register] = min(fhi[register], high)


@_jit
def _backward_real(op, t, a, b, c, lo, hi, flo, fhi):
    if op == FLE or op == FLT:
        if lo[t] == 1:
            _narrow_real(a, flo[a], fhi[b], flo, fhi)
            _narrow_real(b, flo[a], fhi[b], flo, fhi)
        elif hi[t] == 0:
            _narrow_real(b, flo[b], fhi[a], flo, fhi)
            _narrow_real(a, flo[b], fhi[a], flo, fhi)
    elif op == FEQ or op == FNE:
        if (op == FEQ and lo[t] == 1) or (op == FNE and hi[t] == 0):
            _narrow_real(a, flo[b], fhi[b], flo, fhi)
            _narrow_real(b, flo[a], fhi[a], flo, fhi)
    elif op == FADD:
        _narrow_real(a, down(flo[t] - fhi[b]), up(fhi[t] - flo[b]), flo, fhi)
        _narrow_real(b, down(flo[t] - fhi[a]), up(fhi[t] - flo[a]), flo, fhi)
    elif op == FSUB:
        _narrow_real(a, down(flo[t] + flo[b]), up(fhi[t] + fhi[b]), flo, fhi)
        _narrow_real(b, down(flo[a] - fhi[t]), up(fhi[a] - flo[t]), flo, fhi)
    elif op == FMUL:
        _divide_real(a, b, t, flo, fhi)
        _divide_real(b, a, t, flo, fhi)
    elif op == FITE:
        if lo[a] == 1:
            _narrow_real(b, flo[t], fhi[t], flo, fhi)
        elif hi[a] == 0:
            _narrow_real(c, flo[t], fhi[t], flo, fhi)
    elif op == FABS:
        _narrow_real(a, -fhi[t], fhi[t], flo, fhi)
    elif op == INT_TO_FLOAT:
        if abs(flo[t]) < 4.0e18:
            lo[a] = max(lo[a], int(math.ceil(flo[t])))
        if abs(fhi[t]) < 4.0e18:
            hi[a] = min(hi[a], int(math.floor(fhi[t])))


@_jit
def _divide_real(x, y, t, flo, fhi):
    """x * y = t with y bounded away from zero."""
    if flo[y] > 0.0 or fhi[y] < 0.0:
        low, high = _quotients(flo[t], fhi[t], flo[y], fhi[y])
        _narrow_real(x, low, high, flo, fhi)


@_jit
def _evaluate(code, count, variables, constants, roots, box_lower, box_upper, lower, upper):
    lo, hi = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    flo, fhi = lo.view(np.float64), hi.view(np.float64)
    for k in range(constants.shape[0]):
        lo[variables + k], hi[variables + k] = constants[k, 0], constants[k, 1]
    for n in range(box_lower.shape[0]):
        for v in range(variables):
            lo[v], hi[v] = box_lower[n, v], box_upper[n, v]
        for k in range(code.shape[0]):
            forward(code[k, 0], code[k, 1], code[k, 2], code[k, 3], code[k, 4], lo, hi, flo, fhi)
        for r in range(roots.shape[0]):
            lower[n, r], upper[n, r] = lo[roots[r]], hi[roots[r]]


def evaluate_boxes(
    tape: Tape, lower: NDArray[np.int64], upper: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ranges of a tape's roots on the boxes `lower[n, variable]` .. `upper[n, variable]`.

    Reals stand everywhere as the bits of a float64.  The tape must not reuse registers.
    """
    shape = (len(lower), len(tape.roots))
    result_lower, result_upper = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
    lower, upper = np.ascontiguousarray(lower), np.ascontiguousarray(upper)

    def task(first: int, last: int) -> None:
        part = slice(first, last)
        _evaluate(
            tape.code, tape.register_count, tape.variable_count, tape.constant_bounds, tape.roots,
            lower[part], upper[part], result_lower[part], result_upper[part],
        )  # fmt: skip

    over_ranges(task, len(lower), least=100_000 // (len(tape.code) + 1) + 16)
    return result_lower, result_upper
