"""From where the pendulum can be kept up: the model's own answer beside a controller and equations by hand."""

from __future__ import annotations

import numpy as np
import pytest

from policyproof.model.flat import flatten
from policyproof.training.viability import Grid, among_viable, viable
from policyproof.zoo.pendulum import pendulum

GRID = Grid(("angle", "angular_velocity"), (-np.pi / 4, -4.0), (np.pi / 4, 4.0), (401, 401))


def kept_up_by_hand(states: np.ndarray, steps: int) -> np.ndarray:
    """Push against the side to which the pole is going to fall: sqrt(15) is how fast it falls by itself."""
    angles, velocities = states.T
    up = np.abs(angles) < np.pi / 4
    for _ in range(steps):
        torque = np.where(angles * np.sqrt(15) + velocities > 0, -2.0, 2.0)
        velocities = velocities + (15 * np.sin(angles) + 3 * torque) * 0.05
        angles = angles + 0.05 * velocities
        velocities = np.clip(velocities, -8, 8)
        up &= np.abs(angles) < np.pi / 4
    return up


def test_from_about_half_of_the_initial_set_no_policy_keeps_the_pole_up() -> None:
    model = pendulum()
    states = np.random.default_rng(1).uniform((-np.pi / 4, -1.0), (np.pi / 4, 1.0), (50_000, 2))
    by_hand = kept_up_by_hand(states, 200)
    shares = {}
    for cautious in (True, False):
        known = viable(flatten(model.model), model.property(), GRID, steps=200, cautious=cautious)
        said = among_viable(GRID, known, states, cautious=cautious)
        shares[cautious] = said.mean()
        # What one controller does can be done.
        if not cautious:
            assert (by_hand & ~said).mean() < 1e-3
    assert shares[True] <= by_hand.mean() + 1e-3
    # That controller is nearly as good as any, and the truth lies between the two answers of the grid.
    assert by_hand.mean() == pytest.approx(0.526, abs=0.01)
    assert shares[False] == pytest.approx(0.526, abs=0.05)
