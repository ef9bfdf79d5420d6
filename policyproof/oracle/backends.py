"""All back ends of the oracle by name; what is not installed names the extra that installs it."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from policyproof.model.automata import Variable
from policyproof.model.ranges import Range
from policyproof.oracle.protocol import DecisionOracle
from policyproof.oracle.solver_backend import SolverBackend
from policyproof.policy.policy import Policy
from policyproof.run.errors import InvalidInput, PolicyProofError


@dataclass(frozen=True)
class _Entry:
    """Where a back end lives, how it is set up, and what must be installed (module, extra)."""

    module: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[tuple[str, str], ...] = ()


_MARABOU = ("maraboupy", "marabou")
_ENTRIES: dict[str, _Entry] = {
    "z3": _Entry("z3_backend", "Z3Backend"),
    "z3-relaxed": _Entry("z3_backend", "Z3Backend", {"relaxed": True}),
    "milp": _Entry("milp_backend", "MilpBackend"),
    "scip": _Entry("milp_backend", "MilpBackend", {"solver": "SCIP"}, (("pyscipopt", "scip"),)),
    "gurobi": _Entry("milp_backend", "MilpBackend", {"solver": "Gurobi"}, (("gurobipy", "gurobi"),)),
    "marabou": _Entry("marabou_backend", "MarabouBackend", needs=(_MARABOU,)),
    "marabou-relaxed": _Entry("marabou_backend", "MarabouBackend", {"relaxed": True}, (_MARABOU,)),
    "marabou-z3": _Entry("marabou_backend", "MarabouZ3Backend", needs=(_MARABOU,)),
}
SOLVERS = tuple(_ENTRIES)
BACKENDS = ("native", *SOLVERS)


class NotInstalled(PolicyProofError):
    """A back end whose solver is missing: a matter of the installation, not of the question."""


def installed(name: str) -> bool:
    """Can this back end be used here?"""
    return name == "native" or not _missing(_entry(name))


def make_oracle(
    name: str,
    policy: Policy,
    variables: Sequence[Variable],
    *,
    box: Mapping[str, Range] | None = None,
    seed: int = 0,
    **options: Any,
) -> DecisionOracle:
    """The back end of this name, one of `BACKENDS`; for the options see its class."""
    if name == "native":
        from policyproof.oracle.native import NativeOracle

        return NativeOracle(policy, variables, box, seed=seed, **options)
    return make_solver(name, policy, variables, box=box, seed=seed, **options)


def make_solver(
    name: str,
    policy: Policy,
    variables: Sequence[Variable],
    *,
    box: Mapping[str, Range] | None = None,
    question_seconds: float | None = None,
    seed: int = 0,
    **options: Any,
) -> SolverBackend:
    """The back end around a solver of this name, one of `SOLVERS`; it is to be closed.

    `question_seconds` limits each solver call, beside the budget of the whole.
    """
    entry = _entry(name)
    missing = _missing(entry)
    if missing:
        module, extra = missing[0]
        raise NotInstalled(f"the back end {name} needs {module}: pip install 'policyproof[{extra}]'")
    home = importlib.import_module(f"policyproof.oracle.{entry.module}")
    backend: SolverBackend = getattr(home, entry.name)(
        policy, variables, box=box, question_seconds=question_seconds, seed=seed, **{**entry.options, **options}
    )
    return backend


def _entry(name: str) -> _Entry:
    if name not in _ENTRIES:
        raise InvalidInput(f"no back end {name!r} (there are: {', '.join(BACKENDS)})")
    return _ENTRIES[name]


def _missing(entry: _Entry) -> list[tuple[str, str]]:
    return [need for need in entry.needs if importlib.util.find_spec(need[0]) is None]
