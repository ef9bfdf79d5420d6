"""How the policies of the benchmarks were made: every one by a recipe, and all again by one command.

    python -m policyproof.zoo.recipes [--out FOLDER] [NAME ...]

A name may be a pattern, 'blocksworld-4-*'; without any it makes all, in the order of this list.  A recipe
is a benchmark, what the policy reads, the sizes of its layers, a seed, and a budget in updates; so the
result does not depend on how fast the machine is.  The policies are named as the benchmark, then `aware`
or `ignoring` (does the policy read the costs?) where there are costs, then the size of its layers.

Shaping, or progress (a number that grows towards the goal), is what an expert would say in a line; the
policies find the rest themselves.
"""

from __future__ import annotations

import argparse
import fnmatch
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from policyproof.engines.result import Progress, drive
from policyproof.engines.simulation import Simulator
from policyproof.model.flat import flatten
from policyproof.model.grammar import parse_expression
from policyproof.model.json_text import Json
from policyproof.model.properties import SafetyProperty
from policyproof.model.source import LoadedModel
from policyproof.run.budget import Budget
from policyproof.run.errors import InvalidInput
from policyproof.training.card import ROLLOUT_SEED, Made, plain_settings, write_policy
from policyproof.training.deep_q import Settings, train
from policyproof.training.distil import Effort, distil, lesson_of
from policyproof.training.environments import Rewards, choose_inputs, start_condition
from policyproof.training.rollouts import policy_of, roll_out
from policyproof.training.viability import Grid, among_viable, viable
from policyproof.zoo import registry
from policyproof.zoo.registry import Parameter

FOLDER = Path(__file__).parent / "policies"
COMMAND = "python -m policyproof.zoo.recipes"
COSTS = ("cost_*", "step_cost")
ROLLOUTS = 10_000
LONGEST = 200
"""The longest rollout, where training has no limit of its own."""
SAMPLED_STARTS = 100_000

HURRY = Rewards(step=-0.01, model=0.1)
"""Every step costs a little, so that nothing is gained by waiting; the models' own costs are of that order."""


@dataclass(frozen=True)
class Recipe:
    """A policy by name, and all that makes it what it is."""

    name: str
    benchmark: str
    settings: Settings | Effort
    """For deep Q-learning; or for imitation of the solved model, where that has few enough states."""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    solved: Mapping[str, Parameter] = field(default_factory=dict)
    """Other parameters of the model that is solved, for imitation."""
    ignores: tuple[str, ...] = ()
    shaping: str | None = None
    progress: str | None = None
    remarks: tuple[str, ...] = ()
    grid: Grid | None = None
    """Where not every start state can be saved: the grid on which it is computed which ones can."""


def tower(blocks: int) -> str:
    """A tenth for every block that stands where it belongs, from the table up (block n belongs on position n)."""
    towers = [" & ".join(f"position_{block} = {block}" for block in range(1, top + 1)) for top in range(1, blocks + 1)]
    return " + ".join(f"({condition} ? 0.1 : 0)" for condition in towers)


def _costs(benchmark: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A policy that reads the costs, and one that does not."""
    yield f"{benchmark}-aware", ()
    yield f"{benchmark}-ignoring", COSTS


def _blocksworld(blocks: int, budgets: Mapping[int, int]) -> Iterator[Recipe]:
    benchmark = f"blocksworld-{blocks}"
    for name, ignores in _costs(benchmark):
        for width, updates in budgets.items():
            settings = Settings(hidden=(width, width), updates=updates, rewards=HURRY)
            yield Recipe(f"{name}-{width}", benchmark, settings, ignores=ignores, shaping=tower(blocks))


def _racetrack(benchmark: str, budgets: Mapping[int, int]) -> Iterator[Recipe]:
    for width, updates in budgets.items():
        settings = Settings(hidden=(width, width), updates=updates, rewards=HURRY)
        yield Recipe(f"{benchmark}-{width}", benchmark, settings)


def _transport(benchmark: str, budgets: Mapping[int, int], *, locations: int = 10, bridge: int = 6) -> Iterator[Recipe]:
    """How far each package has come, those on the truck with it; the other side of the bridge is worth some more."""
    ways = " + ".join(f"packages_{location} * {location}" for location in range(1, locations))
    progress = f"({ways} + packages_{locations - 1} * {bridge} + load * truck) * 0.05"
    # Far more is earned on the way than at the goal, and it is to stay worth more to be safe.
    rewards = Rewards(goal=3.0, unsafe=-3.0, stuck=-3.0, step=-0.002)
    for width, updates in budgets.items():
        settings = Settings(
            hidden=(width, width), updates=updates, discount=0.97, n_steps=5, environments=512, maximal_steps=300,
            rewards=rewards,
        )  # fmt: skip
        yield Recipe(f"{benchmark}-{width}", benchmark, settings, progress=progress)


def _sliding_tiles(budgets: Mapping[int, Effort]) -> Iterator[Recipe]:
    """By imitation: without costs, 362,880 states are solved in seconds, and deep Q-learning does not get there."""
    half = "Half of the start states cannot be solved by anybody: there the best is to stay safe until nothing moves."
    for width, effort in budgets.items():
        yield Recipe(
            f"8-puzzle-ignoring-{width}", "8-puzzle", replace(effort, hidden=(width, width)),
            solved={"cost_bound": 0, "failing_probability": 0}, ignores=COSTS, remarks=(half,),
        )  # fmt: skip


def _continuous() -> Iterator[Recipe]:
    settings = Settings(hidden=(64, 64, 64), discount=0.99, maximal_steps=200)
    yield Recipe("cartpole-64", "cartpole", replace(settings, updates=6000))
    limit = math.pi / 4
    grid = Grid(("angle", "angular_velocity"), (-limit, -3.0), (limit, 3.0), (801, 1601))
    yield Recipe("pendulum-64", "pendulum", replace(settings, updates=20_000), grid=grid)


RECIPES: tuple[Recipe, ...] = (
    *_blocksworld(4, {16: 6000, 32: 6000, 64: 6000}),
    *_racetrack("racetrack-barto-small", {16: 20_000, 32: 12_000, 64: 10_000}),
    *_blocksworld(6, {16: 40_000, 32: 25_000, 64: 20_000}),
    *_racetrack("racetrack-barto-big", {16: 60_000, 32: 40_000, 64: 30_000}),
    *_continuous(),
    *_sliding_tiles({
        16: Effort(updates=200_000, rate=1e-2),
        32: Effort(updates=200_000, rate=1e-2),
        64: Effort(updates=100_000, rate=1e-2),
    }),
    *_transport("transport", {16: 80_000, 32: 80_000, 64: 60_000}),
    *_blocksworld(8, {16: 80_000, 32: 40_000, 64: 30_000}),
)  # fmt: skip


def find(pattern: str) -> list[Recipe]:
    """The recipes whose names match."""
    found = [recipe for recipe in RECIPES if fnmatch.fnmatchcase(recipe.name, pattern)]
    if not found:
        raise InvalidInput(f"no recipe matches {pattern!r}; there are: {', '.join(item.name for item in RECIPES)}")
    return found


def controllable(model: LoadedModel, prop: SafetyProperty, grid: Grid, *, steps: int) -> tuple[float, float]:
    """Between which shares of the start states some controller could stay safe."""
    flat = flatten(model.model)
    random = np.random.default_rng(0)
    states = Simulator(flat).sample_starts(start_condition(flat, prop), SAMPLED_STARTS, random, Budget())
    columns = [flat.names.index(name) for name in grid.variables]
    values = np.ascontiguousarray(states[:, columns]).view(np.float64)
    least, most = (
        float(
            among_viable(
                grid, viable(flat, prop, grid, steps=steps, cautious=cautious), values, cautious=cautious
            ).mean()
        )
        for cautious in (True, False)
    )
    return least, most


def _remark(grid: Grid, shares: tuple[float, float], safe: float) -> str:
    """How good the policy is where somebody could be good."""
    least, most = shares
    return (
        f"In {100 * least:.1f} to {100 * most:.1f} % of the start states some controller avoids failure (dynamic "
        f"programming on {' x '.join(map(str, grid.points))} points); this policy does so in {100 * safe:.1f} % "
        f"of all, which is {100 * safe / most:.1f} to {100 * min(1.0, safe / least):.1f} % of those."
    )


def is_made(card: Path) -> bool:
    """Is this the card of a policy that a recipe makes?"""
    return any(card.name == f"{recipe.name}.card.json" for recipe in RECIPES)


def settings_on_card(recipe: Recipe) -> dict[str, Json]:
    """What a card says of the recipe."""
    return {
        **plain_settings(recipe.settings),
        "shaping": recipe.shaping,
        "progress": recipe.progress,
        **({"solved": _texts(recipe.solved)} if isinstance(recipe.settings, Effort) else {}),
        "benchmark": recipe.benchmark,
        "parameters": _texts(recipe.parameters),
    }


def _texts(parameters: Mapping[str, Parameter]) -> dict[str, Json]:
    return {name: str(value) for name, value in parameters.items()}


def make(recipe: Recipe, folder: Path, on_progress: Callable[[Progress], object] | None = None) -> dict[str, Json]:
    """Train the policy of a recipe and write its files; its card."""
    model, prop = _model(recipe, recipe.parameters)
    flat = flatten(model.model)
    reads = choose_inputs(flat, (), recipe.ignores)
    settings, command = recipe.settings, f"{COMMAND} {recipe.name}"
    filtered, steps = False, LONGEST
    if isinstance(settings, Effort):
        network = distil(lesson_of(*_model(recipe, {**recipe.parameters, **recipe.solved}), reads), settings)
        made = Made(network, reads, "imitation", command, settings.seed, settings_on_card(recipe))
    else:
        texts = (recipe.shaping, recipe.progress)
        potential, progress = (None if text is None else parse_expression(text, model.model) for text in texts)
        training = train(flat, prop, reads=reads, settings=settings, potential=potential, progress=progress)
        trained = drive(training, on_progress)
        made = Made(
            trained.network, reads, "deep q-learning", command, settings.seed, settings_on_card(recipe), trained.curve
        )
        filtered, steps = settings.filter, settings.maximal_steps
    remarks = list(recipe.remarks)
    if recipe.grid is not None:
        policy = policy_of(flat, reads, made.network, filter=filtered)
        rates = roll_out(flat, prop, policy, rollouts=ROLLOUTS, maximal_steps=steps, seed=ROLLOUT_SEED).rates
        remarks.append(_remark(recipe.grid, controllable(model, prop, recipe.grid, steps=steps), 1.0 - rates.failure))
    return write_policy(
        folder / recipe.name, made, model, flat, prop,
        filter=filtered, rollouts=ROLLOUTS, maximal_steps=steps, remarks=remarks,
    )  # fmt: skip


def _model(recipe: Recipe, parameters: Mapping[str, Parameter]) -> tuple[LoadedModel, SafetyProperty]:
    model = registry.model(recipe.benchmark, **parameters)
    prop = model.property()
    assert isinstance(prop, SafetyProperty)
    return model, prop


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog=COMMAND, description="Train the policies of the benchmarks again.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="policies, or patterns of names (default: all)")
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER")
    given = parser.parse_args(arguments)
    chosen = dict.fromkeys(recipe.name for pattern in given.names or ["*"] for recipe in find(pattern))
    for name in chosen:
        (recipe,) = find(name)
        started, cpu = time.monotonic(), time.process_time()
        card = make(recipe, given.out, _say)
        rates = ", ".join(
            f"{key} {100 * card['rates'][key]:.2f} %" for key in ("success", "unsafe", "stuck", "unfinished")
        )
        _write(f"{name}: {rates}  ({time.monotonic() - started:.0f} s, {time.process_time() - cpu:.0f} s of work)")


def _say(progress: Progress) -> None:
    if sys.stderr.isatty():
        _write(f"  {progress.activity}: " + ", ".join(f"{name} {value:g}" for name, value in progress.numbers.items()))


def _write(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
