"""What all parts of the JANI reader share: places, checks by schema, and the list of unsupported features.

Idea: an error in the file stops the reading with its JSON path; an unsupported feature does not.
It is noted, the part that uses it becomes `None`, and everything built from that part becomes
`None` too, so that one reading finds all unsupported features of a file.  Constants that still
need a value are gathered in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from policyproof.model.json_text import Document, Json
from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature

_TYPE_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "true or false", int: "an integer"}


class Reader:
    """Checks one JSON document by schema, and gathers what is unsupported or missing in it."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.unsupported_features: list[Feature] = []
        self.missing_constants: dict[str, None] = {}

    def path(self, container: Json, key: str | int | None = None) -> str:
        return self.document.path_of(container, key)

    def invalid(self, container: Json, key: str | int | None, message: str) -> InvalidInput:
        return InvalidInput(message, where=self.path(container, key))

    def unsupported(self, container: Json, key: str | int | None, what: str) -> None:
        self.unsupported_features.append(Feature(self.path(container, key), what))

    @contextmanager
    def locating(self, container: Json, key: str | int | None = None) -> Iterator[None]:
        """Give errors raised inside (by code that knows no JSON) the place of this value."""
        try:
            yield
        except InvalidInput as error:
            if error.where is not None:
                raise
            raise self.invalid(container, key, error.message) from None

    def finish(self) -> None:
        """Raise if anything was unsupported or missing."""
        if self.unsupported_features:
            raise UnsupportedFeature(self.unsupported_features)
        if self.missing_constants:
            names = ", ".join(sorted(self.missing_constants))
            example = next(iter(sorted(self.missing_constants)))
            raise InvalidInput(
                f"constants without a value: {names} (give each with --const, for example --const {example}=1)",
                where=self.document.name,
            )

    def object(self, value: Json, container: Json, key: str | int | None, *, keys: frozenset[str]) -> dict[str, Json]:
        """`value` as an object; keys that are not known could mean anything, so they are unsupported."""
        if not isinstance(value, dict):
            raise self._wrong_type(container, key, dict, value)
        for name in value:
            if name not in keys and name not in ("comment", "metadata"):
                self.unsupported(value, name, f"the key {name!r} (known here: {', '.join(sorted(keys))})")
        return value

    def get(self, container: dict[str, Json], key: str, kind: type, *, default: Json = ...) -> Json:
        """The entry `key`, which must have the given type; it may be absent if there is a default."""
        if key not in container:
            if default is ...:
                raise self.invalid(container, None, f"the entry {key!r} is missing")
            return default
        value = container[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self._wrong_type(container, key, kind, value)
        return value

    def one_of(
        self, container: Json, key: str | int, value: Json, allowed: Iterator[str] | list[str], what: str
    ) -> None:
        names = list(allowed)
        if value not in names:
            shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
            raise self.invalid(container, key, f"unknown {what} {value!r} (there are: {shown or 'none'})")

    def _wrong_type(self, container: Json, key: str | int | None, expected: type, value: Json) -> InvalidInput:
        found = _TYPE_NAMES.get(type(value), "null" if value is None else "a number")
        return self.invalid(container, key, f"expected {_TYPE_NAMES[expected]}, found {found}")
