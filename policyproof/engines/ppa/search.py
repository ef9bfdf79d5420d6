"""The engine `ppa`: build the reachable fragment of the policy predicate abstraction Θ^π_P (ICAPS22, section 7).

Forward search from the abstract start states, one frontier after the other (`expansion`).  The whole
fragment is built, also behind an abstract unsafe state, since start states that cannot reach one are
proved safe all the same.

If no abstract unsafe state is reached the policy is safe (Proposition 6).  If one is, nothing is known:
the abstract path may be spurious, and the predicates too coarse.

Invariant: every concrete path of the policy from the start set runs through abstract states that were
found, as far as the search has got.  Where the oracle could not tell whether there is a transition, it is
taken as one, so "holds" stays sound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from policyproof.engines.ppa.concretization import Concretization
from policyproof.engines.ppa.configurations import CONFIGURATIONS, NATIVE, check_configuration
from policyproof.engines.ppa.expansion import Expander, NativeExpansion
from policyproof.engines.ppa.predicates import Predicates, Truths, make_predicates
from policyproof.engines.question import SafetyQuestion
from policyproof.engines.result import Progress, Result, Run, StartVerdicts, Verdict
from policyproof.model.definedness import definedness
from policyproof.model.expressions import TRUE, Expression, conjunction, negation
from policyproof.model.start_states import boxes_where
from policyproof.model.state_set import StateSet
from policyproof.oracle.space import Integers
from policyproof.run.budget import Budget
from policyproof.run.child import Worker
from policyproof.run.errors import Feature, ResourceExhausted, UnsupportedFeature


@dataclass(eq=False)
class AbstractGraph:
    """The fragment that was built: abstract states by number, and transitions (source, label, target)."""

    predicates: Predicates
    states: StateSet
    start: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    unsafe: set[int] = field(default_factory=set)
    transitions: set[tuple[int, int, int]] = field(default_factory=set)
    by_operator: int = 0
    """Transitions counted once for every operator that has them."""
    undecided: int = 0
    """Transitions that are there as far as is known: the oracle could not tell."""
    expanded: int = 0

    def truths(self, numbers: Integers) -> Truths:
        """`truths[n, atom]` of abstract states."""
        return self.predicates.unpack(self.states.words[numbers])

    @property
    def pairs(self) -> int:
        return len({(source, target) for source, _, target in self.transitions})

    def may_reach(self, targets: Iterable[int]) -> set[int]:
        """The abstract states from which some target can be reached along transitions."""
        before: dict[int, list[int]] = {}
        for source, _, target in self.transitions:
            before.setdefault(target, []).append(source)
        seen = set(targets)
        stack = list(seen)
        while stack:
            for source in before.get(stack.pop(), []):
                if source not in seen:
                    seen.add(source)
                    stack.append(source)
        return seen


def make_expander(
    concretization: Concretization, configuration: str, *, seed: int = 0, worker: Worker | None = None
) -> Expander:
    """What expands abstract states in a configuration."""
    check_configuration(configuration)
    if configuration == NATIVE:
        return NativeExpansion(concretization, seed=seed)
    from policyproof.engines.ppa.algorithm import AlgorithmExpansion

    return AlgorithmExpansion(concretization, CONFIGURATIONS[configuration], seed=seed, worker=worker)


class PpaSearch:
    """The search over abstract states of one question."""

    def __init__(
        self,
        question: SafetyQuestion,
        predicates: Iterable[Expression],
        budget: Budget,
        *,
        configuration: str = NATIVE,
        seed: int = 0,
        worker: Worker | None = None,
    ) -> None:
        """`configuration`: one of `configurations.NAMES`; `worker`: a child process for solvers, if it is shared."""
        if question.last_step is not None:
            what = "a question about a bounded number of steps by predicate abstraction"
            raise UnsupportedFeature([Feature(f"property {question.name!r}", what)])
        self.question = question
        self.budget = budget
        self.configuration = configuration
        flat = question.flat
        self.concretization = Concretization(flat, question.policy, make_predicates(flat, predicates), seed=seed)
        self.expander = make_expander(self.concretization, configuration, seed=seed, worker=worker)
        # A state in which the unsafe condition has no value is not known to be safe.
        safe = conjunction([definedness(question.unsafe), negation(question.unsafe)])
        self.unsafe = question.simplified(negation(safe))
        found = self.concretization.predicates
        self.graph = AbstractGraph(found, StateSet(found.words, budget))

    @property
    def over_approximates(self) -> bool:
        """Is it the configuration that takes what it cannot refute for a transition?"""
        configuration = CONFIGURATIONS.get(self.configuration)
        return configuration is not None and configuration.over_approximates

    def run(self) -> Iterator[Progress]:
        yield from self._find_starts()
        graph = self.graph
        while graph.expanded < graph.states.count:
            first, last = graph.expanded, min(graph.states.count, graph.expanded + self.expander.at_once)
            self._expand(np.arange(first, last))
            graph.expanded = last
            yield Progress("abstracting", self.numbers())

    def _find_starts(self) -> Iterator[Progress]:
        """The abstract states of the start set."""
        concretization, graph = self.concretization, self.graph
        for condition in self.question.starts:
            for boxes in boxes_where(self.question.flat, condition, budget=self.budget):
                for rows, left in ((boxes.certain, TRUE), (~boxes.certain, condition)):
                    if rows.any():
                        ends = boxes.lower[rows], boxes.upper[rows]
                        truths = concretization.abstractions_where(*ends, left, self.budget)
                        graph.states.add(graph.predicates.pack(truths))
                yield Progress("abstracting start states", {"abstract_start_states": graph.states.count})
        graph.start = np.arange(graph.states.count)

    def _expand(self, numbers: Integers) -> None:
        """Expand some abstract states; whether they are unsafe is decided on the way."""
        concretization, graph = self.concretization, self.graph
        truths = graph.truths(numbers)
        areas = concretization.areas_of(truths)
        unsafe, unclear = concretization.holding(areas, self.unsafe, self.budget)
        found = self.expander.expand(truths, areas, self.budget)
        targets = graph.states.add(graph.predicates.pack(found.target))
        graph.unsafe.update(numbers[unsafe].tolist())
        graph.undecided += int(unclear.sum()) + int(found.undecided.sum())
        graph.by_operator += len(found.source)
        graph.transitions.update(
            zip(numbers[found.source].tolist(), found.label.tolist(), targets.tolist(), strict=True)
        )

    def numbers(self) -> dict[str, int | float]:
        graph = self.graph
        return {
            "abstract_states": graph.states.count,
            "expanded": graph.expanded,
            "transitions": len(graph.transitions),
            "abstract_unsafe_states": len(graph.unsafe),
        }

    def statistics(self) -> dict[str, int | float]:
        graph = self.graph
        return {
            "predicates": graph.predicates.given,
            "abstract_states": graph.states.count,
            "abstract_start_states": len(graph.start),
            "abstract_unsafe_states": len(graph.unsafe),
            "transitions": len(graph.transitions),
            "transition_pairs": graph.pairs,
            "operator_transitions": graph.by_operator,
            "undecided_transitions": graph.undecided,
            "over_approximation": int(self.over_approximates),
            "expanded": graph.expanded,
            **self.concretization.counts.statistics(),
        }


def abstract(
    question: SafetyQuestion,
    predicates: Iterable[Expression],
    budget: Budget,
    *,
    configuration: str = NATIVE,
    seed: int = 0,
) -> Run:
    """The engine: build the abstraction, and say what it proves."""
    search = PpaSearch(question, predicates, budget, configuration=configuration, seed=seed)
    graph = search.graph
    try:
        yield from search.run()
    except ResourceExhausted as exhausted:
        # What is not expanded yet may lead anywhere.
        open_ends = set(range(graph.expanded, graph.states.count))
        return _result(search, exhausted.reason, graph.may_reach(graph.unsafe | open_ends), finished=False)
    finally:
        search.expander.close()
    return _result(search, "", graph.may_reach(graph.unsafe), finished=True)


def _result(search: PpaSearch, reason: str, doubtful: set[int], *, finished: bool) -> Result:
    graph = search.graph
    starts = graph.start.tolist()
    open_starts = sum(number in doubtful for number in starts)
    statistics = search.statistics()
    statistics["abstract_start_states_safe"] = len(starts) - open_starts
    statistics["abstract_start_states_open"] = open_starts
    verdict: Verdict = "holds" if finished and not open_starts else "unknown"
    if finished and not graph.unsafe:
        reason = "no abstract unsafe state is reachable"
    elif finished and not open_starts:
        reason = "no abstract start state reaches an unsafe state"
    elif finished:
        reason = "the abstraction reaches an unsafe state: it may really be unsafe, or the predicates are too coarse"
        if search.over_approximates:
            reason += " (and without exact tests it is coarser than they are)"
    return Result(
        verdict,
        reason,
        "ppa",
        statistics,
        arithmetic=search.expander.arithmetic,
        starts=StartVerdicts(safe=len(starts) - open_starts, unsafe=0, open=open_starts),
    )
