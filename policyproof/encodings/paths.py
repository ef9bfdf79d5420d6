"""Paths under a policy as the encodings read them: one stage after the other.

A path is s_0 o_1 s_1 o_2 ... s_k.  *Stage 0* says that s_0 is a start state, *stage t* that operator o_t leads
from s_(t-1) to s_t and that the policy allows it.  Each stage selects exactly one of its *options* (a start
condition, an operator), and a requirement is demanded where one of certain options is selected; what several
options demand alike is said once.

Variable v at step t is `v@t`, or has its former name where no option of a stage writes it, so that it stays the
same variable.  Everything here is plain data, so that it can travel to a child process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from policyproof.encodings.question import ActivationBounds, Column
from policyproof.model.expressions import TRUE, Expression
from policyproof.policy.network import Network


@dataclass(frozen=True, eq=False)
class Requirement:
    """A condition that is defined and true where one of the options `when` is selected (None: always)."""

    condition: Expression
    when: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class Choice:
    """A network that decides where its condition holds: options are selected only if it chooses their output."""

    network: Network
    inputs: tuple[Expression, ...]
    options: Mapping[int, tuple[int, ...]]
    """The options of every output that has any."""
    beats: NDArray[np.bool_]
    """beats[output, rival]: known to win against the rival in all states of the step, ties included."""
    condition: Expression = TRUE
    bounds: ActivationBounds | None = None


@dataclass(frozen=True, eq=False)
class Stage:
    """What one more step adds to the question whether there is a path."""

    number: int
    columns: tuple[Column, ...]
    """The variables that are new."""
    options: tuple[int, ...]
    requirements: tuple[Requirement, ...]
    choices: tuple[Choice, ...] = ()
    applicability: Mapping[int, tuple[Expression, ...]] | None = None
    """With filtering, by output: it is applicable where one of these holds."""


@dataclass(frozen=True, eq=False)
class Lemma:
    """A decision that is known: where these variables have these values, the policy chooses this output."""

    values: Mapping[str, int] = field(default_factory=dict)
    """By name, as integers; without the step."""
    output: int = 0
