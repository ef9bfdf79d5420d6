"""Sticky actions: with some probability the chosen action is executed twice within one step (MOSAIC, section 5.2).

The fault acts inside a step: the state between the two executions is nobody's state, so that a
failure there does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from policyproof.model.building import Outcome, UpdateMap, outcome
from policyproof.model.expressions import Expression, decimal
from policyproof.run.errors import InvalidInput


def sticky_outcomes(
    variables: Sequence[Expression],
    once: Sequence[Expression],
    twice: Sequence[Expression],
    probability: float,
) -> list[Outcome]:
    """The outcomes of an edge: the new values after one execution, and after two."""
    chance = Fraction(decimal(probability))
    if not 0 <= chance < 1:
        raise InvalidInput(f"the probability of a sticky action is from 0 to less than 1, found {probability}")
    healthy: UpdateMap = dict(zip(variables, once, strict=True))
    if chance == 0:
        return [outcome(healthy)]
    faulty: UpdateMap = dict(zip(variables, twice, strict=True))
    return [outcome(healthy, probability=1 - chance), outcome(faulty, probability=chance)]
