"""Expressions and formulas as text, in the notation that `policyproof.model.grammar` reads.

Expressions are graphs whose text can be exponentially longer than they are, so writing stops
with `…` at a limit; only texts without `…` can be read back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from policyproof.model.expressions import CONSTANT, VARIABLE, Expression
from policyproof.model.json_text import format_real
from policyproof.model.properties import (
    Atom,
    Bounds,
    Deadlock,
    Expectation,
    Formula,
    Initial,
    Junction,
    Not,
    Path,
    Probability,
    Quantified,
)
from policyproof.run.errors import InvalidInput

DEFAULT_LIMIT = 400
MAXIMAL_BITS = 990
"""Larger numbers have more than 300 digits, which the grammar does not read; they are cut off."""
MAXIMAL_PLACES = 300

# Operator: (text, binding strength).  A larger number binds tighter.
BINARY_TEXT = {
    "⇒": ("=>", 2),
    "∨": ("|", 3),
    "∧": ("&", 4),
    "=": ("=", 6),
    "≠": ("!=", 6),
    "<": ("<", 6),
    "≤": ("<=", 6),
    ">": (">", 6),
    "≥": (">=", 6),
    "+": ("+", 7),
    "-": ("-", 7),
    "*": ("*", 8),
    "/": ("/", 8),
    "%": ("%", 8),
}
CHOICE, NOT, ATOM = 1, 5, 10
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*(\[[0-9]+\])?\Z")
RESERVED = frozenset(
    ["true", "false", "and", "or", "not", "U", "W", "R", "X", "F", "G", "A", "E", "P", "Pmin", "Pmax", "Rmin", "Rmax"]
    + [quantifier + operator for quantifier in "AE" for operator in "XFG"]
)


def format_name(name: str) -> str:
    """A variable's name; in backquotes where it is no plain identifier."""
    marker = "@" if name.startswith("@") else ""
    bare = name.removeprefix(marker)
    if _PLAIN_NAME.match(bare) and bare.split("[")[0] not in RESERVED:
        return name
    return f"{marker}`{bare.replace('`', '``')}`"


def format_expression(root: Expression, limit: int = DEFAULT_LIMIT) -> str:
    """The text of an expression, cut off with `…` beyond `limit` characters."""
    pieces: list[str] = []
    length = 0
    stack: list[str | tuple[Expression, int]] = [(root, 0)]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            pieces.append(item)
            length += len(item)
            if length > limit:
                return "".join(pieces)[:limit] + "…"
            continue
        stack.extend(reversed(_parts(*item)))
    return "".join(pieces)


def _parts(node: Expression, strength: int) -> list[str | tuple[Expression, int]]:
    """The text of a node, with its arguments still to be written, each with the strength around it."""
    operator, arguments = node.operator, node.arguments
    if operator == CONSTANT:
        return [_constant(node)]
    if operator == VARIABLE:
        return [format_name(node.name)]
    parts: list[str | tuple[Expression, int]]
    if operator in BINARY_TEXT:
        text, own = BINARY_TEXT[operator]
        left_strength = own + 1 if own in (2, 6) else own
        right_strength = own if own == 2 else own + 1
        parts = [(arguments[0], left_strength), f" {text} ", (arguments[1], right_strength)]
    elif operator == "¬":
        own, parts = NOT, ["!", (arguments[0], ATOM)]
    elif operator == "ite":
        own = CHOICE
        parts = [(arguments[0], CHOICE + 1), " ? ", (arguments[1], CHOICE + 1), " : ", (arguments[2], CHOICE)]
    elif operator == "aa":
        own, parts = ATOM, [*_array(arguments[1:]), "[", (arguments[0], 0), "]"]
    elif operator == "π":
        own, parts = ATOM, [operator]
    else:
        own, parts = ATOM, [operator, "(", *_list(arguments), ")"]
    return ["(", *parts, ")"] if own < strength else parts


def _constant(node: Expression) -> str:
    value = node.exact
    if isinstance(value, bool):
        return "true" if value else "false"
    text = _number(value, " / ")
    return f"({text})" if text.startswith("-") or "/" in text else text


def _number(value: int | Fraction, division: str) -> str:
    """Decimal notation, or a division where there is none that is exact and short."""
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAXIMAL_BITS:
        return "…"
    if isinstance(value, int):
        return str(value)
    try:
        text = format_real(value)
    except InvalidInput:
        text = ""
    return text if 0 < len(text) <= MAXIMAL_PLACES else f"{value.numerator}{division}{value.denominator}"


def _list(arguments: Sequence[Expression]) -> list[str | tuple[Expression, int]]:
    parts: list[str | tuple[Expression, int]] = []
    for argument in arguments:
        parts.extend([", ", (argument, 0)] if parts else [(argument, 0)])
    return parts


def _array(elements: tuple[Expression, ...]) -> list[str | tuple[Expression, int]]:
    """`A` for the elements `A[0]`, `A[1]`, ...; a list otherwise (which cannot be read back)."""
    names = [element.name if element.is_variable else "" for element in elements]
    base = names[0].removesuffix("[0]")
    if names == [f"{base}[{index}]" for index in range(len(names))]:
        return [format_name(base)]
    return ["[", *_list(elements[:8]), *([", …"] if len(elements) > 8 else []), "]"]


def format_formula(formula: Formula, limit: int = DEFAULT_LIMIT) -> str:
    """The text of a formula."""
    if isinstance(formula, Atom):
        return format_expression(formula.expression, limit)
    if isinstance(formula, Deadlock):
        return '"deadlock"'
    if isinstance(formula, Initial):
        return '"init"'
    if isinstance(formula, Not):
        return f"!({format_formula(formula.operand, limit)})"
    if isinstance(formula, Junction):
        sign = "&" if formula.operator == "∧" else "|"
        return f"({format_formula(formula.left, limit)}) {sign} ({format_formula(formula.right, limit)})"
    if isinstance(formula, Quantified):
        return _format_quantified(formula, limit)
    if isinstance(formula, Probability):
        relation = {"<": "<", "≤": "<=", ">": ">", "≥": ">="}.get(formula.comparison or "", "=?")
        bound = "" if formula.bound is None else _number(formula.bound, "/")
        return f"P{formula.optimum}{relation}{bound} [ {_format_path(formula.path, limit)} ]"
    assert isinstance(formula, Expectation)
    reach = "C" if formula.reach is None else f"F {format_formula(formula.reach, limit)}"
    return f"R{formula.optimum}=? [ {reach} ]"


def _format_quantified(formula: Quantified, limit: int) -> str:
    path = formula.path
    if path.operator in ("U", "W", "R"):
        return f"{formula.quantifier} [ {_format_path(path, limit)} ]"
    bounds = format_bounds(path.operator, path.bounds)
    return f"{formula.quantifier}{path.operator}{bounds} ({format_formula(path.right, limit)})"


def _format_path(path: Path, limit: int) -> str:
    bounds = format_bounds(path.operator, path.bounds)
    right = f"({format_formula(path.right, limit)})"
    if path.left is None:
        return f"{path.operator}{bounds} {right}"
    return f"({format_formula(path.left, limit)}) {path.operator}{bounds} {right}"


def format_bounds(operator: str, bounds: Bounds) -> str:
    """`^k`, `<=k` or `[a,b]`, as the grammar writes them."""
    if operator == "X":
        return "" if bounds.upper == 1 else f"^{bounds.upper}"
    if bounds.upper is None:
        return "" if bounds.lower == 0 else f">={bounds.lower}"
    if bounds.lower == 0:
        return f"<={bounds.upper}"
    if bounds.lower == 1 and operator in ("F", "G"):
        return f"^{bounds.upper}"
    return f"[{bounds.lower},{bounds.upper}]"
