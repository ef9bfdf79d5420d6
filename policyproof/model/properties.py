"""Properties: what is asked of a model and a policy.

`SafetyProperty` is the papers' pair (start φ0, unsafe φu).  Everything else is a `FormulaProperty`:
a state formula of (probabilistic) computation tree logic over the model's variables.

Steps: `AG<=k f` and `A[] f` include the present state (steps 0..k), `AX^k f` speaks of step k
alone, and `AG^k f` is the paper's abbreviation for steps 1..k (NANES, definition 2.5).
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from policyproof.model.expressions import Expression


@dataclass(frozen=True)
class Atom:
    """A condition on the present state."""

    expression: Expression


@dataclass(frozen=True)
class Deadlock:
    """The present state has no successor."""


@dataclass(frozen=True)
class Initial:
    """The present state is an initial state."""


@dataclass(frozen=True)
class Not:
    operand: Formula


@dataclass(frozen=True)
class Junction:
    """The conjunction (∧) or disjunction (∨) of two formulas."""

    operator: Literal["∧", "∨"]
    left: Formula
    right: Formula


@dataclass(frozen=True)
class Bounds:
    """Which steps count: from `lower` to `upper` (None: without end)."""

    lower: int = 0
    upper: int | None = None


@dataclass(frozen=True)
class RewardBound:
    """Bounds on an accumulated reward (JANI's `reward-bounds`); None: no bound on that side."""

    reward: Expression
    accumulate: tuple[str, ...]
    lower: Fraction | None
    upper: Fraction | None
    lower_strict: bool = False
    upper_strict: bool = False


PathOperator = Literal["X", "F", "G", "U", "W", "R"]


@dataclass(frozen=True)
class Path:
    """A path formula: next, finally, globally, until, weak until, release.

    X, F and G have one operand (`left` is None); the bounds of X are the single step it speaks of.
    """

    operator: PathOperator
    right: Formula
    left: Formula | None = None
    bounds: Bounds = Bounds()
    reward_bounds: tuple[RewardBound, ...] = ()


@dataclass(frozen=True)
class Quantified:
    """Every path (A) or some path (E) from here satisfies the path formula."""

    quantifier: Literal["A", "E"]
    path: Path


@dataclass(frozen=True)
class Probability:
    """The greatest (max) or least (min) probability of the paths, asked for or compared with a bound."""

    optimum: Literal["min", "max", ""]
    path: Path
    comparison: Literal["<", "≤", ">", "≥"] | None = None
    bound: Fraction | None = None


@dataclass(frozen=True)
class Expectation:
    """The greatest or least expected reward until a state of `reach` (None: for ever) is reached."""

    optimum: Literal["min", "max"]
    reward: Expression
    reach: Formula | None
    accumulate: tuple[str, ...] = ()
    step_instant: int | None = None


Formula = Atom | Deadlock | Initial | Not | Junction | Quantified | Probability | Expectation


@dataclass(frozen=True)
class SafetyProperty:
    """Can the policy reach an unsafe state from a start state?"""

    name: str
    unsafe: Expression | None
    start: Expression | None = None
    include_initial: bool = True
    """Do the model's own initial states belong to the start set, besides those of `start`?"""
    goal: Expression | None = None
    goal_reward: Expression | None = None
    step_reward: Expression | None = None
    predicates: tuple[Expression, ...] | None = None
    policy_file: pathlib.Path | None = None


@dataclass(frozen=True)
class FormulaProperty:
    """Does the formula hold in every initial state (or, for quantities: what is its value there)?"""

    name: str
    formula: Formula
    aggregate: Literal["min", "max", "∀", "∃", "values"] = "∀"
    """How the values of several initial states are combined (JANI's filter functions)."""


Property = SafetyProperty | FormulaProperty


def subformulas(formula: Formula) -> Iterator[Formula]:
    """The formula and all formulas inside it, outermost first."""
    stack: list[Formula] = [formula]
    while stack:
        current = stack.pop()
        yield current
        if isinstance(current, Not):
            stack.append(current.operand)
        elif isinstance(current, Junction):
            stack.extend([current.right, current.left])
        elif isinstance(current, (Quantified, Probability)):
            stack.extend(part for part in (current.path.right, current.path.left) if part is not None)
        elif isinstance(current, Expectation) and current.reach is not None:
            stack.append(current.reach)
