"""`policyproof zoo`: the benchmarks by name, what each of them is, and its files."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from policyproof.model.flat import flatten
from policyproof.model.properties import FormulaProperty, SafetyProperty
from policyproof.model.source import LoadedModel
from policyproof.model.text import format_formula
from policyproof.report.terminal import console
from policyproof.run.errors import InvalidInput
from policyproof.zoo.registry import NAMES_OF_TYPES, Benchmark, Parameter, find, names

POLICIES = Path(__file__).parent.parent / "zoo" / "policies"


def list_benchmarks() -> None:
    """All names, with a line each."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name in names():
        benchmark = find(name)
        preset = ", ".join(f"{parameter}={_text(value)}" for parameter, value in benchmark.preset.items())
        table.add_row(Text(name, "bold"), Text.assemble(benchmark.summary, (f"  {preset}" if preset else "", "dim")))
    console().print(table)


def show_benchmark(name: str, given: Sequence[str]) -> None:
    """What a benchmark models, its parameters, and what its model consists of."""
    benchmark = find(name)
    parameters = benchmark.read(_named(given))
    model = benchmark.model(**parameters)
    out = console()
    out.print(Text(benchmark.description), "")
    out.print(_section("parameters", _parameter_rows(benchmark, parameters)))
    out.print(_section("model", _model_rows(benchmark, parameters, model)))
    for prop in model.property_names:
        out.print(_section("property", _property_rows(model, prop)))


def write_benchmark(name: str, given: Sequence[str], out: Path) -> list[Path]:
    """Write NAME.jani, and the policies that come with the benchmark; the files that were written."""
    benchmark = find(name)
    parameters = benchmark.read(_named(given))
    model = benchmark.model(**parameters)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"no folder can be made here: {error.strerror}", where=str(out)) from None
    written = [out / f"{name}.jani"]
    model.save(written[0])
    # Policies belong to the model as it is under this name.
    for source in [] if parameters else policy_files(name):
        target = out / source.relative_to(POLICIES)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
        written.append(target)
    return written


def policy_files(name: str) -> list[Path]:
    """The bundled policies of a benchmark: files NAME.* and NAME-*, and all in a folder NAME."""
    longer = [other for other in names() if other.startswith(f"{name}-")]
    files = [
        file
        for file in POLICIES.glob(f"{name}[-.]*")
        if file.is_file() and not any(file.name.startswith((f"{other}-", f"{other}.")) for other in longer)
    ]
    inside = [file for file in (POLICIES / name).rglob("*") if file.is_file()]
    return sorted([*files, *inside])


def _named(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise InvalidInput(f"expected NAME=VALUE, found {item!r}", where="--param")
        found[name] = value
    return found


def _section(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 2), title=title, title_justify="left")
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    return table


def _parameter_rows(benchmark: Benchmark, given: Mapping[str, Parameter]) -> Iterable[tuple[str, str]]:
    for name, parameter in benchmark.parameters.items():
        kinds = " or ".join(NAMES_OF_TYPES[kind] for kind in benchmark.types(name))
        yield name, f"{_text(given.get(name, parameter.default))}  ({kinds})"


def _text(value: Parameter) -> str:
    """As it is written on the command line."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _model_rows(
    benchmark: Benchmark, parameters: Mapping[str, Parameter], model: LoadedModel
) -> Iterable[tuple[str, str]]:
    flat = flatten(model.model)
    yield "name", model.model.name
    yield "labels", ", ".join(flat.labels)
    yield "operators", f"{len(flat.operators):,}"
    sizes = [item.domain.size for item in flat.variables]
    variables = [item for item in flat.variables if item.domain.size != 1]
    yield "variables", f"{len(variables)}: " + ", ".join(f"{item.name} {item.domain}" for item in variables)
    if all(size is not None for size in sizes):
        yield "assignments", f"{_count(math.prod(size for size in sizes if size is not None))} within the domains"
    states = benchmark.state_count(**parameters)
    if states is not None:
        costs = ", cost counters not counted" if "step_cost" in flat.names else ""
        yield "states", f"{_count(states)} can be reached if any label may be taken{costs}"
    yield "policies", ", ".join(str(file.relative_to(POLICIES)) for file in policy_files(benchmark.name)) or "none yet"


def _count(number: int) -> str:
    """Numbers that nobody can read are rounded."""
    if number < 10**12:
        return f"{number:,}"
    power = int(math.log10(number))
    return f"{number // 10 ** (power - 2) / 100:.2f}e+{power}"


def _property_rows(model: LoadedModel, name: str) -> Iterable[tuple[str, str]]:
    prop = model.property(name)
    yield "name", prop.name
    if isinstance(prop, FormulaProperty):
        yield "formula", format_formula(prop.formula)
    if isinstance(prop, SafetyProperty):
        start = "the initial states" if prop.start is None else str(prop.start)
        yield "start", start + (", and the initial states" if prop.start is not None and prop.include_initial else "")
        yield "unsafe", str(prop.unsafe)
        if prop.goal is not None:
            yield "goal", str(prop.goal)
