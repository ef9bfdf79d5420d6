"""The batch reading of tapes: many states at once, a block at a time, in machine code.

`run_block` interprets a tape over one block of `BLOCK` states.  Each register is a row of `BLOCK`
numbers, so that the cost of decoding an instruction is shared by the block and every operation is
a loop without branches, which the compiler turns into vector instructions.

Real-valued operations are evaluated in float64, rounded to nearest: good for simulation and for
looking for witnesses, never a proof.  Integer operations are exact; the checked ones raise the flag
in `flags[0]` when a value leaves 62 bits.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from policyproof.model.tape import INTEGER_LIMIT, Op, Tape
from policyproof.run.machine_code import njit
from policyproof.run.threads import over_ranges

BLOCK = 128

INSTRUCTIONS_PER_THREAD = 1_000_000
"""Instructions times states that a thread should have to do (about a millisecond)."""

# Numba freezes module constants, but not members of an IntEnum.
IADD, ISUB, IMUL, IFLOORDIV, IMOD = (int(Op[name]) for name in ("IADD", "ISUB", "IMUL", "IFLOORDIV", "IMOD"))
IMIN, IMAX, IABS, ISGN = (int(Op[name]) for name in ("IMIN", "IMAX", "IABS", "ISGN"))
IEQ, INE, ILT, ILE = (int(Op[name]) for name in ("IEQ", "INE", "ILT", "ILE"))
AND, OR, NOT, IITE = (int(Op[name]) for name in ("AND", "OR", "NOT", "IITE"))
IADD_CHECKED, ISUB_CHECKED, IMUL_CHECKED = (int(Op[name]) for name in ("IADD_CHECKED", "ISUB_CHECKED", "IMUL_CHECKED"))
FADD, FSUB, FMUL, FDIV = (int(Op[name]) for name in ("FADD", "FSUB", "FMUL", "FDIV"))
FMIN, FMAX, FABS, FSGN = (int(Op[name]) for name in ("FMIN", "FMAX", "FABS", "FSGN"))
FEQ, FNE, FLT, FLE, FITE = (int(Op[name]) for name in ("FEQ", "FNE", "FLT", "FLE", "FITE"))
INT_TO_FLOAT, FFLOOR, FCEIL, FTRC = (int(Op[name]) for name in ("INT_TO_FLOAT", "FFLOOR", "FCEIL", "FTRC"))
FSQRT, FEXP, FLOG, FPOW = (int(Op[name]) for name in ("FSQRT", "FEXP", "FLOG", "FPOW"))
FSIN, FCOS, FTAN, FASIN, FACOS, FATAN = (int(Op[name]) for name in ("FSIN", "FCOS", "FTAN", "FASIN", "FACOS", "FATAN"))
FSINH, FCOSH, FTANH = (int(Op[name]) for name in ("FSINH", "FCOSH", "FTANH"))
LIMIT = INTEGER_LIMIT


@njit(cache=True, nogil=True, error_model="numpy")
def run_block(code, integers, floats, flags):
    """Run a tape over one block: `integers[register, state]` and `floats`, its view as float64."""
    for k in range(code.shape[0]):
        op, t, a, b, c = code[k, 0], code[k, 1], code[k, 2], code[k, 3], code[k, 4]
        if op < FADD:
            _integer_instruction(op, integers[t], integers[a], integers[b], integers[c], flags)
        elif op <= FITE:
            _float_instruction(op, integers, floats, t, a, b, c)
        else:
            _function(op, integers, floats, t, a, b)


@njit(cache=True, nogil=True, error_model="numpy", inline="never")
def _integer_instruction(op, rt, ra, rb, rc, flags):
    if op == AND:
        for j in range(BLOCK):
            rt[j] = ra[j] & rb[j]
    elif op == OR:
        for j in range(BLOCK):
            rt[j] = ra[j] | rb[j]
    elif op == NOT:
        for j in range(BLOCK):
            rt[j] = 1 - ra[j]
    elif op == IEQ:
        for j in range(BLOCK):
            rt[j] = ra[j] == rb[j]
    elif op == INE:
        for j in range(BLOCK):
            rt[j] = ra[j] != rb[j]
    elif op == ILT:
        for j in range(BLOCK):
            rt[j] = ra[j] < rb[j]
    elif op == ILE:
        for j in range(BLOCK):
            rt[j] = ra[j] <= rb[j]
    elif op == IADD:
        for j in range(BLOCK):
            rt[j] = ra[j] + rb[j]
    elif op == ISUB:
        for j in range(BLOCK):
            rt[j] = ra[j] - rb[j]
    elif op == IMUL:
        for j in range(BLOCK):
            rt[j] = ra[j] * rb[j]
    elif op == IITE:
        for j in range(BLOCK):
            rt[j] = rb[j] if ra[j] != 0 else rc[j]
    elif op == IMIN:
        for j in range(BLOCK):
            rt[j] = min(ra[j], rb[j])
    elif op == IMAX:
        for j in range(BLOCK):
            rt[j] = max(ra[j], rb[j])
    elif op == IABS:
        for j in range(BLOCK):
            rt[j] = abs(ra[j])
    elif op == ISGN:
        for j in range(BLOCK):
            rt[j] = (ra[j] > 0) - (ra[j] < 0)
    elif op == IFLOORDIV:
        for j in range(BLOCK):
            rt[j] = 0 if rb[j] == 0 else ra[j] // rb[j]
    elif op == IMOD:
        for j in range(BLOCK):
            rt[j] = 0 if rb[j] == 0 else ra[j] % rb[j]
    else:
        _checked_instruction(op, rt, ra, rb, flags)


@njit(cache=True, nogil=True, error_model="numpy", inline="never")
def _checked_instruction(op, rt, ra, rb, flags):
    # Arguments are within 2**62, so a sum fits in 64 bits; a product is judged by its size as a float.
    for j in range(BLOCK):
        if op == IADD_CHECKED:
            value = ra[j] + rb[j]
            outside = abs(value) >= LIMIT
        elif op == ISUB_CHECKED:
            value = ra[j] - rb[j]
            outside = abs(value) >= LIMIT
        else:
            value = ra[j] * rb[j]
            outside = abs(float(ra[j]) * float(rb[j])) >= 0.99 * LIMIT
        if outside:
            flags[0] = 1
            value = 0
        rt[j] = value


@njit(cache=True, nogil=True, error_model="numpy", inline="never")
def _float_instruction(op, integers, floats, t, a, b, c):
    rt, ra, rb, rc = floats[t], floats[a], floats[b], floats[c]
    truth = integers[t]
    if op == FADD:
        for j in range(BLOCK):
            rt[j] = ra[j] + rb[j]
    elif op == FSUB:
        for j in range(BLOCK):
            rt[j] = ra[j] - rb[j]
    elif op == FMUL:
        for j in range(BLOCK):
            rt[j] = ra[j] * rb[j]
    elif op == FDIV:
        for j in range(BLOCK):
            rt[j] = 0.0 if rb[j] == 0.0 else ra[j] / rb[j]
    elif op == FMIN:
        for j in range(BLOCK):
            rt[j] = min(ra[j], rb[j])
    elif op == FMAX:
        for j in range(BLOCK):
            rt[j] = max(ra[j], rb[j])
    elif op == FABS:
        for j in range(BLOCK):
            rt[j] = abs(ra[j])
    elif op == FEQ:
        for j in range(BLOCK):
            truth[j] = ra[j] == rb[j]
    elif op == FNE:
        for j in range(BLOCK):
            truth[j] = ra[j] != rb[j]
    elif op == FLT:
        for j in range(BLOCK):
            truth[j] = ra[j] < rb[j]
    elif op == FLE:
        for j in range(BLOCK):
            truth[j] = ra[j] <= rb[j]
    else:
        condition = integers[a]
        for j in range(BLOCK):
            rt[j] = rb[j] if condition[j] != 0 else rc[j]


@njit(cache=True, nogil=True, error_model="numpy", inline="never")
def _function(op, integers, floats, t, a, b):
    for j in range(BLOCK):
        x = floats[a, j]
        if op == INT_TO_FLOAT:
            floats[t, j] = float(integers[a, j])
        elif op == FFLOOR:
            integers[t, j] = int(math.floor(x))
        elif op == FCEIL:
            integers[t, j] = int(math.ceil(x))
        elif op == FTRC:
            integers[t, j] = int(x)
        elif op == FSGN:
            integers[t, j] = (x > 0.0) - (x < 0.0)
        else:
            floats[t, j] = real_function(op, x, floats[b, j])


@njit(cache=True, nogil=True, error_model="numpy", inline="never")
def real_function(op, x, y):
    """One real function at one point; 0 where it is undefined.  Shared with the box kernel."""
    result = 0.0
    if op == FSQRT:
        result = math.sqrt(x) if x >= 0.0 else 0.0
    elif op == FEXP:
        result = math.exp(x)
    elif op == FLOG:
        defined = x > 0.0 and y > 0.0 and y != 1.0
        result = math.log(x) / math.log(y) if defined else 0.0
    elif op == FSIN:
        result = math.sin(x)
    elif op == FCOS:
        result = math.cos(x)
    elif op == FTAN:
        result = math.tan(x)
    elif op == FASIN:
        result = math.asin(x) if -1.0 <= x <= 1.0 else 0.0
    elif op == FACOS:
        result = math.acos(x) if -1.0 <= x <= 1.0 else 0.0
    elif op == FATAN:
        result = math.atan(x)
    elif op == FSINH:
        result = math.sinh(x)
    elif op == FCOSH:
        result = math.cosh(x)
    elif op == FTANH:
        result = math.tanh(x)
    elif op == FPOW:
        undefined = (x < 0.0 and y != math.floor(y)) or (x == 0.0 and y < 0.0)
        result = 0.0 if undefined else x**y
    return result


@njit(cache=True, nogil=True, error_model="numpy")
def prepare(constants, variable_count, integers):
    """Fill the registers of the constants; they are never overwritten."""
    for k in range(constants.shape[0]):
        integers[variable_count + k, :] = constants[k]


@njit(cache=True, nogil=True, error_model="numpy")
def _evaluate(code, register_count, variable_count, constants, roots, states, results, flags):
    count = states.shape[0]
    integers = np.zeros((register_count, BLOCK), dtype=np.int64)
    floats = integers.view(np.float64)
    prepare(constants, variable_count, integers)
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        for v in range(variable_count):
            for j in range(size):
                integers[v, j] = states[start + j, v]
        run_block(code, integers, floats, flags)
        for r in range(roots.shape[0]):
            for j in range(size):
                results[start + j, r] = integers[roots[r], j]


def evaluate_batch(tape: Tape, states: NDArray[np.int64]) -> tuple[NDArray[np.int64], bool]:
    """The roots of a tape on `states[n, variable]`; reals stand in both as the bits of a float64.

    The second result says whether an integer left 62 bits.
    """
    results = np.empty((len(states), len(tape.roots)), dtype=np.int64)
    states = np.ascontiguousarray(states, dtype=np.int64)

    def task(first: int, last: int) -> bool:
        flags = np.zeros(2, dtype=np.int64)
        _evaluate(
            tape.code, tape.register_count, tape.variable_count, tape.constants, tape.roots, states[first:last],
            results[first:last], flags,
        )  # fmt: skip
        return bool(flags[0])

    overflow = over_ranges(task, len(states), least=least_batch(tape))
    return results, any(overflow)


def least_batch(tape: Tape) -> int:
    """How many states make it worth while to wake another thread."""
    return max(4 * BLOCK, INSTRUCTIONS_PER_THREAD // (len(tape.code) + tape.variable_count + 1))
