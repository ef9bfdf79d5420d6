"""From boxes of states to boxes of network inputs.

An input that is a plain variable is its column; any other expression is evaluated on boxes, rounded
outward.  What the box reading loses (relations between inputs) comes back by splitting: on a single
state of integers the inputs are exact.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from policyproof.model.batch_kernel import evaluate_batch
from policyproof.model.box_kernel import evaluate_boxes
from policyproof.model.definedness import definedness_of
from policyproof.model.expressions import ONE, TRUE, ZERO, Expression, variables_of
from policyproof.model.ranges import Range, specialise
from policyproof.model.tape import INTEGER_LIMIT, Compiler
from policyproof.oracle.space import Integers, Space, Truths
from policyproof.policy.network import Floats
from policyproof.policy.policy import Policy
from policyproof.run.errors import InvalidInput

EXACT_INTEGERS = 1 << 53


class InputMap:
    """Reads the inputs (and the switch) of a policy from boxes and points of a space."""

    def __init__(self, policy: Policy, space: Space, box: Mapping[str, Range]) -> None:
        names = [item.name for item in space.variables]
        missing = sorted(policy.reads - set(names))
        if missing:
            raise InvalidInput(f"the policy reads {', '.join(missing)}, which the regions do not have")
        # A number that does not exist cannot be fed to a network: the exact decision says so as an error.
        read = [*policy.inputs, *([] if policy.switch is None else [policy.switch])]
        if specialise([definedness_of(read)], box)[0] is not TRUE:
            raise InvalidInput("an input of the policy may be undefined in its domain", where=policy.source)
        compiler = Compiler([(item.name, item.domain.kind) for item in space.variables], box)
        self.space = space
        self._tape = compiler.compile(list(policy.inputs), reuse_registers=False)
        self._float = np.array([expression.kind == "real" for expression in policy.inputs], dtype=np.bool_)
        plain = [_variable_of(expression) for expression in policy.inputs]
        self.columns = (
            None
            if None in plain
            else np.array([names.index(name) for name in plain if name is not None], dtype=np.int64)
        )
        """The variable of every input, if all inputs are plain variables."""
        self._switch = None if policy.switch is None else compiler.compile([policy.switch], reuse_registers=False)
        self.reads: Truths = np.array(
            [[name in variables_of([expression]) for expression in policy.inputs] for name in names], dtype=np.bool_
        ).reshape(len(names), len(policy.inputs))
        """reads[variable, input]"""
        switch_variables = set() if policy.switch is None else variables_of([policy.switch])
        self.switch_reads: Truths = np.array([name in switch_variables for name in names], dtype=np.bool_)

    def boxes(self, lower: Integers, upper: Integers) -> tuple[Floats, Floats]:
        """`lower[n, input]`, `upper[n, input]`: what the inputs can be in the boxes."""
        if self.columns is not None:
            low, high = lower[:, self.columns], upper[:, self.columns]
        else:
            low, high = evaluate_boxes(self._tape, lower, upper)
        return _outward(low, self._float, -np.inf), _outward(high, self._float, np.inf)

    def points(self, states: Integers) -> Floats:
        """The inputs at states, in float64 (integers beyond 2**53 are rounded)."""
        raw = states[:, self.columns] if self.columns is not None else evaluate_batch(self._tape, states)[0]
        return np.where(self._float, np.ascontiguousarray(raw).view(np.float64), raw.astype(np.float64))

    def switch_ends(self, lower: Integers, upper: Integers) -> tuple[Integers, Integers] | None:
        """What the switch can be in the boxes; None for a policy with one network."""
        if self._switch is None:
            return None
        low, high = evaluate_boxes(self._switch, lower, upper)
        return low[:, 0], high[:, 0]


def _variable_of(expression: Expression) -> str | None:
    """The variable that an input is; a truth value is read as 0 or 1, as its column holds it."""
    if expression.operator == "ite" and expression.arguments[1:] == (ONE, ZERO) and expression.arguments[0].is_variable:
        return expression.arguments[0].name
    return expression.name if expression.is_variable else None


def _outward(ends: Integers, is_float: NDArray[np.bool_], direction: float) -> Floats:
    """The ends of intervals as floats: reals are floats already, large integers are rounded outward."""
    ends = np.ascontiguousarray(ends)
    whole = ends.astype(np.float64)
    if (np.abs(ends[:, ~is_float]) > EXACT_INTEGERS).any():
        whole = np.where(np.abs(whole) >= EXACT_INTEGERS, np.nextafter(whole, direction), whole)
        # The kernels' mark of an integer that may be larger than any they can hold.
        whole = np.where(np.abs(ends) >= INTEGER_LIMIT, np.copysign(np.inf, whole), whole)
    return np.where(is_float, ends.view(np.float64), whole)
