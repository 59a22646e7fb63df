"""`dpassay audit`: attacks on generators, data and models, also those of other people."""

from __future__ import annotations

from collections.abc import Callable

import typer

from dpassay.cli.audit import canaries as _third_party
from dpassay.cli.audit import mechanism as _mechanism
from dpassay.cli.audit import membership as _membership
from dpassay.cli.audit import released as _released
from dpassay.cli.audit import runs as _runs
from dpassay.cli.audit import secrets as _secrets
from dpassay.cli.audit import summary as _summary
from dpassay.cli.exit_codes import IN_AUDIT_HELP

app = typer.Typer(
    name="audit",
    no_args_is_help=True,
    help="Attacks generators, data and models, your own or other people's, and computes lower bounds on their privacy "
    "loss.",
    epilog="Example: dpassay audit runs plan --like people.csv --epsilon 1 -o runs\n\ndpassay audit plan --kind key "
    "--like notes.jsonl --epsilon 3 -o audit\n\ndpassay audit text synthetic.jsonl --source seen.jsonl --holdout "
    "unseen.jsonl",
)


def _add(name: str, command: Callable[..., None], example: str) -> None:
    app.command(name, epilog=f"{example}\n\n{IN_AUDIT_HELP}")(command)


_add("text", _released.text, _released.TEXT_EXAMPLE)
_add("table", _released.table, _released.TABLE_EXAMPLE)
_add(
    "plan",
    _third_party.plan,
    "Example: dpassay audit plan --kind key --like notes.jsonl --epsilon 3 --delta 1e-5 -o audit\n\ndpassay audit plan "
    "--kind echo --score model --like notes.jsonl --epsilon 1 -o echoes",
)
_add(
    "score",
    _third_party.score,
    "Example: dpassay audit score audit synthetic.jsonl\n\ndpassay audit score audit unprotected.jsonl --unprotected",
)
_add("bound", _third_party.bound, "Example: dpassay audit bound audit")
_add("report", _third_party.report, "Example: dpassay audit report audit")
app.add_typer(_runs.app, name="runs")
app.add_typer(_membership.app, name="membership")
_add("mechanism", _mechanism.mechanism, _mechanism.EXAMPLE)
_add("secrets", _secrets.secrets, _secrets.EXAMPLE)
_add("summary", _summary.summary, _summary.EXAMPLE)
