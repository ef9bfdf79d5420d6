"""The explicit engine on models made for one purpose each."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from policyproof.api import verify
from policyproof.engines.explicit.search import ExplicitSearch
from policyproof.engines.question import safety_question
from policyproof.engines.result import drive
from policyproof.evidence.replay import replay
from policyproof.model.building import ModelBuilder, between, element, outcome
from policyproof.model.flat import flatten
from policyproof.model.layout import make_layout
from policyproof.model.slicing import cone_of_influence
from policyproof.policy.network import Affine, Network
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget
from policyproof.run.errors import InvalidInput


def _constant_policy(model, label: str, labels: list[str], *, filtered: bool = False) -> Policy:
    """A policy that always likes one label best."""
    names = model.model.variables
    bias = np.array([1.0 if name == label else 0.0 for name in labels])
    network = Network((Affine(np.zeros((len(labels), len(names))), bias),), len(names))
    return Policy((network,), tuple(item.expression for item in names), tuple(labels), filter=filtered)


def _grid(width: int = 4):
    builder = ModelBuilder("grid")
    x, y = builder.integer("x", 0, width, initial=0), builder.integer("y", 0, width, initial=0)
    builder.edge("right", update={x: x + 1})
    builder.edge("up", update={y: y + 1})
    return builder, x, y


def test_an_update_that_leaves_a_domain_makes_the_operator_inapplicable() -> None:
    """No guard says x < 4: the domain does."""
    builder, x, y = _grid()
    model = builder.build(builder.safety("never out", unsafe=x > 4))
    answer = verify(model, None, "never out", slicing=False)
    assert answer.verdict == "holds"
    assert answer.result.statistics["states"] == 25
    assert answer.result.statistics["deadlock_states"] == 1
    assert y.kind == "int"


def test_a_variable_whose_update_can_leave_its_domain_is_never_sliced_away() -> None:
    """`fuel` is read by nobody, but when it is empty the step is impossible."""
    builder = ModelBuilder("fuel")
    x, fuel = builder.integer("x", 0, 9, initial=0), builder.integer("fuel", 0, 3, initial=3)
    builder.edge("go", update={x: x + 1, fuel: fuel - 1})
    model = builder.build(builder.safety("far", unsafe=x.equals(4)))
    flat = flatten(model.model)
    assert "fuel" in cone_of_influence(flat, {"x"})
    assert verify(model, None, "far").verdict == "holds"
    # The same without the limit on fuel: now the variable may be forgotten, and the answer changes.
    builder = ModelBuilder("no limit")
    x, fuel = builder.integer("x", 0, 9, initial=0), builder.integer("fuel", 0, 3, initial=3)
    builder.edge("go", update={x: x + 1, fuel: (fuel + 1) % 4})
    model = builder.build(builder.safety("far", unsafe=x.equals(4)))
    assert "fuel" not in cone_of_influence(flatten(model.model), {"x"})
    answer = verify(model, None, "far")
    assert answer.verdict == "violated"
    assert answer.result.statistics["sliced_variables"] == 2  # fuel, and the idle location
    assert replay(model.model, answer.trace, answer.question).accepted


def test_an_inapplicable_choice_stops_the_policy_unless_choices_are_filtered() -> None:
    builder, x, y = _grid(3)
    model = builder.build(builder.safety("corner", unsafe=x.equals(3) & y.equals(1)))
    labels = ["right", "up"]
    stopped = verify(model, _constant_policy(model, "right", labels), "corner")
    assert stopped.verdict == "holds"
    assert stopped.result.statistics["stuck_states"] == 1
    filtered = verify(model, _constant_policy(model, "right", labels, filtered=True), "corner")
    assert filtered.verdict == "violated"
    assert len(filtered.trace.steps) == 4
    assert replay(model.model, filtered.trace, filtered.question, filtered.policy).accepted
    # What happens under the filter does not happen without it.
    assert not replay(model.model, filtered.trace, filtered.question, stopped.policy).accepted


def test_labels_that_no_output_names_belong_to_the_environment() -> None:
    builder, x, y = _grid(2)
    model = builder.build(builder.safety("up", unsafe=y.equals(2)))
    # The policy knows only `right`; `up` may happen at any time.
    answer = verify(model, _constant_policy(model, "right", ["right"]), "up")
    assert answer.verdict == "violated"
    assert x.kind == "int"
    controlled = verify(model, _constant_policy(model, "right", ["right", "up"]), "up")
    assert controlled.verdict == "holds"


def test_silent_steps_are_always_possible() -> None:
    builder = ModelBuilder("silent")
    x, y = builder.integer("x", 0, 3, initial=0), builder.integer("y", 0, 3, initial=0)
    builder.edge("right", update={x: x + 1})
    builder.edge(None, guard=y < 2, update={y: y + 1})
    model = builder.build(builder.safety("drift", unsafe=y.equals(2) & x.equals(0)))
    answer = verify(model, _constant_policy(model, "right", ["right"]), "drift")
    assert answer.verdict == "violated"
    assert [step.label for step in answer.trace.steps] == [None, None]


def test_the_environment_chooses_within_bounds() -> None:
    builder = ModelBuilder("wind")
    x = builder.integer("x", -5, 5, initial=0)
    builder.edge("go", guard=x < 3, update={x: between(x - 1, x + 2)})
    model = builder.build(builder.safety("right", unsafe=x.equals(4)), builder.safety("far", unsafe=x > 4))
    answer = verify(model, None, "right", slicing=False)
    assert answer.verdict == "violated"
    assert len(answer.trace.steps) == 2
    assert replay(model.model, answer.trace, answer.question).accepted
    assert verify(model, None, "far").verdict == "holds"


def test_an_array_write_outside_the_array_is_inapplicable() -> None:
    builder = ModelBuilder("array")
    i = builder.integer("i", -1, 3, initial=-1)
    cells = builder.array("cell", 2, 0, 5, initial=[0, 0])
    builder.edge("write", update={element(cells, i): element(cells, i) + 1})
    builder.edge("move", guard=i < 3, update={i: i + 1})
    model = builder.build(
        builder.safety("both", unsafe=cells[0].equals(1) & cells[1].equals(1)),
        builder.safety("six", unsafe=cells[0] > 5),
    )
    both = verify(model, None, "both", slicing=False)
    assert both.verdict == "violated"
    assert len(both.trace.steps) == 4
    assert replay(model.model, both.trace, both.question).accepted
    assert verify(model, None, "six").verdict == "holds"


def test_an_unsafe_condition_without_a_value_is_an_error_not_a_verdict() -> None:
    builder, x, y = _grid()
    model = builder.build(builder.safety("ratio", unsafe=(y / x) > 2))
    with pytest.raises(InvalidInput, match="has no value in the reachable state"):
        verify(model, None, "ratio")
    # Guarded by a conjunction it always has one.
    model = builder.build(builder.safety("ratio", unsafe=(x > 0) & ((y / x) > 3)))
    assert verify(model, None, "ratio").verdict == "violated"


def test_an_empty_start_set_is_an_error_not_a_proof() -> None:
    builder, x, _ = _grid()
    model = builder.build(builder.safety("none", unsafe=x > 3, start=x > 9))
    with pytest.raises(InvalidInput, match="holds in no state"):
        verify(model, None, "none")


def test_a_verdict_for_every_start_state() -> None:
    builder = ModelBuilder("drops")
    x = builder.integer("x", 0, 9)
    builder.edge("down", guard=(x > 5) | (x < 4) & (x > 0), update={x: x - 1})
    model = builder.build(builder.safety("zero", unsafe=x.equals(0), start=x >= 2))
    answer = verify(model, None, "zero", all_starts=True)
    starts = answer.result.starts
    assert answer.verdict == "violated"
    # From 5..9 the counter stops at 5; from 4 at 4; from 2 and 3 it reaches zero.
    assert (starts.safe, starts.unsafe, starts.open) == (6, 2, 0)
    assert sorted(example["x"] for example in starts.unsafe_examples) == [2, 3]


def test_what_is_proved_is_told_when_the_budget_ends() -> None:
    """Starts whose whole future was seen are safe; the others stay open; nothing is called violated."""
    builder = ModelBuilder("two worlds")
    kind = builder.boolean("large")
    digits = [builder.integer(f"d{i}", 0, 30, initial=0) for i in range(6)]
    for digit in digits:
        builder.edge("step", guard=kind, update={digit: digit + 1})
    model = builder.build(builder.safety("end", unsafe=digits[0].equals(30) & digits[1].equals(30)))
    answer = verify(model, None, "end", timeout=0.4)
    assert answer.verdict == "unknown"
    assert "time limit" in answer.reason
    assert (answer.result.starts.safe, answer.result.starts.unsafe, answer.result.starts.open) == (1, 0, 1)
    assert answer.result.starts.open_examples[0]["large"] is True


def test_the_memory_limit_ends_in_unknown() -> None:
    builder = ModelBuilder("large")
    digits = [builder.integer(f"d{i}", 0, 40, initial=0) for i in range(6)]
    for digit in digits:
        builder.edge("step", update={digit: digit + 1})
    model = builder.build(builder.safety("end", unsafe=digits[0].equals(40) & digits[1].equals(40)))
    answer = verify(model, None, "end", memory=4)
    assert answer.verdict == "unknown"
    assert "memory limit of 4 MB" in answer.reason
    assert answer.result.statistics["states"] > 1000


def test_bounded_questions_stop_at_their_bound() -> None:
    builder, x, _ = _grid(9)
    model = builder.build()
    held = verify(model, None, "AG<=3 x < 4")
    assert held.verdict == "holds"
    assert held.result.statistics["depth"] == 3
    assert verify(model, None, "AG<=4 x < 4").verdict == "violated"
    assert x.kind == "int"


def test_goal_states_can_end_an_episode() -> None:
    builder, x, y = _grid(3)
    model = builder.build(builder.safety("past", unsafe=x.equals(3), goal=x.equals(2)))
    assert verify(model, None, "past").verdict == "violated"
    stopped = verify(model, None, "past", stop_at_goal=True)
    assert stopped.verdict == "holds"
    assert stopped.result.statistics["goal_states"] == 4
    assert y.kind == "int"


def test_the_initial_state_may_be_excluded() -> None:
    builder, x, y = _grid(3)
    prop = builder.safety("left", unsafe=x.equals(0) & y.equals(3), start=x >= 1, include_initial=True)
    model = builder.build(prop)
    included = verify(model, None, "left")
    assert included.verdict == "violated"
    assert verify(model, None, "left", include_initial=False).verdict == "holds"
    assert included.to_json()["options"]["initial_state"] == "include"


def test_integers_without_bounds_stay_exact_or_end_in_unknown() -> None:
    builder = ModelBuilder("unbounded")
    x = builder.integer("x", initial=1)
    builder.edge("square", guard=x < 10**17, update={x: x * 7})
    model = builder.build(builder.safety("big", unsafe=x.equals(7**20)))
    answer = verify(model, None, "big")
    assert answer.verdict == "violated"
    assert len(answer.trace.steps) == 20
    builder = ModelBuilder("overflow")
    x = builder.integer("x", initial=3)
    builder.edge("square", update={x: x * x})
    model = builder.build(builder.safety("odd", unsafe=(x % 2).equals(0)))
    answer = verify(model, None, "odd")
    assert answer.verdict == "unknown"
    assert "62 bits" in answer.reason


def test_packing_keeps_every_value() -> None:
    builder = ModelBuilder("layout")
    builder.boolean("flag")
    builder.integer("wide", -(2**40), 2**40)
    builder.integer("single", 7, 7)
    builder.integer("free")
    builder.real("real")
    builder.integer("small", -3, 4)
    variables = builder.model().variables
    layout = make_layout(variables)
    rng = np.random.default_rng(1)
    columns = []
    for item in variables:
        low, high = item.domain.range
        low, high = (max(low, -(2**62)), min(high, 2**62)) if item.domain.kind != "real" else (-(2**62), 2**62)
        columns.append(rng.integers(int(low), int(high), size=500, endpoint=True))
    states = np.stack(columns, axis=1)
    assert (layout.unpack(layout.pack(states)) == states).all()
    assert layout.words == 3  # the unbounded integer, the real, and one word for the rest
    # Different states have different words.
    assert len(np.unique(layout.pack(states), axis=0)) == len(np.unique(states, axis=0))


def test_large_products_of_edges_are_joined_lazily() -> None:
    """Thirty automata with three edges each: 3^30 operators, of which one is enabled at a time."""
    builder = ModelBuilder("many")
    total = builder.integer("total", 0, 3, initial=0)
    names = {}
    for number in range(30):
        name = f"part{number}"
        part = builder.automaton(name, locations=["a", "b", "c"])
        for source, target in (("a", "b"), ("b", "c"), ("c", "a")):
            part.edge("tick", source=source, to=target, update={total: (total + 1) % 3} if number == 0 else {})
        names[name] = "tick"
    builder.synchronise("tick", **names)
    model = builder.build(builder.safety("three", unsafe=total.equals(3)))
    flat = flatten(model.model)
    assert len(flat.operators) == 3**30
    assert flat.operators[3**30 - 1].label == "tick"
    answer = verify(model, None, "three", slicing=False)
    assert answer.verdict == "holds"
    assert answer.result.statistics["states"] == 3


def test_the_first_unsafe_state_ends_a_shortest_path() -> None:
    builder, x, y = _grid(6)
    builder.edge("jump", guard=x.equals(1) & y.equals(1), update={x: 5, y: 5})
    model = builder.build(builder.safety("far", unsafe=(x + y).equals(10)))
    search = ExplicitSearch(safety_question(model.model, model.property("far"), None), Budget())
    for _ in search.run(until_unsafe=True):
        pass
    path = search.path_to(search.first_unsafe)
    assert len(path) - 1 == 3
    assert search.parents.view[path[0]] == -1


def test_real_variables_are_explored_exactly() -> None:
    builder = ModelBuilder("tank")
    level = builder.real("level", 0, 1, initial=0)
    builder.edge("fill", update={level: level + Fraction(1, 3)})
    builder.edge("drip", guard=level > 0, update={level: level - Fraction(1, 3)})
    model = builder.build(
        builder.safety("full", unsafe=level >= 1),
        builder.safety("rounded", unsafe=(level > Fraction(2, 3)) & (level < 1)),
    )
    full = verify(model, None, "full", all_starts=True)
    assert full.verdict == "violated"
    assert len(full.trace.steps) == 3
    assert full.result.statistics["states"] == 4
    assert replay(model.model, full.trace, full.question).accepted
    # In floating point 1/3 + 1/3 + 1/3 could miss 1; here it cannot.
    assert verify(model, None, "rounded").verdict == "holds"


def test_infinitely_many_real_states_end_in_unknown() -> None:
    builder = ModelBuilder("zeno")
    x = builder.real("x", 0, 1, initial=1)
    builder.edge("halve", update={x: x / 2})
    model = builder.build(builder.safety("zero", unsafe=x.equals(0)))
    answer = verify(model, None, "zero", timeout=0.5)
    assert answer.verdict == "unknown"
    free = ModelBuilder("free")
    y = free.real("y", 0, 1)
    free.edge("stay", update={y: y})
    answer = verify(free.build(free.safety("edge", unsafe=y > 2)), None, "edge")
    assert answer.verdict == "unknown"
    assert "nothing fixes the real variable 'y'" in answer.reason


def test_a_real_variable_that_does_not_matter_does_not_slow_the_search() -> None:
    builder = ModelBuilder("cost")
    x = builder.integer("x", 0, 3, initial=0)
    cost = builder.real("cost", initial=0)
    builder.edge("go", update={x: x + 1, cost: cost + 0.1})
    model = builder.build(builder.safety("end", unsafe=x.equals(3)))
    answer = verify(model, None, "end")
    assert answer.verdict == "violated"
    assert answer.result.statistics["sliced_variables"] == 2
    assert answer.trace.states[-1].variables["cost"] == Fraction(3, 10)
    assert replay(model.model, answer.trace, answer.question).accepted


def test_irrational_guards_are_decided_exactly() -> None:
    builder = ModelBuilder("trigonometry")
    x = builder.integer("x", 0, 20, initial=0)
    builder.edge("go", guard="sin(x) < 0.9", update={x: x + 1})
    model = builder.build(builder.safety("far", unsafe=x.equals(3)), builder.safety("two", unsafe=x.equals(2)))
    # sin(2) is about 0.909.
    assert verify(model, None, "far").verdict == "holds"
    answer = verify(model, None, "two")
    assert answer.verdict == "violated"
    assert replay(model.model, answer.trace, answer.question).accepted


def test_progress_speaks_and_counts() -> None:
    builder, x, _ = _grid(30)
    model = builder.build(builder.safety("never", unsafe=x > 30))
    seen = []
    verify(model, None, "never", on_progress=seen.append)
    assert any("exploring" in item.activity for item in seen)
    assert max(item.numbers["states"] for item in seen) == 31 * 31 or seen[-1].numbers["states"] > 0


def test_engines_are_generators_that_can_be_left() -> None:
    from policyproof.engines.explicit.search import explore

    builder, x, _ = _grid(9)
    model = builder.build(builder.safety("never", unsafe=x > 9))
    question = safety_question(model.model, model.property("never"), None)
    run = explore(question, Budget())
    next(run)
    run.close()
    assert drive(explore(question, Budget())).verdict == "holds"


def test_probability_zero_destinations_do_not_exist() -> None:
    builder = ModelBuilder("zero")
    x = builder.integer("x", 0, 9, initial=0)
    share = (x * Fraction(1, 10)).equals(Fraction(0))
    builder.edge(
        "go",
        outcomes=[
            outcome({x: 9}, probability="0.1 * x"),
            outcome({x: x + 1}, probability="1 - 0.1 * x"),
        ],
    )
    model = builder.build(builder.safety("jump", unsafe="x = 9"))
    answer = verify(model, None, "jump")
    assert answer.verdict == "violated"
    # Not from 0, where the jump has probability zero: first a step to 1.
    assert len(answer.trace.steps) == 2
    assert share.kind == "bool"
