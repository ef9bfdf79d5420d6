"""Computation tree logic on the explicit graph of the policy-restricted state space.

The graph is explored whole; then every subformula is evaluated on all states at once, innermost
first.  A state without successors (the policy is stopped there) stutters, so nothing holds vacuously.

Until is computed as its least fixed point; all other path operators are reduced to it:

    F f = true U f     G f = not F not f     f W g = not (not g U (not f and not g))     f R g = not (not f U not g)

where the negation of a path formula exchanges A and E.  With bounds [a, b] the set is computed
backwards in time, S(b) = g and S(t) = (t >= a and g) or (f and next S(t + 1)).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from policyproof.engines.explicit.graph_kernel import always_until, every_successor, exists_until, some_successor
from policyproof.engines.explicit.search import ENGINE, EXAMPLES, ExplicitSearch
from policyproof.engines.explicit.witness import concrete_trace
from policyproof.engines.question import SafetyQuestion
from policyproof.engines.result import Progress, Result, Run, StartVerdicts
from policyproof.evidence.trace import Trace
from policyproof.model.definedness import definedness
from policyproof.model.expressions import FALSE, Expression, negation, variables_of
from policyproof.model.flat import FlatModel
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
    Quantified,
    subformulas,
)
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget
from policyproof.run.errors import Feature, InvalidInput, ResourceExhausted, UnsupportedFeature

Truth = NDArray[np.bool_]


def explore_formula(
    flat: FlatModel,
    question: FormulaProperty,
    policy: Policy | None,
    budget: Budget | None = None,
    *,
    slicing: bool = True,
) -> Run:
    """Does the formula hold in every (or some, as the property says) initial state?"""
    budget = budget or Budget()
    _check_supported(question)
    atoms = [part.expression for part in subformulas(question.formula) if isinstance(part, Atom)]
    conditions = [flat.state_condition(atom) for atom in dict.fromkeys(atoms)]
    # Nothing is unsafe; the search only has to keep whatever the formula reads.
    seen = frozenset(variables_of([*conditions, *map(definedness, conditions)]))
    safety = SafetyQuestion(flat, (flat.initial,), FALSE, policy, name=question.name, also_seen=seen)
    search = ExplicitSearch(safety, budget, slicing=slicing)
    try:
        for activity in search.run(until_unsafe=False):
            yield Progress(activity, search.numbers())
        if not search.transitions.kept:
            raise ResourceExhausted("the transitions do not fit into half of the memory limit")
        checker = _Checker(search, dict(zip(dict.fromkeys(atoms), conditions, strict=True)))
        for activity in checker.run(question.formula):
            yield Progress(activity, search.numbers())
    except ResourceExhausted as exhausted:
        return Result("unknown", exhausted.reason, ENGINE, _numbers(search))
    return _result(question, search, checker)


def _numbers(search: ExplicitSearch) -> dict[str, int | float]:
    statistics = search.statistics()
    for name in ("unsafe_states", "goal_states"):
        statistics.pop(name, None)
    return statistics


def _check_supported(question: FormulaProperty) -> None:
    unsupported = []
    for part in subformulas(question.formula):
        if not isinstance(part, (Atom, Deadlock, Initial, Not, Junction, Quantified)):
            unsupported.append(Feature(f"property {question.name!r}", f"{type(part).__name__.lower()} queries"))
        elif isinstance(part, Quantified) and part.path.reward_bounds:
            unsupported.append(Feature(f"property {question.name!r}", "bounds on rewards"))
    if question.aggregate not in ("∀", "∃"):
        unsupported.append(Feature(f"property {question.name!r}", f"the filter {question.aggregate!r} on truth values"))
    if unsupported:
        raise UnsupportedFeature(unsupported)


class _Checker:
    """Evaluates formulas on all states of an explored graph."""

    def __init__(self, search: ExplicitSearch, atoms: dict[Expression, Expression]) -> None:
        self.search = search
        self.atoms = atoms
        self.offsets, self.targets = search.transitions.compressed(search.expanded)
        self.values: dict[Formula, Truth] = {}
        self.outcome: Truth = np.empty(0, dtype=np.bool_)

    def run(self, formula: Formula) -> Iterator[str]:
        for part in reversed(list(subformulas(formula))):
            if part not in self.values:
                self.search.budget.check()
                self.values[part] = self._evaluate(part)
                yield "evaluating the formula"
        self.outcome = self.values[formula]

    def _evaluate(self, part: Formula) -> Truth:
        if isinstance(part, Atom):
            return self._atom(part.expression)
        if isinstance(part, Deadlock):
            return np.asarray(np.diff(self.offsets) == 0)
        if isinstance(part, Initial):
            return np.arange(self.search.states.count) < self.search.start_count
        if isinstance(part, Not):
            return ~self.values[part.operand]
        if isinstance(part, Junction):
            left, right = self.values[part.left], self.values[part.right]
            return left & right if part.operator == "∧" else left | right
        assert isinstance(part, Quantified)
        return self._quantified(part.quantifier == "E", part.path)

    def _atom(self, expression: Expression) -> Truth:
        from policyproof.model.batch_kernel import evaluate_batch

        question = self.search.question
        condition = self.atoms[expression]
        defined = question.simplified(definedness(condition))
        tape = self.search.successors.generator.compile([question.simplified(condition), negation(defined)])
        states = self.search.states
        result = np.empty(states.count, dtype=np.bool_)
        for first in range(0, states.count, 1 << 16):
            words = states.words[first : first + (1 << 16)]
            values, _ = evaluate_batch(tape, self.search.successors.layout.unpack(words))
            if values[:, 1].any():
                place = first + int(np.flatnonzero(values[:, 1])[0])
                raise InvalidInput(f"{expression} has no value in the reachable state {self.search.state(place)}")
            result[first : first + len(words)] = values[:, 0] != 0
        return result

    def _quantified(self, exists: bool, path: Path) -> Truth:
        right = self.values[path.right]
        left = np.ones_like(right) if path.left is None else self.values[path.left]
        if path.operator == "X":
            return self._next(exists, right, path.bounds.upper or 0)
        if path.operator in ("F", "U"):
            return self._until(exists, left, right, path.bounds)
        if path.operator == "G":
            return ~self._until(not exists, left, ~right, path.bounds)
        if path.operator == "R":
            return ~self._until(not exists, ~left, ~right, path.bounds)
        return ~self._until(not exists, ~right, ~left & ~right, path.bounds)

    def _step(self, exists: bool, holds: Truth) -> Truth:
        result = np.empty_like(holds)
        (some_successor if exists else every_successor)(self.offsets, self.targets, holds, result)
        return result

    def _next(self, exists: bool, holds: Truth, steps: int) -> Truth:
        for _ in range(steps):
            self.search.budget.check()
            before, holds = holds, self._step(exists, holds)
            if np.array_equal(before, holds):
                break
        return holds

    def _until(self, exists: bool, left: Truth, right: Truth, bounds: Bounds) -> Truth:
        result = np.empty_like(right)
        if bounds.upper is None:
            (exists_until if exists else always_until)(self.offsets, self.targets, left, right, result)
        else:
            # The steps lower..upper count: first those from upper down to lower.
            result = right
            for _ in range(bounds.upper - bounds.lower):
                self.search.budget.check()
                before, result = result, right | (left & self._step(exists, result))
                if np.array_equal(before, result):
                    break
        for _ in range(bounds.lower):
            self.search.budget.check()
            before, result = result, left & self._step(exists, result)
            if np.array_equal(before, result):
                break
        return result


def _result(question: FormulaProperty, search: ExplicitSearch, checker: _Checker) -> Result:
    outcome = checker.outcome[: search.start_count]
    holds = bool(outcome.all() if question.aggregate == "∀" else outcome.any())
    failing = np.flatnonzero(~outcome)
    starts = StartVerdicts(
        safe=int(outcome.sum()),
        unsafe=len(failing),
        open=0,
        unsafe_examples=tuple(search.state(int(i)) for i in failing[:EXAMPLES]),
    )
    statistics = {**_numbers(search), "start_states_safe": starts.safe, "start_states_unsafe": starts.unsafe}
    quantity = "every" if question.aggregate == "∀" else "some"
    if holds:
        return Result("holds", f"the formula holds in {quantity} initial state", ENGINE, statistics, starts=starts)
    reason = f"the formula fails in {len(failing)} of {search.start_count} initial states"
    trace = None
    if question.aggregate == "∀":
        trace = _trace(question, search, checker, int(failing[0]))
        if trace is None:
            reason += " (for a formula of this form the failing states are the evidence, not a path)"
        else:
            statistics["unsafe_path_length"] = len(trace.steps)
    return Result("violated", reason, ENGINE, statistics, trace=trace, starts=starts)


def _trace(question: FormulaProperty, search: ExplicitSearch, checker: _Checker, start: int) -> Trace | None:
    """A path from a failing start to the violation of `A X^k f` or `A G[a,b] f`; None for other formulas."""
    formula = question.formula
    if not isinstance(formula, Quantified) or formula.quantifier != "A" or formula.path.operator not in ("X", "G"):
        return None
    if not isinstance(formula.path.right, Atom):
        return None
    bad = ~checker.values[formula.path.right]
    layers: list[dict[int, int]] = [{start: -1}]
    first = formula.path.bounds.lower
    while True:
        step = len(layers) - 1
        found = [state for state in layers[-1] if bad[state]] if step >= first else []
        if found:
            path = [found[0]]
            for layer in reversed(layers[1:]):
                path.append(layer[path[-1]])
            return concrete_trace(
                search.successors, search.states.words[path[::-1]], search.question.starts, kind="path"
            )
        search.budget.check()
        following: dict[int, int] = {}
        for state in layers[-1]:
            begin, end = int(checker.offsets[state]), int(checker.offsets[state + 1])
            for target in checker.targets[begin:end].tolist() or [state]:
                following.setdefault(target, state)
        layers.append(following)
