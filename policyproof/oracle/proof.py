"""Proofs of "this output is chosen nowhere in this region": branch-and-bound trees that a stranger can check.

A proof is a tree over the region's box, written in the order in which a reader meets it (a node, the
tree of its lower half, the tree of its upper half).  Its nodes:

    ["split", variable, value]      states up to the value, and those above it (reals: from it on)
    ["outside"]                     the region's condition holds nowhere in the box
    ["beaten", facts, slopes]       the output is beaten in the whole box
    ["states"]                      so few states that each can be decided

`facts` say by whom: `by`, an output that is greater everywhere (and applicable, where the policy
filters), or `never`, the output is applicable nowhere; with filtering also `applicable`, an output
that is applicable everywhere, or `plain`, one that is greater.  `slopes` are those of the lines
between which the undecided activations lie, so that whoever checks has nothing to choose: one evaluation
of the bounds settles a leaf (`policyproof.evidence.decision_proof` does it in rational arithmetic).

The tree is made anew when it is asked for, without narrowing, which would need a proof of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from policyproof.bounds.chain import IDENTITY
from policyproof.bounds.linear import Relaxation
from policyproof.model.expressions import Expression
from policyproof.oracle.batches import Batch
from policyproof.oracle.duels import certainly_applicable
from policyproof.oracle.protocol import Regions
from policyproof.oracle.search import BoxSearch, Inquiry, View
from policyproof.oracle.space import Integers, Truths
from policyproof.run.budget import Budget
from policyproof.run.errors import Feature, PolicyProofError, ResourceExhausted, UnsupportedFeature

SCHEMA = "policyproof-decision-proof-1"
ENUMERATED = 16


class NotImpossible(PolicyProofError):
    """What was to be proved impossible is possible."""


@dataclass(eq=False)
class _Node:
    content: list[Any] = field(default_factory=list)
    children: list[int] = field(default_factory=list)


def prove(
    search: BoxSearch,
    regions: Regions,
    region: int,
    output: int,
    *,
    applicability: Sequence[Expression] | None = None,
    budget: Budget | None = None,
    enumerated: int = ENUMERATED,
) -> dict[str, Any]:
    """The proof that the policy chooses `output` in no state of the region, as a JSON object.

    Raises `NotImpossible` when a state is met in which it is chosen, `ResourceExhausted` when the
    budget ends or real intervals are too narrow to be halved.
    """
    if not all(network.piecewise_linear for network in search.policy.networks):
        raise UnsupportedFeature([Feature(search.policy.source, "proofs about tanh and sigmoid")])
    if search.duels.slope_iterations:
        raise ValueError("proofs need slopes that do not depend on the row: slope_iterations=0")
    condition = None if regions.condition is None else regions.condition[region : region + 1]
    only = Regions(
        regions.lower[region : region + 1], regions.upper[region : region + 1], regions.conditions, condition
    )
    inquiry = search.inquire(only, applicability)
    writer = _Writer(search, inquiry, output, enumerated)
    budget = budget or Budget()
    while writer.pending:
        budget.check()
        writer.work()
    return {
        "schema": SCHEMA,
        "output": output,
        "variables": [item.name for item in search.variables],
        "lower": writer.exact(only.lower[0]),
        "upper": writer.exact(only.upper[0]),
        "nodes": writer.in_order(),
    }


class _Writer:
    def __init__(self, search: BoxSearch, inquiry: Inquiry, output: int, enumerated: int) -> None:
        self.search, self.inquiry, self.output, self.enumerated = search, inquiry, output, max(1, enumerated)
        wanted = np.zeros((1, len(search.policy.labels)), dtype=np.bool_)
        wanted[0, output] = True
        self.wanted = wanted
        self.nodes = [_Node()]
        whole = inquiry.whole(wanted)
        self.pending = [(np.zeros(1, dtype=np.int64), whole)] if len(whole) else []
        if not len(whole):
            self.nodes[0].content = ["states"]

    def work(self) -> None:
        """One round: leaves are written, the other boxes are halved."""
        search, inquiry = self.search, self.inquiry
        numbers, batch = self.pending.pop()
        possible = np.ones(len(batch), dtype=np.bool_)
        for condition, rows in inquiry.by_condition(batch):
            certain, maybe = condition.on_boxes(batch.lower[rows], batch.upper[rows])
            batch.certain[rows], possible[rows] = certain[:, 0], maybe[:, 0]
        self._close(numbers[~possible], ["outside"])
        numbers, batch = numbers[possible], batch.select(possible)
        uses = np.zeros(batch.lower.shape, dtype=np.bool_)
        for condition, rows in inquiry.by_condition(batch):
            uses[rows] = condition.reads[0]
        relevant = search.relevant(inquiry, batch, uses)
        small = search.few(batch, relevant, self.enumerated)
        self._states(numbers[small], batch.select(small), relevant[small])
        numbers, batch, uses, relevant = numbers[~small], batch.select(~small), uses[~small], relevant[~small]
        if not len(batch):
            return
        view = search.look(inquiry, batch)
        wins, effect = search.duels.wins(batch.lower, batch.upper, view.network, view.leaders, batch.open)
        beaten = search.duels.beaten(wins, view.leaders, view.applicable)[:, self.output]
        self._beaten(numbers, batch, view, wins, np.flatnonzero(beaten))
        axis = search.axis(inquiry, batch, view, effect, uses, relevant)
        if (~beaten & (axis < 0)).any():
            raise ResourceExhausted(search.at_resolution)
        self._split(numbers[~beaten], batch.select(~beaten), axis[~beaten])

    def _close(self, numbers: Integers, content: list[Any]) -> None:
        for number in numbers.tolist():
            self.nodes[number].content = content

    def _states(self, numbers: Integers, batch: Batch, relevant: Truths) -> None:
        states, box = self.search.space.points(batch.lower, batch.upper, relevant)
        inside = self.inquiry.members(batch.select(box), states)
        chosen = self.search.choose(self.inquiry, states[inside])
        if (chosen == self.output).any():
            raise NotImpossible(f"output {self.output} is chosen in a state of the region")
        self._close(numbers, ["states"])

    def _beaten(self, numbers: Integers, batch: Batch, view: View, wins: Truths, rows: Integers) -> None:
        duels = self.search.duels
        low, high = duels.inputs.boxes(batch.lower[rows], batch.upper[rows])
        certain = None if view.applicable is None else certainly_applicable(view.leaders, view.applicable)
        for network in np.unique(view.network[rows]).tolist():
            mine = np.flatnonzero(view.network[rows] == network)
            slopes = None
            if network >= 0:
                slopes = [
                    stage
                    for stage, function in zip(
                        Relaxation(duels.chains[network], low[mine], high[mine]).stages,
                        duels.chains[network].stages,
                        strict=True,
                    )
                    if function.function != IDENTITY
                ]
            for position, row in enumerate(rows[mine].tolist()):
                facts = self._facts(view, wins[row, :, self.output], row, certain)
                lines = [
                    [stage.lower_slope[position].tolist(), stage.upper_slope[position].tolist()]
                    for stage in slopes or []
                ]
                self.nodes[int(numbers[row])].content = ["beaten", facts, lines]

    def _facts(self, view: View, wins: Truths, row: int, certain: Truths | None) -> dict[str, Any]:
        leaders = view.leaders[row]
        if certain is None or view.applicable is None:
            return {"by": int(leaders[np.flatnonzero(wins)[0]])}
        facts: dict[str, Any] = {}
        winners = np.flatnonzero(wins & certain[row])
        if len(winners):
            facts["by"] = int(leaders[winners[0]])
        else:
            facts["never"] = True
        everywhere = np.flatnonzero(view.applicable.certain[row])
        if len(everywhere):
            facts["applicable"] = int(everywhere[0])
        else:
            facts["plain"] = int(leaders[np.flatnonzero(wins)[0]])
        return facts

    def _split(self, numbers: Integers, batch: Batch, axis: Integers) -> None:
        if not len(batch):
            return
        halves = self.search.halved(batch, axis)
        first = len(self.nodes)
        for row, (number, column) in enumerate(zip(numbers.tolist(), axis.tolist(), strict=True)):
            value = self.exact(halves.upper[row])[column]
            self.nodes[number].content = ["split", column, value]
            self.nodes[number].children = [first + row, first + row + len(batch)]
        self.nodes.extend(_Node() for _ in range(2 * len(batch)))
        self.pending.append((first + np.arange(2 * len(batch)), halves))

    def exact(self, state: Integers) -> list[Any]:
        """A row of values as JSON holds them exactly: integers, and reals as fractions in text."""
        values = []
        for is_real, column in zip(self.search.space.real.tolist(), state.tolist(), strict=True):
            values.append(str(Fraction(float(np.int64(column).view(np.float64)))) if is_real else column)
        return values

    def in_order(self) -> list[list[Any]]:
        found, stack = [], [0]
        while stack:
            node = self.nodes[stack.pop()]
            found.append(node.content)
            stack.extend(reversed(node.children))
        return found
