"""How often each test of a search was made, and how long that took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Counts:
    """The tests by name."""

    tests: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def test(self, name: str, count: int = 1) -> Iterator[None]:
        """A batch of tests of one kind; the block makes them."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.tests[name] = self.tests.get(name, 0) + int(count)
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def add(self, name: str, count: int) -> None:
        """Something else that is worth counting."""
        self.tests[name] = self.tests.get(name, 0) + int(count)

    def statistics(self) -> dict[str, int | float]:
        """`selection_tests` and the like, each with `selection_seconds` where it was timed."""
        times = {f"{name.removesuffix('_tests')}_seconds": round(value, 6) for name, value in self.seconds.items()}
        return {**self.tests, **times}
