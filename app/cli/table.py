"""`dpassay table`: commands for synthetic tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpassay.base.number_format import format_number
from dpassay.base.terminal import say
from dpassay.cli.options import FORMATS, Ignore, Json, Quiet, Seed, Synthetic, call, show, with_fields
from dpassay.data.reader import FOUND, FileOptions

if TYPE_CHECKING:
    from dpassay.cli.table_console import Rows
    from dpassay.utility.table_measures import TableUtility

app = typer.Typer(
    no_args_is_help=True,
    help="Writes public schemas of tables, and measures synthetic tables by them.",
    epilog="Example: dpassay table utility report --real patients.csv --schema columns.yaml",
)


@app.command(epilog="Example: dpassay table schema sample.csv -o people.schema.yaml --public --ignore person")
@with_fields
def schema(
    sample: Annotated[Path, typer.Argument(help=f"A sample that is public: a {FORMATS} file.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The YAML file to write.")],
    public: Annotated[
        bool, typer.Option("--public", help="State that the sample is public; without it, claims are warned.")
    ] = False,
    ignore: Ignore = None,
    reading: FileOptions = FOUND,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Writes the schema of a public sample, as a template to be edited: names, types and domains of all columns.

    What each column was taken for is shown. Columns that look like identifiers or free text are left out.

    Do not make a schema from private rows: it would reveal their smallest and largest values and all categories.
    """
    from dpassay.cli.column_table import print_columns
    from dpassay.jobs import table_schema as job

    result = job.write_schema(sample, output, public=public, ignore=ignore or (), reading=reading)

    def in_words() -> None:
        print_columns(result.understood, {str(sample): result.written})
        left_out = f", and {len(result.left_out)} left out" if result.left_out else ""
        columns = f"{len(result.columns)} column{'s' * (len(result.columns) != 1)}{left_out}"
        say(f"Written to {result.path}: {columns}. Widen their domains to what may occur.")
        if not public:
            say("The schema says that it was made from private rows. If the sample is public, give --public.")

    show(result.to_json(), in_words, json_, quiet)


@app.command(
    epilog="Example: dpassay table utility report --real patients.csv --held-out others.csv --schema columns.yaml "
    "--target health"
)
@with_fields
def utility(
    synthetic: Synthetic,
    real: Annotated[Path, typer.Option(help="File of the private rows that the generator saw.")],
    schema: Annotated[Path, typer.Option(help="YAML file of the public schema of all tables.")],
    held_out: Annotated[Path | None, typer.Option(help="File of real rows that it did not see.")] = None,
    target: Annotated[
        str | None, typer.Option(help="Column of categories; with it, classifiers are trained to predict it.")
    ] = None,
    reading: FileOptions = FOUND,
    seed: Seed = 0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="JSON file; private/table-utility.json by default.")
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measures how far a synthetic table is from real rows: histograms, pairs of columns, associations, classifiers.

    Every number is computed from private data without noise, so it is private too: it goes to private/, is covered by
    no guarantee, and must not decide the parameters of a claimed run.
    """
    options = locals()
    from dpassay.base.private_results import output_file
    from dpassay.cli.table_console import show_measures
    from dpassay.utility import table_measures as job

    path = output_file(synthetic, output, job.NAME, (real, held_out, schema))
    result = job.measure_table(synthetic, call(job.TableSettings, options, synthetic=None, output=None))
    show_measures(result, (_comparison_rows(result), _classifier_rows(result)), path, json_, quiet)


def _comparison_rows(result: TableUtility) -> Rows:
    named = {
        "synthetic, seen": result.to_real,
        "synthetic, not seen": result.to_held_out,
        "seen, not seen": result.real_to_held_out,
    }
    known = {name: side for name, side in named.items() if side is not None}
    sides = list(known.values())
    rows = [["rows", *(f"{side.rows.synthetic}, {side.rows.real}" for side in sides)]]
    for name in ("histograms", "pairs"):
        for bins in (20, 50):
            shares = [getattr(getattr(side, name), f"bins_{bins}", None) for side in sides]
            rows.append([f"{name}, {bins} bins", *map(format_number, shares)])
    agree = [side.associations for side in sides]
    rows.append(["CorAcc", *(format_number(None if of is None else of.share) for of in agree)])
    for index, column in enumerate(result.to_real.columns):
        rows.append([f"{column.name}, mean", *(format_number(side.columns[index].intersection.mean) for side in sides)])
    return "Synthetic rows, and real rows that the generator has seen or not seen", ["", *known], rows


def _classifier_rows(result: TableUtility) -> Rows | None:
    efficacy = result.efficacy
    if efficacy is None:
        return None
    named = {
        "logistic regression, synthetic": efficacy.logistic_regression.train_on_synthetic,
        "logistic regression, real (ceiling)": efficacy.logistic_regression.train_on_real,
        "XGBoost, synthetic": efficacy.xgboost.train_on_synthetic,
        "XGBoost, real (ceiling)": efficacy.xgboost.train_on_real,
        "largest class (floor)": efficacy.majority_class,
    }
    columns = ["", "accuracy", "macro F1", "AUC"]
    rows = [[name, *map(format_number, (of.accuracy, of.macro_f1, of.auc))] for name, of in named.items()]
    if efficacy.rarer is not None:
        columns.append(f"F1 of {efficacy.rarer}")
        for row, of in zip(rows, named.values(), strict=True):
            row.append(format_number(of.rarer_f1))
    seen = "held-out rows" if efficacy.tested_on == "held_out" else "rows set apart of the real file"
    title = f"Predicting {efficacy.target}, {efficacy.classes} classes, tested on {efficacy.rows.real_test} {seen}"
    return title, columns, rows
