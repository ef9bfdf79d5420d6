"""Time limits and Ctrl-C: the work ends in time, wherever it stands, and says what it has found."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from policyproof.api import verify
from policyproof.cli import run
from policyproof.engines.explicit import search
from policyproof.engines.question import safety_question
from policyproof.model.building import ModelBuilder, between, element
from policyproof.model.source import LoadedModel
from policyproof.run.budget import Budget
from policyproof.run.errors import InvalidInput, ResourceExhausted
from policyproof.run.interrupt import GRACE, stopping
from tests.support.command_line import ENOUGH, PROGRAM, OnTerminal, call, environment, open_for_reader

LATE = 2.0
"""What a machine that is busy with other things may add to the time of a process, in seconds: its start too."""

Json = Any


def counters(count: int = 12, *, free: int = 0) -> LoadedModel:
    """10^count states; the first variables may start anywhere."""
    builder = ModelBuilder("counters")
    for number in range(count):
        counter = builder.integer(f"x{number}", 0, 9, initial=None if number < free else 0)
        builder.edge(f"next{number}", update={counter: (counter + 1) % 10})
    return builder.build(builder.safety("never", unsafe="x0 > 9"))


def hard_start() -> LoadedModel:
    """A start condition that holds nowhere, which no reasoning about ranges shows."""
    builder = ModelBuilder("hard start")
    even = builder.expression(0)
    for number in range(12):
        even = even + 2 * builder.integer(f"x{number}", 0, 60)
    builder.edge("stay")
    return builder.build(builder.safety("odd", unsafe="x0 > 60", start=(even % 302).equals(151)))


def hard_to_flatten() -> LoadedModel:
    """Two automata whose edges are joined in pairs, since both write the same cells."""
    builder = ModelBuilder("joined")
    cells = builder.array("cell", 8, 0, 9, initial=[0] * 8)
    place = builder.integer("place", 0, 7, initial=0)
    for name in ("left", "right"):
        automaton = builder.automaton(name)
        for number in range(300):
            automaton.edge("go", guard=place < number % 8, update={element(cells, place): number % 10})
    builder.synchronise("go", left="go", right="go")
    return builder.build(builder.safety("never", unsafe="place > 7"))


@pytest.fixture(scope="module")
def startup(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Seconds that a process takes for next to nothing, when its machine code has been compiled once."""
    model = tmp_path_factory.mktemp("startup") / "small.jani"
    counters(1).save(model)
    assert call("verify", model, "--property", "A[] x0 < 10", "--no-slicing").returncode == 0
    started = time.monotonic()
    assert call("verify", model, "--property", "A[] x0 < 10", "--no-slicing").returncode == 0
    return time.monotonic() - started


def ends_in_time(model: Path, startup: float, *more: str) -> Json:
    """The answer of a process with a time limit that ends unknown, no more than a second after the limit."""
    # So that even a busy machine gets as far as the engine.
    limit = f"{1 + startup:.1f}"
    started = time.monotonic()
    done = call("verify", model, "--timeout", limit, "--json", *more)
    seconds = time.monotonic() - started
    print(f"{model.stem}: {seconds:.2f} s, the limit is {limit} s")
    assert done.returncode == 3, done.stderr
    assert done.stderr == ""
    assert float(limit) <= seconds < float(limit) + 1 + LATE
    answer = json.loads(done.stdout)
    assert answer["verdict"] == "unknown"
    assert answer["reason"].startswith(f"the time limit of {float(limit):g} s ran out")
    return answer


# The time limit, with real processes


def test_the_search_ends_in_time(tmp_path: Path, startup: float) -> None:
    counters(free=2).save(tmp_path / "counters.jani")
    statistics = ends_in_time(tmp_path / "counters.jani", startup, "--no-slicing")["statistics"]
    assert statistics["states"] > statistics["expanded_states"] > 100
    assert statistics["start_states_open"] == statistics["start_states"] == 100


def test_the_enumeration_of_start_states_ends_in_time(tmp_path: Path, startup: float) -> None:
    hard_start().save(tmp_path / "start.jani")
    answer = ends_in_time(tmp_path / "start.jani", startup, "--initial-state", "exclude")
    assert answer["statistics"]["start_states"] == 0


def test_flattening_ends_in_time(tmp_path: Path, startup: float) -> None:
    hard_to_flatten().save(tmp_path / "joined.jani")
    answer = ends_in_time(tmp_path / "joined.jani", startup)
    assert answer["engine"] == "none"
    assert answer["reason"].endswith("before an engine had begun")


@contextmanager
def reading_a_pipe(folder: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that reads its model from a pipe into which nobody writes."""
    path = folder / "model.jani"
    os.mkfifo(path)
    process = subprocess.Popen(
        [*PROGRAM, "verify", path, *more],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    pipe = open_for_reader(path, process)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        os.close(pipe)


def test_reading_ends_in_time(tmp_path: Path) -> None:
    with reading_a_pipe(tmp_path, "--timeout", "0.5", "--json", "--property", "A[] x < 3") as process:
        started = time.monotonic()
        output, errors = process.communicate(timeout=ENOUGH)
        assert time.monotonic() - started < 0.5 + GRACE + LATE
    assert (process.returncode, errors) == (3, b"")
    answer = json.loads(output)
    assert answer["reason"] == "the time limit of 0.5 s ran out before an engine had begun"
    assert (answer["model"], answer["property"], answer["statistics"]) == ("model.jani", "A[] x < 3", {})


DEAF = """
import sys
from policyproof import api
from policyproof.cli import run
from policyproof.engines.result import Progress

def deaf(model, prop, policy, budget, **options):
    number = 0
    while True:
        number += 1
        yield Progress("asked to stop" if budget.cancelled.is_set() else "not listening", {"rounds": number})

api._explicit = deaf
sys.exit(run(sys.argv[1:]))
"""


def test_an_engine_that_does_not_look_at_the_time_is_stopped(tmp_path: Path) -> None:
    counters(1).save(tmp_path / "small.jani")
    command = [sys.executable, "-c", DEAF, "verify", str(tmp_path / "small.jani"), "--timeout", "0.2", "--json"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=ENOUGH, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    answer = json.loads(done.stdout)
    assert answer["reason"].startswith("the time limit of 0.2 s ran out")
    # What it had said last is all that is known.
    assert answer["statistics"]["rounds"] > 0


# Ctrl-C, with real processes


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_writes_what_was_found(tmp_path: Path, number: signal.Signals) -> None:
    counters(free=1).save(tmp_path / "counters.jani")
    command = [*PROGRAM, "verify", tmp_path / "counters.jani", "--no-slicing", "--json", "--out", tmp_path / "out"]
    with OnTerminal(command) as process:
        process.wait_until_it_shows("exploring")
        process.process.send_signal(number)
        code, output = process.finish()
        assert "Traceback" not in process.shown
    assert code == 130
    answer = json.loads(output)
    assert answer["verdict"] == "unknown"
    assert re.fullmatch(r"interrupted; \d+ states found, \d+ of them expanded, to depth \d+", answer["reason"])
    assert answer["statistics"]["states"] > 0
    assert answer["statistics"]["start_states_open"] == 10
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == answer


def test_ctrl_c_while_the_model_is_read(tmp_path: Path) -> None:
    with reading_a_pipe(tmp_path, "--out", str(tmp_path / "out")) as process:
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=ENOUGH)
    assert (process.returncode, errors) == (130, b"")
    assert output.startswith(b"UNKNOWN  interrupted before an engine had begun")
    answer = json.loads((tmp_path / "out" / "result.json").read_text())
    assert (answer["verdict"], answer["engine"], answer["property"]) == ("unknown", "none", None)


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    counters(1).save(tmp_path / "small.jani")
    command = [sys.executable, "-c", DEAF, "verify", tmp_path / "small.jani", "--out", tmp_path / "out"]
    with OnTerminal(command) as process:
        process.wait_until_it_shows("not listening")
        process.process.send_signal(signal.SIGINT)
        process.wait_until_it_shows("asked to stop")
        assert process.process.poll() is None
        process.process.send_signal(signal.SIGINT)
        code, output = process.finish()
        assert "Traceback" not in process.shown
    assert (code, output) == (130, "")
    assert not (tmp_path / "out" / "result.json").exists()


def test_ctrl_c_during_a_simulation_shows_the_rates_so_far(tmp_path: Path) -> None:
    counters(2).save(tmp_path / "two.jani")
    command = [*PROGRAM, "simulate", tmp_path / "two.jani", "--property", "A[] x0 < 10"]
    with OnTerminal([*command, "--steps", "100000000", "--rollouts", "10", "--json"]) as process:
        process.wait_until_it_shows("rolling out")
        process.process.send_signal(signal.SIGINT)
        code, output = process.finish()
        assert "Traceback" not in process.shown
    assert code == 130
    answer = json.loads(output)
    assert answer["stopped"] == "interrupted"
    assert answer["statistics"]["unfinished_rate"] == 1


# What stops the work, by itself


def test_signals_before_and_after_an_engine_has_begun() -> None:
    before = signal.getsignal(signal.SIGINT)
    budget = Budget()
    with pytest.raises(ResourceExhausted, match="interrupted before an engine had begun"), stopping(budget):
        signal.raise_signal(signal.SIGINT)
    assert budget.cancelled.is_set()
    budget = Budget()
    with pytest.raises(KeyboardInterrupt), stopping(budget) as begun:
        begun()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(ResourceExhausted, match=r"^interrupted$"):
            budget.check()
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_clock_is_stopped_with_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    with pytest.raises(ResourceExhausted, match="the time limit of 0 s ran out"), stopping(Budget(0.0)):
        # Waits for a signal, as long as need be.
        signal.pause()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    with stopping(Budget(1e300)):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 1e6
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_no_handler_on_the_way_keeps_the_work_alive() -> None:
    with pytest.raises(ResourceExhausted), stopping(Budget()):
        try:
            signal.raise_signal(signal.SIGINT)
        except Exception:
            raise AssertionError("swallowed") from None


def test_a_time_limit_is_a_number() -> None:
    with pytest.raises(InvalidInput, match="not nan"):
        verify(counters(1), None, "A[] x0 < 10", timeout=float("nan"))


def test_a_simulation_ends_in_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counters(2).save(tmp_path / "two.jani")
    arguments = ["simulate", str(tmp_path / "two.jani"), "--steps", "100000000", "--rollouts", "10"]
    assert run([*arguments, "--timeout", "0.2", "--json"]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert answer["stopped"] == "the time limit of 0.2 s ran out"
    assert run([*arguments, "--timeout", "0.2"]) == 3
    assert "stopped early: the time limit" in capsys.readouterr().out


# Engines keep to their budget


def test_time_is_left_for_the_verdicts_on_start_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """If every transition took a second afterwards, no more than the limit's would be made."""
    monkeypatch.setattr(search, "REPORT_SECONDS", 1.0)
    answer = verify(counters(6, free=1), None, slicing=False, timeout=1000)
    assert answer.verdict == "unknown"
    assert answer.reason.startswith("the time limit of 1000 s ran out")
    assert answer.result.statistics["start_states_open"] == 10
    # One batch is made whole.
    assert 1000 <= answer.result.statistics["transitions"] < 10_000
    # A single start state needs no such work.
    assert verify(counters(3), None, "A[] x0 < 10", slicing=False, timeout=100).verdict == "holds"


@pytest.mark.parametrize(("unsafe", "expected"), [("x + y > 18", (1, 0, 0)), ("x + y = 3", (0, 1, 0))])
@pytest.mark.parametrize("whole", [True, False])
def test_start_verdicts_are_the_same_for_one_and_for_two(
    unsafe: str, expected: tuple[int, int, int], whole: bool
) -> None:
    """The shortcut for a single start state, against the closure on two copies of everything."""
    for copies in (1, 2):
        builder = ModelBuilder("steps")
        x, y = (builder.integer(name, 0, 99, initial=0) for name in "xy")
        builder.boolean("copy", initial=None if copies == 2 else False)
        builder.edge("x", guard=x < 9, update={x: x + 1})
        builder.edge("y", guard=y < 9, update={y: y + 1})
        model = builder.build(builder.safety("s", unsafe=unsafe))
        work = search.ExplicitSearch(safety_question(model.model, model.property(), None), Budget(), slicing=False)
        steps = work.run(until_unsafe=False)
        for _ in steps if whole else itertools.islice(steps, 6):
            pass
        assert (work.expanded == work.states.count) is whole
        starts = work.start_verdicts(complete=whole)
        assert starts is not None
        # What was not explored to its end may still turn out bad.
        known = expected if whole or expected[1] else (0, 0, 1)
        assert (starts.safe, starts.unsafe, starts.open) == tuple(copies * number for number in known)


def test_states_with_very_many_successors_do_not_fill_the_memory() -> None:
    """The environment chooses among a thousand million values."""
    builder = ModelBuilder("wide")
    x = builder.integer("x", 0, 10**9, initial=0)
    builder.edge("any", update={x: between(0, 10**9)})
    answer = verify(builder.build(builder.safety("never", unsafe=x > 10**9)), None, slicing=False, timeout=60)
    assert answer.verdict == "unknown"
    assert re.search(r"one state has more than \d+ successors; 1 states found", answer.reason)


def test_many_states_with_many_successors_are_expanded_in_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    most = []
    original = search.ExplicitSearch._expand

    def watched(self: search.ExplicitSearch, first: int, last: int) -> int:
        most.append(last - first)
        return original(self, first, last)

    monkeypatch.setattr(search, "SUCCESSORS_AT_ONCE", 4000)
    monkeypatch.setattr(search.ExplicitSearch, "_expand", watched)
    builder = ModelBuilder("wide")
    x = builder.integer("x", 0, 999, initial=0)
    builder.edge("any", update={x: between(0, 999)})
    answer = verify(builder.build(builder.safety("never", unsafe=x > 999)), None, slicing=False)
    assert answer.verdict == "holds"
    assert answer.result.statistics["transitions"] == 10**6
    assert most[0] == 1
    assert max(most) <= search.FIRST_CHUNK * 2
    assert most[-2] <= 4


def test_the_exact_search_looks_at_its_budget_while_it_enumerates_start_states() -> None:
    builder = ModelBuilder("exact")
    x = builder.integer("x", 0, 10**9)
    h = builder.real("h", 0, 1)
    builder.edge("go", update={x: 0, h: h / 2})
    model = builder.build(builder.safety("never", unsafe="x > 5 & h > 1", start="h = 1"))
    started = time.monotonic()
    answer = verify(model, None, timeout=0.5)
    assert time.monotonic() - started < 0.5 + 1 + LATE
    assert answer.verdict == "unknown"
    assert answer.reason.startswith("the time limit of 0.5 s ran out")
    memory = verify(model, None, memory=1)
    assert memory.reason.startswith("the memory limit of 1 MB ran out")


def test_the_exact_search_refuses_endless_products_of_choices() -> None:
    builder = ModelBuilder("exact")
    h = builder.real("h", 0, 1, initial=1)
    wide = [builder.integer(f"x{number}", 0, 1000, initial=0) for number in range(6)]
    builder.edge("go", update={h: h / 2, **{x: between(0, 1000) for x in wide}})
    model = builder.build(builder.safety("never", unsafe=(h > 1) & (sum(wide[1:], wide[0]) > 6000)))
    answer = verify(model, None, timeout=60)
    assert answer.verdict == "unknown"
    assert "the environment chooses among more than" in answer.reason


def test_an_overflow_in_a_condition_leaves_start_states_open() -> None:
    """States that could not be evaluated are counted like all others."""
    builder = ModelBuilder("growing")
    x = builder.integer("x", 1, 10**12)
    builder.edge("grow", update={x: x * 1000})
    condition = (x * x * 1000 % 1000003).equals(999999)
    model = builder.build(builder.safety("never", unsafe=condition, start=x < 4))
    work = search.ExplicitSearch(safety_question(model.model, model.property(), None), Budget(), slicing=False)
    with pytest.raises(ResourceExhausted, match="62 bits"):
        list(work.run(until_unsafe=True))
    # Machine code relies on it that every state has its flags.
    assert len(work.flags) == len(work.parents) == work.states.count
    answer = verify(model, None, slicing=False)
    assert answer.verdict == "unknown"
    assert answer.result.statistics["start_states_open"] == 3
