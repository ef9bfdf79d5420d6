"""The JSON reader and writer: exact, without recursion, and strict about what it accepts."""

from __future__ import annotations

import json
import re
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from policyproof.model.json_text import (
    MAXIMAL_DIGITS,
    Document,
    dumps,
    format_path,
    format_real,
    parse,
    read_file,
)
from policyproof.run.errors import InvalidInput

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
EXACT_LEAVES = st.none() | st.booleans() | st.integers(-(10**40), 10**40) | TEXTS
LEAVES = EXACT_LEAVES | st.floats(allow_nan=False, allow_infinity=False)


def values(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
        max_leaves=25,
    )


def decimals() -> st.SearchStrategy[Fraction]:
    """Real numbers that have a finite decimal notation."""
    return st.builds(
        lambda digits, twos, fives: Fraction(digits, 2**twos * 5**fives),
        st.integers(-(10**20), 10**20),
        st.integers(0, 30),
        st.integers(0, 30),
    )


def as_standard(value: Any) -> Any:
    """The value that the standard reader gives: fractions rounded to floats."""
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, list):
        return [as_standard(item) for item in value]
    if isinstance(value, dict):
        return {key: as_standard(item) for key, item in value.items()}
    return value


def kinds(value: Any) -> Any:
    """The types inside a value: 1, 1.0 and true are equal in Python, and must not be confused here."""
    if isinstance(value, list):
        return [kinds(item) for item in value]
    if isinstance(value, dict):
        return {key: kinds(item) for key, item in value.items()}
    return type(value)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def depth_of(value: Any) -> int:
    depth = 0
    while isinstance(value, (list, dict)):
        depth += 1
        inner = list(value.values()) if isinstance(value, dict) else value
        if not inner:
            break
        value = inner[0]
    return depth


def refused(text: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        parse(text, "some.jani")
    return str(caught.value)


# Reading


@given(values(LEAVES), st.sampled_from([None, 0, 3]), st.booleans())
def test_a_text_is_read_as_the_standard_reader_reads_it(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    found = parse(text)
    assert as_standard(found) == json.loads(text)
    assert kinds(as_standard(found)) == kinds(json.loads(text))


@given(st.text(alphabet='{}[]:,"\\/eE+-.0123456789 \n\ttruefalsn', max_size=14))
@settings(max_examples=400)
def test_random_texts_are_refused_exactly_when_the_standard_reader_refuses_them(text: str) -> None:
    # Exponents beyond our limit are tested below; the standard reader rounds them to zero or infinity.
    assume(not re.search("[eE][+-]?[0-9]{3}", text))
    try:
        expected = json.loads(text, parse_constant=_refuse, object_pairs_hook=_without_duplicates)
    except ValueError:
        refused(text)
    else:
        assert as_standard(parse(text)) == expected


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("duplicate")
    return dict(pairs)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_values_nested_a_hundred_thousand_deep_are_read_quickly(opening: str) -> None:
    depth = 100_000
    closing = "]" if opening == "[" else "}"
    started = time.monotonic()
    value = parse(opening * depth + "7" + closing * depth)
    assert time.monotonic() - started < 5
    found = 0
    while isinstance(value, (list, dict)):
        value = value[0] if isinstance(value, list) else value["a"]
        found += 1
    assert (found, value) == (depth, 7)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1", Fraction(1, 10)),
        ("-0.1", Fraction(-1, 10)),
        ("1.0", Fraction(1)),
        ("1e2", Fraction(100)),
        ("25E-2", Fraction(1, 4)),
        ("1.5e+1", Fraction(15)),
        ("0.1000000000000000055511151231257827", Fraction(1000000000000000055511151231257827, 10**34)),
        ("9007199254740993", 9007199254740993),
        ("-0", 0),
    ],
)
def test_numbers_are_exact_and_a_point_or_exponent_makes_them_real(text: str, expected: int | Fraction) -> None:
    value = parse(text)
    assert value == expected
    assert type(value) is type(expected)


def test_a_number_of_the_greatest_length_is_read_and_a_longer_one_is_refused() -> None:
    assert parse("9" * MAXIMAL_DIGITS) == 10**MAXIMAL_DIGITS - 1
    assert f"more than {MAXIMAL_DIGITS} digits" in refused("9" * (MAXIMAL_DIGITS + 1))
    assert f"more than {MAXIMAL_DIGITS} digits" in refused("0." + "0" * MAXIMAL_DIGITS)


@pytest.mark.parametrize("exponent", ["1001", "-1001", "99999", "+99999", "999999999", "-999999999", "9" * 5000])
def test_a_huge_exponent_is_refused_at_once(exponent: str) -> None:
    started = time.monotonic()
    message = refused(f'{{"a": 1e{exponent}}}')
    assert time.monotonic() - started < 1
    assert "line 1, column 7" in message
    assert f"more than {MAXIMAL_DIGITS} digits" in message


def test_the_greatest_exponents_are_read() -> None:
    assert parse("1e1000") == 10**1000
    assert parse("1e-1000") == Fraction(1, 10**1000)


@pytest.mark.parametrize(
    "text", ["01", "1.", ".5", "+1", "1e", "0x10", "--1", "NaN", "Infinity", "-Infinity", "True", "nul", "'a'", "1 2"]
)
def test_what_json_does_not_allow_is_refused(text: str) -> None:
    message = refused(text)
    assert message.startswith("some.jani, line 1, column ")
    assert "not valid JSON" in message


@pytest.mark.parametrize(
    "text", ["[1,]", "[,]", '{"a":1,}', '{"a"}', '{"a":}', "{1:2}", "[1 2]", '["a":1]', "[1}", "]"]
)
def test_misplaced_punctuation_is_refused(text: str) -> None:
    assert "not valid JSON: expected " in refused(text)


@pytest.mark.parametrize("text", ['"\\x"', '"\\u12"', '"a\nb"', '"\t"', '"abc', '"\\"', '"\x00"'])
def test_broken_strings_are_refused(text: str) -> None:
    assert "not valid JSON" in refused(text)


@pytest.mark.parametrize("text", ['"\\ud800"', '{"\\udc00 name": 1}', '"\\ud83d\\u0041"'])
def test_half_a_surrogate_pair_is_refused_since_it_could_never_be_written(text: str) -> None:
    assert "surrogate" in refused(text)


def test_a_whole_surrogate_pair_is_one_character() -> None:
    assert parse('"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


def test_a_name_given_twice_is_refused_with_its_place() -> None:
    message = refused('{"a": {"b": 1},\n "c": {"b": 2,\n   "b": 3}}')
    assert "the name 'b' is given twice" in message
    assert message.startswith("some.jani, line 3, column 4: ")


def test_names_that_differ_only_by_escapes_are_the_same_name() -> None:
    assert "given twice" in refused('{"a": 1, "\\u0061": 2}')


SMALL = '{"name": "x\\n",\n "list": [1, 2.5e1, true, null],\n "inner": {"k": -3}}\n'


@pytest.mark.parametrize("length", range(len(SMALL.rstrip())))
def test_a_text_that_is_cut_off_anywhere_is_refused_with_line_and_column(length: int) -> None:
    text = SMALL[:length]
    message = refused(text)
    place, _, rest = message.partition(": ")
    name, line, column = place.split(", ")
    assert name == "some.jani"
    assert rest.startswith("not valid JSON")
    # The place lies inside the text, or right behind it.
    row, at = int(line.removeprefix("line ")), int(column.removeprefix("column "))
    lines = text.split("\n")
    assert 1 <= row <= len(lines)
    assert 1 <= at <= len(lines[row - 1]) + 1


def test_the_small_text_itself_is_read() -> None:
    assert parse(SMALL) == {"name": "x\n", "list": [1, 25, True, None], "inner": {"k": -3}}


def test_an_error_shows_what_was_expected_and_what_was_found() -> None:
    message = refused('{"a": 1,\n  "b" 2}')
    assert message == "some.jani, line 2, column 7: not valid JSON: expected a colon, found '2}'"


def test_an_error_after_a_long_line_shows_a_short_piece_of_it() -> None:
    assert len(refused("[" + "1, " * 100_000 + "?" * 100_000)) < 200


def test_a_long_string_is_read_in_linear_time() -> None:
    started = time.monotonic()
    assert len(parse('"' + "a" * 3_000_000 + '"')) == 3_000_000
    assert len(parse('"' + "\\n" * 1_000_000 + '"')) == 1_000_000
    assert time.monotonic() - started < 5


# Files


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.jani"
    path.write_bytes(b"\xef\xbb\xbf" + '{"name": "∀"}'.encode())
    document = read_file(path)
    assert document.root == {"name": "∀"}
    assert document.folder == tmp_path


def test_a_byte_order_mark_inside_a_text_is_no_white_space() -> None:
    assert "line 1, column 2" in refused("[\ufeff1]")


@pytest.mark.parametrize("content", [b"", b"   \n", b"\xff\xfe{", b'{"a": "\xe9"}'])
def test_an_empty_or_badly_encoded_file_is_invalid_input_with_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.jani"
    path.write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        read_file(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("name", ["absent.jani", "a" * 300 + ".jani", "null\0byte.jani", "."])
def test_a_file_that_cannot_be_opened_is_invalid_input(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_file(tmp_path / name)
    assert caught.value.where == str(tmp_path / name)


def test_the_path_of_a_value_is_found_even_where_it_lies_deep() -> None:
    root = parse('{"automata": [{"edges": [0, {"guard": {}}]}, {}]}')
    document = Document(root, "m.jani")
    edge = root["automata"][0]["edges"][1]
    assert document.path_of(edge) == "m.jani: $.automata[0].edges[1]"
    assert document.path_of(edge, "guard") == "m.jani: $.automata[0].edges[1].guard"
    assert document.path_of(root) == "m.jani: $"
    # Two equal values are told apart: the path is that of the very object.
    assert document.path_of(root["automata"][1]) == "m.jani: $.automata[1]"


@pytest.mark.parametrize("text", ["5", "[[]]", "{}"])
def test_the_root_as_an_entry_has_the_path_of_the_root(text: str) -> None:
    document = Document(parse(text), "m.jani")
    assert document.path_of(document.whole, 0) == "m.jani: $"


def test_a_very_long_path_is_cut_in_the_middle() -> None:
    steps: list[str | int] = [0] * 60_000
    text = format_path(["start", *steps, "end"])
    assert text.startswith("$.start[0]")
    assert text.endswith("[0].end")
    assert "more" in text
    assert len(text) < 200


# Writing


@given(values(EXACT_LEAVES | decimals()), st.sampled_from([None, 0, 1, 4]))
def test_what_is_written_is_read_back_with_the_same_types(value: Any, indent: int | None) -> None:
    found = parse(dumps(value, indent=indent))
    assert found == value
    assert kinds(found) == kinds(value)


@given(values(EXACT_LEAVES), st.sampled_from([None, 1, 2, 4]))
def test_the_layout_is_that_of_the_standard_writer(value: Any, indent: int | None) -> None:
    assert dumps(value, indent=indent) == json.dumps(value, indent=indent, ensure_ascii=False)


def test_a_value_nested_a_hundred_thousand_deep_is_written() -> None:
    depth = 100_000
    text = dumps(nested(depth))
    assert text == "[" * depth + "]" * depth
    assert depth_of(parse(text)) == depth


def test_tuples_are_written_as_arrays() -> None:
    assert dumps({"a": (1, (2, ()))}) == '{"a": [1, [2, []]]}'


def test_a_number_without_decimal_notation_is_not_written_as_a_rounded_one() -> None:
    with pytest.raises(InvalidInput, match="1/3 has no finite decimal notation"):
        dumps([Fraction(1, 3)])


# Real numbers as text


@given(decimals())
def test_the_decimal_notation_of_a_real_number_is_exact_and_has_a_point(value: Fraction) -> None:
    text = format_real(value)
    assert Fraction(text) == value
    assert "." in text
    assert parse(text) == value
    assert isinstance(parse(text), Fraction)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(0), "0.0"),
        (Fraction(7), "7.0"),
        (Fraction(-1, 2), "-0.5"),
        (Fraction(1, 1000), "0.001"),
        (Fraction(-12345, 100), "-123.45"),
        (Fraction(3, 8), "0.375"),
    ],
)
def test_real_numbers_are_written_without_needless_digits(value: Fraction, text: str) -> None:
    assert format_real(value) == text


@pytest.mark.parametrize("denominator", [3, 7, 30, 1024 * 11])
def test_a_real_number_without_finite_notation_is_refused(denominator: int) -> None:
    with pytest.raises(InvalidInput, match="no finite decimal notation"):
        format_real(Fraction(1, denominator))
