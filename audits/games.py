"""The games that are played, each with its audit."""

from cupel.audits.distinguishing import distinguishing_audit
from cupel.audits.leave_one_out import leave_one_out_audit
from cupel.audits.membership import membership_audit
from cupel.audits.reconstruction import reconstruction_audit, source_minus_holdout
from cupel.audits.released_data import holdout_audit
from cupel.audits.result import AuditResult, Rate
from cupel.audits.secret_reconstruction import secret_reconstruction_audit

__all__ = [
    "AuditResult",
    "Rate",
    "distinguishing_audit",
    "holdout_audit",
    "leave_one_out_audit",
    "membership_audit",
    "reconstruction_audit",
    "secret_reconstruction_audit",
    "source_minus_holdout",
]
