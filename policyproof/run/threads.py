"""Threads for machine code: kernels release the interpreter's lock, so plain threads run them side by side.

Small work is done at once, since waking a thread costs more than it saves.  Exactly one layer of the
program runs in parallel, this one; numerical libraries below it should use one thread each.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")

_jobs = 0


def set_jobs(count: int | None) -> None:
    """How many threads may work; None or 0: as many as there are processors."""
    global _jobs  # noqa: PLW0603 - one setting for the whole process
    _jobs = count or 0


def jobs() -> int:
    if _jobs:
        return _jobs
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


@lru_cache(maxsize=4)
def _pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="policyproof")


def over_ranges(task: Callable[[int, int], T], count: int, *, least: int) -> list[T]:
    """`task(first, last)` over a partition of 0..count, at least `least` items each; results in order."""
    parts = max(1, min(jobs(), count // max(1, least)))
    if parts == 1:
        return [task(0, count)]
    cuts = [count * part // parts for part in range(parts + 1)]
    pool = _pool(jobs())
    others = [pool.submit(task, cuts[part], cuts[part + 1]) for part in range(1, parts)]
    return [task(cuts[0], cuts[1]), *[other.result() for other in others]]
