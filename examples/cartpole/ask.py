"""What can be proved about the trained policy today, and what cannot.

    python ask.py

Real-valued models have infinitely many states, and sine and cosine make their values irrational after
a few steps.  So the explicit engine answers bounded questions from single start states, as long as the
values stay rational, and says "unknown" beyond that; about the policy alone, the decision oracle
answers for whole regions at once.
"""

from __future__ import annotations

from pathlib import Path

from cartpole import FAILURE, cartpole

import policyproof as pp
from policyproof.oracle.native import NativeOracle
from policyproof.oracle.protocol import STATUS, Regions

POLICY = Path(__file__).parent / "policy.json"

# Leaning to one side and falling, with the cart at rest near the middle; in radians and radians per second.
FALLING = {
    "to the right": {"x": (-0.1, 0.1), "x_dot": (-0.1, 0.1), "theta": (0.1, 0.2), "theta_dot": (0.5, 1.0)},
    "to the left": {"x": (-0.1, 0.1), "x_dot": (-0.1, 0.1), "theta": (-0.2, -0.1), "theta_dot": (-1.0, -0.5)},
}


def from_upright(steps: int) -> pp.Answer:
    """Does the pole stay up for some steps from the single state in which nothing moves?"""
    model = cartpole(start="{0} = 0")
    return pp.verify(model, pp.load_policy(POLICY, model), f"AG<={steps} !({FAILURE})")


def while_falling() -> dict[str, dict[str, str]]:
    """Which pushes can the policy choose somewhere in a region?"""
    model = cartpole()
    policy = pp.load_policy(POLICY, model)
    variables = list(model.model.variables)
    oracle = NativeOracle(policy, variables)
    answers = oracle.ask(Regions.of(variables, list(FALLING.values())))
    return {
        name: {label: STATUS[status] for label, status in zip(policy.labels, row, strict=True)}
        for name, row in zip(FALLING, answers.status, strict=True)
    }


if __name__ == "__main__":
    for count in (1, 2, 3):
        answer = from_upright(count)
        print(f"upright for {count} steps: {answer.verdict}: {answer.reason}")
    for side, labels in while_falling().items():
        print(f"falling {side}:", ", ".join(f"push {label} {status}" for label, status in labels.items()))
