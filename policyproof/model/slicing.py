"""The cone of influence: which variables can the answer depend on?

Idea: a variable matters if the property or the policy reads it, if some guard does (guards hold the
conditions that updates stay in their domains, so a variable whose update can leave its domain
always matters), or if a variable that matters is written from it.  All others can be forgotten:
two states that agree on the variables that matter have, under every operator, successors that agree
on them too.
"""

from __future__ import annotations

from collections.abc import Iterable

from policyproof.model.expressions import variables_of
from policyproof.model.flat import FlatModel, Freedom


def cone_of_influence(flat: FlatModel, seen: Iterable[str]) -> set[str]:
    """The variables on which anything depends, given those that property and policy read."""
    branches = {
        branch.origin: branch for step in flat.steps for participant in step.participants for branch in participant
    }
    sources: dict[str, set[str]] = {}
    for branch in branches.values():
        for name, value in branch.writes.items():
            parts = [value.lower, value.upper] if isinstance(value, Freedom) else [value]
            sources.setdefault(name, set()).update(variables_of(parts))
    relevant = set(seen) | variables_of(branch.guard for branch in branches.values())
    pending = list(relevant)
    while pending:
        for name in sources.get(pending.pop(), set()) - relevant:
            relevant.add(name)
            pending.append(name)
    return relevant & set(flat.names)
