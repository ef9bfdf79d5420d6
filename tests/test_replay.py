"""Replay accepts what happens and rejects every damaged trace."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from policyproof.api import verify
from policyproof.evidence.replay import replay
from policyproof.evidence.trace import Trace, TraceState, TraceStep, read_trace, trace_from_json
from policyproof.model.building import ModelBuilder
from policyproof.model.json_text import Document
from policyproof.policy.network import Affine, Network
from policyproof.policy.policy import Policy
from policyproof.run.errors import InvalidInput
from tests.support.random_models import random_system


def _systems_with_traces(count: int):
    seed, found = 0, 0
    while found < count:
        system = random_system(seed)
        seed += 1
        answer = verify(system.model, system.policy, system.question)
        if answer.trace is not None and len(answer.trace.steps) >= 1:
            found += 1
            yield system, answer.trace


def _mutations(rng: random.Random, system, trace: Trace):
    """(what was done, the damaged trace); each changes what the trace says."""
    model = system.model.model
    last = len(trace.steps) - 1

    def with_state(number: int, state: TraceState) -> Trace:
        return dataclasses.replace(trace, states=(*trace.states[:number], state, *trace.states[number + 1 :]))

    def with_step(number: int, step: TraceStep) -> Trace:
        return dataclasses.replace(trace, steps=(*trace.steps[:number], step, *trace.steps[number + 1 :]))

    # A value in the middle or at the end is shifted, within its domain.
    for item in model.variables:
        if item.transient:
            continue
        number = rng.randint(1, len(trace.states) - 1)
        state = trace.states[number]
        old = state.variables[item.name]
        new = (not old) if isinstance(old, bool) else old + 1 if old + 1 in item.domain else old - 1
        if new in item.domain:
            yield (
                "shift a value",
                with_state(number, dataclasses.replace(state, variables={**state.variables, item.name: new})),
            )
    # A value is forgotten, or one too many is given, or it leaves its domain.
    state = trace.states[0]
    name = next(iter(state.variables))
    fewer = {key: value for key, value in state.variables.items() if key != name}
    yield "drop a variable", with_state(0, dataclasses.replace(state, variables=fewer))
    yield "add a variable", with_state(0, dataclasses.replace(state, variables={**state.variables, "other": 1}))
    yield "leave a domain", with_state(0, dataclasses.replace(state, variables={**state.variables, name: 10**9}))
    # The automata are somewhere else.
    for automaton in model.automata:
        if len(automaton.locations) > 1:
            number = rng.randrange(1, len(trace.states))
            state = trace.states[number]
            other = next(loc.name for loc in automaton.locations if loc.name != state.locations[automaton.name])
            yield (
                "move an automaton",
                with_state(number, dataclasses.replace(state, locations={**state.locations, automaton.name: other})),
            )
    # The step claims another label or other edges.
    step = trace.steps[last]
    for label in (*model.labels, None):
        if label != step.label:
            yield "swap the label", with_step(last, dataclasses.replace(step, label=label))
    if step.edges:
        automaton, edge, destination = step.edges[0]
        yield (
            "another edge",
            with_step(last, dataclasses.replace(step, edges=((automaton, edge + 1, destination), *step.edges[1:]))),
        )
        yield (
            "no such destination",
            with_step(last, dataclasses.replace(step, edges=((automaton, edge, 9), *step.edges[1:]))),
        )
        yield (
            "no such automaton",
            with_step(last, dataclasses.replace(step, edges=(("nobody", edge, destination), *step.edges[1:]))),
        )
        yield "pretend to be stopped", with_step(last, TraceStep(None, ()))
        if len(step.edges) > 1:
            yield "drop an edge", with_step(last, dataclasses.replace(step, edges=step.edges[1:]))
    # The trace ends early, or a step is left out.
    yield "cut the end", dataclasses.replace(trace, states=trace.states[:-1], steps=trace.steps[:-1])
    if len(trace.steps) > 1:
        yield (
            "leave out a step",
            dataclasses.replace(trace, states=(trace.states[0], *trace.states[2:]), steps=trace.steps[1:]),
        )


def _really_different(system, damaged: Trace, trace: Trace) -> bool:
    """Some damage makes another true trace (two labels may share their edges): the naive semantics decides."""
    from tests.support.naive_trace import happens

    return damaged != trace and not happens(system, damaged)


def test_every_damaged_trace_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(1)
    done: Counter[str] = Counter()
    for system, trace in _systems_with_traces(60):
        assert replay(system.model.model, trace, system.question, system.policy).accepted
        for what, damaged in _mutations(rng, system, trace):
            outcome = replay(system.model.model, damaged, system.question, system.policy)
            if outcome.accepted:
                assert not _really_different(system, damaged, trace), (system.seed, what)
                done["still true"] += 1
            else:
                assert outcome.reason
                done[what] += 1
    with capsys.disabled():
        total = sum(done.values())
        print(
            f"\n{total - done['still true']} of {total} damaged traces rejected, {done['still true']} were true anyway"
        )
    assert len(done) >= 13
    assert done["still true"] < 0.1 * sum(done.values())


def test_a_trace_of_another_policy_is_rejected() -> None:
    builder = ModelBuilder("line")
    x = builder.integer("x", -3, 3, initial=0)
    builder.edge("left", update={x: x - 1})
    builder.edge("right", update={x: x + 1})
    model = builder.build(builder.safety("end", unsafe=x.equals(3)))

    def always(bias) -> Policy:
        return Policy((Network((Affine(np.zeros((2, 1)), np.array(bias)),), 1),), (x,), ("left", "right"))

    answer = verify(model, always([0.0, 1.0]), "end")
    assert replay(model.model, answer.trace, answer.question, answer.policy).accepted
    outcome = replay(model.model, answer.trace, answer.question, always([1.0, 0.0]))
    assert not outcome.accepted
    assert "the policy chooses 'left' here, not 'right'" in outcome.reason
    # Nor is it one of another property.
    other = builder.safety("start", unsafe=x.equals(-3))
    assert "not unsafe" in replay(model.model, answer.trace, other, answer.policy).reason
    elsewhere = builder.safety("end", unsafe=x.equals(3), start=x.equals(1))
    assert "start condition" in replay(model.model, answer.trace, elsewhere, answer.policy).reason


def test_ties_and_deployed_arithmetic_are_reported() -> None:
    builder = ModelBuilder("tie")
    x = builder.integer("x", 0, 9, initial=0)
    builder.edge("go", guard=x < 9, update={x: x + 1})
    builder.edge("stay", update={x: x})
    model = builder.build(builder.safety("two", unsafe=x.equals(2)))
    # At 0 both outputs are 1: a tie.  At 1 they differ by 2^-40, which float32 cannot see.
    weights = np.array([[0.0], [-(2.0**-40)]])
    network = Network((Affine(weights, np.array([1.0, 1.0])),), 1, "float32")
    policy = Policy((network,), (x,), ("go", "stay"))
    answer = verify(model, policy, "two")
    assert answer.verdict == "violated"
    outcome = replay(model.model, answer.trace, answer.question, policy)
    assert outcome.accepted
    assert outcome.ties == (0,)
    assert outcome.disagreements == ()
    # The other way round float32 ties, takes the first, and is wrong.
    reverse = Policy((network,), (x,), ("stay", "go"))
    moved = Network((Affine(-weights, np.array([1.0, 1.0])),), 1, "float32")
    reverse = Policy((moved,), (x,), ("stay", "go"))
    trace = dataclasses.replace(answer.trace, states=answer.trace.states[1:], steps=answer.trace.steps[1:])
    outcome = replay(model.model, trace, None, reverse)
    assert outcome.accepted
    assert outcome.disagreements == ("state 0: exactly 'go', deployed arithmetic 'stay'",)


def test_stopped_states_may_stutter_and_only_they() -> None:
    builder = ModelBuilder("stop")
    x = builder.integer("x", 0, 2, initial=0)
    builder.edge("go", guard=x < 2, update={x: x + 1})
    model = builder.build()
    answer = verify(model, None, "AX^5 x < 2")
    assert answer.verdict == "violated"
    assert [step.label for step in answer.trace.steps] == ["go", "go", None, None, None]
    assert replay(model.model, answer.trace, answer.question).accepted
    first = TraceState({"environment": "ready"}, {"x": 0})
    lazy = Trace((first, first), (TraceStep(None, ()),), "path")
    assert "is possible" in replay(model.model, lazy).reason


def test_traces_are_written_and_read_back(tmp_path) -> None:
    builder = ModelBuilder("thirds")
    x = builder.real("x", 0, 1, initial=0)
    builder.edge("go", update={x: x + Fraction(1, 3)})
    model = builder.build(builder.safety("end", unsafe=x.equals(Fraction(2, 3))))
    answer = verify(model, None, "end")
    answer.trace.write(tmp_path / "trace.json")
    back = read_trace(tmp_path / "trace.json")
    assert back.states == answer.trace.states
    assert back.steps == answer.trace.steps
    assert back.states[1].variables["x"] == Fraction(1, 3)
    assert back.context["model"]["sha256"] == model.fingerprint()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "expected an object"),
        ({}, "not a trace"),
        ({"schema": "policyproof-trace-1"}, "expected an array 'states'"),
        ({"schema": "policyproof-trace-1", "states": [], "steps": [], "kind": "unsafe"}, "0 states do not fit 0 steps"),
        ({"schema": "policyproof-trace-1", "states": [1], "steps": [], "kind": "unsafe"}, "expected a state"),
        (
            {"schema": "policyproof-trace-1", "states": [{"locations": {}, "variables": {"x": "1/0"}}], "steps": []},
            "expected a number",
        ),
        (
            {"schema": "policyproof-trace-1", "states": [{"locations": {"a": 1}, "variables": {}}], "steps": []},
            "expected names of locations",
        ),
        (
            {
                "schema": "policyproof-trace-1",
                "states": [{"locations": {}, "variables": {}}] * 2,
                "steps": [{"label": "a", "edges": [{"automaton": "p", "edge": True, "destination": 0}]}],
            },
            "the places of an edge",
        ),
    ],
)
def test_malformed_traces_are_invalid_input(document, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        trace_from_json(Document(document, "trace"))
