"""Paths under a policy as a piecewise linear program, for solvers of mixed-integer programs.

Every option of a stage is a binary column, and exactly one of a stage is 1.  A row that is demanded where one of
several options is selected is loosened by the most that it can be violated times "one minus their sum" ("big M",
the smallest that the intervals of the step give).  A clause gets "none of them is selected" as one more
alternative.

Outputs must lead by the one `slack` of the program, counted in the margins of their own step and network.
What `piecewise` says of its margin holds for each step by itself, since a network reads the columns of one step
only: a path that exists satisfies every row with room to spare, so that an infeasible program refutes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from policyproof.encodings.box_unions import Ends, boxes_of
from policyproof.encodings.linear import NotLinear
from policyproof.encodings.milp_literals import LiteralBuilder
from policyproof.encodings.paths import Choice, Lemma, Requirement, Stage
from policyproof.encodings.piecewise import ENOUGH, LEAST_MARGIN, TOLERANCE, WHOLE_LOOSENING, Program, Row
from policyproof.encodings.question import Question
from policyproof.model.expressions import TRUE, Expression

Group = tuple[int, ...]
"""Binary columns of which at most one is 1; the group is on where one is."""


class PathProgram(LiteralBuilder):
    """The program of all stages so far."""

    def __init__(self) -> None:
        super().__init__(Question(()))
        self.program.slack = self.program.add(-2.0, ENOUGH)
        self.selected: list[dict[int, int]] = []
        """By stage and option: its column."""

    def stage(self, stage: Stage) -> None:
        self.declare(stage.columns)
        program = self.program
        selected = {option: program.add(0.0, 1.0, integer=True) for option in stage.options}
        self.selected.append(selected)
        program.rows.append(Row(tuple(selected.values()), (1.0,) * len(selected), 1.0, equal=True))
        for requirement in stage.requirements:
            self._require(requirement, selected)
        applicable = None
        if stage.applicability is not None:
            applicable = {
                output: self._indicator(guards) if TRUE not in guards else None
                for output, guards in stage.applicability.items()
            }
        for choice in stage.choices:
            self._choice_of(choice, selected, applicable)

    def with_target(self, conditions: Sequence[Requirement]) -> Program:
        """The program of paths that end where these conditions hold; the stages stay as they are."""
        own = self.program
        known = self._literals, self.position, self.scale, self.linearisation
        self._literals, self.position, self.scale = dict(self._literals), dict(self.position), dict(self.scale)
        self.program = replace(
            own,
            lower=list(own.lower),
            upper=list(own.upper),
            integer=list(own.integer),
            rows=list(own.rows),
            clauses=list(own.clauses),
            units=list(own.units),
            middles=list(own.middles),
        )
        try:
            for requirement in conditions:
                self._require(requirement, {})
            return self.program
        finally:
            self.program = own
            self._literals, self.position, self.scale, self.linearisation = known

    def learn(self, lemma: Lemma, step: int, names: dict[str, str], choices: Sequence[Choice]) -> None:
        """Between `step` and the next one, other outputs than the known one are out of the question there."""
        selected = self.selected[step + 1]
        others = {
            selected[option]
            for choice in choices
            for output, options in choice.options.items()
            if output != lemma.output
            for option in options
        }
        if not others:
            return
        alternatives = [[self._off([tuple(sorted(others))])]]
        for name, value in lemma.values.items():
            column = self.position[names[name]]
            if not self.program.lower[column] <= value <= self.program.upper[column]:
                return
            alternatives += [
                [Row((column,), (1.0,), value - 1.0)],
                [Row((column,), (-1.0,), -(value + 1.0))],
            ]
        self._add_clause(alternatives)

    def _indicator(self, conditions: Sequence[Expression]) -> int:
        """A column that is 1 where one of the conditions holds (and may be 1 elsewhere)."""
        column = self.program.add(0.0, 1.0, integer=True)
        for condition in conditions:
            self.add_unless(Row((column,), (-1.0,), -1.0), condition)
        return column

    def _require(self, requirement: Requirement, selected: dict[int, int]) -> None:
        groups = [] if requirement.when is None else [tuple(selected[option] for option in requirement.when)]
        boxes = boxes_of(requirement.condition)
        if boxes is not None and len(boxes) > 1:
            self._unite(boxes, groups)
            return
        for clause in self.clauses(requirement.condition):
            alternatives = [self._rows(alternative) for alternative in clause]
            if len(alternatives) == 1:
                for row in alternatives[0]:
                    self._demand(row, groups)
            elif groups:
                self._add_clause([*alternatives, [self._off(groups)]])
            else:
                self._add_clause(alternatives)

    def _unite(self, boxes: Sequence[Mapping[str, Ends]], groups: Sequence[Group]) -> None:
        """The state is in one of the boxes (see `box_unions`), where the group is on."""
        program = self.program
        chosen = [program.add(0.0, 1.0, integer=True) for _ in boxes]
        on = tuple(column for group in groups for column in group)
        # As many as the group says, which is one or none.
        factors = (*(1.0,) * len(chosen), *(-1.0,) * len(on))
        program.rows.append(Row((*chosen, *on), factors, 0.0 if on else 1.0, equal=True))
        for name in sorted({name for box in boxes for name in box}):
            column = self.position[name]
            (unit, middle), low, high = self.scale[name], program.lower[column], program.upper[column]
            for side, sign, end in ((0, -1.0, -low), (1, 1.0, high)):
                # sign · x + Σ (end - sign · end_i) b_i <= end, in the column's units.
                if not np.isfinite(end):
                    raise NotLinear(["a variable without bounds"])
                ends = [box.get(name, (None, None))[side] for box in boxes]
                limits = [end if value is None else sign * (float(value) - middle) / unit for value in ends]
                gaps = [max(end - limit, 0.0) for limit in limits]
                if any(gaps):
                    room = WHOLE_LOOSENING if program.integer[column] else TOLERANCE * (1 + abs(low) + abs(high))
                    program.rows.append(Row((column, *chosen), (sign, *gaps), end + room, room=room))

    @staticmethod
    def _off(groups: Sequence[Group]) -> Row:
        """Not all of these groups are on."""
        columns = tuple(column for group in groups for column in group)
        return Row(columns, (1.0,) * len(columns), len(groups) - 1.0)

    def _demand(self, row: Row, groups: Sequence[Group]) -> None:
        """The row, where all of the groups are on."""
        violation = self.program.range_of(row.columns, row.coefficients)[1] - row.limit
        if violation <= 0:
            return
        if groups and not np.isfinite(violation):
            raise NotLinear(["a variable without bounds"])
        columns = tuple(column for group in groups for column in group)
        self.program.rows.append(
            replace(
                row,
                columns=(*row.columns, *columns),
                coefficients=(*row.coefficients, *(violation,) * len(columns)),
                limit=row.limit + violation * len(groups) if groups else row.limit,
            )
        )

    def _choice_of(self, choice: Choice, selected: dict[int, int], applicable: dict[int, int | None] | None) -> None:
        program = self.program
        here: list[Group] = [] if choice.condition is TRUE else [(self._indicator([choice.condition]),)]
        outputs = self._network(choice.network, choice.inputs, choice.bounds)
        for output, options in choice.options.items():
            question = Question((), network=choice.network, output=output)
            taken = tuple(selected[option] for option in options)
            for rival in question.rivals:
                if choice.beats[output, rival]:
                    continue
                groups = [*here, taken]
                if applicable is not None:
                    column = applicable[rival]
                    groups += [] if column is None else [(column,)]
                if choice.beats[rival, output]:
                    program.rows.append(self._off(groups))
                    continue
                lead = self._sum([(1.0, outputs[output]), (-1.0, outputs[rival])])
                scale = self._magnitude(lead)
                lead = self._without_the_negligible(lead, scale)
                program.margin = lead.error + TOLERANCE * scale + LEAST_MARGIN
                self._demand(self._beat(lead, max(scale, program.margin)), groups)
