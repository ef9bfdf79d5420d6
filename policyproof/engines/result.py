"""What an engine answers: the verdict, the reason, the evidence, the numbers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, TypeVar

from policyproof.evidence.trace import Trace

T = TypeVar("T")
Verdict = Literal["holds", "violated", "unknown", "bounded"]
Arithmetic = Literal["real", "solver-tolerance"]


@dataclass(frozen=True)
class Progress:
    """What an engine is doing, in its own words, and the numbers that go with it."""

    activity: str
    numbers: Mapping[str, int | float] = field(default_factory=dict)


@dataclass(frozen=True)
class StartVerdicts:
    """The start states by what is known of each; states are name -> value."""

    safe: int
    unsafe: int
    open: int
    unsafe_examples: tuple[Mapping[str, Any], ...] = ()
    open_examples: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Result:
    """The answer of one engine to one question."""

    verdict: Verdict
    reason: str
    engine: str
    statistics: Mapping[str, int | float]
    arithmetic: Arithmetic = "real"
    trace: Trace | None = None
    starts: StartVerdicts | None = None
    value: tuple[Fraction | float | None, Fraction | float | None] | None = None
    log: tuple[Mapping[str, Any], ...] = ()


Run = Generator[Progress, None, Result]
"""An engine at work: it yields progress, stops when its budget says so, and returns a result."""


def drive(run: Generator[Progress, None, T], on_progress: Callable[[Progress], object] | None = None) -> T:
    """Run an engine, or anything else that yields progress, to its end."""
    while True:
        try:
            progress = next(run)
        except StopIteration as end:
            result: T = end.value
            return result
        if on_progress is not None:
            on_progress(progress)
