"""The explicit engine for models that packed integers cannot hold: one state at a time, in rational arithmetic.

Used when a variable that matters is real, or a guard or update uses an irrational function.  States
are tuples of exact values in a dictionary; everything else is as in `search`.  It is a
semi-decision: the reachable states may be infinitely many, and then the budget ends the search.

The start set must be finite: every real variable that matters is fixed by an equation `v = c`
in the start condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from policyproof.engines.explicit.witness import step_of, trace_state
from policyproof.engines.question import SafetyQuestion
from policyproof.engines.result import Progress, Result, Run, StartVerdicts
from policyproof.evidence.trace import Trace
from policyproof.model.automata import Variable
from policyproof.model.enclosures import Enclosure, Undecided
from policyproof.model.exact import ExactProgram
from policyproof.model.expressions import Expression, constant, substitute
from policyproof.model.flat import Freedom, Operator
from policyproof.model.start_states import enumerate_states, real_cases
from policyproof.run.budget import Budget
from policyproof.run.errors import Feature, InvalidInput, ResourceExhausted, UnsupportedFeature

ENGINE = "explicit"
MAXIMAL_OPERATORS = 200_000
MAXIMAL_CHOICES = 100_000
BYTES_PER_VALUE = 120
"""A generous estimate of what one exact value in a stored state takes."""

State = tuple[Any, ...]


def explore_exactly(
    question: SafetyQuestion, budget: Budget | None = None, *, all_starts: bool = False, stop_at_goal: bool = False
) -> Run:
    """As `explore` in `search`, for real-valued models."""
    search = _ExactSearch(question, budget or Budget(), stop_at_goal=stop_at_goal)
    try:
        for activity in search.run(until_unsafe=not all_starts):
            yield Progress(activity, search.statistics())
    except ResourceExhausted as exhausted:
        return search.result(exhausted.reason)
    except Undecided as undecided:
        return search.result(str(undecided))
    return search.result(None)


class _ExactSearch:
    def __init__(self, question: SafetyQuestion, budget: Budget, *, stop_at_goal: bool) -> None:
        self.question = question
        self.budget = budget
        self.stop_at_goal = stop_at_goal
        flat = question.flat
        self.names = flat.names
        if len(flat.operators) > MAXIMAL_OPERATORS:
            what = f"{len(flat.operators)} operators in a real-valued model (at most {MAXIMAL_OPERATORS})"
            raise UnsupportedFeature([Feature("the synchronisations", what)])
        self.operators = [_Compiled(operator) for operator in flat.operators]
        conditions = [question.unsafe, *([] if question.goal is None else [question.goal])]
        self.conditions = ExactProgram(conditions)
        self.numbers: dict[State, int] = {}
        self.states: list[State] = []
        self.parents: list[tuple[int, int] | None] = []
        self.successors: list[list[int]] = []
        self.unsafe: list[bool] = []
        self.goal: list[bool] = []
        self.start_count = self.depth = self.triples = self.pairs = self.stuck = self.dead = 0
        self.first_unsafe: int | None = None

    def run(self, *, until_unsafe: bool) -> Iterator[str]:
        yield "enumerating start states"
        for condition in self.question.starts:
            for state in finite_states(self.question.flat.variables, condition, self):
                self._check_budget()
                self._add(state, None)
        self.start_count = level_end = len(self.states)
        if self.start_count == 0:
            raise InvalidInput(f"the start condition of {self.question.name or 'the property'} holds in no state")
        last_step = self.question.last_step
        while len(self.successors) < len(self.states) and (last_step is None or self.depth < last_step):
            if until_unsafe and self.first_unsafe is not None:
                return
            self._check_budget()
            self._expand(len(self.successors))
            if len(self.successors) == level_end:
                self.depth += len(self.states) > level_end
                level_end = len(self.states)
            if len(self.successors) % 64 == 0:
                yield "exploring exactly, since the model has real variables"

    def _check_budget(self) -> None:
        self.budget.check()
        self.budget.check_memory(len(self.states) * len(self.names) * BYTES_PER_VALUE, f"{len(self.states)} states")

    def valuation(self, state: State) -> dict[str, Any]:
        return dict(zip(self.names, state, strict=True))

    def _add(self, state: State, parent: tuple[int, int] | None) -> int:
        number = self.numbers.get(state)
        if number is not None:
            return number
        number = self.numbers[state] = len(self.states)
        values = self.conditions(self.valuation(state))
        if values[0] is None:
            raise InvalidInput(f"the unsafe condition has no value in the reachable state {self.valuation(state)}")
        self.states.append(state)
        self.parents.append(parent)
        self.unsafe.append(values[0] is True)
        self.goal.append(len(values) > 1 and values[1] is True)
        if values[0] is True and self.first_unsafe is None:
            self.first_unsafe = number
        return number

    def _expand(self, number: int) -> None:
        if self.stop_at_goal and self.goal[number]:
            self.successors.append([])
            return
        valuation = self.valuation(self.states[number])
        applicable = [index for index, operator in enumerate(self.operators) if operator.applies(valuation)]
        allowed = self._allowed(valuation, applicable)
        found: list[int] = []
        labels: set[tuple[str | None, int]] = set()
        for index in applicable:
            label = self.operators[index].operator.label
            if allowed is not None and label not in allowed:
                continue
            for following in self.operators[index].successors(valuation):
                target = self._add(tuple(following[name] for name in self.names), (number, index))
                found.append(target)
                labels.add((label, target))
        self.successors.append(found)
        self.triples += len(labels)
        self.pairs += len(set(found))
        if not found:
            self.stuck += bool(applicable)
            self.dead += not applicable

    def _allowed(self, valuation: Mapping[str, Any], applicable: Sequence[int]) -> set[str | None] | None:
        policy = self.question.policy
        if policy is None:
            return None
        outputs = None
        if policy.filter:
            possible = {self.operators[index].operator.label for index in applicable}
            outputs = [number for number, label in enumerate(policy.labels) if label in possible] or None
        chosen = policy.labels[policy.decide_exactly(valuation, outputs)]
        environment = {label for label in self.question.flat.labels if label not in policy.labels}
        return {None, chosen, *environment}

    # What was found

    def statistics(self) -> dict[str, int | float]:
        found: dict[str, int | float] = {
            "states": len(self.states),
            "expanded_states": len(self.successors),
            "start_states": self.start_count,
            "transitions": self.triples,
            "transition_pairs": self.pairs,
            "unsafe_states": sum(self.unsafe),
            "stuck_states": self.stuck,
            "deadlock_states": self.dead,
            "depth": self.depth,
            "variables": len(self.names),
            "sliced_variables": 0,
        }
        if self.question.goal is not None:
            found["goal_states"] = sum(self.goal)
        return found

    def result(self, exhausted: str | None) -> Result:
        statistics = self.statistics()
        starts = self._start_verdicts()
        if starts is not None:
            statistics["start_states_safe"] = starts.safe
            statistics["start_states_unsafe"] = starts.unsafe
            statistics["start_states_open"] = starts.open
        if self.first_unsafe is not None:
            trace = self._trace(self.first_unsafe)
            statistics["unsafe_path_length"] = len(trace.steps)
            reason = f"an unsafe state is reached after {len(trace.steps)} steps"
            return Result("violated", reason, ENGINE, statistics, trace=trace, starts=starts)
        if exhausted is not None:
            covered = f"{len(self.states)} states found, {len(self.successors)} of them expanded, to depth {self.depth}"
            return Result("unknown", f"{exhausted}; {covered}", ENGINE, statistics, starts=starts)
        bounded = len(self.successors) < len(self.states)
        reason = (
            f"no unsafe state within {self.question.last_step} steps" if bounded else "no unsafe state is reachable"
        )
        return Result("holds", reason, ENGINE, statistics, starts=starts)

    def _start_verdicts(self) -> StartVerdicts | None:
        complete = len(self.successors) == len(self.states)
        if self.question.last_step is not None and not complete:
            return None
        incoming: list[list[int]] = [[] for _ in self.states]
        for source, targets in enumerate(self.successors):
            for target in targets:
                incoming[target].append(source)
        unsafe = _backwards(incoming, [i for i, bad in enumerate(self.unsafe) if bad])
        undecided = _backwards(incoming, list(range(len(self.successors), len(self.states))))
        starts = range(self.start_count)
        opened = [i for i in starts if i in undecided and i not in unsafe]
        violating = [i for i in starts if i in unsafe]
        return StartVerdicts(
            safe=self.start_count - len(violating) - len(opened),
            unsafe=len(violating),
            open=len(opened),
            unsafe_examples=tuple(self.valuation(self.states[i]) for i in violating[:10]),
            open_examples=tuple(self.valuation(self.states[i]) for i in opened[:10]),
        )

    def _trace(self, number: int) -> Trace:
        flat = self.question.flat
        states, steps = [trace_state(flat, self.valuation(self.states[number]))], []
        parent = self.parents[number]
        while parent is not None:
            source, operator = parent
            steps.append(step_of(flat, self.operators[operator].operator))
            states.append(trace_state(flat, self.valuation(self.states[source])))
            parent = self.parents[source]
        return Trace(tuple(reversed(states)), tuple(reversed(steps)))


def _backwards(incoming: list[list[int]], marked: list[int]) -> set[int]:
    reached = set(marked)
    pending = list(marked)
    while pending:
        for source in incoming[pending.pop()]:
            if source not in reached:
                reached.add(source)
                pending.append(source)
    return reached


class _Compiled:
    """An operator whose guard and update are evaluated exactly."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.updates = list(operator.update.items())
        self._guard = ExactProgram([operator.guard])
        roots: list[Expression] = []
        for _, value in self.updates:
            roots.extend([value.lower, value.upper] if isinstance(value, Freedom) else [value])
        self._values = ExactProgram(roots)

    def applies(self, valuation: Mapping[str, Any]) -> bool:
        return self._guard(valuation)[0] is True

    def successors(self, valuation: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        values = iter(self._values(valuation))
        following = [dict(valuation)]
        for name, update in self.updates:
            value = next(values)
            if isinstance(value, Enclosure):
                raise ResourceExhausted(f"the value of {name!r} becomes irrational, which no exact search can store")
            if isinstance(update, Freedom):
                upper: Any = next(values)
                choices = self._choices(name, value, upper)
                if len(following) * len(choices) > MAXIMAL_CHOICES:
                    raise ResourceExhausted(f"the environment chooses among more than {MAXIMAL_CHOICES} values at once")
                following = [{**state, name: choice} for state in following for choice in choices]
            else:
                following = [{**state, name: value} for state in following]
        return iter(following)

    def _choices(self, name: str, lower: Any, upper: Any) -> Sequence[Any]:
        if lower == upper:
            return [lower]
        if isinstance(lower, Fraction) or isinstance(upper, Fraction):
            raise ResourceExhausted(f"the environment chooses a real value of {name!r}: infinitely many successors")
        if upper - lower > MAXIMAL_CHOICES:
            raise ResourceExhausted(f"the environment chooses among {upper - lower + 1} values of {name!r}")
        return range(lower, upper + 1)


def finite_states(variables: Sequence[Variable], condition: Expression, search: _ExactSearch) -> Iterator[State]:
    """The states of a condition that fixes every real variable by an equation, or by one of several."""
    for case in real_cases(condition):
        yield from _states_of_case(variables, case, search)


def _states_of_case(variables: Sequence[Variable], condition: Expression, search: _ExactSearch) -> Iterator[State]:
    fixed = _equations(condition)
    reals = [item for item in variables if item.domain.kind == "real"]
    absent = [item.name for item in reals if item.name not in fixed]
    if absent:
        raise ResourceExhausted(f"the start set is infinite: nothing fixes the real variable {absent[0]!r}")
    if any(fixed[item.name] not in item.domain for item in reals):
        return
    values = {item.name: constant(fixed[item.name]) for item in reals}
    (rest,) = substitute([condition], values)
    discrete = [item for item in variables if item.domain.kind != "real"]
    for batch in enumerate_states(search.question.flat, rest, variables=discrete, budget=search.budget):
        for row in batch.tolist():
            found = dict(zip([item.name for item in discrete], row, strict=True))
            yield tuple(
                fixed[item.name]
                if item.domain.kind == "real"
                else bool(found[item.name])
                if item.domain.kind == "bool"
                else found[item.name]
                for item in variables
            )


def _equations(condition: Expression) -> dict[str, Fraction]:
    """The equations `v = c` that a condition demands, from its outermost conjunctions."""
    found: dict[str, Fraction] = {}
    stack = [condition]
    while stack:
        part = stack.pop()
        if part.operator == "∧":
            stack.extend(part.arguments)
        elif part.operator == "=":
            left, right = part.arguments
            if right.is_variable:
                left, right = right, left
            if left.is_variable and left.kind == "real" and right.is_constant:
                found[left.name] = Fraction(right.exact)
    return found
