"""Checks, in rational arithmetic, a proof that a policy chooses some output nowhere in a box of states.

The proof is a tree (see `Node kinds`); this program never searches.  It walks the tree with the box of
every node, and at each leaf does one evaluation:

- `outside`: the region's condition, evaluated on intervals, cannot be true (or is so in no single state);
- `beaten`: the facts about applicability hold on intervals, and the network's difference between the
  winner and the output is positive (not negative, for a winner with a lower index) by linear
  relaxation with the given slopes: every undecided activation lies between the line of slope λ through
  its least and the line of slope μ through its greatest offset, whatever λ and μ are;
- `states`: every state is decided by `plain_policy`.

Only the weights, the interface and the expressions are shared with the program that made the proof.

Node kinds, in the order in which they are read (a node, its lower half, its upper half):
["split", variable, value], ["outside"], ["beaten", facts, slopes], ["states"].
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import ceil, floor, trunc
from typing import Any

from policyproof.evidence.plain_policy import decide
from policyproof.evidence.plain_values import NotSettled, Undefined, value_of
from policyproof.model.automata import Variable
from policyproof.model.expressions import Expression, variables_of
from policyproof.policy.network import Activation, Affine, Clip, Network, Normalise
from policyproof.policy.policy import Policy
from policyproof.run.errors import InvalidInput

SCHEMA = "policyproof-decision-proof-1"
MOST_STATES = 100_000

Ends = tuple[Any, Any]
Box = dict[str, Ends]


_UNREADABLE = (LookupError, TypeError, ValueError, ArithmeticError, Undefined)
"""What a proof that is no proof runs into."""


class Rejected(Exception):
    """The proof does not show what it claims: which node (-1: before the first one), and why."""


def check_decision_proof(
    policy: Policy,
    variables: Sequence[Variable],
    proof: Mapping[str, Any],
    *,
    condition: Expression | None = None,
    applicability: Sequence[Expression] | None = None,
) -> int:
    """Check that `proof["output"]` is chosen in no state of the proof's box; the number of nodes, or `Rejected`."""
    if proof.get("schema") != SCHEMA:
        raise InvalidInput(f"expected {SCHEMA!r}, found {proof.get('schema')!r}", where="proof")
    if proof.get("variables") != [item.name for item in variables]:
        raise Rejected(f"the proof is about the variables {proof.get('variables')}")
    if (applicability is not None) != policy.filter:
        raise InvalidInput("the applicability of the outputs is needed exactly when the policy filters")
    number, nodes = -1, proof.get("nodes", [])
    try:
        checker = _Checker(policy, variables, proof["output"], condition, applicability)
        stack = [checker.whole(proof["lower"], proof["upper"])]
        for number in range(len(nodes)):
            node = nodes[number]
            if not stack:
                raise Rejected("the tree has ended before")
            stack.extend(reversed(checker.node(node, stack.pop())))
    except _UNREADABLE as error:
        raise Rejected(f"node {number} cannot be read: {type(error).__name__}: {error}") from error
    except NotSettled:
        raise Rejected(f"node {number}: a decision is not settled by the digits that are tried") from None
    except Rejected as reason:
        raise Rejected(f"node {number}: {reason}") from None
    if stack:
        raise Rejected(f"{len(stack)} boxes are left without a node")
    return len(nodes)


class _Checker:
    def __init__(
        self,
        policy: Policy,
        variables: Sequence[Variable],
        output: int,
        condition: Expression | None,
        applicability: Sequence[Expression] | None,
    ) -> None:
        self.policy, self.variables = policy, list(variables)
        self.output = self._known(output)
        self.condition, self.applicability = condition, applicability
        seen = variables_of([*([] if condition is None else [condition]), *(applicability or [])])
        self.read = policy.reads | seen

    def _known(self, output: Any) -> int:
        """An index of an output; nothing else will do, and no counting from the end."""
        if type(output) is not int or not 0 <= output < len(self.policy.labels):
            raise Rejected(f"there is no output {output!r}")
        return output

    def whole(self, lower: Sequence[Any], upper: Sequence[Any]) -> Box:
        """The box that the proof is about."""
        box = {}
        for item, low, high in zip(self.variables, lower, upper, strict=True):
            box[item.name] = (self._value(item, low), self._value(item, high))
        return box

    @staticmethod
    def _value(item: Variable, given: Any) -> Fraction:
        value = Fraction(given)
        if item.domain.kind != "real" and value.denominator != 1:
            raise Rejected(f"{given} is no value of {item.name}, which has integers")
        return value

    def node(self, node: Sequence[Any], box: Box) -> list[Box]:
        """Check one node; the boxes of its children."""
        kind = node[0]
        if kind == "split":
            if type(node[1]) is not int or not 0 <= node[1] < len(self.variables):
                raise Rejected(f"there is no variable {node[1]!r}")
            return self._split(self.variables[node[1]], node[2], box)
        if kind == "outside":
            if self.condition is None:
                raise Rejected("the region has no condition")
            if possible(self.condition, box):
                # What intervals do not settle, looking at the states may.
                self._states(box)
        elif kind == "beaten":
            self._beaten(node[1], node[2], box)
        elif kind == "states":
            self._states(box)
        else:
            raise Rejected(f"unknown kind {kind!r}")
        return []

    def _split(self, item: Variable, given: Any, box: Box) -> list[Box]:
        low, high = box[item.name]
        value = self._value(item, given)
        if not low <= value <= high:
            raise Rejected(f"{item.name} is split at {value}, outside {low} .. {high}")
        above = value if item.domain.kind == "real" else value + 1
        return [{**box, item.name: (low, value)}, {**box, item.name: (above, high)}]

    def _states(self, box: Box) -> None:
        columns = []
        for item in self.variables:
            low, high = box[item.name]
            if item.domain.kind == "real":
                if low < high and item.name in self.read:
                    raise Rejected(f"the real variable {item.name} has more than one value")
                columns.append([low] if low <= high else [])
            elif item.name in self.read:
                columns.append([Fraction(number) for number in range(int(low), int(high) + 1)])
            else:
                columns.append([low] if low <= high else [])
            if len(columns[-1]) > MOST_STATES:
                raise Rejected("too many states for a leaf")
        for count, values in enumerate(itertools.product(*columns)):
            if count >= MOST_STATES:
                raise Rejected("too many states for a leaf")
            state = {item.name: _typed(item, value) for item, value in zip(self.variables, values, strict=True)}
            if self.condition is not None and not _true(self.condition, state):
                continue
            allowed = None
            if self.applicability is not None:
                pairs = zip(self.policy.labels, self.applicability, strict=True)
                # Where nothing is applicable the plain best label is chosen.
                allowed = [label for label, condition in pairs if _true(condition, state)] or None
            if decide(self.policy, state, allowed).label == self.policy.labels[self.output]:
                raise Rejected(f"the output is chosen in the state {state}")

    def _beaten(self, facts: Mapping[str, Any], slopes: Sequence[Any], box: Box) -> None:
        if self.applicability is None:
            self._greater(facts["by"], slopes, box)
            return
        if "by" in facts:
            self._everywhere(facts["by"], box)
            self._greater(facts["by"], slopes, box)
        elif not facts.get("never") or possible(self.applicability[self.output], box):
            raise Rejected("the output may be applicable and the best of those")
        if "applicable" in facts:
            self._everywhere(facts["applicable"], box)
        else:
            self._greater(facts["plain"], slopes, box)

    def _everywhere(self, output: int, box: Box) -> None:
        if self.applicability is None or not certain(self.applicability[self._known(output)], box):
            raise Rejected(f"output {output} may be inapplicable")

    def _greater(self, winner: int, slopes: Sequence[Any], box: Box) -> None:
        """Is the winner greater in the whole box (or as great, with a lower index)?"""
        if self._known(winner) == self.output:
            raise Rejected("an output does not beat itself")
        number = 0
        if self.policy.switch is not None:
            low, high, defined = interval(self.policy.switch, box)
            if not defined or low != high:
                raise Rejected("several networks decide here")
            number = self.policy.switch_values.index(int(low))
        inputs = [interval(expression, box) for expression in self.policy.inputs]
        if not all(defined for *_, defined in inputs):
            raise Rejected("an input may be undefined")
        row = [Fraction(0)] * len(self.policy.labels)
        row[winner] += 1
        row[self.output] -= 1
        least = least_value(self.policy.networks[number], [(low, high) for low, high, _ in inputs], row, slopes)
        if not (least > 0 or (least == 0 and winner < self.output)):
            raise Rejected(f"output {winner} may be smaller: the bound of the difference is {float(least):g}")


def _typed(item: Variable, value: Fraction) -> bool | int | Fraction:
    return bool(value) if item.domain.kind == "bool" else value if item.domain.kind == "real" else int(value)


def _true(condition: Expression, state: Mapping[str, Any]) -> bool:
    try:
        return value_of(condition, state) is True
    except Undefined:
        return False


# Bounds of a network by linear relaxation


def least_value(network: Network, inputs: Sequence[Ends], row: Sequence[Fraction], slopes: Sequence[Any]) -> Fraction:
    """A lower bound of `row · outputs` on a box of inputs; `slopes[k]` are those of the k-th activation."""
    steps: list[Any] = []
    interval_ends = [(Fraction(low), Fraction(high)) for low, high in inputs]
    given = list(slopes)
    for layer in network.layers:
        if isinstance(layer, (Affine, Normalise)):
            rows, constants = _affine(layer, len(interval_ends))
            interval_ends = [
                (_least(part, interval_ends) + extra, -_least([-x for x in part], interval_ends) + extra)
                for part, extra in zip(rows, constants, strict=True)
            ]
            steps.append((rows, constants))
        else:
            size = len(interval_ends)
            units = [[Fraction(int(i == j)) for j in range(size)] for i in range(size)]
            ends = [
                (
                    max(low, _substituted(unit, steps, inputs)),
                    min(high, -_substituted([-x for x in unit], steps, inputs)),
                )
                for unit, (low, high) in zip(units, interval_ends, strict=True)
            ]
            lower_slopes, upper_slopes = given.pop(0)
            lines = []
            for i, (low, high) in enumerate(ends):
                function, kinks = _function(layer, i)
                lines.append(_lines(function, kinks, low, high, Fraction(lower_slopes[i]), Fraction(upper_slopes[i])))
            interval_ends = [
                (_function(layer, i)[0](low), _function(layer, i)[0](high)) for i, (low, high) in enumerate(ends)
            ]
            steps.append(lines)
    return _substituted(list(row), steps, inputs)


def _affine(layer: Affine | Normalise, size: int) -> tuple[list[list[Fraction]], list[Fraction]]:
    if isinstance(layer, Affine):
        return [[Fraction(x) for x in part] for part in layer.weights.tolist()], [
            Fraction(x) for x in layer.bias.tolist()
        ]
    rows, constants = [[Fraction(0)] * size for _ in range(size)], []
    for i in range(size):
        subtract, divide = (Fraction(_at(array, i)) for array in (layer.subtract, layer.divide))
        rows[i][i] = 1 / divide
        constants.append(-subtract / divide)
    return rows, constants


def _at(array: Any, i: int) -> float:
    return float(array.reshape(-1)[0] if array.size == 1 else array[i])


def _function(layer: Any, i: int) -> tuple[Callable[[Fraction], Fraction], list[Fraction]]:
    """The piecewise linear function of a component, and where it bends."""
    if isinstance(layer, Clip):
        ends = [_at(array, i) for array in (layer.lower, layer.upper)]

        def clip(z: Fraction) -> Fraction:
            return Fraction(ends[0]) if z < ends[0] else Fraction(ends[1]) if z > ends[1] else z

        return clip, [Fraction(end) for end in ends if abs(end) != float("inf")]
    if isinstance(layer, Activation) and layer.kind in ("relu", "leaky_relu"):
        slope = Fraction(layer.slope) if layer.kind == "leaky_relu" else Fraction(0)
        return lambda z: z if z > 0 else slope * z, [Fraction(0)]
    raise Rejected("only piecewise linear activations can be checked")


def _lines(
    function: Callable[[Fraction], Fraction], kinks: Sequence[Fraction], low: Fraction, high: Fraction,
    lower_slope: Fraction, upper_slope: Fraction,
) -> tuple[Fraction, Fraction, Fraction, Fraction]:  # fmt: skip
    """The lines of these slopes around the function on [low, high]: offsets are extreme at its ends and bends."""
    points = [low, high, *(kink for kink in kinks if low < kink < high)]
    least = min(function(z) - lower_slope * z for z in points)
    greatest = max(function(z) - upper_slope * z for z in points)
    return lower_slope, least, upper_slope, greatest


def _least(row: Sequence[Fraction], ends: Sequence[Ends]) -> Fraction:
    return sum((x * (low if x >= 0 else high) for x, (low, high) in zip(row, ends, strict=True)), Fraction(0))


def _substituted(row: list[Fraction], steps: Sequence[Any], inputs: Sequence[Ends]) -> Fraction:
    """A lower bound of `row · values` by pushing the row back through the steps to the inputs."""
    total = Fraction(0)
    for step in reversed(steps):
        if isinstance(step, tuple):
            rows, constants = step
            total += sum((x * extra for x, extra in zip(row, constants, strict=True)), Fraction(0))
            used = [(x, part) for x, part in zip(row, rows, strict=True) if x]
            width = len(rows[0]) if rows else 0
            row = [sum((x * part[j] for x, part in used), Fraction(0)) for j in range(width)]
        else:
            total += sum((x * (line[1] if x >= 0 else line[3]) for x, line in zip(row, step, strict=True)), Fraction(0))
            row = [x * (line[0] if x >= 0 else line[2]) for x, line in zip(row, step, strict=True)]
    return total + _least(row, inputs)


# Expressions on boxes


def possible(condition: Expression, box: Box) -> bool:
    """May the condition be true somewhere in the box?"""
    return bool(interval(condition, box)[1])


def certain(condition: Expression, box: Box) -> bool:
    """Is the condition defined and true in the whole box?"""
    low, _, defined = interval(condition, box)
    return bool(low) and bool(defined)


INFINITY = float("inf")


def interval(root: Expression, box: Box) -> tuple[Any, Any, bool]:
    """(least, greatest, defined everywhere): what an expression can be in a box, where it is defined.

    Truth values are 0 and 1.  Of operators that are not listed here nothing is known.
    """
    done: dict[int, tuple[Any, Any, bool]] = {}
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if node.serial in done:
            continue
        if not ready and node.arguments:
            stack.append((node, True))
            stack.extend((argument, False) for argument in node.arguments)
        elif node.is_variable:
            done[node.serial] = (*box[node.name], True)
        elif node.is_constant:
            done[node.serial] = (Fraction(node.exact), Fraction(node.exact), True)
        else:
            done[node.serial] = _operate(node, [done[argument.serial] for argument in node.arguments])
    return done[root.serial]


def _operate(node: Expression, inputs: list[tuple[Any, Any, bool]]) -> tuple[Any, Any, bool]:
    operator = node.operator
    defined = all(part[2] for part in inputs)
    if operator in ("∧", "∨", "⇒"):
        (a, b, _), (c, d, _) = inputs
        if operator == "⇒":
            a, b = 1 - b, 1 - a
        return (min(a, c), min(b, d), defined) if operator == "∧" else (max(a, c), max(b, d), defined)
    if operator == "ite":
        (a, b, known), then, otherwise = inputs
        if known and a == b:
            return then if a else otherwise
        return min(then[0], otherwise[0]), max(then[1], otherwise[1]), defined
    if any(isinstance(end, float) for part in inputs for end in part[:2]):
        # Unbounded: only what needs no arithmetic would be known.
        return (0, 1, defined) if node.kind == "bool" else (-INFINITY, INFINITY, False)
    rule = _RULES.get(operator)
    if rule is None:
        return (0, 1, False) if node.kind == "bool" else (-INFINITY, INFINITY, False)
    if operator in ("/", "%") and inputs[1][0] <= 0 <= inputs[1][1]:
        return -INFINITY, INFINITY, False
    low, high = rule(*(part[:2] for part in inputs))
    return low, high, defined


def _products(a: Ends, b: Ends) -> Ends:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _remainder(a: Ends, b: Ends) -> Ends:
    """The remainder has the sign of the divisor, and is smaller; by one divisor it is periodic."""
    if b[0] == b[1] and floor(a[0] / b[0]) == floor(a[1] / b[0]):
        ends = [x - b[0] * floor(x / b[0]) for x in a]
        return min(ends), max(ends)
    return min(b[0], Fraction(0)), max(b[1], Fraction(0))


_RULES: dict[str, Callable[..., Ends]] = {
    "/": lambda a, b: _products(a, (1 / Fraction(b[1]), 1 / Fraction(b[0]))),
    "%": _remainder,
    "floor": lambda a: (floor(a[0]), floor(a[1])),
    "ceil": lambda a: (ceil(a[0]), ceil(a[1])),
    "trc": lambda a: (trunc(a[0]), trunc(a[1])),
    "sgn": lambda a: ((a[0] > 0) - (a[0] < 0), (a[1] > 0) - (a[1] < 0)),
    "¬": lambda a: (1 - a[1], 1 - a[0]),
    "+": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "-": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "*": _products,
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "abs": lambda a: (max(a[0], -a[1], Fraction(0)), max(-a[0], a[1])),
    "<": lambda a, b: (int(a[1] < b[0]), int(a[0] < b[1])),
    "≤": lambda a, b: (int(a[1] <= b[0]), int(a[0] <= b[1])),
    ">": lambda a, b: (int(a[0] > b[1]), int(a[1] > b[0])),
    "≥": lambda a, b: (int(a[0] >= b[1]), int(a[1] >= b[0])),
    "=": lambda a, b: (int(a[0] == a[1] == b[0] == b[1]), int(a[0] <= b[1] and b[0] <= a[1])),
    "≠": lambda a, b: (int(a[1] < b[0] or b[1] < a[0]), int(not a[0] == a[1] == b[0] == b[1])),
}
