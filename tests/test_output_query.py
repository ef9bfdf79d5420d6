"""Queries about outputs: every "sat" exactly true, every "unsat" without a counterexample on fine grids."""

from __future__ import annotations

import importlib.resources
import json
import re
import time
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from policyproof.bounds.api import bound_rows
from policyproof.bounds.chain import make_chain, make_rows
from policyproof.cli import run
from policyproof.encodings.output_query import Case, Constraint, Interval, Query
from policyproof.encodings.vnnlib import parse_vnnlib
from policyproof.model.enclosures import ends
from policyproof.model.tape import float_below
from policyproof.oracle.clauses import compile_clauses
from policyproof.oracle.output_query import QueryAnswer, decide
from policyproof.policy.formats import write_onnx
from policyproof.policy.network import Activation, Affine, ExactNetwork, Layer, Network
from policyproof.run.budget import Budget
from policyproof.run.errors import InvalidInput, UnsupportedFeature


def random_network(
    rng: np.random.Generator, sizes: list[int], kind: str = "relu", precision: str = "float32"
) -> Network:
    layers: list[Layer] = []
    for source, target in pairwise(sizes):
        weights = rng.normal(0, 1.5 / np.sqrt(source), (target, source)).astype(precision).astype(np.float64)
        layers.append(Affine(weights, rng.normal(0, 0.5, target).astype(precision).astype(np.float64)))
        layers.append(Activation(kind, 0.125 if kind == "leaky_relu" else 0.0))  # type: ignore[arg-type]
    return Network(tuple(layers[:-1]), sizes[0], precision)  # type: ignore[arg-type]


def random_query(rng: np.random.Generator, network: Network) -> Query:
    """One or two boxes, some clauses, with thresholds near the values that the outputs take."""
    inputs, outputs = network.input_size, network.output_size
    cases = []
    for _ in range(rng.integers(1, 3)):
        low = rng.integers(-8, 6, inputs)
        width = rng.integers(0, 9, inputs)
        box = tuple(
            Interval(Fraction(int(a), 8), Fraction(int(a + w), 8), *(bool(w and rng.random() < 0.2) for _ in range(2)))
            for a, w in zip(low, width, strict=True)
        )
        middle = np.array([[float(interval.lower + interval.upper) / 2 for interval in box]])
        values = network.evaluate(middle)[0][0]
        clauses = []
        for _ in range(rng.integers(1, 4)):
            clause = []
            for _ in range(rng.integers(1, 4)):
                factors = rng.integers(-2, 3, outputs)
                terms = tuple((i, Fraction(int(f), 3)) for i, f in enumerate(factors) if f)
                if terms:
                    here = float((factors / 3) @ values)
                    bound = Fraction(round((here + rng.normal(-0.3, 0.5)) * 100), 100)
                    clause.append(Constraint(terms, bound, bool(rng.random() < 0.3)))
            clauses.append(tuple(clause) or (Constraint(((0, Fraction(1)),), Fraction(-100)),))
        cases.append(Case(box, tuple(clauses)))
    return Query(inputs, outputs, tuple(cases))


def confirmed(network: Network, query: Query, answer: QueryAnswer) -> bool:
    """The witness, evaluated again from the network alone."""
    assert answer.witness is not None
    outputs = ExactNetwork(network).outputs(list(answer.witness.inputs), 200)
    corners = product(*(set(ends(value)) for value in outputs))
    return all(query.holds(answer.witness.inputs, corner) for corner in corners)


def found_on_a_grid(network: Network, query: Query, points: int) -> bool:
    """Does a point of a grid satisfy the query clearly?"""
    for case in query.cases:
        axes = [
            np.unique(
                np.linspace(float(i.lower), float(i.upper), points)[int(i.lower_open) : points - int(i.upper_open)]
            )
            for i in case.box
        ]
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(case.box))
        values, _ = network.evaluate(grid)
        for clause in case.clauses:
            fine = np.ones(len(grid), dtype=bool)
            for constraint in clause:
                left = sum(float(factor) * values[:, index] for index, factor in constraint.terms)
                fine &= left < float(constraint.bound) - 1e-9
            if fine.any():
                return True
    return False


@pytest.mark.parametrize("kind", ["relu", "leaky_relu", "tanh"])
def test_agrees_with_grids_and_exact_evaluation(kind: str) -> None:
    rng = np.random.default_rng(11)
    counts = {"sat": 0, "unsat": 0, "unknown": 0, "timeout": 0, "split": 0}
    runs = 60 if kind == "relu" else 25
    for _ in range(runs):
        network = random_network(rng, [int(rng.integers(1, 4)), 8, 8, 3], kind)
        query = random_query(rng, network)
        answer = decide(network, query, budget=Budget(20))
        counts[answer.result] += 1
        counts["split"] += answer.statistics["boxes"] > len(query.cases)
        if answer.result == "sat":
            assert confirmed(network, query, answer)
        elif answer.result == "unsat":
            assert not found_on_a_grid(network, query, 41 if network.input_size < 3 else 21)
    print(kind, counts)
    assert counts["sat"] > 0.1 * runs
    assert counts["unsat"] > 0.1 * runs
    assert counts["split"] > 0.1 * runs
    assert counts["unknown"] + counts["timeout"] <= 0.01 * runs


def needle(depth: float) -> Network:
    """|x - 1/3| + |y + 1/5| - depth as a network: negative only near one point."""
    hidden = Affine(np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]]), np.array([-1 / 3, 1 / 3, 0.2, -0.2]))
    return Network((hidden, Activation("relu"), Affine(np.ones((1, 4)), np.array([-depth]))), 2, "float64")


SQUARE = "(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)" + "".join(
    f"(assert (>= X_{i} -1))(assert (<= X_{i} 1))" for i in range(2)
)


def test_a_planted_needle_is_found_and_its_absence_proved() -> None:
    query = parse_vnnlib(SQUARE + "(assert (<= Y_0 0))")
    answer = decide(needle(1e-3), query, budget=Budget(20))
    assert answer.result == "sat"
    assert confirmed(needle(1e-3), query, answer)
    assert decide(needle(-1e-3), query, budget=Budget(20)).result == "unsat"


def test_a_bug_in_the_bounds_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With bounds that are too high by a little, "unsat" is claimed where the grid finds inputs."""
    from policyproof.oracle import output_query

    rng = np.random.default_rng(3)

    def optimistic(*arguments: object, **options: object) -> object:
        bounds = bound_rows(*arguments, **options)  # type: ignore[arg-type]
        bounds.lower[:] += 0.5
        return bounds

    monkeypatch.setattr(output_query, "bound_rows", optimistic)
    monkeypatch.setattr(output_query.WitnessSearch, "descend", lambda *_, **__: None)
    wrong = 0
    for _ in range(40):
        network = random_network(rng, [2, 8, 8, 3])
        query = random_query(rng, network)
        wrong += decide(network, query, budget=Budget(20)).result == "unsat" and found_on_a_grid(network, query, 41)
    assert wrong > 0


def test_strictness_decides_ties() -> None:
    """Two equal outputs: never one below the other, always one at most the other."""
    weights = np.random.default_rng(0).normal(size=(1, 2)).repeat(2, axis=0)
    network = Network((Affine(weights, np.zeros(2)),), 2, "float64")
    declared = SQUARE.replace("(declare-const Y_0 Real)", "(declare-const Y_0 Real)(declare-const Y_1 Real)")
    assert decide(network, parse_vnnlib(declared + "(assert (< Y_0 Y_1))"), budget=Budget(20)).result == "unsat"
    assert decide(network, parse_vnnlib(declared + "(assert (<= Y_0 Y_1))"), budget=Budget(20)).result == "sat"


def test_points_that_are_no_floats_are_decided_exactly() -> None:
    """x = 1/10 exactly: 10 x >= 1 holds there, and 10 x > 1 does not."""
    network = Network((Affine(np.array([[10.0]]), np.zeros(1)),), 1, "float64")
    text = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (= X_0 0.1))"
    answer = decide(network, parse_vnnlib(text + "(assert (>= Y_0 1))"), budget=Budget(20))
    assert answer.result == "sat"
    assert answer.witness is not None
    assert answer.witness.inputs == (Fraction(1, 10),)
    assert decide(network, parse_vnnlib(text + "(assert (> Y_0 1))"), budget=Budget(20)).result == "unsat"


def test_a_boundary_that_floats_cannot_settle_is_unknown() -> None:
    """10 x > 1 for x <= 1/10 holds nowhere, but only just."""
    network = Network((Affine(np.array([[10.0]]), np.zeros(1)),), 1, "float64")
    text = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (<= 0 X_0 0.1))"
    answer = decide(network, parse_vnnlib(text + "(assert (> Y_0 1))"), budget=Budget(20))
    assert answer.result == "unknown"
    assert "as small as floats can be" in answer.reason


def test_deployed_arithmetic_is_compared() -> None:
    """x + 2**-30 > x over the reals, but not in float32."""
    weights, bias = np.array([[1.0], [1.0]]), np.array([2.0**-30, 0.0])
    network = Network((Affine(weights, bias),), 1, "float32")
    text = "(declare-const X_0 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)(assert (<= 1 X_0 2))"
    answer = decide(network, parse_vnnlib(text + "(assert (> Y_0 Y_1))"), budget=Budget(20))
    assert answer.result == "sat"
    assert answer.witness is not None
    assert not answer.witness.deployed_agrees


def test_the_empty_clause_and_no_case() -> None:
    network = needle(0.0)
    assert decide(network, parse_vnnlib(SQUARE), budget=Budget(20)).result == "sat"
    assert decide(network, parse_vnnlib(SQUARE + "(assert (<= X_0 -2))"), budget=Budget(20)).result == "unsat"


def test_overflow_proves_nothing() -> None:
    """Infinite and undefined bounds must not be read as proofs."""
    huge = 1e300
    layers: tuple[Layer, ...] = (
        Affine(np.array([[huge], [-huge]]), np.zeros(2)),
        Activation("relu"),
        Affine(np.array([[huge, -huge]]), np.zeros(1)),
    )
    network = Network(layers, 1, "float64")
    text = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (<= -1 X_0 1))(assert (>= Y_0 5))"
    answer = decide(network, parse_vnnlib(text), budget=Budget(2))
    assert answer.result in ("sat", "unknown", "timeout")


@pytest.mark.parametrize("seconds", [0.0, 0.3, 1.0])
def test_the_budget_is_obeyed(seconds: float) -> None:
    rng = np.random.default_rng(2)
    decide(needle(-1e-3), parse_vnnlib(SQUARE + "(assert (<= Y_0 0))"))  # compile the kernels
    network = random_network(rng, [16, 64, 64, 64, 2])
    text = "".join(f"(declare-const X_{i} Real)(assert (<= -9 X_{i} 9))" for i in range(16))
    # Somewhat above what the network reaches: hard to find, and hard to refute.
    reached = network.evaluate(rng.uniform(-9, 9, (20_000, 16)))[0][:, 0].max()
    text += f"(declare-const Y_0 Real)(declare-const Y_1 Real)(assert (>= Y_0 {2.5 * reached:.3f}))"
    started = time.monotonic()
    answer = decide(network, parse_vnnlib(text), budget=Budget(seconds))
    # 0.2 s is the promise; other work on the machine may stop this process for a while.
    assert time.monotonic() - started < seconds + 0.5
    assert answer.result == "timeout"
    assert "time limit" in answer.reason


def test_memory_and_cancellation_end_the_search() -> None:
    query = parse_vnnlib(SQUARE + "(assert (<= Y_0 0))")
    budget = Budget(20)
    budget.cancelled.set()
    answer = decide(needle(-1e-3), query, budget=budget)
    assert (answer.result, answer.reason) == ("unknown", "interrupted")
    answer = decide(needle(-1e-3), query, budget=Budget(20, megabytes=0))
    assert answer.result == "unknown"
    assert "memory limit" in answer.reason


def test_sizes_and_factors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidInput, match="declares 2 inputs, the network has 1"):
        decide(Network((Affine(np.ones((1, 1)), np.zeros(1)),), 1), parse_vnnlib(SQUARE))
    with pytest.raises(UnsupportedFeature, match="no float"):
        decide(needle(0.0), parse_vnnlib(SQUARE + f"(assert (<= (* {2**60 + 1} Y_0) 0))"))


def test_rows_are_never_above_the_true_constraint() -> None:
    for value in (
        Fraction(1, 3),
        Fraction(-1, 3),
        Fraction(1, 10),
        Fraction(10**400),
        Fraction(-(10**400)),
        Fraction(0),
    ):
        assert float_below(value) == -np.inf or Fraction(float_below(value)) <= value
    network = needle(0.0)
    query = parse_vnnlib(SQUARE + "(assert (<= (/ Y_0 3) 0.1))")
    clauses = compile_clauses(network, make_chain(network), query)
    assert clauses.rows.coefficients.tolist() == [[1.0]]
    assert Fraction(float(clauses.rows.offsets[0])) <= Fraction(-3, 10)


def test_parts_of_a_box_may_inherit_decided_activations() -> None:
    """Bounds with inherited phases hold at points, and phases found on a box hold on its parts."""
    rng = np.random.default_rng(7)
    decided = 0
    for kind in ("relu", "leaky_relu"):
        network = random_network(rng, [3, 16, 16, 2], kind)
        chain = make_chain(network)
        rows = make_rows(chain, np.array([[1.0, -1.0], [-1.0, 0.5]]), np.array([0.0, 0.25]))
        lower = rng.normal(size=(50, 3))
        upper = lower + rng.random((50, 3))
        outer = bound_rows(chain, rows, lower, upper, attribute=True)
        middle = 0.5 * lower + 0.5 * upper
        inner = bound_rows(chain, rows, lower, middle, phases=outer.phases, attribute=True)
        decided += int((inner.phases != 0).sum() - (outer.phases != 0).sum())
        assert not (inner.phases * outer.phases < 0).any()
        assert (np.abs(inner.phases) >= np.abs(outer.phases)).all()
        assert (inner.effect >= 0).all()
        for _ in range(20):
            points = lower + rng.random(lower.shape) * (middle - lower)
            values = network.evaluate(points)[0] @ rows.coefficients.T + rows.offsets
            assert (inner.lower <= values + 1e-9).all()
    assert decided > 0


# The command


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str, str]:
    """A network with a needle, a property that finds it, and one that does not."""
    write_onnx(needle(1e-3), tmp_path / "needle.onnx")
    (tmp_path / "found.vnnlib").write_text(SQUARE + "(assert (<= Y_0 0))")
    (tmp_path / "never.vnnlib").write_text(SQUARE + "(assert (<= Y_0 -1))")
    return tuple(str(tmp_path / name) for name in ("needle.onnx", "found.vnnlib", "never.vnnlib"))  # type: ignore[return-value]


def test_the_command_answers_in_the_words_of_the_standard(
    files: tuple[str, str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    network, found, never = files
    assert run(["vnn", network, found, "--timeout", "30", "--out", str(tmp_path / "result.txt")]) == 0
    text = capsys.readouterr().out
    assert text == (tmp_path / "result.txt").read_text()
    word, *rest = text.splitlines()
    assert word == "sat"
    values = dict(re.findall(r"\((\w_\d) ([^()\s]+)\)", "\n".join(rest)))
    assert set(values) == {"X_0", "X_1", "Y_0"}
    point = np.array([[float(values["X_0"]), float(values["X_1"])]])
    assert float(values["Y_0"]) == pytest.approx(needle(1e-3).evaluate(point)[0][0, 0], abs=1e-12)
    assert float(values["Y_0"]) <= 0
    assert run(["vnn", network, never, "--timeout", "30"]) == 0
    assert capsys.readouterr().out == "unsat\n"


def test_the_command_says_what_it_could_not_do(
    files: tuple[str, str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    network, found, never = files
    assert run(["vnn", network, never, "--timeout", "0"]) == 3
    captured = capsys.readouterr()
    assert captured.out == "timeout\n"
    assert "time limit" in captured.err
    (tmp_path / "bad.vnnlib").write_text("(assert (<= X_0 1))")
    assert run(["vnn", network, str(tmp_path / "bad.vnnlib")]) == 2
    assert "line 1, column 13" in capsys.readouterr().err
    assert run(["vnn", str(tmp_path / "missing.onnx"), found]) == 2


def test_the_command_prints_one_json_object(files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    network, found, never = files
    schema = json.loads(importlib.resources.files("policyproof.report").joinpath("vnn.schema.json").read_text())
    assert run(["vnn", network, found, "--json", "--timeout", "30"]) == 0
    value = json.loads(capsys.readouterr().out)
    Draft202012Validator(schema).validate(value)
    assert not Draft202012Validator(schema).is_valid({**value, "result": "unsat"})
    assert (value["result"], value["arithmetic"]) == ("sat", "real")
    exact = [Fraction(text) for text in value["witness"]["exact_inputs"]]
    (output,) = ExactNetwork(needle(1e-3)).outputs(list(exact))
    assert ends(output)[1] <= 0
    assert run(["vnn", network, never, "--json", "--timeout", "30"]) == 0
    value = json.loads(capsys.readouterr().out)
    Draft202012Validator(schema).validate(value)
    assert (value["result"], value["witness"]) == ("unsat", None)
