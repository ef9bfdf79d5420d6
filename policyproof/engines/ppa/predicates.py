"""Predicates, and abstract states as vectors of their truth values (ICAPS22, section 4).

An *abstract state* says of every predicate whether it holds; it stands for all states in which just
those hold.  Locations of automata are exact: for an automaton with n locations there are n - 1 more
predicates `location <= k`, which are counted nowhere.

A predicate holds where it is defined and true.  So of a predicate and its negation exactly one holds in
every state, whatever is divided by zero on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policyproof.model.automata import location_variable
from policyproof.model.definedness import definedness
from policyproof.model.expressions import Expression, apply, conjunction, constant, negation, variable
from policyproof.model.flat import FlatModel
from policyproof.run.errors import InvalidInput

BITS = 62
"""How many truth values a word of an abstract state holds."""

Truths = NDArray[np.bool_]
Words = NDArray[np.int64]

_CONNECTIVES = ("∧", "∨", "¬", "⇒")


@dataclass(frozen=True)
class Predicates:
    """The atoms that are tracked: those of the given predicates first, then the locations."""

    atoms: tuple[Expression, ...]
    given: int
    """How many of the atoms are predicates; the others say where automata are."""

    def __len__(self) -> int:
        return len(self.atoms)

    @property
    def words(self) -> int:
        return max(1, -(-len(self.atoms) // BITS))

    def pack(self, truths: Truths) -> Words:
        """`truths[n, atom]` as `words[n, word]`."""
        packed = np.zeros((len(truths), self.words), dtype=np.int64)
        for atom in range(len(self.atoms)):
            packed[:, atom // BITS] |= truths[:, atom].astype(np.int64) << (atom % BITS)
        return packed

    def unpack(self, words: Words) -> Truths:
        shifts = np.arange(len(self.atoms))
        return np.asarray((words[:, shifts // BITS] >> (shifts % BITS)) & 1, dtype=np.bool_)


def make_predicates(flat: FlatModel, given: Iterable[Expression]) -> Predicates:
    """The atoms of some conditions, each once, and the locations."""
    atoms = _atoms(given)
    for automaton in flat.model.automata:
        place = variable(location_variable(automaton.name), "int")
        atoms.extend(apply("≤", place, constant(number)) for number in range(len(automaton.locations) - 1))
    locations = sum(len(automaton.locations) - 1 for automaton in flat.model.automata)
    return Predicates(tuple(atoms), len(atoms) - locations)


def _atoms(conditions: Iterable[Expression]) -> list[Expression]:
    """The conditions without their connectives, in the order in which they appear."""
    found: dict[Expression, None] = {}
    stack = list(conditions)[::-1]
    while stack:
        condition = stack.pop()
        if condition.kind != "bool":
            raise InvalidInput(f"a predicate must be a condition, found {condition} of type {condition.kind}")
        if condition.operator in _CONNECTIVES or _is_equivalence(condition):
            stack.extend(reversed(condition.arguments))
        elif not condition.is_constant:
            found[condition] = None
    return list(found)


def _is_equivalence(condition: Expression) -> bool:
    return condition.operator in ("=", "≠") and condition.arguments[0].kind == "bool"


def literals(atoms: Sequence[Expression]) -> list[tuple[Expression, Expression]]:
    """(false, true): for every atom the conditions under which it does not hold, and holds; both always defined."""
    found = []
    for atom in atoms:
        holds = conjunction([definedness(atom), atom])
        found.append((negation(holds), holds))
    return found
