"""The decision oracle and solvers on the same questions: which labels are possible in these regions?

    python -m bench.oracle [--out FILE] [--models FOLDER] [--backends NAME ...] [--subset N] [--seconds S]

The regions are the 202 start states of PlaJA's 6 Blocks benchmark with all cost variables free, where
FOLDER holds it (default: POLICYPROOF_PEER_DATA/plaja/blocks6); without it random boxes of the states
that a policy of the same size sees.  The native oracle answers all of them, the solvers the first N
(region, label) pairs, with S seconds for each.  Answers are compared; a pair that a solver did not settle in
its time makes its total, and so the ratio, a lower bound, printed as ">=".
"""

from __future__ import annotations

import argparse
import json
import os
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from bench.bounds import network
from policyproof.engines.question import safety_question
from policyproof.model.automata import Domain, Variable
from policyproof.model.expressions import disjunction
from policyproof.model.source import load_model
from policyproof.model.start_states import enumerate_states
from policyproof.oracle.backends import installed, make_oracle
from policyproof.oracle.native import NativeOracle
from policyproof.oracle.partition import partition
from policyproof.oracle.protocol import UNKNOWN, Answers, DecisionOracle, Regions
from policyproof.oracle.search import BoxSearch
from policyproof.policy.load import load_policy
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget

REPETITIONS = 5
Question = tuple[Policy, tuple[Variable, ...], Regions]


def blocks(folder: Path) -> Question:
    """The start states of 6 Blocks, with every variable free (0 to its largest value) that holds a cost."""
    model = load_model(folder / "blocksworld_6_5.jani", properties=folder / "properties.jani")
    question = model.property(model.preferred[0])
    policy = load_policy(question.policy_file, model)
    safety = safety_question(model.model, question, policy)
    states = np.concatenate(list(enumerate_states(safety.flat, disjunction(safety.starts))))
    seen = [index for index, item in enumerate(safety.flat.variables) if item.name in policy.reads]
    variables = tuple(safety.flat.variables[index] for index in seen)
    lower, upper = states[:, seen].copy(), states[:, seen].copy()
    for column, item in enumerate(variables):
        if "cost" in item.name:
            lower[:, column], upper[:, column] = item.domain.range
    return policy, variables, Regions(lower, upper)


def generated(count: int = 200) -> Question:
    """Boxes in which six of twenty integers are free."""
    variables = tuple(Variable(f"x{i}", Domain("int", 0, 12)) for i in range(20))
    policy = Policy((network((20, 32, 32, 7)),), tuple(v.expression for v in variables), tuple(map(str, range(7))))
    rng = np.random.default_rng(3)
    lower = rng.integers(0, 13, (count, 20))
    upper = lower.copy()
    lower[:, 14:], upper[:, 14:] = 0, 12
    return policy, variables, Regions(lower, upper)


def timed(oracle: DecisionOracle, regions: Regions, wanted: np.ndarray, budget: Budget | None) -> tuple[Answers, float]:
    started = time.perf_counter()
    answers = oracle.ask(regions, wanted, budget=budget)
    return answers, time.perf_counter() - started


def first_pairs(regions: Regions, labels: int, count: int) -> tuple[Regions, np.ndarray]:
    """The first regions, and which outputs are wanted so that `count` pairs are asked."""
    rows = -(-count // labels)
    wanted = (np.arange(rows * labels) < count).reshape(rows, labels)
    return Regions(regions.lower[:rows], regions.upper[:rows]), wanted


def large(seconds: float) -> dict[str, float]:
    """Partition boxes of relative half-width 0.05 and 0.025 of a 3x256 network with six real inputs, in some time."""
    variables = tuple(Variable(f"x{i}", Domain("real", Fraction(-1), Fraction(1))) for i in range(6))
    policy = Policy(
        (network((6, 256, 256, 256, 5), gain=1.4, bias=0.1),), tuple(v.expression for v in variables), tuple("abcde")
    )
    search = BoxSearch(policy, variables)
    found = {}
    for half in (0.05, 0.025):
        # Where two outputs meet, so that there is something to cut.
        points = np.random.default_rng(4).uniform(-0.5, 0.5, (1000, 6))
        outputs = np.sort(policy.networks[0].evaluate(points)[0], axis=1)
        centre = points[[np.argmin(outputs[:, -1] - outputs[:, -2])]]
        regions = Regions((centre - half).view(np.int64), (centre + half).view(np.int64))
        started = time.perf_counter()
        parts = partition(search, regions, budget=Budget(seconds))
        taken, left = time.perf_counter() - started, parts.undecided_share(search.space)
        found[f"undecided at {half}"] = left
        print(
            f"3x256, half-width {half}: {int(parts.statistics['boxes']):,} boxes in {taken:.1f} s, "
            f"{left:.1%} of the volume undecided{': ' if parts.reason else ''}{parts.reason}"
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = os.environ.get("POLICYPROOF_PEER_DATA")
    parser.add_argument("--models", type=Path, default=Path(data, "plaja/blocks6") if data else None)
    parser.add_argument("--out", type=Path, default=Path("out/bench-oracle.json"))
    parser.add_argument("--backends", nargs="*", default=["marabou", "milp", "z3"])
    parser.add_argument("--subset", type=int, default=21)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    policy, variables, regions = blocks(arguments.models) if arguments.models else generated()
    report: dict[str, Any] = {"large": large(arguments.seconds)}
    labels = len(policy.labels)
    everything = np.ones((len(regions), labels), dtype=np.bool_)
    native = NativeOracle(policy, variables)
    cold = timed(native, regions, everything, None)[1]
    runs = [timed(native, regions, everything, None) for _ in range(REPETITIONS)]
    answers, seconds = runs[0][0], float(np.median([run[1] for run in runs]))
    boxes = int(answers.statistics["boxes"])
    print(
        f"native: {len(regions)} regions x {labels} labels, {int(answers.possible.sum())} possible, "
        f"{int((answers.status == UNKNOWN).sum())} unknown, {boxes} boxes: {seconds:.3f} s "
        f"({1e6 * seconds / everything.size:.1f} us a pair; first call {cold:.3f} s)"
    )
    report["native"] = {"seconds": seconds, "first": cold, "boxes": boxes, "pairs": everything.size}
    some, wanted = first_pairs(regions, labels, arguments.subset)
    share = float(np.median([timed(native, some, wanted, None)[1] for _ in range(REPETITIONS)]))
    for name in arguments.backends:
        if not installed(name):
            print(f"{name}: not installed")
            continue
        with make_oracle(name, policy, variables, question_seconds=arguments.seconds) as solver:
            theirs, taken = timed(solver, some, wanted, Budget())
        settled = wanted & (theirs.status != UNKNOWN)
        different = int((settled & (theirs.possible != answers.possible[: len(some)])).sum())
        late = int((wanted & ~settled).sum())
        bound = ">=" if late else "  "
        report[name] = {"pairs": int(wanted.sum()), "unsettled": late, "different": different, "seconds": taken}
        report[name]["ratio"] = taken / share
        print(
            f"{name:10} {int(wanted.sum())} pairs, {late} not settled in {arguments.seconds:g} s each, "
            f"{different} different: "
            f"{taken:.2f} s ({1e3 * taken / wanted.sum():.1f} ms a pair), native on the same {1e3 * share:.1f} ms: "
            f"{bound}{taken / share:,.0f}x"
        )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
