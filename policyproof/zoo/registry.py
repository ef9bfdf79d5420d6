"""The benchmarks by name.

A benchmark is a generator, a function with keyword parameters that gives a `LoadedModel`, under a name
that fixes some of its parameters.  A name may have a place for one parameter: `blocksworld-{blocks}`
stands for `blocksworld-4`, `blocksworld-17`, and so on.

To add one, write the generator in a module of its own (its docstring is what `zoo show` prints) and
add a line to `BENCHMARKS`.  Parameters are of the types in `PARAMETER_TYPES`, and have defaults unless
the name fixes them.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from policyproof.model.source import LoadedModel
from policyproof.run.errors import InvalidInput
from policyproof.zoo.blocksworld import arrangements as block_arrangements
from policyproof.zoo.blocksworld import blocksworld
from policyproof.zoo.cartpole import cartpole
from policyproof.zoo.cruise_control import cruise_control
from policyproof.zoo.pendulum import pendulum
from policyproof.zoo.racetrack import positions, racetrack
from policyproof.zoo.sliding_tiles import arrangements as tile_arrangements
from policyproof.zoo.sliding_tiles import sliding_tiles
from policyproof.zoo.transport import distributions, transport
from policyproof.zoo.verticalcas import verticalcas
from policyproof.zoo.warehouse import warehouse

Parameter = bool | int | float | Fraction | str | tuple[int, ...] | tuple[float, ...] | None
PLACE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Benchmark:
    """A generator under a name."""

    name: str
    generator: Callable[..., LoadedModel]
    preset: Mapping[str, Parameter] = field(default_factory=lambda: MappingProxyType({}))
    """The parameters that the name fixes; others may still be given."""
    listed: tuple[int, ...] = ()
    """For a name with a place: the values of which `zoo list` shows the names."""
    states: Callable[..., int] | None = None
    """How many states can be reached from the start states, cost counters projected away, from the same parameters."""

    @property
    def place(self) -> str | None:
        """The parameter that the name has a place for."""
        found = PLACE.search(self.name)
        return None if found is None else found.group(1)

    @property
    def summary(self) -> str:
        """What it models, in a line: the first of the module's docstring."""
        module = inspect.getmodule(self.generator)
        return (inspect.getdoc(module) or "").partition("\n")[0]

    @property
    def description(self) -> str:
        """What it models: the module's docstring."""
        return inspect.getdoc(inspect.getmodule(self.generator)) or ""

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """All parameters, with their defaults under this name."""
        found = dict(inspect.signature(self.generator).parameters)
        return {
            name: item.replace(default=self.preset[name]) if name in self.preset else item
            for name, item in found.items()
        }

    def model(self, **parameters: Parameter) -> LoadedModel:
        """Generate the model."""
        self._check(parameters)
        return self.generator(**{**self.preset, **parameters})

    def state_count(self, **parameters: Parameter) -> int | None:
        """How many states can be reached from the start states without a policy, if there is a formula."""
        self._check(parameters)
        return None if self.states is None else self.states(**{**self.preset, **parameters})

    def read(self, texts: Mapping[str, str]) -> dict[str, Parameter]:
        """Values for parameters as they are written on a command line."""
        self._check(texts)
        return {name: _value(text, self.types(name), where=name) for name, text in texts.items()}

    def types(self, name: str) -> tuple[Any, ...]:
        """The types that a parameter may have."""
        hint = typing.get_type_hints(self.generator)[name]
        if hint in PARAMETER_TYPES:
            return (hint,)
        # `none` is read as nothing before any other type sees it.
        kinds = sorted(typing.get_args(hint), key=lambda kind: kind is not type(None))
        assert all(kind in PARAMETER_TYPES for kind in kinds), f"{self.name}: parameter {name} has the type {hint}"
        return tuple(kinds)

    def _check(self, names: Mapping[str, Any]) -> None:
        for name in names:
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise InvalidInput(f"there is no parameter {name!r} (there are: {known})", where=self.name)


def _value(text: str, kinds: tuple[Any, ...], *, where: str) -> Parameter:
    """A parameter from its text, by the types that the generator declares."""
    for kind in kinds:
        try:
            return PARAMETER_TYPES[kind](text)
        except (ValueError, ZeroDivisionError):
            continue
    allowed = " or ".join(NAMES_OF_TYPES[kind] for kind in kinds)
    raise InvalidInput(f"expected {allowed}, found {text!r}", where=where)


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _nothing(text: str) -> None:
    if text != "none":
        raise ValueError(text)


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",")) if text else ()


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(",")) if text else ()


PARAMETER_TYPES: Mapping[Any, Callable[[str], Parameter]] = {
    type(None): _nothing,
    bool: _truth,
    int: int,
    Fraction: Fraction,
    float: float,
    str: str,
    tuple[int, ...]: _integers,
    tuple[float, ...]: _numbers,
}
NAMES_OF_TYPES: Mapping[Any, str] = {
    type(None): "none",
    bool: "true or false",
    int: "an integer",
    Fraction: "a number",
    float: "a number",
    str: "a word",
    tuple[int, ...]: "integers with commas between them",
    tuple[float, ...]: "numbers with commas between them",
}

RACES: Mapping[str, Mapping[str, Parameter]] = {
    "": {},
    "-slippery": {"slippery": Fraction(1, 10)},
    "-trajectory": {"trajectory": True},
}

BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark("blocksworld-{blocks}", blocksworld, listed=(4, 6, 8, 10), states=block_arrangements),
    # In ICAPS22 costs go up to 12 for 6 blocks, and to 8 for 8: so many predicates has the largest set.
    Benchmark("blocksworld-8", blocksworld, {"blocks": 8, "cost_bound": 8}, states=block_arrangements),
    Benchmark("8-puzzle", sliding_tiles, states=tile_arrangements),
    Benchmark(
        "15-puzzle", sliding_tiles, {"width": 4, "height": 4, "parts": (12, 3)}, states=tile_arrangements
    ),
    *(
        Benchmark(f"racetrack-{track}{variant}", racetrack, {"track_name": track, **preset}, states=positions)
        for track in ("barto-small", "barto-big")
        for variant, preset in RACES.items()
    ),
    Benchmark("transport", transport, states=distributions),
    Benchmark("transport-{packages}", transport, listed=(10, 20, 50), states=distributions),
    Benchmark("warehouse", warehouse),
    Benchmark("cruise-control", cruise_control),
    Benchmark("verticalcas", verticalcas),
    Benchmark("pendulum", pendulum),
    Benchmark("cartpole", cartpole),
)  # fmt: skip


def find(name: str) -> Benchmark:
    """A benchmark by its name; a place in the name is filled and becomes a preset."""
    for benchmark in BENCHMARKS:
        if benchmark.name == name:
            return benchmark
    for benchmark in BENCHMARKS:
        if benchmark.place is not None:
            before, _, after = re.split(r"(\{\w+\})", benchmark.name)
            found = re.fullmatch(re.escape(before) + r"([1-9]\d*)" + re.escape(after), name)
            if found is not None:
                preset = {**benchmark.preset, benchmark.place: int(found.group(1))}
                return Benchmark(name, benchmark.generator, preset, states=benchmark.states)
    raise InvalidInput(f"there is no benchmark {name!r}; there are: {', '.join(names())}")


def names() -> tuple[str, ...]:
    """The names that are listed: of a name with a place, some."""
    found: list[str] = []
    for benchmark in BENCHMARKS:
        if benchmark.place is None:
            found.append(benchmark.name)
        else:
            found.extend(PLACE.sub(str(value), benchmark.name) for value in benchmark.listed)
    return tuple(dict.fromkeys(found))


def model(name: str, **parameters: Parameter) -> LoadedModel:
    """The model of a benchmark."""
    return find(name).model(**parameters)
