"""Recognises files of other libraries by their content."""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from dpassay.accounting.interop import (
    dp_accounting_events,
    dpsynth,
    flower,
    jax_privacy,
    opacus,
    opake,
    opendp,
    pickled,
    private_evolution,
    safe_synthesizer,
    smartnoise,
    tensorflow_privacy,
)
from dpassay.accounting.interop.names import without_content
from dpassay.accounting.interop.state import State

LARGEST = 2**24
"""Bytes of a JSON or text file."""

_ZIP = b"PK\x03\x04"
GZIP = b"\x1f\x8b"

LIBRARIES = (
    "Opacus, dp_accounting, Flower, TensorFlow Privacy, jax_privacy, opake, OpenDP, SmartNoise, private evolution, "
    "dpsynth, Safe Synthesizer"
)
_IN_JSON = (
    opacus.recognize,
    flower.recognize,
    dp_accounting_events.recognize,
    jax_privacy.recognize,
    opake.recognize,
    opendp.recognize,
    dpsynth.recognize,
    safe_synthesizer.recognize,
    smartnoise.recognize,
)
"""Each returns the state in JSON content, None if there is none, or raises a `ValueError` of one line if there is one
with another content than its library writes."""
_IN_TEXT = (
    opacus.found_text,
    dp_accounting_events.found_text,
    tensorflow_privacy.found_text,
    dpsynth.found_text,
    private_evolution.found_text,
)
"""Likewise, of a text."""


def read_state(path: Path | str) -> State:
    """What a file of another library says.

    Args:
        path: a PyTorch checkpoint, a pickle, JSON or text, or one of them compressed by gzip.

    Raises:
        ValueError: one line that names the file: it cannot be read, is too large, or is of no known library.
    """
    path = Path(path)
    try:
        state = _found(path)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {without_content(str(error))}") from None
    if state is None:
        raise ValueError(f"{path}: is no ledger, claim, or file of a library that is known here ({LIBRARIES})")
    return state


def _found(path: Path) -> State | None:
    with path.open("rb") as file:
        packed = file.read(len(GZIP)) == GZIP
        file.seek(0)
        return _in_file(io.BytesIO(_unpacked(file)) if packed else file)


def _unpacked(file: BinaryIO) -> bytes:
    """What a file holds that is compressed by gzip."""
    try:
        with gzip.GzipFile(fileobj=file) as packed:
            content = packed.read(pickled.LARGEST + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise ValueError("begins like a file compressed by gzip, but is damaged") from None
    if len(content) > pickled.LARGEST:
        raise ValueError(
            f"is more than {pickled.LARGEST} bytes when it is decompressed; decompress it first, by gunzip"
        )
    return content


def _in_file(file: BinaryIO) -> State | None:
    if pickled.is_checkpoint(file):
        return _in_json(pickled.read_checkpoint(file))
    file.seek(0)
    begin = file.read(len(_ZIP))
    file.seek(0)
    if begin == _ZIP:
        raise ValueError("is a zip archive, but no checkpoint that PyTorch writes, or is damaged")
    if begin[:2] == GZIP:
        raise ValueError("is compressed by gzip twice; decompress it first, by gunzip")
    if begin[:1] == b"\x80":
        return _in_json(pickled.read_pickle(file))
    content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"is larger than {LARGEST} bytes, which no state of an accountant is")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return _in_old_pickle(content)
    state = _in_text(text)
    return _in_old_pickle(content) if state is None else state


def _in_text(text: str) -> State | None:
    if text.lstrip()[:1] in ("{", "[") and text.lstrip()[1:].lstrip()[:1] != "'":  # as in {'history': …}, of Python
        return _in_json(_json(text))
    return next((state for result in _IN_TEXT if (state := result(text)) is not None), None)


def _in_old_pickle(content: bytes) -> State | None:
    """The state in a pickle of protocol 0 or 1, which begins like any text; None if it is none."""
    if not content.endswith(b"."):
        return None
    try:
        result = pickled.values(content)
    except pickled.UnreadableError:
        return None
    return _in_json(result)


def _in_json(content: Any) -> State | None:
    return next((state for result in _IN_JSON if (state := result(content)) is not None), None)


def _json(text: str) -> Any:
    def refused(constant: str) -> float:
        if constant == "Infinity" and "RepeatAndSelectDpEvent" in text:  # the shape of a Poisson number of runs
            return math.inf
        raise ValueError(f"holds {constant}, which is no number of JSON")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise ValueError("has a key twice in one object of its JSON")
        return result

    try:
        return json.loads(text, parse_constant=refused, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not valid JSON (line {error.lineno})") from None
    except RecursionError:
        raise ValueError("is JSON that is nested too deep") from None
