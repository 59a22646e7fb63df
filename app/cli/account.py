"""`dpassay account`: the privacy loss of ledgers, and of claims as planned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpassay.base.number_format import format_lower, format_number, format_upper
from dpassay.cli import completion
from dpassay.cli.options import AllStatements, Anchor, Json, Quiet, show, with_fields

if TYPE_CHECKING:
    from rich.table import Table

    from dpassay.accounting.bounds import Bound
    from dpassay.jobs.account import Account


@with_fields
def account(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Ledgers of runs on one data set, files of other libraries about it, and claims (.yaml) that would "
            "run on it; all of them compose."
        ),
    ],
    *,
    delta: Annotated[
        float | None, typer.Option(help="δ at which ε is computed, in (0, 1). Default: the δ of the claims.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="Use this accountant only. Default: all that support the events.", autocompletion=completion.method
        ),
    ] = None,
    p: Annotated[
        float | None,
        typer.Option(
            help="At unit secret: the p at which r is computed. Default: those of the runs and claims. The plan of "
            "such a claim depends on where secrets are, so its data are read."
        ),
    ] = None,
    statements: AllStatements,
    anchor: Anchor = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Bounds the privacy loss of ledgers, of files of other libraries, and of claims before they run, with every
    accountant that supports them."""
    from dpassay.jobs import account as job

    result = job.account(files, delta=delta, method=method, p=p, anchor=anchor, **statements.words())
    show(result.to_json(), lambda: print_account(result), json_, quiet)


def print_account(account: Account) -> None:
    """Prints the bounds as tables, then what is missing, the state of each ledger, and what is assumed."""
    from dpassay.accounting.secret_protection.accountant import SecretProtectionAccountant
    from dpassay.cli.table_console import TableConsole
    from dpassay.reports.text import risks_in_words

    console = TableConsole()
    what = "would be charged" if account.planned else "was charged"
    if account.if_sampled:
        console.print(_samplers(account))
    if all(bound.value == math.inf for bound in account.bounds):
        tried = ", ".join(dict.fromkeys(bound.method for bound in account.bounds))
        console.print(
            f"What {what}, at {account.adjacency}, unit {account.unit}: no finite bound"
            + (f" ({tried})." if tried else "."),
            soft_wrap=True,
        )
    else:
        console.print(_table(account, account.bounds, f"What {what}"))
    if account.whole_plan:
        console.print(_table(account, account.whole_plan, "If each unfinished run charges its whole plan"))
    meaning = risks_in_words(account.risks, account.adjacency, account.unit)
    notes = [
        *([f"in other words: {meaning}"] if meaning else []),
        *account.against_claims,
        *account.warnings,
        *account.hints,
        *(note for ledger in account.ledgers for note in ledger.notes()),
    ]
    notes += [f"assumed: {sentence}" for sentence in account.assumptions]
    notes += [f"an estimate: {sentence}" for sentence in account.doubts]
    for note in (*notes, *(note for file in account.foreign for note in file.notes())):
        console.print(note, soft_wrap=True)
    asked = [name for name in account.unsupported if name != SecretProtectionAccountant.name]
    if account.bounds and not account.unit.is_secret:
        if asked:
            console.print(f"No bound by {', '.join(asked)} (--json says why).", soft_wrap=True)
    else:
        for name, reason in account.unsupported.items():
            console.print(f"{name}: {reason}", highlight=True)


def _samplers(account: Account) -> Table:
    """The best bound for each way in which records may have been sampled."""
    from dpassay.cli.table_console import folded

    rows = []
    for item in account.if_sampled:
        bound = item.bound
        value, rigor = ("no bound", "") if bound is None else (format_upper(bound.value), bound.rigor)
        rows.append([item.sampler, item.adjacency, value, rigor])
    title = "How records were sampled is not recorded; state it with --sampler"
    return folded(title, ("if the sampler was", "at", "at most", "rigor"), rows)


def _table(account: Account, bounds: Sequence[Bound], title: str) -> Table:
    """Bounds as rows; with a column for lower ends where an accountant encloses the exact value."""
    from dpassay.cli.table_console import folded

    enclosed = any(bound.interval for bound in bounds)
    function = "p" if account.unit.is_secret else "δ"
    of = ["claimed"] if account.budgets else []
    columns = "accountant", "quantity", *of, *(["at least"] if enclosed else []), "at most", function, "rigor"
    rows = []
    claimed = [[format_number(budget.r)] for budget in account.budgets]
    seen: set[tuple[object, ...]] = set()
    for bound, whose in zip(bounds, claimed or [[]] * len(bounds), strict=True):
        question = bound.quantity, bound.delta, bound.at, *whose
        if (bound.method, *question) in seen:  # an estimate beside a certified bound
            continue
        best = ", best" if question not in seen and bound.rigor.may_support and not whose else ""
        seen |= {(bound.method, *question), question}
        note = " (private: depends on the data)" if bound.private else ""
        least = [format_lower(bound.interval.lower) if bound.interval else ""] if enclosed else []
        argument = bound.at if account.unit.is_secret else bound.delta
        at = "" if argument is None else format_number(argument)
        quantity = bound.quantity.replace("_", "-") + note
        rows.append([bound.method, quantity, *whose, *least, format_upper(bound.value), at, f"{bound.rigor}{best}"])
    return folded(f"{title}, at {account.adjacency}, unit {account.unit}", columns, rows)
