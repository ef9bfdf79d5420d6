"""The unrolled transition function of a policy-restricted state space, stage by stage (ICAPS22, section 8.2).

Stages are made for the box of states that can be reached in that many steps (`images`): operators that cannot be
taken there are left out, conditions that hold throughout are not demanded, activations that stay on one side are
linear, and outputs that are sure to lose are never chosen.

Invariant: the stages and the target have a solution exactly if there is a path of that length under the policy
from a start state into a state that is unsafe (or where the unsafe condition has no value, or where a switched
policy has no network: both are errors of the input, and are found instead of being lost).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from policyproof.bounds.linear import activation_bounds
from policyproof.encodings.paths import Choice, Requirement, Stage
from policyproof.encodings.question import Column
from policyproof.engines.bmc.images import Box, Images, within
from policyproof.engines.question import SafetyQuestion
from policyproof.model.definedness import definedness
from policyproof.model.expressions import (
    FALSE,
    TRUE,
    Expression,
    apply,
    conjunction,
    disjunction,
    negation,
    substitute,
    variable,
)
from policyproof.model.flat import Freedom
from policyproof.model.ranges import Range, specialise
from policyproof.run.budget import Budget


class Unrolling:
    """The stages of one question, made one after the other."""

    def __init__(self, question: SafetyQuestion, images: Images) -> None:
        self.question = question
        self.images = images
        self.flat = question.flat
        self.kinds = {item.name: item.domain.kind for item in self.flat.variables}
        self.boxes: list[Box] = []
        """By step."""
        self.names: list[dict[str, str]] = []
        """By step: what the variables are called there."""
        self._ranges: list[dict[str, Range]] = []
        self._variables: list[dict[str, Expression]] = []
        unsafe = question.unsafe
        defined = definedness(unsafe)
        parts = [unsafe] if defined is TRUE else [conjunction([unsafe, defined]), negation(defined)]
        self._unsafe = disjunction(parts)
        self._without_network = images.without_network()

    def start(self) -> Stage | None:
        """Stage 0: a start state; None if there is none."""
        images = self.images
        found = [images.narrowed(images.domain, condition) for condition in self.question.starts]
        numbers = [number for number, part in enumerate(found) if part is not None]
        if not numbers:
            return None
        box = images.hull([part for part in found if part is not None])
        self._add_step(box, {name: f"{name}@0" for name in self.flat.names})
        demands = _Demands(numbers)
        for number in numbers:
            for part in _conjuncts(self._at(0, [self.question.starts[number]])[0]):
                demands.add(part, number)
        return Stage(0, self._columns(0, self.flat.names), tuple(numbers), demands.requirements())

    def step(self, budget: Budget) -> Stage | None:
        """The next stage; None if no operator can be taken any more, so that there are no longer paths."""
        step = len(self.boxes) - 1
        images = self.images
        numbers, following = images.step(self.boxes[step], budget)
        if following is None:
            return None
        operators = [images.operators[number] for number in numbers]
        written = {name for operator in operators for name in operator.update}
        # What nothing writes keeps its name, and so its value.
        names = {name: f"{name}@{step + 1}" if name in written else old for name, old in self.names[step].items()}
        self._add_step(following, names)
        demands = _Demands(numbers)
        keeping = {name: set(numbers) for name in sorted(written)}
        for number, operator in zip(numbers, operators, strict=True):
            for part in _conjuncts(self._at(step, [operator.guard])[0]):
                demands.add(part, number)
            for name, value in operator.update.items():
                keeping[name].discard(number)
                new = self._variables[step + 1][name]
                if isinstance(value, Freedom):
                    lower, upper = self._at(step, [value.lower, value.upper])
                    demands.add(apply("≤", lower, new), number)
                    demands.add(apply("≤", new, upper), number)
                else:
                    demands.add(apply("=", new, self._at(step, [value])[0]), number)
        for name, keepers in keeping.items():
            old, new = self._variables[step][name], self._variables[step + 1][name]
            for number in sorted(keepers):
                demands.add(apply("=", new, old), number)
        choices, applicability = self._choices(step, numbers)
        columns = self._columns(step + 1, sorted(written))
        return Stage(step + 1, columns, tuple(numbers), demands.requirements(), choices, applicability)

    def target(self, *, last: bool = False) -> tuple[Requirement, ...] | None:
        """Where the last step is to be; None if its box refutes that.  After the `last` step nobody decides."""
        step = len(self.boxes) - 1
        parts = [self._unsafe]
        if self._without_network is not None and not last:
            parts.append(self._without_network)
        (condition,) = self._at(step, [disjunction(parts)])
        if condition is FALSE:
            return None
        return tuple(Requirement(part) for part in _conjuncts(condition))

    def _at(self, step: int, expressions: Sequence[Expression]) -> list[Expression]:
        """Expressions over the variables of a step; what its box decides is decided."""
        decided = specialise(
            [conjunction([item, definedness(item)]) if item.kind == "bool" else item for item in expressions],
            self._ranges[step],
        )
        return substitute(decided, self._variables[step])

    def _add_step(self, box: Box, names: dict[str, str]) -> None:
        self.boxes.append(box)
        self.names.append(names)
        self._ranges.append(self.images.ranges(box))
        self._variables.append({old: variable(new, self.kinds[old]) for old, new in names.items()})

    def _columns(self, step: int, names: Iterable[str]) -> tuple[Column, ...]:
        ranges = self._ranges[step]
        return tuple(
            Column(self.names[step][name], self.kinds[name], **within(self.kinds[name], ranges[name])) for name in names
        )

    # The policy

    def _choices(
        self, step: int, numbers: Sequence[int]
    ) -> tuple[tuple[Choice, ...], dict[int, tuple[Expression, ...]] | None]:
        images, policy = self.images, self.question.policy
        options: dict[int, tuple[int, ...]] = {}
        for number in numbers:
            output = images.output[number]
            if output >= 0:
                options[output] = (*options.get(output, ()), number)
        if policy is None or images.duels is None or not options:
            return (), None
        box = self.boxes[step]
        # A network's components are defined in all states of the step, also where another network decides.
        inputs = tuple(self._at(step, policy.inputs))
        reach = images.duels.inputs.boxes(box.lower, box.upper)
        choices = [
            Choice(
                network=policy.networks[number],
                inputs=inputs,
                options=options,
                beats=images.beats(part, number),
                condition=TRUE if condition is TRUE else self._at(step, [condition])[0],
                bounds=activation_bounds(images.duels.chains[number], *reach),
            )
            for number, condition, part in images.switched(box)
        ]
        return tuple(choices), self._applicability(step) if policy.filter else None

    def _applicability(self, step: int) -> dict[int, tuple[Expression, ...]]:
        """By output: its operators' guards, of all operators and not only of those that may be taken."""
        found: dict[int, tuple[Expression, ...]] = dict.fromkeys(range(self._outputs), ())
        guards = self._at(step, [operator.guard for operator in self.images.operators])
        for output, guard in zip(self.images.output, guards, strict=True):
            if output >= 0 and guard is not FALSE and guard not in found[output]:
                found[output] = (*found[output], guard)
        return found

    @property
    def _outputs(self) -> int:
        return 0 if self.question.policy is None else len(self.question.policy.labels)


class _Demands:
    """Conditions, and the options that demand them."""

    def __init__(self, options: Sequence[int]) -> None:
        self.options = options
        self._by: dict[Expression, list[int]] = {}

    def add(self, condition: Expression, option: int) -> None:
        if condition is not TRUE:
            by = self._by.setdefault(condition, [])
            if not by or by[-1] != option:
                by.append(option)

    def requirements(self) -> tuple[Requirement, ...]:
        return tuple(
            Requirement(condition, None if len(set(by)) == len(self.options) else tuple(dict.fromkeys(by)))
            for condition, by in self._by.items()
        )


def _conjuncts(condition: Expression) -> list[Expression]:
    found, stack = [], [condition]
    while stack:
        part = stack.pop()
        if part.operator == "∧":
            stack.extend(part.arguments)
        elif part is not TRUE:
            found.append(part)
    return found
