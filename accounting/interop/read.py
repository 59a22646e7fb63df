"""Recognises files of other libraries by their content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cupel.accounting.interop import (
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
from cupel.accounting.interop.state import State

LARGEST = 2**24
"""Bytes of a JSON or text file."""

_ZIP = b"PK\x03\x04"

LIBRARIES = (
    "Opacus, dp_accounting, Flower, TensorFlow Privacy, jax_privacy, opake, OpenDP, SmartNoise, private evolution, "
    "dpsynth, Safe Synthesizer"
)
_IN_JSON = (
    opacus.found,
    flower.found,
    dp_accounting_events.found,
    jax_privacy.found,
    opake.found,
    opendp.found,
    dpsynth.found,
    safe_synthesizer.found,
    smartnoise.found,
)
_IN_TEXT = (
    dp_accounting_events.found_text,
    tensorflow_privacy.found_text,
    dpsynth.found_text,
    private_evolution.found_text,
)


def read_state(path: Path | str) -> State:
    """What a file of another library says.

    Args:
        path: a PyTorch checkpoint, a pickle, JSON or text.

    Raises:
        ValueError: one line that names the file: it cannot be read, is too large, or is of no known library.
    """
    path = Path(path)
    try:
        state = _found(path)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if state is None:
        raise ValueError(f"{path}: is no ledger, claim, or file of a library that is known here ({LIBRARIES})")
    return state


def _found(path: Path) -> State | None:
    if pickled.is_checkpoint(path):
        return _in_json(pickled.read_checkpoint(path))
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if content[:4] == _ZIP:
        raise ValueError("is a zip archive, but no checkpoint that PyTorch writes, or is damaged")
    if content[:1] == b"\x80":
        return _in_json(pickled.values(content))
    if len(content) > LARGEST:
        raise ValueError(f"is larger than {LARGEST} bytes, which no state of an accountant is")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if text.lstrip()[:1] in ("{", "["):
        return _in_json(_json(text))
    return next((state for found in _IN_TEXT if (state := found(text)) is not None), None)


def _in_json(content: Any) -> State | None:
    return next((state for found in _IN_JSON if (state := found(content)) is not None), None)


def _json(text: str) -> Any:
    def refused(constant: str) -> None:
        raise ValueError(f"holds {constant}, which is no number of JSON")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("has a key twice in one object of its JSON")
        return found

    try:
        return json.loads(text, parse_constant=refused, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not valid JSON (line {error.lineno})") from None
    except RecursionError:
        raise ValueError("is JSON that is nested too deep") from None
