"""What audits of generators share: the audits that a claim names, what a file keeps, and membership of canaries."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.guarantees import Guarantee
from dpassay.audits.games.membership import membership_audit
from dpassay.audits.games.membership_design import MembershipDesign, MembershipScores
from dpassay.audits.implications import epsilon_to_audit
from dpassay.audits.result import AuditResult
from dpassay.base.private_files import create_once
from dpassay.generators.base import BoundedGuarantee, FinishedRun

FinishedT = TypeVar("FinishedT", bound=FinishedRun)


def named_audits(
    run: FinishedT,
    claimed: BoundedGuarantee,
    confidence: float,
    audits: Mapping[str, Callable[[FinishedT, BoundedGuarantee, Path, float], Sequence[AuditResult]]],
    *,
    exact: Collection[str] = (),
) -> list[AuditResult]:
    """The results of the audits that the claim of a finished run names.

    Args:
        run: the claimed run.
        claimed: the first part of the claim.
        confidence: with which all bounds hold jointly.
        audits: name of an audit → its results, given the run, the claim, a private folder for its files and the
            confidence of its bounds.
        exact: those whose numbers do not depend on the confidence; the others share the error equally.
    """
    asked, folder = run.claim.audits, run.ledger_path.parent / "audits"
    each = 1 - (1 - confidence) / max(1, len(set(asked) - set(exact)))
    return [result for name in asked for result in audits[name](run, claimed, folder / name, each)]


def kept(path: Path, draw: Callable[[], Mapping[str, object]]) -> Any:
    """The content of a JSON file, which is drawn first if it is missing; of two processes, the first writes it."""
    if not path.exists():
        create_once(path, json.dumps(draw()) + "\n")
    return json.loads(path.read_text())


def membership_of_canaries(
    run: FinishedRun,
    guarantee: Guarantee,
    scores: MembershipScores,
    control: MembershipScores,
    confidence: float,
    guesses: tuple[int, ...] = (),
) -> AuditResult:
    """The membership audit of fair coins: under replace_one each chooses between two canaries, else whether one is in.

    Args:
        run: the claimed run.
        guarantee: the claim.
        scores: of a run with the claimed mechanism.
        control: of a run without noise.
        confidence: of the bound.
        guesses: as in `MembershipDesign`.
    """
    delta, claimed = epsilon_to_audit(guarantee)
    design = MembershipDesign(
        guesses=guesses,
        fair_coins=True,
        swapped=run.adjacency is Adjacency.REPLACE_ONE,
        adjacency=run.adjacency,
        unit=run.unit,
        delta=delta,
        confidence=confidence,
        claimed_epsilon=claimed,
    )
    return membership_audit(scores, design, control=control)
