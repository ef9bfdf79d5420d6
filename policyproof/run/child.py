"""A child process for outside solvers: it can be killed, and what it prints reaches nobody's stdout.

Idea: a `Worker` owns one persistent interpreter that is started afresh (never forked, so no thread's
lock comes along).  A call sends a function of some module and its arguments; the child answers with
the result.  The parent waits no longer than the budget allows and then kills the child; the next call
starts another one.

Invariants: the child's standard output is turned to a file before any solver is loaded, and answers
travel on a channel of their own; a child that dies by itself is a `BackendFailure` with what it wrote,
never a timeout and never an answer; a child whose parent is gone ends itself.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, TypeVar

from policyproof.run.budget import Budget
from policyproof.run.errors import BackendFailure, PolicyProofError, ResourceExhausted

T = TypeVar("T")

PATIENCE = 0.02
"""How often a waiting parent looks at its budget, in seconds."""
SHOWN = 4000
"""How much of a crashed child's output is reported, in bytes."""

_START = "import sys; sys.path[:] = sys.argv[1:]; from policyproof.run.child import serve; serve()"


class OutOfTime(ResourceExhausted):
    """One call took longer than it was given; the budget of the whole work may not be used up."""


class Worker:
    """Runs functions in a child process; use it in a `with` block, or `close` it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.started = 0
        """How many processes have been started so far."""
        self._process: subprocess.Popen[bytes] | None = None
        self._tasks: Connection | None = None
        self._answers: Connection | None = None
        self._output: Any = None

    def call(
        self,
        function: Callable[..., T],
        *arguments: object,
        budget: Budget | None = None,
        seconds: float | None = None,
    ) -> T:
        """`function(*arguments)`, computed by the child; the function belongs to a module.

        Raises `ResourceExhausted` when the budget ends, `OutOfTime` when the call takes more than
        `seconds`, and `BackendFailure` when the child dies or the function raises.
        """
        budget = Budget() if budget is None else budget
        try:
            if self._process is None:
                self._start()
                self._receive(budget, None)
            # Starting a process is no part of what the call takes.
            deadline = None if seconds is None else time.monotonic() + seconds
            self._send(pickle.dumps((function, arguments)))
            succeeded, result = self._receive(budget, deadline)
        except BaseException:
            # Whatever happened, an answer that is still on its way must not be taken for the next one.
            self.close()
            raise
        if succeeded:
            return result  # type: ignore[no-any-return]
        if isinstance(result, PolicyProofError):
            raise result
        raise BackendFailure(self.name, str(result))

    def close(self) -> None:
        """End the child."""
        process, self._process = self._process, None
        for channel in (self._tasks, self._answers):
            if channel is not None:
                channel.close()
        self._tasks = self._answers = None
        if process is not None:
            process.kill()
            process.wait()
        if self._output is not None:
            self._output.close()
            self._output = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def _start(self) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
        process = subprocess.Popen(
            [sys.executable, "-c", _START, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            # Ctrl-C is the parent's business; it kills the child when the user wants to stop.
            start_new_session=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        self._process = process
        self.started += 1
        if process.stdin is None or process.stdout is None:
            raise TypeError("a child without pipes")
        with process.stdin as tasks, process.stdout as answers:
            self._tasks = Connection(os.dup(tasks.fileno()), readable=False)
            self._answers = Connection(os.dup(answers.fileno()), writable=False)

    def _send(self, message: bytes) -> None:
        if self._tasks is None:
            raise TypeError("the child has not been started")
        try:
            self._tasks.send_bytes(message)
        except OSError:
            raise self._crash() from None

    def _receive(self, budget: Budget, deadline: float | None) -> Any:
        if self._answers is None:
            raise TypeError("the child has not been started")
        while True:
            budget.check()
            wait = min(PATIENCE, max(budget.remaining, 0.0))
            if deadline is not None:
                wait = min(wait, max(deadline - time.monotonic(), 0.0))
            try:
                if self._answers.poll(wait):
                    return self._answers.recv()
            except (EOFError, OSError):
                raise self._crash() from None
            if deadline is not None and time.monotonic() >= deadline:
                raise OutOfTime(f"{self.name} took longer than it was given for one question")

    def _crash(self) -> BackendFailure:
        process = self._process
        code = None
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(1.0)
        end = "ended" if code is None else f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        self._output.seek(0)
        said = self._output.read()[-SHOWN:].decode("utf-8", errors="replace").strip()
        return BackendFailure(self.name, f"the process {end} without an answer\n{said or '(it printed nothing)'}")


def serve() -> None:
    """What the child does: answer until the parent closes the channel."""
    answers = Connection(os.dup(1), readable=False)
    os.dup2(2, 1)
    tasks = Connection(os.dup(0), writable=False)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a descriptor, not a path
        os.dup2(nothing.fileno(), 0)
    threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()
    answers.send("ready")
    while True:
        try:
            message = tasks.recv_bytes()
        except (EOFError, OSError):
            os._exit(0)
        try:
            function, arguments = pickle.loads(message)
            answer = (True, function(*arguments))
        except PolicyProofError as error:
            answer = (False, error)
        except Exception:
            answer = (False, traceback.format_exc())
        answers.send(answer)


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
