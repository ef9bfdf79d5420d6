"""Blocksworld, compared with stacks of blocks as Python tuples."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest

from policyproof.model.flat import flatten
from policyproof.model.properties import SafetyProperty
from policyproof.model.start_states import enumerate_states
from policyproof.run.errors import InvalidInput
from policyproof.zoo.blocksworld import arrangements, blocksworld
from tests.support.zoo import behaviour, enumerated

# (stacks from bottom to top, the block in hand or 0, costs, cost of the last step)
State = tuple[frozenset[tuple[int, ...]], int, tuple[int, ...], int]


def moves(state: State) -> Iterator[tuple[str, int, frozenset[tuple[int, ...]], int]]:
    """(label, block that is moved, stacks, block in hand) of every move that the papers allow."""
    stacks, held, *_ = state
    for stack in stacks:
        rest = stacks - {stack}
        if held:
            yield f"block_{stack[-1]}", held, rest | {(*stack, held)}, 0
        else:
            left = {stack[:-1]} if len(stack) > 1 else set()
            yield f"block_{stack[-1]}", stack[-1], rest | left, stack[-1]
    if held:
        yield "table", held, stacks | {(held,)}, 0


def steps(cost_bound: int, *, fails: bool = True, stop_at_bound: bool = True):
    """All steps from a state: a move that succeeds, and one that fails and costs."""

    def successors(state: State) -> Iterator[tuple[str, State]]:
        costs = state[2]
        for label, block, stacks, held in moves(state):
            if cost_bound == 0:
                yield label, (stacks, held, costs, 0)
                yield label, state
                continue
            cost = costs[block - 1]
            if cost < cost_bound or not stop_at_bound:
                yield label, (stacks, held, costs, cost)
            if cost < cost_bound and fails:
                more = (*costs[: block - 1], cost + 1, *costs[block:])
                yield label, (*state[:2], more, cost)

    return successors


def start_stacks(blocks: int, limit: int) -> list[frozenset[tuple[int, ...]]]:
    """Add the blocks from the greatest on: each onto the table, or on top of a stack (whose blocks are greater)."""
    found: list[tuple[tuple[int, ...], ...]] = [()]
    for block in range(blocks, 0, -1):
        onto = [
            (*stacks[:place], (*stacks[place], block), *stacks[place + 1 :])
            for stacks in found
            for place in range(len(stacks))
        ]
        found = [*onto, *[(*stacks, (block,)) for stacks in found]]
    return [frozenset(stacks) for stacks in found if len(stacks) <= limit]


def read(values: dict[str, int]) -> State:
    """The stacks that the variables describe; all variables that follow from them are checked."""
    blocks = [int(name.removeprefix("position_")) for name in values if name.startswith("position_")]
    on: dict[int, int | None] = {}
    for block in blocks:
        others = [other for other in blocks if other != block]
        position = values[f"position_{block}"]
        on[block] = None if position < 2 else others[position - 2]
    below = {other: block for block, other in on.items() if other is not None}
    held = [block for block in blocks if values[f"position_{block}"] == 0]
    stacks = set()
    for block in blocks:
        if values[f"position_{block}"] == 1:
            stack = [block]
            while stack[-1] in below:
                stack.append(below[stack[-1]])
            stacks.add(tuple(stack))
    tops = {stack[-1] for stack in stacks}
    assert len(held) <= 1
    assert values["hand_empty"] == 1 - len(held)
    assert values["on_table"] == len(stacks)
    assert {block for block in blocks if values[f"clear_{block}"]} == tops
    assert sum(map(len, stacks)) + len(held) == len(blocks)
    costs = tuple(values.get(f"cost_{block}", 0) for block in blocks)
    return frozenset(stacks), held[0] if held else 0, costs, values.get("step_cost", 0)


def expected(blocks: int, limit: int, cost_bound: int, **options: bool):
    starts = [(stacks, 0, (0,) * blocks, 0) for stacks in start_stacks(blocks, limit)]
    goal = frozenset([tuple(range(1, blocks + 1))])
    return enumerated(
        starts, steps(cost_bound, **options), lambda state: len(state[0]) > limit, lambda state: state[0] == goal
    )


@pytest.mark.parametrize("blocks", [2, 3, 4, 5])
def test_without_costs_it_moves_as_stacks_do(blocks: int) -> None:
    found = behaviour(blocksworld(blocks=blocks, cost_bound=0), read)
    assert found == expected(blocks, blocks - 1, 0)
    assert len(found.states) == arrangements(blocks=blocks)
    assert len(found.unsafe) == len(found.goal) == 1


@pytest.mark.parametrize("stop_at_bound", [True, False])
def test_failing_moves_cost(stop_at_bound: bool) -> None:
    found = behaviour(blocksworld(blocks=3, cost_bound=2, stop_at_bound=stop_at_bound), read)
    wanted = expected(3, 2, 2, stop_at_bound=stop_at_bound)
    assert found == wanted
    # The bound is met, so that it matters what happens there.
    assert any(2 in state[2] for state in found.states)
    assert {state[:2] for state in found.states} == {state[:2] for state in expected(3, 2, 0).states}


def test_the_bound_matters() -> None:
    stopping, going_on = (expected(3, 2, 2, stop_at_bound=stop) for stop in (True, False))
    assert len(stopping.transitions) < len(going_on.transitions)


def test_moves_that_never_fail() -> None:
    found = behaviour(blocksworld(blocks=3, cost_bound=1, failing_probability=Fraction(0)), read)
    assert found == expected(3, 2, 1, fails=False)


def test_another_limit_on_the_table() -> None:
    found = behaviour(blocksworld(blocks=4, cost_bound=0, table_limit=2), read)
    assert found == expected(4, 2, 0)
    assert len(found.starts) == 8
    assert len(found.unsafe) > 1


def test_all_arrangements_of_six_blocks() -> None:
    """4051 sets of lists of six blocks, and for each block in the hand 501 of the other five."""
    found = behaviour(blocksworld(blocks=6, cost_bound=0), read)
    assert len(found.states) == 4051 + 6 * 501 == arrangements(blocks=6)


@pytest.mark.parametrize(("blocks", "count"), [(4, 14), (6, 202), (8, 4139)])
def test_the_start_states_of_the_papers(blocks: int, count: int) -> None:
    loaded = blocksworld(blocks=blocks)
    prop, flat = loaded.property(), flatten(loaded.model)
    assert isinstance(prop, SafetyProperty)
    assert prop.start is not None
    assert not prop.include_initial
    rows = [row for batch in enumerate_states(flat, prop.start) for row in batch.tolist()]
    states = {read(dict(zip(flat.names, row, strict=True))) for row in rows}
    assert len(rows) == len(states) == count
    assert {state[0] for state in states} == set(start_stacks(blocks, blocks - 1))
    (initial,) = [row for batch in enumerate_states(flat, flat.initial) for row in batch.tolist()]
    assert initial in rows


def test_positions_have_no_values_that_never_occur() -> None:
    """So that the largest predicate set without costs has 49 predicates for 6 blocks, as in ICAPS22."""
    flat = flatten(blocksworld(blocks=6, cost_bound=0).model)
    assert sum(item.domain.size - 1 for item in flat.variables) == 49


@pytest.mark.parametrize(
    "parameters",
    [{"blocks": 1}, {"table_limit": 0}, {"table_limit": 5}, {"cost_bound": -1}, {"failing_probability": Fraction(1)}],
)
def test_parameters_out_of_range(parameters: dict[str, int]) -> None:
    with pytest.raises(InvalidInput):
        blocksworld(**parameters)
