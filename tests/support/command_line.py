"""The command line as real processes: started, watched on a pseudo-terminal, and stopped by signals."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

ENOUGH = 60.0
"""Seconds after which a process that should long have ended or spoken is taken for hanging."""

PROGRAM = (sys.executable, "-m", "policyproof")


def environment() -> dict[str, str]:
    """Without what a developer's shell may say of terminals."""
    hidden = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_INTERACTIVE", "TTY_COMPATIBLE")
    return {**{name: value for name, value in os.environ.items() if name not in hidden}, "TERM": "xterm"}


def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """`policyproof ARGUMENTS`, to its end."""
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.run(
        command,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=ENOUGH,
        stdin=subprocess.DEVNULL,
        check=False,
    )


class OnTerminal:
    """A process whose stderr is a terminal; its stdout is a pipe."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        self._terminal, other = pty.openpty()
        self.process = subprocess.Popen(
            list(map(str, command)), env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=other
        )
        os.close(other)
        self.shown = ""

    def __enter__(self) -> OnTerminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()
        os.close(self._terminal)

    def wait_until_it_shows(self, *words: str) -> None:
        """Read the terminal until all the words have stood there (in this order)."""
        end, found = time.monotonic() + ENOUGH, 0
        for word in words:
            while word not in self.shown[found:]:
                if time.monotonic() > end or not self._read():
                    raise AssertionError(f"never shown: {word!r}; but: {self.shown[-2000:]!r}")
            found = self.shown.index(word, found) + len(word)

    def finish(self) -> tuple[int, str]:
        """Exit code and standard output, when the process has ended by itself."""
        end = time.monotonic() + ENOUGH
        while self.process.poll() is None and time.monotonic() < end:
            # A terminal that nobody reads would hold the process up.
            self._read(0.02)
        output, _ = self.process.communicate(timeout=1)
        while self._read(0):
            pass
        return self.process.returncode, output.decode()

    def _read(self, patience: float = 1.0) -> bool:
        if not select.select([self._terminal], [], [], patience)[0]:
            return self.process.poll() is None
        try:
            piece = os.read(self._terminal, 1 << 16)
        except OSError:
            # Linux says so when the other end is closed.
            return False
        self.shown += piece.decode(errors="replace")
        return bool(piece)


def open_for_reader(path: Path, process: subprocess.Popen[bytes]) -> int:
    """Open a named pipe for writing as soon as the process reads from it."""
    end = time.monotonic() + ENOUGH
    while time.monotonic() < end and process.poll() is None:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.01)
    raise AssertionError("the process never read the file")
