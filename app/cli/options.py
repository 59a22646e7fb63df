"""Options that several commands share, and how commands print results."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Protocol, TypeVar, get_args, get_origin, get_type_hints

import typer

from dpassay.accounting.adjacency import RECORD_RELATIONS, RECORD_UNITS, SINGLE_KINDS
from dpassay.accounting.interop.conditions import Condition, Normalizer, Sampler
from dpassay.base.errors import InputError, input_errors
from dpassay.cli import completion
from dpassay.cli.completion import complete
from dpassay.cli.exit_codes import of_audit

if TYPE_CHECKING:
    from dpassay.accounting.adjacency import Unit as AccountedUnit
    from dpassay.base.progress import Progress
    from dpassay.jobs.mechanisms import Mechanism

FORMATS = ".csv, .tsv, .jsonl or .parquet"
"""Of files of records, as `dpassay.data.records.read_rows` reads them."""

Json = Annotated[
    bool, typer.Option("--json", help="Print results as JSON to stdout, progress and errors as JSON to stderr.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]

# Where things are.
Anchor = Annotated[
    Path | None,
    typer.Option(
        help="File of the last known heads of ledgers, to detect rollback. Default: one in your state folder."
    ),
]
NewRun = Annotated[Path, typer.Option("-o", "--output", help="Folder of the run.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN_FOLDER", help="The folder that `dpassay assay` wrote.")]
Synthetic = Annotated[Path, typer.Argument(metavar="RUN_FOLDER_OR_FILE", help=f"A run's folder, or a {FORMATS} file.")]
SyntheticText = Annotated[str, typer.Option(help="Column of the text in the synthetic file.")]
Ignore = Annotated[list[str] | None, typer.Option(help="Column to leave out, such as an id; repeatable.")]

# Models.
Model = Annotated[str | None, typer.Option(help="A local model folder or a hub id, used instead of the claim's model.")]
Device = Annotated[str, typer.Option(help="Where models run: auto, cpu or cuda.", autocompletion=completion.device)]
Download = Annotated[
    bool, typer.Option("--download", help="Download models and data sets that are not on this machine.")
]
Embedder = Annotated[str, typer.Option(help="builtin, or a sentence-transformers model: a local folder or a hub id.")]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Number of processes of this machine that share the work. Default: this process alone."),
]
Cluster = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Share the work among the workers of a dask scheduler: tcp://10.0.0.1:8786."),
]
AllowEndpoint = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Allow sending prompts, and the API key that the claim names, to the claim's endpoint at this address.",
    ),
]

# Accounting.
Delta = Annotated[float, typer.Option(help="δ at which ε is computed, in (0, 1).")]
Adjacency = Annotated[
    str,
    typer.Option(
        help="Neighbouring relation: add_remove, replace_one or zero_out.", autocompletion=completion.adjacency
    ),
]

# Audits.
BoundDelta = Annotated[float, typer.Option(help="δ at which ε is bounded, in [0, 1).")]
Confidence = Annotated[float, typer.Option(help="Confidence with which all bounds hold jointly, in (0, 1).")]
Seed = Annotated[
    int, typer.Option(help="Seed of public choices, such as tie-breaking and sampling; noise does not depend on it.")
]


Unit = Annotated[str, typer.Option(help=f"What is protected: {RECORD_UNITS}.", autocompletion=completion.unit)]
RecordsPerUser = Annotated[
    int | None, typer.Option(help="With --unit user: the most records of a user, each drawn and clipped by itself.")
]
SampledBy = Annotated[
    str | None,
    typer.Option(
        help="With --unit user: user if each is drawn, and clipped, with all records; or record.",
        autocompletion=completion.sampled_by,
    ),
]

T = TypeVar("T")


@dataclass(frozen=True)
class Statements:
    """What files of other libraries do not record."""

    sampler: Annotated[
        str | None,
        "For files of other libraries: how records were sampled: poisson, fixed, shuffled or unknown.",
        Sampler,
    ] = None
    records: Annotated[
        int | None, "For files of other libraries: the number of records; needed with --sampler fixed."
    ] = None
    normalizer: Annotated[
        str | None,
        "For files of other libraries: what noisy sums were divided by: public (the same number for neighbours), "
        "batch (depends on the size of the data) or unknown.",
        Normalizer,
    ] = None
    condition: Annotated[
        list[str] | None,
        "State that a condition holds that no file records: clipping, noise, once, epochs, independent, event, "
        "disjoint, run, newest or recorded; repeatable.",
        Condition,
    ] = None

    def words(self) -> dict[str, Any]:
        """The statements by name, as jobs take them."""
        words = asdict(self)
        return {"conditions": words.pop("condition") or (), **words}


def unit_of_files(unit: str | None, records_per_user: int | None) -> str | None:
    """The unit that these options state of files; an `InputError` if they do not go together."""
    if records_per_user is None:
        return unit
    if unit != "user":
        raise InputError("--records-per-user goes with --unit user")
    return f"user({records_per_user})"


@dataclass(frozen=True)
class AllStatements(Statements):
    """The same, with the neighbouring relation and the unit."""

    adjacency: Annotated[
        str | None,
        "For files of other libraries: the neighbouring relation: add_remove, replace_one or zero_out.",
        RECORD_RELATIONS,
    ] = None
    unit: Annotated[str | None, f"For files of other libraries: the privacy unit: {RECORD_UNITS}.", SINGLE_KINDS] = None
    records_per_user: Annotated[
        int | None, "With --unit user: the most records of a user, where events are charged for one record."
    ] = None

    def words(self) -> dict[str, Any]:
        words = super().words()
        return words | {"unit": unit_of_files(words["unit"], words.pop("records_per_user"))}


Option = tuple[str, Any, Any]
"""Name, annotation and default of an option."""

REQUIRED: Any = inspect.Parameter.empty
"""The default of an option that must be given."""


def options_of(kind: type, optional: Collection[str] = ()) -> list[Option]:
    """The fields of a dataclass whose annotations have a help text, as options; those that must be given first. What
    follows the help text, if anything does, are the words that a value can be.

    Args:
        kind: the dataclass.
        optional: names of fields that need not be given.
    """
    hints = get_type_hints(kind, include_extras=True)
    options = []
    for field in fields(kind):
        if get_origin(hints[field.name]) is not Annotated:
            continue
        of, text, *words = get_args(hints[field.name])
        flag = [f"--{field.name}"] if of is bool else []
        option = typer.Option(*flag, help=text, autocompletion=complete(words[0]) if words else None)
        default = None if field.name in optional else REQUIRED if field.default is MISSING else field.default
        annotation = Annotated[of | None if field.name in optional else of, option]  # type: ignore[valid-type]
        options.append((field.name, annotation, default))
    return sorted(options, key=lambda option: option[2] is not REQUIRED)


def unit_options(mechanism: type[Mechanism]) -> list[Option]:
    """The options that say what bounds on a mechanism protect."""
    drawn: list[Option] = [("sampled_by", SampledBy, None)] if mechanism.sampled else []
    return [("unit", Unit, "record"), ("records_per_user", RecordsPerUser, None), *drawn]


def unit_of_options(mechanism: type[Mechanism], given: dict[str, Any]) -> AccountedUnit | None:
    """The unit that these options say, which are taken out of `given`; None where a secret is protected."""
    from dpassay.jobs.mechanisms import stated_unit

    if "unit" not in given:
        return None
    with input_errors():
        return stated_unit(mechanism, *(given.pop(name, None) for name in ("unit", "records_per_user", "sampled_by")))


def with_fields(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes the fields of its dataclasses as options, in place of the dataclasses."""
    hints = get_type_hints(command, include_extras=True)
    options, groups = [], {}
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(hints[name]):
            groups[name] = hints[name], options_of(hints[name])
            options += groups[name][1]
        else:
            options.append((name, hints[name], parameter.default))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for group, (kind, own) in groups.items():
            with input_errors("--"):
                given[group] = kind(**{name: given.pop(name) for name, _, _ in own})
        command(**given)

    return with_options(run, command.__doc__, options)


def with_options(run: Callable[..., None], text: str | None, options: Iterable[Option]) -> Callable[..., None]:
    """A command with these options and this help, which passes them to `run` by name."""
    run.__doc__ = text
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
            for name, annotation, default in options
        ]
    )
    return run


def progress(json_: bool, quiet: bool) -> Progress:
    """How a command shows its progress: as a bar, as JSON lines, or not at all."""
    from dpassay.base.progress import Progress

    return Progress("quiet" if quiet else "json" if json_ else "bar")


def show(result: Any, in_words: Callable[[], None], json_: bool, quiet: bool) -> None:
    """Prints a result: as JSON, for people, or not at all.

    Args:
        result: in JSON types.
        in_words: prints it for people.
        json_, quiet: what was asked for; with both, JSON.
    """
    if json_:
        print(json.dumps(result))
    elif not quiet:
        in_words()


def call(function: Callable[..., T], options: Mapping[str, Any], **others: Any) -> T:
    """Calls a function of `dpassay` whose keywords are the options of a command, and shows its progress.

    Args:
        function: it has its own default for each option that was not given.
        options: of the command by name: `locals()` where it begins.
        others: arguments that are not the option of their name as it was given.
    """
    given = {name: value for name, value in {**options, **others}.items() if value is not None}
    shown = progress(given.pop("json_"), given.pop("quiet"))
    return function(**given, progress=shown)


class Concluded(Protocol):
    """The result of an audit, as a command prints it."""

    @property
    def refuted(self) -> bool | None:
        """Whether the claim is refuted; None without one."""

    @property
    def concluded(self) -> bool:
        """Whether a conclusion is drawn."""

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON types."""


def conclude(result: Concluded, in_words: Callable[[], None], json_: bool, quiet: bool) -> NoReturn:
    """Prints the result of an audit, as `show` does, and ends the command with the exit code of its conclusion."""
    show(result.to_json(), in_words, json_, quiet)
    raise typer.Exit(of_audit(bool(result.refuted), result.concluded))
