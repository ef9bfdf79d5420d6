"""Small random JANI models with random policies, as JSON, so that the reader is part of every test.

Everything that the language allows and that can go wrong occurs with a fair share: updates that
leave domains, sequences of assignments, arrays with variable positions, transient variables,
synchronisation of several automata, destinations of probability zero, choices of the environment,
divisions and remainders, network outputs that tie.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from policyproof.evidence.interpreter import Blocked, Configuration, Interpreter
from policyproof.evidence.plain_policy import decide
from policyproof.model.automata import location_variable
from policyproof.model.expressions import ONE, ZERO, apply, conjunction, constant, variable
from policyproof.model.jani.model import ModelReader
from policyproof.model.jani.properties import read_property_entries
from policyproof.model.json_text import Document, dumps, parse
from policyproof.model.properties import SafetyProperty
from policyproof.model.source import LoadedModel
from policyproof.policy.network import Activation, Affine, Network
from policyproof.policy.policy import Policy

LABELS = ["a", "b", "c"]


@dataclass(frozen=True)
class RandomSystem:
    """A model, a policy and a question, all made from one seed."""

    seed: int
    model: LoadedModel
    policy: Policy | None
    question: SafetyProperty
    json: dict[str, Any]


def random_system(seed: int, *, with_policy: bool = True) -> RandomSystem:
    rng = random.Random(seed)
    writer = _Writer(rng)
    root = writer.model()
    text = dumps(root)
    jani = ModelReader(Document(parse(text), f"random model {seed}"), {}).read()
    entries = read_property_entries(jani)
    model = LoadedModel(jani.model, tuple(entries))
    question = entries[0].read()
    assert isinstance(question, SafetyProperty)
    policy = random_policy(rng, model) if with_policy else None
    if rng.random() < 0.6:
        question = _at_the_end_of_a_walk(rng, model, question, policy)
    return RandomSystem(seed, model, policy, question, root)


def _at_the_end_of_a_walk(
    rng: random.Random, model: LoadedModel, question: SafetyProperty, policy: Policy | None
) -> SafetyProperty:
    """Unsafe is where a random walk under the policy ends: a violation that mostly takes several steps."""
    interpreter = Interpreter(model.model)
    variables = {
        item.name: item.initial if item.initial is not None else int(item.domain.range[0])
        for item in model.model.variables
        if not item.transient
    }
    state = Configuration(tuple(part.initial_locations[0] for part in model.model.automata), variables)
    for _ in range(rng.randint(3, 9)):
        options = list(interpreter.enabled_combinations(state))
        if policy is not None and options and rng.random() < 0.9:
            chosen = decide(policy, interpreter.valuation(state)).label
            options = [item for item in options if item[0] not in policy.labels or item[0] == chosen]
        if not options:
            break
        outcome = interpreter.execute(state, rng.choice(options)[1])
        assert not isinstance(outcome, Blocked)
        state = outcome[0]
    unsafe = conjunction(
        item.expression.equals(constant(state.variables[item.name]))
        for item in model.model.variables
        if not item.transient
    )
    # The initial states alone, or all states without the unsafe ones.
    start = None if rng.random() < 0.7 or question.start is None else question.start & ~unsafe
    return dataclasses.replace(question, unsafe=unsafe, start=start)


def random_policy(rng: random.Random, model: LoadedModel) -> Policy:
    """A network over all variables and locations; some weights make ties likely."""
    inputs = []
    for item in model.model.variables:
        if item.transient:
            continue
        expression = item.expression
        inputs.append(apply("ite", expression, ONE, ZERO) if item.domain.kind == "bool" else expression)
    inputs += [
        variable(location_variable(part.name), "int") for part in model.model.automata if len(part.locations) > 1
    ]
    labels = [label for label in model.model.labels if rng.random() < 0.9] or list(model.model.labels)[:1]
    rng.shuffle(labels)
    generator = np.random.default_rng(rng.randrange(1 << 30))
    coarse = rng.random() < 0.5
    sizes = [len(inputs), *[rng.randint(2, 5) for _ in range(rng.randint(0, 2))], len(labels)]
    layers: list[Any] = []
    for number, (columns, rows) in enumerate(itertools.pairwise(sizes)):
        if coarse:
            weights = generator.integers(-2, 3, (rows, columns)).astype(np.float64)
            bias = generator.integers(-2, 3, rows).astype(np.float64)
        else:
            weights = generator.normal(size=(rows, columns)).astype(np.float32).astype(np.float64)
            bias = generator.normal(size=rows).astype(np.float32).astype(np.float64)
        if number == len(sizes) - 2 and len(labels) > 1 and rng.random() < 0.3:
            # Two outputs that are always equal.
            weights[1], bias[1] = weights[0], bias[0]
        layers.append(Affine(weights, bias))
        if number < len(sizes) - 2:
            kind = rng.choice(["relu", "relu", "leaky_relu"])
            layers.append(Activation(kind, 0.25 if kind == "leaky_relu" else 0.0))
    return Policy((Network(tuple(layers), len(inputs)),), tuple(inputs), tuple(labels), filter=rng.random() < 0.4)


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.integers: list[tuple[str, int, int]] = []
        self.booleans: list[str] = []
        self.array: int = 0

    def model(self) -> dict[str, Any]:
        rng = self.rng
        variables = []
        for name in ["x", "y", "z"][: rng.randint(1, 3)]:
            lower = rng.randint(-2, 0)
            upper = lower + rng.randint(1, 4)
            self.integers.append((name, lower, upper))
            variables.append({"name": name, "type": _bounded(lower, upper), "initial-value": rng.randint(lower, upper)})
        if rng.random() < 0.6:
            self.booleans.append("flag")
            variables.append({"name": "flag", "type": "bool", "initial-value": rng.random() < 0.5})
        if rng.random() < 0.4:
            self.array = rng.randint(2, 3)
            value = {"op": "av", "elements": [rng.randint(0, 2) for _ in range(self.array)]}
            kind = {"kind": "array", "base": _bounded(0, 2)}
            variables.append({"name": "queue", "type": kind, "initial-value": value})
        if rng.random() < 0.4:
            variables.append({"name": "moment", "type": "int", "transient": True, "initial-value": 0})
        self.transient = any(item["name"] == "moment" for item in variables)
        if rng.random() < 0.15:
            # Several initial states.
            del variables[0]["initial-value"]
        names = [f"P{i}" for i in range(rng.randint(1, 3))]
        # Choices beside other assignments to the same variable are not supported.
        self.choice_share = 0.2 if len(names) == 1 else 0.0
        automata = [self._automaton(name) for name in names]
        root: dict[str, Any] = {
            "jani-version": 1,
            "name": "random",
            "type": "mdp",
            "features": ["derived-operators", "arrays"],
            "actions": [{"name": label} for label in LABELS],
            "variables": variables,
            "automata": automata,
            "system": {"elements": [{"automaton": name} for name in names], "syncs": self._syncs(len(names))},
            "properties": [self._property()],
        }
        return root

    def _syncs(self, count: int) -> list[dict[str, Any]]:
        rng = self.rng
        syncs = []
        for label in LABELS:
            for _ in range(rng.randint(1, 2)):
                actions: list[str | None] = [None] * count
                taking_part = rng.sample(range(count), rng.randint(1, count))
                for number in taking_part:
                    actions[number] = rng.choice(LABELS)
                entry: dict[str, Any] = {"synchronise": actions}
                if rng.random() < 0.9:
                    entry["result"] = label
                syncs.append(entry)
        return syncs

    def _automaton(self, name: str) -> dict[str, Any]:
        rng = self.rng
        locations = [f"l{i}" for i in range(rng.randint(1, 3))]
        entries: list[dict[str, Any]] = [{"name": location} for location in locations]
        if self.transient and rng.random() < 0.5:
            entries[0]["transient-values"] = [{"ref": "moment", "value": self._number(1)}]
        edges = [self._edge(locations) for _ in range(rng.randint(2, 6))]
        return {"name": name, "locations": entries, "initial-locations": [rng.choice(locations)], "edges": edges}

    def _edge(self, locations: list[str]) -> dict[str, Any]:
        rng = self.rng
        edge: dict[str, Any] = {"location": rng.choice(locations)}
        if rng.random() < 0.9:
            edge["action"] = rng.choice(LABELS)
        if rng.random() < 0.5:
            edge["guard"] = {"exp": self._condition(2)}
        shares = rng.choice([[None], [None], [None], [0.5, 0.5], [1, 0], [0.25, 0.75]])
        edge["destinations"] = []
        for share in shares:
            destination: dict[str, Any] = {"location": rng.choice(locations), "assignments": self._assignments()}
            if share is not None:
                destination["probability"] = {"exp": share}
            edge["destinations"].append(destination)
        return edge

    def _assignments(self) -> list[dict[str, Any]]:
        rng = self.rng
        found: list[dict[str, Any]] = []
        used: set[tuple[str, int]] = set()
        for _ in range(rng.randint(0, 3)):
            index = rng.choice([0, 0, 0, 1])
            target = rng.random()
            if target < 0.65:
                name, lower, upper = rng.choice(self.integers)
                if (name, index) in used:
                    continue
                used.add((name, index))
                entry: dict[str, Any] = {"ref": name}
                if rng.random() < self.choice_share and not any(item.get("index") for item in found) and index == 0:
                    entry["lower-bound"], entry["upper-bound"] = lower, self._number(0)
                    used.add((name, 1))
                    found = [item for item in found if not item.get("index")]
                    entry["index"] = 1
                    index = 1
                    del upper
                elif rng.random() < 0.5:
                    entry["value"] = {"op": rng.choice(["+", "-"]), "left": name, "right": 1}
                else:
                    entry["value"] = self._number(2)
            elif target < 0.8 and self.booleans:
                if ("flag", index) in used:
                    continue
                used.add(("flag", index))
                entry = {"ref": "flag", "value": self._condition(1)}
            elif target < 0.95 and self.array:
                if ("queue", index) in used:
                    continue
                used.add(("queue", index))
                moving = {"op": "+", "left": rng.choice(self.integers)[0], "right": rng.randint(0, 1)}
                position = moving if rng.random() < 0.6 else rng.randrange(self.array)
                entry = {"ref": {"op": "aa", "exp": "queue", "index": position}, "value": self._number(1)}
            elif self.transient:
                if ("moment", index) in used:
                    continue
                used.add(("moment", index))
                entry = {"ref": "moment", "value": self._number(1)}
            else:
                continue
            if index:
                entry["index"] = index
            found.append(entry)
        return found

    def _number(self, depth: int) -> Any:
        rng = self.rng
        if depth == 0 or rng.random() < 0.3:
            leaves: list[Any] = [name for name, _, _ in self.integers] + [rng.randint(-2, 3)]
            if self.array:
                leaves.append({"op": "aa", "exp": "queue", "index": rng.randrange(self.array)})
            if getattr(self, "transient", False) and rng.random() < 0.3:
                leaves.append("moment")
            return rng.choice(leaves)
        kind = rng.random()
        if kind < 0.65:
            operator = rng.choice(["+", "+", "-", "*", "min", "max", "%"])
            return {"op": operator, "left": self._number(depth - 1), "right": self._number(depth - 1)}
        if kind < 0.75:
            return {
                "op": "ite",
                "if": self._condition(1),
                "then": self._number(depth - 1),
                "else": self._number(depth - 1),
            }
        if kind < 0.85:
            quotient = {"op": "/", "left": self._number(depth - 1), "right": self._number(depth - 1)}
            return {"op": rng.choice(["floor", "ceil", "trc"]), "exp": quotient}
        if kind < 0.95 and self.array:
            return {"op": "aa", "exp": "queue", "index": self._number(depth - 1)}
        return {"op": rng.choice(["abs", "sgn"]), "exp": self._number(depth - 1)}

    def _condition(self, depth: int) -> Any:
        rng = self.rng
        if self.booleans and rng.random() < 0.15:
            return "flag"
        if depth > 0 and rng.random() < 0.4:
            operator = rng.choice(["∧", "∨", "⇒"])
            return {"op": operator, "left": self._condition(depth - 1), "right": self._condition(depth - 1)}
        if depth > 0 and rng.random() < 0.15:
            return {"op": "¬", "exp": self._condition(depth - 1)}
        if rng.random() < 0.1:
            # Real arithmetic that integers decide.
            scaled = {"op": "*", "left": 0.25, "right": self._number(0)}
            return {
                "op": rng.choice(["<", "≤", "="]),
                "left": scaled,
                "right": {"op": "/", "left": self._number(0), "right": 3},
            }
        operator = rng.choice(["<", "≤", ">", "≥", "=", "≠"])
        return {"op": operator, "left": self._number(1), "right": self._number(0)}

    def _property(self) -> dict[str, Any]:
        """Unsafe states at the edge of domains, so that some paths to them are long."""
        rng = self.rng
        name, lower, upper = rng.choice(self.integers)
        unsafe: Any = {"op": "=", "left": name, "right": rng.choice([lower, upper])}
        if rng.random() < 0.6:
            other, low, high = rng.choice(self.integers)
            second = {"op": "=", "left": other, "right": rng.choice([low, high])}
            unsafe = {"op": "∧", "left": unsafe, "right": second}
        expression: dict[str, Any] = {"op": "PA", "reach": {"op": "state-condition", "exp": unsafe}}
        if rng.random() < 0.5:
            first, low, _ = self.integers[0]
            start: Any = {"op": rng.choice(["≤", "="]), "left": first, "right": low + 1}
            if rng.random() < 0.4:
                start = {"op": "∧", "left": start, "right": self._safe_condition()}
            start = {"op": "∧", "left": start, "right": {"op": "¬", "exp": unsafe}}
            expression["start"] = {"op": "state-condition", "exp": start}
        return {"name": "question", "expression": expression}

    def _safe_condition(self) -> Any:
        name, lower, upper = self.rng.choice(self.integers)
        return {"op": "≤", "left": name, "right": self.rng.randint(lower, upper)}


def _bounded(lower: int, upper: int) -> dict[str, Any]:
    return {"kind": "bounded", "base": "int", "lower-bound": lower, "upper-bound": upper}
