"""Bounded model checking finds the shortest unsafe path that the explicit engine finds, with both solvers."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import policyproof as pp
from policyproof.api import verify
from policyproof.cli import run
from policyproof.encodings.box_unions import boxes_of
from policyproof.encodings.milp_paths import PathProgram
from policyproof.encodings.paths import Requirement, Stage
from policyproof.encodings.question import Column, Question
from policyproof.engines.bmc import milp_solver
from policyproof.engines.bmc.images import Images
from policyproof.engines.bmc.search import SOLVERS, check_paths
from policyproof.engines.question import SafetyQuestion, safety_question
from policyproof.engines.result import Result, drive
from policyproof.evidence.replay import replay
from policyproof.model.expressions import TRUE, Expression, apply, conjunction, constant, negation, variable
from policyproof.model.flat import _Flattener
from policyproof.model.properties import SafetyProperty
from policyproof.oracle.milp_solvers import solve_with_highs
from policyproof.policy.network import Activation, Affine, Network
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget
from policyproof.run.errors import BackendFailure, InvalidInput, UnsupportedFeature
from tests.support.naive import NaiveResult, naive_search
from tests.support.random_models import RandomSystem, random_system

LENGTH = 5
PROMISED = ("holds", "violated", "unknown", "several steps", "ties", "filtered", "switched", "environment", "stuck")
LATE = " in HiGHS after "
"""How the reason goes on where only later steps showed that something is not linear, or has too many cases."""


class Here:
    """Runs a solver in this process: quick, and open to planted bugs."""

    def call(self, function: Callable[..., Any], *arguments: object, budget: Budget | None = None) -> Any:
        return function(*arguments)

    def close(self) -> None:
        """There is nothing to end."""


def ask(question: SafetyQuestion, solver: str, *, length: int | None = LENGTH, **options: Any) -> Result:
    return drive(check_paths(question, Budget(60), solver=solver, length=length, worker=Here(), **options))


def switched(system: RandomSystem) -> RandomSystem:
    """Another network for every value of a variable: other biases."""
    policy, item = system.policy, system.model.model.variables[0]
    assert policy is not None
    generator = np.random.default_rng(system.seed)
    values = tuple(range(int(item.domain.range[0]), int(item.domain.range[1]) + 1))
    networks = []
    for _ in values:
        *layers, last = policy.networks[0].layers
        assert isinstance(last, Affine)
        layers.append(Affine(last.weights, last.bias + generator.integers(-2, 3, last.bias.shape)))
        networks.append(Network(tuple(layers), policy.networks[0].input_size))
    several = dataclasses.replace(policy, networks=tuple(networks), switch=item.expression, switch_values=values)
    return dataclasses.replace(system, policy=several)


def check(seed: int, solver: str, shares: Counter[str]) -> None:
    system = random_system(seed)
    if seed % 4 == 0:
        system = switched(system)
    expected = naive_search(system.model.model, system.question, system.policy)
    if expected.undefined_unsafe or expected.start_states == 0:
        shares["unusable"] += 1
        return
    if expected.shortest is not None and expected.shortest <= 1 and seed % 3:
        # Most systems are like that, and say little.
        return
    assert system.policy is not None
    where = f"seed {seed}, {solver}"
    explicit = verify(system.model, system.policy, system.question)
    assert explicit.result.statistics.get("unsafe_path_length") == expected.shortest, where
    question = safety_question(system.model.model, system.question, system.policy)
    shares["systems"] += 1
    try:
        result = ask(question, solver)
    except UnsupportedFeature:
        assert solver == "milp", where
        shares["refused"] += 1
        return
    if LATE in result.reason:
        # What was refuted by then is right.
        assert solver == "milp" and result.verdict == "unknown", where
        assert expected.shortest is None or expected.shortest > result.statistics["checked_length"], where
        shares["refused"] += 1
        return
    compare(system, expected, result, where)
    shares[result.verdict] += 1
    shares["solver-tolerance"] += result.arithmetic != "real"
    shares["several steps"] += (expected.shortest or 0) > 1 and result.verdict == "violated"
    shares["ties"] += expected.ties > 0
    shares["stuck"] += expected.stuck > 0
    shares["filtered"] += system.policy.filter
    shares["switched"] += system.policy.switch is not None
    labels = [operator.label for operator in question.flat.operators]
    shares["environment"] += any(label not in system.policy.labels for label in labels)
    shares["solved"] += result.statistics["solver_calls"] > 0
    bounded(system, question, expected, solver, where)


def compare(system: RandomSystem, expected: NaiveResult, result: Result, where: str) -> None:
    shortest = expected.shortest
    if shortest is not None and shortest <= LENGTH:
        assert result.verdict == "violated", f"{where}: {result.reason}"
        assert result.statistics["unsafe_path_length"] == result.statistics["checked_length"] == shortest, where
        assert result.trace is not None
        outcome = replay(system.model.model, result.trace, system.question, system.policy)
        assert outcome.accepted, f"{where}: {outcome.reason}"
        assert len(result.trace.steps) == shortest, where
    else:
        assert result.trace is None, where
        assert result.verdict == "holds" or result.statistics["checked_length"] == LENGTH, f"{where}: {result.reason}"
        assert result.verdict == "unknown" or shortest is None, where
    assert [entry["unsafe_path"] for entry in result.log[:-1]] == [False] * (len(result.log) - 1), where


def bounded(system: RandomSystem, question: SafetyQuestion, expected: NaiveResult, solver: str, where: str) -> None:
    """AG<=k holds below the shortest length, and is violated from there on."""
    shortest = LENGTH + 1 if expected.shortest is None else expected.shortest
    for last in {min(shortest, LENGTH) - 1, min(shortest, LENGTH)} - {-1}:
        result = ask(dataclasses.replace(question, last_step=last), solver, length=None)
        assert result.verdict == ("violated" if shortest <= last else "holds"), f"{where}, {last} steps"


def report(shares: Counter[str], solver: str) -> None:
    total = shares["systems"]
    names = (*PROMISED, "solved", "solver-tolerance", "refused", "unusable")
    print(f"\n{solver}: {total} random systems, " + ", ".join(f"{name} {shares[name] / total:.0%}" for name in names))
    for name in (*PROMISED, "solved"):
        assert shares[name] >= 0.05 * total, name
    assert shares["unusable"] <= 0.05 * total
    assert shares["refused"] <= (0.3 * total if solver == "milp" else 0)
    assert shares["solver-tolerance"] == 0


@pytest.mark.parametrize("solver", list(SOLVERS))
def test_the_shortest_unsafe_paths_are_those_of_the_explicit_engine(solver: str) -> None:
    shares: Counter[str] = Counter()
    for seed in range(50_000, 50_060):
        check(seed, solver, shares)
    report(shares, solver)


@pytest.mark.slow
@pytest.mark.parametrize("solver", list(SOLVERS))
def test_five_hundred_random_systems(solver: str) -> None:
    shares: Counter[str] = Counter()
    for seed in range(51_000, 51_500):
        check(seed, solver, shares)
    report(shares, solver)


# Planted bugs


def _tie() -> tuple[pp.LoadedModel, Policy]:
    """At x = 1 both outputs are 1: the first one wins, and there alone "end" is applicable."""
    builder = pp.ModelBuilder("tie")
    x, done = builder.integer("x", 0, 2), builder.boolean("done")
    builder.edge("end", guard=x.equals(1), update={done: True})
    builder.edge("stay", update={x: x})
    model = builder.build(builder.safety("never-done", unsafe=done, start=~done))
    network = Network((Affine(np.array([[1.0], [-1.0]]), np.array([0.0, 2.0])),), 1)
    return model, Policy((network,), (x,), ("end", "stay"))


@pytest.mark.parametrize("solver", list(SOLVERS))
def test_in_a_tie_the_first_output_wins(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, policy = _tie()
    question = safety_question(model.model, model.property(), policy)
    assert ask(question, solver).statistics["unsafe_path_length"] == 1
    swapped = dataclasses.replace(policy, labels=("stay", "end"))
    other = safety_question(model.model, model.property(), swapped)
    assert ask(other, solver).verdict == "unknown"
    if solver == "z3":
        # A strict encoding lets a tie choose nothing, and loses the path.
        monkeypatch.setattr(Question, "must_exceed", lambda self, rival: True)
        assert ask(question, solver).verdict != "violated"


def test_a_path_that_takes_the_wrong_output_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, policy = _tie()
    swapped = dataclasses.replace(policy, labels=("stay", "end"))
    question = safety_question(model.model, model.property(), swapped)
    monkeypatch.setattr(Question, "must_exceed", lambda self, rival: False)
    with pytest.raises(BackendFailure, match="the policy chooses another label"):
        ask(question, "z3")


@pytest.mark.parametrize("solver", list(SOLVERS))
def test_a_label_whose_update_leaves_its_domain_is_not_applicable(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = pp.ModelBuilder("edge")
    x, y = builder.integer("x", 0, 2), builder.integer("y", 0, 5)
    builder.edge("up", update={x: x + 1})
    builder.edge("count", update={y: y + 1})
    model = builder.build(builder.safety("low", unsafe="y = 1", start="y = 0"))
    network = Network((Affine(np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([1.0, 0.0])),), 2)
    policy = Policy((network,), (x, y), ("up", "count"), filter=True)
    question = safety_question(model.model, model.property(), policy)
    explicit = verify(model, policy)
    assert explicit.result.statistics["unsafe_path_length"] == 1
    assert ask(question, solver).statistics["unsafe_path_length"] == 1
    monkeypatch.setattr(_Flattener, "_inside", staticmethod(lambda domain, value, box: TRUE))
    wrong = safety_question(model.model, model.property(), policy)
    assert ask(wrong, solver).verdict != "violated"


# What the questions can be


def test_paths_may_end() -> None:
    builder = pp.ModelBuilder("short")
    x = builder.integer("x", 0, 3, initial=0)
    builder.edge("go", guard=x < 2, update={x: x + 1})
    model = builder.build(builder.safety("never", unsafe="x = 3"))
    for solver in SOLVERS:
        result = ask(safety_question(model.model, model.property(), None), solver)
        assert (result.verdict, result.statistics["checked_length"]) == ("holds", 2)
        assert "no path is longer than 2 steps" in result.reason


def test_conditions_of_initial_states_are_questions_of_length_zero() -> None:
    model, policy = _tie()
    for text, verdict in (("x <= 2", "holds"), ("x = 0", "violated")):
        answer = verify(model, policy, text, engine="bmc")
        assert (answer.verdict, answer.result.statistics["checked_length"]) == (verdict, 0)


@pytest.mark.parametrize("solver", list(SOLVERS))
def test_what_has_no_value_is_an_error(solver: str) -> None:
    builder = pp.ModelBuilder("undefined")
    x = builder.integer("x", 0, 3, initial=2)
    builder.edge("down", update={x: x - 1})
    model = builder.build(builder.safety("quotient", unsafe="3 / x > 5"))
    with pytest.raises(InvalidInput, match="has no value in the reachable state"):
        ask(safety_question(model.model, model.property(), None), "z3")
    network = Network((Affine(np.array([[1.0]]), np.zeros(1)),), 1)
    policy = Policy((network, network), (x,), ("down",), switch=x, switch_values=(2, 3))
    prop = SafetyProperty("never", unsafe=x > 5)
    with pytest.raises(InvalidInput, match="no network for the value 1"):
        ask(safety_question(model.model, prop, policy), solver)
    # After the last step that counts nobody decides.
    question = dataclasses.replace(safety_question(model.model, prop, policy), last_step=1)
    assert ask(question, solver, length=None).verdict == "holds"
    empty = SafetyProperty("nowhere", unsafe=x > 2, start=x > 3)
    with pytest.raises(InvalidInput, match="holds in no state"):
        ask(safety_question(model.model, dataclasses.replace(empty, include_initial=False), None), solver)


@pytest.mark.parametrize("solver", list(SOLVERS))
def test_real_variables(solver: str) -> None:
    """A thermostat: the policy heats below 20; the weather takes up to one degree, a heater gives three quarters."""
    builder = pp.ModelBuilder("heater")
    t = builder.real("t", 0, 40)
    builder.edge("heat", update={t: pp.between(t - Fraction(1, 4), t + Fraction(3, 4))})
    builder.edge("wait", update={t: pp.between(t - 1, t)})
    model = builder.build(builder.safety("warm", unsafe="t <= 17.9", start="t >= 20 & t <= 21"))
    network = Network((Affine(np.array([[-1.0], [1.0]]), np.array([20.0, -20.0])),), 1)
    policy = Policy((network,), (t,), ("heat", "wait"))
    question = safety_question(model.model, model.property(), policy)
    result = ask(question, solver, length=6)
    # From just above 20 one step down to just above 19, and five more of a quarter: 17.75 and a bit.
    assert (result.verdict, result.statistics["checked_length"]) == ("violated", 6)
    assert result.trace is not None
    assert replay(model.model, result.trace, model.property(), policy).accepted
    assert ask(question, solver, length=5).verdict == "unknown"


def test_only_the_solvers_word_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that exists only within the margin, over reals: refuted by the solver alone."""
    builder = pp.ModelBuilder("margin")
    t = builder.real("t", 0, 1)
    x = builder.integer("x", 0, 1, initial=0)
    builder.edge("stay", update={t: t})
    builder.edge("end", update={x: 1})
    model = builder.build(builder.safety("never", unsafe="x = 1", start="x = 0"))
    # "end" is always less by 1e-7, far within the margin of weights of this size.
    layers = (
        Affine(np.array([[1000.0], [-1000.0]]), np.array([0.0, 0.0])),
        Activation("relu"),
        Affine(np.array([[1.0, 1.0], [1.0, 0.99]]), np.array([1e-7, 0.0])),
    )
    policy = Policy((Network(layers, 1),), (t,), ("stay", "end"))
    question = safety_question(model.model, model.property(), policy)
    # The bounds would settle it before any solver is asked.
    monkeypatch.setattr(Images, "beats", lambda self, box, network: np.zeros((2, 2), dtype=np.bool_))
    monkeypatch.setattr(Images, "_may_be_chosen", lambda self, box, numbers, sources: np.ones(len(numbers), np.bool_))
    assert ask(question, "z3", length=1).arithmetic == "real"
    result = ask(question, "milp", length=1)
    assert result.verdict == "unknown"
    assert result.arithmetic == "solver-tolerance"
    assert result.statistics["checked_length"] == 1


def test_lemmas_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    model, policy = _tie()
    swapped = dataclasses.replace(policy, labels=("stay", "end"))
    question = safety_question(model.model, model.property(), swapped)
    assert ask(question, "milp").statistics["solver_calls"] > 1
    monkeypatch.setattr(milp_solver, "MOST_LEMMAS", 0)
    result = ask(question, "milp")
    assert result.verdict == "unknown"
    assert milp_solver.WITHIN_TOLERANCE in result.reason


def test_what_a_solver_cannot_be_told_is_refused() -> None:
    builder = pp.ModelBuilder("curved")
    x = builder.integer("x", 1, 9)
    y = builder.integer("y", 1, 9)
    builder.edge("go", update={x: x * y})
    model = builder.build(builder.safety("never", unsafe="x = 9", start="x < 9"))
    question = safety_question(model.model, model.property(), None)
    with pytest.raises(UnsupportedFeature, match=r"\* where it is not linear in HiGHS"):
        ask(question, "milp")
    assert ask(question, "z3").verdict == "violated"
    smooth = Policy((Network((Affine(np.eye(2), np.zeros(2)), Activation("tanh")), 2),), (x, y), ("go", "stay"))
    with pytest.raises(UnsupportedFeature, match="tanh in Z3"):
        ask(safety_question(model.model, model.property(), smooth), "z3")
    with pytest.raises(InvalidInput, match="bmc has no solver 'cvc5'"):
        ask(question, "cvc5")


# Conditions in programs


def _random_condition(rng: random.Random, depth: int) -> Expression:
    x, y, b = variable("x@0", "int"), variable("y@0", "int"), variable("b@0", "bool")
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.2:
            return b
        left = rng.choice([x, y, apply("ite", _random_condition(rng, 0) if depth else b, x, constant(1))])
        return apply(rng.choice("<≤=≠>≥"), left, rng.choice([constant(rng.randint(-2, 2)), y]))
    if rng.random() < 0.2:
        return negation(_random_condition(rng, depth - 1))
    operator = rng.choice("∧∨∧∨⇒=")
    return apply(operator, _random_condition(rng, depth - 1), _random_condition(rng, depth - 1))


def _box_union(rng: random.Random) -> Expression:
    x, y, b = variable("x@0", "int"), variable("y@0", "int"), variable("b@0", "bool")
    found = constant(False)
    for _ in range(rng.randint(2, 12)):
        parts = [x.equals(rng.randint(-2, 2)), y > rng.randint(-3, 3), y <= rng.randint(-2, 3), b, negation(b)]
        found = apply("∨", found, conjunction(rng.sample(parts, rng.randint(1, 3))))
    return found


def test_conditions_with_many_cases_keep_their_meaning() -> None:
    rng = random.Random(5)
    columns = (Column("x@0", "int", -2, 2), Column("y@0", "int", -2, 2), Column("b@0", "bool", 0, 1))
    shares: Counter[bool] = Counter()
    literals = unions = 0
    for number in range(60):
        condition = _box_union(rng) if number % 3 == 0 else _random_condition(rng, 4)
        stage = Stage(0, columns, (0,), (Requirement(condition),))
        program = PathProgram()
        program.stage(stage)
        unions += boxes_of(condition) is not None
        literals += any(name.startswith("literal") for name in program.position)
        for state in rng.sample(list(itertools.product(range(-2, 3), range(-2, 3), (False, True))), 6):
            values = dict(zip(("x@0", "y@0", "b@0"), state, strict=True))
            expected = pp.model.exact.evaluate(condition, values) is True
            fixed = [variable(n, "bool" if n == "b@0" else "int").equals(constant(v)) for n, v in values.items()]
            asked = program.with_target([Requirement(part) for part in fixed])
            found = not asked.infeasible and solve_with_highs(dataclasses.replace(asked, slack=-1), 0).outcome == "sat"
            assert found == expected, (number, str(condition), values)
            shares[expected] += 1
    assert min(shares[True], shares[False]) > 50
    assert min(literals, unions) >= 10


# Budgets and the command line


@pytest.mark.parametrize("solver", list(SOLVERS))
def test_a_budget_ends_with_the_longest_checked_length(solver: str, tmp_path: Path) -> None:
    assert run(["zoo", "write", "warehouse", "--out", str(tmp_path)]) == 0
    model = pp.load_model(tmp_path / "warehouse.jani")
    policy = pp.load_policy(tmp_path / "warehouse-careful.json", model)
    started = time.monotonic()
    answer = verify(model, policy, engine="bmc", solver=solver, timeout=2.0)
    assert time.monotonic() - started < 4.0
    assert answer.verdict == "unknown"
    checked = answer.result.statistics["checked_length"]
    assert checked >= 1
    assert answer.reason == f"the time limit of 2 s ran out; no unsafe path of up to {checked} steps"
    budget = Budget()
    budget.cancelled.set()
    stopped = drive(check_paths(safety_question(model.model, model.property(), policy), budget, solver=solver))
    assert stopped.reason == "interrupted; no length was checked"
    assert "checked_length" not in stopped.statistics


def test_the_command_line_takes_a_solver_and_a_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = pp.ModelBuilder("counter")
    x = builder.integer("x", 0, 9, initial=0)
    builder.edge("go", update={x: x + 1})
    builder.build(builder.safety("small", unsafe="x > 3")).save(tmp_path / "counter.jani")
    file = str(tmp_path / "counter.jani")
    for solver in SOLVERS:
        arguments = ["verify", file, "--engine", "bmc", "--solver", solver, "--json"]
        assert run([*arguments, "--length", "3"]) == 3
        answer = json.loads(capsys.readouterr().out)
        assert answer["reason"] == "no unsafe path of up to 3 steps"
        assert answer["options"]["length"] == 3
        assert run(arguments) == 1
        answer = json.loads(capsys.readouterr().out)
        assert answer["statistics"]["unsafe_path_length"] == 4
        assert [entry["unsafe_path"] for entry in answer["log"]] == [False] * 4 + [True]
    assert run(["verify", file, "--engine", "bmc", "--solver", "cvc5"]) == 2
    assert "there are: z3, milp" in capsys.readouterr().err


def test_going_on_after_a_violation() -> None:
    """Table 2 of ICAPS22 gives both the shortest unsafe length and the longest checked one."""
    model, policy = _tie()
    result = ask(safety_question(model.model, model.property(), policy), "z3", length=3, go_on=True)
    assert result.verdict == "violated"
    assert result.statistics["unsafe_path_length"] == 1
    assert result.statistics["checked_length"] == 3
    assert 0 < result.statistics["unsafe_path_seconds"] < 60
