"""What happens at the ends: unbounded intervals, numbers beyond what floats and words hold, roundings that cancel.

Each of these once made a wrong "impossible", a wrong witness, or an accepted proof of something false.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from policyproof.bounds.api import bound_rows
from policyproof.bounds.chain import difference_rows, make_chain
from policyproof.bounds.linear import Relaxation
from policyproof.engines.ppa.search import abstract
from policyproof.engines.question import safety_question
from policyproof.engines.result import drive
from policyproof.evidence.decision_proof import Rejected, check_decision_proof
from policyproof.model.automata import Domain, Variable
from policyproof.model.building import ModelBuilder
from policyproof.model.expressions import ONE, ZERO, Expression, apply, conjunction, constant
from policyproof.model.flat import flatten
from policyproof.model.start_states import boxes_where
from policyproof.oracle.native import NativeOracle
from policyproof.oracle.partition import partition
from policyproof.oracle.protocol import IMPOSSIBLE, POSSIBLE, UNKNOWN, Regions
from policyproof.oracle.search import BoxSearch
from policyproof.policy.decisions import Decider
from policyproof.policy.network import Activation, Affine, Network, Normalise
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget
from policyproof.run.errors import InvalidInput, ResourceExhausted, UnsupportedFeature

A, B = Variable("a", Domain("real")), Variable("b", Domain("real"))
FAR_INTEGER = Variable("x", Domain("int"))


def any_state() -> Policy:
    """For a policy with one label, "possible" means that the region has a state."""
    return Policy((Network((Affine(np.zeros((1, 0)), np.zeros(1)),), 0),), (), ("any",))


def threshold(item: Variable, limit: float) -> Policy:
    """Output 1 above the limit, output 0 elsewhere."""
    network = Network((Affine(np.array([[0.0], [1.0]]), np.array([0.0, -limit])),), 1)
    return Policy((network,), (item.expression,), ("low", "high"))


# Unbounded reals

PRODUCT = conjunction([apply("≤", B.expression, constant(-1)), apply("≥", A.expression * B.expression, constant(5))])
QUOTIENT = conjunction([apply("≤", B.expression, constant(-1)), apply("≤", A.expression / B.expression, constant(-5))])


@pytest.mark.parametrize(
    ("condition", "end"),
    [(PRODUCT, apply("≤", A.expression, constant(-6))), (QUOTIENT, apply("≥", A.expression, constant(1)))],
    ids=["product", "quotient"],
)
@pytest.mark.parametrize("samples", [0, 6])
def test_products_and_quotients_of_unbounded_reals_lose_nothing(
    condition: Expression, end: Expression, samples: int
) -> None:
    oracle = NativeOracle(any_state(), [A, B], samples=samples)
    answers = oracle.ask(Regions.of([A, B], [{}], conjunction([condition, end])), budget=Budget(10))
    assert answers.status[0, 0] != IMPOSSIBLE
    builder = ModelBuilder("far")
    builder.real("a")
    builder.real("b")
    flat = flatten(builder.model())
    inside = False
    for boxes in boxes_where(flat, conjunction([condition, end]), budget=Budget(10)):
        low, high = boxes.lower[:, :2].view(np.float64), boxes.upper[:, :2].view(np.float64)
        point = np.array([-10.0, -1.0]) if samples == 0 and condition is PRODUCT else np.array([10.0, -1.0])
        inside |= bool(((low <= point) & (point <= high)).all(axis=1).any())
        if condition is PRODUCT:
            inside |= bool(((low <= [-10.0, -1.0]) & (high >= [-10.0, -1.0])).all(axis=1).any())
    assert inside


def test_a_condition_that_holds_far_out_has_finite_witnesses() -> None:
    b = Variable("b", Domain("real", None, Fraction(-1)))
    condition = conjunction([PRODUCT, apply("≤", A.expression, constant(-6))])
    answers = NativeOracle(any_state(), [A, b], samples=0).ask(Regions.of([A, b], [{}], condition), budget=Budget(10))
    assert answers.status[0, 0] == POSSIBLE
    first, second = answers.witness[0, 0].view(np.float64)
    assert np.isfinite([first, second]).all()
    assert first * second >= 5
    # A network that reads such a variable is asked at finite states, too.
    answers = NativeOracle(threshold(A, 0.0), [A]).ask(Regions.of([A], [{}]), budget=Budget(5))
    assert (answers.status == POSSIBLE).all()
    assert np.isfinite(answers.witness.view(np.float64)).all()


# Integers beyond words and floats


def test_integers_beyond_62_bits_are_never_called_impossible() -> None:
    answers = NativeOracle(threshold(FAR_INTEGER, 5e18), [FAR_INTEGER]).ask(
        Regions.of([FAR_INTEGER], [{}]), budget=Budget(10)
    )
    assert answers.status[0].tolist() == [POSSIBLE, UNKNOWN]
    assert "62 bits" in answers.reasons[0]
    parts = partition(
        BoxSearch(threshold(FAR_INTEGER, 5e18), [FAR_INTEGER]), Regions.of([FAR_INTEGER], [{}]), budget=Budget(5)
    )
    assert not parts.decided.all()


def test_abstractions_refuse_unbounded_integers() -> None:
    builder = ModelBuilder("doubling")
    x = builder.integer("x", initial=1)
    builder.edge("double", update={x: x + x})
    model = builder.build(builder.safety("far", unsafe=x - 2**61 >= 3 * 2**60))
    question = safety_question(model.model, model.property("far"), None)
    with pytest.raises(UnsupportedFeature, match="an integer without bounds"):
        drive(abstract(question, [x >= 2], Budget(5)))


def test_neighbours_beyond_float_precision_are_two_states() -> None:
    x = Variable("x", Domain("int", 0, 2**54))
    low = 2**53
    exact = Network((Affine(np.array([[0.0], [1.0]]), np.array([0.0, -float(low)])),), 1)
    policy = Policy((exact,), (x.expression,), ("low", "high"))
    regions = Regions(np.array([[low]]), np.array([[low + 1]]))
    parts = partition(BoxSearch(policy, [x]), regions, budget=Budget(5))
    assert sorted(zip(parts.lower[:, 0].tolist(), parts.output.tolist(), strict=True)) == [(low, 0), (low + 1, 1)]
    assert NativeOracle(policy, [x]).ask(regions).possible.all()


def test_an_overflowing_switch_ends_in_unknown() -> None:
    x = Variable("x", Domain("int", 0, 2**40))
    networks = tuple(Network((Affine(np.zeros((2, 1)), np.array(bias)),), 1) for bias in ([1.0, 0.0], [0.0, 1.0]))
    switch = apply("ite", apply("<", x.expression * x.expression, constant(9)), ZERO, ONE)
    policy = Policy(networks, (x.expression,), ("a", "b"), switch=switch, switch_values=(0, 1))
    with pytest.raises(ResourceExhausted, match="62 bits"):
        Decider(policy, [x], {"x": x.domain.range}).decide(np.array([[2**40]]))


# Real variables that are computed with


@pytest.mark.parametrize("kind", ["input", "comparison", "switch"])
def test_what_floats_would_round_is_not_decided_in_batches(kind: str) -> None:
    r = Variable("r", Domain("real", Fraction(0), Fraction(1)))
    rounded = apply("floor", r.expression * 3)
    compared = apply("ite", apply("≥", r.expression, constant(Fraction(3, 10))), ONE, ZERO)
    network = Network((Affine(np.eye(2)[:, :1], np.zeros(2)),), 1)
    if kind == "switch":
        policy = Policy((network, network), (r.expression,), ("a", "b"), switch=compared, switch_values=(0, 1))
    else:
        policy = Policy((network,), (rounded if kind == "input" else compared,), ("a", "b"))
    with pytest.raises(InvalidInput, match="plain variables, or computed from integers"):
        Decider(policy, [r], {"r": r.domain.range})


def test_the_search_ends_below_the_spacing_of_floats() -> None:
    x = Variable("x", Domain("real", Fraction(10**9), Fraction(10**9) + Fraction(1, 10**5)))
    # Both outputs meet inside, so that a boundary stays whatever is halved.
    steep = Network(
        (
            Affine(np.array([[1.0]]), np.array([-1e9 - 5e-6])),
            Activation("relu"),
            Affine(np.array([[-1.0], [1.0]]), np.zeros(2)),
        ),
        1,
    )
    policy = Policy((steep,), (x.expression,), ("low", "high"))
    answers = NativeOracle(policy, [x]).ask(Regions.of([x], [{}]), budget=Budget(20))
    assert answers.statistics["boxes"] < 1000
    assert answers.possible[0, 0]


def test_witnesses_lie_in_the_domain() -> None:
    r = Variable("r", Domain("real", Fraction(0), Fraction(1, 10)))
    # Chosen only beyond a tenth: by the float next to it, which is no state.
    policy = threshold(r, 0.1 - 2.0**-60)
    answers = NativeOracle(policy, [r]).ask(Regions.of([r], [{}]), budget=Budget(5))
    for output in np.flatnonzero(answers.possible[0]):
        assert Fraction(float(answers.witness[0, output].view(np.float64)[0])) <= Fraction(1, 10)
    assert answers.possible[0, 0]


# Bounds


def test_a_normalisation_at_the_end_has_its_margin() -> None:
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(400):
        divide = rng.uniform(1, 10, 2)
        subtract = rng.uniform(1e3, 1e4) * np.array([1.0, divide[1] / divide[0]])
        network = Network((Normalise(subtract, divide),), 2)
        chain = make_chain(network)
        point = np.array([[rng.uniform(-1e-12, 1e-12), 0.0]])
        exact = [(Fraction(x) - Fraction(s)) / Fraction(d) for x, s, d in zip(point[0], subtract, divide, strict=True)]
        rows = difference_rows(chain, [(0, 1), (1, 0)])
        for bounds in (bound_rows(chain, rows, point, point).lower, Relaxation(chain, point, point).lower_bounds(rows)):
            wrong += Fraction(bounds[0, 0]) > exact[0] - exact[1]
            wrong += Fraction(bounds[0, 1]) > exact[1] - exact[0]
    assert wrong == 0


def test_weights_at_the_end_of_the_floats_prove_nothing_wrong() -> None:
    first = Affine(np.array([[1e308]]), np.array([-1e308]))
    network = Network((first, Activation("relu"), Affine(np.array([[0.0], [1e-308]]), np.array([0.0, 0.5]))), 1)
    chain = make_chain(network)
    rows = difference_rows(chain, [(0, 1), (1, 0)])
    low, high = np.array([[0.1]]), np.array([[0.2]])
    for bounds in (bound_rows(chain, rows, low, high).lower, Relaxation(chain, low, high).lower_bounds(rows)):
        # Output 1 is greater by a half; NaN would do, too.
        assert not bounds[0, 0] > -0.5
        assert not bounds[0, 1] > 0.5


def test_only_a_leaky_relu_has_a_slope() -> None:
    with pytest.raises(InvalidInput, match="a relu has no slope"):
        Network((Activation("relu", 0.3),), 1)


# Proofs


def _proof(nodes: list[Any], *, output: Any = 1, low: Any = 0, high: Any = 5) -> dict[str, Any]:
    return {
        "schema": "policyproof-decision-proof-1", "output": output, "variables": ["x"],
        "lower": [low], "upper": [high], "nodes": nodes,
    }  # fmt: skip


@pytest.mark.parametrize(
    "proof",
    [
        _proof([["beaten", {"by": -1}, []]]),
        _proof([["beaten", {"by": 1}, []]]),
        _proof([["beaten", {"by": -2}, []]]),
        _proof([["beaten", {"by": True}, []]]),
        _proof([["split", 0, "5/2"], ["beaten", {"by": 0}, []], ["beaten", {"by": 0}, []]], low=3, high=3),
        _proof([["split", -1, 3], ["states"], ["states"]]),
        _proof([["split", False, 3], ["states"], ["states"]]),
        _proof([["states"]], output=1.7),
        _proof([["states"]], output=-1),
        _proof([["states"]], low="1/2", high=2),
        _proof([["states"]], high="inf"),
        _proof([["states"]], high=float("inf")),
        _proof([["beaten", {"by": 0}, [[[float("inf")], [1.0]]]]]),
        _proof([]),
    ],
    ids=range(14),
)
def test_what_is_no_proof_is_rejected(proof: dict[str, Any]) -> None:
    x = Variable("x", Domain("int", 0, 5))
    hidden = Affine(np.array([[1.0]]), np.array([-2.5]))
    network = Network((hidden, Activation("relu"), Affine(np.array([[0.0], [1.0]]), np.array([0.25, 0.0]))), 1)
    policy = Policy((network,), (x.expression,), ("low", "high"))
    # Output 1 is chosen from 3 on, so none of these can be a proof of the contrary.
    assert policy.decide_exactly({"x": 3}) == 1
    with pytest.raises(Rejected):
        check_decision_proof(policy, [x], proof)
