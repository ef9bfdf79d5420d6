"""Conditions as cases of linear comparisons, for solvers that know nothing else.

A numeric expression becomes *cases*: linear forms, each with the comparisons under which it is the
value (`min`, `max`, `abs`, `sgn`, choices; most expressions have one case).  A condition becomes
*clauses*, all of which hold; a clause is a list of alternatives, one of which holds; an alternative is a
list of comparisons.  What is not linear, or has more than `MAXIMAL_CASES` cases, is refused by name.

Invariant: over the states where a condition is defined, the clauses hold exactly where it does.  A
comparison of integers is brought to whole coefficients, where `<` is `≤` minus one: only comparisons
of reals are strict in the end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from policyproof.model import arithmetic
from policyproof.model.definedness import definedness
from policyproof.model.expressions import CONSTANT, VARIABLE, Expression, nodes

MAXIMAL_CASES = 64


@dataclass(frozen=True)
class Form:
    """Σ coefficient · variable + constant; truth values count as 0 and 1."""

    coefficients: Mapping[str, Fraction]
    constant: Fraction

    def __hash__(self) -> int:
        return hash((frozenset(self.coefficients.items()), self.constant))

    def __add__(self, other: Form) -> Form:
        names = {**self.coefficients, **other.coefficients}
        sums = {n: self.coefficients.get(n, Fraction(0)) + other.coefficients.get(n, Fraction(0)) for n in names}
        return Form({name: value for name, value in sums.items() if value}, self.constant + other.constant)

    def __mul__(self, factor: Fraction) -> Form:
        scaled = {name: value * factor for name, value in self.coefficients.items() if factor}
        return Form(scaled, self.constant * factor)

    def __sub__(self, other: Form) -> Form:
        return self + other * Fraction(-1)

    @property
    def is_constant(self) -> bool:
        return not self.coefficients


@dataclass(frozen=True)
class Comparison:
    """`form ≤ 0`, or `form < 0`, or `form = 0`; `whole`: whole coefficients over integers."""

    form: Form
    relation: str
    whole: bool


Alternative = tuple[Comparison, ...]
Alternatives = tuple[Alternative, ...]
Clauses = tuple[Alternatives, ...]
Cases = tuple[tuple[Alternative, Form], ...]

ALWAYS: Alternatives = ((),)
NEVER: Alternatives = ()


class NotLinear(Exception):
    """What is in the way."""

    def __init__(self, reasons: Iterable[str]) -> None:
        self.reasons = sorted(set(reasons))
        super().__init__(", ".join(self.reasons))


class Linearisation:
    """Reads expressions over variables of which some are integers (truth values among them)."""

    def __init__(self, integers: Iterable[str]) -> None:
        self.integers = frozenset(integers)

    def clauses(self, condition: Expression) -> Clauses:
        """The condition is defined and true."""
        parts, stack = [], [definedness(condition), condition]
        while stack:
            part = stack.pop()
            if part.operator == "∧":
                stack.extend(part.arguments)
            else:
                parts.append(part)
        reading = _Reading(self, parts)
        reasons = [reason for part in parts for reason in reading.reasons(part)]
        if reasons:
            raise NotLinear(reasons)
        return tuple(clause for part in parts if (clause := reading.truth(part)[0]) != ALWAYS)

    def negated(self, condition: Expression) -> Alternatives:
        """The condition is undefined or false."""
        defined = definedness(condition)
        reading = _Reading(self, [condition, defined])
        return _capped([*reading.truth(condition)[1], *reading.truth(defined)[1]])

    def form(self, expression: Expression) -> Form:
        """An expression with one case."""
        cases = _Reading(self, [expression]).cases(expression)
        if len(cases) != 1 or cases[0][0]:
            raise NotLinear([f"the value of {expression} has several cases"])
        return cases[0][1]

    def compare(self, form: Form, relation: str) -> Alternatives:
        """`form relation 0` (<, ≤, =, ≠), with constants decided and integers made whole."""
        if relation == "≠":
            return (*self.compare(form, "<"), *self.compare(form * Fraction(-1), "<"))
        if form.is_constant:
            holds = form.constant < 0 or (form.constant == 0 and relation != "<")
            return ALWAYS if (form.constant == 0 if relation == "=" else holds) else NEVER
        if not self.integers.issuperset(form.coefficients):
            return ((Comparison(form, relation, False),),)
        scale = Fraction(
            math.lcm(*(value.denominator for value in form.coefficients.values())),
            math.gcd(*(value.numerator for value in form.coefficients.values())),
        )
        form = form * scale
        if relation == "=":
            whole = form.constant.denominator == 1
            return ((Comparison(form, "=", True),),) if whole else NEVER
        # Σ <= -c, or Σ < -c, over whole numbers.
        limit = math.floor(-form.constant) if relation == "≤" else math.ceil(-form.constant) - 1
        return ((Comparison(Form(form.coefficients, Fraction(-limit)), "≤", True),),)


class _Reading:
    """All nodes below some roots: truth values as (when true, when false), numbers as cases."""

    def __init__(self, linearisation: Linearisation, roots: list[Expression]) -> None:
        self._compare = linearisation.compare
        self._truths: dict[int, tuple[Alternatives, Alternatives] | NotLinear] = {}
        self._cases: dict[int, Cases | NotLinear] = {}
        for node in nodes(roots):
            try:
                if node.kind == "bool":
                    self._truths[node.serial] = self._boolean(node)
                else:
                    self._cases[node.serial] = self._numeric(node)
            except NotLinear as reason:
                (self._truths if node.kind == "bool" else self._cases)[node.serial] = reason

    def reasons(self, node: Expression) -> list[str]:
        """Why a truth value is refused."""
        found = self._truths[node.serial]
        return found.reasons if isinstance(found, NotLinear) else []

    def truth(self, node: Expression) -> tuple[Alternatives, Alternatives]:
        found = self._truths[node.serial]
        if isinstance(found, NotLinear):
            raise found
        return found

    def cases(self, node: Expression) -> Cases:
        found = self._cases[node.serial]
        if isinstance(found, NotLinear):
            raise found
        return found

    def _boolean(self, node: Expression) -> tuple[Alternatives, Alternatives]:
        operator = node.operator
        if operator == CONSTANT:
            return (ALWAYS, NEVER) if node.exact else (NEVER, ALWAYS)
        if operator == VARIABLE:
            truth = Form({node.name: Fraction(1)}, Fraction(0))
            one = Form({}, Fraction(1))
            return self._compare(one - truth, "≤"), self._compare(truth, "≤")
        if operator in ("ite", "aa"):
            chosen = self._selected(node)
            pairs = [(guard, self.truth(part)) for guard, part in chosen]
            return (
                _capped([(*guard, *one) for guard, (when, _) in pairs for one in when]),
                _capped([(*guard, *one) for guard, (_, otherwise) in pairs for one in otherwise]),
            )
        if node.arguments[0].kind != "bool":
            return self._comparison(operator, *node.arguments)
        parts = [self.truth(argument) for argument in node.arguments]
        if operator == "¬":
            return parts[0][1], parts[0][0]
        (a, not_a), (b, not_b) = parts
        if operator == "⇒":
            operator, a, not_a = "∨", not_a, a
        if operator == "∧":
            return _both(a, b), _capped([*not_a, *not_b])
        if operator == "∨":
            return _capped([*a, *b]), _both(not_a, not_b)
        same = _capped([*_both(a, b), *_both(not_a, not_b)])
        different = _capped([*_both(a, not_b), *_both(not_a, b)])
        return (same, different) if operator == "=" else (different, same)

    def _comparison(self, operator: str, left: Expression, right: Expression) -> tuple[Alternatives, Alternatives]:
        if operator in (">", "≥"):
            left, right, operator = right, left, "<" if operator == ">" else "≤"
        true, false = [], []
        for guard, difference in self._differences(left, right):
            if operator in ("=", "≠"):
                true += [(*guard, *one) for one in self._compare(difference, operator)]
                false += [(*guard, *one) for one in self._compare(difference, "≠" if operator == "=" else "=")]
            else:
                opposite = difference * Fraction(-1)
                true += [(*guard, *one) for one in self._compare(difference, operator)]
                false += [(*guard, *one) for one in self._compare(opposite, "<" if operator == "≤" else "≤")]
        return _capped(true), _capped(false)

    def _differences(self, left: Expression, right: Expression) -> Cases:
        pairs = itertools.product(self.cases(left), self.cases(right))
        return _capped_cases([((*guard, *other), a - b) for (guard, a), (other, b) in pairs])

    def _selected(self, node: Expression) -> list[tuple[Alternative, Expression]]:
        """The parts of a choice or an access, each with the comparisons that select it."""
        selector, *parts = node.arguments
        if node.operator == "ite":
            when, otherwise = self.truth(selector)
            return [*((guard, parts[0]) for guard in when), *((guard, parts[1]) for guard in otherwise)]
        found = []
        for guard, index in self.cases(selector):
            for number, part in enumerate(parts):
                here = self._compare(index - Form({}, Fraction(number)), "=")
                found += [((*guard, *one), part) for one in here]
        return found

    def _numeric(self, node: Expression) -> Cases:
        operator = node.operator
        if operator == CONSTANT:
            return (((), Form({}, Fraction(node.exact))),)
        if operator == VARIABLE:
            return (((), Form({node.name: Fraction(1)}, Fraction(0))),)
        if operator == "ite" and node.arguments[0].is_variable:
            plain = self._interpolated(node)
            if plain is not None:
                return plain
        if operator in ("ite", "aa"):
            chosen = self._selected(node)
            return _capped_cases([((*g, *h), form) for g, part in chosen for h, form in self.cases(part)])
        inputs = [self.cases(argument) for argument in node.arguments]
        found: list[tuple[Alternative, Form]] = []
        for combination in itertools.product(*inputs):
            guard = tuple(itertools.chain.from_iterable(part for part, _ in combination))
            forms = [form for _, form in combination]
            found += [((*guard, *more), form) for more, form in self._apply(node, forms)]
        return _capped_cases(found)

    def _interpolated(self, node: Expression) -> Cases | None:
        """A choice between two linear forms that differ by a constant, made by a truth value: linear in it."""
        condition, *branches = node.arguments
        cases = [self.cases(branch) for branch in branches]
        if any(len(case) != 1 or case[0][0] for case in cases):
            return None
        (_, then), (_, otherwise) = cases[0][0], cases[1][0]
        difference = then - otherwise
        if not difference.is_constant:
            return None
        return (((), otherwise + Form({condition.name: Fraction(1)}, Fraction(0)) * difference.constant),)

    def _apply(self, node: Expression, forms: list[Form]) -> list[tuple[Alternative, Form]]:
        operator = node.operator
        if operator in ("+", "-"):
            return [((), forms[0] + forms[1] if operator == "+" else forms[0] - forms[1])]
        if operator == "*":
            left, right = forms
            if left.is_constant or right.is_constant:
                return [((), right * left.constant if left.is_constant else left * right.constant)]
        elif operator == "/" and forms[1].is_constant:
            # Where the divisor is zero, the condition is undefined, which is said elsewhere.
            return [((), forms[0] * (1 / forms[1].constant if forms[1].constant else Fraction(0)))]
        elif operator in ("min", "max"):
            least, greatest = forms if operator == "min" else reversed(forms)
            difference = least - greatest
            return [
                *((one, forms[0]) for one in self._compare(difference, "≤")),
                *((one, forms[1]) for one in self._compare(difference * Fraction(-1), "<")),
            ]
        elif operator == "abs":
            opposite = forms[0] * Fraction(-1)
            return [
                *((one, forms[0]) for one in self._compare(opposite, "≤")),
                *((one, opposite) for one in self._compare(forms[0], "<")),
            ]
        elif operator == "sgn":
            signs = ((forms[0], "<", -1), (forms[0], "=", 0), (forms[0] * Fraction(-1), "<", 1))
            return [(one, Form({}, Fraction(s))) for f, relation, s in signs for one in self._compare(f, relation)]
        elif operator in ("floor", "ceil", "trc"):
            if node.arguments[0].kind == "int":
                return [((), forms[0])]
            if forms[0].is_constant:
                return [((), Form({}, Fraction(arithmetic.STRICT[operator](forms[0].constant))))]
        elif operator == "pow" and forms[1].is_constant and forms[1].constant in (0, 1):
            return [((), forms[0] if forms[1].constant == 1 else Form({}, Fraction(1)))]
        raise NotLinear([f"the operator {operator} where it is not linear"])


def _both(left: Alternatives, right: Alternatives) -> Alternatives:
    if len(left) * len(right) > MAXIMAL_CASES:
        raise _too_many()
    return _capped([(*a, *b) for a, b in itertools.product(left, right)])


def _capped(alternatives: list[Alternative]) -> Alternatives:
    # Without repetitions; an alternative without comparisons makes the others superfluous.
    found = dict.fromkeys(tuple(dict.fromkeys(one)) for one in alternatives)
    if () in found:
        return ALWAYS
    if len(found) > MAXIMAL_CASES:
        raise _too_many()
    return tuple(found)


def _capped_cases(cases: list[tuple[Alternative, Form]]) -> Cases:
    if len(cases) > MAXIMAL_CASES:
        raise _too_many()
    return tuple(cases)


def _too_many() -> NotLinear:
    return NotLinear([f"more than {MAXIMAL_CASES} cases"])
