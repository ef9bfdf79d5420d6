"""The batched explicit engine against its naive twin, on random systems with random policies.

The default run takes 220 seeds; `make test-slow` takes 2,000.  Each run prints the shares of what
occurred, and fails when a class that it promises is rare, so that agreement is never vacuous.
"""

from __future__ import annotations

from collections import Counter

import pytest

from policyproof.api import Answer, verify
from policyproof.engines.question import safety_question
from policyproof.evidence.replay import replay
from policyproof.model.start_states import boxes_where
from tests.support.naive import NaiveResult, naive_search
from tests.support.random_models import RandomSystem, random_system

PROMISED = (
    "holds",
    "violated",
    "ties",
    "stuck",
    "domain blocked",
    "filtered",
    "several steps",
    "sliced",
    "deadlock",
    "split start set",
)
LEAST_SHARE = 0.05
LARGEST_SHARE = 0.01
"""Of systems without an answer, and of systems that no answer can be compared on."""


@pytest.fixture(scope="module")
def shares() -> Counter[str]:
    return Counter()


@pytest.mark.parametrize("block", range(11))
def test_random_systems_agree(block: int, shares: Counter[str]) -> None:
    _check_seeds(range(block * 20, block * 20 + 20), shares)


def test_agreement_was_not_vacuous(shares: Counter[str], capsys: pytest.CaptureFixture[str]) -> None:
    _report(shares, capsys)


@pytest.mark.slow
def test_two_thousand_random_systems_agree(capsys: pytest.CaptureFixture[str]) -> None:
    shares: Counter[str] = Counter()
    _check_seeds(range(10_000, 12_000), shares)
    _report(shares, capsys)


def _report(shares: Counter[str], capsys: pytest.CaptureFixture[str]) -> None:
    total = shares["systems"]
    if total < 100:
        pytest.skip("the shares mean something only when the random systems of this module have run")
    with capsys.disabled():
        names = (*PROMISED, "unknown", "unusable")
        text = ", ".join(f"{name} {100 * shares[name] / total:.0f} %" for name in names)
        print(f"\n{total} random systems (seeds {shares['first seed']} to {shares['last seed']}): {text}")
    for name in PROMISED:
        assert shares[name] >= LEAST_SHARE * total, f"{name} is too rare to mean anything"
    for name in ("unknown", "unusable"):
        assert shares[name] <= LARGEST_SHARE * total, f"{name} is too frequent"


def _check_seeds(seeds: range, shares: Counter[str]) -> None:
    shares["first seed"] = min(shares.get("first seed", seeds[0]), seeds[0])
    shares["last seed"] = max(shares["last seed"], seeds[-1])
    for seed in seeds:
        system = random_system(seed)
        expected = naive_search(system.model.model, system.question, system.policy)
        if expected.undefined_unsafe or expected.start_states == 0:
            shares["unusable"] += 1
            continue
        _check(system, expected, shares)


def _check(system: RandomSystem, expected: NaiveResult, shares: Counter[str]) -> None:
    context = f"seed {system.seed}"
    whole = verify(system.model, system.policy, system.question, all_starts=True, slicing=False)
    statistics = whole.result.statistics
    found = {
        "states": statistics["states"],
        "start states": statistics["start_states"],
        "transitions": statistics["transitions"],
        "transition pairs": statistics["transition_pairs"],
        "unsafe states": statistics["unsafe_states"],
        "safe starts": statistics["start_states_safe"],
        "unsafe starts": statistics["start_states_unsafe"],
        "stuck": statistics["stuck_states"],
        "deadlocks": statistics["deadlock_states"],
        "ties": statistics["ties"],
        "shortest": statistics.get("unsafe_path_length"),
    }
    assert found == {
        "states": expected.states,
        "start states": expected.start_states,
        "transitions": len(expected.triples),
        "transition pairs": len(expected.pairs),
        "unsafe states": expected.unsafe_states,
        "safe starts": expected.safe_starts,
        "unsafe starts": expected.unsafe_starts,
        "stuck": expected.stuck,
        "deadlocks": expected.dead,
        "ties": expected.ties,
        "shortest": expected.shortest,
    }, context
    assert whole.verdict == ("holds" if expected.shortest is None else "violated"), context
    quick = verify(system.model, system.policy, system.question)
    assert quick.verdict == whole.verdict, context
    assert quick.result.statistics.get("unsafe_path_length") == expected.shortest, context
    for answer in (whole, quick):
        _check_replay(system, answer, context)
    shares["systems"] += 1
    shares[whole.verdict] += 1
    shares["ties"] += expected.ties > 0
    shares["stuck"] += expected.stuck > 0
    shares["deadlock"] += expected.dead > 0
    shares["domain blocked"] += expected.domain_blocked > 0
    shares["filtered"] += system.policy is not None and system.policy.filter
    shares["several steps"] += (expected.shortest or 0) > 1
    shares["sliced"] += quick.result.statistics["sliced_variables"] > 0
    shares["split start set"] += _splits(system)


def _splits(system: RandomSystem) -> bool:
    """Does it take several boxes to cover some start condition?"""
    question = safety_question(system.model.model, system.question, None)
    return any(sum(len(part.lower) for part in boxes_where(question.flat, start)) > 1 for start in question.starts)


def _check_replay(system: RandomSystem, answer: Answer, context: str) -> None:
    if answer.trace is None:
        return
    outcome = replay(system.model.model, answer.trace, system.question, system.policy)
    assert outcome.accepted, f"{context}: {outcome.reason}"


@pytest.mark.parametrize("seed", range(300, 320))
def test_without_a_policy_all_labels_are_taken(seed: int) -> None:
    system = random_system(seed, with_policy=False)
    expected = naive_search(system.model.model, system.question, None)
    answer = verify(system.model, None, system.question, all_starts=True, slicing=False)
    assert answer.result.statistics["states"] == expected.states
    assert answer.result.statistics["transitions"] == len(expected.triples)
    assert answer.result.statistics.get("unsafe_path_length") == expected.shortest
