"""Files of `torch.save`: the stand-in writer against real Torch, the reader against both, and its errors."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policyproof.policy.formats import read_network
from policyproof.policy.formats.torch_file import MAXIMAL_MODULES
from policyproof.policy.network import Activation, Affine, Clip, Network, Normalise
from policyproof.run.errors import InvalidInput, UnsupportedFeature
from tests.policy.lookalikes import (
    Instance,
    Tensor,
    linear_module,
    module,
    sequential,
    state_dict,
    torch_bytes,
    written,
    zip_bytes,
)
from tests.policy.networks import assert_same_layers, outputs, random_affine, random_inputs, random_network


def read(tmp_path: Path, value: Any, **options: Any) -> Network:
    return read_network(written(tmp_path / "policy.pt", torch_bytes(value)), **options)


def whole(network: Network) -> Instance:
    return sequential(
        *(
            linear_module(layer) if isinstance(layer, Affine) else module("activation.ReLU", inplace=False)
            for layer in network.layers
        )
    )


def test_state_dictionary_asks_for_its_activation(tmp_path: Path) -> None:
    network = random_network(1)
    with pytest.raises(InvalidInput, match=r'which activation follows .* \("activation": "relu"\)'):
        read(tmp_path, state_dict(network))
    assert_same_layers(read(tmp_path, state_dict(network), activation="relu"), network)
    one_layer = random_network(1, (3, 2))
    assert_same_layers(read(tmp_path, state_dict(one_layer)), one_layer)


def test_checkpoint_with_one_state_dictionary(tmp_path: Path) -> None:
    network = random_network(1)
    checkpoint = {"epoch": 7, "loss": np.float64(0.5), "model": state_dict(network), "optimizer": {"lr": 0.1}}
    assert_same_layers(read(tmp_path, checkpoint, activation="relu"), network)
    with pytest.raises(InvalidInput, match="found 'model', 'target'"):
        read(tmp_path, {**checkpoint, "target": state_dict(network)}, activation="relu")
    with pytest.raises(InvalidInput, match="found none"):
        read(tmp_path, {"epoch": 7}, activation="relu")


def test_whole_module_says_its_activations(tmp_path: Path) -> None:
    network = random_network(1)
    assert_same_layers(read(tmp_path, whole(network)), network)
    with pytest.raises(InvalidInput, match="do not name one"):
        read(tmp_path, whole(network), activation="relu")
    single = random_network(1, (3, 2))
    assert_same_layers(read(tmp_path, linear_module(single.layers[0])), single)


def test_every_module_that_is_read(tmp_path: Path) -> None:
    generator = np.random.default_rng(5)
    first, second = random_affine(generator, 3, 4), random_affine(generator, 4, 2)
    mean, variance, scale, offset = (np.arange(1, 5, dtype=np.float32) * factor for factor in (0.5, 1, 2, -1))
    normalisation = module(
        "batchnorm.BatchNorm1d",
        {"weight": Tensor(scale, parameter=True), "bias": Tensor(offset, parameter=True)},
        buffers={"running_mean": Tensor(mean), "running_var": Tensor(variance)},
        eps=1e-5,
    )
    without_bias = module("linear.Linear", {"weight": Tensor(second.weights.astype(np.float32)), "bias": None})
    found = read(
        tmp_path,
        sequential(
            module("flatten.Flatten", start_dim=1, end_dim=-1),
            sequential(linear_module(first), normalisation, module("activation.LeakyReLU", negative_slope=0.2)),
            module("activation.Hardtanh", min_val=-1.0, max_val=2),
            module("linear.Identity"),
            module("dropout.Dropout", p=0.5),
            without_bias,
            module("activation.Softmax", dim=1),
            module("linear.Identity"),
        ),
    )
    inputs = random_inputs(found)
    values = inputs @ first.weights.T + first.bias
    values = (values - mean.astype(float)) / np.sqrt(variance + 1e-5) * scale + offset
    values = np.clip(np.where(values > 0, values, 0.2 * values), -1, 2) @ second.weights.T
    np.testing.assert_allclose(outputs(found, inputs), values, rtol=1e-6, atol=1e-6)
    kinds = [type(layer) for layer in found.layers]
    assert kinds == [Affine, Normalise, Affine, Activation, Clip, Affine]


def test_unsupported_modules_are_all_listed(tmp_path: Path) -> None:
    affine = random_affine(np.random.default_rng(1), 2, 2)
    hooked = module("activation.Tanh")
    hooked.state["_forward_hooks"] = OrderedDict({1: "x"})
    with pytest.raises(UnsupportedFeature) as caught:
        read(
            tmp_path,
            sequential(
                linear_module(affine),
                module("activation.ELU"),
                sequential(module("conv.Conv2d"), module("activation.Softmax", dim=1)),
                hooked,
                module("activation.LogSoftmax", dim=0),
                module("flatten.Flatten", start_dim=0, end_dim=-1),
                module("batchnorm.BatchNorm1d", buffers={"running_mean": None, "running_var": None}, eps=0.1),
            ),
        )
    text = str(caught.value)
    for expected in (
        "module 1: the module activation.ELU",
        "module 2.0: the module conv.Conv2d",
        "module 2.1: a softmax that is not the last layer",
        "module 3: activation.Tanh with hooks",
        "module 4: a softmax over the batch",
        "module 5: a Flatten",
        "module 6: batch normalisation without stored statistics",
    ):
        assert expected in text
    assert len(caught.value.features) == 7


def test_unsupported_tensors_are_all_listed(tmp_path: Path) -> None:
    tensors = state_dict(random_network(1))
    tensors["norm.running_mean"] = Tensor(np.zeros(3, np.float32))
    tensors["conv.weight"] = Tensor(np.zeros((1, 1, 3, 3), np.float32))
    with pytest.raises(UnsupportedFeature, match=r"norm.running_mean of shape \[3\]") as caught:
        read(tmp_path, tensors, activation="relu")
    assert len(caught.value.features) == 2


def test_storages(tmp_path: Path) -> None:
    """Views, orders of bytes, and the types of numbers."""
    base = np.arange(12, dtype=np.float32)
    view = OrderedDict({"0.weight": Tensor(base, view=(1, (2, 3), (1, 4)))})
    expected = Affine(base[1:].astype(float)[[[0, 4, 8], [1, 5, 9]]], np.zeros(2))
    for order in ("little", "big"):
        path = written(tmp_path / f"{order}.pt", torch_bytes(view, byteorder=order, folder=order))
        assert_same_layers(read_network(path), Network((expected,), 3))
    for dtype, precision in (("f2", "float32"), ("f4", "float32"), ("f8", "float64"), ("i8", "float32")):
        weights = np.array([[1.5, -2.0]]).astype(dtype)
        found = read(tmp_path, OrderedDict({"weight": Tensor(weights)}))
        assert_same_layers(found, Network((Affine(weights.astype(float), np.zeros(1)),), 2, precision))
    brain = np.array([[1.5, -2.0]], np.float32).view(np.uint32) >> 16
    tensor = Tensor(brain.astype(np.uint16), storage="BFloat16Storage")
    assert_same_layers(
        read(tmp_path, OrderedDict({"weight": tensor})), Network((Affine(np.array([[1.5, -2.0]]), np.zeros(1)),), 2)
    )


def test_damaged_tensors(tmp_path: Path) -> None:
    base = np.arange(6, dtype=np.float32)
    cases: list[tuple[Tensor, str]] = [
        (Tensor(base, view=(0, (2, 4), (3, 1))), "reaches to element 6, its storage has 6"),
        (Tensor(base, view=(1, (2, 3), (3, 1))), "reaches to element 6"),
        (Tensor(base, view=(-1, (2, 3), (3, 1))), "expected a tensor"),
        (Tensor(base, view=(0, (2, 3), (3,))), "expected a tensor"),
        (Tensor(base, view=(0, (2, 3), (-3, 1))), "expected a tensor"),
        (Tensor(base, view=(0, (2, 0), (3, 1))), "an empty tensor"),
        (Tensor(base, view=(0, (2**31, 2**31), (0, 0))), "more than 268435456 bytes"),
        (Tensor(base, view=(0, (10**30,), (0,))), "more than 268435456 bytes"),
        (Tensor(base, storage="DoubleStorage"), "has 24 bytes, which are not as many"),
        (Tensor(np.array([[np.nan]], np.float32)), r"weights\[0, 0\] is nan"),
    ]
    for tensor, message in cases:
        with pytest.raises(InvalidInput, match=message):
            read(tmp_path, OrderedDict({"0.weight": tensor}))
    mismatched = OrderedDict({"0.weight": Tensor(np.ones((2, 3), np.float32)), "1.weight": Tensor(base.reshape(2, 3))})
    with pytest.raises(InvalidInput, match=r"1.weight takes 3 inputs, but 0.weight has 2 outputs"):
        read(tmp_path, mismatched, activation="relu")
    wrong_bias = OrderedDict({"0.weight": Tensor(base.reshape(2, 3)), "0.bias": Tensor(base)})
    with pytest.raises(InvalidInput, match=r"0.bias has the shape \[6\], expected \[2\]"):
        read(tmp_path, wrong_bias)


def test_module_that_contains_itself(tmp_path: Path) -> None:
    members = {
        "archive/data.pkl": b"\x80\x02ctorch.nn.modules.container\nSequential\n)\x81q\x01"
        b"}X\x08\x00\x00\x00_modules}X\x01\x00\x00\x000h\x01ssb."
    }
    with pytest.raises(InvalidInput, match=f"more than {MAXIMAL_MODULES} modules"):
        read_network(written(tmp_path / "a.pt", zip_bytes(members)))


def test_files_that_are_not_of_torch_save(tmp_path: Path) -> None:
    old = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + pickle.dumps(1001, 2)
    with pytest.raises(UnsupportedFeature, match=r"load it and save it again with torch\.save"):
        read_network(written(tmp_path / "a.pt", old))
    with pytest.raises(InvalidInput, match="zip archives"):
        read_network(written(tmp_path / "a.pt", b"text"))
    with pytest.raises(InvalidInput, match=r"no single data\.pkl"):
        read_network(written(tmp_path / "a.pt", zip_bytes({"policy.txt": b""})))
    with pytest.raises(UnsupportedFeature, match="TorchScript"):
        read_network(written(tmp_path / "a.pt", zip_bytes({"a/data.pkl": b"", "a/constants.pkl": b""})))
    with pytest.raises(InvalidInput, match="unknown byte order"):
        read_network(written(tmp_path / "a.pt", torch_bytes(state_dict(random_network(1)), byteorder="middle")))
    for value in ([1, 2], 7, Instance("torch.nn.modules.linear.Linear", {})):
        with pytest.raises(InvalidInput):
            read(tmp_path, value)


def test_own_module_classes_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"'agents\.Net', which is not among"):
        read(tmp_path, Instance("agents.Net", {"_modules": {}}))


# Against Torch itself


def torch() -> Any:
    return pytest.importorskip("torch", reason="Torch is not installed: its files cannot be compared")


def test_lookalikes_have_the_bytes_of_torch() -> None:
    nn = torch().nn
    real = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    weights = [parameter.detach().numpy() for parameter in real.parameters()]
    network = Network(
        (
            Affine(weights[0].astype(float), weights[1].astype(float)),
            Activation("relu"),
            Affine(weights[2].astype(float), weights[3].astype(float)),
        ),
        3,
    )
    ours = state_dict(network)
    ours.__dict__["_metadata"] = OrderedDict((name, {"version": 1}) for name in ("", "0", "1", "2"))
    stored = io.BytesIO()
    torch().save(real.state_dict(), stored)
    theirs, mine = (zipfile.ZipFile(io.BytesIO(raw)) for raw in (stored.getvalue(), torch_bytes(ours)))
    for name in theirs.namelist():
        if name != "archive/.data/serialization_id":
            assert mine.read(name) == theirs.read(name), name
    loaded = torch().load(io.BytesIO(torch_bytes(whole(network))), weights_only=False)
    inputs = random_inputs(network)
    with torch().no_grad():
        found = loaded(torch().from_numpy(inputs.astype(np.float32))).numpy()
    np.testing.assert_allclose(found, outputs(network, inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ["ReLU", "Tanh", "Sigmoid", "LeakyReLU", "Hardtanh", "ReLU6"])
@pytest.mark.parametrize("double", [False, True])
def test_whole_modules_of_torch(tmp_path: Path, activation: str, double: bool) -> None:
    nn = torch().nn
    torch().manual_seed(1)
    normalisation = nn.BatchNorm1d(6)
    normalisation.running_mean.uniform_(-1, 1)
    normalisation.running_var.uniform_(0.5, 2)
    inner = nn.Sequential(nn.Linear(5, 6, bias=False), normalisation, nn.Dropout(), getattr(nn, activation)())
    real = nn.Sequential(nn.Flatten(), nn.Linear(3, 5), getattr(nn, activation)(), inner, nn.Linear(6, 2)).eval()
    if double:
        real = real.double()
    torch().save(real, tmp_path / "policy.pth")
    found = read_network(tmp_path / "policy.pth")
    assert found.precision == ("float64" if double else "float32")
    inputs = random_inputs(found)
    with torch().no_grad():
        expected = real(torch().from_numpy(inputs.astype(found.precision))).numpy()
    tolerance = 1e-12 if double else 1e-5
    np.testing.assert_allclose(outputs(found, inputs), expected, rtol=tolerance, atol=tolerance)


def test_old_and_scripted_files_of_torch(tmp_path: Path) -> None:
    nn = torch().nn
    real = nn.Sequential(nn.Linear(3, 2))
    torch().save(real.state_dict(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(UnsupportedFeature, match=r"again with torch\.save"):
        read_network(tmp_path / "old.pt")


def test_shared_and_transposed_tensors_of_torch(tmp_path: Path) -> None:
    base = torch().arange(12.0).reshape(3, 4)
    entries = {"0.weight": base[:2, 1:].t(), "1.weight": base[:, 1:], "1.bias": base[:, 0].bfloat16()}
    torch().save(entries, tmp_path / "a.pt")
    found = read_network(tmp_path / "a.pt", activation="tanh")
    for layer, name in ((found.layers[0], "0.weight"), (found.layers[2], "1.weight")):
        np.testing.assert_array_equal(layer.weights, entries[name].numpy())
    np.testing.assert_array_equal(found.layers[2].bias, entries["1.bias"].float().numpy())
