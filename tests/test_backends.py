"""Every back end of the oracle agrees with looking at every state, and its guards fire."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest

from policyproof.encodings.question import Question as Query
from policyproof.model.automata import Domain, Variable
from policyproof.model.expressions import apply, constant
from policyproof.model.tape import bits
from policyproof.oracle import solver_backend
from policyproof.oracle.backends import BACKENDS, SOLVERS, NotInstalled, installed, make_oracle, make_solver
from policyproof.oracle.milp_backend import MilpBackend
from policyproof.oracle.milp_solvers import FloatSolution
from policyproof.oracle.protocol import IMPOSSIBLE, POSSIBLE, UNKNOWN, Answers, Regions
from policyproof.oracle.solver_backend import SolverBackend
from policyproof.oracle.z3_backend import RELAXED
from policyproof.policy.decisions import Decider
from policyproof.policy.network import Activation, Affine, Network
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget
from policyproof.run.child import OutOfTime, Worker
from policyproof.run.errors import BackendFailure, InvalidInput, ResourceExhausted, UnsupportedFeature
from tests.support.brute_force import KINDS, Question, brute_force, holds, random_question

COMPLETE = ("z3", "milp", "scip", "gurobi", "marabou", "marabou-z3")
RELAXING = ("z3-relaxed", "marabou-relaxed")
LINEAR_ONLY = ("milp", "scip", "gurobi", "marabou", "marabou-z3", "marabou-relaxed")
QUICK, SLOW = 3 * len(KINDS), 12 * len(KINDS)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker("the solvers") as shared:
        yield shared


def _needs(name: str) -> None:
    if not installed(name):
        pytest.skip(f"the solver of {name} is not installed")


# Agreement


class _Shares:
    """What the random questions were like, by question or by (region, output)."""

    def __init__(self) -> None:
        self.questions: Counter[str] = Counter()
        self.status: Counter[str] = Counter()
        self.statistics: Counter[str] = Counter()
        self.asked = self.refused = self.tolerance = 0
        self.seconds = 0.0

    def add(self, seed: int, question: Question, found, answers: Answers) -> None:
        self.asked += 1
        self.tolerance += answers.arithmetic == "solver-tolerance"
        for name, status in (("impossible", IMPOSSIBLE), ("possible", POSSIBLE), ("unknown", UNKNOWN)):
            self.status[name] += int((answers.status == status).sum())
        kind = KINDS[seed % len(KINDS)]
        self.questions["ties"] += found.ties > 0
        self.questions["near ties"] += kind == "near ties"
        self.questions["filtered"] += question.applicability is not None
        self.questions["switched"] += question.policy.switch is not None
        self.questions["conditions"] += len(question.regions.conditions) > 0
        self.questions["branched"] += answers.statistics["branches"] > 0
        self.questions["enumerated"] += answers.statistics["enumerated_states"] > 0
        for name, value in answers.statistics.items():
            self.statistics[name] += value

    def report(self, name: str) -> str:
        total = sum(self.status.values())
        shares = [f"{part} {count / total:.1%}" for part, count in self.status.items()]
        shares += [f"{part} {count / self.asked:.1%}" for part, count in self.questions.items()]
        return (
            f"{name}: {self.asked} questions, {total} outputs, {self.refused} refused, {self.tolerance} in tolerance, "
            f"{1000 * self.seconds / total:.2f} ms an output, {', '.join(shares)}, {dict(self.statistics)}"
        )


def _compare(name: str, seeds: range, worker: Worker, *, complete: bool) -> _Shares:
    shares = _Shares()
    for seed in seeds:
        question = random_question(seed)
        found = brute_force(question)
        backend = make_solver(name, question.policy, question.variables, worker=worker)
        started = time.monotonic()
        try:
            answers = backend.ask(question.regions, applicability=question.applicability)
        except UnsupportedFeature:
            assert name in LINEAR_ONLY, seed
            assert KINDS[seed % len(KINDS)] in ("any condition", "empty condition"), seed
            shares.refused += 1
            continue
        shares.seconds += time.monotonic() - started
        _check(seed, question, found.chosen, answers, complete=complete)
        shares.add(seed, question, found, answers)
    print(shares.report(name))
    return shares


def _check(seed: int, question: Question, chosen: np.ndarray, answers: Answers, *, complete: bool) -> None:
    place = (seed, KINDS[seed % len(KINDS)])
    assert not (answers.possible & ~chosen).any(), place
    # A wrong impossibility is forgiven only to a relaxation that says that it is its solver's word.
    if complete or answers.arithmetic == "real":
        assert not (answers.impossible & chosen).any(), place
    for region, output in np.argwhere(answers.possible):
        _check_witness(question, int(region), int(output), answers.witness[region, output])
    unknown = set(np.flatnonzero((answers.status == UNKNOWN).any(axis=1)).tolist())
    assert unknown == set(answers.reasons), place


def _check_witness(question: Question, region: int, output: int, state: np.ndarray) -> None:
    policy, variables, regions, applicability = question
    row = state[None, :]
    for position, item in enumerate(variables):
        low, value, high = (part[position] for part in (regions.lower[region], state, regions.upper[region]))
        assert low == value == high if item.domain.kind == "real" else low <= value <= high
    condition = regions.condition_of(region)
    assert condition is None or holds([condition], row, variables).all()
    applicable = None if applicability is None else holds(applicability, row, variables)
    decider = Decider(policy, variables, {item.name: item.domain.range for item in variables})
    assert decider.decide(row, applicable).tolist() == [output]


def _guard_shares(shares: _Shares) -> None:
    total = sum(shares.status.values())
    assert shares.status["possible"] >= 0.05 * total
    assert shares.status["impossible"] >= 0.05 * total
    for part in ("ties", "near ties", "filtered", "switched", "conditions"):
        assert shares.questions[part] >= 0.05 * shares.asked, part
    assert shares.refused <= 0.1 * (shares.asked + shares.refused)


@pytest.mark.parametrize("name", COMPLETE)
def test_agrees_with_looking_at_every_state(name: str, worker: Worker) -> None:
    _needs(name)
    shares = _compare(name, range(QUICK), worker, complete=True)
    _guard_shares(shares)
    assert shares.status["unknown"] <= 0.01 * sum(shares.status.values())
    # Looking at every state is for what solvers leave within their tolerance, no more.
    assert shares.questions["enumerated"] <= 0.4 * shares.asked
    if name in ("z3", "marabou-z3"):
        assert shares.questions["enumerated"] == 0


@pytest.mark.parametrize("name", RELAXING)
def test_relaxations_never_exclude_what_is_possible(name: str, worker: Worker) -> None:
    _needs(name)
    shares = _compare(name, range(QUICK), worker, complete=False)
    _guard_shares(shares)
    assert 0 < shares.status["unknown"] <= 0.2 * sum(shares.status.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["z3", "milp", "marabou", "marabou-z3", "scip"])
def test_agrees_on_many_questions(name: str, worker: Worker) -> None:
    _needs(name)
    shares = _compare(name, range(QUICK, QUICK + SLOW), worker, complete=True)
    _guard_shares(shares)
    assert sum(shares.status.values()) >= 1000
    assert shares.status["unknown"] <= 0.01 * sum(shares.status.values())


# Planted bugs


class _InProcess(Worker):
    """Runs the solvers in this process, where a test can change their code."""

    def call(self, function, *arguments, budget=None, seconds=None):
        return function(*arguments)


def _disagreements(name: str) -> int:
    """How many of the tie questions come out wrong, or are refused by the exact confirmation."""
    wrong = 0
    for seed in range(2 * len(KINDS)):
        if KINDS[seed % len(KINDS)] not in ("ties", "duplicated outputs", "constant outputs", "plain", "leaky"):
            continue
        question = random_question(seed)
        backend = make_solver(name, question.policy, question.variables, worker=_InProcess(name))
        try:
            answers = backend.ask(question.regions, applicability=question.applicability)
            wrong += not np.array_equal(answers.possible, brute_force(question).chosen)
        except BackendFailure:
            wrong += 1
    return wrong


@pytest.mark.parametrize("strict", [True, False])
def test_wrong_ties_would_be_seen(strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The strict encoding of ICAPS22's appendix lets a tie choose nothing; a lenient one lets it choose twice."""
    assert _disagreements("z3") == 0
    monkeypatch.setattr(Query, "must_exceed", lambda question, rival: strict)
    assert _disagreements("z3") > 0


@pytest.mark.parametrize("name", ["z3", "milp", "marabou"])
def test_unsound_bounds_would_be_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _needs(name)
    assert _disagreements(name) == 0
    sound = SolverBackend._bounds

    def narrowed(backend: SolverBackend, leaf: solver_backend.Leaf):
        bounds = sound(backend, leaf)
        return None if bounds is None else [(low, np.minimum(high, 0.0)) for low, high in bounds]

    monkeypatch.setattr(SolverBackend, "_bounds", narrowed)
    assert _disagreements(name) > 0


def test_a_solution_that_is_none_is_never_a_witness() -> None:
    """A solver that answers `sat` with anything at all changes no answer."""
    for seed in range(len(KINDS)):
        question = random_question(seed)
        backend = MilpBackend(question.policy, question.variables)
        generator = np.random.default_rng(seed)
        backend._solve = lambda program, generator=generator: FloatSolution(
            "sat", tuple(generator.uniform(-50, 50, len(program.lower)))
        )
        try:
            answers = backend.ask(question.regions, applicability=question.applicability)
        except UnsupportedFeature:
            continue
        assert np.array_equal(answers.possible, brute_force(question).chosen), seed
        assert np.array_equal(answers.impossible, ~brute_force(question).chosen), seed


# Reals, tolerance, relaxation, switches


def _real_policy(difference: float) -> tuple[Policy, list[Variable]]:
    """Two outputs, the second one lower by `difference` everywhere."""
    u = Variable("u", Domain("real", Fraction(-1), Fraction(1)))
    network = Network((Affine(np.array([[1.0], [1.0]]), np.array([0.0, -difference])),), 1)
    return Policy((network,), (u.expression,), labels=("first", "second")), [u]


def _real_region(low: float, high: float) -> Regions:
    return Regions(np.array([[bits(low)]]), np.array([[bits(high)]]))


@pytest.mark.parametrize("name", ["milp", "scip", "marabou", "marabou-relaxed"])
def test_what_no_margin_confirms_says_so(name: str, worker: Worker) -> None:
    _needs(name)
    expected = {1.0: (IMPOSSIBLE, "real"), 1e-7: (IMPOSSIBLE, "solver-tolerance"), 0.0: (UNKNOWN, "real")}
    for difference, (status, arithmetic) in expected.items():
        policy, variables = _real_policy(difference)
        answers = make_solver(name, policy, variables, worker=worker).ask(_real_region(-1.0, 1.0))
        assert answers.status.tolist() == [[POSSIBLE, status]], difference
        assert answers.arithmetic == arithmetic, difference


@pytest.mark.parametrize("name", ["z3", "marabou-z3"])
def test_z3_decides_what_is_within_the_tolerance(name: str, worker: Worker) -> None:
    _needs(name)
    for difference in (1.0, 1e-7, 1e-300, 0.0):
        policy, variables = _real_policy(difference)
        answers = make_solver(name, policy, variables, worker=worker).ask(_real_region(-1.0, 1.0))
        assert answers.status.tolist() == [[POSSIBLE, IMPOSSIBLE]]
        assert answers.arithmetic == "real"


def test_a_real_witness_is_a_float(worker: Worker) -> None:
    policy, variables = _real_policy(1.0)
    u = variables[0].expression
    third, root = apply("=", u * 3, constant(1)), apply("=", u * u, constant(Fraction(1, 2)))
    near = apply("<", apply("abs", u * 3 - constant(1)), constant(Fraction(1, 10**9)))
    regions = Regions(
        np.full((3, 1), bits(-1.0)), np.full((3, 1), bits(1.0)), (third, root, near), np.array([0, 1, 2])
    )  # fmt: skip
    answers = make_solver("z3", policy, variables, worker=worker).ask(regions)
    assert answers.status[:, 0].tolist() == [UNKNOWN, UNKNOWN, POSSIBLE]
    assert "no float64 value of u" in answers.reasons[0]
    assert abs(3 * float(answers.witness[2, 0].view(np.float64)[0]) - 1) < 1e-9


@lru_cache
def _real_question(seed: int) -> tuple[Policy, list[Variable], Regions, Answers]:
    """Boxes with two real variables, and what Z3 says about them."""
    rng = np.random.default_rng(seed)
    variables = [*(Variable(part, Domain("real", Fraction(-2), Fraction(2))) for part in "uv")]
    variables.append(Variable("x", Domain("int", -3, 3)))
    # The boxes have widths from 4 down to a millionth.
    low = rng.uniform(-2, 1, (4, 2))
    high = np.minimum(low + 4.0 * 10.0 ** -rng.integers(0, 7, (4, 1)), 2.0)
    ends = [np.column_stack([end.view(np.int64), np.full(4, x)]) for end, x in ((low, -3), (high, 3))]
    layers = (
        Affine(rng.normal(size=(5, 3)), rng.normal(size=5)),
        Activation("relu"),
        Affine(rng.normal(size=(3, 5)), rng.normal(size=3)),
    )
    policy = Policy((Network(layers, 3),), tuple(item.expression for item in variables), labels=tuple("abc"))
    u, v, x = (item.expression for item in variables)
    regions = Regions(*ends, (u + v < x,), np.array([0, -1, 0, -1]))
    with make_solver("z3", policy, variables) as backend:
        return policy, variables, regions, backend.ask(regions)


@pytest.mark.parametrize("name", ["milp", "scip", "marabou", "marabou-z3"])
def test_agrees_with_z3_about_real_boxes(name: str, worker: Worker) -> None:
    _needs(name)
    status: Counter[int] = Counter()
    for seed in range(8):
        policy, variables, regions, exact = _real_question(seed)
        found = make_solver(name, policy, variables, worker=worker).ask(regions)
        assert not (exact.impossible & found.possible).any(), seed
        assert not (exact.possible & found.impossible).any(), seed
        assert found.arithmetic == "real"
        status.update(found.status.ravel().tolist())
    print({"impossible": status[IMPOSSIBLE], "possible": status[POSSIBLE], "unknown": status[UNKNOWN]})
    assert min(status[IMPOSSIBLE], status[POSSIBLE]) >= 0.05 * status.total()
    assert status[UNKNOWN] <= 0.01 * status.total()


def _between_integers() -> tuple[Policy, list[Variable]]:
    """The second output wins only around x = 1/2."""
    x = Variable("x", Domain("int", -4, 4))
    network = Network(
        (
            Affine(np.array([[2.0], [-2.0]]), np.array([-1.0, 1.0])),
            Activation("relu"),
            Affine(np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([-0.5, 0.0])),
        ),
        1,
    )
    return Policy((network,), (x.expression,), labels=("outside", "inside")), [x]


@pytest.mark.parametrize("name", [*COMPLETE, *RELAXING])
def test_integers_are_branched_on_unless_relaxed(name: str, worker: Worker) -> None:
    _needs(name)
    policy, variables = _between_integers()
    backend = make_solver(name, policy, variables, worker=worker)
    answers = backend.ask(Regions(np.array([[-4]]), np.array([[4]])))
    assert backend.capabilities.integer == (name not in RELAXING)
    assert answers.status[0, 1] == (UNKNOWN if name in RELAXING else IMPOSSIBLE)
    if name in RELAXING:
        assert answers.reasons == {0: RELAXED}
    if name == "marabou":
        assert answers.statistics["branches"] > 0


@pytest.mark.parametrize("name", ["z3", "milp"])
def test_a_state_without_a_network_is_an_error_of_the_policy(name: str, worker: Worker) -> None:
    x = Variable("x", Domain("int", 0, 3))
    network = Network((Affine(np.array([[1.0], [-1.0]]), np.zeros(2)),), 1)
    policy = Policy((network, network), (x.expression,), labels=("a", "b"), switch=x.expression, switch_values=(0, 2))
    backend = make_solver(name, policy, [x], worker=worker)
    with pytest.raises(InvalidInput, match=r"no network for the value [13]"):
        backend.ask(Regions(np.array([[0]]), np.array([[3]])))
    even = apply("≠", apply("abs", x.expression - constant(1)), constant(0)) & (x.expression < constant(3))
    answers = backend.ask(Regions(np.array([[0]]), np.array([[3]]), (even,), np.array([0])))
    assert answers.status.tolist() == [[POSSIBLE, IMPOSSIBLE]]


def test_only_wanted_outputs_are_asked_for(worker: Worker) -> None:
    policy, variables = _between_integers()
    regions = Regions(np.array([[-4], [3]]), np.array([[4], [2]]))
    answers = make_solver("z3", policy, variables, worker=worker).ask(regions, np.array([[True, False], [True, True]]))
    # The second region is empty.
    assert answers.status.tolist() == [[POSSIBLE, UNKNOWN], [IMPOSSIBLE, IMPOSSIBLE]]
    assert answers.statistics["solver_calls"] == 1
    assert answers.reasons == {}


# Guards


def test_unknown_back_ends_are_refused_with_the_legal_names() -> None:
    policy, variables = _between_integers()
    with pytest.raises(InvalidInput) as refused:
        make_oracle("cplex", policy, variables)
    assert all(name in str(refused.value) for name in BACKENDS)


@pytest.mark.parametrize(("name", "extra"), [("scip", "scip"), ("gurobi", "gurobi"), ("marabou-z3", "marabou")])
def test_what_is_not_installed_names_its_extra(name: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    policy, variables = _between_integers()
    assert not installed(name)
    with pytest.raises(NotInstalled, match=rf"pip install 'policyproof\[{extra}\]'"):
        make_oracle(name, policy, variables)


def test_all_that_is_unsupported_is_named() -> None:
    x, u = Variable("x", Domain("int", -3, 3)), Variable("u", Domain("real"))
    network = Network((Affine(np.ones((2, 2)), np.zeros(2)), Activation("tanh")), 2, source="a file")
    policy = Policy((network,), (x.expression, u.expression), labels=("a", "b"), filter=True)
    condition = apply("<", x.expression * x.expression, constant(3)) & apply("=", x.expression % 2, constant(1))
    regions = Regions(np.array([[-3, bits(-np.inf)]]), np.array([[3, bits(1.0)]]), (condition,), np.array([0]))
    with MilpBackend(policy, [x, u]) as backend, pytest.raises(UnsupportedFeature) as refused:
        backend.ask(regions, applicability=[apply("<", x.expression * u.expression, constant(0)), condition])
    named = "\n".join(str(feature) for feature in refused.value.features)
    for part in (
        "a file, layer 1: tanh in HiGHS",
        "condition 0: the operator * where it is not linear",
        "condition 0: the operator %",
        "applicability of output 0: the operator *",
        "the variable u: no bounds",
    ):
        assert part in named
    with make_solver("z3", policy, [x, u]) as exact, pytest.raises(UnsupportedFeature, match="tanh in Z3"):
        exact.ask(regions, applicability=[condition, condition])
    with make_solver("z3", policy, [x, u]) as exact, pytest.raises(InvalidInput, match="applicability"):
        exact.ask(regions)


def test_capabilities_name_what_each_back_end_does() -> None:
    policy, variables = _between_integers()
    found = {name: make_solver(name, policy, variables).capabilities for name in SOLVERS if installed(name)}
    assert [name for name, part in found.items() if part.exact] == ["z3", "z3-relaxed"]
    assert {name for name, part in found.items() if part.conditions == "linear"} == set(found) & set(LINEAR_ONLY)
    assert make_oracle("native", policy, variables).capabilities.name


def _hard_question() -> tuple[Policy, list[Variable], Regions]:
    """Far more than a solver does in a second."""
    rng = np.random.default_rng(3)
    variables = [Variable(f"x{number}", Domain("int", -1000, 1000)) for number in range(8)]
    sizes = [8, 48, 48, 48, 4]
    layers: list[Affine | Activation] = []
    for columns, rows in itertools.pairwise(sizes):
        layers += [Affine(rng.normal(size=(rows, columns)), rng.normal(size=rows)), Activation("relu")]
    # The last output is never the greatest, for a reason that no bound sees.
    last = layers[-2]
    assert isinstance(last, Affine)
    weights, bias = last.weights.copy(), last.bias.copy()
    weights[3], bias[3] = 0.5 * (weights[0] + weights[1]), 0.5 * (bias[0] + bias[1]) - 1e-3
    layers[-2:] = [Affine(weights, bias)]
    policy = Policy((Network(tuple(layers), 8),), tuple(item.expression for item in variables), labels=tuple("abcd"))
    return policy, variables, Regions(np.full((1, 8), -1000), np.full((1, 8), 1000))


@pytest.mark.parametrize("name", ["z3", "milp", "marabou"])
def test_the_budget_ends_a_solver_at_work(name: str) -> None:
    _needs(name)
    policy, variables, regions = _hard_question()
    wanted = np.array([[False, False, False, True]])
    with make_solver(name, policy, variables) as backend:
        started = time.monotonic()
        answers = backend.ask(regions, wanted, budget=Budget(1.0))
        # 0.2 seconds are promised; a busy machine may add to that.
        assert time.monotonic() - started < 1.6
        assert answers.status.tolist() == [[UNKNOWN] * 4]
        assert "the time limit of 1 s ran out" in answers.reasons[0]
        # The oracle goes on after that.
        easy = Regions(np.zeros((1, 8), dtype=np.int64), np.zeros((1, 8), dtype=np.int64))
        assert backend.ask(easy).possible.sum() == 1


def test_one_question_has_its_own_limit() -> None:
    policy, variables, regions = _hard_question()
    both = Regions(
        np.concatenate([regions.lower, np.zeros((1, 8), dtype=np.int64)]),
        np.concatenate([regions.upper, np.zeros((1, 8), dtype=np.int64)]),
    )
    wanted = np.array([[False, False, False, True], [True] * 4])
    with make_solver("z3", policy, variables, question_seconds=2.0) as backend:
        answers = backend.ask(both, wanted)
    assert "longer than it was given" in answers.reasons[0]
    assert answers.possible[1].sum() == 1
    assert answers.impossible[1].sum() == 3


def test_a_cancelled_budget_ends_a_solver_at_work() -> None:
    policy, variables, regions = _hard_question()
    budget = Budget()
    threading.Timer(0.7, budget.cancelled.set).start()
    with make_solver("z3", policy, variables) as backend:
        started = time.monotonic()
        answers = backend.ask(regions, np.array([[False, False, False, True]]), budget=budget)
    assert time.monotonic() - started < 1.5
    assert answers.reasons == {0: "interrupted"}


# The child process


def _chatter() -> int:
    print("printed by Python", flush=True)
    os.write(1, b"printed by a library\n")
    return 7


def _die(end: str) -> None:
    os.write(2, b"the last words\n")
    if end == "exit":
        os._exit(3)
    os.abort()


def _raise() -> None:
    raise ZeroDivisionError("in the child")


def _refuse() -> None:
    raise InvalidInput("refused in the child")


def _wait(seconds: float) -> str:
    time.sleep(seconds)
    return "awake"


def _process() -> int:
    return os.getpid()


def test_a_child_prints_nothing_to_us(capfd: pytest.CaptureFixture[str]) -> None:
    with Worker("chatter") as worker:
        assert worker.call(_chatter) == 7
        assert worker.call(_chatter) == 7
        assert worker.started == 1
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pytest.mark.parametrize(("end", "how"), [("exit", "ended with code 3"), ("abort", "was ended by signal 6")])
def test_a_crash_of_the_child_is_a_failure_with_its_output(end: str, how: str) -> None:
    with Worker("the solver") as worker:
        with pytest.raises(BackendFailure) as failure:
            worker.call(_die, end, budget=Budget(30.0))
        assert how in failure.value.output
        assert "the last words" in failure.value.output
        assert worker.call(_chatter) == 7
        assert worker.started == 2


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [(_raise, BackendFailure, "ZeroDivisionError: in the child"), (_refuse, InvalidInput, "refused in the child")],
)
def test_errors_in_the_child_reach_the_caller(function: Callable[[], None], kind: type, message: str) -> None:
    with Worker("the solver") as worker:
        with pytest.raises(kind, match=message):
            worker.call(function)
        worker.call(_chatter)
        assert worker.started == 1


def test_a_late_child_is_killed() -> None:
    with Worker("the solver") as worker:
        first = worker.call(_process)
        with pytest.raises(OutOfTime):
            worker.call(_wait, 60.0, seconds=0.1)
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)
        with pytest.raises(ResourceExhausted, match=r"the time limit of 0.1 s ran out"):
            worker.call(_wait, 60.0, budget=Budget(0.1))
        # An answer that comes too late is never taken for that of the next call.
        assert worker.call(_wait, 0.0, budget=Budget(30.0)) == "awake"


def test_a_closed_worker_leaves_no_process() -> None:
    with Worker("the solver") as worker:
        process = worker.call(_process)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_no_solver_is_loaded_before_it_is_needed() -> None:
    script = (
        "import sys, policyproof, policyproof.api, policyproof.oracle.backends, policyproof.run.child\n"
        "print([name for name in ('z3', 'highspy', 'maraboupy', 'pyscipopt', 'gurobipy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
