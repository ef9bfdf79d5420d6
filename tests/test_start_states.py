"""Splitting boxes finds exactly the states of a condition, each once; deep and large conditions are no problem."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from policyproof.model.automata import Automaton, Location, Model
from policyproof.model.exact import ExactProgram
from policyproof.model.expressions import TRUE, Expression, apply, conjunction, constant, disjunction
from policyproof.model.flat import FlatModel, flatten
from policyproof.model.start_states import boxes_where, enumerate_states, real_cases
from policyproof.run.budget import Budget
from policyproof.run.errors import ResourceExhausted
from tests.support.random_expressions import INTEGERS, REALS, expressions


def _flat(variables) -> FlatModel:
    automaton = Automaton("only", (Location("here"),), ("here",), ())
    return flatten(Model("test", "lts", tuple(variables), (), (automaton,), ()))


SMALL = [item for item in INTEGERS if item.name in ("i", "j", "p", "q")]


@settings(max_examples=300, deadline=None)
@given(expressions("bool", SMALL, depth=5))
def test_the_states_found_are_those_of_brute_force(condition: Expression) -> None:
    flat = _flat(SMALL)
    program = ExactProgram([condition])
    expected = set()
    for values in itertools.product(range(-3, 5), range(7), [False, True], [False, True]):
        state = dict(zip([item.name for item in SMALL], values, strict=True))
        if program(state)[0] is True:
            expected.add((*(int(value) for value in values), 0))
    found = [tuple(row) for batch in enumerate_states(flat, condition, chunk=7) for row in batch.tolist()]
    assert len(found) == len(set(found)), "boxes overlap"
    assert set(found) == expected


@settings(max_examples=150, deadline=None)
@given(expressions("bool", [*SMALL, *REALS], depth=4))
def test_boxes_over_reals_lose_no_state(condition: Expression) -> None:
    """Every sampled state that satisfies the condition lies in some box; boxes marked certain hold throughout."""
    flat = _flat([*SMALL, *REALS])
    boxes = list(boxes_where(flat, condition))
    lower = (
        np.concatenate([box.lower for box in boxes]) if boxes else np.empty((0, len(flat.variables)), dtype=np.int64)
    )
    upper = np.concatenate([box.upper for box in boxes]) if boxes else lower
    certain = np.concatenate([box.certain for box in boxes]) if boxes else np.empty(0, dtype=bool)
    program = ExactProgram([condition])
    for number in range(60):
        state = {"i": number % 8 - 3, "j": number % 7, "p": number % 2 == 0, "q": number % 3 == 0, "@only": 0}
        state["u"] = Fraction(-2) + Fraction(5 * ((number * 37) % 61), 61)
        state["v"] = Fraction((number * 17) % 53, 159)
        inside = np.ones(len(lower), dtype=bool)
        for column, item in enumerate(flat.variables):
            value = state[item.name]
            low, high = lower[:, column], upper[:, column]
            if item.domain.kind == "real":
                low, high = low.view(np.float64), high.view(np.float64)
            inside &= (low <= float(value) + 1e-12) & (float(value) - 1e-12 <= high)
        holds = program(state)[0]
        if holds is True:
            assert inside.any(), state
        if holds is False:
            exactly = inside & certain
            # Being within 1e-12 of a box is not being inside it; only clear cases count.
            assert not exactly.any() or _near_the_edge(state, lower[exactly], upper[exactly], flat), state


def _near_the_edge(state, lower, upper, flat) -> bool:
    for low_row, high_row in zip(lower, upper, strict=True):
        clear = True
        for column, item in enumerate(flat.variables):
            if item.domain.kind == "real":
                low = np.array([low_row[column]]).view(np.float64)[0]
                high = np.array([high_row[column]]).view(np.float64)[0]
                clear &= low + 1e-9 < float(state[item.name]) < high - 1e-9
        if clear:
            return False
    return True


def test_a_condition_of_great_depth_is_enumerated() -> None:
    """Neither compiling nor searching recurses."""
    i, j = INTEGERS[0].expression, INTEGERS[1].expression
    condition = i.equals(1) & j.equals(2)
    for number in range(20_000):
        condition = apply("∨" if number % 2 else "∧", condition, apply("≤", i + number, j + constant(number + 3)))
    flat = _flat(INTEGERS[:2])
    found = np.concatenate(list(enumerate_states(flat, condition)))
    program = ExactProgram([condition])
    expected = sum(program({"i": a, "j": b})[0] for a in range(-3, 5) for b in range(7))
    assert len(found) == expected > 0


def test_a_large_box_is_found_without_splitting_it() -> None:
    flat = _flat(INTEGERS)
    boxes = list(boxes_where(flat, TRUE))
    assert sum(len(box.lower) for box in boxes) == 1
    total = sum(len(batch) for batch in enumerate_states(flat, TRUE, chunk=1000))
    assert total == 8 * 7 * 101 * 4


def test_a_permutation_condition_is_solved_quickly() -> None:
    """All different: far too many assignments to try, few splits to find them."""
    from policyproof.model.automata import Domain, Variable

    variables = [Variable(f"t{n}", Domain("int", 0, 7)) for n in range(8)]
    pairs = itertools.combinations(variables, 2)
    different = conjunction(a.expression.differs(b.expression) for a, b in pairs)
    ordered = conjunction(apply("<", variables[n].expression, variables[n + 1].expression) for n in range(4))
    found = sum(len(batch) for batch in enumerate_states(_flat(variables), different & ordered))
    # Five of eight values in order, the other three in any order.
    assert found == 336


def test_an_unsatisfiable_condition_has_no_states() -> None:
    i = INTEGERS[0].expression
    assert list(enumerate_states(_flat(INTEGERS), apply("<", i, constant(-3)))) == []
    contradiction = disjunction([i.equals(1) & i.equals(2), i.equals(3) & i.equals(4)])
    assert list(enumerate_states(_flat(INTEGERS), contradiction)) == []


def test_the_search_obeys_its_budget() -> None:
    from policyproof.model.automata import Domain, Variable

    variables = [Variable(f"t{n}", Domain("int", 0, 30)) for n in range(31)]
    total = variables[0].expression
    for item in variables[1:]:
        total = apply("+", total, apply("*", item.expression, item.expression))
    hard = apply("=", apply("%", total, constant(97)), constant(5))
    with pytest.raises(ResourceExhausted, match="time limit"):
        for _ in boxes_where(_flat(variables), hard, budget=Budget(0.3)):
            pass


def test_values_of_a_real_variable_are_cases() -> None:
    x, y = REALS[0].expression, REALS[1].expression
    flat = _flat(REALS)
    condition = (y >= 0) & disjunction(x.equals(Fraction(value)) for value in ("-1", "1/4", "1/2")) & (y <= 1)
    boxes = list(boxes_where(flat, condition))
    column = flat.names.index(REALS[0].name)
    ends = [
        np.concatenate([getattr(box, name)[:, column] for box in boxes]).view(np.float64).tolist()
        for name in ("lower", "upper")
    ]
    assert sorted(ends[0]) == sorted(ends[1]) == [-1.0, 0.25, 0.5]


def test_only_distinct_values_of_one_real_variable_are_cases() -> None:
    """Otherwise the boxes of two cases could overlap, or a state be lost."""
    x, y = REALS[0].expression, REALS[1].expression
    one, two = x.equals(Fraction(1)), x.equals(Fraction(2))
    assert len(real_cases(one | two)) == 2
    for whole in (one | y.equals(Fraction(2)), one | (x > 2), one & two, one, ~(one | two)):
        assert real_cases(whole) == [whole]
