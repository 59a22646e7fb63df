"""`cupel audit`: games against generators, those of other people included. Each subcommand is a file of its own."""

from __future__ import annotations

import typer

from cupel import cli_audit_membership as _membership
from cupel import cli_audit_released as _released
from cupel import cli_audit_secrets as _secrets
from cupel import cli_third_party as _third_party

app = typer.Typer(
    name="audit",
    no_args_is_help=True,
    help="Plays privacy games against a generator, also one that is not ours, and says what they show at least.",
)

app.command("text", epilog=_released.TEXT_EXAMPLE)(_released.text)
app.command("table", epilog=_released.TABLE_EXAMPLE)(_released.table)
app.command("plan", epilog="Example: cupel audit plan --kind key --like notes.jsonl --epsilon 3 --delta 1e-5 -o audit")(
    _third_party.plan
)
app.command("score", epilog="Example: cupel audit score audit synthetic.jsonl")(_third_party.score)
app.command("bound", epilog="Example: cupel audit bound audit")(_third_party.bound)
app.command("report", epilog="Example: cupel audit report audit")(_third_party.report)
app.command("membership", epilog=_membership.EXAMPLE)(_membership.membership)
app.command("secrets", epilog=_secrets.EXAMPLE)(_secrets.secrets)
