"""What the engine asks of a solver: stages one after the other, and for each length whether there is a path."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from policyproof.encodings.paths import Requirement, Stage
from policyproof.engines.bmc.path import Candidate, Follower
from policyproof.engines.bmc.unrolling import Unrolling
from policyproof.evidence.trace import Trace
from policyproof.run.budget import Budget
from policyproof.run.child import Worker


@dataclass(frozen=True)
class Refuted:
    """There is no such path; `confirmed`: that is more than a floating-point solver's word."""

    confirmed: bool = True


@dataclass(frozen=True)
class Open:
    """The solver could not tell."""

    reason: str


Outcome = Refuted | Trace | Open


class PathSolver(ABC):
    """A solver with the stages so far."""

    name = ""

    def __init__(self, unrolling: Unrolling, follower: Follower, worker: Worker, *, seed: int = 0) -> None:
        self.unrolling = unrolling
        self.follower = follower
        self.worker = worker
        self.seed = seed
        self.calls = 0

    @abstractmethod
    def add(self, stage: Stage) -> None:
        """One more stage."""

    @abstractmethod
    def check(self, target: tuple[Requirement, ...], budget: Budget) -> Outcome:
        """Is there a path through all stages that ends in the target?"""

    def _candidate(self, values: dict[str, object], operators: tuple[int, ...]) -> Candidate:
        """A path from the values of all columns by name."""
        states = [{old: values[new] for old, new in names.items()} for names in self.unrolling.names]
        return Candidate(tuple(states), operators)
