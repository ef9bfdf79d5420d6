"""Maps of race tracks, and how a car moves on them.

Two tracks in the shape and size of the published ones (Barto, Bradtke, Singh 1995), drawn by us: an L
of 35 x 12 cells, and a hairpin of 30 x 33.  `#` wall, `.` track, `s` start line, `g` goal; x grows to the
right, y upwards, (0, 0) is the lower left corner.  The goal is two cells deep, so that a car of
moderate speed cannot jump over it where only the end of a move is looked at.

`Track` is the dynamics in plain Python.  It says which states are reached (for the domains and the size
of the state space), and in which of them a careful driver can still get to the goal (for random starts).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

from policyproof.run.errors import InvalidInput

BARTO_SMALL = """
###################################
##########################gggggggg#
##########################gggggggg#
#########################.........#
##################................#
#########.........................#
#s................................#
#s................................#
#s...............................##
#s...............................##
#s.............................####
###################################
"""

BARTO_BIG = """
##############################
########....................##
####........................##
####........................##
####.........................#
####.........................#
##...........................#
##...........................#
##...........................#
##...........................#
#............###.............#
#............###.............#
#............###.............#
#............#######.........#
#............#######.........#
#............#######.........#
#............#######.........#
#.........##########.........#
#.........##########.........#
#.........##########.........#
#.........##########.........#
#.........##########ggggggggg#
#.........##########ggggggggg#
#.........####################
#.........####################
#.........####################
#.........####################
##.......#####################
##.......#####################
##.......#####################
##.......#####################
##sssssss#####################
##############################
"""

MAPS = {"barto-small": BARTO_SMALL, "barto-big": BARTO_BIG}
ACCELERATIONS = {
    "coast": (0, 0),
    "north": (0, 1),
    "north_east": (1, 1),
    "east": (1, 0),
    "south_east": (1, -1),
    "south": (0, -1),
    "south_west": (-1, -1),
    "west": (-1, 0),
    "north_west": (-1, 1),
}

Cell = tuple[int, int]
CarState = tuple[int, int, int, int]
"""x, y, and the speed in both directions."""


@dataclass(frozen=True)
class Rectangle:
    """Cells from `left` to `right` and from `bottom` to `top`, ends included."""

    left: int
    bottom: int
    right: int
    top: int


@dataclass(frozen=True)
class Track:
    """A map, and whether walls are looked for along the whole way of a move or at its end."""

    rows: tuple[str, ...]
    trajectory: bool = False

    @property
    def width(self) -> int:
        return len(self.rows[0])

    @property
    def height(self) -> int:
        return len(self.rows)

    def cells(self, kinds: str) -> frozenset[Cell]:
        """The cells that are marked with one of these letters."""
        height = self.height
        return frozenset(
            (x, height - 1 - row) for row, text in enumerate(self.rows) for x, kind in enumerate(text) if kind in kinds
        )

    @cached_property
    def road(self) -> frozenset[Cell]:
        """Where the race goes on."""
        return self.cells("s.")

    @cached_property
    def goal(self) -> frozenset[Cell]:
        return self.cells("g")

    @cached_property
    def start_line(self) -> list[CarState]:
        return [(x, y, 0, 0) for x, y in sorted(self.cells("s"))]

    # Moves

    def way(self, state: CarState, acceleration: Cell) -> Iterator[CarState]:
        """The states on the way of one move: only its end, or cell by cell up to a wall, the goal, or the end."""
        x, y, dx, dy = state
        dx, dy = dx + acceleration[0], dy + acceleration[1]
        if not self.trajectory or dx == dy == 0:
            yield x + dx, y + dy, dx, dy
            return
        for cell_x, cell_y in line(dx, dy):
            cell = (x + cell_x, y + cell_y)
            yield (*cell, dx, dy)
            if cell not in self.road:
                return

    def end(self, state: CarState, acceleration: Cell) -> CarState:
        """Where one move ends."""
        *_, last = self.way(state, acceleration)
        return last

    def moves_from(self, starts: list[CarState]) -> dict[CarState, list[CarState]]:
        """Where all moves end, for all states that they lead to; races end at walls and at the goal."""
        found: dict[CarState, list[CarState]] = {}
        queue = list(starts)
        for state in queue:
            if state not in found:
                going = (state[0], state[1]) in self.road
                found[state] = [self.end(state, change) for change in ACCELERATIONS.values()] if going else []
                queue.extend(found[state])
        return found

    @cached_property
    def moves(self) -> dict[CarState, list[CarState]]:
        """The moves of all races that begin on the start line."""
        return self.moves_from(self.start_line)

    @cached_property
    def winnable(self) -> list[CarState]:
        """The states of these races in which the goal is ahead and can still be reached."""
        before: dict[CarState, list[CarState]] = {}
        for state, ends in self.moves.items():
            for end in ends:
                before.setdefault(end, []).append(state)
        won = {state: None for state in self.moves if (state[0], state[1]) in self.goal}
        queue = list(won)
        for state in queue:
            for earlier in before.get(state, []):
                if earlier not in won:
                    won[earlier] = None
                    queue.append(earlier)
        return sorted(state for state in won if (state[0], state[1]) in self.road)


def track(name: str, *, trajectory: bool = False) -> Track:
    """A track by name."""
    if name not in MAPS:
        raise InvalidInput(f"there is no track {name!r}; there are: {', '.join(MAPS)}")
    return read_map(MAPS[name], trajectory=trajectory)


def read_map(text: str, *, trajectory: bool = False) -> Track:
    """A track from its map."""
    rows = tuple(text.split())
    if len({len(row) for row in rows}) != 1 or set("".join(rows)) - set("#.sg"):
        raise InvalidInput("a map has rows of one length, and no letters but # . s g")
    read = Track(rows, trajectory)
    if not read.start_line or not read.goal:
        raise InvalidInput("a map has a start line (s) and a goal (g)")
    return read


@cache
def line(dx: int, dy: int) -> tuple[Cell, ...]:
    """The cells on the way to (dx, dy): one for each step along the longer direction, the other one rounded."""
    length = max(abs(dx), abs(dy))
    return tuple((_rounded(step * dx, length), _rounded(step * dy, length)) for step in range(1, length + 1))


def _rounded(numerator: int, denominator: int) -> int:
    """To the nearest integer; halves away from zero."""
    size = (2 * abs(numerator) + denominator) // (2 * denominator)
    return size if numerator >= 0 else -size


def cover(cells: frozenset[Cell]) -> list[Rectangle]:
    """Few rectangles whose union is the cells: always the one that covers most of what is left."""
    left, found = set(cells), []
    candidates = [_grown(cell, cells.__contains__) for cell in sorted(cells)]
    rectangles = list(dict.fromkeys(itertools.chain.from_iterable(candidates)))
    inside = {rectangle: frozenset(_cells_of(rectangle)) for rectangle in rectangles}
    while left:
        best = max(rectangles, key=lambda item: len(inside[item] & left))
        found.append(best)
        left -= inside[best]
    return found


def _grown(cell: Cell, free: Callable[[Cell], bool]) -> list[Rectangle]:
    """The rectangles with this lower left corner that cannot be made wider or higher."""
    x, y = cell
    found: list[Rectangle] = []
    widest = None
    top = y
    while free((x, top)):
        right = x
        while free((right + 1, top)) and (widest is None or right < widest):
            right += 1
        if widest is not None and right < widest:
            found.append(Rectangle(x, y, widest, top - 1))
        widest = right
        top += 1
    if widest is not None:
        found.append(Rectangle(x, y, widest, top - 1))
    return found


def _cells_of(rectangle: Rectangle) -> Iterator[Cell]:
    columns = range(rectangle.left, rectangle.right + 1)
    return itertools.product(columns, range(rectangle.bottom, rectangle.top + 1))
