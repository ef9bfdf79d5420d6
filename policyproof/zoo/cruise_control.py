"""Adaptive cruise control: a car follows another one, which may brake at any time.

Every second the policy accelerates, keeps its speed or brakes; the car in front does as it likes.

    +-----+                                  +------+
    | own |  ->            gap               | lead |  ->
    +-o-o-+ <------------------------------> +-o--o-+

A unit of length is 5 m and a step is one second, so a unit of speed is 18 km/h.  In one step the own
speed changes by at most one unit (the policy decides), that of the lead car too (it decides itself):

    own'  = own + 1, own or own - 1         within 0 .. fastest
    gap'  = gap + lead - own'               within 0 .. longest (beyond, the lead car is out of sight)
    lead' from lead - 1 to lead + 1         within 0 .. fastest

Unsafe: no gap is left.  Both cars brake equally well, so a policy that never comes closer than it
needs to stop behind a car that brakes as hard as it can is safe; one that trusts the lead car to keep
its speed is not.

With `real` the three variables are real numbers, and the lead car takes any speed in between.
"""

from __future__ import annotations

from policyproof.model.building import ModelBuilder, between
from policyproof.model.expressions import Expression, apply, constant
from policyproof.model.source import LoadedModel

CHANGES = {"accelerate": 1, "keep": 0, "brake": -1}


def cruise_control(*, longest: int = 40, fastest: int = 6, nearest_start: int = 20, real: bool = False) -> LoadedModel:
    """The model with its property `no-crash`; runs begin with a gap of at least `nearest_start`."""
    builder = ModelBuilder("cruise-control")
    declare = builder.real if real else builder.integer
    gap = declare("gap", 0, longest)
    own, lead = declare("own", 0, fastest), declare("lead", 0, fastest)
    builder.initially(gap >= nearest_start)
    for label, change in CHANGES.items():
        new_own = _within(own + change, fastest)
        builder.edge(
            label,
            guard=gap > 0,
            update={
                own: new_own,
                gap: _within(gap + lead - new_own, longest),
                lead: between(_within(lead - 1, fastest), _within(lead + 1, fastest)),
            },
        )
    return builder.build(builder.safety("no-crash", unsafe=gap <= 0))


def _within(value: Expression, highest: int) -> Expression:
    return apply("min", apply("max", value, constant(0)), constant(highest))
