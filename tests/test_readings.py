"""The readings of one expression agree: exact, batch, ranges and boxes (with planted errors that must be seen)."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from policyproof.model import box_kernel
from policyproof.model.batch_kernel import evaluate_batch
from policyproof.model.box_kernel import evaluate_boxes
from policyproof.model.definedness import definedness
from policyproof.model.enclosures import Enclosure, Undecided, ends
from policyproof.model.exact import evaluate
from policyproof.model.expressions import Expression
from policyproof.model.integral import integral
from policyproof.model.ranges import range_in, specialise
from policyproof.model.tape import Compiler, bits, float_above, float_below
from tests.support.random_expressions import INTEGERS, REALS, expressions

BOX = {item.name: item.domain.range for item in [*INTEGERS, *REALS]}


def _columns(variables):
    return [(item.name, item.domain.kind) for item in variables]


def _states(count: int, seed: int) -> list[dict[str, object]]:
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        state: dict[str, object] = {}
        for item in INTEGERS:
            low, high = item.domain.range
            state[item.name] = rng.random() < 0.5 if item.domain.kind == "bool" else rng.randint(int(low), int(high))
        found.append(state)
    return found


def _array(states) -> np.ndarray:
    return np.array([[int(state[item.name]) for item in INTEGERS] for state in states], dtype=np.int64)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(["int", "bool"]).flatmap(lambda kind: expressions(kind, INTEGERS)), st.integers(0, 10**6))
def test_the_batch_reading_equals_the_exact_one(expression: Expression, seed: int) -> None:
    """Wherever the expression is defined; and `definedness` says exactly where that is."""
    note(repr(expression))
    states = _states(150, seed)
    compiler = Compiler(_columns(INTEGERS), BOX)
    tape = compiler.compile([expression, definedness(expression)])
    assert tape.exact, "an integer expression must become integer arithmetic"
    values, overflow = evaluate_batch(tape, _array(states))
    assert not overflow
    for row, state in zip(values, states, strict=True):
        expected = evaluate(expression, state)
        assert bool(row[1]) == (expected is not None), (expression, state)
        if expected is not None:
            assert int(row[0]) == expected, (expression, state)


@settings(max_examples=300, deadline=None)
@given(expressions("bool", INTEGERS, depth=5))
def test_integer_rewriting_keeps_the_meaning(expression: Expression) -> None:
    (rewritten,) = integral([expression])
    for state in _states(60, 7):
        expected = evaluate(expression, state)
        if expected is not None:
            # The rewriting may be defined in more places, never in fewer.
            assert evaluate(rewritten, state) == expected


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["int", "bool"]).flatmap(lambda kind: expressions(kind, INTEGERS)), st.integers(0, 10**6))
def test_boxes_contain_every_value(expression: Expression, seed: int) -> None:
    """The box kernel and its exact twin both contain the value of every state of a random box."""
    rng = random.Random(seed)
    lows, highs = [], []
    for item in INTEGERS:
        low, high = (int(end) for end in item.domain.range)
        a, b = sorted((rng.randint(low, high), rng.randint(low, high)))
        lows.append(a)
        highs.append(min(b, a + 3))
    tape = Compiler(_columns(INTEGERS), BOX).compile([expression], reuse_registers=False)
    lower, upper = evaluate_boxes(tape, np.array([lows]), np.array([highs]))
    box = {item.name: (low, high) for item, low, high in zip(INTEGERS, lows, highs, strict=True)}
    box = {name: (bool(a), bool(b)) if name in ("p", "q") else (a, b) for name, (a, b) in box.items()}
    twin = range_in(expression, box)
    for values in itertools.product(*(range(low, high + 1) for low, high in zip(lows, highs, strict=True))):
        state = {
            item.name: bool(value) if item.domain.kind == "bool" else value
            for item, value in zip(INTEGERS, values, strict=True)
        }
        value = evaluate(expression, state)
        if value is not None:
            assert lower[0, 0] <= int(value) <= upper[0, 0], (expression, state)
            assert twin[0] <= value <= twin[1], (expression, state)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(["real", "bool"]).flatmap(
        lambda kind: expressions(kind, [*INTEGERS, *REALS], depth=4, transcendental=True)
    ),
    st.integers(0, 10**6),
)
def test_real_boxes_contain_every_value(expression: Expression, seed: int) -> None:
    """Outward rounding: exact values (or their enclosures) of random states never leave the box's range."""
    _check_real_containment(expression, seed)


def _check_real_containment(expression: Expression, seed: int) -> None:
    variables = [*INTEGERS, *REALS]
    rng = random.Random(seed)
    lows, highs, states = [], [], [{} for _ in range(6)]
    for item in variables:
        low, high = item.domain.range
        if item.domain.kind == "real":
            a, b = sorted(Fraction(rng.randint(0, 64), 64) * (high - low) + low for _ in range(2))
            lows.append(bits(float_below(a)))
            highs.append(bits(float_above(b)))
            for state in states:
                state[item.name] = a + Fraction(rng.randint(0, 1 << 20), 1 << 20) * (b - a)
        else:
            a, b = sorted((rng.randint(int(low), int(high)), rng.randint(int(low), int(high))))
            lows.append(a)
            highs.append(b)
            for state in states:
                value = rng.randint(a, b)
                state[item.name] = bool(value) if item.domain.kind == "bool" else value
    tape = Compiler(_columns(variables), BOX).compile([expression], reuse_registers=False)
    lower, upper = evaluate_boxes(tape, np.array([lows]), np.array([highs]))
    is_float = bool(tape.float_registers[tape.roots[0]])
    low_end, high_end = (
        (float(lower[0, 0].view(np.float64)), float(upper[0, 0].view(np.float64)))
        if is_float
        else (int(lower[0, 0]), int(upper[0, 0]))
    )
    for state in states:
        try:
            value = evaluate(expression, state)
        except Undecided:
            continue
        if value is None:
            continue
        lowest, highest = ends(value) if isinstance(value, (int, Fraction, Enclosure)) else (value, value)
        # An enclosure contains the true value, so it must meet the range; its own width is no error.
        assert highest >= low_end, (expression, state)
        assert lowest <= high_end, (expression, state)
        if not isinstance(value, Enclosure):
            assert low_end <= value <= high_end, (expression, state)


def test_a_shrunk_rounding_margin_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without outward rounding the containment test fails: it would see the error (run without compilation)."""
    from policyproof.model.expressions import apply, constant

    u = REALS[0].expression
    third = constant(Fraction(1, 3))
    # u + 1/3 - 1/3 ... accumulates rounding.
    expression = u
    for _ in range(6):
        expression = apply("*", apply("+", expression, third), third)
    monkeypatch.setattr(box_kernel, "down", lambda x: x)
    monkeypatch.setattr(box_kernel, "up", lambda x: x)
    for name in ("forward", "forward_real", "forward_integer", "_real_product"):
        monkeypatch.setattr(box_kernel, name, getattr(box_kernel, name).py_func)
    tape = Compiler(_columns([*INTEGERS, *REALS]), BOX).compile([expression], reuse_registers=False)
    misses = 0
    rng = random.Random(3)
    for _ in range(200):
        point = Fraction(rng.randint(-2000, 3000), 1000)
        lo, hi = (np.zeros(tape.register_count, dtype=np.int64) for _ in range(2))
        flo, fhi = lo.view(np.float64), hi.view(np.float64)
        for k in range(len(tape.constants)):
            lo[tape.variable_count + k] = hi[tape.variable_count + k] = tape.constants[k]
        lo[len(INTEGERS)], hi[len(INTEGERS)] = bits(float_below(point)), bits(float_above(point))
        for op, t, a, b, c in tape.code.tolist():
            box_kernel.forward(op, t, a, b, c, lo, hi, flo, fhi)
        root = tape.roots[0]
        value = evaluate(expression, {"u": point})
        misses += not (Fraction(float(flo[root])) <= value <= Fraction(float(fhi[root])))
    assert misses > 0


@settings(max_examples=200, deadline=None)
@given(expressions("bool", INTEGERS, depth=4))
def test_specialising_keeps_the_meaning(expression: Expression) -> None:
    box = {**BOX, "i": (0, 2), "k": (5, 9), "p": (True, True)}
    (simpler,) = specialise([expression], box)
    rng = random.Random(1)
    for state in _states(40, 3):
        state = {**state, "i": rng.randint(0, 2), "k": rng.randint(5, 9), "p": True}
        expected = evaluate(expression, state)
        if expected is not None:
            assert evaluate(simpler, state) == expected


def test_the_library_functions_are_within_the_assumed_accuracy() -> None:
    """The box kernel widens results by LIBRARY_ULPS; the C library must be well within that."""
    import math

    from policyproof.model import enclosures

    rng = random.Random(5)
    functions = {
        "sin": (math.sin, enclosures.sine),
        "cos": (math.cos, enclosures.cosine),
        "tan": (math.tan, enclosures.tangent),
        "exp": (math.exp, enclosures.exponential),
        "atan": (math.atan, enclosures.arc_tangent),
        "tanh": (math.tanh, enclosures.hyperbolic_tangent),
        "sinh": (math.sinh, enclosures.hyperbolic_sine),
        "cosh": (math.cosh, enclosures.hyperbolic_cosine),
        "log": (math.log, enclosures.logarithm),
    }
    for name, (library, exact) in functions.items():
        worst = 0.0
        for _ in range(400):
            x = rng.uniform(-30, 30) if rng.random() < 0.7 else rng.uniform(-1e-3, 1e-3)
            x = abs(x) if name == "log" else x
            value = library(x)
            true = exact(Fraction(x), 200)
            distance = max(abs(Fraction(value) - true.lower), abs(Fraction(value) - true.upper))
            worst = max(worst, float(distance / Fraction(math.ulp(value))))
        assert worst < box_kernel.LIBRARY_ULPS / 2, (name, worst)
