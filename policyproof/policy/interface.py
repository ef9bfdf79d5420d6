"""How a network is connected to a model: `policy.json`, and PlaJA's `.jani2nnet`.

    {
      "schema": "policyproof-policy-1",
      "network": "policy.onnx",
      "inputs": [
        {"variable": "x", "subtract": 10, "divide": 5, "clip": [-1, 1]},
        {"variable": "mode", "one_hot": [0, 1, 2]},
        {"location": "car"},
        {"expression": "x - y"}
      ],
      "labels": ["left", "right"],
      "filter": false
    }

Instead of `network` there may be `"switch": {"expression": "advisory", "networks": {"1": "a.onnx",
"2": "b.onnx"}}`; instead of `labels`, `action_variables`: the variables whose values the outputs
are.  `activation` answers for file formats that do not say which activation they use, and
`vecnormalize` names a file of normalisation statistics.  Files are relative to the interface file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from policyproof.model.automata import Model, location_variable
from policyproof.model.expressions import ONE, ZERO, Expression, apply, constant, variable
from policyproof.model.grammar import parse_expression
from policyproof.model.jani.reader import Reader
from policyproof.model.json_text import Document, Json, dumps, read_file
from policyproof.policy.network import Clip, Layer, Network, Normalise
from policyproof.policy.policy import Policy
from policyproof.run.errors import InvalidInput

SCHEMA = "policyproof-policy-1"

_KEYS = frozenset(
    ["schema", "network", "switch", "inputs", "labels", "action_variables", "filter", "activation", "vecnormalize"]
)

_SWITCH_VALUE = re.compile(r"0|-?[1-9][0-9]{0,17}")

NetworkReader = Callable[..., Network]


def read_interface(path: str | Path, model: Model, read_network: NetworkReader) -> Policy:
    """The policy that a `policy.json` or a `.jani2nnet` file describes."""
    document = read_file(path)
    if not isinstance(document.root, dict):
        raise InvalidInput("expected an object", where=f"{document.name}: $")
    kind = _PlajaReader if Path(path).suffix == ".jani2nnet" else _InterfaceReader
    policy = kind(document, model, read_network).read()
    momentary = sorted(policy.reads & {item.name for item in model.variables if item.transient})
    if momentary:
        message = f"{momentary[0]!r} is transient: it belongs to steps, and a policy sees states"
        raise InvalidInput(message, where=document.name)
    return policy


class _Files:
    """Opens the files that an interface names, relative to its folder."""

    def __init__(self, document: Document, read_network: NetworkReader) -> None:
        self.document = document
        self.reader = Reader(document)
        self.read_network = read_network
        self.used: list[str] = [document.name]

    def path(self, container: Json, key: str) -> Path:
        name = self.reader.get(container, key, str)
        if Path(name).is_absolute() or self.document.folder is None:
            raise self.reader.invalid(container, key, f"expected a path relative to this file, found {name!r}")
        path = Path(self.document.folder, name)
        if not path.is_file():
            raise self.reader.invalid(container, key, f"there is no file {path}")
        self.used.append(str(path))
        return path

    def network(self, container: Json, key: str, **options: Any) -> Network:
        return self.read_network(self.path(container, key), **options)


class _InterfaceReader:
    def __init__(self, document: Document, model: Model, read_network: NetworkReader) -> None:
        self.document = document
        self.files = _Files(document, read_network)
        self.reader = self.files.reader
        self.model = model

    def read(self) -> Policy:
        reader, root = self.reader, self.document.root
        reader.object(root, root, None, keys=_KEYS)
        schema = reader.get(root, "schema", str)
        if schema != SCHEMA:
            raise reader.invalid(root, "schema", f"expected {SCHEMA!r}, found {schema!r}")
        options = {key: reader.get(root, key, str) for key in ("activation",) if key in root}
        if "vecnormalize" in root:
            options["vecnormalize"] = self.files.path(root, "vecnormalize")
        inputs, before = self._inputs(root)
        switch, values, networks = self._networks(root, options)
        labels = self._names(root, "labels", list(self.model.actions), "label")
        variables = self._names(root, "action_variables", list(self.model.variable_by_name), "variable")
        if bool(labels) == bool(variables):
            raise reader.invalid(root, None, "exactly one of 'labels' and 'action_variables' is needed")
        for position, name in enumerate(variables):
            if self.model.variable_by_name[name].domain.kind != "real" or name in variables[:position]:
                message = f"expected a real variable that no other output sets, found {name!r}"
                raise reader.invalid(root["action_variables"], position, message)
        reader.finish()
        return Policy(
            networks=tuple(_after(network, before) for network in networks),
            inputs=tuple(inputs),
            labels=labels,
            action_variables=variables,
            filter=reader.get(root, "filter", bool, default=False),
            switch=switch,
            switch_values=values,
            source=self.document.name,
            files=tuple(self.files.used),
        )

    def _names(self, root: dict[str, Json], key: str, allowed: list[str], what: str) -> tuple[str, ...]:
        names = self.reader.get(root, key, list, default=[])
        for position, name in enumerate(names):
            self.reader.one_of(names, position, name, allowed, what)
        return tuple(names)

    def _networks(
        self, root: dict[str, Json], options: Mapping[str, Any]
    ) -> tuple[Expression | None, tuple[int, ...], list[Network]]:
        reader = self.reader
        if ("network" in root) == ("switch" in root):
            raise reader.invalid(root, None, "exactly one of 'network' and 'switch' is needed")
        if "network" in root:
            return None, (), [self.files.network(root, "network", **options)]
        switch = reader.object(root["switch"], root, "switch", keys=frozenset(["expression", "networks"]))
        expression = self._expression(switch, "expression")
        if expression.kind != "int":
            raise reader.invalid(switch, "expression", f"expected an integer, found {expression.kind}")
        table = reader.get(switch, "networks", dict)
        if not table:
            raise reader.invalid(switch, "networks", "a switch needs at least one network")
        values = []
        for key in table:
            if not _SWITCH_VALUE.fullmatch(key):
                raise reader.invalid(table, key, "the names here are the values of the switch: integers")
            values.append(int(key))
        return expression, tuple(values), [self.files.network(table, key, **options) for key in table]

    def _expression(self, container: Json, key: str) -> Expression:
        text = self.reader.get(container, key, str)
        with self.reader.locating(container, key):
            return parse_expression(text, self.model)

    def _inputs(self, root: dict[str, Json]) -> tuple[list[Expression], list[Layer]]:
        """The network's inputs, and the scaling and clipping that come before its first layer."""
        reader = self.reader
        items = reader.get(root, "inputs", list)
        inputs: list[Expression] = []
        subtract: list[float] = []
        divide: list[float] = []
        lower: list[float] = []
        upper: list[float] = []
        keys = frozenset(["variable", "location", "expression", "one_hot", "subtract", "divide", "clip"])
        for position, item in enumerate(items):
            reader.object(item, items, position, keys=keys)
            sources = self._sources(item, items, position)
            inputs.extend(sources)
            subtract.extend([self._number(item, "subtract") if "subtract" in item else 0.0] * len(sources))
            divide.extend([self._number(item, "divide") if "divide" in item else 1.0] * len(sources))
            ends = (-np.inf, np.inf)
            if "clip" in item:
                clip = reader.get(item, "clip", list)
                if len(clip) != 2:
                    raise reader.invalid(item, "clip", "expected [lower, upper]")
                ends = (self._number(clip, 0), self._number(clip, 1))
            lower.extend([ends[0]] * len(sources))
            upper.extend([ends[1]] * len(sources))
        layers: list[Layer] = []
        if any(subtract) or any(value != 1.0 for value in divide):
            layers.append(Normalise(np.array(subtract), np.array(divide)))
        if np.isfinite(lower).any() or np.isfinite(upper).any():
            layers.append(Clip(np.array(lower), np.array(upper)))
        return inputs, layers

    def _number(self, container: Json, key: str | int) -> float:
        value = container[key]
        if isinstance(value, bool) or not isinstance(value, (int, Fraction)):
            raise self.reader.invalid(container, key, "expected a number")
        try:
            return float(value)
        except OverflowError:
            raise self.reader.invalid(container, key, "a number beyond float64") from None

    def _sources(self, item: dict[str, Json], items: Json, position: int) -> list[Expression]:
        reader = self.reader
        given = [key for key in ("variable", "location", "expression") if key in item]
        if len(given) != 1:
            raise reader.invalid(items, position, "exactly one of 'variable', 'location', 'expression' is needed")
        if given == ["expression"]:
            source = self._expression(item, "expression")
        elif given == ["location"]:
            name = reader.get(item, "location", str)
            reader.one_of(item, "location", name, [automaton.name for automaton in self.model.automata], "automaton")
            source = variable(location_variable(name), "int")
        else:
            name = reader.get(item, "variable", str)
            reader.one_of(item, "variable", name, list(self.model.variable_by_name), "variable")
            source = self.model.variable_by_name[name].expression
        if "one_hot" not in item:
            return [as_number(source)]
        values = reader.get(item, "one_hot", list)
        whole = all(isinstance(value, int) and not isinstance(value, bool) for value in values)
        if source.kind != "int" or not whole:
            raise reader.invalid(item, "one_hot", "one_hot needs an integer source and integer values")
        return [as_number(apply("=", source, constant(value))) for value in values]


def as_number(expression: Expression) -> Expression:
    """A truth value as a network sees it: 0 or 1."""
    return apply("ite", expression, ONE, ZERO) if expression.kind == "bool" else expression


def _after(network: Network, before: list[Layer]) -> Network:
    if not before:
        return network
    return Network((*before, *network.layers), network.input_size, network.precision, network.source)


class _PlajaReader:
    """`.jani2nnet`: input variables (or locations, by automaton), hidden sizes, labels in output order."""

    def __init__(self, document: Document, model: Model, read_network: NetworkReader) -> None:
        self.document = document
        self.files = _Files(document, read_network)
        self.reader = self.files.reader
        self.model = model

    def read(self) -> Policy:
        reader, root = self.reader, self.document.root
        reader.object(root, root, None, keys=frozenset(["file", "filter", "input", "elements", "output"]))
        items = reader.get(root, "input", list)
        inputs = []
        for position, item in enumerate(items):
            reader.object(item, items, position, keys=frozenset(["name", "automaton", "index"]))
            inputs.append(as_number(self._source(item)))
        labels = reader.get(root, "output", list)
        for position, label in enumerate(labels):
            reader.one_of(labels, position, label, list(self.model.actions), "label")
        network = self.files.network(root, "file")
        sizes = reader.get(root, "elements", list, default=network.hidden_sizes)
        if sizes != network.hidden_sizes:
            message = f"the hidden layers have {network.hidden_sizes} neurons, this file says {sizes}"
            raise reader.invalid(root, "elements", message)
        reader.finish()
        return Policy(
            networks=(network,),
            inputs=tuple(inputs),
            labels=tuple(labels),
            filter=reader.get(root, "filter", bool, default=False),
            source=self.document.name,
            files=tuple(self.files.used),
        )

    def _source(self, item: dict[str, Json]) -> Expression:
        """A variable; an element of an array (`index`); or, without the key `automaton`, a location."""
        reader, model = self.reader, self.model
        name = reader.get(item, "name", str)
        if "automaton" not in item:
            reader.one_of(item, "name", name, [automaton.name for automaton in model.automata], "automaton")
            return variable(location_variable(name), "int")
        owner = item["automaton"]
        if isinstance(owner, dict):
            owner = reader.get(owner, "name", str)
        if owner is not None:
            reader.one_of(item, "automaton", owner, [automaton.name for automaton in model.automata], "automaton")
            name = model.aliases.get((owner, name), name)
        if "index" in item:
            reader.one_of(item, "name", name, list(model.arrays), "array")
            index = reader.get(item, "index", int)
            elements = model.arrays[name]
            if not 0 <= index < len(elements):
                raise reader.invalid(item, "index", f"the array has {len(elements)} elements")
            return model.variable_by_name[elements[index]].expression
        reader.one_of(item, "name", name, list(model.variable_by_name), "variable")
        return model.variable_by_name[name].expression


def initial_interface(model: Model, network: Network, file: str, *, activation: str | None = None) -> str:
    """A first `policy.json`, from sizes and names: what fits is filled in, the rest is said in an error."""
    variables = [item for item in model.variables if not item.transient]
    inputs: list[Json] = [{"variable": item.name} for item in variables]
    moving = [automaton for automaton in model.automata if len(automaton.locations) > 1]
    if network.input_size == len(variables) + len(moving):
        inputs.extend({"location": automaton.name} for automaton in moving)
    elif network.input_size != len(variables):
        names = ", ".join(item.name for item in variables)
        raise InvalidInput(
            f"the network has {network.input_size} inputs, the model {len(variables)} variables ({names}) and "
            f"{len(moving)} automata that move: write an interface file that names the inputs in order"
        )
    labels = list(model.labels)
    if network.output_size != len(labels):
        raise InvalidInput(
            f"the network has {network.output_size} outputs, the model {len(labels)} labels ({', '.join(labels)}): "
            "write an interface file that names the labels in order"
        )
    body: dict[str, Json] = {"schema": SCHEMA, "network": file}
    if activation is not None:
        body["activation"] = activation
    body.update(inputs=inputs, labels=labels, filter=False)
    return dumps(body, indent=2) + "\n"
