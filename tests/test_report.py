"""What people read: tables that are not cut off, commands that work when copied, traces that say what they are for."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from policyproof.cli import run
from policyproof.evidence.trace import read_trace
from policyproof.model.building import ModelBuilder
from policyproof.model.source import load_model
from policyproof.zoo.warehouse import warehouse


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    assert run(["demo", "--out", str(folder)]) == 0
    return folder


def _files(demo: Path) -> list[str]:
    return [str(demo / "warehouse.jani"), "--policy", str(demo / "warehouse-hasty.json")]


def test_the_replay_command_of_verify_works(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    text = "A[] !(x = 5 & y = person1)"
    assert run(["verify", *_files(demo), "--property", text, "--no-filter", "--out", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    command = next(line for line in shown.splitlines() if line.strip().startswith("policyproof replay"))
    assert run(shlex.split(command)[1:]) == 0
    assert "ACCEPTED" in capsys.readouterr().out


def test_piped_tables_show_whole_names(
    demo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert run(["verify", *_files(demo)]) == 1
    shown = capsys.readouterr().out
    assert re.search(r"step +label +x +y +loaded +delivered +person0 +person1 *\n", shown)
    assert "False" not in shown


def test_a_trace_is_no_evidence_without_the_policy_it_was_made_for(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, trace = str(demo / "warehouse.jani"), str(demo / "trace.json")
    assert run(["replay", model, trace]) == 2
    assert "'warehouse-hasty.json'; give it with --policy" in capsys.readouterr().err
    assert run(["replay", model, trace, "--steps-only"]) == 0


def test_a_trace_is_no_evidence_for_another_property(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, *policy = _files(demo)
    assert run(["replay", model, str(demo / "trace.json"), *policy, "--property", "A[] x < 5"]) == 2
    assert "made for the property 'no-collision'" in capsys.readouterr().err


def test_the_demo_shows_commands_that_do_the_same(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--out", str(demo)]) == 0
    commands = [line.strip() for line in capsys.readouterr().out.splitlines() if line.startswith("   policyproof")]
    assert [run(shlex.split(command)[1:]) for command in commands] == [1, 0, 0]


def test_inspect_reports_agreement_relative_to_the_outputs(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    arguments = ["policy", "inspect", str(demo / "warehouse.jani"), str(demo / "warehouse-hasty.json"), "--json"]
    assert run(arguments) == 0
    (comparison,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert comparison["largest_relative_difference"] < 1e-5


def test_a_model_written_in_python_is_saved_with_its_properties(tmp_path: Path) -> None:
    built = warehouse()
    built.save(tmp_path / "warehouse.jani")
    loaded = load_model(tmp_path / "warehouse.jani")
    assert loaded.property_names == ("no-collision",)
    assert loaded.property() == built.property()
    assert loaded.fingerprint() == built.fingerprint()


def test_a_location_is_shown_where_it_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = ModelBuilder("door")
    count = builder.integer("count", 0, 3, initial=0)
    door = builder.automaton("door", locations=["closed", "open"])
    door.edge("push", source="closed", to="open", update={count: count + 1})
    model = builder.build(builder.safety("shut", unsafe="@door = open"))
    model.save(tmp_path / "door.jani")
    assert run(["verify", str(tmp_path / "door.jani"), "--out", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert "@door" in shown and "open" in shown
    assert read_trace(tmp_path / "trace.json").states[-1].locations == {"door": "open"}
