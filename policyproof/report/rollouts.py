"""Running and showing random rollouts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from policyproof.engines.result import Progress
from policyproof.engines.simulation import Simulation, Simulator, merged, simulate
from policyproof.model.expressions import FALSE, disjunction, negation
from policyproof.model.flat import FlatModel
from policyproof.model.properties import Atom, Property, Quantified, SafetyProperty
from policyproof.policy.policy import Policy
from policyproof.report.terminal import console, format_number, format_value, live_progress
from policyproof.run.budget import Budget
from policyproof.run.errors import InvalidInput

ROLLOUTS_AT_ONCE = 20_000


def run_rollouts(
    flat: FlatModel,
    prop: Property,
    policy: Policy | None,
    *,
    include_initial: bool | None,
    rollouts: int,
    steps: int,
    seed: int,
    budget: Budget,
    on_progress: Callable[[Progress], object] | None = None,
) -> Simulation:
    """Simulate from the property's start states; what violates it counts as failure."""
    start, unsafe, goal = _conditions(flat, prop, include_initial)
    simulator = Simulator(flat, policy)
    done: list[Simulation] = []
    with live_progress() as progress:
        boxes = simulator.start_boxes(start, budget)
        # In batches, so that what is done is done when the work is stopped.
        for number, first in enumerate(range(0, rollouts, ROLLOUTS_AT_ONCE)):
            for event in simulate(
                simulator,
                start,
                unsafe=unsafe,
                goal=goal,
                rollouts=min(ROLLOUTS_AT_ONCE, rollouts - first),
                maximal_steps=steps,
                seed=seed if number == 0 else int(np.random.SeedSequence([seed, number]).generate_state(1)[0]),
                budget=budget,
                boxes=boxes,
            ):
                if isinstance(event, Simulation):
                    done.append(event)
                    continue
                step, running = event
                now = Progress("rolling out", {"begun": first + running, "step": step, "running": running})
                progress(now)
                if on_progress is not None:
                    on_progress(now)
            if done[-1].stopped is not None:
                break
    if done[-1].stopped is None or len(done) == 1:
        return merged(done)
    # Of the batch that was stopped nothing counts: the rollouts that ended early are the short ones.
    return dataclasses.replace(merged(done[:-1]), stopped=done[-1].stopped)


def _conditions(flat: FlatModel, prop: Property, include_initial: bool | None) -> tuple[Any, Any, Any]:
    if isinstance(prop, SafetyProperty):
        include = prop.include_initial if include_initial is None else include_initial
        parts = [] if prop.start is None else [flat.state_condition(prop.start)]
        if include or not parts:
            parts.append(flat.initial)
        unsafe = FALSE if prop.unsafe is None else prop.unsafe
        return disjunction(parts), unsafe, FALSE if prop.goal is None else prop.goal
    formula = prop.formula
    if isinstance(formula, Atom):
        return flat.initial, negation(formula.expression), FALSE
    if isinstance(formula, Quantified) and formula.path.left is None and isinstance(formula.path.right, Atom):
        condition = formula.path.right.expression
        if formula.path.operator == "G":
            return flat.initial, negation(condition), FALSE
        if formula.path.operator == "F":
            return flat.initial, FALSE, condition
    raise InvalidInput("rollouts need a safety property, A[] f, or E<> f with a condition f")


def show_rollouts(simulation: Simulation) -> None:
    out = console()
    count = simulation.rollouts
    out.print(f"[bold]{format_number(count)} rollouts[/]  (a simulation proves nothing)")
    if simulation.stopped is not None:
        out.print(f"  [bold yellow]stopped early:[/] {simulation.stopped}")
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 2))
    for name, number in (
        ("success", simulation.success),
        ("failure", simulation.failure),
        ("stuck", simulation.stuck),
        ("unfinished", simulation.unfinished),
    ):
        table.add_row(name, format_number(number), f"{100 * number / count:.1f} %")
    table.add_row("mean steps", f"{simulation.steps.mean():.1f}", "")
    out.print(table)
    out.print(f"\n  one rollout ({simulation.example_outcome}):")
    names = list(simulation.example[0])
    changing = [name for name in names if len({state[name] for state in simulation.example}) > 1][:8]
    changing = changing or [name for name in names if not name.startswith("@")][:8]
    shown = Table(box=None, padding=(0, 2, 0, 2), header_style="dim")
    shown.add_column("step", justify="right")
    shown.add_column("label")
    for name in changing:
        shown.add_column(Text(name), justify="right")
    for number, state in enumerate(simulation.example[:20]):
        label = "start" if number == 0 else (simulation.example_labels[number - 1] or "(silent)")
        shown.add_row(str(number), Text(label), *[Text(format_value(state[name])) for name in changing])
    if len(simulation.example) > 20:
        shown.add_row("...")
    out.print(shown)
