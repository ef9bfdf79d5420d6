"""Budgets: how long, and with how much memory, an engine may work.

An engine asks `budget.check()` between pieces of work that each take well under a
second; the check raises `ResourceExhausted` with the reason, and the engine turns
that into `unknown` together with what it has established so far.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from policyproof.run.errors import ResourceExhausted

DEFAULT_MEMORY_MEGABYTES = 4096


@dataclass
class Budget:
    """Limits in seconds and megabytes, and a flag by which another thread or a signal cancels the work."""

    seconds: float | None = None
    megabytes: int = DEFAULT_MEMORY_MEGABYTES
    cancelled: threading.Event = field(default_factory=threading.Event)
    started: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    @property
    def remaining(self) -> float:
        return float("inf") if self.seconds is None else self.seconds - self.elapsed

    @property
    def memory_bytes(self) -> int:
        return self.megabytes << 20

    def check(self) -> None:
        """Raise `ResourceExhausted` when time is up or the work was cancelled."""
        if self.cancelled.is_set():
            raise ResourceExhausted("interrupted")
        if self.remaining <= 0:
            raise ResourceExhausted(f"the time limit of {self.seconds:g} s ran out")

    def check_memory(self, needed_bytes: int, purpose: str) -> None:
        """Raise `ResourceExhausted` when an allocation would exceed the memory limit."""
        if needed_bytes > self.memory_bytes:
            raise ResourceExhausted(
                f"the memory limit of {self.megabytes} MB ran out ({purpose} would need {needed_bytes >> 20} MB)"
            )
