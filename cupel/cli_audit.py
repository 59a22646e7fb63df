"""`cupel audit`: games against generators, those of other people included. Each subcommand is a file of its own."""

from __future__ import annotations

import typer

from cupel import cli_audit_membership as _membership

app = typer.Typer(
    name="audit",
    no_args_is_help=True,
    help="Plays privacy games against a generator, also one that is not ours, and says what they show at least.",
)

app.command("membership", epilog=_membership.EXAMPLE)(_membership.membership)
