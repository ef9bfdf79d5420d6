"""A car races to the goal line; its driver can only change the speed, by one in each direction.

    ##########################gggggggg#
    #########################.........#       s start line, g goal, # wall
    ##################................#
    #########.........................#       The labels are the nine accelerations: `coast`, `north`,
    #s................................#       `north_east`, ..., `north_west`.  The new speed is how far
    #s.............................####       the car moves.  Unsafe: it has hit a wall.

This is Racetrack of ICAPS22 (section 8.3, appendix D), on maps of the shape and size of Barto-small and
Barto-big that we drew (`tracks.py`).  A race ends at a wall and at the goal.  With `slippery`, that is
the probability with which an acceleration has no effect; then every policy can crash when all fail.

Walls are looked for where a move ends, as in the paper: the variables are the position `x`, `y` and the
speed `dx`, `dy`, and each label has one operator.  With `trajectory=True` they are looked for in every
cell on the way: the driver sets the speed, and silent steps then move the car cell by cell, one along
the longer direction in each step, and along the other one so that it stays nearest to the straight
line.  `remaining` counts the steps of the move to come.  `error`, divided by twice the length of the
move, is how far the car is from the straight line.

A run starts in one of `starts` random states (with `seed`), drawn among those that can be reached from
the start line and in which a careful driver who does not slip still gets to the goal; or, with
`starts=0`, anywhere on the start line, at rest.
"""

from __future__ import annotations

import random
from fractions import Fraction

from policyproof.model.building import ModelBuilder, UpdateMap, outcome
from policyproof.model.expressions import Expression, apply, conjunction, constant, disjunction
from policyproof.model.source import LoadedModel
from policyproof.run.errors import InvalidInput
from policyproof.zoo.tracks import ACCELERATIONS, CarState, Cell, Track, cover, track


def racetrack(
    *,
    track_name: str = "barto-small",
    slippery: Fraction = Fraction(0),
    trajectory: bool = False,
    starts: int = 1000,
    seed: int = 0,
) -> LoadedModel:
    """The model with its property `no-crash`."""
    if not 0 <= slippery < 1 or starts < 0:
        raise InvalidInput("the probability of slipping is from 0 to below 1, the number of starts at least 0")
    return race(track(track_name, trajectory=trajectory), track_name, slippery=slippery, starts=starts, seed=seed)


def race(on: Track, name: str, *, slippery: Fraction = Fraction(0), starts: int = 1000, seed: int = 0) -> LoadedModel:
    """The model for any track, under a name."""
    return _Race(on, name, slippery, start_states(on, starts, seed)).build()


def start_states(on: Track, starts: int, seed: int) -> list[CarState]:
    """The start line at rest, or random states in which the goal can still be reached."""
    if starts == 0:
        return on.start_line
    if starts > len(on.winnable):
        raise InvalidInput(f"there are only {len(on.winnable)} states to choose {starts} start states from")
    return sorted(random.Random(seed).sample(on.winnable, starts))


def positions(
    *, track_name: str = "barto-small", trajectory: bool = False, starts: int = 1000, seed: int = 0, **_: object
) -> int:
    """The states that can be reached, those on the way of moves included."""
    on = track(track_name, trajectory=trajectory)
    start = start_states(on, starts, seed)
    found = {(*state, 0) for state in start}
    for state in on.moves_from(start):
        if (state[0], state[1]) in on.road:
            found.update(_states_of_move(on, state))
    return len(found)


def _states_of_move(on: Track, state: CarState) -> set[tuple[int, int, int, int, int]]:
    found = set()
    for acceleration in ACCELERATIONS.values():
        dx, dy = state[2] + acceleration[0], state[3] + acceleration[1]
        length = max(abs(dx), abs(dy)) if on.trajectory else 0
        if length > 0:
            found.add((state[0], state[1], dx, dy, length))
        for number, after in enumerate(on.way(state, acceleration), start=1):
            found.add((*after, max(length - number, 0)))
    return found


class _Race:
    def __init__(self, on: Track, name: str, slippery: Fraction, starts: list[CarState]) -> None:
        self.on, self.slippery, self.starts = on, slippery, starts
        self.builder = builder = ModelBuilder(f"racetrack-{name}")
        # The domains hold every state that can be reached, crashes included: no move is ruled out by them.
        ends = [(min(values), max(values)) for values in zip(*on.moves, strict=True)]
        first = starts[0]
        self.x, self.y, self.dx, self.dy = (
            builder.integer(variable, low, high, initial=value)
            for variable, (low, high), value in zip(("x", "y", "dx", "dy"), ends, first, strict=True)
        )
        self.fastest = max(abs(value) for end in ends[2:] for value in end)
        if on.trajectory:
            self.remaining = builder.integer("remaining", 0, self.fastest, initial=0)
            self.error = builder.integer("error", -self.fastest, self.fastest, initial=0)

    def build(self) -> LoadedModel:
        on_road, at_goal = self._within(self.on.road), self._within(self.on.goal)
        for label, acceleration in ACCELERATIONS.items():
            ready = [on_road, self.remaining.equals(0)] if self.on.trajectory else [on_road]
            moves = [(acceleration, 1 - self.slippery), ((0, 0), self.slippery)]
            if acceleration == (0, 0) or self.slippery == 0:
                outcomes = [outcome(self._accelerated(acceleration))]
            else:
                outcomes = [outcome(self._accelerated(change), probability=chance) for change, chance in moves]
            self.builder.edge(label, guard=conjunction(ready), outcomes=outcomes)
        if self.on.trajectory:
            self._drive(on_road)
        start = disjunction(self._at(state) for state in self.starts)
        safety = self.builder.safety("no-crash", unsafe=~(on_road | at_goal), start=start, goal=at_goal)
        return self.builder.build(safety)

    def _accelerated(self, acceleration: Cell) -> UpdateMap:
        dx, dy = self.dx + acceleration[0], self.dy + acceleration[1]
        if not self.on.trajectory:
            return {self.dx: dx, self.dy: dy, self.x: self.x + dx, self.y: self.y + dy}
        length = apply("max", apply("abs", dx), apply("abs", dy))
        return {self.dx: dx, self.dy: dy, self.remaining: length}

    def _drive(self, on_road: Expression) -> None:
        """The silent steps of a move: the longer direction, its sign and that of the other one, straight or aside."""
        for along, across, place, place_across in (
            (self.dx, self.dy, self.x, self.y),
            (self.dy, self.dx, self.y, self.x),
        ):
            for sign in (1, -1):
                for sign_across in (1, -1):
                    length, width = _times(sign, along), _times(sign_across, across)
                    # Of two equal lengths, x is the longer direction.
                    longer = length >= width if along is self.dx else length > width
                    guard = [on_road, self.remaining >= 1, length >= 1, longer]
                    guard.append(width >= 0 if sign_across == 1 else width >= 1)
                    error = self.error + 2 * width
                    step: UpdateMap = {place: place + sign, self.remaining: self.remaining - 1}
                    aside: UpdateMap = {place_across: place_across + sign_across, self.error: error - 2 * length}
                    self.builder.edge(guard=conjunction([*guard, error < length]), update={**step, self.error: error})
                    self.builder.edge(guard=conjunction([*guard, error >= length]), update={**step, **aside})

    def _within(self, cells: frozenset[Cell]) -> Expression:
        return disjunction(
            conjunction([
                self.x >= item.left,
                self.x <= item.right,
                self.y >= item.bottom,
                self.y <= item.top,
            ])
            for item in cover(cells)
        )  # fmt: skip

    def _at(self, state: CarState) -> Expression:
        values = [(self.x, state[0]), (self.y, state[1]), (self.dx, state[2]), (self.dy, state[3])]
        if self.on.trajectory:
            values += [(self.remaining, 0), (self.error, 0)]
        return conjunction(variable.equals(value) for variable, value in values)


def _times(sign: int, value: Expression) -> Expression:
    return value if sign == 1 else constant(0) - value
