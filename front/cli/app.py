"""The command line. Heavy modules are imported inside the commands, so that `cupel --help` answers at once."""

from __future__ import annotations

import functools
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from cupel import __version__
from cupel.cli.audit import app as _audit
from cupel.cli.calibrate import app as _calibrate
from cupel.cli.centres import centres as _centres
from cupel.cli.compare import app as _compare
from cupel.cli.exit_codes import IN_HELP, ExitCode, interrupted, of_verdict
from cupel.cli.exit_codes import fault as _fault
from cupel.cli.release import Anchor
from cupel.cli.release import release as _release
from cupel.cli.utility import utility as _utility
from cupel.terminal import one_line, say

if TYPE_CHECKING:
    from cupel.progress import Progress

app = typer.Typer(
    name="cupel",
    help="Verifies privacy claims about synthetic text: claim in, verdict with proof and evidence out.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

_GENERATE = ("torch", "transformers", "tokenizers", "safetensors", "pyarrow", "huggingface_hub", "sklearn")

# The base of typer's own input errors, which it does not export by name.
_USAGE_ERROR: type[typer.BadParameter] = typer.BadParameter.__mro__[1]

Json = Annotated[bool, typer.Option("--json", help="Machine-readable: results on stdout, progress on stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")]
Device = Annotated[str, typer.Option(help="Where the language model runs: auto, cpu or cuda.")]
Download = Annotated[bool, typer.Option("--download", help="Fetch a hub id that is not on this machine.")]
AllowEndpoint = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Address of the claim's endpoint: allows sending it prompts and the API key that the claim names.",
    ),
]
Model = Annotated[
    str | None, typer.Option(help="A local model folder or a hub id, in place of the one the claim names.")
]


def _fail(message: str) -> NoReturn:
    from cupel.errors import InputError

    raise InputError(message)


def _progress(json_: bool, quiet: bool) -> Progress:
    from cupel.progress import Progress

    return Progress("quiet" if quiet else "json" if json_ else "bar")


def _device(name: str) -> str:
    if name not in ("auto", "cpu", "cuda"):
        _fail(f"--device must be auto, cpu or cuda, not {name!r}")
    return name


@app.callback(invoke_without_command=True)
def _main(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        print(f"cupel {__version__}")
        raise typer.Exit


@app.command(epilog=f"Example: cupel assay examples/claims/keys-median.yaml -o report\n\n{IN_HELP}")
def assay(
    claim: Annotated[Path, typer.Argument(help="The claim, a YAML file (see `cupel schema claim`).")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the run.")] = Path("report"),
    model: Model = None,
    device: Device = "auto",
    download: Download = False,
    allow_endpoint: AllowEndpoint = None,
    anchor: Anchor = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Runs the claimed mechanism, accounts for it, attacks it, and writes the report with a verdict.

    Everything is written to private/; `cupel release` makes the folder that may leave. Every verdict is kept in the
    ledger and counts for the next one. Given again, the same command resumes a run that was interrupted.
    """
    from cupel.claims.read import read_claim
    from cupel.io.outputs import check_output_folder

    asserted, on = read_claim(claim), _device(device)
    check_output_folder(output, asserted.reads(claim, model))
    from cupel.jobs import assay as job  # loads torch, which a mistake in the claim need not wait for

    finished = job.assay(
        asserted,
        output,
        model=model,
        device=on,
        download=download,
        anchor=anchor,
        allow_endpoint=allow_endpoint,
        progress=_progress(json_, quiet),
    )
    page = output / "private" / "report.html"
    if json_:
        print(json.dumps(json.loads(finished.model_dump_json(by_alias=True))))
    elif not quiet:
        say(f"{finished.sentence} Report: {page}")
    raise typer.Exit(of_verdict(finished.verdict))


@app.command(epilog="Example: cupel generate examples/claims/keys-median.yaml -o run")
def generate(
    config: Annotated[Path, typer.Argument(help="A claim file; its guarantee and audits are not needed.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the run.")],
    model: Model = None,
    device: Device = "auto",
    download: Download = False,
    allow_endpoint: AllowEndpoint = None,
    anchor: Anchor = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Runs a generator: synthetic data, and the ledger of what they cost, in private/."""
    from cupel.claims.read import read_claim
    from cupel.io.outputs import check_output_folder

    configured, on = read_claim(config), _device(device)
    check_output_folder(output, configured.reads(config, model))
    from cupel.jobs import generate as generation

    run = generation.generate(
        configured,
        output,
        model=model,
        device=on,
        download=download,
        anchor=anchor,
        allow_endpoint=allow_endpoint,
        progress=_progress(json_, quiet),
    )
    summary = run.summary()
    if json_:
        print(json.dumps(summary))
    elif not quiet:
        say(f"{summary['documents']} documents in {summary['path']}; what they cost is in {summary['ledger']}")
        say(f"Head of the ledger: {summary['head']}")


@app.command(epilog="Example: cupel account report/private/ledger.sqlite next.yaml --delta 1e-5")
def account(
    files: Annotated[
        list[Path],
        typer.Argument(help="Ledgers over one data set, which compose, and claims (.yaml) that would run on it."),
    ],
    delta: Annotated[
        float | None, typer.Option(help="The δ at which ε is asked for, in (0, 1); that of the claims if not given.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="One accountant; all that support the events if not given.")
    ] = None,
    p: Annotated[
        float | None,
        typer.Option(
            help="The p at which r is asked for, at unit secret; those of the runs and claims if not given. Such a "
            "claim's plan depends on where secrets are, so its data are read."
        ),
    ] = None,
    anchor: Annotated[
        Path | None,
        typer.Option(help="The file that holds the heads of the ledgers; one in your folder for state if not given."),
    ] = None,
    json_: Json = False,
) -> None:
    """Says what ledgers cost, and what claims would cost if they ran, by every accountant that can read them."""
    from cupel.jobs import account as job

    rows = job.account_files(files, delta=delta, method=method, p=p, anchor=anchor)
    if json_:
        print(json.dumps(rows.to_json()))
    else:
        job.print_table(rows)


app.add_typer(_audit, name="audit")
app.add_typer(_compare, name="compare")
app.add_typer(_calibrate, name="calibrate")
app.command("centres", epilog="Example: cupel centres public.jsonl -o centres.safetensors --count 1000")(_centres)
app.command("release", epilog="Example: cupel release report -o released")(_release)
app.command("utility", epilog="Example: cupel utility report --real notes.jsonl --label topic")(_utility)


@app.command(epilog="Example: cupel accountants --adjacency replace_one")
def accountants(
    adjacency: Annotated[
        str | None, typer.Option(help="add_remove, replace_one, zero_out or secret; all of them if not given.")
    ] = None,
    json_: Json = False,
) -> None:
    """Shows which accountant has a bound for which kind of event, with which rigor, and why others have none."""
    from cupel.jobs import accountants as job

    found = job.supported(adjacency)
    if json_:
        print(json.dumps([answer.to_json() for answers in found.values() for answer in answers]))
    else:
        job.print_tables(found, reasons=adjacency is not None)


@app.command(epilog="Example: cupel schema claim > claim.schema.json")
def schema(
    of: Annotated[str, typer.Argument(help="claim or assay")] = "claim",
) -> None:
    """Prints the JSON Schema of a claim file or of assay.json."""
    if of == "claim":
        from cupel.claims.read import json_schema
    elif of == "assay":
        from cupel.reports.schema import json_schema
    else:
        _fail(f"there is a schema of `claim` and of `assay`, not of {of!r}")
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@functools.cache
def _parser() -> Any:
    """Made once: it reads the type hints of every command, which takes longer than many a command."""
    return typer.main.get_command(app)


@contextmanager
def _libraries_silent() -> Iterator[None]:
    """Logs and warnings of libraries may tell of records: how long one is, how many there are."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _run(arguments: list[str]) -> int:
    """Runs a command and says how it ended: a user's mistake, or a full disk, is one line on standard error."""
    from cupel.errors import InputError, file_error

    try:
        with _libraries_silent(), _parser().make_context("cupel", arguments or ["--help"]) as context:
            _parser().invoke(context)
        return ExitCode.DONE
    except typer.Exit as ended:
        return ended.exit_code
    except _USAGE_ERROR as error:
        return _bad_input(f"{error.format_message()} See `cupel --help`.")
    except InputError as error:
        return _bad_input(str(error))
    except ModuleNotFoundError as error:
        if error.name not in _GENERATE:
            return _fault()
        return _bad_input(f"{error.name} is not installed; generators need pip install 'cupel[generate]'")
    except (KeyboardInterrupt, typer.Abort):
        return interrupted(arguments)
    except Exception as error:
        if (message := file_error(error)) is None:
            return _fault()
        return _bad_input(message)


def _bad_input(message: str) -> ExitCode:
    print(one_line(f"cupel: {message}"), file=sys.stderr)
    return ExitCode.BAD_INPUT
