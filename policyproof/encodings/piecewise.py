"""Questions as piecewise linear programs: columns, linear rows, ReLUs and clauses, in floats.

This is what MILP solvers and Marabou have in common; `milp_encoding` and `marabou_encoding` say it in
their words.  Leaky ReLUs and clips are sums of ReLUs and linear parts; a ReLU whose argument is known
to stay on one side is no ReLU any more; strict inequalities are relaxed.

**Scales.**  Networks hold weights of very different sizes, and solvers have absolute tolerances, so a
component of magnitude s is a column of magnitude 1, and a row is divided by what its columns are worth
(a ReLU commutes with positive factors).  What a column contributes to a row by less than `NEGLIGIBLE` is
replaced by the middle of its range, and the rest counts as error.  Marabou 2.0 needs that: it fixes a
variable whose range is below 1e-5 at one end of it, and then finds feasible programs infeasible.

**The margin.**  The outputs must lead by `slack`, one more column: `output - rival >= slack`.  Let a
solver keep every row, ReLU and whole number within `TOLERANCE` = t.  Then what it takes for a component of
a layer differs from the true one by at most

    e(input) = t (1 + m),   e(W x + b) = |W| e(x) + t (|W| m + |b|) + what was negligible,
    e(relu(z)) = e(z) + t m,

with m bounding magnitudes; `margin` is the largest error of a lead (the sum of two outputs' errors, and t
times its magnitude).  With the slack bounded below by -2 `margin`, and every condition loosened as well (by
1/4 where it compares whole numbers, which changes no whole solution; by t times its magnitude elsewhere),
a true solution satisfies every row with room to spare.  So a solver within its own tolerance finds the
loosened program infeasible only if the question is: this is the oracle's confirmation by a margin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from policyproof.encodings.linear import Alternative, Clauses, Form, Linearisation
from policyproof.encodings.question import ActivationBounds, Column, Floats, Question
from policyproof.model.expressions import Expression
from policyproof.policy.network import Activation, Affine, Clip, Network, Normalise

TOLERANCE = 1e-6
NEGLIGIBLE = 1e-5
LEAST_MARGIN = 1e-9
WHOLE_LOOSENING = 0.25
ENOUGH = 8.0
"""How many margins of slack are asked for; more would only cost time."""


@dataclass(frozen=True)
class Row:
    """Σ coefficient · column ≤ limit, or = limit."""

    columns: tuple[int, ...]
    coefficients: tuple[float, ...]
    limit: float
    equal: bool = False
    room: float = 0.0
    """By how much the limit has been loosened."""


@dataclass(frozen=True)
class Relu:
    """result = max(argument, 0), both columns.

    scale · argument is a component of a layer's argument plus the offset, up to the error.
    """

    argument: int
    result: int
    layer: int
    """Which of the activations and clips of the network."""
    component: int
    offset: float
    scale: float
    error: float


@dataclass(eq=False)
class Program:
    """The first columns are the state variables of the question, in order."""

    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    relus: list[Relu] = field(default_factory=list)
    clauses: list[list[list[Row]]] = field(default_factory=list)
    """Of every clause one alternative holds with all its rows."""
    slack: int = -1
    """The column that is to be large: by how many margins the output leads."""
    margin: float = 0.0
    units: list[float] = field(default_factory=list)
    middles: list[float] = field(default_factory=list)
    """A state variable is its unit times its column, plus its middle."""
    infeasible: bool = False
    """A condition holds nowhere, whatever the variables are."""

    @property
    def state_size(self) -> int:
        return len(self.units)

    def firm(self) -> Program:
        """The program with a lead of at least a margin, and conditions as much too tight as they were loose.

        Its solutions are witnesses with room to spare; that it has none means nothing.
        """
        lower = list(self.lower)
        if self.slack >= 0:
            lower[self.slack] = 1.0
        clauses = [[[_tightened(row) for row in part] for part in clause] for clause in self.clauses]
        return replace(self, lower=lower, rows=[_tightened(row) for row in self.rows], clauses=clauses)

    def state_of(self, values: Sequence[float]) -> Floats:
        """The values of the state variables in a solution."""
        return np.array(values[: self.state_size]) * self.units + self.middles

    def add(self, lower: float, upper: float, *, integer: bool = False) -> int:
        self.lower.append(lower)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.lower) - 1

    def range_of(self, columns: Sequence[int], coefficients: Sequence[float]) -> tuple[float, float]:
        """What a sum over columns can be in their intervals."""
        low = high = 0.0
        for column, factor in zip(columns, coefficients, strict=True):
            ends = (factor * self.lower[column], factor * self.upper[column])
            low, high = low + min(ends), high + max(ends)
        return low, high


def _tightened(row: Row) -> Row:
    # Comparisons of whole numbers become what they were: these hold without room to spare.
    return replace(row, limit=row.limit - (1 if row.room >= WHOLE_LOOSENING else 2) * row.room)


@dataclass(frozen=True)
class _Component:
    """A component of a layer as a linear form over columns, and the error that a solver may make in it."""

    terms: Mapping[int, float]
    constant: float
    error: float


class ProgramBuilder:
    """Builds the program of a question; raises `NotLinear` with what is in the way."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.program = Program()
        self.position: dict[str, int] = {}
        self.scale: dict[str, tuple[float, float]] = {}
        """A variable is its unit times its column, plus its middle."""
        self.linearisation = Linearisation(())
        self.declare(question.columns)

    def declare(self, columns: Sequence[Column]) -> None:
        """Columns for more variables."""
        for column in columns:
            low = -np.inf if column.lower is None else float(column.lower)
            high = np.inf if column.upper is None else float(column.upper)
            unit, middle = 1.0, 0.0
            if column.kind == "real" and np.isfinite(high - low) and low < high:
                unit, middle = 0.5 * (high - low), 0.5 * (high + low)
                low, high = -1.0, 1.0
            self.position[column.name] = self.program.add(low, high, integer=column.kind != "real")
            self.scale[column.name] = unit, middle
            self.program.units.append(unit)
            self.program.middles.append(middle)
        whole = {column.name for column in columns if column.kind != "real"}
        self.linearisation = Linearisation(self.linearisation.integers | whole)

    def build(self) -> Program:
        question, program = self.question, self.program
        self._add_clauses(self.linearisation.clauses(question.condition))
        if question.network is not None:
            outputs = self._network(question.network, question.inputs, question.bounds)
            self._choose(outputs)
        return program

    # Conditions

    def _add_clauses(self, clauses: Clauses) -> None:
        for clause in clauses:
            self._add_clause([self._rows(alternative) for alternative in clause])

    def _add_clause(self, alternatives: list[list[Row]]) -> None:
        program = self.program
        if not alternatives:
            program.infeasible = True
        elif len(alternatives) == 1:
            program.rows += alternatives[0]
        elif all(alternatives):
            program.clauses.append(alternatives)

    def _rows(self, alternative: Alternative) -> list[Row]:
        rows = []
        for comparison in alternative:
            terms, constant = self._terms(comparison.form)
            columns, coefficients, limit = tuple(terms), tuple(terms.values()), -constant
            low, high = self.program.range_of(columns, coefficients)
            loose = TOLERANCE * (1 + max(abs(low), abs(high)) + abs(limit))
            room = max(WHOLE_LOOSENING, loose) if comparison.whole else loose
            if comparison.relation == "=":
                opposite = tuple(-value for value in coefficients)
                rows.append(Row(columns, opposite, -limit + room, room=room))
            rows.append(Row(columns, coefficients, limit + room, room=room))
        return rows

    # The network

    def _network(
        self, network: Network, inputs: Sequence[Expression], bounds: ActivationBounds | None
    ) -> list[_Component]:
        """The outputs."""
        values = [self._input(self.linearisation.form(expression)) for expression in inputs]
        bending = 0
        for layer in network.layers:
            if isinstance(layer, Affine):
                values = self._affine(layer, values)
            elif isinstance(layer, Normalise):
                subtract, divide = (np.broadcast_to(a, (len(values),)) for a in (layer.subtract, layer.divide))
                values = self._affine(Affine(np.diag(1.0 / divide), -subtract / divide), values)
            else:
                known = None if bounds is None else bounds[bending]
                values = [self._bend(layer, (bending, number), value, known) for number, value in enumerate(values)]
                bending += 1
        return values

    def _terms(self, form: Form) -> tuple[dict[int, float], float]:
        """A form over state variables as one over columns."""
        terms, constant = {}, float(form.constant)
        for name, value in form.coefficients.items():
            unit, middle = self.scale[name]
            terms[self.position[name]] = float(value) * unit
            constant += float(value) * middle
        return terms, constant

    def _input(self, form: Form) -> _Component:
        terms, constant = self._terms(form)
        return self._component(terms, constant, TOLERANCE * (1 + sum(abs(factor) for factor in terms.values())))

    def _component(self, terms: Mapping[int, float], constant: float, error: float) -> _Component:
        lower, upper = self.program.lower, self.program.upper
        magnitude = sum(abs(factor) * max(-lower[c], upper[c], 0.0) for c, factor in terms.items()) + abs(constant)
        return _Component(terms, constant, error + TOLERANCE * magnitude)

    def _affine(self, layer: Affine, values: list[_Component]) -> list[_Component]:
        found = []
        for row, bias in zip(layer.weights.tolist(), layer.bias.tolist(), strict=True):
            terms: dict[int, float] = {}
            constant, error = bias, 0.0
            for weight, value in zip(row, values, strict=True):
                if weight:
                    constant += weight * value.constant
                    error += abs(weight) * value.error
                    for column, factor in value.terms.items():
                        terms[column] = terms.get(column, 0.0) + weight * factor
            found.append(self._component({c: factor for c, factor in terms.items() if factor}, constant, error))
        return found

    def _interval(self, value: _Component, known: tuple[float, float] | None = None) -> tuple[float, float]:
        """Where a component lies: what is known, and what its columns say, both loosened by its error."""
        low, high = self.program.range_of(list(value.terms), list(value.terms.values()))
        low, high = low + value.constant, high + value.constant
        if known is not None:
            low, high = max(low, known[0]), min(high, known[1])
        return low - value.error, high + value.error

    def _without_the_negligible(self, value: _Component, scale: float) -> _Component:
        """The component without what contributes next to nothing at this scale."""
        constant, error, kept = value.constant, value.error, {}
        for column, factor in value.terms.items():
            low, high = self.program.lower[column], self.program.upper[column]
            if abs(factor) * (high - low) < NEGLIGIBLE * scale:
                constant += factor * 0.5 * (low + high)
                error += abs(factor) * 0.5 * (high - low)
            else:
                kept[column] = factor
        return _Component(kept, constant, error)

    def _column(self, value: _Component, ends: tuple[float, float]) -> tuple[int, float, float]:
        """A column that equals a component divided by a scale; the column, the scale, and the error."""
        scale = 2.0 ** round(math.log2(max(-ends[0], ends[1], 2.0**-500)))
        kept = self._without_the_negligible(value, scale)
        more = kept.error - value.error
        column = self.program.add((ends[0] - more) / scale, (ends[1] + more) / scale)
        coefficients = (1.0, *(-factor / scale for factor in kept.terms.values()))
        self.program.rows.append(Row((column, *kept.terms), coefficients, kept.constant / scale, equal=True))
        return column, scale, kept.error

    def _bend(
        self, layer: object, place: tuple[int, int], value: _Component, known: tuple[Floats, Floats] | None
    ) -> _Component:
        number = place[1]
        ends = None if known is None else (float(known[0][number]), float(known[1][number]))
        if isinstance(layer, Clip):
            return self._clip(place, (_at(layer.lower, number), _at(layer.upper, number)), value, ends)
        if not isinstance(layer, Activation) or layer.kind not in ("relu", "leaky_relu"):
            raise TypeError(f"{layer} is not piecewise linear")
        slope = layer.slope if layer.kind == "leaky_relu" else 0.0
        # slope z + (1 - slope) relu(z)
        return self._sum([(slope, value), (1.0 - slope, self._relu(place, value, ends))])

    def _clip(
        self,
        place: tuple[int, int],
        clip: tuple[float, float],
        value: _Component,
        known: tuple[float, float] | None,
    ) -> _Component:
        """lower + relu(z - lower) - relu(z - upper), without the parts of infinite ends."""
        first, second = clip
        parts, constant = [(1.0, value)], 0.0
        if first > -np.inf:
            parts, constant = [(1.0, self._relu(place, value, known, -first))], first
        if second < np.inf:
            parts.append((-1.0, self._relu(place, value, known, -second)))
        total = self._sum(parts)
        return _Component(total.terms, total.constant + constant, total.error)

    def _relu(
        self, place: tuple[int, int], value: _Component, known: tuple[float, float] | None, offset: float = 0.0
    ) -> _Component:
        """max(value + offset, 0); `known` bounds the value."""
        value = _Component(value.terms, value.constant + offset, value.error)
        if known is not None:
            # The sign of a rounded sum is right.
            known = (known[0] + offset, known[1] + offset)
        if not value.terms:
            return _Component({}, max(value.constant, 0.0), value.error)
        low, high = self._interval(value)
        if (known is not None and known[0] >= 0) or low > value.error:
            return value
        if (known is not None and known[1] <= 0) or high < -value.error:
            return _Component({}, 0.0, 0.0)
        argument, scale, error = self._column(value, self._interval(value, known))
        result = self.program.add(0.0, max(self.program.upper[argument], 0.0))
        self.program.relus.append(Relu(argument, result, *place, offset, scale, error))
        return _Component({result: scale}, 0.0, error + TOLERANCE * scale)

    def _magnitude(self, value: _Component) -> float:
        low, high = self._interval(value)
        return max(-low, high)

    def _beat(self, lead: _Component, scale: float) -> Row:
        """The lead is at least the slack, which is counted in margins."""
        columns = (*lead.terms, self.program.slack)
        coefficients = (*(-factor / scale for factor in lead.terms.values()), self.program.margin / scale)
        return Row(columns, coefficients, lead.constant / scale)

    def _sum(self, parts: list[tuple[float, _Component]]) -> _Component:
        terms: dict[int, float] = {}
        for factor, part in parts:
            for column, value in part.terms.items():
                terms[column] = terms.get(column, 0.0) + factor * value
        constant = sum(factor * part.constant for factor, part in parts)
        error = sum(abs(factor) * part.error for factor, part in parts)
        return _Component({column: value for column, value in terms.items() if value}, constant, error)

    # Which output wins

    def _choose(self, outputs: list[_Component]) -> None:
        question, program = self.question, self.program
        own = outputs[question.output]
        leads = {rival: self._sum([(1.0, own), (-1.0, outputs[rival])]) for rival in question.rivals}
        scales = {rival: self._magnitude(lead) for rival, lead in leads.items()}
        leads = {rival: self._without_the_negligible(lead, scales[rival]) for rival, lead in leads.items()}
        program.margin = (
            max((lead.error + TOLERANCE * scales[rival] for rival, lead in leads.items()), default=0.0) + LEAST_MARGIN
        )
        program.slack = program.add(-2.0, ENOUGH)
        beats = {rival: self._beat(lead, max(scales[rival], program.margin)) for rival, lead in leads.items()}
        if question.applicability is None:
            program.rows += beats.values()
            return
        # A column that is 1 where nothing is applicable; then the plain best output wins.
        nothing = program.add(0.0, 1.0, integer=True)
        holds, fails = Row((nothing,), (-1.0,), -1.0), Row((nothing,), (1.0,), 0.0)
        for number, condition in enumerate(question.applicability):
            inapplicable = [self._rows(alternative) for alternative in self.linearisation.negated(condition)]
            self._add_clause([[fails], *inapplicable])
            if number == question.output:
                for clause in self.linearisation.clauses(condition):
                    self._add_clause([[holds], *(self._rows(alternative) for alternative in clause)])
            else:
                self._add_clause([[beats[number]], *([fails, *rows] for rows in inapplicable)])


def _at(array: Floats, index: int) -> float:
    return float(array.ravel()[0] if array.size == 1 else array[index])


def program_of(question: Question) -> Program:
    """The program of a question; raises `NotLinear` with what is in the way."""
    return ProgramBuilder(question).build()
