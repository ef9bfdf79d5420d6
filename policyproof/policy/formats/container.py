"""The outermost layer of a network file: its bytes, a zip archive, a JSON text.

Idea: these files come from anywhere.  They are read into memory once, below a limit; a member of an
archive is never inflated further than the size it declares, and the members together not beyond the
limit, so that a small file cannot fill the memory.

Invariant: whatever the bytes are, the only errors are `InvalidInput` and `UnsupportedFeature`.
"""

from __future__ import annotations

import io
import json
import lzma
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

from policyproof.run.errors import InvalidInput

LARGEST = 256 * 2**20
"""Bytes that one file may have, as it is and unpacked; policies of Dense layers are far smaller."""

_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    KeyError,
    # An unknown compression method, and a password that is missing.
    NotImplementedError,
    RuntimeError,
)


def read_bytes(path: str | Path) -> bytes:
    """The whole file."""
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise InvalidInput(f"{size} bytes, more than the {LARGEST} that are read", where=str(path))
        return path.read_bytes()
    except FileNotFoundError:
        raise InvalidInput("no such file", where=str(path)) from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot be read: {error}", where=str(path)) from None


def is_zip(content: bytes) -> bool:
    """Whether the bytes begin as a zip archive does."""
    return content[:4] in (b"PK\x03\x04", b"PK\x05\x06")


class Allowance:
    """The memory that one file may still take: small files can describe very large things."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._left = LARGEST

    def take(self, size: int) -> None:
        """Account for this many bytes, before they are allocated."""
        self._left -= size
        if self._left < 0:
            raise InvalidInput(f"more than {LARGEST} bytes when unpacked", where=self.where)


class Archive:
    """The members of a zip archive, by name."""

    def __init__(self, content: bytes, where: str) -> None:
        self.where = where
        self._allowance = Allowance(where)
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
        except _ZIP_ERRORS as error:
            raise InvalidInput(f"not a zip archive, or a damaged one: {error}", where=where) from None
        self._members: dict[str, zipfile.ZipInfo] = {}
        for member in self._zip.infolist():
            # Readers differ in which of two namesakes they take: the policy would not be the deployed one.
            if member.filename in self._members:
                raise InvalidInput(f"the archive holds {member.filename!r} twice", where=where)
            self._members[member.filename] = member

    @property
    def names(self) -> list[str]:
        return list(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def read(self, name: str) -> bytes:
        """The bytes of one member, exactly as many as it declares."""
        if name not in self._members:
            raise InvalidInput(f"the archive has no member {name!r}", where=self.where)
        member = self._members[name]
        self._allowance.take(member.file_size)
        try:
            with self._zip.open(member) as stream:
                # With an explicit size, because without one a whole compressed block is inflated at once.
                content = stream.read(member.file_size)
        except _ZIP_ERRORS as error:
            raise InvalidInput(f"the member {name!r} is damaged: {error}", where=self.where) from None
        if len(content) != member.file_size:
            raise InvalidInput(f"the member {name!r} is truncated", where=self.where)
        return content


def parse_json(text: bytes | str, where: str) -> Any:
    """JSON as Python's writer makes it: with NaN and Infinity, which libraries do write."""
    try:
        return json.loads(text)
    except RecursionError:
        raise InvalidInput("not read: JSON that is nested too deeply", where=where) from None
    except ValueError as error:
        raise InvalidInput(f"not valid JSON: {error}", where=where) from None
