"""Conditions with many cases in piecewise linear programs: a column of its own for the truth of each part.

`linear` writes a condition as alternatives, of which a formula in a few connectives may have thousands.  Here each
connective and each comparison below them gets a *literal*, a binary column that equals its truth value, and
connectives become rows over the literals of their operands:

    b = l_1 ∨ ... ∨ l_n:   b >= l_i for all i,   b <= l_1 + ... + l_n        (∧: the same of the negations)

A choice between numbers whose condition is a literal is linear where the numbers differ by a constant.

Invariant: over the states where all of the condition is defined, which is demanded, a solution's literals are the
truth values; every state extends to literals.
"""

from __future__ import annotations

from policyproof.encodings.linear import Clauses, NotLinear
from policyproof.encodings.piecewise import ProgramBuilder, Row
from policyproof.encodings.question import Column, Question
from policyproof.model.definedness import definedness
from policyproof.model.expressions import TRUE, Expression, apply, negation, operands, rebuild, variable

FEW = 6
"""Conditions with at most so many alternatives do without literals."""


class LiteralBuilder(ProgramBuilder):
    """A builder of programs whose conditions may have many cases."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self._literals: dict[Expression, Expression] = {}
        """Literals by what they stand for, its parts being literals themselves."""

    def clauses(self, condition: Expression) -> Clauses:
        """The condition is defined and true; raises `NotLinear` with what is in the way."""
        try:
            found = self.linearisation.clauses(condition)
            if all(len(clause) <= FEW for clause in found) or definedness(condition) is not TRUE:
                return found
        except NotLinear:
            if definedness(condition) is not TRUE:
                raise
        return self.linearisation.clauses(self.literal(condition))

    def add_unless(self, row: Row, condition: Expression) -> None:
        """The row holds, or the condition does not."""
        if definedness(condition) is TRUE:
            condition = self.literal(condition)
        alternatives = [self._rows(part) for part in self.linearisation.negated(condition)]
        self._add_clause([[row], *alternatives])

    def literal(self, condition: Expression) -> Expression:
        """A truth value that is a column, or the negation of one, or a constant."""
        done: dict[int, Expression] = {}
        stack = [condition]
        while stack:
            node = stack[-1]
            below = _operands(node)
            missing = [part for part in below if part.serial not in done]
            if missing and node.serial not in done:
                stack += missing
                continue
            stack.pop()
            if node.serial not in done:
                done[node.serial] = self._made(node, [done[part.serial] for part in below])
        return done[condition.serial]

    def _made(self, node: Expression, parts: list[Expression]) -> Expression:
        """A node whose parts are made: numbers as they are, truth values as literals."""
        if node.operator in ("∧", "∨"):
            return self._connected(node.operator, parts)
        if node.operator == "⇒":
            return self._connected("∨", [negation(parts[0]), parts[1]])
        made = rebuild(node, tuple(parts))
        if made.kind != "bool" or _is_literal(made):
            return made
        if made not in self._literals:
            literal = self._fresh()
            for clause in self.linearisation.clauses(apply("=", literal, made)):
                self._add_clause([self._rows(alternative) for alternative in clause])
            self._literals[made] = literal
        return self._literals[made]

    def _connected(self, operator: str, parts: list[Expression]) -> Expression:
        deciding = operator == "∨"
        kept = []
        for part in dict.fromkeys(parts):
            if part.is_constant:
                if part.exact is deciding:
                    return part
            else:
                kept.append(part)
        if len(kept) <= 1:
            return kept[0] if kept else (negation(TRUE) if deciding else TRUE)
        key = kept[0]
        for part in kept[1:]:
            key = apply(operator, key, part)
        if _is_literal(key):
            return key
        if key not in self._literals:
            literal = self._fresh()
            if deciding:
                self._disjoin(literal, kept)
            else:
                self._disjoin(negation(literal), [negation(part) for part in kept])
            self._literals[key] = literal
        return self._literals[key]

    def _disjoin(self, result: Expression, parts: list[Expression]) -> None:
        """result = one of the parts."""
        for part in parts:
            self._at_least([(1.0, result), (-1.0, part)])
        self._at_least([*((1.0, part) for part in parts), (-1.0, result)])

    def _at_least(self, terms: list[tuple[float, Expression]]) -> None:
        """Σ factor · literal >= 0"""
        coefficients: dict[int, float] = {}
        limit = 0.0
        for factor, literal in terms:
            if literal.is_variable:
                column, value = self.position[literal.name], -factor
            else:
                column, value = self.position[literal.arguments[0].name], factor
                limit += factor
            coefficients[column] = coefficients.get(column, 0.0) + value
        self.program.rows.append(Row(tuple(coefficients), tuple(coefficients.values()), limit))

    def _fresh(self) -> Expression:
        name = f"literal#{len(self.program.lower)}"
        self.declare([Column(name, "bool", 0, 1)])
        return variable(name, "bool")


def _is_literal(condition: Expression) -> bool:
    part = condition.arguments[0] if condition.operator == "¬" else condition
    return part.is_variable or part.is_constant


def _operands(node: Expression) -> list[Expression]:
    """The arguments; those of nested uses of a connective all together."""
    return operands(node, node.operator) if node.operator in ("∧", "∨") else list(node.arguments)
