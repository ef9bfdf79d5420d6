"""Successors under a policy, in batches: the transitions of Θ^π (ICAPS22, section 3).

A state's successors are those by the label that the policy chooses there, by the silent steps and
by the labels that belong to the environment.  States are grouped by the chosen label, so that each
group runs only the tape of its label.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from policyproof.model.flat import FlatModel
from policyproof.model.layout import Layout
from policyproof.model.successors import SuccessorGenerator, Successors
from policyproof.policy.decisions import Decider, Statistics
from policyproof.policy.policy import Policy

NO_LABEL = -1


class PolicySuccessors:
    """The successor function of the policy-restricted state space over the kept variables (default: all)."""

    def __init__(self, flat: FlatModel, policy: Policy | None, kept: Collection[str] | None = None) -> None:
        self.flat = flat
        self.policy = policy
        self.generator = SuccessorGenerator(flat, kept=kept)
        self.decider: Decider | None = None
        controlled = () if policy is None else policy.labels
        # Labels that no output names: the environment takes them as it likes.
        self.environment = frozenset(i for i, label in enumerate(flat.labels) if label not in controlled)
        if policy is not None:
            self.decider = Decider(policy, self.generator.variables, dict(flat.box))
            index = {label: number for number, label in enumerate(flat.labels)}
            self._label_of_output = np.array([index.get(label, NO_LABEL) for label in controlled], dtype=np.int64)

    @property
    def layout(self) -> Layout:
        return self.generator.layout

    @property
    def statistics(self) -> Statistics:
        return Statistics() if self.decider is None else self.decider.statistics

    def expand(self, words: NDArray[np.int64]) -> Successors:
        """The successors of packed states, in the order of their sources."""
        if self.decider is None or len(words) == 0:
            return self.generator.expand(words)
        chosen = self.chosen_labels(words)
        pieces = []
        for label in np.unique(chosen):
            rows = np.flatnonzero(chosen == label)
            found = self.generator.expand(words[rows], self.labels_with(int(label)))
            pieces.append(Successors(found.words, rows[found.source], found.operator, found.label))
        if len(pieces) == 1:
            return pieces[0]
        joined = Successors(*(np.concatenate(parts) for parts in zip(*map(_parts, pieces), strict=True)))
        order = np.argsort(joined.source, kind="stable")
        return Successors(*(part[order] for part in _parts(joined)))

    def labels_with(self, chosen: int) -> frozenset[int]:
        """The labels that can be taken when the policy has chosen one (NO_LABEL: one that no step has)."""
        return self.environment if chosen == NO_LABEL else self.environment | {chosen}

    def chosen_labels(self, words: NDArray[np.int64]) -> NDArray[np.int64]:
        """The index in `FlatModel.labels` of the label that the policy chooses; NO_LABEL if no step has it."""
        if self.decider is None:
            raise TypeError("without a policy nothing is chosen")
        applicable = None
        if self.decider.policy.filter:
            by_label = self.generator.applicable(words)[:, :-1]
            known = self._label_of_output >= 0
            applicable = by_label[:, np.where(known, self._label_of_output, 0)] & known
        decisions = self.decider.decide(self.layout.unpack(words), applicable)
        return self._label_of_output[decisions]

    def has_applicable_label(self, words: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Could any operator be taken, whatever the policy chooses?"""
        return np.asarray(self.generator.applicable(words).any(axis=1))


def _parts(piece: Successors) -> tuple[NDArray[np.int64], ...]:
    return piece.words, piece.source, piece.operator, piece.label
