"""Keras's JSON description of a model, as the list of layers that a vector passes.

A `Sequential` model lists its layers in order.  A functional model lists them with the nodes that
call them; it is read when every layer is called once, on the result of one other, so that the calls
form a chain from the one input to the one output.  Keras 2 writes a call as [[[NAME, 0, 0, {}]]],
Keras 3 as an object with `args` that hold tensors with a `keras_history` [NAME, 0, 0].

Invariant: layers come out in the order in which they compute, and each of them is on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature


@dataclass(frozen=True, eq=False)
class KerasLayer:
    """One layer: its class, its name, and its own settings."""

    kind: str
    name: str
    config: dict[str, Any]
    where: str
    input_shape: Any = None
    """Of the batch that the layer was built for, where the file says so."""

    @property
    def takes_vectors(self) -> bool | None:
        """Whether inputs have the shape [batch, size]; none when the file does not say."""
        shape = self.input_shape
        return len(shape) == 2 if isinstance(shape, list) else None

    def number(self, key: str, default: float | None) -> float | None:
        """A setting that is a number; some versions write it as {"class_name": "__numpy__", "config": ...}."""
        value = self.config.get(key, default)
        if isinstance(value, dict):
            inner = value.get("config")
            value = inner.get("value") if isinstance(inner, dict) else inner
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidInput(f"{key} is not a number", where=self.where)
        try:
            return float(value)
        except OverflowError:
            raise InvalidInput(f"{key} is too large", where=self.where) from None


def layer_chain(config: Any, where: str, refuse: Callable[[str, str], None]) -> list[KerasLayer]:
    """The layers of a model in order; `refuse(place, what)` takes what is unsupported on the way."""
    model = _object(config, where)
    kind, inner = model.get("class_name"), _model_config(model, where)
    entries = inner.get("layers")
    if kind not in ("Sequential", "Functional", "Model"):
        raise UnsupportedFeature([Feature(where, f"a model of the class {str(kind)[:100]}")])
    if not isinstance(entries, list) or not entries:
        raise InvalidInput("a model without layers", where=where)
    layers = [_layer(_object(entry, where), where) for entry in entries]
    if len({layer.name for layer in layers}) != len(layers):
        raise InvalidInput("two layers have the same name", where=where)
    if kind == "Sequential":
        return layers
    calls = {
        layer.name: _object(entry, where).get("inbound_nodes") for layer, entry in zip(layers, entries, strict=True)
    }
    _require_chain(layers, calls, inner, refuse, where)
    return layers


def _model_config(model: dict[str, Any], where: str) -> dict[str, Any]:
    config = model.get("config")
    # Keras before 2.2.3 wrote the list of layers itself.
    return {"layers": config} if isinstance(config, list) else _object(config, where)


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput("the description of the model is damaged: expected an object", where=where)
    return value


def _layer(entry: dict[str, Any], where: str) -> KerasLayer:
    kind, config = entry.get("class_name"), _object(entry.get("config"), where)
    name = config.get("name", entry.get("name"))
    if not (isinstance(kind, str) and isinstance(name, str)):
        raise InvalidInput("the description of the model is damaged: a layer without class or name", where=where)
    built = entry.get("build_config")
    shape = config.get("batch_shape", config.get("batch_input_shape"))
    if shape is None and isinstance(built, dict):
        shape = built.get("input_shape")
    return KerasLayer(kind, name, config, f"{where}: layer {name[:100]!r}", shape)


def _require_chain(
    layers: list[KerasLayer],
    calls: dict[str, Any],
    model: dict[str, Any],
    refuse: Callable[[str, str], None],
    where: str,
) -> None:
    """Every layer is called once, on the layer listed before it: the order of the list is that of the calls."""
    for ends in ("input_layers", "output_layers"):
        names = _names(model.get(ends))
        expected = layers[0 if ends == "input_layers" else -1].name
        if names != [expected]:
            refuse(
                where, f"a model whose {ends} are not one, the {'first' if ends == 'input_layers' else 'last'} listed"
            )
    previous: str | None = None
    for layer in layers:
        sources = _sources(calls[layer.name])
        if sources != ([] if previous is None else [previous]):
            refuse(layer.where, f"a layer that is not called once, on the layer before it (called on {sources})")
        previous = layer.name


def _sources(nodes: Any) -> list[str | None]:
    """The layers whose results a layer is called on; none in place of a call that is not understood."""
    if not isinstance(nodes, list):
        return [None]
    sources: list[str | None] = []
    for node in nodes:
        if isinstance(node, dict):
            arguments = node.get("args")
            if not _plain(node.get("kwargs")) or not isinstance(arguments, list):
                return [None]
            for argument in arguments:
                config = argument.get("config") if isinstance(argument, dict) else None
                history = config.get("keras_history") if isinstance(config, dict) else None
                sources.append(_first(history))
        elif isinstance(node, list):
            # [NAME, node, tensor, keyword arguments]
            if not all(isinstance(call, list) and _plain(call[3] if len(call) > 3 else None) for call in node):
                return [None]
            sources.extend(_first(call) for call in node)
        else:
            return [None]
    return sources


def _plain(keywords: Any) -> bool:
    """Whether the keyword arguments of a call change nothing: no mask, not in training."""
    if keywords is None:
        return True
    harmless = {"mask": (None,), "training": (None, False)}
    return isinstance(keywords, dict) and all(value in harmless.get(key, ()) for key, value in keywords.items())


def _first(history: Any) -> str | None:
    return history[0] if isinstance(history, list) and history and isinstance(history[0], str) else None


def _names(ends: Any) -> list[str | None]:
    """The layers in [NAME, 0, 0] or [[NAME, 0, 0], ...]."""
    if not isinstance(ends, list) or not ends:
        return []
    return [_first(ends)] if isinstance(ends[0], str) else [_first(end) for end in ends]
