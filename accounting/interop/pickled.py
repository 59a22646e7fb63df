"""Containers, numbers and strings out of a pickle or a PyTorch checkpoint, without executing anything in it.

A pickle is a program; `pickle.loads` runs it. This reader interprets only the instructions that build containers,
numbers and strings. A name of a class or a function becomes an `Opaque`, whatever is done with it later, and is never
looked up. So tensors and other objects of a checkpoint are skipped, and what stands beside them can be read.
"""

from __future__ import annotations

import io
import pickletools
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LARGEST = 2**26
"""Bytes of a pickle. Tensors are other members of a checkpoint, and are not read."""

_MOST_INSTRUCTIONS = 2**22
_ORDERED = "collections OrderedDict"


@dataclass(frozen=True, slots=True, eq=False)
class Opaque:
    """An object that was not built: a tensor, or anything else with a class of its own."""

    name: str


class UnreadableError(ValueError):
    """A pickle that is damaged, or has instructions that build no containers, numbers or strings."""


def is_checkpoint(path: Path) -> bool:
    """Whether a file is a zip archive with a pickle, as PyTorch writes it."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("data.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False


def read_checkpoint(path: Path) -> Any:
    """The containers, numbers and strings in a PyTorch checkpoint.

    Raises:
        UnreadableError: one line, if the file is damaged or too large.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith("data.pkl")]
            with archive.open(name) as file:
                content = file.read(LARGEST + 1)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError, EOFError):
        raise UnreadableError("is not a checkpoint that PyTorch writes, or is damaged") from None
    return values(content)


def values(content: bytes) -> Any:
    """What a pickle holds: dictionaries, lists, tuples, sets, numbers, texts, bytes, None, and `Opaque` for all else.

    Args:
        content: of the pickle, at most `LARGEST` bytes.

    Raises:
        UnreadableError: one line, if it is damaged, too large, or has other instructions.
    """
    if len(content) > LARGEST:
        raise UnreadableError(f"holds a pickle of more than {LARGEST} bytes; save the state of the accountant alone")
    try:
        return _Reader().run(_instructions(content))
    except UnreadableError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, EOFError, OverflowError, MemoryError):
        raise UnreadableError("holds a pickle that is damaged") from None


def _instructions(content: bytes) -> Iterator[tuple[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in texts of old protocols
        for number, (instruction, argument, _) in enumerate(pickletools.genops(io.BytesIO(content))):
            if number >= _MOST_INSTRUCTIONS:
                raise UnreadableError("holds a pickle that is too long; save the state of the accountant alone")
            yield instruction.name, argument


_MARK = Opaque("a mark")
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": set,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
}
_LITERALS = frozenset(
    [
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    ]
)
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUT = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_GET = frozenset({"GET", "BINGET", "LONG_BINGET"})


class _Reader:
    """A stack machine for the instructions of a pickle that build values."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, instructions: Iterator[tuple[str, Any]]) -> Any:
        for name, argument in instructions:
            if name == "STOP":
                (found,) = self.stack
                return found
            self._step(name, argument)
        raise UnreadableError("holds a pickle that is damaged")

    def _step(self, name: str, argument: Any) -> None:
        if name in _LITERALS:
            self.stack.append(argument)
        elif name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        elif name in _TUPLES:
            self._push_tuple(_TUPLES[name])
        elif name in _PUT:
            self.memo[int(argument)] = self.stack[-1]
        elif name in _GET:
            self.stack.append(self.memo[int(argument)])
        elif name in ("PROTO", "FRAME"):
            return
        else:
            method = getattr(self, f"_{name.lower()}", None)
            if method is None:
                raise UnreadableError(f"holds a pickle with the instruction {name}, which builds no numbers or texts")
            method(argument)

    def _push_tuple(self, size: int) -> None:
        items = self.stack[-size:]
        if len(items) < size or _MARK in items:
            raise UnreadableError("holds a pickle that is damaged")
        del self.stack[-size:]
        self.stack.append(tuple(items))

    def _pop_mark(self) -> list[Any]:
        """What is above the last mark; both are removed."""
        items = []
        while (top := self.stack.pop()) is not _MARK:
            items.append(top)
        return items[::-1]

    def _mark(self, _: object) -> None:
        self.stack.append(_MARK)

    def _pop(self, _: object) -> None:
        self.stack.pop()

    def _dup(self, _: object) -> None:
        self.stack.append(self.stack[-1])

    def _memoize(self, _: object) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def _tuple(self, _: object) -> None:
        self.stack.append(tuple(self._pop_mark()))

    def _list(self, _: object) -> None:
        self.stack.append(self._pop_mark())

    def _dict(self, _: object) -> None:
        self.stack.append(_pairs(self._pop_mark()))

    def _append(self, _: object) -> None:
        item = self.stack.pop()
        self._extend([item])

    def _appends(self, _: object) -> None:
        self._extend(self._pop_mark())

    def _extend(self, items: list[Any]) -> None:
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(items)

    def _additems(self, _: object) -> None:
        items = self._pop_mark()
        if isinstance(self.stack[-1], set):
            self.stack[-1].update(map(_key, items))

    def _setitem(self, _: object) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._update({_key(key): value})

    def _setitems(self, _: object) -> None:
        self._update(_pairs(self._pop_mark()))

    def _update(self, items: dict[Any, Any]) -> None:
        if isinstance(self.stack[-1], dict):
            self.stack[-1].update(items)

    def _global(self, name: str) -> None:
        self.stack.append(Opaque(name))

    def _stack_global(self, _: object) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(Opaque(f"{module} {name}"))

    def _reduce(self, _: object) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        is_ordered = isinstance(function, Opaque) and function.name == _ORDERED
        if is_ordered and isinstance(arguments, tuple):
            self.stack.append({_key(key): value for items in arguments for key, value in items})  # pairs in a list
        else:
            self.stack.append(_unbuilt(function))

    def _newobj(self, _: object) -> None:
        self.stack.pop()
        self.stack.append(_unbuilt(self.stack.pop()))

    def _build(self, _: object) -> None:
        self.stack.pop()  # attributes of an object that is not built

    def _binpersid(self, _: object) -> None:
        self.stack.pop()
        self.stack.append(Opaque("a tensor"))


def _unbuilt(function: object) -> Opaque:
    return function if isinstance(function, Opaque) else Opaque("an object")


def _pairs(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise UnreadableError("holds a pickle that is damaged")
    return dict(zip(map(_key, items[::2]), items[1::2], strict=True))


def _key(item: object) -> object:
    """A key that is quickly hashed: tuples may be nested deeper than the interpreter bears."""
    return item if item is None or isinstance(item, str | int | float | bytes) else Opaque("a key")
