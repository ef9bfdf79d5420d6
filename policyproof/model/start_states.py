"""The states that satisfy a condition, as boxes and one by one (the start states, mostly).

ICAPS22 finds start states by one solver call after another; trying all assignments is hopeless with
twenty variables.  Here the condition is compiled once, and boxes are split where it is undecided
(`search_kernel`); a box in which it holds throughout is never split further.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from policyproof.model.automata import Variable
from policyproof.model.definedness import definedness
from policyproof.model.expressions import Expression, conjunction, operands
from policyproof.model.flat import FlatModel
from policyproof.model.ranges import specialise
from policyproof.model.tape import INTEGER_LIMIT, Compiler, Tape, arity, bits, float_above, float_below
from policyproof.run.budget import Budget

BOXES_AT_ONCE = 4096
WORK_AT_ONCE = 1_000_000
"""After how many instructions the search looks at the time: a fraction of a second, however long the condition is."""
MAXIMAL_CASES = 10_000
"""Into how many cases a condition is taken apart, at most."""
POOL_FACTOR = 24
"""The pool of instruction lists, in multiples of the tape's length; lists shrink, so this is plenty."""


@dataclass(frozen=True)
class Boxes:
    """Disjoint boxes of states, `lower[n, variable]` to `upper[n, variable]` (reals as bits of float64)."""

    lower: NDArray[np.int64]
    upper: NDArray[np.int64]
    certain: NDArray[np.bool_]
    """Does the condition hold in the whole box?  Otherwise only reals are left to decide."""


def domain_ends(item: Variable) -> tuple[int, int]:
    """The ends of a domain as registers hold them; infinite ones as the kernels mark them."""
    domain = item.domain
    if domain.kind == "real":
        lower = -np.inf if domain.lower is None else float_below(Fraction(domain.lower))
        upper = np.inf if domain.upper is None else float_above(Fraction(domain.upper))
        return bits(lower), bits(upper)
    low, high = domain.range
    return int(max(low, -INTEGER_LIMIT)), int(min(high, INTEGER_LIMIT))


def boxes_where(
    flat: FlatModel, condition: Expression, *, variables: Sequence[Variable] | None = None, budget: Budget | None = None
) -> Iterator[Boxes]:
    """Disjoint boxes that together hold all states where the condition is defined and true."""
    variables = flat.variables if variables is None else variables
    budget = budget or Budget()
    for case in real_cases(condition):
        yield from _boxes_of_case(flat, case, variables, budget)


def _boxes_of_case(
    flat: FlatModel, condition: Expression, variables: Sequence[Variable], budget: Budget
) -> Iterator[Boxes]:
    (prepared,) = specialise([conjunction([condition, definedness(condition)])], flat.box)
    compiler = Compiler([(item.name, item.domain.kind) for item in variables], flat.box)
    tape = compiler.compile([prepared], reuse_registers=False)
    search = _Search(tape, variables)
    while True:
        budget.check()
        boxes = search.run()
        if len(boxes.lower):
            yield boxes
        if search.finished:
            return


def real_cases(condition: Expression) -> list[Expression]:
    """The condition for every value of a real variable that is one of several: `x = 1 | x = 2.5`.

    Halving never separates points among the reals, so that each needs a box of its own.
    """
    cases: list[list[Expression]] = [[]]
    for part in operands(condition, "∧"):
        values = operands(part, "∨")
        points = {point for value in values if (point := _point(value)) is not None}
        separate = len(points) == len(values) > 1 and len({name for name, _ in points}) == 1
        if separate and len(cases) * len(values) <= MAXIMAL_CASES:
            cases = [[*case, value] for case in cases for value in values]
        else:
            cases = [[*case, part] for case in cases]
    return [conjunction(case) for case in cases] if len(cases) > 1 else [condition]


def _point(part: Expression) -> tuple[str, Fraction] | None:
    """The real variable and its value, if this is an equation between the two."""
    if part.operator != "=":
        return None
    left, right = part.arguments if part.arguments[0].is_variable else part.arguments[::-1]
    if left.is_variable and left.kind == "real" and right.is_constant:
        return left.name, Fraction(right.exact)
    return None


class _Search:
    """The arrays that hold the state of one search."""

    def __init__(self, tape: Tape, variables: Sequence[Variable]) -> None:
        self.tape = tape
        count, width = len(tape.code), len(variables)
        ends = [domain_ends(item) for item in variables]
        self.producer = np.full(tape.register_count, -1, dtype=np.int64)
        self.producer[tape.code[:, 1]] = np.arange(count)
        self.arity = np.array([arity(operation) for operation in tape.code[:, 0]], dtype=np.int64)
        # One split of a variable halves it, so the stack is no deeper than all their bits.
        depth = sum(
            (high - low).bit_length() + 1
            for (low, high), v in zip(ends, variables, strict=True)
            if v.domain.kind != "real"
        )
        self.stack_lower = np.zeros((depth + 2, width), dtype=np.int64)
        self.stack_upper = np.zeros((depth + 2, width), dtype=np.int64)
        self.stack_list = np.zeros((depth + 2, 2), dtype=np.int64)
        self.stack_lower[0] = [low for low, _ in ends]
        self.stack_upper[0] = [high for _, high in ends]
        self.stack_list[0] = (0, count)
        self.pool = np.zeros(POOL_FACTOR * (count + 1), dtype=np.int32)
        self.pool[:count] = np.arange(count)
        self.control = np.array([1, 0, 0], dtype=np.int64)
        self.values = np.zeros((4, tape.register_count), dtype=np.int64)
        self.wanted = np.zeros(tape.register_count, dtype=np.bool_)

    @property
    def finished(self) -> bool:
        return bool(self.control[0] == 0)

    def run(self) -> Boxes:
        from policyproof.model.search_kernel import search

        tape = self.tape
        lower = np.empty((BOXES_AT_ONCE, tape.variable_count), dtype=np.int64)
        upper = np.empty_like(lower)
        certain = np.empty(BOXES_AT_ONCE, dtype=np.bool_)
        self.control[1] = 0
        search(
            tape.code, self.producer, self.arity, int(tape.roots[0]), tape.float_registers, tape.variable_count,
            tape.constant_bounds, *self.values, self.wanted, self.stack_lower, self.stack_upper, self.stack_list,
            self.pool, self.control, lower, upper, certain, WORK_AT_ONCE,
        )  # fmt: skip
        found = int(self.control[1])
        return Boxes(lower[:found], upper[:found], certain[:found])


def states_of_boxes(lower: NDArray[np.int64], upper: NDArray[np.int64], chunk: int) -> Iterator[NDArray[np.int64]]:
    """All integer states of the boxes `lower[n, variable]` .. `upper[n, variable]`, at most `chunk` at a time."""
    single = (lower == upper).all(axis=1)
    if single.any():
        points = lower[single]
        for first in range(0, len(points), chunk):
            yield points[first : first + chunk]
    for low_ends, high_ends in zip(lower[~single], upper[~single], strict=True):
        sizes = [int(high) - int(low) + 1 for low, high in zip(low_ends, high_ends, strict=True)]
        total = 1
        for size in sizes:
            total *= size
        for first in range(0, total, chunk):
            yield _points(low_ends, sizes, first, min(total, first + chunk))


def _points(lower: NDArray[np.int64], sizes: list[int], first: int, last: int) -> NDArray[np.int64]:
    """The states of a box with the numbers first..last-1; the last variable varies fastest."""
    rest = np.arange(first, last)
    states = np.empty((last - first, len(sizes)), dtype=np.int64)
    for v in range(len(sizes) - 1, -1, -1):
        states[:, v] = lower[v] + rest % sizes[v]
        rest = rest // sizes[v]
    return states


def enumerate_states(
    flat: FlatModel,
    condition: Expression,
    *,
    variables: Sequence[Variable] | None = None,
    budget: Budget | None = None,
    chunk: int = 1 << 16,
) -> Iterator[NDArray[np.int64]]:
    """All states where the condition holds, as batches `[n, variable]`."""
    for boxes in boxes_where(flat, condition, variables=variables, budget=budget):
        yield from states_of_boxes(boxes.lower, boxes.upper, chunk)
