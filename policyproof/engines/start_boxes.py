"""The start set as boxes from which start states are drawn.

Mostly all boxes are kept.  Where there are too many, a sample of them is: each kept box is drawn from all
boxes in proportion to its number of states, independently of the others (a reservoir with replacement:
when a batch of weight w joins boxes of weight W, each place is drawn anew from the batch with probability
w / (W + w)).  So no part of the start set is left out because it is found late.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policyproof.model.expressions import Expression
from policyproof.model.flat import FlatModel
from policyproof.model.start_states import Boxes, boxes_where
from policyproof.run.budget import Budget
from policyproof.run.errors import InvalidInput

MOST_BOXES = 500_000
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StartBoxes:
    """Boxes `lower[n, variable]` .. `upper[n, variable]`, to be chosen with probabilities `share[n]`."""

    lower: Integers
    upper: Integers
    share: NDArray[np.float64]
    certain: bool
    """Does the condition hold throughout all boxes?  Otherwise reals are left to decide."""

    def __len__(self) -> int:
        return len(self.lower)


def collect_start_boxes(
    flat: FlatModel, condition: Expression, budget: Budget, *, most: int = MOST_BOXES, seed: int = 0
) -> StartBoxes:
    """All boxes of a start condition, or a sample of `most` of them."""
    real = np.array([item.domain.kind == "real" for item in flat.variables])
    random = np.random.default_rng(seed)
    kept: list[Boxes] = []
    count, weight, certain = 0, 0.0, True
    sample: tuple[Integers, Integers] | None = None
    for boxes in boxes_where(flat, condition, budget=budget):
        certain = certain and bool(boxes.certain.all())
        if sample is None:
            kept.append(boxes)
            count += len(boxes.lower)
            if count > most:
                lower, upper = (np.concatenate([getattr(part, end) for part in kept]) for end in ("lower", "upper"))
                sizes = _sizes(lower, upper, real)
                weight = float(sizes.sum())
                chosen = random.choice(len(lower), size=most, p=sizes / weight)
                sample = lower[chosen], upper[chosen]
            continue
        sizes = _sizes(boxes.lower, boxes.upper, real)
        weight += float(sizes.sum())
        places = np.flatnonzero(random.random(most) < sizes.sum() / weight)
        chosen = random.choice(len(sizes), size=len(places), p=sizes / sizes.sum())
        sample[0][places], sample[1][places] = boxes.lower[chosen], boxes.upper[chosen]
    if sample is not None:
        return StartBoxes(*sample, np.full(most, 1.0 / most), certain)
    if not kept:
        raise InvalidInput("the start condition holds in no state")
    lower, upper = (np.concatenate([getattr(part, end) for part in kept]) for end in ("lower", "upper"))
    sizes = _sizes(lower, upper, real)
    return StartBoxes(lower, upper, sizes / sizes.sum(), certain)


def _sizes(lower: Integers, upper: Integers, real: NDArray[np.bool_]) -> NDArray[np.float64]:
    """How many states each box has, real variables not counted."""
    widths = np.where(real, 1.0, upper.astype(np.float64) - lower.astype(np.float64) + 1.0)
    return np.asarray(widths.prod(axis=1))
