"""The JSON that commands print is what its schemas say, and the schemas are part of the package."""

from __future__ import annotations

import copy
import importlib.resources
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from policyproof.api import RESULT_SCHEMA, Unfinished, verify
from policyproof.cli import run
from policyproof.engines.result import Progress
from policyproof.model.building import ModelBuilder
from policyproof.model.source import LoadedModel

ROOT = Path(__file__).parent.parent
NAMES = ("card", "replay", "result", "simulation", "supports")

Json = Any


def schema(name: str) -> Json:
    return json.loads(importlib.resources.files("policyproof.report").joinpath(f"{name}.schema.json").read_text())


def check(name: str, value: Json) -> Json:
    Draft202012Validator(schema(name)).validate(value)
    return value


def refuses(name: str, value: Json) -> bool:
    return not Draft202012Validator(schema(name)).is_valid(value)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    assert run(["demo", "--out", str(folder)]) == 0
    return folder


def asked(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> Json:
    capsys.readouterr()
    assert run([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", NAMES)
def test_the_schemas_are_schemas(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))


def test_the_schema_is_named_as_results_name_it() -> None:
    assert schema("result")["properties"]["schema"] == {"const": RESULT_SCHEMA}


@pytest.mark.parametrize(
    ("code", "verdict", "more"),
    [
        (0, "holds", ["--policy", "careful"]),
        (1, "violated", ["--policy", "hasty"]),
        (1, "violated", ["--policy", "hasty", "--all-starts", "--stop-at-goal", "--filter"]),
        (1, "violated", []),
        (3, "unknown", ["--timeout", "0"]),
        (3, "unknown", ["--policy", "careful", "--timeout", "0"]),
        (0, "holds", ["--property", "A[] x >= 0"]),
        (1, "violated", ["--property", "A[] x < 1", "--policy", "hasty"]),
        (0, "holds", ["--property", "E[F delivered]"]),
        (1, "violated", ["--property", "AX loaded"]),
        (1, "violated", ["--property", "A[F delivered]"]),
    ],
)
def test_results(demo: Path, code: int, verdict: str, more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(demo / f"warehouse-{word}.json") if word in ("careful", "hasty") else word for word in more]
    result = check("result", asked(capsys, code, "verify", str(demo / "warehouse.jani"), *files))
    assert result["verdict"] == verdict


def test_results_in_files(demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["verify", str(demo / "warehouse.jani"), "--policy", str(demo / "warehouse-hasty.json")]
    result = check("result", asked(capsys, 1, *arguments, "--out", str(tmp_path)))
    assert result["evidence"] == {"trace": "trace.json"}
    assert json.loads((tmp_path / "result.json").read_text()) == result
    # The trace in the file is the one that stands in the result when there is no file.
    alone = asked(capsys, 1, *arguments)
    assert alone["evidence"]["trace"] == json.loads((tmp_path / "trace.json").read_text())


def test_results_with_fractions(capsys: pytest.CaptureFixture[str]) -> None:
    result = check("result", verify(_tank(), None).to_json())
    assert result["evidence"]["trace"]["states"][1]["variables"]["level"] == "1/2"


def test_results_of_work_that_was_ended_where_it_stood() -> None:
    progress = Progress("exploring", {"states": 3, "states_per_second": 0.5})
    check(
        "result",
        Unfinished("interrupted", "room.jani", None, None, progress, 0.5, {"seed": 0, "engine": "auto"}).to_json(),
    )


def _tank() -> LoadedModel:
    builder = ModelBuilder("tank")
    level = builder.real("level", 0, 1, initial=0)
    builder.edge("fill", update={level: level + 0.5})
    return builder.build(builder.safety("full", unsafe=level >= 1))


def test_replays_simulations_and_capabilities(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, policy = str(demo / "warehouse.jani"), ["--policy", str(demo / "warehouse-hasty.json")]
    check("replay", asked(capsys, 0, "replay", model, str(demo / "trace.json"), *policy))
    careful = ["--policy", str(demo / "warehouse-careful.json")]
    assert not check("replay", asked(capsys, 1, "replay", model, str(demo / "trace.json"), *careful))["accepted"]
    check("simulation", asked(capsys, 0, "simulate", model, *policy))
    check("supports", asked(capsys, 0, "supports", model))


def test_simulations_that_were_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = ModelBuilder("clock")
    hour = builder.integer("hour", 0, 11, initial=0)
    builder.edge("tick", update={hour: (hour + 1) % 12})
    builder.build(builder.safety("never", unsafe=hour > 11)).save(tmp_path / "clock.jani")
    arguments = ["simulate", str(tmp_path / "clock.jani"), "--steps", "100000000", "--timeout", "0.3"]
    assert check("simulation", asked(capsys, 3, *arguments))["stopped"] is not None


def test_capabilities_of_what_is_not_supported(demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = json.loads((demo / "warehouse.jani").read_text())
    model["properties"].append({"name": "odd", "expression": {"op": "never-heard-of"}})
    (tmp_path / "odd.jani").write_text(json.dumps(model))
    known = check("supports", asked(capsys, 0, "supports", str(tmp_path / "odd.jani")))
    assert [item["readable"] for item in known["properties"]] == [True, False]
    model["automata"][0]["edges"][0]["rate"] = {"exp": 1}
    (tmp_path / "odd.jani").write_text(json.dumps(model))
    unknown = check("supports", asked(capsys, 2, "supports", str(tmp_path / "odd.jani")))
    assert not unknown["supported"]


# A schema that accepts everything would pass all of the above.


@pytest.fixture(scope="module")
def good() -> Json:
    return check("result", verify(_tank(), None).to_json())


@pytest.mark.parametrize("entry", sorted(schema("result")["required"]))
def test_every_entry_is_needed_and_typed(good: Json, entry: str) -> None:
    value = copy.deepcopy(good)
    del value[entry]
    assert refuses("result", value)
    assert refuses("result", {**good, entry: [[]]})


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (["schema"], "policyproof-result-2"),
        (["verdict"], "proved"),
        (["verdict"], "bounded"),
        (["value"], [0.5]),
        (["arithmetic"], "float"),
        (["statistics", "States"], 3),
        (["statistics", "states"], "3"),
        (["evidence", "proof"], "proof.json"),
        (["evidence", "trace", "states", 0, "variables", "level"], "0.5"),
        (["evidence", "trace", "states", 0, "variables", "level"], 0.5),
        (["evidence", "trace", "steps", 0, "edges", 0, "edge"], -1),
        (["evidence", "trace", "steps", 0, "name"], "fill"),
        (["options", "magic"], True),
        (["seconds"], -1),
        (["more"], 1),
    ],
)
def test_what_is_wrong_is_refused(good: Json, place: list[Any], value: Json) -> None:
    changed = copy.deepcopy(good)
    container = changed
    for step in place[:-1]:
        container = container[step]
    container[place[-1]] = value
    assert refuses("result", changed)


def test_nothing_holds_by_work_that_no_engine_did(good: Json) -> None:
    assert refuses("result", {**good, "verdict": "holds", "engine": "none"})


def test_wrong_results_of_other_commands_are_refused() -> None:
    replay = {"schema": "policyproof-replay-1", "accepted": True, "reason": "r", "steps": 1, "ties": []}
    assert refuses("replay", replay)
    assert not refuses("replay", {**replay, "deployed_disagreements": []})
    supports = {"schema": "policyproof-supports-1", "file": "f", "supported": False, "unsupported": []}
    assert refuses("supports", supports)
    assert refuses("supports", {**supports, "supported": True})
    assert not refuses("supports", {**supports, "unsupported": [{"where": "$", "what": "w"}]})
    assert refuses("simulation", {"schema": "policyproof-simulation-1"})


def test_a_wheel_contains_the_schemas(tmp_path: Path) -> None:
    """Built by the build backend itself, from a copy, so that nothing is fetched and nothing is left behind."""
    pytest.importorskip("setuptools", minversion="77")
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.nb?")
    shutil.copytree(ROOT / "policyproof", source / "policyproof", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    code = "from setuptools import build_meta; build_meta.build_wheel('..')"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        contained = set(archive.namelist())
    assert {f"policyproof/report/{name}.schema.json" for name in NAMES} <= contained
    assert "policyproof/py.typed" in contained
