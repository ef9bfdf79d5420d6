"""Training: the parts against naive twins, a policy from nothing to a proof, and what is kept of it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import shlex
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policyproof.api import verify
from policyproof.cli import run
from policyproof.engines.result import drive
from policyproof.model.building import ModelBuilder
from policyproof.model.flat import flatten
from policyproof.model.grammar import parse_expression
from policyproof.model.source import LoadedModel, load_model
from policyproof.policy.load import fingerprint, load_policy
from policyproof.run.budget import Budget
from policyproof.run.errors import InvalidInput
from policyproof.training.deep_q import Settings, Trained, _Window, train
from policyproof.training.distil import UNREACHABLE, Effort, distil, lesson_of
from policyproof.training.environments import Environments, Happened, Rewards, choose_inputs
from policyproof.training.gym_environment import to_gym
from policyproof.training.q_network import Adam, QNetwork
from policyproof.training.replay import SMALLEST_PRIORITY, Replay, SumTree
from policyproof.training.rollouts import policy_of, roll_out
from policyproof.training.viability import Grid, among_viable, viable
from policyproof.zoo import recipes, registry
from tests.test_schemas import check, refuses

TINY = Settings(
    hidden=(16, 16), updates=1200, environments=64, batch=128, maximal_steps=30, evaluations=4,
    evaluation_rollouts=200, rewards=Rewards(step=-0.01),
)  # fmt: skip


def grid(size: int = 5) -> LoadedModel:
    """From the left wall to the right one, around a hole in the middle; the walls cannot be walked through."""
    builder = ModelBuilder("grid")
    x, y = builder.integer("x", 0, size - 1), builder.integer("y", 0, size - 1)
    luck = builder.integer("luck", 0, 3, initial=0)
    builder.initially(x.equals(0))
    for label, update in (("right", {x: x + 1}), ("left", {x: x - 1}), ("up", {y: y + 1}), ("down", {y: y - 1})):
        builder.edge(label, update=update)
    assert luck.is_variable
    middle = size // 2
    hole = (x.equals(middle) | x.equals(middle + 1)) & y.equals(middle)
    return builder.build(builder.safety("no-fall", unsafe=hole, goal=x.equals(size - 1)))


@pytest.fixture(scope="module")
def trained() -> Trained:
    model = grid()
    flat = flatten(model.model)
    return drive(train(flat, model.property(), reads=("x", "y"), settings=TINY))


# The network


@pytest.mark.parametrize("dueling", [False, True])
def test_gradients_are_finite_differences(dueling: bool) -> None:
    random = np.random.default_rng(3)
    network = QNetwork((4, 7, 6, 3), random, dueling=dueling)
    network.parameters[:] = random.normal(size=len(network.parameters)) * 0.5
    inputs = random.normal(size=(11, 4)).astype(np.float32)
    error = random.normal(size=(11, 3)).astype(np.float32)
    gradient = network.gradient(network.forward(inputs), error)

    def loss(parameters: np.ndarray) -> float:
        # In float64, so that the differences are exact but for the kinks.
        values, first = inputs.astype(np.float64), 0
        widths = [4, 7, 6, 3 + dueling]
        for number, (columns, rows) in enumerate(itertools.pairwise(widths)):
            weights = parameters[first : first + rows * columns].reshape(rows, columns)
            values = values @ weights.T + parameters[first + rows * columns : first + rows * columns + rows]
            first += rows * columns + rows
            values = np.maximum(values, 0) if number < 2 else values
        if dueling:
            values = values[:, :1] + values[:, 1:] - values[:, 1:].mean(axis=1, keepdims=True)
        return float((values * error).sum())

    parameters = network.parameters.astype(np.float64)
    for index in range(len(parameters)):
        step = np.zeros_like(parameters)
        step[index] = 1e-6
        difference = (loss(parameters + step) - loss(parameters - step)) / 2e-6
        assert gradient[index] == pytest.approx(difference, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("dueling", [False, True])
def test_the_exported_network_has_the_same_outputs(dueling: bool) -> None:
    random = np.random.default_rng(4)
    network = QNetwork((3, 8, 8, 5), random, dueling=dueling)
    subtract, divide = np.array([4.0, 0.0, -2.0]), np.array([3.0, 1.0, 7.0])
    raw = random.integers(-9, 9, size=(50, 3)).astype(np.float64)
    exported = network.export(subtract, divide)
    expected = network.outputs(((raw - subtract) / divide).astype(np.float32))
    assert exported.hidden_sizes == [8, 8]
    assert np.allclose(exported.evaluate(raw)[0], expected, atol=1e-5)


def test_adam_is_the_published_rule() -> None:
    random = np.random.default_rng(0)
    parameters = random.normal(size=5).astype(np.float32)
    expected, first, second = parameters.astype(np.float64), np.zeros(5), np.zeros(5)
    adam = Adam(5)
    for step in range(1, 50):
        gradient = random.normal(size=5).astype(np.float32)
        adam.step(parameters, gradient, 1e-2)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient.astype(np.float64) ** 2
        expected -= 1e-2 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    assert np.allclose(parameters, expected, atol=1e-4)
    before = parameters.copy()
    Adam(5, longest=1e-3).step(parameters, np.full(5, 1e9, dtype=np.float32), 1e-2)
    assert np.abs(parameters - before).max() < 0.011


# The memory


@pytest.mark.parametrize("seed", range(5))
def test_the_sum_tree_is_a_running_sum(seed: int) -> None:
    random = np.random.default_rng(seed)
    size = int(random.integers(1, 70))
    tree, weights = SumTree(size), np.zeros(size)
    for _ in range(30):
        indices = random.integers(size, size=9)
        values = np.where(random.random(9) < 0.3, 0.0, random.random(9))
        tree.change(indices, values)
        for index, value in zip(indices, values, strict=True):
            weights[index] = value
        assert tree.total == pytest.approx(weights.sum())
        if tree.total > 0:
            amounts = random.random(40) * tree.total
            expected = np.searchsorted(np.cumsum(weights), amounts, side="right")
            assert (tree.find(amounts) == expected).all()
    # Rounding must not lead to what has no weight.
    tree.change(np.arange(size), np.zeros(size))
    tree.change(np.array([0]), np.array([0.1]))
    assert tree.find(np.array([tree.total])) == [0]


class NaiveReplay:
    """A list of (transition, priority)."""

    def __init__(self, capacity: int, alpha: float) -> None:
        self.capacity, self.alpha, self.greatest = capacity, alpha, 1.0
        self.rows: list[list[float]] = []
        self.oldest = 0

    def add(self, value: float) -> None:
        if len(self.rows) < self.capacity:
            self.rows.append([value, self.greatest])
        else:
            self.rows[self.oldest] = [value, self.greatest]
            self.oldest = (self.oldest + 1) % self.capacity

    def judge(self, index: int, error: float) -> None:
        priority = abs(error) + SMALLEST_PRIORITY
        self.greatest = max(self.greatest, priority)
        self.rows[index][1] = priority

    def probabilities(self) -> np.ndarray:
        powers = np.array([priority for _, priority in self.rows]) ** self.alpha
        return powers / powers.sum()


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_the_replay_is_its_naive_twin(alpha: float) -> None:
    random = np.random.default_rng(8)
    replay = Replay(50, {"value": ((), np.float64)}, random, alpha=alpha)
    naive = NaiveReplay(50, alpha)
    for round_ in range(12):
        values = random.random(7)
        replay.add({"value": values})
        for value in values:
            naive.add(value)
        assert replay.count == len(naive.rows)
        indices = random.permutation(replay.count)[:5]
        errors = random.normal(size=5) * round_
        replay.judge(indices, errors)
        for index, error in zip(indices, errors, strict=True):
            naive.judge(int(index), float(error))
    assert (replay.arrays["value"] == [value for value, _ in naive.rows]).all()
    probabilities = naive.probabilities()
    drawn, weights = replay.draw(200_000, beta=0.7)
    assert np.allclose(np.bincount(drawn, minlength=50) / 200_000, probabilities, atol=2e-3)
    expected = (50 * probabilities) ** -0.7
    assert np.allclose(weights, (expected / expected[drawn].max())[drawn], rtol=1e-5)


def test_a_transition_of_several_steps_ends_where_its_episode_ends() -> None:
    random = np.random.default_rng(2)
    count, length, steps = 40, 3, 12
    window = _Window(length, 0.5)
    reward = random.random((steps, count)).astype(np.float32)
    ended = random.random((steps, count)) < 0.2
    cut_off = ~ended & (random.random((steps, count)) < 0.2)
    position = np.arange(steps + 1, dtype=np.float32)
    for step in range(steps):
        inputs = np.full((count, 1), position[step + 1])
        happened = Happened(inputs, np.ones((count, 2), dtype=np.bool_), reward[step], ended[step], cut_off[step])
        learnt = window.add({"inputs": np.full((count, 1), position[step])}, happened)
        if step < length - 1:
            assert learnt is None
            continue
        assert learnt is not None
        begin = step - length + 1
        assert (learnt["inputs"] == begin).all()
        for one in range(count):
            total, factor, last = 0.0, 1.0, begin
            for last in range(begin, step + 1):
                total += factor * float(reward[last, one])
                factor *= 0.5
                if ended[last, one] or cut_off[last, one]:
                    break
            assert learnt["return"][one] == pytest.approx(total, rel=1e-5)
            assert learnt["following"][one] == last + 1
            assert learnt["discount"][one] == (0.0 if ended[last, one] else pytest.approx(factor))


# The environments


def _environments(model: LoadedModel, **options: Any) -> Environments:
    flat = flatten(model.model)
    given: dict[str, Any] = {
        "reads": choose_inputs(flat, (), ()), "count": 20, "maximal_steps": 15, "discount": 0.9,
        "random": np.random.default_rng(1),
    }  # fmt: skip
    return Environments(flat, model.property(), **{**given, **options})


def test_many_environments_are_the_gymnasium_environment_many_times() -> None:
    model = grid()
    rewards = Rewards(goal=2.0, unsafe=-3.0, stuck=-0.5, step=-0.1)
    many = _environments(model, rewards=rewards)
    gym = to_gym(model, goal_reward=2.0, unsafe_reward=-3.0, stuck_reward=-0.5, step_reward=-0.1)
    random = np.random.default_rng(0)
    age, seen = np.zeros(20, dtype=np.int64), set()
    for _ in range(60):
        states = [many.simulator.named(row) for row in many.simulator.layout.unpack(many.words)]
        labels = random.integers(4, size=20)
        possible = many.possible
        happened = many.step(labels)
        age += 1
        for one, (state, label) in enumerate(zip(states, labels, strict=True)):
            gym.reset(options={"state": state})
            assert (gym.action_masks() == possible[one]).all()
            observation, reward, terminated, _, info = gym.step(int(label))
            assert happened.reward[one] == pytest.approx(reward)
            assert happened.ended[one] == terminated
            assert happened.cut_off[one] == (not terminated and age[one] == 15)
            reading = many.reading
            assert np.allclose(happened.inputs[one], (observation - reading.subtract) / reading.divide)
            seen.update(name for name in ("stuck", "unsafe", "goal") if info[name])
        over = happened.ended | happened.cut_off
        age[over] = 0
        # A new episode has begun, at the left wall.
        assert (many.simulator.layout.unpack(many.words)[over, 0] == 0).all()
    assert seen == {"stuck", "unsafe", "goal"}


def test_shaping_adds_the_same_to_every_episode_from_a_state() -> None:
    """Discounted and summed up, the additional rewards are minus the potential of the first state."""
    model = grid()
    potential = parse_expression("x * 3 - y", model.model)
    plain = _environments(model, count=1)
    shaped = _environments(model, count=1, potential=potential)
    random = np.random.default_rng(5)
    for _ in range(20):
        (start,) = plain.simulator.layout.unpack(plain.words)
        total, factor = 0.0, 1.0
        while True:
            label = random.integers(4, size=1)
            first, second = plain.step(label), shaped.step(label)
            assert (plain.words == shaped.words).all()
            total += factor * float(second.reward[0] - first.reward[0])
            factor *= 0.9
            if first.ended[0] or first.cut_off[0]:
                break
        if first.ended[0]:
            assert total == pytest.approx(-(3 * start[0] - start[1]), abs=1e-5)


def test_inputs_are_scaled_and_reals_are_read_as_reals() -> None:
    builder = ModelBuilder("tank")
    level, valve = builder.real("level", initial=0), builder.boolean("valve", initial=False)
    count = builder.integer("count", -3, 5, initial=1)
    builder.edge("open", update={level: level + 0.5, valve: True})
    builder.edge("close", update={level: level - 2, valve: False, count: count})
    model = builder.build(builder.safety("full", unsafe=level >= 4))
    many = _environments(model)
    assert many.reading.names == ("level", "valve", "count")
    assert np.allclose(many.inputs, np.tile([0.0, -1.0, 0.0], (20, 1)))
    happened = many.step(np.zeros(20, dtype=np.int64))
    assert np.allclose(happened.inputs[:, 0] * many.reading.divide[0], 0.5)
    # Random episodes go down for long, and up to 4 at most.
    assert 10 < many.reading.divide[0] < 200


def test_what_the_environment_does_by_itself_makes_every_label_possible() -> None:
    builder = ModelBuilder("clock")
    hour = builder.integer("hour", 0, 11, initial=0)
    builder.edge("wind", guard=hour.equals(3), update={hour: 0})
    builder.edge(None, guard=hour < 6, update={hour: hour + 1})
    model = builder.build(builder.safety("never", unsafe=hour > 11))
    many = _environments(model)
    for hours in range(7):
        assert many.possible.all() == (hours < 6)
        happened = many.step(np.zeros(20, dtype=np.int64))
        if hours == 6:
            assert happened.ended.all()
        elif hours == 3:
            many.words = many.simulator.layout.pack(np.tile([4, 0], (20, 1)))
            many.possible = many._possible(many.words)


def test_inputs_are_chosen_by_patterns() -> None:
    flat = flatten(registry.model("blocksworld-4").model)
    names = choose_inputs(flat, (), ("cost_*", "step_cost"))
    assert names == choose_inputs(flat, ("hand*", "on_table", "position_?", "clear_*"), ())
    assert "position_4" in names
    with pytest.raises(InvalidInput, match=r"no variable matches 'price\*'"):
        choose_inputs(flat, ("price*",), ())
    with pytest.raises(InvalidInput, match="no variable at all"):
        choose_inputs(flat, ("cost_*",), ("cost_*",))


def test_every_start_over_is_an_error() -> None:
    builder = ModelBuilder("over")
    x = builder.integer("x", 0, 3, initial=3)
    builder.edge("go", update={x: x})
    with pytest.raises(InvalidInput, match="at the goal already"):
        _environments(builder.build(builder.safety("no", unsafe=x < 0, goal=x.equals(3))))


# From nothing to a proof


def test_a_tiny_policy_is_learnt_and_proved_safe(trained: Trained) -> None:
    model = grid()
    flat = flatten(model.model)
    policy = policy_of(flat, trained.inputs, trained.network)
    measured = roll_out(flat, model.property(), policy, rollouts=1000, maximal_steps=30, seed=9)
    assert measured.rates.success >= 0.95
    assert measured.rates.stuck == 0
    # From every start state, luck included, for which 1000 rollouts are many: then it can be proved.
    if measured.rates.success == 1.0:
        assert verify(model, policy).verdict == "holds"
    assert trained.curve[-1].rates.success >= trained.curve[0].rates.success
    assert [point.updates for point in trained.curve] == [300, 600, 900, 1200]


def test_training_again_gives_the_same_numbers(trained: Trained) -> None:
    model = grid()
    flat = flatten(model.model)

    def weights(seed: int) -> list[bytes]:
        settings = dataclasses.replace(TINY, updates=60, seed=seed)
        network = drive(train(flat, model.property(), reads=("x", "y"), settings=settings)).network
        return [layer.weights.tobytes() for layer in network.layers if hasattr(layer, "weights")]

    assert weights(5) == weights(5)
    assert weights(5) != weights(6)


@pytest.mark.parametrize("variant", [{"dueling": True}, {"filter": True}, {"n_steps": 1, "alpha": 0.0}])
def test_variants_learn_too(variant: dict[str, Any]) -> None:
    model = grid()
    flat = flatten(model.model)
    settings = dataclasses.replace(TINY, **variant)
    result = drive(train(flat, model.property(), reads=("x", "y"), settings=settings))
    policy = policy_of(flat, result.inputs, result.network, filter=settings.filter)
    measured = roll_out(flat, model.property(), policy, rollouts=500, maximal_steps=30, seed=9)
    assert measured.rates.success >= 0.9


def test_training_stops_when_it_is_told_to() -> None:
    model = grid()
    flat = flatten(model.model)
    result = drive(train(flat, model.property(), reads=("x", "y"), settings=TINY, budget=Budget(0.0)))
    assert result.stopped is not None
    assert [point.updates for point in result.curve] == [1]


# The command line, and the card


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    grid().save(folder / "grid.jani")
    options = ["--hidden", "12,12", "--updates", "400", "--ignores", "luck", "--reward", "step=-0.01"]
    more = ["--shaping", "x * 0.1", "--steps", "30", "--rollouts", "2000", "--seed", "3"]
    assert run(["train", str(folder / "grid.jani"), "--out", str(folder / "walker"), *options, *more]) == 0
    return folder


def test_training_on_the_command_line(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = check("card", json.loads((kept / "walker.card.json").read_text()))
    model = load_model(kept / "grid.jani")
    policy = load_policy(kept / "walker.json", model)
    assert card["policy"]["reads"] == ["x", "y"]
    assert card["policy"]["sha256"] == fingerprint(policy)
    assert card["model"]["sha256"] == model.fingerprint()
    assert "--shaping 'x * 0.1'" in card["command"]
    assert card["rates"]["success"] > 0.8
    # The rates are those that anybody gets from the files.
    arguments = ["simulate", str(kept / "grid.jani"), "--policy", str(kept / "walker.json"), "--rollouts", "2000"]
    assert run([*arguments, "--steps", "30", "--seed", str(card["rates"]["seed"]), "--json"]) == 0
    statistics = json.loads(capsys.readouterr().out)["statistics"]
    assert statistics["success_rate"] == pytest.approx(card["rates"]["success"], abs=1e-5)
    assert statistics["failure_rate"] == pytest.approx(card["rates"]["unsafe"], abs=1e-5)
    curve = xml.etree.ElementTree.parse(kept / "walker.svg").getroot()
    lines = [part for part in curve if part.tag.endswith("polyline")]
    assert all(len(line.get("points", "").split()) == len(card["learning_curve"]) for line in lines)
    assert lines


def test_the_command_on_the_card_gives_the_card_again(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = json.loads((kept / "walker.card.json").read_text())
    monkeypatch.chdir(tmp_path)
    assert run(shlex.split(card["command"])[1:]) == 0
    assert json.loads(Path("walker.card.json").read_text()) == card
    assert Path("walker.onnx").read_bytes() == (kept / "walker.onnx").read_bytes()


def test_a_time_limit_of_training(kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["train", "warehouse", "--out", str(tmp_path / "hasty"), "--rollouts", "100", "--timeout", "0"]
    assert run([*arguments, "--json"]) == 3
    card = check("card", json.loads(capsys.readouterr().out))
    assert "time limit" in card["stopped"]
    assert (tmp_path / "hasty.onnx").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no benchmark 'nowhere'"),
        (["nowhere.jani"], "nowhere.jani"),
        (["warehouse", "--hidden", "12;12"], "--hidden"),
        (["warehouse", "--hidden", "0"], "--hidden"),
        (["warehouse", "--reward", "joy=1"], "goal, model, step, stuck, unsafe"),
        (["warehouse", "--reward", "goal=nan"], "NAME=NUMBER"),
        (["warehouse", "--reads", "z*"], "'z*'"),
        (["warehouse", "--shaping", "x > 1"], "found a condition"),
        (["warehouse", "--const", "a=1"], "--param"),
        (["warehouse", "--param", "width"], "NAME=VALUE"),
        (["warehouse", "--property", "A[] x < 3"], "safety property"),
    ],
)
def test_mistakes_are_named(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", *arguments, "--out", str(tmp_path / "policy")]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_is_wrong_on_a_card_is_refused(kept: Path) -> None:
    card = json.loads((kept / "walker.card.json").read_text())
    for name in card:
        assert refuses("card", {key: value for key, value in card.items() if key != name})
        assert refuses("card", {**card, name: [[]]})
    assert refuses("card", {**card, "rates": {**card["rates"], "success": 1.5}})
    assert refuses("card", {**card, "more": 1})


def test_progress_is_rewarded_as_it_is_made() -> None:
    model = grid()
    progress = parse_expression("x * 3 - y", model.model)
    plain, rewarded = _environments(model), _environments(model, progress=progress)
    random = np.random.default_rng(5)
    for _ in range(30):
        before = plain.simulator.layout.unpack(plain.words)
        labels = random.integers(4, size=20)
        first, second = plain.step(labels), rewarded.step(labels)
        moved = (second.inputs * plain.reading.divide + plain.reading.subtract)[:, :2] - before[:, :2]
        assert np.allclose(second.reward - first.reward, moved @ np.array([3, -1]), atol=1e-5)


# Imitation


def test_the_solved_model_is_imitated() -> None:
    model = grid()
    flat = flatten(model.model)
    lesson = lesson_of(model, model.property(), ("x", "y"))
    states = lesson.inputs.astype(np.int64)
    assert len(states) == 25 == len({tuple(state) for state in states.tolist()})
    goal = (states[:, 0] == 4) | ((states[:, 0] >= 2) & (states[:, 0] <= 3) & (states[:, 1] == 2))
    assert (lesson.over == goal).all()
    assert {tuple(state) for state in states[lesson.starts].tolist()} == {(0, y) for y in range(5)}
    for number, (x, y) in enumerate(states.tolist()):
        for label, (dx, dy) in enumerate(((1, 0), (-1, 0), (0, 1), (0, -1))):
            there = (x + dx, y + dy)
            inside = 0 <= there[0] <= 4 and 0 <= there[1] <= 4
            if not inside:
                assert lesson.following[number, label] == UNREACHABLE
                assert not lesson.harmless[number, label]
            else:
                assert tuple(states[lesson.following[number, label]]) == there
                assert lesson.harmless[number, label] == (there not in {(2, 2), (3, 2)})
    # Below and above the hole, straight on is the only best way.
    row = states.tolist().index([2, 1])
    assert lesson.correct[row].tolist() == [True, False, False, False]
    effort = Effort(hidden=(16, 16), updates=600, batch=64, rate=1e-2)
    network = distil(lesson, effort)
    measured = roll_out(
        flat, model.property(), policy_of(flat, ("x", "y"), network), rollouts=500, maximal_steps=30, seed=2
    )
    assert measured.rates.success == 1.0
    again = distil(lesson, effort)
    assert (again.layers[0].weights == network.layers[0].weights).all()


# From where anybody can stay safe


@pytest.mark.parametrize("cautious", [True, False])
def test_what_is_lost_is_found_by_dynamic_programming(cautious: bool) -> None:
    """What runs away, x' = 1.2 x +- 0.1, can be held from |x| <= 0.5, and for k steps from a little more."""
    builder = ModelBuilder("runaway")
    x = builder.real("x")
    builder.initially("-1 <= x & x <= 1")
    for label, push in (("left", -0.1), ("right", 0.1)):
        builder.edge(label, update={x: x * 1.2 + push})
    model = builder.build(builder.safety("stays", unsafe="x < -0.9 | x > 0.9"))
    flat = flatten(model.model)
    grid = Grid(("x",), (-1.0,), (1.0,), (20_001,))
    points = grid.axes()[0]
    for steps in (0, 1, 3, 200):
        # Whoever holds x for k steps has |x| <= r_k: r_0 = 0.9, and 1.2 r_k - 0.1 = r_(k-1).
        limit = 0.9
        for _ in range(steps):
            limit = (limit + 0.1) / 1.2
        found = viable(flat, model.property(), grid, steps=steps, cautious=cautious)
        assert np.abs(points[found]).max() == pytest.approx(limit, abs=2e-3)
        states = np.array([[0.0], [limit - 2e-3], [limit + 2e-3], [1.5]])
        assert among_viable(grid, found, states, cautious=cautious).tolist() == [True, True, False, False]


def test_what_has_no_grid_is_refused() -> None:
    model = registry.model("pendulum", sticky=0.2)
    grid = Grid(("angle",), (-1.0,), (1.0,), (11,))
    with pytest.raises(InvalidInput, match="'angular_velocity'"):
        viable(flatten(model.model), model.property(), grid, steps=1, cautious=True)
    grid = Grid(("angle", "angular_velocity"), (-1.0, -1.0), (1.0, 1.0), (11, 11))
    with pytest.raises(InvalidInput, match="several outcomes"):
        viable(flatten(model.model), model.property(), grid, steps=1, cautious=True)


# What is committed


@functools.cache
def _model(benchmark: str, parameters: tuple[tuple[str, Any], ...]) -> LoadedModel:
    return registry.model(benchmark, **dict(parameters))


CARDS = sorted(file for file in recipes.FOLDER.glob("*.card.json") if recipes.is_made(file))


def test_recipes_have_names_of_their_own() -> None:
    names = [recipe.name for recipe in recipes.RECIPES]
    assert len(set(names)) == len(names)
    assert all(name.startswith(recipe.benchmark + "-") for name, recipe in zip(names, recipes.RECIPES, strict=True))
    assert CARDS
    with pytest.raises(InvalidInput, match="no recipe matches"):
        recipes.find("nothing-*")


@pytest.mark.parametrize("file", CARDS, ids=lambda file: file.name.removesuffix(".card.json"))
def test_cards_belong_to_the_policies_and_models_of_today(file: Path) -> None:
    card = check("card", json.loads(file.read_text()))
    (recipe,) = recipes.find(card["name"])
    model = _model(recipe.benchmark, tuple(recipe.parameters.items()))
    policy = load_policy(file.with_name(f"{card['name']}.json"), model)
    assert card["model"]["sha256"] == model.fingerprint(), "the model has changed since the policy was trained"
    assert card["policy"]["sha256"] == fingerprint(policy)
    assert card["rates"]["rollouts"] >= 10_000
    assert card["settings"] == json.loads(json.dumps(recipes.settings_on_card(recipe)))
    assert file.with_name(f"{card['name']}.onnx").stat().st_size < 100_000


# Others' training


def test_a_policy_of_stable_baselines_on_the_model(tmp_path: Path) -> None:
    """Trained on `to_gym()` by Stable-Baselines3, read from its zip, rolled out and verified here."""
    stable = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
    builder = ModelBuilder("corridor")
    x = builder.integer("x", 0, 6)
    builder.initially((x >= 2) & (x <= 4))
    builder.edge("left", update={x: x - 1})
    builder.edge("right", update={x: x + 1})
    model = builder.build(builder.safety("no-fall", unsafe=x.equals(0), goal=x.equals(6)))
    environment = to_gym(model, maximal_steps=30, step_reward=-0.01)
    learner = stable.PPO(
        "MlpPolicy", environment, n_steps=256, seed=0, device="cpu", policy_kwargs={"net_arch": [16]}
    )  # fmt: skip
    learner.learn(3000)
    learner.save(tmp_path / "learnt.zip")
    interface = {
        "schema": "policyproof-policy-1", "network": "learnt.zip",
        "inputs": [{"variable": name} for name in environment.observed], "labels": list(environment.labels),
    }  # fmt: skip
    (tmp_path / "policy.json").write_text(json.dumps(interface))
    policy = load_policy(tmp_path / "policy.json", model)
    flat = flatten(model.model)
    measured = roll_out(flat, model.property(), policy, rollouts=200, maximal_steps=30, seed=0)
    assert measured.rates.success == 1.0
    assert verify(model, policy).verdict == "holds"
