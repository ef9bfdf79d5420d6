"""What is wrong with a file is said with its place, and what is unsupported is said all at once."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from policyproof.api import verify
from policyproof.model.jani.model import ModelReader
from policyproof.model.jani.properties import read_property_entries
from policyproof.model.json_text import Document
from policyproof.model.properties import Property, SafetyProperty
from policyproof.model.source import LoadedModel, load_model
from policyproof.run.errors import InvalidInput, UnsupportedFeature

Json = Any
Step = str | int


def bounded(lower: Json, upper: Json) -> Json:
    return {"kind": "bounded", "base": "int", "lower-bound": lower, "upper-bound": upper}


def op(operator: str, left: Json, right: Json) -> Json:
    return {"op": operator, "left": left, "right": right}


def small() -> Json:
    """A model without an error."""
    return {
        "jani-version": 1,
        "name": "small",
        "type": "mdp",
        "features": ["arrays", "functions", "derived-operators"],
        "actions": [{"name": "go"}, {"name": "stay"}],
        "constants": [{"name": "N", "type": "int"}, {"name": "p", "type": "real", "value": 0.5}],
        "functions": [
            {
                "name": "twice",
                "type": "int",
                "parameters": [{"name": "of", "type": "int"}],
                "body": op("*", 2, "of"),
            }
        ],
        "variables": [
            {"name": "x", "type": bounded(0, "N"), "initial-value": 0},
            {"name": "flag", "type": "bool", "initial-value": False},
            {"name": "h", "type": {"kind": "bounded", "base": "real", "lower-bound": 0}, "initial-value": 0.25},
            {
                "name": "queue",
                "type": {"kind": "array", "base": bounded(0, 3)},
                "initial-value": {"op": "av", "elements": [0, 1, 2]},
            },
            {"name": "moment", "type": "int", "transient": True, "initial-value": 0},
        ],
        "restrict-initial": {"exp": True},
        "automata": [
            {
                "name": "car",
                "variables": [{"name": "own", "type": bounded(0, 1), "initial-value": 0}],
                "locations": [
                    {"name": "road", "transient-values": [{"ref": "moment", "value": 1}]},
                    {"name": "ditch"},
                ],
                "initial-locations": ["road"],
                "restrict-initial": {"exp": {"op": "¬", "exp": "flag"}},
                "edges": [
                    {
                        "location": "road",
                        "action": "go",
                        "guard": {"exp": op("<", "x", {"op": "call", "function": "twice", "args": [2]})},
                        "destinations": [
                            {
                                "location": "road",
                                "probability": {"exp": "p"},
                                "assignments": [
                                    {"ref": "x", "value": op("+", "x", 1)},
                                    {"ref": {"op": "aa", "exp": "queue", "index": "x"}, "value": 0, "index": 1},
                                    {"ref": "own", "lower-bound": 0, "upper-bound": 1},
                                ],
                            },
                            {"location": "ditch", "probability": {"exp": op("-", 1, "p")}},
                        ],
                    },
                    {"location": "ditch", "action": "stay", "destinations": [{"location": "ditch"}]},
                ],
            }
        ],
        "system": {
            "elements": [{"automaton": "car", "input-enable": ["stay"]}],
            "syncs": [{"synchronise": ["go"], "result": "go"}, {"synchronise": ["stay"]}],
        },
        "properties": [
            {
                "name": "safe",
                "expression": {
                    "op": "PA",
                    "start": {
                        "op": "state-condition",
                        "exp": op("≤", "x", 1),
                        "locations": [{"automaton": "car", "location": "road"}],
                    },
                    "reach": {"op": "state-condition", "exp": op("=", "x", 4)},
                    "objective": {"goal": {"op": "state-condition", "exp": op("=", "x", 3)}, "goal-reward": 1},
                    "predicates": [op("<", "x", 2)],
                },
            },
            {
                "name": "probability",
                "expression": {
                    "op": "filter",
                    "fun": "max",
                    "states": {"op": "initial"},
                    "values": {
                        "op": "Pmax",
                        "exp": {
                            "op": "U",
                            "left": True,
                            "right": op("=", "x", 2),
                            "step-bounds": {"upper": 7, "upper-exclusive": True},
                            "reward-bounds": [{"exp": 1, "accumulate": ["steps"], "bounds": {"upper": 3}}],
                        },
                    },
                },
            },
            {
                "name": "always",
                "expression": {
                    "op": "filter",
                    "fun": "∀",
                    "states": {"op": "initial"},
                    "values": op(
                        "∧",
                        {"op": "∀", "exp": {"op": "G", "exp": {"op": "¬", "exp": {"op": "deadlock"}}}},
                        op("≤", {"op": "Pmin", "exp": {"op": "F", "exp": "flag"}}, 0.5),
                    ),
                },
            },
            {
                "name": "expected",
                "expression": {
                    "op": "filter",
                    "fun": "min",
                    "states": {"op": "initial"},
                    "values": {"op": "Emin", "exp": 1, "accumulate": ["steps"], "reach": "flag"},
                },
            },
        ],
    }


def changed(*changes: tuple[list[Step], Json]) -> Json:
    """The small model with other values at some places."""
    root = small()
    for steps, value in changes:
        owner = root
        for step in steps[:-1]:
            owner = owner[step]
        last = steps[-1]
        if isinstance(owner, list) and last == len(owner):
            owner.append(value)
        else:
            owner[last] = value
    return root


def without(*steps: Step) -> Json:
    root = small()
    owner = root
    for step in steps[:-1]:
        owner = owner[step]
    del owner[steps[-1]]
    return root


def load(folder: Path, root: Json, extra: Json = None, **constants: Any) -> LoadedModel:
    path = folder / "small.jani"
    path.write_text(json.dumps(root, ensure_ascii=False), encoding="utf-8")
    properties = None
    if extra is not None:
        properties = folder / "extra.jani"
        properties.write_text(json.dumps(extra, ensure_ascii=False), encoding="utf-8")
    return load_model(path, constants={"N": 5} | constants, properties=properties)


def refused(folder: Path, root: Json, **constants: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        load(folder, root, **constants)
    return without_folder(folder, str(caught.value))


def without_folder(folder: Path, message: str) -> str:
    return message.replace(f"{folder}/", "")


CAR: list[Step] = ["automata", 0]
EDGE: list[Step] = [*CAR, "edges", 0]
DESTINATION: list[Step] = [*EDGE, "destinations", 0]
ASSIGNMENT: list[Step] = [*DESTINATION, "assignments", 0]
GUARD: list[Step] = [*EDGE, "guard", "exp"]


def test_the_small_model_itself_has_no_error(tmp_path: Path) -> None:
    loaded = load(tmp_path, small())
    assert [loaded.property(name).name for name in loaded.property_names] == [
        "safe",
        "probability",
        "always",
        "expected",
    ]


# Malformed files


def test_a_truncated_file_is_refused_with_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "small.jani"
    text = json.dumps(small(), indent=1)
    path.write_text(text[: len(text) // 2])
    with pytest.raises(InvalidInput, match=r"small\.jani, line \d+, column \d+: not valid JSON"):
        load_model(path)


def test_a_file_that_does_not_exist_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"absent\.jani: no such file"):
        load_model(tmp_path / "absent.jani")


@pytest.mark.parametrize("root", [[], 3, "text", None])
def test_a_file_that_holds_no_object_is_no_model(tmp_path: Path, root: Json) -> None:
    assert refused(tmp_path, root) == "small.jani: expected a JSON object (a JANI model)"


def test_a_properties_file_given_as_the_model_is_recognised(tmp_path: Path) -> None:
    message = refused(tmp_path, {"properties": []})
    assert message.startswith("small.jani: $: not a JANI model: the entry 'automata' is missing")
    assert "--properties" in message


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["type"], 3, "$.type: expected a string, found an integer"),
        (["features"], {}, "$.features: expected an array, found an object"),
        (["actions"], "go", "$.actions: expected an array, found a string"),
        (["actions", 0], "go", "$.actions[0]: expected an object, found a string"),
        (["actions", 0, "name"], True, "$.actions[0].name: expected a string, found true or false"),
        (["variables", 0], [], "$.variables[0]: expected an object, found an array"),
        (["variables", 0, "type"], 7, "$.variables[0].type: expected an object, found an integer"),
        (["variables", 4, "transient"], 1, "$.variables[4].transient: expected true or false, found an integer"),
        (["automata"], {}, "$.automata: expected an array, found an object"),
        ([*CAR, "locations"], None, "$.automata[0].locations: expected an array, found null"),
        ([*CAR, "edges", 0], 0.5, "$.automata[0].edges[0]: expected an object, found a number"),
        ([*EDGE, "guard"], True, "$.automata[0].edges[0].guard: expected an object, found true or false"),
        ([*DESTINATION, "assignments"], {}, "$.automata[0].edges[0].destinations[0].assignments: expected an array"),
        ([*ASSIGNMENT, "index"], True, "assignments[0].index: expected an integer, found true or false"),
        (["system"], [], "$.system: expected an object, found an array"),
        (["system", "syncs", 0, "synchronise"], "go", "$.system.syncs[0].synchronise: expected an array"),
        (GUARD, None, "$.automata[0].edges[0].guard.exp: expected an expression"),
        (GUARD, [], "$.automata[0].edges[0].guard.exp: expected an expression"),
        ([*GUARD, "op"], 5, "$.automata[0].edges[0].guard.exp.op: expected a string, found an integer"),
        (["features", 0], {"a": 1}, "$.features[0]: expected a string, found an object"),
        (GUARD, {"constant": []}, "$.automata[0].edges[0].guard.exp.constant: unknown constant"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_path(
    tmp_path: Path, place: list[Step], value: Json, message: str
) -> None:
    found = refused(tmp_path, changed((place, value)))
    assert found.startswith("small.jani: $")
    assert message in found


@pytest.mark.parametrize(
    ("place", "where"),
    [
        (["name"], "$"),
        (["type"], "$"),
        (["system"], "$"),
        (["actions", 0, "name"], "$.actions[0]"),
        (["constants", 0, "name"], "$.constants[0]"),
        (["constants", 0, "type"], "$.constants[0]"),
        (["functions", 0, "body"], "$.functions[0]"),
        (["functions", 0, "type"], "$.functions[0]"),
        (["functions", 0, "parameters", 0, "name"], "$.functions[0].parameters[0]"),
        (["variables", 0, "name"], "$.variables[0]"),
        (["variables", 0, "type"], "$.variables[0]"),
        (["variables", 0, "type", "base"], "$.variables[0].type"),
        (["variables", 0, "type", "kind"], "$.variables[0].type"),
        (["variables", 3, "type", "base"], "$.variables[3].type"),
        (["restrict-initial", "exp"], "$.restrict-initial"),
        ([*CAR, "name"], "$.automata[0]"),
        ([*CAR, "locations"], "$.automata[0]"),
        ([*CAR, "initial-locations"], "$.automata[0]"),
        ([*CAR, "edges"], "$.automata[0]"),
        ([*CAR, "restrict-initial", "exp"], "$.automata[0].restrict-initial"),
        ([*CAR, "locations", 0, "name"], "$.automata[0].locations[0]"),
        ([*CAR, "locations", 0, "transient-values", 0, "ref"], "$.automata[0].locations[0].transient-values[0]"),
        ([*CAR, "locations", 0, "transient-values", 0, "value"], "$.automata[0].locations[0].transient-values[0]"),
        ([*EDGE, "location"], "$.automata[0].edges[0]"),
        ([*EDGE, "destinations"], "$.automata[0].edges[0]"),
        ([*EDGE, "guard", "exp"], "$.automata[0].edges[0].guard"),
        ([*GUARD, "op"], "$.automata[0].edges[0].guard.exp"),
        ([*GUARD, "right", "function"], "$.automata[0].edges[0].guard.exp.right"),
        ([*GUARD, "right", "args"], "$.automata[0].edges[0].guard.exp.right"),
        ([*DESTINATION, "location"], "$.automata[0].edges[0].destinations[0]"),
        ([*DESTINATION, "probability", "exp"], "$.automata[0].edges[0].destinations[0].probability"),
        ([*ASSIGNMENT, "ref"], "$.automata[0].edges[0].destinations[0].assignments[0]"),
        ([*ASSIGNMENT, "value"], "$.automata[0].edges[0].destinations[0].assignments[0]"),
        (["system", "elements"], "$.system"),
        (["system", "elements", 0, "automaton"], "$.system.elements[0]"),
        (["system", "syncs", 0, "synchronise"], "$.system.syncs[0]"),
    ],
)
def test_a_missing_entry_is_named_with_the_path_of_its_owner(tmp_path: Path, place: list[Step], where: str) -> None:
    assert refused(tmp_path, without(*place)) == f"small.jani: {where}: the entry {place[-1]!r} is missing"


@pytest.mark.parametrize("key", ["left", "right"])
def test_an_operator_without_its_argument_is_refused(tmp_path: Path, key: str) -> None:
    message = refused(tmp_path, without(*GUARD, key))
    assert message == f"small.jani: $.automata[0].edges[0].guard.exp: operator '<' needs the entry {key!r}"


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (GUARD, op("<", "nope", 1), "guard.exp.left: unknown variable or constant 'nope'"),
        ([*EDGE, "action"], "fly", "$.automata[0].edges[0].action: unknown action 'fly' (there are: go, stay)"),
        ([*EDGE, "action"], 5, "$.automata[0].edges[0].action: unknown action 5 (there are: go, stay)"),
        (["system", "syncs", 0, "result"], "fly", "$.system.syncs[0].result: unknown action 'fly'"),
        (["system", "syncs", 0, "synchronise"], ["fly"], "$.system.syncs[0].synchronise[0]: unknown action 'fly'"),
        (["system", "elements", 0, "input-enable"], ["fly"], "input-enable[0]: unknown action 'fly'"),
        (
            [*EDGE, "location"],
            "sky",
            "$.automata[0].edges[0].location: unknown location 'sky' (there are: road, ditch)",
        ),
        ([*DESTINATION, "location"], "sky", "destinations[0].location: unknown location 'sky'"),
        ([*CAR, "initial-locations"], ["sky"], "$.automata[0].initial-locations[0]: unknown location 'sky'"),
        (
            ["system", "elements", 0, "automaton"],
            "bus",
            "elements[0].automaton: unknown automaton 'bus' (there are: car)",
        ),
        ([*GUARD, "right", "function"], "thrice", "guard.exp.right.function: unknown function 'thrice'"),
        ([*GUARD, "right", "args"], [1, 2], "right.args: function 'twice' takes 1 arguments, found 2"),
        ([*GUARD, "right", "args"], [True], "right.args[0]: function 'twice' expects int here, found bool"),
        ([*ASSIGNMENT, "ref"], "nope", "assignments[0].ref: unknown variable or constant 'nope'"),
        ([*ASSIGNMENT, "ref"], "N", "assignments[0].ref: 'N' is no variable"),
        ([*ASSIGNMENT, "ref"], 5, "assignments[0].ref: 5 is no variable"),
        (["type"], "petri", "$.type: unknown model type 'petri' (there are: lts, dtmc, mdp)"),
        (["variables", 1, "type"], "byte", "$.variables[1].type: unknown type 'byte' (there are: bool, int, real)"),
        (["variables", 0, "type", "base"], "bool", "type.base: unknown base type 'bool' (there are: int, real)"),
        (GUARD, {"constant": "tau"}, "guard.exp.constant: unknown constant 'tau' (there are: e, π)"),
    ],
)
def test_an_unknown_name_is_refused_with_what_there_is(
    tmp_path: Path, place: list[Step], value: Json, message: str
) -> None:
    assert message in refused(tmp_path, changed((place, value)))


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ([*ASSIGNMENT, "value"], True, "assignments[0].value: a variable of type int cannot take a value of type bool"),
        ([*ASSIGNMENT, "value"], 0.5, "assignments[0].value: a variable of type int cannot take a value of type real"),
        (ASSIGNMENT, {"ref": "flag", "value": 1}, "value: a variable of type bool cannot take a value of type int"),
        (
            ASSIGNMENT,
            {"ref": {"op": "aa", "exp": "queue", "index": "x"}, "value": "flag"},
            "assignments[0].value: a variable of type int cannot take a value of type bool",
        ),
        (
            ASSIGNMENT,
            {"ref": "x", "lower-bound": 0, "upper-bound": "h"},
            "assignments[0].upper-bound: a variable of type int cannot take a value of type real",
        ),
        (
            [*CAR, "locations", 0, "transient-values", 0, "value"],
            True,
            "transient-values[0].value: a variable of type int cannot take a value of type bool",
        ),
        (
            [*CAR, "locations", 0, "transient-values", 0],
            {"ref": "x", "value": 1},
            "transient-values[0].ref: expected a transient variable",
        ),
        (GUARD, "x", "guard.exp: expected a condition, found an expression of type int"),
        (GUARD, op("+", "flag", 1), "guard.exp: operator '+' takes int or real arguments, found bool"),
        (GUARD, op("=", "flag", 1), "guard.exp: operator '=' cannot compare bool with int"),
        (GUARD, op("%", "h", 2), "guard.exp: operator '%' takes int arguments, found real"),
        (GUARD, "queue", "guard.exp: an array stands where a number or a truth value is needed"),
        (GUARD, {"op": "aa", "exp": "x", "index": 0}, "guard.exp.exp: expected an array"),
        (GUARD, op("^", op("pow", 10, 9999999), 1), "unsupported"),
        (GUARD, op("<", op("pow", 10, 9999999), 1), "guard.exp.left: the power (10) ^ (9999999) has more than"),
        ([*DESTINATION, "probability", "exp"], True, "probability.exp: a probability is a number"),
        (["functions", 0, "body"], True, "$.functions[0].body: expected a value of type int, found bool"),
        (["functions", 0, "body"], op("/", "of", 2), "$.functions[0].body: expected a value of type int, found real"),
        (["restrict-initial", "exp"], 1, "$.restrict-initial.exp: expected a condition"),
        (
            ASSIGNMENT,
            {"ref": "x", "value": 1, "lower-bound": 0, "upper-bound": 1},
            "assignments[0]: a value and bounds exclude each other",
        ),
    ],
)
def test_an_expression_of_the_wrong_type_is_refused(
    tmp_path: Path, place: list[Step], value: Json, message: str
) -> None:
    if message == "unsupported":
        with pytest.raises(UnsupportedFeature, match="operator '\\^'"):
            load(tmp_path, changed((place, value)))
        return
    assert message in refused(tmp_path, changed((place, value)))


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (
            ["variables", 0, "initial-value"],
            6,
            "$.variables[0].initial-value: the value 6 is outside the domain int [0, 5]",
        ),
        (["variables", 0, "initial-value"], -1, "the value -1 is outside the domain int [0, 5]"),
        (["variables", 0, "initial-value"], True, "expected a value of type int, found bool"),
        (["variables", 0, "initial-value"], 0.0, "expected a value of type int, found real"),
        (["variables", 0, "initial-value"], "flag", "unknown variable or constant 'flag'"),
        (["variables", 1, "initial-value"], "x", "$.variables[1].initial-value: expected a constant, found x"),
        (["variables", 2, "initial-value"], -0.5, "the value -1/2 is outside the domain real [0, ∞]"),
        (["variables", 3, "initial-value", "elements"], [0, 4], "$.variables[3].initial-value: the value 4 is outside"),
        (["variables", 3, "initial-value"], 0, "$.variables[3].initial-value: expected an array"),
        (["variables", 0, "type"], bounded(3, 2), "$.variables[0].type: the lower bound 3 is above the upper bound 2"),
        (["variables", 0, "type"], bounded(0, 2.5), "type.upper-bound: the bound of a bounded int cannot be 5/2"),
        (["variables", 0, "type"], bounded(0, True), "type.upper-bound: the bound of a bounded int cannot be True"),
        (["variables", 1, "type"], bounded(0, "x"), "type.upper-bound: expected a constant, found x"),
        (["constants", 1, "value"], True, "$.constants[1].value: expected a value of type real, found bool"),
        (
            ["constants", 1],
            {"name": "p", "type": bounded(0, 3), "value": 9},
            "$.constants[1].value: the value 9 is outside",
        ),
    ],
)
def test_a_value_outside_its_domain_is_refused(tmp_path: Path, place: list[Step], value: Json, message: str) -> None:
    assert message in refused(tmp_path, changed((place, value)))


# Constants from outside


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"N": "many"}, "constant N: expected a number, found 'many'"),
        ({"N": "1.5"}, "constant N: the value 1.5 is outside the domain int [-∞, ∞]"),
        ({"N": True}, "constant N: the value True is outside the domain"),
        ({"N": float("nan")}, "constant N: expected a number, found nan"),
        ({"N": float("inf")}, "constant N: expected a number, found inf"),
        ({"N": "1/0"}, "constant N: expected a number, found '1/0'"),
        ({"N": "9" * 101}, "constant N: a number of more than 100 characters"),
        ({"N": "1e999999999"}, "constant N: expected a number, found '1e999999999'"),
        ({"p": "true"}, "constant p: expected a number, found 'true'"),
        ({"p": "1e-999999999"}, "constant p: expected a number"),
        ({"M": "1"}, "there is no constant 'M' to give a value to (there are: N, p)"),
    ],
)
def test_a_constant_given_from_outside_must_be_known_and_fit(
    tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    started = time.process_time()
    assert message in refused(tmp_path, small(), **given)
    assert time.process_time() - started < 2


def test_a_given_constant_outside_its_bounded_domain_is_refused(tmp_path: Path) -> None:
    root = changed((["constants", 0, "type"], bounded(1, 9)))
    assert refused(tmp_path, root, N="10") == "constant N: the value 10 is outside the domain int [1, 9]"


def test_a_boolean_constant_takes_true_and_false_alone(tmp_path: Path) -> None:
    root = changed((["constants", 2], {"name": "on", "type": "bool"}))
    assert load(tmp_path, root, on="true").model.constants["on"] is True
    assert refused(tmp_path, root, on="1") == "constant on: expected true or false, found '1'"


def test_all_missing_constants_are_named_in_one_message(tmp_path: Path) -> None:
    root = changed(
        (["constants", 2], {"name": "K", "type": "int"}),
        (["constants", 3], {"name": "limit", "type": bounded(0, "K"), "value": 3}),
        (["constants", 4], {"name": "sum", "type": "int", "value": op("+", "N", "L")}),
        (["constants", 4], {"name": "L", "type": "int"}),
        (["constants", 5], {"name": "sum", "type": "int", "value": op("+", "N", "L")}),
        (["constants", 6], {"name": "only in a property", "type": "int"}),
        (["properties", 0, "expression", "reach", "exp"], op("=", "x", "only in a property")),
        (GUARD, op("<", "x", "sum")),
    )
    path = tmp_path / "small.jani"
    path.write_text(json.dumps(root))
    with pytest.raises(InvalidInput) as caught:
        load_model(path)
    message = str(caught.value)
    assert "constants without a value: K, L, N, only in a property (give each with --const" in message


def test_a_constant_that_has_a_value_is_not_said_to_lack_one(tmp_path: Path) -> None:
    root = changed((["constants", 1], {"name": "p", "type": bounded(0, "N"), "value": 1}))
    path = tmp_path / "small.jani"
    path.write_text(json.dumps(root))
    with pytest.raises(InvalidInput, match=r"constants without a value: N \(give"):
        load_model(path)


def test_a_missing_constant_is_named_even_if_it_is_the_length_of_an_array(tmp_path: Path) -> None:
    initial = {"op": "ac", "var": "i", "length": "N", "exp": 0}
    root = changed(
        (["variables", 3, "initial-value"], initial),
        (GUARD, op("<", {"op": "aa", "exp": "queue", "index": 0}, 1)),
    )
    path = tmp_path / "small.jani"
    path.write_text(json.dumps(root))
    with pytest.raises(InvalidInput, match=r"constants without a value: N \(give"):
        load_model(path)


def test_a_constant_that_nothing_uses_needs_no_value(tmp_path: Path) -> None:
    loaded = load(tmp_path, changed((["constants", 2], {"name": "unused", "type": "int"})))
    assert "unused" not in loaded.model.constants


# Probabilities


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (0.5, 0.4, "the probabilities add up to 0.9, not to 1"),
        (0.75, 0.75, "the probabilities add up to 1.5, not to 1"),
        (-0.5, 1.5, "-1/2 is no probability"),
        (1.5, -0.5, "3/2 is no probability"),
        (0, 0, "the probabilities add up to 0, not to 1"),
        ("p", "p", None),
        (0.9999999, 0, None),
        (op("/", 1, 3), op("/", 2, 3), None),
    ],
)
def test_constant_probabilities_must_be_probabilities(
    tmp_path: Path, first: Json, second: Json, message: str | None
) -> None:
    root = changed(
        ([*DESTINATION, "probability", "exp"], first),
        ([*EDGE, "destinations", 1, "probability", "exp"], second),
    )
    if message is None:
        assert load(tmp_path, root).model.automata[0].edges[0].destinations[0].probability is not None
    else:
        assert refused(tmp_path, root) == f"small.jani: $.automata[0].edges[0].destinations: {message}"


def test_two_destinations_without_probability_are_refused(tmp_path: Path) -> None:
    root = small()
    for destination in root["automata"][0]["edges"][0]["destinations"]:
        del destination["probability"]
    assert "the probabilities add up to 2, not to 1" in refused(tmp_path, root)


# Structure


@pytest.mark.parametrize("actions", [[], ["go", "stay"], ["go", None, None]])
def test_a_synchronisation_needs_one_entry_per_automaton(tmp_path: Path, actions: Json) -> None:
    message = refused(tmp_path, changed((["system", "syncs", 0, "synchronise"], actions)))
    expected = f"expected 1 entries (one per automaton), found {len(actions)}"
    assert message == f"small.jani: $.system.syncs[0].synchronise: {expected}"


def test_a_synchronisation_of_nobody_is_refused(tmp_path: Path) -> None:
    message = refused(tmp_path, changed((["system", "syncs", 0, "synchronise"], [None])))
    assert message == "small.jani: $.system.syncs[0].synchronise: no automaton takes part"


@pytest.mark.parametrize(
    ("place", "value", "where", "name"),
    [
        (["actions", 2], {"name": "go"}, "$.actions[2].name", "the action 'go'"),
        (["constants", 2], {"name": "N", "type": "int"}, "$.constants[2].name", "'N'"),
        (["variables", 5], {"name": "x", "type": "int"}, "$.variables[5].name", "'x'"),
        (["variables", 5], {"name": "N", "type": "int"}, "$.variables[5].name", "'N'"),
        (["variables", 5], {"name": "queue", "type": "int"}, "$.variables[5].name", "'queue'"),
        (["variables", 5], {"name": "queue[1]", "type": "int"}, "$.variables[5].name", "'queue[1]'"),
        (["variables", 0, "name"], "queue[1]", "$.variables[3].name", "'queue[1]'"),
        ([*CAR, "variables", 1], {"name": "own", "type": "int"}, "$.automata[0].variables[1].name", "'own'"),
        ([*CAR, "locations", 2], {"name": "road"}, "$.automata[0].locations[2].name", "the location 'road'"),
        (["functions", 1], small()["functions"][0], "$.functions[1].name", "the function 'twice'"),
        (
            ["functions", 0, "parameters", 1],
            {"name": "of", "type": "int"},
            "$.functions[0].parameters[1].name",
            "the parameter 'of'",
        ),
        (["automata", 1], small()["automata"][0], "$.automata[1].name", "the automaton 'car'"),
    ],
)
def test_what_is_declared_twice_is_refused_at_its_second_place(
    tmp_path: Path, place: list[Step], value: Json, where: str, name: str
) -> None:
    root = changed((place, value))
    if place == ["variables", 0, "name"]:
        # The other references to the variable are not of interest here.
        root = json.loads(json.dumps(root).replace('"x"', '"queue[1]"'))
    assert refused(tmp_path, root) == f"small.jani: {where}: {name} is declared twice"


@pytest.mark.parametrize("name", ["@car", "#twice#of"])
def test_names_that_stand_for_locations_and_parameters_cannot_be_declared(tmp_path: Path, name: str) -> None:
    declared: list[list[Step]] = [["variables", 5], [*CAR, "variables", 1]]
    for place in declared:
        with pytest.raises(UnsupportedFeature, match=f"the name '{name}'"):
            load(tmp_path, changed((place, {"name": name, "type": bounded(0, 7), "initial-value": 0})))


@pytest.mark.parametrize("index", [3, -1, 100])
def test_an_assignment_outside_an_array_is_refused(tmp_path: Path, index: int) -> None:
    target = {"op": "aa", "exp": "queue", "index": index}
    message = refused(tmp_path, changed(([*ASSIGNMENT, "ref"], target)))
    where = "$.automata[0].edges[0].destinations[0].assignments[0].ref.index"
    assert message == f"small.jani: {where}: index {index} is outside the array of 3 elements"


def test_an_assignment_to_an_array_at_a_broken_index_is_refused(tmp_path: Path) -> None:
    target = {"op": "aa", "exp": "queue", "index": "h"}
    assert "ref.index: expected an integer, found real" in refused(tmp_path, changed(([*ASSIGNMENT, "ref"], target)))


def test_a_transient_variable_needs_an_initial_value(tmp_path: Path) -> None:
    message = refused(tmp_path, without("variables", 4, "initial-value"))
    assert message == "small.jani: $.variables[4]: the transient variable 'moment' needs an initial-value"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ([*CAR, "initial-locations"], "an automaton needs an initial location"),
        ([*EDGE, "destinations"], "an edge needs at least one destination"),
        (["system", "elements"], "a system needs at least one automaton"),
    ],
)
def test_lists_that_must_not_be_empty(tmp_path: Path, place: list[Step], message: str) -> None:
    found = refused(tmp_path, changed((place, [])))
    assert found.endswith(message)
    assert str(place[-1]) in found


def test_a_variable_assigned_twice_at_once_is_refused(tmp_path: Path) -> None:
    assignments = [{"ref": "x", "value": 0}, {"ref": "x", "value": 1}]
    loaded = load(tmp_path, changed(([*DESTINATION, "assignments"], assignments)))
    with pytest.raises(InvalidInput, match=r"'x' is assigned twice at once"):
        verify(loaded, None, "A[] x < 3")


# Unsupported features


@pytest.mark.parametrize("kind", ["ctmc", "ctmdp", "ma", "ta", "pta", "sta", "ha", "pha", "sha"])
def test_a_model_type_that_is_known_but_unsupported_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        load(tmp_path, changed((["type"], kind)))
    (feature,) = caught.value.features
    assert feature.where == f"{tmp_path}/small.jani: $.type"
    assert feature.what == f"models of type {kind!r} (supported: lts, dtmc, mdp)"


def test_all_unsupported_features_of_a_file_are_listed_at_once(tmp_path: Path) -> None:
    array = {"kind": "array", "base": {"kind": "array", "base": "int"}}
    calls_itself = {
        "name": "again",
        "type": "int",
        "parameters": [],
        "body": {"op": "call", "function": "again", "args": []},
    }
    root = changed(
        (["type"], "sta"),
        (["features", 3], "datatypes"),
        (["features", 4], "option-types"),
        (["datatypes"], [{"name": "pair", "members": []}]),
        (["functions", 1], calls_itself),
        (["variables", 5], {"name": "clock", "type": "clock"}),
        (["variables", 6], {"name": "flow", "type": "continuous"}),
        (["variables", 7], {"name": "matrix", "type": array, "initial-value": 0}),
        (["variables", 8], {"name": "pair", "type": {"kind": "datatype", "ref": "pair"}}),
        (["variables", 9], {"name": "open", "type": {"kind": "array", "base": "int"}}),
        (
            ["variables", 10],
            {
                "name": "hidden matrix",
                "type": {"kind": "array", "base": "int"},
                "initial-value": {"op": "av", "elements": [{"op": "av", "elements": [1]}]},
            },
        ),
        ([*CAR, "locations", 1, "time-progress"], {"exp": op("≤", "clock", 3)}),
        ([*CAR, "functions"], [calls_itself]),
        ([*EDGE, "rate"], {"exp": 3}),
        (GUARD, op("∧", op("xor", "flag", "flag"), op("=", {"op": "der", "var": "flow"}, 1))),
        ([*ASSIGNMENT, "value"], "queue"),
        ([*DESTINATION, "assignments", 1, "ref"], "queue"),
        ([*EDGE, "colour"], "red"),
    )
    with pytest.raises(UnsupportedFeature) as caught:
        load(tmp_path, root)
    found = {without_folder(tmp_path, str(feature)).removeprefix("small.jani: ") for feature in caught.value.features}
    edge = "$.automata[0].edges[0]"
    expected = {
        "$.type: models of type 'sta' (supported: lts, dtmc, mdp)",
        "$.features[3]: the JANI feature 'datatypes'",
        "$.features[4]: the JANI feature 'option-types'",
        "$.functions[1].name: the recursive function 'again'",
        "$.variables[5].type: variables of type 'clock'",
        "$.variables[6].type: variables of type 'continuous'",
        "$.variables[7].type: arrays of arrays",
        "$.variables[8].type: types of kind 'datatype' here",
        "$.variables[9]: the array 'open' without an initial value (its length is not known)",
        "$.variables[10].initial-value: arrays of arrays",
        "$.automata[0].locations[1].time-progress: invariants on the progress of time",
        "$.automata[0].functions: functions that are local to an automaton",
        f"{edge}.rate: rates (continuous-time models)",
        f"{edge}.guard.exp.left.op: operator 'xor'",
        f"{edge}.guard.exp.right.left.op: derivatives of continuous variables",
        f"{edge}.destinations[0].assignments[0].value: assignments of whole arrays",
        f"{edge}.destinations[0].assignments[1].ref: assignments to whole arrays",
    }
    keys = {item for item in found if "the key " in item}
    assert found - keys == expected
    assert {item.split(": ")[0] for item in keys} == {"$.datatypes", f"{edge}.colour"}
    message = str(caught.value)
    assert message.startswith(f"{len(expected) + 2} unsupported features:\n")
    assert all(line in without_folder(tmp_path, message) for line in expected)


def test_unsupported_features_go_before_missing_constants(tmp_path: Path) -> None:
    path = tmp_path / "small.jani"
    path.write_text(json.dumps(changed((["variables", 5], {"name": "clock", "type": "clock"}))))
    with pytest.raises(UnsupportedFeature):
        load_model(path)


@pytest.mark.parametrize("where", ["variable", "array", "constant"])
def test_a_function_called_in_a_declaration_is_not_silently_ignored(tmp_path: Path, where: str) -> None:
    call = {"op": "call", "function": "twice", "args": [1]}
    changes: dict[str, tuple[list[Step], Json]] = {
        "variable": (["variables", 0, "initial-value"], call),
        "array": (["variables", 3, "initial-value", "elements", 0], call),
        "constant": (["constants", 1], {"name": "p", "type": "real", "value": call}),
    }
    with pytest.raises(UnsupportedFeature, match="a call of the function 'twice' in a declaration"):
        load(tmp_path, changed(changes[where]))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_functions_that_call_each_other_in_a_circle_are_all_listed(tmp_path: Path, count: int) -> None:
    functions = [
        {
            "name": f"f{i}",
            "type": "int",
            "parameters": [],
            "body": op("+", 1, {"op": "call", "function": f"f{(i + 1) % count}", "args": []}),
        }
        for i in range(count)
    ]
    root = changed((["functions"], [*functions, small()["functions"][0]]))
    with pytest.raises(UnsupportedFeature) as caught:
        load(tmp_path, root)
    assert [feature.what for feature in caught.value.features] == [
        f"the recursive function 'f{i}'" for i in range(count)
    ]


# Properties


def refused_property(folder: Path, root: Json, name: str, extra: Json = None) -> str:
    loaded = load(folder, root, extra)
    messages = []
    for _ in range(2):
        with pytest.raises((InvalidInput, UnsupportedFeature)) as caught:
            loaded.property(name)
        messages.append(without_folder(folder, str(caught.value)))
    # Reading a broken property leaves nothing behind that changes the next reading.
    assert messages[0] == messages[1]
    return messages[0]


REACH: list[Step] = ["properties", 0, "expression", "reach"]
VALUES: list[Step] = ["properties", 1, "expression", "values"]


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ([*REACH, "exp"], "nope", "$.properties[0].expression.reach.exp: unknown variable or constant 'nope'"),
        ([*REACH, "exp"], "x", "reach.exp: expected a condition, found an expression of type int"),
        (
            [*REACH, "locations"],
            [{"automaton": "bus", "location": "road"}],
            "locations[0].automaton: unknown automaton 'bus'",
        ),
        (
            [*REACH, "locations"],
            [{"automaton": "car", "location": "sky"}],
            "locations[0].location: unknown location 'sky'",
        ),
        (["properties", 0, "expression", "predicates"], {}, "predicates: expected an array of conditions"),
        (["properties", 0, "expression", "predicates", 0], "x", "predicates[0]: expected a condition"),
        (["properties", 0, "expression"], "x", "$.properties[0].expression: expected an object, found a string"),
        (
            ["properties", 0, "expression", "reach"],
            {"label": "bad"},
            "reach.label: unknown label 'bad' (there are: none)",
        ),
    ],
)
def test_an_error_in_a_safety_property_is_refused_with_its_path(
    tmp_path: Path, place: list[Step], value: Json, message: str
) -> None:
    assert message in refused_property(tmp_path, changed((place, value)), "safe")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["exp", "step-bounds"], {"upper": 2.5}, "step-bounds.upper: expected a number of steps, found 5/2"),
        (["exp", "step-bounds"], {"upper": True}, "step-bounds.upper: expected a number of steps, found True"),
        (["exp", "step-bounds"], {"upper": -1}, "step-bounds: no step is from 0 to -1"),
        (["exp", "step-bounds"], {"upper": 0, "upper-exclusive": True}, "step-bounds: no step is from 0 to -1"),
        (["exp", "step-bounds"], {"lower": 5, "upper": 2}, "step-bounds: no step is from 5 to 2"),
        (["exp", "right"], "x", "exp.right: expected a condition"),
        (["exp"], 3, "values.exp: expected an object, found an integer"),
    ],
)
def test_an_error_in_a_formula_is_refused_with_its_path(
    tmp_path: Path, place: list[Step], value: Json, message: str
) -> None:
    found = refused_property(tmp_path, changed(([*VALUES, *place], value)), "probability")
    assert found.startswith("small.jani: $.properties[1].expression.values")
    assert message in found


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("safe", ["properties", 0, "expression"]),
        ("probability", ["properties", 1, "expression", "fun"]),
        ("probability", ["properties", 1, "expression", "values"]),
        ("probability", [*VALUES, "exp"]),
        ("probability", [*VALUES, "exp", "left"]),
        ("probability", [*VALUES, "exp", "right"]),
        ("probability", [*VALUES, "exp", "reward-bounds", 0, "exp"]),
        ("probability", [*VALUES, "exp", "reward-bounds", 0, "bounds"]),
        ("always", ["properties", 2, "expression", "values", "right", "right"]),
        ("always", ["properties", 2, "expression", "values", "left", "exp", "exp"]),
        ("expected", ["properties", 3, "expression", "values", "exp"]),
    ],
)
def test_a_missing_entry_of_a_property_is_named(tmp_path: Path, name: str, place: list[Step]) -> None:
    assert f"the entry {place[-1]!r} is missing" in refused_property(tmp_path, without(*place), name)


def test_all_unsupported_features_of_a_property_are_listed_at_once(tmp_path: Path) -> None:
    root = changed(
        (["properties", 1, "expression", "fun"], "avg"),
        (["properties", 1, "expression", "states"], {"op": "deadlock"}),
        ([*VALUES, "exp", "time-bounds"], {"upper": 3}),
        ([*VALUES, "exp", "left"], {"op": "xor", "left": "flag", "right": "flag"}),
        ([*VALUES, "exp", "right"], {"op": "Smax", "exp": "flag"}),
    )
    found = refused_property(tmp_path, root, "probability")
    assert found.startswith("5 unsupported features:")
    for what in (
        "expression.fun: the filter function 'avg'",
        "expression.states: filters over other states than the initial ones",
        "exp.time-bounds: bounds on time (continuous-time properties)",
        "exp.left.op: operator 'xor'",
        "exp.right.op: the property operator 'Smax'",
    ):
        assert what in found


def test_a_property_that_is_not_asked_for_need_not_be_readable(tmp_path: Path) -> None:
    loaded = load(tmp_path, changed((["properties", 1, "expression"], {"op": "nonsense"})))
    assert isinstance(loaded.property("safe"), SafetyProperty)


@pytest.mark.parametrize("item", [3, {}, {"name": 5}, None])
def test_a_property_needs_a_name(tmp_path: Path, item: Json) -> None:
    message = refused(tmp_path, changed((["properties", 1], item)))
    assert message == "small.jani: $.properties[1]: a property needs a name"


def test_a_name_that_no_property_has_is_refused_with_the_list(tmp_path: Path) -> None:
    loaded = load(tmp_path, small())
    with pytest.raises(InvalidInput) as caught:
        loaded.property("sav")
    assert str(caught.value) == "there is no property 'sav'; there are:\n  safe\n  probability\n  always\n  expected"


# Files of additional properties


def pa(**parts: Json) -> Json:
    expression = {"op": "PA", "reach": {"op": "state-condition", "exp": op("=", "x", 4)}, **parts}
    return {"properties": [{"name": "more", "expression": expression}]}


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ([], "extra.jani: $: expected an object with an array 'properties'"),
        ({"properties": {}}, "extra.jani: $: expected an object with an array 'properties'"),
        ({"properties": [], "automata": []}, "extra.jani: $: this is a model, not a file of additional properties"),
        ({"properties": [{}]}, "extra.jani: $.properties[0]: a property needs a name"),
        ({"properties": [], "labels": 3}, "extra.jani: $.labels: expected an array, found an integer"),
    ],
)
def test_a_file_that_holds_no_properties_is_refused(tmp_path: Path, extra: Json, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load(tmp_path, small(), extra)
    assert without_folder(tmp_path, str(caught.value)) == message


def test_a_properties_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    load(tmp_path, small())
    with pytest.raises(InvalidInput, match=r"absent\.json: no such file"):
        load_model(tmp_path / "small.jani", constants={"N": 5}, properties=tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.json", "absent.json: no such file"),
        ("/etc/start.json", "start.file: expected a relative path to a file (.jani, .json), found '/etc/start.json'"),
        ("start.txt", "start.file: expected a relative path to a file (.jani, .json), found 'start.txt'"),
        ("start", "start.file: expected a relative path to a file (.jani, .json), found 'start'"),
        ("null\0byte.json", "cannot be read"),
        (5, "start.file: expected a string, found an integer"),
    ],
)
def test_a_reference_names_an_existing_relative_file_of_a_known_kind(tmp_path: Path, name: Json, message: str) -> None:
    found = refused_property(tmp_path, small(), "more", pa(start={"file": name}))
    assert message in found


@pytest.mark.parametrize("name", ["/etc/passwd", "policy.exe", "policy"])
def test_a_policy_file_is_relative_and_of_a_known_kind(tmp_path: Path, name: str) -> None:
    found = refused_property(tmp_path, small(), "more", pa(file=name))
    assert found.startswith("extra.jani: $.properties[0].expression.file: expected a relative path")


def test_files_that_refer_to_each_other_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jani").write_text('{"file": "a.jani"}')
    (tmp_path / "b.json").write_text('{"file": "c.json"}')
    (tmp_path / "c.json").write_text('{"file": "b.json"}')
    for name in ("a.jani", "b.json"):
        found = refused_property(tmp_path, small(), "more", pa(start={"file": name}))
        assert "more than 20 references to other files" in found


def test_an_error_inside_a_referenced_file_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "start.json").write_text(json.dumps(op("<", "x", "nope")))
    found = refused_property(tmp_path, small(), "more", pa(start={"file": "start.json"}))
    assert "start.json: $.right: unknown variable or constant 'nope'" in found


def test_a_label_that_refers_to_itself_is_refused(tmp_path: Path) -> None:
    extra = pa(start={"label": "l"}) | {"labels": [{"name": "l", "value": {"label": "l"}}]}
    assert "more than 20 references" in refused_property(tmp_path, small(), "more", extra)


def test_an_unknown_label_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    extra = pa(start={"label": "begin"}) | {"labels": [{"name": "start", "value": True}, {"name": "end"}]}
    found = refused_property(tmp_path, small(), "more", extra)
    assert found.endswith("start.label: unknown label 'begin' (there are: start, end)")


STATE = {
    "variables": [
        {"var": "x", "value": 1},
        {"var": "flag", "value": True},
        {"var": "h", "value": 0.5},
        {"var": "queue", "value": {"op": "av", "elements": [0, 0, 3]}},
        {"var": "own", "value": 0},
    ],
    "locations": [{"automaton": "car", "location": "ditch"}],
}


def states_property(folder: Path, *states: Json) -> Property:
    root = small()
    # The list of states knows the names of the model, not those inside an automaton.
    root["variables"].append(root["automata"][0].pop("variables")[0])
    return load(folder, root, pa(start={"op": "states-values", "values": list(states)})).property("more")


def test_start_states_can_be_listed(tmp_path: Path) -> None:
    found = states_property(tmp_path, STATE)
    assert isinstance(found, SafetyProperty)
    assert found.start is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s["variables"].pop(0), "values[1]: the state gives no value to x"),
        (lambda s: s["variables"].__delitem__(slice(0, 2)), "values[1]: the state gives no value to flag, x"),
        (
            lambda s: s["variables"].__delitem__(3),
            "values[1]: the state gives no value to queue[0], queue[1], queue[2]",
        ),
        (lambda s: s["variables"][0].__setitem__("value", True), "variables[0].value: true is no value of x"),
        (lambda s: s["variables"][0].__setitem__("value", 9), "variables[0].value: 9 is no value of x"),
        (lambda s: s["variables"][0].__setitem__("value", "N"), None),
        (
            lambda s: s["variables"][0].__setitem__("var", "nope"),
            "variables[0].var: unknown variable or constant 'nope'",
        ),
        (lambda s: s["variables"][0].__setitem__("var", "N"), "is no value of 5"),
        (lambda s: s["variables"].append({"var": "x", "value": 2}), "variables[5].var: x is given twice"),
        (lambda s: s["variables"][0].pop("value"), "variables[0]: the entry 'value' is missing"),
        (
            lambda s: s["variables"][3].__setitem__("value", {"op": "av", "elements": [0]}),
            "variables[3].value: expected 3 values, found 1",
        ),
        (lambda s: s["locations"][0].__setitem__("location", "sky"), "locations[0].location: unknown location 'sky'"),
        (lambda s: s.pop("variables"), "values[1]: the entry 'variables' is missing"),
    ],
)
def test_a_listed_state_must_give_every_variable_one_value(
    tmp_path: Path, change: Callable[[Json], Any], message: str | None
) -> None:
    state = copy.deepcopy(STATE)
    change(state)
    if message is None:
        assert isinstance(states_property(tmp_path, STATE, state), SafetyProperty)
        return
    with pytest.raises(InvalidInput) as caught:
        states_property(tmp_path, STATE, state)
    found = without_folder(tmp_path, str(caught.value))
    assert found.startswith("extra.jani: $.properties[0].expression.start.values[1]")
    assert message in found


def test_a_start_condition_that_holds_nowhere_is_invalid_input(tmp_path: Path) -> None:
    root = changed((["properties", 0, "expression", "start", "exp"], op("∧", op("<", "x", 1), op(">", "x", 2))))
    root["variables"].pop(2)
    with pytest.raises(InvalidInput, match="the start condition of safe holds in no state"):
        verify(load(tmp_path, root), None, "safe", include_initial=False)


def test_a_property_without_an_unsafe_condition_is_invalid_input(tmp_path: Path) -> None:
    loaded = load(tmp_path, without("properties", 0, "expression", "reach"))
    with pytest.raises(InvalidInput, match=r"the property 'safe' has no unsafe condition"):
        verify(loaded, None, "safe")


# Files from strangers


def places(value: Json, steps: tuple[Step, ...] = ()) -> Iterator[tuple[Step, ...]]:
    """The places of all values inside a value."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
    for key, child in entries:
        yield (*steps, key)
        yield from places(child, (*steps, key))


def deep(depth: int) -> Json:
    value: Json = []
    for _ in range(depth):
        value = [value]
    return value


def deep_negation(depth: int) -> Json:
    value: Json = 5
    for _ in range(depth):
        value = {"op": "¬", "exp": value}
    return value


GARBAGE: dict[str, Json] = {
    "null": None,
    "true": True,
    "number": 7,
    "negative": -3,
    "real": Fraction(5, 2),
    "name": "x",
    "unknown": "nope",
    "empty": "",
    "array": [],
    "object": {},
    "full array": [1, "x", None],
    "full object": {"op": "+", "left": 1, "right": "x"},
    "call": {"op": "call", "function": "twice", "args": ["x"]},
    "array value": {"op": "av", "elements": [0, 1, 2]},
    "operator of no kind": {"op": []},
    "object where a name is": {"name": {}},
    "reference": {"file": "x.json"},
    "label": {"label": {}},
    "deep": deep(20_000),
    "deep expression": deep_negation(20_000),
}


def read_everything(root: Json) -> int:
    """Read a model and all its properties; how many of these are refused."""
    jani = ModelReader(Document(root, "hostile"), {"N": 5}).read()
    failures = 0
    for entry in read_property_entries(jani):
        try:
            entry.read()
        except (InvalidInput, UnsupportedFeature) as error:
            failures += 1
            assert len(str(error)) < 20_000
    return failures


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_at_any_place_is_refused_or_read_but_never_crashes(garbage: Json) -> None:
    refusals = 0
    everywhere = list(places(small()))
    for steps in everywhere:
        root = changed((list(steps), garbage))
        try:
            refusals += read_everything(root) > 0
        except (InvalidInput, UnsupportedFeature) as error:
            refusals += 1
            assert len(str(error)) < 20_000
    assert refusals > len(everywhere) // 2


def test_no_entry_can_be_left_out_with_a_crash() -> None:
    refusals = 0
    for steps in places(small()):
        try:
            refusals += read_everything(without(*steps)) > 0
        except (InvalidInput, UnsupportedFeature):
            refusals += 1
    assert refusals > 60


def test_a_key_that_nobody_knows_is_unsupported_everywhere() -> None:
    owners = [(), *places(small())]
    for steps in owners:
        root = small()
        owner = root
        for step in steps:
            owner = owner[step]
        if not isinstance(owner, dict) or "op" in owner or steps[:1] == ("properties",):
            continue
        owner["surprise"] = 1
        with pytest.raises(UnsupportedFeature, match="the key 'surprise'"):
            read_everything(root)


def test_comments_are_allowed_everywhere_in_a_model() -> None:
    for steps in [(), *places(small())]:
        root = small()
        owner = root
        for step in steps:
            owner = owner[step]
        if isinstance(owner, dict):
            owner["comment"] = ["anything"]
            assert read_everything(root) == 0
