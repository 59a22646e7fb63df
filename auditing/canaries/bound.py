"""Bounds ε from the scores of a planned audit, with its ceiling, its controls and all files that were scored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpassay import __version__
from dpassay.auditing.canaries.files import ScoredFile, read_manifest, read_scores
from dpassay.auditing.plan_files import (
    BOUND,
    SCORES,
    Claimed,
    comparable,
    hashed,
    read_sealed,
    sealed,
    write_bound,
)
from dpassay.audits.games.canaries import Scoring, refutes, third_party_audit
from dpassay.audits.result import AuditResult
from dpassay.base.errors import InputError, input_errors
from dpassay.base.former_name import FORMER_NAME
from dpassay.base.private_files import PRIVATE, make_private
from dpassay.base.progress import Progress
from dpassay.mechanisms.models.model_folder import fingerprint


@dataclass(frozen=True)
class CheckedFile:
    """A synthetic file that was scored.

    Attributes:
        scored: file and scores.
        checked: whether the file was present and unchanged when ε was bounded.
    """

    scored: ScoredFile
    checked: bool

    def to_json(self) -> dict[str, Any]:
        """The file as plain JSON types, without its scores."""
        return {**self.scored.model_dump(include={"file", "sha256", "bytes", "rows"}), "checked": self.checked}


@dataclass(frozen=True, kw_only=True)
class CanaryBound:
    """The result of a planned audit, as in ``bound.json``.

    Attributes:
        manifest_sha256: hash of the manifest.
        manifest_expected: whether this hash was given from outside the folder.
        scores_sha256: hash of the scores.
        scorings: the files and models that were scored; ``synthetic`` in JSON.
        unprotected: the file of a run without protection, which is the positive control; None if there is none.
        claim: the planned claim, or None.
        refuted: whether the audit refutes the claim; None without a claim, or if there is no conclusion.
        audit: lower bounds on ε, with their ceilings and controls.
    """

    manifest_sha256: str
    manifest_expected: bool
    scores_sha256: str
    scorings: tuple[CheckedFile, ...]
    unprotected: CheckedFile | None
    claim: Claimed | None
    refuted: bool | None
    audit: AuditResult

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON types, sealed with ``sha256``."""
        return sealed(
            {
                "schema": 1,
                "dpassay": __version__,
                "manifest_sha256": self.manifest_sha256,
                "manifest_expected": self.manifest_expected,
                "scores_sha256": self.scores_sha256,
                "synthetic": [file.to_json() for file in self.scorings],
                "unprotected": None if self.unprotected is None else self.unprotected.to_json(),
                "claim": self.claim.model_dump() if self.claim else None,
                "refuted": self.refuted,
                "audit": self.audit.to_json(),
            }
        )


def bound(folder: str | Path, *, expect: str | None = None, progress: Progress | None = None) -> CanaryBound:
    """Bounds ε from ``scores.json`` and writes ``bound.json``; nothing more can be scored afterwards.

    Args:
        folder: of the plan.
        expect: the hash of the manifest that was kept outside.
        progress: where to show progress.

    Returns:
        Whether the claim is refuted, and the audit with its lower bounds, controls and conclusion.

    Raises:
        InputError: if a file is missing or was changed.
    """
    folder = Path(folder)
    read_manifest(folder, expect)
    with input_errors():
        make_private(folder / PRIVATE)
    result = _computed(folder, expect, progress or Progress())
    write_bound(folder, result.to_json())
    return result


def read_bound(folder: Path, *, expect: str | None = None) -> dict[str, Any]:
    """The content of ``bound.json``, which is computed again from the scores and compared.

    Synthetic files are not read: whether they were present and unchanged is what was found when ε was bounded.

    Raises:
        InputError: if there is none, or it is not what the scores of the folder show.
    """
    _, digest = read_manifest(folder, expect)
    path = folder / BOUND
    if not path.is_file():
        raise InputError(f"{folder}: holds no bound; run `dpassay audit bound {folder}` first")
    result = read_sealed(path)
    if (result.get("manifest_sha256"), result.get("scores_sha256")) != (digest, read_scores(folder, digest)["sha256"]):
        raise InputError(f"{path}: was computed from other scores; run `dpassay audit bound {folder}` again")
    version = result.get("dpassay")
    expected = json.loads(json.dumps(_computed(folder, expect, None).to_json()))
    shown, now = (
        {**_without_files(document), "audit": comparable(document.get("audit", {}), version)}
        for document in (result, expected)
    )
    if shown != now:
        raise InputError(f"{path}: is not what the scores in {folder} show; run `dpassay audit bound {folder}` again")
    return {**result, "audit": expected["audit"]}


_OF_THE_TIME = ("dpassay", FORMER_NAME, "sha256", "manifest_expected")
"""Fields of the result that do not follow from the plan and the scores."""


def _without_files(results: Mapping[str, Any]) -> dict[str, Any]:
    """What follows from plan and scores alone."""
    shown = {key: value for key, value in results.items() if key not in _OF_THE_TIME}
    for key in ("synthetic", "unprotected"):
        files = shown.get(key)
        if isinstance(files, list):
            shown[key] = [_unchecked(file) for file in files]
        elif files is not None:
            shown[key] = _unchecked(files)
    return shown


def _unchecked(file: Any) -> Any:
    return {key: value for key, value in file.items() if key != "checked"} if isinstance(file, dict) else file


def _computed(folder: Path, expect: str | None, progress: Progress | None) -> CanaryBound:
    """The result of the scores.

    Args:
        folder: of the plan.
        expect: the hash of the manifest that was kept outside.
        progress: where to show that synthetic files are compared with their hashes; None not to read them.
    """
    manifest, digest = read_manifest(folder, expect)
    document = read_scores(folder, digest)
    scored = [ScoredFile(**entry) for entry in document["scorings"]]
    control = ScoredFile(**document["unprotected"]) if document.get("unprotected") else None
    if not scored:
        raise InputError(
            f"{folder / SCORES}: has scores of a run without protection only; score the file whose claim is tested, too"
        )
    if not all(file.belongs_to(manifest) for file in (*scored, *([control] if control else []))):
        raise InputError(f"{folder / SCORES}: has scores of other canaries than the plan; score again")
    checked = tuple(_checked(file, progress) for file in scored)
    audit = third_party_audit(
        manifest.design,
        manifest.coins,
        [_scoring(file) for file in scored],
        attack="; ".join(dict.fromkeys(file.attack or manifest.canary_kind.attack for file in scored)),
        kind=manifest.kind,
        unprotected=_scoring(control) if control else None,
    )
    return CanaryBound(
        manifest_sha256=digest,
        manifest_expected=expect is not None,
        scores_sha256=document["sha256"],
        scorings=checked,
        unprotected=_checked(control, progress) if control else None,
        claim=manifest.claim,
        refuted=refutes(manifest.design, audit.bounds),
        audit=audit,
    )


def _checked(file: ScoredFile, progress: Progress | None) -> CheckedFile:
    return CheckedFile(file, progress is not None and _is_unchanged(file, progress))


def _is_unchanged(file: ScoredFile, progress: Progress) -> bool:
    """Whether a scored synthetic file is present and unchanged.

    Raises:
        InputError: if it was changed.
    """
    path = Path(file.path)
    if path.is_dir() and file.attack:
        if fingerprint(path) != file.sha256:
            raise InputError(f"{path}: was changed since it was scored; put back the model that was scored")
        return True
    if not path.is_file():
        return False
    with progress.stage("Hashing") as step:
        if hashed(path, step) != file.sha256:
            raise InputError(f"{path}: was changed since it was scored; put back the file that was scored")
    return True


def _scoring(file: ScoredFile) -> Scoring:
    return Scoring(
        name=file.file,
        candidates=np.array(file.candidates),
        never=np.array(file.never),
        copied=None if file.attack else np.array(file.copied),
    )
