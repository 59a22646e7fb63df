"""Audits of released text and tables: what they repeat of their source, compared with a holdout."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from dpassay import __version__
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.attacks.released.holdout import Hits, Units, content_key, ranks
from dpassay.auditing.alike import unlike, unlike_texts
from dpassay.auditing.released.design import HoldoutSettings, TableAuditSettings
from dpassay.audits.games.released_data import holdout_audit
from dpassay.audits.implications import describe
from dpassay.audits.result import AuditResult, refuted_where_concluded
from dpassay.audits.verdict import REFUTING_CONFIDENCE, Verdict, decide, may_refute
from dpassay.base import defaults
from dpassay.base.errors import InputError, input_errors
from dpassay.base.private_results import PRIVATE, synthetic_file, write
from dpassay.base.progress import Progress, with_progress
from dpassay.data.cells import is_missing
from dpassay.data.chats import TEXTS, TextOptions
from dpassay.data.column_summary import ColumnSummary, summarised
from dpassay.data.columns import Kind, joined, word_of
from dpassay.data.reader import FOUND, FileOptions

if TYPE_CHECKING:
    from dpassay.attacks.released.pii import PersonalData
    from dpassay.attacks.released.tables import Tables

MIN_COLUMNS = 2
"""Columns with more than one value that attacks on rows need."""

_UNLIKE = (
    "source and holdout differ more than chance explains, so that attacks tell them apart by it; write it alike in "
    "both, or leave it out"
)

_SIDES = ("synthetic", "source", "holdout")

AuditT = TypeVar("AuditT", bound="HoldoutAudit")

TEXT_NAME, TABLE_NAME, KEY_NAME = "text-audit.json", "table-audit.json", "personal-data-key.json"


@dataclass(frozen=True, kw_only=True, eq=False)
class HoldoutAudit:
    """The result of an audit of released data; private.

    Attributes:
        synthetic: the released file.
        settings: of the audit.
        unit: ``record`` or ``user``.
        units: the units of source and holdout.
        audits: one result for each attack.
    """

    kind: ClassVar[str]

    synthetic: Path
    settings: HoldoutSettings
    unit: str
    units: Units
    audits: tuple[AuditResult, ...]

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the claim, by the bounds of all attacks together; None if nothing is claimed."""
        claim, bounds = self.settings.claim, [bound for audit in self.audits for bound in audit.bounds]
        if claim is None:
            return None
        return decide(claim, adjacency=Adjacency.ADD_REMOVE, unit=Unit(self.unit), bounds=bounds)

    @property
    def refuted(self) -> bool | None:
        """Whether the audit refutes the claim; None if nothing is claimed, or there is no conclusion."""
        refuted = None if self.verdict is None else self.verdict.name == "REFUTED"
        return refuted_where_concluded(refuted, any(audit.concluded for audit in self.audits))

    @property
    def concluded(self) -> bool:
        """Whether some attack could have found something, or the claim is refuted."""
        return bool(self.refuted) or any(audit.concluded for audit in self.audits)

    @property
    def conclusion(self) -> str | None:
        """What all attacks together say of the claim, in words; empty if nothing is claimed; None if no attack could
        have found anything, or a control of each failed."""
        claim, verdict = self.settings.claim, self.verdict
        if not self.concluded:
            return None
        if claim is None or verdict is None:
            return ""
        if verdict.name == "REFUTED":
            return verdict.sentence
        said = f"The claim, {describe(claim)}, is not refuted by these attacks; that does not support it."
        if not may_refute(self.settings.confidence):
            said += f" Refuting a claim takes confidence {REFUTING_CONFIDENCE} or more."
        return said

    def to_json(self) -> dict[str, Any]:
        """The audit as plain JSON types."""
        settings, units = self.settings, self.units
        return {
            "schema": 1,
            "private": PRIVATE,
            "version": __version__,
            "kind": self.kind,
            "files": {
                "synthetic": str(self.synthetic),
                "source": str(settings.source),
                "holdout": str(settings.holdout),
            },
            "unit": self.unit,
            "units": {"source": units.source_count, "holdout": units.holdout_count, **units.about()},
            "coins": settings.coins,
            "confidence": settings.confidence,
            "claim": None if settings.epsilon is None else {"epsilon": settings.epsilon, "delta": settings.delta},
            "refuted": self.refuted,
            "conclusion": self.conclusion,
            "audits": [audit.to_json() for audit in self.audits],
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class TextAudit(HoldoutAudit):
    """The result of an audit of synthetic text; private.

    Attributes:
        personal_data: the personal data that the synthetic texts print, as hashes.
    """

    kind = "text"

    personal_data: PersonalData

    def to_json(self) -> dict[str, Any]:
        """The audit as plain JSON types."""
        printed = self.personal_data
        values = [
            {"kind": value.kind, "hash": value.hash, "occurrences": value.occurrences, "where": value.where}
            for value in printed.values
        ]
        hashes = f"HMAC-SHA256 under the key in {KEY_NAME}"
        return super().to_json() | {"personal_data": {"counts": printed.counts(), "hash": hashes, "values": values}}


@dataclass(frozen=True, kw_only=True, eq=False)
class TableAudit(HoldoutAudit):
    """The result of an audit of a synthetic table; private.

    Attributes:
        settings: of the audit.
        numeric, categorical: names of the columns that were compared.
        used: number of units that were drawn, of source and holdout together.
        columns: what was understood of each column.
        written: how each file is written, in words, by ``source``, ``holdout`` and ``synthetic``.
    """

    kind = "table"

    settings: TableAuditSettings
    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    used: int
    columns: tuple[ColumnSummary, ...]
    written: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """The audit as plain JSON types."""
        columns = {"numeric": list(self.numeric), "categorical": list(self.categorical)}
        understood = {"written": dict(self.written), "columns": [column.to_json() for column in self.columns]}
        more = {"columns": columns, "understood": understood, "seed": self.settings.seed, "used": self.used}
        return super().to_json() | more


def audit_text(
    synthetic: str | Path,
    *,
    source: str | Path,
    holdout: str | Path,
    text: str = "text",
    user: str | None = None,
    synthetic_text: str = "text",
    words: int = defaults.VERBATIM_WORDS,
    near_words: int = defaults.NEAR_WORDS,
    near_share: float = defaults.NEAR_SHARE,
    reading: TextOptions = TEXTS,
    coins: bool = False,
    epsilon: float | None = None,
    delta: float = 0.0,
    confidence: float = defaults.CONFIDENCE,
    output: str | Path | None = None,
    progress: Progress | None = None,
) -> TextAudit:
    """Searches synthetic texts for records and personal data of the source, and of a holdout for comparison.

    Args:
        synthetic: a file of texts, or the folder of a run.
        source: file of the records that the generator saw.
        holdout: file of records of the same kind that it did not see.
        text: column of the text in source and holdout.
        user: column of the user, who is then the unit; None for records.
        synthetic_text: column of the text in the synthetic file.
        words: consecutive words that make a verbatim copy.
        near_words: of near-verbatim copies, the words in a run.
        near_share: of near-verbatim copies, the smallest share of a record's runs, in (0, 1].
        reading: how files are written; what is not stated is found out. Synthetic texts need not be lists of turns.
        coins: whether an independent fair coin put each unit into source or holdout: then ε is bounded, too.
        epsilon: claimed ε at `delta` under adding or removing one unit; None for no claim. It needs coins.
        delta: δ at which ε is bounded.
        confidence: with which all bounds hold jointly.
        output: private file of the result. Beside it lies the key of the hashes of personal data, so that hashes of
            several audits can be compared. None to write nothing; hashes then have a key of their own.
        progress: where to show progress.

    Returns:
        One audit for each attack, and the personal data that were found, as hashes.

    Raises:
        InputError: if a file, a column or an argument is invalid.
    """
    from dpassay.attacks.released.pii import personal_data
    from dpassay.attacks.released.text_extraction import Criteria, extraction
    from dpassay.data.records import read_texts, read_user_texts
    from dpassay.data.word_runs import Words

    settings = HoldoutSettings(
        source=Path(source),
        holdout=Path(holdout),
        reading=reading,
        coins=coins,
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        progress=progress or Progress(),
    )
    with input_errors():
        settings.check()
        criteria = Criteria(words, near_words, near_share)
    path, show = synthetic_file(Path(synthetic)), settings.progress
    key_file = None if output is None else Path(output).with_name(KEY_NAME)
    key = _key(key_file)

    def released() -> Iterator[str]:
        return (item for item, _ in read_texts(path, text=synthetic_text, empty=True, stated=reading))

    with show.stage("Reading") as step, input_errors():
        files = (settings.source, settings.holdout)
        sides = [list(read_user_texts(file, text=text, user=user, stated=reading)) for file in files]
        _check_sides(settings, *sides)
        written = Words.of(released())
        words_seen, words_unseen = (Words.of(item for item, _ in side) for side in sides)
        if not len(written):
            raise InputError(f"{path}: holds no text")
        units = _text_units(settings, user, sides, (words_seen, words_unseen))
        if settings.coins:
            _check_alike(settings, sides, units)
        step(1, 1)
    with show.stage("Comparing words") as step:
        hits = extraction(written, words_seen, words_unseen, units, criteria)
        step(1, 1)
    with show.stage("Looking for personal data") as step, input_errors():
        seen, unseen = ((item for item, _ in side) for side in sides)
        total, first = len(written) + len(words_seen) + len(words_unseen), len(written) + len(words_seen)
        printed = personal_data(
            with_progress(released(), step, total, every=1024),
            with_progress(seen, step, total, begin=len(written), every=1024),
            with_progress(unseen, step, total, begin=first, every=1024),
            units,
            key=key,
        )
    unit = "user" if user else "record"
    audits = _audits([*hits, printed.hits], settings, unit)
    if key_file is not None and not key_file.exists():
        write({"key": key.hex()}, key_file)
    result = TextAudit(synthetic=path, settings=settings, unit=unit, units=units, audits=audits, personal_data=printed)
    return _written(result, output)


def audit_table(
    synthetic: str | Path,
    *,
    source: str | Path,
    holdout: str | Path,
    secret: str | Iterable[str] | None = None,
    link: Iterable[str] = (),
    user: str | None = None,
    ignore: Iterable[str] = (),
    number: Iterable[str] = (),
    categorical: Iterable[str] = (),
    schema: str | Path | None = None,
    reading: FileOptions = FOUND,
    limit: int = defaults.TABLE_UNITS,
    coins: bool = False,
    epsilon: float | None = None,
    delta: float = 0.0,
    confidence: float = defaults.CONFIDENCE,
    seed: int = 0,
    output: str | Path | None = None,
    progress: Progress | None = None,
) -> TableAudit:
    """Attacks a synthetic table: exact and near copies of its source, linkability, attribute inference, singling out.

    Args:
        synthetic: a .csv, .tsv, .jsonl or .parquet file.
        source: file of the records that the generator saw.
        holdout: file of records of the same kind that it did not see.
        secret: column whose value is inferred from the others, or several columns, each an attack of its own; None for
            no attribute inference.
        link: columns that one of two parties knows, while the other knows those that are not named; empty for no
            linkability.
        user: column of the user, who is then the unit; None for rows. It is not compared.
        ignore: columns to leave out, such as ids.
        number: columns of numbers or dates, in which all other cells count as missing.
        categorical: columns of numbers to treat as categories.
        schema: YAML file of a public schema, which says what columns hold; None to find out.
        reading: how the files are written; what is not stated is found out.
        limit: largest number of units, of source and holdout together; exact matches use all units.
        coins: whether an independent fair coin put each unit into source or holdout: then ε is bounded, too.
        epsilon: claimed ε at `delta` under adding or removing one unit; None for no claim. It needs coins.
        delta: δ at which ε is bounded.
        confidence: with which all bounds hold jointly.
        seed: of the draw, a public choice that is fixed before the synthetic file is read.
        output: private file of the result; None to write nothing.
        progress: where to show progress.

    Returns:
        One audit for each attack.

    Raises:
        InputError: if a file, a column or an argument is invalid.
    """
    from dpassay.data.records import read_rows, written_as

    settings = TableAuditSettings(
        source=Path(source),
        holdout=Path(holdout),
        secrets=_columns(secret),
        link=tuple(link),
        user=user,
        ignore=tuple(ignore),
        number=tuple(number),
        categorical=tuple(categorical),
        schema=None if schema is None else Path(schema),
        reading=reading,
        limit=limit,
        coins=coins,
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        seed=seed,
        progress=progress or Progress(),
    )
    with settings.progress.stage("Reading") as step, input_errors():
        settings.check()
        files = (Path(synthetic), settings.source, settings.holdout)
        rows = [[values for _, values in read_rows(file, stated=settings.reading)] for file in files]
        _check_sides(settings, *rows[1:])
        written = {side: written_as(file, settings.reading) for side, file in zip(_SIDES, files, strict=True)}
        step(1, 1)
    return _written(audit_rows(Path(synthetic), rows, settings, written), output)


def audit_rows(
    synthetic: Path,
    rows: Sequence[Sequence[Mapping[str, Any]]],
    settings: TableAuditSettings,
    written: Mapping[str, str] | None = None,
) -> TableAudit:
    """`audit_table` for rows that were read already.

    Args:
        synthetic: name of the synthetic table.
        rows: of the synthetic table, the source and the holdout.
        settings: how they are compared, and the names of source and holdout.
        written: how each file is written, by its side; None for rows that come from no file.
    """
    from dpassay.attacks.released.attribute_inference import attribute_inference
    from dpassay.attacks.released.linkability import linkability
    from dpassay.attacks.released.nearest_record import closest_records, exact_matches
    from dpassay.attacks.released.singling_out import singling_out
    from dpassay.attacks.released.tables import EncodedTable, encode, nearest_without

    progress = settings.progress
    with progress.stage("Encoding") as step, input_errors():
        every = encode(*rows, ignore=tuple(settings.unused), rules=settings.rules)
        for column in (*settings.secrets, *settings.link):
            every.locate(column)
        units = _row_units(settings, every, rows[1:])
        differing = _unlike(settings, every, rows[1:], units)
        del rows
        step(1, 1)
    summaries = _summaries(every, settings, differing)
    needs = _unmet(every)
    every = _with_units(every, units, settings)
    some = _subsample(every, settings)
    hits = [exact_matches(every)]
    left_out = [some.locate(column) for column in settings.secrets if len(every.columns) > 1]
    with progress.stage("Nearest rows") as step:
        both = EncodedTable.joined(some.source, some.holdout)
        by_all, *without = nearest_without(both, some.synthetic, left_out, step)
        hits.append(closest_records(some, seed=settings.seed, limit=settings.limit // 2, distances=by_all[0]))
    if settings.link:
        with progress.stage("Linking parts of rows") as step, input_errors():
            hits.append(linkability(some, settings.link, seed=settings.seed, progress=step))
    for number, column in enumerate(settings.secrets):
        index = without[number][1] if without else None  # of a table of one column it says why it cannot
        name = "attribute_inference" + (f" ({column})" if len(settings.secrets) > 1 else "")
        with input_errors():
            hits.append(attribute_inference(some, column, name=name, index=index))
    with progress.stage("Singling out") as step:
        hits.append(singling_out(some, seed=settings.seed, progress=step))
    unit = "record" if settings.user is None else "user"
    return TableAudit(
        synthetic=synthetic,
        settings=settings,
        unit=unit,
        units=units,
        audits=_audits(hits, settings, unit, needs),
        numeric=every.numeric,
        categorical=every.categorical,
        used=sum(some.counts),
        columns=summaries,
        written=written or {},
    )


def _columns(secret: str | Iterable[str] | None) -> tuple[str, ...]:
    return () if secret is None else (secret,) if isinstance(secret, str) else tuple(secret)


def _row_units(settings: TableAuditSettings, tables: Tables, rows: Sequence[Sequence[Mapping[str, Any]]]) -> Units:
    """The units of source and holdout: users, or rows of distinct content."""
    if settings.user is None:
        units = Units.of(tables.source.keys(), tables.holdout.keys())
        _check_units(settings, units, ", or name the column of the users whose coins were flipped with --user")
        return units
    sides = []
    for path, side in zip((settings.source, settings.holdout), rows, strict=True):
        users = [row.get(settings.user) for row in side]
        if (number := next((number for number, user in enumerate(users, 1) if is_missing(user)), None)) is not None:
            raise InputError(f"{path}: row {number} has no user in column {settings.user!r}; each row needs one")
        sides.append([word_of(user) for user in users])  # 7 and 7.0 are one user, as where coins are flipped for them
    units = Units.of(*sides)
    _check_users(settings, settings.user, units)
    return units


def _with_units(tables: Tables, units: Units, settings: TableAuditSettings) -> Tables:
    """The tables with users as units, or with one row for each unit."""
    if settings.user is not None:
        return replace(tables, units=units)
    source, holdout = (_first_rows(of) for of in (units.source, units.holdout))
    return replace(tables, source=tables.source.take(source), holdout=tables.holdout.take(holdout))


def _unlike(
    settings: TableAuditSettings, tables: Tables, rows: Sequence[Sequence[Mapping[str, Any]]], units: Units
) -> Collection[str]:
    """The columns by which source and holdout can be told apart without the synthetic table.

    Raises:
        InputError: if there are some and coins were flipped: a bound would be that of the difference.
    """
    chosen = [_first_rows(of) for of in (units.source, units.holdout)]
    source, holdout = ([side[index] for index in of.tolist()] for side, of in zip(rows, chosen, strict=True))
    encoded = zip((tables.source, tables.holdout), chosen, strict=True)
    numbers = np.concatenate([side.numbers[of] for side, of in encoded]).T
    columns = unlike(tables.columns, source, holdout, dict(zip(tables.numeric, numbers, strict=True)))
    if columns and settings.coins:
        raise InputError(
            f"{settings.files}: differ in column {columns[0]!r} more than coins explain, so that it tells them apart "
            "without the synthetic file; write the column alike in both, leave it out (--ignore), or leave --coins out "
            "if no coins were flipped"
        )
    return columns


def _check_alike(settings: HoldoutSettings, sides: Sequence[Sequence[tuple[str, str]]], units: Units) -> None:
    """Raises `InputError` if texts of source and holdout can be told apart without the synthetic ones, although coins
    were flipped: a bound would be that of the difference. Signs are named, and words, which are private, are not."""
    of_units: list[dict[int, list[str]]] = [{}, {}]
    for texts, side, numbers in zip(of_units, sides, (units.source, units.holdout), strict=True):
        for (text, _), number in zip(side, numbers.tolist(), strict=True):
            if number >= 0:
                texts.setdefault(number, []).append(text)
    differing = unlike_texts(*(texts.values() for texts in of_units))
    if not differing:
        return
    signs = [sign for sign in differing if len(sign) == 1 and not sign.isalnum()]
    what = f"how often a text holds {signs[0]!r}" if signs else f"how many texts hold each of {len(differing)} words"
    raise InputError(
        f"{settings.files}: differ in {what}, more than coins explain, so that it tells them apart without the "
        "synthetic texts; write both in one way, or leave --coins out if no coins were flipped"
    )


def _summaries(tables: Tables, settings: TableAuditSettings, differing: Collection[str]) -> tuple[ColumnSummary, ...]:
    """What was understood of all columns: those that are compared, then those that are left alone."""
    compared = {column.name: column for column in tables.columns}
    names = dict.fromkeys(name for side in tables.read.values() for name in side)
    summaries = []
    for name in (*compared, *(name for name in names if name not in compared)):
        files = {side: tables.read[side][name] for side in tables.read if name in tables.read[side]}
        column = compared.get(name) or joined(*files.values())
        left = "" if name in compared else settings.unused.get(name, "not in the synthetic table")
        use = "compared word by word, as stated" if name in settings.categorical else ""
        summary = summarised(column, files, left=left, use=use, others=("synthetic",))
        if name in differing:
            summary = replace(summary, warnings=(*summary.warnings, _UNLIKE))
        summaries.append(summary)
    return tuple(summaries)


def _unmet(tables: Tables) -> str:
    """What attacks on a table need and these tables do not have; empty if they have all of it."""
    usable = [column for column in tables.columns if column.kind is not Kind.CONSTANT]
    if len(usable) >= MIN_COLUMNS:
        return ""
    return (
        f"only {len(usable)} of {len(tables.columns)} columns hold more than one value, and attacks on rows need "
        f"{MIN_COLUMNS}: check how the files were read, and state their separator if it is another one (--separator)"
    )


def _check_sides(settings: HoldoutSettings, source: Sequence[Any], holdout: Sequence[Any]) -> None:
    for path, side in ((settings.source, source), (settings.holdout, holdout)):
        if not side:
            raise InputError(f"{path}: holds no record; an audit needs records in both source and holdout")


def _text_units(
    settings: HoldoutSettings, user: str | None, sides: list[list[tuple[str, str]]], words: tuple[Any, Any]
) -> Units:
    if user is not None:
        units = Units.of(*([item for _, item in side] for side in sides))
        _check_users(settings, user, units)
        return units
    units = Units.of(*([str(key) for key in side.whole().tolist()] for side in words))
    users = ", or name the column of the users whose coins were flipped with --user"
    _check_units(settings, units, users)
    return units


def _check_users(settings: HoldoutSettings, user: str, units: Units) -> None:
    if units.in_both:
        raise InputError(
            f"{settings.files}: {units.in_both} users of column {user!r} are in both; put all records of a user on one "
            "side"
        )


def _check_units(settings: HoldoutSettings, units: Units, otherwise: str) -> None:
    """Raises `InputError` if a side has no unit of its own, or a coin decided on two that are alike."""
    if not units.source_count or not units.holdout_count:
        raise InputError(
            f"{settings.files}: every record of one of them is in the other, too; give files of different records"
        )
    repeated = units.copies + units.in_both
    if settings.coins and repeated:
        raise InputError(
            f"{settings.files}: {repeated} records repeat the content of another, but --coins needs one coin for each "
            f"unit: remove repeated records before coins are flipped{otherwise}"
        )


def _first_rows(units: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The first row of each unit, by index."""
    numbers, rows = np.unique(units, return_index=True)
    return np.sort(rows[numbers >= 0])


def _subsample(tables: Tables, settings: TableAuditSettings) -> Tables:
    """At most `limit` units of both sides together, the first in an order independent of side and synthetic rows.

    The coins justify a bound only if the draw is independent of the sides. A draw by row number is not: the source
    comes first.
    """
    (count, others), limit = tables.counts, settings.limit
    if count + others <= limit:
        return tables
    if tables.units is None:
        keys = (*tables.source.keys(), *tables.holdout.keys())
        order = ranks([content_key(settings.seed, key) for key in keys])
    else:
        order = ranks([content_key(settings.seed, int(rank)) for rank in tables.units.order])
    chosen = np.zeros(count + others, dtype=np.bool_)
    chosen[np.argsort(order, kind="stable")[:limit]] = True
    if not chosen[:count].any() or not chosen[count:].any():
        raise InputError(f"all {limit} units drawn are from one of source and holdout; raise --limit")
    rows = chosen[tables.owners]
    source, holdout = np.split(rows, [len(tables.source)])
    units = None if tables.units is None else tables.units.taken(chosen)
    return replace(tables, source=tables.source.take(source), holdout=tables.holdout.take(holdout), units=units)


def _audits(hits: list[Hits], settings: HoldoutSettings, unit: str, needs: str = "") -> tuple[AuditResult, ...]:
    """One audit for each attack, each at 1 − β/k, so that the bounds of all k attacks hold jointly at 1 − β.

    `needs` says what is missing for these attacks to find anything; empty if nothing is.
    """
    names = tuple(result.name for result in hits)
    each = 1 - (1 - settings.confidence) / len(hits)
    return tuple(
        holdout_audit(
            result,
            coins=settings.coins,
            confidence=each,
            delta=settings.delta,
            unit=Unit(unit),
            claim=settings.claim,
            tried=names,
            needs=needs,
        )
        for result in hits
    )


def _written(result: AuditT, output: str | Path | None) -> AuditT:
    if output is not None:
        write(result.to_json(), Path(output))
    return result


def _key(path: Path | None) -> bytes:
    """The key in a file, so that hashes of several audits can be compared, or a new one."""
    import json

    if path is None or not path.exists():
        return secrets.token_bytes(32)
    try:
        return bytes.fromhex(json.loads(path.read_text(encoding="utf-8"))["key"])
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"{path}: is not the key of an earlier audit; move the file away, and a new key is made"
        ) from None
