"""How fast queries about networks are answered, beside Marabou on the same queries.

Queries are pairs of a network and a VNN-LIB file: as arguments, or as rows of an `instances.csv`
(network, property, and a time limit, which is not used), with paths relative to that file.

    python -m bench.vnn --instances FOLDER/instances.csv --timeout 60 --marabou
    python -m bench.vnn network.onnx property.vnnlib --timeout 60

Ours runs in this process after a warm-up that compiles the kernels; Marabou (the package maraboupy) runs
in a child process with the same time limit, on networks in ONNX or .nnet.  Marabou's own time is what it
takes to solve, without starting Python and reading the files.  Ratios count on the queries that both
solve; a Marabou that timed out gives a lower bound, printed apart.  Opposite answers are counted, and
make the exit code 1.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path
from queue import Empty
from typing import Any

from policyproof.encodings.output_query import Query
from policyproof.encodings.vnnlib import parse_vnnlib, read_vnnlib
from policyproof.oracle.output_query import decide
from policyproof.policy.formats import read_network, write_onnx
from policyproof.policy.network import Activation, Affine, Network
from policyproof.run.budget import Budget
from policyproof.run.threads import jobs

SOLVED = ("sat", "unsat")
GRACE = 5.0


def read_instances(path: Path) -> list[tuple[Path, Path]]:
    with path.open(newline="", encoding="utf-8") as file:
        return [(path.parent / row[0].strip(), path.parent / row[1].strip()) for row in csv.reader(file) if row]


def warm_up(network: Network) -> None:
    """Compile (or load) the machine code."""
    inputs = "".join(f"(declare-const X_{i} Real)(assert (<= 0 X_{i} 1))" for i in range(network.input_size))
    outputs = "".join(f"(declare-const Y_{i} Real)" for i in range(network.output_size))
    decide(network, parse_vnnlib(f"{inputs}{outputs}(assert (>= Y_0 1e9))"), budget=Budget(60))


def ours(network: Network, query: Query, timeout: float) -> dict[str, Any]:
    started = time.perf_counter()
    answer = decide(network, query, budget=Budget(timeout))
    entry: dict[str, Any] = {"result": answer.result, "seconds": time.perf_counter() - started}
    entry["boxes"] = answer.statistics["boxes"]
    if answer.witness is not None:
        entry["deployed_agrees"] = answer.witness.deployed_agrees
    return entry


def marabou(network: Path, query: Query, timeout: float) -> dict[str, Any]:
    """Marabou in a child process; every clause of every case is one of its queries."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=_marabou_child, args=(str(network), query, timeout, queue), daemon=True)
    child.start()
    try:
        return dict(queue.get(timeout=timeout + 30 + GRACE))
    except Empty:
        return {"result": "timeout", "seconds": timeout}
    finally:
        child.kill()
        child.join()


def _marabou_child(network: str, query: Query, timeout: float, queue: Any) -> None:
    import os

    # Its chatter must not reach our output.
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    from maraboupy import Marabou, MarabouCore, MarabouUtils

    seconds = 0.0
    result = "unsat"
    clauses = [(case, clause) for case in query.cases for clause in case.clauses]
    for case, clause in clauses:
        read = Marabou.read_nnet if network.endswith(".nnet") else Marabou.read_onnx
        net = read(network)
        inputs, outputs = net.inputVars[0].flatten().tolist(), net.outputVars[0].flatten().tolist()
        for variable, interval in zip(inputs, case.box, strict=True):
            net.setLowerBound(variable, float(interval.lower))
            net.setUpperBound(variable, float(interval.upper))
        for constraint in clause:
            equation = MarabouUtils.Equation(MarabouCore.Equation.LE)
            for index, factor in constraint.terms:
                equation.addAddend(float(factor), outputs[index])
            equation.setScalar(float(constraint.bound))
            net.addEquation(equation, isProperty=True)
        options = Marabou.createOptions(verbosity=0, timeoutInSeconds=max(1, int(timeout - seconds)), numWorkers=1)
        started = time.perf_counter()
        answer = net.solve(options=options, verbose=False)[0]
        seconds += time.perf_counter() - started
        if answer == "sat" or answer not in SOLVED or seconds >= timeout:
            result = answer if answer in SOLVED else "timeout"
            break
    queue.put({"result": result, "seconds": seconds})


def as_plain_onnx(network: Network, folder: Path, name: str) -> Path:
    """The same layers as a plain ONNX file, which Marabou's reader understands."""
    if not all(isinstance(layer, (Affine, Activation)) for layer in network.layers):
        raise SystemExit(f"{name}: give Marabou networks of affine layers and ReLU only")
    write_onnx(network, folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def show_summary(entries: list[dict[str, Any]]) -> dict[str, Any]:
    solved = [entry for entry in entries if entry["ours"]["result"] in SOLVED]
    summary: dict[str, Any] = {
        "queries": len(entries),
        "solved": len(solved),
        "seconds": sum(entry["ours"]["seconds"] for entry in solved),
    }
    print(f"solved {len(solved)} of {len(entries)} in {summary['seconds']:.1f} s")
    compared = [entry for entry in entries if "marabou" in entry]
    if compared:
        both = [e for e in compared if e["ours"]["result"] in SOLVED and e["marabou"]["result"] in SOLVED]
        mine, theirs = (sum(entry[who]["seconds"] for entry in both) for who in ("ours", "marabou"))
        ratios = [entry["marabou"]["seconds"] / entry["ours"]["seconds"] for entry in both]
        only_ours = [e for e in compared if e["ours"]["result"] in SOLVED and e["marabou"]["result"] not in SOLVED]
        only_theirs = [e for e in compared if e["marabou"]["result"] in SOLVED and e["ours"]["result"] not in SOLVED]
        summary |= {"both": len(both), "both_seconds": mine, "both_marabou_seconds": theirs}
        summary |= {"only_ours": len(only_ours), "only_marabou": len(only_theirs)}
        if both:
            summary |= {"ratio": theirs / mine, "median_ratio": statistics.median(ratios)}
            print(
                f"both solve {len(both)}: ours {mine:.2f} s, Marabou {theirs:.2f} s, ratio {theirs / mine:.1f} "
                f"(median of queries {summary['median_ratio']:.1f})"
            )
        if only_ours:
            bound = sum(e["marabou"]["seconds"] for e in only_ours) / sum(e["ours"]["seconds"] for e in only_ours)
            print(f"only ours solves {len(only_ours)}: ratio at least {bound:.1f}")
        print(f"only Marabou solves {len(only_theirs)}")
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="NETWORK PROPERTY")
    parser.add_argument("--instances", type=Path)
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--every", type=int, default=1, help="take every n-th instance")
    parser.add_argument("--marabou", action="store_true", help="compare with maraboupy")
    parser.add_argument("--out", type=Path, default=Path("out/bench-vnn.json"))
    arguments = parser.parse_args()
    pairs = list(zip(arguments.files[::2], arguments.files[1::2], strict=True))
    if arguments.instances:
        pairs += read_instances(arguments.instances)
    entries: list[dict[str, Any]] = []
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for path, prop in pairs[:: arguments.every]:
            network, query = read_network(path), read_vnnlib(prop)
            if not entries:
                warm_up(network)
            entry: dict[str, Any] = {"network": path.name, "property": prop.name}
            entry["ours"] = ours(network, query, arguments.timeout)
            line = f"{path.stem:24} {prop.stem:36} {entry['ours']['result']:8} {entry['ours']['seconds']:8.3f} s"
            line += f" {entry['ours']['boxes']:>9,} boxes"
            if arguments.marabou:
                plain = path if path.suffix == ".nnet" else as_plain_onnx(network, Path(folder), path.stem)
                entry["marabou"] = marabou(plain, query, arguments.timeout)
                line += f"   Marabou {entry['marabou']['result']:8} {entry['marabou']['seconds']:8.3f} s"
                answers = {entry[who]["result"] for who in ("ours", "marabou")}
                if answers == set(SOLVED):
                    wrong += 1
                    line += "   DISAGREEMENT"
            print(line, flush=True)
            entries.append(entry)
    report = {"timeout": arguments.timeout, "threads": jobs(), "disagreements": wrong, "queries": entries}
    report["summary"] = show_summary(entries)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
