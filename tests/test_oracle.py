"""The native oracle, its partitions, its memory and its proofs, against looking at every state."""

from __future__ import annotations

import copy
import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from policyproof.evidence.decision_proof import Rejected, check_decision_proof
from policyproof.model.automata import Domain, Variable
from policyproof.model.expressions import Expression, apply, constant
from policyproof.model.tape import bits
from policyproof.oracle import duels
from policyproof.oracle.backends import make_oracle
from policyproof.oracle.cached import CachedOracle
from policyproof.oracle.conditions import Conditions
from policyproof.oracle.native import NativeOracle
from policyproof.oracle.partition import partition
from policyproof.oracle.proof import NotImpossible, prove
from policyproof.oracle.protocol import IMPOSSIBLE, POSSIBLE, UNKNOWN, Answers, Regions
from policyproof.oracle.search import BoxSearch
from policyproof.policy.decisions import Decider
from policyproof.policy.network import Activation, Affine, Network
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget
from policyproof.run.errors import InvalidInput, ResourceExhausted, UnsupportedFeature
from tests.support.brute_force import (
    KINDS,
    Found,
    Question,
    brute_force,
    holds,
    members,
    random_question,
    states_of,
    valuation,
)

FIRST_SEED = int(os.environ.get("POLICYPROOF_SEED", "0"))
ENUMERATED = (1, 1, 3, 48)


def native(question: Question, seed: int = 0, **options: Any) -> NativeOracle:
    options.setdefault("enumerated", ENUMERATED[seed % len(ENUMERATED)])
    return NativeOracle(question.policy, question.variables, seed=seed, **options)


def confirm(question: Question, answers: Answers) -> None:
    """Every witness lies in its region and chooses its output, in exact arithmetic of its own."""
    policy, variables, regions, applicability = question
    for region, output in np.argwhere(answers.possible).tolist():
        state = answers.witness[region, output]
        assert ((regions.lower[region] <= state) & (state <= regions.upper[region])).all() or any(
            item.domain.kind == "real" for item in variables
        )
        values = valuation(state, variables)
        condition = regions.condition_of(region)
        assert condition is None or holds([condition], state[None], variables).all()
        allowed = None
        if applicability is not None:
            allowed = np.flatnonzero(holds(applicability, state[None], variables)[0]).tolist() or None
        assert policy.decide_exactly(values, allowed) == output


def disagreements(question: Question, answers: Answers, found: Found) -> list[tuple[int, int]]:
    """Where an answer contradicts what looking at every state found."""
    settled = answers.status != UNKNOWN
    return [tuple(pair) for pair in np.argwhere(settled & (answers.possible != found.chosen)).tolist()]


# Agreement with the naive twin


def _agree(seeds: range, **options: Any) -> None:
    shares: Counter[str] = Counter()
    for seed in seeds:
        question = random_question(seed)
        found = brute_force(question)
        oracle = native(question, seed, **options)
        answers = oracle.ask(question.regions, applicability=question.applicability)
        assert not disagreements(question, answers, found), f"seed {seed} ({KINDS[seed % len(KINDS)]})"
        confirm(question, answers)
        shares.update({"questions": answers.status.size, "unknown": int((answers.status == UNKNOWN).sum())})
        shares.update({"possible": int(answers.possible.sum()), "impossible": int(answers.impossible.sum())})
        shares["systems"] += 1
        shares["with ties"] += found.ties > 0
        shares["filtered"] += question.policy.filter
        shares["nothing applicable"] += found.nothing_applicable > 0
        shares["with a condition"] += question.regions.condition is not None
        shares["switched"] += question.policy.switch is not None
        shares["needed splitting"] += answers.statistics.get("halved", 0) > 0
        shares["decided exactly"] += oracle.decider.statistics.exact > 0
    parts = [f"{name} {shares[name] / shares['questions']:.0%}" for name in ("possible", "impossible", "unknown")]
    kinds = [
        "with ties", "filtered", "nothing applicable", "with a condition", "switched", "needed splitting",
        "decided exactly",
    ]  # fmt: skip
    parts += [f"{name} {shares[name] / shares['systems']:.0%}" for name in kinds]
    print(f"\n{shares['questions']} questions about seeds {seeds}: {', '.join(parts)}")
    assert min(shares["possible"], shares["impossible"]) >= 0.05 * shares["questions"]
    assert min(shares[name] for name in kinds) >= 0.05 * shares["systems"]
    assert shares["unknown"] <= 0.01 * shares["questions"]


def test_the_native_oracle_agrees_with_looking_at_every_state() -> None:
    _agree(range(FIRST_SEED, FIRST_SEED + 360))


def test_so_it_does_with_optimised_slopes_and_without_samples() -> None:
    _agree(range(FIRST_SEED + 5000, FIRST_SEED + 5180), slope_iterations=5, samples=0)


@pytest.mark.slow
def test_twenty_thousand_questions() -> None:
    # Every system has three regions and about 3.5 outputs.
    _agree(range(FIRST_SEED + 10_000, FIRST_SEED + 12_100))


@pytest.mark.parametrize("splits", [0, 2])
def test_few_splits_leave_unknowns_but_no_mistakes(splits: int) -> None:
    unknown = settled = 0
    for seed in range(120):
        question = random_question(seed)
        oracle = native(question, enumerated=1, samples=1)
        answers = oracle.ask(question.regions, applicability=question.applicability, splits=splits)
        assert not disagreements(question, answers, brute_force(question)), seed
        unknown += int((answers.status == UNKNOWN).sum())
        settled += int((answers.status != UNKNOWN).sum())
        for region in np.flatnonzero((answers.status == UNKNOWN).any(axis=1)).tolist():
            assert f"halving {splits} times" in answers.reasons[region]
    print(f"\n{splits} splits: {unknown} unknown, {settled} settled")
    assert unknown > 0.01 * settled
    assert settled > unknown


# Bugs that are planted are seen


def _tie_to_the_highest(monkeypatch: pytest.MonkeyPatch) -> None:
    original = duels.Duels.__init__

    def wrong(self: duels.Duels, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        self._lower_index = ~self._lower_index

    monkeypatch.setattr(duels.Duels, "__init__", wrong)


def _bounds_too_high(monkeypatch: pytest.MonkeyPatch) -> None:
    original = duels.bound_rows

    def wrong(*arguments: Any, **options: Any) -> Any:
        bounds = original(*arguments, **options)
        bounds.lower[:] += 0.2
        return bounds

    monkeypatch.setattr(duels, "bound_rows", wrong)


def _inapplicable_winners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duels, "certainly_applicable", lambda leaders, applicable: leaders >= 0)


def _narrowing_loses_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Conditions.narrow

    def wrong(self: Conditions, lower: np.ndarray, upper: np.ndarray) -> Any:
        result = original(self, lower, upper)
        upper[:] = np.where(upper > lower, upper - 1, upper)
        return result

    monkeypatch.setattr(Conditions, "narrow", wrong)


def _conditions_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Conditions, "at", lambda self, states: np.ones((len(states), self.count), dtype=np.bool_))


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (_tie_to_the_highest, "duplicated outputs"),
        (_bounds_too_high, "plain"),
        (_inapplicable_winners, "filtering"),
        (_narrowing_loses_the_end, "linear condition"),
        (_conditions_ignored, "any condition"),
    ],
)
def test_a_planted_bug_is_seen(
    plant: Callable[[pytest.MonkeyPatch], None], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    # Without samples, which would find what the bug denies before it can do harm.
    for seed in range(KINDS.index(kind), 200 * len(KINDS), len(KINDS)):
        question = random_question(seed)
        oracle = native(question, enumerated=1, samples=0)
        answers = oracle.ask(question.regions, applicability=question.applicability)
        if disagreements(question, answers, brute_force(question)):
            print(f"\nseen at seed {seed}")
            return
    pytest.fail("no question showed the bug")


# Real variables


def _random_policy(seed: int, inputs: int, labels: int, hidden: int = 12) -> tuple[Policy, tuple[Variable, ...]]:
    rng = np.random.default_rng(seed)
    variables = tuple(Variable(f"x{i}", Domain("real", Fraction(-3), Fraction(3))) for i in range(inputs))
    sizes = [inputs, hidden, hidden, labels]
    layers: list[Any] = []
    for columns, rows in itertools.pairwise(sizes):
        layers += [Affine(rng.normal(size=(rows, columns)), rng.normal(size=rows)), Activation("relu")]
    network = Network(tuple(layers[:-1]), inputs)
    names = tuple(f"label{i}" for i in range(labels))
    return Policy((network,), tuple(item.expression for item in variables), names), variables


def real_regions(seed: int, variables: tuple[Variable, ...], count: int, width: float) -> Regions:
    rng = np.random.default_rng(seed)
    centre = rng.uniform(-2, 2, (count, len(variables)))
    lower, upper = centre - width * rng.random(centre.shape), centre + width * rng.random(centre.shape)
    return Regions(lower.view(np.int64), upper.view(np.int64))


@pytest.mark.parametrize("seed", range(6))
def test_no_sample_of_a_real_region_contradicts_an_answer(seed: int) -> None:
    policy, variables = _random_policy(seed, 3, 4)
    regions = real_regions(seed, variables, 8, 0.5)
    sphere = apply("≤", variables[0].expression + variables[1].expression, constant(1))
    if seed % 2:
        regions = Regions(regions.lower, regions.upper, (sphere,), np.zeros(8, dtype=np.int64))
    answers = NativeOracle(policy, variables, resolution=1e-3).ask(regions, budget=Budget(20))
    confirm(Question(policy, variables, regions, None), answers)
    decider = Decider(policy, variables, {item.name: item.domain.range for item in variables})
    rng = np.random.default_rng(seed + 100)
    hit = np.zeros((8, 4), dtype=np.int64)
    for region in range(8):
        low, high = regions.lower[region].view(np.float64), regions.upper[region].view(np.float64)
        states = np.ascontiguousarray(rng.uniform(low, high, (3000, 3))).view(np.int64)
        if seed % 2:
            states = states[states.view(np.float64)[:, :2].sum(axis=1) <= 1 - 1e-9]
        chosen = np.bincount(decider.decide(states), minlength=4) if len(states) else np.zeros(4, dtype=np.int64)
        hit[region] = chosen
    assert not (answers.impossible & (hit > 0)).any()
    # And it is not vague: what is frequent is found, and little is left open.
    assert answers.possible[hit > 30].all()
    assert (answers.status == UNKNOWN).mean() < 0.05


def test_a_decision_boundary_at_the_resolution_is_unknown_with_the_reason() -> None:
    x = Variable("x", Domain("real", Fraction(0), Fraction(1)))
    network = Network((Affine(np.array([[0.0], [-1.0], [1.0]]), np.array([0.0, 0.0, 0.0])),), 1)
    shifted = (x.expression - Fraction(1, 3)) * (x.expression - Fraction(1, 3))
    policy = Policy((network,), (shifted,), ("stay", "left", "right"))
    with pytest.raises(InvalidInput, match="plain variables, or computed from"):
        NativeOracle(policy, [x])
    steep = Network(
        (
            Affine(np.array([[1.0]]), np.array([-0.5])),
            Activation("relu"),
            Affine(np.array([[-1.0], [1.0]]), np.zeros(2)),
        ),
        1,
    )
    policy = Policy((steep,), (x.expression,), ("low", "high"))
    # For x <= 1/2 both outputs are exactly 0: the lowest index wins, and `high` is chosen from there on only.
    regions = Regions(
        np.array([[bits(0.0)], [bits(0.25)], [bits(0.5)]]), np.array([[bits(0.5)], [bits(0.3)], [bits(0.75)]])
    )
    answers = NativeOracle(policy, [x]).ask(regions)
    assert answers.status[0].tolist() == [POSSIBLE, UNKNOWN]
    assert "resolution of 1e-06" in answers.reasons[0]
    assert answers.status[1].tolist() == [POSSIBLE, IMPOSSIBLE]
    assert answers.status[2].tolist() == [POSSIBLE, POSSIBLE]


# Partitions


def test_partitions_lose_nothing_and_decide_everything() -> None:
    for seed in range(150):
        question = random_question(seed)
        policy, variables, regions, applicability = question
        parts = partition(BoxSearch(policy, variables), regions, applicability=applicability)
        assert parts.decided.all(), parts.reason
        decider = Decider(policy, variables, {item.name: item.domain.range for item in variables})
        for region in range(len(regions)):
            states = members(regions, region, variables)
            if not len(states):
                continue
            applicable = None if applicability is None else holds(applicability, states, variables)
            chosen = decider.decide(states, applicable)
            covered = np.zeros(len(states), dtype=np.int64)
            for part in np.flatnonzero(parts.region == region):
                inside = ((states >= parts.lower[part]) & (states <= parts.upper[part])).all(axis=1)
                covered += inside
                assert (chosen[inside] == parts.output[part]).all(), seed
            assert (covered == 1).all(), seed


def test_volumes_of_a_partition_over_reals_add_up() -> None:
    policy, variables = _random_policy(3, 2, 5)
    regions = real_regions(3, variables, 4, 1.5)
    parts = partition(BoxSearch(policy, variables, resolution=1e-3), regions, largest=3000)
    low, high = parts.lower.view(np.float64), parts.upper.view(np.float64)
    volumes = (high - low).prod(axis=1)
    whole = (regions.upper.view(np.float64) - regions.lower.view(np.float64)).prod(axis=1)
    for region in range(4):
        assert volumes[parts.region == region].sum() == pytest.approx(whole[region], rel=1e-12)
    decided = volumes[parts.decided].sum() / whole.sum()
    assert parts.undecided_share(BoxSearch(policy, variables).space) == pytest.approx(1 - decided, abs=1e-9)
    print(f"\n{len(parts)} parts, {decided:.1%} of the volume decided, {parts.reason}")
    assert decided > 0.95
    assert parts.possible[~parts.decided].sum(axis=1).min() > 1


def test_a_partition_stops_at_its_limit_with_a_remainder() -> None:
    policy, variables = _random_policy(4, 3, 5)
    regions = real_regions(4, variables, 1, 2.0)
    parts = partition(BoxSearch(policy, variables), regions, largest=50)
    assert "more than 50 boxes" in parts.reason
    assert not parts.decided.all()
    volumes = (parts.upper.view(np.float64) - parts.lower.view(np.float64)).prod(axis=1)
    whole = (regions.upper.view(np.float64) - regions.lower.view(np.float64)).prod()
    assert volumes.sum() == pytest.approx(whole, rel=1e-12)


# Budgets and guards


def _hard_question() -> tuple[NativeOracle, Regions]:
    policy, variables = _random_policy(5, 8, 6, hidden=40)
    ends = np.full((40, 8), 3.0)
    return NativeOracle(policy, variables), Regions((-ends).view(np.int64), ends.view(np.int64))


def test_the_oracle_stops_in_time_and_says_why() -> None:
    oracle, regions = _hard_question()
    oracle.ask(Regions(regions.lower[:1], regions.upper[:1]), budget=Budget(0.1))
    for seconds in (0.0, 0.3):
        started = time.monotonic()
        answers = oracle.ask(regions, budget=Budget(seconds))
        late = time.monotonic() - started - seconds
        print(f"\n{late:.3f} s after the limit")
        # The aim is 0.2 s on a machine that does nothing else.
        assert late < 1.0
        assert (answers.status == UNKNOWN).any()
        assert "time limit" in answers.reasons[int(np.argwhere(answers.status == UNKNOWN)[0, 0])]


def test_a_finisher_settles_what_halving_does_not() -> None:
    policy, variables = _random_policy(7, 24, 3, hidden=6)
    regions = real_regions(7, variables, 4, 1.0)
    alone = NativeOracle(policy, variables).ask(regions, budget=Budget(1.5))
    assert (alone.status == UNKNOWN).any()
    with make_oracle("milp", policy, variables) as milp:
        answers = NativeOracle(policy, variables, finisher=milp, finish_after=20).ask(regions, budget=Budget(60))
    assert answers.statistics["finished"] > 0
    assert (answers.status != UNKNOWN).all()
    confirm(Question(policy, variables, regions, None), answers)
    settled = alone.status != UNKNOWN
    assert (answers.status[settled] == alone.status[settled]).all()
    decider = Decider(policy, variables, {item.name: item.domain.range for item in variables})
    rng = np.random.default_rng(1)
    for region in range(4):
        low, high = regions.lower[region].view(np.float64), regions.upper[region].view(np.float64)
        chosen = decider.decide(np.ascontiguousarray(rng.uniform(low, high, (5000, 24))).view(np.int64))
        assert answers.possible[region, np.unique(chosen)].all()


def test_integers_are_finished_too() -> None:
    finished = 0
    for seed in range(0, 18 * 6):
        question = random_question(seed)
        if KINDS[seed % len(KINDS)] not in ("plain", "ties", "near ties", "leaky", "linear condition"):
            continue
        with make_oracle("z3", question.policy, question.variables) as exact:
            oracle = native(question, enumerated=1, samples=0, finisher=exact, finish_after=1)
            answers = oracle.ask(question.regions, applicability=question.applicability)
        assert not disagreements(question, answers, brute_force(question)), seed
        assert answers.arithmetic == "real"
        finished += int(answers.statistics.get("finished", 0))
    assert finished > 3


def test_cancelled_work_is_unknown() -> None:
    oracle, regions = _hard_question()
    budget = Budget()
    budget.cancelled.set()
    answers = oracle.ask(regions, budget=budget)
    assert (answers.status == UNKNOWN).all()
    assert answers.reasons[0] == "interrupted"


def test_an_empty_region_allows_nothing() -> None:
    policy, variables = _random_policy(1, 2, 3)
    low, high = np.array([[1.0, 0.0]]), np.array([[0.5, 1.0]])
    answers = NativeOracle(policy, variables).ask(Regions(low.view(np.int64), high.view(np.int64)))
    assert (answers.status == IMPOSSIBLE).all()


def test_questions_that_make_no_sense_are_refused() -> None:
    question = random_question(KINDS.index("filtering"))
    oracle = native(question)
    with pytest.raises(InvalidInput, match="exactly when the policy filters"):
        oracle.ask(question.regions)
    narrow = Regions(question.regions.lower[:, :-1], question.regions.upper[:, :-1])
    with pytest.raises(InvalidInput, match="columns"):
        oracle.ask(narrow, applicability=question.applicability)


def test_regions_by_name_are_rounded_outward() -> None:
    x, n = Variable("x", Domain("real", Fraction(0), Fraction(1, 3))), Variable("n", Domain("int"))
    regions = Regions.of([x, n], [{"x": (0.1, Fraction(1, 5))}, {"n": (2, 3)}])  # type: ignore[dict-item]
    low, high = regions.lower[:, 0].view(np.float64), regions.upper[:, 0].view(np.float64)
    assert Fraction(low[0]) == Fraction(0.1)
    assert Fraction(high[0]) >= Fraction(1, 5)
    assert low[1] == 0
    assert Fraction(high[1]) >= Fraction(1, 3)
    assert regions.lower[1, 1] == 2
    assert regions.upper[1, 1] == 3
    assert regions.lower[0, 1] == -(2**62)
    with pytest.raises(InvalidInput, match="no variable y"):
        Regions.of([x, n], [{"y": (0, 1)}])


def test_only_what_is_wanted_is_worked_on() -> None:
    question = random_question(0)
    wanted = np.zeros((len(question.regions), len(question.policy.labels)), dtype=np.bool_)
    answers = native(question).ask(question.regions, wanted)
    assert (answers.status == UNKNOWN).all()
    assert answers.reasons == {}


# Memory


class Counting:
    """Counts what gets through to the oracle behind a memory."""

    def __init__(self, behind: NativeOracle) -> None:
        self.behind = behind
        self.policy, self.variables, self.capabilities = behind.policy, behind.variables, behind.capabilities
        self.asked = 0

    def ask(self, regions: Regions, outputs: np.ndarray, **options: Any) -> Answers:
        self.asked += int(outputs.sum())
        return self.behind.ask(regions, outputs, **options)


def _halves(question: Question, rng: np.random.Generator) -> Regions:
    """Random parts of the regions of a question."""
    regions = question.regions
    share = rng.random(regions.lower.shape)
    cut = regions.lower + ((regions.upper - regions.lower) * share).astype(np.int64)
    up = rng.random(regions.lower.shape) < 0.5
    real = np.array([item.domain.kind == "real" for item in question.variables])
    lower = np.where(up & ~real, cut, regions.lower)
    upper = np.where(~up & ~real, cut, regions.upper)
    return Regions(lower, upper, regions.conditions, regions.condition)


def test_memory_answers_what_follows_and_nothing_else() -> None:
    saved = asked = 0
    for seed in range(150):
        question = random_question(seed)
        rng = np.random.default_rng(seed)
        behind = Counting(native(question, seed))
        oracle = CachedOracle(behind)  # type: ignore[arg-type]
        for number in range(3):
            part = question if number == 0 else question._replace(regions=_halves(question, rng))
            answers = oracle.ask(part.regions, applicability=part.applicability)
            assert not disagreements(part, answers, brute_force(part)), (seed, number)
            assert (answers.status != UNKNOWN).all()
            confirm(part, answers)
            asked += answers.status.size
            saved += answers.statistics["remembered_impossible"] + answers.statistics["remembered_possible"]
    print(f"\n{saved} of {asked} answers from memory")
    assert saved > 0.3 * asked


def test_memory_does_not_confuse_conditions() -> None:
    question = random_question(KINDS.index("empty condition"))
    regions = question.regions
    oracle = CachedOracle(native(question))
    # Under an empty condition everything is impossible; without it, it is not.
    never = Regions(regions.lower, regions.upper, (apply("<", constant(1), constant(0)),), np.zeros(len(regions), int))
    assert oracle.ask(never, applicability=question.applicability).impossible.all()
    free = question._replace(regions=Regions(regions.lower, regions.upper))
    answers = oracle.ask(free.regions, applicability=question.applicability)
    assert not disagreements(free, answers, brute_force(free))
    assert answers.possible.any()


# Proofs


def _proofs(seeds: range) -> tuple[list[tuple[Question, int, dict[str, Any]]], Counter[str]]:
    proofs, kinds = [], Counter[str]()
    for seed in seeds:
        question = random_question(seed)
        found = brute_force(question)
        search = BoxSearch(question.policy, question.variables)
        output = seed % len(question.policy.labels)
        for region in range(len(question.regions)):
            make = [search, question.regions, region, output]
            options = {"applicability": question.applicability, "enumerated": (1, 4, 16)[seed % 3]}
            if found.chosen[region, output]:
                with pytest.raises(NotImpossible):
                    prove(*make, **options)  # type: ignore[arg-type]
                kinds["possible"] += 1
                continue
            # A proof is a text: what is checked is what was written.
            proof = json.loads(json.dumps(prove(*make, **options)))  # type: ignore[arg-type]
            kinds.update(node[0] for node in proof["nodes"])
            proofs.append((question, region, proof))
    return proofs, kinds


def _check(question: Question, region: int, proof: dict[str, Any]) -> int:
    return check_decision_proof(
        question.policy, question.variables, proof,
        condition=question.regions.condition_of(region), applicability=question.applicability,
    )  # fmt: skip


def test_every_impossibility_has_a_proof_that_the_checker_accepts() -> None:
    proofs, kinds = _proofs(range(150))
    nodes = sum(_check(*item) for item in proofs)
    print(f"\n{len(proofs)} proofs, {nodes} nodes: {dict(kinds)}")
    assert min(kinds[name] for name in ("split", "outside", "beaten", "states", "possible")) > 30


def _changes(proof: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The proof with one thing changed, in every way that must be noticed."""
    changed = []
    for number, node in enumerate(proof["nodes"]):

        def variant(name: str, content: Any, number: int = number) -> None:
            other = copy.deepcopy(proof)
            other["nodes"][number] = content
            changed.append((name, other))

        if node[0] == "split":
            variant("a split outside the box", ["split", node[1], str(Fraction(proof["upper"][node[1]]) + 1)])
            without = copy.deepcopy(proof)
            del without["nodes"][number]
            changed.append(("a missing node", without))
        variant("an unknown kind", ["trust me"])
    more = copy.deepcopy(proof)
    more["nodes"].append(["outside"])
    changed.append(("a node too many", more))
    return changed


def test_a_proof_that_was_changed_is_rejected() -> None:
    proofs, _ = _proofs(range(120))
    names: Counter[str] = Counter()
    for question, region, proof in proofs:
        for name, changed in _changes(proof):
            with pytest.raises(Rejected):
                _check(question, region, changed)
            names[name] += 1
    print(f"\n{dict(names)}")
    assert min(names.values()) >= 10


def test_no_proof_of_something_possible_is_accepted() -> None:
    """For what is possible, whatever stands in the leaves: one leaf of each kind is rejected."""
    rejected = 0
    for seed in range(120):
        question = random_question(seed)
        found = brute_force(question)
        for region, output in np.argwhere(found.chosen).tolist():
            search = BoxSearch(question.policy, question.variables)
            space = search.space
            ends = [
                [str(value) if isinstance(value, Fraction) else int(value) for value in space.valuation(end).values()]
                for end in (question.regions.lower[region], question.regions.upper[region])
            ]
            names = [item.name for item in question.variables]
            others = [number for number in range(len(question.policy.labels)) if number != output]
            hidden = question.policy.networks[0].layers
            size = [len(layer.bias) for layer in hidden if isinstance(layer, Affine)]
            slopes = [[[0.0] * width, [1.0] * width] for width in size]
            leaves: list[list[Any]] = [["outside"], ["states"]]
            leaves += [["beaten", {"by": number, "applicable": number}, slopes] for number in others]
            leaves += [["beaten", {"never": True, "plain": number}, slopes] for number in others]
            for leaf in leaves:
                proof = {
                    "schema": "policyproof-decision-proof-1", "output": output, "variables": names,
                    "lower": ends[0], "upper": ends[1], "nodes": [leaf],
                }  # fmt: skip
                with pytest.raises(Rejected):
                    _check(question, region, proof)
                rejected += 1
    assert rejected > 500


def test_proofs_need_lines_and_room() -> None:
    policy, variables = _random_policy(2, 2, 3)
    smooth = Network((policy.networks[0].layers[0], Activation("tanh"), *policy.networks[0].layers[2:]), 2)
    other = Policy((smooth,), policy.inputs, policy.labels)
    regions = real_regions(2, variables, 1, 0.1)
    with pytest.raises(UnsupportedFeature, match="tanh"):
        prove(BoxSearch(other, variables), regions, 0, 0)
    answers = NativeOracle(policy, variables).ask(regions)
    impossible = int(np.flatnonzero(answers.impossible[0])[0])
    proof = prove(BoxSearch(policy, variables), regions, 0, impossible)
    assert check_decision_proof(policy, variables, proof) == len(proof["nodes"])
    with pytest.raises(ResourceExhausted):
        prove(BoxSearch(policy, variables), regions, 0, impossible, budget=Budget(0))


def test_conditions_narrow_without_losing_a_state() -> None:
    for seed in range(200):
        question = random_question(seed)
        search = BoxSearch(question.policy, question.variables)
        for region in range(len(question.regions)):
            condition: Expression | None = question.regions.condition_of(region)
            if condition is None:
                continue
            states = states_of(question.regions, region, question.variables)
            inside = (
                holds([condition], states, question.variables)[:, 0] if len(states) else np.zeros(0, dtype=np.bool_)
            )
            compiled = Conditions([condition], search.space, search.box)
            assert (compiled.at(states)[:, 0] == inside).all()
            lower, upper = question.regions.lower[region][None].copy(), question.regions.upper[region][None].copy()
            status, _ = compiled.narrow(lower, upper)
            kept = ((lower <= states) & (states <= upper)).all(axis=1)
            assert not (inside & ~kept).any()
            assert status[0] != 1 or inside[kept].all()
            assert status[0] != 0 or not inside.any()
