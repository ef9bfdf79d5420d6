"""Reading and writing JSON without recursion, with exact numbers and with places for errors.

Idea: start conditions of published models nest thousands of levels deep and reach megabytes;
the standard reader recurses, and rounds `0.1` to a float.  Here a regular expression cuts the
text into tokens and an explicit stack assembles them.  A number with a fraction or an exponent
becomes a `Fraction` (so `0.1` is one tenth, and `1.0` stays a real number), other numbers `int`.

A `Document` remembers where it came from; the path of a value (`$.automata[0].edges[3]`) is
searched only when an error needs it, so that reading pays nothing for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from policyproof.run.errors import InvalidInput

# A value is None, bool, int, Fraction, str, list[Json] or dict[str, Json].
Json = Any

MAXIMAL_DIGITS = 1000
"""Longer numbers, or larger exponents, are refused: `1e999999999` would fill the memory."""

_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<punctuation>[{}\[\],:])
      | "(?P<plain>[^"\\\x00-\x1f]*)"
      | (?P<escaped>"(?:[^"\\\x00-\x1f]|\\.)*")
      | (?P<number>-?(?:0|[1-9][0-9]*)(?P<real>\.[0-9]+)?(?P<exponent>[eE][+-]?[0-9]+)?)
      | (?P<word>true|false|null)
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_WORDS = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class Document:
    """A parsed JSON text and the name by which errors speak of it."""

    root: Json
    name: str
    folder: Path | None = None

    @cached_property
    def whole(self) -> list[Json]:
        """The root as the only entry of an array, for code that reads entries of containers."""
        return [self.root]

    def path_of(self, container: Json, key: str | int | None = None) -> str:
        """The JSON path of `container`, or of its entry `key`, found by searching for the very object."""
        return self.paths_of([(container, key)])[0]

    def paths_of(self, places: Sequence[tuple[Json, str | int | None]]) -> list[str]:
        """The JSON paths of many places, found in one search."""
        parents = _parents(self.root, {id(container) for container, _ in places})
        paths = []
        for container, key in places:
            steps: list[str | int] = []
            if container is not self.whole:
                value = container
                while value is not self.root and id(value) in parents:
                    value, step = parents[id(value)]
                    steps.append(step)
                steps.reverse()
                steps += [] if key is None else [key]
            paths.append(f"{self.name}: {format_path(steps)}")
        return paths


def format_path(steps: list[str | int]) -> str:
    """`$` followed by `.name` or `[index]`; very long paths are cut in the middle."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps]
    if len(parts) > 40:
        parts = [*parts[:20], f" ... ({len(parts) - 30} more) ... ", *parts[-10:]]
    return "$" + "".join(parts)


def _parents(root: Json, wanted: set[int]) -> dict[int, tuple[Json, str | int]]:
    """The owners of objects and arrays inside the root, and their places there, until all wanted ones are found."""
    parents: dict[int, tuple[Json, str | int]] = {}
    missing = wanted - {id(root)}
    stack = [root] if isinstance(root, (dict, list)) else []
    while stack and missing:
        value = stack.pop()
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(child, (dict, list)):
                parents[id(child)] = (value, key)
                missing.discard(id(child))
                stack.append(child)
    return parents


def _entries(value: Json) -> Iterator[tuple[str | int, Json]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def read_file(path: str | Path) -> Document:
    """Parse the JSON file at `path`."""
    path = Path(path)
    return Document(parse(read_text(path), str(path)), str(path), path.parent)


def read_text(path: str | Path) -> str:
    """The text of a file."""
    path = Path(path)
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InvalidInput("no such file", where=str(path)) from None
    except (OSError, ValueError) as error:
        # ValueError: the content is no UTF-8, or the path is none that a file can have.
        raise InvalidInput(f"cannot be read: {error}", where=str(path)) from None


def parse(text: str, name: str = "JSON text") -> Json:
    """Parse one JSON value; errors name line and column."""
    match_token = _TOKEN.match
    position = 0
    stack: list[Json] = []
    keys: list[str | None] = []
    root: list[Json] = []
    container: Json = root
    key: str | None = None
    # What may come next: a value, a key, a colon, or a comma (or the closing bracket).
    expect = "value"
    while True:
        match = match_token(text, position)
        if match is None:
            raise _syntax_error(text, position, name, f"expected {_article(expect, container is root)}")
        group = match.lastgroup
        start, position = position, match.end()
        if group == "punctuation":
            symbol = match["punctuation"]
            if symbol in "{[" and expect in ("value", "value or ]"):
                child: Json = {} if symbol == "{" else []
                _add(container, key, child)
                stack.append(container)
                keys.append(key)
                container, key = child, None
                expect = "key or }" if symbol == "{" else "value or ]"
                continue
            if symbol == "," and expect == "comma" and container is not root:
                expect = "key" if isinstance(container, dict) else "value"
                continue
            if symbol == ":" and expect == "colon":
                expect = "value"
                continue
            closes_object = symbol == "}" and isinstance(container, dict) and expect in ("comma", "key or }")
            closes_array = (symbol == "]" and isinstance(container, list) and container is not root) and expect in (
                "comma",
                "value or ]",
            )
            if closes_object or closes_array:
                container, key = stack.pop(), keys.pop()
                expect = "comma"
                continue
            raise _syntax_error(text, start, name, f"expected {_article(expect, container is root)}")
        if group == "end":
            if container is root and expect == "comma":
                return root[0]
            raise _syntax_error(text, start, name, "the text ends too early (is the file truncated?)")
        value: Json
        if group == "plain":
            value = match["plain"]
        elif group == "escaped":
            value = _unescape(match["escaped"], text, start, name)
        elif group == "word":
            value = _WORDS[match["word"]]
        else:
            value = _number(match, text, start, name)
        if expect in ("key", "key or }"):
            if not isinstance(value, str):
                raise _syntax_error(text, start, name, "expected a name in quotes")
            if value in container:
                raise _syntax_error(text, start, name, f"the name {value!r} is given twice")
            key, expect = value, "colon"
        elif expect in ("value", "value or ]"):
            _add(container, key, value)
            expect = "comma"
        else:
            raise _syntax_error(text, start, name, f"expected {_article(expect, container is root)}")


def _add(container: Json, key: str | None, value: Json) -> None:
    if key is None:
        container.append(value)
    else:
        container[key] = value


def _number(match: re.Match[str], text: str, start: int, name: str) -> int | Fraction:
    digits, exponent = match["number"], match["exponent"]
    too_long = len(digits) > MAXIMAL_DIGITS
    too_large = exponent is not None and (len(exponent) > 6 or abs(int(exponent[1:])) > MAXIMAL_DIGITS)
    if too_long or too_large:
        raise _syntax_error(text, start, name, f"a number of more than {MAXIMAL_DIGITS} digits")
    return Fraction(digits) if match["real"] or exponent else int(digits)


def _unescape(literal: str, text: str, start: int, name: str) -> str:
    try:
        value: str = json.loads(literal)
        value.encode()
    except json.JSONDecodeError as error:
        raise _syntax_error(text, start, name, f"bad string: {error.msg}") from None
    except UnicodeEncodeError:
        # Half of a pair is no character: nothing that contains it could be written out again.
        raise _syntax_error(text, start, name, "half of a surrogate pair") from None
    return value


def _article(expect: str, at_root: bool) -> str:
    if expect == "comma":
        return "the end of the text" if at_root else "a comma or a closing bracket"
    return {"key": "a name in quotes", "key or }": "a name in quotes or }", "colon": "a colon"}.get(
        expect, f"a {expect}"
    )


def _syntax_error(text: str, position: int, name: str, message: str) -> InvalidInput:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    found = repr(text[position : position + 20]) if position < len(text) else "nothing"
    return InvalidInput(f"not valid JSON: {message}, found {found}", where=f"{name}, line {line}, column {column}")


def dumps(value: Json, *, indent: int | None = None) -> str:
    """Write a JSON value without recursion; a `Fraction` becomes a decimal number if that is exact."""
    pieces: list[str] = []
    # The stack holds text to write as it is, or (value, depth) still to be written.
    stack: list[str | tuple[Json, int]] = [(value, 0)]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            pieces.append(item)
            continue
        current, depth = item
        if isinstance(current, (dict, list, tuple)) and current:
            is_object = isinstance(current, dict)
            entries = [
                (json.dumps(key, ensure_ascii=False) + ": " if is_object else "", child)
                for key, child in _entries(list(current) if isinstance(current, tuple) else current)
            ]
            flat = indent is None
            separator = ", " if flat else ",\n" + " " * (indent or 0) * (depth + 1)
            stack.append(("" if flat else "\n" + " " * (indent or 0) * depth) + ("}" if is_object else "]"))
            for position, (prefix, child) in enumerate(reversed(entries)):
                stack.append((child, depth + 1))
                stack.append(prefix)
                if position < len(entries) - 1:
                    stack.append(separator)
            pieces.append(("{" if is_object else "[") + ("" if flat else separator[1:]))
        elif isinstance(current, Fraction):
            pieces.append(format_real(current))
        else:
            pieces.append(json.dumps(list(current) if isinstance(current, tuple) else current, ensure_ascii=False))
    return "".join(pieces)


def format_real(value: Fraction) -> str:
    """The exact decimal notation of a real number, always with a point; refuse numbers that have none."""
    numerator, denominator = value.numerator, value.denominator
    twos = fives = 0
    while denominator % 2 == 0:
        denominator, twos = denominator // 2, twos + 1
    while denominator % 5 == 0:
        denominator, fives = denominator // 5, fives + 1
    if denominator != 1:
        raise InvalidInput(f"the number {value} has no finite decimal notation")
    places = max(twos, fives, 1)
    digits = str(abs(numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' if numerator < 0 else ''}{digits[:-places]}.{digits[-places:]}"
