"""The native configuration of ppa beside those of ICAPS22, on the same questions in one run.

    python -m bench.ppa [--models FOLDER] [--seconds LIMIT] [--configurations NAME ...] [--out FILE]

The questions: 6 Blocks with the published predicates `6_0` (a folder of PlaJA's `blocks6`, by `--models` or
under POLICYPROOF_PEER_DATA), and our own Blocksworld with all predicates `v >= c` on variables other than
costs.  Search time counts from the question to the finished abstraction, compilation included.  A
configuration that does not end within the limit gives a lower bound (`>=`) of the ratio.  `processor` is
the time that our own process took of it, which other work on the machine does not lengthen; `wall` is the whole
command, from the start of Python to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policyproof.engines.ppa.configurations import CONFIGURATIONS, NATIVE
from policyproof.engines.ppa.search import PpaSearch
from policyproof.engines.question import SafetyQuestion, safety_question
from policyproof.model.expressions import Expression
from policyproof.model.properties import SafetyProperty
from policyproof.model.source import LoadedModel, load_model
from policyproof.oracle.backends import installed
from policyproof.policy.load import load_policy
from policyproof.run.budget import Budget
from policyproof.run.errors import ResourceExhausted
from policyproof.zoo.blocksworld import blocksworld

REPETITIONS = 5
POLICIES = Path(__file__).parent.parent / "policyproof" / "zoo" / "policies"
# Costs are abstracted away: a counter of them would only multiply the states.
COSTS = ("cost_", "step_cost")
SIZES = ((4, 16), (6, 32), (8, 64))
COMPARED = ("BnB(Mar)", "Mar", "Mar+Z3(Mar)", "Mar+Z3", "Base")


@dataclass(frozen=True)
class Task:
    """A question with its predicates, and the same as a command."""

    name: str
    question: SafetyQuestion
    predicates: tuple[Expression, ...]
    command: tuple[str, ...]


def published(folder: Path) -> Task:
    files = [str(folder / name) for name in ("blocksworld_6_5.jani", "properties.jani")]
    model = load_model(files[0], properties=files[1])
    prop = model.property(model.preferred[0])
    assert isinstance(prop, SafetyProperty)
    assert prop.policy_file is not None
    question = safety_question(model.model, prop, load_policy(prop.policy_file, model))
    command = (files[0], "--properties", files[1], "--property", prop.name)
    return Task("blocks6, 6_0", question, tuple(prop.predicates or ()), command)


def thresholds(model: LoadedModel) -> tuple[Expression, ...]:
    """`v >= c` for every variable that is no cost, and every value but the least."""
    return tuple(
        item.expression >= value
        for item in model.model.variables
        if not item.name.startswith(COSTS)
        for value in range(int(item.domain.range[0]) + 1, int(item.domain.range[1]) + 1)
    )


def ours(folder: Path) -> Iterator[Task]:
    for blocks, neurons in SIZES:
        policy = POLICIES / f"blocksworld-{blocks}-ignoring-{neurons}.json"
        if not policy.is_file():
            print(f"{policy.name} is missing")
            continue
        model = blocksworld(blocks=blocks)
        predicates = thresholds(model)
        files = [folder / f"blocksworld-{blocks}.{end}" for end in ("jani", "txt")]
        model.save(files[0])
        files[1].write_text("\n".join(map(str, predicates)) + "\n", encoding="utf-8")
        question = safety_question(model.model, model.property(), load_policy(policy, model))
        command = (str(files[0]), "--policy", str(policy), "--predicates", str(files[1]))
        yield Task(f"{blocks} Blocks, {neurons} neurons", question, predicates, command)


def processor_seconds(task: Task) -> float:
    started = time.process_time()
    search(task, NATIVE, None)
    return time.process_time() - started


def search(task: Task, configuration: str, seconds: float | None) -> tuple[PpaSearch, float, bool]:
    """The search, its seconds, and whether it came to an end."""
    started = time.perf_counter()
    found = PpaSearch(task.question, task.predicates, Budget(seconds), configuration=configuration)
    try:
        for _ in found.run():
            pass
        finished = True
    except ResourceExhausted:
        finished = False
    finally:
        found.expander.close()
    return found, time.perf_counter() - started, finished


def wall(task: Task) -> float:
    started = time.perf_counter()
    words = [sys.executable, "-m", "policyproof", "verify", *task.command, "--engine", "ppa", "--json"]
    subprocess.run(words, check=False, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def _size(found: PpaSearch) -> tuple[int, int]:
    return found.graph.states.count, found.graph.pairs


def measure(task: Task, configurations: Sequence[str], seconds: float) -> dict[str, Any]:
    first = search(task, NATIVE, None)
    runs = [search(task, NATIVE, None)[1] for _ in range(REPETITIONS)]
    native = statistics.median(runs)
    size = _size(first[0])
    shown = first[0].statistics()
    own: dict[str, Any] = {"seconds": native, "first": first[1], "wall": wall(task), "statistics": shown}
    own["processor"] = statistics.median(processor_seconds(task) for _ in range(REPETITIONS))
    row: dict[str, Any] = {"native": own}
    print(
        f"\n{task.name}: {shown['predicates']} predicates, {shown['abstract_start_states']} abstract start states, "
        f"{size[0]} states, {size[1]} pairs, {shown['abstract_unsafe_states']} unsafe\n"
        f"  native         {native:9.3f} s "
        f"(processor {own['processor']:.3f} s, first {first[1]:.3f} s, wall {own['wall']:.1f} s)"
    )
    for name in configurations:
        entry = CONFIGURATIONS[name]
        missing = [part for part in (entry.relaxed, entry.exact) if part is not None and not installed(part)]
        if missing:
            print(f"  {name:14} needs {', '.join(missing)}")
            continue
        found, taken, finished = search(task, name, seconds)
        agrees = None if not finished else _size(found) == size
        row[name] = {
            "seconds": taken,
            "finished": finished,
            "agrees": agrees,
            "ratio": taken / native,
            "statistics": found.statistics(),
        }
        end = "" if not finished else ", the same" if agrees else f", {_size(found)[0]} states, {_size(found)[1]} pairs"
        print(
            f"  {name:14} {'  ' if finished else '>='}{taken:7.1f} s, {found.graph.expanded:5} states expanded, "
            f"{found.statistics().get('solver_calls', 0):6} solver calls: "
            f"{'' if finished else '>='}{taken / native:,.0f}x{end}"
        )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = os.environ.get("POLICYPROOF_PEER_DATA")
    parser.add_argument("--models", type=Path, default=Path(data, "plaja/blocks6") if data else None)
    parser.add_argument("--out", type=Path, default=Path("out/bench-ppa.json"))
    parser.add_argument("--configurations", nargs="*", default=COMPARED, choices=tuple(CONFIGURATIONS))
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    report = {}
    with tempfile.TemporaryDirectory() as folder:
        tasks = [] if arguments.models is None else [published(arguments.models)]
        for task in [*tasks, *ours(Path(folder))]:
            report[task.name] = measure(task, arguments.configurations, arguments.seconds)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
