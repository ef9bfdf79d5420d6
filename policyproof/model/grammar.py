"""The text form of expressions and properties, in the tradition of PRISM, UPPAAL and the papers.

    A[] !crashed              AG<=6 (h > 100 | h < -100)          AX^3 (h > 100)
    E<> goal                  E [ !crashed U<=10 goal ]           Pmax=? [ F<=7 fail ]
    @car = crashed            `table-counter` >= 3                queue[i + 1] = 0 & !busy

A name in backquotes may contain anything (a backquote is doubled); `@automaton = location` asks where
an automaton is.  `π` (or `pi`) and `e()` are the real constants.
From loose to tight: `c ? a : b`, `<=>`, `=>`, `|`, `&`, `!`, comparisons, `+ -`, `* / %`, unary `-`.
A temporal operator binds like `!`; what follows its operand must not be `&`, `|`, `=>`, `<=>` or `?`,
since people read `A[] a & b` and `A[] a => b` both ways.

Errors point at the column.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from policyproof.model.automata import Model, location_variable
from policyproof.model.expressions import (
    FALSE,
    OPERATORS,
    TRUE,
    ZERO,
    Expression,
    apply,
    constant,
    negation,
    variable,
)
from policyproof.model.properties import (
    Atom,
    Bounds,
    Deadlock,
    Formula,
    FormulaProperty,
    Initial,
    Junction,
    Not,
    Path,
    Probability,
    Quantified,
)
from policyproof.run.errors import InvalidInput

MAXIMAL_DEPTH = 40
"""How deep parentheses may nest in a text that a person wrote.  Each level takes up to 18 calls inside
each other, and Python allows a thousand, those of the callers included."""
MAXIMAL_DIGITS = 300
SHOWN_WIDTH = 160
"""Longer lines are cut around the error."""

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_.]*|π)
      | `(?P<quoted>(?:[^`]|``)+)`(?!`)
      | "(?P<label>[^"]*)"
      | (?P<symbol><=>|=>|<=|>=|!=|==|&&|\|\||=\?|<>|\[\]|[-+*/%()\[\],?:!&|=<>^@∧∨¬⇒≠≤≥])
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_SAME = {"==": "=", "&&": "&", "||": "|", "∧": "&", "∨": "|", "¬": "!", "⇒": "=>", "≠": "!=", "≤": "<=", "≥": ">="}
_WORDS = {"and": "&", "or": "|", "not": "!"}
_COMPARISONS = {"=": "=", "!=": "≠", "<": "<", "<=": "≤", ">": ">", ">=": "≥"}
_FUNCTIONS = {name: name for name in OPERATORS if name.isascii() and name.isalpha() and name not in ("ite", "aa")}

Item = Expression | Formula | tuple[Expression, ...]


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int


@dataclass(frozen=True)
class _Location:
    """`@automaton`, waiting to be compared with the name of a location."""

    automaton: str


def parse_expression(text: str, model: Model) -> Expression:
    """Read an expression over the variables of the model."""
    parser = _Parser(text, model)
    return parser.expression(parser.whole())


def parse_condition(text: str, model: Model) -> Expression:
    """Read a Boolean expression."""
    expression = parse_expression(text, model)
    if expression.kind != "bool":
        raise InvalidInput(f"expected a condition, found an expression of type {expression.kind}: {text}")
    return expression


def parse_property(text: str, model: Model) -> FormulaProperty:
    """Read a property; its name is its text."""
    parser = _Parser(text, model)
    formula = parser.formula(parser.whole())
    aggregate = "∀"
    if isinstance(formula, Probability) and formula.comparison is None:
        aggregate = formula.optimum or "max"
    return FormulaProperty(text.strip(), formula, aggregate)  # type: ignore[arg-type]


class _Parser:
    """Precedence climbing; every method reads what it names and leaves the position behind it."""

    def __init__(self, text: str, model: Model) -> None:
        self.text = text
        self.model = model
        self.automata = {automaton.name: automaton for automaton in model.automata}
        self.tokens = self._tokenise()
        self.position = 0
        self.depth = 0

    def _tokenise(self) -> list[_Token]:
        tokens: list[_Token] = []
        position = 0
        while not tokens or tokens[-1].kind != "end":
            match = _TOKEN.match(self.text, position)
            if match is None:
                while self.text[position].isspace():
                    position += 1
                raise self.error(f"unexpected character {self.text[position]!r}", position)
            kind = match.lastgroup or "end"
            text = match[kind]
            start = match.start(kind) - (kind in ("quoted", "label"))
            if kind == "name" and text in _WORDS and not self._declared(text):
                kind, text = "symbol", _WORDS[text]
            elif kind == "symbol":
                text = _SAME.get(text, text)
            elif kind == "quoted":
                text = text.replace("``", "`")
            tokens.append(_Token(kind, text, start))
            position = match.end()
        return tokens

    def error(self, message: str, start: int) -> InvalidInput:
        # A text with line breaks is shown by the line of the error.
        line_start = self.text.rfind("\n", 0, start) + 1
        line_end = self.text.find("\n", start)
        line = self.text[line_start : line_end if line_end >= 0 else None]
        place = start - line_start
        if len(line) > SHOWN_WIDTH:
            first = max(0, place - SHOWN_WIDTH // 2)
            last = first + SHOWN_WIDTH
            cut = "…" * (first > 0)
            line = cut + line[first:last] + "…" * (last < len(line))
            pointer = " " * (place - first + len(cut)) + "^"
        else:
            pointer = " " * place + "^"
        if len(message) > 2 * SHOWN_WIDTH:
            message = message[: 2 * SHOWN_WIDTH] + "…"
        return InvalidInput(f"{message}, at column {place + 1}:\n  {line}\n  {pointer}")

    def _declared(self, name: str) -> bool:
        model = self.model
        return name in model.variable_by_name or name in model.arrays or name in model.constants

    @property
    def next(self) -> _Token:
        return self.tokens[self.position]

    def at(self, *symbols: str) -> bool:
        return self.next.kind == "symbol" and self.next.text in symbols

    def take(self) -> _Token:
        token = self.next
        self.position += 1
        return token

    def need(self, symbol: str) -> _Token:
        if not self.at(symbol):
            found = f"{self.next.text!r}" if self.next.kind != "end" else "the end"
            raise self.error(f"expected {symbol!r}, found {found}", self.next.start)
        return self.take()

    def whole(self) -> tuple[Item | _Location, int]:
        start = self.next.start
        item = self.choice()
        if self.next.kind != "end":
            raise self.error(f"unexpected {self.next.text!r}", self.next.start)
        return item, start

    # What an item may be used as

    def expression(self, item_and_start: tuple[Item | _Location, int]) -> Expression:
        item, start = item_and_start
        if isinstance(item, Atom):
            return item.expression
        if isinstance(item, _Location):
            raise self.error("a location must be compared: @automaton = location", start)
        if isinstance(item, tuple):
            raise self.error("an array needs an index here", start)
        if not isinstance(item, Expression):
            raise self.error("a temporal formula cannot stand inside an expression", start)
        return item

    def formula(self, item_and_start: tuple[Item | _Location, int]) -> Formula:
        item, start = item_and_start
        if isinstance(item, (Expression, tuple, _Location)):
            expression = self.expression(item_and_start)
            if expression.kind != "bool":
                raise self.error(f"expected a condition, found an expression of type {expression.kind}", start)
            return Atom(expression)
        return item

    def _combine(self, start: int, build: Callable[[], Expression]) -> Expression:
        try:
            return build()
        except InvalidInput as error:
            raise self.error(error.message, start) from None

    # The grammar, from loose to tight

    def choice(self) -> Item | _Location:
        self.depth += 1
        if self.depth > MAXIMAL_DEPTH:
            raise self.error(f"nested more than {MAXIMAL_DEPTH} deep", self.next.start)
        start = self.next.start
        condition = self.equivalence()
        if self.at("?"):
            mark = self.take().start
            then_start = self.next.start
            then = self.equivalence()
            self.need(":")
            else_start = self.next.start
            otherwise = self.choice()
            parts = [
                self.expression((condition, start)),
                self.expression((then, then_start)),
                self.expression((otherwise, else_start)),
            ]
            condition = self._combine(mark, lambda: apply("ite", *parts))
        self.depth -= 1
        return condition

    def equivalence(self) -> Item | _Location:
        start = self.next.start
        left = self.implication()
        while self.at("<=>"):
            mark = self.take().start
            right_start = self.next.start
            right = self.implication()
            if isinstance(left, Expression) and isinstance(right, Expression):
                pair = (left, right)
                left = self._combine(mark, lambda pair=pair: apply("=", *pair))  # type: ignore[misc]
            else:
                a, b = self.formula((left, start)), self.formula((right, right_start))
                left = Junction("∧", Junction("∨", Not(a), b), Junction("∨", Not(b), a))
        return left

    def implication(self) -> Item | _Location:
        start = self.next.start
        operands = [(self.disjunction(), start)]
        marks = []
        while self.at("=>"):
            marks.append(self.take().start)
            start = self.next.start
            operands.append((self.disjunction(), start))
        result, start = operands.pop()
        while operands:
            left, left_start = operands.pop()
            mark = marks.pop()
            if isinstance(left, Expression) and isinstance(result, Expression):
                pair = (left, result)
                result = self._combine(mark, lambda pair=pair: apply("⇒", *pair))  # type: ignore[misc]
            else:
                result = Junction("∨", Not(self.formula((left, left_start))), self.formula((result, start)))
            start = left_start
        return result

    def disjunction(self) -> Item | _Location:
        return self._junctions("|", "∨", self.conjunction)

    def conjunction(self) -> Item | _Location:
        return self._junctions("&", "∧", self.negation)

    def _junctions(self, symbol: str, operator: str, operand: Callable[[], Item | _Location]) -> Item | _Location:
        start = self.next.start
        left = operand()
        while self.at(symbol):
            mark = self.take().start
            right_start = self.next.start
            right = operand()
            if isinstance(left, Expression) and isinstance(right, Expression):
                pair = (left, right)
                left = self._combine(mark, lambda pair=pair: apply(operator, *pair))  # type: ignore[misc]
            else:
                left = Junction(operator, self.formula((left, start)), self.formula((right, right_start)))  # type: ignore[arg-type]
        return left

    def negation(self) -> Item | _Location:
        marks = []
        while self.at("!"):
            marks.append(self.take().start)
        start = self.next.start
        item = self.temporal()
        for mark in reversed(marks):
            if isinstance(item, Expression):
                operand = item
                item = self._combine(mark, lambda operand=operand: negation(operand))  # type: ignore[misc]
            else:
                item = Not(self.formula((item, start)))
        return item

    # Temporal operators

    def temporal(self) -> Item | _Location:
        token = self.next
        if token.kind != "name":
            return self.comparison()
        following = self.tokens[self.position + 1]
        follows = following.text if following.kind == "symbol" else ""
        # A name of the model goes first, except where no name can stand.
        quantifies = token.text in ("A", "E") and (
            follows in ("[]", "<>") or (follows == "[" and token.text not in self.model.arrays)
        )
        if self._declared(token.text) and not quantifies and follows != "(":
            return self.comparison()
        if token.text in ("A", "E"):
            if follows in ("[]", "<>"):
                self.position += 2
                operator = "G" if follows == "[]" else "F"
                return self._unary(token, operator)
            if follows in ("[", "("):
                self.position += 1
                return self._bracketed(token)
        if len(token.text) == 2 and token.text[0] in "AE" and token.text[1] in "XFG":
            self.position += 1
            return self._unary(token, token.text[1])
        if token.text in ("P", "Pmin", "Pmax") and (follows in ("=?", "=") or follows in _COMPARISONS):
            self.position += 1
            return self._probability(token)
        if token.text in ("R", "Rmin", "Rmax") and (follows in ("=?", "=") or follows in _COMPARISONS):
            raise self.error("expected rewards are read from JANI files only", token.start)
        return self.comparison()

    def _unary(self, token: _Token, operator: str) -> Formula:
        bounds = self.bounds(operator)
        operand = self._operand()
        path = Path(operator, operand, None, bounds)  # type: ignore[arg-type]
        if self.at("&", "|", "=>", "<=>", "?"):
            text = token.text
            raise self.error(
                f"write {text}… ( ... ) or ( {text}… ... ): what {self.next.text!r} joins is not clear", self.next.start
            )
        return Quantified(token.text[0], path)  # type: ignore[arg-type]

    def _operand(self) -> Formula:
        self.depth += 1
        if self.depth > MAXIMAL_DEPTH:
            raise self.error(f"nested more than {MAXIMAL_DEPTH} deep", self.next.start)
        start = self.next.start
        operand = self.formula((self.negation(), start))
        self.depth -= 1
        return operand

    def _bracketed(self, token: _Token) -> Formula:
        """`A [ f U g ]`, `E ( f U<=5 g )`, and `A [ G f ]`."""
        closing = "]" if self.take().text == "[" else ")"
        path = self.path()
        self.need(closing)
        return Quantified(token.text, path)  # type: ignore[arg-type]

    def path(self) -> Path:
        token = self.next
        if token.kind == "name" and token.text in ("X", "F", "G") and not self._declared(token.text):
            self.take()
            bounds = self.bounds(token.text)
            return Path(token.text, self._path_operand(), None, bounds)  # type: ignore[arg-type]
        left = self._path_operand()
        token = self.next
        if token.kind != "name" or token.text not in ("U", "W", "R"):
            raise self.error("expected a path formula: X f, F f, G f, f U g, f W g or f R g", token.start)
        self.take()
        bounds = self.bounds(token.text)
        return Path(token.text, self._path_operand(), left, bounds)  # type: ignore[arg-type]

    def _path_operand(self) -> Formula:
        start = self.next.start
        return self.formula((self.choice(), start))

    def _probability(self, token: _Token) -> Formula:
        relation = self.take()
        optimum = token.text[1:]
        comparison: str | None = None
        bound: Fraction | None = None
        if relation.text != "=?":
            if relation.text not in ("<", "<=", ">", ">="):
                raise self.error("expected =? or a comparison with a bound", relation.start)
            comparison = _COMPARISONS[relation.text]
            bound = Fraction(self.number())
            if self.at("/"):
                self.take()
                start = self.next.start
                divisor = self.number()
                if divisor == 0:
                    raise self.error("expected a number other than zero", start)
                bound /= divisor
        self.need("[")
        path = self.path()
        self.need("]")
        return Probability(optimum, path, comparison, bound)  # type: ignore[arg-type]

    def bounds(self, operator: str) -> Bounds:
        """`<=k`: steps 0..k.  `^k`: for X the step k, for F and G the steps 1..k, for U within k steps."""
        if self.at("^"):
            self.take()
            count = self.count()
            if operator == "X":
                return Bounds(count, count)
            return Bounds(1 if operator in ("F", "G") else 0, count)
        if operator == "X":
            return Bounds(1, 1)
        if self.at("<=", "<"):
            strict = self.take()
            count = self.count()
            if strict.text == "<" and count == 0:
                raise self.error("no step is before step 0", strict.start)
            return Bounds(0, count - (strict.text == "<"))
        if self.at(">="):
            self.take()
            return Bounds(self.count(), None)
        if self.at("["):
            start = self.take().start
            lower = self.count()
            self.need(",")
            upper = self.count()
            self.need("]")
            if lower > upper:
                raise self.error("the lower bound is above the upper bound", start)
            return Bounds(lower, upper)
        return Bounds()

    def count(self) -> int:
        token = self.take()
        if token.kind != "number" or not token.text.isdigit() or len(token.text) > 9:
            raise self.error("expected a number of steps", token.start)
        return int(token.text)

    def number(self) -> int | Fraction:
        token = self.take()
        if token.kind != "number":
            raise self.error("expected a number", token.start)
        if len(token.text) > MAXIMAL_DIGITS:
            raise self.error(f"a number of more than {MAXIMAL_DIGITS} digits", token.start)
        return int(token.text) if token.text.isdigit() else Fraction(token.text)

    # Expressions

    def comparison(self) -> Item | _Location:
        start = self.next.start
        left = self.sum()
        if self.at(*_COMPARISONS):
            symbol = self.take()
            right_start = self.next.start
            if isinstance(left, _Location):
                return self._at_location(left, symbol)
            right = self.sum()
            pair = (self.expression((left, start)), self.expression((right, right_start)))
            left = self._combine(symbol.start, lambda: apply(_COMPARISONS[symbol.text], *pair))
            if self.at(*_COMPARISONS):
                raise self.error("comparisons cannot be chained; join them with &", self.next.start)
        return left

    def _at_location(self, item: _Location, symbol: _Token) -> Expression:
        if symbol.text not in ("=", "!="):
            raise self.error("a location can only be compared with = or !=", symbol.start)
        token = self.take()
        index = self.automata[item.automaton].location_index
        number = index.get(token.text) if token.kind in ("name", "quoted") else None
        if token.kind == "number" and token.text.isdigit() and len(token.text) < 10 and int(token.text) < len(index):
            # Written by its place, as `format_expression` does.
            number = int(token.text)
        if number is None:
            raise self.error(f"{item.automaton!r} has no such location (there are: {', '.join(index)})", token.start)
        place = variable(location_variable(item.automaton), "int")
        return apply(_COMPARISONS[symbol.text], place, constant(number))

    def sum(self) -> Item | _Location:
        return self._arithmetic(("+", "-"), self.product)

    def product(self) -> Item | _Location:
        return self._arithmetic(("*", "/", "%"), self.unary)

    def _arithmetic(self, symbols: tuple[str, ...], operand: Callable[[], Item | _Location]) -> Item | _Location:
        start = self.next.start
        left = operand()
        while self.at(*symbols):
            symbol = self.take()
            right_start = self.next.start
            pair = (self.expression((left, start)), self.expression((operand(), right_start)))
            left = self._combine(symbol.start, lambda pair=pair, symbol=symbol: apply(symbol.text, *pair))  # type: ignore[misc]
        return left

    def unary(self) -> Item | _Location:
        marks = []
        while self.at("-"):
            marks.append(self.take().start)
        start = self.next.start
        item = self.primary()
        for mark in reversed(marks):
            operand = self.expression((item, start))
            item = self._combine(mark, lambda operand=operand: apply("-", ZERO, operand))  # type: ignore[misc]
        return item

    def primary(self) -> Item | _Location:
        if self.next.kind == "number":
            return constant(self.number())
        token = self.take()
        if token.kind == "quoted":
            return self._indexed(self._named(token.text, token.start), token.start)
        if token.kind == "label":
            if token.text in ("deadlock", "init"):
                return Deadlock() if token.text == "deadlock" else Initial()
            raise self.error('unknown label (there are: "deadlock", "init")', token.start)
        if token.kind == "name":
            return self._name(token)
        if token.text == "(":
            item = self.choice()
            self.need(")")
            # Parentheses make an item whole: a formula inside no longer binds to what follows.
            return item
        if token.text == "@":
            name = self.take()
            if name.kind not in ("name", "quoted") or name.text not in self.automata:
                raise self.error(f"unknown automaton (there are: {', '.join(self.automata)})", name.start)
            return _Location(name.text)
        found = f"{token.text!r}" if token.kind != "end" else "the end"
        raise self.error(f"expected an expression, found {found}", token.start)

    def _name(self, token: _Token) -> Item | _Location:
        name = token.text
        # What is no name of the model here, even if one is spelled like it: backquotes make it one.
        if name in ("true", "false"):
            return TRUE if name == "true" else FALSE
        if name in _FUNCTIONS and self.at("("):
            return self._function(token)
        if name == "π" or (name == "pi" and not self._declared(name)):
            return apply("π")
        return self._indexed(self._named(name, token.start), token.start)

    def _named(self, name: str, start: int) -> Expression | tuple[Expression, ...]:
        model = self.model
        if self.at("[") and name not in model.arrays:
            # A variable that is called `name[1]` without being an element of an array.
            whole = name + "".join(token.text for token in self.tokens[self.position : self.position + 3])
            if whole in model.variable_by_name:
                self.position += 3
                return model.variable_by_name[whole].expression
        if name in model.variable_by_name:
            return model.variable_by_name[name].expression
        if name in model.arrays:
            return tuple(model.variable_by_name[element].expression for element in model.arrays[name])
        if name in model.constants:
            return constant(model.constants[name])
        similar = [item for item in model.variable_by_name if item.lower().startswith(name[:3].lower())][:6]
        hint = f" (did you mean {', '.join(similar)}?)" if similar else ""
        raise self.error(f"unknown variable or constant {name!r}{hint}", start)

    def _indexed(self, item: Expression | tuple[Expression, ...], start: int) -> Expression | tuple[Expression, ...]:
        if not self.at("["):
            return item
        mark = self.take().start
        if not isinstance(item, tuple):
            raise self.error("only arrays have an index", mark)
        index_start = self.next.start
        index = self.expression((self.choice(), index_start))
        self.need("]")
        if index.is_constant and not 0 <= int(index.exact) < len(item):
            raise self.error(f"the array has {len(item)} elements", index_start)
        return self._combine(start, lambda: apply("aa", index, *item))

    def _function(self, token: _Token) -> Expression:
        self.need("(")
        arguments = []
        while not self.at(")"):
            start = self.next.start
            arguments.append(self.expression((self.choice(), start)))
            if not self.at(")"):
                self.need(",")
        self.need(")")
        if token.text in ("min", "max") and len(arguments) > 2:
            result = arguments[0]
            for argument in arguments[1:]:
                pair = (result, argument)
                result = self._combine(token.start, lambda pair=pair: apply(token.text, *pair))  # type: ignore[misc]
            return result
        return self._combine(token.start, lambda: apply(_FUNCTIONS[token.text], *arguments))
