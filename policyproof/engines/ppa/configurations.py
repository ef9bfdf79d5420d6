"""The configurations of Algorithm 1 (ICAPS22, table 1, and table 2 of the appendix), and the native one.

All but `Mar` are exact: they build the same abstraction and differ in which optional tests they make, and
which solver makes them.  `Mar` drops the exact tests; what its continuous relaxation cannot refute counts as
a transition, so it builds an over-approximation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from policyproof.run.errors import InvalidInput

NATIVE = "native"
_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Configuration:
    """Which tests of Algorithm 1 are made, and by which back ends of the oracle."""

    name: str
    relaxed: str | None
    """The back end of the continuously relaxed tests; None: they are not made."""
    exact: str | None
    """The back end of the exact tests."""
    exact_options: Mapping[str, Any] = field(default_factory=lambda: _NO_OPTIONS)
    relaxed_selection: bool = False
    """Line 2."""
    selection: bool = False
    """Line 3."""
    relaxed_applicability: bool = False
    """Line 6."""
    applicability: bool = False
    """Line 7."""

    @property
    def over_approximates(self) -> bool:
        return self.exact is None


_MARABOU, _BRANCH_AND_BOUND = "marabou-relaxed", "marabou"
# Z3 alone gets every activation as a case distinction, as in the paper's appendix C.
_PLAIN = MappingProxyType({"cases": "none"})

CONFIGURATIONS: Mapping[str, Configuration] = {
    item.name: item
    for item in (
        Configuration("Base", None, "z3", _PLAIN),
        Configuration("Mar+Z3", _MARABOU, "z3", _PLAIN),
        Configuration("Mar+Z3(Mar)", _MARABOU, "marabou-z3"),
        Configuration("BnB(Mar)", _MARABOU, _BRANCH_AND_BOUND),
        Configuration("Mar", _MARABOU, None),
        Configuration("No-Sel-No-App", _MARABOU, _BRANCH_AND_BOUND),
        Configuration("No-Sel-Rel-App", _MARABOU, _BRANCH_AND_BOUND, relaxed_applicability=True),
        Configuration("Rel-Sel-No-App", _MARABOU, _BRANCH_AND_BOUND, relaxed_selection=True),
        Configuration(
            "Rel-Sel-Rel-App", _MARABOU, _BRANCH_AND_BOUND, relaxed_selection=True, relaxed_applicability=True
        ),
        Configuration(
            "Ex-Sel-Ex-App",
            _MARABOU,
            _BRANCH_AND_BOUND,
            relaxed_selection=True,
            selection=True,
            relaxed_applicability=True,
            applicability=True,
        ),
    )
}
NAMES = (NATIVE, *CONFIGURATIONS)


def check_configuration(name: str) -> None:
    """Refuse a name that is none of `NAMES`."""
    if name not in NAMES:
        raise InvalidInput(f"there is no configuration {name!r} (there are: {', '.join(NAMES)})")
