"""Decisions are exact: ties, near-ties, huge and tiny weights, filters, switches; errors are bounded rigorously."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyproof.evidence.plain_policy import decide
from policyproof.model.automata import Domain, Variable
from policyproof.model.enclosures import ends
from policyproof.model.expressions import ONE, ZERO, apply
from policyproof.policy import network as network_module
from policyproof.policy.decisions import Decider
from policyproof.policy.network import Activation, Affine, Clip, ExactNetwork, Network, Normalise
from policyproof.policy.policy import Policy
from policyproof.run.errors import InvalidInput, ResourceExhausted

VARIABLES = [Variable("a", Domain("int", -6, 6)), Variable("b", Domain("int", 0, 9)), Variable("f", Domain("bool"))]
BOX = {item.name: item.domain.range for item in VARIABLES}
INPUTS = (VARIABLES[0].expression, VARIABLES[1].expression, apply("ite", VARIABLES[2].expression, ONE, ZERO))


def _states(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    columns = [rng.integers(-6, 6, count, endpoint=True), rng.integers(0, 9, count, endpoint=True)]
    return np.stack([*columns, rng.integers(0, 1, count, endpoint=True)], axis=1)


def _named(row) -> dict[str, object]:
    return {"a": int(row[0]), "b": int(row[1]), "f": bool(row[2])}


def _network(rng: np.random.Generator, *, scale: float, kind: str, coarse: bool) -> Network:
    def draw(*shape):
        if coarse:
            return rng.integers(-2, 3, shape).astype(np.float64) * scale
        return rng.normal(size=shape).astype(np.float32).astype(np.float64) * np.exp(rng.uniform(-1, 1) * np.log(scale))

    layers: list = []
    if rng.random() < 0.3:
        layers.append(Normalise(rng.normal(size=3), rng.uniform(0.1, 7, size=3)))
    if rng.random() < 0.3:
        layers.append(Clip(np.array(-4.0), np.array(5.0)))
    sizes = [3, 6, 5, 4]
    for columns, rows in itertools.pairwise(sizes):
        layers.append(Affine(draw(rows, columns), draw(rows)))
        if rows != sizes[-1]:
            layers.append(Activation(kind, 0.01 if kind == "leaky_relu" else 0.0))
    return Network(tuple(layers), 3)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**9),
    st.sampled_from([1.0, 1e-8, 1e8]),
    st.sampled_from(["relu", "leaky_relu"]),
    st.booleans(),
)
def test_batched_decisions_are_the_exact_ones(seed: int, scale: float, kind: str, coarse: bool) -> None:
    rng = np.random.default_rng(seed)
    network = _network(rng, scale=scale, kind=kind, coarse=coarse)
    policy = Policy((network,), INPUTS, ("p", "q", "r", "s"))
    states = _states(60, seed % 1000)
    allowed = rng.random((60, 4)) < 0.6
    plain = Decider(policy, VARIABLES, BOX).decide(states)
    filtered = Decider(policy, VARIABLES, BOX).decide(states, allowed)
    for number, row in enumerate(states):
        state = _named(row)
        assert policy.labels[plain[number]] == decide(policy, state).label
        permitted = [label for label, yes in zip(policy.labels, allowed[number], strict=True) if yes] or None
        assert policy.labels[filtered[number]] == decide(policy, state, permitted).label


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 10**9), st.sampled_from([1.0, 1e-8, 1e8]), st.sampled_from(["relu", "leaky_relu", "tanh", "sigmoid"])
)
def test_the_error_bound_contains_the_error(seed: int, scale: float, kind: str) -> None:
    """|float64 outputs - exact outputs| <= bound, for every state and output."""
    assert _worst_share_of_the_bound(seed, scale, kind) <= 1.0


def _worst_share_of_the_bound(seed: int, scale: float, kind: str) -> float:
    rng = np.random.default_rng(seed)
    network = _network(rng, scale=scale, kind=kind, coarse=False)
    exact = ExactNetwork(network)
    inputs = rng.integers(-50, 50, (20, 3)).astype(np.float64)
    outputs, error = network.evaluate(inputs)
    worst = 0.0
    for row, values in zip(inputs, outputs, strict=True):
        for value, true, bound in zip(values, exact.outputs([Fraction(x) for x in row], 400), error, strict=True):
            distance = max(abs(Fraction(float(value)) - end) for end in ends(true))
            worst = max(worst, float(distance / Fraction(float(bound))))
    return worst


def test_a_shrunk_error_bound_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a unit roundoff a thousand times too small the containment test fails: it would see the error."""
    monkeypatch.setattr(network_module, "UNIT_ROUNDOFF", 2.0**-63)
    assert max(_worst_share_of_the_bound(seed, 1.0, "relu") for seed in range(40)) > 1.0


def test_among_equal_outputs_the_lowest_index_wins() -> None:
    weights = np.array([[1.0, 0, 0], [0, 1.0, 0], [1.0, 0, 0], [0, 0, 0]])
    policy = Policy((Network((Affine(weights, np.zeros(4)),), 3),), INPUTS, ("p", "q", "r", "s"))
    decider = Decider(policy, VARIABLES, BOX)
    states = np.array([[3, 3, 0], [3, 2, 0], [2, 3, 0], [0, 0, 1], [-1, 0, 0]])
    assert decider.decide(states).tolist() == [0, 0, 1, 0, 1]
    assert decider.statistics.ties == 4  # p=q, p=r, all, q=s


def test_a_difference_below_float_resolution_is_decided() -> None:
    """1 + 2^-60 is 1 in float64, but not in the network's real-valued meaning."""
    big = Affine(np.array([[2.0**-60, 0, 0], [0, 0, 0]]), np.array([1.0, 1.0]))
    policy = Policy((Network((big,), 3, "float64"),), INPUTS, ("p", "q"))
    decider = Decider(policy, VARIABLES, BOX)
    assert decider.decide(np.array([[1, 0, 0], [-1, 0, 0], [0, 0, 0]])).tolist() == [0, 1, 0]
    assert decider.statistics.exact == 3
    assert decider.statistics.ties == 1


def test_overflow_in_float_is_no_reason_to_guess() -> None:
    huge = Affine(np.array([[1e200, 0, 0], [2e200, 0, 0]]), np.zeros(2))
    again = Affine(np.array([[1e200, 0], [0, 1e200]]), np.zeros(2))
    policy = Policy((Network((huge, again), 3, "float64"),), INPUTS, ("p", "q"))
    decider = Decider(policy, VARIABLES, BOX)
    assert decider.decide(np.array([[1, 0, 0], [-1, 0, 0]])).tolist() == [1, 0]
    assert decider.statistics.exact == 2


def test_irrational_outputs_that_tie_for_ever_are_undecided() -> None:
    layer = Affine(np.array([[1.0, 0, 0], [1.0, 0, 0]]), np.zeros(2))
    policy = Policy((Network((layer, Activation("tanh")), 3),), INPUTS, ("p", "q"))
    decider = Decider(policy, VARIABLES, BOX)
    # At zero tanh is not irrational, everywhere else it is.
    with pytest.raises(ResourceExhausted, match="not settled by 4096 binary digits, in the state a = 2"):
        decider.decide(np.array([[2, 0, 0]]))


def test_a_switched_policy_uses_the_network_of_the_switch() -> None:
    likes = [Network((Affine(np.zeros((2, 3)), np.array(bias)),), 3) for bias in ([1.0, 0.0], [0.0, 1.0])]
    policy = Policy(tuple(likes), INPUTS, ("p", "q"), switch=VARIABLES[1].expression, switch_values=(0, 7))
    decider = Decider(policy, VARIABLES, BOX)
    assert decider.decide(np.array([[1, 0, 0], [1, 7, 0], [5, 7, 1]])).tolist() == [0, 1, 1]
    with pytest.raises(InvalidInput, match="no network for the value 3"):
        decider.decide(np.array([[1, 3, 0]]))


def test_networks_that_do_not_fit_are_refused() -> None:
    network = Network((Affine(np.zeros((2, 2)), np.zeros(2)),), 2)
    with pytest.raises(InvalidInput, match="2 inputs, the interface names 3"):
        Policy((network,), INPUTS, ("p", "q"))
    with pytest.raises(InvalidInput, match="2 outputs, the interface names 1"):
        Policy((network,), INPUTS[:2], ("p",))
    with pytest.raises(InvalidInput, match="named by two outputs"):
        Policy((network,), INPUTS[:2], ("p", "p"))
    with pytest.raises(InvalidInput, match=r"weights\[0, 1\] is nan"):
        Network((Affine(np.array([[0.0, np.nan]]), np.zeros(1)),), 2)
    with pytest.raises(InvalidInput, match="expected 3 inputs"):
        Network((Affine(np.zeros((2, 2)), np.zeros(2)),), 3)
    with pytest.raises(InvalidInput, match="divides by zero"):
        Network((Normalise(np.zeros(2), np.array([1.0, 0.0])),), 2)


def test_exact_evaluation_of_a_deep_network_is_exact() -> None:
    """Against fractions multiplied out naively."""
    rng = random.Random(4)
    generator = np.random.default_rng(4)
    network = _network(generator, scale=1.0, kind="relu", coarse=False)
    vector = [Fraction(rng.randint(-9, 9)) for _ in range(3)]
    expected = list(vector)
    for layer in network.layers:
        if isinstance(layer, Affine):
            expected = [
                sum((Fraction(w) * x for w, x in zip(row, expected, strict=True)), Fraction(bias))
                for row, bias in zip(layer.weights.tolist(), layer.bias.tolist(), strict=True)
            ]
        elif isinstance(layer, Normalise):
            expected = [
                (x - Fraction(s)) / Fraction(d)
                for x, s, d in zip(expected, layer.subtract.tolist(), layer.divide.tolist(), strict=True)
            ]
        elif isinstance(layer, Clip):
            expected = [min(max(x, Fraction(-4)), Fraction(5)) for x in expected]
        else:
            expected = [max(x, Fraction(0)) for x in expected]
    assert ExactNetwork(network).outputs(vector) == expected
