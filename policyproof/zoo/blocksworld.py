"""A hand builds a tower of blocks; moves may fail, and the table must never be full of single blocks.

       hand            The hand takes a block that nothing stands on, and puts it
        |              onto another such block or onto the table.
       [3]
                       Start: stacks in which every block stands on one with a
      [1]    [2]       greater number (or on the table), all costs zero.
      [5]    [4]       Goal: one tower, the block with the greatest number on top.
    =============      Unsafe: more than `table_limit` blocks stand on the table.

This is Blocksworld of ICAPS22 (section 8.3, appendix D).  A label for each block and one for the table:
with an empty hand the label of a block takes that block; with a block in hand it puts it there.  So a
label has one operator for each block that may be under or above it.

A move fails with `failing_probability`: nothing moves, and the cost of the block that should have been
moved grows by one.  A block that has failed `cost_bound` times cannot be moved any more, or, with
`stop_at_bound=False`, never fails again.  `step_cost` is what the last step cost: the cost of its
block before the step.  With `cost_bound=0` there are no costs; then a move that fails changes nothing.

A position is a number: 0 in the hand, 1 on the table, and then the other blocks in order; there is no
number for "on itself", so the domains have no values that never occur.  Flags are 0 or 1.

The start states are the partitions of the blocks into stacks, since the order within a stack is fixed,
without the one in which all stand on the table: Bell(n) - 1, which is 14, 202 and 4139 for 4, 6 and 8
blocks.  Without a policy every arrangement can be reached: lists of blocks, and one block in the hand.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

from policyproof.model.building import ModelBuilder, UpdateMap
from policyproof.model.expressions import Expression, apply, conjunction, constant, disjunction
from policyproof.model.source import LoadedModel
from policyproof.run.errors import InvalidInput
from policyproof.zoo.failing_moves import FailingMoves

IN_HAND, ON_TABLE = 0, 1
STEP_COST_WEIGHT = Fraction(1, 100)
"""What a unit of cost takes from the reward: little, beside a goal that is worth one."""


MOST_BLOCKS = 60
"""Labels and guards grow with the square of the number of blocks."""


def blocksworld(
    *,
    blocks: int = 4,
    table_limit: int | None = None,
    cost_bound: int = 12,
    failing_probability: Fraction = Fraction(1, 2),
    stop_at_bound: bool = True,
) -> LoadedModel:
    """The model with its property `table-not-full`; `table_limit`: all blocks but one, if not given."""
    limit = blocks - 1 if table_limit is None else table_limit
    if not 2 <= blocks <= MOST_BLOCKS or not 1 <= limit <= blocks:
        allowed = f"2 to {MOST_BLOCKS}, and a limit from 1 to their number"
        raise InvalidInput(f"{blocks} blocks and a limit of {limit} (allowed: {allowed})")
    if cost_bound < 0 or not 0 <= failing_probability < 1:
        raise InvalidInput("a bound on costs is at least 0, and a probability of failing is from 0 to below 1")
    return _Blocksworld(blocks, limit, cost_bound, failing_probability, stop_at_bound).build()


def arrangements(*, blocks: int = 4, **_: object) -> int:
    """All arrangements, costs projected away: with an empty hand, and with one block of n in it."""
    return _lists(blocks) + blocks * _lists(blocks - 1)


def _lists(count: int) -> int:
    """The sets of lists into which `count` things can be arranged (A000262): k lists by cutting a permutation."""
    if count == 0:
        return 1
    return sum(
        math.comb(count - 1, lists - 1) * math.factorial(count) // math.factorial(lists)
        for lists in range(1, count + 1)
    )


class _Blocksworld:
    def __init__(self, blocks: int, limit: int, cost_bound: int, failing: Fraction, stop_at_bound: bool) -> None:
        self.blocks = range(1, blocks + 1)
        self.limit = limit
        self.builder = builder = ModelBuilder(f"blocksworld-{blocks}")
        # The model's own initial state is one of the start states: the tower that is to be turned round.
        self.hand_empty = builder.integer("hand_empty", 0, 1, initial=1)
        self.on_table = builder.integer("on_table", 0, blocks, initial=1)
        last = blocks
        self.position = {
            block: builder.integer(
                f"position_{block}", 0, blocks, initial=ON_TABLE if block == last else on(block, block + 1)
            )
            for block in self.blocks
        }
        self.clear = {
            block: builder.integer(f"clear_{block}", 0, 1, initial=1 if block == 1 else 0) for block in self.blocks
        }
        self.cost: dict[int, Expression] = {}
        self.step_cost: Expression | None = None
        if cost_bound > 0:
            self.cost = {block: builder.integer(f"cost_{block}", 0, cost_bound, initial=0) for block in self.blocks}
            self.step_cost = builder.integer("step_cost", 0, cost_bound, initial=0)
        self.moves = FailingMoves(builder, failing, cost_bound, stop_at_bound, self.step_cost)

    def build(self) -> LoadedModel:
        for block in self.blocks:
            self._label_of_table(block)
        for block in self.blocks:
            self._label_of_block(block)
        builder = self.builder
        safety = builder.safety(
            "table-not-full", unsafe=self.on_table > self.limit, start=self._start(), goal=self._goal()
        )
        if self.step_cost is not None:
            reward = apply("*", constant(-STEP_COST_WEIGHT), self.step_cost)
            safety = dataclasses.replace(safety, step_reward=reward)
        return builder.build(safety)

    def _label_of_table(self, held: int) -> None:
        guard = [self.position[held].equals(IN_HAND), self.hand_empty.equals(0)]
        put: UpdateMap = {self.position[held]: ON_TABLE, self.on_table: self.on_table + 1, self.clear[held]: 1}
        self._move("table", held, guard, {**put, self.hand_empty: 1})

    def _label_of_block(self, block: int) -> None:
        label = f"block_{block}"
        position, clear = self.position[block], self.clear[block]
        taken: UpdateMap = {position: IN_HAND, clear: 0, self.hand_empty: 0}
        free = [self.hand_empty.equals(1), clear.equals(1)]
        self._move(label, block, [*free, position.equals(ON_TABLE)], {**taken, self.on_table: self.on_table - 1})
        for other in self.blocks:
            if other == block:
                continue
            self._move(label, block, [*free, position.equals(on(block, other))], {**taken, self.clear[other]: 1})
            held = [self.hand_empty.equals(0), self.position[other].equals(IN_HAND), clear.equals(1)]
            put: UpdateMap = {self.position[other]: on(other, block), self.clear[other]: 1, clear: 0}
            self._move(label, other, held, {**put, self.hand_empty: 1})

    def _move(self, label: str, moved: int, guard: list[Expression], update: UpdateMap) -> None:
        """A move of one block, which may fail."""
        self.moves.add(label, guard, update, self.cost.get(moved))

    def _start(self) -> Expression:
        """Every block on the table or on one with a greater number, and everything else as that makes it."""
        position, count = self.position, len(self.blocks)
        parts = [self.hand_empty.equals(1)]
        # The blocks with greater numbers come after ON_TABLE and the blocks with smaller ones.
        parts += [position[block].equals(ON_TABLE) | (position[block] > block) for block in self.blocks if block > 1]
        parts.append(position[1] >= ON_TABLE)
        for upper in self.blocks:
            for other in range(upper + 1, count + 1):
                # From below, a block has the same number in the order of all smaller ones.
                parts.append(position[upper].equals(ON_TABLE) | position[upper].differs(position[other]))
        for block in self.blocks:
            carries = disjunction(position[upper].equals(on(upper, block)) for upper in range(1, block))
            parts.append((self.clear[block].equals(0) & carries) | (self.clear[block].equals(1) & ~carries))
        standing = constant(0)
        for block in self.blocks:
            standing += apply("ite", position[block].equals(ON_TABLE), constant(1), constant(0))
        parts += [self.on_table.equals(standing), self.on_table <= self.limit]
        parts += [cost.equals(0) for cost in self.cost.values()]
        if self.step_cost is not None:
            parts.append(self.step_cost.equals(0))
        return conjunction(parts)

    def _goal(self) -> Expression:
        """One tower, the greatest number on top."""
        tower = [self.position[block].equals(on(block, block - 1)) for block in self.blocks if block > 1]
        return conjunction([self.position[1].equals(ON_TABLE), *tower])


def on(block: int, other: int) -> int:
    """The position of a block that stands on another one."""
    return ON_TABLE + (other if other < block else other - 1)
