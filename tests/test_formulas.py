"""Temporal formulas on the explicit graph against a naive evaluation by the definitions."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

import pytest

from policyproof.api import verify
from policyproof.evidence.interpreter import Interpreter
from policyproof.evidence.plain_values import Undefined, value_of
from policyproof.evidence.replay import replay
from policyproof.model.building import ModelBuilder, outcome
from policyproof.model.expressions import FALSE, constant
from policyproof.model.properties import (
    Atom,
    Bounds,
    Deadlock,
    Formula,
    FormulaProperty,
    Initial,
    Junction,
    Not,
    Path,
    Probability,
    Quantified,
    SafetyProperty,
)
from policyproof.run.errors import UnsupportedFeature
from tests.support.naive import Key, NaiveResult, naive_search
from tests.support.random_models import random_system


class _Naive:
    """The semantics of the formulas, state by state, as it is written down in the papers."""

    def __init__(self, graph: NaiveResult, interpreter: Interpreter) -> None:
        self.graph = graph
        self.interpreter = interpreter

    def successors(self, key: Key) -> set[Key]:
        return self.graph.edges[key] or {key}

    def holds(self, formula: Formula) -> set[Key]:
        states = set(self.graph.edges)
        if isinstance(formula, Atom):
            values = {key: self.interpreter.valuation(self.graph.configurations[key]) for key in states}
            return {key for key in states if value_of(formula.expression, values[key])}
        if isinstance(formula, Deadlock):
            return {key for key in states if not self.graph.edges[key]}
        if isinstance(formula, Initial):
            return set(self.graph.start_keys)
        if isinstance(formula, Not):
            return states - self.holds(formula.operand)
        if isinstance(formula, Junction):
            left, right = self.holds(formula.left), self.holds(formula.right)
            return left & right if formula.operator == "∧" else left | right
        assert isinstance(formula, Quantified)
        return self._quantified(formula)

    def _quantified(self, formula: Quantified) -> set[Key]:
        states, path = set(self.graph.edges), formula.path
        right = self.holds(path.right)
        left = states if path.left is None else self.holds(path.left)
        choose = all if formula.quantifier == "A" else any
        if path.operator == "X":
            return self._at_step(choose, right, path.bounds.upper or 0)
        if path.operator in ("F", "U"):
            return self._until(choose, left, right, path.bounds)
        dual = any if choose is all else all
        if path.operator == "G":
            return states - self._until(dual, states, states - right, path.bounds)
        if path.operator == "R":
            return states - self._until(dual, states - left, states - right, path.bounds)
        return states - self._until(dual, states - right, states - left - right, path.bounds)

    def _at_step(self, choose, target: set[Key], step: int) -> set[Key]:
        for _ in range(step):
            target = {key for key in self.graph.edges if choose(t in target for t in self.successors(key))}
        return target

    def _until(self, choose, left: set[Key], right: set[Key], bounds: Bounds) -> set[Key]:
        memo: dict[tuple[Key, int], bool] = {}
        upper = bounds.upper
        if upper is None:
            # The least fixed point, by rounds.
            found = set(right)
            while True:
                new = {key for key in left if key not in found and choose(t in found for t in self.successors(key))}
                if not new:
                    break
                found |= new
            for _ in range(bounds.lower):
                found = {key for key in left if choose(t in found for t in self.successors(key))}
            return found

        def at(key: Key, time: int) -> bool:
            if (key, time) not in memo:
                now = time >= bounds.lower and key in right
                later = time < upper and key in left and choose(at(t, time + 1) for t in self.successors(key))
                memo[key, time] = now or later
            return memo[key, time]

        return {key for key in self.graph.edges if at(key, 0)}


def _random_formula(rng: random.Random, atoms: list[Formula], depth: int) -> Formula:
    if depth == 0:
        return rng.choice(atoms)
    kind = rng.random()
    if kind < 0.15:
        return Not(_random_formula(rng, atoms, depth - 1))
    if kind < 0.35:
        left, right = (_random_formula(rng, atoms, depth - 1) for _ in range(2))
        return Junction(rng.choice(["∧", "∨"]), left, right)
    operator = rng.choice(["X", "F", "G", "U", "W", "R"])
    if operator == "X":
        step = rng.randint(1, 3)
        bounds = Bounds(step, step)
    else:
        lower = rng.choice([0, 0, 1, 2])
        bounds = Bounds(lower, rng.choice([None, lower, lower + 1, lower + 3]))
        if operator in ("W", "R") and bounds.lower:
            bounds = Bounds(0, bounds.upper)
    left = _random_formula(rng, atoms, depth - 1) if operator in ("U", "W", "R") else None
    return Quantified(rng.choice(["A", "E"]), Path(operator, _random_formula(rng, atoms, depth - 1), left, bounds))


@pytest.fixture(scope="module")
def counts() -> Counter[str]:
    return Counter()


@pytest.mark.parametrize("block", range(6))
def test_random_formulas_agree(block: int, counts: Counter[str]) -> None:
    for seed in range(500 + 20 * block, 520 + 20 * block):
        system = random_system(seed)
        rng = random.Random(seed)
        initial_only = SafetyProperty("initial", unsafe=FALSE, start=None)
        graph = naive_search(system.model.model, initial_only, system.policy)
        if graph.states > 400:
            continue
        interpreter = Interpreter(system.model.model)
        atoms: list[Formula] = [Deadlock(), Initial()]
        for item in system.model.model.variables:
            if item.domain.kind == "int" and not item.transient and item.domain.size:
                middle = int(item.domain.range[0]) + rng.randint(0, 2)
                atoms.append(Atom(item.expression <= constant(middle)))
        naive = _Naive(graph, interpreter)
        for _ in range(4):
            formula = _random_formula(rng, atoms, rng.randint(1, 3))
            try:
                holding = naive.holds(formula)
            except Undefined:
                continue
            expected = all(key in holding for key in graph.start_keys)
            for slicing in (True, False):
                answer = verify(system.model, system.policy, FormulaProperty("random", formula), slicing=slicing)
                assert answer.verdict == ("holds" if expected else "violated"), (seed, formula)
            failing = sum(key not in holding for key in graph.start_keys)
            if not isinstance(formula, Atom) and answer.result.starts is not None:
                assert answer.result.starts.unsafe == failing
            if answer.trace is not None:
                check = replay(system.model.model, answer.trace, answer.question, system.policy)
                assert check.accepted, (seed, formula, check.reason)
                counts["traces"] += 1
            counts["holds" if expected else "violated"] += 1


def test_the_formulas_were_not_vacuous(counts: Counter[str], capsys: pytest.CaptureFixture[str]) -> None:
    total = counts["holds"] + counts["violated"]
    if total < 50:
        pytest.skip("means something only when the random formulas of this module have run")
    with capsys.disabled():
        print(f"\n{total} random formulas: {dict(counts)}")
    assert min(counts["holds"], counts["violated"]) >= 0.05 * total
    assert counts["traces"] >= 5


def _counter_model():
    builder = ModelBuilder("counter")
    x = builder.integer("x", 0, 5, initial=0)
    builder.edge("up", guard=x < 5, outcomes=[outcome({x: x + 1}, probability=0.5), outcome({}, probability=0.5)])
    return builder.build()


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("A[] x <= 5", "holds"),
        ("AG<=2 x <= 2", "holds"),
        ("AG<=3 x <= 2", "violated"),
        ("AX^2 x <= 2", "holds"),
        ("AX^3 x <= 2", "violated"),
        ("AG^2 x <= 2", "holds"),
        ("AG^3 x <= 2", "violated"),
        # The paper's AG^k does not speak of the present state.
        ("AG^2 (x >= 0)", "holds"),
        ("E<> x = 5", "holds"),
        ("EF<=4 x = 5", "violated"),
        ("EF<=5 x = 5", "holds"),
        ("EF^5 x = 5", "holds"),
        # The environment may fail for ever.
        ("AF x = 5", "violated"),
        ("E [ x < 5 U x = 5 ]", "holds"),
        ("A [ x < 5 W x = 5 ]", "holds"),
        ("A [ x < 5 U x = 5 ]", "violated"),
        ("A[] (E<> x = 5)", "holds"),
        ("EG (x = 0)", "holds"),
        ('A[] (!"deadlock" | x = 5)', "holds"),
        # In the last state nothing is possible: it stutters, so that nothing holds vacuously.
        ("A[] ((EX x = 5) | x < 5)", "holds"),
        ("A[] ((AX x < 5) | x >= 4)", "holds"),
        ("x = 0", "holds"),
        ("x = 1", "violated"),
    ],
)
def test_each_form_means_what_the_documentation_says(text: str, verdict: str) -> None:
    model = _counter_model()
    answer = verify(model, None, text)
    assert answer.verdict == verdict
    if answer.trace is not None:
        assert replay(model.model, answer.trace, answer.question).accepted


def test_what_is_not_a_truth_value_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match="probability"):
        verify(_counter_model(), None, "Pmax=? [ F x = 5 ]")
    bound = Probability("max", Path("F", Atom(constant(True))), "≥", Fraction(1, 2))
    with pytest.raises(UnsupportedFeature, match="probability"):
        verify(_counter_model(), None, FormulaProperty("bounded", bound))
