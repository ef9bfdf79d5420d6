"""How fast training is: steps of many environments, and updates by hand beside updates by PyTorch.

    python -m bench.training [--json FILE]

The update is what deep Q-learning does with a batch of 256: two passes for the targets, one forward and
backward, Adam, and the target network's move.  PyTorch is the reference, if it is installed; one thread each.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from policyproof.model.flat import flatten
from policyproof.training.deep_q import Settings
from policyproof.training.environments import Environments, choose_inputs
from policyproof.training.q_network import Adam, QNetwork
from policyproof.zoo import registry

BATCH, INPUTS, LABELS = 256, 18, 9


def seconds(work: Any, *, least: float = 1.0) -> float:
    """Of one call, by the processor's clock: other work on the machine does not count."""
    work()
    started, count = time.process_time(), 0
    while time.process_time() - started < least:
        work()
        count += 1
    return (time.process_time() - started) / count


def by_hand(hidden: tuple[int, ...]) -> Any:
    random = np.random.default_rng(0)
    network, target = (QNetwork((INPUTS, *hidden, LABELS), random) for _ in range(2))
    adam = Adam(len(network.parameters))
    before, after = (random.normal(size=(BATCH, INPUTS)).astype(np.float32) for _ in range(2))
    rows, labels = np.arange(BATCH), random.integers(LABELS, size=BATCH)

    def update() -> None:
        wanted = target.outputs(after)[rows, network.outputs(after).argmax(axis=1)]
        values = network.forward(before)
        error = np.zeros_like(values[-1])
        error[rows, labels] = np.clip(values[-1][rows, labels] - wanted, -1, 1) / np.float32(BATCH)
        adam.step(network.parameters, network.gradient(values, error), 1e-3)
        target.parameters += np.float32(0.005) * (network.parameters - target.parameters)

    return update


def by_torch(hidden: tuple[int, ...]) -> Any:
    import torch

    torch.set_num_threads(1)

    def make() -> Any:
        sizes = (INPUTS, *hidden, LABELS)
        layers: list[Any] = []
        for columns, rows in itertools.pairwise(sizes):
            layers += [torch.nn.Linear(columns, rows), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers[:-1])

    network, target = make(), make()
    adam = torch.optim.Adam(network.parameters(), fused=True)
    before, after = torch.randn(BATCH, INPUTS), torch.randn(BATCH, INPUTS)
    labels = torch.randint(LABELS, (BATCH, 1))

    def update() -> None:
        with torch.no_grad():
            wanted = target(after).gather(1, network(after).argmax(dim=1, keepdim=True))
        loss = torch.nn.functional.smooth_l1_loss(network(before).gather(1, labels), wanted)
        adam.zero_grad()
        loss.backward()
        adam.step()
        with torch.no_grad():
            for mine, other in zip(target.parameters(), network.parameters(), strict=True):
                mine.lerp_(other, 0.005)

    return update


def steps_a_second(benchmark: str, count: int) -> float:
    model = registry.model(benchmark)
    flat = flatten(model.model)
    random = np.random.default_rng(0)
    many = Environments(
        flat, model.property(),
        reads=choose_inputs(flat, (), ()), count=count, maximal_steps=100, discount=0.98, random=random,
    )  # fmt: skip

    def step() -> None:
        many.step(np.where(many.possible, random.random(many.possible.shape), -1.0).argmax(axis=1))

    return count / seconds(step)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    result: dict[str, Any] = {"updates": {}, "steps_a_second": {}}
    for hidden in ((16, 16), (32, 32), (64, 64), (64, 64, 64)):
        name = "x".join(map(str, hidden))
        own = seconds(by_hand(hidden))
        try:
            ratio = seconds(by_torch(hidden)) / own
        except ImportError:
            ratio = float("nan")
        result["updates"][name] = {"milliseconds": 1000 * own, "torch_ratio": ratio}
        print(f"{name:<10} {1000 * own:6.2f} ms an update; PyTorch takes {ratio:.1f} times as long")
    for benchmark in ("blocksworld-8", "racetrack-barto-big", "cartpole"):
        for count in (Settings().environments, 4096):
            rate = steps_a_second(benchmark, count)
            result["steps_a_second"][f"{benchmark}/{count}"] = rate
            print(f"{benchmark:<20} {count:5} environments: {rate:,.0f} steps a second")
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
