"""Networks that others published: PlaJA's `.nnet` files and the VerticalCAS networks in ONNX.

Their outputs are those of an independent runtime, and the decisions on random states of their models'
domains are those of exact arithmetic: all of them by `exact_networks`, and some by the program that
checks evidence.  The default run takes 2,000 states a network, `make test-slow` 100,000.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from policyproof.evidence.plain_policy import decide
from policyproof.model.automata import Domain, Variable
from policyproof.model.expressions import Expression, variables_of
from policyproof.model.flat import flatten
from policyproof.model.source import load_model
from policyproof.policy.decisions import Decider
from policyproof.policy.formats import compare_with_runtime, read_network, write_onnx
from policyproof.policy.load import load_policy
from policyproof.policy.network import Network, Normalise
from policyproof.policy.policy import Policy
from tests.policy.networks import outputs
from tests.policy.test_formats import naive_nnet
from tests.support.exact_networks import exact_winners


def peer_files(pattern: str) -> list[Path]:
    folder = os.environ.get("POLICYPROOF_PEER_DATA")
    if not folder:
        pytest.skip("POLICYPROOF_PEER_DATA is not set: no published networks to read")
    found = sorted(Path(folder).glob(pattern))
    assert found, f"no {pattern} under POLICYPROOF_PEER_DATA"
    return found


def test_plaja_networks() -> None:
    for path in peer_files("plaja/**/*.nnet"):
        network = read_network(path)
        inputs = np.random.default_rng(1).integers(-5, 6, (20, network.input_size)).astype(float)
        expected = [naive_nnet(path.read_text(), row) for row in inputs.tolist()]
        np.testing.assert_allclose(outputs(network, inputs), expected, rtol=1e-10, atol=1e-10, err_msg=path.name)


def test_vertical_cas_networks() -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: nothing to compare with")
    paths = peer_files("vcas/*.onnx")
    assert len(paths) == 9
    for path in paths:
        network = read_network(path)
        assert (network.input_size, network.output_size, network.precision) == (3, 9, "float32")
        inputs = np.random.default_rng(1).standard_normal((1000, 3)).astype(np.float32)
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (theirs,) = session.run(None, {session.get_inputs()[0].name: inputs})
        np.testing.assert_allclose(outputs(network, inputs.astype(float)), theirs, rtol=1e-5, atol=1e-5)
        # Its inputs are up to hundreds, where rounding to float32 shows a little more.
        assert compare_with_runtime(path, network).largest_relative_difference <= 5e-5, path.name


# Decisions


@dataclass(frozen=True)
class Case:
    """A policy, and the variables over whose domains its states are drawn."""

    name: str
    policy: Policy
    variables: tuple[Variable, ...]

    def states(self, count: int) -> np.ndarray:
        """Random states `[n, variable]`, all values within the domains equally likely."""
        rng = np.random.default_rng(2)
        ranges = [item.domain.range for item in self.variables]
        columns = [rng.integers(int(low), int(high), count, endpoint=True) for low, high in ranges]
        return np.stack(columns, axis=1)

    def named(self, state: np.ndarray) -> dict[str, int | bool]:
        return {
            item.name: bool(value) if item.domain.kind == "bool" else int(value)
            for item, value in zip(self.variables, state, strict=True)
        }


CONNECTED = [
    ("blocks4/blocksworld_4_3_16_16.jani2nnet", "blocks4/blocksworld_4_3.jani"),
    ("blocks6/blocksworld_6_5_32_32.jani2nnet", "blocks6/blocksworld_6_5.jani"),
    ("small/for_nn_sat.jani2nnet", "small/for_nn_sat.jani"),
    ("small/for_nn_sat_with_unused_vars.jani2nnet", "small/for_nn_sat.jani"),
    ("small/for_ppa_simple.jani2nnet", "small/for_ppa_simple.jani"),
]


def _plaja_cases() -> Iterator[Case]:
    (folder,) = {path.parent.parent for path in peer_files("plaja/blocks6/*.jani2nnet")}
    for interface, file in CONNECTED:
        constants: dict[str, float | str] = {}
        if "blocks4" in file:
            constants = {"failing_probability": "0.5", "item_cost_bound": 50}
        model = load_model(folder / file, constants=constants)
        yield Case(interface, load_policy(folder / interface, model), flatten(model.model).variables)
    # This one came without an interface; the ranges in its file are those of the car.
    model = load_model(folder / "small/for_ppa_racetrack.jani")
    car = tuple(model.model.variable_by_name[f"car0_{name}"] for name in ("x", "y", "dx", "dy"))
    network = read_network(folder / "small/for_ppa_racetrack_1.nnet")
    labels = [label for label in model.model.labels if label.startswith("accel0")]
    yield Case("small/for_ppa_racetrack_1.nnet", Policy((network,), _inputs(car), tuple(labels)), car)


def _inputs(variables: tuple[Variable, ...]) -> tuple[Expression, ...]:
    return tuple(item.expression for item in variables)


def _vertical_cas() -> Case:
    """The nine networks as one policy, switched by the previous advisory."""
    # Altitude, climb rate and time, in the units and with the scaling that VenMAS gives its networks.
    scaling = Normalise(np.array([0.0, 0.0, 20.0]), np.array([16_000.0, 5_000.0, 40.0]))
    read = [read_network(path) for path in peer_files("vcas/*.onnx")]
    networks = tuple(Network((scaling, *network.layers), 3, network.precision) for network in read)
    h, v, tau = (
        Variable("h", Domain("int", -8000, 8000)),
        Variable("v", Domain("int", -2500, 2500)),
        Variable("tau", Domain("int", 0, 40)),
    )
    previous = Variable("previous", Domain("int", 1, 9))
    policy = Policy(
        networks,
        _inputs((h, v, tau)),
        tuple(f"advisory{number}" for number in range(1, 10)),
        switch=previous.expression,
        switch_values=tuple(range(1, 10)),
    )
    return Case("vcas", policy, (h, v, tau, previous))


def _check_decisions(case: Case, count: int, by_the_checker: int) -> str:
    """Compare `count` decisions of every network; returns a line that says what occurred."""
    policy = case.policy
    count, by_the_checker = count * len(policy.networks), by_the_checker * len(policy.networks)
    states = case.states(count)
    decider = Decider(policy, case.variables, {item.name: item.domain.range for item in case.variables})
    decisions = decider.decide(states)
    names = [item.name for item in case.variables]
    # Every input is a variable, or the number of a truth value.
    columns = [names.index(name) for expression in policy.inputs for name in variables_of([expression])]
    numbers = np.zeros(count, dtype=int) if policy.switch is None else states[:, names.index("previous")] - 1
    ties = np.zeros(count, dtype=bool)
    for number, network in enumerate(policy.networks):
        rows = np.flatnonzero(numbers == number)
        winners, ties[rows] = exact_winners(network, states[rows][:, columns])
        different = rows[decisions[rows] != winners]
        assert len(different) == 0, f"{case.name}, network {number}: {case.named(states[different[0]])}"
    assert decider.statistics.ties == ties.sum(), case.name
    for state, decision, tie in zip(states[:by_the_checker], decisions, ties, strict=False):
        found = decide(policy, case.named(state))
        assert (found.label, found.tie) == (policy.labels[decision], tie), f"{case.name}: {case.named(state)}"
    chosen = len(np.unique(decisions))
    settled = decider.statistics.exact
    return (
        f"{case.name:45} {count:>9,} decisions, {by_the_checker:>6,} of them by the checker, "
        f"{chosen:>2} of {len(policy.labels):>2} labels, {100 * ties.mean():.2f} % ties, {settled:,} decided exactly"
    )


@pytest.mark.parametrize(
    ("count", "by_the_checker"),
    [pytest.param(2_000, 20, id="some"), pytest.param(100_000, 1_000, id="many", marks=pytest.mark.slow)],
)
def test_decisions_are_exact(count: int, by_the_checker: int, capsys: pytest.CaptureFixture[str]) -> None:
    plaja = list(_plaja_cases())
    assert len(plaja) == len(peer_files("plaja/**/*.nnet")), "a published network is not tested"
    rows = [_check_decisions(case, count, by_the_checker) for case in [*plaja, _vertical_cas()]]
    with capsys.disabled():
        print("\n" + "\n".join(rows))


def test_plaja_networks_in_onnxruntime(tmp_path: Path) -> None:
    """A second runtime, by way of ONNX, on integer inputs."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: nothing to compare with")
    for number, case in enumerate(_plaja_cases()):
        (network,) = case.policy.networks
        path = tmp_path / f"{number}.onnx"
        write_onnx(network, path)
        inputs = np.random.default_rng(3).integers(-5, 10, (1000, network.input_size)).astype(network.precision)
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (theirs,) = session.run(None, {session.get_inputs()[0].name: inputs})
        np.testing.assert_allclose(outputs(network, inputs.astype(float)), theirs, rtol=1e-5, atol=1e-5)
