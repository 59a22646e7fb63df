"""The command line. Commands import heavy modules when they run, so that `dpassay --help` answers at once."""

from __future__ import annotations

import functools
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Annotated, Any

import typer

from dpassay import __version__
from dpassay.base.extras import install
from dpassay.cli import calibrate, compare, key, ledger, table
from dpassay.cli.account import account
from dpassay.cli.accountants import accountants
from dpassay.cli.assay import assay
from dpassay.cli.audit import commands as audit
from dpassay.cli.centres import centres
from dpassay.cli.claims import claims
from dpassay.cli.exit_codes import IN_HELP, ExitCode, bad_input, fault, interrupted
from dpassay.cli.gate import gate
from dpassay.cli.generate import generate
from dpassay.cli.release import release
from dpassay.cli.report import report
from dpassay.cli.schema import schema
from dpassay.cli.utility import utility
from dpassay.cli.verify import verify

app = typer.Typer(
    name="dpassay",
    help="Checks privacy claims about synthetic text and tables: proven upper bounds, audits, and a verdict.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

BOTH, PROVE, GENERATE, AUDIT = "Check a claim: prove and audit", "Prove", "Generate and release", "Audit"
"""The groups of commands in the help."""

_NEEDED_TO_GENERATE = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "pyarrow",
    "huggingface_hub",
    "sklearn",
    "statsmodels",
)

# The base of typer's own input errors, which it does not export by name.
_USAGE_ERROR: type[typer.BadParameter] = typer.BadParameter.__mro__[1]


@app.callback(invoke_without_command=True)
def _main(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from dpassay.base.commit import commit_in_words

        print(f"dpassay {__version__}{commit_in_words()}")
        raise typer.Exit


app.command(
    "assay",
    rich_help_panel=BOTH,
    epilog="Example: dpassay assay examples/claims/keys-median.yaml -o report\n\n"
    f"Example: dpassay assay examples/claims/keys-median.yaml -o report --workers 2\n\n{IN_HELP}",
)(assay)
app.command("report", rich_help_panel=BOTH, epilog="Example: dpassay report report")(report)
app.command("claims", rich_help_panel=BOTH, epilog="Example: dpassay claims 000-4 --explain")(claims)
app.command("schema", rich_help_panel=BOTH, epilog="Example: dpassay schema claim > claim.schema.json")(schema)
app.command(
    "account",
    rich_help_panel=PROVE,
    epilog="Example: dpassay account report/private/ledger.sqlite next.yaml --delta 1e-5\n\n"
    "Example: dpassay account checkpoint.pt --delta 1e-5 --sampler poisson --adjacency zero_out",
)(account)
app.add_typer(compare.app, name="compare", rich_help_panel=PROVE)
app.add_typer(calibrate.app, name="calibrate", rich_help_panel=PROVE)
app.command(
    "gate",
    rich_help_panel=PROVE,
    epilog="Example: dpassay gate report/private/ledger.sqlite --max-epsilon 3 --delta 1e-6 --unit user",
)(gate)
app.add_typer(ledger.app, name="ledger", rich_help_panel=PROVE)
app.command("accountants", rich_help_panel=PROVE, epilog="Example: dpassay accountants --adjacency replace_one")(
    accountants
)
app.command(
    "generate", rich_help_panel=GENERATE, epilog="Example: dpassay generate examples/claims/keys-median.yaml -o run"
)(generate)
app.command(
    "release",
    rich_help_panel=GENERATE,
    epilog="Example: dpassay release report -o released\n\n"
    "Example: dpassay release report -o released --key release.key",
)(release)
app.command(
    "verify",
    rich_help_panel=GENERATE,
    epilog="Example: dpassay verify released --key 3b6a…\n\n"
    "Example: dpassay verify released --ledger report/private/ledger.sqlite",
)(verify)
app.add_typer(key.app, name="key", rich_help_panel=GENERATE)
app.command(
    "centres",
    rich_help_panel=GENERATE,
    epilog="Example: dpassay centres public.jsonl -o centres.safetensors --count 1000\n\n"
    "Example: dpassay centres public.jsonl -o centres.safetensors --count 1000 --workers 4",
)(centres)
app.add_typer(table.app, name="table", rich_help_panel=GENERATE)
app.command(
    "utility", rich_help_panel=GENERATE, epilog="Example: dpassay utility report --real notes.jsonl --label topic"
)(utility)
app.add_typer(audit.app, name="audit", rich_help_panel=AUDIT)


@functools.cache
def command_parser() -> Any:
    """The parser of all commands. Made once, because it reads the type hints of every command, which is slow."""
    return typer.main.get_command(app)


@contextmanager
def _libraries_silent() -> Iterator[None]:
    """Silences libraries, whose logs and warnings may reveal the number or the length of records."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _exit_code(context: Any, arguments: list[str]) -> int:
    from dpassay.base.progress import waiting

    silent = {"--json", "--quiet", "-q"} & set(arguments)
    try:
        with nullcontext() if silent else waiting("Working …"):
            command_parser().invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    return ExitCode.DONE


def _with_what_was_given(error: typer.BadParameter) -> str:
    """The message of a usage error in one sentence; that of a value that is no number lacks the value."""
    from pydantic import ValidationError

    if isinstance(error.__context__, ValidationError):
        first = error.__context__.errors(include_url=False)[0]
        kind = {"float_parsing": "a number", "int_parsing": "a whole number, written with digits only"}
        if first["type"] in kind:
            error.message = f"must be {kind[first['type']]}, not {first['input']!r}"
    return f"{error.format_message().rstrip('.')}."


def run_command(arguments: list[str]) -> int:
    """Runs a command and returns its exit code; a user's mistake or a full disk is one line on standard error."""
    from dpassay.base.errors import InputError, file_error
    from dpassay.base.pipes import refuse_named_pipes

    refuse_named_pipes()
    try:
        if "_DPASSAY_COMPLETE" in os.environ:  # a shell asks what a word could become
            command_parser().main(prog_name="dpassay")
        with _libraries_silent(), command_parser().make_context("dpassay", arguments or ["--help"]) as context:
            code = _exit_code(context, arguments)
        if sys.stdout is not None:
            sys.stdout.flush()  # a full disk or a closed pipe is said here, not by the interpreter as it exits
        return code
    except typer.Exit as ended:  # of --help and --version
        return ended.exit_code
    except _USAGE_ERROR as error:
        command = error.ctx.command_path if error.ctx is not None else "dpassay"
        return bad_input(f"{_with_what_was_given(error)} See `{command} --help`.", arguments)
    except InputError as error:
        return bad_input(str(error), arguments)
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED_TO_GENERATE:
            return fault(arguments)
        return bad_input(f"{error.name} is not installed; generators need {install('generate')}", arguments)
    except (KeyboardInterrupt, typer.Abort):
        return interrupted(arguments)
    except BrokenPipeError:
        raise
    except Exception as error:
        if (message := file_error(error)) is None:
            return fault(arguments)
        return bad_input(message, arguments)
