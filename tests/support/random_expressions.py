"""Random expressions over a few variables, with their domains, for comparing the readings."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st

from policyproof.model.automata import Domain, Variable
from policyproof.model.expressions import Expression, apply, constant

INTEGERS = [
    Variable("i", Domain("int", -3, 4)),
    Variable("j", Domain("int", 0, 6)),
    Variable("k", Domain("int", -50, 50)),
    Variable("p", Domain("bool")),
    Variable("q", Domain("bool")),
]
REALS = [
    Variable("u", Domain("real", Fraction(-2), Fraction(3))),
    Variable("v", Domain("real", Fraction(0), Fraction(1, 3))),
]


def expressions(
    kind: str, variables: list[Variable], *, depth: int = 4, transcendental: bool = False
) -> st.SearchStrategy[Expression]:
    """Expressions of a kind; integer ones stay integral, so that batches are exact."""
    numbers = [item.expression for item in variables if item.domain.kind == "int"]
    reals = [item.expression for item in variables if item.domain.kind == "real"]
    truths = [item.expression for item in variables if item.domain.kind == "bool"]

    def integer(level: int) -> st.SearchStrategy[Expression]:
        leaf = st.sampled_from(numbers) | st.integers(-4, 5).map(constant)
        if level == 0:
            return leaf
        below, condition = st.deferred(lambda: integer(level - 1)), st.deferred(lambda: boolean(level - 1))
        pair = st.tuples(below, below)
        binary = st.tuples(st.sampled_from(["+", "-", "*", "min", "max", "%"]), pair).map(lambda x: apply(x[0], *x[1]))
        unary = st.tuples(st.sampled_from(["abs", "sgn"]), below).map(lambda x: apply(x[0], x[1]))
        rounded = st.tuples(st.sampled_from(["floor", "ceil", "trc"]), st.deferred(lambda: real(level - 1))).map(
            lambda x: apply(x[0], x[1])
        )
        choice = st.tuples(condition, below, below).map(lambda x: apply("ite", *x))
        access = st.tuples(below, below, below, below).map(lambda x: apply("aa", *x))
        power = st.tuples(below, st.integers(0, 3)).map(lambda x: apply("pow", x[0], constant(x[1])))
        return leaf | binary | unary | rounded | choice | access | power

    def real(level: int) -> st.SearchStrategy[Expression]:
        fractions = st.fractions(-3, 3, max_denominator=8).map(constant)
        leaf = fractions | st.sampled_from(reals) if reals else fractions
        if level == 0:
            return leaf | integer(0)
        below = st.deferred(lambda: real(level - 1) | integer(level - 1))
        binary = st.tuples(st.sampled_from(["+", "-", "*", "/", "min", "max"]), below, below).map(lambda x: apply(*x))
        choice = st.tuples(st.deferred(lambda: boolean(level - 1)), below, below).map(lambda x: apply("ite", *x))
        unary = below.map(lambda x: apply("abs", x))
        found = leaf | binary | choice | unary
        if transcendental:
            names = ["sin", "cos", "tan", "atan", "tanh", "exp", "sqrt", "asin", "acos", "sinh", "cosh"]
            functions = st.tuples(st.sampled_from(names), below).map(lambda x: apply(x[0], x[1]))
            logarithms = st.tuples(below, st.sampled_from([2, 10])).map(lambda x: apply("log", x[0], constant(x[1])))
            powers = st.tuples(below, st.sampled_from([2, 3, -1, Fraction(1, 2)])).map(
                lambda x: apply("pow", x[0], constant(x[1]))
            )
            found = found | functions | logarithms | powers
        return found

    def boolean(level: int) -> st.SearchStrategy[Expression]:
        leaf = st.sampled_from(truths) | st.booleans().map(constant) if truths else st.booleans().map(constant)
        if level == 0:
            return leaf
        number = st.deferred(lambda: integer(level - 1) | real(level - 1))
        below = st.deferred(lambda: boolean(level - 1))
        comparison = st.tuples(st.sampled_from(["<", "≤", ">", "≥", "=", "≠"]), number, number).map(lambda x: apply(*x))
        connective = st.tuples(st.sampled_from(["∧", "∨", "⇒", "=", "≠"]), below, below).map(lambda x: apply(*x))
        choice = st.tuples(below, below, below).map(lambda x: apply("ite", *x))
        return leaf | comparison | comparison | connective | below.map(lambda x: apply("¬", x)) | choice

    return {"int": integer, "real": real, "bool": boolean}[kind](depth)
