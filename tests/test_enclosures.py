"""Enclosures contain the true values: against a library of arbitrary precision if installed, and against themselves."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from policyproof.model import enclosures
from policyproof.model.enclosures import Enclosure, Undecided

FUNCTIONS = {
    "sine": math.sin,
    "cosine": math.cos,
    "tangent": math.tan,
    "exponential": math.exp,
    "logarithm": math.log,
    "square_root": math.sqrt,
    "arc_tangent": math.atan,
    "arc_sine": math.asin,
    "arc_cosine": math.acos,
    "hyperbolic_sine": math.sinh,
    "hyperbolic_cosine": math.cosh,
    "hyperbolic_tangent": math.tanh,
    "logistic": lambda x: 1 / (1 + math.exp(-x)),
}


def _points(name: str, count: int, seed: int) -> list[Fraction]:
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        x = Fraction(rng.uniform(-1, 1) * rng.choice([1e-6, 0.1, 1, 3, 40]))
        if name in ("arc_sine", "arc_cosine"):
            x = Fraction(rng.choice([rng.uniform(-1, 1), 1 - 10 ** -rng.uniform(1, 15)]))
        found.append(abs(x) if name in ("logarithm", "square_root") else x)
    return [x for x in found if x != 0]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_more_digits_give_a_narrower_enclosure_inside_the_wider_one(name: str) -> None:
    """Enclosures of different precision must overlap, shrink, and contain the library's value (up to its rounding)."""
    function = getattr(enclosures, name)
    for x in _points(name, 60, 1):
        try:
            coarse, fine = function(x, 40), function(x, 300)
        except Undecided:
            continue
        assert coarse.lower <= fine.upper
        assert fine.lower <= coarse.upper
        assert fine.upper - fine.lower <= Fraction(1, 1 << 280) * max(1, abs(fine.upper)) ** 2
        value = Fraction(FUNCTIONS[name](float(x)))
        slack = Fraction(math.ulp(float(value))) * 8 + abs(value) * Fraction(1, 1 << 40)
        assert coarse.lower - slack <= value <= coarse.upper + slack


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_images_of_intervals_contain_the_images_of_their_points(name: str) -> None:
    function = getattr(enclosures, name)
    rng = random.Random(2)
    for x in _points(name, 40, 3):
        y = min(
            x + Fraction(rng.uniform(0, 5)), Fraction(1) if name.startswith("arc_") and name != "arc_tangent" else x + 9
        )
        try:
            image = function(Enclosure(x, y), 60)
        except Undecided:
            continue
        for _ in range(5):
            point = x + (y - x) * Fraction(rng.random())
            value = function(point, 120)
            assert image.lower <= value.upper
            assert value.lower <= image.upper


def test_against_arbitrary_precision() -> None:
    mpmath = pytest.importorskip("mpmath", reason="mpmath is not installed")
    twins = {
        "sine": mpmath.sin, "cosine": mpmath.cos, "exponential": mpmath.exp, "logarithm": mpmath.log,
        "arc_tangent": mpmath.atan, "arc_sine": mpmath.asin, "hyperbolic_tangent": mpmath.tanh,
    }  # fmt: skip
    with mpmath.workdps(400):
        for name, twin in twins.items():
            for x in _points(name, 60, 4):
                image = getattr(enclosures, name)(x, 150)
                true = twin(mpmath.mpf(x.numerator) / x.denominator)
                low, high = (mpmath.mpf(end.numerator) / end.denominator for end in (image.lower, image.upper))
                assert low <= true <= high, (name, x)


def test_undefined_and_undecided_are_told_apart() -> None:
    assert enclosures.logarithm(Fraction(-1), 50) is None
    assert enclosures.square_root(Fraction(-1), 50) is None
    assert enclosures.divide(1, 0, 50) is None
    with pytest.raises(Undecided):
        enclosures.logarithm(Enclosure(Fraction(-1), Fraction(1)), 50)
    with pytest.raises(Undecided):
        enclosures.divide(1, Enclosure(Fraction(-1), Fraction(1)), 50)
    with pytest.raises(Undecided):
        enclosures.tangent(Enclosure(Fraction(1), Fraction(2)), 50)
