"""Racetrack, compared with a car on a map of letters."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from math import floor

import pytest

from policyproof.model.flat import flatten
from policyproof.run.errors import InvalidInput
from policyproof.zoo.racetrack import positions, race, racetrack
from policyproof.zoo.tracks import BARTO_BIG, BARTO_SMALL, MAPS, cover, line, read_map
from tests.support.zoo import behaviour, enumerated

SMALL = """
##########
#s....####
#s......##
#s..#...##
#s..#..gg#
##########
"""
# A wall that a fast car jumps over where only the end of a move is looked at.
FENCED = """
##########
#s..#....#
#s..#.gg.#
#s.......#
##########
"""

State = tuple[int, int, int, int, int, int]
"""x, y, the speed, how many cells of the move are left, and twice the distance to the straight line (in lengths)."""


class Map:
    """What the letters say."""

    def __init__(self, text: str) -> None:
        rows = text.split()
        self.at = {(x, y): kind for y, row in enumerate(reversed(rows)) for x, kind in enumerate(row)}

    def is_road(self, state: State) -> bool:
        return self.at.get(state[:2], "#") in "s."

    def is_goal(self, state: State) -> bool:
        return self.at.get(state[:2], "#") == "g"

    def is_wall(self, state: State) -> bool:
        return not self.is_road(state) and not self.is_goal(state)

    def start_line(self) -> list[State]:
        return [(*cell, 0, 0, 0, 0) for cell, kind in self.at.items() if kind == "s"]


LABELS = {
    ("south", "", "north")[dy + 1] + ("_" if dx and dy else "") + ("west", "", "east")[dx + 1] or "coast": (dx, dy)
    for dx, dy in itertools.product((-1, 0, 1), repeat=2)
}


def moves(track: Map, *, trajectory: bool, slippery: bool = False):
    def successors(state: State) -> Iterator[tuple[str | None, State]]:
        x, y, dx, dy, remaining, _ = state
        if not track.is_road(state):
            return
        if remaining:
            yield None, further(state)
            return
        for label, (east, north) in LABELS.items():
            for change_x, change_y in {(east, north), (0, 0)} if slippery else [(east, north)]:
                speed = (dx + change_x, dy + change_y)
                if trajectory:
                    yield label, (x, y, *speed, max(map(abs, speed)), 0)
                else:
                    yield label, (x + speed[0], y + speed[1], *speed, 0, 0)

    return successors


def nearest(value: Fraction) -> int:
    """The nearest integer, halves away from zero."""
    size = floor(abs(value) + Fraction(1, 2))
    return size if value >= 0 else -size


def further(state: State) -> State:
    """One cell along the longer direction; the other one rounded, from where the move began."""
    x, y, dx, dy, remaining, _ = state
    length = max(abs(dx), abs(dy))
    begun, now = length - remaining, length - remaining + 1
    before, after = (
        (nearest(Fraction(step * dx, length)), nearest(Fraction(step * dy, length))) for step in (begun, now)
    )
    # The longer direction is followed exactly, so only the other one adds to the error.
    shorter = min(abs(dx), abs(dy))
    aside = Fraction(now * shorter, length) - nearest(Fraction(now * shorter, length))
    cell = (x + after[0] - before[0], y + after[1] - before[1])
    return (*cell, dx, dy, remaining - 1, int(2 * length * aside))


def read(values: dict[str, int]) -> State:
    state = tuple(values[name] for name in ("x", "y", "dx", "dy"))
    return (*state, values.get("remaining", 0), values.get("error", 0))


@pytest.mark.parametrize("text", [SMALL, FENCED], ids=["small", "fenced"])
@pytest.mark.parametrize("trajectory", [False, True])
@pytest.mark.parametrize("slippery", [Fraction(0), Fraction(1, 10)])
def test_it_moves_as_a_car_on_the_map(text: str, trajectory: bool, slippery: Fraction) -> None:
    loaded = race(read_map(text, trajectory=trajectory), "test", slippery=slippery, starts=0)
    found = behaviour(loaded, read)
    track = Map(text)
    wanted = enumerated(
        track.start_line(),
        moves(track, trajectory=trajectory, slippery=slippery > 0),
        track.is_wall,
        track.is_goal,
    )
    assert found == wanted
    assert found.unsafe
    assert found.goal


def test_a_fence_can_be_jumped_over_only_where_the_end_of_a_move_is_looked_at() -> None:
    """On the highest row the way to the right of the fence begins with a jump."""

    def jumps(trajectory: bool) -> set[tuple[State, str | None, State]]:
        found = behaviour(race(read_map(FENCED, trajectory=trajectory), "test", starts=0), read)
        return {
            (source, label, target)
            for source, label, target in found.transitions
            if source[1] == target[1] == 3 and source[0] <= 3 and target[0] >= 5
        }

    assert jumps(False)
    assert not jumps(True)


@pytest.mark.parametrize(("name", "trajectory"), [("barto-small", False), ("barto-small", True), ("barto-big", False)])
def test_the_number_of_states_is_that_of_the_map(name: str, trajectory: bool) -> None:
    track = Map(MAPS[name])
    wanted = enumerated(track.start_line(), moves(track, trajectory=trajectory), track.is_wall, track.is_goal)
    parameters = {"track_name": name, "trajectory": trajectory, "starts": 0}
    assert positions(**parameters) == len(wanted.states)
    if name == "barto-small":
        assert behaviour(racetrack(**parameters), read).states == wanted.states


@pytest.mark.parametrize("trajectory", [False, True])
def test_from_every_random_start_a_careful_driver_gets_to_the_goal(trajectory: bool) -> None:
    found = behaviour(racetrack(trajectory=trajectory), read)
    assert len(found.starts) == 1000
    assert positions(trajectory=trajectory) == len(found.states)
    # Backwards from the goal, over steps that the driver chooses (a silent step has no alternative).
    before: dict[State, list[State]] = {}
    for source, _, target in found.transitions:
        before.setdefault(target, []).append(source)
    won = set(found.goal)
    queue = list(won)
    while queue:
        for source in before.get(queue.pop(), []):
            if source not in won:
                won.add(source)
                queue.append(source)
    assert found.starts <= won
    assert not found.states <= won
    assert not found.starts & (found.goal | found.unsafe)
    # They are spread over the track and over speeds.
    assert len({state[:2] for state in found.starts}) > 100
    assert len({state[2:4] for state in found.starts}) > 30


def test_the_seed_decides_the_random_starts() -> None:
    first, again, other = (
        race(read_map(BARTO_SMALL), "test", starts=10, seed=seed).property().start for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_no_move_is_ruled_out_by_the_domains() -> None:
    """In every state on the road all nine labels are applicable."""
    found = behaviour(racetrack(), read)
    track = Map(BARTO_SMALL)
    labels: dict[State, set[str | None]] = {}
    for source, label, _ in found.transitions:
        labels.setdefault(source, set()).add(label)
    assert set(labels) == {state for state in found.states if track.is_road(state)}
    assert all(found_labels == set(LABELS) for found_labels in labels.values())


def test_the_maps_have_the_published_sizes() -> None:
    sizes = [(read_map(text).width, read_map(text).height) for text in (BARTO_SMALL, BARTO_BIG)]
    assert sizes == [(35, 12), (30, 33)]


@pytest.mark.parametrize("name", MAPS)
def test_a_cover_is_exact(name: str) -> None:
    track = read_map(MAPS[name])
    for cells in (track.road, track.goal):
        rectangles = cover(cells)
        covered = {
            cell
            for item in rectangles
            for cell in itertools.product(range(item.left, item.right + 1), range(item.bottom, item.top + 1))
        }
        assert covered == cells
        assert len(rectangles) < 10


def test_a_line_is_the_same_in_both_directions() -> None:
    for dx, dy in itertools.product(range(-9, 10), repeat=2):
        assert line(-dx, -dy) == tuple((-x, -y) for x, y in line(dx, dy))
        if (dx, dy) != (0, 0):
            assert line(dx, dy)[-1] == (dx, dy)


def test_slipping_has_its_probability() -> None:
    flat = flatten(racetrack(slippery=Fraction(1, 10), starts=0).model)
    chances = [item.probability.exact for item in flat.operators if item.label == "north"]
    assert sorted(chances) == [Fraction(1, 10), Fraction(9, 10)]


@pytest.mark.parametrize(
    "parameters", [{"track_name": "barto-tiny"}, {"slippery": Fraction(1)}, {"starts": -1}, {"starts": 10**6}]
)
def test_parameters_out_of_range(parameters: dict[str, int]) -> None:
    with pytest.raises(InvalidInput):
        racetrack(**parameters)


@pytest.mark.parametrize("text", ["s.g s.", "s.x", "s..", "..g"])
def test_maps_that_are_none(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_map(text)
