"""Where to halve a box of real inputs.

The effect of an input is how much of the slack of the rows that are not settled is due to its width
(`bounds.kernel`): through the linear bound itself, and through the gaps between the lines of undecided
components, each shared among the inputs by what spreads its argument, gaps of earlier components
included.  The trees are about as small as when all halves are bounded and the best pair is taken.
"""

from __future__ import annotations

import numpy as np

from policyproof.oracle.space import Integers
from policyproof.policy.network import Floats


def choose_inputs(lower: Floats, upper: Floats, effect: Floats) -> Integers:
    """The input to halve in every box; -1 where no input has a float between its ends."""
    middle = 0.5 * lower + 0.5 * upper
    possible = np.asarray((lower < middle) & (middle < upper))
    # Without a known effect (overflow, or constant rows) the widest input is as good as any.
    known = np.isfinite(effect).all(axis=1) & (np.where(possible, effect, 0.0) > 0).any(axis=1)
    score = np.where(np.asarray(known)[:, None], effect, upper - lower)
    score = np.where(possible, score, -1.0)
    axis = score.argmax(axis=1) if lower.shape[1] else np.zeros(len(lower), dtype=np.int64)
    return np.where(possible.any(axis=1), axis, -1)


def halve(lower: Floats, upper: Floats, axis: Integers) -> tuple[Floats, Floats]:
    """Both halves of every box along its axis, beside each other; they share the point where they meet."""
    rows = np.arange(len(lower))
    middle = 0.5 * lower[rows, axis] + 0.5 * upper[rows, axis]
    low, high = np.repeat(lower, 2, axis=0), np.repeat(upper, 2, axis=0)
    high[2 * rows, axis] = middle
    low[2 * rows + 1, axis] = middle
    return low, high
