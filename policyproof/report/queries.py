"""`policyproof vnn`: a network and a VNN-LIB property, answered in the words of the standard.

The first line is the result word; after `sat` follows the confirmed input with its outputs, as the
verification competition writes counterexamples.  Inputs are written so that reading the decimals as
float64 gives them back, and say in a note where a decimal is only near the exact input.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

from policyproof.encodings.vnnlib import read_vnnlib
from policyproof.model.enclosures import Enclosure, ends
from policyproof.oracle.output_query import QueryAnswer, decide
from policyproof.oracle.witnesses import Witness
from policyproof.policy.formats import read_network
from policyproof.run.budget import Budget
from policyproof.run.errors import ResourceExhausted
from policyproof.run.interrupt import stopping
from policyproof.version import __version__

SCHEMA = "policyproof-vnn-1"


def answer_query(network: Path, query: Path, budget: Budget, *, activation: str | None, seed: int) -> QueryAnswer:
    """Read both files and decide; what was stopped from outside is no answer, and says why."""
    try:
        with stopping(budget) as begun:
            loaded, asked = read_network(network, activation=activation), read_vnnlib(query)
            begun()
            return decide(loaded, asked, budget=budget, seed=seed)
    except (ResourceExhausted, MemoryError) as error:
        over = budget.remaining <= 0 and not budget.cancelled.is_set()
        return QueryAnswer("timeout" if over else "unknown", str(error) or "out of memory")


def result_text(answer: QueryAnswer) -> str:
    """The result word, and the counterexample of a `sat`."""
    lines = [str(answer.result)]
    if answer.witness is not None:
        named = [("X", answer.witness.inputs), ("Y", answer.witness.outputs)]
        pairs = [
            f"({letter}_{index} {_decimal(value)})" for letter, values in named for index, value in enumerate(values)
        ]
        lines.append("(" + "\n ".join(pairs) + ")")
    return "\n".join(lines) + "\n"


def notes(answer: QueryAnswer) -> list[str]:
    """What a person should know beside the result."""
    found = [answer.reason] if answer.reason else []
    if answer.witness is not None and not answer.witness.deployed_agrees:
        found.append("the input satisfies the property over the real numbers, but not as computed in float32")
    if answer.witness is not None and any(Fraction(_float(value)) != value for value in answer.witness.inputs):
        found.append("the input is no float: its decimals are rounded (--json has it exactly)")
    return found


def result_json(answer: QueryAnswer, seconds: float, seed: int) -> dict[str, Any]:
    value: dict[str, Any] = {
        "schema": SCHEMA,
        "result": answer.result,
        "reason": answer.reason,
        "arithmetic": "real",
        "witness": None if answer.witness is None else _witness_json(answer.witness),
        "statistics": answer.statistics,
        "versions": {"policyproof": __version__},
        "seed": seed,
        "seconds": seconds,
    }
    return value


def _witness_json(witness: Witness) -> dict[str, Any]:
    return {
        "inputs": [_float(value) for value in witness.inputs],
        "exact_inputs": [str(value) for value in witness.inputs],
        "outputs": [_float(value) for value in witness.outputs],
        "deployed_outputs": [value if math.isfinite(value) else None for value in witness.deployed_outputs],
        "deployed_agrees": witness.deployed_agrees,
    }


def _float(value: Fraction | Enclosure) -> float:
    low, high = ends(value)
    return float((low + high) / 2)


def _decimal(value: Fraction | Enclosure) -> str:
    return repr(_float(value))
