"""The worked example: a Gymnasium environment written as a model, and a policy of Stable-Baselines3 on it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import policyproof as pp
from policyproof.engines.simulation import Simulation, Simulator, simulate
from policyproof.model.flat import flatten

FOLDER = Path(__file__).parent.parent.parent / "examples" / "cartpole"
NAMES = ("cartpole", "compare", "ask", "train")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The example's own modules, imported as its scripts import each other."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield {name: importlib.import_module(name) for name in NAMES[:3]}
    for name in NAMES:
        sys.modules.pop(name, None)


def test_the_model_is_gymnasiums_environment(example: dict[str, ModuleType]) -> None:
    difference, episodes = example["compare"].compare(10_000)
    assert difference < 1e-9
    assert episodes > 100


def test_a_wrong_sign_is_found(example: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example["cartpole"], "GRAVITY", -9.8)
    difference, _ = example["compare"].compare(3)
    assert difference > 1e-3


def test_a_wrong_end_is_found(example: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example["cartpole"], "FAILURE", "x < -2.4 | x > 2.4 | theta > pi / 15")
    with pytest.raises(SystemExit, match="one of the two ends"):
        example["compare"].compare(2000)


def test_the_policy_is_small_and_keeps_the_pole_up(example: dict[str, ModuleType]) -> None:
    assert (FOLDER / "policy.zip").stat().st_size < 100_000
    model = example["cartpole"].cartpole()
    prop = model.property()
    flat = flatten(model.model)
    policy = pp.load_policy(FOLDER / "policy.json", model)
    *_, last = simulate(
        Simulator(flat, policy), flat.initial, unsafe=prop.unsafe, rollouts=200, maximal_steps=500, seed=1
    )
    assert isinstance(last, Simulation)
    assert last.unfinished == 200


def test_what_can_be_proved_is_what_is_written(example: dict[str, ModuleType]) -> None:
    ask = example["ask"]
    assert [ask.from_upright(steps).verdict for steps in (1, 2, 3)] == ["holds", "holds", "unknown"]
    assert ask.while_falling() == {
        "to the right": {"left": "impossible", "right": "possible"},
        "to the left": {"left": "possible", "right": "impossible"},
    }
    # And sampling finds nothing else.
    model = example["cartpole"].cartpole()
    policy = pp.load_policy(FOLDER / "policy.json", model)
    random = np.random.default_rng(5)
    for region, label in zip(ask.FALLING.values(), (1, 0), strict=True):
        ends = np.array([region[item.name] for item in model.model.variables])
        states = random.uniform(ends[:, 0], ends[:, 1], (2000, 4))
        assert (policy.networks[0].evaluate(states)[0].argmax(axis=1) == label).all()


def test_training_gives_a_policy_that_is_read(example: dict[str, ModuleType], tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed: nothing to train with")
    importlib.import_module("train").train(str(tmp_path / "policy.zip"), steps=1024)
    interface = json.loads((FOLDER / "policy.json").read_text())
    (tmp_path / "policy.json").write_text(json.dumps(interface))
    policy = pp.load_policy(tmp_path / "policy.json", example["cartpole"].cartpole())
    assert policy.networks[0].hidden_sizes == [32, 32]
    assert policy.networks[0].piecewise_linear
