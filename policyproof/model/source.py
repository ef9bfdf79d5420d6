"""A model together with its properties, whether it came from files or was written in Python."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from policyproof.model.automata import Exact, Model
from policyproof.model.expressions import Expression
from policyproof.model.grammar import parse_condition, parse_property
from policyproof.model.jani.model import JaniModel, read_model
from policyproof.model.jani.properties import PropertyEntry, read_predicates, read_property_entries
from policyproof.model.jani.write import write_model
from policyproof.model.json_text import dumps, read_text
from policyproof.model.properties import Property
from policyproof.run.errors import InvalidInput
from policyproof.run.files import write_atomically


@dataclass(frozen=True)
class LoadedModel:
    """What `load_model` gives: the network of automata, and its properties by name."""

    model: Model
    entries: tuple[PropertyEntry, ...] = ()
    preferred: tuple[str, ...] = field(default_factory=tuple)
    """The names of the properties that came with `properties=FILE`: one of them is meant if it is alone."""
    path: Path | None = None
    jani: JaniModel | None = None
    """What was read, for further files that speak of it."""

    def predicates(self, path: str | Path) -> tuple[Expression, ...]:
        """The predicates of a file: a JSON array of JANI conditions, or one condition as text in every line."""
        if Path(path).suffix in (".json", ".jani"):
            if self.jani is None:
                raise InvalidInput("predicates as JSON need a model that was read from a file", where=str(path))
            return read_predicates(self.jani, path)
        found = []
        for number, line in enumerate(read_text(path).splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                try:
                    found.append(parse_condition(line, self.model))
                except InvalidInput as error:
                    raise InvalidInput(str(error), where=f"{path}: line {number}") from None
        return tuple(found)

    @property
    def property_names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.entries)

    def property(self, name_or_text: str | None = None) -> Property:
        """A property by name, or as text; without either, the only one there is."""
        if name_or_text is None:
            return self._only().read()
        named = [entry for entry in self.entries if entry.name == name_or_text]
        if len(named) > 1:
            raise InvalidInput(f"there are {len(named)} properties named {name_or_text!r}")
        if named:
            return named[0].read()
        if name_or_text.replace("-", "_").isidentifier() and name_or_text not in self.model.variable_by_name:
            raise InvalidInput(f"there is no property {name_or_text!r}; {self._list('there are:')}")
        return parse_property(name_or_text, self.model)

    def _only(self) -> PropertyEntry:
        candidates = [entry for entry in self.entries if entry.name in self.preferred] or list(self.entries)
        if not candidates:
            raise InvalidInput("the model has no property; give one with --property, for example 'A[] x < 3'")
        if len(candidates) > 1:
            raise InvalidInput(f"several properties, and none was named with --property; {self._list('there are:')}")
        return candidates[0]

    def _list(self, title: str) -> str:
        if not self.entries:
            return "the model has none"
        return f"{title}\n" + "\n".join(f"  {name}" for name in self.property_names)

    def save(self, path: str | Path) -> None:
        """Write the model with its properties as a JANI file."""
        properties = [entry.read() for entry in self.entries]
        write_atomically(Path(path), dumps(write_model(self.model, properties), indent=1) + "\n")

    def fingerprint(self) -> str:
        """A hash of the model as it is meant: all constants fixed, whatever file it came from."""
        return hashlib.sha256(dumps(write_model(self.model)).encode()).hexdigest()


def load_model(
    path: str | Path,
    *,
    constants: Mapping[str, Exact | float | str] | None = None,
    properties: str | Path | None = None,
) -> LoadedModel:
    """Read a JANI model, with values for its open constants, and additional properties if there are any."""
    jani = read_model(path, constants)
    entries = read_property_entries(jani, properties)
    own = len(jani.raw_properties)
    return LoadedModel(jani.model, tuple(entries), tuple(entry.name for entry in entries[own:]), Path(path), jani)


def from_model(model: Model, properties: Sequence[Property] = ()) -> LoadedModel:
    """A model that was written in Python."""
    entries = [PropertyEntry(item.name, lambda item=item: item) for item in properties]  # type: ignore[misc]
    return LoadedModel(model, tuple(entries))
