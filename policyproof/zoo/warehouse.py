"""A robot fetches a parcel from the other side of a warehouse; people walk up and down the aisles.

The robot lives on a grid.  It starts at the left wall, fetches the parcel at the right wall and
brings it back.  In every aisle one person walks along a column, one cell up or down or not at all in
each step, as they like.  All move at once.  Unsafe: robot and person in one cell.

    .  .  p  .  .  .  p  .
    R  .  |  .  .  .  |  P      R robot, P parcel, p people, | the columns they walk along
    .  .  |  .  .  .  |  .

A careful policy enters an aisle only where the person cannot be one step later; a hasty one does not
look.  Small enough to be drawn and understood, and it needs what the tool is for: the collision
depends on what the network decides *and* on what people do.
"""

from __future__ import annotations

from policyproof.model.building import Between, ModelBuilder, Value, between
from policyproof.model.expressions import Expression, apply, conjunction, constant, disjunction
from policyproof.model.source import LoadedModel

MOVES = {"left": (-1, 0), "right": (1, 0), "up": (0, 1), "down": (0, -1), "wait": (0, 0)}


def warehouse(width: int = 8, height: int = 5, aisles: tuple[int, ...] = (2, 5)) -> LoadedModel:
    """The model with its property `no-collision`; `aisles`: the columns along which people walk."""
    builder = ModelBuilder("warehouse")
    x, y = builder.integer("x", 0, width - 1), builder.integer("y", 0, height - 1)
    loaded = builder.boolean("loaded", initial=False)
    delivered = builder.boolean("delivered", initial=False)
    people = [builder.integer(f"person{number}", 0, height - 1) for number in range(len(aisles))]
    builder.initially(x.equals(0))
    shelf = height // 2
    for label, (dx, dy) in MOVES.items():
        inside = [constant(0) <= x + dx, x + dx <= width - 1, constant(0) <= y + dy, y + dy <= height - 1]
        new_x, new_y = x + dx, y + dy
        at_parcel = new_x.equals(width - 1) & new_y.equals(shelf)
        update: dict[Expression | str, Value | Between] = {
            x: new_x,
            y: new_y,
            loaded: loaded | at_parcel,
            delivered: delivered | (loaded & new_x.equals(0)),
            # People walk as they like, but not through walls.
            **{person: between(apply("max", person - 1, constant(0)), apply("min", person + 1, constant(height - 1)))
               for person in people},
        }  # fmt: skip
        builder.edge(label, guard=conjunction([~delivered, *inside]), update=update)
    collision = disjunction(x.equals(column) & y.equals(person) for column, person in zip(aisles, people, strict=True))
    return builder.build(builder.safety("no-collision", unsafe=collision, goal=delivered))
