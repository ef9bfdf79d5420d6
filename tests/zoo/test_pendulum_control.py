"""From where the pendulum can be kept up: the grid's answer beside that of a controller written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from policyproof.zoo.pendulum_control import controllable, controllable_share


def kept_up_by_hand(angles: np.ndarray, velocities: np.ndarray, steps: int) -> np.ndarray:
    """Push against the side to which the pole is going to fall: sqrt(15) is how fast it falls by itself."""
    up = np.abs(angles) < np.pi / 4
    for _ in range(steps):
        torque = np.where(angles * np.sqrt(15) + velocities > 0, -2.0, 2.0)
        velocities = velocities + (15 * np.sin(angles) + 3 * torque) * 0.05
        angles = angles + 0.05 * velocities
        velocities = np.clip(velocities, -8, 8)
        up &= np.abs(angles) < np.pi / 4
    return up


def test_about_half_of_the_initial_set_is_controllable() -> None:
    found = controllable(points=401)
    assert controllable_share(found) == pytest.approx(0.526, abs=0.004)
    random = np.random.default_rng(1)
    angles, velocities = random.uniform(-np.pi / 4, np.pi / 4, 100_000), random.uniform(-1, 1, 100_000)
    by_hand = kept_up_by_hand(angles, velocities, 200)
    said = found(angles, velocities)
    # What one controller does can be done; and this one is nearly as good as any.
    assert (by_hand & ~said).mean() < 0.003
    assert (said & ~by_hand).mean() < 0.003


def test_a_few_steps_are_easier_than_many() -> None:
    shares = [controllable_share(controllable(steps, points=201)) for steps in (1, 3, 7, 200)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.9
    assert shares[-1] < 0.6


def test_no_state_outside_the_limits_is_controllable() -> None:
    found = controllable(points=201)
    assert not found(np.array([0.8, -0.8, 2.0]), np.zeros(3)).any()
    assert found(np.zeros(1), np.zeros(1)).all()
