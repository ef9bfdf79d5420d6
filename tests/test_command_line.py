"""The command line: what is wrong is said in one message, and every end has its exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policyproof import api
from policyproof.cli import run
from policyproof.model.building import ModelBuilder
from tests.support.command_line import ENOUGH, PROGRAM, OnTerminal, call, environment

Json = Any


def room() -> Json:
    """Somebody walks between two walls; `go` leads to the right one, `stay` nowhere."""
    x = {"kind": "bounded", "base": "int", "lower-bound": 0, "upper-bound": "size"}
    more = {"op": "+", "left": "x", "right": 1}
    go = [{"location": "inside", "assignments": [{"ref": "x", "value": more}]}]
    wall = {"op": "=", "left": "x", "right": "size"}
    return {
        "jani-version": 1,
        "name": "room",
        "type": "mdp",
        "actions": [{"name": "go"}, {"name": "stay"}],
        "constants": [{"name": "size", "type": {"kind": "bounded", "base": "int", "lower-bound": 1}}],
        "variables": [{"name": "x", "type": x, "initial-value": 0}],
        "automata": [
            {
                "name": "walker",
                "locations": [{"name": "inside"}],
                "initial-locations": ["inside"],
                "edges": [
                    {"location": "inside", "action": "go", "destinations": go},
                    {"location": "inside", "action": "stay", "destinations": [{"location": "inside"}]},
                ],
            }
        ],
        "system": {
            "elements": [{"automaton": "walker"}],
            "syncs": [{"synchronise": ["go"], "result": "go"}, {"synchronise": ["stay"], "result": "stay"}],
        },
        "properties": [_property("no-wall", wall)],
    }


def _property(name: str, reach: Json, start: Json = None) -> Json:
    condition: Json = {"op": "PA", "reach": {"op": "state-condition", "exp": reach}}
    if start is not None:
        condition["start"] = {"op": "state-condition", "exp": start}
    return {"name": name, "expression": condition}


def interface() -> Json:
    return {
        "schema": "policyproof-policy-1",
        "network": "walker.npz",
        "inputs": [{"variable": "x"}],
        "labels": ["go", "stay"],
    }


class Files:
    """The files of one question in a folder, changed before they are written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = room()
        self.interface = interface()
        self.weights = {"weights_0": np.array([[0.0], [1.0]]), "bias_0": np.array([1.5, 0.0])}
        """Go as long as x < 1.5, that is twice."""

    def write(self) -> Files:
        self.path.write_text(json.dumps(self.model), encoding="utf-8")
        self.policy.write_text(json.dumps(self.interface), encoding="utf-8")
        np.savez(self.folder / "walker.npz", **self.weights)
        return self

    @property
    def path(self) -> Path:
        return self.folder / "room.jani"

    @property
    def policy(self) -> Path:
        return self.folder / "walker.json"

    def verify(self, *more: str, size: int | None = 5, policy: bool = True) -> list[str]:
        chosen = ["--policy", str(self.policy)] if policy else []
        return ["verify", str(self.path), *chosen, *([] if size is None else ["--const", f"size={size}"]), *more]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


Capture = pytest.CaptureFixture[str]


def refused(arguments: list[str], capsys: Capture) -> str:
    """The message with which a command line is refused: one, for people, and nothing on stdout."""
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert shown.err.count("error:") == 1
    assert "Traceback" not in shown.err
    assert "internal" not in shown.err
    return shown.err


def test_without_a_mistake_the_files_are_fine(files: Files, capsys: Capture) -> None:
    """What the other tests break is whole before."""
    assert run(files.write().verify()) == 0
    assert run(files.verify(size=2)) == 1
    assert run(files.verify(policy=False)) == 1
    assert capsys.readouterr().err == ""


# What is wrong with the files


def test_truncated_json(files: Files, capsys: Capture) -> None:
    files.write().path.write_text(json.dumps(room(), indent=1)[:-40], encoding="utf-8")
    assert re.search(r"room\.jani, line 109, column \d+: not valid JSON", refused(files.verify(), capsys))
    files.write().policy.write_text('{"schema": "poli', encoding="utf-8")
    assert re.search(r"walker\.json, line 1, column \d+: not valid JSON", refused(files.verify(), capsys))


def test_a_value_of_the_wrong_type(files: Files, capsys: Capture) -> None:
    files.model["automata"][0]["edges"] = {"location": "inside"}
    message = refused(files.write().verify(), capsys)
    assert "room.jani: $.automata[0].edges: expected an array, found an object" in message


def test_an_unknown_variable(files: Files, capsys: Capture) -> None:
    files.model["properties"][0]["expression"]["reach"]["exp"]["left"] = "y"
    message = refused(files.write().verify(), capsys)
    assert "$.properties[0].expression.reach.exp.left" in message
    assert "'y'" in message
    files.model = room()
    files.interface["inputs"] = [{"variable": "z"}]
    message = refused(files.write().verify(), capsys)
    assert "walker.json: $.inputs[0].variable: unknown variable 'z' (there are: x)" in message


def test_an_unknown_label(files: Files, capsys: Capture) -> None:
    files.interface["labels"] = ["go", "jump"]
    message = refused(files.write().verify(), capsys)
    assert "walker.json: $.labels[1]: unknown label 'jump' (there are: go, stay)" in message


def test_a_network_with_the_wrong_input_size(files: Files, capsys: Capture) -> None:
    files.weights["weights_0"] = np.zeros((2, 3))
    assert re.search(r"walker\.json.* has 3 inputs, the interface .* 1\b", refused(files.write().verify(), capsys))


def test_a_network_with_the_wrong_number_of_outputs(files: Files, capsys: Capture) -> None:
    files.weights = {"weights_0": np.zeros((3, 1)), "bias_0": np.zeros(3)}
    assert "the network has 3 outputs, the interface names 2" in refused(files.write().verify(), capsys)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_weight_that_is_no_number(files: Files, value: float, capsys: Capture) -> None:
    files.weights["weights_0"] = np.array([[value], [1.0]])
    assert f"walker.npz, layer 0: weights[0, 0] is {value}" in refused(files.write().verify(), capsys)


def test_all_unsupported_features_in_one_message(files: Files, capsys: Capture) -> None:
    edges = files.model["automata"][0]["edges"]
    edges[0]["guard"] = {"exp": {"op": "teleports", "exp": "x"}}
    edges[1]["rate"] = {"exp": 1.5}
    files.model["automata"][0]["locations"][0]["time-progress"] = {"exp": True}
    message = refused(files.write().verify(), capsys)
    assert "3 unsupported features:\n" in message
    places = ["edges[0].guard.exp", "edges[1].rate", "locations[0].time-progress"]
    assert all(f"$.automata[0].{place}" in message for place in places)
    assert len(message.splitlines()) == 4


def test_an_empty_start_condition(files: Files, capsys: Capture) -> None:
    nowhere = {"op": "<", "left": "x", "right": 0}
    files.model["properties"] = [_property("safe", {"op": "=", "left": "x", "right": 3}, nowhere)]
    message = refused(files.write().verify("--initial-state", "exclude"), capsys)
    assert "the start condition of safe holds in no state" in message


def test_an_initial_value_outside_its_domain(files: Files, capsys: Capture) -> None:
    files.model["variables"][0]["initial-value"] = 6
    message = refused(files.write().verify(), capsys)
    assert "$.variables[0].initial-value" in message
    assert "6" in message


def test_several_properties_and_none_named(files: Files, capsys: Capture) -> None:
    wall = {"op": "=", "left": "x", "right": 3}
    files.model["properties"] += [_property("second", wall), _property("third one", wall)]
    message = refused(files.write().verify(), capsys)
    assert "--property" in message
    assert message.endswith("\n  no-wall\n  second\n  third one\n")
    assert run(files.verify("--property", "third one")) == 0


def test_a_property_that_does_not_exist(files: Files, capsys: Capture) -> None:
    assert "there is no property 'no-walls'; there are:\n  no-wall\n" in refused(
        files.write().verify("--property", "no-walls"), capsys
    )


def test_all_missing_constants_in_one_message(files: Files, capsys: Capture) -> None:
    files.model["constants"] += [{"name": "depth", "type": "int"}]
    files.model["variables"][0]["type"]["lower-bound"] = "depth"
    assert "constants without a value: depth, size (give each with --const" in refused(
        files.write().verify(size=None), capsys
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("size=0", "size"),
        ("size=many", "'many'"),
        ("size=2.5", "2.5"),
        ("size=", "size"),
        ("size", "expected NAME=VALUE, found 'size'"),
        ("=5", "expected NAME=VALUE, found '=5'"),
        ("sizes=5", "'sizes'"),
    ],
)
def test_a_constant_that_does_not_fit(files: Files, given: str, message: str, capsys: Capture) -> None:
    assert message in refused(files.write().verify("--const", given, size=None), capsys)


def test_a_missing_file(files: Files, capsys: Capture) -> None:
    files.write()
    assert "nowhere.jani: no such file" in refused(["verify", str(files.folder / "nowhere.jani")], capsys)
    missing = str(files.folder / "nowhere.json")
    assert "nowhere.json: no such file" in refused(files.verify("--policy", missing, policy=False), capsys)
    assert "nowhere.json: no such file" in refused(files.verify("--properties", missing), capsys)
    files.interface["network"] = "nowhere.npz"
    assert "walker.json: $.network: there is no file" in refused(files.write().verify(), capsys)
    assert "cannot be read" in refused(["verify", str(files.folder)], capsys)


def test_a_syntax_error_in_a_property_points_at_the_column(files: Files, capsys: Capture) -> None:
    message = refused(files.write().verify("--property", "A[] x < < 3"), capsys)
    assert message == "error: expected an expression, found '<', at column 9:\n  A[] x < < 3\n          ^\n"


def test_a_property_without_an_unsafe_condition(files: Files, capsys: Capture) -> None:
    del files.model["properties"][0]["expression"]["reach"]
    files.model["properties"][0]["expression"]["start"] = {"op": "state-condition", "exp": True}
    assert "the property 'no-wall' has no unsafe condition" in refused(files.write().verify(), capsys)


def test_a_model_without_a_property(files: Files, capsys: Capture) -> None:
    files.model["properties"] = []
    assert "give one with --property, for example 'A[] x < 3'" in refused(files.write().verify(), capsys)


# What is wrong with the command


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--engine", "magic"], "there is no engine 'magic' (there are: auto, explicit"),
        (["--initial-state", "maybe"], "--initial-state: expected one of include, exclude, property, found 'maybe'"),
    ],
)
def test_an_option_with_a_wrong_value(files: Files, more: list[str], message: str, capsys: Capture) -> None:
    assert message in refused(files.write().verify(*more), capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "room.jani", "--magic"], "--magic"),
        (["verify", "room.jani", "--timeout", "soon"], "--timeout"),
        (["verify", "room.jani", "--timeout", "-1"], "--timeout"),
        (["verify", "room.jani", "--timeout", "nan"], "--timeout"),
        (["verify", "room.jani", "--memory", "0"], "--memory"),
        (["verify"], "MODEL"),
        (["prove", "room.jani"], "prove"),
    ],
)
def test_a_command_that_does_not_exist_so(arguments: list[str], message: str, capsys: Capture) -> None:
    """Refused by the library that reads the options, in its own words."""
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("Error:") == 1
    assert message in shown.err
    assert "Traceback" not in shown.err


def test_a_filter_without_a_policy(files: Files, capsys: Capture) -> None:
    assert "need a policy" in refused(files.write().verify("--filter", policy=False), capsys)


def test_a_folder_for_the_answer_that_cannot_be_one_is_refused_before_the_work(
    files: Files, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(api, "verify", None)
    for place in (files.write().path, files.path / "below"):
        assert "no folder can be made here" in refused(files.verify("--out", str(place)), capsys)


# Exit codes


def test_exit_codes_of_processes(files: Files) -> None:
    """Each once as a real process; what a message says is tested above."""
    files.write()
    holds, violated = call(*files.verify()), call(*files.verify(size=2))
    assert (holds.returncode, violated.returncode) == (0, 1)
    assert holds.stdout.startswith("HOLDS  no unsafe state is reachable")
    assert violated.stdout.startswith("VIOLATED  an unsafe state is reached after 2 steps")
    wrong = call(*files.verify("--engine", "magic"))
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == f"error: there is no engine 'magic' (there are: {', '.join(api.ENGINES)})\n"
    unknown = call(*files.verify("--timeout", "0"))
    assert unknown.returncode == 3
    assert unknown.stdout.startswith("UNKNOWN  the time limit of 0 s ran out")
    assert holds.stderr == violated.stderr == unknown.stderr == ""


def _counters(folder: Path, count: int = 12) -> Path:
    """10^count states."""
    builder = ModelBuilder("counters")
    for number in range(count):
        counter = builder.integer(f"x{number}", 0, 9, initial=0)
        builder.edge(f"next{number}", update={counter: (counter + 1) % 10})
    builder.build(builder.safety("never", unsafe="x0 + x1 > 18")).save(folder / "counters.jani")
    return folder / "counters.jani"


def test_unknown_for_want_of_memory(tmp_path: Path, capsys: Capture) -> None:
    model = _counters(tmp_path)
    assert run(["verify", str(model), "--no-slicing", "--memory", "1", "--json"]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert answer["verdict"] == "unknown"
    assert "the memory limit of 1 MB ran out" in answer["reason"]
    assert answer["statistics"]["states"] > 1000
    assert answer["statistics"]["start_states_open"] == 1


def test_memory_that_really_ran_out_is_unknown(files: Files, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def greedy(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(api, "verify", greedy)
    assert run(files.write().verify("--json")) == 3
    assert json.loads(capsys.readouterr().out)["reason"].startswith("out of memory")


@pytest.mark.parametrize(
    "command", [["verify"], ["verify", "--json"], ["replay", "trace.json"], ["simulate"], ["supports"]]
)
def test_an_internal_failure_is_no_verdict(
    files: Files, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Whatever breaks, and whatever the command: 4, and not a word that could be taken for an answer."""
    from policyproof.model import source

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the shelf fell down")

    monkeypatch.setattr(source, "read_model", broken)
    name, *more = command
    arguments = [name, str(files.write().path), *more]
    assert run(arguments) == 4
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "internal error: RuntimeError: the shelf fell down" in shown.err
    assert "Traceback" not in shown.err
    assert run([*arguments, "--debug"]) == 4
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Traceback" in shown.err
    assert "in broken" in shown.err


def test_an_engine_that_fails_is_no_verdict(files: Files, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def broken(*_: object, **__: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(api, "drive", broken)
    assert run(files.write().verify("--json", "--out", str(files.folder / "out"))) == 4
    assert capsys.readouterr().out == ""
    assert list((files.folder / "out").iterdir()) == []


def test_debug_shows_the_traceback_of_a_mistake_and_keeps_its_exit_code(files: Files) -> None:
    """An exception that left Python would end it with 1, the code of "violated"."""
    wrong = call(*files.write().verify("--engine", "magic"), "--debug")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "Traceback" in wrong.stderr
    assert "error: there is no engine 'magic'" in wrong.stderr


def test_ctrl_c_in_any_command_is_130(files: Files, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    from policyproof.model import source

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(source, "read_model", interrupted)
    for command in ("verify", "simulate", "supports"):
        assert run([command, str(files.write().path)]) == 130
        shown = capsys.readouterr()
        assert shown.out == ""
        assert "Traceback" not in shown.err


# Domains


def _fuel(folder: Path, *, endless: bool) -> str:
    """Nobody reads `fuel`; but where its update would leave its domain, the step is impossible."""
    builder = ModelBuilder("fuel")
    x, fuel = builder.integer("x", 0, 9, initial=0), builder.integer("fuel", 0, 3, initial=3)
    builder.edge("go", update={x: x + 1, fuel: (fuel + 3) % 4 if endless else fuel - 1})
    path = folder / f"fuel-{endless}.jani"
    builder.build(builder.safety("far", unsafe=x.equals(4))).save(path)
    return str(path)


@pytest.mark.parametrize("slicing", ["--slicing", "--no-slicing"])
def test_a_step_out_of_a_domain_is_impossible_even_if_nobody_reads_the_variable(
    tmp_path: Path, slicing: str, capsys: Capture
) -> None:
    assert run(["verify", _fuel(tmp_path, endless=False), slicing, "--json"]) == 0
    limited = json.loads(capsys.readouterr().out)
    assert limited["statistics"]["states"] == 4
    assert limited["statistics"]["deadlock_states"] == 1
    # Without the limit the same variable is forgotten, and the answer is another one.
    assert run(["verify", _fuel(tmp_path, endless=True), slicing, "--json"]) == 1
    endless = json.loads(capsys.readouterr().out)
    more = endless["statistics"]["sliced_variables"] - limited["statistics"]["sliced_variables"]
    assert more == (1 if slicing == "--slicing" else 0)


def test_a_policy_that_chooses_an_impossible_step_is_stuck(files: Files, capsys: Capture) -> None:
    """No guard forbids `go` at the wall: the domain does."""
    files.weights["bias_0"] = np.array([9.0, 0.0])
    files.model["properties"] = [_property("outside", {"op": ">", "left": "x", "right": "size"})]
    assert run(files.write().verify("--json")) == 0
    statistics = json.loads(capsys.readouterr().out)["statistics"]
    assert (statistics["states"], statistics["stuck_states"], statistics["deadlock_states"]) == (6, 1, 0)
    assert run(files.verify()) == 0
    assert re.search(r"stuck states +1 ", capsys.readouterr().out)


# What is printed, and where


def test_json_is_one_object_and_nothing_else(files: Files) -> None:
    done = call(*files.write().verify("--json", size=2))
    assert done.returncode == 1
    assert done.stderr == ""
    answer = json.loads(done.stdout)
    assert answer["verdict"] == "violated"
    assert [step["label"] for step in answer["evidence"]["trace"]["steps"]] == ["go", "go"]


def test_progress_is_shown_on_a_terminal_and_json_stays_alone(tmp_path: Path) -> None:
    model = _counters(tmp_path)
    command = ["verify", model, "--no-slicing", "--memory", "60"]
    with OnTerminal([*PROGRAM, *command, "--json"]) as process:
        process.wait_until_it_shows("exploring", "states", "depth")
        code, output = process.finish()
    assert code == 3
    assert json.loads(output)["verdict"] == "unknown"
    piped = call(*command, "--json")
    assert piped.stderr == ""
    assert json.loads(piped.stdout)["statistics"]["states"] == json.loads(output)["statistics"]["states"]


@pytest.mark.parametrize("command", [["verify", "--json"], ["verify"], ["supports"], ["simulate"], ["--help"]])
def test_a_reader_that_went_away_is_no_traceback(files: Files, command: list[str]) -> None:
    files.write()
    name, *more = command
    arguments = command if name == "--help" else [name, str(files.path), "--const", "size=2", *more]
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        done = subprocess.run(
            [*PROGRAM, *arguments],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            timeout=ENOUGH,
            check=False,
        )
    assert done.stderr == ""
    # Nothing was said, so the code is no verdict either.
    assert done.returncode == 4


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_an_answer_that_cannot_be_written_is_a_failure(files: Files) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, *files.write().verify()],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=ENOUGH,
            check=False,
        )
    assert done.returncode == 4
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1


# Starting quickly

HEAVY = ("numpy", "numba", "llvmlite", "onnx", "scipy", "h5py", "torch", "z3", "highspy", "gymnasium")


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import policyproof", ()),
        ("from policyproof.cli import run; run(['--help'])", ("typer", "rich")),
        ("from policyproof.cli import run; run(['--version'])", ("typer",)),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(code: str, allowed: tuple[str, ...]) -> None:
    watched = [name for name in (*HEAVY, "typer", "rich") if name not in allowed]
    code += f"; import sys; sys.stderr.write(' '.join(set({watched}) & set(sys.modules)))"
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=ENOUGH, check=True
    )
    print(f"{code.partition(';')[0]}: {time.monotonic() - started:.2f} s with the start of Python")
    assert done.stderr == ""


def test_what_is_watched_for_is_there() -> None:
    """The test above would notice: real work does import these."""
    code = "from policyproof import ModelBuilder, verify; b = ModelBuilder('m'); x = b.integer('x', 0, 1, initial=0); "
    code += "verify(b.build(b.safety('s', unsafe=x > 0))); import sys; print({'numpy', 'numba'} <= set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=ENOUGH, check=True)
    assert done.stdout == "True\n"


def test_jobs_limits_the_threads(files: Files, capsys: Capture) -> None:
    from policyproof.run import threads

    def parts() -> int:
        return len(threads.over_ranges(lambda first, last: (first, last), 10, least=1))

    files.write()
    try:
        assert run(files.verify("--jobs", "1")) == 0
        assert (threads.jobs(), parts()) == (1, 1)
        assert run(files.verify("--jobs", "3")) == 0
        assert (threads.jobs(), parts()) == (3, 3)
    finally:
        threads.set_jobs(None)
    capsys.readouterr()
    assert run(files.verify("--jobs", "0")) == 2
    assert "--jobs" in capsys.readouterr().err


def test_options_that_the_engine_does_not_know_are_refused(files: Files, tmp_path: Path, capsys: Capture) -> None:
    files.write()
    text = tmp_path / "predicates.txt"
    text.write_text("x > 3\n", encoding="utf-8")
    given = ["--predicates", str(text)]
    for more, message in (
        (["--engine", "ppa", *given, "--stop-at-goal"], "stop_at_goal is an option of the engine explicit, not of ppa"),
        (["--engine", "ppa", *given, "--all-starts"], "all_starts is an option of the engine explicit, not of ppa"),
        (["--engine", "bmc", "--no-slicing"], "slicing=False is an option of the engine explicit, not of bmc"),
        (given, "predicates are for the engine ppa, not for auto"),
        (["--length", "3"], "a length is for the engine bmc, not for auto"),
    ):
        assert message in refused(files.verify(*more), capsys)


def test_that_episodes_end_at_goals_is_part_of_the_answer(tmp_path: Path, capsys: Capture) -> None:
    builder = ModelBuilder("goalie")
    x = builder.integer("x", 0, 9, initial=0)
    builder.edge("go", update={x: x + 1})
    builder.build(builder.safety("far", unsafe=x.equals(8), goal=x.equals(5))).save(tmp_path / "goalie.jani")
    model = str(tmp_path / "goalie.jani")
    assert run(["verify", model, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["options"]["stop_at_goal"] is False
    assert run(["verify", model, "--stop-at-goal", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["options"]["stop_at_goal"] is True
    assert run(["verify", model, "--stop-at-goal"]) == 0
    assert "end in goal states" in capsys.readouterr().out
