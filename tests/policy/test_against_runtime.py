"""The comparison with a file's own runtime: it agrees, it notices, and it says what is missing."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from policyproof.policy.formats import compare_with_runtime, read_network, write_npz, write_onnx
from policyproof.policy.network import Activation, Affine, Network
from policyproof.run.errors import BackendFailure
from tests.policy.lookalikes import (
    box,
    discrete,
    linear_module,
    module,
    sb3_bytes,
    sequential,
    state_dict,
    torch_bytes,
    written,
)
from tests.policy.networks import random_network


def changed(network: Network) -> Network:
    """One weight of the last layer is another."""
    last = network.layers[-1]
    assert isinstance(last, Affine)
    weights = last.weights.copy()
    weights[0, 0] += 0.5
    return Network((*network.layers[:-1], Affine(weights, last.bias)), network.input_size, network.precision)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_onnx(tmp_path: Path, precision: str) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: nothing to compare with")
    network = random_network(1, precision=precision, normalised=True)
    write_onnx(network, tmp_path / "a.onnx")
    result = compare_with_runtime(tmp_path / "a.onnx", network, samples=200)
    assert result.runtime is not None
    assert result.runtime.startswith("onnxruntime ")
    assert result.largest_relative_difference < (1e-5 if precision == "float32" else 1e-12)
    assert result.largest_difference < 1e-2
    assert compare_with_runtime(tmp_path / "a.onnx", network, samples=200) == result
    assert compare_with_runtime(tmp_path / "a.onnx", changed(network)).largest_difference > 0.1


def test_onnx_with_a_softmax_and_a_fixed_batch(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: nothing to compare with")
    import onnx

    write_onnx(random_network(1), tmp_path / "a.onnx")
    model = onnx.load(tmp_path / "a.onnx")
    model.graph.node[-1].op_type = "Softmax"
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(model, tmp_path / "a.onnx")
    result = compare_with_runtime(tmp_path / "a.onnx", read_network(tmp_path / "a.onnx"), samples=50)
    assert result.largest_relative_difference < 1e-5


def torch_files(tmp_path: Path) -> list[tuple[Path, Network]]:
    network = random_network(1, activation=Activation("tanh"))
    layers = [
        linear_module(layer) if isinstance(layer, Affine) else module("activation.Tanh") for layer in network.layers
    ]
    softmax = module("activation.Softmax", dim=1)
    observed = box(np.full(3, -1, np.float32), np.full(3, 1, np.float32))
    bounds = box(np.full(2, -1, np.float32), np.full(2, 1, np.float32))
    actor = state_dict(random_network(1, (3, 5, 4)), prefix="mlp_extractor.policy_net.")
    actor.update({f"action_net.{name[2:]}": value for name, value in state_dict(random_network(2, (4, 2))).items()})
    actor_class = "stable_baselines3.common.policies.ActorCriticPolicy"
    q_tensors = state_dict(network, prefix="q_net.q_net.")
    tanh = {"activation_fn": "<class 'torch.nn.modules.activation.Tanh'>"}
    contents = {
        "whole.pt": torch_bytes(sequential(*layers, softmax)),
        "state.pth": torch_bytes(state_dict(network)),
        "checkpoint.pt": torch_bytes({"epoch": 3, "model": state_dict(network)}),
        "double.pt": torch_bytes(state_dict(network, np.float64)),
        "values.zip": sb3_bytes("stable_baselines3.dqn.policies.DQNPolicy", q_tensors, observed, discrete(2), tanh),
        "clipped.zip": sb3_bytes(actor_class, actor, observed, bounds),
        "squashed.zip": sb3_bytes(actor_class, actor, observed, bounds, {"squash_output": True}),
    }
    asking = ("state.pth", "checkpoint.pt", "double.pt")
    paths = {name: written(tmp_path / name, content) for name, content in contents.items()}
    return [(path, read_network(path, activation="tanh" if name in asking else None)) for name, path in paths.items()]


def test_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="Torch is not installed: nothing to compare with")
    for path, network in torch_files(tmp_path):
        result = compare_with_runtime(path, network, samples=200)
        assert result.runtime is not None
        assert result.runtime.startswith("torch ")
        assert result.largest_relative_difference < 1e-5, path.name
        if path.suffix != ".zip":
            assert compare_with_runtime(path, changed(network)).largest_difference > 0.1


def test_torch_executes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="Torch is not installed: nothing to compare with")
    path = written(tmp_path / "a.pt", torch_bytes(sequential(module("activation.ELU"))))
    with pytest.raises(BackendFailure, match="torch"):
        compare_with_runtime(path, random_network(1))


def test_missing_runtimes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = random_network(1)
    write_npz(network, tmp_path / "a.npz")
    result = compare_with_runtime(tmp_path / "a.npz", network)
    assert (result.runtime, result.note) == (None, ".npz files have no runtime to compare with")
    for suffix, package in ((".onnx", "onnxruntime"), (".pt", "torch"), (".zip", "torch")):
        monkeypatch.setitem(sys.modules, package, None)
        result = compare_with_runtime(tmp_path / f"a{suffix}", network)
        assert (result.runtime, result.note) == (None, f"{package} is not installed")
        assert math.isnan(result.largest_difference)
