"""Networks that others published: PlaJA's `.nnet` files and the VerticalCAS networks in ONNX."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from policyproof.policy.formats import compare_with_runtime, read_network
from tests.policy.networks import outputs
from tests.policy.test_formats import naive_nnet


def peer_files(pattern: str) -> list[Path]:
    folder = os.environ.get("POLICYPROOF_PEER_DATA")
    if not folder:
        pytest.skip("POLICYPROOF_PEER_DATA is not set: no published networks to read")
    found = sorted(Path(folder).glob(pattern))
    assert found, f"no {pattern} under POLICYPROOF_PEER_DATA"
    return found


def test_plaja_networks() -> None:
    for path in peer_files("plaja/**/*.nnet"):
        network = read_network(path)
        inputs = np.random.default_rng(1).integers(-5, 6, (20, network.input_size)).astype(float)
        expected = [naive_nnet(path.read_text(), row) for row in inputs.tolist()]
        np.testing.assert_allclose(outputs(network, inputs), expected, rtol=1e-10, atol=1e-10, err_msg=path.name)


def test_vertical_cas_networks() -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: nothing to compare with")
    paths = peer_files("vcas/*.onnx")
    assert len(paths) == 9
    for path in paths:
        network = read_network(path)
        assert (network.input_size, network.output_size, network.precision) == (3, 9, "float32")
        inputs = np.random.default_rng(1).standard_normal((1000, 3)).astype(np.float32)
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (theirs,) = session.run(None, {session.get_inputs()[0].name: inputs})
        np.testing.assert_allclose(outputs(network, inputs.astype(float)), theirs, rtol=1e-5, atol=1e-5)
        # Its inputs are up to hundreds, where rounding to float32 shows a little more.
        assert compare_with_runtime(path, network).largest_relative_difference <= 5e-5, path.name
