"""Pendulum, cartpole and vertical collision avoidance move as independent implementations say.

Gymnasium's own CartPole where the equations are the same, otherwise the published equations written
down once more.  Both the models as they are built and as they are read back from JANI are compared,
evaluated in batches on 10,000 random steps, and by the exact evaluation of the independent checker on
some of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from policyproof.evidence.plain_values import Interval, value_of
from policyproof.model.batch_kernel import evaluate_batch
from policyproof.model.expressions import Expression
from policyproof.model.flat import flatten
from policyproof.model.grammar import parse_condition
from policyproof.model.properties import SafetyProperty
from policyproof.model.source import LoadedModel, load_model
from policyproof.model.start_states import boxes_where
from policyproof.model.successors import SuccessorGenerator
from policyproof.run.errors import InvalidInput
from policyproof.zoo import cartpole, pendulum, verticalcas

STEPS = 10_000
EXACT_STEPS = 40
TOLERANCE = 1e-9

State = tuple[float, ...]


# The independent implementations: state and label to all possible successors.


def pendulum_moves(state: State, label: str) -> list[State]:
    return [pendulum_once(state, label)]


def sticky_pendulum_moves(state: State, label: str) -> list[State]:
    once = pendulum_once(state, label)
    return [once, pendulum_once(once, label)]


def pendulum_once(state: State, label: str) -> State:
    theta, omega = state
    u = {"left": -2.0, "right": 2.0}[label]
    omega = omega + (15 * math.sin(theta) + 3 * u) * 0.05
    theta = theta + 0.05 * omega
    return theta, min(max(omega, -8.0), 8.0)


GYMNASIUM: Any = gymnasium.make("CartPole-v1").unwrapped


def cartpole_moves(state: State, label: str) -> list[State]:
    GYMNASIUM.reset(seed=0)
    GYMNASIUM.state = state
    GYMNASIUM.step({"left": 0, "right": 1}[label])
    return [tuple(float(value) for value in GYMNASIUM.state)]


def sticky_cartpole_moves(state: State, label: str) -> list[State]:
    (once,) = cartpole_moves(state, label)
    return [once, *cartpole_moves(once, label)]


G = 32.2
ACCELERATIONS = {
    "COC": (-G / 8, 0, G / 8),
    "DNC": (-G / 3, -7 * G / 24, -G / 4),
    "DES1500": (-G / 3, -7 * G / 24, -G / 4),
    "DND": (G / 4, 7 * G / 24, G / 3),
    "CL1500": (G / 4, 7 * G / 24, G / 3),
    "SDES1500": (-G / 3,),
    "SDES2500": (-G / 3,),
    "SCL1500": (G / 3,),
    "SCL2500": (G / 3,),
}
ADVISORIES = ["COC", "DNC", "DND", "DES1500", "CL1500", "SDES1500", "SCL1500", "SDES2500", "SCL2500"]


def complies(label: str, v: float, low: float, high: float) -> bool:
    return {
        "COC": False,
        "DNC": v <= 0,
        "DND": v >= 0,
        "DES1500": v <= -low,
        "SDES1500": v <= -low,
        "CL1500": v >= low,
        "SCL1500": v >= low,
        "SDES2500": v <= -high,
        "SCL2500": v >= high,
    }[label]


def verticalcas_moves(state: State, label: str, low: float = 25.0, high: float = 2500 / 60) -> list[State]:
    h, v, tau, _ = state
    if tau == 0:
        return []
    accelerations = (0.0,) if complies(label, v, low, high) else ACCELERATIONS[label]
    number = 1.0 + ADVISORIES.index(label)
    return [(h - v - a / 2, v + a, tau - 1, number) for a in accelerations]


def printed_thresholds(state: State, label: str) -> list[State]:
    return verticalcas_moves(state, label, 1500.0, 2500.0)


def same_advisory_moves(state: State, label: str) -> list[State]:
    if ADVISORIES.index(label) + 1 == state[3]:
        return verticalcas_moves(state, label)
    h, v, tau, _ = state
    number = 1.0 + ADVISORIES.index(label)
    return [(h - v - a / 2, v + a, tau - 1, number) for a in ACCELERATIONS[label]] if tau > 0 else []


@dataclass(frozen=True)
class Case:
    """A model, its independent implementation, and how far from zero the variables of random states are."""

    model: LoadedModel
    moves: Callable[[State, str], list[State]]
    reach: tuple[float, ...]


CARTPOLE_REACH = (3.0, 3.0, 0.5, 4.0)
CASES: Mapping[str, Callable[[], Case]] = {
    "pendulum": lambda: Case(pendulum.pendulum(), pendulum_moves, (1.5, 8.0)),
    "pendulum, sticky": lambda: Case(pendulum.pendulum(sticky=0.2), sticky_pendulum_moves, (1.5, 8.0)),
    "cartpole": lambda: Case(cartpole.cartpole(), cartpole_moves, CARTPOLE_REACH),
    "cartpole, sticky": lambda: Case(
        cartpole.cartpole(limits="mosaic", sticky=0.2), sticky_cartpole_moves, CARTPOLE_REACH
    ),
    "verticalcas": lambda: Case(verticalcas.verticalcas(), verticalcas_moves, (1000.0, 50.0, 40, 9)),
    "verticalcas, ft/s": lambda: Case(
        verticalcas.verticalcas(thresholds="ft/s"), printed_thresholds, (9000.0, 3000.0, 40, 9)
    ),
    "verticalcas, same advisory": lambda: Case(
        verticalcas.verticalcas(same_advisory=True), same_advisory_moves, (1000.0, 50.0, 40, 9)
    ),
}


def random_states(case: Case, count: int, seed: int) -> list[State]:
    random = np.random.default_rng(seed)
    columns = []
    for item, reach in zip(case.model.model.variables, case.reach, strict=True):
        if item.domain.kind == "real":
            columns.append(random.uniform(-reach, reach, count))
        else:
            # The whole domain, so that ends of encounters are among them.
            columns.append(random.integers(*item.domain.range, size=count, endpoint=True).astype(float))
    return [tuple(row) for row in np.stack(columns, axis=1).tolist()]


def as_words(model: LoadedModel, generator: SuccessorGenerator, states: list[State]) -> np.ndarray:
    table = np.zeros((len(states), len(generator.variables)), dtype=np.int64)
    for number, item in enumerate(model.model.variables):
        values = np.array([state[number] for state in states])
        table[:, number] = values.view(np.int64) if item.domain.kind == "real" else values.astype(np.int64)
    return generator.layout.pack(table)


def as_floats(model: LoadedModel, generator: SuccessorGenerator, words: np.ndarray) -> np.ndarray:
    table = generator.layout.unpack(words)
    columns = [
        np.ascontiguousarray(table[:, number]).view(np.float64)
        if item.domain.kind == "real"
        else table[:, number].astype(float)
        for number, item in enumerate(model.model.variables)
    ]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_an_independent_implementation(name: str, tmp_path: Path) -> None:
    case = CASES[name]()
    case.model.save(tmp_path / "model.jani")
    read = load_model(tmp_path / "model.jani")
    assert read.model == case.model.model
    assert [read.property(item) for item in read.property_names] == [
        case.model.property(item) for item in case.model.property_names
    ]
    labels = case.model.model.labels
    states = random_states(case, STEPS, seed=1)
    chosen = np.random.default_rng(2).integers(0, len(labels), STEPS)
    # Sorted: an implementation may name the successors of a state in any order.
    expected = [sorted(case.moves(state, labels[label])) for state, label in zip(states, chosen, strict=True)]
    assert len({len(found) for found in expected}) == (1 if "verticalcas" not in name else 3)
    for model in (case.model, read):
        flat = flatten(model.model)
        generator = SuccessorGenerator(flat)
        words = as_words(model, generator, states)
        for number, label in enumerate(labels):
            rows = np.flatnonzero(chosen == number)
            found = generator.expand(words[rows], [flat.labels.index(label)])
            values = as_floats(model, generator, found.words)
            for place, row in enumerate(rows):
                mine = sorted(map(tuple, values[found.source == place].tolist()))
                assert len(mine) == len(expected[row])
                np.testing.assert_allclose(mine, expected[row], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", CASES)
def test_exact_evaluation_says_the_same(name: str, tmp_path: Path) -> None:
    case = CASES[name]()
    case.model.save(tmp_path / "model.jani")
    model = load_model(tmp_path / "model.jani").model
    (automaton,) = model.automata
    names = [item.name for item in model.variables]
    for state in random_states(case, EXACT_STEPS, seed=3):
        valuation = {
            item.name: Fraction(value) if item.domain.kind == "real" else int(value)
            for item, value in zip(model.variables, state, strict=True)
        }
        for label in model.labels:
            mine = []
            for edge in automaton.edges:
                if edge.action != label or not value_of(edge.guard, valuation):
                    continue
                for destination in edge.destinations:
                    new = {item.variable: value_of(item.value, valuation) for item in destination.assignments}
                    mine.append(tuple(middle(new.get(key, valuation[key])) for key in names))
            # The domain of tau is part of every guard, not of the edge as it is written.
            mine = sorted(row for row in mine if "tau" not in names or row[2] >= 0)
            expected = sorted(case.moves(state, label))
            assert len(mine) == len(expected)
            np.testing.assert_allclose(mine, expected, rtol=0, atol=TOLERANCE)


def middle(value: Any) -> float:
    return float((value.low + value.high) / 2 if isinstance(value, Interval) else value)


# Where they start, and what failure is


def truth(model: LoadedModel, condition: Expression, states: list[State]) -> list[bool]:
    flat = flatten(model.model)
    generator = SuccessorGenerator(flat)
    table = generator.layout.unpack(as_words(model, generator, states))
    return [
        bool(value) for value in evaluate_batch(generator.compile([flat.state_condition(condition)]), table)[0][:, 0]
    ]


def unsafe_in(model: LoadedModel, states: list[State]) -> list[bool]:
    prop = model.property()
    assert isinstance(prop, SafetyProperty)
    assert prop.unsafe is not None
    return truth(model, prop.unsafe, states)


def test_failure_of_the_pendulum() -> None:
    model = pendulum.pendulum()
    angles = [0.0, 0.785398, -0.785398, 0.785399, -0.785399, 3.0]
    assert unsafe_in(model, [(angle, 8.0) for angle in angles]) == [False, False, False, True, True, True]


def test_failure_of_the_cartpole_is_that_of_gymnasium() -> None:
    model = cartpole.cartpole()
    random = np.random.default_rng(4)
    limits = np.array([2.4, 1.0, 12 * 2 * math.pi / 360, 1.0])
    states = [tuple(row) for row in (random.uniform(-1.2, 1.2, (2000, 4)) * limits).tolist()]
    terminated = []
    for state in states:
        GYMNASIUM.reset(seed=0)
        GYMNASIUM.state = state
        terminated.append(GYMNASIUM.step(0)[2])
    after = [cartpole_moves(state, "left")[0] for state in states]
    assert unsafe_in(model, after) == terminated
    assert 0.2 < np.mean(terminated) < 0.8


def test_failure_of_the_cartpole_in_the_papers_sources() -> None:
    model = cartpole.cartpole(limits="mosaic")
    ten_degrees = math.radians(10)
    inside = [(0.0499, 9.0, 0.0, 9.0), (-0.0499, 0.0, ten_degrees - 1e-6, 0.0)]
    outside = [(0.05, 0.0, 0.0, 0.0), (-0.05, 0.0, 0.0, 0.0), (0.0, 0.0, ten_degrees + 1e-6, 0.0), (0, 0, -0.2, 0)]
    assert unsafe_in(model, inside + outside) == [False, False, True, True, True, True]


@pytest.mark.parametrize(
    ("model", "ends"),
    [
        (pendulum.pendulum(), [math.pi / 4, 1.0]),
        (cartpole.cartpole(), [0.05] * 4),
        (cartpole.cartpole(limits="mosaic"), [0.005] * 4),
    ],
    ids=["pendulum", "cartpole", "cartpole, mosaic"],
)
def test_initial_sets(model: LoadedModel, ends: list[float]) -> None:
    flat = flatten(model.model)
    inside = [tuple(0.999 * end * sign for end in ends) for sign in (-1, 0, 1)]
    assert truth(model, flat.initial, inside) == [True] * 3
    for number in range(len(ends)):
        outside = [tuple(1.001 * sign * end if i == number else 0.0 for i, end in enumerate(ends)) for sign in (-1, 1)]
        assert truth(model, flat.initial, outside) == [False, False]
    # It is bounded, so that it can be sampled and cut into boxes.
    (boxes,) = boxes_where(flat, flat.initial)
    upper = boxes.upper[:, : len(ends)].view(np.float64).max(axis=0)
    np.testing.assert_allclose(upper, ends, rtol=1e-9)


def test_properties_as_text_are_the_opposite_of_failure() -> None:
    for model, text in (
        (pendulum.pendulum(), pendulum.property_text(7)),
        (cartpole.cartpole(), cartpole.property_text(7)),
        (cartpole.cartpole(limits="mosaic"), cartpole.property_text(7, limits="mosaic")),
    ):
        assert text.startswith("AG<=7 ")
        good = parse_condition(text.removeprefix("AG<=7 "), model.model)
        states = [(x, 0.0, x / 10, 0.0)[: len(model.model.variables)] for x in np.linspace(-3, 3, 500).tolist()]
        unsafe = unsafe_in(model, states)
        assert 0 < sum(unsafe) < len(unsafe)
        assert truth(model, good, states) == [not value for value in unsafe]


def test_what_is_no_parameter_is_refused() -> None:
    with pytest.raises(InvalidInput, match="there are: gymnasium, mosaic"):
        cartpole.cartpole(limits="wide")
    for probability in (-0.1, 1.0):
        with pytest.raises(InvalidInput, match="from 0 to less than 1"):
            pendulum.pendulum(sticky=probability)
