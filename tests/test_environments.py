"""Models written in Python: as JANI, as Gymnasium environments, and rolled out at random."""

from __future__ import annotations

import dataclasses
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest

from policyproof.api import verify
from policyproof.engines.simulation import Simulation, Simulator, simulate
from policyproof.engines.start_boxes import collect_start_boxes
from policyproof.model.building import ModelBuilder, between, element, outcome
from policyproof.model.convert import flat_network
from policyproof.model.flat import flatten
from policyproof.model.jani.model import ModelReader
from policyproof.model.jani.properties import read_property_entries
from policyproof.model.jani.write import write_model
from policyproof.model.json_text import Document, dumps, parse
from policyproof.model.properties import SafetyProperty
from policyproof.policy.network import Affine, Network
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget
from policyproof.run.errors import InvalidInput, UnsupportedFeature
from policyproof.zoo.warehouse import warehouse
from tests.support.naive import naive_search
from tests.support.random_models import random_system


def _read_back(model, properties=()):
    return ModelReader(Document(parse(dumps(write_model(model, properties))), "written"), {}).read()


def _gambler(goal: int = 4) -> ModelBuilder:
    builder = ModelBuilder("gambler")
    money = builder.integer("money", 0, goal, initial=2)
    for label, stake in (("careful", 1), ("bold", 2)):
        inside = (money >= stake) & (money <= goal - stake)
        win, lose = outcome({money: money + stake}, probability=0.6), outcome({money: money - stake}, probability=0.4)
        builder.edge(label, guard=inside & (money > 0) & (money < goal), outcomes=[win, lose])
    return builder


def test_a_built_model_is_the_same_after_being_written_and_read() -> None:
    loaded = warehouse()
    prop = loaded.property()
    jani = _read_back(loaded.model, [prop])
    assert dataclasses.replace(jani.model, aliases={}) == loaded.model
    assert read_property_entries(jani)[0].read() == prop


@pytest.mark.parametrize("seed", range(40))
def test_flattened_models_behave_as_the_networks(seed: int) -> None:
    """States and transitions of the flattened network, read back from JANI, are those of the original."""
    system = random_system(seed, with_policy=False)
    flat = flatten(system.model.model)
    network = flat_network(flat, nondeterministic=True)
    back = _read_back(network).model
    initial = SafetyProperty("initial", unsafe=system.question.unsafe, start=None)
    expected = naive_search(system.model.model, initial, None)
    if expected.undefined_unsafe or expected.start_states == 0:
        return
    answer = verify(back, None, dataclasses.replace(initial, start=None), all_starts=True, slicing=False)
    assert answer.result.statistics["states"] == expected.states
    assert answer.result.statistics["transitions"] == len(expected.triples)


def test_flattening_keeps_probabilities_where_it_can() -> None:
    model = _gambler().model()
    network = flat_network(flatten(model))
    shares = [destination.probability for edge in network.automata[0].edges for destination in edge.destinations]
    assert sorted(float(share.exact) for share in shares) == [0.4, 0.4, 0.6, 0.6]
    builder = ModelBuilder("edge of the world")
    x = builder.integer("x", 0, 3, initial=0)
    builder.edge("go", outcomes=[outcome({x: x + 1}, probability=0.5), outcome({x: x + 2}, probability=0.5)])
    with pytest.raises(UnsupportedFeature, match="different conditions"):
        flat_network(flatten(builder.model()))
    assert flat_network(flatten(builder.model()), nondeterministic=True).type == "lts"


def test_mistakes_in_a_model_are_named() -> None:
    builder = ModelBuilder("mistakes")
    x = builder.integer("x", 0, 3, initial=0)
    with pytest.raises(InvalidInput, match="declared twice"):
        builder.integer("x", 0, 1)
    with pytest.raises(InvalidInput, match="outside the domain"):
        builder.integer("y", 0, 1, initial=2)
    with pytest.raises(InvalidInput, match="no location 'nowhere'"):
        builder.edge("go", to="nowhere")
    builder.edge("go", update={x: x / 2})
    with pytest.raises(InvalidInput, match="cannot take the value"):
        builder.model()
    builder = ModelBuilder("text")
    builder.integer("x", 0, 3, initial=0)
    builder.edge("go", guard="x < y")
    with pytest.raises(InvalidInput, match="unknown variable or constant 'y', at column 5"):
        builder.model()
    with pytest.raises(TypeError, match="no truth value"):
        bool(x.equals(1))


def test_text_and_expressions_mean_the_same() -> None:
    def build(*, as_text: bool):
        builder = ModelBuilder("same")
        x = builder.integer("x", 0, 9, initial=0)
        cells = builder.array("cell", 3, 0, 2, initial=[0, 1, 2])
        k = builder.constant("K", 4)
        if as_text:
            builder.edge("go", guard="x < K & cell[1] != 0", update={"x": "x + cell[x % 3]"})
        else:
            builder.edge("go", guard=(x < k) & cells[1].differs(0), update={x: x + element(cells, x % 3)})
        return builder.model()

    assert build(as_text=True) == build(as_text=False)


def test_floats_mean_the_decimals_they_show() -> None:
    builder = ModelBuilder("decimal")
    x = builder.real("x", 0, 0.3, initial=0.1)
    assert builder.model().variables[0].domain.upper == Fraction(3, 10)
    assert (x + 0.1).arguments[1].exact == Fraction(1, 10)
    with pytest.raises(InvalidInput, match="no number"):
        x + math.nan


# Simulation


def _run(simulator, condition, **options) -> Simulation:
    last = None
    for event in simulate(simulator, condition, **options):
        last = event
    assert isinstance(last, Simulation)
    return last


def test_rollouts_have_the_frequencies_of_the_model() -> None:
    """Playing boldly from 2 of 4 wins at once with probability 0.6."""
    builder = _gambler()
    model = builder.build(builder.safety("broke", unsafe="money = 0", goal="money = 4"))
    flat = flatten(model.model)
    bold = Policy(
        (Network((Affine(np.zeros((2, 1)), np.array([0.0, 1.0])),), 1),),
        (model.model.variables[0].expression,),
        ("careful", "bold"),
    )
    prop = model.property("broke")
    result = _run(Simulator(flat, bold), flat.initial, unsafe=prop.unsafe, goal=prop.goal, rollouts=20_000, seed=3)
    assert abs(result.success / 20_000 - 0.6) < 0.015
    assert result.success + result.failure == 20_000
    assert result.steps.max() == 1
    # Without a policy each label is drawn with equal chance, and the random walk takes its time.
    free = _run(Simulator(flat), flat.initial, unsafe=prop.unsafe, goal=prop.goal, rollouts=20_000, seed=3)
    ruin = (0.4 / 0.6) ** 2
    careful = 1 / (1 + ruin)
    # From 2: a bold step ends it; a careful one leads to 1 or 3, where only a careful step is possible.
    up, down = 0.6 + 0.4 * 0, 0.4
    value = _solve_mixed(up, down)
    assert abs(free.success / 20_000 - value) < 0.015
    assert careful > 0.6


def _solve_mixed(up: float, down: float) -> float:
    """v2 = (bold + careful) / 2, bold = 0.6, careful = 0.6 v3 + 0.4 v1, v3 = 0.6 + 0.4 v2, v1 = 0.6 v2."""
    v2 = 0.6
    for _ in range(200):
        v3, v1 = up + down * v2, up * v2
        v2 = 0.5 * 0.6 + 0.5 * (up * v3 + down * v1)
    return v2


def test_state_dependent_probabilities_are_respected() -> None:
    builder = ModelBuilder("urn")
    red = builder.integer("red", 0, 3, initial=1)
    drawn = builder.integer("drawn", 0, 2, initial=0)
    builder.edge(
        "draw",
        guard=drawn.equals(0),
        outcomes=[outcome({drawn: 1}, probability="red / 4"), outcome({drawn: 2}, probability="1 - red / 4")],
    )
    model = builder.build(builder.safety("red", unsafe=drawn.equals(1), goal=drawn.equals(2)))
    flat = flatten(model.model)
    prop = model.property()
    result = _run(Simulator(flat), flat.initial, unsafe=prop.unsafe, goal=prop.goal, rollouts=10_000, seed=1)
    assert abs(result.failure / 10_000 - 0.25) < 0.02
    assert red.kind == "int"


def test_what_the_environment_chooses_does_not_weigh_a_destination() -> None:
    """One destination leaves nine values open, the other none: they are as likely as the model says."""
    builder = ModelBuilder("lottery")
    prize = builder.integer("prize", 0, 10, initial=0)
    guard = prize.equals(0)
    drawn, lost = outcome({prize: between(1, 9)}, probability=0.3), outcome({prize: 10}, probability=0.7)
    builder.edge("draw", guard=guard, outcomes=[drawn, lost])
    # Another edge with the same label: edges are drawn uniformly.
    builder.edge("draw", guard=guard, update={prize: 10})
    flat = flatten(builder.build(builder.safety("lost", unsafe=prize.equals(10))).model)
    simulator, random = Simulator(flat), np.random.default_rng(5)
    words = simulator.layout.pack(np.repeat(simulator.sample_starts(flat.initial, 1, random, Budget()), 40_000, axis=0))
    following, _, moved = simulator.step(words, None, random)
    assert moved.all()
    counts = np.bincount(simulator.layout.unpack(following)[:, 0], minlength=11)
    assert counts[0] == 0
    assert abs(counts[10] / 40_000 - (0.5 + 0.5 * 0.7)) < 0.01
    expected = 40_000 * 0.5 * 0.3 / 9
    assert (np.abs(counts[1:10] - expected) < 6 * np.sqrt(expected)).all()


def test_real_dynamics_are_simulated_in_floats() -> None:
    builder = ModelBuilder("pendulum")
    theta, omega = builder.real("theta", initial=0), builder.real("omega", initial=0)
    builder.initially("theta >= -0.5 & theta <= 0.5 & omega = 0")
    free = dataclasses.replace(builder.model(), variables=tuple(
        dataclasses.replace(item, initial=None) for item in builder.model().variables
    ))  # fmt: skip
    assert free.variables[0].initial is None
    moved = "omega + 15 * sin(theta) * 0.05"
    builder.edge("swing", update={omega: moved, theta: f"theta + 0.05 * ({moved})"})
    model = dataclasses.replace(builder.model(), variables=free.variables)
    flat = flatten(model)
    simulator = Simulator(flat)
    states = simulator.sample_starts(flat.initial, 50, np.random.default_rng(0), Budget())
    values = states.view(np.float64)
    angles, speeds = values[:, 0].copy(), values[:, 1].copy()
    assert (np.abs(angles) <= 0.5).all()
    assert np.ptp(angles) > 0.5
    assert (speeds == 0).all()
    words = simulator.layout.pack(states)
    for _ in range(10):
        words, _, moved_flags = simulator.step(words, None, np.random.default_rng(1))
        assert moved_flags.all()
        speeds = speeds + 15 * np.sin(angles) * 0.05
        angles = angles + 0.05 * speeds
    result = simulator.layout.unpack(words).view(np.float64)
    assert np.allclose(result[:, 0], angles, rtol=0, atol=1e-12)
    assert np.allclose(result[:, 1], speeds, rtol=0, atol=1e-12)


def test_stuck_and_unfinished_rollouts_are_told_apart() -> None:
    builder = ModelBuilder("line")
    x = builder.integer("x", 0, 9, initial=0)
    builder.edge("go", guard=x < 5, update={x: x + 1})
    builder.edge("rest", update={x: x})
    model = builder.build()
    flat = flatten(model.model)
    go = Policy((Network((Affine(np.zeros((2, 1)), np.array([1.0, 0.0])),), 1),), (x,), ("go", "rest"))
    stuck = _run(Simulator(flat, go), flat.initial, rollouts=10, maximal_steps=20)
    assert (stuck.stuck, stuck.unfinished) == (10, 0)
    assert stuck.example_labels == ("go",) * 5
    rest = dataclasses.replace(go, labels=("rest", "go"))
    unfinished = _run(Simulator(flat, rest), flat.initial, rollouts=10, maximal_steps=20)
    assert (unfinished.stuck, unfinished.unfinished) == (0, 10)


def test_continuous_actions_drive_the_environment() -> None:
    """The output is the value of the variable `force`, which the environment reads."""
    builder = ModelBuilder("cart")
    position, force = builder.real("position", initial=1), builder.real("force", initial=0)
    builder.edge("move", update={position: position + force})
    flat = flatten(builder.model())
    network = Network((Affine(np.array([[-0.5]]), np.array([0.0])),), 1, "float64")
    policy = Policy((network,), (position,), action_variables=("force",))
    result = _run(Simulator(flat, policy), flat.initial, rollouts=1, maximal_steps=3)
    assert [state["position"] for state in result.example] == [1.0, 0.5, 0.25, 0.125]


# Gymnasium


gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")


def test_gymnasium_accepts_the_environment() -> None:
    from gymnasium.utils.env_checker import check_env

    from policyproof.training.gym_environment import to_gym

    environment = to_gym(warehouse(), render_mode="ansi")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(environment, skip_render_check=True)
    assert isinstance(environment.render(), str)


def test_an_episode_follows_the_model() -> None:
    from policyproof.training.gym_environment import to_gym

    environment = to_gym(warehouse(), maximal_steps=5)
    names = environment.observed
    assert names == ("x", "y", "loaded", "delivered", "person0", "person1")
    start = {"x": 1, "y": 2, "loaded": False, "delivered": False, "person0": 2, "person1": 0}
    observation, info = environment.reset(seed=1, options={"state": start})
    assert dict(zip(names, observation.tolist(), strict=True)) == {**{k: float(v) for k, v in start.items()}}
    assert not info["unsafe"]
    masks = environment.action_masks()
    assert masks.tolist() == [True] * 5
    # Into the aisle where a person stands: unsafe unless the person steps aside.
    outcomes = set()
    for seed in range(30):
        environment.reset(seed=seed, options={"state": start})
        _, reward, terminated, _, info = environment.step(environment.labels.index("right"))
        outcomes.add((info["unsafe"], terminated, reward))
    assert outcomes == {(True, True, -1.0), (False, False, 0.0)}
    # A wall makes a label inapplicable: the episode is stuck.
    environment.reset(seed=0, options={"state": {**start, "x": 0}})
    assert not environment.action_masks()[environment.labels.index("left")]
    _, reward, terminated, _, info = environment.step(environment.labels.index("left"))
    assert info["stuck"]
    assert terminated
    assert reward == -1.0


def test_the_environment_is_the_verified_model() -> None:
    """What random episodes visit is reachable in the model, and their transitions are the model's."""
    from policyproof.training.gym_environment import to_gym

    loaded = warehouse()
    environment = to_gym(loaded)
    flat = flatten(loaded.model)
    simulator = Simulator(flat)
    rng = np.random.default_rng(5)
    for episode in range(20):
        environment.reset(seed=episode)
        for _ in range(30):
            before = environment._words.copy()
            action = int(rng.integers(len(environment.labels)))
            _, _, terminated, _, info = environment.step(action)
            label = flat.labels.index(environment.labels[action])
            found = simulator.generator.expand(before, [label])
            if info["stuck"]:
                assert len(found) == 0
            else:
                assert (found.words == environment._words).all(axis=1).any()
            if terminated:
                break


def test_start_states_are_drawn_from_the_start_condition() -> None:
    from policyproof.training.gym_environment import to_gym

    builder = ModelBuilder("starts")
    x = builder.integer("x", 0, 9)
    builder.edge("go", update={x: between(0, 9)})
    model = builder.build(builder.safety("nine", unsafe=x.equals(9), start=(x > 2) & (x < 6)))
    environment = to_gym(model)
    seen = {float(environment.reset(seed=seed)[0][0]) for seed in range(60)}
    assert seen == {3.0, 4.0, 5.0}


def test_no_start_state_is_left_out_because_its_box_is_found_late() -> None:
    """More boxes than are kept: those that are kept are a sample of all, in proportion to their sizes."""
    builder = ModelBuilder("many boxes")
    x, y = builder.integer("x", 0, 99), builder.integer("y", 0, 99)
    z = builder.integer("z", 0, 9)
    builder.edge("stay", update={x: x})
    flat = flatten(builder.model())
    # Half of the columns allow ten values of z, the others one.
    condition = ((x * 7 + y * 3) % 5).equals(0) & ((x % 2).equals(0) | z.equals(0))
    every = collect_start_boxes(flat, condition, Budget())
    assert len(every) > 2000
    some = collect_start_boxes(flat, condition, Budget(), most=500)
    assert len(some) == 500
    middle = np.array([49.5, 49.5])
    for boxes in (every, some):
        assert boxes.share.sum() == pytest.approx(1.0)
        for column in (0, 1):
            assert boxes.share @ boxes.lower[:, column] == pytest.approx(middle[column], abs=5)
        # Of 11 states 10 lie in even columns.
        assert boxes.share @ (boxes.lower[:, 0] % 2 == 0) == pytest.approx(10 / 11, abs=0.05)
