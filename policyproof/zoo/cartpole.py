"""A pole on a cart that is pushed left or right: keep it upright and the cart near the middle (MOSAIC, section 5.2).

The equations are Gymnasium's CartPole with explicit Euler steps of 0.02 seconds (g = 9.8, cart 1.0,
pole 0.1, half its length 0.5, force -10 or +10); their source is the cart-pole system of Barto,
Sutton and Anderson, 1983.

                     o
                    /   angle
                   /.
            +-----/-.--+
    push -> |     x    |            failure: the cart too far out, or the angle too large
    --------+--o----o--+--------
          position

Two versions of the limits are known, and of the start:

    limits        position      angle          start: every variable in
    "gymnasium"   > 2.4         > 12 degrees   [-0.05, 0.05]
    "mosaic"      >= 0.05       >= 10 degrees  [-0.005, 0.005]      (the paper's published sources)

A *sticky action* is executed twice within one step.  `move` is the step as a function of expressions,
so that it can be applied twice; `sticky` gives the model that fault, with a probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from policyproof.model.building import ModelBuilder
from policyproof.model.expressions import Expression, apply, constant
from policyproof.model.source import LoadedModel
from policyproof.run.errors import InvalidInput
from policyproof.zoo.sticky import sticky_outcomes

FORCES = {"left": -10, "right": 10}
TIME_STEP = Fraction(1, 50)
GRAVITY = Fraction(98, 10)
POLE_MASS = Fraction(1, 10)
TOTAL_MASS = 1 + POLE_MASS
HALF_LENGTH = Fraction(1, 2)
VARIABLES = ("position", "velocity", "angle", "angular_velocity")

State = tuple[Expression, Expression, Expression, Expression]


@dataclass(frozen=True)
class Limits:
    """Where the system works, as a condition, and how far each variable may be from zero at the start."""

    upright: str
    start: Fraction


VERSIONS: dict[str, Limits] = {
    "gymnasium": Limits("-2.4 <= position & position <= 2.4 & -pi / 15 <= angle & angle <= pi / 15", Fraction(5, 100)),
    "mosaic": Limits("-0.05 < position & position < 0.05 & -pi / 18 < angle & angle < pi / 18", Fraction(5, 1000)),
}


def move(state: State, force: int) -> State:
    """One step of the dynamics, as expressions: (position, velocity, angle, angular velocity)."""
    position, velocity, angle, angular_velocity = state
    sine, cosine = apply("sin", angle), apply("cos", angle)
    pole = POLE_MASS * HALF_LENGTH
    push = (constant(Fraction(force)) + pole * angular_velocity * angular_velocity * sine) / TOTAL_MASS
    inertia = HALF_LENGTH * (Fraction(4, 3) - POLE_MASS * cosine * cosine / TOTAL_MASS)
    angular_acceleration = (GRAVITY * sine - cosine * push) / inertia
    acceleration = push - pole * angular_acceleration * cosine / TOTAL_MASS
    return (
        position + TIME_STEP * velocity,
        velocity + TIME_STEP * acceleration,
        angle + TIME_STEP * angular_velocity,
        angular_velocity + TIME_STEP * angular_acceleration,
    )


def cartpole(*, limits: str = "gymnasium", sticky: float = 0) -> LoadedModel:
    """The model with its property `stays-up`; `sticky`: the probability that an action is executed twice."""
    version = _version(limits)
    builder = ModelBuilder("cartpole")
    position, velocity, angle, angular_velocity = (builder.real(name) for name in VARIABLES)
    state = (position, velocity, angle, angular_velocity)
    reach = float(version.start)
    builder.initially(" & ".join(f"-{reach} <= {name} & {name} <= {reach}" for name in VARIABLES))
    for label, force in FORCES.items():
        once = move(state, force)
        builder.edge(label, outcomes=sticky_outcomes(state, once, move(once, force), sticky))
    return builder.build(builder.safety("stays-up", unsafe=f"!({version.upright})"))


def property_text(steps: int, *, limits: str = "gymnasium") -> str:
    """Neither pole nor cart leaves its limits within this many steps."""
    return f"AG<={steps} ({_version(limits).upright})"


def _version(limits: str) -> Limits:
    if limits not in VERSIONS:
        raise InvalidInput(f"there are no limits {limits!r} (there are: {', '.join(VERSIONS)})")
    return VERSIONS[limits]
