"""Questions as Z3 terms, exactly: rational weights, true integers, and the meaning of every operator as in `exact`.

The encoding of networks is that of ICAPS22, appendix C, with ties corrected: there every rival must be
exceeded, so that in a tie nothing is chosen; here the lowest output wins, as in `argmax`.

Operators are total in SMT-LIB as they are in our kernels, with other values where they are undefined;
`definedness` is conjoined to every condition, so those values never matter.

*Relaxed*: integers range over the reals, and every number is a real.  Rounding and remainders are
those of the integers at integer points, so each integer state is still a solution.

*Fixed cases*: an activation whose argument is known to stay on one side of its bend is encoded
without a case distinction (ICAPS22, section 6.3).  The bounds must be sound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import z3

from policyproof.encodings.question import ActivationBounds, Column, Question, bends
from policyproof.model.definedness import definedness
from policyproof.model.expressions import CONSTANT, VARIABLE, Expression, conjunction, nodes
from policyproof.policy.network import Activation, Affine, Clip, Floats, Network, Normalise
from policyproof.run.errors import Feature, UnsupportedFeature

Term = Any

MAXIMAL_POWER = 64


def unsupported_operators(roots: Sequence[Expression]) -> list[str]:
    """The operators below the roots that have no exact encoding."""
    found = set()
    for node in nodes(roots):
        if node.operator == "pow":
            exponent = node.arguments[1]
            value = Fraction(exponent.exact) if exponent.is_constant else None
            if value is None or value.denominator != 1 or abs(value) > MAXIMAL_POWER:
                found.add("pow with an exponent that is no small whole number")
        elif node.operator not in (CONSTANT, VARIABLE) and node.operator not in _OPERATORS:
            found.add(node.operator)
    return sorted(found)


class Z3Encoding:
    """The variables of a question, and its parts as terms over them."""

    def __init__(self, question: Question, *, relaxed: bool = False) -> None:
        self.question = question
        self.relaxed = relaxed
        self.variables: dict[str, Term] = {}
        self.declare(question.columns)

    def declare(self, columns: Sequence[Column]) -> None:
        """More variables; a name means the same variable everywhere."""
        self.variables.update((column.name, self._variable(column.name, column.kind)) for column in columns)

    def constraints(self) -> list[Term]:
        """The whole question."""
        question = self.question
        found = [*self.box(), self.condition(question.condition)]
        if question.network is not None:
            definitions, outputs = self.network(question.network, self.inputs(), question.bounds)
            found += [*definitions, self.chosen(outputs)]
        return found

    def box(self) -> list[Term]:
        return self.within(self.question.columns)

    def within(self, columns: Sequence[Column]) -> list[Term]:
        """Variables are in their intervals."""
        found = []
        for column in columns:
            variable = self.variables[column.name]
            if column.kind == "bool":
                if column.lower == column.upper:
                    found.append(variable == z3.BoolVal(bool(column.lower)))
                continue
            if column.lower is not None:
                found.append(variable >= _number(column.lower))
            if column.upper is not None:
                found.append(variable <= _number(column.upper))
        return found

    def condition(self, condition: Expression) -> Term:
        """The condition is defined and true."""
        return self.expression(conjunction([condition, definedness(condition)]))

    def expression(self, root: Expression) -> Term:
        """The total reading of an expression."""
        done: dict[int, Term] = {}
        for node in nodes([root]):
            if node.operator == CONSTANT:
                done[node.serial] = z3.BoolVal(node.exact) if node.kind == "bool" else self._constant(node)
            elif node.operator == VARIABLE:
                done[node.serial] = self.variables[node.name]
            else:
                function = _OPERATORS.get(node.operator)
                if function is None:
                    raise UnsupportedFeature([Feature(f"the operator {node.operator}", "no exact encoding for Z3")])
                done[node.serial] = self._result(node, function(node, [done[a.serial] for a in node.arguments]))
        return done[root.serial]

    def inputs(self) -> list[Term]:
        """The inputs of the network as reals."""
        return self.numbers(self.question.inputs)

    def numbers(self, expressions: Sequence[Expression]) -> list[Term]:
        """Expressions as reals, truth values as 0 and 1."""
        terms = [self.expression(expression) for expression in expressions]
        zero, one = _number(Fraction(0)), _number(Fraction(1))
        return [z3.If(term, one, zero) if z3.is_bool(term) else _real(term) for term in terms]

    def network(
        self, network: Network, inputs: list[Term], bounds: ActivationBounds | None
    ) -> tuple[list[Term], list[Term]]:
        """Definitions of the components of all layers, and the outputs."""
        definitions: list[Term] = []
        values = inputs
        bending = 0
        for layer in network.layers:
            if isinstance(layer, Affine):
                values = [self._named(definitions, term) for term in _affine(layer, values)]
            elif isinstance(layer, Normalise):
                values = [self._named(definitions, term) for term in _normalise(layer, values)]
            elif bends(layer):
                known = None if bounds is None else bounds[bending]
                bending += 1
                bent = [_bend(layer, number, term, known) for number, term in enumerate(values)]
                values = [self._named(definitions, term) for term in bent]
        return definitions, values

    def chosen(self, outputs: list[Term]) -> Term:
        """The question's output wins: among the applicable ones, or among all where none is applicable."""
        question = self.question
        own = outputs[question.output]
        beats = {
            rival: own > outputs[rival] if question.must_exceed(rival) else own >= outputs[rival]
            for rival in question.rivals
        }
        if question.applicability is None:
            return z3.And(list(beats.values()))
        applicable = [self.condition(condition) for condition in question.applicability]
        among = [z3.Implies(applicable[rival], beat) for rival, beat in beats.items()]
        nothing = [z3.Not(condition) for condition in applicable]
        return z3.Or(
            z3.And([applicable[question.output], *among]),
            z3.And([*nothing, *beats.values()]),
        )

    def _variable(self, name: str, kind: str) -> Term:
        if kind == "bool":
            return z3.Bool(name)
        return z3.Int(name) if kind == "int" and not self.relaxed else z3.Real(name)

    def _constant(self, node: Expression) -> Term:
        whole = node.kind == "int" and not self.relaxed
        return z3.IntVal(int(node.exact)) if whole else _number(Fraction(node.exact))

    def _result(self, node: Expression, term: Term) -> Term:
        """Relaxed, rounding gives whole reals; a real-valued choice between integers is a real."""
        if z3.is_int(term) and (self.relaxed or node.kind == "real"):
            return z3.ToReal(term)
        return term

    def _named(self, definitions: list[Term], term: Term) -> Term:
        """A variable for a component, so that terms do not grow from layer to layer."""
        variable = z3.FreshReal("component")
        definitions.append(variable == term)
        return variable


# Numbers and operators


def _number(value: int | Fraction) -> Term:
    return z3.IntVal(value) if isinstance(value, int) else z3.RealVal(f"{value.numerator}/{value.denominator}")


def _real(term: Term) -> Term:
    return z3.ToReal(term) if z3.is_int(term) else term


def _alike(terms: Sequence[Term]) -> list[Term]:
    """The same numbers with one sort."""
    return [_real(term) for term in terms] if any(z3.is_real(term) for term in terms) else list(terms)


def _binary(function: Callable[[Term, Term], Term]) -> Callable[[Expression, list[Term]], Term]:
    return lambda node, inputs: function(*_alike(inputs))


def _remainder(node: Expression, inputs: list[Term]) -> Term:
    """a - b floor(a / b): the sign follows the divisor (SMT-LIB's remainder is never negative)."""
    a, b = inputs
    if z3.is_real(a) or z3.is_real(b):
        a, b = _alike(inputs)
        return a - b * z3.ToReal(z3.ToInt(a / b))
    if node.arguments[1].is_constant:
        return a % b if int(node.arguments[1].exact) > 0 else -((-a) % (-b))
    return z3.If(b > 0, a % b, -((-a) % (-b)))


def _floor(node: Expression, inputs: list[Term]) -> Term:
    (value,) = inputs
    if z3.is_int(value):
        return value
    return z3.ToInt(value)


def _ceiling(node: Expression, inputs: list[Term]) -> Term:
    (value,) = inputs
    return value if z3.is_int(value) else -z3.ToInt(-value)


def _truncate(node: Expression, inputs: list[Term]) -> Term:
    (value,) = inputs
    return value if z3.is_int(value) else z3.If(value >= 0, z3.ToInt(value), -z3.ToInt(-value))


def _power(node: Expression, inputs: list[Term]) -> Term:
    base, exponent = inputs[0], int(node.arguments[1].exact)
    if node.kind == "real":
        base = _real(base)
    result: Term = z3.IntVal(1) if z3.is_int(base) else _number(Fraction(1))
    for _ in range(abs(exponent)):
        result = result * base
    return _number(Fraction(1)) / result if exponent < 0 else result


def _access(node: Expression, inputs: list[Term]) -> Term:
    index, *elements = inputs
    elements = elements if z3.is_bool(elements[0]) else _alike(elements)
    result = elements[-1]
    for number in range(len(elements) - 2, -1, -1):
        result = z3.If(index == number, elements[number], result)
    return result


def _choice(node: Expression, inputs: list[Term]) -> Term:
    condition, *branches = inputs
    return z3.If(condition, *(branches if z3.is_bool(branches[0]) else _alike(branches)))


def _equal(node: Expression, inputs: list[Term]) -> Term:
    left, right = inputs if z3.is_bool(inputs[0]) else _alike(inputs)
    return left == right


_OPERATORS: Mapping[str, Callable[[Expression, list[Term]], Term]] = {
    "∧": lambda node, inputs: z3.And(inputs),
    "∨": lambda node, inputs: z3.Or(inputs),
    "⇒": lambda node, inputs: z3.Implies(*inputs),
    "¬": lambda node, inputs: z3.Not(inputs[0]),
    "<": _binary(lambda a, b: a < b),
    "≤": _binary(lambda a, b: a <= b),
    ">": _binary(lambda a, b: a > b),
    "≥": _binary(lambda a, b: a >= b),
    "=": _equal,
    "≠": lambda node, inputs: z3.Not(_equal(node, inputs)),
    "+": _binary(lambda a, b: a + b),
    "-": _binary(lambda a, b: a - b),
    "*": _binary(lambda a, b: a * b),
    "/": lambda node, inputs: _real(inputs[0]) / _real(inputs[1]),
    "%": _remainder,
    "min": _binary(lambda a, b: z3.If(a <= b, a, b)),
    "max": _binary(lambda a, b: z3.If(a >= b, a, b)),
    "abs": lambda node, inputs: z3.If(inputs[0] >= 0, inputs[0], -inputs[0]),
    "sgn": lambda node, inputs: z3.If(inputs[0] > 0, z3.IntVal(1), z3.If(inputs[0] < 0, z3.IntVal(-1), z3.IntVal(0))),
    "floor": _floor,
    "ceil": _ceiling,
    "trc": _truncate,
    "pow": _power,
    "ite": _choice,
    "aa": _access,
}


# Layers


def _affine(layer: Affine, values: list[Term]) -> list[Term]:
    found = []
    for row, bias in zip(layer.weights.tolist(), layer.bias.tolist(), strict=True):
        parts = [_number(Fraction(weight)) * value for weight, value in zip(row, values, strict=True) if weight]
        found.append(z3.Sum([*parts, _number(Fraction(bias))]))
    return found


def _normalise(layer: Normalise, values: list[Term]) -> list[Term]:
    return [
        (value - _number(Fraction(_at(layer.subtract, number)))) * _number(1 / Fraction(_at(layer.divide, number)))
        for number, value in enumerate(values)
    ]


def _at(array: Floats, index: int) -> float:
    return float(array.ravel()[0] if array.size == 1 else array[index])


def _bend(layer: object, number: int, value: Term, known: tuple[Floats, Floats] | None) -> Term:
    low, high = (-float("inf"), float("inf")) if known is None else (float(known[0][number]), float(known[1][number]))
    if isinstance(layer, Clip):
        return _clip(_at(layer.lower, number), _at(layer.upper, number), value, low, high)
    if not isinstance(layer, Activation) or layer.kind not in ("relu", "leaky_relu"):
        raise UnsupportedFeature([Feature("the network", f"no exact encoding of {layer} for Z3")])
    below = value * _number(Fraction(layer.slope)) if layer.slope else _number(Fraction(0))
    if low >= 0:
        return value
    return below if high <= 0 else z3.If(value >= 0, value, below)


def _clip(first: float, second: float, value: Term, low: float, high: float) -> Term:
    result = value
    # Infinite ends clip nothing.
    if high > second:
        end = _number(Fraction(second))
        result = end if low >= second else z3.If(value > end, end, result)
    if low < first:
        end = _number(Fraction(first))
        result = end if high <= first else z3.If(value < end, end, result)
    return result
