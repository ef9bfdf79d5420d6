"""Bounds of networks over boxes: no point of a box is ever below them, whatever is rounded on the way."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from policyproof.bounds import api, linear, lines
from policyproof.bounds.api import bound_rows
from policyproof.bounds.chain import Rows, difference_rows, make_chain, make_rows
from policyproof.bounds.gradient import gradients, outputs_at
from policyproof.bounds.linear import Relaxation
from policyproof.bounds.margins import rounding_factor
from policyproof.model import enclosures
from policyproof.policy.network import Activation, Affine, Clip, ExactNetwork, Floats, Layer, Network, Normalise
from policyproof.run.errors import InvalidInput

FIRST_SEED = int(os.environ.get("POLICYPROOF_SEED", "0"))
KINDS = ("relu", "leaky_relu", "clip", "tanh", "sigmoid", "mixed")


@dataclass(frozen=True)
class Case:
    """A network, rows of its outputs, and boxes of its inputs."""

    network: Network
    coefficients: Floats
    offsets: Floats
    lower: Floats
    upper: Floats


def activation(kind: str, rng: np.random.Generator) -> Layer:
    if kind == "mixed":
        kind = str(rng.choice(KINDS[:-1]))
    if kind == "clip":
        return Clip(np.array(-rng.uniform(0, 2)), np.array(rng.uniform(0, 2)))
    return Activation(kind, 0.1 if kind == "leaky_relu" else 0.0)  # type: ignore[arg-type]


def random_case(seed: int) -> Case:
    """A small network whose weights may lie anywhere from 1e-8 to 1e8, with boxes from points to wide ones."""
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    inputs, outputs = int(rng.integers(1, 5)), int(rng.integers(2, 5))
    spread = [0, 0, 3, 8][int(rng.integers(4))]
    sizes = [inputs, *rng.integers(1, 9, int(rng.integers(0, 4))).tolist(), outputs]
    layers: list[Layer] = []
    if rng.random() < 0.3:
        layers.append(Normalise(rng.normal(size=inputs), rng.uniform(0.1, 9, inputs)))
        if rng.random() < 0.5:
            layers.append(Clip(np.full(inputs, -np.inf), np.full(inputs, 1.5)))
    for rows, columns in zip(sizes[1:], sizes[:-1], strict=True):
        weights = rng.normal(size=(rows, columns)) * 10.0 ** rng.integers(-spread, spread + 1, (rows, 1))
        if columns > 1 and rng.random() < 0.3:
            # Terms that nearly cancel.
            weights[:, 1] = -weights[:, 0] * (1 + rng.choice([0.0, 2.0**-50, 1e-9]))
        bias = rng.normal(size=rows) * 10.0 ** rng.integers(-spread, spread + 1)
        layers += [Affine(weights, bias), activation(kind, rng)]
    network = Network(tuple(layers[:-1]), inputs)
    count = 4
    coefficients = rng.choice([-1.0, 0.0, 1.0], (count, outputs))
    coefficients[1:] *= rng.uniform(0.1, 3, (count - 1, outputs))
    offsets = np.where(rng.random(count) < 0.5, 0.0, rng.normal(size=count))
    centre = rng.normal(size=(5, inputs)) * 10.0 ** rng.integers(-2, 3)
    width = np.abs(centre) * np.array([0.0, 1e-12, 1e-3, 0.1, 2.0])[:, None]
    return Case(network, coefficients, offsets, centre - width, centre + width)


def exact_rows(case: Case, point: Sequence[float]) -> list[tuple[Fraction, Fraction]]:
    """Enclosures of the exact values of all rows at a point."""
    outputs = [enclosures.ends(x) for x in ExactNetwork(case.network).outputs([Fraction(x) for x in point], 200)]
    found = []
    for row, offset in zip(case.coefficients.tolist(), case.offsets.tolist(), strict=True):
        low = high = Fraction(offset)
        for coefficient, (least, greatest) in zip(row, outputs, strict=True):
            low += Fraction(coefficient) * (least if coefficient >= 0 else greatest)
            high += Fraction(coefficient) * (greatest if coefficient >= 0 else least)
        found.append((low, high))
    return found


def points_of(case: Case, box: int, rng: np.random.Generator) -> Floats:
    low, high = case.lower[box], case.upper[box]
    shares = rng.choice([0.0, 1.0, 0.5, rng.random()], (3, len(low)))
    return np.clip(low + shares * (high - low), low, high)


def bounds_of(case: Case, how: str) -> Floats:
    chain = make_chain(case.network)
    rows = make_rows(chain, case.coefficients, case.offsets)
    if how == "twin":
        return Relaxation(chain, case.lower, case.upper).lower_bounds(rows)
    if how == "intervals":
        return bound_rows(chain, rows, case.lower, case.upper, tighten=False).lower
    iterations = 6 if how == "optimised" else 0
    return bound_rows(chain, rows, case.lower, case.upper, iterations=iterations).lower


def violations(seeds: range, how: str) -> tuple[int, int]:
    """How often a point lies certainly below a bound, and how many comparisons were made."""
    wrong = compared = 0
    for seed in seeds:
        case = random_case(seed)
        bounds = bounds_of(case, how)
        rng = np.random.default_rng(seed)
        for box in range(len(case.lower)):
            for point in points_of(case, box, rng).tolist():
                for bound, (_, high) in zip(bounds[box].tolist(), exact_rows(case, point), strict=True):
                    compared += 1
                    wrong += bound == bound and bound != float("-inf") and Fraction(bound) > high  # noqa: PLR0124
    return wrong, compared


@pytest.mark.parametrize("how", ["kernel", "optimised", "intervals", "twin"])
def test_no_point_is_below_a_bound(how: str) -> None:
    wrong, compared = violations(range(FIRST_SEED, FIRST_SEED + 120), how)
    print(f"\n{how}: {compared} comparisons")
    assert compared > 3000
    assert wrong == 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kernel", "optimised", "intervals", "twin"])
def test_no_point_is_below_a_bound_in_many_networks(how: str) -> None:
    assert violations(range(FIRST_SEED + 1000, FIRST_SEED + 3000), how)[0] == 0


@pytest.mark.parametrize("how", ["kernel", "twin"])
def test_without_the_margin_points_are_below(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrink the margin for rounding until containment fails: then the test above can see something."""
    failing = None
    for shrunk in (1.0, 2.0**-3, 2.0**-6, 0.0):
        for module in (api, linear):
            monkeypatch.setattr(
                module, "rounding_factor", lambda widest, stages, by=shrunk: by * rounding_factor(widest, stages)
            )
        wrong, compared = violations(range(60), how)
        print(f"\n{how}: {wrong} of {compared} points are below the bounds with {shrunk:g} of the margin")
        if wrong:
            failing = shrunk
            break
    assert failing is not None
    assert failing < 1


def test_without_the_margin_of_tanh_points_are_below(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = range(KINDS.index("tanh"), 300, len(KINDS))
    monkeypatch.setattr(linear, "rounding_factor", lambda widest, stages: 0.0)
    with_margin = violations(seeds, "twin")[0]
    monkeypatch.setattr(lines, "TANH_MARGIN", -(2.0**-52))
    assert violations(seeds, "twin")[0] > with_margin


def test_the_kernel_is_as_tight_as_its_twin() -> None:
    """Both take the same lines; only the order of sums differs."""
    compared = 0
    for seed in range(240):
        case = random_case(seed)
        kernel, twin = bounds_of(case, "kernel"), bounds_of(case, "twin")
        known = np.isfinite(kernel) & np.isfinite(twin)
        assert (np.isfinite(kernel) == np.isfinite(twin)).all()
        size = np.abs(case.coefficients) @ np.abs(outputs_at(make_chain(case.network), case.lower)).T
        scale = 1e-6 * (1 + np.abs(kernel) + size.T)
        assert (np.abs(kernel - twin)[known] <= scale[known]).all(), seed
        compared += int(known.sum())
    assert compared > 3000


def test_optimised_slopes_are_never_looser_and_often_tighter() -> None:
    tighter = 0
    for seed in range(0, 240, len(KINDS)):
        case = random_case(seed)
        plain, optimised = bounds_of(case, "kernel"), bounds_of(case, "optimised")
        known = np.isfinite(plain)
        assert (optimised[known] >= plain[known]).all()
        tighter += int((optimised[known] > plain[known] + 1e-9 * np.abs(plain[known])).sum())
    assert tighter > 20


def test_equal_outputs_differ_by_exactly_zero() -> None:
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(3, 6))
    weights[2] = weights[0]
    bias = np.array([0.3, 0.1, 0.3])
    network = Network(
        (Affine(rng.normal(size=(6, 2)), rng.normal(size=6)), Activation("relu"), Affine(weights, bias)), 2
    )
    chain = make_chain(network)
    rows = difference_rows(chain, [(0, 2), (2, 0), (0, 1)])
    found = bound_rows(chain, rows, np.full((1, 2), -1e3), np.full((1, 2), 1e3)).lower[0]
    assert found[:2].tolist() == [0.0, 0.0]
    assert found[2] != 0.0


@pytest.mark.parametrize("ends", [(-np.inf, np.inf), (0.0, np.inf), (np.nan, 1.0), (1e308, 1.7e308)])
def test_what_is_unbounded_or_undefined_proves_nothing(ends: tuple[float, float]) -> None:
    network = Network(
        (
            Affine(np.array([[1e3], [-1e3]]), np.zeros(2)),
            Activation("relu"),
            Affine(np.array([[1.0, -1.0]]), np.zeros(1)),
        ),
        1,
    )
    chain = make_chain(network)
    rows = make_rows(chain, np.array([[1.0], [-1.0]]))
    for how in ("kernel", "twin"):
        low, high = np.array([[ends[0]]]), np.array([[ends[1]]])
        bounds = (
            bound_rows(chain, rows, low, high).lower
            if how == "kernel"
            else Relaxation(chain, low, high).lower_bounds(rows)
        )
        claimed = bounds[0] > 0
        # 1000 x for x >= 0: only that the first row is not negative could be claimed there.
        assert not claimed[1]
        assert not claimed[0] or ends[0] > 0


def test_rows_that_are_not_wanted_are_not_bounded() -> None:
    case = random_case(0)
    chain = make_chain(case.network)
    rows = make_rows(chain, case.coefficients, case.offsets)
    wanted = np.array([[2, -1, 0]] * len(case.lower))
    some = bound_rows(chain, rows, case.lower, case.upper, wanted).lower
    every = bound_rows(chain, rows, case.lower, case.upper).lower
    assert np.isnan(some[:, 1]).all()
    np.testing.assert_array_equal(some[:, [0, 2]], every[:, [2, 0]])


def test_values_and_gradients_are_those_of_the_network() -> None:
    for seed in range(60):
        case = random_case(seed)
        chain = make_chain(case.network)
        rows = make_rows(chain, case.coefficients, case.offsets)
        points = 0.5 * (case.lower + case.upper)
        outputs = case.network.evaluate(points)[0]
        np.testing.assert_allclose(
            outputs_at(chain, points), outputs, rtol=1e-5, atol=1e-5 * np.abs(outputs).max() + 1e-9
        )
        if seed % len(KINDS) not in (3, 4):
            continue
        values, slopes = gradients(chain, rows, points, np.zeros(len(points), dtype=np.int64))
        for axis in range(points.shape[1]):
            step = 1e-6 * np.maximum(np.abs(points[:, axis]), 1)
            moved = points.copy()
            moved[:, axis] += step
            other = gradients(chain, rows, moved, np.zeros(len(points), dtype=np.int64))[0]
            curved = 1e-2 * (1 + np.abs(slopes[:, axis]) + np.abs(values))
            assert (np.abs((other - values) / step - slopes[:, axis]) <= curved).mean() > 0.5


def test_torch_gives_the_same_bounds() -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: no second device to compare with")
    for seed in range(60):
        case = random_case(seed)
        chain = make_chain(case.network)
        rows = make_rows(chain, case.coefficients, case.offsets)
        numpy = Relaxation(chain, case.lower, case.upper).lower_bounds(rows)
        there = Relaxation(chain, case.lower, case.upper, xp=torch, place="cpu").lower_bounds(rows)
        assert (np.isfinite(numpy) == np.isfinite(there)).all()
        known = np.isfinite(numpy)
        size = np.abs(case.coefficients) @ np.abs(outputs_at(chain, case.lower)).T
        scale = (1e-6 * (1 + np.abs(numpy) + size.T))[known]
        assert (np.abs(numpy - there)[known] <= scale).all(), seed


def test_torch_answers_the_same_question_as_the_kernel() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: no second device to compare with")
    for seed in range(0, 60, 3):
        case = random_case(seed)
        chain = make_chain(case.network)
        rows = make_rows(chain, case.coefficients, case.offsets)
        wanted = np.array([[2, -1, 0]] * len(case.lower))
        here = bound_rows(chain, rows, case.lower, case.upper, wanted)
        there = bound_rows(chain, rows, case.lower, case.upper, wanted, device="torch")
        np.testing.assert_allclose(there.lower, here.lower, rtol=1e-6, atol=1e-6 * np.abs(here.lower[:, [0, 2]]).max())
        scale = np.abs(here.effect).max() + 1e-12
        # A bound next to zero may count as settled in one and not in the other.
        assert (np.abs(there.effect - here.effect) <= 1e-6 * scale).mean() > 0.9


def test_a_device_that_is_not_there_is_named() -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    case = random_case(0)
    chain = make_chain(case.network)
    rows = make_rows(chain, case.coefficients, case.offsets)
    with pytest.raises(InvalidInput, match="no such device"):
        bound_rows(chain, rows, case.lower, case.upper, device="cuda")


def test_rows_are_rounded_once() -> None:
    """General rows are computed exactly and rounded once per entry; the margin counts on it."""
    for seed in range(40):
        case = random_case(seed)
        chain = make_chain(case.network)
        rows: Rows = make_rows(chain, case.coefficients, case.offsets)
        for number, row in enumerate(case.coefficients.tolist()):
            for column in range(chain.last_size):
                terms = zip(row, chain.weights[:, column].tolist(), strict=True)
                exact = sum((Fraction(a) * Fraction(b) for a, b in terms), Fraction(0))
                assert abs(Fraction(rows.weights[number, column]) - exact) <= abs(exact) * Fraction(1, 2**53)
