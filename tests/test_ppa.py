"""The policy predicate abstraction against its definition, on random systems and on published models."""

from __future__ import annotations

import json
import math
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policyproof.cli import run
from policyproof.engines.ppa.concretization import Concretization
from policyproof.engines.ppa.predicates import make_predicates
from policyproof.engines.ppa.regions import Areas
from policyproof.engines.ppa.search import PpaSearch, abstract
from policyproof.engines.question import safety_question
from policyproof.engines.result import drive
from policyproof.model.building import ModelBuilder, between
from policyproof.model.flat import flatten
from policyproof.model.source import load_model
from policyproof.oracle.native import NativeOracle
from policyproof.oracle.protocol import IMPOSSIBLE
from policyproof.policy.load import load_policy
from policyproof.policy.network import Affine, Network
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget
from policyproof.run.errors import InvalidInput, UnsupportedFeature
from tests.support.naive_abstraction import found_by, naive_abstraction, random_predicates
from tests.support.random_models import RandomSystem, random_system

FIRST_SEED = int(os.environ.get("POLICYPROOF_SEED", "0"))


LARGEST = 1000
"""The definition looks at all states, so the default tests leave out the systems with more."""


def state_count(system: RandomSystem) -> int:
    ranges = (item.domain.range for item in flatten(system.model.model).variables)
    return math.prod(int(high) - int(low) + 1 for low, high in ranges)


def check(system: RandomSystem, shares: Counter[str]) -> None:
    rng = random.Random(system.seed)
    predicates = random_predicates(system, rng)
    flat = flatten(system.model.model)
    atoms = make_predicates(flat, predicates)
    expected = naive_abstraction(system, atoms.atoms[: atoms.given])
    if expected.undefined_unsafe or not expected.start:
        shares["unusable"] += 1
        return
    question = safety_question(system.model.model, system.question, system.policy, flat=flat)
    search = PpaSearch(question, predicates, Budget())
    for _ in search.run():
        pass
    graph = search.graph
    found = found_by(search, system.model.model)
    where = f"seed {system.seed}"
    assert found.start == expected.start, where
    assert found.states == expected.states, where
    assert found.transitions == expected.transitions, where
    assert found.unsafe == expected.unsafe, where
    assert graph.undecided == 0, where
    result = drive(abstract(question, predicates, Budget()))
    assert result.starts is not None
    assert result.starts.safe == len(expected.safe_starts), where
    assert result.verdict == ("holds" if expected.start == expected.safe_starts else "unknown"), where
    shares["systems"] += 1
    shares[result.verdict] += 1
    shares["filtered"] += system.policy is not None and system.policy.filter
    shares["relations"] += search.concretization.counts.tests.get("policy_transition_tests", 0) > 0
    shares["several abstract states"] += len(found.states) > 2
    shares["unsafe reached"] += bool(graph.unsafe)


def report(shares: Counter[str]) -> None:
    total = shares["systems"]
    names = ("holds", "unknown", "filtered", "relations", "several abstract states", "unsafe reached")
    print(f"\n{total} random systems: " + ", ".join(f"{name} {shares[name] / total:.0%}" for name in names))
    assert shares["unusable"] <= 0.2 * total
    assert min(shares[name] for name in names) >= 0.05 * total


def test_random_abstractions_are_those_of_the_definition() -> None:
    shares: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + 60):
        system = random_system(seed)
        if state_count(system) <= LARGEST:
            check(system, shares)
    assert shares["systems"] >= 30
    report(shares)


@pytest.mark.slow
def test_five_hundred_random_abstractions() -> None:
    shares: Counter[str] = Counter()
    for seed in range(20_000, 20_560):
        check(random_system(seed), shares)
    assert shares["systems"] >= 500
    report(shares)


def test_a_published_abstraction() -> None:
    """6 Blocks with PlaJA's predicates: the numbers that its own tests assert."""
    folder = os.environ.get("POLICYPROOF_PEER_DATA")
    if not folder:
        pytest.skip("POLICYPROOF_PEER_DATA is not set: no published model to abstract")
    blocks = Path(folder, "plaja", "blocks6")
    model = load_model(blocks / "blocksworld_6_5.jani", properties=blocks / "properties.jani")
    prop = model.property(model.preferred[0])
    policy = load_policy(prop.policy_file, model)
    result = drive(abstract(safety_question(model.model, prop, policy), prop.predicates, Budget()))
    names = ("predicates", "abstract_start_states", "abstract_states", "transition_pairs", "operator_transitions")
    assert [result.statistics[name] for name in names] == [49, 202, 349, 738, 778]
    assert result.statistics["abstract_unsafe_states"] == 0
    assert result.verdict == "holds"


def test_predicates_are_atoms_each_once() -> None:
    builder = ModelBuilder("atoms")
    x, b = builder.integer("x", 0, 9, initial=0), builder.boolean("b", initial=False)
    builder.edge("go", update={x: x + 1})
    flat = flatten(builder.build().model)
    predicates = make_predicates(flat, [(x > 3) & ~(b | (x > 3)), x.equals(7), b.equals(x < 2)])
    assert [str(atom) for atom in predicates.atoms] == ["x > 3", "b", "x = 7", "x < 2"]
    with pytest.raises(InvalidInput, match="must be a condition"):
        make_predicates(flat, [x + 1])


def test_many_predicates_take_several_words() -> None:
    builder = ModelBuilder("wide")
    x = builder.integer("x", 0, 200, initial=0)
    builder.edge("go", guard=x < 150, update={x: between(x + 1, x + 2)})
    model = builder.build(builder.safety("far", unsafe=x > 160))
    question = safety_question(model.model, model.property("far"), None)
    result = drive(abstract(question, [x >= number for number in range(1, 200)], Budget()))
    assert result.verdict == "holds"
    assert result.statistics["abstract_states"] == 152
    # From every value up to 149 to the next two.
    assert result.statistics["transitions"] == 300


def test_coarse_predicates_prove_nothing_and_a_budget_ends_with_what_is_known() -> None:
    builder = ModelBuilder("counters")
    x, y = builder.integer("x", 0, 50), builder.integer("y", 0, 50)
    builder.edge("go", guard=y < 50, update={x: x, y: y + 1})
    model = builder.build(builder.safety("x", unsafe=x > 40, start="x <= 30 & y = 0"))
    question = safety_question(model.model, model.property("x"), None)
    coarse = drive(abstract(question, [x > 35, y > 10], Budget()))
    assert coarse.verdict == "holds"
    blind = drive(abstract(question, [y > 10], Budget()))
    assert blind.verdict == "unknown"
    assert "too coarse" in blind.reason
    budget = Budget()
    budget.cancelled.set()
    stopped = drive(abstract(question, [x > 35], budget))
    assert stopped.verdict == "unknown"
    assert stopped.reason == "interrupted"
    bounded = safety_question(model.model, model.property("AG<=3 x < 40"), None)
    with pytest.raises(UnsupportedFeature, match="bounded number of steps"):
        drive(abstract(bounded, [x > 35], Budget()))


def test_a_label_is_applicable_whatever_the_environment_then_chooses() -> None:
    """Both labels apply everywhere, so with filtering, too, the policy chooses the one that it prefers."""
    builder = ModelBuilder("free")
    x = builder.integer("x", 0, 9, initial=0)
    builder.edge("low", update={x: between(0, 1)})
    builder.edge("high", update={x: between(5, 6)})
    model = builder.build(builder.safety("never", unsafe=x > 8))
    network = Network((Affine(np.zeros((2, 1)), np.array([0.0, 1.0])),), 1)
    policy = Policy((network,), (x,), ("low", "high"), filter=True)
    question = safety_question(model.model, model.property("never"), policy)
    search = PpaSearch(question, [x > 4], Budget())
    for _ in search.run():
        pass
    assert search.graph.transitions == {(0, 1, 1), (1, 1, 1)}


# The command line


def _pump(folder: Path) -> str:
    builder = ModelBuilder("pump")
    level = builder.integer("level", 0, 50)
    builder.edge("hold", guard=level < 40, update={level: level + 1})
    builder.build(builder.safety("full", unsafe="level > 45", start="level < 5")).save(folder / "pump.jani")
    return str(folder / "pump.jani")


def test_predicates_come_from_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = _pump(tmp_path)
    text, array = tmp_path / "predicates.txt", tmp_path / "predicates.json"
    text.write_text("# a comment\n\nlevel > 40\nlevel > 45 | level < 3\n", encoding="utf-8")
    array.write_text('[{"op": ">", "left": "level", "right": 40}]', encoding="utf-8")
    for file, count in ((text, 3), (array, 1)):
        assert run(["verify", model, "--engine", "ppa", "--predicates", str(file), "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert (answer["verdict"], answer["engine"], answer["statistics"]["predicates"]) == ("holds", "ppa", count)
    assert run(["verify", model, "--engine", "ppa", "--predicates", "none", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["verdict"] == "unknown"


def test_what_is_wrong_with_predicates_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = _pump(tmp_path)
    file = tmp_path / "predicates.txt"
    for content, message in (
        ("level > 40\nlevle > 3\n", "predicates.txt: line 2: "),
        ("level + 1\n", "line 1: expected a condition"),
    ):
        file.write_text(content, encoding="utf-8")
        assert run(["verify", model, "--engine", "ppa", "--predicates", str(file)]) == 2
        assert message in capsys.readouterr().err
    assert run(["verify", model, "--engine", "ppa", "--predicates", str(tmp_path / "none.json")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert run(["verify", model, "--engine", "ppa"]) == 2
    assert "needs predicates" in capsys.readouterr().err


# Bugs that are planted are seen


def _pending_areas_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What boxes do not settle is taken for nothing: transitions are lost."""

    def wrong(self: Concretization, areas: Areas, budget: Budget) -> tuple[np.ndarray, np.ndarray]:
        return ~areas.has_pending, np.zeros(len(areas), dtype=np.bool_)

    monkeypatch.setattr(Concretization, "exists", wrong)


def _the_last_label_is_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Selection and transition tests refuse a label that the policy may choose."""
    original = NativeOracle.ask

    def wrong(self: NativeOracle, *arguments: Any, **options: Any) -> Any:
        answers = original(self, *arguments, **options)
        answers.status[:, -1] = IMPOSSIBLE
        return answers

    monkeypatch.setattr(NativeOracle, "ask", wrong)


@pytest.mark.parametrize("plant", [_pending_areas_are_empty, _the_last_label_is_never_chosen])
def test_a_planted_bug_is_seen(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(60):
        try:
            check(random_system(seed), Counter())
        except AssertionError:
            print(f"\nseen at seed {seed}")
            return
    pytest.fail("no system showed the bug")
