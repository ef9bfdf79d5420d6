"""Paths under a policy as Z3 terms, exactly (the bounded model checking of ICAPS22, section 8.2).

Every option of a stage has a truth value "it is selected", of which at least one is true; what an option demands
is implied by it.  An option whose label the policy controls also implies that its output wins: it exceeds the
outputs before it and reaches those after it, among the applicable ones where the policy filters.  (That the
option's own label is applicable, its guard says already.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import z3

from policyproof.encodings.paths import Choice, Requirement, Stage
from policyproof.encodings.question import Question
from policyproof.encodings.z3_encoding import Z3Encoding

Term = Any


class Z3Paths:
    """The variables of all steps so far, and the terms of stages over them."""

    def __init__(self) -> None:
        self.encoding = Z3Encoding(Question(()))
        self.selected: list[dict[int, Term]] = []
        """By stage and option."""

    def stage(self, stage: Stage) -> list[Term]:
        encoding = self.encoding
        encoding.declare(stage.columns)
        selected = {option: z3.Bool(f"selected@{stage.number}@{option}") for option in stage.options}
        self.selected.append(selected)
        found = [*encoding.within(stage.columns), z3.Or(list(selected.values()))]
        found += [self._required(requirement, selected) for requirement in stage.requirements]
        applicable = None
        if stage.applicability is not None:
            applicable = {
                output: z3.Or([encoding.condition(guard) for guard in guards])
                for output, guards in stage.applicability.items()
            }
        for choice in stage.choices:
            found += self._choice(choice, selected, applicable)
        return found

    def target(self, conditions: Sequence[Requirement]) -> list[Term]:
        return [self._required(requirement, {}) for requirement in conditions]

    def _required(self, requirement: Requirement, selected: dict[int, Term]) -> Term:
        condition = self.encoding.condition(requirement.condition)
        if requirement.when is None:
            return condition
        return z3.Implies(z3.Or([selected[option] for option in requirement.when]), condition)

    def _choice(self, choice: Choice, selected: dict[int, Term], applicable: dict[int, Term] | None) -> list[Term]:
        encoding = self.encoding
        found, outputs = encoding.network(choice.network, encoding.numbers(choice.inputs), choice.bounds)
        here = encoding.condition(choice.condition)
        for output, options in choice.options.items():
            question = Question((), network=choice.network, output=output)
            wins = []
            for rival in question.rivals:
                if choice.beats[output, rival]:
                    continue
                if choice.beats[rival, output]:
                    beat = z3.BoolVal(False)
                elif question.must_exceed(rival):
                    beat = outputs[output] > outputs[rival]
                else:
                    beat = outputs[output] >= outputs[rival]
                wins.append(beat if applicable is None else z3.Implies(applicable[rival], beat))
            taken = z3.Or([selected[option] for option in options])
            found.append(z3.Implies(z3.And(here, taken), z3.And(wins)))
        return found
