"""Algorithm 1 in every configuration against the definition: the exact ones equal it, Mar contains it."""

from __future__ import annotations

import dataclasses
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from policyproof.cli import run
from policyproof.engines.ppa.configurations import CONFIGURATIONS, NAMES
from policyproof.engines.ppa.predicates import make_predicates
from policyproof.engines.ppa.search import PpaSearch, abstract
from policyproof.engines.question import safety_question
from policyproof.engines.result import drive
from policyproof.evidence.interpreter import Blocked, Configuration, Interpreter
from policyproof.model.building import ModelBuilder
from policyproof.model.expressions import FALSE
from policyproof.model.flat import flatten
from policyproof.model.properties import SafetyProperty
from policyproof.model.source import load_model
from policyproof.oracle.backends import installed
from policyproof.policy.load import load_policy
from policyproof.run.budget import Budget
from policyproof.run.child import Worker
from policyproof.run.errors import InvalidInput, ResourceExhausted, UnsupportedFeature
from tests.support.naive_abstraction import NaiveAbstraction, found_by, holds, naive_abstraction, random_predicates
from tests.support.random_models import RandomSystem, random_system

SYSTEMS = 12
SECONDS = 20.0
"""For one system; Z3 gets lost in some products and quotients."""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker("solvers") as shared:
        yield shared


@cache
def _expected(seed: int) -> tuple[RandomSystem, tuple, NaiveAbstraction]:  # type: ignore[type-arg]
    system = random_system(seed)
    predicates = random_predicates(system, random.Random(seed))
    atoms = make_predicates(flatten(system.model.model), predicates)
    return system, tuple(predicates), naive_abstraction(system, atoms.atoms[: atoms.given])


def _needs(name: str) -> None:
    configuration = CONFIGURATIONS[name]
    for backend in (configuration.relaxed, configuration.exact):
        if backend is not None and not installed(backend):
            pytest.skip(f"{backend} is not installed")


def check(name: str, seed: int, worker: Worker, shares: Counter[str]) -> None:
    system, predicates, expected = _expected(seed)
    if expected.undefined_unsafe or not expected.start:
        return
    question = safety_question(system.model.model, system.question, system.policy)
    search = PpaSearch(question, predicates, Budget(SECONDS), configuration=name, worker=worker)
    try:
        for _ in search.run():
            pass
    except UnsupportedFeature:
        # Marabou knows linear conditions only.
        shares["outside"] += 1
        return
    except ResourceExhausted:
        shares["late"] += 1
        return
    found = found_by(search, system.model.model)
    where = f"{name}, seed {seed}"
    assert found.start == expected.start, where
    if CONFIGURATIONS[name].over_approximates:
        assert found.states >= expected.states, where
        assert found.transitions >= expected.transitions, where
        assert found.unsafe >= expected.unsafe, where
    else:
        assert found.states == expected.states, where
        assert found.transitions == expected.transitions, where
        assert found.unsafe == expected.unsafe, where
        assert search.graph.undecided == 0, where
    statistics = search.statistics()
    shares["systems"] += 1
    shares["coarser"] += found.transitions != expected.transitions
    shares["several states"] += len(found.states) > 2
    shares["filtered"] += system.policy is not None and system.policy.filter
    shares["solver calls"] += int(statistics.get("solver_calls", 0))
    for test in statistics:
        if test.endswith("_tests"):
            shares[test] += int(statistics[test])


def check_configuration(name: str, seeds: range, worker: Worker) -> None:
    _needs(name)
    shares: Counter[str] = Counter()
    for seed in seeds:
        check(name, seed, worker, shares)
    print(f"\n{name}: {dict(shares)}")
    configuration = CONFIGURATIONS[name]
    assert shares["systems"] >= 0.4 * len(seeds)
    assert shares["late"] <= 0.1 * len(seeds)
    assert shares["several states"] >= 0.3 * shares["systems"]
    assert shares["filtered"] > 0
    made = {
        "relaxed_selection_tests": configuration.relaxed_selection,
        "selection_tests": configuration.selection,
        "applicability_tests": True,
        "relaxed_policy_applicability_tests": configuration.relaxed_applicability,
        "policy_applicability_tests": configuration.applicability,
        "entailment_tests": True,
        "transition_tests": True,
        "relaxed_policy_transition_tests": configuration.relaxed is not None,
        "policy_transition_tests": configuration.exact is not None,
    }
    assert {test: shares[test] > 0 for test in made} == made


@pytest.mark.parametrize("name", ["Base", "Mar+Z3(Mar)", "BnB(Mar)", "Mar", "Ex-Sel-Ex-App"])
def test_configurations_agree_with_the_definition(name: str, worker: Worker) -> None:
    check_configuration(name, range(SYSTEMS), worker)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_all_configurations_agree_with_the_definition(name: str, worker: Worker) -> None:
    count = int(os.environ.get("POLICYPROOF_SYSTEMS", "60"))
    check_configuration(name, range(50_000, 50_000 + count), worker)


def _halves() -> tuple:  # type: ignore[type-arg]
    """2x = 2y + 7 has no solution, which no box says."""
    builder = ModelBuilder("halves")
    x, y = builder.integer("x", 0, 9, initial=0), builder.integer("y", 0, 9, initial=0)
    builder.edge("step", guard=(x + x).equals(y + y + 7), update={x: 9})
    builder.edge("step", guard=x < 5, update={x: x + 1})
    return builder.build(builder.safety("never", unsafe=x > 8)), [x > 5, x > 8]


def test_what_no_box_says_is_asked_of_a_solver() -> None:
    model, predicates = _halves()
    question = safety_question(model.model, model.property("never"), None)
    for name in ("native", "Base"):
        result = drive(abstract(question, predicates, Budget(), configuration=name))
        assert result.verdict == "holds"
        assert (result.statistics["abstract_states"], result.statistics["transitions"]) == (1, 1)
    assert result.statistics["solver_calls"] > 0
    assert result.statistics["applicability_seconds"] > 0


def test_an_abstraction_without_exact_tests_says_so() -> None:
    _needs("Mar")
    system, predicates, expected = _expected(27)
    question = safety_question(system.model.model, system.question, system.policy)
    found = {name: drive(abstract(question, predicates, Budget(), configuration=name)) for name in ("Mar", "native")}
    assert found["Mar"].statistics["transitions"] > found["native"].statistics["transitions"]
    assert found["Mar"].statistics["undecided_transitions"] > 0
    assert [found[name].statistics["over_approximation"] for name in ("Mar", "native")] == [1, 0]
    assert "without exact tests" in found["Mar"].reason
    assert found["native"].statistics["abstract_start_states"] == len(expected.start)


def test_configurations_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(NAMES) == 11
    model, _ = _halves()
    model.save(tmp_path / "halves.jani")
    (tmp_path / "predicates.txt").write_text("x > 8\n", encoding="utf-8")
    words = [
        "verify",
        str(tmp_path / "halves.jani"),
        "--engine",
        "ppa",
        "--predicates",
        str(tmp_path / "predicates.txt"),
    ]
    assert run([*words, "--configuration", "Base", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verdict"], answer["options"]["configuration"]) == ("holds", "Base")
    assert answer["statistics"]["applicability_tests"] > 0
    assert run([*words, "--configuration", "base"]) == 2
    assert "there is no configuration 'base' (there are: native, Base, Mar+Z3," in capsys.readouterr().err
    with pytest.raises(InvalidInput):
        question = safety_question(model.model, model.property("never"), None)
        PpaSearch(question, [], Budget(), configuration="fastest")


# Published models


@pytest.fixture(scope="module")
def small() -> Path:
    folder = os.environ.get("POLICYPROOF_PEER_DATA")
    if not folder:
        pytest.skip("POLICYPROOF_PEER_DATA is not set: no published models to abstract")
    return Path(folder, "plaja", "small")


@pytest.mark.parametrize("file", ["for_pa2", "for_pa_cegar", "for_pa_cegar2", "for_pa_cegar3", "for_ppa_simple"])
def test_small_published_models(file: str, small: Path, worker: Worker) -> None:
    """All their properties; where nothing is unsafe, nothing is reached."""
    loaded = load_model(small / f"{file}.jani")
    for entry in loaded.entries:
        prop = entry.read()
        assert isinstance(prop, SafetyProperty)
        assert prop.predicates is not None
        prop = dataclasses.replace(prop, unsafe=FALSE if prop.unsafe is None else prop.unsafe)
        policy = None if prop.policy_file is None else load_policy(prop.policy_file, loaded)
        # Where the file has few predicates of its own, values tell states apart.
        finer = [item.expression >= 2 for item in loaded.model.variables if item.domain.kind == "int"]
        for predicates in (list(prop.predicates), [*prop.predicates, *finer]):
            atoms = make_predicates(flatten(loaded.model), predicates)
            system = RandomSystem(0, loaded, policy, prop, {})
            expected = naive_abstraction(system, atoms.atoms[: atoms.given])
            question = safety_question(loaded.model, prop, policy)
            for name in ("native", "Base") if policy is None else ("native", "Base", "BnB(Mar)"):
                if name != "native":
                    _needs(name)
                search = PpaSearch(question, predicates, Budget(), configuration=name, worker=worker)
                for _ in search.run():
                    pass
                found = found_by(search, loaded.model)
                assert found.start == expected.start
                assert found.states == expected.states
                assert found.transitions == expected.transitions
                assert found.unsafe == expected.unsafe


WALKS, STEPS = 20, 60


@pytest.mark.parametrize("file", ["for_pa", pytest.param("for_ppa_racetrack", marks=pytest.mark.slow)])
def test_larger_published_models(file: str, small: Path, worker: Worker) -> None:
    """Too many states to look at all: native and Z3 agree, and no step of a concrete run is missing."""
    properties = small / "tiny_c_car_v_car.jani" if file == "for_ppa_racetrack" else None
    loaded = load_model(small / f"{file}.jani", properties=properties)
    prop = loaded.property(loaded.preferred[0] if loaded.preferred else None)
    assert isinstance(prop, SafetyProperty)
    assert prop.predicates
    prop = dataclasses.replace(prop, unsafe=FALSE)
    question = safety_question(loaded.model, prop, None)
    found = []
    for name in ("native", "Base"):
        search = PpaSearch(question, prop.predicates, Budget(), configuration=name, worker=worker)
        for _ in search.run():
            pass
        found.append(found_by(search, loaded.model))
    assert found[0] == found[1]
    atoms = search.graph.predicates.atoms[: search.graph.predicates.given]
    interpreter = Interpreter(loaded.model)
    seen = set()
    rng = random.Random(1)
    for _ in range(WALKS):
        state = _initial(interpreter)
        for _ in range(STEPS):
            options = list(interpreter.enabled_combinations(state))
            if not options:
                break
            label, parts = rng.choice(options)
            outcome = interpreter.execute(state, parts)
            assert not isinstance(outcome, Blocked)
            following, ranges = outcome
            assert not ranges
            ends = [
                (tuple(holds(atom, interpreter.valuation(one)) for atom in atoms), one.locations)
                for one in (state, following)
            ]
            seen.add((ends[0], label, ends[1]))
            state = following
    print(f"\n{file}: {len(found[0].states)} states, {len(found[0].transitions)} transitions, {len(seen)} walked")
    assert seen <= found[0].transitions
    assert len(seen) > 5


def _initial(interpreter: Interpreter) -> Configuration:
    model = interpreter.model
    variables = {item.name: item.initial for item in model.variables if not item.transient}
    assert None not in variables.values()
    return Configuration(tuple(part.initial_locations[0] for part in model.automata), variables)  # type: ignore[arg-type]
