"""Networks of the shape of a published collision-avoidance benchmark, and its properties, for `bench.vnn`.

The benchmark's own networks (45 of 5 inputs, 6 x 50 ReLU, 5 outputs) belong to others.  Where they are
not at hand, this script trains a stand-in of the same shape: one network for each of nine times to loss
of vertical separation and five previous advisories, trained to a cost that a short flight simulation
gives each advisory (clear of conflict, weak left, weak right, strong left, strong right; the least cost
is advised).  The inputs are distance, bearing, relative heading and the two speeds, normalised with the
benchmark's published means and ranges; the properties are its published properties 1 to 4, as VNN-LIB.

`property_1_tight` is ours: property 1 with a threshold just above the greatest value among samples, per
network, since the published threshold is far away for these networks.

    python -m bench.advisories --out FOLDER
"""

from __future__ import annotations

import argparse
import csv
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policyproof.policy.formats import write_onnx
from policyproof.policy.network import Activation, Affine, Layer, Network

Singles = NDArray[np.float32]

MEANS = np.array([19791.091, 0.0, 0.0, 650.0, 600.0])
RANGES = np.array([60261.0, 6.28318530718, 6.28318530718, 1100.0, 1200.0])
LEAST = np.array([0.0, -3.141593, -3.141593, 100.0, 0.0])
GREATEST = np.array([60760.0, 3.141593, 3.141593, 1200.0, 1200.0])
OUTPUT_MEAN, OUTPUT_RANGE = 7.5188840201005975, 373.94992
TURNS = np.deg2rad([0.0, 1.5, -1.5, 3.0, -3.0])
TIMES_TO_LOSS = (0, 1, 5, 10, 20, 40, 60, 80, 100)
ROUGHNESS = 1.5
"""Greater first weights than usual: the networks vary more, and are harder, as those of the benchmark are."""
SIZES = (5, 50, 50, 50, 50, 50, 50, 5)

FAR_AWAY = {0: (55947.691, GREATEST[0]), 3: (1145.0, GREATEST[3]), 4: (LEAST[4], 60.0)}
HEAD_ON = {0: (1500.0, 1800.0), 1: (-0.06, 0.06), 2: (3.1, GREATEST[2]), 3: (980.0, GREATEST[3]), 4: (960.0, 1200.0)}
AHEAD = {0: (1500.0, 1800.0), 1: (-0.06, 0.06), 2: (0.0, 0.0), 3: (1000.0, GREATEST[3]), 4: (700.0, 800.0)}
BOXES = {1: FAR_AWAY, 2: FAR_AWAY, 3: HEAD_ON, 4: AHEAD}
THRESHOLD = (1500.0 - OUTPUT_MEAN) / OUTPUT_RANGE


def box_of(number: int) -> list[tuple[float, float]]:
    """The normalised input box of a property."""
    ends = [BOXES[number].get(i, (LEAST[i], GREATEST[i])) for i in range(5)]
    return [
        (float((low - MEANS[i]) / RANGES[i]), float((high - MEANS[i]) / RANGES[i]))
        for i, (low, high) in enumerate(ends)
    ]


def property_text(number: int, threshold: float = THRESHOLD) -> str:
    """The property as VNN-LIB: satisfiable when the network violates it."""
    lines = [f"(declare-const X_{i} Real)" for i in range(5)] + [f"(declare-const Y_{i} Real)" for i in range(5)]
    for i, (low, high) in enumerate(box_of(number)):
        lines += [f"(assert (>= X_{i} {low!r}))", f"(assert (<= X_{i} {high!r}))"]
    if number == 1:
        lines.append(f"(assert (>= Y_0 {threshold!r}))")
    else:
        first, second = ("Y_{}", "Y_0") if number == 2 else ("Y_0", "Y_{}")
        lines += [f"(assert (<= {first.format(i)} {second.format(i)}))" for i in range(1, 5)]
    return "\n".join(lines) + "\n"


def draw_states(generator: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Raw inputs: half of them anywhere, half of them close, where decisions change."""
    states = LEAST + generator.random((count, 5)) * (GREATEST - LEAST)
    near = generator.random(count) < 0.5
    states[near, 0] = np.exp(generator.uniform(np.log(300), np.log(25000), near.sum()))
    return states


def costs(states: NDArray[np.float64]) -> Singles:
    """`costs[network, n, advisory]` by flying each advisory for 20 s, then straight on."""
    distance, bearing, heading, own, intruder = states.T
    times = np.arange(0.0, 121.0, 2.0)
    here = np.stack([distance * np.cos(bearing), distance * np.sin(bearing)], axis=1)
    velocity = intruder[:, None] * np.stack([np.cos(heading), np.sin(heading)], axis=1)
    there = here[:, None] + velocity[:, None] * times[:, None]
    gaps = []
    for turn in TURNS:
        angles = turn * np.minimum(times, 20.0)
        path = np.cumsum(np.stack([np.cos(angles), np.sin(angles)], 1) * 2.0, axis=0)
        gaps.append(np.linalg.norm(there - own[:, None, None] * path, axis=2))
    gap = np.stack(gaps, axis=1)
    alert = np.array([0.0, 8.0, 8.0, 20.0, 20.0])
    found = []
    for loss in TIMES_TO_LOSS:
        window = (times >= loss) & (times <= loss + 20)
        closest = gap[:, :, window].min(axis=2)
        danger = 350.0 / (1 + np.exp(np.clip((closest - 2500.0) / 100.0, -50, 50))) + 40.0 * np.exp(-closest / 6000.0)
        for previous in range(5):
            change = np.where(TURNS * TURNS[previous] < 0, 40.0, 0.0) + 5.0 * (np.arange(5) != previous)
            weight = 0.3 if loss > 60 else 1.0
            found.append((danger + (alert + change) * weight - OUTPUT_MEAN) / OUTPUT_RANGE)
    return np.stack(found).astype(np.float32)


def train(*, steps: int, samples: int, seed: int, batch: int = 384) -> list[tuple[Singles, Singles]]:
    """All networks at once: weights[network, output, input] and bias[network, 1, output] of every layer."""
    generator = np.random.default_rng(seed)
    states = draw_states(generator, samples)
    targets = np.concatenate([costs(states[first : first + 2000]) for first in range(0, samples, 2000)], axis=1)
    inputs = ((states - MEANS) / RANGES).astype(np.float32)
    count = len(targets)
    values: list[Singles] = []
    for source, target in pairwise(SIZES):
        values.append(generator.normal(0, ROUGHNESS * np.sqrt(2 / source), (count, target, source)).astype(np.float32))
        values.append(np.zeros((count, 1, target), np.float32))
    first, second = [np.zeros_like(value) for value in values], [np.zeros_like(value) for value in values]
    layers = len(SIZES) - 1
    for step in range(steps):
        chosen = generator.integers(0, samples, batch)
        activations = [np.broadcast_to(inputs[chosen], (count, batch, 5))]
        for layer in range(layers):
            z = activations[-1] @ values[2 * layer].transpose(0, 2, 1) + values[2 * layer + 1]
            activations.append(np.maximum(z, 0) if layer < layers - 1 else z)
        slope = (activations[-1] - targets[:, chosen]) * np.float32(2 / batch)
        rate = 2e-3 * 0.5 * (1 + np.cos(np.pi * step / steps)) + 2e-5
        for layer in reversed(range(layers)):
            gradients = [slope.transpose(0, 2, 1) @ activations[layer], slope.sum(1, keepdims=True)]
            if layer:
                slope = (slope @ values[2 * layer]) * (activations[layer] > 0)
            for k, gradient in zip((2 * layer, 2 * layer + 1), gradients, strict=True):
                first[k] += np.float32(0.1) * (gradient - first[k])
                second[k] += np.float32(0.01) * (gradient * gradient - second[k])
                scale = np.float32(rate / (1 - 0.9 ** (step + 1)))
                root = np.sqrt(second[k] / np.float32(1 - 0.99 ** (step + 1))) + np.float32(1e-8)
                values[k] -= scale * first[k] / root
        if step % 500 == 0 or step == steps - 1:
            print(f"step {step}: mean squared error {np.square(activations[-1] - targets[:, chosen]).mean():.5f}")
    return [(values[2 * layer], values[2 * layer + 1]) for layer in range(layers)]


def network_of(layers: list[tuple[Singles, Singles]], number: int) -> Network:
    parts: list[Layer] = []
    for weights, bias in layers:
        parts += [Affine(weights[number].astype(np.float64), bias[number, 0].astype(np.float64)), Activation("relu")]
    return Network(tuple(parts[:-1]), 5)


def tight_threshold(network: Network, generator: np.random.Generator) -> float:
    """A little above the greatest first output among samples of the box of property 1."""
    box = np.array(box_of(1))
    points = box[:, 0] + generator.random((200_000, 5)) * (box[:, 1] - box[:, 0])
    values = network.evaluate(points)[0][:, 0]
    # Some networks are constant there.
    return float(values.max() + 0.1 * max(values.max() - values.min(), 0.1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    folder: Path = arguments.out
    folder.mkdir(parents=True, exist_ok=True)
    layers = train(steps=arguments.steps, samples=arguments.samples, seed=arguments.seed)
    generator = np.random.default_rng(arguments.seed)
    rows = []
    for number in BOXES:
        (folder / f"property_{number}.vnnlib").write_text(property_text(number))
    for number in range(len(TIMES_TO_LOSS) * 5):
        network = network_of(layers, number)
        name = f"advisory_{number % 5 + 1}_{number // 5 + 1}"
        write_onnx(network, folder / f"{name}.onnx")
        tight = f"property_1_tight_{name}.vnnlib"
        (folder / tight).write_text(property_text(1, tight_threshold(network, generator)))
        rows += [[f"{name}.onnx", prop, 60] for prop in [*(f"property_{k}.vnnlib" for k in BOXES), tight]]
    with (folder / "instances.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)


if __name__ == "__main__":
    main()
