"""Ctrl-C: the first one asks the engine to stop and report, the second one stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from policyproof.run.budget import Budget


@contextmanager
def cancel_on_interrupt(budget: Budget) -> Iterator[None]:
    """While inside, SIGINT and SIGTERM cancel the budget; a second signal interrupts as usual."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def cancel(number: int, frame: FrameType | None) -> None:
        if budget.cancelled.is_set():
            raise KeyboardInterrupt
        budget.cancelled.set()

    previous = {number: signal.signal(number, cancel) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
