"""Bounds ε from the scores of a planned audit, with its ceiling, its controls and all files that were scored.

How the error rate is divided among these files is in `dpassay.auditing.canaries.design`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpassay import __version__
from dpassay.auditing.canaries.design import CanariesDesign
from dpassay.auditing.canaries.files import CanaryScores, PlannedCanaries, ScoredFile, read_plan, read_scores
from dpassay.auditing.canaries.game import Scoring, third_party_audit
from dpassay.auditing.files import (
    OF_THE_TIME,
    SCORES,
    Claimed,
    hashed,
    recomputed_bound,
    sealed,
    write_bound,
)
from dpassay.audits.result import AuditResult, refuted_where_concluded
from dpassay.base.errors import InputError, input_errors
from dpassay.base.private_files import make_private
from dpassay.base.progress import Progress
from dpassay.mechanisms.models.model_folder import fingerprint


@dataclass(frozen=True, kw_only=True)
class CanaryBound:
    """The result of a planned audit, as in ``bound.json``.

    Attributes:
        planned: the plan.
        manifest_expected: whether the hash of the manifest was given from outside the folder.
        scores: of the files and models that were scored.
        checked: hashes of those that were present and unchanged when ε was bounded.
        audit: lower bounds on ε, with their ceilings and controls.
    """

    planned: PlannedCanaries
    manifest_expected: bool
    scores: CanaryScores
    checked: frozenset[str]
    audit: AuditResult

    @property
    def claim(self) -> Claimed | None:
        """The planned claim."""
        return self.planned.plan.claim

    @property
    def refuted(self) -> bool | None:
        """Whether the audit refutes the claim; None without a claim, or if there is no conclusion."""
        return refuted_where_concluded(self.planned.design.refuted_by(self.audit.bounds), self.concluded)

    @property
    def concluded(self) -> bool:
        """Whether a conclusion is drawn."""
        return self.audit.concluded

    @property
    def removed(self) -> list[str]:
        """Names of the files that were removed after they were scored, so that they could not be checked."""
        return [file.file for file in self.scores.every if file.sha256 not in self.checked]

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON types, sealed with ``sha256``."""
        unprotected = self.scores.unprotected
        return sealed(
            {
                "schema": 1,
                "dpassay": __version__,
                "manifest_sha256": self.planned.manifest_sha256,
                "manifest_expected": self.manifest_expected,
                "scores_sha256": self.scores.sha256,
                "synthetic": [self._about(file) for file in self.scores.scorings],
                "unprotected": None if unprotected is None else self._about(unprotected),
                "claim": self.claim and self.claim.model_dump(),
                "refuted": self.refuted,
                "audit": self.audit.to_json(),
            }
        )

    def _about(self, file: ScoredFile) -> dict[str, Any]:
        return {**file.about, "checked": file.sha256 in self.checked}


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
    planned = read_plan(Path(folder), expect)
    with input_errors():
        make_private(planned.private)
    result = _computed(planned, expect is not None, progress or Progress())
    write_bound(planned.folder, result.to_json())
    return result


def read_bound(planned: PlannedCanaries) -> dict[str, Any]:
    """The content of ``bound.json``, which is computed again from the scores and compared.

    Synthetic files are not read: whether they were present and unchanged is what was found when ε was bounded.

    Raises:
        InputError: if there is none, or it is not what the scores of the folder show.
    """

    result, expected = recomputed_bound(
        planned.folder,
        "dpassay audit bound",
        "scores",
        lambda: {"manifest_sha256": planned.manifest_sha256, "scores_sha256": read_scores(planned).sha256},
        "was computed from other scores",
        lambda: _computed(planned, False, None).to_json(),
        _without_files,
    )
    return {**result, "audit": expected["audit"], "refuted": expected["refuted"]}


def _without_files(results: Mapping[str, Any]) -> dict[str, Any]:
    """What follows from plan and scores alone."""
    shown = {key: value for key, value in results.items() if key not in (*OF_THE_TIME, "manifest_expected")}
    for key in ("synthetic", "unprotected"):
        files = shown.get(key)
        if isinstance(files, list):
            shown[key] = [_unchecked(file) for file in files]
        elif files is not None:
            shown[key] = _unchecked(files)
    return shown


def _unchecked(file: Any) -> Any:
    return {key: value for key, value in file.items() if key != "checked"} if isinstance(file, dict) else file


def _computed(planned: PlannedCanaries, manifest_expected: bool, progress: Progress | None) -> CanaryBound:
    """The result of the scores. Synthetic files are compared with their hashes, but not if there is no progress."""
    scores = read_scores(planned)
    if not scores.scorings:
        raise InputError(
            f"{planned.folder / SCORES}: has scores of a run without protection only; score the file whose claim is "
            "tested, too"
        )
    checked = [file.sha256 for file in scores.every if progress is not None and _is_unchanged(file, progress)]
    return CanaryBound(
        planned=planned,
        manifest_expected=manifest_expected,
        scores=scores,
        checked=frozenset(checked),
        audit=_audit(planned, planned.design, scores),
    )


def audit_at(planned: PlannedCanaries, confidence: float) -> AuditResult:
    """What the scores show at another confidence, jointly for all files, than the planned one."""
    return _audit(planned, dataclasses.replace(planned.design, confidence=confidence), read_scores(planned))


def _audit(planned: PlannedCanaries, design: CanariesDesign, scores: CanaryScores) -> AuditResult:
    plan = planned.plan
    return third_party_audit(
        design,
        plan.coins,
        [_scoring(file) for file in scores.scorings],
        attack="; ".join(dict.fromkeys(file.attack or plan.canary_kind.attack for file in scores.scorings)),
        kind=plan.kind,
        unprotected=_scoring(scores.unprotected) if scores.unprotected else None,
    )


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
