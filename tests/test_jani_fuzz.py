"""Damaged models: whatever is deleted, replaced, doubled or moved, a file is read or refused with a message.

Every seed takes a valid model with a file of properties, damages one of them at a few random places,
and reads both with all their properties.  `POLICYPROOF_FUZZ=FIRST:LAST` tries other seeds.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from policyproof.model.source import load_model
from policyproof.run.errors import InvalidInput, PolicyProofError, UnsupportedFeature
from tests.test_jani_errors import bounded, op, places, small

Json = Any

SEEDS = os.environ.get("POLICYPROOF_FUZZ", "0:2500")
MAXIMAL_SECONDS = 5
"""How much computing one damaged file of a few kilobytes may take; it takes milliseconds."""


def model() -> Json:
    """The small model, with bound names, constructed arrays, and a second automaton."""
    root = small()
    root["constants"][0]["value"] = 5
    # Lists of states know no names inside an automaton; a variable with one value need not be listed.
    root["variables"].append(root["automata"][0].pop("variables")[0])
    root["features"].append("trigonometric-functions")
    squares = {"op": "ac", "var": "i", "length": op("-", "N", 2), "exp": op("*", "i", "i")}
    entry = {"op": "aa", "exp": squares, "index": op("%", "x", 3)}
    local = {"op": "let", "variables": [{"name": "y", "value": entry}], "expression": op("≤", "y", {"constant": "π"})}
    wave = op("≥", {"op": "sin", "exp": op("pow", "h", 2)}, op("min", "h", op("/", 1, 3)))
    choice = {"op": "ite", "if": "flag", "then": {"op": "floor", "exp": op("log", op("+", 2, "h"), 2)}, "else": "cell"}
    root["automata"].append(
        {
            "name": "lamp",
            "variables": [{"name": "cell", "type": bounded(0, 0), "initial-value": 0}],
            "locations": [{"name": "on"}],
            "initial-locations": ["on"],
            "edges": [
                {
                    "location": "on",
                    "action": "go",
                    "guard": {"exp": op("∧", local, op("∨", wave, "flag"))},
                    "destinations": [{"location": "on", "assignments": [{"ref": "cell", "value": choice}]}],
                }
            ],
        }
    )
    root["system"] = {
        "elements": [{"automaton": "car", "input-enable": ["stay"]}, {"automaton": "lamp"}, {"automaton": "lamp"}],
        "syncs": [{"synchronise": ["go", "go", None], "result": "go"}, {"synchronise": ["stay", None, "go"]}],
    }
    return root


def additional() -> Json:
    values = [("x", 1), ("flag", True), ("h", 0.5), ("queue", {"op": "av", "elements": [0, 0, 3]}), ("own", 0)]
    state = {"variables": [{"var": name, "value": value} for name, value in values]}
    started = {"op": "states-values", "values": [state | {"locations": [{"automaton": "car", "location": "ditch"}]}]}
    parts = {"reach": {"label": "bad"}, "predicates": {"file": "predicates.json"}, "start": {"file": "start.jani"}}
    return {
        "properties": [
            {"name": "more", "expression": {"op": "PA", "file": "policy.jani2nnet", **parts}},
            {
                "name": "listed",
                "expression": {"op": "PA", "reach": "flag", "start": started, "initial-state": "exclude"},
            },
        ],
        "labels": [{"name": "bad", "value": op(">", "x", 3)}],
    }


def files() -> dict[str, Json]:
    start = {"op": "state-condition", "exp": op("∧", op("≤", "x", 2), {"op": "¬", "exp": "flag"})}
    predicates = [op("<", "x", 2), "flag"]
    return {"model.jani": model(), "extra.jani": additional(), "start.jani": start, "predicates.json": predicates}


# Ways to damage a value


def owner_of(root: Json, steps: tuple[str | int, ...]) -> Json:
    for step in steps[:-1]:
        root = root[step]
    return root


def random_value(source: random.Random, everything: list[Json]) -> Json:
    """A value from anywhere in the files, or one that fits nowhere."""
    names = ["x", "N", "queue", "own", "go", "road", "car", "", "@car", "#twice#of", "∀", "é\n"]
    strange: list[Json] = [
        None,
        True,
        0,
        -1,
        10**30,
        0.1,
        1e300,
        "1e9",
        source.choice(names),
        [],
        {},
        [[]],
        {"op": "F"},
    ]
    return source.choice(strange if source.random() < 0.4 else everything)


def damage(root: Json, source: random.Random, everything: list[Json]) -> None:
    """Change one entry of `root`, which is an object or an array, in place."""
    everywhere = list(places(root))
    if not everywhere:
        return
    steps = source.choice(everywhere)
    owner: Json = owner_of(root, steps)
    last: Any = steps[-1]
    kind = source.randrange(5)
    if kind == 0:
        del owner[last]
    elif kind == 1:
        # Copied, so that nothing contains itself.
        owner[last] = json.loads(json.dumps(random_value(source, everything)))
    elif kind == 2 and isinstance(owner, list):
        owner.insert(source.randrange(len(owner) + 1), json.loads(json.dumps(owner[last])))
    elif kind == 3 and isinstance(owner, dict):
        keys = ["op", "exp", "name", "value", "left", "file", "label", "kind", "index", "comment", "surprise"]
        owner[source.choice(keys)] = owner.pop(last)
    else:
        other = source.choice(everywhere)
        owner[last] = json.loads(json.dumps(owner_of(root, other)[other[-1]]))


def damage_text(text: str, source: random.Random) -> str:
    first = source.randrange(len(text))
    last = min(len(text), first + source.randrange(1, 20))
    pieces = ["", text[first:last] * 2, '"', "{", "]", ",", "1e999999999", "\\u", "\x00", "9" * 2000]
    return text[:first] + source.choice(pieces) + text[last:]


def write_damaged(folder: Path, seed: int) -> None:
    source = random.Random(seed)
    everything = files()
    values = [owner_of(root, steps)[steps[-1]] for root in everything.values() for steps in places(root)]
    name = source.choice(["model.jani"] * 5 + list(everything))
    for _ in range(source.choice([1, 1, 2, 4])):
        damage(everything[name], source, values)
    for own, root in everything.items():
        text = json.dumps(root, ensure_ascii=False)
        if own == name and source.random() < 0.05:
            text = damage_text(text, source)
        (folder / own).write_text(text, encoding="utf-8")


def read_all(folder: Path, count: Callable[[str], None]) -> None:
    """Load the model and read every property, counting how each of these ends."""
    try:
        loaded = load_model(folder / "model.jani", properties=folder / "extra.jani")
    except PolicyProofError as error:
        count(kind_of(error))
        return
    count("model read")
    for entry in loaded.entries:
        try:
            entry.read()
        except PolicyProofError as error:
            count(kind_of(error))
        else:
            count("property read")


def kind_of(error: PolicyProofError) -> str:
    assert isinstance(error, (InvalidInput, UnsupportedFeature)), "nothing but the input is to blame"
    # Every refusal says where; a list of features says so for each of them.
    assert isinstance(error, UnsupportedFeature) or ".j" in str(error)
    assert len(str(error)) < 50_000
    return "unsupported" if isinstance(error, UnsupportedFeature) else "invalid"


def test_the_undamaged_files_are_read(tmp_path: Path) -> None:
    for name, root in files().items():
        (tmp_path / name).write_text(json.dumps(root))
    counts: Counter[str] = Counter()
    read_all(tmp_path, lambda what: counts.update([what]))
    assert counts == {"model read": 1, "property read": 6}


def test_damaged_files_are_read_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, last = (int(part) for part in SEEDS.split(":"))
    counts: Counter[str] = Counter()
    for seed in range(first, last):
        write_damaged(tmp_path, seed)
        started = time.process_time()
        try:
            read_all(tmp_path, lambda what: counts.update([what]))
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {str(error)[:500]}")
        assert time.process_time() - started < MAXIMAL_SECONDS, f"seed {seed} takes too long"
    shares = {what: counts[what] / (last - first) for what in ("model read", "invalid", "unsupported")}
    with capsys.disabled():
        shown = ", ".join(f"{what} {share:.0%}" for what, share in shares.items())
        print(f"\n{last - first} damaged models (seeds {first} to {last - 1}): {shown}")
    assert min(shares.values()) > 0.05, "the damage is not of all kinds"
