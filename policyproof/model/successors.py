"""The batched successor generator: arrays of states in, arrays of successors out.

    generator = SuccessorGenerator(flat)
    found = generator.expand(generator.layout.pack(states))
    found.states, found.source, found.operator

A *plan* holds the tape of some labels together with the silent steps.  Under a policy each state
needs only the plan of the label that the policy chose there; without one the plan of all labels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policyproof.model.automata import Variable
from policyproof.model.batch_kernel import least_batch
from policyproof.model.expressions import Expression
from policyproof.model.flat import FlatModel, Freedom, Step
from policyproof.model.layout import Layout, make_layout
from policyproof.model.tape import Compiler, Tape
from policyproof.run.errors import Feature, ResourceExhausted, UnsupportedFeature
from policyproof.run.threads import over_ranges

CAPACITY = 1 << 15
"""How many successors one thread may give back at once."""

MAXIMAL_SUCCESSORS = 1 << 24
"""How many successors one state may have; more would fill the memory before anybody could look at the time."""

SILENT = -1


@dataclass(frozen=True)
class Successors:
    """Successors in the order of their sources; within a source in the order of operators."""

    words: NDArray[np.int64]
    """The packed successor states."""
    source: NDArray[np.int64]
    """The position of the source in the batch."""
    operator: NDArray[np.int64]
    """The index in `FlatModel.operators`."""
    label: NDArray[np.int64]
    """The index of the label in `FlatModel.labels`, or SILENT."""

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class _Plan:
    tape: Tape
    steps: NDArray[np.int64]
    participants: NDArray[np.int64]
    branches: NDArray[np.int64]
    writes: NDArray[np.int64]
    widest: NDArray[np.int64]
    guards: Tape


class SuccessorGenerator:
    """Successors of batches of states over the kept variables of a flat model."""

    def __init__(self, flat: FlatModel, *, kept: Collection[str] | None = None) -> None:
        """`kept`: the variables that are not sliced away (default: all)."""
        self.flat = flat
        names = set(flat.names) if kept is None else set(kept)
        self.variables: tuple[Variable, ...] = tuple(item for item in flat.variables if item.name in names)
        self.layout: Layout = make_layout(self.variables)
        self.compiler = Compiler([(item.name, item.domain.kind) for item in self.variables], flat.box)
        self._label_index = {label: index for index, label in enumerate(flat.labels)}
        self._plans: dict[frozenset[int] | None, _Plan] = {}
        if len(flat.operators) >= 1 << 62:
            raise UnsupportedFeature([Feature("the synchronisations", "more than 2^62 operators")])

    def expand(self, packed: NDArray[np.int64], labels: Collection[int] | None = None, *, seed: int = 0) -> Successors:
        """All successors by the silent steps and by the given labels (default: all).

        Integer choices of the environment are all enumerated; of a real one, one value is drawn.
        """
        plan = self._plan(None if labels is None else frozenset(labels))
        packed = np.ascontiguousarray(packed)

        def task(first: int, last: int) -> list[Successors]:
            return list(self._expand(plan, packed, first, last, seed))

        pieces = over_ranges(task, len(packed), least=least_batch(plan.tape))
        return _concatenate([piece for part in pieces for piece in part], self.layout.words)

    def _expand(self, plan: _Plan, packed: NDArray[np.int64], first: int, last: int, seed: int) -> Iterator[Successors]:
        """The successors of packed[first:last], in pieces that fit into the output."""
        from policyproof.model.successor_kernel import expand_kernel

        capacity = min(CAPACITY, 4 * (last - first) + 64)
        while first < last:
            words = np.empty((capacity, self.layout.words), dtype=np.int64)
            source, operator, step = (np.empty(capacity, dtype=np.int64) for _ in range(3))
            flags = np.zeros(2, dtype=np.int64)
            used, done = expand_kernel(
                packed[first:last], self.layout.fields, plan.tape.code, plan.tape.register_count,
                plan.tape.constants, plan.tape.roots, plan.steps, plan.participants, plan.branches, plan.writes,
                plan.widest, seed + first, words, source, operator, step, flags,
            )  # fmt: skip
            _check(flags)
            label = plan.steps[step[:used], 0]
            yield Successors(words[:used], source[:used] + first, operator[:used], label)
            first += done
            if first < last:
                # Full: a state with very many successors needs more room.
                capacity = CAPACITY if done else 4 * capacity
                if capacity > MAXIMAL_SUCCESSORS:
                    raise ResourceExhausted(f"one state has more than {capacity // 4} successors")

    def applicable(self, packed: NDArray[np.int64]) -> NDArray[np.bool_]:
        """`[state, label]`: does some operator with this label apply?  The last column is for silent steps."""
        from policyproof.model.successor_kernel import applicable_kernel

        plan = self._plan(None)
        packed = np.ascontiguousarray(packed)
        result = np.zeros((len(packed), len(self.flat.labels) + 1), dtype=np.bool_)

        def task(first: int, last: int) -> None:
            flags = np.zeros(2, dtype=np.int64)
            applicable_kernel(
                packed[first:last], self.layout.fields, plan.guards.code, plan.guards.register_count,
                plan.guards.constants, plan.guards.roots, plan.steps, plan.participants, plan.branches,
                result[first:last], flags,
            )  # fmt: skip
            _check(flags)

        over_ranges(task, len(packed), least=least_batch(plan.guards))
        return result

    def compile(self, roots: Sequence[Expression]) -> Tape:
        """A tape over unpacked states of this generator."""
        return self.compiler.compile(roots)

    @property
    def exact(self) -> bool:
        """Are guards and updates integer arithmetic throughout?"""
        return self._plan(None).tape.exact and all(item.domain.kind != "real" for item in self.variables)

    def _plan(self, labels: frozenset[int] | None) -> _Plan:
        if labels not in self._plans:
            self._plans[labels] = self._compile(labels)
        return self._plans[labels]

    def _number(self, step: Step) -> int:
        return SILENT if step.label is None else self._label_index[step.label]

    def _compile(self, labels: frozenset[int] | None) -> _Plan:
        roots: list[Expression] = []
        guards: list[Expression] = []
        rows: dict[str, list[tuple[int, ...]]] = {"steps": [], "participants": [], "branches": [], "writes": []}
        widest = [0, 0]
        position = self.layout.position
        for step, offset in zip(self.flat.steps, self.flat.operators.offsets, strict=False):
            number = self._number(step)
            if labels is not None and number != SILENT and number not in labels:
                continue
            first = len(rows["participants"])
            choices = 0
            for participant in step.participants:
                first_branch = len(rows["branches"])
                widest[1] = max(widest[1], len(participant))
                for branch in participant:
                    first_write = len(rows["writes"])
                    guard = _root(branch.guard, roots)
                    guards.append(branch.guard)
                    for name, value in branch.writes.items():
                        if name not in position:
                            continue
                        row = self._write(position[name], value, roots)
                        choices += row[1] == 1
                        rows["writes"].append(row)
                    rows["branches"].append((guard, first_write, len(rows["writes"])))
                rows["participants"].append((first_branch, len(rows["branches"])))
            rows["steps"].append((number, offset, first, len(rows["participants"])))
            widest[0] = max(widest[0], len(step.participants))
            if choices > 32:
                raise UnsupportedFeature(
                    [Feature(f"label {step.label!r}", "more than 32 non-deterministic assignments")]
                )
        shapes = {"steps": 4, "participants": 2, "branches": 3, "writes": 4}
        tables = {name: np.array(rows[name], dtype=np.int64).reshape(-1, width) for name, width in shapes.items()}
        # Guards are numbered as branches are, so that both tapes serve the same tables.
        guard_tape = self.compiler.compile(guards)
        tape = self.compiler.compile(roots)
        return _Plan(tape, **tables, widest=np.array(widest, dtype=np.int64), guards=_renumbered(guard_tape, tables))

    def _write(self, variable: int, value: Expression | Freedom, roots: list[Expression]) -> tuple[int, int, int, int]:
        if isinstance(value, Freedom):
            kind = 2 if self.variables[variable].domain.kind == "real" else 1
            return (variable, kind, _root(value.lower, roots), _root(value.upper, roots))
        return (variable, 0, _root(value, roots), 0)


def _check(flags: NDArray[np.int64]) -> None:
    if flags[0]:
        raise ResourceExhausted("an integer left the 62 bits of batched arithmetic")


def _root(expression: Expression, roots: list[Expression]) -> int:
    roots.append(expression)
    return len(roots) - 1


def _renumbered(guards: Tape, tables: dict[str, NDArray[np.int64]]) -> Tape:
    """The tape of the guards alone, with its roots where the branches' guard numbers point."""
    roots = np.zeros(1 + int(tables["branches"][:, 0].max(initial=0)), dtype=np.int32)
    roots[tables["branches"][:, 0]] = guards.roots
    return Tape(
        guards.code, guards.register_count, guards.variable_count, guards.constants,
        guards.constant_bounds, roots, guards.float_registers, guards.exact,
    )  # fmt: skip


def _concatenate(pieces: list[Successors], words: int) -> Successors:
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        empty = np.empty(0, dtype=np.int64)
        return Successors(np.empty((0, words), dtype=np.int64), empty, empty, empty)
    return Successors(
        np.concatenate([piece.words for piece in pieces]),
        np.concatenate([piece.source for piece in pieces]),
        np.concatenate([piece.operator for piece in pieces]),
        np.concatenate([piece.label for piece in pieces]),
    )
