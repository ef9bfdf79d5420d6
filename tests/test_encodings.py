"""What solvers are told means what the exact readings mean: expressions, cases of linear forms, networks, margins."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import z3
from hypothesis import given, settings

from policyproof.encodings import piecewise
from policyproof.encodings.linear import Comparison, Form, Linearisation, NotLinear
from policyproof.encodings.piecewise import Program, program_of
from policyproof.encodings.question import Column, Question
from policyproof.encodings.z3_encoding import Z3Encoding, unsupported_operators
from policyproof.model.automata import Domain, Variable
from policyproof.model.exact import ExactProgram
from policyproof.model.expressions import Expression, apply, constant, variable
from policyproof.oracle.milp_solvers import solve_with_highs
from policyproof.policy.network import Activation, Affine, Clip, Network, Normalise
from policyproof.policy.policy import Policy
from tests.support.brute_force import KINDS, random_question, states_of, valuation
from tests.support.random_expressions import INTEGERS, REALS, expressions

SMALL = [item for item in INTEGERS if item.name in ("i", "j", "p")]
MIXED = [*SMALL, REALS[0]]


def _columns(variables: list[Variable]) -> tuple[Column, ...]:
    return tuple(Column(item.name, item.domain.kind, *item.domain.range) for item in variables)


def _states(variables: list[Variable], count: int, rng: random.Random) -> list[dict]:
    choices = {
        "int": lambda low, high: rng.randint(int(low), int(high)),
        "bool": lambda low, high: rng.random() < 0.5,
        "real": lambda low, high: Fraction(rng.randint(-8, 12), 4),
    }
    return [
        {item.name: choices[item.domain.kind](*item.domain.range) for item in variables} for _ in range(count)
    ]  # fmt: skip


# Expressions


@pytest.mark.parametrize("relaxed", [False, True])
@settings(max_examples=150, deadline=None)
@given(expressions("bool", MIXED, depth=3))
def test_z3_reads_conditions_as_the_exact_interpreter_does(relaxed: bool, condition: Expression) -> None:
    assert not unsupported_operators([condition])
    encoding = Z3Encoding(Question(_columns(MIXED)), relaxed=relaxed)
    term = encoding.condition(condition)
    program = ExactProgram([condition])
    for state in _states(MIXED, 6, random.Random(condition.serial)):
        values = [
            (encoding.variables[name], z3.BoolVal(value) if isinstance(value, bool) else _value(encoding, name, value))
            for name, value in state.items()
        ]
        solver = z3.Solver()
        solver.add(z3.substitute(term, values))
        # Where an operator is undefined Z3 may choose its value; the condition must not hold for any choice.
        assert (solver.check() == z3.sat) == (program(state)[0] is True), state


def _value(encoding: Z3Encoding, name: str, value: int | Fraction) -> z3.ExprRef:
    sort = encoding.variables[name].sort()
    return z3.IntVal(int(value)) if sort == z3.IntSort() else z3.RealVal(str(Fraction(value)))


@pytest.mark.parametrize(("left", "right"), list(itertools.product([-7, -3, 0, 3, 7], [-3, -2, 2, 3])))
def test_division_and_remainder_round_down_for_z3(left: int, right: int) -> None:
    a, b = (variable(name, "int") for name in "ab")
    columns = (Column("a", "int", left, left), Column("b", "int", right, right))
    for expression, value in [
        (apply("%", a, b), left % right),
        (apply("%", a, constant(right)), left % right),
        (apply("floor", apply("/", a, b)), left // right),
        (apply("ceil", apply("/", a, b)), -(-left // right)),
        (apply("trc", apply("/", a, b)), int(Fraction(left, right))),
    ]:
        for relaxed in (False, True):
            encoding = Z3Encoding(Question(columns), relaxed=relaxed)
            solver = z3.Solver()
            solver.add([*encoding.box(), encoding.expression(expression) != value])
            assert solver.check() == z3.unsat, (expression, relaxed)


def test_operators_without_an_exact_encoding_are_named() -> None:
    x = variable("x", "real")
    found = unsupported_operators([apply("<", apply("sin", x) + apply("pow", x, x), apply("sqrt", x))])
    assert found == ["pow with an exponent that is no small whole number", "sin", "sqrt"]


class _Linear:
    """Counts how many random conditions have linear cases, so that agreement is not vacuous."""

    linear = refused = true = 0


@settings(max_examples=400, deadline=None)
@given(expressions("bool", MIXED, depth=3))
def _compare_linear_cases(condition: Expression) -> None:
    linearisation = Linearisation(["i", "j", "p"])
    try:
        clauses, negated = linearisation.clauses(condition), linearisation.negated(condition)
    except NotLinear as reason:
        assert reason.reasons
        _Linear.refused += 1
        return
    _Linear.linear += 1
    program = ExactProgram([condition])
    for state in _states(MIXED, 25, random.Random(condition.serial)):
        expected = program(state)[0] is True
        _Linear.true += expected
        assert all(_any_holds(clause, state) for clause in clauses) == expected, state
        assert _any_holds(negated, state) != expected, state


def _any_holds(alternatives, state: dict) -> bool:
    return any(all(_holds(comparison, state) for comparison in one) for one in alternatives)


def _holds(comparison: Comparison, state: dict) -> bool:
    form = comparison.form
    value = form.constant + sum(factor * Fraction(state[name]) for name, factor in form.coefficients.items())
    return {"≤": value <= 0, "<": value < 0, "=": value == 0}[comparison.relation]


def test_linear_cases_hold_exactly_where_the_condition_does() -> None:
    _compare_linear_cases()
    print(f"linear {_Linear.linear}, refused {_Linear.refused}, states that satisfy the condition {_Linear.true}")
    assert _Linear.linear >= 0.3 * (_Linear.linear + _Linear.refused)
    assert _Linear.true >= 0.05 * 25 * _Linear.linear


def test_strict_comparisons_of_integers_lose_nothing() -> None:
    # 2 x + 4 y < 5 over integers is x + 2 y <= 2.
    linearisation = Linearisation(["x", "y"])
    form = Form({"x": Fraction(2, 3), "y": Fraction(4, 3)}, Fraction(-5, 3))
    ((comparison,),) = linearisation.compare(form, "<")
    assert comparison == Comparison(Form({"x": Fraction(1), "y": Fraction(2)}, Fraction(-2)), "≤", True)
    assert linearisation.compare(Form({"x": Fraction(2)}, Fraction(1)), "=") == ()


# Networks


def _program_at(question: Question, state: dict) -> Program:
    """The program with its state fixed (the intervals stay, so the ReLUs do too)."""
    program = program_of(question)
    values = [float(state[column.name]) for column in question.columns]
    fixed = [(v - m) / u for v, m, u in zip(values, program.middles, program.units, strict=True)]
    size = program.state_size
    return replace(program, lower=[*fixed, *program.lower[size:]], upper=[*fixed, *program.upper[size:]])


def _questions(count: int):
    """(question with one region and output, policy, a state of it) of random questions without conditions."""
    for seed in range(count):
        policy, variables, regions, applicability = random_question(seed)
        if policy.switch is not None or applicability is not None:
            continue
        for region in range(len(regions)):
            rows = states_of(regions, region, variables)
            if not len(rows):
                continue
            columns = []
            for item in variables:
                low, high = (valuation(end[region], variables)[item.name] for end in (regions.lower, regions.upper))
                columns.append(Column(item.name, item.domain.kind, low, high))
            state = valuation(rows[seed % len(rows)], variables)
            for output in range(policy.networks[0].output_size):
                question = Question(
                    tuple(columns), network=policy.networks[0], inputs=policy.inputs, output=output
                )  # fmt: skip
                yield seed, question, policy, state


def _lead(policy: Policy, question: Question, state: dict) -> Fraction:
    outputs = policy.exact_outputs(state)
    return outputs[question.output] - max(outputs[rival] for rival in question.rivals)


def test_programs_have_the_solutions_that_the_networks_have() -> None:
    """With the state fixed, the program is feasible where the output leads, and infeasible where it clearly trails."""
    led = trailed = within = 0
    for seed, question, policy, state in _questions(2 * len(KINDS)):
        program = _program_at(question, state)
        lead, margin = _lead(policy, question, state), program.margin
        outcome = solve_with_highs(program, 0).outcome
        if lead >= 0:
            led += 1
            assert outcome == "sat", (seed, state, question.output)
        elif lead < -4 * margin:
            trailed += 1
            assert outcome == "unsat", (seed, state, question.output)
        else:
            within += 1
    print(f"led {led}, trailed {trailed}, within the margin {within}")
    assert led >= 20
    assert trailed >= 40
    assert within <= 0.2 * (led + trailed)


def _perturbed_lead(program: Program, rng: np.random.Generator) -> float:
    """The slack (in margins) of a solver that misses every row and ReLU by the tolerance, in random directions."""
    values: dict[int, float] = {}
    for column in range(program.state_size):
        missed = piecewise.TOLERANCE * rng.choice([-1, 1]) if program.integer[column] else 0.0
        values[column] = program.lower[column] + missed
    relus = {relu.argument: relu for relu in program.relus}
    best = np.inf
    for row in program.rows:
        if row.equal:
            total = sum(f * values[c] for c, f in zip(row.columns[1:], row.coefficients[1:], strict=True))
            argument = row.columns[0]
            values[argument] = row.limit - total + piecewise.TOLERANCE * rng.choice([-1, 1])
            if argument in relus:
                missed = piecewise.TOLERANCE * rng.choice([-1, 1])
                values[relus[argument].result] = max(values[argument], 0.0) + missed
        else:
            *known, slack = zip(row.columns, row.coefficients, strict=True)
            total = sum(f * values[c] for c, f in known)
            best = min(best, (row.limit - total + piecewise.TOLERANCE * rng.choice([-1, 1])) / slack[1])
    return best


@pytest.mark.parametrize(("share", "contained"), [(1.0, True), (1e-3, False)])
def test_the_margin_covers_what_a_solver_may_miss(share: float, contained: bool) -> None:
    """Within the stated margin the leads agree whatever the solver misses; a thousandth of it would not be enough."""
    rng = np.random.default_rng(1)
    worst = 0.0
    for _, question, policy, state in _questions(2 * len(KINDS)):
        program = _program_at(question, state)
        lead = float(_lead(policy, question, state)) / program.margin
        for _ in range(5):
            # Rows are relative to their own scale, so far apart leads are compared relatively as well.
            worst = max(worst, abs(_perturbed_lead(program, rng) - lead) / (1 + 1e-9 * abs(lead)))
    print(f"largest deviation: {worst:.3g} margins")
    assert (worst <= share) == contained


def test_activations_fixed_by_bounds_make_no_case_distinction() -> None:
    network = Network(
        (
            Affine(np.array([[1.0], [1.0], [1.0]]), np.array([10.0, -10.0, 0.0])),
            Activation("relu"),
            Affine(np.ones((2, 3)), np.zeros(2)),
        ),
        1,
    )
    x = variable("x", "int")
    low, high = np.array([9.0, -11.0, -1.0]), np.array([11.0, -9.0, 1.0])
    question = Question((Column("x", "int", -1, 1),), network=network, inputs=(x,))
    assert len(program_of(replace(question, bounds=[(low, high)])).relus) == 1
    counts = []
    for bounds in (None, [(low, high)]):
        encoding = Z3Encoding(replace(question, bounds=bounds))
        counts.append(sum(str(term).count("If(") for term in encoding.constraints()))
    assert counts == [3, 1]


def test_clips_and_normalisations_are_encoded_exactly_for_z3() -> None:
    network = Network(
        (
            Normalise(np.array([0.1, 0.3]), np.array([3.0, 7.0])),
            Clip(np.array([-0.5, -np.inf]), np.array([0.5, 0.25])),
            Affine(np.array([[1.0, 2.0], [0.5, -1.0]]), np.array([0.0, 0.1])),
            Activation("leaky_relu", 0.1),
        ),
        2,
    )
    names = [Variable(name, Domain("int", -5, 5)) for name in "xy"]
    policy = Policy((network,), tuple(item.expression for item in names), labels=("a", "b"))
    for x, y in itertools.product(range(-5, 6), repeat=2):
        columns = (Column("x", "int", x, x), Column("y", "int", y, y))
        encoding = Z3Encoding(Question(columns, network=network, inputs=policy.inputs))
        definitions, outputs = encoding.network(network, encoding.inputs(), None)
        solver = z3.Solver()
        solver.add([*encoding.box(), *definitions])
        assert solver.check() == z3.sat
        model = solver.model()
        assert [Fraction(str(model.eval(output))) for output in outputs] == policy.exact_outputs({"x": x, "y": y})
