"""Operators as the abstraction reads them: the guard, and every predicate as it is after the update.

For a predicate p and an operator with update u, p holds in the successor s[u] just where p[u], p with the
updated expressions in place of its variables, holds in s (the weakest precondition).  Where the environment
chooses a new value, p[u] speaks of an additional variable, `name′`, which ranges between the chosen bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

from policyproof.engines.ppa.predicates import Predicates, literals
from policyproof.model.automata import Domain, Variable
from policyproof.model.expressions import Expression, apply, conjunction, substitute
from policyproof.model.flat import FlatModel, Freedom, Operator
from policyproof.oracle.conditions import Conditions
from policyproof.oracle.space import Space
from policyproof.run.errors import Feature, UnsupportedFeature

MOST_OPERATORS = 1_000_000


def chosen_name(name: str) -> str:
    """The variable for a value that the environment chooses."""
    return f"{name}′"


def extended_variables(flat: FlatModel) -> tuple[Variable, ...]:
    """The state's variables, and those for values that the environment chooses."""
    branches = {
        branch.origin: branch for step in flat.steps for participant in step.participants for branch in participant
    }
    free = {name for branch in branches.values() for name, value in branch.writes.items() if isinstance(value, Freedom)}
    return (
        *flat.variables,
        *(Variable(chosen_name(item.name), item.domain) for item in flat.variables if item.name in free),
    )


@dataclass(frozen=True, eq=False)
class Preimage:
    """One operator: its label, guard, and for every atom the conditions (false, true) on its value afterwards."""

    number: int
    label: str | None
    guard: Expression
    after: tuple[tuple[Expression, Expression], ...]
    kept: tuple[bool, ...]
    """kept[atom]: the update does not touch it, so it stays as it is."""


class Preimages:
    """All operators of a model, compiled when they are needed."""

    def __init__(self, flat: FlatModel, predicates: Predicates, space: Space) -> None:
        if len(flat.operators) > MOST_OPERATORS:
            raise UnsupportedFeature([Feature("the synchronisations", f"more than {MOST_OPERATORS:,} operators")])
        self.space = space
        self.box = {item.name: item.domain.range for item in space.variables}
        self.of = [_preimage(number, operator, predicates) for number, operator in enumerate(flat.operators)]
        self._compiled: dict[tuple[Expression, ...], Conditions] = {}

    def compiled(self, *conditions: Expression) -> Conditions:
        if conditions not in self._compiled:
            self._compiled[conditions] = Conditions(conditions, self.space, self.box)
        return self._compiled[conditions]


def _preimage(number: int, operator: Operator, predicates: Predicates) -> Preimage:
    values: dict[str, Expression] = {}
    conditions = [operator.guard]
    for name, value in operator.update.items():
        if isinstance(value, Freedom):
            kind = value.lower.kind if value.lower.kind == value.upper.kind else "real"
            fresh = Variable(chosen_name(name), Domain(kind)).expression
            values[name] = fresh
            conditions += [apply("≤", value.lower, fresh), apply("≤", fresh, value.upper)]
        else:
            values[name] = value
    after = substitute(predicates.atoms, values)
    kept = tuple(new is old for new, old in zip(after, predicates.atoms, strict=True))
    return Preimage(number, operator.label, conjunction(conditions), tuple(literals(after)), kept)
