"""What the scores of a planned audit show: a lower bound on ε, its ceiling, controls and everything that was tried."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from cupel import __version__
from cupel.audit_jobs.canaries.files import (
    BOUND,
    SCORES,
    Scored,
    hashed,
    read_manifest,
    read_scores,
    sealed,
    write_whole,
)
from cupel.audits.games.canaries import Scoring, refutes, third_party_audit
from cupel.errors import InputError
from cupel.progress import Progress


def bound(folder: Path, *, expect: str | None = None, progress: Progress | None = None) -> dict[str, Any]:
    """Bounds ε from ``scores.json`` and writes ``bound.json``; nothing can be scored afterwards.

    Args:
        folder: of the plan.
        expect: the hash of the manifest that was kept outside.
        progress: where to show progress.

    Returns:
        What ``bound.json`` holds: the audit, whether it refutes the planned claim, and the hashes it rests on.

    Raises:
        InputError: for files that are not there or were changed.
    """
    manifest, digest = read_manifest(folder, expect)
    document = read_scores(folder, digest)
    if not all(Scored(**entry).belongs_to(manifest) for entry in document["scorings"]):
        raise InputError(f"{folder / SCORES}: has scores of other canaries than the plan; score again")
    checked = [_is_unchanged(entry, progress or Progress()) for entry in document["scorings"]]
    audit = third_party_audit(
        manifest.design,
        manifest.coins,
        [_scoring(entry) for entry in document["scorings"]],
        attack=manifest.canary_kind.attack,
        kind=manifest.kind,
    )
    found = sealed(
        {
            "schema": 1,
            "cupel": __version__,
            "manifest_sha256": digest,
            "manifest_expected": expect is not None,
            "scores_sha256": document["sha256"],
            "synthetic": [
                {**{key: entry[key] for key in ("file", "sha256", "bytes", "rows")}, "checked": there}
                for entry, there in zip(document["scorings"], checked, strict=True)
            ],
            "claim": manifest.claim.model_dump() if manifest.claim else None,
            "refuted": refutes(manifest.design, audit.bounds),
            "audit": audit.to_json(),
        }
    )
    write_whole(folder / BOUND, json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return found


def _is_unchanged(entry: dict[str, Any], progress: Progress) -> bool:
    """Whether a synthetic file is still what was scored; False where it is gone.

    Raises:
        InputError: if it was changed.
    """
    path = Path(entry["path"])
    if not path.is_file():
        return False
    with progress.stage("Hashing") as step:
        if hashed(path, step) != entry["sha256"]:
            raise InputError(f"{path}: was changed since it was scored; put back the file that was scored")
    return True


def _scoring(entry: dict[str, Any]) -> Scoring:
    scores = {name: np.array(entry[name], dtype=np.float64) for name in ("candidates", "never", "copied")}
    return Scoring(name=entry["file"], **scores)
