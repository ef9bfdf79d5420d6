"""`policyproof train`: learn a policy for a model, write it with its card, and show what it is worth."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policyproof.engines.result import Progress, drive
from policyproof.model.expressions import Expression
from policyproof.model.flat import flatten
from policyproof.model.grammar import parse_expression
from policyproof.model.json_text import Json
from policyproof.model.properties import SafetyProperty
from policyproof.model.source import LoadedModel, load_model
from policyproof.report.terminal import console, format_number, live_progress
from policyproof.run.budget import Budget
from policyproof.run.errors import InvalidInput
from policyproof.training.card import Made, plain_settings, write_curve, write_policy
from policyproof.training.deep_q import Settings, train
from policyproof.training.environments import Rewards, choose_inputs
from policyproof.zoo import registry


@dataclass(frozen=True)
class Wish:
    """What is asked for on the command line."""

    model: str
    out: Path
    settings: Settings
    reads: Sequence[str] = ()
    ignores: Sequence[str] = ()
    shaping: str | None = None
    progress: str | None = None
    property_name: str | None = None
    properties: Path | None = None
    constants: Mapping[str, str] = field(default_factory=dict)
    parameters: Sequence[str] = ()
    rollouts: int = 10_000
    command: str = ""


def run_training(
    wish: Wish, budget: Budget, on_progress: Callable[[Progress], object] | None = None
) -> dict[str, Json]:
    """Train, write the files, and give back the card."""
    loaded = _model(wish)
    prop = loaded.property(wish.property_name)
    if not isinstance(prop, SafetyProperty):
        raise InvalidInput("a safety property is needed: it says where episodes start and what is unsafe")
    flat = flatten(loaded.model)
    reads = choose_inputs(flat, wish.reads, wish.ignores)
    with live_progress() as progress:
        training = train(
            flat, prop,
            reads=reads, settings=wish.settings, budget=budget,
            potential=_number(wish.shaping, loaded, "--shaping"), progress=_number(wish.progress, loaded, "--progress"),
        )  # fmt: skip

        def show(now: Progress) -> None:
            progress(now)
            if on_progress is not None:
                on_progress(now)

        trained = drive(training, show)
        progress(Progress("measuring the policy", {"rollouts": wish.rollouts}))
        settings = {**plain_settings(wish.settings), "shaping": wish.shaping, "progress": wish.progress}
        made = Made(
            trained.network, reads, "deep q-learning", wish.command, wish.settings.seed, settings,
            trained.curve, trained.stopped,
        )  # fmt: skip
        # Measured without the budget: a policy without its rates would be worth nothing.
        card = write_policy(
            wish.out, made, loaded, flat, prop,
            filter=wish.settings.filter, rollouts=wish.rollouts, maximal_steps=wish.settings.maximal_steps,
        )  # fmt: skip
    write_curve(wish.out, card)
    return card


def show_card(card: Mapping[str, Any], out: Path) -> None:
    """The rates of a policy, and its files."""
    shown, rates = console(), card["rates"]
    shown.print(
        f"[bold]{card['name']}[/]  {rates['rollouts']:,} rollouts  (a simulation proves nothing)", soft_wrap=True
    )
    for name in ("success", "unsafe", "stuck", "unfinished"):
        shown.print(f"  {name:<12}{100 * rates[name]:6.2f} %")
    shown.print(f"  {'mean steps':<12}{rates['mean_steps']:6.1f}")
    if card["stopped"] is not None:
        shown.print(f"  [bold yellow]stopped early:[/] {card['stopped']}")
    if card["learning_curve"]:
        shown.print(f"  learnt from {format_number(card['learning_curve'][-1]['steps'])} steps")
    suffixes = ".onnx, .json, .card.json" + (", .svg" if card["learning_curve"] else "")
    shown.print(f"  wrote {out}{suffixes}", markup=False)


def command_of(model: str, out: Path, options: Mapping[str, Any]) -> str:
    """The command line that trains this policy again: what was given, and nothing that has its default."""
    words = ["policyproof", "train", model, "--out", out.name]
    for name, value in options.items():
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if item is True:
                words.append(name)
            elif item is not None and item is not False:
                words.extend([name, str(item)])
    return shlex.join(words)


def read_rewards(texts: Sequence[str]) -> Rewards:
    """`goal=2`, `step=-0.01`, ... in place of the defaults."""
    known = {item.name for item in dataclasses.fields(Rewards)}
    values: dict[str, float] = {}
    for text in texts:
        name, equals, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not equals or name not in known or not math.isfinite(value):
            message = f"expected NAME=NUMBER with a name of {', '.join(sorted(known))}, found {text!r}"
            raise InvalidInput(message, where="--reward")
        values[name] = value
    return Rewards(**values)


def read_sizes(text: str) -> tuple[int, ...]:
    """`64,64`: the sizes of the hidden layers."""
    parts = text.split(",")
    if not all(part.strip().isdigit() and 0 < int(part) <= 4096 for part in parts):
        raise InvalidInput(f"expected sizes from 1 to 4096 with commas between them, found {text!r}", where="--hidden")
    return tuple(int(part) for part in parts)


def _model(wish: Wish) -> LoadedModel:
    """A file, or a benchmark by name."""
    path = Path(wish.model)
    if path.is_file() or path.suffix == ".jani":
        if wish.parameters:
            raise InvalidInput("benchmarks have parameters; a file has constants (--const)", where="--param")
        return load_model(path, constants=wish.constants, properties=wish.properties)
    if wish.constants or wish.properties is not None:
        raise InvalidInput("--const and --properties belong to a file; benchmarks have --param", where=wish.model)
    benchmark = registry.find(wish.model)
    texts: dict[str, str] = {}
    for item in wish.parameters:
        name, equals, value = item.partition("=")
        if not equals:
            raise InvalidInput(f"expected NAME=VALUE, found {item!r}", where="--param")
        texts[name] = value
    return benchmark.model(**benchmark.read(texts))


def _number(text: str | None, loaded: LoadedModel, option: str) -> Expression | None:
    if text is None:
        return None
    number = parse_expression(text, loaded.model)
    if number.kind == "bool":
        raise InvalidInput("expected a number that grows towards the goal, found a condition", where=option)
    return number
