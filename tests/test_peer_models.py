"""Models that others published: every file is read or refused in full, and has the states that others counted.

The published models are no part of this repository; `POLICYPROOF_PEER_DATA` names the folder that
holds them (PlaJA's test models and the Quantitative Verification Benchmark Set).  Its files of two
kinds end in `.jani`: models, and parts of PlaJA's properties, which are read through a model.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policyproof.engines.explicit.search import ExplicitSearch
from policyproof.engines.question import SafetyQuestion, safety_question
from policyproof.model.expressions import FALSE
from policyproof.model.flat import flatten
from policyproof.model.json_text import dumps, read_file
from policyproof.model.properties import Atom, FormulaProperty, Probability, SafetyProperty
from policyproof.model.source import LoadedModel, load_model
from policyproof.model.start_states import enumerate_states
from policyproof.run.budget import Budget
from policyproof.run.errors import InvalidInput, UnsupportedFeature

CONSTANTS: dict[str, dict[str, Any]] = {
    "blocksworld_4_3.jani": {"failing_probability": "0.5", "item_cost_bound": 50},
    "npuzzle_3_3.jani": {"cost_terminal": "false", "failing_probability": "0.5", "item_cost_bound": 50},
}
"""Values for the open constants of models that have no `index.json`."""

NPUZZLE = "plaja/npuzzle/compact_starts_non_terminal/models/offset_enc/npuzzle_3_3.jani"
ADDITIONAL_PROPERTIES = {
    "plaja/blocks6/properties.jani": "plaja/blocks6/blocksworld_6_5.jani",
    "plaja/npuzzle/additional_properties/safety_verification/preds_lab_id_1.jani": NPUZZLE,
    "plaja/small/tiny_c_car_v_car.jani": "plaja/small/for_ppa_racetrack.jani",
    "plaja/small/tiny_c_car_v_car_relaxed.jani": "plaja/small/for_ppa_racetrack.jani",
}
"""Files of additional properties, and the models that they belong to."""

REFERRED_TO = {f"plaja/blocks6/{name}.jani" for name in ("start", "reach", "objective", "predicates/6_0")}
"""Parts of properties, which `plaja/blocks6/properties.jani` refers to."""


@pytest.fixture(scope="module")
def data() -> Path:
    folder = os.environ.get("POLICYPROOF_PEER_DATA")
    if not folder:
        pytest.skip("POLICYPROOF_PEER_DATA is not set: no published models to read")
    return Path(folder)


@pytest.fixture(scope="module")
def files(data: Path) -> dict[str, Path]:
    """All files that end in `.jani`, by their path inside the folder."""
    found = {path.relative_to(data).as_posix(): path for path in sorted(data.rglob("*.jani"))}
    assert len(found) >= 54, "files are missing in POLICYPROOF_PEER_DATA"
    return found


def is_model(name: str) -> bool:
    return name not in ADDITIONAL_PROPERTIES and name not in REFERRED_TO


def recorded_sets(path: Path) -> list[dict[str, Any]]:
    """What the `index.json` beside a model says of it: an entry per choice of its parameters."""
    index = path.with_name("index.json")
    if not index.is_file():
        return []
    files = json.loads(index.read_text(encoding="utf-8-sig"))["files"]
    return next((entry["open-parameter-values"] for entry in files if entry["file"] == path.name), [])


def constants_of(entry: dict[str, Any]) -> dict[str, str]:
    return {value["name"]: str(value["value"]).lower() for value in entry.get("values", [])}


def some_constants(path: Path) -> dict[str, Any]:
    entries = recorded_sets(path)
    return constants_of(entries[0]) if entries else CONSTANTS.get(path.name, {})


# Every file loads, or is refused with all that is unsupported in it


def _features(error: UnsupportedFeature) -> str:
    return "; ".join(str(feature).rpartition("/")[2] for feature in error.features)


def _row(name: str, loaded: LoadedModel, names: tuple[str, ...]) -> Iterator[str]:
    """The line of the table for a file, and one for each property that is refused."""
    refused = {}
    for entry in loaded.entries:
        if entry.name in names:
            try:
                entry.read()
            except UnsupportedFeature as error:
                refused[entry.name] = _features(error)
    read = f"{len(names) - len(refused)} of {len(names)} properties" if names else "no properties"
    yield f"{name:80} loads, {len(flatten(loaded.model).operators):>14,} operators, {read}"
    for property_name, features in refused.items():
        yield f"{'':80} property {property_name!r} is refused: {features}"


def test_every_file_loads_or_is_refused(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Any other error than a list of unsupported features fails the test."""
    rows, refused = [], []
    for name, path in files.items():
        if name in REFERRED_TO:
            rows.append(f"{name:80} part of plaja/blocks6/properties.jani")
            continue
        owner = files[ADDITIONAL_PROPERTIES.get(name, name)]
        properties = path if name in ADDITIONAL_PROPERTIES else None
        try:
            loaded = load_model(owner, constants=some_constants(owner), properties=properties)
        except UnsupportedFeature as error:
            rows.append(f"{name:80} refused: {_features(error)}")
            refused.append(name)
        else:
            rows.extend(_row(name, loaded, loaded.preferred if properties else loaded.property_names))
    with capsys.disabled():
        print("\n" + "\n".join(rows))
    # All of these files are within the fragment that is read; only some of their properties are not.
    assert refused == []


def test_parts_of_properties_are_no_models(files: dict[str, Path]) -> None:
    """Without this, a broken model could pass for a part."""
    for name, path in files.items():
        if not is_model(name):
            with pytest.raises(InvalidInput, match="JANI model"):
                load_model(path)


def test_referred_parts_are_read(files: dict[str, Path]) -> None:
    properties = files["plaja/blocks6/properties.jani"]
    prop = load_model(files["plaja/blocks6/blocksworld_6_5.jani"], properties=properties).property()
    assert isinstance(prop, SafetyProperty)
    assert prop.start is not None
    assert prop.unsafe is not None
    assert prop.goal is not None
    assert prop.policy_file is not None
    assert prop.predicates is not None
    listed = json.loads(files["plaja/blocks6/predicates/6_0.jani"].read_text())
    assert len(prop.predicates) == len(listed) == 49


def _plant(root: dict[str, Any]) -> set[str]:
    """Put unsupported features all over a model; returns their JSON paths."""
    root["features"] = [*root.get("features", []), "telepathy"]
    planted = {f"$.features[{len(root['features']) - 1}]"}
    composed = {element["automaton"] for element in root["system"]["elements"]}
    for number, automaton in enumerate(root["automata"]):
        # An automaton that takes no part in the system is not read.
        if automaton["name"] not in composed:
            continue
        automaton["locations"][0]["time-progress"] = {"exp": True}
        planted.add(f"$.automata[{number}].locations[0].time-progress")
        edges = automaton["edges"]
        for place in {0, len(edges) // 2, len(edges) - 1} & set(range(len(edges))):
            edges[place]["rate"] = {"exp": 1}
            planted.add(f"$.automata[{number}].edges[{place}].rate")
            destinations = edges[place]["destinations"]
            destinations[-1]["reward"] = 1
            planted.add(f"$.automata[{number}].edges[{place}].destinations[{len(destinations) - 1}].reward")
    return planted


def test_a_refusal_lists_every_feature(files: dict[str, Path], tmp_path: Path) -> None:
    """Features planted at the beginning, in the middle and at the end of every model are all listed, and no others."""
    for name, path in files.items():
        if not is_model(name):
            continue
        root = read_file(path).root
        planted = _plant(root)
        copy = tmp_path / path.name
        copy.write_text(dumps(root), encoding="utf-8")
        with pytest.raises(UnsupportedFeature) as caught:
            load_model(copy, constants=some_constants(path))
        assert {feature.where for feature in caught.value.features} == {f"{copy}: {place}" for place in planted}, name


# The numbers of reachable states that others recorded

STOPPED_AT_THE_TARGET = {
    "elevators.a-3-3.jani": 1008,
    "elevators.b-3-3.jani": 1008,
    "elevators.a-11-9.jani": 14_976,
    "pnueli-zuck.3.jani": 2701,
}
"""Here the recorded number leaves out what lies behind the target of the file's property, where a checker
of that property may stop.  The numbers given here are all reachable states, as stormpy 2.0.0 builds them
without a property."""

MANY_TRANSITIONS = {"herman.15.jani", "herman.17.jani", "herman.19.jani"}
"""Families with 3^N + 1 transitions: more than 10^7 of them."""


@dataclass(frozen=True)
class Recorded:
    """A model with values for its constants, and its recorded number of states."""

    path: Path
    constants: dict[str, str]
    states: int

    def __str__(self) -> str:
        return " ".join([self.path.name, *(f"{name}={value}" for name, value in self.constants.items())])


def recorded(files: dict[str, Path]) -> Iterator[Recorded]:
    for name, path in files.items():
        if not name.startswith("qvbs/"):
            continue
        for entry in recorded_sets(path):
            numbers = {item["note"]: item["number"] for item in entry.get("states", [])}
            by_storm = [number for note, number in numbers.items() if note.startswith("Storm")]
            if numbers:
                yield Recorded(path, constants_of(entry), (by_storm or list(numbers.values()))[0])


def _reachable(item: Recorded, *, stop_at_target: bool = False) -> int:
    """The states that the explicit engine finds with all labels, nothing sliced away."""
    loaded = load_model(item.path, constants=item.constants)
    flat = flatten(loaded.model)
    goal = None
    if stop_at_target:
        prop = loaded.property()
        assert isinstance(prop, FormulaProperty)
        assert isinstance(prop.formula, Probability)
        assert isinstance(prop.formula.path.right, Atom)
        goal = flat.state_condition(prop.formula.path.right.expression)
    question = SafetyQuestion(flat, (flat.initial,), FALSE, None, goal=goal)
    search = ExplicitSearch(question, Budget(megabytes=12_000), slicing=False, stop_at_goal=stop_at_target)
    for _ in search.run(until_unsafe=False):
        pass
    return int(search.statistics()["states"])


def _check_recorded(items: list[Recorded], capsys: pytest.CaptureFixture[str]) -> None:
    wrong, rows = [], []
    for item in items:
        everything = _reachable(item)
        known = STOPPED_AT_THE_TARGET.get(item.path.name)
        counted = everything if known is None else _reachable(item, stop_at_target=True)
        note = "" if known is None else f" (to the target; all: {everything:,})"
        rows.append(f"{item!s:75} {counted:>10,} states, recorded {item.states:>10,}{note}")
        if counted != item.states or everything != (item.states if known is None else known):
            wrong.append(rows[-1])
    with capsys.disabled():
        print("\n" + "\n".join(rows))
    assert not wrong, "\n".join(wrong)


def test_recorded_numbers_of_states(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """All with at most 10^6 states and 10^7 transitions."""
    items = [item for item in recorded(files) if item.states <= 10**6 and item.path.name not in MANY_TRANSITIONS]
    assert len(items) >= 53
    _check_recorded(items, capsys)


@pytest.mark.slow
def test_larger_recorded_numbers_of_states(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Some beyond these bounds."""
    items = [
        item
        for item in recorded(files)
        if item.path.name == "herman.15.jani"
        or (10**6 < item.states <= 4 * 10**6 and not item.path.name.startswith("herman"))
    ]
    assert len(items) >= 7
    _check_recorded(items, capsys)


# PlaJA's start sets


def _start_states(loaded: LoadedModel, prop: SafetyProperty) -> tuple[list[str], np.ndarray]:
    """The names of the variables, and the distinct states `[n, variable]`."""
    question = safety_question(loaded.model, prop, None)
    found = [batch for start in question.starts for batch in enumerate_states(question.flat, start)]
    return list(question.flat.names), np.unique(np.concatenate(found), axis=0)


def test_the_start_states_of_four_blocks(files: dict[str, Path]) -> None:
    loaded = load_model(files["plaja/blocks4/blocksworld_4_3.jani"], constants=CONSTANTS["blocksworld_4_3.jani"])
    (prop,) = (entry.read() for entry in loaded.entries if entry.name != "goal")
    assert isinstance(prop, SafetyProperty)
    _, states = _start_states(loaded, prop)
    assert len(states) == 14


def test_the_start_states_of_six_blocks(files: dict[str, Path]) -> None:
    """The start condition takes 390 kB."""
    properties = files["plaja/blocks6/properties.jani"]
    loaded = load_model(files["plaja/blocks6/blocksworld_6_5.jani"], properties=properties)
    prop = loaded.property()
    assert isinstance(prop, SafetyProperty)
    names, states = _start_states(loaded, prop)
    assert len(states) == 202
    costs = [column for column, name in enumerate(names) if "cost" in name]
    assert len(costs) == 7
    assert not states[:, costs].any()


FRESH = """
import sys, time
import policyproof.api, policyproof.engines.explicit.search
from tests.test_peer_models import _start_states, load_model
started = time.perf_counter()
loaded = load_model(sys.argv[1], properties=sys.argv[2])
_, states = _start_states(loaded, loaded.property())
print(len(states), f"{time.perf_counter() - started:.2f}")
"""


def test_six_blocks_in_a_fresh_process(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Prints how long it takes to load the model and enumerate its start states after import (aim: 1 s)."""
    folder = files["plaja/blocks6/properties.jani"].parent
    command = [sys.executable, "-c", FRESH, str(folder / "blocksworld_6_5.jani"), str(folder / "properties.jani")]
    for _ in range(2):  # the first run may have to compile machine code
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    count, seconds = done.stdout.split()
    with capsys.disabled():
        print(f"\nblocks6: {count} start states in {seconds} s after import")
    assert count == "202"
