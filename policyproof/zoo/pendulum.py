"""A pole on a pivot, pushed left or right with too little force to lift it: keep it upright (MOSAIC, section 5.2).

Two state variables, the angle from the upright position and the angular velocity; two labels, a
torque u of -2 or +2.  One step of 0.05 seconds (g = 10, mass and length 1):

    velocity' = velocity + 0.05 * (15 sin(angle) + 3 u)
    angle'    = angle + 0.05 * velocity'                 then velocity' is clipped to [-8, 8]

             upright
        \\       |       /
         \\      | angle/       failure: |angle| >= pi/4
    fail  \\     |  .o /   fail
           \\    | /  /
            \\   |/  /
                 x  <- torque u

From about half of the initial set (|angle| <= pi/4, |velocity| <= 1) no controller avoids failure,
since the torque is weak.

A *sticky action* is executed twice within one step.  `move` is the step as a function of expressions,
so that it can be applied twice; `sticky` gives the model that fault, with a probability.
"""

from __future__ import annotations

from fractions import Fraction

from policyproof.model.building import ModelBuilder
from policyproof.model.expressions import Expression, apply, constant
from policyproof.model.source import LoadedModel
from policyproof.zoo.sticky import sticky_outcomes

TORQUES = {"left": -2, "right": 2}
TIME_STEP = Fraction(1, 20)
GRAVITY = Fraction(15)
"""3 g / (2 l): what the sine of the angle is multiplied by."""
LEVER = Fraction(3)
"""3 / (m l^2): what the torque is multiplied by."""
FASTEST = 8
LIMIT = "pi / 4"
UPRIGHT = f"-{LIMIT} < angle & angle < {LIMIT}"

State = tuple[Expression, Expression]


def move(state: State, torque: int) -> State:
    """One step of the dynamics, as expressions: (angle, angular velocity)."""
    angle, velocity = state
    faster = velocity + (constant(GRAVITY) * apply("sin", angle) + LEVER * torque) * TIME_STEP
    clipped = apply("min", apply("max", faster, constant(-FASTEST)), constant(FASTEST))
    # The angle moves with the velocity as it was before clipping.
    return angle + faster * TIME_STEP, clipped


def pendulum(*, sticky: float = 0) -> LoadedModel:
    """The model with its property `stays-up`; `sticky`: the probability that an action is executed twice."""
    builder = ModelBuilder("pendulum")
    angle = builder.real("angle")
    velocity = builder.real("angular_velocity", -FASTEST, FASTEST)
    builder.initially(f"-{LIMIT} <= angle & angle <= {LIMIT} & -1 <= angular_velocity & angular_velocity <= 1")
    for label, torque in TORQUES.items():
        once = move((angle, velocity), torque)
        builder.edge(label, outcomes=sticky_outcomes((angle, velocity), once, move(once, torque), sticky))
    return builder.build(builder.safety("stays-up", unsafe=f"!({UPRIGHT})"))


def property_text(steps: int) -> str:
    """The pole does not fall within this many steps."""
    return f"AG<={steps} ({UPRIGHT})"
