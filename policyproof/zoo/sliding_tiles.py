"""Tiles on a board with one empty place slide until they are in order; moves may fail.

    7 1 4        A label says which neighbour of the empty place slides into it: the tile to its
    . 8 2        left, right, above (`up`) or below (`down`).
    3 6 5
                 Start: in each part of the tiles, the positions grow with the numbers; no costs.
                 Goal: the other way round, from the greatest number down, the last position empty.
                 Unsafe: one tile is on one position where it must not be.

This is SlidingTiles of ICAPS22 (section 8.3, appendix D).  Positions are numbered from 0, row by row.  An
operator for each tile and direction moves it; a move fails with `failing_probability`: nothing moves, and
the cost of the tile grows by one.  A tile that has failed `cost_bound` times cannot be moved any more, or,
with `stop_at_bound=False`, never fails again.  `step_cost` is what the last step cost: the cost of its
tile before the step.  With `cost_bound=0` there are no costs; then a move that fails changes nothing.

The parts are groups of consecutive numbers: `parts=(3, 3, 2)` are 1 2 3, 4 5 6, and 7 8.  The 8-puzzle
has 9! / (3! 3! 2!) = 5040 states that are ordered like that.  With tile 7 forbidden on position 7,
tile 8 must be on position 8 in the forbidden ones, and 7! / (3! 3!) = 140 ways are left for the others:
4900 start states, as in the paper.  (Tile 8 on position 1 is the other choice that gives 4900.)

Half of all arrangements can be reached from one of them, 9! / 2 = 181,440 for the 8-puzzle: so half of
these start states cannot be solved by anybody.  They belong to the property, which is about safety;
with `solvable=True` they are left out.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

from policyproof.model.building import ModelBuilder, UpdateMap
from policyproof.model.expressions import Expression, apply, conjunction, constant
from policyproof.model.source import LoadedModel
from policyproof.run.errors import InvalidInput
from policyproof.zoo.failing_moves import FailingMoves

STEP_COST_WEIGHT = Fraction(1, 100)
"""What a unit of cost takes from the reward: little, beside a goal that is worth one."""


def sliding_tiles(
    *,
    width: int = 3,
    height: int = 3,
    parts: tuple[int, ...] = (3, 3, 2),
    unsafe_tile: int | None = None,
    unsafe_position: int | None = None,
    cost_bound: int = 12,
    failing_probability: Fraction = Fraction(1, 2),
    stop_at_bound: bool = True,
    solvable: bool = False,
) -> LoadedModel:
    """The model with its property `tile-not-there`.

    Not given: the tile is the first of the last part, its position the last but one.
    """
    tiles = width * height - 1
    if width < 2 or height < 2 or sum(parts) != tiles or min(parts) < 1:
        raise InvalidInput(f"a board of {width} x {height} has {tiles} tiles, the parts {parts} have {sum(parts)}")
    if cost_bound < 0 or not 0 <= failing_probability < 1:
        raise InvalidInput("a bound on costs is at least 0, and a probability of failing is from 0 to below 1")
    tile = tiles - parts[-1] + 1 if unsafe_tile is None else unsafe_tile
    position = tiles - 1 if unsafe_position is None else unsafe_position
    if not 1 <= tile <= tiles or not 0 <= position <= tiles:
        raise InvalidInput(f"there are tiles 1 to {tiles} and positions 0 to {tiles}, not {tile} and {position}")
    if position == tiles - tile:
        raise InvalidInput(f"tile {tile} must be on position {position} at the goal, so that it cannot be forbidden")
    # Around the gap, a tile is on the position of its number or on the one before.
    gap = tiles if position == tile else 0
    board = _SlidingTiles(width, height, gap, cost_bound, failing_probability, stop_at_bound)
    return board.build(parts, tile, position, solvable)


def arrangements(*, width: int = 3, height: int = 3, solvable: bool = False, **_: object) -> int:
    """The arrangements that can be reached from the start states, costs projected away.

    Those are all, since there are start states of both parities; or half of them.
    """
    return math.factorial(width * height) // (2 if solvable else 1)


class _SlidingTiles:
    def __init__(
        self, width: int, height: int, gap: int, cost_bound: int, failing: Fraction, stop_at_bound: bool
    ) -> None:
        self.width, self.height = width, height
        self.tiles = range(1, width * height)
        last = width * height - 1
        self.builder = builder = ModelBuilder(f"{last}-puzzle")
        # The model's own initial state is one of the start states: all tiles in order, `gap` empty.
        self.empty = builder.integer("empty", 0, last, initial=gap)
        self.tile = {
            tile: builder.integer(f"tile_{tile}", 0, last, initial=tile - (tile <= gap)) for tile in self.tiles
        }
        self.cost: dict[int, Expression] = {}
        self.step_cost: Expression | None = None
        if cost_bound > 0:
            self.cost = {tile: builder.integer(f"cost_{tile}", 0, cost_bound, initial=0) for tile in self.tiles}
            self.step_cost = builder.integer("step_cost", 0, cost_bound, initial=0)
        self.moves = FailingMoves(builder, failing, cost_bound, stop_at_bound, self.step_cost)

    def build(self, parts: tuple[int, ...], tile: int, position: int, solvable: bool) -> LoadedModel:
        width, height = self.width, self.height
        # By how much the empty place moves, and where it has no neighbour in that direction.
        directions = {
            "left": (-1, [row * width for row in range(height)]),
            "right": (1, [row * width + width - 1 for row in range(height)]),
            "up": (-width, list(range(width))),
            "down": (width, list(range((height - 1) * width, height * width))),
        }
        for label, (offset, border) in directions.items():
            for number in self.tiles:
                self._slide(label, number, offset, border)
        unsafe = self.tile[tile].equals(position)
        start = conjunction([self._start(parts, solvable), ~unsafe])
        safety = self.builder.safety("tile-not-there", unsafe=unsafe, start=start, goal=self._goal())
        if self.step_cost is not None:
            reward = apply("*", constant(-STEP_COST_WEIGHT), self.step_cost)
            safety = dataclasses.replace(safety, step_reward=reward)
        return self.builder.build(safety)

    def _slide(self, label: str, number: int, offset: int, border: list[int]) -> None:
        """The tile slides into the empty place, or fails to."""
        empty, tile = self.empty, self.tile[number]
        # The domains keep the tile on the board; rows have ends, too.
        inner = [empty.differs(end) for end in border if 0 <= end + offset < self.width * self.height]
        guard = [tile.equals(empty + offset), *inner]
        slides: UpdateMap = {tile: tile - offset, empty: empty + offset}
        self.moves.add(label, guard, slides, self.cost.get(number))

    def _start(self, parts: tuple[int, ...], solvable: bool) -> Expression:
        """An arrangement in which every part is in order."""
        conditions = [self.empty.differs(self.tile[tile]) for tile in self.tiles]
        first = 1
        part_of: dict[int, int] = {}
        for number, size in enumerate(parts):
            members = range(first, first + size)
            part_of.update(dict.fromkeys(members, number))
            conditions += [self.tile[left] < self.tile[right] for left, right in itertools.pairwise(members)]
            first += size
        conditions += [
            self.tile[left].differs(self.tile[right])
            for left, right in itertools.combinations(self.tiles, 2)
            if part_of[left] != part_of[right]
        ]
        conditions += [cost.equals(0) for cost in self.cost.values()]
        if self.step_cost is not None:
            conditions.append(self.step_cost.equals(0))
        if solvable:
            conditions.append(self._parity().equals(self._parity_of_goal()))
        return conjunction(conditions)

    def _goal(self) -> Expression:
        last = len(self.tiles)
        return conjunction([self.empty.equals(last), *(self.tile[tile].equals(last - tile) for tile in self.tiles)])

    # A move exchanges the empty place and a tile, and takes the empty place one step.  So the number of pairs in the
    # wrong order (the empty place counted as a tile) plus the steps from a corner to the empty place stays as odd
    # or even as it is.

    def _parity(self) -> Expression:
        pieces = [self.empty, *self.tile.values()]
        count = constant(0)
        for left, right in itertools.combinations(pieces, 2):
            count += apply("ite", left > right, constant(1), constant(0))
        for position in range(self.width * self.height):
            steps = position % self.width + position // self.width
            if steps % 2:
                count += apply("ite", self.empty.equals(position), constant(1), constant(0))
        return count % 2

    def _parity_of_goal(self) -> int:
        # All pieces in the opposite order, the empty place in the last corner.
        pieces = self.width * self.height
        return (pieces * (pieces - 1) // 2 + (self.width - 1) + (self.height - 1)) % 2
