"""Lower bounds of rows on batches of boxes: one call, the fastest code for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policyproof.bounds.chain import Chain, Rows
from policyproof.bounds.linear import Relaxation
from policyproof.bounds.margins import rounding_factor
from policyproof.policy.network import Floats
from policyproof.run.errors import InvalidInput
from policyproof.run.threads import over_ranges

DEVICE_BYTES = 1 << 30
"""How much a batch may take on another device."""


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
    attribute: bool = False,
    device: str = "cpu",
) -> Bounds:
    """Bound rows from below on the boxes `lower[n, input]` .. `upper[n, input]`.

    `wanted[n, k]` numbers the rows that matter in each box (-1: none; default: all); `tighten` bounds
    the stages by back-substitution too, `iterations` is how often slopes are improved for rows that
    are not positive yet.  `device`: "cpu" (machine code), or a device of PyTorch such as "cuda".
    """
    if device != "cpu":
        return _on_device(chain, rows, lower, upper, wanted, device, tighten=tighten)
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
            wanted[part], tighten, iterations, factor, attribute, phases[part], found[part], effect[part],
        )  # fmt: skip

    over_ranges(task, len(lower), least=8)
    return Bounds(found, effect, phases)


def _on_device(
    chain: Chain,
    rows: Rows,
    lower: Floats,
    upper: Floats,
    wanted: NDArray[np.int64] | None,
    device: str,
    *,
    tighten: bool,
) -> Bounds:
    """The same bounds by PyTorch (without optimised slopes): the naive twin's text, on another machine's arrays."""
    try:
        import torch
    except ImportError:
        raise InvalidInput(f"device {device!r} needs PyTorch: pip install 'policyproof[torch]'") from None
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InvalidInput(f"device {device!r}: PyTorch sees no such device here")
    # Each row of a box holds a few arrays of the widest stage.
    per_box = 8 * 6 * chain.widest * (len(rows) + chain.widest)
    at_once = max(1, DEVICE_BYTES // per_box)
    columns = len(rows) if wanted is None else wanted.shape[1]
    found = np.empty((len(lower), columns))
    effect = np.empty(lower.shape)
    for first in range(0, len(lower), at_once):
        part = slice(first, first + at_once)
        relaxation = Relaxation(chain, lower[part], upper[part], tighten=tighten, xp=torch, place=_torch_place(device))
        if wanted is None:
            asked = np.ones((len(lower[part]), len(rows)), dtype=np.bool_)
        else:
            asked = np.zeros((len(lower[part]), len(rows) + 1), dtype=np.bool_)
            asked[np.arange(len(asked))[:, None], wanted[part]] = True
            asked = asked[:, :-1]
        bounds, effect[part] = relaxation.bounds_and_effect(rows, asked)
        if wanted is None:
            found[part] = bounds
        else:
            chosen = np.take_along_axis(bounds, np.maximum(wanted[part], 0), axis=1)
            found[part] = np.where(wanted[part] >= 0, chosen, np.nan)
    return Bounds(found, effect, np.zeros((len(lower), chain.packed.vectors.shape[1]), dtype=np.int8))


def _torch_place(device: str) -> str:
    """`torch` means PyTorch on the processor, which serves comparisons."""
    return "cpu" if device == "torch" else device
