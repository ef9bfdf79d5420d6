"""JANI properties, and PlaJA's extensions: additional-properties files and `op: PA` properties.

Additional properties may refer to other files by relative path.  These files come from strangers,
so a reference must be relative and name a file of a known kind, and chains of them are bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from policyproof.model.automata import at_location
from policyproof.model.expressions import (
    Expression,
    apply,
    conjunction,
    disjunction,
)
from policyproof.model.jani.expressions import ExpressionReader, Scope, assignable
from policyproof.model.jani.model import JaniModel
from policyproof.model.jani.reader import Reader
from policyproof.model.json_text import Document, Json, read_file
from policyproof.model.properties import (
    Atom,
    Bounds,
    Deadlock,
    Expectation,
    Formula,
    FormulaProperty,
    Initial,
    Junction,
    Not,
    Probability,
    Property,
    Quantified,
    RewardBound,
    SafetyProperty,
)
from policyproof.model.properties import Path as PathFormula
from policyproof.run.errors import InvalidInput

PART_SUFFIXES = frozenset([".jani", ".json"])
POLICY_SUFFIXES = frozenset([".jani2nnet", ".nnet", ".json", ".onnx", ".npz", ".zip", ".pt", ".pth", ".h5", ".keras"])

_BOUND_KEYS = frozenset(["lower", "lower-exclusive", "upper", "upper-exclusive"])

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
        self.item = item
        self.labels = labels
        self._enter(document)

    def _enter(self, document: Document) -> None:
        self.document = document
        self.reader = Reader(document)
        self.expressions = ExpressionReader(self.reader, self.jani.functions)
        self.scope: Scope = self.jani.scope

    def read(self) -> Property:
        reader = self.reader
        reader.object(self.item, self.item, None, keys=frozenset(["name", "expression"]))
        expression = reader.get(self.item, "expression", dict)
        result: Property | None
        if expression.get("op") == "PA":
            result = self._safety(self.item["name"], expression)
        else:
            result = self._filter(self.item["name"], expression)
        reader.finish()
        if result is None:
            raise InvalidInput("cannot be read", where=reader.path(self.item, "expression"))
        return result

    # Safety properties of PlaJA

    def _safety(self, name: str, expression: dict[str, Json]) -> SafetyProperty:
        keys = frozenset(["op", "file", "start", "reach", "objective", "predicates", "initial-state"])
        self.reader.object(expression, self.item, "expression", keys=keys)
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
        choice = self.reader.get(expression, "initial-state", str, default="include")
        self.reader.one_of(expression, "initial-state", choice, ["include", "exclude"], "choice")
        return bool(choice == "include")

    def _reference(self, container: Json, key: str, suffixes: frozenset[str]) -> Path:
        """The file that an entry names, relative to the folder of the file that holds the entry."""
        name = self.reader.get(container, key, str)
        if self.document.folder is None:
            raise self.reader.invalid(container, key, "a reference to a file, but this text is no file itself")
        if Path(name).is_absolute() or Path(name).suffix.lower() not in suffixes:
            allowed = ", ".join(sorted(suffixes))
            raise self.reader.invalid(container, key, f"expected a relative path to a file ({allowed}), found {name!r}")
        return Path(self.document.folder, name)

    def _part(self, container: dict[str, Json], key: str, read: Callable[[Json, str | int], Any]) -> Any:
        """A part that is given in place, by file, or by label."""
        if key not in container:
            return None
        outer = (self.document, self.reader, self.expressions)
        owner: Json = container
        place: str | int = key
        value = container[key]
        for _ in range(MAXIMAL_REFERENCES):
            if isinstance(value, dict) and set(value) == {"file"}:
                path = self._reference(value, "file", PART_SUFFIXES)
                self._enter(read_file(path))
                owner, place = [self.document.root], 0
                value = self.document.root
            elif isinstance(value, dict) and set(value) == {"label"}:
                owner, place = self._label(value)
                value = owner[place]
            else:
                result = read(owner, place)
                if self.reader is not outer[1]:
                    self.reader.finish()
                self.document, self.reader, self.expressions = outer
                return result
        raise self.reader.invalid(owner, None, f"more than {MAXIMAL_REFERENCES} references to other files")

    def _label(self, value: dict[str, Json]) -> tuple[Json, str | int]:
        name = self.reader.get(value, "label", str)
        for label in self.labels:
            if isinstance(label, dict) and label.get("name") == name:
                for key in ("value", "expression", "exp"):
                    if key in label:
                        return label, key
        known = ", ".join(str(label.get("name")) for label in self.labels if isinstance(label, dict))
        raise self.reader.invalid(value, "label", f"unknown label {name!r} (there are: {known or 'none'})")

    def _predicates(self, owner: Json, place: str | int) -> tuple[Expression, ...]:
        items = owner[place]
        if not isinstance(items, list):
            raise self.reader.invalid(owner, place, "expected an array of conditions")
        found = [self.expressions.boolean(items, position, self.scope) for position in range(len(items))]
        return tuple(expression for expression in found if expression is not None)

    def _objective(self, owner: Json, place: str | int) -> dict[str, Expression | None]:
        value = owner[place]
        keys = frozenset(["op", "goal", "goal-potential", "goal-reward", "step-reward", "accumulate"])
        self.reader.object(value, owner, place, keys=keys)
        found: dict[str, Expression | None] = {}
        if "goal" in value:
            found["goal"] = self._part(value, "goal", self._state_condition)
        for key in ("goal-reward", "step-reward"):
            if key in value:
                found[key] = self.expressions.number_or_bool(value, key, self.scope)
        return found

    def _state_condition(self, owner: Json, place: str | int) -> Expression | None:
        value = owner[place]
        if not isinstance(value, dict) or value.get("op") not in ("state-condition", "states-values"):
            return self.expressions.boolean(owner, place, self.scope)
        if value["op"] == "states-values":
            return self._states_values(value)
        self.reader.object(value, owner, place, keys=frozenset(["op", "exp", "locations"]))
        parts: list[Expression | None] = []
        if "exp" in value:
            parts.append(self.expressions.boolean(value, "exp", self.scope))
        parts.extend(self._locations(value))
        complete = [part for part in parts if part is not None]
        return conjunction(complete) if len(complete) == len(parts) else None

    def _locations(self, value: dict[str, Json]) -> list[Expression | None]:
        found: list[Expression | None] = []
        items = self.reader.get(value, "locations", list, default=[])
        automata = {automaton.name: automaton for automaton in self.jani.model.automata}
        for position, item in enumerate(items):
            self.reader.object(item, items, position, keys=frozenset(["automaton", "location", "index"]))
            name = self.reader.get(item, "automaton", str)
            self.reader.one_of(item, "automaton", name, list(automata), "automaton")
            location = self.reader.get(item, "location", str)
            self.reader.one_of(item, "location", location, list(automata[name].location_index), "location")
            found.append(at_location(name, automata[name].location_index[location]))
        return found

    def _states_values(self, value: dict[str, Json]) -> Expression | None:
        self.reader.object(value, value, None, keys=frozenset(["op", "values"]))
        states = self.reader.get(value, "values", list)
        model = self.jani.model
        needed = {item.name for item in model.variables if not item.transient and item.domain.size != 1}
        conditions = []
        for position, state in enumerate(states):
            self.reader.object(state, states, position, keys=frozenset(["variables", "locations"]))
            parts: list[Expression | None] = list(self._locations(state))
            given = set()
            items = self.reader.get(state, "variables", list)
            for index, item in enumerate(items):
                self.reader.object(item, items, index, keys=frozenset(["var", "value"]))
                for key in ("var", "value"):
                    if key not in item:
                        raise self.reader.invalid(item, None, f"the entry {key!r} is missing")
                target = self.expressions.read(item, "var", self.scope)
                content = self.expressions.read(item, "value", self.scope)
                targets = target if isinstance(target, tuple) else (target,)
                contents = content if isinstance(content, tuple) else (content,)
                if len(targets) != len(contents):
                    raise self.reader.invalid(item, "value", f"expected {len(targets)} values, found {len(contents)}")
                for one, what in zip(targets, contents, strict=True):
                    if one is None or what is None:
                        parts.append(None)
                        continue
                    if not one.is_variable or not assignable(one.kind, what):
                        raise self.reader.invalid(item, "value", f"{what} is no value of {one}")
                    given.add(one.name)
                    parts.append(apply("=", one, what))
            absent = sorted(needed - given)
            if absent:
                raise self.reader.invalid(states, position, f"the state gives no value to {', '.join(absent[:5])}")
            complete = [part for part in parts if part is not None]
            if len(complete) < len(parts):
                return None
            conditions.append(conjunction(complete))
        return disjunction(conditions)

    # JANI's own properties

    def _filter(self, name: str, expression: dict[str, Json]) -> FormulaProperty | None:
        if expression.get("op") != "filter":
            self.reader.unsupported(expression, "op", f"properties of the form {expression.get('op')!r}")
            return None
        self.reader.object(expression, self.item, "expression", keys=frozenset(["op", "fun", "values", "states"]))
        function = self.reader.get(expression, "fun", str)
        aggregate = {"min": "min", "max": "max", "∀": "∀", "∃": "∃", "values": "values"}.get(function)
        if aggregate is None:
            self.reader.unsupported(expression, "fun", f"the filter function {function!r}")
        states = expression.get("states")
        if not isinstance(states, dict) or states.get("op") != "initial":
            self.reader.unsupported(expression, "states", "filters over other states than the initial ones")
        if "values" not in expression:
            raise self.reader.invalid(expression, None, "the entry 'values' is missing")
        formula = self._formula(expression, "values", 0)
        if formula is None or aggregate is None:
            return None
        return FormulaProperty(name, formula, aggregate)  # type: ignore[arg-type]

    def _formula(self, owner: Json, place: str | int, depth: int) -> Formula | None:
        if depth > 100:
            raise self.reader.invalid(owner, place, "temporal operators nested more than 100 deep")
        value = owner[place]
        if not isinstance(value, dict) or not _is_temporal(value):
            expression = self.expressions.boolean(owner, place, self.scope)
            return None if expression is None else Atom(expression)
        operator = value["op"]
        if operator == "initial":
            return Initial()
        if operator == "deadlock":
            return Deadlock()
        if operator == "¬":
            inner = self._formula(value, "exp", depth + 1)
            return None if inner is None else Not(inner)
        if operator in ("∧", "∨", "⇒"):
            left, right = (self._formula(value, key, depth + 1) for key in ("left", "right"))
            if left is None or right is None:
                return None
            return Junction("∨", Not(left), right) if operator == "⇒" else Junction(operator, left, right)
        if operator in ("∀", "∃"):
            path = self._path(value, "exp", depth)
            return None if path is None else Quantified("A" if operator == "∀" else "E", path)
        if operator in ("Pmin", "Pmax"):
            path = self._path(value, "exp", depth)
            return None if path is None else Probability("min" if operator == "Pmin" else "max", path)
        if operator in ("Emin", "Emax"):
            return self._expectation(value, "min" if operator == "Emin" else "max", depth)
        if operator in ("<", "≤", ">", "≥"):
            return self._comparison(value, operator, depth)
        if operator in ("F", "G", "U", "W", "R"):
            self.reader.unsupported(value, "op", f"the path operator {operator!r} without a quantifier")
            return None
        self.reader.unsupported(value, "op", f"the property operator {operator!r}")
        return None

    def _comparison(self, value: dict[str, Json], operator: str, depth: int) -> Formula | None:
        """`Pmax(...) <= 0.1`, either way round."""
        mirrored = {"<": ">", "≤": "≥", ">": "<", "≥": "≤"}
        for query, bound, relation in (("left", "right", operator), ("right", "left", mirrored[operator])):
            if isinstance(value.get(query), dict) and _is_temporal(value[query]):
                formula = self._formula(value, query, depth + 1)
                limit = self.expressions.constant(value, bound, self.scope)
                if formula is None or limit is None:
                    return None
                if not isinstance(formula, Probability):
                    self.reader.unsupported(value, query, "comparisons of anything but probabilities")
                    return None
                return Probability(formula.optimum, formula.path, relation, Fraction(limit))  # type: ignore[arg-type]
        raise self.reader.invalid(value, None, "expected a temporal operator on one side")

    def _path(self, owner: dict[str, Json], key: str, depth: int) -> PathFormula | None:
        value = self.reader.get(owner, key, dict)
        keys = frozenset(["op", "exp", "left", "right", "step-bounds", "time-bounds", "reward-bounds"])
        self.reader.object(value, owner, key, keys=keys)
        operator = self.reader.get(value, "op", str)
        if operator not in ("F", "G", "U", "W", "R"):
            self.reader.unsupported(value, "op", f"the path operator {operator!r}")
            return None
        if "time-bounds" in value:
            self.reader.unsupported(value, "time-bounds", "bounds on time (continuous-time properties)")
        bounds = self._step_bounds(value)
        rewards = self._reward_bounds(value)
        unary = operator in ("F", "G")
        right = self._formula(value, "exp" if unary else "right", depth + 1)
        left = None if unary else self._formula(value, "left", depth + 1)
        if right is None or (left is None and not unary) or rewards is None:
            return None
        return PathFormula(operator, right, left, bounds, rewards)

    def _step_bounds(self, value: dict[str, Json]) -> Bounds:
        if "step-bounds" not in value:
            return Bounds()
        item = value["step-bounds"]
        self.reader.object(item, value, "step-bounds", keys=_BOUND_KEYS)
        limits: dict[str, int | None] = {"lower": 0, "upper": None}
        for key, shift in (("lower", 1), ("upper", -1)):
            if key in item:
                limit = self.expressions.constant(item, key, self.scope)
                if limit is None:
                    continue
                if isinstance(limit, bool) or limit != int(limit):
                    raise self.reader.invalid(item, key, f"expected a number of steps, found {limit}")
                exclusive = self.reader.get(item, f"{key}-exclusive", bool, default=False)
                limits[key] = int(limit) + (shift if exclusive else 0)
        return Bounds(max(0, limits["lower"] or 0), limits["upper"])

    def _reward_bounds(self, value: dict[str, Json]) -> tuple[RewardBound, ...] | None:
        found = []
        items = self.reader.get(value, "reward-bounds", list, default=[])
        for position, item in enumerate(items):
            self.reader.object(item, items, position, keys=frozenset(["exp", "accumulate", "bounds"]))
            reward = self.expressions.number_or_bool(item, "exp", self.scope)
            bounds = self.reader.object(self.reader.get(item, "bounds", dict), item, "bounds", keys=_BOUND_KEYS)
            limits: list[Fraction | None] = []
            for key in ("lower", "upper"):
                limit = self.expressions.constant(bounds, key, self.scope) if key in bounds else None
                if key in bounds and limit is None:
                    return None
                limits.append(None if limit is None else Fraction(limit))
            if reward is None:
                return None
            strict = [self.reader.get(bounds, f"{key}-exclusive", bool, default=False) for key in ("lower", "upper")]
            accumulate = tuple(self.reader.get(item, "accumulate", list))
            found.append(RewardBound(reward, accumulate, limits[0], limits[1], strict[0], strict[1]))
        return tuple(found)

    def _expectation(self, value: dict[str, Json], optimum: str, depth: int) -> Formula | None:
        keys = frozenset(["op", "exp", "accumulate", "reach", "step-instant", "time-instant", "reward-instants"])
        self.reader.object(value, value, None, keys=keys)
        for key in ("time-instant", "reward-instants"):
            if key in value:
                self.reader.unsupported(value, key, f"expectations at a {key}")
        if "exp" not in value:
            raise self.reader.invalid(value, None, "the entry 'exp' is missing")
        reward = self.expressions.number_or_bool(value, "exp", self.scope)
        reach = self._formula(value, "reach", depth + 1) if "reach" in value else None
        instant = self.expressions.constant(value, "step-instant", self.scope) if "step-instant" in value else None
        if reward is None or ("reach" in value and reach is None) or ("step-instant" in value and instant is None):
            return None
        accumulate = tuple(self.reader.get(value, "accumulate", list, default=[]))
        steps = None if instant is None else int(instant)
        return Expectation(optimum, reward, reach, accumulate, steps)  # type: ignore[arg-type]


_TEMPORAL = frozenset(
    [
        "∀",
        "∃",
        "Pmin",
        "Pmax",
        "Emin",
        "Emax",
        "Smin",
        "Smax",
        "initial",
        "deadlock",
        "timelock",
        "F",
        "G",
        "U",
        "W",
        "R",
    ]
)


def _is_temporal(value: Json) -> bool:
    """Does a temporal operator occur anywhere inside?"""
    stack = [value]
    while stack:
        current = stack.pop()
        if isinstance(current, dict):
            if current.get("op") in _TEMPORAL:
                return True
            stack.extend(child for child in current.values() if isinstance(child, dict))
    return False
