"""Is the model Gymnasium's CartPole?  The same random steps in both, side by side.

    python compare.py [STEPS]

An environment that is written twice is only as good as this comparison: run it whenever one of the two
changes.  Gymnasium computes in float64 here, as the model's own environment does.
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
from cartpole import cartpole

import policyproof as pp


def compare(steps: int, *, seed: int = 0) -> tuple[float, int]:
    """The greatest difference of any variable in any step, and how many episodes ended on the way."""
    theirs: Any = gymnasium.make("CartPole-v1").unwrapped
    ours = pp.to_gym(cartpole())
    random = np.random.default_rng(seed)
    greatest, episodes, ended = 0.0, 0, True
    for _ in range(steps):
        if ended:
            # A start far from the middle now and then, so that all ways to fail are seen.
            state = random.uniform(-1, 1, 4) * random.choice([0.05, 1.0]) * np.array([2.4, 1.0, 0.2, 1.0])
            theirs.reset(seed=0)
            theirs.state = state
            ours.reset(options={"state": dict(zip(ours.observed, state, strict=True))})
        action = int(random.integers(2))
        *_, terminated, _, _ = theirs.step(action)
        _, _, failed, _, info = ours.step(action)
        if terminated != failed:
            raise SystemExit(f"one of the two ends the episode, the other does not, in {info['state']}")
        mine = [info["state"][name] for name in ours.observed]
        greatest = max(greatest, float(np.abs(np.array(mine) - np.array(theirs.state)).max()))
        episodes += ended
        ended = terminated
    return greatest, episodes


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    difference, number = compare(count)
    print(f"{count} steps in {number} episodes: they differ by at most {difference:.1e}")
    sys.exit(difference > 1e-9)
