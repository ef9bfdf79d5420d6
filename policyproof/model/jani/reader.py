"""What all parts of the JANI reader share: places, checks by schema, and the list of unsupported features.

Idea: an error in the file stops the reading with its JSON path; an unsupported feature does not.
It is noted, the part that uses it becomes `None`, and everything built from that part becomes
`None` too, so that one reading finds all unsupported features of a file.  Constants that still
need a value are gathered in the same way.

Invariant: every entry is checked where it is read, so that code behind a check may rely on its
type; a message shows values of bounded size only, whatever stands in the file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from policyproof.model.json_text import Document, Json
from policyproof.run.errors import Feature, InvalidInput, UnsupportedFeature

COMMENTS = frozenset(["comment", "metadata"])
"""Entries that may stand in any object and say nothing."""

_TYPE_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "true or false", int: "an integer"}
_SHOWN_NAMES = 12
_SHOWN_LENGTH = 200


class Reader:
    """Checks one JSON document by schema, and gathers what is unsupported or missing in it."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.missing_constants: dict[str, None] = {}
        self._unsupported: list[tuple[Json, str | int | None, str]] = []

    def path(self, container: Json, key: str | int | None = None) -> str:
        return self.document.path_of(container, key)

    def invalid(self, container: Json, key: str | int | None, message: str) -> InvalidInput:
        return InvalidInput(message, where=self.path(container, key))

    def missing(self, container: Json, key: str) -> InvalidInput:
        return self.invalid(container, None, f"the entry {key!r} is missing")

    def unsupported(self, container: Json, key: str | int | None, what: str) -> None:
        self._unsupported.append((container, key, what))

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
        if self._unsupported:
            paths = self.document.paths_of([(container, key) for container, key, _ in self._unsupported])
            whats = [what for _, _, what in self._unsupported]
            raise UnsupportedFeature(Feature(path, what) for path, what in zip(paths, whats, strict=True))
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
            if name not in keys and name not in COMMENTS:
                self.unsupported(value, name, f"the key {shown(name)} (known here: {', '.join(sorted(keys))})")
        return value

    def objects(
        self, container: dict[str, Json], key: str, *, keys: frozenset[str], optional: bool = True
    ) -> list[dict[str, Json]]:
        """The array `key`, all of whose elements must be objects with the given keys."""
        items = self.get(container, key, list, default=[]) if optional else self.get(container, key, list)
        return [self.object(item, items, position, keys=keys) for position, item in enumerate(items)]

    def texts(self, items: list[Json]) -> list[str]:
        """The elements of an array, all of which must be strings."""
        for position, item in enumerate(items):
            if not isinstance(item, str):
                raise self._wrong_type(items, position, str, item)
        return items

    def strings(
        self, container: dict[str, Json], key: str, allowed: Collection[str], what: str, *, optional: bool = True
    ) -> list[str]:
        """The array `key`, all of whose elements must be among the allowed strings."""
        items: list[Json] = self.get(container, key, list, default=[]) if optional else self.get(container, key, list)
        for position, item in enumerate(items):
            self.one_of(items, position, item, allowed, what)
        return items

    def get(self, container: dict[str, Json], key: str, kind: type, *, default: Json = ...) -> Json:
        """The entry `key`, which must have the given type; it may be absent if there is a default."""
        if key not in container:
            if default is ...:
                raise self.missing(container, key)
            return default
        value = container[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self._wrong_type(container, key, kind, value)
        return value

    def choice(
        self, container: dict[str, Json], key: str, allowed: Collection[str], what: str, *, default: str | None = None
    ) -> str:
        """The entry `key`, which must be one of the allowed strings."""
        name: str = self.get(container, key, str, **({} if default is None else {"default": default}))
        self.one_of(container, key, name, allowed, what)
        return name

    def one_of(self, container: Json, key: str | int, value: Json, allowed: Collection[str], what: str) -> None:
        if not isinstance(value, str) or value not in allowed:
            names = list(allowed)
            listed = ", ".join(names[:_SHOWN_NAMES]) + (", ..." if len(names) > _SHOWN_NAMES else "")
            raise self.invalid(container, key, f"unknown {what} {shown(value)} (there are: {listed or 'none'})")

    def _wrong_type(self, container: Json, key: str | int | None, expected: type, value: Json) -> InvalidInput:
        found = _TYPE_NAMES.get(type(value), "null" if value is None else "a number")
        return self.invalid(container, key, f"expected {_TYPE_NAMES[expected]}, found {found}")


def shown(value: Json) -> str:
    """A JSON value as a message shows it: what nests is only named, and what is long is cut."""
    if isinstance(value, (dict, list)):
        return _TYPE_NAMES[type(value)]
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "…"
