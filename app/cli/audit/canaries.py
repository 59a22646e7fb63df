"""`dpassay audit plan`, `score`, `bound` and `report`: audits a third-party generator with canaries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpassay.accounting.adjacency import RECORD_UNITS
from dpassay.base import defaults
from dpassay.base.terminal import say
from dpassay.cli import completion
from dpassay.cli.options import FORMATS, Confidence, Device, Json, Quiet, call, conclude, show, with_fields
from dpassay.data.reader import FOUND, FileOptions

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder that `dpassay audit plan` made.")]
Expect = Annotated[str | None, typer.Option(metavar="HASH", help="SHA-256 of the manifest that you kept outside DIR.")]


@with_fields
def plan(
    folder: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The folder to make.")],
    kind: Annotated[
        str,
        typer.Option(
            help="key, echo (both for texts), table, edge or category (for rows).",
            autocompletion=completion.canary_kind,
        ),
    ] = "key",
    canaries: Annotated[
        int | None,
        typer.Option(
            help="Number of candidates; about half of them are planted. Default: 1000, or more if the claim needs them."
        ),
    ] = None,
    like: Annotated[
        Path | None, typer.Option(help=f"File of the data ({FORMATS}); canaries get the same columns.")
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(help="YAML file of the public domains of its columns, as `dpassay table schema` writes it."),
    ] = None,
    templates: Annotated[
        list[str] | None,
        typer.Option(
            "--template",
            help="Kind key: a sentence with {key} for the number; repeatable. Default: built-in sentences.",
        ),
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(
            help="Kinds table and edge: nearest (finds copied and interpolated rows; the default) or pairs (finds "
            "counts of pairs of columns). Kind echo: ngram (counts; the default) or model (a language model that is "
            "fine-tuned on the synthetic text).",
            autocompletion=completion.canary_score,
        ),
    ] = None,
    scorer: Annotated[
        str | None,
        typer.Option(help="Score model: the public language model, builtin or a folder. Default: builtin."),
    ] = None,
    canary_temperature: Annotated[
        float | None,
        typer.Option(help="Score model: temperature at which this model writes the endings of canaries. Default: 2."),
    ] = None,
    device: Device = "cpu",
    holdout: Annotated[
        float | None,
        typer.Option(
            help="Share of the data's own records that is kept from the generator by fair coins, at most 0.5; the run "
            "then serves `dpassay audit table`, `text` and `membership`, too."
        ),
    ] = None,
    text: Annotated[str, typer.Option(help="Column of the text.")] = "text",
    id: Annotated[str | None, typer.Option(help="Column of an id; canaries get new ids.")] = None,
    user: Annotated[str | None, typer.Option(help="Column of the user; each canary is a new user.")] = None,
    unit: Annotated[
        str,
        typer.Option(
            help="What the claim protects: " + RECORD_UNITS.replace("group(k)", '"group(k)"') + ".",
            autocompletion=completion.unit,
        ),
    ] = "record",
    copies: Annotated[int | None, typer.Option(help="Number of records of each canary, at unit user.")] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Claimed ε under adding or removing one unit. Without it nothing is refuted.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="Claimed δ. Default: 0, pure ε.")] = None,
    confidence: Confidence = defaults.CONFIDENCE,
    guesses: Annotated[
        int | None,
        typer.Option(
            help="Number of canaries guessed to be in the data; not for keys. Default: a tenth, or twice as many as "
            "the claim needs if that is more."
        ),
    ] = None,
    scorings: Annotated[
        int,
        typer.Option(help="Number of synthetic files that may be scored; the error probability is divided among them."),
    ] = 1,
    reading: FileOptions = FOUND,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Starts an audit with canaries (then score, bound, report): draws them and fixes in advance what is tested."""
    options = locals()
    from dpassay import audit
    from dpassay.auditing.canaries.words import layout_in_words, reach
    from dpassay.auditing.data import DATA
    from dpassay.cli.column_table import print_columns

    planned = call(audit.canaries, options)

    def in_words() -> None:
        if planned.plan.written:
            print_columns(planned.plan.understood, {DATA: planned.plan.written}, "Columns of the data")
        for line in planned.design.claim_in_words():
            say(line)
        size = planned.design.candidates
        if planned.plan.layout is None:
            say(f"{size} canaries of kind {kind}; add the planted ones to the data: {folder / planned.plan.canaries}")
        else:
            say(f"{size} canaries of kind {kind}")
        say(f"SHA-256 of the manifest, to be kept outside {folder}: {planned.manifest_sha256}")
        say("\n".join(reach(planned)))
        for line in layout_in_words(planned, str(folder)):
            say(line)
        say(f"What to do now is in {folder / 'README.md'}")

    show(planned.to_json(), in_words, json_, quiet)


@with_fields
def score(
    folder: Folder,
    synthetic: Annotated[Path | None, typer.Argument(help=f"What the generator wrote: a {FORMATS} file.")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="In place of a file: the folder of the language model that was trained on the data."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(help="With --model: the public model that it was fine-tuned from, builtin or a folder."),
    ] = None,
    device: Device = "cpu",
    text: Annotated[
        str | None,
        typer.Option(help="Column of the text in this file, for canaries of text. Default: that of the plan."),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(help="Column to leave out, by which no copy can be recognised; kinds table and edge, repeatable."),
    ] = None,
    reading: FileOptions = FOUND,
    unprotected: Annotated[
        bool,
        typer.Option(
            "--unprotected",
            help="The file is of the same generator with its protection off, from the same data and canaries: the "
            "positive control. It counts as no planned file.",
        ),
    ] = False,
    expect: Expect = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Scores the canaries of a plan on a synthetic file or a language model; needs nothing else of the generator."""
    options = locals()
    from dpassay import audit
    from dpassay.auditing.canaries.synthetic import SYNTHETIC
    from dpassay.cli.column_table import print_columns

    scored = call(audit.score_canaries, options)
    read = f"Scored all canaries by {model}"
    if model is None:
        read = f"Read {scored.rows} rows ({scored.bytes} bytes) of {synthetic}"

    def in_words() -> None:
        if scored.written and not scored.understood:
            say(f"Read as {scored.written}: {SYNTHETIC}")
        if scored.understood:
            print_columns(scored.understood, {SYNTHETIC: scored.written}, "Columns of the synthetic file")
        say(f"{read}; scores are in {folder / 'scores.json'}")

    show(scored.to_json(), in_words, json_, quiet)


def bound(folder: Folder, expect: Expect = None, json_: Json = False, quiet: Quiet = False) -> None:
    """Computes a lower bound on the generator's ε from the scores. Exits with 1 if it refutes the planned claim."""
    options = locals()
    from dpassay import audit
    from dpassay.base.number_format import format_ceiling

    result = call(audit.bound_canaries, options)

    def in_words() -> None:
        audit = result.audit
        say(audit.conclusion)
        for bound_ in audit.bounds:
            ceiling = format_ceiling(bound_.ceiling, bound_.value)
            say(f"Ceiling, had every guess been right (no sign of privacy): ε = {ceiling}")
        if gaussian := audit.details["gaussian"]:
            say(gaussian["sentence"])
        for rate in (*audit.rates, *audit.controls):
            say(f"{rate.name}: {rate.hits} of {rate.trials}")
        say("Tried: " + "; ".join(audit.multiplicity))
        for name in result.removed:
            say(f"{name} was removed after it was scored, so it could not be checked.")

    conclude(result, in_words, json_, quiet)


def report(folder: Folder, expect: Expect = None, json_: Json = False, quiet: Quiet = False) -> None:
    """Writes the result as a self-contained page, DIR/report.html, and as DIR/report.json."""
    from dpassay import audit

    document = audit.report_canaries(folder, expect=expect)
    show(
        document.model_dump(mode="json", by_alias=True), lambda: say(f"Report: {folder / 'report.html'}"), json_, quiet
    )
