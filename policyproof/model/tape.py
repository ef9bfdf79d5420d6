"""The tape: expressions compiled into a flat list of register instructions.

Idea: one precompiled kernel interprets every model's tape, so no model pays for compilation, and
nothing recurses.  An instruction is (operation, target, a, b, c); a register holds 64 bits, read as
an integer (truth values are 0 and 1) or as a float, as the operation says.

Two layouts of the same instructions:

- `batch`: registers are reused as soon as their value is dead, so that a block of states stays in
  the processor's cache (`policyproof.model.batch_kernel`);
- `boxes`: every value keeps its register, since the box kernel walks the tape backwards too
  (`policyproof.model.box_kernel`).

Operations are total (see `policyproof.model.definedness`).  Integer operations whose result could
leave 64 bits, by the ranges of their arguments, are replaced by checked ones, which raise a flag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from policyproof.model.expressions import CONSTANT, VARIABLE, Expression, nodes
from policyproof.model.integral import NotIntegral, integral
from policyproof.model.ranges import Range, ranges
from policyproof.run.errors import Feature, UnsupportedFeature

INTEGER_LIMIT = 1 << 62
"""Values beyond this count as infinite in boxes, and are flagged in batches."""


MAXIMAL_POWER = 64


class Op(IntEnum):
    """Operations; I: integers, F: floats."""

    IADD = 0
    ISUB = 1
    IMUL = 2
    IFLOORDIV = 3
    IMOD = 4
    IMIN = 5
    IMAX = 6
    IABS = 7
    ISGN = 8
    IEQ = 9
    INE = 10
    ILT = 11
    ILE = 12
    AND = 13
    OR = 14
    NOT = 15
    IITE = 16
    IADD_CHECKED = 17
    ISUB_CHECKED = 18
    IMUL_CHECKED = 19
    FADD = 20
    FSUB = 21
    FMUL = 22
    FDIV = 23
    FMIN = 24
    FMAX = 25
    FABS = 26
    FEQ = 27
    FNE = 28
    FLT = 29
    FLE = 30
    FITE = 31
    INT_TO_FLOAT = 32
    FFLOOR = 33
    FCEIL = 34
    FTRC = 35
    FSGN = 36
    FSQRT = 37
    FEXP = 38
    FLOG = 39
    FSIN = 40
    FCOS = 41
    FTAN = 42
    FASIN = 43
    FACOS = 44
    FATAN = 45
    FSINH = 46
    FCOSH = 47
    FTANH = 48
    FPOW = 49


_CHECKED = {Op.IADD: Op.IADD_CHECKED, Op.ISUB: Op.ISUB_CHECKED, Op.IMUL: Op.IMUL_CHECKED}
_BINARY = {
    "+": (Op.IADD, Op.FADD),
    "-": (Op.ISUB, Op.FSUB),
    "*": (Op.IMUL, Op.FMUL),
    "min": (Op.IMIN, Op.FMIN),
    "max": (Op.IMAX, Op.FMAX),
    "=": (Op.IEQ, Op.FEQ),
    "≠": (Op.INE, Op.FNE),
    "<": (Op.ILT, Op.FLT),
    "≤": (Op.ILE, Op.FLE),
}
_FUNCTIONS = {
    "sqrt": Op.FSQRT,
    "exp": Op.FEXP,
    "sin": Op.FSIN,
    "cos": Op.FCOS,
    "tan": Op.FTAN,
    "asin": Op.FASIN,
    "acos": Op.FACOS,
    "atan": Op.FATAN,
    "sinh": Op.FSINH,
    "cosh": Op.FCOSH,
    "tanh": Op.FTANH,
}
_ROUNDINGS = {"floor": Op.FFLOOR, "ceil": Op.FCEIL, "trc": Op.FTRC}
FLOAT_RESULTS = frozenset(
    [Op.FADD, Op.FSUB, Op.FMUL, Op.FDIV, Op.FMIN, Op.FMAX, Op.FABS, Op.FITE, Op.INT_TO_FLOAT, Op.FPOW, Op.FLOG]
    + list(_FUNCTIONS.values())
)


@dataclass(frozen=True)
class Tape:
    """A compiled list of expressions.

    Registers 0 .. number of variables - 1 hold the variables; then come constants; then results.
    """

    code: NDArray[np.int32]
    """code[instruction, (operation, target, a, b, c)]"""
    register_count: int
    variable_count: int
    constants: NDArray[np.int64]
    """The bits of the constants, in the registers that follow the variables; reals rounded to nearest."""
    constant_bounds: NDArray[np.int64]
    """constant_bounds[constant, (lower, upper)]: the same, with reals rounded outward."""
    roots: NDArray[np.int32]
    """The register of each root."""
    float_registers: NDArray[np.bool_]
    """Which registers hold floats; meaningful only when registers are not reused."""
    exact: bool
    """Integers only, so that every result is exact."""


class Compiler:
    """Compiles expressions over an ordered list of variables."""

    def __init__(self, variables: Sequence[tuple[str, str]], box: Mapping[str, Range]) -> None:
        """`variables`: (name, kind) in the order of the state's columns; `box`: their domains."""
        self.position = {name: index for index, (name, _) in enumerate(variables)}
        self.real_variables = [kind == "real" for _, kind in variables]
        self.box = box

    def compile(self, roots: Sequence[Expression], *, reuse_registers: bool = True) -> Tape:
        try:
            prepared = integral(roots)
            exact = True
        except NotIntegral:
            prepared, exact = list(roots), False
        lowering = _Lowering(self, prepared)
        return lowering.tape(exact=exact, reuse_registers=reuse_registers)


class _Lowering:
    def __init__(self, compiler: Compiler, roots: list[Expression]) -> None:
        self.compiler = compiler
        self.code: list[tuple[int, int, int, int, int]] = []
        self.constant_registers: dict[tuple[bool, int, int, int], int] = {}
        self.is_float: list[bool] = list(compiler.real_variables)
        self.constants: list[tuple[int, int, int]] = []
        self.register: dict[int, int] = {}
        self.ranges = ranges(roots, compiler.box)
        ordered = nodes(roots)
        for node in ordered:
            if node.operator == CONSTANT:
                self.register[node.serial] = self._constant(node)
        # Constants that instructions need are collected first: they have their own registers.
        self._reserve(ordered)
        self.root_registers = self._lower(ordered, roots)

    # Registers

    def _constant(self, node: Expression) -> int:
        if node.kind == "real":
            value = Fraction(node.exact)
            return self._float_constant(value, value)
        return self._integer_constant(int(node.exact))

    def _integer_constant(self, value: int) -> int:
        if abs(value) >= INTEGER_LIMIT:
            raise UnsupportedFeature([Feature(f"the constant {value}", "integers beyond 62 bits in batches of states")])
        return self._constant_register(False, value, value, value)

    def _float_constant(self, lower: Fraction, upper: Fraction) -> int:
        """A real known to lie between two rationals."""
        nearest = to_float(lower)
        return self._constant_register(True, bits(nearest), bits(float_below(lower)), bits(float_above(upper)))

    def _constant_register(self, is_float: bool, nearest: int, lower: int, upper: int) -> int:
        key = (is_float, nearest, lower, upper)
        if key not in self.constant_registers:
            self.constant_registers[key] = len(self.is_float)
            self.is_float.append(is_float)
            self.constants.append((nearest, lower, upper))
        return self.constant_registers[key]

    def _reserve(self, ordered: list[Expression]) -> None:
        for node in ordered:
            if node.operator == "aa":
                for index in range(len(node.arguments) - 2):
                    self._integer_constant(index)
            elif node.operator in ("π", "e"):
                lower, upper = self.ranges[node.serial]
                self.register[node.serial] = self._float_constant(lower, upper)
            elif node.operator == "pow":
                self._integer_constant(1)
            elif node.operator == "ceil":
                self._integer_constant(0)

    def _emit(self, operation: Op, a: int, b: int = 0, c: int = 0) -> int:
        target = len(self.is_float)
        self.is_float.append(operation in FLOAT_RESULTS)
        self.code.append((int(operation), target, a, b, c))
        return target

    def _as_float(self, register: int) -> int:
        return register if self.is_float[register] else self._emit(Op.INT_TO_FLOAT, register)

    # Instructions

    def _lower(self, ordered: list[Expression], roots: list[Expression]) -> list[int]:
        # A quotient of integers that is only rounded needs no register of its own.
        rounded = ("floor", "ceil")
        needed = {argument.serial for node in ordered if node.operator not in rounded for argument in node.arguments}
        needed |= {root.serial for root in roots}
        needed |= {node.serial for node in ordered if node.arguments and node.arguments[-1].kind != "int"}
        for node in ordered:
            if node.serial in self.register:
                continue
            if node.operator == VARIABLE:
                self.register[node.serial] = self.compiler.position[node.name]
            elif node.operator == "/" and node.serial not in needed and node.arguments[0].kind == "int":
                continue
            else:
                self.register[node.serial] = self._node(node)
        return [self.register[root.serial] for root in roots]

    def _node(self, node: Expression) -> int:
        operator = node.operator
        if operator in ("floor", "ceil", "trc"):
            return self._rounding(node)
        if operator == "aa":
            return self._access([self.register[argument.serial] for argument in node.arguments], node)
        inputs = [self.register[argument.serial] for argument in node.arguments]
        if operator == "pow":
            return self._power(node, inputs)
        if operator == "∧":
            return self._emit(Op.AND, *inputs)
        if operator == "∨":
            return self._emit(Op.OR, *inputs)
        if operator == "⇒":
            return self._emit(Op.ILE, *inputs)
        if operator == "¬":
            return self._emit(Op.NOT, *inputs)
        if operator == "ite":
            return self._choice(inputs[0], inputs[1], inputs[2], is_float=node.kind == "real")
        if operator in (">", "≥"):
            operator, inputs = ("<" if operator == ">" else "≤"), inputs[::-1]
        if operator in _BINARY:
            return self._binary(node, operator, inputs)
        if operator == "/":
            return self._emit(Op.FDIV, self._as_float(inputs[0]), self._as_float(inputs[1]))
        if operator == "%":
            return self._emit(Op.IMOD, *inputs)
        if operator in ("abs", "sgn"):
            return self._sign(operator, inputs[0])
        if operator == "log":
            return self._emit(Op.FLOG, self._as_float(inputs[0]), self._as_float(inputs[1]))
        return self._emit(_FUNCTIONS[operator], self._as_float(inputs[0]))

    def _binary(self, node: Expression, operator: str, inputs: list[int]) -> int:
        integer, real = _BINARY[operator]
        if node.kind == "real" or any(self.is_float[register] for register in inputs):
            return self._emit(real, self._as_float(inputs[0]), self._as_float(inputs[1]))
        low, high = self.ranges[node.serial]
        if integer in _CHECKED and not (low > -INTEGER_LIMIT and high < INTEGER_LIMIT):
            integer = _CHECKED[integer]
        return self._emit(integer, *inputs)

    def _sign(self, operator: str, register: int) -> int:
        if operator == "abs":
            return self._emit(Op.FABS if self.is_float[register] else Op.IABS, register)
        return self._emit(Op.FSGN if self.is_float[register] else Op.ISGN, register)

    def _choice(self, condition: int, then: int, otherwise: int, *, is_float: bool) -> int:
        if is_float:
            return self._emit(Op.FITE, condition, self._as_float(then), self._as_float(otherwise))
        return self._emit(Op.IITE, condition, then, otherwise)

    def _access(self, inputs: list[int], node: Expression) -> int:
        """An index below 0 or beyond the end is clamped: the total reading of an access."""
        index, elements = inputs[0], inputs[1:]
        result = elements[-1]
        for position in range(len(elements) - 2, -1, -1):
            here = self._emit(Op.ILE, index, self._integer_constant(position))
            result = self._choice(here, elements[position], result, is_float=node.kind == "real")
        return self._as_float(result) if node.kind == "real" else result

    def _rounding(self, node: Expression) -> int:
        (argument,) = node.arguments
        if argument.operator == "/" and all(part.kind == "int" for part in argument.arguments):
            numerator, denominator = (self.register[part.serial] for part in argument.arguments)
            if node.operator == "floor":
                return self._emit(Op.IFLOORDIV, numerator, denominator)
            if node.operator == "ceil":
                zero = self._integer_constant(0)
                negated = self._emit(Op.IFLOORDIV, self._emit(Op.ISUB, zero, numerator), denominator)
                return self._emit(Op.ISUB, zero, negated)
        register = self.register[argument.serial]
        return self._emit(_ROUNDINGS[node.operator], register) if self.is_float[register] else register

    def _power(self, node: Expression, inputs: list[int]) -> int:
        if node.kind == "int":
            count = int(node.arguments[1].exact)
            if count > MAXIMAL_POWER:
                what = f"integer powers above {MAXIMAL_POWER} in batches of states"
                raise UnsupportedFeature([Feature(str(node), what)])
            result, square = self._integer_constant(1), inputs[0]
            low, high = self.ranges[node.serial]
            checked = not (low > -INTEGER_LIMIT and high < INTEGER_LIMIT)
            multiply = Op.IMUL_CHECKED if checked else Op.IMUL
            for _ in range(count):
                result = self._emit(multiply, result, square)
            return result
        return self._emit(Op.FPOW, self._as_float(inputs[0]), self._as_float(inputs[1]))

    # Layout

    def tape(self, *, exact: bool, reuse_registers: bool) -> Tape:
        variable_count = len(self.compiler.real_variables)
        first_result = variable_count + len(self.constants)
        code = np.array(self.code, dtype=np.int32).reshape(-1, 5)
        roots = np.array(self.root_registers, dtype=np.int32)
        count = len(self.is_float)
        if reuse_registers:
            code, roots, count = _reuse(code, roots, first_result)
        return Tape(
            code=code,
            register_count=count,
            variable_count=variable_count,
            constants=np.array([nearest for nearest, _, _ in self.constants], dtype=np.int64),
            constant_bounds=np.array([ends for _, *ends in self.constants], dtype=np.int64).reshape(-1, 2),
            roots=roots,
            float_registers=np.array(self.is_float, dtype=np.bool_),
            exact=exact,
        )


def to_float(value: Fraction) -> float:
    """The nearest float; infinite where the number is too large."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def float_below(value: Fraction) -> float:
    """The largest float that is not above the number."""
    nearest = to_float(value)
    return nearest if nearest <= value else float(np.nextafter(nearest, -np.inf))


def float_above(value: Fraction) -> float:
    """The smallest float that is not below the number."""
    nearest = to_float(value)
    return nearest if nearest >= value else float(np.nextafter(nearest, np.inf))


def bits(value: float) -> int:
    """The bits of a float64, as the integer that stands for it in registers and states."""
    return int(np.float64(value).view(np.int64))


_ARITY = {
    **dict.fromkeys([Op.IITE, Op.FITE], 3),
    **dict.fromkeys([Op.IABS, Op.ISGN, Op.NOT, Op.FABS, Op.FSGN, Op.INT_TO_FLOAT], 1),
    **dict.fromkeys([*_ROUNDINGS.values(), *_FUNCTIONS.values()], 1),
}


def arity(operation: int) -> int:
    return _ARITY.get(Op(operation), 2)


def _reuse(
    code: NDArray[np.int32], roots: NDArray[np.int32], first_result: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
    """Give every result the lowest register that is free when it is computed."""
    last_use: dict[int, int] = {}
    for time, (operation, _, *inputs) in enumerate(code.tolist()):
        for register in inputs[: arity(operation)]:
            last_use[register] = time
    for register in roots.tolist():
        last_use[register] = len(code)
    home: dict[int, int] = {}
    free: list[int] = []
    next_register = first_result
    renamed = []
    for time, (operation, target, *inputs) in enumerate(code.tolist()):
        count = arity(operation)
        arguments = [home.get(register, register) for register in inputs[:count]]
        # The target never overwrites an argument: loops over distinct registers become vector code.
        if free:
            free.sort(reverse=True)
            home[target] = free.pop()
        else:
            home[target] = next_register
            next_register += 1
        for register in set(inputs[:count]):
            if register >= first_result and last_use[register] == time:
                free.append(home[register])
        renamed.append((operation, home[target], *arguments, *[0] * (3 - count)))
        if target not in last_use:
            free.append(home[target])
    new_code = np.array(renamed, dtype=np.int32).reshape(-1, 5)
    new_roots = np.array([home.get(register, register) for register in roots.tolist()], dtype=np.int32)
    return new_code, new_roots, next_register
