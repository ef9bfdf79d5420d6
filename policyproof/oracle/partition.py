"""Cutting regions into parts with one decision each (MOSAIC's `find_action_subregions`).

The parts of a region are boxes, each with one output that the policy chooses in *every* state of the
box that satisfies the region's condition.  What the budget or the resolution leaves undecided comes
back as the *remainder*, with the outputs that are still possible there: a caller who treats all of
these as chosen loses nothing.

Invariant: parts and remainder cover every state of the region (narrowing by a condition removes states
outside the region only); boxes of integers are disjoint, boxes over reals share faces, and their
volumes add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policyproof.model.expressions import Expression
from policyproof.oracle.batches import Batch, Stack, join
from policyproof.oracle.protocol import Regions
from policyproof.oracle.search import BoxSearch, Inquiry
from policyproof.oracle.space import Integers, Space, Truths
from policyproof.run.budget import Budget
from policyproof.run.errors import ResourceExhausted


@dataclass(frozen=True, eq=False)
class Partition:
    """Boxes `lower[n, variable]` .. `upper[n, variable]` of the regions `region[n]`."""

    region: Integers
    lower: Integers
    upper: Integers
    output: Integers
    """What is chosen in the whole box; -1 in the remainder."""
    possible: Truths
    """possible[n, output]: what may be chosen in the box (one output, except in the remainder)."""
    reason: str
    """Why there is a remainder, or nothing."""
    statistics: dict[str, int | float]

    def __len__(self) -> int:
        return len(self.region)

    @property
    def decided(self) -> Truths:
        return np.asarray(self.output >= 0)

    def undecided_share(self, space: Space) -> float:
        """The share of the remainder in all boxes, by volume (integers: by number of states)."""
        widths = space.widths(self.lower, self.upper)
        # A real variable with one value takes no part.
        sizes = np.where(space.real, np.where(widths > 0, widths, 1.0), widths + 1.0).prod(axis=1)
        return float(sizes[~self.decided].sum() / sizes.sum()) if len(self) else 0.0


def partition(
    search: BoxSearch,
    regions: Regions,
    *,
    applicability: Sequence[Expression] | None = None,
    budget: Budget | None = None,
    largest: int | None = None,
) -> Partition:
    """Partition the regions; `largest`: stop halving when there are so many boxes."""
    inquiry = search.inquire(regions, applicability)
    budget = budget or Budget()
    stack = Stack(oldest_first=True)
    outputs = len(search.policy.labels)
    whole = inquiry.whole(np.ones((len(regions), outputs), dtype=np.bool_))
    stack.push(whole)
    parts: list[Batch] = []
    reason, count = "", len(whole)
    try:
        while stack:
            budget.check()
            with stack.working_on(search.batch) as batch, search.paced(len(batch)):
                finished, stuck, children = _step(search, inquiry, batch)
            parts.append(finished)
            if len(stuck):
                reason, parts = search.at_resolution, [*parts, stuck]
            stack.push(children)
            count += len(finished) + len(children) - len(batch) + len(stuck)
            if largest is not None and count > largest:
                raise ResourceExhausted(f"more than {largest:,} boxes")
    except ResourceExhausted as exhausted:
        reason = exhausted.reason
        parts.extend(stack.pop_all())
    boxes = join(parts) if parts else whole
    single = boxes.open.sum(axis=1) == 1
    output = np.where(single, np.argmax(boxes.open, axis=1), -1)
    return Partition(boxes.region, boxes.lower, boxes.upper, output, boxes.open, reason, inquiry.statistics)


def _step(search: BoxSearch, inquiry: Inquiry, batch: Batch) -> tuple[Batch, Batch, Batch]:
    """Decided boxes, boxes that may not be halved further, and the halves of the others."""
    batch, uses = search.narrowed(inquiry, batch)
    inquiry.count("boxes", len(batch))
    relevant = search.relevant(inquiry, batch, uses)
    view = search.look(inquiry, batch)
    effect = search.strike_out(batch, view)
    single = search.few(batch, relevant, 1)
    alone = np.flatnonzero(single)
    if len(alone):
        # The policy sees one state: no bound is needed, and a tie needs more than a bound.
        inside = inquiry.members(batch.select(alone), view.middle[alone])
        outside = np.setdiff1d(np.arange(len(alone)), inside)
        alone, gone = alone[inside], alone[outside]
        batch.open[alone] = False
        batch.open[alone, search.choose(inquiry, view.middle[alone])] = True
        batch.open[gone] = False
    remaining = batch.open.sum(axis=1)
    finished, further = remaining == 1, remaining > 1
    axis = search.axis(inquiry, batch, view, effect, uses, relevant)
    stuck = further & (axis < 0)
    further &= axis >= 0
    return batch.select(finished), batch.select(stuck), search.halved(batch.select(further), axis[further])
