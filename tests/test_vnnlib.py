"""VNN-LIB: what a file says is what is read, shown by evaluating the text itself, naively."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from policyproof.encodings.output_query import Case, Constraint, Interval, Query, write_vnnlib
from policyproof.encodings.vnnlib import parse_vnnlib, read_vnnlib
from policyproof.run.errors import InvalidInput, UnsupportedFeature

Values = Sequence[Fraction]
DECLARED = "(declare-const X_0 Real)(declare-const X_1 Real)\n(declare-const Y_0 Real)(declare-const Y_1 Real)\n"
BOX = "(assert (and (>= X_0 -1) (<= X_0 1) (>= X_1 0.5) (<= X_1 2e0)))\n"


def naive_truth(text: str, inputs: Values, outputs: Values) -> bool:
    """The conjunction of all assertions, evaluated as Python expressions (recursive, on purpose simple)."""
    tokens = text.replace("(", " ( ").replace(")", " ) ").split()
    position = 0

    def parse() -> object:
        nonlocal position
        token = tokens[position]
        position += 1
        if token != "(":
            return token
        items = []
        while tokens[position] != ")":
            items.append(parse())
        position += 1
        return items

    def value(item: object) -> Fraction | bool:
        if isinstance(item, str):
            if item[0] in "XY":
                return (inputs if item[0] == "X" else outputs)[int(item[2:])]
            return Fraction(item)
        assert isinstance(item, list)
        operator, *operands = item
        values = [value(operand) for operand in operands]
        if operator in ("and", "or"):
            return all(values) if operator == "and" else any(values)
        comparisons: dict[str, Callable[[Fraction, Fraction], bool]] = {
            "<=": lambda a, b: a <= b,
            ">=": lambda a, b: a >= b,
            "<": lambda a, b: a < b,
            ">": lambda a, b: a > b,
            "=": lambda a, b: a == b,
        }
        if operator in comparisons:
            return comparisons[operator](values[0], values[1])
        if operator == "-" and len(values) == 1:
            return -values[0]
        result = Fraction(values[0])
        for other in values[1:]:
            match operator:
                case "+":
                    result += other
                case "-":
                    result -= other
                case "*":
                    result *= other
                case "/":
                    result /= other
        return result

    truth = True
    while position < len(tokens):
        item = parse()
        assert isinstance(item, list)
        if item[0] == "assert":
            truth &= bool(value(item[1]))
    return truth


def random_formula(rng: random.Random, depth: int) -> str:
    if depth > 0 and rng.random() < 0.6:
        operator = rng.choice(["and", "or"])
        parts = " ".join(random_formula(rng, depth - 1) for _ in range(rng.randint(0 if depth < 2 else 1, 3)))
        return f"({operator} {parts})"
    comparison = rng.choice(["<=", ">=", "<", ">", "="])
    if rng.random() < 0.4:
        sides = [f"X_{rng.randrange(2)}", random_number(rng)]
    else:
        sides = [random_term(rng, 2), random_term(rng, 1)]
    rng.shuffle(sides)
    return f"({comparison} {sides[0]} {sides[1]})"


def random_term(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.3:
        return rng.choice([f"Y_{rng.randrange(2)}", random_number(rng)])
    match rng.choice(["+", "-", "*", "unary", "/"]):
        case "*":
            return f"(* {random_number(rng)} {random_term(rng, depth - 1)})"
        case "/":
            return f"(/ {random_term(rng, depth - 1)} {rng.choice(['2', '-4.0', '3'])})"
        case "unary":
            return f"(- {random_term(rng, depth - 1)})"
        case operator:
            return f"({operator} {' '.join(random_term(rng, depth - 1) for _ in range(rng.randint(1, 3)))})".replace(
                "(- Y", "(- 0 Y"
            )


def random_number(rng: random.Random) -> str:
    return rng.choice(["0", "1", "-1", "0.5", "-2.25", "1e-1", "-2.5E+0", "1/3", "2."])


def random_points(rng: random.Random) -> tuple[list[Fraction], list[Fraction]]:
    choices = [Fraction(k, 4) for k in range(-12, 13)] + [Fraction(1, 3), Fraction(1, 10)]
    inputs = [rng.choice(choices) for _ in range(2)]
    if rng.random() < 0.8:
        inputs = [min(max(inputs[0], Fraction(-1)), Fraction(1)), min(max(abs(inputs[1]), Fraction(1, 2)), Fraction(2))]
    return inputs, [rng.choice(choices) for _ in range(2)]


def test_cases_are_true_where_the_file_is() -> None:
    rng = random.Random(5)
    true = false = several = 0
    for _ in range(400):
        # The box keeps inputs bounded; the random part adds cases, and narrower boxes.
        text = DECLARED + BOX + "".join(f"(assert {random_formula(rng, 3)})\n" for _ in range(rng.randint(1, 2)))
        query = parse_vnnlib(text)
        again = parse_vnnlib(write_vnnlib(query, comment="written\nagain"))
        assert again == query, text
        several += len(query.cases) > 1 or any(len(case.clauses) > 1 for case in query.cases)
        for _ in range(30):
            inputs, outputs = random_points(rng)
            expected = naive_truth(text, inputs, outputs)
            assert query.holds(inputs, outputs) == expected, (text, inputs, outputs)
            true, false = true + expected, false + (not expected)
    print(f"true {true}, false {false}, with several cases or clauses {several} of 400")
    assert true > 0.05 * (true + false)
    assert several > 20


def test_a_file_as_the_competition_writes_them(tmp_path: Path) -> None:
    file = tmp_path / "property.vnnlib"
    file.write_text(
        """; ACAS-like property
(declare-const X_0 Real)
(declare-const Y_0 Real)
(declare-const Y_1 Real)

; Unscaled Input 0: (0, 1)
(assert (<= X_0 0.679857769))
(assert (>= X_0 0.6))

; unsafe if
(assert (or
    (and (<= Y_0 Y_1))
    (and (>= Y_1 3.991125645861615) (<= (+ (* 2.0 Y_0) (- Y_1)) 1e-05))
))
"""
    )
    (case,) = read_vnnlib(file).cases
    assert case.box == (Interval(Fraction("0.6"), Fraction("0.679857769")),)
    assert case.clauses == (
        (Constraint(((0, Fraction(1)), (1, Fraction(-1))), Fraction(0)),),
        (
            Constraint(((0, Fraction(2)), (1, Fraction(-1))), Fraction("0.00001")),
            Constraint(((1, Fraction(-1)),), Fraction("-3.991125645861615")),
        ),
    )


def test_strict_ends_stay_strict() -> None:
    (case,) = parse_vnnlib(DECLARED + BOX + "(assert (and (> X_0 -1) (< X_1 2) (< Y_0 Y_1)))").cases
    assert case.box == (
        Interval(Fraction(-1), Fraction(1), lower_open=True),
        Interval(Fraction(1, 2), Fraction(2), upper_open=True),
    )
    assert case.clauses[0][0].strict
    assert parse_vnnlib(DECLARED + BOX + "(assert (and (> X_0 1) (<= Y_0 0)))").cases == ()


def test_boxes_in_disjunctions_become_cases() -> None:
    text = "(assert (or (and (<= X_0 0) (<= Y_0 0)) (and (>= X_0 0.5) (<= Y_1 0)) (and (<= X_0 0) (<= Y_1 1))))"
    query = parse_vnnlib(DECLARED + BOX + text)
    assert [len(case.clauses) for case in query.cases] == [2, 1]
    assert [case.box[0].upper for case in query.cases] == [0, 1]


def test_deep_nesting_does_not_recurse() -> None:
    depth = 50_000
    text = DECLARED + BOX + "(assert " + "(and " * depth + "(<= Y_0 " + "(- " * depth + "1" + ")" * (2 * depth + 2)
    (case,) = parse_vnnlib(text).cases
    assert case.clauses == ((Constraint(((0, Fraction(1)),), Fraction(1)),),)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("(assert (<= X_0 1))", "line 1, column 13", "X_0 is not declared"),
        ("(declare-const X_0 Real)\n  )", "line 2, column 3", "expected '('"),
        ("(declare-const X_0 Real)\n(assert (<= X_0 1)", "line 2, column 1", "never closed"),
        ("assert", "line 1, column 1", "expected '('"),
        ("(declare-const X_0 Real)(declare-const X_0 Real)", "line 1, column 40", "declared twice"),
        ("(declare-const X_1 Real)", "line 1, column 16", "X_0 is not"),
        ("(declare-const X_0 Real)\n(assert (<= X_0 one))", "line 2, column 17", "'one'"),
        ("(declare-const X_0 Real)\n(assert (<= X_0))", "line 2, column 10", "at least two"),
        ("(declare-const X_0 Real)\n(assert (<= X_0 (/ 1 0)))", "line 2, column 18", "division by zero"),
        ("(declare-const X_0 Real)\n(assert (<= X_0 1/0))", "line 2, column 17", "division by zero"),
        ("(declare-const X_0 Real)\n(assert (<= X_0 1e999999999))", "line 2, column 17", "too long"),
        ("(declare-const X_0 Real)\n(assert (+ X_0 1))", "line 2, column 9", "expected a formula"),
        ("(declare-const X_0 Real)\n(assert X_0)", "line 2, column 9", "expected a formula"),
        ("(declare-const X_0 Real)\n(assert (<= (<= X_0 1) 2))", "line 2, column 13", "found a formula"),
        ("(declare-const X_0 Real)\n(assert (<= X_0 1) (>= X_0 0))", "line 2, column 2", "takes one formula"),
        ("(declare-const X_0 Real)\n(assert ((<= X_0 1)))", "line 2, column 9", "expected a command or an operator"),
        ("(declare-const)", "line 1, column 2", "a name and a type"),
        ("(declare-const X_0 Real)\n(assert (<= (+) 1))", "line 2, column 14", "without operands"),
    ],
)
def test_malformed_files_name_the_place(text: str, place: str, words: str) -> None:
    with pytest.raises(InvalidInput) as error:
        parse_vnnlib(text, source="file")
    assert f"file, {place}" in str(error.value)
    assert words in str(error.value)


def test_nothing_declared_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no variables"):
        parse_vnnlib("; nothing")
    with pytest.raises(InvalidInput, match="no such file"):
        read_vnnlib(tmp_path / "missing.vnnlib")
    with pytest.raises(InvalidInput, match="folder"):
        read_vnnlib(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="not a text file"):
        read_vnnlib(tmp_path / "binary")


def test_all_that_is_unsupported_is_listed() -> None:
    text = DECLARED + (
        "(declare-const Z Real)\n(declare-const X_2 Int)\n(push 1)\n"
        "(assert (<= (* Y_0 Y_1) 1))\n(assert (<= (+ X_0 Y_0) 1))\n(assert (<= (+ X_0 X_1) 1))\n"
        "(assert (not (<= X_0 1)))\n(assert (<= (/ 1 Y_0) 1))\n"
    )
    with pytest.raises(UnsupportedFeature) as error:
        parse_vnnlib(text, source="file")
    shown = str(error.value)
    for what in (
        "'Z'", "'Int'", "'push'", "product of variables", "mixes inputs and outputs", "over 2 inputs", "'not'",
        "division by a variable",
    ):  # fmt: skip
        assert what in shown
    assert len(error.value.features) == 8


def test_unbounded_inputs_and_explosions_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="X_1 without upper bound"):
        parse_vnnlib(DECLARED + "(assert (and (<= 0 X_0 1) (<= 0 X_1) (<= Y_0 0)))")
    pair = "(or (<= Y_0 0) (<= Y_1 0))"
    with pytest.raises(UnsupportedFeature, match="more than 100000 cases"):
        parse_vnnlib(DECLARED + BOX + f"(assert {pair})" * 20)
    with pytest.raises(UnsupportedFeature, match="more than 100000 cases"):
        parse_vnnlib(DECLARED + BOX + f"(assert (and {pair * 20}))")


def test_a_query_without_cases_is_written() -> None:
    query = Query(1, 1, ())
    assert parse_vnnlib(write_vnnlib(query)) == query
    whole = Query(1, 0, (Case((Interval(Fraction(1, 3), Fraction(1, 3)),), ((),)),))
    assert parse_vnnlib(write_vnnlib(whole)) == whole
