"""Interface files: what is wrong in them is said with its place, and what they say is what is shown and asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policyproof.api import verify
from policyproof.cli import run
from policyproof.evidence.replay import replay
from policyproof.model.building import ModelBuilder, element
from policyproof.model.source import LoadedModel, load_model
from policyproof.policy.load import load_policy
from policyproof.run.errors import InvalidInput

INPUT = {"variable": "x"}


@pytest.fixture
def model(tmp_path: Path) -> LoadedModel:
    builder = ModelBuilder("line")
    x = builder.integer("x", 0, 3, initial=0)
    builder.real("force", -1, 1, initial=0)
    builder.boolean("busy", initial=False, transient=True)
    queue = builder.array("queue", 4, 0, 5, initial=[0, 1, 2, 3])
    builder.edge("go", guard=element(queue, x) <= 5, update={x: x + 1})
    builder.edge("stay")
    built = builder.build(builder.safety("end", unsafe=x.equals(3)))
    built.save(tmp_path / "line.jani")
    np.savez(tmp_path / "line.npz", weights_0=np.array([[1.0], [-1.0]]), bias_0=np.zeros(2))
    return built


def _interface(folder: Path, **changes: Any) -> Path:
    body = {"schema": "policyproof-policy-1", "network": "line.npz", "inputs": [INPUT], "labels": ["go", "stay"]}
    body.update(changes)
    path = folder / "line.json"
    path.write_text(json.dumps({key: value for key, value in body.items() if value is not None}))
    return path


def _switch(networks: dict[str, str]) -> dict[str, Any]:
    return {"network": None, "switch": {"expression": "x", "networks": networks}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": [{**INPUT, "clip": ["a", 1]}]}, r"\$\.inputs\[0\]\.clip\[0\]: expected a number"),
        ({"inputs": [{**INPUT, "clip": [0, None]}]}, r"\$\.inputs\[0\]\.clip\[1\]: expected a number"),
        ({"inputs": [{**INPUT, "clip": [0]}]}, r"\$\.inputs\[0\]\.clip: expected \[lower, upper\]"),
        ({"inputs": [{**INPUT, "divide": 10**400}]}, r"\$\.inputs\[0\]\.divide: a number beyond float64"),
        ({"inputs": [{**INPUT, "one_hot": [True]}]}, r"\$\.inputs\[0\]\.one_hot: .*integer values"),
        ({"inputs": [{"variable": "busy"}]}, "'busy' is transient"),
        (_switch({}), r"\$\.switch\.networks: a switch needs at least one network"),
        (_switch({"--1": "line.npz"}), "the values of the switch: integers"),
        (_switch({"²": "line.npz"}), "the values of the switch: integers"),
        (_switch({"1": "line.npz", "01": "line.npz"}), "the values of the switch: integers"),
        ({"labels": None, "action_variables": ["x", "force"]}, r"\$\.action_variables\[0\]: expected a real variable"),
        ({"labels": None, "action_variables": ["force", "force"]}, r"\$\.action_variables\[1\]: expected a real"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    model: LoadedModel, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_policy(_interface(tmp_path, **changes), model)


def test_an_input_without_a_value_is_an_error_and_no_number(tmp_path: Path) -> None:
    """In batches a remainder by zero is 0, which no network was asked about."""
    builder = ModelBuilder("line")
    x = builder.integer("x", 0, 3, initial=1)
    builder.edge("go", update={x: x + 1})
    builder.edge("stay", update={x: x - 1})
    line = builder.build(builder.safety("end", unsafe=x.equals(3)))
    np.savez(tmp_path / "line.npz", weights_0=np.array([[1.0], [-1.0]]), bias_0=np.array([-0.5, 0.5]))
    policy = load_policy(_interface(tmp_path, inputs=[{"expression": "5 % x"}]), line)
    with pytest.raises(InvalidInput, match="no value in the state x = 0"):
        verify(line, policy)
    defined = load_policy(_interface(tmp_path, inputs=[{"expression": "x = 0 ? 0 : 5 % x"}]), line)
    assert verify(line, defined).verdict == "holds"


def test_what_no_precision_settles_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two outputs that are the same irrational number: no enclosure separates them."""
    builder = ModelBuilder("line")
    x = builder.integer("x", 0, 3, initial=1)
    builder.edge("go", update={x: x + 1})
    builder.edge("stay")
    line = builder.build(builder.safety("end", unsafe=x.equals(3)))
    line.save(tmp_path / "line.jani")
    first, second = np.array([[1.0]]), np.array([[1.0], [1.0]])
    zeros = {"bias_0": np.zeros(1), "bias_1": np.zeros(2)}
    np.savez(tmp_path / "line.npz", weights_0=first, weights_1=second, activation="tanh", **zeros)
    path = _interface(tmp_path)
    answer = verify(line, load_policy(path, line))
    assert answer.verdict == "unknown"
    assert "not settled by 4096 binary digits, in the state x = 1" in answer.reason
    assert run(["simulate", str(tmp_path / "line.jani"), "--policy", str(path)]) == 3
    assert "not settled" in capsys.readouterr().err


def test_replay_takes_what_verify_takes(model: LoadedModel, tmp_path: Path) -> None:
    loaded = load_model(tmp_path / "line.jani")
    policy = load_policy(_interface(tmp_path), loaded)
    trace = verify(loaded, policy).trace
    assert trace is not None
    assert replay(loaded, trace, loaded.property(), policy).accepted


def test_inspect_shows_brackets(model: LoadedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _interface(tmp_path, inputs=[{"expression": "queue[x]"}])
    assert run(["policy", "inspect", str(tmp_path / "line.jani"), str(path)]) == 0
    assert "0: queue[x]" in capsys.readouterr().out


def test_inspect_uses_the_activation_that_the_interface_names(
    model: LoadedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    network = torch.nn.Sequential(torch.nn.Linear(1, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
    torch.save(network.state_dict(), tmp_path / "line.pt")
    path = _interface(tmp_path, network="line.pt", activation="tanh")
    assert run(["policy", "inspect", str(tmp_path / "line.jani"), str(path)]) == 0
    assert "torch" in capsys.readouterr().out
