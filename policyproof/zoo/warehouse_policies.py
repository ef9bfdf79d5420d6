"""The two policies of the bundled example, and how they were trained.

    python -m policyproof.zoo.warehouse_policies FOLDER

Both imitate the same solution with the same network of two layers of 24 neurons.  The careful one is
trained until it makes no mistake; the hasty one is stopped after a third of that: it delivers in
98.5 % of random runs, and collides in the rest.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from policyproof.model.json_text import dumps
from policyproof.model.properties import SafetyProperty
from policyproof.policy.formats import write_onnx
from policyproof.policy.interface import SCHEMA
from policyproof.policy.network import Network
from policyproof.run.files import write_atomically
from policyproof.training.imitation import fit, solve
from policyproof.zoo.warehouse import warehouse

INPUTS = ("x", "y", "loaded", "person0", "person1")
FOLDER = Path(__file__).parent / "policies"


@dataclass(frozen=True)
class Recipe:
    """A policy by name, and what makes it what it is."""

    name: str
    epochs: int
    seed: int


RECIPES = (Recipe("warehouse-careful", 3000, 0), Recipe("warehouse-hasty", 1000, 3))


def train(recipe: Recipe) -> Network:
    """Train one of the policies; the same numbers on every machine up to rounding."""
    model = warehouse()
    prop = model.property()
    assert isinstance(prop, SafetyProperty)
    solution = solve(model, prop)
    columns = [solution.flat.names.index(name) for name in INPUTS]
    inputs = solution.states[:, columns].astype(np.float64)
    return fit(inputs, solution.correct(), hidden=(24, 24), epochs=recipe.epochs, seed=recipe.seed)


def write(recipe: Recipe, folder: Path) -> None:
    """Write the network and its interface file."""
    folder.mkdir(parents=True, exist_ok=True)
    write_onnx(train(recipe), folder / f"{recipe.name}.onnx")
    interface = {
        "schema": SCHEMA,
        "network": f"{recipe.name}.onnx",
        "inputs": [{"variable": name} for name in INPUTS],
        "labels": list(warehouse().model.labels),
        "filter": False,
    }
    write_atomically(folder / f"{recipe.name}.json", dumps(interface, indent=2) + "\n")


if __name__ == "__main__":
    for item in RECIPES:
        write(item, Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
