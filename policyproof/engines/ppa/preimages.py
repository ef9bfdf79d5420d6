"""Operators as the abstraction reads them: the guard, and every predicate as it is after the update.

For a predicate p and an operator with update u, p holds in the successor s[u] just where p[u], p with the
updated expressions in place of its variables, holds in s (the weakest precondition).  Where the environment
chooses a new value, p[u] speaks of an additional variable, `name′`, which ranges between the chosen bounds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from policyproof.engines.ppa.literals import Literals
from policyproof.engines.ppa.predicates import Predicates
from policyproof.model.automata import Variable
from policyproof.model.expressions import (
    TRUE,
    Expression,
    Kind,
    apply,
    conjunction,
    disjunction,
    substitute,
    variable,
    variables_of,
)
from policyproof.model.flat import FlatModel, Freedom, Operator
from policyproof.oracle.space import Integers, Truths
from policyproof.run.errors import Feature, UnsupportedFeature

MOST_OPERATORS = 1_000_000
SILENT = -1


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


class Preimages:
    """The guards and the predicates after the updates of all operators, as numbers of literals."""

    def __init__(self, flat: FlatModel, predicates: Predicates, literals: Literals) -> None:
        count = len(flat.operators)
        if count > MOST_OPERATORS:
            raise UnsupportedFeature([Feature("the synchronisations", f"more than {MOST_OPERATORS:,} operators")])
        self._applicable: dict[str | None, list[Expression]] = {}
        kinds = {item.name: item.domain.kind for item in flat.variables}
        readers = _readers(predicates)
        same = np.array([literals.number(atom) for atom in predicates.atoms], dtype=np.int64)
        self.after: Integers = np.tile(same, (count + 1, 1))
        """`after[operator, atom]`: the atom after the update; the last row is that of no operator at all."""
        self.kept: Truths = np.ones((count + 1, len(same)), dtype=np.bool_)
        """`kept[operator, atom]`: the update does not touch it, so it stays as it is."""
        self.label: Integers = np.full(count, SILENT, dtype=np.int64)
        """The index of each operator's label in `FlatModel.labels`, or SILENT."""
        guards = []
        for number, operator in enumerate(flat.operators):
            if operator.label is not None:
                self.label[number] = flat.labels.index(operator.label)
            self._applicable.setdefault(operator.label, []).append(operator.guard)
            values, chosen = _new_values(operator, kinds)
            guards.append(_parts([operator.guard, *chosen], literals))
            touched = sorted({atom for name in values for atom in readers.get(name, ())})
            atoms = [predicates.atoms[atom] for atom in touched]
            for atom, old, new in zip(touched, atoms, substitute(atoms, values), strict=True):
                self.after[number, atom] = literals.number(new)
                self.kept[number, atom] = new is old
        width = max((len(parts) for parts in guards), default=0)
        self.guard: Integers = np.full((count, width), literals.number(TRUE), dtype=np.int64)
        """`guard[operator, part]`: conditions that hold together where the operator applies."""
        for number, parts in enumerate(guards):
            self.guard[number, : len(parts)] = parts

    def applicable(self, label: str) -> Expression:
        """Some operator of the label applies; whatever values the environment then chooses."""
        return disjunction(self._applicable.get(label, []))


def _readers(predicates: Predicates) -> Mapping[str, list[int]]:
    """The atoms that read each variable."""
    found: dict[str, list[int]] = {}
    for number, atom in enumerate(predicates.atoms):
        for name in variables_of([atom]):
            found.setdefault(name, []).append(number)
    return found


def _new_values(operator: Operator, kinds: Mapping[str, Kind]) -> tuple[dict[str, Expression], list[Expression]]:
    """The values after the update, and the conditions on those that the environment chooses."""
    values: dict[str, Expression] = {}
    conditions: list[Expression] = []
    for name, value in operator.update.items():
        if isinstance(value, Freedom):
            fresh = variable(chosen_name(name), kinds[name])
            values[name] = fresh
            conditions += [apply("≤", value.lower, fresh), apply("≤", fresh, value.upper)]
        else:
            values[name] = value
    return values, conditions


def _parts(conditions: list[Expression], literals: Literals) -> list[int]:
    """The conjuncts: intervals each by itself, the others together, since they narrow best together."""
    stack, intervals, others = conditions[::-1], list[int](), list[Expression]()
    while stack:
        condition = stack.pop()
        if condition.operator == "∧":
            stack.extend(reversed(condition.arguments))
        elif literals.is_interval(number := literals.number(condition)):
            intervals.append(number)
        else:
            others.append(condition)
    return [*intervals, literals.number(conjunction(others))] if others else intervals
