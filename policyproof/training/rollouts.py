"""How good a policy is, measured by the project's own rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policyproof.engines.simulation import Simulation, Simulator, simulate
from policyproof.engines.start_boxes import StartBoxes
from policyproof.model.expressions import FALSE, variable
from policyproof.model.flat import FlatModel
from policyproof.model.properties import SafetyProperty
from policyproof.policy.interface import as_number
from policyproof.policy.network import Network
from policyproof.policy.policy import Policy
from policyproof.run.budget import Budget
from policyproof.run.errors import ResourceExhausted
from policyproof.training.environments import start_condition


@dataclass(frozen=True)
class Rates:
    """Shares of rollouts: at the goal, unsafe, stuck, and still under way at the last step."""

    success: float
    failure: float
    stuck: float
    unfinished: float
    has_goal: bool = True

    @property
    def score(self) -> float:
        """What the best policy has most of; without a goal, to go on is all that can be asked."""
        return self.success - self.failure - self.stuck + (0.0 if self.has_goal else self.unfinished)


@dataclass(frozen=True)
class Measured:
    """Rollouts, and their rates."""

    simulation: Simulation
    rates: Rates


def policy_of(
    flat: FlatModel,
    reads: Sequence[str],
    network: Network,
    *,
    filter: bool = False,  # noqa: A002 - the word of the papers and of the command line
) -> Policy:
    """The policy that a network is, when it reads these variables and chooses among all labels."""
    kinds = {item.name: item.domain.kind for item in flat.variables}
    inputs = tuple(as_number(variable(name, kinds[name])) for name in reads)
    return Policy((network,), inputs, flat.labels, filter=filter, source="training")


def roll_out(
    flat: FlatModel,
    prop: SafetyProperty,
    policy: Policy,
    *,
    rollouts: int,
    maximal_steps: int,
    seed: int,
    budget: Budget | None = None,
    boxes: StartBoxes | None = None,
) -> Measured:
    """Simulate a policy from the property's start states."""
    simulation: Simulation | None = None
    unsafe, goal = (FALSE if condition is None else condition for condition in (prop.unsafe, prop.goal))
    for event in simulate(
        Simulator(flat, policy), start_condition(flat, prop),
        unsafe=unsafe, goal=goal, rollouts=rollouts, maximal_steps=maximal_steps, seed=seed, budget=budget, boxes=boxes,
    ):  # fmt: skip
        if isinstance(event, Simulation):
            simulation = event
    if simulation is None or simulation.stopped is not None:
        raise ResourceExhausted("the time ran out while the policy was measured")
    count = simulation.rollouts
    shares = (simulation.success, simulation.failure, simulation.stuck, simulation.unfinished)
    success, failure, stuck, unfinished = (share / count for share in shares)
    return Measured(simulation, Rates(success, failure, stuck, unfinished, prop.goal is not None))
