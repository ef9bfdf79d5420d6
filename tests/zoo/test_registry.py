"""Every benchmark by its name: written, read back equal, shown, and asked for wrongly."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from policyproof.model.flat import flatten
from policyproof.model.source import load_model
from policyproof.policy.load import load_policy
from policyproof.report.zoo_pages import policy_files
from policyproof.run.errors import InvalidInput
from policyproof.zoo.registry import BENCHMARKS, PARAMETER_TYPES, find, model, names
from tests.support.command_line import call

PAPERS = ["blocksworld-4", "blocksworld-6", "blocksworld-8", "8-puzzle", "transport", "racetrack-barto-small"]


def test_the_benchmarks_of_the_papers_are_there() -> None:
    assert set(PAPERS) <= set(names())
    assert len(set(names())) == len(names())


@pytest.mark.parametrize("name", names())
def test_what_is_written_is_read_back_equal(name: str, tmp_path: Path) -> None:
    benchmark = find(name)
    built = benchmark.model()
    built.save(tmp_path / "model.jani")
    read = load_model(tmp_path / "model.jani")
    assert read.model == built.model
    assert read.property_names == built.property_names
    assert [read.property(item) for item in read.property_names] == [
        built.property(item) for item in built.property_names
    ]
    one, other = flatten(built.model), flatten(read.model)
    assert (one.variables, one.labels, one.steps, one.initial) == (
        other.variables, other.labels, other.steps, other.initial,
    )  # fmt: skip
    assert len(one.operators) > 0
    assert built.property_names


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda item: item.name)
def test_every_parameter_can_be_given_as_text(benchmark) -> None:
    for name in benchmark.parameters:
        kinds = benchmark.types(name)
        assert kinds
        assert all(kind in PARAMETER_TYPES for kind in kinds)
    assert benchmark.summary.endswith(".")
    assert len(benchmark.description) > len(benchmark.summary)


def test_a_name_with_a_place_stands_for_any_number() -> None:
    assert model("blocksworld-7").model == model("blocksworld-6", blocks=7).model
    assert find("blocksworld-7").preset["blocks"] == 7
    assert find("transport-3").preset["packages"] == 3
    assert find("blocksworld-8").preset["cost_bound"] == 8


@pytest.mark.parametrize(
    "name", ["blocksworld", "blocksworld-", "blocksworld-x", "blocksworld-0", "blocksworld--4", ""]
)
def test_unknown_names(name: str) -> None:
    with pytest.raises(InvalidInput, match="there are: blocksworld-4"):
        find(name)


def test_texts_of_parameters() -> None:
    blocks, puzzle = find("blocksworld-4"), find("8-puzzle")
    assert blocks.read({"failing_probability": "0.25", "stop_at_bound": "false", "table_limit": "none"}) == {
        "failing_probability": Fraction(1, 4),
        "stop_at_bound": False,
        "table_limit": None,
    }
    assert puzzle.read({"parts": "4,4", "unsafe_tile": "3"}) == {"parts": (4, 4), "unsafe_tile": 3}
    assert find("racetrack-barto-big").read({"track_name": "barto-small"}) == {"track_name": "barto-small"}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("stop_at_bound", "yes", "true or false"),
        ("blocks", "3.5", "an integer"),
        ("table_limit", "some", "none or an integer"),
        ("failing_probability", "1/0", "a number"),
        ("boxes", "3", "there is no parameter 'boxes'"),
    ],
)
def test_wrong_texts_of_parameters(name: str, text: str, expected: str) -> None:
    with pytest.raises(InvalidInput, match=expected):
        find("blocksworld-4").read({name: text})


def test_an_unknown_parameter_in_python() -> None:
    with pytest.raises(InvalidInput, match="there are: locations, packages, bridge_limit"):
        model("transport", boxes=3)


# The command line


def test_list_shows_every_name() -> None:
    done = call("zoo", "list")
    assert done.returncode == 0, done.stderr
    shown = [line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert shown == list(names())


def test_show_says_what_there_is() -> None:
    done = call("zoo", "show", "blocksworld-4", "--param", "cost_bound=3")
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    for part in (
        "A hand builds a tower of blocks",
        "cost_bound 3",
        "table, block_1, block_2, block_3, block_4",
        "step_cost int [0, 3]",
        "125 can be reached",
        "table-not-full",
        "on_table > 3",
    ):
        assert part in text


def test_write_brings_the_policies_unless_the_model_is_another(tmp_path: Path) -> None:
    done = call("zoo", "write", "warehouse", "--out", tmp_path / "new" / "folder")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "new" / "folder"
    written = sorted(path.name for path in folder.iterdir())
    assert written[0] == "warehouse-careful.json"
    assert "warehouse.jani" in written
    read = load_model(folder / "warehouse.jani")
    assert read.model == model("warehouse").model
    assert load_policy(folder / "warehouse-careful.json", read).labels == read.model.labels
    assert call("zoo", "write", "warehouse", "--param", "aisles=2", "--out", tmp_path / "other").returncode == 0
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["warehouse.jani"]


def test_policies_belong_to_the_longest_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("transport-10-small.onnx", "transport-small.onnx", "transport-10.onnx"):
        (tmp_path / name).touch()
    (tmp_path / "transport").mkdir()
    (tmp_path / "transport" / "card.json").touch()
    monkeypatch.setattr("policyproof.report.zoo_pages.POLICIES", tmp_path)
    assert [file.name for file in policy_files("transport")] == ["card.json", "transport-small.onnx"]
    assert [file.name for file in policy_files("transport-10")] == ["transport-10-small.onnx", "transport-10.onnx"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["show", "nothing"], "there is no benchmark 'nothing'"),
        (["show", "transport", "--param", "packages"], "expected NAME=VALUE, found 'packages'"),
        (["show", "transport", "--param", "=3"], "expected NAME=VALUE"),
        (["write", "transport", "--param", "packages=1"], "a limit below the number of packages"),
        (["write", "transport", "--out", "/dev/null/folder"], "no folder can be made here"),
    ],
)
def test_wrong_usage(arguments: list[str], expected: str) -> None:
    done = call("zoo", *arguments)
    assert done.returncode == 2
    assert expected in done.stderr.replace("\n", " ")
