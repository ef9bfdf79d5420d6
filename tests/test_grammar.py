"""The text form of expressions and properties: what it means, and where its errors point."""

from __future__ import annotations

import dataclasses
import re
import time
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyproof.model.automata import Automaton, Domain, Location, Model, Variable, at_location
from policyproof.model.expressions import FALSE, ONE, TRUE, ZERO, Expression, apply, constant, variable
from policyproof.model.grammar import MAXIMAL_DEPTH, parse_condition, parse_expression, parse_property
from policyproof.model.properties import (
    Atom,
    Bounds,
    Deadlock,
    Formula,
    Initial,
    Junction,
    Not,
    Path,
    Probability,
    Quantified,
)
from policyproof.model.text import format_expression, format_formula
from policyproof.run.errors import InvalidInput

deterministic = settings(derandomize=True, deadline=None, max_examples=200)
NO_LIMIT = 10**9


def small_model() -> Model:
    """Variables of all kinds, some of them with names that mean something in the grammar."""
    integer = Domain("int", -5, 5)
    names = ["x", "y", "z", "table-counter", "or", "a.b", "min", "tick`tock", "loose[1]"]
    variables = [
        *[Variable(name, integer) for name in names],
        *[Variable(name, Domain("bool")) for name in ("flag", "busy", "lit", "true")],
        *[Variable(name, Domain("real")) for name in ("h", "v")],
        *[Variable(f"queue[{i}]", integer) for i in range(3)],
        *[Variable(f"lamps[{i}]", Domain("bool")) for i in range(2)],
        *[Variable(f"odd name[{i}]", integer) for i in range(2)],
        *[Variable(f"false[{i}]", integer) for i in range(2)],
    ]
    arrays = {
        name: tuple(item.name for item in variables if re.fullmatch(rf"{name}\[\d\]", item.name))
        for name in ("queue", "lamps", "odd name", "false")
    }
    car = Automaton("car", (Location("road"), Location("cr ashed"), Location("7")), ("road",), ())
    other = Automaton("and", (Location("only"),), ("only",), ())
    third = Automaton("a copy#2", (Location("p"), Location("q")), ("p",), ())
    constants = {"N": 4, "half": Fraction(1, 2), "on": True}
    return Model("small", "mdp", tuple(variables), (), (car, other, third), (), constants=constants, arrays=arrays)


MODEL = small_model()

TEMPORAL_NAMES = ["A", "E", "X", "F", "G", "U", "W", "R", "P", "Pmax", "AG", "EF"]


def of(name: str) -> Expression:
    return MODEL.variable_by_name[name].expression


X, Y, Z, FLAG, BUSY, H = (of(name) for name in ("x", "y", "z", "flag", "busy", "h"))
QUEUE = tuple(of(f"queue[{i}]") for i in range(3))


def read(text: str) -> Expression:
    return parse_expression(text, MODEL)


def formula(text: str) -> Formula:
    return parse_property(text, MODEL).formula


def refused(text: str, read_text: Any = parse_property) -> str:
    with pytest.raises(InvalidInput) as caught:
        read_text(text, MODEL)
    return str(caught.value)


def column_of(message: str) -> int:
    found = re.search(r", at column (\d+):", message)
    assert found, message
    return int(found[1])


# What binds how


@pytest.mark.parametrize(
    ("text", "fully"),
    [
        ("x + y * z", "x + (y * z)"),
        ("x - y - z", "(x - y) - z"),
        ("x - y + z", "(x - y) + z"),
        ("h / v / 2", "(h / v) / 2"),
        ("x * y % z", "(x * y) % z"),
        ("-x * y", "(-x) * y"),
        ("x - -y", "x - (-y)"),
        ("- - x", "-(-x)"),
        ("x + 1 < y * 2", "(x + 1) < (y * 2)"),
        ("!x < y", "!(x < y)"),
        ("!flag & busy", "(!flag) & busy"),
        ("!flag = busy", "!(flag = busy)"),
        ("flag | busy & lit", "flag | (busy & lit)"),
        ("flag & busy | lit", "(flag & busy) | lit"),
        ("flag | busy => lit", "(flag | busy) => lit"),
        ("flag => busy => lit", "flag => (busy => lit)"),
        ("flag => busy <=> lit", "(flag => busy) <=> lit"),
        ("flag <=> busy <=> lit", "(flag <=> busy) <=> lit"),
        ("flag ? x : busy ? y : z", "flag ? x : (busy ? y : z)"),
        ("flag <=> busy ? x : y", "(flag <=> busy) ? x : y"),
        ("x < y & y < z", "(x < y) & (y < z)"),
        ("flag = busy & lit", "(flag = busy) & lit"),
        ("queue[x + 1] = 0 & !busy", "((queue[(x + 1)]) = 0) & (!busy)"),
        ("A[] !flag", "A[] (!flag)"),
        ("A[] x < 3", "A[] (x < 3)"),
        ("!A[] flag", "!(A[] flag)"),
        ("A[] E<> flag", "A[] (E<> flag)"),
        ("flag & A[] busy", "flag & (A[] busy)"),
        ("flag => A[] busy", "flag => (A[] busy)"),
        ("A [ flag U busy ] & lit", "(A [ flag U busy ]) & lit"),
        ("A [ flag & lit U busy | lit ]", "A [ (flag & lit) U (busy | lit) ]"),
    ],
)
def test_operators_bind_as_documented(text: str, fully: str) -> None:
    if "A[" in text or "A [" in text:
        assert formula(text) == formula(fully)
    else:
        assert read(text) is read(fully)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x + y", apply("+", X, Y)),
        ("x - y", apply("-", X, Y)),
        ("x * y", apply("*", X, Y)),
        ("x / y", apply("/", X, Y)),
        ("x % y", apply("%", X, Y)),
        ("-x", apply("-", ZERO, X)),
        ("x = y", apply("=", X, Y)),
        ("x == y", apply("=", X, Y)),
        ("x != y", apply("≠", X, Y)),
        ("x ≠ y", apply("≠", X, Y)),
        ("x < y", apply("<", X, Y)),
        ("x <= y", apply("≤", X, Y)),
        ("x ≤ y", apply("≤", X, Y)),
        ("x > y", apply(">", X, Y)),
        ("x >= y", apply("≥", X, Y)),
        ("x ≥ y", apply("≥", X, Y)),
        ("flag & busy", apply("∧", FLAG, BUSY)),
        ("flag && busy", apply("∧", FLAG, BUSY)),
        ("flag ∧ busy", apply("∧", FLAG, BUSY)),
        ("flag and busy", apply("∧", FLAG, BUSY)),
        ("flag | busy", apply("∨", FLAG, BUSY)),
        ("flag || busy", apply("∨", FLAG, BUSY)),
        ("flag ∨ busy", apply("∨", FLAG, BUSY)),
        ("!flag", apply("¬", FLAG)),
        ("¬flag", apply("¬", FLAG)),
        ("not flag", apply("¬", FLAG)),
        ("flag => busy", apply("⇒", FLAG, BUSY)),
        ("flag ⇒ busy", apply("⇒", FLAG, BUSY)),
        ("flag <=> busy", apply("=", FLAG, BUSY)),
        ("flag ? x : y", apply("ite", FLAG, X, Y)),
        ("min(x, y)", apply("min", X, Y)),
        ("max(x, y, z)", apply("max", apply("max", X, Y), Z)),
        ("abs(x)", apply("abs", X)),
        ("sgn(x)", apply("sgn", X)),
        ("floor(h)", apply("floor", H)),
        ("ceil(h)", apply("ceil", H)),
        ("trc(h)", apply("trc", H)),
        ("pow(x, 2)", apply("pow", X, constant(2))),
        ("log(h, 2)", apply("log", H, constant(2))),
        ("sqrt(h)", apply("sqrt", H)),
        ("exp(h)", apply("exp", H)),
        ("sin(h) + cos(h)", apply("+", apply("sin", H), apply("cos", H))),
        ("atan(tanh(h))", apply("atan", apply("tanh", H))),
        ("pi * h", apply("*", apply("π"), H)),
        ("π * h", apply("*", apply("π"), H)),
        ("e() * h", apply("*", apply("e"), H)),
        ("queue[0]", QUEUE[0]),
        ("queue[x]", apply("aa", X, *QUEUE)),
        ("queue[queue[1]]", apply("aa", QUEUE[1], *QUEUE)),
        ("N", constant(4)),
        ("queue[N - 3]", QUEUE[1]),
        ("half", constant(Fraction(1, 2))),
        ("on", TRUE),
        ("(((x)))", X),
    ],
)
def test_every_operator_means_the_jani_operator(text: str, expected: Expression) -> None:
    assert read(text) is expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-7", -7),
        ("0.1", Fraction(1, 10)),
        ("1e2", Fraction(100)),
        ("2.5E-1", Fraction(1, 4)),
        ("1 / 3", Fraction(1, 3)),
        ("2 + 3 * 4", 14),
        ("7 % 4 - 1", 2),
        ("-7 % 4", 1),
    ],
)
def test_numbers_are_exact(text: str, value: int | Fraction) -> None:
    found = read(text).exact
    assert found == value
    assert type(found) is type(value)


def test_white_space_and_line_breaks_do_not_matter() -> None:
    assert read(" x\n  +\ty ") is read("x+y")
    assert formula("A[]\n  ! flag") == formula("A[]!flag")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("`table-counter`", "table-counter"),
        ("or", "or"),
        ("a.b", "a.b"),
        ("min", "min"),
        ("`tick``tock`", "tick`tock"),
        ("`loose[1]`", "loose[1]"),
        ("loose[1]", "loose[1]"),
        ("`odd name`[1]", "odd name[1]"),
        ("`odd name[1]`", "odd name[1]"),
        ("`false`[0]", "false[0]"),
        ("`true`", "true"),
    ],
)
def test_a_variable_is_found_under_its_name_whatever_that_is(text: str, name: str) -> None:
    assert read(text) is of(name)


def test_true_is_the_constant_even_beside_a_variable_of_this_name() -> None:
    assert read("true") is TRUE
    assert read("false") is FALSE


@pytest.mark.parametrize("name", TEMPORAL_NAMES)
@pytest.mark.parametrize("kind", ["variable", "constant", "array"])
def test_a_name_of_a_temporal_operator_may_belong_to_the_model(name: str, kind: str) -> None:
    integer = Domain("int", 0, 5)
    item = Variable(f"{name}[0]" if kind == "array" else name, integer)
    model = dataclasses.replace(
        MODEL,
        variables=MODEL.variables if kind == "constant" else (*MODEL.variables, item),
        constants={name: 3} if kind == "constant" else {},
        arrays={**MODEL.arrays, name: (item.name,)} if kind == "array" else MODEL.arrays,
    )
    place = f"{name}[0]" if kind == "array" else name
    expected = constant(3) if kind == "constant" else item.expression
    for text in (place, f"{place} + 0", f"`{name}`" + place.removeprefix(name)):
        assert parse_expression(text, model).kind == "int"
    assert parse_condition(f"{place} < x", model) is apply("<", expected, X)
    assert parse_condition(f"{place} >= x", model) is apply("≥", expected, X)
    assert parse_condition(format_expression(apply("≤", expected, X)), model) is apply("≤", expected, X)
    # Both spellings without a letter of their own stay open to questions.
    assert parse_property(f"A[] {place} < x", model).formula == Quantified("A", Path("G", Atom(expected < X)))
    assert parse_property(f"E<> {place} < x", model).formula == Quantified("E", Path("F", Atom(expected < X)))


def test_the_location_of_an_automaton_can_be_asked_for() -> None:
    assert read("@car = road") is at_location("car", 0)
    assert read("@car = `cr ashed`") is at_location("car", 1)
    assert read("@car != road") is apply("≠", variable("@car", "int"), ZERO)
    assert read("@`a copy#2` = q & !@car = road").kind == "bool"
    assert read("@`and` = only") is at_location("and", 0)


def test_a_location_may_be_given_by_its_number_which_is_not_its_name() -> None:
    assert read("@car = 1") is at_location("car", 1)
    assert read("@car = `7`") is at_location("car", 2)
    message = refused("@car = 7")
    assert column_of(message) == 8
    assert "road, cr ashed, 7" in message


# Temporal operators and their bounds


def always(bounds: Bounds) -> Quantified:
    return Quantified("A", Path("G", Atom(FLAG), None, bounds))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A[] flag", always(Bounds())),
        ("AG flag", always(Bounds())),
        ("A [ G flag ]", always(Bounds())),
        ("A ( G flag )", always(Bounds())),
        ("AG<=6 flag", always(Bounds(0, 6))),
        ("A[]<=6 flag", always(Bounds(0, 6))),
        ("AG<6 flag", always(Bounds(0, 5))),
        ("AG>=2 flag", always(Bounds(2, None))),
        ("AG[2,5] flag", always(Bounds(2, 5))),
        ("AG^6 flag", always(Bounds(1, 6))),
        ("A [ G^6 flag ]", always(Bounds(1, 6))),
        ("AX flag", Quantified("A", Path("X", Atom(FLAG), None, Bounds(1, 1)))),
        ("AX^3 flag", Quantified("A", Path("X", Atom(FLAG), None, Bounds(3, 3)))),
        ("E [ X^3 flag ]", Quantified("E", Path("X", Atom(FLAG), None, Bounds(3, 3)))),
        ("E<> flag", Quantified("E", Path("F", Atom(FLAG)))),
        ("EF flag", Quantified("E", Path("F", Atom(FLAG)))),
        ("AF^4 flag", Quantified("A", Path("F", Atom(FLAG), None, Bounds(1, 4)))),
        ("EF<=0 flag", Quantified("E", Path("F", Atom(FLAG), None, Bounds(0, 0)))),
        ("E [ flag U busy ]", Quantified("E", Path("U", Atom(BUSY), Atom(FLAG)))),
        ("E ( flag U^3 busy )", Quantified("E", Path("U", Atom(BUSY), Atom(FLAG), Bounds(0, 3)))),
        ("A [ flag U<=3 busy ]", Quantified("A", Path("U", Atom(BUSY), Atom(FLAG), Bounds(0, 3)))),
        ("A [ flag U[1,3] busy ]", Quantified("A", Path("U", Atom(BUSY), Atom(FLAG), Bounds(1, 3)))),
        ("A [ flag W busy ]", Quantified("A", Path("W", Atom(BUSY), Atom(FLAG)))),
        ("A [ flag R busy ]", Quantified("A", Path("R", Atom(BUSY), Atom(FLAG)))),
        ("Pmax=? [ F<=7 flag ]", Probability("max", Path("F", Atom(FLAG), None, Bounds(0, 7)))),
        ("Pmin=? [ flag U busy ]", Probability("min", Path("U", Atom(BUSY), Atom(FLAG)))),
        ("P=? [ X flag ]", Probability("", Path("X", Atom(FLAG), None, Bounds(1, 1)))),
        ("Pmax<=0.1 [ F flag ]", Probability("max", Path("F", Atom(FLAG)), "≤", Fraction(1, 10))),
        ("Pmax>1/3 [ F flag ]", Probability("max", Path("F", Atom(FLAG)), ">", Fraction(1, 3))),
        ('A[] !"deadlock"', Quantified("A", Path("G", Not(Deadlock())))),
        ('E<> "init"', Quantified("E", Path("F", Initial()))),
        ("flag", Atom(FLAG)),
        ("flag & A[] busy", Junction("∧", Atom(FLAG), Quantified("A", Path("G", Atom(BUSY))))),
        ("flag => A[] busy", Junction("∨", Not(Atom(FLAG)), Quantified("A", Path("G", Atom(BUSY))))),
    ],
)
def test_temporal_operators_and_their_bounds(text: str, expected: Formula) -> None:
    assert formula(text) == expected


def test_a_property_is_named_by_its_text_and_quantities_say_how_starts_are_combined() -> None:
    assert parse_property("  A[] flag ", MODEL).name == "A[] flag"
    assert parse_property("A[] flag", MODEL).aggregate == "∀"
    assert parse_property("Pmin=? [ F flag ]", MODEL).aggregate == "min"
    assert parse_property("Pmax=? [ F flag ]", MODEL).aggregate == "max"
    assert parse_property("Pmax<=0.5 [ F flag ]", MODEL).aggregate == "∀"


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("A[] flag & busy", 10),
        ("A[] flag | busy", 10),
        ("A[] flag && busy", 10),
        ("A[] flag and busy", 10),
        ("A[] flag => busy", 10),
        ("A[] flag <=> busy", 10),
        ("A[] flag ? busy : lit", 10),
        ("E<> !flag & busy", 11),
        ("AG<=3 x < 3 | busy", 13),
        ("busy & A[] flag & busy", 17),
        ("A[] E<> flag => busy", 14),
    ],
)
def test_what_follows_the_operand_of_a_temporal_operator_must_not_be_guessed(text: str, column: int) -> None:
    message = refused(text)
    assert "is not clear" in message
    assert column_of(message) == column


def test_parentheses_settle_what_a_temporal_operator_covers() -> None:
    inside, outside = formula("A[] (flag => busy)"), formula("(A[] flag) => busy")
    assert inside == Quantified("A", Path("G", Atom(apply("⇒", FLAG, BUSY))))
    assert outside == Junction("∨", Not(always(Bounds())), Atom(BUSY))


# Errors


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "expected an expression, found the end"),
        ("   ", 4, "expected an expression, found the end"),
        ("x +", 4, "expected an expression, found the end"),
        ("x + * y", 5, "expected an expression, found '*'"),
        ("x < nope", 5, "unknown variable or constant 'nope'"),
        ("x < `nope`", 5, "unknown variable or constant 'nope'"),
        ("flag & fla", 8, "did you mean flag?"),
        ("x ? y : z", 3, "bool"),
        ("flag ? x", 9, "expected ':', found the end"),
        ("flag + 1 < 3", 6, "operator '+' takes int or real arguments, found bool"),
        ("x & flag", 3, "operator '∧' takes bool arguments, found int"),
        ("flag | (busy & x)", 14, "operator '∧'"),
        ("!x", 1, "operator '¬'"),
        ("x = flag", 3, "cannot compare int with bool"),
        ("1 < x < 3", 7, "comparisons cannot be chained"),
        ("(x + 1", 7, "expected ')', found the end"),
        ("x + 1)", 6, "unexpected ')'"),
        ("x y", 3, "unexpected 'y'"),
        ("x # y", 3, "unexpected character '#'"),
        ("x <\n  flagg", 3, "unknown variable or constant 'flagg'"),
        ("x[0] = 1", 2, "only arrays have an index"),
        ("queue = 1", 1, "an array needs an index here"),
        ("x < queue", 5, "an array needs an index here"),
        ("queue[3] = 1", 7, "the array has 3 elements"),
        ("queue[-1] = 1", 7, "the array has 3 elements"),
        ("queue[flag] = 1", 1, "operator 'aa' takes int arguments"),
        ("queue[0.5] = 1", 1, "operator 'aa' takes int arguments"),
        ("queue[x = 1", 12, "expected ']'"),
        ("`open", 1, "unexpected character '`'"),
        ("pow(x) = 1", 1, "takes 2 arguments, found 1"),
        ("x < abs(x, y)", 5, "takes 1 arguments, found 2"),
        ("min(x y)", 7, "expected ','"),
        ("loose[", 1, "unknown variable or constant 'loose'"),
        ("loose[2]", 1, "unknown variable or constant 'loose'"),
        ("``", 1, "unexpected character '`'"),
        ("`a``", 1, "unexpected character '`'"),
        ("h % 2 = 0", 3, "operator '%'"),
        ("@bus = road", 2, "unknown automaton (there are: car, and, a copy#2)"),
        ("@car = sky", 8, "'car' has no such location (there are: road, cr ashed, 7)"),
        ("@car < road", 6, "a location can only be compared with = or !="),
        ("@car", 1, "a location must be compared"),
        ("x + @car", 5, "a location must be compared"),
        ("A[] x", 5, "expected a condition, found an expression of type int"),
        ("A[] queue", 5, "an array needs an index here"),
        ("x + (A[] flag) = 2", 5, "a temporal formula cannot stand inside an expression"),
        ("A[] flag busy", 10, "unexpected 'busy'"),
        ("A [ flag busy ]", 10, "expected a path formula"),
        ("A [ flag U busy", 16, "expected ']'"),
        ("A ( flag U busy ]", 17, "expected ')'"),
        ("AG<= flag", 6, "expected a number of steps"),
        ("AG<=1.5 flag", 5, "expected a number of steps"),
        ("AG<=9999999999 flag", 5, "expected a number of steps"),
        ("AG<0 flag", 3, "no step is before step 0"),
        ("AG[5,2] flag", 3, "the lower bound is above the upper bound"),
        ('A[] "goal"', 5, 'unknown label (there are: "deadlock", "init")'),
        ("Pmax [ F flag ]", 1, "unknown variable or constant 'Pmax'"),
        ("Pmax=0.5 [ F flag ]", 5, "expected =? or a comparison with a bound"),
        ("Pmax<=x [ F flag ]", 7, "expected a number"),
        ("Pmax<=1/0 [ F flag ]", 9, "expected a number other than zero"),
        ("Pmax=? F flag", 8, "expected '['"),
        ("Rmax=? [ F flag ]", 1, "expected rewards are read from JANI files only"),
        ("flag & flag flag", 13, "unexpected 'flag'"),
        ("x > pow(10, 50000)", 5, "more than"),
    ],
)
def test_an_error_points_at_the_column(text: str, column: int, message: str) -> None:
    found = refused(text)
    assert message in found
    assert column_of(found) == column
    # The caret stands under the very column of the line that is shown.
    _, line, pointer = found.rsplit("\n", 2)
    assert line[2:] in text.split("\n")
    assert pointer == "  " + " " * (column - 1) + "^"


def test_a_condition_must_be_boolean() -> None:
    assert parse_condition("x < 3", MODEL) is apply("<", X, constant(3))
    assert "expected a condition, found an expression of type int" in refused("x + 1", parse_condition)


def test_an_expression_cannot_be_a_formula() -> None:
    assert column_of(refused("A[] flag", parse_expression)) == 1


# Hostile texts


def nestings(depth: int) -> list[str]:
    return [
        "(" * depth + "x = 1" + ")" * depth,
        "!(" * depth + "flag" + ")" * depth,
        "-(" * depth + "x" + ")" * depth + " = 1",
        "queue[" * depth + "x" + "]" * depth + " = 1",
        "abs(" * depth + "x" + ")" * depth + " = 1",
        "flag ? x < 3 : " * depth + "busy",
        "flag & (" * depth + "busy" + ")" * depth,
        "A[] " * depth + "flag",
        "!A[] " * depth + "flag",
        "A [ G (" * depth + "flag" + ") ]" * depth,
        "E [ flag U (" * depth + "flag" + ") ]" * depth,
        "Pmax=? [ F (" * depth + "flag" + ") ]" * depth,
        "A[] (flag & " * depth + "flag" + ")" * depth,
    ]


@pytest.mark.parametrize("number", range(len(nestings(1))))
@pytest.mark.parametrize("depth", [MAXIMAL_DEPTH, 10 * MAXIMAL_DEPTH, 20_000])
def test_a_text_that_nests_too_deep_is_refused_quickly(number: int, depth: int) -> None:
    started = time.process_time()
    assert "deep" in refused(nestings(depth)[number])
    assert time.process_time() - started < 2


@pytest.mark.parametrize("number", range(len(nestings(1))))
def test_texts_may_nest_as_deep_as_the_limit_says_even_under_many_callers(number: int) -> None:
    # An operator with parentheses inside brackets takes two levels.
    text = nestings((MAXIMAL_DEPTH - 1) // 2)[number]

    def below(frames: int) -> Any:
        return below(frames - 1) if frames else parse_property(text, MODEL)

    assert below(120).formula is not None


@pytest.mark.parametrize(
    "text",
    [
        "!" * 50_000 + "flag",
        "-" * 50_000 + "x = 1",
        "x" + " + x" * 50_000 + " = 1",
        "flag" + " & x < 3" * 30_000,
        "flag => " * 30_000 + "busy",
        "flag" + " <=> busy" * 30_000,
    ],
)
def test_long_texts_without_nesting_are_read(text: str) -> None:
    started = time.process_time()
    assert read(text).kind == "bool"
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000,
        "9" * 1_000_000 + " = x",
        "0." + "0" * 1_000_000 + "1 < x",
        " " * 1_000_000 + "?",
        "`" + "a" * 1_000_000,
        '"' + "a" * 1_000_000,
        "(" * 300_000,
        "[" * 300_000,
        "x = 1 " + "& " * 300_000,
        "x < 3" + "\n" * 300_000 + "nope",
        "9" * 5000 + " < x",
        "Pmax<=" + "9" * 5000 + " [ F flag ]",
        "A[] " * 100_000,
    ],
)
def test_a_long_senseless_text_is_refused_quickly_with_a_short_message(text: str) -> None:
    started = time.process_time()
    message = refused(text)
    assert time.process_time() - started < 3
    assert len(message) < 1000


def test_an_error_far_along_a_line_shows_the_place_and_not_the_whole_line() -> None:
    text = "x < 3 & " * 1000 + "nope & " + "y < 3 & " * 1000 + "flag"
    message = refused(text)
    assert column_of(message) == 8001
    _, line, pointer = message.rsplit("\n", 2)
    assert line[len(pointer) - 1 :].startswith("nope")
    assert len(message) < 500


@given(st.text(alphabet="xyfa AEGFXU[]()<>=!&|?:+-*/%^@`\"'.,0139_#\n", max_size=30))
@deterministic
def test_any_text_is_either_read_or_invalid_input(text: str) -> None:
    try:
        found = parse_property(text, MODEL)
    except InvalidInput as error:
        assert str(error)
    else:
        assert found.name == text.strip()


# Round trips


def _decimal(numerator: int, places: int) -> Expression:
    return constant(Fraction(numerator, 10**places))


def expressions() -> tuple[st.SearchStrategy[Expression], st.SearchStrategy[Expression], st.SearchStrategy[Expression]]:
    """Random integer, real and Boolean expressions over the small model."""
    by_kind: dict[str, list[Expression]] = {"int": [], "real": [], "bool": []}
    for item in MODEL.variables:
        by_kind[item.domain.kind].append(item.expression)
    integer_leaves = st.sampled_from(by_kind["int"]) | st.builds(constant, st.integers(-9, 10**12))
    fractions = st.fractions(-9, 9, max_denominator=12)
    real_leaves = (
        st.sampled_from([*by_kind["real"], apply("π"), apply("e")])
        | st.builds(constant, fractions)
        | st.builds(_decimal, st.integers(-(10**6), 10**6), st.integers(0, 9))
    )
    locations = [at_location("car", 0), at_location("car", 2), at_location("a copy#2", 1), at_location("and", 0)]
    boolean_leaves = st.sampled_from([*by_kind["bool"], TRUE, FALSE, *locations, ~at_location("car", 1)])
    arrays = [tuple(of(name) for name in elements) for elements in MODEL.arrays.values()]
    integer_arrays = st.sampled_from([array for array in arrays if array[0].kind == "int"])

    def two(operators: str | list[str], left: Any, right: Any) -> Any:
        return st.builds(apply, st.sampled_from(list(operators)), left, right)

    def one(operators: list[str], inner: Any) -> Any:
        return st.builds(apply, st.sampled_from(operators), inner)

    def access(array: tuple[Expression, ...], index: Expression) -> Expression:
        # A constant outside the array is refused in texts (though it may stand in a file).
        outside = index.is_constant and not 0 <= int(index.exact) < len(array)
        return apply("aa", ONE if outside else index, *array)

    integers = integer_leaves
    reals = real_leaves
    booleans = boolean_leaves
    # Layer on layer: every level may use the one below in all its operators.
    for _ in range(4):
        numbers = integers | reals
        new_integers = (
            two(["+", "-", "*", "%", "min", "max"], integers, integers)
            | one(["abs", "sgn", "floor", "ceil", "trc"], integers)
            | one(["floor", "ceil", "trc", "sgn"], reals)
            | st.builds(apply, st.just("ite"), booleans, integers, integers)
            | st.builds(access, integer_arrays, integers)
            | st.builds(apply, st.just("pow"), st.sampled_from(by_kind["int"]), st.sampled_from([ONE, constant(3)]))
        )
        new_reals = (
            two(["+", "-", "*", "/", "min", "max"], numbers, reals)
            | two(["/", "log"], numbers, numbers)
            | one(["abs"], reals)
            | one(["sqrt", "exp", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"], numbers)
            | st.builds(apply, st.just("ite"), booleans, reals, numbers)
        )
        new_booleans = (
            two("<≤>≥=≠", numbers, numbers)
            | two("∧∨⇒=≠", booleans, booleans)
            | one(["¬"], booleans)
            | st.builds(apply, st.just("ite"), booleans, booleans, booleans)
            | st.builds(access, st.just(tuple(of(f"lamps[{i}]") for i in range(2))), integers)
        )
        integers, reals, booleans = integers | new_integers, reals | new_reals, booleans | new_booleans
    return integers, reals, booleans


INTEGERS, REALS, BOOLEANS = expressions()


@given(INTEGERS | REALS | BOOLEANS)
@settings(derandomize=True, deadline=None, max_examples=1500)
def test_an_expression_written_as_text_is_read_back_as_the_identical_object(expression: Expression) -> None:
    text = format_expression(expression, NO_LIMIT)
    assert "…" not in text
    assert parse_expression(text, MODEL) is expression


def formulas() -> st.SearchStrategy[Formula]:
    atoms = st.builds(Atom, st.deferred(lambda: BOOLEANS)) | st.just(Deadlock()) | st.just(Initial())
    spans = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda pair: Bounds(min(pair), max(pair)))
    bounds = spans | st.builds(Bounds, st.integers(0, 9))
    next_bounds = st.integers(0, 9).map(lambda step: Bounds(step, step))

    def paths(inner: st.SearchStrategy[Formula]) -> st.SearchStrategy[Path]:
        return (
            st.builds(Path, st.sampled_from("FG"), inner, st.none(), bounds)
            | st.builds(Path, st.just("X"), inner, st.none(), next_bounds)
            | st.builds(Path, st.sampled_from("UWR"), inner, inner, bounds)
        )

    def larger(inner: st.SearchStrategy[Formula]) -> st.SearchStrategy[Formula]:
        comparison = st.tuples(st.sampled_from("<≤>≥"), st.fractions(0, 1))
        optimum = st.sampled_from(["", "min", "max"])
        return (
            st.builds(Not, inner)
            | st.builds(Junction, st.sampled_from("∧∨"), inner, inner)
            | st.builds(Quantified, st.sampled_from("AE"), paths(inner))
            | st.builds(Probability, optimum, paths(inner))
            | st.builds(lambda o, p, c: Probability(o, p, *c), optimum, paths(inner), comparison)
        )

    return st.recursive(atoms, larger, max_leaves=6)


def _plain(value: Formula) -> Formula:
    """Without the difference between ¬, ∧ and ∨ on formulas and the same operators inside one expression."""
    if isinstance(value, Not):
        inner = _plain(value.operand)
        return Atom(~inner.expression) if isinstance(inner, Atom) else Not(inner)
    if isinstance(value, Junction):
        left, right = _plain(value.left), _plain(value.right)
        if isinstance(left, Atom) and isinstance(right, Atom):
            return Atom(apply(value.operator, left.expression, right.expression))
        return Junction(value.operator, left, right)
    if isinstance(value, (Quantified, Probability)):
        path = value.path
        left_side = None if path.left is None else _plain(path.left)
        new = Path(path.operator, _plain(path.right), left_side, path.bounds)
        if isinstance(value, Quantified):
            return Quantified(value.quantifier, new)
        return Probability(value.optimum, new, value.comparison, value.bound)
    return value


@given(formulas())
@settings(derandomize=True, deadline=None, max_examples=600)
def test_a_formula_written_as_text_is_read_back_equal(value: Formula) -> None:
    text = format_formula(value, NO_LIMIT)
    assert parse_property(text, MODEL).formula == _plain(value)


@given(formulas())
@deterministic
def test_writing_what_was_read_changes_nothing_more(value: Formula) -> None:
    once = parse_property(format_formula(value, NO_LIMIT), MODEL).formula
    assert parse_property(format_formula(once, NO_LIMIT), MODEL).formula == once


@pytest.mark.parametrize("item", MODEL.variables, ids=lambda item: item.name)
def test_every_name_is_written_so_that_it_is_found_again(item: Variable) -> None:
    assert parse_expression(format_expression(item.expression), MODEL) is item.expression


# Writing without reading


def test_a_text_that_grows_beyond_the_limit_is_cut() -> None:
    expression = X
    for _ in range(200):
        expression = expression + expression * Y
    started = time.process_time()
    text = format_expression(expression, 100)
    assert time.process_time() - started < 1
    assert len(text) == 101
    assert text.endswith("…")


def test_a_number_of_thousands_of_digits_is_cut_like_any_long_text() -> None:
    huge = read("pow(10, 16000)")
    assert format_expression(huge).endswith("…")
    assert len(format_expression(apply("<", X, huge))) < 1000
    assert len(format_formula(Probability("max", Path("F", Atom(FLAG)), "<", Fraction(10**6000, 3)))) < 1000


def test_accesses_to_unnamed_arrays_inside_each_other_are_written_quickly_and_without_recursion() -> None:
    expression = X
    for _ in range(2000):
        expression = apply("aa", expression, *[expression + constant(i) for i in range(9)])
    started = time.process_time()
    text = format_expression(expression)
    assert time.process_time() - started < 1
    assert text.endswith("…")
