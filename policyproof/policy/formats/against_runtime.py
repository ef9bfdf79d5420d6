"""Does the network that was read compute what the file's own runtime computes?

Idea: run both on random inputs and report the greatest difference.  An ONNX file is run by
onnxruntime, weights of Torch and Stable-Baselines3 by Torch.  Both are optional; without them there is
no comparison, and the result says which package is missing.

Invariant: Torch loads with `weights_only`, so that here, too, nothing of the file is executed.  Hence
whole modules are run as themselves, but state dictionaries, which hold no program, as the layers that
were read, with the weights as Torch reads them, in the precision of deployment.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from policyproof.policy.formats.container import Archive, read_bytes
from policyproof.policy.formats.onnx_file import read_chain
from policyproof.policy.formats.sb3 import computing_tensors
from policyproof.policy.network import Activation, Affine, Clip, Floats, Layer, Network, Normalise
from policyproof.run.errors import BackendFailure

_MODULES = (
    "container.Sequential",
    "linear.Linear",
    "linear.Identity",
    "dropout.Dropout",
    "flatten.Flatten",
    "activation.ReLU",
    "activation.Tanh",
    "activation.Sigmoid",
    "activation.LeakyReLU",
    "activation.Hardtanh",
    "activation.ReLU6",
    "activation.Softmax",
    "activation.LogSoftmax",
    "batchnorm.BatchNorm1d",
)


@dataclass(frozen=True)
class RuntimeComparison:
    """The greatest differences over all samples and outputs; no runtime, no differences."""

    runtime: str | None
    largest_difference: float
    largest_relative_difference: float
    """Each difference divided by the greatest output of its sample, or by 1 when that is smaller."""
    note: str


def compare_with_runtime(
    path: str | Path, network: Network, *, samples: int = 1000, seed: int = 0
) -> RuntimeComparison:
    """Compare `network`, as `read_network(path)` gave it, with the runtime of the file's format."""
    suffix = Path(path).suffix.lower()
    package = {".onnx": "onnxruntime", ".pt": "torch", ".pth": "torch", ".zip": "torch"}.get(suffix)
    if package is None:
        return _without(f"{suffix} files have no runtime to compare with")
    try:
        runtime = importlib.import_module(package)
    except ImportError:
        return _without(f"{package} is not installed")
    dtype = np.dtype(network.precision)
    generator = np.random.default_rng(seed)
    scale = 10.0 ** generator.uniform(-1, 2, size=(samples, 1))
    # Rounded first, so that both get the same inputs.
    inputs = (generator.standard_normal((samples, network.input_size)) * scale).astype(dtype)
    if package == "onnxruntime":
        theirs = _run_onnx(runtime, path, inputs)
    else:
        theirs = _run_torch(runtime, path, network, inputs)
    ours, _ = network.evaluate(inputs.astype(np.float64))
    difference = np.abs(ours - theirs.reshape(ours.shape))
    size = np.maximum(np.abs(ours).max(axis=1, keepdims=True, initial=0.0), 1.0)
    return RuntimeComparison(
        runtime=f"{package} {runtime.__version__}",
        largest_difference=float(difference.max(initial=0.0)),
        largest_relative_difference=float((difference / size).max(initial=0.0)),
        note=f"{samples} random inputs in {network.precision}",
    )


def _without(note: str) -> RuntimeComparison:
    return RuntimeComparison(None, float("nan"), float("nan"), note)


def _run_onnx(runtime: Any, path: str | Path, inputs: Any) -> Floats:
    """The outputs of the graph, before a softmax that was left out."""
    chain, model = read_chain(path)
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    given = next(value for value in graph.input if value.name not in constants)
    del graph.output[:]
    graph.output.add().name = chain.output
    # An output without a type is legal for the runtime, which infers it.
    errors = runtime.capi.onnxruntime_pybind11_state
    try:
        session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        element = np.float64 if session.get_inputs()[0].type == "tensor(double)" else np.float32
        dimensions = given.type.tensor_type.shape.dim
        fixed = [dimension.dim_value for dimension in dimensions]
        if len(fixed) > 1 and not dimensions[0].HasField("dim_value"):
            batches = [inputs.astype(element).reshape([len(inputs), *fixed[1:]])]
        else:
            batches = [row.astype(element).reshape(fixed) for row in inputs]
        results = [session.run([chain.output], {given.name: batch})[0] for batch in batches]
    except (errors.Fail, errors.InvalidArgument, errors.InvalidGraph, errors.NotImplemented) as error:
        raise BackendFailure("onnxruntime", str(error)) from None
    return np.concatenate([np.asarray(result, dtype=np.float64).ravel() for result in results])


def _run_torch(torch: Any, path: str | Path, network: Network, inputs: Any) -> Floats:
    content = read_bytes(path)
    if Path(path).suffix.lower() == ".zip":
        content = Archive(content, str(path)).read("policy.pth")
    classes = [torch.nn.Parameter, *(_module_class(torch, name) for name in _MODULES)]
    try:
        with torch.serialization.safe_globals(classes):
            loaded = torch.load(BytesIO(content), map_location="cpu", weights_only=True)
        with torch.no_grad():
            batch = torch.from_numpy(inputs)
            if isinstance(loaded, torch.nn.Module):
                result = _without_softmax(torch, loaded.eval().to(batch.dtype))(batch)
            else:
                result = _run_layers(torch, network.layers, _tensors(torch, loaded), batch)
    except (RuntimeError, pickle.UnpicklingError, AttributeError) as error:
        raise BackendFailure("torch", str(error)) from None
    return np.asarray(result.to(torch.float64).numpy(), dtype=np.float64)


def _without_softmax(torch: Any, module: Any) -> Any:
    """The module without what the reader leaves out, since it does not change which output is the greatest."""
    for layer in list(module.modules()):
        for name, child in list(layer.named_children()):
            if isinstance(child, (torch.nn.Softmax, torch.nn.LogSoftmax)):
                setattr(layer, name, torch.nn.Identity())
    return module


def _module_class(torch: Any, name: str) -> Any:
    module, kind = name.split(".")
    return getattr(getattr(torch.nn.modules, module), kind)


def _tensors(torch: Any, loaded: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Weights and biases in the order of computation, of a state dictionary or of a checkpoint with one."""
    if not all(isinstance(value, torch.Tensor) for value in loaded.values()):
        inner = [value for value in loaded.values() if isinstance(value, dict) and value]
        loaded = next(
            entries for entries in inner if all(isinstance(value, torch.Tensor) for value in entries.values())
        )
    names = computing_tensors(loaded) or list(loaded)
    weights = [name for name in names if name.endswith(".weight") or name == "weight"]
    return [(loaded[name], loaded.get(name.removesuffix("weight") + "bias")) for name in weights]


def _run_layers(torch: Any, layers: Iterable[Layer], tensors: list[tuple[Any, Any]], values: Any) -> Any:
    rest = iter(tensors)
    for layer in layers:
        if isinstance(layer, Affine):
            given = (torch.from_numpy(layer.weights), torch.from_numpy(layer.bias))
            weights, bias = next(rest, given)
            dtype = values.dtype
            values = torch.nn.functional.linear(values, weights.to(dtype), None if bias is None else bias.to(dtype))
        elif isinstance(layer, Normalise):
            subtract, divide = (torch.from_numpy(array).to(values.dtype) for array in (layer.subtract, layer.divide))
            values = (values - subtract) / divide
        elif isinstance(layer, Clip):
            lower, upper = (torch.from_numpy(array).to(values.dtype) for array in (layer.lower, layer.upper))
            values = torch.clamp(values, lower, upper)
        else:
            values = _activate(torch, layer, values)
    return values


def _activate(torch: Any, layer: Activation, values: Any) -> Any:
    if layer.kind == "leaky_relu":
        return torch.nn.functional.leaky_relu(values, layer.slope)
    return {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}[layer.kind](values)
