"""Lower bounds of rows on batches of boxes: one call, the fastest code for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policyproof.bounds.chain import Chain, Rows
from policyproof.bounds.margins import rounding_factor
from policyproof.policy.network import Floats
from policyproof.run.threads import over_ranges


@dataclass(frozen=True)
class Bounds:
    """`lower[n, k]`: lower bounds of the wanted rows (NaN: nothing is known); `effect[n, input]`: see the kernel."""

    lower: Floats
    effect: Floats
    phases: NDArray[np.int8]
    """`phases[n, component]`: which ReLUs are active (1) or inactive (-1) on the whole box."""


def bound_rows(
    chain: Chain,
    rows: Rows,
    lower: Floats,
    upper: Floats,
    wanted: NDArray[np.int64] | None = None,
    *,
    tighten: bool = True,
    iterations: int = 0,
    phases: NDArray[np.int8] | None = None,
) -> Bounds:
    """Bound rows from below on the boxes `lower[n, input]` .. `upper[n, input]`.

    `wanted[n, k]` numbers the rows that matter in each box (-1: none; default: all); `tighten` bounds
    the stages by back-substitution too, `iterations` is how often slopes are improved for rows that
    are not positive yet.
    """
    from policyproof.bounds.kernel import bound_kernel

    lower, upper = np.ascontiguousarray(lower, dtype=np.float64), np.ascontiguousarray(upper, dtype=np.float64)
    if wanted is None:
        wanted = np.broadcast_to(np.arange(len(rows)), (len(lower), len(rows)))
    wanted = np.ascontiguousarray(wanted, dtype=np.int64)
    found = np.empty(wanted.shape)
    effect = np.empty(lower.shape)
    if phases is None:
        phases = np.zeros((len(lower), chain.packed.vectors.shape[1]), dtype=np.int8)
    else:
        phases = np.array(phases, dtype=np.int8, order="C")
    packed = chain.packed
    factor = rounding_factor(chain.widest, len(chain.stages))

    def task(first: int, last: int) -> None:
        part = slice(first, last)
        bound_kernel(
            packed.matrices, packed.vectors, packed.table, lower[part], upper[part], rows.weights, rows.constant,
            wanted[part], tighten, iterations, factor, phases[part], found[part], effect[part],
        )  # fmt: skip

    over_ranges(task, len(lower), least=8)
    return Bounds(found, effect, phases)
