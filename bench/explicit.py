"""States per second and bytes per state of the explicit engine, beside its naive twin and Storm.

    python -m bench.explicit [--out FILE] [--models FOLDER] [--storm-python PATH]

Storm (stormpy) and a folder of QVBS models are used when they are there; stormpy may be installed in
another environment, whose Python `--storm-python` names.  Storm's sparse builder works on one core,
so on the QVBS models we are measured on one core and on all; it also stores the probabilities, which
the explicit engine ignores, and both keep the transitions.  All numbers of a line come from the
same run on the same machine; ratios (Storm's time divided by ours) are what counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.models import racetrack, sliding_tiles
from policyproof.engines.explicit.search import ExplicitSearch
from policyproof.engines.question import SafetyQuestion
from policyproof.model.expressions import FALSE
from policyproof.model.flat import flatten
from policyproof.model.jani.model import read_model
from policyproof.model.source import LoadedModel
from policyproof.run.budget import Budget
from policyproof.run.threads import jobs, set_jobs

QVBS = [
    ("mdp/consensus/consensus.4.jani", {"K": "4"}),
    ("mdp/zeroconf/zeroconf.jani", {"N": "20", "K": "4", "reset": "false"}),
    ("mdp/resource-gathering/resource-gathering.jani", {"B": "400", "GOLD_TO_COLLECT": "30", "GEM_TO_COLLECT": "30"}),
    ("mdp/firewire_dl/firewire_dl.jani", {"delay": "36", "deadline": "800"}),
    ("mdp/elevators/elevators.b-11-9.jani", {}),
    ("mdp/eajs/eajs.3.jani", {"energy_capacity": "150", "B": "7"}),
    ("dtmc/nand/nand.jani", {"N": "20", "K": "4"}),
    ("dtmc/herman/herman.13.jani", {}),
    ("dtmc/coupon/coupon.7-3.jani", {"B": "5"}),
]


def ours(model: Any) -> dict[str, Any]:
    """Explore all states of a model with all labels, nothing sliced away."""
    started = time.perf_counter()
    flat = flatten(model)
    question = SafetyQuestion(flat, (flat.initial,), FALSE, None)
    search = ExplicitSearch(question, Budget(megabytes=16_384), slicing=False)
    for _ in search.run(until_unsafe=False):
        pass
    seconds = time.perf_counter() - started
    statistics = search.statistics()
    memory = search.states.bytes + search.parents.bytes + search.flags.bytes
    states, operators = int(statistics["states"]), len(flat.operators)
    return {
        "states": states,
        "transitions": int(statistics["transitions"]),
        "operators": operators,
        "seconds": seconds,
        "states_per_second": states / seconds,
        "transitions_per_second": statistics["transitions"] / seconds,
        "state_operator_evaluations_per_second_per_core": states * operators / seconds / cores(),
        "bytes_per_state": memory / states,
        "bytes_per_state_with_transitions": statistics["bytes_per_state"],
    }


def cores() -> int:
    return jobs()


def naive(model: LoadedModel, limit: int) -> dict[str, Any]:
    """The naive twin on the first `limit` states."""
    from policyproof.evidence.interpreter import Blocked, Configuration, Interpreter

    interpreter = Interpreter(model.model)
    variables = {item.name: item.initial for item in model.model.variables}
    start = Configuration(tuple(part.initial_locations[0] for part in model.model.automata), variables)
    seen = {tuple(variables.values())}
    queue, expanded = [start], 0
    started = time.perf_counter()
    while expanded < min(limit, len(queue)):
        state = queue[expanded]
        expanded += 1
        for _, parts in interpreter.enabled_combinations(state):
            outcome = interpreter.execute(state, parts)
            if isinstance(outcome, Blocked):
                continue
            key = tuple(outcome[0].variables.values())
            if key not in seen:
                seen.add(key)
                queue.append(outcome[0])
    return {"states_per_second": expanded / (time.perf_counter() - started)}


def storm(python: str, path: Path, constants: dict[str, str]) -> dict[str, Any] | None:
    """What `storm_builder` says of the same file, run by a Python that has stormpy."""
    script = Path(__file__).with_name("storm_builder.py")
    values = [f"{name}={value}" for name, value in constants.items()]
    done = subprocess.run([python, str(script), str(path), *values], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{python} {script.name} {path} failed:\n{done.stderr}")
    # Storm writes its warnings on the same stream, before the answer.
    result: dict[str, Any] | None = json.loads(done.stdout.splitlines()[-1])
    if result is not None:
        result["states_per_second"] = result["states"] / result["seconds"]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    data = os.environ.get("POLICYPROOF_PEER_DATA")
    parser.add_argument("--models", type=Path, default=Path(data, "qvbs") if data else None)
    parser.add_argument("--storm-python", default=sys.executable, help="a Python that can import stormpy")
    parser.add_argument("--out", type=Path, default=Path("out/bench-explicit.json"))
    parser.add_argument("--naive-states", type=int, default=1500)
    arguments = parser.parse_args()
    ours(sliding_tiles(2, 2).model)  # compile the kernels
    report: dict[str, Any] = {"generated": {}, "qvbs": {}}
    for model in (sliding_tiles(), racetrack()):
        mine, twin = ours(model.model), naive(model, arguments.naive_states)
        ratio = mine["states_per_second"] / twin["states_per_second"]
        report["generated"][model.model.name] = {"ours": mine, "naive": twin, "ratio": ratio}
        print(
            f"{model.model.name:12} {mine['states']:>9,} states  {mine['states_per_second']:>12,.0f}/s  "
            f"{mine['state_operator_evaluations_per_second_per_core']:.2e} (state, operator)/s/core  "
            f"{mine['bytes_per_state']:.0f} bytes/state  naive {twin['states_per_second']:,.0f}/s: {ratio:,.0f}x"
        )
    for name, constants in QVBS if arguments.models else []:
        path = arguments.models / name
        if not path.exists():
            continue
        model = read_model(path, constants).model
        runs = {}
        for count in sorted({1, jobs()}):
            set_jobs(count)
            runs[count] = min((ours(model) for _ in range(3)), key=lambda run: run["seconds"])
            set_jobs(None)
        mine = runs[1]
        theirs = storm(arguments.storm_python, path, constants)
        entry: dict[str, Any] = {"ours": runs, "storm": theirs}
        times = ", ".join(f"{run['seconds']:.3f} s on {count}" for count, run in runs.items())
        text = f"{path.name:26} {mine['states']:>9,} states  ours {times}"
        if theirs is not None:
            entry["ratio"] = theirs["seconds"] / mine["seconds"]
            agree = "" if theirs["states"] == mine["states"] else f" (Storm: {theirs['states']:,} states)"
            text += f"  Storm {theirs['seconds']:.3f} s: {entry['ratio']:.1f}x on one core{agree}"
        report["qvbs"][f"{name} {constants}"] = entry
        print(text)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
