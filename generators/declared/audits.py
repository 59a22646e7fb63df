"""The audits of a claim about a procedure that ran elsewhere: results that were there before."""

from __future__ import annotations

from dpassay.audits.result import AuditResult
from dpassay.generators.base import BoundedGuarantee
from dpassay.generators.declared.run import DeclaredRun


def audit(run: DeclaredRun, claimed: BoundedGuarantee, confidence: float) -> list[AuditResult]:
    """The results that the claim names.

    Args:
        run: the declared run.
        claimed, confidence: not used; the results have their own.
    """
    return run.claim.read_audits(run.plan)
