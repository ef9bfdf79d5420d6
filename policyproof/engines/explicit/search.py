"""Engine `explicit`: breadth-first reachability over the policy-restricted state space, in batches.

Idea: this is ICAPS22's explicit enumeration (EE, section 8.2) from *all* start states at once, with
duplicate detection over all runs; states are packed into machine words, and thousands of them are
decided and expanded together.

Invariant: `states.words` is in breadth-first order, states before `expanded` have all their
successors in the set, and `parents[s]` is a state from which s was first reached.  So the first
unsafe state that is added ends a shortest unsafe path.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from policyproof.engines.explicit.graph import GrowingArray, TransitionStore
from policyproof.engines.explicit.graph_kernel import count_distinct, reach_backwards, turned_round
from policyproof.engines.explicit.witness import concrete_trace
from policyproof.engines.policy_successors import PolicySuccessors
from policyproof.engines.question import SafetyQuestion
from policyproof.engines.result import Progress, Result, Run, StartVerdicts
from policyproof.evidence.trace import Trace
from policyproof.model.definedness import definedness
from policyproof.model.expressions import Expression, conjunction, negation
from policyproof.model.slicing import cone_of_influence
from policyproof.model.start_states import boxes_where, states_of_boxes
from policyproof.model.state_set import StateSet
from policyproof.run.budget import Budget
from policyproof.run.errors import InvalidInput, ResourceExhausted

ENGINE = "explicit"
CHUNK = 1 << 13
FIRST_CHUNK = 1 << 6
SUCCESSORS_AT_ONCE = 1 << 20
"""Fewer states are expanded together where each has very many successors."""
EXAMPLES = 10
REPORT_SECONDS = 50e-9
"""What one transition adds to the time that the verdicts on start states take (measured, with room)."""

# Columns of the conditions that are evaluated on every state.
UNSAFE, UNSAFE_UNDEFINED, GOAL = 0, 1, 2


def explore(
    question: SafetyQuestion,
    budget: Budget | None = None,
    *,
    slicing: bool = True,
    all_starts: bool = False,
    stop_at_goal: bool = False,
) -> Run:
    """Decide the question; `all_starts`: go on after the first violation, to a verdict for every start state."""
    search = ExplicitSearch(question, budget or Budget(), slicing=slicing, stop_at_goal=stop_at_goal)
    try:
        for activity in search.run(until_unsafe=not all_starts):
            yield Progress(activity, search.numbers())
    except ResourceExhausted as exhausted:
        return search.unknown(exhausted.reason)
    return search.result()


class ExplicitSearch:
    """One search; its fields can be read after any step of `run`."""

    def __init__(
        self, question: SafetyQuestion, budget: Budget, *, slicing: bool = True, stop_at_goal: bool = False
    ) -> None:
        self.question = question
        self.budget = budget
        self.stop_at_goal = stop_at_goal
        flat = question.flat
        kept = cone_of_influence(flat, question.seen) if slicing else set(flat.names)
        self.successors = PolicySuccessors(flat, question.policy, kept)
        self.sliced = len(flat.variables) - len(self.successors.generator.variables)
        require_discrete(self.successors)
        self.states = StateSet(self.successors.layout.words, budget, extra_bytes_per_state=10)
        self.parents = GrowingArray(np.int32)
        self.transitions = TransitionStore(budget)
        self.conditions = self.successors.generator.compile(self._conditions())
        self.flags = GrowingArray(np.uint8)
        self.start_count = 0
        self.expanded = 0
        self._chunk = FIRST_CHUNK
        self._levels = [0]
        self.first_unsafe: int | None = None
        self.triples = self.pairs = self.dead = self.stuck = 0

    def _conditions(self) -> list[Expression]:
        question = self.question
        unsafe = question.simplified(question.unsafe)
        defined = question.simplified(definedness(question.unsafe))
        conditions = [conjunction([unsafe, defined]), negation(defined)]
        if question.goal is not None:
            goal = question.simplified(question.goal)
            conditions.append(conjunction([goal, question.simplified(definedness(goal))]))
        return conditions

    # The search

    def run(self, *, until_unsafe: bool) -> Iterator[str]:
        yield "enumerating start states"
        for batch in self._start_states():
            self._add(batch, None)
            self.start_count = self._levels[0] = self.states.count
            yield "enumerating start states"
        if self.start_count == 0:
            raise InvalidInput(f"the start condition of {self.question.name or 'the property'} holds in no state")
        last_step = self.question.last_step
        while self.expanded < self.states.count:
            if until_unsafe and self.first_unsafe is not None:
                return
            self.budget.check(reserve=self._report_seconds())
            end = min(self.expanded + self._chunk, self.states.count)
            if last_step is not None:
                # Only whole levels, so that the bound is met exactly.
                end = min(end, self._level_end(self.expanded))
                if self._depth_of(self.expanded) >= last_step:
                    return
            successors = self._expand(self.expanded, end)
            if successors > SUCCESSORS_AT_ONCE:
                self._chunk = max(1, self._chunk // 2)
            elif 4 * successors < SUCCESSORS_AT_ONCE:
                self._chunk = min(CHUNK, 2 * self._chunk)
            self.expanded = end
            yield "exploring"

    # Levels: in breadth-first order the parents never decrease, so a level ends where its parents' level does.

    def _advance_levels(self) -> None:
        """Note the ends of all levels that are complete."""
        parents = self.parents.view
        while self._levels[-1] <= self.expanded and self._levels[-1] < self.states.count:
            self._levels.append(self.start_count + int(np.searchsorted(parents[self.start_count :], self._levels[-1])))

    def _level_end(self, number: int) -> int:
        self._advance_levels()
        return next(end for end in self._levels if end > number)

    def _depth_of(self, number: int) -> int:
        self._advance_levels()
        return next(depth for depth, end in enumerate(self._levels) if end > number)

    @property
    def depth(self) -> int:
        """The number of steps after which the last state was reached."""
        self._advance_levels()
        return len(self._levels) - 1 + (self._levels[-1] < self.states.count)

    def _start_states(self) -> Iterator[NDArray[np.int64]]:
        """The start states over the kept variables, packed."""
        flat = self.question.flat
        columns = [flat.names.index(item.name) for item in self.successors.generator.variables]
        for condition in self.question.starts:
            for boxes in boxes_where(flat, condition, budget=self.budget):
                if not boxes.certain.all():
                    raise NotDiscrete("a start condition over real variables")
                # What a box says of variables that are sliced away does not matter.
                lower, upper = boxes.lower[:, columns], boxes.upper[:, columns]
                for states in states_of_boxes(lower, upper, 1 << 16):
                    self.budget.check()
                    yield self.successors.layout.pack(states)

    def _expand(self, first: int, last: int) -> int:
        """Expand states; how many successors they have."""
        words = self.states.words[first:last]
        rows = np.arange(first, last)
        if self.stop_at_goal and self.question.goal is not None:
            rows = rows[(self.flags.view[first:last] & (1 << GOAL)) == 0]
            words = self.states.words[rows]
        found = self.successors.expand(words)
        numbers = self._add(found.words, rows[found.source])
        triples, pairs = count_distinct(found.source, numbers, found.label)
        self.triples += int(triples)
        self.pairs += int(pairs)
        counts = np.zeros(last - first, dtype=np.int64)
        np.add.at(counts, rows[found.source] - first, 1)
        self.transitions.append(counts, numbers)
        without = np.ones(len(rows), dtype=np.bool_)
        without[found.source] = False
        if without.any():
            possible = self.successors.has_applicable_label(words[without])
            self.stuck += int(possible.sum())
            self.dead += int((~possible).sum())
        return len(found)

    def _add(self, words: NDArray[np.int64], parents: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Add states; evaluate the conditions on those that are new."""
        before = self.states.count
        numbers = self.states.add(words)
        after = self.states.count
        if after > before:
            new = np.full(after - before, -1, dtype=np.int32)
            if parents is not None:
                # Written backwards, so that the first of several parents stays.
                new[numbers[::-1][numbers[::-1] >= before] - before] = parents[::-1][numbers[::-1] >= before]
            self.parents.append(new)
            self._evaluate(before, after)
        return numbers

    def _evaluate(self, first: int, last: int) -> None:
        from policyproof.model.batch_kernel import evaluate_batch

        states = self.successors.layout.unpack(self.states.words[first:last])
        values, overflow = evaluate_batch(self.conditions, states)
        flags = np.zeros(last - first, dtype=np.uint8)
        if overflow:
            # Every state has its flags, whatever happens: these ones are never expanded, so they stay open.
            self.flags.append(flags)
            raise ResourceExhausted("an integer left the 62 bits of batched arithmetic")
        for column in range(values.shape[1]):
            flags |= values[:, column].astype(np.uint8) << column
        self.flags.append(flags)
        if values[:, UNSAFE_UNDEFINED].any():
            place = first + int(np.flatnonzero(values[:, UNSAFE_UNDEFINED])[0])
            raise InvalidInput(f"the unsafe condition has no value in the reachable state {self.state(place)}")
        unsafe = np.flatnonzero(values[:, UNSAFE])
        if len(unsafe) and self.first_unsafe is None:
            self.first_unsafe = first + int(unsafe[0])

    # What was found

    def state(self, number: int) -> dict[str, int | bool]:
        """A state as name -> value, over the kept variables."""
        return self._named(self.successors.layout.unpack(self.states.words[number : number + 1])[0])

    def _named(self, values: NDArray[np.int64]) -> dict[str, int | bool]:
        variables = self.successors.generator.variables
        return {
            item.name: bool(value) if item.domain.kind == "bool" else int(value)
            for item, value in zip(variables, values, strict=True)
        }

    def path_to(self, number: int) -> list[int]:
        path = [number]
        while self.parents.view[path[-1]] >= 0:
            path.append(int(self.parents.view[path[-1]]))
        return path[::-1]

    def numbers(self) -> dict[str, int | float]:
        return {
            "states": self.states.count,
            "expanded": self.expanded,
            "transitions": self.triples,
            "depth": self.depth,
            "states_per_second": self.states.count / max(self.budget.elapsed, 1e-9),
        }

    def statistics(self) -> dict[str, int | float]:
        flags = self.flags.view
        decisions = self.successors.statistics
        memory = self.states.bytes + self.parents.bytes + self.flags.bytes + self.transitions.bytes
        found: dict[str, int | float] = {
            "states": self.states.count,
            "expanded_states": self.expanded,
            "start_states": self.start_count,
            "transitions": self.triples,
            "transition_pairs": self.pairs,
            "unsafe_states": int((flags & (1 << UNSAFE) != 0).sum()),
            "stuck_states": self.stuck,
            "deadlock_states": self.dead,
            "depth": self.depth,
            "variables": len(self.successors.generator.variables),
            "sliced_variables": self.sliced,
            "bytes_per_state": memory / max(1, self.states.count),
            "policy_decisions": decisions.decisions,
            "exact_decisions": decisions.exact,
            "ties": decisions.ties,
        }
        if self.question.goal is not None:
            found["goal_states"] = int((flags & (1 << GOAL) != 0).sum())
        return found

    def start_verdicts(self, *, complete: bool) -> StartVerdicts | None:
        """Which start states reach an unsafe state; `open` are those that reach a state not yet expanded."""
        if not self.transitions.kept or (self.question.last_step is not None and not complete):
            return None
        unsafe = (self.flags.view & (1 << UNSAFE)) != 0
        opened = np.zeros(self.states.count, dtype=np.bool_)
        opened[self.expanded :] = not complete
        reaches_unsafe, reaches_open = self._reaching(unsafe, opened)
        starts = slice(0, self.start_count)
        violating = reaches_unsafe[starts]
        undecided = reaches_open[starts] & ~violating
        return StartVerdicts(
            safe=int((~violating & ~undecided).sum()),
            unsafe=int(violating.sum()),
            open=int(undecided.sum()),
            unsafe_examples=tuple(self.state(int(i)) for i in np.flatnonzero(violating)[:EXAMPLES]),
            open_examples=tuple(self.state(int(i)) for i in np.flatnonzero(undecided)[:EXAMPLES]),
        )

    def _reaching(self, *marks: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
        """Which states reach a marked one, for several marks; of the only start state alone, if there is but one."""
        if self.start_count == 1:
            # Whatever was found was reached from it.
            return [np.full(1, marked.any()) for marked in marks]
        if any(marked.any() for marked in marks):
            turned = turned_round(*self.transitions.compressed(self.expanded), self.states.count)
            for marked in marks:
                reach_backwards(*turned, marked)
        return list(marks)

    def _report_seconds(self) -> float:
        """How long `start_verdicts` will take."""
        return REPORT_SECONDS * len(self.transitions) if self.start_count > 1 else 0.0

    def result(self) -> Result:
        complete = self.expanded == self.states.count
        starts = self.start_verdicts(complete=complete)
        statistics = self._with_starts(starts)
        if self.first_unsafe is None:
            bounded = self.question.last_step is not None and not complete
            reason = (
                f"no unsafe state within {self.question.last_step} steps" if bounded else "no unsafe state is reachable"
            )
            return Result("holds", reason, ENGINE, statistics, starts=starts)
        trace = self.trace(self.first_unsafe)
        statistics["unsafe_path_length"] = len(trace.steps)
        reason = f"an unsafe state is reached after {len(trace.steps)} steps"
        return Result("violated", reason, ENGINE, statistics, trace=trace, starts=starts)

    def unknown(self, reason: str) -> Result:
        """What is known when a budget ran out; a violation that was found already stays one."""
        if self.first_unsafe is not None:
            return self.result()
        starts = self.start_verdicts(complete=False) if self.start_count else None
        covered = f"{self.states.count} states found, {self.expanded} of them expanded, to depth {self.depth}"
        return Result("unknown", f"{reason}; {covered}", ENGINE, self._with_starts(starts), starts=starts)

    def _with_starts(self, starts: StartVerdicts | None) -> dict[str, int | float]:
        statistics = self.statistics()
        if starts is not None:
            statistics["start_states_safe"] = starts.safe
            statistics["start_states_unsafe"] = starts.unsafe
            statistics["start_states_open"] = starts.open
        return statistics

    def trace(self, number: int) -> Trace:
        path = self.path_to(number)
        return concrete_trace(self.successors, self.states.words[path], self.question.starts)


def require_discrete(successors: PolicySuccessors) -> None:
    """Real variables, and conditions that are not integer arithmetic, are not for packed states."""
    reals = [item.name for item in successors.generator.variables if item.domain.kind == "real"]
    if reals:
        raise NotDiscrete(f"the real variable {reals[0]!r}")
    if not successors.generator.exact:
        raise NotDiscrete("a guard or an update with an irrational function")


class NotDiscrete(Exception):
    """The state space cannot be explored in integer arithmetic; the exact search takes over."""
