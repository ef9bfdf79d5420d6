"""Conditions over states as the oracle reads them: on boxes, to narrow them, and exactly on single states.

A condition counts as true where it is defined and true.  On boxes it has three values; on a single
state it is always decided: by the box reading of that state where this settles it (it is rounded
outward), and in exact arithmetic where it does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from policyproof.model.box_kernel import evaluate_boxes
from policyproof.model.definedness import definedness
from policyproof.model.enclosures import Undecided
from policyproof.model.exact import ExactProgram
from policyproof.model.expressions import Expression, conjunction, variables_of
from policyproof.model.narrowing_kernel import FALSE, TRUE, UNDECIDED
from policyproof.model.ranges import Range, specialise
from policyproof.model.tape import Compiler, arity
from policyproof.oracle.space import Integers, Space, Truths
from policyproof.run.errors import ResourceExhausted
from policyproof.run.threads import over_ranges

__all__ = ["FALSE", "TRUE", "UNDECIDED", "Conditions"]


class Conditions:
    """A list of conditions over the variables of a space."""

    def __init__(self, conditions: Sequence[Expression], space: Space, box: Mapping[str, Range]) -> None:
        self.space = space
        prepared = specialise([conjunction([part, definedness(part)]) for part in conditions], box)
        compiler = Compiler([(item.name, item.domain.kind) for item in space.variables], box)
        self._tape = compiler.compile(prepared, reuse_registers=False)
        self._program = ExactProgram(conditions)
        self.count = len(prepared)
        self._producer = np.full(self._tape.register_count, -1, dtype=np.int64)
        self._producer[self._tape.code[:, 1]] = np.arange(len(self._tape.code))
        self._arity = np.array([arity(operation) for operation in self._tape.code[:, 0]], dtype=np.int64)
        names = [item.name for item in space.variables]
        self.reads: Truths = np.zeros((self.count, len(names)), dtype=np.bool_)
        """reads[condition, variable]"""
        for number, expression in enumerate(prepared):
            used = variables_of([expression])
            self.reads[number] = [name in used for name in names]

    def on_boxes(self, lower: Integers, upper: Integers) -> tuple[Truths, Truths]:
        """`certain[n, condition]`, `possible[n, condition]`: does it hold in all, in any states of the boxes?"""
        low, high = evaluate_boxes(self._tape, lower, upper)
        return low == 1, high != 0

    def narrow(self, lower: Integers, upper: Integers) -> tuple[NDArray[np.int8], Truths]:
        """Narrow the boxes in place to what the first condition needs.

        `status[n]`: FALSE, TRUE or UNDECIDED in what is left; `uses[n, variable]`: can it still matter for that?
        """
        from policyproof.model.narrowing_kernel import narrow_boxes

        tape = self._tape
        status, uses = np.empty(len(lower), dtype=np.int64), np.empty(lower.shape, dtype=np.bool_)

        def task(first: int, last: int) -> None:
            part = slice(first, last)
            narrow_boxes(
                tape.code, self._producer, self._arity, int(tape.roots[0]), tape.float_registers,
                tape.variable_count, tape.constant_bounds, tape.register_count, lower[part], upper[part],
                status[part], uses[part],
            )  # fmt: skip

        over_ranges(task, len(lower), least=30_000 // (len(tape.code) + 1) + 16)
        return status.astype(np.int8), uses

    def at(self, states: Integers) -> Truths:
        """`truth[state, condition]`, exactly."""
        certain, possible = self.on_boxes(states, states)
        for row in np.flatnonzero((certain != possible).any(axis=1)):
            try:
                certain[row] = [value is True for value in self._program(self.space.valuation(states[row]))]
            except Undecided as reason:
                raise ResourceExhausted(f"a condition is not settled in a state: {reason}") from None
        return certain
