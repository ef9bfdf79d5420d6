"""JANI properties, and PlaJA's extensions: additional-properties files and `op: PA` properties.

Additional properties may refer to other files by relative path.  These files come from strangers,
so a reference must be relative and name a file of a known kind, and chains of them are bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policyproof.model.expressions import Expression
from policyproof.model.jani.expressions import ExpressionReader
from policyproof.model.jani.formulas import FormulaReader
from policyproof.model.jani.model import JaniModel
from policyproof.model.jani.reader import Reader, shown
from policyproof.model.jani.scope import Scope
from policyproof.model.jani.states import StateReader
from policyproof.model.json_text import Document, Json, read_file
from policyproof.model.properties import Property, SafetyProperty
from policyproof.run.errors import InvalidInput

PART_SUFFIXES = frozenset([".jani", ".json"])
POLICY_SUFFIXES = frozenset([".jani2nnet", ".nnet", ".json", ".onnx", ".npz", ".zip", ".pt", ".pth", ".h5", ".keras"])

_SAFETY_KEYS = frozenset(["op", "file", "start", "reach", "objective", "predicates", "initial-state"])
_OBJECTIVE_KEYS = frozenset(["op", "goal", "goal-potential", "goal-reward", "step-reward", "accumulate"])

MAXIMAL_REFERENCES = 20
"""How long a chain of files that refer to files may be."""


@dataclass(frozen=True)
class PropertyEntry:
    """A property that is known by name and read when it is asked for."""

    name: str
    read: Callable[[], Property]


def read_property_entries(jani: JaniModel, additional: str | Path | None = None) -> list[PropertyEntry]:
    """The properties of the model, then those of the additional file; none of them is parsed yet."""
    entries = _entries(jani, jani.document, jani.raw_properties, [])
    if additional is not None:
        document = read_file(additional)
        root = document.root
        reader = Reader(document)
        if not isinstance(root, dict) or not isinstance(root.get("properties"), list):
            raise InvalidInput("expected an object with an array 'properties'", where=f"{document.name}: $")
        if "automata" in root:
            raise InvalidInput("this is a model, not a file of additional properties", where=f"{document.name}: $")
        reader.object(root, root, None, keys=frozenset(["properties", "labels"]))
        reader.finish()
        entries.extend(_entries(jani, document, root["properties"], reader.get(root, "labels", list, default=[])))
    return entries


def read_predicates(jani: JaniModel, path: str | Path) -> tuple[Expression, ...]:
    """The predicates of a file: a JSON array of conditions, as PlaJA writes them."""
    document = read_file(path)
    reader = _PropertyReader(jani, document, {}, [])
    return reader.predicates()


def _entries(jani: JaniModel, document: Document, items: list[Json], labels: list[Json]) -> list[PropertyEntry]:
    entries = []
    for position, item in enumerate(items):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise InvalidInput("a property needs a name", where=document.path_of(items, position))
        # Bound early: each entry reads its own item.
        entries.append(PropertyEntry(item["name"], _PropertyReader(jani, document, item, labels).read))
    return entries


class _PropertyReader:
    """Reads one property, following its references to other files."""

    def __init__(self, jani: JaniModel, document: Document, item: dict[str, Json], labels: list[Json]) -> None:
        self.jani = jani
        self.origin = document
        self.item = item
        self.labels = labels
        self.scope: Scope = jani.scope

    def read(self) -> Property:
        """The property; reading it twice gives the same answer twice, or the same error."""
        self._enter(self.origin)
        reader = self.reader
        reader.object(self.item, self.item, None, keys=frozenset(["name", "expression"]))
        name = self.item["name"]
        expression = reader.get(self.item, "expression", dict)
        result: Property | None
        if expression.get("op") == "PA":
            result = self._safety(name, expression)
        else:
            result = FormulaReader(reader, self.expressions, self.scope).filter(name, expression)
        reader.finish()
        if result is None:
            raise InvalidInput("cannot be read", where=reader.path(self.item, "expression"))
        return result

    def predicates(self) -> tuple[Expression, ...]:
        """The whole document as an array of conditions."""
        self._enter(self.origin)
        found = self._predicates(self.document.whole, 0)
        self.reader.finish()
        return found

    def _enter(self, document: Document) -> None:
        self.document = document
        self.reader = Reader(document)
        self.expressions = ExpressionReader(self.reader, self.jani.functions)

    # Safety properties of PlaJA

    def _safety(self, name: str, expression: dict[str, Json]) -> SafetyProperty:
        self.reader.object(expression, self.item, "expression", keys=_SAFETY_KEYS)
        policy_file = None
        if "file" in expression:
            policy_file = self._reference(expression, "file", POLICY_SUFFIXES)
        objective: dict[str, Expression | None] = self._part(expression, "objective", self._objective) or {}
        predicates = self._part(expression, "predicates", self._predicates)
        return SafetyProperty(
            name,
            unsafe=self._part(expression, "reach", self._state_condition),
            start=self._part(expression, "start", self._state_condition),
            include_initial=self._includes_initial(expression),
            goal=objective.get("goal"),
            goal_reward=objective.get("goal-reward"),
            step_reward=objective.get("step-reward"),
            predicates=predicates,
            policy_file=policy_file,
        )

    def _includes_initial(self, expression: dict[str, Json]) -> bool:
        """PlaJA's start sets always hold the model's initial states; `initial-state` is our extension."""
        choices = ("include", "exclude")
        return self.reader.choice(expression, "initial-state", choices, "choice", default="include") == "include"

    def _predicates(self, owner: Json, place: str | int) -> tuple[Expression, ...]:
        items = owner[place]
        if not isinstance(items, list):
            raise self.reader.invalid(owner, place, "expected an array of conditions")
        found = [self.expressions.boolean(items, position, self.scope) for position in range(len(items))]
        return tuple(expression for expression in found if expression is not None)

    def _objective(self, owner: Json, place: str | int) -> dict[str, Expression | None]:
        value = self.reader.object(owner[place], owner, place, keys=_OBJECTIVE_KEYS)
        found: dict[str, Expression | None] = {"goal": self._part(value, "goal", self._state_condition)}
        for key in ("goal-reward", "step-reward"):
            if key in value:
                found[key] = self.expressions.number(value, key, self.scope, "a reward")
        return found

    def _state_condition(self, owner: Json, place: str | int) -> Expression | None:
        states = StateReader(self.reader, self.expressions, self.jani.model, self.scope)
        return states.condition(owner, place)

    # References

    def _reference(self, container: dict[str, Json], key: str, suffixes: frozenset[str]) -> Path:
        """The file that an entry names, relative to the folder of the file that holds the entry."""
        name = self.reader.get(container, key, str)
        if self.document.folder is None:
            raise self.reader.invalid(container, key, "a reference to a file, but this text is no file itself")
        if Path(name).is_absolute() or Path(name).suffix.lower() not in suffixes:
            allowed = ", ".join(sorted(suffixes))
            message = f"expected a relative path to a file ({allowed}), found {shown(name)}"
            raise self.reader.invalid(container, key, message)
        return Path(self.document.folder, name)

    def _part(self, container: dict[str, Json], key: str, read: Callable[[Json, str | int], Any]) -> Any:
        """A part that is given in place, by file, or by label; None if it is absent."""
        if key not in container:
            return None
        outer = (self.document, self.reader, self.expressions)
        owner: Json = container
        place: str | int = key
        for _ in range(MAXIMAL_REFERENCES):
            value = owner[place]
            if _refers_by(value, "file"):
                self.reader.object(value, owner, place, keys=frozenset(["file"]))
                self._enter_referenced(self._reference(value, "file", PART_SUFFIXES), outer[1])
                owner, place = self.document.whole, 0
            elif _refers_by(value, "label"):
                self.reader.object(value, owner, place, keys=frozenset(["label"]))
                owner, place = self._label(value)
            else:
                result = read(owner, place)
                if self.reader is not outer[1]:
                    self.reader.finish()
                self.document, self.reader, self.expressions = outer
                return result
        raise self.reader.invalid(owner, place, f"more than {MAXIMAL_REFERENCES} references to other files")

    def _enter_referenced(self, path: Path, outer: Reader) -> None:
        if self.reader is not outer:
            # What was noted about a file in between is said before that file is left.
            self.reader.finish()
        self._enter(read_file(path))

    def _label(self, value: dict[str, Json]) -> tuple[Json, str | int]:
        name = self.reader.get(value, "label", str)
        known = []
        for label in self.labels:
            if isinstance(label, dict) and isinstance(label.get("name"), str):
                known.append(label["name"])
                if label["name"] == name:
                    for key in ("value", "expression", "exp"):
                        if key in label:
                            return label, key
        listed = ", ".join(known[:20]) or "none"
        raise self.reader.invalid(value, "label", f"unknown label {shown(name)} (there are: {listed})")


def _refers_by(value: Json, key: str) -> bool:
    """Is this an object that refers to a part elsewhere, and not the part itself?"""
    return isinstance(value, dict) and key in value and "op" not in value
