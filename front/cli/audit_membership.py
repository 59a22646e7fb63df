"""The parser of `cupel audit membership`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from cupel.cli.exit_codes import of_audit
from cupel.terminal import say

EXAMPLE = (
    "Examples: cupel audit membership scores.csv --coins --delta 1e-5\n\n"
    "cupel audit membership --records candidates.jsonl --synthetic synthetic.jsonl --reference public.jsonl --coins\n\n"
    "cupel audit membership --records candidates.jsonl --model my-model --references 16 --attack lira-online --coins"
)


def membership(
    scores: Annotated[
        Path | None,
        typer.Argument(
            help="Signals (.csv, .jsonl, .parquet): columns target, included, ref_1, …, ref_in_1, …; larger: fits."
        ),
    ] = None,
    records: Annotated[
        Path | None, typer.Option(help="Candidates in place of signals: columns text, included.")
    ] = None,
    synthetic: Annotated[
        Path | None, typer.Option(help="With --records: the released texts; only they are seen.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="With --records: folder of the model trained on them.")] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Texts of the same kind that are no candidates; RMIA's population.")
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            help="loss, lira-online, lira-offline, rmia-online, rmia-offline; ngram, neighbourhood for synthetic text. "
            "Repeat for several; each is paid for."
        ),
    ] = None,
    guesses: Annotated[
        list[int] | None, typer.Option(help="How many candidates to guess, fixed before; each of several is paid for.")
    ] = None,
    side: Annotated[str, typer.Option(help="Guess at both ends, or only who is in: both or in.")] = "both",
    coins: Annotated[
        bool, typer.Option("--coins", help="Each candidate was in by its own fair coin: then ε is bounded.")
    ] = False,
    epsilon: Annotated[
        float | None, typer.Option(help="ε that is claimed at --delta; exit 1 if it is refuted.")
    ] = None,
    delta: Annotated[float, typer.Option(help="δ at which ε is bounded, in [0, 1).")] = 0.0,
    confidence: Annotated[float, typer.Option(help="Of the bound, in (0, 1).")] = 0.95,
    unit: Annotated[str, typer.Option(help="What a candidate is: record, user or group(k).")] = "record",
    text: Annotated[str, typer.Option(help="Column of the text in --records and --reference.")] = "text",
    synthetic_text: Annotated[str, typer.Option(help="Column of the text in --synthetic.")] = "text",
    order: Annotated[int, typer.Option(help="ngram: bytes of an n-gram.")] = 5,
    neighbours: Annotated[int, typer.Option(help="neighbourhood: how many nearest texts.")] = 10,
    gamma: Annotated[float, typer.Option(help="RMIA: γ.")] = 2.0,
    a: Annotated[float, typer.Option("--a", help="RMIA offline: a, in [0, 1].")] = 1.0,
    base: Annotated[
        str, typer.Option(help="--model: the public model it was made from: builtin or a folder.")
    ] = "builtin",
    references: Annotated[int, typer.Option(help="--model: how many reference models to train.")] = 0,
    epochs: Annotated[int, typer.Option(help="Reference models: epochs.")] = 3,
    batch_size: Annotated[int, typer.Option(help="Reference models: texts of a step.")] = 16,
    learning_rate: Annotated[float, typer.Option(help="Reference models: of AdamW.")] = 1e-3,
    workers: Annotated[int, typer.Option(help="Reference models: processes.")] = 1,
    device: Annotated[str, typer.Option(help="Where models run: auto, cpu or cuda.")] = "cpu",
    seed: Annotated[int, typer.Option(help="Of ties and reference models; it protects nothing.")] = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="JSON file; private/membership-audit.json by default.")
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Machine-readable: results on stdout, progress on stderr.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")] = False,
) -> None:
    """Tells who was in the data, from signals of models, from a model, or from synthetic text alone.

    With --coins there is a lower bound on ε; without, areas under the curve and rates only. A row of SCORES without
    `included` is a population record.
    """
    from cupel.errors import InputError, input_errors

    given = (scores is not None, records is not None, synthetic is not None, model is not None)
    if given not in ((True, False, False, False), (False, True, True, False), (False, True, False, True)):
        raise InputError("give either SCORES, or --records with --synthetic, or --records with --model")
    from cupel.audit_jobs import membership as job
    from cupel.progress import Progress
    from cupel.utility.measures import output_file, synthetic_file, write

    options = job.Options(
        attacks=tuple(attack or ()),
        guesses=tuple(guesses or ()),
        side=side,
        coins=coins,
        delta=delta,
        epsilon=epsilon,
        confidence=confidence,
        unit=unit,
        gamma=gamma,
        a=a,
        order=order,
        neighbours=neighbours,
        seed=seed,
        progress=Progress("quiet" if quiet else "json" if json_ else "bar"),
    )
    path = output_file(
        scores or synthetic or records or Path(), output, job.NAME, (records, model, reference, Path(base))
    )
    found: dict[str, Any]
    if scores is not None:
        found = job.audit_signals(scores, options)
    elif synthetic is not None:
        assert records is not None
        found = job.audit_texts(
            records, synthetic_file(synthetic), reference, options, text=text, synthetic_text=synthetic_text
        )
    else:
        assert records is not None
        from cupel.mechanisms.models.fine_tuning import Training

        with input_errors():
            training = Training(epochs=epochs, batch_size=batch_size, learning_rate=learning_rate)
        found = job.audit_model(
            records,
            str(model),
            job.ReferenceOptions(base=base, models=references, training=training, device=device, workers=workers),
            options,
            text=text,
            population=reference,
            folder=path.with_name("reference-models"),
        )
    write(found, path)
    if json_:
        print(json.dumps(found))
    elif not quiet:
        from cupel.audit_jobs.membership_table import print_audit

        print_audit(found)
        say(f"Written to {path}")
    raise typer.Exit(of_audit(found["refuted"]))
