"""Reading and writing queries in VNN-LIB 1.0: "is there an input such that ...?"

A file declares inputs `X_i` and outputs `Y_j` and asserts `and`/`or` combinations of linear comparisons.
It is read into *cases*: each a box of inputs and a disjunction of *clauses*, each clause a conjunction of
linear constraints on outputs.  The query is satisfied by (x, y) when in some case x lies in the box and
some clause holds of y; everything is rational and exactly what the file says.

Idea: one pass over the tokens with an explicit stack; a closing bracket at once turns its operands into
a linear term, or into a disjunction of conjunctions of comparisons.  Nothing recurses, and nesting has no
limit but memory.

Invariant: a file is either read completely or refused, with all that is unsupported in it and where.
Comparisons that tie inputs and outputs together, or several inputs to each other, are refused; a strict
comparison stays strict.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from math import prod
from pathlib import Path

from policyproof.encodings.output_query import Case, Clause, Constraint, Interval, Query
from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature

MOST_CONJUNCTIONS = 100_000
"""How many conjunctions a formula may have when it is multiplied out."""
MOST_DIGITS = 5000
"""Of exponents and numbers: a short text must not become a number that fills the memory."""

_TOKEN = re.compile(r"\s+|;[^\n]*|[()]|[^\s();]+")
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d+))?)(?:/(\d+))?")
_VARIABLE = re.compile(r"([XY])_(0|[1-9]\d{0,8})")
_COMPARISONS = ("<=", ">=", "<", ">", "=")
_ARITHMETIC = ("+", "-", "*", "/")
_TOO_MANY = f"a formula of more than {MOST_CONJUNCTIONS} cases when multiplied out"
_WITHOUT_MEANING = ("set-logic", "set-info", "set-option", "check-sat", "get-model", "exit")
_ALLOWED = "declare-const, assert, and, or, <=, >=, <, >, =, +, -, *, /"


def read_vnnlib(path: str | Path) -> Query:
    """The query in a file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidInput("no such file", where=str(path)) from None
    except IsADirectoryError:
        raise InvalidInput("this is a folder, not a file", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"not a text file: {error}", where=str(path)) from None
    return parse_vnnlib(text, source=str(path))


def parse_vnnlib(text: str, *, source: str = "query") -> Query:
    """The query that a text states; `source` names it in errors."""
    return _Reader(text, source).read()


# Reading


@dataclass(frozen=True)
class _Comparison:
    """`Σ factor · variable <= bound` (`<` when strict); a variable is ("X" or "Y", index)."""

    terms: tuple[tuple[tuple[str, int], Fraction], ...]
    bound: Fraction
    strict: bool


_Conjunction = tuple[_Comparison, ...]
_TRUE: _Conjunction = ()


@dataclass(frozen=True)
class _Linear:
    factors: dict[tuple[str, int], Fraction]
    constant: Fraction


@dataclass(frozen=True)
class _Formula:
    """A disjunction of conjunctions."""

    conjunctions: list[_Conjunction]

    @property
    def single(self) -> bool:
        return len(self.conjunctions) == 1


@dataclass(frozen=True)
class _Symbol:
    text: str


class _Done:
    """What a command leaves behind, or something refused whose place is already noted."""


_Value = _Linear | _Formula | _Symbol | _Done


@dataclass(frozen=True)
class _Frame:
    place: int
    operands: list[tuple[int, _Value]]


class _Reader:
    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.lines = [0, *(match.end() for match in re.finditer(r"\n", text))]
        self.declared: dict[tuple[str, int], int] = {}
        self.asserted: list[_Formula] = []
        self.unsupported: list[Feature] = []

    def read(self) -> Query:
        stack: list[_Frame] = []
        for place, token in self._tokens():
            if token == "(":
                stack.append(_Frame(place, []))
            elif not stack:
                raise self._invalid(place, f"expected '(', found {_shown(token)}")
            elif token == ")":
                frame = stack.pop()
                value = self._command(frame) if not stack else self._reduce(frame)
                if stack:
                    stack[-1].operands.append((frame.place, value))
            else:
                stack[-1].operands.append((place, self._atom(place, token, first=not stack[-1].operands)))
        if stack:
            raise self._invalid(stack[-1].place, "this '(' is never closed")
        sizes = {kind: self._size(kind) for kind in "XY"}
        return self._query(sizes["X"], sizes["Y"])

    # Places and errors

    def _where(self, place: int) -> str:
        line = bisect.bisect_right(self.lines, place)
        return f"{self.source}, line {line}, column {place - self.lines[line - 1] + 1}"

    def _invalid(self, place: int, message: str) -> InvalidInput:
        return InvalidInput(message, where=self._where(place))

    def _refuse(self, place: int, what: str) -> _Done:
        self.unsupported.append(Feature(self._where(place), what))
        return _Done()

    # Tokens

    def _tokens(self) -> Iterator[tuple[int, str]]:
        for match in _TOKEN.finditer(self.text):
            token = match.group()
            if not token[0].isspace() and token[0] != ";":
                yield match.start(), token

    def _atom(self, place: int, token: str, *, first: bool) -> _Value:
        if first:
            return _Symbol(token)
        number = _NUMBER.fullmatch(token)
        if number is not None:
            decimal, exponent, denominator = number.groups()
            if len(token) > MOST_DIGITS or (exponent is not None and abs(int(exponent)) > MOST_DIGITS):
                raise self._invalid(place, f"a number that is too long: {_shown(token)}")
            divisor = int(denominator) if denominator else 1
            if divisor == 0:
                raise self._invalid(place, "division by zero")
            return _Linear({}, Fraction(decimal) / divisor)
        variable = self._variable(token)
        if variable is not None and variable in self.declared:
            return _Linear({variable: Fraction(1)}, Fraction(0))
        return _Symbol(token)

    def _variable(self, token: str) -> tuple[str, int] | None:
        match = _VARIABLE.fullmatch(token)
        return None if match is None else (match.group(1), int(match.group(2)))

    # Commands

    def _command(self, frame: _Frame) -> _Done:
        place, name = self._operator(frame)
        operands = frame.operands[1:]
        if name in ("declare-const", "declare-fun"):
            self._declare(place, name, operands)
        elif name == "assert":
            if len(operands) != 1:
                raise self._invalid(place, f"assert takes one formula, found {len(operands)}")
            formula = self._formula(*operands[0])
            if formula is not None:
                self.asserted.append(formula)
        elif name not in _WITHOUT_MEANING:
            return self._refuse(place, f"the command {name!r}")
        return _Done()

    def _operator(self, frame: _Frame) -> tuple[int, str]:
        if not frame.operands or not isinstance(frame.operands[0][1], _Symbol):
            raise self._invalid(frame.place, "expected a command or an operator after '('")
        return frame.operands[0][0], frame.operands[0][1].text

    def _declare(self, place: int, name: str, operands: list[tuple[int, _Value]]) -> None:
        words = [operand.text if isinstance(operand, _Symbol) else None for _, operand in operands]
        if name == "declare-fun" and len(operands) == 3 and isinstance(operands[1][1], _Done):
            words = [words[0], words[2]]
        if operands and isinstance(operands[0][1], _Linear) and operands[0][1].factors:
            raise self._invalid(operands[0][0], "this variable is declared twice")
        if len(words) != 2 or words[0] is None or words[1] is None:
            raise self._invalid(place, f"expected a name and a type after {name}")
        variable = self._variable(words[0])
        if variable is None:
            self._refuse(operands[0][0], f"a variable {words[0]!r} that is neither X_<number> nor Y_<number>")
        elif words[1] != "Real":
            self._refuse(operands[-1][0], f"the type {words[1]!r} (allowed: Real)")
        else:
            self.declared[variable] = operands[0][0]

    # Operators

    def _reduce(self, frame: _Frame) -> _Value:
        if not frame.operands:
            return _Done()  # The empty list of arguments of declare-fun.
        place, operator = self._operator(frame)
        operands = frame.operands[1:]
        if operator in ("and", "or"):
            parts = [self._formula(*operand) for operand in operands]
            known = [part for part in parts if part is not None]
            return self._combine(place, operator, known) if len(known) == len(parts) else _Done()
        if operator not in (*_COMPARISONS, *_ARITHMETIC):
            return self._refuse(place, f"the operator {operator!r} (allowed: {_ALLOWED})")
        linear = [self._linear(*operand) for operand in operands]
        terms = [term for term in linear if term is not None]
        if len(terms) < len(linear):
            return _Done()
        if operator in _COMPARISONS:
            if len(terms) < 2:
                raise self._invalid(place, f"{operator!r} compares at least two terms, found {len(terms)}")
            return self._compare(place, operator, terms)
        if not terms:
            raise self._invalid(place, f"{operator!r} without operands")
        return self._calculate(place, operator, terms)

    def _formula(self, place: int, value: _Value) -> _Formula | None:
        if isinstance(value, _Symbol) and value.text in ("true", "false"):
            return _Formula([_TRUE] if value.text == "true" else [])
        if isinstance(value, (_Linear, _Symbol)):
            found = f"found {_shown(value.text)}" if isinstance(value, _Symbol) else "found a number"
            raise self._invalid(place, f"expected a formula, {found}")
        return value if isinstance(value, _Formula) else None

    def _linear(self, place: int, value: _Value) -> _Linear | None:
        if isinstance(value, _Symbol):
            if self._variable(value.text) is not None:
                raise self._invalid(place, f"the variable {value.text} is not declared")
            raise self._invalid(place, f"expected a number or a variable, found {_shown(value.text)}")
        if isinstance(value, _Formula):
            raise self._invalid(place, "expected a number or a variable, found a formula")
        return value if isinstance(value, _Linear) else None

    def _combine(self, place: int, operator: str, parts: list[_Formula]) -> _Value:
        if operator == "or":
            return _Formula([conjunction for part in parts for conjunction in part.conjunctions])
        # What is a single conjunction, as most assertions are, is joined without multiplying.
        common = tuple(comparison for part in parts if part.single for comparison in part.conjunctions[0])
        others = [part.conjunctions for part in parts if not part.single]
        if prod(map(len, others)) > MOST_CONJUNCTIONS:
            return self._refuse(place, _TOO_MANY)
        return _Formula([common + tuple(c for part in choice for c in part) for choice in product(*others)])

    def _compare(self, place: int, operator: str, terms: list[_Linear]) -> _Value:
        comparisons: list[_Comparison] = []
        for left, right in pairwise(terms):
            sides = [(left, right)] if operator.startswith("<") else [(right, left)]
            if operator == "=":
                sides = [(left, right), (right, left)]
            for smaller, greater in sides:
                difference = _sum(smaller, greater, Fraction(-1))
                factors = tuple(sorted(difference.factors.items()))
                kinds = {kind for (kind, _), _ in factors}
                if len(kinds) == 2:
                    return self._refuse(place, "a constraint that mixes inputs and outputs")
                if kinds == {"X"} and len(factors) > 1:
                    return self._refuse(place, f"a constraint over {len(factors)} inputs (inputs may form boxes only)")
                comparisons.append(_Comparison(factors, -difference.constant, operator in ("<", ">")))
        return _Formula([tuple(comparisons)])

    def _calculate(self, place: int, operator: str, terms: list[_Linear]) -> _Value:
        result = terms[0]
        if operator == "-" and len(terms) == 1:
            return _sum(_Linear({}, Fraction(0)), result, Fraction(-1))
        for term in terms[1:]:
            if operator in ("+", "-"):
                result = _sum(result, term, Fraction(1 if operator == "+" else -1))
            elif operator == "/":
                if term.factors:
                    return self._refuse(place, "a division by a variable")
                if term.constant == 0:
                    raise self._invalid(place, "division by zero")
                result = _sum(_Linear({}, Fraction(0)), result, 1 / term.constant)
            elif result.factors and term.factors:
                return self._refuse(place, "a product of variables")
            else:
                scaled, factor = (term, result.constant) if term.factors else (result, term.constant)
                result = _sum(_Linear({}, Fraction(0)), scaled, factor)
        return result

    # The query

    def _size(self, kind: str) -> int:
        indices = {index: place for (letter, index), place in self.declared.items() if letter == kind}
        for index, place in sorted(indices.items()):
            if index >= len(indices):
                missing = next(number for number in range(index) if number not in indices)
                raise self._invalid(place, f"{kind}_{index} is declared, but {kind}_{missing} is not")
        return len(indices)

    def _query(self, inputs: int, outputs: int) -> Query:
        if self.unsupported:
            raise UnsupportedFeature(self.unsupported)
        if not self.declared:
            raise InvalidInput("no variables are declared", where=self.source)
        # What holds in every case, most of it the box, is looked at once.
        always = [comparison for formula in self.asserted if formula.single for comparison in formula.conjunctions[0]]
        choices = [formula.conjunctions for formula in self.asserted if not formula.single]
        if prod(map(len, choices)) > MOST_CONJUNCTIONS:
            raise UnsupportedFeature([Feature(self.source, _TOO_MANY)])
        common = _Parts({}, {}, ()).and_also(always)
        grouped: dict[tuple[Interval, ...], dict[Clause, None]] = {}
        unbounded: set[str] = set()
        for choice in product(*choices):
            parts = common and common.and_also([comparison for part in choice for comparison in part])
            box = None if parts is None else parts.box(inputs, unbounded)
            if parts is not None and box is not None:
                grouped.setdefault(box, {})[tuple(sorted(set(parts.clause)))] = None
        if unbounded:
            raise UnsupportedFeature([Feature(self.source, what) for what in unbounded])
        return Query(inputs, outputs, tuple(Case(box, tuple(clauses)) for box, clauses in grouped.items()))


def _shown(token: str) -> str:
    return repr(token if len(token) <= 40 else token[:40] + "...")


def _sum(first: _Linear, second: _Linear, factor: Fraction) -> _Linear:
    """first + factor · second"""
    factors = dict(first.factors)
    for variable, value in second.factors.items():
        total = factors.pop(variable, Fraction(0)) + factor * value
        if total:
            factors[variable] = total
    return _Linear(factors, first.constant + factor * second.constant)


_End = tuple[Fraction, bool]
"""The end of an interval, and whether it is open."""


@dataclass(frozen=True)
class _Parts:
    """A conjunction, sorted into ends of inputs and constraints on outputs."""

    lower: dict[int, _End]
    upper: dict[int, _End]
    clause: Clause

    def and_also(self, comparisons: Sequence[_Comparison]) -> _Parts | None:
        """With these comparisons too; None when one of them is false, whatever the variables are."""
        lower, upper, clause = self.lower, self.upper, list(self.clause)
        if any(comparison.terms and comparison.terms[0][0][0] == "X" for comparison in comparisons):
            lower, upper = dict(lower), dict(upper)
        for comparison in comparisons:
            if not comparison.terms:
                if comparison.bound < 0 or (comparison.strict and comparison.bound == 0):
                    return None
                continue
            ((kind, index), factor), *_ = comparison.terms
            if kind == "Y":
                terms = tuple((output, value) for (_, output), value in comparison.terms)
                clause.append(Constraint(terms, comparison.bound, comparison.strict))
                continue
            # Of equal ends the open one is tighter.
            end = (comparison.bound / factor, comparison.strict)
            if factor < 0:
                lower[index] = max(lower.get(index, end), end)
            else:
                upper[index] = min(upper.get(index, end), end, key=lambda one: (one[0], not one[1]))
        return _Parts(lower, upper, tuple(clause))

    def box(self, inputs: int, unbounded: set[str]) -> tuple[Interval, ...] | None:
        """None when it is empty, or when an input has no bound, which is noted."""
        intervals = []
        for index in range(inputs):
            if index not in self.lower or index not in self.upper:
                side = "lower" if index not in self.lower else "upper"
                unbounded.add(f"the input X_{index} without {side} bound")
                continue
            low, high = self.lower[index], self.upper[index]
            if low[0] > high[0] or (low[0] == high[0] and (low[1] or high[1])):
                return None
            intervals.append(Interval(low[0], high[0], low[1], high[1]))
        return tuple(intervals) if len(intervals) == inputs else None
