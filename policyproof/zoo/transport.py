"""A truck brings packages over a bridge that does not carry many of them at once.

    o--o--o--o--o--o--o--o--o==b r i d g e==o      Locations in a line, numbered from 0; the bridge
    0  1  2  3  4  5  6  7  8               9      leads to the last one.

    Start: truck and packages anywhere on this side of the bridge, packages on the truck, too.
    Goal: all packages on the other side.
    Unsafe: the truck is on the other side with more than `bridge_limit` packages, so it has crossed
    the bridge with too many.

This is Transport of ICAPS22 (section 8.3, appendix D), with 10 locations, 15 packages, and a limit of 1.
Labels: `forward`, `backward`, `pick_up`, `drop`; an operator for each pair of neighbours and direction, and
for each location one that picks a package up and one that drops one.  What is on the other side stays
there: at the last location there is no operator `pick_up`, so that a truck cannot be overloaded there
without having crossed the bridge like that.

How many packages are where is counted; packages are not told apart.  At the start they are on the truck
or at a location on this side: with L locations and P packages there are C(P + L - 1, L - 1) ways to
distribute them among those L places, and L - 1 locations for the truck.  For 10 and 15: 9 * C(24, 9) =
11,767,536.  Without a policy every distribution over all places can be reached: L * C(P + L, L) states.
"""

from __future__ import annotations

import math

from policyproof.model.building import ModelBuilder
from policyproof.model.expressions import Expression, conjunction
from policyproof.model.source import LoadedModel
from policyproof.run.errors import InvalidInput


def transport(*, locations: int = 10, packages: int = 15, bridge_limit: int = 1) -> LoadedModel:
    """The model with its property `bridge-not-overloaded`."""
    if locations < 2 or not 0 <= bridge_limit < packages:
        raise InvalidInput(
            f"{locations} locations, {packages} packages, limit {bridge_limit}: at least two locations are needed, "
            "and a limit below the number of packages"
        )
    last = locations - 1
    builder = ModelBuilder(f"transport-{locations}-{packages}")
    # The model's own initial state is one of the start states: truck and packages at the far end.
    truck = builder.integer("truck", 0, last, initial=0)
    load = builder.integer("load", 0, packages, initial=0)
    at = [
        builder.integer(f"packages_{location}", 0, packages, initial=packages if location == 0 else 0)
        for location in range(locations)
    ]
    for here in range(last):
        builder.edge("forward", guard=truck.equals(here), update={truck: here + 1})
    for here in range(1, locations):
        builder.edge("backward", guard=truck.equals(here), update={truck: here - 1})
    for here in range(last):
        guard = conjunction([truck.equals(here), at[here] >= 1])
        builder.edge("pick_up", guard=guard, update={at[here]: at[here] - 1, load: load + 1})
    for here in range(locations):
        guard = conjunction([truck.equals(here), load >= 1])
        builder.edge("drop", guard=guard, update={at[here]: at[here] + 1, load: load - 1})
    total: Expression = load
    for there in at:
        total += there
    start = conjunction([truck < last, at[last].equals(0), total.equals(packages)])
    unsafe = truck.equals(last) & (load > bridge_limit)
    return builder.build(
        builder.safety("bridge-not-overloaded", unsafe=unsafe, start=start, goal=at[last].equals(packages))
    )


def distributions(*, locations: int = 10, packages: int = 15, **_: object) -> int:
    """Where the truck is, and how many packages are at each location and on the truck."""
    return locations * math.comb(packages + locations, locations)
