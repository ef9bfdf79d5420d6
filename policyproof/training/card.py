"""What a trained policy is kept as: NAME.onnx, NAME.json, and NAME.card.json, which says how it was made.

The card has all that is needed to make the policy again (the model by its hash, the command, the seed),
and what it is worth: its rates in rollouts by the project's own simulation, of the files as they were
written.  Nothing on it depends on the machine or the clock, so that training again gives the same card.
`report/card.schema.json` describes it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from policyproof.model.flat import FlatModel
from policyproof.model.json_text import Json, dumps
from policyproof.model.properties import SafetyProperty
from policyproof.model.source import LoadedModel
from policyproof.policy.formats import write_onnx
from policyproof.policy.interface import SCHEMA
from policyproof.policy.load import fingerprint, load_policy
from policyproof.policy.network import Network
from policyproof.run.budget import Budget
from policyproof.run.files import write_atomically
from policyproof.training.curve import learning_curve
from policyproof.training.deep_q import Point
from policyproof.training.rollouts import Rates, roll_out

CARD_SCHEMA = "policyproof-card-1"
DIGITS = 5
ROLLOUT_SEED = 1_000_000
"""Not a seed that anybody trains with: the policy is measured on rollouts that did not choose it."""


@dataclass(frozen=True)
class Made:
    """A network, and how it was made."""

    network: Network
    reads: tuple[str, ...]
    method: str
    command: str
    seed: int
    settings: Mapping[str, Json]
    curve: Sequence[Point] = ()
    stopped: str | None = None


def write_policy(
    stem: Path,
    made: Made,
    model: LoadedModel,
    flat: FlatModel,
    prop: SafetyProperty,
    *,
    filter: bool = False,  # noqa: A002 - the word of the papers and of the command line
    rollouts: int = 10_000,
    maximal_steps: int = 100,
    budget: Budget | None = None,
    remarks: Sequence[str] = (),
) -> dict[str, Json]:
    """Write the policy's files beside each other, measure it, write its card; the card."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    network_file, interface_file = (stem.with_name(stem.name + suffix) for suffix in (".onnx", ".json"))
    write_onnx(made.network, network_file)
    write_atomically(interface_file, _interface(network_file.name, made.reads, flat, filter=filter))
    policy = load_policy(interface_file, model)
    measured = roll_out(
        flat, prop, policy, rollouts=rollouts, maximal_steps=maximal_steps, seed=ROLLOUT_SEED, budget=budget
    )
    card: dict[str, Json] = {
        "schema": CARD_SCHEMA,
        "name": stem.name,
        "model": {"name": model.model.name, "sha256": model.fingerprint(), "property": prop.name},
        "method": made.method,
        "command": made.command,
        "seed": made.seed,
        "settings": dict(made.settings),
        "policy": {
            "sha256": fingerprint(policy), "reads": list(made.reads), "labels": list(flat.labels),
            "hidden": made.network.hidden_sizes, "filter": filter,
        },
        "rates": {
            **_rates(measured.rates),
            "mean_steps": round(float(measured.simulation.steps.mean()), DIGITS),
            "rollouts": rollouts, "maximal_steps": maximal_steps, "seed": ROLLOUT_SEED,
        },
        "learning_curve": [
            {"updates": point.updates, "steps": point.steps, **_rates(point.rates)} for point in made.curve
        ],
        "stopped": made.stopped,
        "remarks": list(remarks),
    }  # fmt: skip
    write_atomically(stem.with_name(stem.name + ".card.json"), dumps(card, indent=1) + "\n")
    return card


def write_curve(stem: Path, card: Mapping[str, Json]) -> Path | None:
    """Draw the learning curve of a card, if there is one."""
    points = card["learning_curve"]
    if not points:
        return None
    shown = {name: [point[name] for point in points] for name in ("success", "unsafe", "stuck", "unfinished")}
    # Without a goal there is no success, and what never happens is no line worth reading.
    shown = {name: values for name, values in shown.items() if any(values)}
    target = stem.with_name(stem.name + ".svg")
    write_atomically(target, learning_curve([point["steps"] for point in points], shown, title=str(card["name"])))
    return target


def plain_settings(settings: object) -> dict[str, Json]:
    """A dataclass of settings as JSON; the seed has a place of its own on the card."""
    values = dataclasses.asdict(settings)  # type: ignore[call-overload]
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if name != "seed"
    }


def _interface(network: str, reads: Sequence[str], flat: FlatModel, *, filter: bool) -> str:  # noqa: A002
    inputs = [{"location": name[1:]} if name.startswith("@") else {"variable": name} for name in reads]
    body: dict[str, Json] = {
        "schema": SCHEMA, "network": network, "inputs": inputs, "labels": list(flat.labels), "filter": filter,
    }  # fmt: skip
    return dumps(body, indent=2) + "\n"


def _rates(rates: Rates) -> dict[str, Json]:
    return {
        "success": round(rates.success, DIGITS),
        "unsafe": round(rates.failure, DIGITS),
        "stuck": round(rates.stuck, DIGITS),
        "unfinished": round(rates.unfinished, DIGITS),
    }
