"""Whatever happens to a file, its reader answers with a network or with an error of ours."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyproof.policy.formats import read_network, with_vecnormalize, write_npz, write_onnx
from policyproof.policy.network import Affine
from policyproof.run.errors import InvalidInput, UnsupportedFeature
from tests.policy.lookalikes import (
    box,
    discrete,
    linear_module,
    module,
    sb3_bytes,
    sequential,
    state_dict,
    torch_bytes,
    vecnormalize_bytes,
    written,
    zip_bytes,
)
from tests.policy.networks import random_network
from tests.policy.test_formats import nnet_text

NETWORK = random_network(1, normalised=True, clipped=True)
SIMPLE = random_network(1)


@cache
def examples() -> dict[str, bytes]:
    """One file of every format, by its suffix (and of Torch's two kinds)."""
    with TemporaryDirectory() as folder:
        for suffix, write in ((".onnx", write_onnx), (".npz", write_npz)):
            write(NETWORK, Path(folder, f"a{suffix}"))
        found = {suffix: Path(folder, f"a{suffix}").read_bytes() for suffix in (".onnx", ".npz")}
    layers = [
        linear_module(layer) if isinstance(layer, Affine) else module("activation.ReLU") for layer in SIMPLE.layers
    ]
    observed = box(np.full(3, -1, np.float32), np.full(3, 1, np.float32))
    tensors = state_dict(SIMPLE, prefix="q_net.q_net.")
    return {
        **found,
        ".nnet": nnet_text(SIMPLE).encode(),
        ".pt": torch_bytes(sequential(*layers)),
        ".pth": torch_bytes(state_dict(SIMPLE)),
        ".zip": sb3_bytes("stable_baselines3.dqn.policies.DQNPolicy", tensors, observed, discrete(2)),
        ".pkl": vecnormalize_bytes(np.ones(3), np.ones(3)),
    }


def read(path: Path) -> None:
    if path.suffix == ".pkl":
        with_vecnormalize(SIMPLE, path)
    else:
        read_network(path, activation="relu" if path.suffix == ".pth" else None)


def answers(folder: str, suffix: str, content: bytes) -> bool:
    """Whether the file is read; any error that is not ours fails the test."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            read(written(Path(folder, f"a{suffix}"), content))
    except (InvalidInput, UnsupportedFeature):
        return False
    return True


SUFFIXES = [".onnx", ".npz", ".nnet", ".pt", ".pth", ".zip", ".pkl"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_truncated_files(tmp_path: Path, suffix: str) -> None:
    whole = examples()[suffix]
    assert answers(str(tmp_path), suffix, whole)
    # A text that ends within its last number cannot be told from a whole one.
    for length in range(0, len(whole) - (25 if suffix == ".nnet" else 2), max(1, len(whole) // 60)):
        assert not answers(str(tmp_path), suffix, whole[:length])


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_changed_bytes(suffix: str, data: st.DataObject) -> None:
    content = bytearray(examples()[suffix])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with TemporaryDirectory() as folder:
        answers(folder, suffix, bytes(content))


@settings(max_examples=300, deadline=None)
@given(data=st.data(), suffix=st.sampled_from([".pt", ".pth", ".pkl"]))
def test_changed_pickles(data: st.DataObject, suffix: str) -> None:
    """Inside archives the checksum would notice every change, so the pickle is changed before it is packed."""
    content = examples()[suffix]
    folder_of_torch = "archive/data.pkl"
    if suffix != ".pkl":
        from policyproof.policy.formats.container import Archive

        archive = Archive(content, "made here")
        members = {name: archive.read(name) for name in archive.names}
        content = members[folder_of_torch]
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    packed = bytes(changed) if suffix == ".pkl" else zip_bytes({**members, folder_of_torch: bytes(changed)})
    with TemporaryDirectory() as folder:
        answers(folder, suffix, packed)


@settings(max_examples=150, deadline=None)
@given(content=st.binary(max_size=200), suffix=st.sampled_from([*SUFFIXES, ".h5", ".keras"]))
def test_any_bytes(content: bytes, suffix: str) -> None:
    with TemporaryDirectory() as folder:
        assert not answers(folder, suffix, content)
