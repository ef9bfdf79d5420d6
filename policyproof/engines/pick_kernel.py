"""Machine code of the simulation: one successor per source, drawn at random.

Among the groups of a source (a group: the same edges) one is drawn uniformly, in it an operator by
its weight, and of that operator's successors one uniformly.

Idea: every draw is a race.  The number of a racer is a hash of (seed, source, who), so that all
successors of a group, or of an operator, have the same one without being sorted: one pass suffices.
The first of exponential arrivals with rates w_i is i with probability w_i / sum_j w_j.
"""

from __future__ import annotations

import math

from policyproof.run.machine_code import njit

GROUP, OPERATOR, SUCCESSOR = 1, 2, 3


@njit(cache=True, nogil=True)
def _mixed(x):
    """The finaliser of splitmix64, on signed words."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


@njit(cache=True, nogil=True)
def _uniform(seed, source, kind, number):
    """A number in [0, 1)."""
    x = _mixed(_mixed(_mixed(seed + source * -7046029254386353131) + kind) + number * -7046029254386353131)
    return float((x >> 11) & 0x1FFFFFFFFFFFFF) / 9007199254740992.0


@njit(cache=True, nogil=True, error_model="numpy")
def pick(source, operator, group, weight, seed, picked):
    """The positions of the drawn successors into `picked`; how many.  Sources stand together."""
    count = 0
    best_group, best_arrival, best_draw = 0.0, 0.0, 0.0
    for i in range(len(source)):
        first = i == 0 or source[i] != source[i - 1]
        of_group = _uniform(seed, source[i], GROUP, group[i])
        if not first and of_group < best_group:
            continue
        chance = _uniform(seed, source[i], OPERATOR, operator[i])
        arrival = -math.log(1.0 - chance) / weight[i]
        draw = _uniform(seed, source[i], SUCCESSOR, i)
        wins = first or of_group > best_group
        if not wins:
            wins = arrival < best_arrival or (arrival == best_arrival and draw > best_draw)
        if wins:
            best_group, best_arrival, best_draw = of_group, arrival, draw
            picked[count - (not first)] = i
            count += first
    return count
