"""The one question under every engine, and the protocol of all that answer it.

*Regions* are boxes of states, each with an optional condition (guards, predicates, pre-images of
predicates: any condition over the state variables).  The question, for a batch of regions and for
every output of the policy: is there a state in the region in which the policy chooses this output?
The answers are IMPOSSIBLE (proved), POSSIBLE (with a witness state, confirmed exactly) or UNKNOWN
(with the reason).  This is IsSelect^π of ICAPS22; with an operator's guard as condition it is
isApp^π; with the pre-image of a predicate state besides, it is TSat^π.

Ties: the lowest output wins, everywhere.  With applicability filtering every output carries the
condition under which it is applicable; the best applicable one is chosen, and where none is
applicable, the plain best one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from policyproof.model.automata import Variable
from policyproof.model.expressions import Expression
from policyproof.model.start_states import domain_ends
from policyproof.model.tape import bits, float_above, float_below
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget
from policyproof.run.errors import InvalidInput

IMPOSSIBLE, POSSIBLE, UNKNOWN = 0, 1, 2
STATUS = ("impossible", "possible", "unknown")

Integers = NDArray[np.int64]
Truths = NDArray[np.bool_]
Arithmetic = Literal["real", "solver-tolerance"]

_OUTWARD = (float_below, float_above)


@dataclass(frozen=True, eq=False)
class Regions:
    """Boxes `lower[n, variable]` .. `upper[n, variable]` (reals as the bits of float64), with conditions.

    The columns follow the variables of the oracle.  Region n consists of the states of its box where
    `conditions[condition[n]]` is defined and true; -1: all of them.
    """

    lower: Integers
    upper: Integers
    conditions: tuple[Expression, ...] = ()
    condition: Integers | None = None

    @staticmethod
    def of(
        variables: Sequence[Variable],
        boxes: Sequence[Mapping[str, tuple[float, float]]],
        condition: Expression | None = None,
    ) -> Regions:
        """Regions from the ends that are given by name; a variable without ends has those of its domain."""
        lower, upper = (np.zeros((len(boxes), len(variables)), dtype=np.int64) for _ in range(2))
        for row, box in enumerate(boxes):
            unknown = sorted(set(box) - {item.name for item in variables})
            if unknown:
                raise InvalidInput(f"the regions have no variable {', '.join(unknown)}")
            for column, item in enumerate(variables):
                if item.name not in box:
                    low, high = domain_ends(item)
                elif item.domain.kind == "real":
                    ends = (Fraction(end) for end in box[item.name])
                    low, high = (bits(outward(end)) for outward, end in zip(_OUTWARD, ends, strict=True))
                else:
                    low, high = (int(end) for end in box[item.name])
                lower[row, column], upper[row, column] = low, high
        if condition is None:
            return Regions(lower, upper)
        return Regions(lower, upper, (condition,), np.zeros(len(boxes), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.lower)

    def condition_of(self, number: int) -> Expression | None:
        index = -1 if self.condition is None else int(self.condition[number])
        return None if index < 0 else self.conditions[index]


@dataclass(frozen=True)
class Capabilities:
    """What a back end can do; asking for more is an `UnsupportedFeature`."""

    name: str
    exact: bool
    """Are its impossibilities proofs?  Otherwise its answers carry "solver-tolerance"."""
    integer: bool
    """Does it decide over integer states (or over their continuous relaxation)?"""
    real: bool = True
    conditions: Literal["none", "linear", "any"] = "any"
    activations: frozenset[str] = frozenset(["relu", "leaky_relu", "clip"])
    filtering: bool = True
    witnesses: bool = True


@dataclass(eq=False)
class Answers:
    """`status[n, output]`, and `witness[n, output, variable]` where the status is POSSIBLE."""

    status: NDArray[np.int8]
    witness: Integers
    reasons: dict[int, str] = field(default_factory=dict)
    """Region -> why something is unknown there."""
    arithmetic: Arithmetic = "real"
    statistics: dict[str, int | float] = field(default_factory=dict)

    @property
    def possible(self) -> Truths:
        return np.asarray(self.status == POSSIBLE)

    @property
    def impossible(self) -> Truths:
        return np.asarray(self.status == IMPOSSIBLE)


class DecisionOracle(Protocol):
    """What engines call."""

    policy: Policy
    variables: tuple[Variable, ...]

    @property
    def capabilities(self) -> Capabilities: ...

    def ask(
        self,
        regions: Regions,
        outputs: Truths | None = None,
        *,
        applicability: Sequence[Expression] | None = None,
        budget: Budget | None = None,
    ) -> Answers:
        """Which of the wanted outputs (`outputs[n, output]`; default: all) can be chosen in each region?

        `applicability[output]`: the condition under which it is applicable; given exactly when the
        policy filters.
        """
        ...
