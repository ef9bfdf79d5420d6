"""SlidingTiles, compared with boards as Python tuples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest

from policyproof.api import verify
from policyproof.model.flat import flatten
from policyproof.model.properties import SafetyProperty
from policyproof.model.start_states import enumerate_states
from policyproof.run.errors import InvalidInput
from policyproof.zoo.sliding_tiles import arrangements, sliding_tiles
from tests.support.zoo import behaviour, enumerated

Board = tuple[int, ...]
"""The tile on every position, row by row; 0 where it is empty."""
State = tuple[Board, tuple[int, ...], int]

DIRECTIONS = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}


def slides(board: Board, width: int) -> Iterator[tuple[str, int, Board]]:
    """(label, tile, board) for every neighbour of the empty place."""
    height = len(board) // width
    row, column = divmod(board.index(0), width)
    for label, (down, right) in DIRECTIONS.items():
        neighbour = (row + down, column + right)
        if 0 <= neighbour[0] < height and 0 <= neighbour[1] < width:
            rows = [list(board[start : start + width]) for start in range(0, len(board), width)]
            tile = rows[neighbour[0]][neighbour[1]]
            rows[row][column], rows[neighbour[0]][neighbour[1]] = tile, 0
            yield label, tile, tuple(itertools.chain.from_iterable(rows))


def steps(width: int, cost_bound: int, *, stop_at_bound: bool = True):
    def successors(state: State) -> Iterator[tuple[str, State]]:
        board, costs, _ = state
        for label, tile, after in slides(board, width):
            if cost_bound == 0:
                yield label, (after, costs, 0)
                yield label, state
                continue
            cost = costs[tile - 1]
            if cost < cost_bound or not stop_at_bound:
                yield label, (after, costs, cost)
            if cost < cost_bound:
                yield label, (board, (*costs[: tile - 1], cost + 1, *costs[tile:]), cost)

    return successors


def in_order(board: Board, parts: tuple[int, ...]) -> bool:
    """Does every part of the tiles stand in the order of its numbers?"""
    ends = list(itertools.accumulate(parts, initial=1))
    return all(
        [tile for tile in board if first <= tile < end] == list(range(first, end))
        for first, end in itertools.pairwise(ends)
    )


def is_solvable(board: Board, width: int) -> bool:
    """Odd permutations take an odd number of moves, after which the empty place has moved by an odd number of steps."""
    last = len(board) - 1
    goal = (*range(last, 0, -1), 0)
    places = [goal.index(tile) for tile in board]
    odd_permutation, seen = 0, set()
    for first in range(len(places)):
        # A cycle of n positions is n - 1 exchanges.
        place, length = first, 0
        while place not in seen:
            seen.add(place)
            place, length = places[place], length + 1
        odd_permutation += max(length - 1, 0)
    row, column = divmod(board.index(0), width)
    steps_of_empty = (len(board) // width - 1 - row) + (width - 1 - column)
    return (odd_permutation - steps_of_empty) % 2 == 0


def start_boards(size: int, parts: tuple[int, ...], tile: int, position: int) -> list[Board]:
    return [
        board for board in itertools.permutations(range(size)) if in_order(board, parts) and board[position] != tile
    ]


def read(values: dict[str, int]) -> State:
    tiles = sum(name.startswith("tile_") for name in values)
    board = [-1] * (tiles + 1)
    board[values["empty"]] = 0
    for tile in range(1, tiles + 1):
        board[values[f"tile_{tile}"]] = tile
    assert -1 not in board
    costs = tuple(values.get(f"cost_{tile}", 0) for tile in range(1, tiles + 1))
    return tuple(board), costs, values.get("step_cost", 0)


@pytest.mark.parametrize(
    ("width", "height", "parts", "options"),
    [
        (2, 2, (2, 1), {}),
        (2, 2, (2, 1), {"cost_bound": 2}),
        (2, 2, (3,), {"cost_bound": 1, "stop_at_bound": False}),
        (3, 2, (3, 2), {}),
        (2, 3, (1, 2, 2), {}),
    ],
)
def test_it_moves_as_boards_do(width: int, height: int, parts: tuple[int, ...], options: dict[str, int]) -> None:
    options = {"cost_bound": 0, **options}
    last = width * height - 1
    tile, position = last - parts[-1] + 1, last - 1
    if position == last - tile:
        tile, position = 1, 0
    found = behaviour(
        sliding_tiles(width=width, height=height, parts=parts, unsafe_tile=tile, unsafe_position=position, **options),
        read,
    )
    costs = (0,) * last
    wanted = enumerated(
        [(board, costs, 0) for board in start_boards(last + 1, parts, tile, position)],
        steps(width, **options),
        lambda state: state[0][position] == tile,
        lambda state: state[0] == (*range(last, 0, -1), 0),
    )
    assert found == wanted
    if options["cost_bound"] == 0:
        assert len(found.states) == math.factorial(last + 1) == arrangements(width=width, height=height)


def starts(**parameters) -> list[Board]:
    loaded = sliding_tiles(**parameters)
    prop, flat = loaded.property(), flatten(loaded.model)
    assert isinstance(prop, SafetyProperty)
    assert prop.start is not None
    rows = [row for batch in enumerate_states(flat, prop.start) for row in batch.tolist()]
    (initial,) = [row for batch in enumerate_states(flat, flat.initial) for row in batch.tolist()]
    assert initial in rows
    return [read(dict(zip(flat.names, row, strict=True)))[0] for row in rows]


def test_the_start_states_of_the_paper() -> None:
    found = starts()
    assert len(found) == len(set(found)) == 4900
    assert all(in_order(board, (3, 3, 2)) and board[7] != 7 for board in found)
    solvable = starts(solvable=True)
    assert set(solvable) == {board for board in found if is_solvable(board, 3)}
    assert len(solvable) == 2450


def test_the_other_choice_that_gives_the_number_of_the_paper() -> None:
    found = starts(unsafe_tile=8, unsafe_position=1)
    assert len(found) == 4900
    # With most others there are more forbidden states, or fewer.
    assert len(starts(unsafe_tile=7, unsafe_position=6)) == 4760


def test_half_of_the_8_puzzle_can_be_reached_from_one_state() -> None:
    answer = verify(sliding_tiles(cost_bound=0), None, "A[] tile_1 >= 0", slicing=False)
    assert answer.result.statistics["start_states"] == 1
    assert answer.result.statistics["states"] == math.factorial(9) // 2 == 181_440


@pytest.mark.parametrize(("width", "height"), [(2, 2), (3, 2), (2, 3)])
def test_the_goal_is_reached_exactly_from_what_is_called_solvable(width: int, height: int) -> None:
    last = width * height - 1
    board = {"width": width, "height": height, "parts": (last,), "cost_bound": 0}
    found = behaviour(sliding_tiles(**board, unsafe_tile=1, unsafe_position=last - 2, solvable=True), read)
    everything = {
        (permutation, (0,) * last, 0)
        for permutation in itertools.permutations(range(last + 1))
        if is_solvable(permutation, width)
    }
    assert found.states == everything
    assert len(found.goal) == 1
    assert len(everything) == arrangements(width=width, height=height, solvable=True)


def test_the_15_puzzle() -> None:
    found = starts(width=4, height=4, parts=(12, 3))
    assert len(found) == math.factorial(16) // (math.factorial(12) * math.factorial(3))
    assert all(in_order(board, (12, 3)) for board in found)


@pytest.mark.parametrize(
    "parameters",
    [
        {"width": 1},
        {"parts": (3, 3, 3)},
        {"parts": (9, -1)},
        {"unsafe_tile": 9},
        {"unsafe_position": 9},
        {"unsafe_tile": 3, "unsafe_position": 5},
        {"cost_bound": -1},
        {"failing_probability": 1},
    ],
)
def test_parameters_out_of_range(parameters: dict[str, int]) -> None:
    with pytest.raises(InvalidInput):
        sliding_tiles(**parameters)
