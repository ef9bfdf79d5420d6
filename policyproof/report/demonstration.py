"""`policyproof demo`: the main job on a bundled example, with the commands that do the same by hand."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from policyproof.api import Answer, verify
from policyproof.engines.simulation import Simulation
from policyproof.evidence.replay import replay
from policyproof.evidence.trace import read_trace
from policyproof.model.flat import flatten
from policyproof.model.source import LoadedModel, load_model
from policyproof.policy.load import load_policy
from policyproof.policy.policy import Policy
from policyproof.report.rollouts import run_rollouts
from policyproof.report.terminal import console, live_progress, show_answer
from policyproof.run.budget import Budget
from policyproof.zoo.warehouse import warehouse

POLICIES = Path(__file__).parent.parent / "zoo" / "policies"
CAREFUL, HASTY = "warehouse-careful", "warehouse-hasty"


def run_demo(out: Path | None) -> int:
    """0 if everything happened as it should: one policy proved safe, one refuted, the trace accepted."""
    if out is not None:
        return _demo(out, f"{out}/")
    with tempfile.TemporaryDirectory(prefix="policyproof-demo-") as folder:
        code = _demo(Path(folder), "")
    console().print("\nTo try these commands, keep the files: policyproof demo --out FOLDER; cd FOLDER", style="dim")
    return code


def _demo(folder: Path, place: str) -> int:
    shown = console()
    model = _prepare(folder)
    shown.print("[bold]A robot fetches a parcel across two aisles in which people walk as they like.[/]")
    shown.print("Two networks were trained for it. Do they ever run into somebody, from any start?\n")

    shown.print("[bold]1. The hasty policy, tried out[/]")
    hasty, careful = (load_policy(folder / f"{name}.json", model) for name in (HASTY, CAREFUL))
    simulation = _simulate(model, hasty)
    share = 100 * simulation.success / simulation.rollouts
    shown.print(f"   {simulation.rollouts:,} random runs: {share:.1f} % deliver the parcel. Good enough?\n")

    shown.print("[bold]2. The hasty policy, verified[/]")
    shown.print(
        f"   policyproof verify {place}warehouse.jani --policy {place}{HASTY}.json --all-starts --out {place or '.'}\n",
        style="dim",
    )
    refuted = _verify(model, hasty)
    show_answer(refuted)
    if refuted.trace is None:
        return 4
    refuted.trace.write(folder / "trace.json")

    shown.print("\n[bold]3. The collision, replayed by an independent interpreter in exact arithmetic[/]")
    command = f"policyproof replay {place}warehouse.jani {place}trace.json --policy {place}{HASTY}.json"
    shown.print(f"   {command}\n", style="dim")
    prop = model.property()
    outcome = replay(model.model, read_trace(folder / "trace.json"), prop, hasty)
    style = "bold green" if outcome.accepted else "bold red"
    shown.print(f"[{style}]{'ACCEPTED' if outcome.accepted else 'REJECTED'}[/]  {outcome.reason}\n")

    shown.print("[bold]4. The careful policy, verified[/]")
    shown.print(
        f"   policyproof verify {place}warehouse.jani --policy {place}{CAREFUL}.json --all-starts\n", style="dim"
    )
    proved = _verify(model, careful)
    show_answer(proved)
    good = refuted.verdict == "violated" and outcome.accepted and proved.verdict == "holds"
    return 0 if good else 4


def _prepare(folder: Path) -> LoadedModel:
    """The files that a user would have: a JANI model with a property, two networks, two interfaces."""
    built = warehouse()
    built.save(folder / "warehouse.jani")
    for name in (CAREFUL, HASTY):
        for suffix in (".json", ".onnx"):
            shutil.copy(POLICIES / f"{name}{suffix}", folder / f"{name}{suffix}")
    return load_model(folder / "warehouse.jani")


def _verify(model: LoadedModel, policy: Policy) -> Answer:
    with live_progress() as progress:
        return verify(model, policy, None, all_starts=True, on_progress=progress)


def _simulate(model: LoadedModel, policy: Policy) -> Simulation:
    flat = flatten(model.model)
    return run_rollouts(
        flat, model.property(), policy, include_initial=None, rollouts=10_000, steps=300, seed=0, budget=Budget(60)
    )
