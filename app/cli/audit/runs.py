"""`dpassay audit runs plan`, `run`, `score`, `bound` and `report`: audits a generator by many runs on neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from dpassay.base import defaults
from dpassay.base.terminal import say
from dpassay.cli import completion
from dpassay.cli.exit_codes import IN_AUDIT_HELP
from dpassay.cli.options import FORMATS, Confidence, Json, Quiet, call, conclude, show, with_fields
from dpassay.data.reader import FOUND, FileOptions

app = typer.Typer(
    no_args_is_help=True,
    help="Runs a generator many times on data sets that differ in one record, and computes a lower bound on its ε from "
    "how reliably its outputs reveal which one it read. In this order: plan, run (or score, where runs are made "
    "elsewhere), bound, report.",
    epilog="Example: dpassay audit runs plan --like people.csv --epsilon 1 -o runs",
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder that `dpassay audit runs plan` made.")]
_COMMAND = '--command "python gen.py {input} {output}"'


@app.command(
    epilog="Example: dpassay audit runs plan --like people.csv --epsilon 1 -o runs\n\n"
    "With neighbours of your own: dpassay audit runs plan --pair people.csv without-ann.csv --epsilon 1 -o runs\n\n"
    f"{IN_AUDIT_HELP}"
)
@with_fields
def plan(
    folder: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The folder to make.")],
    like: Annotated[
        Path | None, typer.Option(help=f"File of the data ({FORMATS}) on which neighbours are modelled.")
    ] = None,
    pair: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="FILE FILE",
            help="Instead of --like: two files that are neighbours, such as your data with and without one record. No "
            "other pair is tested.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Claimed ε, for this unit and adjacency. Without it nothing is refuted.")
    ] = None,
    delta: Annotated[float, typer.Option(help="Claimed δ, in [0, 1).")] = 0.0,
    adjacency: Annotated[
        str,
        typer.Option(
            help="Neighbouring relation of the claim: add_remove or replace_one.",
            autocompletion=completion.tested_adjacency,
        ),
    ] = "add_remove",
    unit: Annotated[
        str, typer.Option(help='What the claim protects: record or "group(k)".', autocompletion=completion.tested_unit)
    ] = "record",
    runs: Annotated[
        int | None,
        typer.Option(
            help="Largest number of runs on both data sets together, including those of the search. Default: 300, or "
            "more if the claim needs them."
        ),
    ] = None,
    confidence: Confidence = defaults.CONFIDENCE,
    neighbors: Annotated[
        list[str] | None,
        typer.Option(
            help="Strategy that makes neighbours, such as new_category or extreme_value, or a probe, such as "
            "threshold; repeatable. Default: all that apply.",
            autocompletion=completion.neighbors,
        ),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(help="Public domains of the columns (`dpassay table schema`); neighbours keep to them."),
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(
            help="Largest number of records of a data set; they are drawn at random from the file. Default: "
            f"{defaults.MANY_RUNS_RECORDS}."
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Column of the class label. Default: the category with the fewest values.")
    ] = None,
    number: Annotated[
        list[str] | None,
        typer.Option(help="Column of numbers or dates, in which all other cells count as missing; repeatable."),
    ] = None,
    categorical: Annotated[
        list[str] | None, typer.Option(help="Column of numbers that are categories; repeatable.")
    ] = None,
    texts: Annotated[list[str] | None, typer.Option("--text", help="Column of prose; repeatable.")] = None,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", help="Column of ids, or row numbers, which are no value of a record; repeatable."),
    ] = None,
    reading: FileOptions = FOUND,
    failures: Annotated[
        bool,
        typer.Option("--failures", help="Also test pairs on which every run fails if the record is in the data."),
    ] = False,
    title: Annotated[
        str, typer.Option(help="What the audit is called on its page. Default: the name of the folder.")
    ] = "",
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Makes neighbouring data sets, and says what the audit can show before the generator runs.

    What each column was taken for is shown first. Data sets are written as the file is, and with --pair copied.
    """
    options = locals()
    from dpassay import audit

    result = call(audit.runs, options)

    def in_words() -> None:
        from dpassay.cli.column_table import print_columns

        if (understood := result.plan.understood) is not None:
            print_columns(understood.summaries, {Path(result.plan.like).name: understood.written})
        say("\n".join(result.words()))
        say(f"Next: dpassay audit runs run {folder} {_COMMAND}")

    show(result.to_json(), in_words, json_, quiet)


@app.command(epilog=f"Example: dpassay audit runs run runs {_COMMAND} --workers 2\n\n{IN_AUDIT_HELP}")
def run(
    folder: Folder,
    command: Annotated[
        str | None,
        typer.Option(
            help="Command that runs the generator, with {input} and {output}, and {seed} if it takes one. No shell is "
            "used."
        ),
    ] = None,
    function: Annotated[
        str | None,
        typer.Option(
            help="Instead of --command: module:function, called with the records and a seed; returns synthetic records."
        ),
    ] = None,
    unprotected: Annotated[
        str | None, typer.Option(help="The same command or function with protection off: the positive control.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Number of runs at a time.")] = 1,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run the command on the workers of a dask scheduler, such as tcp://10.0.0.1:8786, as many runs at a "
            "time as they have threads.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds after which a run is stopped and counts as failed.")
    ] = defaults.MANY_RUNS_TIMEOUT,
    all_: Annotated[
        bool, typer.Option("--all", help="Make all planned runs even after the claim is refuted, for a larger bound.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep outputs in DIR/private/outputs.")] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="If the claim is refuted, make further runs that show which column of the target gives it away, each "
            "alone. No bound counts them.",
        ),
    ] = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Runs the generator until the claim is refuted or all planned runs are made. Given again, it resumes.

    Before `dpassay audit runs bound`, more can be asked for by --explain or --all; after it, by a new plan only.
    """
    options = locals()
    from dpassay import audit

    made = call(audit.make_runs, options, stop=not options.pop("all_"))

    def in_words() -> None:
        say("\n".join((*made.notes, f"{made.made} runs were made, and no more are needed: {made.reason}.")))
        say(f"Next: dpassay audit runs bound {folder}")

    show(made.to_json(), in_words, json_, quiet)


@app.command(epilog=f"Example: dpassay audit runs score runs\n\n{IN_AUDIT_HELP}")
def score(
    folder: Folder,
    unprotected: Annotated[
        bool, typer.Option("--unprotected", help="Also ask for runs of the generator with its protection off.")
    ] = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Reads outputs of runs that were made elsewhere, and says which runs are needed next, until none is."""
    options = locals()
    from dpassay import audit

    made = call(audit.read_runs, options)

    def in_words() -> None:
        if made.wanted:
            say(f"{made.made} runs are read; the next {len(made.wanted)} are in {folder / 'private' / 'todo.csv'}")
        else:
            say(f"{made.made} runs were read, and no more are needed: {made.reason}.")
            say(f"Next: dpassay audit runs bound {folder}")

    show(made.to_json(), in_words, json_, quiet)


@app.command(epilog=f"Example: dpassay audit runs bound runs\n\n{IN_AUDIT_HELP}")
def bound(folder: Folder, json_: Json = False, quiet: Quiet = False) -> None:
    """Computes a lower bound on the generator's ε from the runs. Exits with 1 if it refutes the claim."""
    from dpassay import audit
    from dpassay.audits.games.many_runs import UNFINISHED

    result = audit.bound_runs(folder)

    def in_words() -> None:
        audit = result.audit
        say(audit.conclusion[:1].upper() + audit.conclusion[1:])
        if tested := audit.details.get("tested"):
            say(tested["differs"])
        for rate in audit.rates:
            say(f"{rate.name}: {rate.hits} of {rate.trials}")
        say("Tried: " + "; ".join(audit.multiplicity))
        if audit.details["failing"]:
            say(f"Not tested, because every run on one data set failed: {_failing(audit.details)}.")
        if audit.details["untried"]:
            say(f"Too few runs to try the neighbours {', '.join(audit.details['untried'])}.")
        if audit.details.get("stopped") == UNFINISHED:
            say("More runs were planned; none can be added to this plan now.")
        if result.explanation:
            say(result.explanation["says"])
        if result.control:
            say(result.control)

    conclude(result, in_words, json_, quiet)


def _failing(details: Mapping[str, Any]) -> str:
    """The pairs on which every run failed, with the number of these runs."""
    results = {item["pair"]: item for item in details["search"]}

    def runs(item: Mapping[str, Any]) -> str:
        number = item["runs_on_data"] if item["failing_on"] == "D" else item["runs_on_neighbor"]
        return f"{item['pair']} ({number} on {item['failing_on']})"

    return ", ".join(runs(results[name]) for name in details["failing"])


@app.command(epilog=f"Example: dpassay audit runs report runs\n\n{IN_AUDIT_HELP}")
def report(folder: Folder, json_: Json = False, quiet: Quiet = False) -> None:
    """Writes the result as one private page, DIR/report.html, and as DIR/report.json."""
    from dpassay import audit

    document = audit.report_runs(folder).model_dump(mode="json", by_alias=True)
    show(document, lambda: say(f"Report: {folder / 'report.html'}"), json_, quiet)
