"""Reading pickles without executing them.

Idea: a pickle is a program for a small stack machine, whose dangerous instructions look up a Python
object by name and call it.  Here the instructions are cut apart by `pickletools`, which executes
nothing, and the machine is our own: a name becomes a `Global`, a call becomes a `Built` that
remembers what would have been called, with what, and what would have been done to the result.  The
readers then recognise the few constructions that they know.

Invariant: no object of the file is ever looked up, called, hashed (apart from text and numbers),
compared or printed.  Names outside the reader's list are an `InvalidInput` that says the name.  The
standard `Unpickler` with a restricted `find_class` would still set attributes that the file names
on the stand-ins, and allocate what the file claims to need.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from policyproof.run.errors import InvalidInput

MAXIMAL_INSTRUCTIONS = 1_000_000
MAXIMAL_BITS = 256
"""Of an integer; random number generators keep 128."""

_CONSTANTS: dict[str, object] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERALS = frozenset(
    [
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "LONG4",
        "BINFLOAT",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "SHORT_BINBYTES",
        "BINBYTES",
        "BINBYTES8",
        "BYTEARRAY8",
        "SHORT_BINSTRING",
        "BINSTRING",
    ]
)
# A set becomes a list: its elements would have to be hashed.
_EMPTY: dict[str, Callable[[], object]] = {
    "EMPTY_LIST": list,
    "EMPTY_SET": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}
_SHORT_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_STORE = frozenset(["PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"])
_FETCH = frozenset(["GET", "BINGET", "LONG_BINGET"])


@dataclass(frozen=True)
class Global:
    """A name that a pickle refers to: a class or a function, never looked up."""

    module: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False, repr=False)
class Built:
    """What a pickle would have made by a call, and what it would have put into the result."""

    function: Global
    arguments: tuple[Any, ...]
    state: Any = None
    entries: dict[Any, Any] = field(default_factory=dict)
    elements: list[Any] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class Persistent:
    """An object that lies outside the pickle, under this identity."""

    identity: Any


class Names:
    """The names that a reader knows: full ones, and beginnings that end with a point."""

    def __init__(self, *names: str) -> None:
        self._full = frozenset(names)
        self._beginnings = tuple(name for name in names if name.endswith("."))

    def __contains__(self, path: str) -> bool:
        return path in self._full or path.startswith(self._beginnings)

    def __or__(self, other: Names) -> Names:
        return Names(*self._full, *other._full)


def read_pickle(content: bytes, names: Names, where: str) -> Any:
    """What a pickle describes: plain values, and `Global`, `Built` and `Persistent` for all else."""
    return _Machine(names, where).run(content)


def class_named_by(content: bytes, where: str) -> str | None:
    """The full name of the class that a pickle consists of; none when it is anything else."""
    names = []
    texts: list[str] = []
    for instruction, argument, _ in _instructions(content, where):
        if instruction in ("SHORT_BINUNICODE", "BINUNICODE"):
            texts.append(str(argument))
        elif instruction == "GLOBAL":
            names.append(str(argument).replace(" ", "."))
        elif instruction == "STACK_GLOBAL" and len(texts) == 2:
            names.append(".".join(texts))
        elif instruction not in ("PROTO", "FRAME", "STOP", "MEMOIZE", "BINPUT"):
            return None
    return names[0] if len(names) == 1 else None


def _instructions(content: bytes, where: str) -> list[tuple[str, Any, int]]:
    """The instructions, their arguments and positions; each argument is known to lie within the content."""
    result: list[tuple[str, Any, int]] = []
    try:
        for opcode, argument, position in pickletools.genops(content):
            result.append((opcode.name, argument, position or 0))
            if len(result) > MAXIMAL_INSTRUCTIONS:
                raise InvalidInput(f"a pickle of more than {MAXIMAL_INSTRUCTIONS} instructions", where=where)
    except ValueError as error:
        raise InvalidInput(f"a damaged pickle: {error}", where=where) from None
    return result


class _Machine:
    """The stack machine of pickle, without its powers."""

    def __init__(self, names: Names, where: str) -> None:
        self._names = names
        self._where = where
        self._stack: list[Any] = []
        self._below_marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def run(self, content: bytes) -> Any:
        for instruction, argument, position in _instructions(content, self._where):
            try:
                if instruction == "STOP":
                    return self._pop()
                self._step(instruction, argument)
            except InvalidInput:
                raise
            except (TypeError, LookupError) as error:
                # A stack that does not hold what the instruction needs.
                message = f"a damaged pickle: {instruction} at byte {position} ({type(error).__name__})"
                raise InvalidInput(message, where=self._where) from None
        raise InvalidInput("a damaged pickle: it does not stop", where=self._where)

    def _step(self, instruction: str, argument: Any) -> None:
        push = self._stack.append
        if instruction in _LITERALS:
            if isinstance(argument, int) and argument.bit_length() > MAXIMAL_BITS:
                raise InvalidInput(f"a pickle with an integer of more than {MAXIMAL_BITS} bits", where=self._where)
            push(argument)
        elif instruction in _CONSTANTS:
            push(_CONSTANTS[instruction])
        elif instruction in _EMPTY:
            push(_EMPTY[instruction]())
        elif instruction in _SHORT_TUPLES:
            push(tuple(self._pop_many(_SHORT_TUPLES[instruction])))
        elif instruction in _STORE:
            self._memo[len(self._memo) if instruction == "MEMOIZE" else argument] = self._stack[-1]
        elif instruction in _FETCH:
            push(self._memo[argument])
        elif instruction in ("GLOBAL", "STACK_GLOBAL"):
            module, name = argument.split(" ", 1) if instruction == "GLOBAL" else self._pop_many(2)
            push(self._global(module, name))
        elif instruction in ("REDUCE", "NEWOBJ"):
            function, arguments = self._pop_many(2)
            push(self._call(function, arguments))
        elif instruction == "NEWOBJ_EX":
            function, arguments, keywords = self._pop_many(3)
            if keywords:
                raise TypeError
            push(self._call(function, arguments))
        elif instruction == "BUILD":
            state = self._pop()
            self._built(self._stack[-1]).state = state
        elif instruction == "BINPERSID":
            push(Persistent(self._pop()))
        elif instruction == "MARK":
            self._below_marks.append(self._stack)
            self._stack = []
        elif instruction == "POP":
            self._pop()
        elif instruction not in ("PROTO", "FRAME"):
            self._step_with_items(instruction)

    def _step_with_items(self, instruction: str) -> None:
        """Instructions that put several values into the one below them."""
        if instruction in ("APPEND", "SETITEM"):
            items = self._pop_many(1 if instruction == "APPEND" else 2)
        elif instruction in ("APPENDS", "ADDITEMS", "SETITEMS", "TUPLE", "POP_MARK"):
            items, self._stack = self._stack, self._below_marks.pop()
        else:
            raise InvalidInput(f"a pickle with the instruction {instruction}, which is not read", where=self._where)
        if instruction == "TUPLE":
            self._stack.append(tuple(items))
        elif instruction in ("APPEND", "APPENDS", "ADDITEMS"):
            target = self._stack[-1]
            (target if isinstance(target, list) else self._built(target).elements).extend(items)
        elif instruction in ("SETITEM", "SETITEMS"):
            target = self._stack[-1]
            entries = target if isinstance(target, dict) else self._built(target).entries
            if len(items) % 2:
                raise IndexError
            for key, value in zip(items[::2], items[1::2], strict=True):
                # The hash of a tuple of tuples of tuples may take forever.
                if not isinstance(key, (str, int)):
                    raise InvalidInput("a pickle with a key that is neither text nor integer", where=self._where)
                entries[key] = value

    def _pop(self) -> Any:
        return self._stack.pop()

    def _pop_many(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise IndexError
        values = self._stack[-count:]
        del self._stack[-count:]
        return values

    def _global(self, module: Any, name: Any) -> Global:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise TypeError
        found = Global(module, name)
        if found.path not in self._names:
            raise InvalidInput(
                f"the file wants to use the class or function {found.path[:200]!r}, which is not among those that "
                "are known to be harmless; nothing of it was executed",
                where=self._where,
            )
        return found

    def _call(self, function: Any, arguments: Any) -> Built:
        if not (isinstance(function, Global) and isinstance(arguments, tuple)):
            raise TypeError
        return Built(function, arguments)

    def _built(self, value: Any) -> Built:
        if not isinstance(value, Built):
            raise TypeError
        return value
