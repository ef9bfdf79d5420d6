"""Values of constants that the user gives, as text or as Python values; exactly as written."""

from __future__ import annotations

import re
from fractions import Fraction
from numbers import Integral

from policyproof.model.automata import Domain, Exact
from policyproof.model.expressions import decimal
from policyproof.model.jani.reader import shown
from policyproof.model.json_text import MAXIMAL_DIGITS
from policyproof.run.errors import InvalidInput

MAXIMAL_CHARACTERS = 100

_NUMBER = re.compile(
    r"[+-]?(?:[0-9]+/[0-9]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE](?P<exponent>[+-]?[0-9]{1,9}))?)", re.ASCII
)


def parse_constant(name: str, given: Exact | float | str, domain: Domain) -> Exact:
    """The value of the constant `name`, which must lie in its domain."""
    where = f"constant {name}"
    if domain.kind == "bool" and isinstance(given, str):
        if given not in ("true", "false"):
            raise InvalidInput(f"expected true or false, found {shown(given)}", where=where)
        return given == "true"
    value = given if isinstance(given, bool) else _number(given, where)
    if not isinstance(value, bool) and domain.kind == "int" and value.denominator == 1:
        value = int(value)
    if value not in domain:
        raise InvalidInput(f"the value {given} is outside the domain {domain}", where=where)
    return value


def _number(given: object, where: str) -> Exact:
    """Without building a number that is longer than numbers in files may be."""
    if isinstance(given, str):
        text = given.strip()
        if len(text) > MAXIMAL_CHARACTERS:
            raise InvalidInput(f"a number of more than {MAXIMAL_CHARACTERS} characters", where=where)
        match = _NUMBER.fullmatch(text)
        if match is not None and abs(int(match["exponent"] or 0)) <= MAXIMAL_DIGITS:
            numerator, _, denominator = text.partition("/")
            if not denominator or int(denominator) != 0:
                return Fraction(numerator) / int(denominator or 1)
    elif isinstance(given, float) and given - given == 0:
        # Not through NumPy's own notation, which is no number for the standard library.
        return decimal(float(given))
    elif isinstance(given, (Integral, Fraction)):
        value = Fraction(given)
        if abs(value.numerator) <= 10**MAXIMAL_DIGITS and value.denominator <= 10**MAXIMAL_DIGITS:
            return Fraction(int(value.numerator), int(value.denominator))
        raise InvalidInput(f"a number of more than {MAXIMAL_DIGITS} digits", where=where)
    raise InvalidInput(f"expected a number, found {shown(given)}", where=where)
