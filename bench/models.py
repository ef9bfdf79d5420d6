"""Models for benchmarks, made by code."""

from __future__ import annotations

from policyproof.model.building import ModelBuilder, outcome
from policyproof.model.expressions import Expression, conjunction, constant, disjunction
from policyproof.model.source import LoadedModel


def sliding_tiles(width: int = 3, height: int = 3) -> LoadedModel:
    """The 8-puzzle: a variable per tile, an operator per label and tile; 181,440 states from one start."""
    builder = ModelBuilder(f"{width * height - 1}-puzzle")
    cells = width * height
    empty = builder.integer("empty", 0, cells - 1, initial=0)
    tiles = [builder.integer(f"tile{n}", 0, cells - 1, initial=n) for n in range(1, cells)]
    columns = [cell % width for cell in range(cells)]
    # The tile at position `empty + offset` moves into the gap, where that is no wrap around an edge.
    for label, offset, blocked in (
        ("left", 1, [cell for cell in range(cells) if columns[cell] == width - 1]),
        ("right", -1, [cell for cell in range(cells) if columns[cell] == 0]),
        ("up", width, [cell for cell in range(cells) if cell + width >= cells]),
        ("down", -width, [cell for cell in range(cells) if cell < width]),
    ):
        free = conjunction(empty.differs(cell) for cell in blocked)
        for tile in tiles:
            builder.edge(label, guard=free & tile.equals(empty + offset), update={tile: empty, empty: tile})
    return builder.build(builder.safety("never", unsafe=empty.equals(tiles[0])))


def racetrack(size: int = 30, speed: int = 8) -> LoadedModel:
    """A car on a square track around a square block; it may be pushed by slippery ground."""
    builder = ModelBuilder("racetrack")
    x, y = builder.integer("x", 0, size - 1, initial=0), builder.integer("y", 0, size - 1, initial=0)
    dx, dy = builder.integer("dx", -speed, speed, initial=0), builder.integer("dy", -speed, speed, initial=0)
    crashed = builder.boolean("crashed", initial=False)
    inner = (size // 3, size - size // 3)

    def blocked(at_x: Expression, at_y: Expression) -> Expression:
        outside = disjunction([at_x < 0, at_x >= size, at_y < 0, at_y >= size])
        inside = [constant(inner[0]) <= at_x, at_x < inner[1], constant(inner[0]) <= at_y, at_y < inner[1]]
        return outside | conjunction(inside)

    for ax in (-1, 0, 1):
        for ay in (-1, 0, 1):
            label = f"accelerate_{ax}_{ay}"
            new_dx, new_dy = dx + ax, dy + ay
            crash = blocked(x + new_dx, y + new_dy)
            slip = blocked(x + dx, y + dy)
            builder.edge(
                label,
                guard=~crashed & ~crash & ~slip,
                outcomes=[
                    outcome({dx: new_dx, dy: new_dy, x: x + new_dx, y: y + new_dy}, probability=0.9),
                    outcome({x: x + dx, y: y + dy}, probability=0.1),
                ],
            )
            builder.edge(label, guard=~crashed & (crash | slip), update={crashed: True, dx: 0, dy: 0})
    return builder.build(builder.safety("never", unsafe=x.equals(y) & (x < 0)))
