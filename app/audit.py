"""Audits of generators, models and data, your own or other people's, with the results that `dpassay audit` prints.

    found = dpassay.audit.table("synthetic.csv", source="seen.csv", holdout="unseen.csv", coins=True, epsilon=1.0)
    found.refuted, found.audits[0].bounds

An audit that is planned keeps its files in a folder. `canaries` or `runs` plans it; `score_canaries`, or `make_runs`
(`read_runs` where they are made elsewhere), collects evidence; `bound_canaries` or `bound_runs` computes the result;
`report_canaries` or `report_runs` writes a page. `function` audits a Python function by many runs, without files.
`summary` writes one page about several audits of one generator.

All results are private. Bad input is an `InputError` of one line. Arguments are those of the commands.
"""

from __future__ import annotations

from dpassay.auditing.canaries.bound import bound as bound_canaries
from dpassay.auditing.canaries.page import report as report_canaries
from dpassay.auditing.canaries.plan import plan as canaries
from dpassay.auditing.canaries.score import score as score_canaries
from dpassay.auditing.many_runs.bound import bound as bound_runs
from dpassay.auditing.many_runs.page import report as report_runs
from dpassay.auditing.many_runs.plan import plan as runs
from dpassay.auditing.many_runs.run import audit_function as function
from dpassay.auditing.many_runs.run import run as make_runs
from dpassay.auditing.many_runs.run import score as read_runs
from dpassay.auditing.mechanism.run import audit_mechanism as mechanism
from dpassay.auditing.membership.run import audit_membership as membership
from dpassay.auditing.released.run import audit_table as table
from dpassay.auditing.released.run import audit_text as text
from dpassay.auditing.secrets.run import audit_secrets as secrets
from dpassay.jobs.audit_summary import audit_summary as summary

__all__ = [
    "bound_canaries",
    "bound_runs",
    "canaries",
    "function",
    "make_runs",
    "mechanism",
    "membership",
    "read_runs",
    "report_canaries",
    "report_runs",
    "runs",
    "score_canaries",
    "secrets",
    "summary",
    "table",
    "text",
]
