"""Files of planned audits: plans, what was scored, bounds, with seals that detect accidents.

Hashes inside a folder only detect accidents, since all files there can be rewritten together.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from dpassay.accounting.guarantees import ApproxDP, PureDP
from dpassay.base.errors import InputError, input_errors

MANIFEST, PLAN, SCORES, BOUND = "manifest.json", "plan.json", "scores.json", "bound.json"
_BLOCK = 1 << 20
_SHOWN = 1 << 26  # bytes of a file from which progress is shown


class Part(BaseModel):
    """Part of a file; unknown keys are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Claimed(Part):
    """The claimed (ε, δ) for adding or removing one unit."""

    epsilon: float
    delta: float


def guarantee(epsilon: float, delta: float) -> PureDP | ApproxDP:
    """The guarantee of a claimed ε and δ."""
    return ApproxDP(epsilon, delta) if delta else PureDP(epsilon)


def version_error(path: Path, error: ValidationError) -> InputError:
    """The error for a file that another version wrote."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return InputError(f"{path}: was not written by this version of dpassay ({place}: {first['msg']})")


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the SHA-256 of its own canonical JSON as `sha256`."""
    body = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return {**document, "sha256": hashlib.sha256(body.encode()).hexdigest()}


def read_sealed(path: Path) -> dict[str, Any]:
    """A document written with `sealed`.

    Raises:
        InputError: if it was changed.
    """
    document = read_json(path)
    if sealed({key: value for key, value in document.items() if key != "sha256"}) != document:
        raise InputError(f"{path}: was changed since it was written; remove it and create it again")
    return document


def read_json(path: Path) -> dict[str, Any]:
    """A file that holds one JSON object.

    Raises:
        InputError: if it does not.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode()  # no NaN, no infinity, no lone surrogate
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path}: is not valid JSON; create it again") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: holds no JSON object")
    return document


def hashed(path: Path, step: Callable[[int, int], None] = lambda done, total: None) -> str:
    """The SHA-256 of a file, read block by block.

    Raises:
        InputError: if the file cannot be read.
    """
    digest, done = hashlib.sha256(), 0
    with input_errors(), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while block := file.read(_BLOCK):
            digest.update(block)
            done += len(block)
            if size > _SHOWN:
                step(done, max(size, done))
    return digest.hexdigest()
