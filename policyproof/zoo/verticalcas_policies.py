"""The nine networks of our own for vertical collision avoidance, and how they were made.

    python -m policyproof.zoo.verticalcas_policies [FOLDER]

The table of the best advisories is computed (`verticalcas_table`), and for each last advisory a network
of five layers of 20 neurons is fitted to the advisories that are nearly best.  Two thirds of the states
that it learns from are on a course to a meeting at less than about 600 ft, where the decisions are; the
others are anywhere.  `card.json` says how often the networks agree with the table on states that they
have not seen, and how often near collisions happen, beside a pilot who is never advised.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policyproof.engines.simulation import Simulator
from policyproof.model.flat import flatten
from policyproof.model.json_text import Json, dumps
from policyproof.policy.formats import write_onnx
from policyproof.policy.interface import SCHEMA
from policyproof.policy.network import Affine, Network
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget
from policyproof.run.files import write_atomically
from policyproof.training.imitation import fit
from policyproof.zoo.verticalcas import (
    DIVIDE,
    INPUTS,
    LABELS,
    LONGEST,
    NEAR,
    SUBTRACT,
    load_networks,
    switched,
    verticalcas,
)
from policyproof.zoo.verticalcas_table import Floats, Table, solve_advisories

FOLDER = Path(__file__).parent / "policies" / "verticalcas"
COMMAND = "python -m policyproof.zoo.verticalcas_policies"
SEED = 0
SAMPLES, HELD_OUT = 80_000, 40_000
EPOCHS, BATCH = 50, 512
HIDDEN = (20,) * 5
SLACK = 2e-4
"""Advisories whose costs differ by less are equally right."""
ROLLOUTS = 20_000
SPEEDS = tuple(float(rate) for rate in range(-50, 51, 5))


def sample(count: int, random: np.random.Generator) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Heights, climb rates and seconds left of random encounters."""
    seconds = random.integers(1, LONGEST + 1, count)
    climb_rates = np.where(random.random(count) < 0.5, random.uniform(-100, 100, count), random.normal(0, 25, count))
    heights = random.uniform(-4000, 4000, count)
    on_course = random.random(count) < 2 / 3
    # Without acceleration they meet at height - climb rate * seconds.
    heights = np.where(on_course, climb_rates * seconds + random.normal(0, 300, count), heights)
    return heights, climb_rates, seconds


def train(table: Table, last: int, *, samples: int = SAMPLES, epochs: int = EPOCHS) -> tuple[Network, float]:
    """The network for one last advisory, and how often it agrees with the table on states that it has not seen."""
    random = np.random.default_rng([SEED, last])
    heights, climb_rates, seconds = sample(samples + HELD_OUT, random)
    costs = table.advisory_costs(last, heights, climb_rates, seconds)
    correct = costs <= costs.min(axis=1, keepdims=True) + SLACK
    inputs = (np.stack([heights, climb_rates, seconds], axis=1) - np.array(SUBTRACT)) / np.array(DIVIDE)
    network = fit(inputs[:samples], correct[:samples], hidden=HIDDEN, epochs=epochs, batch=BATCH, seed=SEED + last)
    chosen = network.evaluate(inputs[samples:])[0].argmax(axis=1)
    return network, float(correct[samples:][np.arange(HELD_OUT), chosen].mean())


@dataclass(frozen=True)
class Encounters:
    """Random encounters: shares of those with a near collision and with an advisory, and of seconds with one."""

    near_collisions: float
    advised: float
    advised_seconds: float


def encounters(policy: Policy | None = None, *, rollouts: int = ROLLOUTS) -> Encounters:
    """Random encounters of 40 seconds; without a policy the pilot is never advised."""
    model = verticalcas(heights=(-1000, 1000), climb_rates=SPEEDS, seconds=LONGEST)
    flat = flatten(model.model)
    simulator = Simulator(flat, policy or switched([_silent()] * len(LABELS), model))
    random = np.random.default_rng(SEED)
    words = simulator.layout.pack(simulator.sample_starts(flat.initial, rollouts, random, Budget()))
    advised = np.zeros((LONGEST, rollouts), dtype=np.bool_)
    for second in range(LONGEST):
        labels = simulator.successors.chosen_labels(words)
        advised[second] = labels != flat.labels.index("COC")
        words, _, _ = simulator.step(words, labels, random)
    states = simulator.layout.unpack(words)
    heights = np.ascontiguousarray(states[:, simulator.layout.position["h"]]).view(np.float64)
    near = np.abs(heights) <= NEAR
    return Encounters(float(near.mean()), float(advised.any(axis=0).mean()), float(advised.mean()))


def _silent() -> Network:
    """Always "clear of conflict"."""
    return Network((Affine(np.zeros((len(LABELS), 3)), np.eye(len(LABELS))[0]),), 3)


def write(folder: Path) -> None:
    """Train all nine, and write networks, interface and card."""
    folder.mkdir(parents=True, exist_ok=True)
    table = solve_advisories()
    networks, agreement = zip(*(train(table, last) for last in range(len(LABELS))), strict=True)
    for number, network in enumerate(networks, start=1):
        write_onnx(network, folder / f"verticalcas_{number}.onnx")
    write_atomically(folder / "policy.json", dumps(interface(), indent=2) + "\n")
    write_card(folder, agreement)


def write_card(folder: Path, agreement: Sequence[float]) -> None:
    """The card of the networks in a folder."""
    met = encounters(load_networks(folder, verticalcas()))
    card: dict[str, Json] = {
        "benchmark": "verticalcas",
        "command": COMMAND,
        "seed": SEED,
        "hidden": list(HIDDEN),
        "agreement_with_the_table": {label: _rounded(share) for label, share in zip(LABELS, agreement, strict=True)},
        "rollouts": ROLLOUTS,
        "encounters": "40 s, heights from -1000 to 1000 ft, climb rates from -50 to 50 ft/s, COC before",
        "near_collision_rate": _rounded(met.near_collisions),
        "near_collision_rate_without_advisories": _rounded(encounters().near_collisions),
        "encounters_with_an_advisory": _rounded(met.advised),
        "seconds_with_an_advisory": _rounded(met.advised_seconds),
    }
    write_atomically(folder / "card.json", dumps(card, indent=2) + "\n")


def _rounded(share: float) -> Fraction:
    return Fraction(f"{share:.5f}")


def interface() -> dict[str, Json]:
    """The interface file."""
    return {
        "schema": SCHEMA,
        "switch": {
            "expression": "adv",
            "networks": {str(number): f"verticalcas_{number}.onnx" for number in range(1, len(LABELS) + 1)},
        },
        "inputs": [
            {"variable": name, "subtract": int(subtract), "divide": int(divide)}
            for name, subtract, divide in zip(INPUTS, SUBTRACT, DIVIDE, strict=True)
        ],
        "labels": list(LABELS),
        "filter": False,
    }


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
