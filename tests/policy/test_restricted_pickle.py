"""Pickles are read, not executed: hostile and damaged ones are refused in every format that has them."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyproof.policy.formats import read_network, with_vecnormalize
from policyproof.policy.formats.container import Archive
from policyproof.policy.formats.numpy_pickle import NUMPY_NAMES, array_of
from policyproof.policy.formats.restricted_pickle import Built, Global, Names, class_named_by, read_pickle
from policyproof.run.errors import InvalidInput, PolicyProofError
from tests.policy.lookalikes import (
    box,
    class_pickle,
    discrete,
    sb3_bytes,
    serialized,
    state_dict,
    written,
    zip_bytes,
)
from tests.policy.networks import random_network

NOTHING = Names()


class _Attack:
    """Unpickling this would run a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def attack(tmp_path: Path) -> tuple[bytes, Path]:
    mark = tmp_path / "executed"
    content = pickle.dumps(_Attack(f"touch {mark}"), 2)
    pickle.loads(content)
    assert mark.exists(), "the attack would work"
    mark.unlink()
    return content, mark


def in_torch(content: bytes, folder: Path) -> None:
    read_network(written(folder / "a.pt", zip_bytes({"archive/data.pkl": content})), activation="relu")


def in_statistics(content: bytes, folder: Path) -> None:
    with_vecnormalize(random_network(1), written(folder / "a.pkl", content))


def in_sb3_weights(content: bytes, folder: Path) -> None:
    members = _sb3_members()
    members["policy.pth"] = zip_bytes({"archive/data.pkl": content})
    read_network(written(folder / "a.zip", zip_bytes(members)))


def in_sb3_space(content: bytes, folder: Path) -> None:
    data = {"observation_space": serialized(content)}
    read_network(written(folder / "a.zip", _sb3(data)))


def in_sb3_policy(content: bytes, folder: Path) -> None:
    read_network(written(folder / "a.zip", _sb3({"policy_class": serialized(content)})))


def _sb3(data: dict[str, Any]) -> bytes:
    tensors = state_dict(random_network(1), prefix="q_net.q_net.")
    space = box(np.full(3, -1, np.float32), np.full(3, 1, np.float32))
    return sb3_bytes("stable_baselines3.dqn.policies.DQNPolicy", tensors, space, discrete(2), data=data)


def _sb3_members() -> dict[str, bytes]:
    archive = Archive(_sb3({}), "made here")
    return {name: archive.read(name) for name in archive.names}


PLACES = [in_torch, in_statistics, in_sb3_weights, in_sb3_space, in_sb3_policy]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_attacks_are_refused_and_not_executed(tmp_path: Path, place: Callable[[bytes, Path], None]) -> None:
    content, mark = attack(tmp_path)
    with pytest.raises(PolicyProofError) as caught:
        place(content, tmp_path)
    assert not mark.exists()
    if place is not in_sb3_policy:
        assert isinstance(caught.value, InvalidInput)
        assert "posix.system" in str(caught.value) or "nt.system" in str(caught.value)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_damaged_pickles(tmp_path: Path, place: Callable[[bytes, Path], None]) -> None:
    for content in (b"", b"\x80", b"\x80\x04", b"\x80\x04.", b"text", b"\x80\x04]q\x00a.", b"\x80\x04K\x01\x85R."):
        with pytest.raises(PolicyProofError):
            place(content, tmp_path)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**200), 2**200)
        | st.floats(allow_nan=False)
        | st.text()
        | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.lists(inner).map(tuple),
        max_leaves=20,
    ),
    st.integers(2, 5),
)
def test_plain_values_come_out_as_they_went_in(value: object, protocol: int) -> None:
    if protocol > 2 or not _holds_bytes(value):
        assert read_pickle(pickle.dumps(value, protocol), NOTHING, "here") == value


def _holds_bytes(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_bytes, value.values()))
    return isinstance(value, bytes) or (isinstance(value, (list, tuple)) and any(map(_holds_bytes, value)))


def test_calls_and_names_become_inert() -> None:
    content = pickle.dumps(complex(1, 2), 4)
    found = read_pickle(content, Names("builtins."), "here")
    assert isinstance(found, Built)
    assert found.function == Global("builtins", "complex")
    assert found.arguments == (1.0, 2.0)
    with pytest.raises(InvalidInput, match=r"'builtins\.complex', which is not among"):
        read_pickle(content, Names("builtins.complexity", "builtins.complex."), "here")


def test_names() -> None:
    names = Names("a.b", "c.") | Names("d.e")
    assert [name in names for name in ("a.b", "a.bc", "c.x.y", "c", "d.e", "")] == [
        True,
        False,
        True,
        False,
        True,
        False,
    ]


def test_class_named_by() -> None:
    for protocol in (2, 4, 5):
        assert class_named_by(class_pickle("some.module.Class", protocol), "here") == "some.module.Class"
    assert class_named_by(pickle.dumps([1]), "here") is None
    assert class_named_by(pickle.dumps("text"), "here") is None


def test_wild_pickles_are_bounded() -> None:
    head = b"\x80\x04"
    cases = [
        # A text that claims to be longer than the file, and one beyond any memory.
        (head + b"X\xff\xff\xff\x7fabc.", "damaged pickle"),
        (head + b"\x8e" + b"\xff" * 8 + b"abc.", "damaged pickle"),
        (head + b"\x8b" + b"\x00\x01\x00\x00" + b"\x7f" * 256 + b".", "more than 256 bits"),
        (head + b"\x8a\x40" + b"\x7f" * 64 + b".", "more than 256 bits"),
        (head + b"N" * 1_000_001 + b".", "more than 1000000 instructions"),
        # Keys whose hash would take forever, or does not exist.
        (head + b"})" + b"2\x86" * 60 + b"Ns.", "instruction DUP"),
        (head + b"})Ns.", "neither text nor integer"),
        (head + b"}]Ns.", "neither text nor integer"),
        (head + b"}NNNu.", "damaged pickle"),
        (head + b"}(Nu.", "damaged pickle"),
        (head + b"h\x05.", "damaged pickle: BINGET at byte 2"),
        (head + b"NNa.", "damaged pickle: APPEND"),
        (head + b"Nb.", "damaged pickle: BUILD"),
        (head + b"N\x93.", "damaged pickle: STACK_GLOBAL"),
        (head + b"K\x01K\x02\x93.", "damaged pickle: STACK_GLOBAL"),
        (head + b"K\x01)R.", "damaged pickle: REDUCE"),
        (head + b"t.", "damaged pickle: TUPLE"),
        (head + b"\x82\x01.", "instruction EXT1"),
        (b"cos\nsystem\n.", r"'os\.system'"),
        (b"(S'true'\nios\nsystem\n.", "instruction STRING|instruction INST"),
    ]
    for content, message in cases:
        with pytest.raises(InvalidInput, match=message):
            read_pickle(content, NOTHING, "here")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["f2", "<f4", ">f4", "f8", ">f8", "i1", "u2", "<i8", "b1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays(protocol: int, dtype: str, order: str) -> None:
    array = np.array(np.arange(6).reshape(2, 3) % 2, dtype=dtype, order=order)  # type: ignore[call-overload]
    for value in (array, array[0, 1], array[:, 1], array.reshape(1, 1, 6)):
        found = array_of(read_pickle(pickle.dumps(value, protocol), NUMPY_NAMES, "here"), "it", "here")
        np.testing.assert_array_equal(found, value)
        assert found.shape == value.shape


def test_arrays_that_are_not_of_numbers() -> None:
    for value in (np.array(["text"]), np.array([None]), np.zeros(2, dtype=complex), np.zeros(1, "M8[s]"), "text", [1]):
        with pytest.raises(InvalidInput, match="it: expected"):
            array_of(read_pickle(pickle.dumps(value, 4), NUMPY_NAMES, "here"), "it", "here")
    content = pickle.dumps(np.zeros(1000), 4)
    larger = content.replace(b"M\xe8\x03\x85", b"M\xe9\x03\x85", 1)
    assert larger != content
    with pytest.raises(InvalidInput, match="whose bytes do not fit its shape"):
        array_of(read_pickle(larger, NUMPY_NAMES, "here"), "it", "here")


def test_archives_are_not_inflated_beyond_what_they_declare(tmp_path: Path) -> None:
    bomb = zip_bytes({"archive/data.pkl": b"\0" * 2**24}, zipfile.ZIP_DEFLATED)
    size = (2**24).to_bytes(4, "little")
    for declared in (100, 2**28 + 1):
        lying = bomb.replace(size, declared.to_bytes(4, "little"))
        with pytest.raises(InvalidInput, match=r"damaged|truncated|more than 268435456 bytes"):
            read_network(written(tmp_path / "a.pt", lying))
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(tmp_path / "b.pt", "w") as archive:
        archive.writestr("a/data.pkl", b"N.")
        archive.writestr("a/data.pkl", b"N.")
    with pytest.raises(InvalidInput, match=r"holds 'a/data\.pkl' twice"):
        read_network(tmp_path / "b.pt")
