"""Transport, compared with packages that are counted in Python tuples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

from policyproof.model.flat import flatten
from policyproof.model.properties import SafetyProperty
from policyproof.model.start_states import boxes_where
from policyproof.run.errors import InvalidInput
from policyproof.zoo.transport import distributions, transport
from tests.support.zoo import behaviour, enumerated

State = tuple[int, int, tuple[int, ...]]
"""Where the truck is, what it carries, and what lies where."""


def moves(state: State) -> Iterator[tuple[str, State]]:
    truck, load, lying = state
    last = len(lying) - 1
    if truck < last:
        yield "forward", (truck + 1, load, lying)
    if truck > 0:
        yield "backward", (truck - 1, load, lying)
    if lying[truck] > 0 and truck < last:
        yield "pick_up", (truck, load + 1, (*lying[:truck], lying[truck] - 1, *lying[truck + 1 :]))
    if load > 0:
        yield "drop", (truck, load - 1, (*lying[:truck], lying[truck] + 1, *lying[truck + 1 :]))


def read(values: dict[str, int]) -> State:
    locations = sum(name.startswith("packages_") for name in values)
    return values["truck"], values["load"], tuple(values[f"packages_{place}"] for place in range(locations))


@pytest.mark.parametrize(("locations", "packages", "limit"), [(2, 2, 1), (3, 3, 0), (4, 3, 1), (3, 5, 2)])
def test_it_moves_as_packages_do(locations: int, packages: int, limit: int) -> None:
    found = behaviour(transport(locations=locations, packages=packages, bridge_limit=limit), read)
    starts = [
        (truck, counts[0], (*counts[1:], 0))
        for truck in range(locations - 1)
        for counts in itertools.product(range(packages + 1), repeat=locations)
        if sum(counts) == packages
    ]
    last = locations - 1
    wanted = enumerated(
        starts,
        moves,
        lambda state: state[0] == last and state[1] > limit,
        lambda state: state[2][last] == packages,
    )
    assert found == wanted
    assert len(found.states) == distributions(locations=locations, packages=packages)
    assert len(found.starts) == last * math.comb(packages + last, last)


def test_only_crossing_the_bridge_is_unsafe() -> None:
    """Every step into an unsafe state from a safe one is over the bridge."""
    found = behaviour(transport(locations=3, packages=4), read)
    crossings = [step for step in found.transitions if step[2] in found.unsafe and step[0] not in found.unsafe]
    assert crossings
    assert {(label, source[0], target[0]) for source, label, target in crossings} == {("forward", 1, 2)}


def test_the_start_states_of_the_paper() -> None:
    loaded = transport()
    prop, flat = loaded.property(), flatten(loaded.model)
    assert isinstance(prop, SafetyProperty)
    assert prop.start is not None
    assert not prop.include_initial
    count = 0
    for boxes in boxes_where(flat, prop.start):
        assert boxes.certain.all()
        count += int(np.prod(boxes.upper - boxes.lower + 1, axis=1).sum())
    assert count == 9 * math.comb(24, 9) == 11_767_536


@pytest.mark.parametrize("parameters", [{"locations": 1}, {"bridge_limit": -1}, {"packages": 1}])
def test_parameters_out_of_range(parameters: dict[str, int]) -> None:
    with pytest.raises(InvalidInput):
        transport(**parameters)
