"""Stopping from outside: by Ctrl-C, and by the clock where the work does not look at it.

An engine at work stops by itself when its budget says so, and reports what it found.  Some work
cannot: reading and flattening a model have nothing to report yet, and the compiler of the machine
code, when that is first used, knows of no budget.  Therefore

- the first signal ends the preparation at once, and asks an engine that has begun to stop and report;
  the second one ends that as well;
- what still runs `GRACE` seconds after the time limit is ended where it stands.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from policyproof.run.budget import Budget
from policyproof.run.errors import Interrupted, ResourceExhausted

GRACE = 0.5
"""How long an engine may take to report when its time is over, in seconds."""

AGAIN = 0.1
LONGEST = 1e8


class Stopped(BaseException):
    """Ends the work from a signal's handler; no `except Exception` on the way keeps it."""


def _stop(reason: str) -> NoReturn:
    # What is torn from its work, a compiler for example, may complain while it is cleaned up.
    sys.unraisablehook = lambda _: None
    raise Stopped(reason)


@contextmanager
def stopping(budget: Budget) -> Iterator[Callable[[], None]]:
    """While inside, SIGINT, SIGTERM and the clock stop the work; gives what to call when an engine has begun.

    Work that was ended where it stood raises `ResourceExhausted` with the reason.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    inside, engine_has_begun = True, False

    def begun() -> None:
        nonlocal engine_has_begun
        engine_has_begun = True

    def on_signal(number: int, frame: FrameType | None) -> None:
        if budget.cancelled.is_set():
            raise KeyboardInterrupt
        budget.cancelled.set()
        if inside and not engine_has_begun:
            _stop(budget.interrupted)

    def on_clock(number: int, frame: FrameType | None) -> None:
        if inside:
            _stop(budget.out_of_time)

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    clock = budget.seconds is not None and hasattr(signal, "setitimer")
    try:
        try:
            if clock:
                previous[signal.SIGALRM] = signal.signal(signal.SIGALRM, on_clock)
                # Again and again, in case the exception is raised where Python only prints it (in a destructor).
                signal.setitimer(signal.ITIMER_REAL, min(max(budget.remaining, 0) + GRACE, LONGEST), AGAIN)
            yield begun
        finally:
            inside = False
    except Stopped as stopped:
        kind = Interrupted if budget.cancelled.is_set() else ResourceExhausted
        raise kind(str(stopped) + ("" if engine_has_begun else " before an engine had begun")) from None
    finally:
        if clock:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in previous.items():
            signal.signal(number, handler)
