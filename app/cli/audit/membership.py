"""`dpassay audit membership scores`, `model` and `text`: membership inference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from dpassay.accounting.adjacency import RECORD_UNITS
from dpassay.base import defaults
from dpassay.base.number_format import format_interval, format_lower, format_number
from dpassay.base.terminal import say
from dpassay.cli import completion
from dpassay.cli.exit_codes import IN_AUDIT_HELP
from dpassay.cli.options import (
    FORMATS,
    BoundDelta,
    Cluster,
    Confidence,
    Device,
    Json,
    Quiet,
    Seed,
    SyntheticText,
    Workers,
    call,
    conclude,
    with_fields,
)
from dpassay.data.chats import TEXTS, TextOptions
from dpassay.data.reader import FOUND, CsvOptions

if TYPE_CHECKING:
    from dpassay.auditing.membership.run import MembershipAudit


class _OldForm(TyperGroup):
    """A group that explains its subcommands to whoever calls it as in version 0.1, when it had none."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "-h", "--help"):
            ctx.fail(
                "Name one of three commands: `scores FILE` for signals of models, `model RECORDS --model FOLDER` for a "
                f"model, `text RECORDS --synthetic FILE` for synthetic text; not {args[0]!r}."
            )
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_OldForm,
    no_args_is_help=True,
    help="Infers which candidates were in the data, from signals of models, from a model, or from synthetic text.\n\n"
    "With --coins there is a lower bound on ε; without, only areas under the curve and rates.",
)

Records = Annotated[
    Path, typer.Argument(metavar="records", help=f"Candidates ({FORMATS}) with columns text and included.")
]
Text = Annotated[str, typer.Option(help="Column of the text in files of records.")]
Attack = Annotated[
    list[str] | None,
    typer.Option(
        "--attack",
        help="loss, lira-online, lira-offline, rmia-online or rmia-offline; repeatable, but each weakens the bound.",
        autocompletion=completion.attack_on_model,
    ),
]
Guesses = Annotated[
    list[int] | None,
    typer.Option(help="Number of candidates to guess, fixed in advance; repeatable, but each weakens the bound."),
]
Side = Annotated[
    str,
    typer.Option(help="both: guess members and non-members; in: guess members only.", autocompletion=completion.side),
]
Coins = Annotated[
    bool, typer.Option("--coins", help="An independent fair coin put each candidate in or out: then ε is bounded.")
]
Epsilon = Annotated[float | None, typer.Option(help="Claimed ε at --delta; the command exits with 1 if it is refuted.")]
Unit = Annotated[str, typer.Option(help=f"What a candidate is: {RECORD_UNITS}.", autocompletion=completion.unit)]
Gamma = Annotated[float, typer.Option(help="The threshold γ of RMIA.")]
A = Annotated[float, typer.Option("--a", help="The parameter a of offline RMIA, in [0, 1].")]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="JSON file; private/membership-audit.json by default.")
]


@app.command(epilog=f"Example: dpassay audit membership scores scores.csv --coins --delta 1e-5\n\n{IN_AUDIT_HELP}")
@with_fields
def scores(
    candidates: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help=f"Signals ({FORMATS}) with columns target, included, ref_1, …, ref_in_1, …; a larger "
            "signal means that a model fits a record better.",
        ),
    ],
    attacks: Attack = None,
    guesses: Guesses = None,
    side: Side = "both",
    coins: Coins = False,
    epsilon: Epsilon = None,
    delta: BoundDelta = 0.0,
    confidence: Confidence = defaults.CONFIDENCE,
    unit: Unit = "record",
    gamma: Gamma = defaults.RMIA_GAMMA,
    a: A = defaults.RMIA_A,
    seed: Seed = 0,
    reading: CsvOptions = FOUND,
    output: Output = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Uses signals of the target and of reference models. A row without `included` is a population record."""
    _audit(locals(), candidates)


@app.command(
    epilog="Example: dpassay audit membership model candidates.jsonl --model my-model --references 16 "
    f"--attack lira-online --coins\n\n{IN_AUDIT_HELP}"
)
@with_fields
def model(
    candidates: Records,
    model: Annotated[Path, typer.Option(help="Folder of the model that was fine-tuned on some of them.")],
    base: Annotated[
        str, typer.Option(help="Public model that it was fine-tuned from: builtin or a folder.")
    ] = "builtin",
    references: Annotated[int, typer.Option(help="Number of reference models to train.")] = 0,
    epochs: Annotated[int, typer.Option(help="Epochs of each reference model.")] = defaults.EPOCHS,
    batch_size: Annotated[int, typer.Option(help="Batch size of each reference model.")] = defaults.BATCH_SIZE,
    learning_rate: Annotated[
        float, typer.Option(help="Learning rate (AdamW) of each reference model.")
    ] = defaults.LEARNING_RATE,
    workers: Workers = None,
    cluster: Cluster = None,
    reference: Annotated[
        Path | None,
        typer.Option(help="Texts of the same kind without candidates: the population of RMIA."),
    ] = None,
    text: Text = "text",
    attacks: Attack = None,
    guesses: Guesses = None,
    side: Side = "both",
    coins: Coins = False,
    epsilon: Epsilon = None,
    delta: BoundDelta = 0.0,
    confidence: Confidence = defaults.CONFIDENCE,
    unit: Unit = "record",
    gamma: Gamma = defaults.RMIA_GAMMA,
    a: A = defaults.RMIA_A,
    device: Device = "cpu",
    seed: Seed = 0,
    reading: TextOptions = TEXTS,
    output: Output = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Attacks a model that was fine-tuned on some of the candidates. Given again, it reuses its reference models."""
    _audit(locals(), candidates, candidates, model, reference, Path(base))


@app.command(
    epilog="Example: dpassay audit membership text candidates.jsonl --synthetic synthetic.jsonl "
    f"--reference public.jsonl --coins\n\n{IN_AUDIT_HELP}"
)
@with_fields
def text(
    candidates: Records,
    synthetic: Annotated[Path, typer.Option(help="The released texts, or the folder of a run.")],
    reference: Annotated[Path | None, typer.Option(help="Texts of the same kind without candidates.")] = None,
    text: Text = "text",
    synthetic_text: SyntheticText = "text",
    attacks: Annotated[
        list[str] | None,
        typer.Option(
            "--attack",
            help="ngram or neighbourhood; repeatable, but each weakens the bound.",
            autocompletion=completion.attack_on_text,
        ),
    ] = None,
    order: Annotated[int, typer.Option(help="ngram attack: bytes of an n-gram.")] = defaults.NGRAM_ORDER,
    neighbours: Annotated[
        int, typer.Option(help="neighbourhood attack: number of nearest texts.")
    ] = defaults.NEIGHBOURS,
    guesses: Guesses = None,
    side: Side = "both",
    coins: Coins = False,
    epsilon: Epsilon = None,
    delta: BoundDelta = 0.0,
    confidence: Confidence = defaults.CONFIDENCE,
    unit: Unit = "record",
    seed: Seed = 0,
    reading: TextOptions = TEXTS,
    output: Output = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Attacks synthetic text alone: is it closer to a candidate than it would be without it?"""
    _audit(locals(), synthetic, candidates, reference)


def _audit(options: dict[str, Any], beside: Path, *inputs: Path | None) -> NoReturn:
    """Makes the audit of a command, and writes the result to `output`, or beside a file or in the folder of a run."""
    from dpassay import audit
    from dpassay.auditing.membership.run import NAME
    from dpassay.base.private_results import output_file

    path = output_file(beside, options["output"], NAME, inputs)
    result = call(audit.membership, options, output=path)

    def in_words() -> None:
        print_audit(result)
        say(f"Written to {path}")

    conclude(result, in_words, options["json_"], options["quiet"])


def print_audit(result: MembershipAudit) -> None:
    """Prints areas, rates and guesses of every attack as a table, and the conclusion."""
    from rich.table import Table

    from dpassay.base.private_results import PRIVATE
    from dpassay.cli.table_console import TableConsole

    audit = result.audit
    details, rates = audit.details, audit.rates
    title = (
        f"{details['candidates']} candidates, {details['included']} in the data; how many of those are found while at "
        "most so many of the others are taken for them"
    )
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(("attack", "area", "interval", "0.1 %", "1 %", "10 %", "right", "ε ≥")):
        table.add_column(column, justify="right" if number else "left", no_wrap=column not in ("attack", "interval"))
    for index, (name, area) in enumerate(details["areas"].items()):
        low, high = area["interval"]
        hits = [f"{rate.hits}" for rate in rates[6 * index : 6 * index + 6 : 2]]
        tries = [attempt for attempt in details["attempts"] if attempt["attack"] == name]
        right = [f"{attempt['correct']}/{attempt['guesses']}" for attempt in tries]
        epsilons = [format_lower(attempt["epsilon"]) for attempt in tries if attempt["epsilon"] is not None]
        cells = (format_number(area["value"]), format_interval(low, high), *hits, "\n".join(right) or "–")
        table.add_row(name, *cells, "\n".join(epsilons) or "–")
    console = TableConsole()
    console.print(f"PRIVATE. {PRIVATE}", markup=False, highlight=False)
    console.print(table)
    console.print(audit.conclusion, markup=False, highlight=False)
    if details["gaussian"]:
        console.print(details["gaussian"]["sentence"], markup=False, highlight=False)
