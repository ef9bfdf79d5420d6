"""Cruise control: the prudent policy is safe, the trusting one is not, and the model says why."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import policyproof as pp
from policyproof.model.flat import flatten
from policyproof.policy.formats import read_network
from policyproof.training.rollouts import roll_out
from policyproof.zoo import cruise_control_policies as policies
from policyproof.zoo.cruise_control import cruise_control

LABELS = ("accelerate", "keep", "brake")


def test_the_prudent_policy_never_crashes() -> None:
    model = cruise_control()
    policy = pp.load_policy(policies.FOLDER / "cruise-control-prudent.json", model)
    answer = pp.verify(model, policy)
    assert answer.verdict == "holds"
    assert answer.result.statistics["states"] > answer.result.statistics["start_states"] == 21 * 7 * 7


def test_the_trusting_policy_crashes() -> None:
    model = cruise_control()
    policy = pp.load_policy(policies.FOLDER / "cruise-control-trusting.json", model)
    answer = pp.verify(model, policy)
    assert answer.verdict == "violated"
    assert answer.trace is not None
    assert answer.trace.states[-1].variables["gap"] == 0
    assert pp.replay(model.model, answer.trace, answer.question, policy).accepted


@pytest.mark.parametrize("real", [False, True])
def test_it_is_read_back_as_it_was_written(real: bool, tmp_path: Path) -> None:
    model = cruise_control(real=real)
    model.save(tmp_path / "model.jani")
    read = pp.load_model(tmp_path / "model.jani")
    assert read.model == model.model
    assert read.property() == model.property()


def test_the_states_are_those_of_a_search_by_hand() -> None:
    """Without a policy: the numbers of states and of steps."""
    longest, fastest, nearest = 12, 3, 6
    model = cruise_control(longest=longest, fastest=fastest, nearest_start=nearest)
    answer = pp.verify(model, all_starts=True)
    found = set(itertools.product(range(nearest, longest + 1), range(fastest + 1), range(fastest + 1)))
    pending, steps = list(found), set()
    while pending:
        state = gap, own, lead = pending.pop()
        if gap == 0:
            continue
        for change, other in itertools.product((1, 0, -1), (-1, 0, 1)):
            new_own = min(max(own + change, 0), fastest)
            new_lead = lead + other
            if not 0 <= new_lead <= fastest:
                continue
            new = min(max(gap + lead - new_own, 0), longest), new_own, new_lead
            steps.add((state, change, new))
            if new not in found:
                found.add(new)
                pending.append(new)
    assert answer.result.statistics["states"] == len(found)
    # Unsafe states are not expanded, by either.
    assert answer.result.statistics["transitions"] == len(steps)


@pytest.mark.parametrize("recipe", policies.RECIPES, ids=lambda recipe: recipe.name)
def test_policies_follow_their_rules_as_their_cards_say(recipe: policies.Recipe) -> None:
    card = json.loads((policies.FOLDER / f"{recipe.name}.card.json").read_text())
    network = read_network(policies.FOLDER / f"{recipe.name}.onnx")
    table = policies.states()
    chosen = network.evaluate(table.astype(float))[0].argmax(axis=1)
    correct = policies.advised(table, lead_brakes=recipe.lead_brakes)[np.arange(len(table)), chosen]
    assert card["remarks"] == [f"follows its rule in {100 * correct.mean():.2f} % of the states"]
    model = cruise_control()
    assert card["model"]["sha256"] == model.fingerprint()
    policy = pp.load_policy(policies.FOLDER / f"{recipe.name}.json", model)
    measured = roll_out(flatten(model.model), model.property(), policy, rollouts=1000, maximal_steps=200, seed=1)
    # Five standard deviations of 1,000 rollouts.
    assert measured.rates.failure == pytest.approx(card["rates"]["unsafe"], abs=0.08)


def test_the_rules_are_what_they_claim() -> None:
    """By trying everything: a prudent label leaves a way to stay safe whatever the lead car does."""

    def can_stop(gap: int, own: int, lead: int, *, lead_brakes: bool) -> bool:
        if gap <= 0:
            return False
        if own == 0:
            return True
        slower = own - 1
        lead_after = max(lead - 1, 0) if lead_brakes else lead
        return can_stop(gap + lead - slower, slower, lead_after, lead_brakes=lead_brakes)

    for lead_brakes in (True, False):
        table = policies.states()
        advised = policies.advised(table, lead_brakes=lead_brakes)
        for (gap, own, lead), row in zip(table.tolist(), advised.tolist(), strict=True):
            speeds = [min(max(own + change, 0), 6) for change in (1, 0, -1)]
            next_lead = max(lead - 1, 0) if lead_brakes else lead
            safe = [can_stop(gap + lead - new, new, next_lead, lead_brakes=lead_brakes) for new in speeds]
            fastest = max((new for new, good in zip(speeds, safe, strict=True) if good), default=None)
            expected = [good and new == fastest for new, good in zip(speeds, safe, strict=True)]
            assert row == (expected if any(expected) else [False, False, True])


def test_a_policy_is_trained_in_seconds() -> None:
    _, agreement = policies.train(policies.Recipe("quick", True, epochs=60))
    assert agreement > 0.9
