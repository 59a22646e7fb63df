"""Containers, numbers and strings out of a pickle or a PyTorch checkpoint, without executing anything in it.

A pickle is a program; `pickle.loads` runs it. This reader interprets only the instructions that build containers,
numbers and strings. A name of a class or a function becomes an `Opaque`, whatever is done with it later, and is never
looked up. So tensors and other objects of a checkpoint are skipped, and what stands beside them can be read. Single
numbers of NumPy and of PyTorch are the exception: they are decoded from their bytes, and become numbers of Python.

PyTorch wrote checkpoints as a sequence of pickles with the tensors behind them until version 1.6, and still does if it
is asked to; since then they are zip archives.

Source: `_legacy_save` and `_save` in `torch/serialization.py` of PyTorch 2.13; `__reduce__` of NumPy's scalars, dtypes.
"""

from __future__ import annotations

import functools
import io
import pickletools
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

LARGEST = 2**26
"""Bytes of a pickle. Tensors are other members of a checkpoint, and are not read."""

_MAX_INSTRUCTIONS = 2**22
_MAX_SCALARS = 10_000
_MAX_INNER = 1000
_LARGEST_INNER = 2**12
_FURTHEST = 2**16
_MAGIC = 0x1950A86A20F9469CFC6C
"""What PyTorch writes as the first of the pickles of a checkpoint that is no zip archive."""

_ALONE = "save the state of the accountant alone, as JSON: json.dumps(accountant.state_dict(), default=float)"


@dataclass(frozen=True, slots=True, eq=False)
class Opaque:
    """An object that was not built: a tensor, or anything else with a class of its own."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class _Storage(Opaque):
    """The numbers of a tensor, which stand elsewhere."""

    code: str  # of their type; "" if it is not known here
    size: int  # how many there are
    read: Callable[[int, int], bytes]  # the bytes from an offset on, so many; fewer where there are none


@dataclass(slots=True, eq=False)
class _NumberType:
    """A dtype of NumPy; little-endian unless it says otherwise."""

    code: str
    order: str = "<"


class UnreadableError(ValueError):
    """A pickle that is damaged, or has instructions that build no containers, numbers or strings."""


def is_checkpoint(file: Path | BinaryIO) -> bool:
    """Whether a file is a zip archive with a pickle, as PyTorch writes it."""
    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith("data.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False


def read_checkpoint(file: Path | BinaryIO) -> Any:
    """The containers, numbers and strings in a PyTorch checkpoint that is a zip archive, or an `UnreadableError`."""
    try:
        with zipfile.ZipFile(file) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith("data.pkl")]
            with archive.open(name) as member:
                content = member.read(LARGEST + 1)
            folder = name.removesuffix("data.pkl")
            order = archive.read(f"{folder}byteorder") if f"{folder}byteorder" in archive.namelist() else b"little"
            stored = _Members(archive, folder) if order == b"little" else None
            return _read(io.BytesIO(content), stored)
    except UnreadableError:
        raise
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, NotImplementedError, RuntimeError, EOFError):
        raise UnreadableError("is not a checkpoint that PyTorch writes, or is damaged") from None


@dataclass(frozen=True, slots=True)
class _Members:
    """The numbers of tensors in an archive, by key."""

    archive: zipfile.ZipFile
    folder: str

    def __call__(self, key: str) -> Callable[[int, int], bytes]:
        return functools.partial(self._bytes, f"{self.folder}data/{key}")

    def _bytes(self, name: str, start: int, size: int) -> bytes:
        try:
            with self.archive.open(name) as member:
                return member.read(start + size)[start:]
        except KeyError:
            return b""


def values(content: bytes) -> Any:
    """What a pickle holds: dictionaries, lists, tuples, sets, numbers, texts, bytes, None, and `Opaque` for all else.

    It may also be a checkpoint of PyTorch that is no zip archive.

    Raises:
        UnreadableError: one line, if it is damaged, too large, or has other instructions; if something stands behind
            the pickle.
    """
    return read_pickle(io.BytesIO(content))


def read_pickle(file: BinaryIO) -> Any:
    """As `values`, of a file from its beginning; tensors that stand behind the pickles of a checkpoint are not read."""
    return _read(file, None)


_Stored = Callable[[str], Callable[[int, int], bytes]]


def _read(file: BinaryIO, stored: _Stored | None, *, inner: bool = False) -> Any:
    """The value of a pickle, or of the pickles of a checkpoint; inner ones hold no others."""
    head = file.read(LARGEST + 1)
    stream = io.BytesIO(head)
    if _MAGIC.to_bytes(10, "little") in head[:64]:
        return _read_sequence(file, stream, inner)
    if len(head) > LARGEST:
        raise UnreadableError(f"holds a pickle of more than {LARGEST} bytes; {_ALONE}")
    result = _value(stream, _Reader(stored, inner=inner))
    if stream.read(1):
        raise UnreadableError(f"holds several pickles, or something else behind one; {_ALONE}")
    return result


def _read_sequence(file: BinaryIO, stream: io.BytesIO, inner: bool) -> Any:
    """The value in a checkpoint that is a sequence of pickles: magic number, version, machine, value, keys; tensors.

    The value is read twice, since where the numbers of a tensor stand follows from the sizes of those before it.
    """
    magic, version, machine = (_value(stream, _Reader(None, inner=True)) for _ in range(3))
    if magic != _MAGIC or version != 1001 or not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise UnreadableError("is not a checkpoint that PyTorch writes, or is damaged")
    start, first = stream.tell(), _Reader(None, inner=inner)
    _value(stream, first)
    keys = _value(stream, _Reader(None, inner=True))
    indices, index = {}, stream.tell()
    for key in keys if isinstance(keys, list) else ():
        known = first.storages.get(key) if isinstance(key, str) else None
        if known is None or known.code not in _SIZES:
            break  # where the next ones stand is not known
        indices[key] = index + 8  # behind their number
        index += 8 + known.size * _SIZES[known.code]
    stream.seek(start)
    return _value(stream, _Reader(functools.partial(_places_in, file, indices), inner=inner))


def _places_in(file: BinaryIO, indices: dict[str, int], key: str) -> Callable[[int, int], bytes]:
    def read(start: int, size: int) -> bytes:
        if key not in indices:
            return b""
        file.seek(indices[key] + start)
        return file.read(size)

    return read


def _value(stream: io.BytesIO, reader: _Reader) -> Any:
    """What the next pickle of a stream holds."""
    try:
        return reader.run(_instructions(stream))
    except UnreadableError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, EOFError, OverflowError, MemoryError, struct.error):
        raise UnreadableError("holds a pickle that is damaged") from None


def _instructions(stream: io.BytesIO) -> Iterator[tuple[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in texts of old protocols
        for index, (instruction, argument, _) in enumerate(pickletools.genops(stream)):
            if index >= _MAX_INSTRUCTIONS:
                raise UnreadableError(f"holds a pickle that is too long; {_ALONE}")
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
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    ]
)
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUT = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
_GET = frozenset({"GET", "BINGET", "LONG_BINGET"})


class _Reader:
    """A stack machine for the instructions of a pickle that build values.

    `stored` reads the bytes of a tensor's numbers, by its key. Of an `inner` pickle, the pickles inside are left alone.
    """

    def __init__(self, stored: _Stored | None, *, inner: bool) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[str, _Storage] = {}
        self._stored = stored
        self._scalars = 0
        self._inner = _MAX_INNER if inner else 0

    def run(self, instructions: Iterator[tuple[str, Any]]) -> Any:
        for name, argument in instructions:
            if name == "STOP":
                (result,) = self.stack
                return result
            self._step(name, argument)
        raise UnreadableError("holds a pickle that is damaged")

    def _step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _LITERALS:
            stack.append(argument)
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in _TUPLES:
            self._push_tuple(_TUPLES[name])
        elif name in _PUT:
            self.memo[len(self.memo) if name == "MEMOIZE" else int(argument)] = stack[-1]
        elif name in _GET:
            stack.append(self.memo[int(argument)])
        elif name in _CONTAINERS:
            stack.append(_CONTAINERS[name](self._pop_mark()))
        elif name not in ("PROTO", "FRAME"):
            self._build(name, argument)

    def _build(self, name: str, argument: Any) -> None:
        """An instruction that changes what is on the stack, or makes something of it."""
        stack = self.stack
        match name:
            case "MARK":
                stack.append(_MARK)
            case "POP":
                stack.pop()
            case "DUP":
                stack.append(stack[-1])
            case "APPEND":
                self._extend([stack.pop()])
            case "APPENDS":
                self._extend(self._pop_mark())
            case "ADDITEMS":
                items = self._pop_mark()
                if isinstance(stack[-1], set):
                    stack[-1].update(map(_key, items))
            case "SETITEM":
                value, key = stack.pop(), stack.pop()
                self._update({_key(key): value})
            case "SETITEMS":
                self._update(_pairs(self._pop_mark()))
            case "GLOBAL":
                stack.append(Opaque(argument))
            case "STACK_GLOBAL":
                attribute, module = stack.pop(), stack.pop()
                stack.append(Opaque(f"{module} {attribute}"))
            case "REDUCE":
                arguments, function = stack.pop(), stack.pop()
                known = function.name if isinstance(function, Opaque) else ""
                result = self._called(known, arguments) if isinstance(arguments, tuple) else None
                stack.append(_unbuilt(function) if result is None else result)
            case "NEWOBJ":
                stack.pop()
                stack.append(_unbuilt(stack.pop()))
            case "OBJ":
                stack.append(_unbuilt(self._pop_mark()[0]))
            case "INST":
                self._pop_mark()
                stack.append(Opaque(argument))
            case "BUILD":
                state, top = stack.pop(), stack[-1]  # attributes of an object that is not built
                if isinstance(top, _NumberType):
                    match state:
                        case (_, str(order), *_) if isinstance(state, tuple):
                            top.order = order
            case "BINPERSID":
                stack.append(self._stored_tensor(stack.pop()))
            case _:
                raise UnreadableError(f"holds a pickle with the instruction {name}, which builds no numbers or texts")

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

    def _extend(self, items: list[Any]) -> None:
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(items)

    def _update(self, items: dict[Any, Any]) -> None:
        if isinstance(self.stack[-1], dict):
            self.stack[-1].update(items)

    def _called(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """What a function that is known here makes of its arguments; None if it is not, or of others."""
        match name, arguments:
            case "collections OrderedDict", _:
                return {_key(key): value for items in arguments for key, value in items}  # pairs in a list
            case "_codecs encode", (str(text), "latin1"):
                return text.encode("latin1")  # bytes in old protocols
            case "__builtin__ bytes" | "builtins bytes", ():
                return b""
            case "numpy dtype", (str(code), *_):
                return _NumberType(code)
            case "numpy.core.multiarray scalar" | "numpy._core.multiarray scalar", (_NumberType() as kind, content):
                content = content.encode("latin1") if isinstance(content, str) else content
                return _number(kind.code, content, kind.order) if isinstance(content, bytes) else None
            case "torch._utils _rebuild_tensor" | "torch._utils _rebuild_tensor_v2", (
                _Storage() as where,
                place,
                (),
                *_,
            ):
                return self._tensor(where, place)
            case "torch.storage _load_from_bytes", (bytes(content),) if len(content) <= _LARGEST_INNER:
                self._inner += 1
                result = _read(io.BytesIO(content), None, inner=True) if self._inner <= _MAX_INNER else None
                return result if isinstance(result, _Storage) else None
        return None

    def _tensor(self, where: _Storage, index: Any) -> int | float | None:
        """The number in a tensor without dimensions."""
        self._scalars += 1
        size = _SIZES.get(where.code, 0)
        if self._scalars > _MAX_SCALARS or not size or type(index) is not int or not 0 <= index * size <= _FURTHEST:
            return None
        return _number(where.code, where.read(index * size, size), "<")

    def _stored_tensor(self, reference: Any) -> Opaque:
        match reference:
            case ("storage", Opaque(name=kind), str(key), _, int(size), *_) if size >= 0:
                read = _nothing if self._stored is None else self._stored(key)
                self.storages[key] = _Storage("a tensor", _CODES.get(kind, ""), size, read)
                return self.storages[key]
        return Opaque("a tensor")


_CODES = {
    **{"torch HalfStorage": "f2", "torch BFloat16Storage": "bf2", "torch FloatStorage": "f4"},
    **{"torch DoubleStorage": "f8", "torch ByteStorage": "u1", "torch CharStorage": "i1", "torch ShortStorage": "i2"},
    **{"torch IntStorage": "i4", "torch LongStorage": "i8", "torch BoolStorage": "b1"},
}


def _nothing(start: int, size: int) -> bytes:
    return b""


def _unbuilt(function: object) -> Opaque:
    return function if isinstance(function, Opaque) else Opaque("an object")


def _pairs(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise UnreadableError("holds a pickle that is damaged")
    return dict(zip(map(_key, items[::2]), items[1::2], strict=True))


_CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {"TUPLE": tuple, "LIST": list, "DICT": _pairs}


def _key(item: object) -> object:
    """A key that is quickly hashed: tuples may be nested deeper than the interpreter bears."""
    return item if item is None or isinstance(item, str | int | float | bytes) else Opaque("a key")


_FORMATS = {
    **{"f2": "e", "f4": "f", "f8": "d", "i1": "b", "i2": "h", "i4": "i", "i8": "q"},
    **{"u1": "B", "u2": "H", "u4": "I", "u8": "Q"},
}
_SIZES = {**{code: int(code[1:]) for code in _FORMATS}, "bf2": 2, "b1": 1}
"""Bytes of a number of each type, by NumPy's code; ``bf2`` is bfloat16."""


def _number(code: str, content: bytes, order: str) -> int | float | None:
    """The number in some bytes, exactly; None if its type is not known or the bytes are not as many."""
    if code == "bf2" and order == "<" and len(content) == 2:
        code, content = "f4", b"\0\0" + content  # the upper half of a float32
    if code not in _FORMATS or len(content) != _SIZES[code] or (_SIZES[code] > 1 and order not in ("<", ">")):
        return None
    result: int | float = struct.unpack(("<" if _SIZES[code] == 1 else order) + _FORMATS[code], content)[0]
    return result
