"""`dpassay claims`: published privacy claims, each checked by computation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpassay.base.terminal import say
from dpassay.cli import completion, options
from dpassay.cli.exit_codes import ExitCode
from dpassay.cli.options import Cluster, Json, Quiet, Workers

if TYPE_CHECKING:
    from dpassay.claims.published.registry import CheckedClaim


def claims(
    ids: Annotated[
        list[str] | None,
        typer.Argument(help="Claims, such as 000-4. Default: all.", autocompletion=completion.published_claim),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the counterexample or the proof of each, step by step.")
    ] = False,
    markdown: Annotated[
        Path | None,
        typer.Option(
            "--markdown",
            metavar="FOLDER",
            help="Write pages in Markdown to a folder: an index, and a page for each paper and library.",
        ),
    ] = None,
    workers: Workers = None,
    cluster: Cluster = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Checks statements of papers and libraries about privacy, by computing what they state.

    Exits with 0 if every verdict is the recorded one, and with 1 if not.
    """
    from dpassay.base.errors import InputError
    from dpassay.base.progress import with_progress
    from dpassay.base.validate import did_you_mean
    from dpassay.claims.published import registry, words
    from dpassay.mechanisms.compute.workers import executor

    known = {claim.id: claim for claim in registry.read_published_claims()}
    for item in ids or ():
        if item not in known:
            near = did_you_mean(item, known)
            raise InputError(f"there is no published claim {item!r}{near}; `dpassay claims` lists all {len(known)}")
    chosen = [known[item] for item in dict.fromkeys(ids or known)]
    progress = options.progress(json_, quiet)
    with executor(workers, cluster, progress) as do, progress.stage("Checking claims") as step:
        result = list(with_progress(do.map(registry.check_claim, chosen), step, len(chosen)))

    def in_words() -> None:
        if explain:
            say("\n\n".join(words.explained(item) for item in result))
        else:
            _print(result)

    if markdown is not None:
        for name, text in words.pages(result).items():
            (markdown / name).parent.mkdir(parents=True, exist_ok=True)
            (markdown / name).write_text(text, encoding="utf-8")
    options.show({"claims": [item.to_json() for item in result]}, in_words, json_, quiet)
    if not all(item.as_recorded for item in result):
        raise typer.Exit(ExitCode.REFUTED)


def _print(result: Sequence[CheckedClaim]) -> None:
    from rich import box
    from rich.table import Table

    from dpassay.claims.published import words
    from dpassay.cli.table_console import TableConsole

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("claim", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    for name in ("published", "recomputed"):
        table.add_column(name, justify="right", no_wrap=True)
    for item in result:
        about = f"{item.claim.id}: {item.claim.quantity}"
        table.add_row(about, item.verdict, words.published(item), words.recomputed(item))
    TableConsole().print(table)
    say(words.summary(result))
    say("`dpassay claims ID --explain` shows how a number comes about.")
