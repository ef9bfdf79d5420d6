"""JANI's own properties: filters over formulas of (probabilistic) computation tree logic.

Temporal operators nest a few levels in practice, so formulas are read by functions that call
themselves, down to a fixed depth; the conditions inside them are expressions and may nest at will.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

from policyproof.model.jani.expressions import ExpressionReader
from policyproof.model.jani.reader import Reader, shown
from policyproof.model.jani.scope import Scope
from policyproof.model.json_text import Json
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
    Path,
    Probability,
    Quantified,
    RewardBound,
)

MAXIMAL_DEPTH = 100

_FUNCTIONS: dict[str, Literal["min", "max", "∀", "∃", "values"]] = {
    "min": "min",
    "max": "max",
    "∀": "∀",
    "∃": "∃",
    "values": "values",
}
_QUANTIFIERS: dict[str, Literal["A", "E"]] = {"∀": "A", "∃": "E"}
_OPTIMA: dict[str, Literal["min", "max"]] = {"Pmin": "min", "Pmax": "max", "Emin": "min", "Emax": "max"}
_MIRRORED: dict[str, Literal["<", "≤", ">", "≥"]] = {"<": ">", "≤": "≥", ">": "<", "≥": "≤"}
_UNARY_PATHS: dict[str, Literal["F", "G"]] = {"F": "F", "G": "G"}
_BINARY_PATHS: dict[str, Literal["U", "W", "R"]] = {"U": "U", "W": "W", "R": "R"}
_PATHS = frozenset([*_UNARY_PATHS, *_BINARY_PATHS])
_TEMPORAL = frozenset(
    [*_PATHS, *_QUANTIFIERS, *_OPTIMA, "Smin", "Smax", "initial", "deadlock", "timelock"],
)
_ACCUMULATED = ("steps", "time", "exit")

_BOUND_KEYS = frozenset(["lower", "lower-exclusive", "upper", "upper-exclusive"])
_PATH_KEYS = frozenset(["op", "step-bounds", "time-bounds", "reward-bounds"])
_EXPECTATION_KEYS = frozenset(
    ["op", "exp", "accumulate", "reach", "step-instant", "time-instant", "reward-instants"],
)


class FormulaReader:
    """Reads formulas of one document."""

    def __init__(self, reader: Reader, expressions: ExpressionReader, scope: Scope) -> None:
        self.reader = reader
        self.expressions = expressions
        self.scope = scope

    def filter(self, name: str, expression: dict[str, Json]) -> FormulaProperty | None:
        """The property `name`, whose expression filters the values of a formula."""
        reader = self.reader
        if expression.get("op") != "filter":
            what = f"properties of the form {shown(expression.get('op'))}"
            reader.unsupported(expression, "op" if "op" in expression else None, what)
            return None
        reader.object(expression, expression, None, keys=frozenset(["op", "fun", "values", "states"]))
        function = reader.get(expression, "fun", str)
        if function not in _FUNCTIONS:
            reader.unsupported(expression, "fun", f"the filter function {shown(function)}")
        states = reader.get(expression, "states", dict)
        if states.get("op") != "initial":
            reader.unsupported(expression, "states", "filters over other states than the initial ones")
        formula = self.formula(expression, "values", 0)
        if formula is None or function not in _FUNCTIONS:
            return None
        return FormulaProperty(name, formula, _FUNCTIONS[function])

    def formula(self, owner: dict[str, Json], key: str, depth: int) -> Formula | None:
        """The state formula at `owner[key]`."""
        reader = self.reader
        if depth > MAXIMAL_DEPTH:
            raise reader.invalid(owner, key, f"temporal operators nested more than {MAXIMAL_DEPTH} deep")
        value = owner.get(key)
        if not isinstance(value, dict) or not _is_temporal(value):
            expression = self.expressions.boolean(owner, key, self.scope)
            return None if expression is None else Atom(expression)
        operator = reader.get(value, "op", str)
        if operator in ("initial", "deadlock"):
            self._keys(value)
            return Initial() if operator == "initial" else Deadlock()
        if operator == "¬":
            self._keys(value, "exp")
            inner = self.formula(value, "exp", depth + 1)
            return None if inner is None else Not(inner)
        if operator in ("∧", "∨", "⇒"):
            return self._junction(value, operator, depth)
        if operator in _QUANTIFIERS:
            self._keys(value, "exp")
            path = self._path(value, "exp", depth)
            return None if path is None else Quantified(_QUANTIFIERS[operator], path)
        if operator in ("Pmin", "Pmax"):
            self._keys(value, "exp")
            path = self._path(value, "exp", depth)
            return None if path is None else Probability(_OPTIMA[operator], path)
        if operator in ("Emin", "Emax"):
            return self._expectation(value, _OPTIMA[operator], depth)
        if operator in _MIRRORED:
            return self._comparison(value, operator, depth)
        without = operator in _PATHS
        what = f"the path operator {operator!r} without a quantifier" if without else "the property operator "
        reader.unsupported(value, "op", what if without else what + shown(operator))
        return None

    def _keys(self, value: dict[str, Json], *keys: str) -> None:
        self.reader.object(value, value, None, keys=frozenset(["op", *keys]))

    def _junction(self, value: dict[str, Json], operator: str, depth: int) -> Formula | None:
        self._keys(value, "left", "right")
        left, right = (self.formula(value, key, depth + 1) for key in ("left", "right"))
        if left is None or right is None:
            return None
        if operator == "⇒":
            return Junction("∨", Not(left), right)
        return Junction("∧" if operator == "∧" else "∨", left, right)

    def _comparison(self, value: dict[str, Json], operator: str, depth: int) -> Formula | None:
        """`Pmax(...) <= 0.1`, either way round."""
        self._keys(value, "left", "right")
        for query, bound in (("left", "right"), ("right", "left")):
            if isinstance(value.get(query), dict) and _is_temporal(value[query]):
                formula = self.formula(value, query, depth + 1)
                limit = self.expressions.limit(value, bound, self.scope, "a probability")
                if formula is not None and not isinstance(formula, Probability):
                    self.reader.unsupported(value, query, "comparisons of anything but probabilities")
                    return None
                if formula is None or limit is None:
                    return None
                if formula.comparison is not None:
                    raise self.reader.invalid(value, query, "a comparison stands where a probability is needed")
                # Mirrored twice, the relation is what it was.
                relation = _MIRRORED[operator] if query == "right" else _MIRRORED[_MIRRORED[operator]]
                return Probability(formula.optimum, formula.path, relation, limit)
        raise self.reader.invalid(value, None, "expected a temporal operator on one side")

    # Path formulas

    def _path(self, owner: dict[str, Json], key: str, depth: int) -> Path | None:
        reader = self.reader
        value = reader.get(owner, key, dict)
        operator = reader.get(value, "op", str)
        if operator not in _PATHS:
            reader.unsupported(value, "op", f"the path operator {shown(operator)}")
            return None
        unary = operator in _UNARY_PATHS
        reader.object(value, owner, key, keys=_PATH_KEYS | ({"exp"} if unary else {"left", "right"}))
        if "time-bounds" in value:
            reader.unsupported(value, "time-bounds", "bounds on time (continuous-time properties)")
        bounds = self._step_bounds(value)
        rewards = self._reward_bounds(value)
        left = None if unary else self.formula(value, "left", depth + 1)
        right = self.formula(value, "exp" if unary else "right", depth + 1)
        if right is None or (left is None and not unary) or rewards is None or bounds is None:
            return None
        if unary:
            return Path(_UNARY_PATHS[operator], right, None, bounds, rewards)
        return Path(_BINARY_PATHS[operator], right, left, bounds, rewards)

    def _step_bounds(self, value: dict[str, Json]) -> Bounds | None:
        if "step-bounds" not in value:
            return Bounds()
        item = self.reader.object(value["step-bounds"], value, "step-bounds", keys=_BOUND_KEYS)
        limits: dict[str, int] = {}
        complete = True
        for key, shift in (("lower", 1), ("upper", -1)):
            exclusive = self.reader.get(item, f"{key}-exclusive", bool, default=False)
            if key in item:
                limit = self._steps(item, key)
                complete = complete and limit is not None
                limits[key] = (limit or 0) + (shift if exclusive else 0)
        if not complete:
            return None
        lower, upper = max(0, limits.get("lower", 0)), limits.get("upper")
        if upper is not None and upper < lower:
            raise self.reader.invalid(value, "step-bounds", f"no step is from {lower} to {upper}")
        return Bounds(lower, upper)

    def _steps(self, item: dict[str, Json], key: str) -> int | None:
        limit = self.expressions.limit(item, key, self.scope, "a number of steps")
        if limit is not None and limit.denominator != 1:
            raise self.reader.invalid(item, key, f"expected a number of steps, found {limit}")
        return None if limit is None else int(limit)

    def _reward_bounds(self, value: dict[str, Json]) -> tuple[RewardBound, ...] | None:
        reader = self.reader
        found = []
        items = reader.objects(value, "reward-bounds", keys=frozenset(["exp", "accumulate", "bounds"]))
        for item in items:
            reward = self.expressions.number(item, "exp", self.scope, "a reward")
            bounds = reader.object(reader.get(item, "bounds", dict), item, "bounds", keys=_BOUND_KEYS)
            limits: list[Fraction | None] = []
            for key in ("lower", "upper"):
                given = key in bounds
                limits.append(self.expressions.limit(bounds, key, self.scope, "a reward") if given else None)
            strict = [reader.get(bounds, f"{key}-exclusive", bool, default=False) for key in ("lower", "upper")]
            accumulate = reader.strings(item, "accumulate", _ACCUMULATED, "way to accumulate", optional=False)
            given_limits = sum(key in bounds for key in ("lower", "upper"))
            if reward is not None and given_limits == sum(limit is not None for limit in limits):
                found.append(RewardBound(reward, tuple(accumulate), limits[0], limits[1], strict[0], strict[1]))
        return tuple(found) if len(found) == len(items) else None

    def _expectation(self, value: dict[str, Json], optimum: Literal["min", "max"], depth: int) -> Formula | None:
        reader = self.reader
        reader.object(value, value, None, keys=_EXPECTATION_KEYS)
        for key in ("time-instant", "reward-instants"):
            if key in value:
                reader.unsupported(value, key, f"expectations at a {key}")
        reward = self.expressions.number(value, "exp", self.scope, "a reward")
        reach = self.formula(value, "reach", depth + 1) if "reach" in value else None
        instant = self._steps(value, "step-instant") if "step-instant" in value else None
        if instant is not None and instant < 0:
            raise reader.invalid(value, "step-instant", f"expected a number of steps, found {instant}")
        accumulate = reader.strings(value, "accumulate", _ACCUMULATED, "way to accumulate")
        if reward is None or ("reach" in value and reach is None) or ("step-instant" in value and instant is None):
            return None
        return Expectation(optimum, reward, reach, tuple(accumulate), instant)


def _is_temporal(value: dict[str, Any]) -> bool:
    """Does a temporal operator occur anywhere inside?"""
    stack = [value]
    while stack:
        current = stack.pop()
        operator = current.get("op")
        if isinstance(operator, str) and operator in _TEMPORAL:
            return True
        stack.extend(child for child in current.values() if isinstance(child, dict))
    return False
