"""Train a policy on Gymnasium's own CartPole with Stable-Baselines3: about a minute on one core.

    pip install stable-baselines3
    python train.py [FILE]

Two layers of 32 ReLU neurons: small and piecewise linear, which is what engines are fastest with.
"""

from __future__ import annotations

import sys

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import LinearSchedule

STEPS = 100_000


def train(file: str, *, steps: int = STEPS, seed: int = 0) -> None:
    torch.set_num_threads(1)
    environment = make_vec_env("CartPole-v1", n_envs=8, seed=seed)
    policy = PPO(
        "MlpPolicy",
        environment,
        n_steps=128,
        batch_size=256,
        n_epochs=10,
        gae_lambda=0.9,
        gamma=0.99,
        # Falling to zero: with a constant rate the last policy need not be a good one.
        learning_rate=LinearSchedule(1e-3, 0.0, 1.0),
        policy_kwargs={"net_arch": [32, 32], "activation_fn": torch.nn.ReLU},
        seed=seed,
        device="cpu",
    )
    policy.learn(total_timesteps=steps)
    policy.save(file)


if __name__ == "__main__":
    train(sys.argv[1] if len(sys.argv) > 1 else "policy.zip")
