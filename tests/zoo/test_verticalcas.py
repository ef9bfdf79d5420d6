"""Vertical collision avoidance with the published networks, and with our own.

The published answers (NANES, table 1, without its times) are computed here once more, by exact
subdivision of the initial heights: on an interval of heights on which no neuron changes its sign every
neuron is an affine function of the height, in rational numbers.  Nothing of the package takes part but
what it is compared with.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import policyproof as pp
from policyproof.evidence.interpreter import Configuration, Interpreter
from policyproof.policy.formats import read_network
from policyproof.run.errors import InvalidInput
from policyproof.zoo import verticalcas_policies, verticalcas_table
from policyproof.zoo.verticalcas import ADVISORIES, LABELS, load_networks, property_text, verticalcas

# T and F by climb rate, for k = 1 to 6.
TABLE = {"-19.5": "TTTTTT", "-22.5": "TTFTTT", "-25.5": "TFFFTT", "-28.5": "TFFFFT"}
REACHED = {1: ("-115.8667", "-110.525"), 2: ("-109.4667", "-100.1"), 3: ("-113.8", "-97.725")}
CLIMB_1500 = LABELS.index("CL1500")

Line = tuple[Fraction, Fraction]
"""slope * height + offset"""


@pytest.fixture(scope="module")
def folder() -> Path:
    data = os.environ.get("POLICYPROOF_PEER_DATA")
    if not data:
        pytest.skip("POLICYPROOF_PEER_DATA is not set: no published networks to read")
    return Path(data) / "vcas"


# The computation by hand


def layers_of(path: Path) -> list[tuple[list[list[Fraction]], list[Fraction]]]:
    """Weights and biases in the order of the file."""
    graph = onnx.load(path).graph
    arrays = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    layers = []
    for node in graph.node:
        if node.op_type == "Gemm":
            transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
            weights, bias = arrays[node.input[1]], arrays[node.input[2]]
            matrix = weights if transposed else weights.T
            layers.append(([[Fraction(float(w)) for w in row] for row in matrix], [Fraction(float(b)) for b in bias]))
    assert [len(bias) for _, bias in layers] == [20] * 5 + [9]
    return layers


def winners(layers: list, low: Fraction, high: Fraction, v: Fraction, tau: int) -> set[int]:
    """The outputs that win for some height in an interval."""
    pending, found = [(low, high)], set()
    while pending:
        low, high = pending.pop()
        values: list[Line] = [
            (Fraction(1, 16000), Fraction(0)),
            (Fraction(0), v / 5000),
            (Fraction(0), Fraction(tau - 20, 40)),
        ]
        for number, (weights, bias) in enumerate(layers):
            values = [
                (
                    sum((w * slope for w, (slope, _) in zip(row, values, strict=True)), Fraction(0)),
                    sum((w * offset for w, (_, offset) in zip(row, values, strict=True)), b),
                )
                for row, b in zip(weights, bias, strict=True)
            ]
            hidden = number < len(layers) - 1
            lines = values if hidden else [(a - c, b - d) for a, b in values for c, d in values]
            roots = {-offset / slope for slope, offset in lines if slope and low < -offset / slope < high}
            if roots:
                ends = sorted({low, high, *roots})
                pending.extend(itertools.pairwise(ends))
                break
            middle = (low + high) / 2
            if hidden:
                zero = (Fraction(0), Fraction(0))
                values = [(a, b) if a * middle + b > 0 else zero for a, b in values]
        else:
            heights = [a * middle + b for a, b in values]
            found.add(heights.index(max(heights)))
    return found


@dataclass
class Reached:
    """All heights that can be reached after k steps, as intervals by climb rate and last advisory."""

    intervals: dict[tuple[Fraction, int], list[tuple[Fraction, Fraction]]]
    advisories: set[int]

    @property
    def all(self) -> list[tuple[Fraction, Fraction]]:
        return [interval for group in self.intervals.values() for interval in group]

    @property
    def clear(self) -> bool:
        return all(low > 100 or high < -100 for low, high in self.all)


def reach(
    networks: list, climb_rate: Fraction, low: Fraction, high: Fraction, steps: int, *, complying: float = 25
) -> list[Reached]:
    """The sets after 0 to `steps` steps; a pilot complies with a climb from some climb rate on."""
    g = Fraction(322, 10)
    climb = [g / 4, 7 * g / 24, g / 3]
    current = Reached({(climb_rate, 0): [(low, high)]}, set())
    history = [current]
    for step in range(steps):
        following: dict[tuple[Fraction, int], list[tuple[Fraction, Fraction]]] = {}
        advised: set[int] = set()
        for (v, last), group in current.intervals.items():
            for one, other in group:
                advised |= winners(networks[last], one, other, v, 25 - step)
                # What is compared with the table needs no other advisory.
                assert advised == {CLIMB_1500}
                for a in [Fraction(0)] if v >= complying else climb:
                    key = (v + a, CLIMB_1500)
                    following.setdefault(key, []).append((one - v - a / 2, other - v - a / 2))
        current = Reached({key: joined(group) for key, group in following.items()}, advised)
        history.append(current)
    return history


def joined(intervals: list[tuple[Fraction, Fraction]]) -> list[tuple[Fraction, Fraction]]:
    """Intervals that overlap, as one."""
    result: list[tuple[Fraction, Fraction]] = []
    for low, high in sorted(intervals):
        if result and low <= result[-1][1]:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return result


@pytest.fixture(scope="module")
def networks(folder: Path) -> list:
    return [layers_of(folder / f"vcas_{number}.onnx") for number in range(1, 10)]


@pytest.fixture(scope="module")
def reached(networks: list) -> dict[str, list[Reached]]:
    return {rate: reach(networks, Fraction(rate), Fraction(-133), Fraction(-129), 6) for rate in TABLE}


# The published networks


def test_exact_subdivision_gives_the_published_answers(reached: dict[str, list[Reached]]) -> None:
    for rate, row in TABLE.items():
        assert "".join("T" if found.clear else "F" for found in reached[rate][1:]) == row, rate


def test_the_answers_do_not_depend_on_when_a_pilot_complies(networks: list) -> None:
    """But the sets do: from -19.5 ft/s some pilots reach 25 ft/s in five steps."""
    found = {
        complying: reach(networks, Fraction("-19.5"), Fraction(-133), Fraction(-129), 6, complying=complying)
        for complying in (25, 1500)
    }
    assert all(step.clear for steps in found.values() for step in steps)
    assert found[25][6].intervals != found[1500][6].intervals


def test_reached_heights(reached: dict[str, list[Reached]]) -> None:
    for steps, (low, high) in REACHED.items():
        ends = reached["-22.5"][steps].all
        # The highest ends are decimals; the others were printed with four digits.
        assert round(min(end for end, _ in ends), 4) == Fraction(low)
        assert round(max(end for _, end in ends), 4) == Fraction(high)


def test_the_policy_and_the_model_say_the_same(folder: Path, reached: dict[str, list[Reached]]) -> None:
    """In the ends of every set: the advisory, and the successors by the plain interpreter."""
    model = verticalcas()
    policy = load_networks(folder, model)
    interpreter = Interpreter(model.model)
    for rate in TABLE:
        for steps, found in enumerate(reached[rate][:6]):
            following = reached[rate][steps + 1]
            for (v, last), group in found.intervals.items():
                for h in {end for interval in group for end in interval}:
                    state = {"h": h, "v": v, "tau": 25 - steps, "adv": last + 1}
                    assert policy.labels[policy.decide_exactly(state)] == "CL1500"
                    configuration = Configuration(("ready",), state)
                    successors = [
                        interpreter.execute(configuration, parts)[0].variables
                        for label, parts in interpreter.enabled_combinations(configuration)
                        if label == "CL1500"
                    ]
                    assert len(successors) == (3 if v < 25 else 1)
                    for new in successors:
                        assert (new["tau"], new["adv"]) == (24 - steps, CLIMB_1500 + 1)
                        ends = following.intervals[new["v"], CLIMB_1500]
                        assert any(low <= new["h"] <= high for low, high in ends)


@pytest.mark.parametrize("height", [-133, -129])
@pytest.mark.parametrize("rate", TABLE)
def test_single_heights_are_decided_by_the_explicit_engine(
    folder: Path, networks: list, height: int, rate: str
) -> None:
    """Step k is the step at which tau is 25 - k."""
    model = verticalcas(heights=(height, height), climb_rates=(float(rate),))
    policy = load_networks(folder, model)
    found = reach(networks, Fraction(rate), Fraction(height), Fraction(height), 3)
    for steps in (2, 3):
        answer = pp.verify(model, policy, f"AG<={steps} (tau != {25 - steps} | h > 100 | h < -100)")
        assert answer.verdict == ("holds" if found[steps].clear else "violated")
        if answer.trace is not None:
            assert len(answer.trace.steps) == steps
            replayed = pp.replay(model.model, answer.trace, answer.question, policy)
            assert replayed.accepted, replayed.reason


def test_all_climb_rates_are_start_states(folder: Path) -> None:
    model = verticalcas(heights=(-130, -130))
    answer = pp.verify(model, load_networks(folder, model), "AG<=1 (h < -100)")
    assert answer.verdict == "holds"
    assert answer.result.statistics["start_states"] == 4
    assert answer.result.statistics["transitions"] == 4 * 3


def test_networks_of_others_are_found_by_the_ends_of_their_names(folder: Path, tmp_path: Path) -> None:
    for number in range(1, 10):
        (tmp_path / f"net-{number}.onnx").write_bytes((folder / f"vcas_{number}.onnx").read_bytes())
    (tmp_path / "other.onnx").write_bytes(b"not read")
    model = verticalcas()
    state = {"h": Fraction(-130), "v": Fraction(-20), "tau": 25, "adv": 1}
    assert load_networks(tmp_path, model).exact_outputs(state) == load_networks(folder, model).exact_outputs(state)
    (tmp_path / "again_3.onnx").write_bytes(b"a second one")
    with pytest.raises(InvalidInput, match=r"ends in 3 \(after advisory DND\), found again_3.onnx, net-3.onnx"):
        load_networks(tmp_path, model)
    (tmp_path / "again_3.onnx").unlink()
    (tmp_path / "net-7.onnx").unlink()
    with pytest.raises(InvalidInput, match=r"ends in 7 \(after advisory SCL1500\), found none"):
        load_networks(tmp_path, model)


# The model


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_pilots_accelerations(count: int) -> None:
    g = Fraction(322, 10)
    for advisory in ADVISORIES:
        found = advisory.accelerations(count)
        assert len(found) == (1 if advisory.name.startswith("S") else count)
        assert len({second - first for first, second in itertools.pairwise(found)}) <= 1
        if count > 1:
            assert (found[0], found[-1]) == (advisory.weakest * g, advisory.strongest * g)
    assert ADVISORIES[2].accelerations(3) == (g / 4, 7 * g / 24, g / 3)
    assert ADVISORIES[0].accelerations(1) == (0,)


def test_properties_are_those_of_the_paper() -> None:
    model = verticalcas()
    assert property_text(3) == "AX^3 (h > 100 | h < -100)"
    three = model.property("phi-3").formula.path
    as_text = model.property(property_text(3)).formula.path
    assert three.right == as_text.right
    assert three.bounds == as_text.bounds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accelerations": 0}, "at least one acceleration"),
        ({"last_advisory": "UP"}, "there are: COC, DNC"),
        ({"thresholds": "m/s"}, "ft/min or ft/s"),
        ({"heights": (1.0,)}, "two heights"),
        ({"climb_rates": ()}, "some climb rate"),
        ({"seconds": 41}, "outside the domain"),
    ],
)
def test_what_is_no_parameter_is_refused(options: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        verticalcas(**options)


# Our own networks


def test_our_networks_are_read_alike_from_their_interface_and_from_their_folder() -> None:
    model = verticalcas()
    folder = verticalcas_policies.FOLDER
    one, other = pp.load_policy(folder / "policy.json", model), load_networks(folder, model)
    assert one.labels == other.labels
    for adv in range(1, 10):
        state = {"h": Fraction(-130), "v": Fraction(-20), "tau": 25, "adv": adv}
        assert one.exact_outputs(state) == other.exact_outputs(state)
        assert read_network(folder / f"verticalcas_{adv}.onnx").hidden_sizes == [20] * 5


def test_our_networks_agree_with_the_table_as_their_card_says() -> None:
    card = json.loads((verticalcas_policies.FOLDER / "card.json").read_text())
    table = verticalcas_table.solve_advisories()
    for last, label in enumerate(LABELS):
        heights, climb_rates, seconds = verticalcas_policies.sample(4000, np.random.default_rng(99))
        costs = table.advisory_costs(last, heights, climb_rates, seconds)
        network = load_networks(verticalcas_policies.FOLDER, verticalcas()).networks[last]
        chosen = network.evaluate(np.stack([heights, climb_rates, seconds], axis=1))[0].argmax(axis=1)
        regret = costs[np.arange(len(chosen)), chosen] - costs.min(axis=1)
        agreement = (regret <= verticalcas_policies.SLACK).mean()
        # Five standard deviations of 4,000 draws are a bit over 1 %.
        assert agreement == pytest.approx(card["agreement_with_the_table"][label], abs=0.012)


def test_near_collisions_are_as_rare_as_the_card_says() -> None:
    card = json.loads((verticalcas_policies.FOLDER / "card.json").read_text())
    policy = load_networks(verticalcas_policies.FOLDER, verticalcas())
    ours, silent = (verticalcas_policies.encounters(item, rollouts=2000) for item in (policy, None))
    assert silent.advised == 0.0
    assert silent.near_collisions == pytest.approx(card["near_collision_rate_without_advisories"], abs=0.025)
    assert ours.near_collisions <= card["near_collision_rate"] + 0.002
    assert ours.advised == pytest.approx(card["encounters_with_an_advisory"], abs=0.04)
    assert ours.advised_seconds == pytest.approx(card["seconds_with_an_advisory"], abs=0.005)


def test_a_network_is_trained_in_seconds() -> None:
    table = verticalcas_table.solve_advisories()
    network, agreement = verticalcas_policies.train(table, 0, samples=20_000, epochs=25)
    assert network.hidden_sizes == [20] * 5
    heights, climb_rates, seconds = verticalcas_policies.sample(4000, np.random.default_rng(99))
    costs = table.advisory_costs(0, heights, climb_rates, seconds)
    silent = (costs[:, 0] - costs.min(axis=1) <= verticalcas_policies.SLACK).mean()
    assert agreement > silent + 0.02


def test_the_table_is_right_where_it_can_be_worked_out() -> None:
    table = verticalcas_table.solve_advisories()
    one_second = np.array([1])

    def costs(last: str, h: float, v: float) -> Sequence[float]:
        return table.advisory_costs(LABELS.index(last), np.array([h]), np.array([v]), one_second)[0].tolist()

    # Far away nothing but the advisory itself costs, and with a second left they can meet at 0 ft.
    assert costs("COC", 3000, 0)[:3] == pytest.approx([0, 0.0104, 0.0104])
    assert costs("COC", 0, 0)[0] == pytest.approx(1.0)
    # A climb after a descent is a reversal; what is forbidden costs more than any encounter.
    assert costs("DES1500", 3000, 0)[LABELS.index("CL1500")] == pytest.approx(0.0208)
    assert min(costs("COC", 0, 0)[5:]) >= verticalcas_table.FORBIDDEN
    assert costs("CL1500", 3000, 0)[LABELS.index("SCL2500")] == pytest.approx(0.0024 + 0.004)
