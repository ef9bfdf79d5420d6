"""The functions of a JANI model: their signatures first, then their bodies, callees before callers.

A body is an expression over variables that stand for the parameters; calls copy it.  So a function
that calls itself, directly or through others, is unsupported.
"""

from __future__ import annotations

import graphlib
from collections.abc import Mapping

from policyproof.model.expressions import Expression, Kind, nodes, to_real
from policyproof.model.jani.declarations import DeclarationReader
from policyproof.model.jani.reader import Reader, shown
from policyproof.model.jani.scope import Bound, Function, Missing, assignable, parameter
from policyproof.model.json_text import Json


class FunctionReader:
    """Reads the functions of a model into the table with which its expressions are read."""

    def __init__(self, reader: Reader, declarations: DeclarationReader, functions: dict[str, Function]) -> None:
        self.reader = reader
        self.declarations = declarations
        self.expressions = declarations.expressions
        self.functions = functions
        self.items: dict[str, dict[str, Json]] = {}

    def declare(self, root: dict[str, Json]) -> None:
        """Read the signatures, so that bodies may call functions that are declared later."""
        reader = self.reader
        for item in reader.objects(root, "functions", keys=frozenset(["name", "type", "parameters", "body"])):
            name = reader.get(item, "name", str)
            if name in self.functions:
                raise reader.invalid(item, "name", f"the function {shown(name)} is declared twice")
            if "body" not in item:
                raise reader.missing(item, "body")
            kind = self._kind(item)
            parameters: dict[str, Expression | None] = {}
            for entry in reader.objects(item, "parameters", keys=frozenset(["name", "type"])):
                own = reader.get(entry, "name", str)
                if own in parameters:
                    raise reader.invalid(entry, "name", f"the parameter {shown(own)} is declared twice")
                own_kind = self._kind(entry)
                parameters[own] = None if own_kind is None else parameter(name, own, own_kind)
            self.items[name] = item
            self.functions[name] = Function(tuple(parameters.values()), None, kind)

    def _kind(self, item: dict[str, Json]) -> Kind | None:
        declared = item.get("type")
        if isinstance(declared, dict) and declared.get("kind") == "array":
            self.reader.unsupported(item, "type", "arrays as parameters and results of functions")
            return None
        domain = self.declarations.domain(item, "type", self.declarations.scope)
        return None if domain is None else domain.kind

    def read_bodies(self) -> None:
        """Read all bodies; they may use the global variables."""
        calls = {name: _called_functions(item["body"]) & set(self.items) for name, item in self.items.items()}
        sorter = graphlib.TopologicalSorter(calls)
        _prepare(sorter)
        finished: set[str] = set()
        while sorter.is_active() and (ready := sorter.get_ready()):
            for name in sorted(ready):
                self._read_body(name, self.items[name])
            finished.update(ready)
            sorter.done(*ready)
        for name in _in_circles({name: called - finished for name, called in calls.items() if name not in finished}):
            self.reader.unsupported(self.items[name], "name", f"the recursive function {shown(name)}")

    def _read_body(self, name: str, item: dict[str, Json]) -> None:
        function = self.functions[name]
        scope: dict[str, Bound] = dict(self.declarations.scope)
        for entry, expression in zip(item.get("parameters", []), function.parameters, strict=True):
            scope[entry["name"]] = Missing() if expression is None else expression
        body = self.expressions.number_or_bool(item, "body", scope)
        if body is None or function.kind is None or None in function.parameters:
            return
        if not assignable(function.kind, body):
            raise self.reader.invalid(item, "body", f"expected a value of type {function.kind}, found {body.kind}")
        body = to_real(body) if function.kind == "real" else body
        self.functions[name] = Function(function.parameters, body, function.kind, len(nodes([body])))


def _prepare(sorter: graphlib.TopologicalSorter[str]) -> None:
    try:
        sorter.prepare()
    except graphlib.CycleError:
        # What is in no circle, and needs none, is sorted all the same.
        return


def _in_circles(calls: Mapping[str, set[str]]) -> list[str]:
    """Which functions are left when those that no other one calls are taken away, again and again?"""
    callers: dict[str, set[str]] = {name: set() for name in calls}
    for name, called in calls.items():
        for other in called:
            callers[other].add(name)
    sorter = graphlib.TopologicalSorter(callers)
    _prepare(sorter)
    outside: set[str] = set()
    while sorter.is_active() and (ready := sorter.get_ready()):
        outside.update(ready)
        sorter.done(*ready)
    return [name for name in calls if name not in outside]


def _called_functions(body: Json) -> set[str]:
    """The names of all functions called anywhere in a JSON value."""
    found: set[str] = set()
    stack = [body]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            if value.get("op") == "call" and isinstance(value.get("function"), str):
                found.add(value["function"])
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
    return found
