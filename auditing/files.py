"""Files of planned audits: plans, what was scored, bounds, with seals that detect accidents.

Hashes inside a folder only detect accidents, since all files there can be rewritten together.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy
import scipy
from pydantic import BaseModel, ConfigDict, ValidationError

from dpassay import __version__
from dpassay.accounting.guarantees import ApproxDP, PureDP
from dpassay.audits.implications import describe
from dpassay.audits.verdict import check_confidence
from dpassay.base import validate
from dpassay.base.errors import InputError, input_errors
from dpassay.base.former_name import FORMER_NAME
from dpassay.base.private_files import write_private

MANIFEST, PLAN, SCORES, BOUND = "manifest.json", "plan.json", "scores.json", "bound.json"
OF_THE_TIME = ("dpassay", FORMER_NAME, "sha256")
"""Fields of a bound that do not follow from the plan and what was run or scored."""
Report = TypeVar("Report", bound=BaseModel)
_BLOCK = 1 << 20
_SHOWN = 1 << 26  # bytes of a file from which progress is shown


class Part(BaseModel):
    """Part of a file; unknown keys are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Claimed(Part):
    """The claimed (ε, δ) for adding or removing one unit."""

    epsilon: float
    delta: float

    @property
    def guarantee(self) -> PureDP | ApproxDP:
        """The claim as a guarantee."""
        return _guarantee(self.epsilon, self.delta)


def _guarantee(epsilon: float, delta: float) -> PureDP | ApproxDP:
    return ApproxDP(epsilon, delta) if delta else PureDP(epsilon)


def claimed_guarantee(epsilon: float | None, delta: float) -> PureDP | ApproxDP | None:
    """The guarantee of a claimed ε and δ; None without an ε."""
    return None if epsilon is None else _guarantee(epsilon, delta)


def planned_claim(epsilon: float | None, delta: float | None, confidence: float) -> PureDP | ApproxDP | None:
    """The claim that an audit is planned to test; None for none.

    Raises:
        ValueError: one line, if a number is invalid, there is a δ alone, or no claim is refuted at this confidence.
    """
    if epsilon is None and delta:
        raise ValueError("a δ belongs to a claim; give --epsilon too")
    claim = claimed_guarantee(epsilon, delta or 0.0)
    validate.open_probability(confidence=confidence)
    check_confidence(confidence, claim)
    return claim


def version_error(path: Path, error: ValidationError) -> InputError:
    """The error for a file that another version wrote."""
    first = error.errors(include_url=False, include_input=False)[0]
    index = ".".join(str(part) for part in first["loc"])
    return InputError(f"{path}: was not written by this version of dpassay ({index}: {first['msg']})")


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


def _agree(written: Any, computed: Any) -> bool:
    """Whether what another version wrote agrees with what this one computes, in all that both have but sentences."""
    if isinstance(written, dict) and isinstance(computed, dict):
        common = written.keys() & computed.keys()
        # Earlier versions wrote false in place of null where there is no conclusion.
        return bool(written.get("refuted")) == bool(computed.get("refuted")) and all(
            key == "refuted" or _agree(written[key], computed[key]) for key in common
        )
    if isinstance(written, list) and isinstance(computed, list):
        return len(written) == len(computed) and all(map(_agree, written, computed))
    both = isinstance(written, str) and isinstance(computed, str)
    return written == computed or (both and " " in written and " " in computed)


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


def write_bound(folder: Path, document: Mapping[str, Any]) -> None:
    """Writes ``bound.json``."""
    write_private(folder / BOUND, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def recomputed_bound(
    folder: Path,
    command: str,
    evidence: str,
    inputs: Callable[[], Mapping[str, str]],
    of_others: str,
    compute: Callable[[], dict[str, Any]],
    shown: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of ``bound.json``, and what it is now that it is computed again and compared.

    Args:
        folder: of the plan.
        command: that writes it.
        evidence: what it is computed from, in a word.
        inputs: the hashes that it must have.
        of_others: what is wrong if it has others.
        compute: computes it.
        shown: what must be equal in both; of a file that another version wrote, as far as both versions have it.

    Raises:
        InputError: if there is none, or it is not what the folder shows.
    """
    path, again = folder / BOUND, f"run `{command} {folder}` again"
    if not path.is_file():
        raise InputError(f"{folder}: holds no bound; run `{command} {folder}` first")
    result = read_sealed(path)
    if any(result.get(key) != value for key, value in inputs().items()):
        raise InputError(f"{path}: {of_others}; {again}")
    expected, same = json.loads(json.dumps(compute())), result.get("dpassay") == __version__
    written, computed = shown(result), shown(expected)
    if not (written == computed if same else _agree(written, computed)):
        raise InputError(f"{path}: is not what the {evidence} in {folder} show; {again}")
    return result, expected


def report_header(folder: Path, claim: Claimed | None) -> dict[str, Any]:
    """What the reports of all planned audits begin and end with."""
    return {
        "schema": 1,
        "name": folder.resolve().name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "claim": claim.model_dump() if claim else None,
        "guarantee": describe(claim.guarantee) if claim else "",
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """What an audit runs with."""
    return {
        "dpassay": __version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
    }


def write_report(
    folder: Path, form: type[Report], document: Mapping[str, Any], render: Callable[[Report], str]
) -> Report:
    """Writes ``report.html`` and ``report.json``.

    Args:
        folder: of the plan.
        form: of the document.
        document: as plain JSON types.
        render: draws the page.

    Raises:
        InputError: if the bound, from which the document is made, is of another version.
    """
    try:
        report = form.model_validate(document)
    except ValidationError as error:
        raise version_error(folder / BOUND, error) from None
    write_private(folder / "report.html", render(report))
    write_private(folder / "report.json", report.model_dump_json(by_alias=True, indent=2) + "\n")
    return report
