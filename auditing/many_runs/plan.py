"""Plans an audit by many runs: makes neighbouring data sets, and fixes what is tested."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpassay import __version__
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.attacks.black_box.column_facts import ColumnFacts, Row, describe_columns
from dpassay.attacks.black_box.neighboring_data import RELATIONS, NeighboringData, Sample, data_sets_of
from dpassay.attacks.black_box.output_features import Features, OutputFeatures
from dpassay.attacks.black_box.own_neighbors import own_pair
from dpassay.attacks.black_box.probes import FINDS as PROBE_FINDS
from dpassay.attacks.black_box.probes import Probe, probe
from dpassay.attacks.black_box.worst_cases import STRATEGIES, neighboring_data
from dpassay.attacks.canaries.rows import ColumnRange
from dpassay.auditing.data import SAMPLE, Data, write_rows
from dpassay.auditing.files import PLAN, Claimed, planned_claim
from dpassay.auditing.many_runs.files import DATA, PlannedRuns, data_file, read_plan
from dpassay.auditing.many_runs.own_files import FileRows, PlannedOwn, copied, read_own
from dpassay.auditing.many_runs.plan_content import (
    PlannedColumn,
    PlannedDialect,
    PlannedEvent,
    PlannedPair,
    RunsPlan,
    Understood,
    UnderstoodColumn,
)
from dpassay.auditing.many_runs.probes import PlannedProbe
from dpassay.audits.games.many_runs_design import MAX_RUNS, MIN_RUNS, ManyRunsDesign
from dpassay.audits.games.many_runs_power import runs_needed
from dpassay.base import defaults, validate
from dpassay.base.errors import InputError, input_errors
from dpassay.base.number_format import format_number, format_upper
from dpassay.base.outputs import check_new_folder
from dpassay.base.private_files import new_folder, write_private
from dpassay.base.progress import Progress
from dpassay.data.cells import as_category, is_missing
from dpassay.data.column_summary import ColumnSummary, summarised
from dpassay.data.columns import Column, ColumnReader, Form, Kind, Rules
from dpassay.data.reader import FOUND, Dialect, FileOptions, compression_of, dialect_of
from dpassay.data.records import read_rows, written_as
from dpassay.data.table_schema import Schema, kinds_of, read_schema

RUNS = 300
"""The default number of runs, pilot runs included; more if the claim needs them."""

_SIGNS = {":": "colons", "^": "signs such as ^", "~": "signs such as ~"}
"""What may stand between the cells of files that are no CSV."""
_MIN_COUNTED = 20
_LONGEST_TITLE = 200
_ALIKE = 0.9  # share of the rows that are cut into as many parts as the header


def plan(
    folder: str | Path,
    *,
    like: str | Path | None = None,
    pair: tuple[str | Path, str | Path] | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    adjacency: str = "add_remove",
    unit: str = "record",
    runs: int | None = None,
    confidence: float = defaults.CONFIDENCE,
    neighbors: Iterable[str] = (),
    schema: str | Path | None = None,
    records: int | None = None,
    label: str | None = None,
    number: Iterable[str] = (),
    categorical: Iterable[str] = (),
    texts: Iterable[str] = (),
    ids: Iterable[str] = (),
    reading: FileOptions = FOUND,
    failures: bool = False,
    title: str = "",
    progress: Progress | None = None,
) -> PlannedRuns:
    """Plans an audit by many runs: makes neighbouring data sets, and fixes in advance what is tested.

    Args:
        folder: to make; it must not exist, or be empty.
        like: file of the data (.csv, .tsv, .jsonl, .parquet) that neighbours are made like. Data sets are written as it
            is.
        pair: in its place, two files that are neighbours, the only pair, copied as they are. With ``add_remove`` D is
            the one with fewer records, with ``replace_one`` the first.
        epsilon: claimed ε; None for no claim.
        delta: claimed δ; 0 for pure differential privacy.
        adjacency: of the claim: ``add_remove`` or ``replace_one``.
        unit: of the claim: ``record`` or ``group(k)``.
        runs: largest number of runs, pilot runs included; None for 300, or more if the claim needs them.
        confidence: of the bound.
        neighbors: names of strategies that make neighbours, and of probes; empty for all that apply.
        schema: file of the public domains of the columns; None to read types off the data.
        records: largest number of records of a data set, drawn at random from the file; None for 200.
        label: column of classes; None for the category with the fewest values.
        number: columns of numbers or dates, in which all other cells count as missing.
        categorical: columns of numbers that are categories.
        texts: columns of prose.
        ids: columns of ids, which are no value of a record. Where no two records share one, each new record gets a new
            one.
        reading: how the data are written; what is not stated is found out.
        failures: whether pairs are tested on which every run fails if the record is in the data.
        title: what the audit is called on its page; empty for the name of the folder.
        progress: where to show progress.

    Returns:
        The plan, and what its test shows of leaks of known size.

    Raises:
        InputError: if an argument, the data or the folder is invalid.
    """
    target, files, names = Path(folder), _files(like, pair), tuple(neighbors)
    with input_errors():
        if pair is not None:
            _check_alone(neighbors=names, schema=schema, records=records, label=label)
        public = None if schema is None else read_schema(Path(schema))[0]
    check_new_folder(target, files)
    shown, own, planned_own, probing = progress or Progress(), None, None, None
    with input_errors():
        group, relation = _checked_unit(unit, epsilon, delta, adjacency, confidence), Adjacency(adjacency)
        _check_title(title)
        if runs is not None:
            validate.integer(minimum=MIN_RUNS, maximum=MAX_RUNS, runs=runs)
        rules = _rules(
            public,
            reading,
            {Kind.NUMBER: number, Kind.CATEGORY: categorical, Kind.TEXT: texts, Kind.IDENTIFIER: ids},
        )
        if pair is not None:
            own = read_own(files, reading, relation, group, shown)
        most = defaults.MANY_RUNS_RECORDS if records is None else records
        if own is None:
            validate.integer(minimum=group.size + 4, records=most)
        known = _described(files[-1] if own is not None and own.swapped else files[0], reading, rules, most, shown)
        rows = _drawn(known.rows, most) if own is None else known.rows
        columns = describe_columns(
            rows,
            columns={name: reader.column() for name, reader in known.readers.items()},
            schema=public,
            rules=rules,
            most=_largest_numbers(known.path),
        )
        if own is None:
            pairs, probing = _made(Sample(rows, columns, relation, group.size, label), names)
        else:
            made, place = own_pair(own, columns)
            pairs, planned_own = (made,), PlannedOwn.of(own, files, place)
        _check_texts(known.path, pairs)
        data_sets, indices = data_sets_of(pairs)
    planned_probe = None if probing is None else PlannedProbe.of(probing, len(data_sets))
    held = features_of(columns, pairs, data_sets, indices)
    if probing is not None:
        data_sets += [probing.data, *(ladder.rows for ladder in probing.ladders)]
    form = Data(known.path, [ColumnRange(column.name, "other") for column in columns], reading=reading)
    with new_folder(target) as partial:
        content = RunsPlan(
            dpassay=__version__,
            seed=secrets.randbits(63),
            like=str(known.path),
            suffix=form.suffix,
            data_sets=_write_data_sets(partial, data_sets, form),
            own=planned_own,
            columns=[PlannedColumn.of(column) for column in columns],
            pairs=[
                PlannedPair(
                    name=pair.name,
                    data=data,
                    neighbor=neighbor,
                    target={name: _plain(cell) for name, cell in pair.target.items()},
                    novel=list(pair.novel),
                    events=[PlannedEvent.model_validate(event, from_attributes=True) for event in pair.events],
                )
                for pair, (data, neighbor) in zip(pairs, indices, strict=True)
            ],
            runs=runs or RUNS,
            confidence=confidence,
            delta=delta,
            claim=Claimed(epsilon=epsilon, delta=delta) if epsilon is not None else None,
            adjacency=adjacency,
            unit=unit,
            failures=failures,
            dialect=None if known.dialect is None else PlannedDialect.of(known.dialect),
            header=reading.header,
            understood=known.understood(columns),
            held=held,
            title=title,
            probe=planned_probe,
            halving=False,
        )
        if runs is None:
            content = content.model_copy(update={"runs": _default_runs(content.design())})
        write_private(partial / "private" / PLAN, content.model_dump_json(indent=1) + "\n")
        write_private(partial / "README.md", _readme(read_plan(partial)))
    return read_plan(target)


def _files(like: str | Path | None, pair: tuple[str | Path, str | Path] | None) -> tuple[Path, ...]:
    """The file of `like`, or the two of a pair.

    Raises:
        InputError: if both are given, or neither, or a data set cannot be written as one is.
    """
    if (like is None) == (pair is None):
        raise InputError(
            "give either --like FILE, the data that neighbours are made like, or --pair FILE FILE, two files that are "
            "neighbours"
        )
    files = tuple(map(Path, pair)) if pair is not None else (Path(like or ""),)
    for path in files:
        if compression_of(path)[0] == ".xlsx":
            raise InputError(f"{path}: data sets are written as the data are, and no Excel files are; save it as CSV")
    return files


def _check_alone(**others: Any) -> None:
    """Raises `ValueError` if an option is given that says how neighbours are made."""
    for name, value in others.items():
        if value not in (None, ()):
            raise ValueError(f"--{name} says how neighbours are made, and --pair gives them; leave one of the two out")


@dataclass(frozen=True, slots=True)
class _Described:
    """What is known of a file.

    Attributes:
        path: of the file.
        rows: a sample of its records.
        readers: of the cells of each column of the sample.
        dialect: how it is written; None if it is no CSV.
        written: how it is written, in words.
    """

    path: Path
    rows: tuple[Row, ...]
    readers: Mapping[str, ColumnReader]
    dialect: Dialect | None
    written: str

    def understood(self, columns: Sequence[ColumnFacts]) -> Understood:
        """What was understood of the file."""
        summaries = (_summary(column, self.readers[column.name]) for column in columns)
        return Understood(
            written=self.written, columns=[UnderstoodColumn(**dataclasses.asdict(summary)) for summary in summaries]
        )


def _described(path: Path, reading: FileOptions, rules: Rules, most: int, progress: Progress) -> _Described:
    """Reads a file, and finds out how it is written; so many records of it are needed at most."""
    kept = _read(path, reading, max(most, SAMPLE), progress)
    rows = tuple(row for _, row in kept)
    dialect = dialect_of(path, reading) if compression_of(path)[0] in (".csv", ".tsv") else None
    _check_separator(path, rows, dialect, reading)
    drawn = f"; columns are those of {len(kept)} of its records, drawn at random" * (kept[-1][0] >= len(kept))
    return _Described(path, rows, _readers(kept, rules), dialect, written_as(path, reading) + drawn)


def _made(sample: Sample, names: Sequence[str]) -> tuple[tuple[NeighboringData, ...], Probe | None]:
    """The pairs that strategies make, and the probe."""
    rng = np.random.default_rng(secrets.randbits(64))
    for name in names:
        validate.one_of((*STRATEGIES, *PROBE_FINDS), neighbors=name)
    pairs = neighboring_data(sample, rng, tuple(name for name in names if name in STRATEGIES) or None)
    return pairs, probe(sample, rng, [name for name in names if name in PROBE_FINDS] if names else None)


def features_of(
    columns: Sequence[ColumnFacts],
    pairs: Sequence[NeighboringData],
    data_sets: Sequence[Sequence[Row]],
    indices: Sequence[tuple[int, int]],
) -> list[dict[str, Features]]:
    """The features of the data sets themselves, as if each were an output."""
    features = OutputFeatures(columns, pairs)
    names = [
        [pair.name for pair, both in zip(pairs, indices, strict=True) if data in both] for data in range(len(data_sets))
    ]
    return [features.of(rows, held) for rows, held in zip(data_sets, names, strict=True)]


def _write_data_sets(folder: Path, data_sets: Sequence[Sequence[Row]], form: Data) -> list[str]:
    """Writes the data sets as the data are written, copies those that are files, and returns the hash of each."""
    (folder / "private" / DATA).mkdir(mode=0o700)
    hashes = []
    for number, rows in enumerate(data_sets):
        path = data_file(folder, number, form.suffix)
        if isinstance(rows, FileRows):
            hashes.append(copied(rows.path, path))
            continue
        write_rows(path, [dict(row) for row in rows], form)
        hashes.append(hashlib.sha256(path.read_bytes()).hexdigest())
    return hashes


def _rules(public: Schema | None, reading: FileOptions, named: Mapping[Kind, Iterable[str]]) -> Rules:
    """What is stated of columns: by name, and else by the schema.

    Raises:
        ValueError: if a column is stated to be two things.
    """
    stated: dict[str, Kind] = {}
    for kind, names in named.items():
        for name in names:
            if stated.setdefault(name, kind) is not kind:
                raise ValueError(f"column {name!r} is named twice; name it once, as what it is")
    kinds = {} if public is None else kinds_of(public)
    return Rules(kinds | stated, tuple(reading.missing or ()), reading.decimal)


def _check_separator(path: Path, rows: Sequence[Row], dialect: Dialect | None, reading: FileOptions) -> None:
    """Raises `ValueError` if a file is read as one column, and another sign cuts name and cells into as many parts."""
    names = list(rows[0])
    if dialect is None or reading.separator is not None or len(names) > 1:
        return
    sample = [str(row[names[0]]) for row in rows[:1000]]
    for sign, what in _SIGNS.items():
        parts = names[0].count(sign)
        alike = sum(cell.count(sign) == parts for cell in sample)
        if parts and alike >= _ALIKE * len(sample):
            raise ValueError(
                f"{path}: is read as one column, but {what} seem to stand between the cells of several; write it with "
                "commas, or, if it is one column, give --separator comma"
            )


def _summary(facts: ColumnFacts, reader: ColumnReader) -> ColumnSummary:
    column = facts.column or reader.column()
    use = {"number": "as a number", "category": "as a category", "text": "as prose"}.get(facts.kind, "")
    if facts.kind == "number" and facts.is_category:
        use += ", and as a category"
    if facts.kind == "number" and column.form is not None and column.form.kind is not Kind.NUMBER:
        use = "as a number of days"
    left = ""
    if facts.kind == "id":
        left = "ids; a new record gets a new one, unless records share them"
        if column.form is not None:
            left += "; --number uses them"
    elif column.kind is Kind.NESTED:
        left = "lists or objects"
    elif facts.kind == "other":
        left = "words that rarely repeat, such as names; --categorical or --text uses them" if facts.counts else "empty"
    result = summarised(column, {"data": reader}, left=left, use=use)
    if facts.kind == "number" and _counts_rows(column):
        counts = "it counts the rows; if that is no value of a record, name it with --id"
        return dataclasses.replace(result, warnings=(*result.warnings, counts))
    return result


def _counts_rows(column: Column) -> bool:
    """Whether each whole number of a range is in one row."""
    whole = column.form is Form.POINT and not (column.decimals or column.missing or column.odd)
    return whole and column.distinct == column.rows == column.high - column.low + 1 and column.rows >= _MIN_COUNTED


def _check_texts(path: Path, pairs: Sequence[NeighboringData]) -> None:
    """Raises `ValueError` if a target cannot be written into the plan, which is UTF-8."""
    for name, cell in (item for pair in pairs for item in pair.target.items()):
        if any("\ud800" <= letter <= "\udfff" for text in (name, cell) if isinstance(text, str) for letter in text):
            raise ValueError(f"{path}: column {name!r} holds half of a surrogate pair, which is no text; take it out")


def _check_title(title: str) -> None:
    """Raises `ValueError` if a title is no line of text."""
    if len(title) > _LONGEST_TITLE or not all(letter.isprintable() for letter in title):
        raise ValueError(f"a title is one line of at most {_LONGEST_TITLE} characters that can be printed")


def _checked_unit(unit: str, epsilon: float | None, delta: float, adjacency: str, confidence: float) -> Unit:
    """The unit of a claim; raises `ValueError` if the claim cannot be tested."""
    planned_claim(epsilon, delta, confidence)
    group = Unit.parse(unit)
    if group.is_secret or group.needs_user:
        raise ValueError(
            f"neighbours differ in a record or a group of records, not in unit {group}; for a user give 'group(k)' "
            "with the most records that a user may have"
        )
    if adjacency not in RELATIONS:
        raise ValueError(f"adjacency must be {' or '.join(RELATIONS)}, not {adjacency!r}")
    return group


def _read(path: Path, reading: FileOptions, most: int, progress: Progress) -> list[tuple[int, Row]]:
    """A uniform sample of the records of the file, of at most so many, each with its number from 0, in one pass."""
    kept: list[tuple[int, Row]] = []
    drawn = random.Random(secrets.randbits(64))
    with progress.stage("Reading the data") as step:
        for number, (_, row) in enumerate(read_rows(path, stated=reading)):
            if len(kept) < most:  # reservoir sampling: Vitter 1985, algorithm R
                kept.append((number, dict(row)))
            elif (target := drawn.randrange(number + 1)) < most:
                kept[target] = number, dict(row)
            if number % 1000 == 0:
                step(0, 1)  # the number of rows is unknown before the end
        step(1, 1)
    if not kept:
        raise ValueError(f"{path}: holds no records; neighbours are made like records, so name a file of some")
    return sorted(kept, key=lambda item: item[0])


def _readers(kept: Sequence[tuple[int, Row]], rules: Rules) -> dict[str, ColumnReader]:
    """What the columns of numbered records hold; warnings name rows by these numbers."""
    readers: dict[str, ColumnReader] = {}
    for number, row in kept:
        for name, cell in row.items():
            if name not in readers:
                readers[name] = ColumnReader(name, rules)
            readers[name].rows = number
            readers[name].read(cell)
    for reader in readers.values():
        reader.rows = len(kept)
    return readers


def _drawn(rows: tuple[Row, ...], records: int) -> tuple[Row, ...]:
    """So many of the rows, drawn uniformly, in their order."""
    if len(rows) <= records:
        return rows
    return tuple(rows[index] for index in sorted(random.Random(secrets.randbits(64)).sample(range(len(rows)), records)))


def _largest_numbers(path: Path) -> dict[str, float]:
    """The largest number that each column of integers or decimals of a Parquet file can hold, and a float exactly."""
    if path.suffix.lower() != ".parquet":
        return {}
    import pyarrow
    import pyarrow.parquet

    results = {}
    for item in pyarrow.parquet.read_schema(path.absolute()):
        if pyarrow.types.is_integer(item.type):
            bits = item.type.bit_width - pyarrow.types.is_signed_integer(item.type)
            results[item.name] = float(2 ** min(bits, 53) - 1)
        elif pyarrow.types.is_decimal(item.type):
            results[item.name] = float(min(10 ** max(item.type.precision - item.type.scale, 0), 2**53) - 1)
    return results


def _plain(cell: Any) -> Any:
    """A cell in a type of JSON."""
    if cell is None or isinstance(cell, bool | int | str) or (isinstance(cell, float) and math.isfinite(cell)):
        return cell
    return None if is_missing(cell) else as_category(cell)


def _default_runs(design: ManyRunsDesign) -> int:
    """`RUNS`, or twice as many as the claim needs at least if that is more, so that a leak need not be perfect."""
    needed = runs_needed(design) if design.claim is not None else None
    return RUNS if needed is None or needed > MAX_RUNS else min(max(RUNS, 2 * needed), MAX_RUNS)


def _readme(planned: PlannedRuns) -> str:
    plan = planned.plan
    claim = f"ε = {format_number(plan.claim.epsilon)}" if plan.claim else "no ε"
    if plan.claim and plan.delta:
        claim += f", δ = {format_upper(plan.delta)}"
    written = f" ({plan.understood.written})" if plan.understood is not None else ""
    looks = "\n".join(f"- {line.strip()}" for line in planned.words())
    holds = (
        f"records like those of `{plan.like}`; keep it as private as these. Its data sets are written as that file is"
    )
    if plan.own is not None:
        holds = (
            f"copies of `{plan.own.data}` and `{plan.own.neighbor}`; keep it as private as these. They are as they were"
        )
    return f"""# An audit by many runs

A generator is claimed to have {claim} ({plan.adjacency}, unit {plan.unit}). It is run many times on two data sets that
differ in one unit, and the audit looks for outputs that tell which of the two was read.

1. `dpassay audit runs run DIR --command "python gen.py {{input}} {{output}}"` makes the runs. Given again, it resumes.
   Where the generator runs on another machine, `dpassay audit runs score DIR` says which runs are needed
   (`private/todo.csv`), and reads their outputs from `private/outputs/`.
2. `dpassay audit runs bound DIR` says what the runs show, and `dpassay audit runs report DIR` writes a page.

Each run must be independent of the others: no fixed seed, no state that is kept from one run to the next. `private/`
holds {holds}{written}.

## What it can show

{looks}

A result that shows nothing does not mean that nothing leaks: other neighbours and other features may show more.
"""
