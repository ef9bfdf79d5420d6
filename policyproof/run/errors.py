"""The three kinds of error a user can meet, and the exit codes of the command line.

Invariant: everything that is wrong with what the user gave is `InvalidInput` or
`UnsupportedFeature`; everything that is wrong with an outside program is
`BackendFailure`.  Any other exception is a bug in PolicyProof.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """What the command line returns; `check` and `replay` use only the first two and the last ones."""

    HOLDS = 0
    VIOLATED = 1
    INVALID_INPUT = 2
    UNKNOWN = 3
    FAILURE = 4
    INTERRUPTED = 130


class PolicyProofError(Exception):
    """Base of all errors that are reported to the user without a traceback."""

    exit_code = ExitCode.FAILURE


class InvalidInput(PolicyProofError):
    """The model, policy, property or option is wrong: says where, what was found, what is allowed."""

    exit_code = ExitCode.INVALID_INPUT

    def __init__(self, message: str, *, where: str | None = None) -> None:
        self.message = message
        self.where = where
        super().__init__(message if where is None else f"{where}: {message}")

    def located(self, where: str) -> InvalidInput:
        """The same error with a place, unless it already has one."""
        return self if self.where is not None else InvalidInput(self.message, where=where)


@dataclass(frozen=True, order=True)
class Feature:
    """One thing that PolicyProof does not support, and the place where it is used."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class UnsupportedFeature(PolicyProofError):
    """The input is legal but uses features that are not supported: all of them, not only the first."""

    exit_code = ExitCode.INVALID_INPUT

    def __init__(self, features: Iterable[Feature]) -> None:
        self.features = tuple(sorted(set(features)))
        lines = "\n".join(f"  {feature}" for feature in self.features)
        count = len(self.features)
        super().__init__(f"{count} unsupported feature{'s' if count != 1 else ''}:\n{lines}")


class BackendFailure(PolicyProofError):
    """An outside program or library failed: what was run, and what it said."""

    def __init__(self, command: str, output: str) -> None:
        self.command = command
        self.output = output
        super().__init__(f"{command} failed:\n{output}")


class ResourceExhausted(PolicyProofError):
    """A budget ran out; engines turn it into the verdict `unknown` with this reason."""

    exit_code = ExitCode.UNKNOWN

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Interrupted(ResourceExhausted):
    """The work was ended from outside before it could report."""

    exit_code = ExitCode.INTERRUPTED
