"""The two policies for cruise control, and how they were made.

    python -m policyproof.zoo.cruise_control_policies [FOLDER]

Both want to drive as fast as they think is safe, and imitate a rule that is tried out in all states
with a gap: take the label with the highest speed after which the car can still stop in time, if the
lead car

    prudent     brakes as hard as it can from now on
    trusting    keeps the speed that it has

The networks have two layers of 16 neurons.  A card says how often each agrees with its rule, and how
often it crashes in random runs, in which the lead car draws what it does; that proves nothing.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policyproof.model.flat import flatten
from policyproof.model.json_text import Json
from policyproof.model.properties import SafetyProperty
from policyproof.policy.network import Network
from policyproof.training.card import Made, write_policy
from policyproof.training.imitation import fit
from policyproof.zoo.cruise_control import CHANGES, cruise_control

FOLDER = Path(__file__).parent / "policies"
COMMAND = "python -m policyproof.zoo.cruise_control_policies"
INPUTS = ("gap", "own", "lead")
LONGEST, FASTEST = 40, 6
HIDDEN = (16, 16)
STEPS = 200

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Recipe:
    """A policy by name, and what makes it what it is."""

    name: str
    lead_brakes: bool
    """What the policy takes for granted of the lead car."""
    epochs: int = 2000
    seed: int = 0


RECIPES = (Recipe("cruise-control-prudent", True), Recipe("cruise-control-trusting", False))


def stops_in_time(gap: Integers, own: Integers, lead: Integers, *, lead_brakes: bool) -> NDArray[np.bool_]:
    """Does the own car avoid a crash by braking from now on?"""
    gap, own, lead = gap.copy(), own.copy(), lead.copy()
    safe = gap > 0
    # Who brakes stands still after so many steps; a gap that grows from then on does no harm.
    for _ in range(FASTEST + 1):
        own = np.maximum(own - 1, 0)
        gap += lead - own
        lead = np.maximum(lead - 1, 0) if lead_brakes else lead
        safe &= gap > 0
    return safe


def states() -> Integers:
    """`[state, variable]`: all with a gap."""
    axes = (np.arange(1, LONGEST + 1), np.arange(FASTEST + 1), np.arange(FASTEST + 1))
    return np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")], axis=1)


def advised(table: Integers, *, lead_brakes: bool) -> NDArray[np.bool_]:
    """`[state, label]`: the labels that lead to the highest speed that is thought safe; braking where none is."""
    gap, own, lead = table.T
    correct = np.zeros((len(table), len(CHANGES)), dtype=np.bool_)
    decided = np.zeros(len(table), dtype=np.bool_)
    best = np.full(len(table), -1)
    for number, change in enumerate(CHANGES.values()):
        new_own = np.clip(own + change, 0, FASTEST)
        # The lead car's next speed is open when this step ends.
        next_lead = np.maximum(lead - 1, 0) if lead_brakes else lead
        safe = stops_in_time(gap + lead - new_own, new_own, next_lead, lead_brakes=lead_brakes)
        # Several labels lead to one speed at the ends of the range.
        correct[:, number] = safe & (~decided | (new_own == best))
        best = np.where(safe & ~decided, new_own, best)
        decided |= safe
    correct[~decided, list(CHANGES).index("brake")] = True
    return correct


def train(recipe: Recipe) -> tuple[Network, float]:
    """The network, and its agreement with the rule."""
    table = states()
    correct = advised(table, lead_brakes=recipe.lead_brakes)
    inputs = table.astype(np.float64)
    network = fit(inputs, correct, hidden=HIDDEN, epochs=recipe.epochs, seed=recipe.seed)
    chosen = network.evaluate(inputs)[0].argmax(axis=1)
    return network, float(correct[np.arange(len(table)), chosen].mean())


def write(recipe: Recipe, folder: Path) -> None:
    """Write the network, its interface and its card."""
    network, agreement = train(recipe)
    model = cruise_control(longest=LONGEST, fastest=FASTEST)
    prop = model.property()
    assert isinstance(prop, SafetyProperty)
    settings: dict[str, Json] = {"hidden": list(HIDDEN), "epochs": recipe.epochs, "lead_brakes": recipe.lead_brakes}
    made = Made(network, INPUTS, "imitation", COMMAND, recipe.seed, settings)
    remark = f"follows its rule in {100 * agreement:.2f} % of the states"
    write_policy(folder / recipe.name, made, model, flatten(model.model), prop, maximal_steps=STEPS, remarks=[remark])


if __name__ == "__main__":
    for item in RECIPES:
        write(item, Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
