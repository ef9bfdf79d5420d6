"""Draw the pictures of the benchmarks: docs/images/blocksworld.svg, sliding-tiles.svg, transport.svg, racetrack.svg.

    python -m docs.make_zoo_pictures

What is drawn comes from the models: the states from their conditions, the race from the explicit engine's
answer.  A test draws the pictures again and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import policyproof as pp
from docs.make_picture import BAD, FAINT, GOOD, INK, ROBOT, text
from policyproof.model.expressions import conjunction
from policyproof.model.flat import flatten
from policyproof.model.properties import SafetyProperty
from policyproof.model.source import LoadedModel
from policyproof.model.start_states import enumerate_states
from policyproof.zoo.blocksworld import blocksworld
from policyproof.zoo.racetrack import racetrack
from policyproof.zoo.sliding_tiles import sliding_tiles
from policyproof.zoo.tracks import track
from policyproof.zoo.transport import transport

TARGET = Path(__file__).parent / "images"
WOOD, PAPER, LINE, TRUCK = "#c79a6b", "#f7f9fb", "#d5dce3", "#e08600"
State = Mapping[str, int]


def drawing(width: float, height: float, parts: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="Helvetica, Arial, sans-serif">'
    )
    return "\n".join([head, box(0, 0, width, height, "#ffffff", radius=8), *parts, "</svg>"]) + "\n"


def box(x: float, y: float, width: float, height: float, fill: str, *, stroke: str = "none", radius: float = 0) -> str:
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {place} rx="{radius:g}" fill="{fill}" stroke="{stroke}"/>'


def centred(x: float, y: float, words: str, *, size: int = 14, colour: str = INK) -> str:
    return text(x, y, words, size=size, colour=colour, style='text-anchor="middle"')


def states_where(model: LoadedModel, condition: str) -> list[State]:
    """The states that satisfy a part of the safety property."""
    prop, flat = model.property(), flatten(model.model)
    assert isinstance(prop, SafetyProperty)
    wanted = getattr(prop, condition)
    rows = [row for batch in enumerate_states(flat, flat.state_condition(wanted)) for row in batch.tolist()]
    return [dict(zip(flat.names, row, strict=True)) for row in sorted(rows)]


def is_start(model: LoadedModel, state: State) -> bool:
    """Is it one of the start states?  (For models with too many to list.)"""
    prop, flat = model.property(), flatten(model.model)
    assert isinstance(prop, SafetyProperty)
    assert prop.start is not None
    known = [flat.model.variable_by_name[name].expression.equals(value) for name, value in state.items()]
    return any(len(batch) for batch in enumerate_states(flat, conjunction([*known, prop.start])))


# Blocksworld

BLOCK = 34


def stacks_of(state: State, blocks: int) -> list[list[int]]:
    """The blocks of every stack from below; a position is 0, 1, or the place among the other blocks."""
    under = {}
    for block in range(1, blocks + 1):
        others = [other for other in range(1, blocks + 1) if other != block]
        position = state[f"position_{block}"]
        under[block] = others[position - 2] if position >= 2 else 0
    above = {other: block for block, other in under.items()}
    found = []
    for block in range(1, blocks + 1):
        if under[block] == 0:
            stack = [block]
            while stack[-1] in above:
                stack.append(above[stack[-1]])
            found.append(stack)
    return found


def blocks_picture() -> str:
    blocks = 6
    model = blocksworld(blocks=blocks, cost_bound=0)
    start = next(state for state in states_where(model, "start") if state["on_table"] == 3)
    apart = {f"position_{block}": 1 for block in range(1, blocks + 1)}
    goal = {f"position_{block}": block for block in range(1, blocks + 1)}
    scenes = [
        ("one of 202 start states", start, FAINT),
        ("goal", goal, GOOD),
        ("unsafe: the table is full", apart, BAD),
    ]
    parts, left, floor = [], 30.0, 24 + blocks * BLOCK
    for title, state, colour in scenes:
        stacks = stacks_of(state, blocks)
        width = max(len(stacks) * (BLOCK + 10) + 10, 150)
        first = left + (width - len(stacks) * (BLOCK + 10) + 10) / 2
        for place, stack in enumerate(stacks):
            for height, block in enumerate(stack):
                x, y = first + place * (BLOCK + 10), floor - (height + 1) * BLOCK
                parts.append(box(x, y, BLOCK - 2, BLOCK - 2, WOOD, radius=3))
                parts.append(centred(x + BLOCK / 2 - 1, y + 22, str(block), size=15, colour="#ffffff"))
        parts.append(box(left, floor, width, 5, INK))
        parts.append(centred(left + width / 2, floor + 30, title, colour=colour))
        left += width + 40
    return drawing(left - 10, floor + 50, parts)


# SlidingTiles

TILE = 46


def tiles_picture() -> str:
    model = sliding_tiles(cost_bound=0)
    start = states_where(model, "start")[1234]
    goal = {"empty": 8, **{f"tile_{tile}": 8 - tile for tile in range(1, 9)}}
    # Tile 7 changes places with the tile on position 7.
    there = next(tile for tile in range(1, 9) if start[f"tile_{tile}"] == 7)
    unsafe = {**start, "tile_7": 7, f"tile_{there}": start["tile_7"]}
    scenes = [
        ("one of 4900 start states", start, FAINT),
        ("goal", goal, GOOD),
        ("unsafe: tile 7 is there", unsafe, BAD),
    ]
    colours = {**dict.fromkeys((1, 2, 3), "#1565c0"), **dict.fromkeys((4, 5, 6), "#2e7d32"), 7: "#6a4c93", 8: "#6a4c93"}
    parts, left = [], 40.0
    for title, state, colour in scenes:
        for position in range(9):
            x, y = left + position % 3 * TILE, 30 + position // 3 * TILE
            parts.append(box(x, y, TILE, TILE, PAPER, stroke=BAD if position == 7 else LINE))
        for tile in range(1, 9):
            position = state[f"tile_{tile}"]
            x, y = left + position % 3 * TILE, 30 + position // 3 * TILE
            parts.append(box(x + 3, y + 3, TILE - 6, TILE - 6, colours[tile], radius=4))
            parts.append(centred(x + TILE / 2, y + TILE / 2 + 6, str(tile), size=17, colour="#ffffff"))
        parts.append(centred(left + 1.5 * TILE, 30 + 3 * TILE + 28, title, colour=colour))
        left += 3 * TILE + 60
    parts.append(
        text(40, 30 + 3 * TILE + 58, "At the start the tiles of one colour are in order.", size=13, colour=FAINT)
    )
    return drawing(left - 20, 30 + 3 * TILE + 78, parts)


# Transport

ROAD = 62


def transport_picture() -> str:
    lying = [3, 0, 1, 2, 0, 4, 0, 1, 2, 0]
    on_truck = 2
    state = {"truck": 4, "load": on_truck, **{f"packages_{place}": count for place, count in enumerate(lying)}}
    assert is_start(transport(), state)
    locations = len(lying)
    parts, y = [], 120.0
    for place in range(locations - 1):
        x, bridge = 40 + place * ROAD, place == locations - 2
        parts.append(box(x, y, ROAD, 6, BAD if bridge else INK))
        if bridge:
            parts += [box(x + 8 + 16 * post, y + 6, 4, 22, BAD) for post in range(4)]
            parts.append(centred(x + ROAD / 2, y + 46, "one at a time", size=12, colour=BAD))
    for place, count in enumerate(lying):
        x = 40 + place * ROAD
        parts.append(f'<circle cx="{x:g}" cy="{y + 3:g}" r="7" fill="#ffffff" stroke="{INK}" stroke-width="2"/>')
        parts.append(centred(x, y + 28, str(place), size=12, colour=FAINT))
        parts += [
            box(x - 19 + 13 * (number % 3), y - 20 - 13 * (number // 3), 11, 11, WOOD, radius=2)
            for number in range(count)
        ]
    x = 40 + state["truck"] * ROAD
    parts.append(box(x - 24, y - 34, 32, 24, TRUCK, radius=3))
    parts.append(box(x + 10, y - 26, 14, 16, TRUCK, radius=3))
    parts += [f'<circle cx="{x + shift:g}" cy="{y - 8:g}" r="5" fill="{INK}"/>' for shift in (-14, 14)]
    parts += [box(x - 20 + 13 * number, y - 46, 11, 11, WOOD, radius=2) for number in range(on_truck)]
    parts.append(text(28, 40, "one of 11,767,536 start states: truck and packages on this side", colour=FAINT))
    parts.append(centred(40 + 9 * ROAD, y - 12, "goal", colour=GOOD))
    return drawing(80 + 9 * ROAD, y + 66, parts)


# Racetrack

CELL = 18


def race_picture() -> str:
    on = track("barto-small")
    model = racetrack(starts=0)
    # Asked whether the goal cannot be reached, the engine answers with a fastest race.
    answer = pp.verify(model, None, "A[] !(x >= 26 & x <= 33 & y >= 9 & y <= 10)")
    assert answer.trace is not None
    # That property starts in the model's one initial state, on the start line.
    race = [(int(state.variables["x"]), int(state.variables["y"])) for state in answer.trace.states]

    def centre(cell: tuple[int, int]) -> tuple[float, float]:
        return 20 + (cell[0] + 0.5) * CELL, 20 + (on.height - cell[1] - 0.5) * CELL

    fills = {"#": "#9aa5b1", ".": PAPER, "s": "#dbeafe", "g": "#d7f0d9"}
    parts = []
    for row, line in enumerate(on.rows):
        for column, kind in enumerate(line):
            parts.append(box(20 + column * CELL, 20 + row * CELL, CELL, CELL, fills[kind], stroke=LINE))
    points = " ".join(f"{x:g},{y:g}" for x, y in map(centre, race))
    parts.append(f'<polyline points="{points}" fill="none" stroke="{ROBOT}" stroke-width="3" stroke-opacity="0.5"/>')
    for number, cell in enumerate(race):
        x, y = centre(cell)
        parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="8" fill="{ROBOT}"/>')
        parts.append(centred(x, y + 4, str(number), size=11, colour="#ffffff"))
    below = 20 + on.height * CELL + 24
    words = f"a fastest race from here, {len(race) - 1} moves; start line blue, goal green"
    parts.append(text(20, below, words, size=13, colour=FAINT))
    return drawing(40 + on.width * CELL, below + 18, parts)


PICTURES: Mapping[str, Callable[[], str]] = {
    "blocksworld": blocks_picture,
    "sliding-tiles": tiles_picture,
    "transport": transport_picture,
    "racetrack": race_picture,
}

if __name__ == "__main__":
    for name, picture in PICTURES.items():
        (TARGET / f"{name}.svg").write_text(picture(), encoding="utf-8")
