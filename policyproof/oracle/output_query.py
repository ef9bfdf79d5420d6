"""Is there an input in a box such that the outputs satisfy one of some clauses?

Branch and bound over the inputs, in batches.  First witnesses are looked for (`witnesses`).  Then every
box of the pool is bounded: a clause is refuted on a box when one of its rows is, a box on which all its
clauses are refuted is done, the others are halved, and their middles are tried as witnesses.  What is
learnt of a box (refuted clauses, decided ReLUs) holds for its halves.

Invariant: the boxes of the pool, those set aside as too small, and refuted boxes together cover the
query's boxes; so "unsat" is claimed when the first two are empty, and rests on the rigorous bounds alone.
"Sat" rests on exact evaluation of the witness.

The pool is a stack, so that it stays small, whatever the number of boxes.  The size of a batch follows
the clock, so that the budget is obeyed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from policyproof.bounds.api import bound_rows
from policyproof.bounds.chain import make_chain
from policyproof.encodings.output_query import Query
from policyproof.oracle.clauses import Integers, Truths, compile_clauses
from policyproof.oracle.splits import choose_inputs, halve
from policyproof.oracle.witnesses import Witness, WitnessSearch
from policyproof.policy.network import Floats, Network
from policyproof.run.budget import Budget
from policyproof.run.errors import ResourceExhausted

Result = Literal["sat", "unsat", "unknown", "timeout"]

SECONDS_PER_BATCH = 0.06
LEAST_BATCH, GREATEST_BATCH = 8, 8192
SLOPE_ITERATIONS, FEW_ROWS = 4, 2
MOST_BOXES_ASIDE = 100_000
FIRST_POINTS, FIRST_STEPS = 256, 25
SECONDS_BETWEEN_DESCENTS = 1.0
DESCENT_POINTS, DESCENT_STEPS = 64, 12


@dataclass(frozen=True)
class QueryAnswer:
    """The standard's result word, why it is not an answer where it is none, and the witness of a "sat"."""

    result: Result
    reason: str
    witness: Witness | None = None
    statistics: dict[str, int | float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes `lower[n, input]` .. `upper[n, input]`, each of one case, and what is known of them."""

    lower: Floats
    upper: Floats
    case: Integers
    alive: Truths
    """`alive[n, clause]`: clauses that are not refuted."""
    phases: NDArray[np.int8]
    """`phases[n, component]`: decided ReLUs (`bounds.api`)."""

    def __len__(self) -> int:
        return len(self.case)

    def select(self, chosen: Truths | Integers | slice) -> Boxes:
        return Boxes(self.lower[chosen], self.upper[chosen], self.case[chosen], self.alive[chosen], self.phases[chosen])

    @property
    def bytes(self) -> int:
        return self.lower.nbytes + self.upper.nbytes + self.case.nbytes + self.alive.nbytes + self.phases.nbytes

    @staticmethod
    def join(parts: list[Boxes]) -> Boxes:
        return Boxes(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("lower", "upper", "case", "alive", "phases")
            )
        )


def decide(
    network: Network,
    query: Query,
    *,
    budget: Budget | None = None,
    seed: int = 0,
    on_progress: Callable[[str], None] | None = None,
) -> QueryAnswer:
    """Answer a query about a network."""
    search = OutputSearch(network, query, budget or Budget(), seed)
    return search.run(on_progress)


class OutputSearch:
    """The pool of one query, and what is counted on the way."""

    def __init__(self, network: Network, query: Query, budget: Budget, seed: int) -> None:
        self.budget = budget
        self.chain = make_chain(network)
        self.clauses = compile_clauses(network, self.chain, query)
        self.witnesses = WitnessSearch(network, self.chain, self.clauses, seed)
        self.pool = [self._whole()]
        """Parts of the stack; the last boxes of the last part come next."""
        self.aside: list[Boxes] = []
        self.boxes = 0
        self.batch = LEAST_BATCH
        self._last_descent = time.monotonic()

    def _whole(self) -> Boxes:
        clauses = self.clauses
        cases = len(clauses.cases)
        components = self.chain.packed.vectors.shape[1]
        alive = clauses.alive.reshape(cases, len(clauses.case_of))
        phases = np.zeros((cases, components), dtype=np.int8)
        return Boxes(clauses.lower, clauses.upper, np.arange(cases), alive, phases)

    def run(self, on_progress: Callable[[str], None] | None = None) -> QueryAnswer:
        try:
            witness = self._search(on_progress)
        except ResourceExhausted as exhausted:
            word: Result = "timeout" if self.budget.remaining <= 0 else "unknown"
            return self._answer(word, exhausted.reason)
        if witness is not None:
            return self._answer("sat", "", witness)
        if self.aside:
            count = sum(map(len, self.aside))
            return self._answer("unknown", f"{count:,} boxes are as small as floats can be, and undecided")
        return self._answer("unsat", "")

    def _answer(self, result: Result, reason: str, witness: Witness | None = None) -> QueryAnswer:
        statistics: dict[str, int | float] = {
            "boxes": self.boxes,
            "open_boxes": sum(map(len, self.pool)),
            "exact_evaluations": self.witnesses.confirmations,
        }
        return QueryAnswer(result, reason, witness, statistics)

    def _search(self, on_progress: Callable[[str], None] | None) -> Witness | None:
        if not self.clauses.cases:
            return None
        self.budget.check()
        found = self.witnesses.descend(self.budget, points=FIRST_POINTS, steps=FIRST_STEPS)
        if found is not None:
            return found
        while self.pool:
            self.budget.check()
            started = time.monotonic()
            found = self._step(self._take())
            if found is not None:
                return found
            self._adapt(time.monotonic() - started)
            self.budget.check_memory(sum(part.bytes for part in self.pool), "the pool of open boxes")
            if on_progress is not None:
                on_progress(f"{self.boxes:,} boxes, {sum(map(len, self.pool)):,} open")
        return None

    def _adapt(self, seconds: float) -> None:
        wanted = min(SECONDS_PER_BATCH, max(self.budget.remaining, 0.01))
        ratio = min(2.0, wanted / max(seconds, 1e-4))
        self.batch = int(min(max(self.batch * ratio, LEAST_BATCH), GREATEST_BATCH))

    def _take(self) -> Boxes:
        """The next boxes of the stack."""
        taken: list[Boxes] = []
        missing = self.batch
        while missing and self.pool:
            part = self.pool.pop()
            if len(part) > missing:
                self.pool.append(part.select(slice(0, len(part) - missing)))
                part = part.select(slice(len(part) - missing, None))
            taken.append(part)
            missing -= len(part)
        return Boxes.join(taken)

    def _step(self, boxes: Boxes) -> Witness | None:
        """Bound boxes, try their middles, halve what is left."""
        clauses = self.clauses
        self.boxes += len(boxes)
        wanted = (boxes.alive.astype(np.float64) @ clauses.members.astype(np.float64)) > 0
        numbers = np.where(wanted, np.arange(len(clauses.rows)), -1)
        # Better slopes save a fifth of the boxes; for many rows they cost more than that.
        few = wanted.sum() <= FEW_ROWS * len(boxes)
        bounds = bound_rows(
            self.chain,
            clauses.rows,
            boxes.lower,
            boxes.upper,
            numbers,
            iterations=SLOPE_ITERATIONS if few else 0,
            phases=boxes.phases,
            attribute=True,
        )
        alive = boxes.alive & ~clauses.refuted(clauses.refuted_rows(bounds.lower))
        left = np.flatnonzero(alive.any(axis=1))
        if not len(left):
            return None
        boxes = Boxes(boxes.lower[left], boxes.upper[left], boxes.case[left], alive[left], bounds.phases[left])
        middle = 0.5 * boxes.lower + 0.5 * boxes.upper
        found = self.witnesses.look(boxes.case, middle) or self._descend(boxes, middle)
        if found is not None:
            return found
        axis = choose_inputs(boxes.lower, boxes.upper, bounds.effect[left])
        self._set_aside(boxes.select(axis < 0))
        rest, axis = boxes.select(axis >= 0), axis[axis >= 0]
        if len(rest):
            lower, upper = halve(rest.lower, rest.upper, axis)
            # Halves beside each other: the stack then works on one region after the other.
            twice = np.repeat(np.arange(len(rest)), 2)
            self.pool.append(Boxes(lower, upper, rest.case[twice], rest.alive[twice], rest.phases[twice]))
        return None

    def _descend(self, boxes: Boxes, middle: Floats) -> Witness | None:
        """Now and then a descent from the middles of open boxes, in their case's whole box."""
        if time.monotonic() - self._last_descent < SECONDS_BETWEEN_DESCENTS:
            return None
        chosen = np.arange(len(boxes))[-DESCENT_POINTS:]
        clause = boxes.alive[chosen].argmax(axis=1)
        case = boxes.case[chosen]
        lower, upper = self.clauses.lower[case], self.clauses.upper[case]
        found = self.witnesses.follow(self.budget, middle[chosen], clause, lower, upper, steps=DESCENT_STEPS)
        self._last_descent = time.monotonic()
        return found

    def _set_aside(self, boxes: Boxes) -> None:
        """Boxes that cannot be halved: settled where the whole case is one input, otherwise left over."""
        if not len(boxes):
            return
        points = [case for case in np.unique(boxes.case).tolist() if self.witnesses.refuted_point(case)]
        boxes = boxes.select(~np.isin(boxes.case, points))
        if len(boxes):
            self.aside.append(boxes)
        if sum(map(len, self.aside)) > MOST_BOXES_ASIDE:
            raise ResourceExhausted(
                f"more than {MOST_BOXES_ASIDE:,} boxes are as small as floats can be, and undecided"
            )
