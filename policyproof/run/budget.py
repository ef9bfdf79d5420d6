"""Budgets: how long, and with how much memory, an engine may work.

An engine asks `budget.check()` between pieces of work that each take well under a
second; the check raises `ResourceExhausted` with the reason, and the engine turns
that into `unknown` together with what it has established so far.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field

from policyproof.run.errors import InvalidInput, ResourceExhausted

DEFAULT_MEMORY_MEGABYTES = 4096


@dataclass
class Budget:
    """Limits in seconds and megabytes, and a flag by which another thread or a signal cancels the work."""

    seconds: float | None = None
    megabytes: int = DEFAULT_MEMORY_MEGABYTES
    cancelled: threading.Event = field(default_factory=threading.Event)
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if self.seconds is not None and math.isnan(self.seconds):
            raise InvalidInput("a time limit is a number of seconds, not nan")

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    @property
    def remaining(self) -> float:
        return float("inf") if self.seconds is None else self.seconds - self.elapsed

    @property
    def memory_bytes(self) -> int:
        return self.megabytes << 20

    @property
    def interrupted(self) -> str:
        """The reason of an answer that was cancelled."""
        return "interrupted"

    @property
    def out_of_time(self) -> str:
        """The reason of an answer that took too long."""
        return f"the time limit of {self.seconds:g} s ran out"

    def check(self, *, reserve: float = 0.0) -> None:
        """Raise `ResourceExhausted` when the work was cancelled, or when no more time than `reserve` is left."""
        if self.cancelled.is_set():
            raise ResourceExhausted(self.interrupted)
        if self.remaining <= reserve:
            raise ResourceExhausted(self.out_of_time)

    def check_memory(self, needed_bytes: int, purpose: str) -> None:
        """Raise `ResourceExhausted` when an allocation would exceed the memory limit."""
        if needed_bytes > self.memory_bytes:
            raise ResourceExhausted(
                f"the memory limit of {self.megabytes} MB ran out ({purpose} would need {needed_bytes >> 20} MB)"
            )
