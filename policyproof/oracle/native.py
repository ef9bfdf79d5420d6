"""The native back end: witnesses first, then bounds, then branch and bound over the states.

Idea.  A question (region, output) is open until a state of the region is found in which the policy
chooses the output, or until the region is cut into boxes in each of which the output is *beaten*
(`duels`).  All open boxes of all regions are worked on in batches:

1. narrow the box to what its region's condition needs; a box without a state is gone;
2. a box of few states is enumerated: every state is decided exactly;
3. elsewhere some states are decided exactly (the middle, and for every open output the corner towards
   which it gains), which finds witnesses and tells which outputs lead here;
4. bound the differences between these leaders and the open outputs from below, on all boxes at once;
5. halve what is left along the variable with the largest estimated effect on the bounds.

Invariant: the boxes on the stack, those given up and the settled ones cover all states of their
regions that satisfy the condition.  So IMPOSSIBLE is said only when nothing is open any more, and
every claim rests on a rigorous bound or on exact decisions of all states.

Where halving does not get on (many inputs, few neurons), a *finisher* takes over: another oracle, such
as a MILP built from the same bounds, that answers for the boxes that are left.  What it proves it proves
in its own arithmetic, which the answers then carry.

Integer regions are decided completely: boxes shrink to points.  Real intervals are halved down to
`resolution` times their domain; what is left there is UNKNOWN, with that reason.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from policyproof.model.automata import Variable
from policyproof.model.expressions import Expression
from policyproof.model.ranges import Range
from policyproof.oracle.batches import Batch, Stack
from policyproof.oracle.protocol import (
    IMPOSSIBLE,
    POSSIBLE,
    UNKNOWN,
    Answers,
    Arithmetic,
    Capabilities,
    DecisionOracle,
    Regions,
)
from policyproof.oracle.search import RESOLUTION, BoxSearch, Inquiry
from policyproof.oracle.space import Integers, Truths
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget
from policyproof.run.errors import ResourceExhausted

ENUMERATED = 48
"""Boxes with at most so many states are enumerated."""
SAMPLES = 6
FINISH_AFTER = 2000
LEAVES_AT_ONCE = 64


class _Ledger:
    """What is known of every (region, output)."""

    def __init__(self, regions: Regions, wanted: Truths) -> None:
        self.possible = np.zeros(wanted.shape, dtype=np.bool_)
        self.wanted = wanted
        self.witness = np.zeros((*wanted.shape, regions.lower.shape[1]), dtype=np.int64)
        self.given_up = np.zeros(wanted.shape, dtype=np.bool_)
        self.reasons: dict[int, str] = {}
        self.arithmetic: Arithmetic = "real"

    def found(self, region: Integers, output: Integers, states: Integers) -> None:
        """The policy chooses these outputs in these states of these regions."""
        self.possible[region, output] = True
        self.witness[region, output] = states

    def still_open(self, batch: Batch) -> Batch:
        """The boxes in which something is open that has not been found elsewhere in the region."""
        left: Truths = batch.open & ~self.possible[batch.region]
        keep = np.asarray(left.any(axis=1))
        result = batch.select(keep)
        result.open = left[keep]
        return result

    def give_up(self, batch: Batch, reason: str) -> None:
        batch = self.still_open(batch)
        rows, outputs = np.nonzero(batch.open)
        self.given_up[batch.region[rows], outputs] = True
        for region in np.unique(batch.region).tolist():
            self.reasons.setdefault(region, reason)

    def answers(self, statistics: Mapping[str, int | float]) -> Answers:
        unsettled = self.given_up & ~self.possible
        status = np.where(self.possible, POSSIBLE, IMPOSSIBLE).astype(np.int8)
        status[unsettled | (~self.wanted & ~self.possible)] = UNKNOWN
        reasons = {region: reason for region, reason in self.reasons.items() if unsettled[region].any()}
        return Answers(status, self.witness, reasons, self.arithmetic, dict(statistics))


class NativeOracle(BoxSearch):
    """Answers for one policy over one list of variables."""

    def __init__(
        self,
        policy: Policy,
        variables: Sequence[Variable],
        box: Mapping[str, Range] | None = None,
        *,
        enumerated: int = ENUMERATED,
        samples: int = SAMPLES,
        finisher: DecisionOracle | None = None,
        finish_after: int = FINISH_AFTER,
        resolution: float = RESOLUTION,
        slope_iterations: int = 0,
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        """`box`: the domains of the variables (default: their own); `samples`: random states of a region to begin with.

        `enumerated`: boxes of so many states are enumerated; `finisher`: an oracle for what is left after
        `finish_after` boxes a region; for the other options see `BoxSearch`.
        """
        super().__init__(
            policy, variables, box, resolution=resolution, slope_iterations=slope_iterations, device=device, seed=seed
        )
        self.enumerated = max(1, enumerated)
        self.samples = samples
        self.finisher = finisher
        self.finish_after = finish_after

    @property
    def capabilities(self) -> Capabilities:
        activations = frozenset(["relu", "leaky_relu", "clip", "tanh", "sigmoid"])
        return Capabilities("native", exact=True, integer=True, activations=activations)

    def ask(
        self,
        regions: Regions,
        outputs: Truths | None = None,
        *,
        applicability: Sequence[Expression] | None = None,
        budget: Budget | None = None,
        splits: int | None = None,
    ) -> Answers:
        """See `DecisionOracle.ask`.  `splits`: how often a region may be halved (0: samples and one bound)."""
        inquiry = self.inquire(regions, applicability)
        shape = (len(regions), len(self.policy.labels))
        wanted = np.ones(shape, dtype=np.bool_) if outputs is None else np.asarray(outputs, dtype=np.bool_)
        ledger, stack, budget = _Ledger(regions, wanted), Stack(), budget or Budget()
        started = time.monotonic()
        whole = inquiry.whole(wanted)
        stack.push(whole)
        try:
            budget.check()
            self._sample(inquiry, whole, ledger)
            while stack:
                budget.check()
                if self.finisher is not None and inquiry.statistics.get("boxes", 0) > self.finish_after * len(regions):
                    self._finish(self.finisher, inquiry, stack, ledger, applicability, budget)
                    break
                with stack.working_on(self.batch) as batch, self.paced(len(batch)):
                    stack.push(self._step(inquiry, batch, ledger, splits))
        except ResourceExhausted as exhausted:
            for batch in stack.pop_all():
                ledger.give_up(batch, exhausted.reason)
        inquiry.count("seconds", time.monotonic() - started)
        return ledger.answers(inquiry.statistics)

    def _step(self, inquiry: Inquiry, batch: Batch, ledger: _Ledger, splits: int | None) -> Batch:
        """One round for a batch of boxes; what is left comes back halved."""
        batch, uses = self.narrowed(inquiry, ledger.still_open(batch))
        inquiry.count("boxes", len(batch))
        relevant = self.relevant(inquiry, batch, uses)
        small = self.few(batch, relevant, self.enumerated)
        if small.any():
            self._enumerate(inquiry, batch.select(small), relevant[small], ledger)
            batch, uses, relevant = batch.select(~small), uses[~small], relevant[~small]
        if not len(batch):
            return batch
        view = self.look(inquiry, batch)
        self._decide(inquiry, batch, view.middle, ledger)
        rows, outputs = np.nonzero(batch.open & ~ledger.possible[batch.region])
        if len(rows):
            corners = self.duels.corners(
                batch.lower[rows], batch.upper[rows], view.middle[rows], view.network[rows],
                view.leaders[rows, 0], outputs,
            )  # fmt: skip
            self._decide(inquiry, batch.select(rows), corners, ledger)
        batch.open &= ~ledger.possible[batch.region]
        effect = self.strike_out(batch, view)
        axis = self.axis(inquiry, batch, view, effect, uses, relevant)
        left, stuck = batch.open.any(axis=1), axis < 0
        ledger.give_up(batch.select(left & stuck), self.at_resolution)
        deep = np.zeros(len(batch), dtype=np.bool_) if splits is None else batch.depth >= splits
        ledger.give_up(batch.select(left & deep), f"not settled by halving {splits} times")
        further = left & ~stuck & ~deep
        inquiry.count("halved", int(further.sum()))
        return self.halved(batch.select(further), axis[further])

    def _finish(
        self,
        finisher: DecisionOracle,
        inquiry: Inquiry,
        stack: Stack,
        ledger: _Ledger,
        applicability: Sequence[Expression] | None,
        budget: Budget,
    ) -> None:
        """Let the finisher answer for the boxes that are left."""
        while stack:
            budget.check()
            with stack.working_on(LEAVES_AT_ONCE) as batch:
                batch = ledger.still_open(batch)
                if not len(batch):
                    continue
                regions = inquiry.regions
                condition = None if regions.condition is None else regions.condition[batch.region]
                leaves = Regions(batch.lower, batch.upper, regions.conditions, condition)
                answers = finisher.ask(leaves, batch.open, applicability=applicability, budget=budget)
            inquiry.count("finished", len(batch))
            if answers.arithmetic != "real" and (batch.open & answers.impossible).any():
                ledger.arithmetic = answers.arithmetic
            rows, outputs = np.nonzero(answers.possible)
            ledger.found(batch.region[rows], outputs, answers.witness[rows, outputs])
            batch.open &= answers.status == UNKNOWN
            for row in np.flatnonzero(batch.open.any(axis=1)).tolist():
                ledger.give_up(batch.select(slice(row, row + 1)), answers.reasons.get(row, "not settled"))

    # Witnesses

    def _sample(self, inquiry: Inquiry, batch: Batch, ledger: _Ledger) -> None:
        """Some random states of every region, and two corners of it."""
        whole = batch.select(np.repeat(np.arange(len(batch)), self.samples))
        points = self.space.random_points(inquiry.generator, whole.lower, whole.upper)
        first, second = np.arange(len(whole)) % self.samples == 0, np.arange(len(whole)) % self.samples == 1
        points[first], points[second] = whole.lower[first], whole.upper[second]
        self._decide(inquiry, whole, points, ledger)

    def _decide(self, inquiry: Inquiry, batch: Batch, states: Integers, ledger: _Ledger) -> None:
        """Decide one state of every box exactly, and note what the policy chooses in those of the region."""
        rows = inquiry.members(batch, states)
        if len(rows):
            chosen = self.choose(inquiry, states[rows])
            ledger.found(batch.region[rows], chosen, states[rows])

    def _enumerate(self, inquiry: Inquiry, batch: Batch, relevant: Truths, ledger: _Ledger) -> None:
        states, box = self.space.points(batch.lower, batch.upper, relevant)
        self._decide(inquiry, batch.select(box), states, ledger)
