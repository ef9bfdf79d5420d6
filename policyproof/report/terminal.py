"""What people see in the terminal: live progress, and the summary of an answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from policyproof.api import Answer, Unfinished, describe_property
from policyproof.engines.result import Progress
from policyproof.evidence.trace import Trace, TraceState

STYLES = {"holds": "bold green", "violated": "bold red", "unknown": "bold yellow", "bounded": "bold cyan"}
SHOWN_STEPS = 12
SHOWN_VARIABLES = 8
PIPED_WIDTH = 160
"""Where nobody's window sets a width, names in tables are not cut off."""


def console(*, stderr: bool = False) -> Console:
    """A console that honours NO_COLOR, and is plain and wide when piped."""
    stream = sys.stderr if stderr else sys.stdout
    if stream.isatty() or "COLUMNS" in os.environ:
        return Console(stderr=stderr, highlight=False, soft_wrap=not stream.isatty())
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=PIPED_WIDTH)


class LiveProgress:
    """Shows on stderr what an engine is doing; silent unless that is a terminal."""

    def __init__(self, status: Status | None) -> None:
        self._status = status
        self.latest: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        self.latest = progress
        if self._status is None:
            return
        numbers = "  ".join(
            f"{name.replace('_', ' ')} {format_number(value)}" for name, value in progress.numbers.items()
        )
        self._status.update(f"{progress.activity}  [dim]{numbers}[/dim]")


@contextmanager
def live_progress() -> Iterator[LiveProgress]:
    terminal = console(stderr=True)
    if not terminal.is_terminal:
        yield LiveProgress(None)
        return
    with terminal.status("reading the model") as status:
        yield LiveProgress(status)


def format_number(value: int | float) -> str:
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{int(value):,}"


def show_answer(answer: Answer, *, trace_file: str | None = None, replay_command: str = "") -> None:
    """The verdict in a line, what it belongs to, the numbers, the trace, and how to check it."""
    out = console()
    result = answer.result
    out.print(Text.assemble((result.verdict.upper(), STYLES[result.verdict]), "  ", result.reason))
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("model", Text(answer.model.model.name))
    table.add_row("property", Text(describe_property(answer.question)))
    table.add_row("policy", Text("none (all labels)" if answer.policy is None else Path(answer.policy.source).name))
    if answer.options.get("stop_at_goal"):
        table.add_row("episodes", Text("end in goal states"))
    arithmetic = "exact real arithmetic" if result.arithmetic == "real" else "within the solver's tolerance"
    table.add_row("engine", Text(f"{result.engine}, {arithmetic}, {answer.seconds:.2f} s"))
    for name, value in _chosen(result.statistics).items():
        table.add_row(name, value)
    out.print(table)
    if answer.trace is not None:
        out.print()
        show_trace(answer.trace)
        if trace_file is not None:
            out.print(f"\n  trace written to {trace_file}; check it with", style="dim", markup=False)
            out.print(f"  {replay_command}", style="dim", markup=False)


def show_unfinished(answer: Unfinished) -> None:
    """The verdict in a line, and how far the work had come."""
    out = console()
    out.print(Text.assemble((answer.verdict.upper(), STYLES[answer.verdict]), "  ", answer.reason))
    if answer.progress is not None:
        numbers = ", ".join(f"{name} {format_number(value)}" for name, value in answer.progress.numbers.items())
        out.print(f"  {answer.progress.activity}: {numbers}", markup=False)


def _chosen(statistics: Mapping[str, int | float]) -> dict[str, str]:
    """The numbers that a person wants first; all of them are in the JSON."""
    shown = {}
    for name in ("predicates", "states", "abstract_states", "transitions"):
        if name in statistics:
            shown[name.replace("_", " ")] = format_number(statistics[name])
    for name in ("start_states", "abstract_start_states"):
        if name in statistics:
            parts = [
                f"{format_number(statistics[f'{name}_{kind}'])} {kind}"
                for kind in ("safe", "unsafe", "open")
                if statistics.get(f"{name}_{kind}")
            ]
            total = format_number(statistics[name])
            shown[name.replace("_", " ")] = f"{total} ({', '.join(parts)})" if parts else total
    more = ("unsafe_states", "abstract_unsafe_states", "undecided_transitions", "goal_states", "stuck_states")
    if "checked_length" in statistics:
        shown["checked length"] = format_number(statistics["checked_length"])
    for name in (*more, "deadlock_states", "ties"):
        if statistics.get(name):
            shown[name.replace("_", " ")] = format_number(statistics[name])
    return shown


def show_trace(trace: Trace) -> None:
    """The trace as a table: only what changes, long ones cut in the middle."""
    out = console()
    moving = {name for name in _columns(trace) if len({_value(state, name) for state in trace.states}) > 1}
    # A location that stays where it is is mostly the only one.
    columns = [name for name in _columns(trace) if name in moving or not name.startswith("@")]
    ranked = sorted(columns, key=lambda name: name not in moving)[:SHOWN_VARIABLES]
    shown = [name for name in columns if name in ranked]
    table = Table(box=None, padding=(0, 2, 0, 2), header_style="dim")
    table.add_column("step", justify="right")
    table.add_column("label")
    for name in shown:
        table.add_column(Text(name), justify="right")
    rows = list(range(len(trace.states)))
    if len(rows) > SHOWN_STEPS:
        rows = [*rows[: SHOWN_STEPS // 2], -1, *rows[-SHOWN_STEPS // 2 :]]
    for number in rows:
        if number < 0:
            table.add_row("...")
            continue
        label = "start" if number == 0 else (trace.steps[number - 1].label or "(silent)")
        if number > 0 and not trace.steps[number - 1].edges:
            label = "(stopped)"
        table.add_row(str(number), Text(label), *[Text(_value(trace.states[number], name)) for name in shown])
    out.print(table)
    hidden = len(columns) - len(shown)
    if hidden > 0:
        also = len(moving - set(shown))
        out.print(f"    {hidden} further values are not shown, {also or 'none'} of which change", style="dim")


def _columns(trace: Trace) -> list[str]:
    first = trace.states[0]
    return [*first.variables, *(f"@{name}" for name in first.locations)]


def _value(state: TraceState, name: str) -> str:
    return state.locations[name[1:]] if name.startswith("@") else format_value(state.variables[name])


def format_value(value: object) -> str:
    """A value as properties write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
