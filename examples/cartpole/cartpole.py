"""Gymnasium's CartPole, written once more with the modelling API.

The lines of `dynamics` are those of the environment's own `step`, with expressions in place of numbers.
`compare.py` checks that the two are one system.
"""

from __future__ import annotations

from fractions import Fraction

import policyproof as pp

GRAVITY, TOTAL_MASS, POLE_MASS, HALF_LENGTH = 9.8, 1.1, 0.1, 0.5
SECONDS = 0.02
FORCES = {"left": -10, "right": 10}
# Where Gymnasium ends an episode: 2.4 units from the middle, 12 degrees from upright.
FAILURE = "x < -2.4 | x > 2.4 | theta < -pi / 15 | theta > pi / 15"


def cartpole(start: str = "-0.05 <= {0} & {0} <= 0.05") -> pp.LoadedModel:
    """The model with its property `stays-up`; `start` is the condition on each variable at the start."""
    builder = pp.ModelBuilder("gymnasium-cartpole")
    # In the order of Gymnasium's observation: so the policy was trained.
    x, x_dot, theta, theta_dot = (builder.real(name) for name in ("x", "x_dot", "theta", "theta_dot"))
    builder.initially(" & ".join(start.format(name) for name in ("x", "x_dot", "theta", "theta_dot")))
    sine, cosine = builder.expression("sin(theta)"), builder.expression("cos(theta)")
    for label, force in FORCES.items():
        temp = (force + POLE_MASS * HALF_LENGTH * theta_dot * theta_dot * sine) / TOTAL_MASS
        theta_acceleration = (GRAVITY * sine - cosine * temp) / (
            HALF_LENGTH * (Fraction(4, 3) - POLE_MASS * cosine * cosine / TOTAL_MASS)
        )
        x_acceleration = temp - POLE_MASS * HALF_LENGTH * theta_acceleration * cosine / TOTAL_MASS
        builder.edge(
            label,
            update={
                x: x + SECONDS * x_dot,
                x_dot: x_dot + SECONDS * x_acceleration,
                theta: theta + SECONDS * theta_dot,
                theta_dot: theta_dot + SECONDS * theta_acceleration,
            },
        )
    return builder.build(builder.safety("stays-up", unsafe=FAILURE))


if __name__ == "__main__":
    cartpole().save("cartpole.jani")
