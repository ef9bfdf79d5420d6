"""A safety question in the form that engines share: where it starts, what is unsafe, who decides."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

from policyproof.model.automata import Model
from policyproof.model.definedness import definedness
from policyproof.model.expressions import Expression, negation, variables_of
from policyproof.model.flat import FlatModel, flatten
from policyproof.model.properties import Atom, Formula, FormulaProperty, Property, Quantified, SafetyProperty
from policyproof.model.ranges import specialise
from policyproof.policy.policy import Policy
from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature


@dataclass(frozen=True)
class SafetyQuestion:
    """Can a state where `unsafe` holds be reached from one where a start condition holds?"""

    flat: FlatModel
    starts: tuple[Expression, ...]
    """The start set is the union of these."""
    unsafe: Expression
    policy: Policy | None = None
    goal: Expression | None = None
    last_step: int | None = None
    """Unsafe states count only up to this step."""
    name: str = ""
    also_seen: frozenset[str] = frozenset()
    """Further variables on which the answer may depend."""

    @cached_property
    def seen(self) -> set[str]:
        """The variables that property and policy read."""
        conditions = [self.unsafe, *([] if self.goal is None else [self.goal])]
        names = variables_of([*conditions, *map(definedness, conditions)])
        return names | self.also_seen | (set() if self.policy is None else self.policy.reads)

    def simplified(self, condition: Expression) -> Expression:
        """A condition over states: transient variables replaced, decided parts removed."""
        (result,) = specialise([self.flat.state_condition(condition)], self.flat.box)
        return result


def safety_question(
    model: Model,
    question: Property,
    policy: Policy | None,
    *,
    include_initial: bool | None = None,
    flat: FlatModel | None = None,
) -> SafetyQuestion:
    """The safety question that a property asks; `include_initial` overrides what the property says."""
    flat = flat or flatten(model)
    if policy is not None and policy.action_variables:
        what = "a policy whose outputs are values of variables (continuous actions)"
        raise UnsupportedFeature([Feature(policy.source, what)])
    if isinstance(question, SafetyProperty):
        return _of_safety_property(flat, question, policy, include_initial)
    return _of_formula(flat, question, policy)


def _of_safety_property(
    flat: FlatModel, question: SafetyProperty, policy: Policy | None, include_initial: bool | None
) -> SafetyQuestion:
    if question.unsafe is None:
        raise InvalidInput(f"the property {question.name!r} has no unsafe condition ('reach')")
    include = question.include_initial if include_initial is None else include_initial
    starts: list[Expression] = []
    if question.start is not None:
        starts.append(flat.state_condition(question.start))
    if include or question.start is None:
        starts.append(flat.initial)
    return SafetyQuestion(
        flat=flat,
        starts=tuple(starts),
        unsafe=flat.state_condition(question.unsafe),
        policy=policy,
        goal=None if question.goal is None else flat.state_condition(question.goal),
        name=question.name,
    )


def _of_formula(flat: FlatModel, question: FormulaProperty, policy: Policy | None) -> SafetyQuestion:
    """`A[] good` and `AG<=k good` on plain conditions; a plain condition speaks of the initial states alone."""
    formula = question.formula
    last_step: int | None = 0
    if isinstance(formula, Atom):
        condition = formula.expression
    elif is_invariant(formula) and isinstance(formula.path.right, Atom):
        condition, last_step = formula.path.right.expression, formula.path.bounds.upper
    else:
        what = "this form of property where a safety property is needed (A[] f or AG<=k f with a condition f)"
        raise UnsupportedFeature([Feature(f"property {question.name!r}", what)])
    return SafetyQuestion(
        flat=flat,
        starts=(flat.initial,),
        unsafe=flat.state_condition(negation(condition)),
        policy=policy,
        last_step=last_step,
        name=question.name,
    )


def is_invariant(formula: Formula) -> TypeGuard[Quantified]:
    """Is this `A[] f` or `AG<=k f` with a plain condition f?"""
    return (
        isinstance(formula, Quantified)
        and formula.quantifier == "A"
        and formula.path.operator == "G"
        and formula.path.bounds.lower == 0
        and isinstance(formula.path.right, Atom)
        and not formula.path.reward_bounds
    )


def asks_for_safety(question: Property) -> bool:
    """Can `safety_question` put this property?"""
    return isinstance(question, SafetyProperty) or isinstance(question.formula, Atom) or is_invariant(question.formula)
