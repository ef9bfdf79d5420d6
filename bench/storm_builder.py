"""Build the states of a JANI model with Storm's sparse builder, and print how long it took.

    PYTHON bench/storm_builder.py MODEL [NAME=VALUE ...]

A script of its own, since stormpy is no requirement of this project and may live in another
environment: it needs stormpy and nothing else.  It prints one JSON object, or `null` where stormpy
is not installed.  Parsing is not counted, everything is built, and the best of three runs is told.
"""

from __future__ import annotations

import json
import sys
import time

RUNS = 3


def build(path: str, constants: dict[str, str]) -> dict[str, float] | None:
    try:
        import stormpy
    except ImportError:
        return None
    parsed, _ = stormpy.parse_jani_model(path)
    # Storm refuses values for constants that the model does not have or has given itself.
    unknown = {constant.name for constant in parsed.constants if not constant.defined}
    definition = ",".join(f"{name}={value}" for name, value in constants.items() if name in unknown)
    core = getattr(stormpy, "developer", stormpy)  # where stormpy 2 keeps what stormpy 1 had at the top
    model = core.SymbolicModelDescription(parsed).preprocess(definition).as_jani_model()
    seconds = float("inf")
    for _ in range(RUNS):
        started = time.perf_counter()
        built = stormpy.build_model(model)
        seconds = min(seconds, time.perf_counter() - started)
    return {"states": built.nr_states, "transitions": built.nr_transitions, "seconds": seconds}


if __name__ == "__main__":
    given = dict(argument.split("=", 1) for argument in sys.argv[2:])
    print(json.dumps(build(sys.argv[1], given)))
