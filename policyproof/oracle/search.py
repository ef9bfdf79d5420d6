"""What every search over boxes of states is made of: narrow, look, choose where to halve.

`NativeOracle` asks which outputs are possible, `partition` cuts a region into parts with one decision
each; both go through their boxes with the steps of this module.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from policyproof.model.automata import Variable
from policyproof.model.expressions import Expression
from policyproof.model.ranges import Range
from policyproof.oracle.batches import Batch
from policyproof.oracle.conditions import FALSE, TRUE, Conditions
from policyproof.oracle.duels import SEVERAL_NETWORKS, Applicability, Duels
from policyproof.oracle.protocol import Regions
from policyproof.oracle.space import Integers, Space, Truths
from policyproof.policy.decisions import Decider
from policyproof.policy.network import Floats
from policyproof.policy.policy import Policy
from policyproof.run.errors import InvalidInput

RESOLUTION = 1e-6
LEAST_BATCH, GREATEST_BATCH = 16, 1 << 14
SECONDS_PER_BATCH = 0.04
CACHED_CONDITIONS = 4096
SHARE_OF_CONDITIONS = 0.5
"""How much an undecided condition weighs beside the network when a variable is chosen to be halved."""


class Inquiry:
    """The regions of one question, with their conditions and the applicability of the outputs, compiled."""

    def __init__(
        self,
        space: Space,
        regions: Regions,
        conditions: Sequence[Conditions],
        applicability: Conditions | None,
        generator: np.random.Generator,
    ) -> None:
        self.space = space
        self.regions = regions
        self.applicability = applicability
        self.generator = generator
        self.statistics: dict[str, int | float] = {}
        self._conditions = conditions
        self._condition = np.full(len(regions), -1) if regions.condition is None else np.asarray(regions.condition)

    def count(self, name: str, number: float) -> None:
        self.statistics[name] = self.statistics.get(name, 0) + number

    def whole(self, wanted: Truths) -> Batch:
        """The regions themselves; those without a state in their box are left out."""
        regions = self.regions
        lower, upper = (np.array(end, dtype=np.int64) for end in (regions.lower, regions.upper))
        number = np.arange(len(regions))
        batch = Batch(number, lower, upper, wanted.copy(), self._condition < 0, np.zeros(len(regions), dtype=np.int64))
        return batch.select(wanted.any(axis=1) & ~self.space.empty(lower, upper))

    def by_condition(self, batch: Batch) -> Iterator[tuple[Conditions, Integers]]:
        """The rows of a batch whose condition is not certain, grouped by condition."""
        pending = np.flatnonzero(~batch.certain)
        numbers = self._condition[batch.region[pending]]
        for number in np.unique(numbers).tolist():
            yield self._conditions[number], pending[numbers == number]

    def members(self, batch: Batch, states: Integers) -> Integers:
        """The rows in which the given point, one for every box, is a state that satisfies the region's condition."""
        real = self.space.are_states(states)
        inside = batch.certain & real
        for condition, rows in self.by_condition(batch):
            rows = rows[real[rows]]
            inside[rows] = condition.at(states[rows])[:, 0]
        return np.flatnonzero(inside)


@dataclass(frozen=True, eq=False)
class View:
    """Boxes as seen from their middles."""

    middle: Integers
    """One state of every box."""
    network: Integers
    """Which network decides there (`duels`)."""
    leaders: Integers
    """The outputs that lead there."""
    applicable: Applicability | None


class BoxSearch:
    """A policy over a list of variables, and the steps of a search over boxes of them."""

    def __init__(
        self,
        policy: Policy,
        variables: Sequence[Variable],
        box: Mapping[str, Range] | None = None,
        *,
        resolution: float = RESOLUTION,
        slope_iterations: int = 0,
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        """`box`: the domains of the variables; `resolution`: how narrow real intervals may get, as a share of it."""
        if policy.action_variables:
            raise InvalidInput("the policy chooses no labels: its outputs are values", where=policy.source)
        self.policy = policy
        self.variables = tuple(variables)
        self.box = {item.name: item.domain.range for item in variables} if box is None else dict(box)
        self.space = Space(self.variables)
        self.duels = Duels(policy, self.space, self.box, slope_iterations=slope_iterations, device=device)
        self.decider = Decider(policy, self.variables, self.box)
        self.resolution = resolution
        self.at_resolution = f"not settled at the resolution of {resolution:g} for reals (62 bits for integers)"
        self.batch = 256
        """How many boxes are worked on at once; follows the clock."""
        self._seed = seed
        self._compiled: OrderedDict[tuple[Expression, ...], Conditions] = OrderedDict()
        self._network_reads = self.duels.inputs.reads.any(axis=1) | self.duels.inputs.switch_reads
        self._coarsest = self._least_widths()

    def inquire(self, regions: Regions, applicability: Sequence[Expression] | None) -> Inquiry:
        """Compile a question."""
        if (applicability is not None) != self.policy.filter:
            raise InvalidInput("the applicability of the outputs is given exactly when the policy filters")
        if regions.lower.shape != (len(regions), len(self.variables)) or regions.upper.shape != regions.lower.shape:
            raise InvalidInput(f"regions need {len(self.variables)} columns, found {regions.lower.shape}")
        conditions = [self._compile((condition,)) for condition in regions.conditions]
        applicable = None if applicability is None else self._compile(tuple(applicability))
        return Inquiry(self.space, regions, conditions, applicable, np.random.default_rng(self._seed))

    def _compile(self, key: tuple[Expression, ...]) -> Conditions:
        if key not in self._compiled:
            self._compiled[key] = Conditions(key, self.space, self.box)
            if len(self._compiled) > CACHED_CONDITIONS:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(key)
        return self._compiled[key]

    def _least_widths(self) -> Floats:
        """Real intervals narrower than this are not halved."""
        ends = [tuple(float(end) for end in self.box[item.name]) for item in self.variables]
        widths = np.array([high - low for low, high in ends], dtype=np.float64).reshape(len(ends))
        return np.where(np.isfinite(widths), widths, 1.0) * self.resolution

    @contextmanager
    def paced(self, count: int) -> Iterator[None]:
        """Adapt the size of batches to the time that this one takes, so that budgets are obeyed."""
        started = time.monotonic()
        yield
        seconds = time.monotonic() - started
        if count == self.batch or seconds > SECONDS_PER_BATCH:
            ideal = count * SECONDS_PER_BATCH / max(seconds, 1e-6)
            self.batch = int(min(max(ideal, self.batch / 2, LEAST_BATCH), 2 * self.batch, GREATEST_BATCH))

    # The steps

    def narrowed(self, inquiry: Inquiry, batch: Batch) -> tuple[Batch, Truths]:
        """Without what the conditions rule out; and `uses[n, variable]`: where the condition is open, on what?"""
        uses = np.zeros(batch.lower.shape, dtype=np.bool_)
        alive = np.ones(len(batch), dtype=np.bool_)
        for condition, rows in inquiry.by_condition(batch):
            lower, upper = batch.lower[rows], batch.upper[rows]
            status, used = condition.narrow(lower, upper)
            batch.lower[rows], batch.upper[rows] = lower, upper
            batch.certain[rows] = status == TRUE
            alive[rows] = status != FALSE
            # Narrowed to a single state, a condition may not know yet that it is decided: nothing to halve.
            uses[rows] = used
        return batch.select(alive), uses[alive]

    def relevant(self, inquiry: Inquiry, batch: Batch, uses: Truths) -> Truths:
        """`[n, variable]`: can the variable matter for what is chosen in the box, or for being in the region?"""
        result = uses | self._network_reads
        if inquiry.applicability is not None:
            result = result | inquiry.applicability.reads.any(axis=0)
        for condition, rows in inquiry.by_condition(batch):
            result[rows] |= condition.reads[0]
        return np.asarray(result)

    def few(self, batch: Batch, relevant: Truths, most: int) -> Truths:
        """Which boxes have at most so many states in the relevant variables, so that all can be decided?"""
        few = self.space.sizes(batch.lower, batch.upper, relevant) <= most
        return np.asarray(few & ~self.space.far_out(batch.lower, batch.upper))

    def look(self, inquiry: Inquiry, batch: Batch) -> View:
        """Look at the boxes from their middles."""
        middle = self.space.representatives(batch.lower, batch.upper)
        network = self.duels.networks(batch.lower, batch.upper)
        applicable = None
        if inquiry.applicability is not None:
            applicable = Applicability(*inquiry.applicability.on_boxes(batch.lower, batch.upper))
        leaders = self.duels.leaders(self.duels.outputs_at(middle, network), applicable)
        return View(middle, network, leaders, applicable)

    def strike_out(self, batch: Batch, view: View) -> Floats:
        """Close the outputs that are beaten in the whole box; the effect of every variable on what is left."""
        wins, effect = self.duels.wins(batch.lower, batch.upper, view.network, view.leaders, batch.open)
        batch.open &= ~self.duels.beaten(wins, view.leaders, view.applicable)
        return effect

    def choose(self, inquiry: Inquiry, states: Integers) -> Integers:
        """What the policy chooses in the states, exactly."""
        inquiry.count("decisions", len(states))
        applicable = None if inquiry.applicability is None else inquiry.applicability.at(states)
        return self.decider.decide(states, applicable)

    def axis(
        self, inquiry: Inquiry, batch: Batch, view: View, effect: Floats, uses: Truths, relevant: Truths
    ) -> Integers:
        """The variable along which to halve every box; -1 where none is left that may be halved."""
        widths = self.space.widths(batch.lower, batch.upper)
        # Between two neighbouring floats there is nothing to cut at, nor at an end that stands for infinity.
        low, high, middle = map(self.space.as_floats, (batch.lower, batch.upper, view.middle))
        cut = np.where(self.space.real, (low < middle) & (middle < high), batch.lower < batch.upper)
        splittable = relevant & cut & np.where(self.space.real, widths > self._coarsest, widths > 0)
        bounded = np.where(np.isfinite(widths), widths, 0.0)
        shares = bounded / np.where(bounded > 0, bounded, 1.0).max(axis=1, initial=1e-300, keepdims=True)
        # Unbounded intervals first: nothing is known of them.
        shares = np.where(np.isfinite(widths), shares, 1e3)
        score: Floats = (
            _normalised(effect) + SHARE_OF_CONDITIONS * _normalised(np.where(uses, shares, 0.0)) + 1e-6 * shares
        )
        score = score + np.where(np.isfinite(widths), 0.0, 1e3)
        if inquiry.applicability is not None and view.applicable is not None:
            undecided = view.applicable.certain != view.applicable.possible
            reads = (undecided.astype(np.float64) @ inquiry.applicability.reads) * shares
            score = score + SHARE_OF_CONDITIONS * _normalised(reads)
        several = view.network == SEVERAL_NETWORKS
        score[several] += 1e3 * self.duels.inputs.switch_reads
        axis = np.argmax(np.where(splittable, score, -1.0), axis=1)
        return np.where(splittable.any(axis=1), axis, -1)

    def halved(self, batch: Batch, axis: Integers) -> Batch:
        """Both halves of every box."""
        if not len(batch):
            return batch
        lower, upper = self.space.halves(batch.lower, batch.upper, axis)
        twice = batch.select(np.tile(np.arange(len(batch)), 2))
        return Batch(twice.region, lower, upper, twice.open, twice.certain, twice.depth + 1)


def _normalised(scores: Floats) -> Floats:
    """Every row as shares of its sum."""
    scores = np.maximum(np.nan_to_num(scores, nan=0.0, posinf=1e300), 0.0)
    largest = scores.max(axis=1, initial=0.0, keepdims=True)
    scaled = scores / np.where(largest > 0, largest, 1.0)
    total = scaled.sum(axis=1, keepdims=True)
    return np.asarray(scaled / np.where(total > 0, total, 1.0))
